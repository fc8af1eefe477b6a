//! Several sets together: SUNION, SINTER, SDIFF, their STORE forms, SINTERCARD.
//!
//! All sets are read first, as in Redis: a key of another type is an error even if the result is known without it.

use crate::observe::keyspace_events::SET;
use crate::redis::command::{Call, CommandError, errors};
use duramen_structures::{Collection, Found, Reads, order};
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

// 32: a read of so many takes little longer than the look for their key.
const COUNTED_AT_FIRST: usize = 32;
// A set with more members than this is not read before it is known to be the smallest.
const FEW: usize = 16;

/// As it lies in the store, and a copy of it.
type Stored<'t> = Collection<'t, Found<'t>, Reads<'t>>;
type Set<'t> = Collection<'t, Vec<u8>>;

/// The operations on sets.
#[derive(Clone, Copy)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// SUNION key [key …]: the members of any set.
pub fn sunion(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, Operation::Union)
}

/// SINTER key [key …]: the members of all sets.
pub fn sinter(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, Operation::Intersection)
}

/// SDIFF key [key …]: the members of the first set only.
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

/// SINTERCARD numkeys key [key …] [LIMIT limit]: the number of members that SINTER returns, at most the limit, unless
/// that is 0.
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
    let keys = || args.from(2).take(keys);
    let count = match common_of_few(call, keys())? {
        Some(members) => members.len().min(count_max),
        None => {
            let sets = lengths(call, keys())?;
            count_common(call, sets, count_max)?
        }
    };
    call.reply.count(count);
    Ok(())
}

/// The members that all of these sets have, if the first set has few: then each set is read once. In the order of the
/// smallest, as of [`combine`].
fn common_of_few<'k>(
    call: &mut Call<'_, '_>,
    mut keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Option<Vec<Vec<u8>>>, CommandError> {
    let Some(first) = keys.next() else { return Ok(None) };
    let db = call.session.db;
    let copied = |set: &Stored<'_>| -> Result<Vec<Vec<u8>>, CommandError> {
        Ok(set.list()?.into_iter().map(<[u8]>::to_vec).collect())
    };
    let mut members = match call.txn.set(db, first)? {
        Some(set) if set.len() > FEW => return Ok(None),
        Some(set) => copied(&set)?,
        None => Vec::new(),
    };
    let mut least = members.len();
    call.stats.read_key(!members.is_empty());
    call.each_key(keys, |call, key| {
        let set = call.stats.read(call.txn.set(db, key)?);
        // The rest is read because one of another type is an error.
        let Some(set) = set.filter(|_| !members.is_empty()) else {
            members.clear();
            return Ok(());
        };
        if set.len() < least {
            least = set.len();
            let before = std::mem::replace(&mut members, copied(&set)?);
            members.retain(|member| before.contains(member));
            return Ok(());
        }
        let names = set.names()?;
        let mut fault = None;
        members.retain(|member| {
            names.has(member).unwrap_or_else(|error| {
                fault = Some(error);
                true
            })
        });
        fault.map_or(Ok(()), |error| Err(error.into()))
    })?;
    Ok(Some(members))
}

/// A key, and the length of the set there; `None` if it is missing.
pub type Length<'k> = (&'k [u8], Option<usize>);

/// The number of members that all of these sets or sorted sets have, at most `count_max`. Each comes with its length,
/// or `None` if its key is missing. Of the smallest one, no more is read than is needed to find that many.
pub fn count_common(
    call: &mut Call<'_, '_>,
    mut sets: Vec<Length<'_>>,
    count_max: usize,
) -> Result<usize, CommandError> {
    if sets.iter().any(|(_, len)| len.is_none()) {
        return Ok(0);
    }
    sets.sort_by_key(|(_, len)| *len);
    let Some(((smallest, len), others)) = sets.split_first() else { return Ok(0) };
    let (db, len) = (call.session.db, len.unwrap_or_default());
    // A key that is named again has what it has.
    let others: Vec<&[u8]> = others.iter().map(|(key, _)| *key).filter(|key| key != smallest).collect();
    if others.is_empty() {
        return Ok(len.min(count_max));
    }
    // If too few of those are in the others, it starts again with four times as many: so at most a third more than all
    // is read.
    let mut most = count_max.max(COUNTED_AT_FIRST).saturating_mul(2);
    loop {
        let mut members = Vec::with_capacity(most.min(len));
        if let Some(set) = call.txn.set_or_sorted_set(db, smallest)? {
            set.visit(|member, _| {
                members.push(member.to_vec());
                if members.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        let is_all = members.len() < most;
        call.each_key(others.iter().copied(), |call, key| {
            let Some(set) = call.txn.set_or_sorted_set(db, key)? else {
                members.clear();
                return Ok(());
            };
            let mut is_there = Vec::with_capacity(members.len());
            set.get_each(members.iter().map(Vec::as_slice), |found| is_there.push(found.is_some()))?;
            let mut is_there = is_there.into_iter();
            members.retain(|_| is_there.next().unwrap_or(false));
            Ok(())
        })?;
        if is_all || members.len() >= count_max {
            return Ok(members.len().min(count_max));
        }
        most = most.saturating_mul(4);
    }
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
    match operation {
        Operation::Union => {
            let mut all = Vec::new();
            for key in keys {
                all.extend(read(call, key)?);
            }
            let (mut seen, mut members) = (HashSet::new(), Vec::new());
            for set in &all {
                members.extend(set.list()?.into_iter().filter(|member| seen.insert(*member)));
            }
            order(&mut members, call.txn.thresholds().set);
            then(call, members)
        }
        Operation::Difference => {
            let first = read(call, keys.start)?;
            let mut members = first.as_ref().map_or_else(|| Ok(Vec::new()), Collection::list)?;
            for key in keys.skip(1) {
                let set = call.stats.read(call.txn.set(call.session.db, call.args.at(key))?);
                if let Some(set) = set.filter(|_| !members.is_empty()) {
                    members = filter(&set, members, false)?;
                }
            }
            order(&mut members, call.txn.thresholds().set);
            then(call, members)
        }
        Operation::Intersection => {
            let args = call.args;
            let names = || args.from(keys.start).take(keys.len());
            if let Some(members) = common_of_few(call, names())? {
                return then(call, members.iter().map(Vec::as_slice).collect());
            }
            let mut sets = lengths(call, names())?;
            if sets.iter().any(|(_, len)| len.is_none()) {
                return then(call, Vec::new());
            }
            // The members of the smallest are looked up in the others, one by one.
            sets.sort_by_key(|(_, len)| *len);
            let smallest_key = sets[0].0;
            let smallest = call.txn.set(call.session.db, smallest_key)?;
            let Some(smallest) = smallest.map(|set| set.detached()).transpose()? else {
                return then(call, Vec::new());
            };
            let mut members = smallest.list()?;
            // A key that is named again has what it has.
            let others = sets[1..].iter().map(|(key, _)| *key).filter(|key| *key != smallest_key);
            call.any_key(others, |call, key| {
                let set = call.txn.set(call.session.db, key)?;
                let before = std::mem::take(&mut members);
                members = set.map_or_else(|| Ok(Vec::new()), |set| filter(&set, before, true))?;
                Ok(members.is_empty())
            })?;
            then(call, members)
        }
    }
}

/// The lengths of the sets at these keys.
fn lengths<'k>(
    call: &mut Call<'_, '_>,
    keys: impl Iterator<Item = &'k [u8]>,
) -> Result<Vec<Length<'k>>, CommandError> {
    let mut sets = Vec::with_capacity(keys.size_hint().0);
    call.each_key(keys, |call, key| {
        let set = call.stats.read(call.txn.set(call.session.db, key)?);
        sets.push((key, set.map(|set| set.len())));
        Ok(())
    })?;
    Ok(sets)
}

/// A copy of the set whose key is this argument.
fn read<'c>(call: &mut Call<'c, '_>, key: usize) -> Result<Option<Set<'c>>, CommandError> {
    let set = call.stats.read(call.txn.set(call.session.db, call.args.at(key))?);
    Ok(set.map(|set| set.detached()).transpose()?)
}

/// Those of `members` that the set has, or has not.
fn filter<'m>(set: &Stored<'_>, members: Vec<&'m [u8]>, has: bool) -> Result<Vec<&'m [u8]>, CommandError> {
    let names = set.names()?;
    let mut left = Vec::with_capacity(members.len());
    for member in members {
        if names.has(member)? == has {
            left.push(member);
        }
    }
    Ok(left)
}
