//! SETNX key value: SET if the key is not there; 1 or 0.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("setnx", setnx)
};

fn setnx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let absent = !call.txn.exists(db, key)?;
    if absent {
        call.txn.put(db, key, call.args.at(2))?;
    }
    call.reply.integer(i64::from(absent));
    Ok(())
}
