//! Several sets together: SUNION, SINTER, SDIFF, their STORE forms, SINTERCARD.
//!
//! Every set is read before anything is made of them, as in the reference: a key of another type is an error even where
//! the result is known without it.

use crate::command::{Call, CommandError, errors};
use crate::notifications::SET;
use duramen_structures::{Collection, order};
use std::collections::HashSet;
use std::ops::Range;

type Set<'t> = Collection<'t, Vec<u8>>;

/// What is made of sets.
#[derive(Clone, Copy)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// SUNION key [key …]: what is in any.
pub fn sunion(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, Operation::Union)
}

/// SINTER key [key …]: what is in all.
pub fn sinter(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, Operation::Intersection)
}

/// SDIFF key [key …]: what is in the first alone.
pub fn sdiff(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, Operation::Difference)
}

/// SUNIONSTORE destination key [key …]: SUNION into a key; how many members.
pub fn sunionstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, Operation::Union)
}

/// SINTERSTORE destination key [key …]: SINTER into a key; how many members.
pub fn sinterstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, Operation::Intersection)
}

/// SDIFFSTORE destination key [key …]: SDIFF into a key; how many members.
pub fn sdiffstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, Operation::Difference)
}

/// SINTERCARD numkeys key [key …] [LIMIT limit]: how many SINTER tells, or as many as the limit, unless that is 0.
pub fn sintercard(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let keys = args.positive(1).ok_or(errors::NO_KEYS)?;
    if keys > args.len() - 2 {
        return Err(CommandError::new("ERR Number of keys can't be greater than number of args"));
    }
    let mut limit = 0;
    for at in (2 + keys..args.len()).step_by(2) {
        if !args.is(at, "limit") || at + 1 == args.len() {
            return Err(errors::SYNTAX);
        }
        limit = args.count(at + 1).ok_or(CommandError::new("ERR LIMIT can't be negative"))?;
    }
    let count_max = if limit == 0 { usize::MAX } else { limit };
    combine(call, Operation::Intersection, 2..2 + keys, |call, members| {
        call.reply.count(members.len().min(count_max));
        Ok(())
    })
}

fn reply(call: &mut Call<'_, '_>, operation: Operation) -> Result<(), CommandError> {
    combine(call, operation, 1..call.args.len(), |call, members| {
        call.reply.set(members.len());
        members.iter().for_each(|member| call.reply.bulk(member));
        Ok(())
    })
}

fn store(call: &mut Call<'_, '_>, operation: Operation) -> Result<(), CommandError> {
    combine(call, operation, 2..call.args.len(), |call, members| {
        let count = members.len();
        let key = call.args.at(1);
        let changed = call.txn.put_set(call.session.db, key, members)?;
        call.notify_stored(SET, call.entry.spec.name, key, count, changed);
        call.reply.count(count);
        Ok(())
    })
}

/// Calls `then` with the members of the result, in the order in which they were found.
fn combine(
    call: &mut Call<'_, '_>,
    operation: Operation,
    keys: Range<usize>,
    then: impl FnOnce(&mut Call<'_, '_>, Vec<&[u8]>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys.clone() {
        let set = call.stats.read(call.txn.set(call.session.db, call.args.at(key))?);
        sets.push((key, set.map(|set| set.len())));
    }
    match operation {
        Operation::Union => {
            let mut all = Vec::new();
            for (key, len) in sets {
                if len.is_some() {
                    all.extend(read(call, key)?);
                }
            }
            let (mut seen, mut members) = (HashSet::new(), Vec::new());
            for set in &all {
                members.extend(set.list()?.into_iter().filter(|member| seen.insert(*member)));
            }
            order(&mut members, call.txn.thresholds().set);
            then(call, members)
        }
        Operation::Difference => {
            let Some(first) = read(call, keys.start)? else { return then(call, Vec::new()) };
            let mut members = first.list()?;
            for (key, _) in &sets[1..] {
                members = filter(call, *key, members, false)?;
            }
            order(&mut members, call.txn.thresholds().set);
            then(call, members)
        }
        Operation::Intersection => {
            if sets.iter().any(|(_, len)| len.is_none()) {
                return then(call, Vec::new());
            }
            // The others are looked into for what the smallest has, each by itself.
            sets.sort_by_key(|(_, len)| *len);
            let Some(smallest) = read(call, sets[0].0)? else { return then(call, Vec::new()) };
            let mut members = smallest.list()?;
            for (key, _) in &sets[1..] {
                members = filter(call, *key, members, true)?;
            }
            then(call, members)
        }
    }
}

/// A copy of the set whose key is this argument.
fn read<'c>(call: &mut Call<'c, '_>, key: usize) -> Result<Option<Set<'c>>, CommandError> {
    let set = call.txn.set(call.session.db, call.args.at(key))?;
    Ok(set.map(|set| set.detached()).transpose()?)
}

/// Those of `members` that the set whose key is this argument has, or has not.
fn filter<'m>(
    call: &mut Call<'_, '_>,
    key: usize,
    members: Vec<&'m [u8]>,
    has: bool,
) -> Result<Vec<&'m [u8]>, CommandError> {
    let Some(set) = call.txn.set(call.session.db, call.args.at(key))? else {
        return Ok(if has { Vec::new() } else { members });
    };
    let names = set.names()?;
    let mut left = Vec::with_capacity(members.len());
    for member in members {
        if names.has(member)? == has {
            left.push(member);
        }
    }
    Ok(left)
}
