//! GETSET key value: SET, and what was there.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 3,
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("getset", getset)
};

fn getset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match call.stats.read(call.txn.get_string(db, key)?) {
        Some(value) => call.reply.bulk(&value),
        None => call.reply.null(),
    }
    call.txn.put(db, key, call.args.at(2))?;
    Ok(())
}
