//! Takes elements from an end: LPOP, RPOP, LMPOP.

use super::end;
use crate::command::{Call, CommandError, errors};
use crate::notifications::LIST;
use crate::resp::Reply;
use duramen_structures::{EditList, End};

/// LPOP key [count]: the first element, which is removed; or so many.
pub fn lpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Left)
}

/// RPOP key [count]: the last element, which is removed; or so many, the last one first.
pub fn rpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Right)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    if args.len() > 3 {
        return Err(CommandError::arity(call.entry.spec.name));
    }
    let count = match args.get(2) {
        None => None,
        // Whatever is wrong with it is told so.
        Some(_) => Some(args.count(2).ok_or(errors::NOT_POSITIVE)?),
    };
    let list = call.txn.edit_list(call.session.db, args.at(1))?;
    let mut is_gone = None;
    match count {
        None if list.is_empty() => call.reply.null(),
        None => is_gone = Some(take(list, &mut call.reply, end, 1)?),
        Some(_) if list.is_empty() => call.reply.null_array(),
        Some(0) => call.reply.array(0),
        Some(count) => {
            call.reply.array(count.min(list.len()));
            is_gone = Some(take(list, &mut call.reply, end, count)?);
        }
    }
    if let Some(is_gone) = is_gone {
        call.notify_or_gone(LIST, popped(end), args.at(1), is_gone);
    }
    Ok(())
}

/// LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]: LPOP or RPOP of the first of these lists that is there, with its key.
pub fn lmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let keys = args.positive(1).ok_or(errors::NO_KEYS)?;
    let behind = keys.saturating_add(2);
    let end = end(args, behind)?;
    let mut count = None;
    for at in (behind + 1..args.len()).step_by(2) {
        if count.is_some() || !args.is(at, "count") || at + 1 == args.len() {
            return Err(errors::SYNTAX);
        }
        let given = args.positive(at + 1);
        count = Some(given.ok_or(CommandError::new("ERR count should be greater than 0"))?);
    }
    let count = count.unwrap_or(1);
    for key in args.from(2).take(keys) {
        let list = call.txn.edit_list(call.session.db, key)?;
        if !list.is_empty() {
            call.reply.array(2);
            call.reply.bulk(key);
            call.reply.array(count.min(list.len()));
            let is_gone = take(list, &mut call.reply, end, count)?;
            call.notify_or_gone(LIST, popped(end), key, is_gone);
            return Ok(());
        }
    }
    call.reply.null_array();
    Ok(())
}

/// Removes elements and replies with them, whose number was written before. Whether none are left.
fn take(
    mut list: EditList<'_, '_>,
    reply: &mut Reply<'_>,
    end: End,
    count: usize,
) -> Result<bool, CommandError> {
    list.pop(end, count, |element| reply.bulk(element))?;
    let is_gone = list.is_empty();
    list.save()?;
    Ok(is_gone)
}

/// The event of elements that were taken from an end.
pub fn popped(end: End) -> &'static str {
    match end {
        End::Left => "lpop",
        End::Right => "rpop",
    }
}
