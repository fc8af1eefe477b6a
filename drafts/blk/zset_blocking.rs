//! Takes a member of a sorted set, or waits for one: BZPOPMIN, BZPOPMAX, BZMPOP.

use super::pop::{End, Many, pop};
use super::reply_score;
use crate::command::{Call, CommandError, timeout};
use crate::waiting::{Kind, Wait};
use duramen_structures::Error;

/// BZPOPMIN key [key …] timeout: ZPOPMIN of the first of these keys that is there, with its key.
pub fn bzpopmin(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_or_wait(call, End::Min)
}

/// BZPOPMAX key [key …] timeout: ZPOPMAX of the first of these keys that is there, with its key.
pub fn bzpopmax(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_or_wait(call, End::Max)
}

fn pop_or_wait(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(args.len() - 1))?;
    let keys = args.len() - 2;
    for key in args.from(1).take(keys) {
        let is_there = match call.txn.sorted_set(call.session.db, key) {
            Err(Error::WrongType) if call.is_waiting => false,
            set => set?.is_some(),
        };
        if is_there {
            return pop(call, key, end, 1, |reply, members| {
                reply.array(3);
                reply.bulk(key);
                for (member, score) in members {
                    reply.bulk(member);
                    reply_score(reply, *score);
                }
            });
        }
    }
    call.wait(Wait { kind: Kind::SortedSet, keys: (1, keys), until, null_is_array: true });
    Ok(())
}

/// BZMPOP timeout numkeys key [key …] MIN | MAX [COUNT count]: ZMPOP that waits.
pub fn bzmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(1))?;
    let many = Many::parse(args.skip(1))?;
    if !many.pop(call, args.skip(1))? {
        call.wait(Wait { kind: Kind::SortedSet, keys: (3, many.keys), until, null_is_array: true });
    }
    Ok(())
}
