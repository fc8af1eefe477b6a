//! Takes elements from an end: LPOP, RPOP, LMPOP.

use super::end;
use crate::observe::keyspace_events::LIST;
use crate::redis::command::many::Many;
use crate::redis::command::{Args, Call, CommandError, Done, OwnedArgs, errors};
use crate::redis::resp::Reply;
use duramen_structures::{EditList, End};

/// LPOP key [count]: removes and returns the first element; or that many.
pub fn lpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Left)
}

/// RPOP key [count]: removes and returns the last element; or that many, the last one first.
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
        // Every error of the count has this text.
        Some(_) => Some(args.count(2).ok_or(errors::NOT_POSITIVE)?),
    };
    if count.is_none() {
        call.edits_one();
    }
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

/// LPOP or RPOP in a run, of one element.
pub fn pop_step(list: &mut EditList<'_, '_>, reply: &mut Reply<'_>, end: End) -> Result<Done, CommandError> {
    if list.is_empty() {
        reply.null();
        return Ok(Done::Nothing);
    }
    list.pop(end, 1, |element| reply.bulk(element))?;
    Ok(Done::Changed(popped(end)))
}

/// LMPOP numkeys key [key …] LEFT|RIGHT [COUNT count]: LPOP or RPOP of the first of these lists that is there, with its key.
pub fn lmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if !Many::parse(call.args, end)?.pop(call, call.args)? {
        call.reply.null_array();
    }
    Ok(())
}

impl Many<End> {
    /// Takes from the first list that is there; false when none is.
    pub fn pop(&self, call: &mut Call<'_, '_>, args: Args<'_>) -> Result<bool, CommandError> {
        let Self { keys, end, count } = *self;
        for key in args.from(2).take(keys) {
            let list = call.txn.edit_list(call.session.db, key)?;
            if !list.is_empty() {
                call.reply.array(2);
                call.reply.bulk(key);
                call.reply.array(count.min(list.len()));
                take_with_key(call, key, end, count)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Takes one element of a list, and replies with the key and the element; false when it is not there.
pub fn pop_one(call: &mut Call<'_, '_>, key: &[u8], end: End) -> Result<bool, CommandError> {
    if call.txn.list(call.session.db, key)?.is_none() {
        return Ok(false);
    }
    call.reply.array(2);
    call.reply.bulk(key);
    take_with_key(call, key, end, 1)?;
    Ok(true)
}

fn take_with_key(call: &mut Call<'_, '_>, key: &[u8], end: End, count: usize) -> Result<(), CommandError> {
    let (mut taken, keeps): (Vec<Vec<u8>>, bool) = (Vec::new(), call.is_served);
    let mut list = call.txn.edit_list(call.session.db, key)?;
    let reply = &mut call.reply;
    list.pop(end, count, |element| {
        reply.bulk(element);
        if keeps {
            taken.push(element.to_vec());
        }
    })?;
    let is_gone = list.is_empty();
    list.save()?;
    call.put_back(|| {
        let push: &[u8] = if end == End::Left { b"LPUSH" } else { b"RPUSH" };
        // The last removed element goes back first.
        let elements = taken.iter().rev().map(Vec::as_slice);
        OwnedArgs::of(&[push, key].into_iter().chain(elements).collect::<Vec<_>>())
    });
    call.notify_or_gone(LIST, popped(end), key, is_gone);
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
