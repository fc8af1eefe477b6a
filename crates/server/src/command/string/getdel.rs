//! GETDEL key: the string at a key, which is deleted.

use crate::command::{Call, CommandError, Flags, Keys, Spec};

pub const SPEC: Spec = Spec {
    arity: 2,
    flags: Flags::WRITE.with(Flags::FAST),
    keys: Keys::FIRST,
    ..Spec::new("getdel", getdel)
};

fn getdel(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match call.stats.read(call.txn.get_string(db, key)?) {
        Some(value) => call.reply.bulk(&value),
        None => {
            call.reply.null();
            return Ok(());
        }
    }
    call.txn.delete(db, key)?;
    Ok(())
}
