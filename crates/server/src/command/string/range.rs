//! Parts of strings, and their length: APPEND, STRLEN, GETRANGE, SUBSTR, SETRANGE.

use super::string_bytes_max;
use crate::command::{Call, CommandError};
use crate::notifications::STRING;
use duramen_structures::{Error, string_until, strings};

/// APPEND key value: longer by this much; the new length.
pub fn append(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, more) = (call.session.db, call.args.at(1), call.args.at(2));
    let (new, expires_at) = match call.txn.get_string(db, key)? {
        Some(old) => {
            let bytes_max = string_bytes_max(call.server, (old.len() + more.len()) as u64);
            (strings::append(&old, more, bytes_max)?, old.expires_at())
        }
        None => (more.to_vec(), None),
    };
    call.reply.count(new.len());
    call.txn.put_vec(db, key, new, string_until(expires_at))?;
    call.notify(STRING, "append", key);
    Ok(())
}

/// STRLEN key: the length of a string, 0 without one.
pub fn strlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let value = call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?);
    call.reply.count(value.map_or(0, |value| value.len()));
    Ok(())
}

/// GETRANGE key start end, once SUBSTR: part of a string, both ends included, negative ones from the end.
pub fn getrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (start, end) = (call.args.integer(2)?, call.args.integer(3)?);
    match call.stats.read(call.txn.get_string(call.session.db, call.args.at(1))?) {
        Some(value) => call.reply.bulk(&value[strings::range(value.len(), start, end)]),
        None => call.reply.bulk(b""),
    }
    Ok(())
}

/// SETRANGE key offset value: overwrites part of a string, zeros filling a gap; the new length.
pub fn setrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, patch) = (call.session.db, call.args.at(1), call.args.at(3));
    let offset = call.args.integer(2)?;
    if offset < 0 {
        return Err(Error::OffsetRange.into());
    }
    let bytes_max = string_bytes_max(call.server, (offset as u64).saturating_add(patch.len() as u64));
    let old = call.txn.get_string(db, key)?;
    if patch.is_empty() {
        call.reply.count(old.map_or(0, |old| old.len()));
        return Ok(());
    }
    let expires_at = old.as_ref().and_then(|old| old.expires_at());
    let new = strings::set_range(old.as_deref().unwrap_or_default(), offset, patch, bytes_max)?;
    call.reply.count(new.len());
    call.txn.put_vec(db, key, new, string_until(expires_at))?;
    call.notify(STRING, "setrange", key);
    Ok(())
}
