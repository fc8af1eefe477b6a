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

/// Members of a result, in the order in which they were found.
type Members<'s> = Vec<&'s [u8]>;

/// What is made of sets, `None` where a key is missing.
type Operation = for<'s> fn(&'s [Option<Set<'s>>]) -> Result<Members<'s>, CommandError>;

/// SUNION key [key …]: what is in any.
pub fn sunion(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, union)
}

/// SINTER key [key …]: what is in all.
pub fn sinter(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, intersection)
}

/// SDIFF key [key …]: what is in the first alone.
pub fn sdiff(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    reply(call, difference)
}

/// SUNIONSTORE destination key [key …]: SUNION into a key; how many members.
pub fn sunionstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, union)
}

/// SINTERSTORE destination key [key …]: SINTER into a key; how many members.
pub fn sinterstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, intersection)
}

/// SDIFFSTORE destination key [key …]: SDIFF into a key; how many members.
pub fn sdiffstore(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    store(call, difference)
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
    let sets = read(call, 2..2 + keys)?;
    let count = intersect(&sets, if limit == 0 { usize::MAX } else { limit })?.len();
    call.reply.count(count);
    Ok(())
}

fn reply(call: &mut Call<'_, '_>, operation: Operation) -> Result<(), CommandError> {
    let sets = read(call, 1..call.args.len())?;
    let members = operation(&sets)?;
    call.reply.set(members.len());
    members.iter().for_each(|member| call.reply.bulk(member));
    Ok(())
}

fn store(call: &mut Call<'_, '_>, operation: Operation) -> Result<(), CommandError> {
    let sets = read(call, 2..call.args.len())?;
    let members = operation(&sets)?;
    let count = members.len();
    let key = call.args.at(1);
    let changed = call.txn.put_set(call.session.db, key, members)?;
    call.notify_stored(SET, call.entry.spec.name, key, count, changed);
    call.reply.count(count);
    Ok(())
}

/// The sets whose keys are these arguments.
fn read<'c>(call: &mut Call<'c, '_>, keys: Range<usize>) -> Result<Vec<Option<Set<'c>>>, CommandError> {
    let args = call.args;
    let mut sets = Vec::with_capacity(keys.len());
    for key in keys {
        let set = call.stats.read(call.txn.set(call.session.db, args.at(key))?);
        sets.push(set.map(|set| set.detached()));
    }
    Ok(sets)
}

fn union<'s>(sets: &'s [Option<Set<'s>>]) -> Result<Members<'s>, CommandError> {
    let (mut seen, mut members) = (HashSet::new(), Vec::new());
    for set in sets.iter().flatten() {
        members.extend(set.list()?.into_iter().filter(|member| seen.insert(*member)));
    }
    order(&mut members);
    Ok(members)
}

fn difference<'s>(sets: &'s [Option<Set<'s>>]) -> Result<Members<'s>, CommandError> {
    let Some((Some(first), others)) = sets.split_first() else { return Ok(Vec::new()) };
    let mut members = first.list()?;
    for other in others.iter().flatten() {
        let names = other.names()?;
        members.retain(|member| !names.has(member));
    }
    order(&mut members);
    Ok(members)
}

fn intersection<'s>(sets: &'s [Option<Set<'s>>]) -> Result<Members<'s>, CommandError> {
    intersect(sets, usize::MAX)
}

/// The first `count_max` members, in the order of the smallest set.
fn intersect<'s>(sets: &'s [Option<Set<'s>>], count_max: usize) -> Result<Members<'s>, CommandError> {
    let sets: Option<Vec<&Set<'s>>> = sets.iter().map(Option::as_ref).collect();
    let Some(mut sets) = sets else { return Ok(Vec::new()) };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return Ok(Vec::new()) };
    let others = others.iter().map(|other| other.names()).collect::<Result<Vec<_>, _>>()?;
    let in_all = |member: &&[u8]| others.iter().all(|names| names.has(member));
    Ok(smallest.list()?.into_iter().filter(in_all).take(count_max).collect())
}
