//! Takes an element of a list, or waits for one: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH.

use super::end;
use super::pop::pop_one;
use super::relocate::relocate;
use crate::redis::blocking::timeout;
use crate::redis::blocking::{Awaited, What};
use crate::redis::blocking::{wait_for_first, wait_for_many};
use crate::redis::command::many::Many;
use crate::redis::command::{Call, CommandError, OwnedArgs};
use duramen_structures::End;

/// BLPOP key [key …] timeout: LPOP of the first of these lists that is there, with its key.
pub fn blpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Left)
}

/// BRPOP key [key …] timeout: RPOP of the first of these lists that is there, with its key.
pub fn brpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Right)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(args.len() - 1))?;
    for key in args.from(1).take(args.len() - 2) {
        if pop_one(call, key, end)? {
            return Ok(());
        }
    }
    wait_for_first(call, until, &What::List);
    Ok(())
}

/// BLMPOP timeout numkeys key [key …] LEFT|RIGHT [COUNT count]: LMPOP that waits.
pub fn blmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let many = Many::parse(args.skip(1), end)?;
    let until = timeout(args.at(1))?;
    if many.pop(call, args.skip(1))? {
        return Ok(());
    }
    wait_for_many(call, until, &What::List, many.keys);
    Ok(())
}

/// BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout: LMOVE that waits.
pub fn blmove(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (from, to) = (end(call.args, 3)?, end(call.args, 4)?);
    relocate_or_wait(call, from, to)
}

/// BRPOPLPUSH source destination timeout: RPOPLPUSH that waits.
pub fn brpoplpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    relocate_or_wait(call, End::Right, End::Left)
}

fn relocate_or_wait(call: &mut Call<'_, '_>, from: End, to: End) -> Result<(), CommandError> {
    let (args, source) = (call.args, call.args.at(1));
    let until = timeout(args.at(args.len() - 1))?;
    if call.txn.list(call.session.db, source)?.is_some() {
        return relocate(call, from, to);
    }
    let mut alone: Vec<&[u8]> = args.iter().collect();
    alone.pop();
    alone.push(b"0");
    let awaited = Awaited { key: source.into(), what: What::List, args: OwnedArgs::of(&alone) };
    if !call.waits(until, vec![awaited]) {
        call.reply.null();
    }
    Ok(())
}
