//! Commands on HyperLogLogs, which are strings: PFADD, PFCOUNT, PFMERGE, PFSELFTEST.

use super::{Args, Call, Command, CommandError};
use crate::observe::keyspace_events::STRING;
use duramen_structures::hyperloglog::{COUNT, Corrupted, HEAD_BYTES, Head, HyperLogLog, Place, Registers};
use duramen_structures::string_until;
use std::collections::BTreeMap;

/// The commands of this group.
pub const COMMANDS: &[Command] = &[
    Command::new("pfadd", pfadd).merged(3),
    Command::new("pfcount", pfcount).removes(),
    Command::new("pfmerge", pfmerge),
    Command::new("pfselftest", pfselftest),
];

const NONE: CommandError = CommandError::new("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPTED: CommandError = CommandError::new("INVALIDOBJ Corrupted HLL object detected");

impl From<Corrupted> for CommandError {
    fn from(_: Corrupted) -> Self {
        CORRUPTED
    }
}

/// PFADD key [element …]: whether the estimate may have changed, or the key is new.
pub fn pfadd(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let key = call.args.at(1);
    match head(call, key)? {
        Some(head) if head.is_dense() => return add_to_dense(call, key, head),
        _ => {}
    }
    let sparse_bytes = call.txn.thresholds().sparse_bytes;
    let found = find(call, key)?;
    let is_new = found.is_none();
    let (mut log, expires_at) = found.unwrap_or_default();
    let (mut is_changed, each) = (is_new, call.merged > 1);
    for (element, at) in call.args.from(2).zip(0..) {
        let is_raised = log.add(element, sparse_bytes)?;
        is_changed |= is_raised;
        if each {
            call.reply.integer(i64::from(is_raised || is_new && at == 0));
        }
    }
    if is_new {
        log.forget_count();
    }
    if is_changed {
        call.txn.put_vec(call.session.db, key, log.into_bytes(), string_until(expires_at))?;
        call.notify(STRING, "pfadd", key);
    }
    if call.merged == 1 {
        call.reply.integer(i64::from(is_changed));
    }
    Ok(())
}

/// PFADD where the registers are dense: only those of the elements are read and written.
fn add_to_dense(call: &mut Call<'_, '_>, key: &[u8], head: Head) -> Result<(), CommandError> {
    let (db, elements) = (call.session.db, call.args.from(2));
    let places: Vec<Place> = elements.map(Place::of).collect();
    let mut bytes = places.iter().flat_map(|place| place.bytes()).map(|at| (at, 0)).collect();
    call.txn.read_bytes(db, key, &mut bytes)?;
    let mut changed = BTreeMap::new();
    for place in places {
        let mut alike: Vec<u8> = place.bytes().filter_map(|at| bytes.get(&at).copied()).collect();
        let is_raised = place.raise(&mut alike);
        if call.merged > 1 {
            call.reply.integer(i64::from(is_raised));
        }
        if is_raised {
            changed.extend(place.bytes().zip(alike));
            bytes.extend(changed.range(place.bytes()).map(|(&at, &byte)| (at, byte)));
        }
    }
    let is_changed = !changed.is_empty();
    if is_changed {
        changed.extend(head.forgotten_count().map(|byte| (COUNT.end - 1, byte)));
        call.txn.write_bytes(db, key, &changed)?;
        call.notify(STRING, "pfadd", key);
    }
    if call.merged == 1 {
        call.reply.integer(i64::from(is_changed));
    }
    Ok(())
}

/// The head of the HyperLogLog at a key.
fn head(call: &mut Call<'_, '_>, key: &[u8]) -> Result<Option<Head>, CommandError> {
    let head =
        call.txn.read_string(call.session.db, key, |_| 0..HEAD_BYTES, |len, first| Head::of(first, len))?;
    head.map(|head| head.ok_or(NONE)).transpose()
}

/// PFCOUNT key [key …]: the approximate number of different elements in all. The count of a single key is kept with it.
pub fn pfcount(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() > 2 {
        let (registers, _) = merged(call, call.args.skip(1))?;
        call.reply.integer(registers.count() as i64);
        return Ok(());
    }
    let key = call.args.at(1);
    let head = head(call, key)?;
    let Some(head) = call.stats.read(head) else {
        call.reply.integer(0);
        return Ok(());
    };
    let count = match head.known_count() {
        Some(count) => count,
        None => {
            let (mut log, _) = find(call, key)?.unwrap_or_default();
            let count = log.count()?;
            call.txn.write_string(call.session.db, key, COUNT.start, &count.to_le_bytes())?;
            count
        }
    };
    call.reply.integer(count as i64);
    Ok(())
}

/// PFMERGE destination [source …]: merges the sources and the destination into the destination.
pub fn pfmerge(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (registers, is_dense) = merged(call, call.args.skip(1))?;
    let key = call.args.at(1);
    let (mut log, expires_at) = find(call, key)?.unwrap_or_default();
    if is_dense {
        log.make_dense()?;
    }
    log.merge(&registers, call.txn.thresholds().sparse_bytes)?;
    call.txn.put_vec(call.session.db, key, log.into_bytes(), string_until(expires_at))?;
    call.notify(STRING, "pfadd", key);
    call.reply.ok();
    Ok(())
}

/// PFSELFTEST: counts known elements in both forms.
pub fn pfselftest(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    const ELEMENTS: u64 = 100_000;
    // Some six times the standard error of 0.81 %.
    const ERROR_MAX: f64 = 0.05;
    let sparse_bytes = call.txn.thresholds().sparse_bytes;
    let (mut log, mut dense) = (HyperLogLog::default(), HyperLogLog::default());
    dense.make_dense()?;
    for element in 1..=ELEMENTS {
        log.add(&element.to_le_bytes(), sparse_bytes)?;
        dense.add(&element.to_le_bytes(), sparse_bytes)?;
        if element.is_power_of_two() || element == ELEMENTS {
            let count = log.clone().count()?;
            let error = count.abs_diff(element) as f64;
            if count != dense.clone().count()? || error > (element as f64 * ERROR_MAX).max(1.0) {
                let text = format!("TESTFAILED {count} elements were estimated of {element}");
                return Err(CommandError::with(text));
            }
        }
    }
    call.reply.ok();
    Ok(())
}

/// The HyperLogLog at a key, and when it expires.
fn find(call: &mut Call<'_, '_>, key: &[u8]) -> Result<Option<(HyperLogLog, Option<u64>)>, CommandError> {
    let Some(found) = call.txn.get_string(call.session.db, key)? else { return Ok(None) };
    let expires_at = found.expires_at();
    let log = HyperLogLog::of(found.to_vec()).ok_or(NONE)?;
    Ok(Some((log, expires_at)))
}

/// The registers of several keys together, and whether those of one are dense.
fn merged(call: &mut Call<'_, '_>, keys: Args<'_>) -> Result<(Registers, bool), CommandError> {
    let (mut registers, mut is_dense) = (Registers::default(), false);
    for key in keys.iter() {
        let found = find(call, key)?;
        if let Some((log, _)) = call.stats.read(found) {
            is_dense |= log.is_dense();
            registers.raise_to(&log)?;
        }
    }
    Ok((registers, is_dense))
}
