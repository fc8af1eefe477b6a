//! UNLINK key [key …]: DEL. Space is always reclaimed in the background here.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec =
    Spec { arity: -2, flags: Flags::WRITE.with(Flags::FAST), keys: Keys::ALL, ..Spec::new("unlink", unlink) };

fn unlink(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut count = 0;
    for key in call.args.from(1) {
        count += i64::from(call.txn.delete(call.session.db, key)?);
    }
    call.reply.integer(count);
    Ok(())
}
