//! Parts of strings, and their length: APPEND, STRLEN, GETRANGE, SUBSTR, SETRANGE.

use super::string_bytes_max;
use crate::observe::keyspace_events::STRING;
use crate::redis::command::{Call, CommandError};
use duramen_structures::{Error, string};

/// APPEND key value: longer by this much; the new length.
pub fn append(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, key, more) = (call.session.db, call.args.at(1), call.args.at(2));
    let len = call.txn.string_len(db, key)?.unwrap_or(0);
    let bytes_max = string_bytes_max(call.server, (len + more.len()) as u64);
    call.reply.count(string::checked_len(len, more.len(), bytes_max)?);
    call.edits_one();
    call.txn.write_string(db, key, len, more)?;
    call.notify(STRING, "append", key);
    Ok(())
}

/// STRLEN key: the length of a string, 0 without one.
pub fn strlen(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let len = call.stats.read(call.txn.string_len(call.session.db, call.args.at(1))?);
    call.reply.count(len.unwrap_or(0));
    Ok(())
}

/// GETRANGE key start end, once SUBSTR: part of a string, both ends included, negative ones from the end.
pub fn getrange(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (start, end) = (call.args.integer(2)?, call.args.integer(3)?);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let part = |len| string::range(len, start, end);
    let told = call.txn.read_string(call.session.db, key, part, |_, bytes| reply.bulk(bytes))?;
    if call.stats.read(told).is_none() {
        call.reply.bulk(b"");
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
    let offset = offset as usize;
    let bytes_max = string_bytes_max(call.server, offset.saturating_add(patch.len()) as u64);
    let len = call.txn.string_len(db, key)?.unwrap_or(0);
    if patch.is_empty() {
        call.reply.count(len);
        return Ok(());
    }
    call.reply.count(len.max(string::checked_len(offset, patch.len(), bytes_max)?));
    call.edits_one();
    call.txn.write_string(db, key, offset, patch)?;
    call.notify(STRING, "setrange", key);
    Ok(())
}
