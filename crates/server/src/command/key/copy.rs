//! COPY source destination [DB number] [REPLACE]: a second key with the same value and expiry time; 1 or 0.

use super::database;
use crate::command::{Call, CommandError, Flags, Keys, Spec, errors};

pub const SPEC: Spec = Spec {
    arity: -3,
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: Keys::range(1, 2, 1),
    ..Spec::new("copy", copy)
};

fn copy(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (db, from, to) = (call.session.db, args.at(1), args.at(2));
    let (mut to_db, mut replace) = (db, false);
    let mut at = 3;
    while at < args.len() {
        if args.is(at, "replace") {
            replace = true;
        } else if args.is(at, "db") && at + 1 < args.len() {
            at += 1;
            to_db = database(call, at)?;
        } else {
            return Err(errors::SYNTAX);
        }
        at += 1;
    }
    if (db, from) == (to_db, to) {
        return Err(errors::SAME_OBJECT);
    }
    let copied = call.stats.read_key(call.txn.exists(db, from)?)
        && (replace || !call.txn.exists(to_db, to)?)
        && call.txn.copy(db, from, to_db, to)?;
    call.reply.integer(i64::from(copied));
    Ok(())
}
