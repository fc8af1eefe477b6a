//! Integers of any width within a string: BITFIELD, BITFIELD_RO.

use super::bit_offset;
use crate::observe::keyspace_events::STRING;
use crate::redis::command::{Args, Call, CommandError, KeyFlags, errors};
use duramen_structures::Error;
use duramen_structures::bits::{Field, Overflow, Width};
use std::collections::BTreeMap;
use std::ops::Range;

/// BITFIELD key [GET type offset] [SET type offset value] [INCRBY type offset increment]
/// [OVERFLOW WRAP | SAT | FAIL] …: integers of any width within a string.
pub fn bitfield(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let steps = parse(call)?;
    let writes_end =
        steps.iter().filter(|step| !matches!(step.action, Action::Get)).map(|step| step.field.bytes_end());
    match writes_end.max() {
        None => read(call, &steps),
        Some(bytes_end) => write(call, &steps, bytes_end),
    }
}

/// BITFIELD_RO key [GET type offset …]: BITFIELD that only reads.
pub fn bitfield_ro(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let steps = parse(call)?;
    if steps.iter().any(|step| !matches!(step.action, Action::Get)) {
        return Err(CommandError::new("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(call, &steps)
}

/// How BITFIELD uses its key: with only GETs it reads. If several parts are refused, the one that needs the most
/// counts, as in Redis.
pub fn key_flags(args: Args<'_>) -> KeyFlags {
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "get") && more >= 2 {
            at += 3;
        } else if args.is(at, "overflow") && more >= 1 {
            at += 2;
        } else {
            return KeyFlags::RW.with(KeyFlags::ACCESS).with(KeyFlags::UPDATE);
        }
    }
    KeyFlags::RO.with(KeyFlags::ACCESS)
}

/// One of the subcommands.
struct Step {
    field: Field,
    action: Action,
}

enum Action {
    Get,
    Set(i64, Overflow),
    IncrBy(i64, Overflow),
}

fn parse(call: &Call<'_, '_>) -> Result<Vec<Step>, CommandError> {
    let args = call.args;
    let mut steps = Vec::new();
    let mut overflow = Overflow::default();
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        if args.is(at, "overflow") && more >= 1 {
            overflow = Overflow::of_name(args.at(at + 1))
                .ok_or(CommandError::new("ERR Invalid OVERFLOW type specified"))?;
            at += 2;
            continue;
        }
        let gets = args.is(at, "get") && more >= 2;
        let sets = args.is(at, "set") && more >= 3;
        if !(gets || sets || args.is(at, "incrby") && more >= 3) {
            return Err(errors::SYNTAX);
        }
        let width = Width::of_name(args.at(at + 1)).ok_or(CommandError::new(
            "ERR Invalid bitfield type. Use something like i16 u8. \
             Note that u64 is not supported but i64 is.",
        ))?;
        let field = Field { offset: bit_offset(call, args.at(at + 2), Some(width))?, width };
        let action = if gets {
            Action::Get
        } else if sets {
            Action::Set(args.integer(at + 3)?, overflow)
        } else {
            Action::IncrBy(args.integer(at + 3)?, overflow)
        };
        at += if gets { 3 } else { 4 };
        steps.push(Step { field, action });
    }
    Ok(steps)
}

/// The bytes that the steps use, by position: fields may lie far apart, and the bytes between them are not read.
type Places = BTreeMap<usize, u8>;

/// The bytes in which a field lies.
fn bytes_of(field: Field) -> Range<usize> {
    (field.offset >> 3) as usize..field.bytes_end() as usize
}

/// The bytes of all steps, not read yet.
fn places_of(steps: &[Step]) -> Places {
    steps.iter().flat_map(|step| bytes_of(step.field)).map(|at| (at, 0)).collect()
}

/// Calls `work` with a field relative to its own bytes, and those bytes; they are stored back at their positions.
fn in_own_bytes<T>(field: Field, places: &mut Places, work: impl FnOnce(Field, &mut [u8]) -> T) -> T {
    let (bytes, mut own) = (bytes_of(field), [0; 9]);
    let own = &mut own[..bytes.len()];
    own.iter_mut().zip(places.range(bytes.clone())).for_each(|(own, (_, byte))| *own = *byte);
    let done = work(field.behind(bytes.start), own);
    places.range_mut(bytes).zip(own).for_each(|((_, byte), own)| *byte = *own);
    done
}

/// Only GETs: the key is not touched.
fn read(call: &mut Call<'_, '_>, steps: &[Step]) -> Result<(), CommandError> {
    let mut places = places_of(steps);
    let found = call.txn.read_bytes(call.session.db, call.args.at(1), &mut places)?;
    call.stats.read(found);
    call.reply.array(steps.len());
    for step in steps {
        let value = in_own_bytes(step.field, &mut places, |field, bytes| field.get(bytes));
        call.reply.integer(value);
    }
    Ok(())
}

fn write(call: &mut Call<'_, '_>, steps: &[Step], bytes_end: u64) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    // An offset within the limit may still begin a field that ends beyond it.
    if bytes_end > duramen::VALUE_BYTES_MAX as u64 {
        return Err(Error::TooLong.into());
    }
    let mut places = places_of(steps);
    let len = call.txn.read_bytes(db, key, &mut places)?.unwrap_or(0);
    // As in Redis, the string grows even if an overflow then fails, but not for reads.
    let mut changed = (len as u64) < bytes_end;
    // As in Redis, growth alone is not reported.
    let mut written = false;
    call.reply.array(steps.len());
    for Step { field, action } in steps {
        let (result, has_changed) = in_own_bytes(*field, &mut places, |field, bytes| {
            let before = field.get(bytes);
            let result = match *action {
                Action::Get => Some(before),
                Action::Set(value, overflow) => field.set(bytes, value, overflow),
                Action::IncrBy(increment, overflow) => field.increment(bytes, increment, overflow),
            };
            (result, field.get(bytes) != before)
        });
        match result {
            Some(value) => call.reply.integer(value),
            None => call.reply.null(),
        }
        changed |= has_changed;
        written |= result.is_some() && !matches!(action, Action::Get);
    }
    // A client that watches the key is not notified if nothing changes.
    if changed {
        let writing = steps.iter().filter(|step| !matches!(step.action, Action::Get));
        let written_bytes: Places = writing
            .flat_map(|step| places.range(bytes_of(step.field)).map(|(at, byte)| (*at, *byte)))
            .collect();
        call.txn.write_bytes(db, key, &written_bytes)?;
        if written {
            call.notify(STRING, "setbit", key);
        }
        call.notify_if_new(key);
    }
    Ok(())
}
