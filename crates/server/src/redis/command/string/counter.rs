//! Strings as numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use crate::observe::keyspace_events::STRING;
use crate::redis::command::{Call, CommandError};
use duramen_structures::string::{integer, long_double};
use duramen_structures::string_until;

/// INCR key: the integer at a key, 0 without one, plus 1.
pub fn incr(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    add(call, 1)
}

/// DECR key: the integer at a key, 0 without one, minus 1.
pub fn decr(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    add(call, -1)
}

/// INCRBY key increment: the integer at a key, 0 without one, plus the increment.
pub fn incrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let increment = call.args.integer(2)?;
    add(call, increment)
}

/// DECRBY key decrement: the integer at a key, 0 without one, minus the decrement.
pub fn decrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let decrement = call.args.integer(2)?;
    add(call, integer::negate(decrement)?)
}

/// INCRBYFLOAT key increment: the number at a key, 0 without one, plus the increment, as a long double.
pub fn incrbyfloat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    let (text, expires_at) = match call.txn.get_string(db, key)? {
        Some(old) => (sum(&old, call.args.at(2))?, old.expires_at()),
        None => (sum(b"0", call.args.at(2))?, None),
    };
    call.reply.bulk(text.as_bytes());
    call.txn.put_vec(db, key, text.into_bytes(), string_until(expires_at))?;
    call.notify(STRING, "incrbyfloat", key);
    Ok(())
}

fn sum(value: &[u8], increment: &[u8]) -> Result<String, CommandError> {
    let value = long_double::parse_or_error(value)?;
    Ok(value.add(&long_double::parse_or_error(increment)?)?.text())
}

/// INCR and its like: adds to the integer at the first argument and replies with the sum.
fn add(call: &mut Call<'_, '_>, increment: i64) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    // Of events, by the key's lock.
    let looks = call.in_transaction || call.server.tracking.is_any() || call.server.notifications() != 0;
    let at_once = if looks { None } else { call.txn.add_at_once(db, key, increment)? };
    let sum = match at_once {
        Some(sum) => {
            call.stats.changes.add(1);
            sum
        }
        None => call.txn.add(db, key, increment)?,
    };
    call.notify(STRING, "incrby", key);
    call.reply.integer(sum);
    Ok(())
}
