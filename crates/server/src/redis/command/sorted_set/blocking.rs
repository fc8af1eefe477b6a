//! Takes a member of a sorted set, or waits for one: BZPOPMIN, BZPOPMAX, BZMPOP.

use super::pop::{End, end, pop};
use super::reply_score;
use crate::redis::blocking::What;
use crate::redis::blocking::timeout;
use crate::redis::blocking::{wait_for_first, wait_for_many};
use crate::redis::command::many::Many;
use crate::redis::command::{Call, CommandError};

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
    for key in args.from(1).take(args.len() - 2) {
        if call.txn.sorted_set(call.session.db, key)?.is_some() {
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
    wait_for_first(call, until, &What::SortedSet);
    Ok(())
}

/// BZMPOP timeout numkeys key [key …] MIN | MAX [COUNT count]: ZMPOP that waits.
pub fn bzmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let many = Many::parse(args.skip(1), end)?;
    let until = timeout(args.at(1))?;
    if many.pop(call, args.skip(1))? {
        return Ok(());
    }
    wait_for_many(call, until, &What::SortedSet, many.keys);
    Ok(())
}
