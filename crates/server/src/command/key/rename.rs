//! RENAME key new: moves a value to another name, over what is there.

use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};

pub const SPEC: Spec =
    Spec { arity: 3, flags: Flags::WRITE, keys: Keys::range(1, 2, 1), ..Spec::new("rename", rename) };

fn rename(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, from, to) = (call.session.db, call.args.at(1), call.args.at(2));
    if !call.txn.exists(db, from)? {
        return Err(errors::NO_SUCH_KEY);
    }
    if from != to {
        call.txn.copy(db, from, db, to)?;
        call.txn.delete(db, from)?;
    }
    call.reply.ok();
    Ok(())
}
