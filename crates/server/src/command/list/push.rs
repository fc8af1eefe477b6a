//! Puts elements at an end: LPUSH, RPUSH, LPUSHX, RPUSHX.

use crate::command::{Call, CommandError, errors};
use crate::notifications::LIST;
use duramen_structures::End;

/// LPUSH key element [element …]: each before the first; how many there are then.
pub fn lpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    push(call, End::Left, false)
}

/// RPUSH key element [element …]: each behind the last; how many there are then.
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
    let (db, args, merged) = (call.session.db, call.args, call.merged);
    call.edits_one();
    let mut list = call.txn.edit_list(db, args.at(1))?;
    if merged > 1 && call.server.waiting.count() > 0 {
        return Err(errors::NOT_MERGED);
    }
    let is_pushed = !must_exist || !list.is_empty();
    if is_pushed {
        list.push(end, args.from(2))?;
    }
    // Each of several that run as one puts one element.
    for before in (0..merged).rev() {
        call.reply.count(list.len() - before);
    }
    if is_pushed {
        list.save()?;
        (0..merged).for_each(|_| call.notify(LIST, pushed(end), args.at(1)));
    }
    Ok(())
}

/// The event of an element that was put at an end.
pub fn pushed(end: End) -> &'static str {
    match end {
        End::Left => "lpush",
        End::Right => "rpush",
    }
}
