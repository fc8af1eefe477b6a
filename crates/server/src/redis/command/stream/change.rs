//! Takes entries away, or sets what a stream knows of itself: XDEL, XTRIM, XSETID.

use super::parse::{self, AddOrTrim};
use crate::observe::keyspace_events::STREAM;
use crate::redis::command::{Call, CommandError, errors};
use duramen_structures::stream::StreamId;

/// XDEL key id [id …]: deletes entries; how many there were.
pub fn xdel(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    // Without a key nobody looks at the ids, as in the reference.
    if call.txn.stream(db, args.at(1))?.is_none() {
        call.reply.integer(0);
        return Ok(());
    }
    let ids = parse::ids(args, 2)?;
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    let deleted = stream.delete(&ids)?;
    if deleted > 0 {
        stream.save()?;
        call.notify(STREAM, "xdel", args.at(1));
    }
    call.reply.integer(deleted as i64);
    Ok(())
}

/// XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]: removes the first entries; how many.
pub fn xtrim(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let options = AddOrTrim::of_trim(args, call.txn.thresholds().stream)?;
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    let mut removed = 0;
    if let Some(trim) = options.trim {
        removed = stream.trim(trim, options.whole_nodes, options.limit)?;
    }
    if removed > 0 {
        stream.save()?;
        call.notify(STREAM, "xtrim", args.at(1));
    }
    call.reply.integer(removed as i64);
    Ok(())
}

/// XSETID key last-id [ENTRIESADDED count] [MAXDELETEDID id]: what a stream knows of its past.
pub fn xsetid(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let last = parse::id(args.at(2))?;
    let (mut added, mut deleted) = (None, None);
    for at in (3..args.len()).step_by(2) {
        if at + 1 == args.len() {
            return Err(errors::SYNTAX);
        } else if args.is(at, "entriesadded") {
            let given = u64::try_from(args.integer(at + 1)?);
            added = Some(given.map_err(|_| CommandError::new("ERR entries_added must be positive"))?);
        } else if args.is(at, "maxdeletedid") {
            let id = parse::id(args.at(at + 1))?;
            if last < id {
                return Err(CommandError::new(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            deleted = Some(id);
        } else {
            return Err(errors::SYNTAX);
        }
    }
    let mut stream = call.txn.edit_stream(db, args.at(1))?;
    if stream.is_new() {
        return Err(errors::NO_SUCH_KEY);
    }
    if stream.last_entry_id()?.is_some_and(|id| last < id) {
        return Err(CommandError::new(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if !stream.is_empty() && added.is_some_and(|added| added < stream.len()) {
        return Err(CommandError::new(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    stream.set_ids(last, added, deleted.filter(|id| *id != StreamId::MIN));
    stream.save()?;
    call.notify(STREAM, "xsetid", args.at(1));
    call.reply.ok();
    Ok(())
}
