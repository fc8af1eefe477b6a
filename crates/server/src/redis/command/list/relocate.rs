//! Moves an element from one list to another, or within one: LMOVE, RPOPLPUSH.

use super::end;
use super::pop::popped;
use super::push::pushed;
use crate::observe::keyspace_events::LIST;
use crate::redis::command::{Call, CommandError};
use duramen_structures::End;

/// LMOVE source destination LEFT|RIGHT LEFT|RIGHT: from that end of the one to that end of the other; the element.
pub fn lmove(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (from, to) = (end(call.args, 3)?, end(call.args, 4)?);
    relocate(call, from, to)
}

/// RPOPLPUSH source destination: LMOVE with RIGHT and LEFT.
pub fn rpoplpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    relocate(call, End::Right, End::Left)
}

/// From that end of the one to that end of the other; the element.
pub fn relocate(call: &mut Call<'_, '_>, from: End, to: End) -> Result<(), CommandError> {
    let (db, source, destination) = (call.session.db, call.args.at(1), call.args.at(2));
    // For a missing source the destination is not checked, as in Redis.
    if call.txn.list(db, source)?.is_none() {
        call.reply.null();
        return Ok(());
    }
    // Before anything is removed: in MULTI an error takes back nothing.
    call.txn.list(db, destination)?;
    let mut moved = Vec::new();
    let mut list = call.txn.edit_list(db, source)?;
    list.pop(from, 1, |element| moved.extend_from_slice(element))?;
    let is_gone = source != destination && list.is_empty();
    if source != destination {
        list.save()?;
        list = call.txn.edit_list(db, destination)?;
    }
    list.push(to, [&moved[..]].into_iter())?;
    list.save()?;
    call.reply.bulk(&moved);
    // The push first, as in Redis.
    call.notify(LIST, pushed(to), destination);
    call.notify_or_gone(LIST, popped(from), source, is_gone);
    Ok(())
}
