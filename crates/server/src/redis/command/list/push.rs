//! Puts elements at an end: LPUSH, RPUSH, LPUSHX, RPUSHX.

use crate::observe::keyspace_events::LIST;
use crate::redis::command::{Args, Call, CommandError, Done};
use crate::redis::resp::Reply;
use duramen_structures::{EditList, End};

/// LPUSH key element [element …]: prepends each. Replies with the new length.
pub fn lpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    push(call, End::Left, false)
}

/// RPUSH key element [element …]: appends each. Replies with the new length.
pub fn rpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    push(call, End::Right, false)
}

/// LPUSHX key element [element …]: LPUSH if the list is there.
pub fn lpushx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    push(call, End::Left, true)
}

/// RPUSHX key element [element …]: RPUSH if the list is there.
pub fn rpushx(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    push(call, End::Right, true)
}

fn push(call: &mut Call<'_, '_>, end: End, must_exist: bool) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    call.edits_one();
    let mut list = call.txn.edit_list(db, args.at(1))?;
    let is_pushed = !must_exist || !list.is_empty();
    if is_pushed {
        list.push(end, args.from(2))?;
    }
    call.reply.count(list.len());
    if is_pushed {
        list.save()?;
        call.notify(LIST, pushed(end), args.at(1));
    }
    Ok(())
}

/// LPUSH or RPUSH in a run, of one element.
pub fn push_step(
    list: &mut EditList<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
    end: End,
) -> Result<Done, CommandError> {
    list.push(end, args.iter())?;
    reply.count(list.len());
    Ok(Done::Changed(pushed(end)))
}

/// The event of an element that was put at an end.
pub fn pushed(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}
