//! Integers of any width within a string: BITFIELD, BITFIELD_RO.

use super::bit_offset;
use crate::command::{Args, Call, CommandError, KeyFlags, errors};
use crate::notifications::STRING;
use duramen_structures::Error;
use duramen_structures::bits::{Field, Overflow, Width};

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

/// What BITFIELD does with its key: with GETs only it reads it. Of what it would refuse the most is told, as in Redis.
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

/// Only GETs: the key is not touched.
fn read(call: &mut Call<'_, '_>, steps: &[Step]) -> Result<(), CommandError> {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    reply.array(steps.len());
    let (from, end) = bytes_of(steps);
    let told = call.txn.read_string(
        call.session.db,
        key,
        |_| from..end,
        |_, bytes| {
            steps.iter().for_each(|step| reply.integer(step.field.behind(from).get(bytes)));
        },
    )?;
    if call.stats.read(told).is_none() {
        steps.iter().for_each(|step| call.reply.integer(step.field.get(&[])));
    }
    Ok(())
}

/// The bytes from the first to the last that some step is about.
fn bytes_of(steps: &[Step]) -> (usize, usize) {
    let from = steps.iter().map(|step| step.field.offset >> 3).min();
    let end = steps.iter().map(|step| step.field.bytes_end()).max();
    (from.unwrap_or(0) as usize, end.unwrap_or(0) as usize)
}

fn write(call: &mut Call<'_, '_>, steps: &[Step], bytes_end: u64) -> Result<(), CommandError> {
    let (db, key) = (call.session.db, call.args.at(1));
    // An offset within the limit may still begin a field that ends beyond it.
    if bytes_end > duramen::VALUE_BYTES_MAX as u64 {
        return Err(Error::TooLong.into());
    }
    let (from, end) = bytes_of(steps);
    let found = call.txn.read_string(db, key, |_| from..end, |len, bytes| (len, bytes.to_vec()))?;
    let (len, mut bytes) = found.unwrap_or_default();
    // As in Redis, the string grows even if an overflow then fails, but not by what is only read.
    let mut changed = (len as u64) < bytes_end;
    let written_bytes = (bytes_end as usize).saturating_sub(from).max(bytes.len());
    bytes.resize(end - from, 0);
    // What only grows is told to nobody, as in the reference.
    let mut written = false;
    call.reply.array(steps.len());
    for Step { field, action } in steps {
        let field = field.behind(from);
        let before = field.get(&bytes);
        let result = match *action {
            Action::Get => Some(field.get(&bytes)),
            Action::Set(value, overflow) => field.set(&mut bytes, value, overflow),
            Action::IncrBy(increment, overflow) => field.increment(&mut bytes, increment, overflow),
        };
        match result {
            Some(value) => call.reply.integer(value),
            None => call.reply.null(),
        }
        changed |= field.get(&bytes) != before;
        written |= result.is_some() && !matches!(action, Action::Get);
    }
    // Whoever watches the key is not told of what changes nothing.
    if changed {
        call.txn.write_string(db, key, from, &bytes[..written_bytes])?;
        if written {
            call.notify(STRING, "setbit", key);
        }
        call.notify_if_new(key);
    }
    Ok(())
}
