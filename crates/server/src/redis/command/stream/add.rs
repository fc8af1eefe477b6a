//! Puts an entry at the end: XADD.

use super::parse::AddOrTrim;
use super::reply_id;
use crate::observe::keyspace_events::STREAM;
use crate::redis::command::{Call, CommandError, errors};
use duramen_structures::stream::{ParsedId, StreamId};

const ZERO_ID: CommandError = CommandError::new("ERR The ID specified in XADD must be greater than 0-0");
const EXHAUSTED: CommandError =
    CommandError::new("ERR The stream has exhausted the last possible ID, unable to add more items");
const TOO_LARGE: CommandError = CommandError::new("ERR Elements are too large to be stored");
const NOT_ABOVE: CommandError =
    CommandError::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");

/// XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] *|id field value [field value …]: a new entry; its id.
pub fn xadd(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.merged > 1 {
        return add_each(call);
    }
    let (db, args) = (call.session.db, call.args);
    let limits = call.txn.thresholds().stream;
    let options = AddOrTrim::of_add(args, limits)?;
    let pairs: Vec<&[u8]> = args.from(options.behind).collect();
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(CommandError::arity(call.entry.spec.name));
    }
    if options.id == Some(ParsedId { id: StreamId::MIN, any_seq: false }) {
        return Err(ZERO_ID);
    }
    if options.trim.is_none() {
        call.edits_one();
    }
    let mut stream = call.txn.edit_stream_end(db, args.at(1))?;
    if stream.is_new() && options.no_make {
        call.reply.null();
        return Ok(());
    }
    let id = next_id(options.id, stream.last_id(), call.now)?;
    stream.append(id, &pairs, limits)?;
    let trimmed = match options.trim {
        Some(trim) => stream.trim(trim, options.whole_nodes, options.limit)?,
        None => 0,
    };
    stream.save()?;
    call.notify(STREAM, "xadd", args.at(1));
    if trimmed > 0 {
        call.notify(STREAM, "xtrim", args.at(1));
    }
    reply_id(&mut call.reply, id);
    Ok(())
}

/// A batch of commands, each of which adds one entry of one field.
fn add_each(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let given: Vec<&[u8]> = args.from(2).collect();
    if given.chunks(3).any(|entry| entry[0] != b"*") {
        return Err(errors::NOT_MERGED);
    }
    call.edits_one();
    let limits = call.txn.thresholds().stream;
    let mut stream = call.txn.edit_stream_end(call.session.db, args.at(1))?;
    if call.server.waiting.count() > 0 {
        return Err(errors::NOT_MERGED);
    }
    let mut last = stream.last_id();
    let mut entries = Vec::with_capacity(call.merged);
    for entry in given.chunks(3) {
        last = next_id(None, last, call.now)?;
        entries.push((last, &entry[1..]));
    }
    stream.append_all(&entries, limits)?;
    stream.save()?;
    for (id, _) in entries {
        call.notify(STREAM, "xadd", args.at(1));
        reply_id(&mut call.reply, id);
    }
    Ok(())
}

/// The id of the next entry, by the requested one.
fn next_id(wanted: Option<ParsedId>, last: StreamId, now: u64) -> Result<StreamId, CommandError> {
    let behind_last = last.next().ok_or(EXHAUSTED)?;
    match wanted {
        None => Ok(behind_last.max(StreamId { ms: now, seq: 0 })),
        Some(ParsedId { id, any_seq: true }) if id.ms == last.ms => match last.seq.checked_add(1) {
            Some(seq) => Ok(StreamId { seq, ..last }),
            // Redis does not set the error that it returns here.
            None => Err(TOO_LARGE),
        },
        Some(ParsedId { id, .. }) if id > last => Ok(id),
        Some(_) => Err(NOT_ABOVE),
    }
}
