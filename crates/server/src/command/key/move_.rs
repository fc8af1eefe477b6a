//! MOVE key db: to another database, if nothing has its name there; 1 or 0.

use super::database;
use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};

pub const SPEC: Spec =
    Spec { arity: 3, flags: Flags::WRITE.with(Flags::FAST), keys: Keys::FIRST, ..Spec::new("move", move_) };

fn move_(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let to_db = database(call, 2)?;
    if db == to_db {
        return Err(errors::SAME_OBJECT);
    }
    let moved = call.txn.exists(db, key)?
        && !call.txn.exists(to_db, key)?
        && call.txn.copy(db, key, to_db, key)?
        && call.txn.delete(db, key)?;
    call.reply.integer(i64::from(moved));
    Ok(())
}
