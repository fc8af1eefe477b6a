//! Takes an element of a list, or waits for one: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH.

use super::pop::{Many, popped, take};
use super::relocate::relocate;
use super::end;
use crate::command::{Call, CommandError, timeout};
use crate::notifications::LIST;
use crate::waiting::{Kind, Wait};
use duramen_structures::{End, Error};

/// BLPOP key [key …] timeout: LPOP of the first of these lists that has something, with its key.
pub fn blpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Left)
}

/// BRPOP key [key …] timeout: RPOP of the first of these lists that has something, with its key.
pub fn brpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop(call, End::Right)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(args.len() - 1))?;
    let keys = args.len() - 2;
    for key in args.from(1).take(keys) {
        let list = match call.txn.edit_list(call.session.db, key) {
            Err(Error::WrongType) if call.is_waiting => continue,
            list => list?,
        };
        if !list.is_empty() {
            call.reply.array(2);
            call.reply.bulk(key);
            let mut taken = Vec::new();
            let is_gone = take(list, &mut call.reply, end, 1, &mut taken)?;
            call.undo_pop(end, key, taken);
            call.notify_or_gone(LIST, popped(end), key, is_gone);
            return Ok(());
        }
    }
    call.wait(Wait { kind: Kind::List, keys: (1, keys), until, null_is_array: true });
    Ok(())
}

/// BLMPOP timeout numkeys key [key …] LEFT | RIGHT [COUNT count]: LMPOP that waits.
pub fn blmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(1))?;
    let many = Many::parse(args.skip(1))?;
    if !many.pop(call, args.skip(1))? {
        call.wait(Wait { kind: Kind::List, keys: (3, many.keys), until, null_is_array: true });
    }
    Ok(())
}

/// BLMOVE source destination LEFT | RIGHT LEFT | RIGHT timeout: LMOVE that waits.
pub fn blmove(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (from, to) = (end(call.args, 3)?, end(call.args, 4)?);
    relocate_or_wait(call, from, to, 5)
}

/// BRPOPLPUSH source destination timeout: RPOPLPUSH that waits.
pub fn brpoplpush(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    relocate_or_wait(call, End::Right, End::Left, 3)
}

fn relocate_or_wait(call: &mut Call<'_, '_>, from: End, to: End, at: usize) -> Result<(), CommandError> {
    let until = timeout(call.args.at(at))?;
    let is_there = match call.txn.list(call.session.db, call.args.at(1)) {
        Err(Error::WrongType) if call.is_waiting => false,
        list => list?.is_some(),
    };
    if is_there {
        return relocate(call, from, to);
    }
    call.wait(Wait { kind: Kind::List, keys: (1, 1), until, null_is_array: false });
    Ok(())
}
