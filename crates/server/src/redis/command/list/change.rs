//! Changes elements within a list: LSET, LINSERT, LREM, LTRIM.

use crate::observe::keyspace_events::LIST;
use crate::redis::command::{Call, CommandError, errors};
use duramen_structures::End;

/// LSET key index element: replaces the element at an index.
pub fn lset(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let mut list = call.txn.edit_list(db, args.at(1))?;
    // For a missing key the index is not checked, as in Redis.
    if list.is_empty() {
        return Err(errors::NO_SUCH_KEY);
    }
    let position = list.position(args.integer(2)?);
    let position = position.ok_or(CommandError::new("ERR index out of range"))?;
    list.set(position, args.at(3))?;
    list.save()?;
    call.notify(LIST, "lset", args.at(1));
    call.reply.ok();
    Ok(())
}

/// LINSERT key BEFORE|AFTER pivot element: inserts next to the first element that equals the pivot. Replies with the
/// new length, 0 without a list and -1 without the pivot.
pub fn linsert(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let side = match () {
        () if args.is(2, "before") => End::Left,
        () if args.is(2, "after") => End::Right,
        () => return Err(errors::SYNTAX),
    };
    let mut list = call.txn.edit_list(db, args.at(1))?;
    if list.is_empty() {
        call.reply.integer(0);
    } else if list.insert(side, args.at(3), args.at(4))? {
        call.reply.count(list.len());
        list.save()?;
        call.notify(LIST, "linsert", args.at(1));
    } else {
        call.reply.integer(-1);
    }
    Ok(())
}

/// LREM key count element: removes that many equal elements, from the left, or from the right with a negative count, or
/// all with 0. Replies with their number.
pub fn lrem(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let count = args.integer(2)?;
    let from = if count < 0 { End::Right } else { End::Left };
    let most = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let most = call.worker_state.share.map_or(most, |share| (most - share.removed).min(share.most));
    let mut list = call.txn.edit_list(db, args.at(1))?;
    let removed = list.remove(args.at(3), from, most)?;
    if removed > 0 {
        let is_gone = list.is_empty();
        list.save()?;
        call.notify_or_gone(LIST, "lrem", args.at(1), is_gone);
    }
    call.reply.count(removed);
    Ok(())
}

/// LTRIM key start stop: leaves the elements from the one to the other.
pub fn ltrim(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let mut list = call.txn.edit_list(db, args.at(1))?;
    // It is written even if all elements stay, so that clients that watch the key are notified, as in Redis.
    if !list.is_empty() {
        list.trim(list.part(start, stop))?;
        let is_gone = list.is_empty();
        list.save()?;
        call.notify_or_gone(LIST, "ltrim", args.at(1), is_gone);
    }
    call.reply.ok();
    Ok(())
}
