//! Groups and locked keys: the order of durability, and waiting between threads.

use super::threads::{Work, in_all_ways};
use super::{LEN_MAX, after_power_failure, options, reported};
use duramen::{Durability, StoreOn};
use duramen_media::sim::{Log, Model, SimMedium};
use std::time::Duration;

const ROUNDS: u8 = 10;
const ONE: &[u8] = b"one";
const TWO: &[u8] = b"two";

/// A group is flushed, then power fails.
///
/// # Errors
/// Returns a description of the violation.
pub fn flushed_group() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    writer.put(ONE, b"before").map_err(reported)?;
    writer.group();
    writer.delete(ONE).map_err(reported)?;
    writer.put(TWO, b"of the group").map_err(reported)?;
    writer.flush_group().map_err(reported)?;
    let failed = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(failed, &options(2, Durability::EveryWrite)).map_err(reported)?;
    let found = |key| again.get(key).map(|found| found.map(|value| value.to_vec())).map_err(reported);
    match (found(ONE)?, found(TWO)?.as_deref()) {
        (None, Some(b"of the group")) => Ok(()),
        found => Err(format!("found {found:?} of a flushed group after a power failure, wanted all of it")),
    }
}

/// Two threads lock the same keys repeatedly, each in a different order.
///
/// # Errors
/// Returns a description of the violation.
pub fn locked_in_any_order() -> Result<(), String> {
    in_all_ways(
        Durability::EveryWrite,
        |_| Ok(()),
        [|store| lock(store, [ONE, TWO]), |store| lock(store, [TWO, ONE])],
    )
}

fn lock(store: &StoreOn<SimMedium>, keys: [&[u8]; 2]) -> duramen::Result<()> {
    let mut writer = store.writer()?;
    (0..ROUNDS).try_for_each(|round| writer.locked(keys, |writer| writer.put(keys[0], [round])))
}

/// A thread writes a key that it has locked, another one waits for the key, and a third one commits, each repeatedly.
///
/// # Errors
/// Returns a description of the violation.
pub fn committed_beside_locks() -> Result<(), String> {
    let holds: Work = |store| {
        store.writer()?.locked([ONE], |writer| (0..ROUNDS).try_for_each(|round| writer.put(ONE, [round])))
    };
    let waits: Work = |store| (0..ROUNDS).try_for_each(|round| store.put(ONE, [round]));
    let commits: Work = |store| {
        (0..ROUNDS).try_for_each(|round| {
            store.put(TWO, [round])?;
            store.commit()
        })
    };
    // Nothing commits automatically.
    in_all_ways(Durability::Interval(Duration::from_secs(1_000_000)), |_| Ok(()), [holds, waits, commits])
}
