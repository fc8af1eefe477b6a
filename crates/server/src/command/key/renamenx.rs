//! RENAMENX key new: RENAME if nothing has the new name; 1 or 0.

use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: Keys::range(1, 2, 1),
    ..Spec::new("renamenx", renamenx)
};

fn renamenx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, from, to) = (call.session.db, call.args.at(1), call.args.at(2));
    if !call.txn.exists(db, from)? {
        return Err(errors::NO_SUCH_KEY);
    }
    let free = from != to && !call.txn.exists(db, to)?;
    if free {
        call.txn.copy(db, from, db, to)?;
        call.txn.delete(db, from)?;
    }
    call.reply.integer(i64::from(free));
    Ok(())
}
