//! Fields as numbers: HINCRBY, HINCRBYFLOAT.

use super::expiry::{notify_over, remove_over};
use crate::observe::keyspace_events::HASH;
use crate::redis::command::{Call, CommandError, integer};
use duramen_structures::string::integer::{Text, add};
use duramen_structures::string::long_double::{self, LongDouble};

const NOT_INTEGER: CommandError = CommandError::new("ERR hash value is not an integer");
const NOT_FLOAT: CommandError = CommandError::new("ERR hash value is not a float");
const INFINITE: CommandError = CommandError::new("ERR value is NaN or Infinity");

/// HINCRBY key field increment: the integer at a field, 0 without one, plus the increment.
pub fn hincrby(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, field) = (call.session.db, call.args.at(2));
    let increment = call.args.integer(3)?;
    call.edits_one();
    let mut hash = call.txn.edit_hash(db, call.args.at(1))?;
    let over = remove_over(&mut hash, [field].into_iter())?;
    let old = match hash.get(field)? {
        Some(value) => integer(&value).ok_or(NOT_INTEGER)?,
        None => 0,
    };
    let sum = add(old, increment)?;
    hash.insert_kept(field, &Text::new(sum))?;
    hash.save()?;
    notify_over(call, over);
    call.notify(HASH, "hincrby", call.args.at(1));
    call.reply.integer(sum);
    Ok(())
}

/// HINCRBYFLOAT key field increment: the number at a field, 0 without one, plus the increment, as a long double.
pub fn hincrbyfloat(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, field) = (call.session.db, call.args.at(2));
    let increment = long_double::parse_or_error(call.args.at(3))?;
    if matches!(increment, LongDouble::Infinite { .. }) {
        return Err(INFINITE);
    }
    call.edits_one();
    let mut hash = call.txn.edit_hash(db, call.args.at(1))?;
    let over = remove_over(&mut hash, [field].into_iter())?;
    let old = match hash.get(field)? {
        Some(value) => long_double::parse(&value).ok_or(NOT_FLOAT)?,
        None => long_double::parse_or_error(b"0")?,
    };
    let sum = old.add(&increment)?.text();
    hash.insert_kept(field, sum.as_bytes())?;
    hash.save()?;
    notify_over(call, over);
    call.notify(HASH, "hincrbyfloat", call.args.at(1));
    call.reply.bulk(sum.as_bytes());
    Ok(())
}
