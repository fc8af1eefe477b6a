//! Values that get another key, or a second one: RENAME, RENAMENX, COPY, MOVE.

use super::database;
use crate::observe::keyspace_events::GENERIC;
use crate::redis::command::{Call, CommandError, errors};

/// RENAME key new: moves a value to another name, replacing an existing one.
pub fn rename(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, from, to) = (call.session.db, call.args.at(1), call.args.at(2));
    if !call.txn.exists(db, from)? {
        return Err(errors::NO_SUCH_KEY);
    }
    if from != to {
        call.txn.rename(db, from, db, to)?;
        call.notify_new(db, to);
        call.notify(GENERIC, "rename_from", from);
        call.notify(GENERIC, "rename_to", to);
    }
    call.reply.ok();
    Ok(())
}

/// RENAMENX key new: RENAME if nothing has the new name; 1 or 0.
pub fn renamenx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, from, to) = (call.session.db, call.args.at(1), call.args.at(2));
    if !call.txn.exists(db, from)? {
        return Err(errors::NO_SUCH_KEY);
    }
    let free = from != to && !call.txn.exists(db, to)?;
    if free {
        call.txn.rename(db, from, db, to)?;
        call.notify_new(db, to);
        call.notify(GENERIC, "rename_from", from);
        call.notify(GENERIC, "rename_to", to);
    }
    call.reply.integer(i64::from(free));
    Ok(())
}

/// COPY source destination [DB number] [REPLACE]: a second key with the same value and expiry time; 1 or 0.
pub fn copy(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
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
    if copied {
        call.notify_new(to_db, to);
        call.worker_state.notify(call.server, GENERIC, "copy_to", to_db, to);
    }
    call.reply.integer(i64::from(copied));
    Ok(())
}

/// MOVE key db: to another database, if nothing has its name there; 1 or 0.
pub fn move_(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let to_db = database(call, 2)?;
    if db == to_db {
        return Err(errors::SAME_OBJECT);
    }
    let moved =
        call.txn.exists(db, key)? && !call.txn.exists(to_db, key)? && call.txn.rename(db, key, to_db, key)?;
    if moved {
        call.notify_new(to_db, key);
        call.notify(GENERIC, "move_from", key);
        call.worker_state.notify(call.server, GENERIC, "move_to", to_db, key);
    }
    call.reply.integer(i64::from(moved));
    Ok(())
}
