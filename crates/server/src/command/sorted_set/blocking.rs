//! Takes a member of a sorted set, or waits for one: BZPOPMIN, BZPOPMAX, BZMPOP.

use super::pop::{End, Many, pop};
use super::reply_score;
use crate::command::timeout::timeout;
use crate::command::{Call, CommandError, OwnedArgs};
use crate::waiting::{Awaited, What};

/// BZPOPMIN key [key …] timeout: ZPOPMIN of the first of these keys that is there, with its key.
pub fn bzpopmin(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_or_wait(call, End::Min)
}

/// BZPOPMAX key [key …] timeout: ZPOPMAX of the first of these keys that is there, with its key.
pub fn bzpopmax(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    pop_or_wait(call, End::Max)
}

fn awaited(key: &[u8], args: &[&[u8]]) -> Awaited {
    Awaited { key: key.into(), what: What::SortedSet, args: OwnedArgs::of(args) }
}

fn pop_or_wait(call: &mut Call<'_, '_>, end: End) -> Result<(), CommandError> {
    let args = call.args;
    let until = timeout(args.at(args.len() - 1))?;
    let keys = || args.from(1).take(args.len() - 2);
    for key in keys() {
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
    if !call.waits(until, keys().map(|key| awaited(key, &[args.at(0), key, b"0"])).collect()) {
        call.reply.null_array();
    }
    Ok(())
}

/// BZMPOP timeout numkeys key [key …] MIN | MAX [COUNT count]: ZMPOP that waits.
pub fn bzmpop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let many = Many::parse(args.skip(1))?;
    let until = timeout(args.at(1))?;
    if many.pop(call, args.skip(1))? {
        return Ok(());
    }
    let behind: Vec<&[u8]> = args.from(3 + many.keys).collect();
    let alone = |key| awaited(key, &[&[args.at(0), b"0", b"1", key], &behind[..]].concat());
    if !call.waits(until, args.from(3).take(many.keys).map(alone).collect()) {
        call.reply.null_array();
    }
    Ok(())
}
