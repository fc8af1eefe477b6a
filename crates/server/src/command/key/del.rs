//! DEL key [key …]: deletes keys; how many were there.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec { arity: -2, flags: Flags::WRITE, keys: Keys::ALL, ..Spec::new("del", del) };

fn del(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let mut count = 0;
    for key in call.args.from(1) {
        count += i64::from(call.txn.delete(call.session.db, key)?);
    }
    call.reply.integer(count);
    Ok(())
}
