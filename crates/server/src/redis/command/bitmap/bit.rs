//! Bits, one or many: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP.

use super::bit_offset;
use crate::observe::keyspace_events::{GENERIC, STRING};
use crate::redis::command::{Args, Call, CommandError, errors, integer};
use duramen_structures::bits::{self, Bitmap, Operation};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};

/// SETBIT key offset value: sets or clears one bit; replies with its old value.
pub fn setbit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (db, args) = (call.session.db, call.args);
    let given = (2..args.len()).step_by(2).map(|at| {
        let offset = bit_offset(call, args.at(at), None)?;
        match integer(args.at(at + 1)) {
            Some(bit @ 0..=1) => Ok((offset, bit == 1)),
            _ => Err(CommandError::new("ERR bit is not an integer or out of range")),
        }
    });
    // An error in one of several is reported when each runs alone.
    let given = given.collect::<Result<Vec<(u64, bool)>, _>>()?;
    let mut bytes: BTreeMap<_, _> = given.iter().map(|(offset, _)| ((offset >> 3) as usize, 0)).collect();
    let mut len = call.txn.read_bytes(db, args.at(1), &mut bytes)?.unwrap_or(0);
    let (mut changed, mut changes) = (BTreeMap::new(), 0);
    for (offset, on) in given {
        let at = (offset >> 3) as usize;
        let byte = bytes.entry(at).or_default();
        let was = bits::get(&[*byte], offset & 7);
        call.reply.integer(i64::from(was));
        // Redis 7.2 too writes nothing when nothing changes.
        if at >= len || was != on {
            *byte = bits::with(*byte, offset, on);
            changed.insert(at, *byte);
            (len, changes) = (len.max(at + 1), changes + 1);
        }
    }
    if changes > 0 {
        call.edits_one();
        call.txn.write_bytes(db, args.at(1), &changed)?;
        (0..changes).for_each(|_| call.notify(STRING, "setbit", args.at(1)));
    }
    Ok(())
}

/// GETBIT key offset: one bit.
pub fn getbit(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let offset = bit_offset(call, call.args.at(2), None)?;
    let (db, at) = (call.session.db, (offset >> 3) as usize);
    let byte =
        call.txn.read_string(db, call.args.at(1), |_| at..at + 1, |_, bytes| bytes.first().copied())?;
    let byte = call.stats.read(byte).flatten().unwrap_or(0);
    call.reply.integer(i64::from(bits::get(&[byte], offset & 7)));
    Ok(())
}

/// BITCOUNT key [start end [BYTE | BIT]]: the number of set bits.
pub fn bitcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (db, key) = (call.session.db, args.at(1));
    let Some(len) = call.stats.read(call.txn.string_len(db, key)?) else {
        call.reply.integer(0);
        return Ok(());
    };
    let range = match args.len() {
        2 => bits::range(len, 0, -1, 8),
        4 | 5 => {
            let (start, end) = (args.integer(2)?, args.integer(3)?);
            if start < 0 && end < 0 && start > end {
                None
            } else {
                bits::range(len, start, end, unit(args, 4)?)
            }
        }
        _ => return Err(errors::SYNTAX),
    };
    let mut count = 0;
    if let Some(range) = range {
        call.txn.visit_string(db, key, bits::bytes_of(&range), |at, bytes| {
            count += bits::count(bytes, &bits::within(&range, at, bytes.len()));
            ControlFlow::Continue(())
        })?;
    }
    call.reply.integer(count as i64);
    Ok(())
}

/// BITPOS key bit [start [end [BYTE | BIT]]]: the first bit that is set, or clear.
pub fn bitpos(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let on = match args.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(CommandError::new("ERR The bit argument must be 1 or 0.")),
    };
    let (db, key) = (call.session.db, args.at(1));
    let Some(len) = call.stats.read(call.txn.string_len(db, key)?) else {
        call.reply.integer(if on { -1 } else { 0 });
        return Ok(());
    };
    let (mut start, mut end, mut counted_in) = (0, -1, 8);
    if args.len() > 6 {
        return Err(errors::SYNTAX);
    }
    if args.len() > 3 {
        start = args.integer(3)?;
        counted_in = unit(args, 5)?;
    }
    if args.len() > 4 {
        end = args.integer(4)?;
    }
    let position = match bits::range(len, start, end, counted_in) {
        None => None,
        // Without an end the string counts as followed by zeros.
        Some(range) => {
            first_bit(call, &range, on)?.or_else(|| (!on && args.len() < 5).then_some(len as u64 * 8))
        }
    };
    call.reply.integer(position.map_or(-1, |position| position as i64));
    Ok(())
}

/// The first of these bits of the string at the first argument that is `on`.
fn first_bit(
    call: &mut Call<'_, '_>,
    range: &RangeInclusive<u64>,
    on: bool,
) -> Result<Option<u64>, CommandError> {
    // Up to `next` none is.
    let (mut found, mut next) = (None, *range.start());
    call.txn.visit_string(call.session.db, call.args.at(1), bits::bytes_of(range), |at, bytes| {
        let first = at as u64 * 8;
        let within = bits::within(range, at, bytes.len());
        // Before them may be a hole, which is zeros.
        found = if !on && first > next {
            Some(next)
        } else {
            bits::position(bytes, &within, on).map(|position| first + position)
        };
        next = first + within.end() + 1;
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found.or((!on && next <= *range.end()).then_some(next)))
}

/// BITOP AND | OR | XOR | NOT destination key [key …]: combines bitmaps; the length of the result.
pub fn bitop(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let args = call.args;
    let (db, destination) = (call.session.db, args.at(2));
    let operation = Operation::of_name(args.at(1)).ok_or(errors::SYNTAX)?;
    if operation == Operation::Not && args.len() != 4 {
        return Err(CommandError::new("ERR BITOP NOT must be called with a single source key."));
    }
    let mut result: Option<Bitmap> = None;
    for key in args.from(3) {
        let source = call.stats.read(call.txn.bitmap(db, key)?).unwrap_or_default();
        match &mut result {
            None => result = Some(source.first(operation)),
            Some(result) => result.combine(operation, source),
        }
    }
    let result = result.unwrap_or_default();
    call.reply.count(result.len());
    if !result.is_empty() {
        call.txn.put_bitmap(db, destination, &result)?;
        call.notify(STRING, "set", destination);
    } else if call.txn.delete(db, destination)? {
        call.notify(GENERIC, "del", destination);
    }
    Ok(())
}

/// Bits of the unit in the range of BITCOUNT and BITPOS: BYTE, which is the default, or BIT.
fn unit(args: Args<'_>, index: usize) -> Result<u64, CommandError> {
    match args.get(index) {
        None => Ok(8),
        Some(word) if word.eq_ignore_ascii_case(b"byte") => Ok(8),
        Some(word) if word.eq_ignore_ascii_case(b"bit") => Ok(1),
        Some(_) => Err(errors::SYNTAX),
    }
}
