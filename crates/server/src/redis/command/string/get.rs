//! Reads a whole string, and perhaps changes when it ends: GET, GETDEL, GETEX.

use super::expiry::Expiry;
use crate::observe::keyspace_events::GENERIC;
use crate::redis::command::{Call, CommandError, MERGED_BYTES_MAX};

/// GET key: the string at a key.
pub fn get(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.merged > 1 {
        get_each(call);
        return Ok(());
    }
    match call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?) {
        Some(value) => call.reply.bulk(&value),
        None => call.reply.null(),
    }
    Ok(())
}

/// A batch with one key each. Stops before the first that cannot be read at once.
fn get_each(call: &mut Call<'_, '_>) {
    let (db, bytes_max, mut done) = (call.session.db, call.reply.bytes() + MERGED_BYTES_MAX, 0);
    for key in call.args.from(1) {
        let Ok(found) = call.txn.get_string(db, key) else { break };
        match call.stats.read(found) {
            Some(value) => call.reply.bulk(&value),
            None => call.reply.null(),
        }
        done += 1;
        // They are not read at one time.
        call.txn.forget_reads();
        if call.reply.bytes() > bytes_max {
            break;
        }
    }
    call.txn.forget_reads();
    call.worker_state.undone = call.merged - done;
}

/// GETDEL key: the string at a key, which is deleted.
pub fn getdel(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    match call.stats.read(call.txn.get_string(db, key)?) {
        Some(value) => call.reply.bulk(&value),
        None => {
            call.reply.null();
            return Ok(());
        }
    }
    call.txn.delete(db, key)?;
    call.notify(GENERIC, "del", key);
    Ok(())
}

/// GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]: the string at a key, with another expiry time.
pub fn getex(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let mut expiry = Expiry::None;
    let mut at = 2;
    while at < call.args.len() {
        if call.args.is(at, "persist") && matches!(expiry, Expiry::None | Expiry::Persist) {
            expiry = Expiry::Persist;
        } else {
            expiry = expiry.parse(call.args, &mut at)?;
        }
        at += 1;
    }
    let Some(value) = call.stats.read(call.txn.get_string(db, key)?) else {
        call.reply.null();
        return Ok(());
    };
    let expires_at = expiry.deadline(call.now, call.entry.spec.name)?;
    call.reply.bulk(&value);
    let changes = match expiry {
        Expiry::None | Expiry::Keep => false,
        Expiry::Persist => value.expires_at().is_some(),
        Expiry::At(..) => true,
    };
    if changes {
        call.txn.set_expiry(db, key, expires_at)?;
        let event = match expires_at {
            None => "persist",
            Some(time) if time <= call.now => "del",
            Some(_) => "expire",
        };
        call.notify(GENERIC, event, key);
    }
    Ok(())
}
