//! Keys that are evicted, and what of them a crash finds.

use super::{LEN_MAX, after_power_failure, audited, options, reported};
use duramen::{Durability, ErrorKind, EvictBy, Eviction, StoreOn};
use duramen_media::sim::{Log, Model, SimMedium};
use std::sync::{Arc, Mutex, PoisonError};

/// Keys are moved out of blocks that a group keeps from being freed, and are evicted from where they were moved to. Power fails before the
/// group is flushed.
///
/// # Errors
/// Returns a description of the violation.
pub fn moved_and_evicted() -> Result<(), String> {
    const KEYS: u8 = 24;
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let mut options = options(1, Durability::EveryWrite);
    // Of these 32 are the head's.
    options.limit = 80 * 512;
    options.tuning.growth_bytes_min = 512;
    // The oldest block first, whoever filled it.
    options.eviction = Some(Eviction { by: EvictBy::Frequency, volatile_only: false });
    let store = StoreOn::open_on(medium.clone(), &options).map_err(reported)?;
    store.set_evictable(Some(0));
    let evicted = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&evicted);
    store.set_on_evicted(Arc::new(move |evicted| {
        notes.lock().unwrap_or_else(PoisonError::into_inner).push(evicted.key.clone());
    }));
    for key in 0..KEYS {
        store.put([key], [key; 40]).map_err(reported)?;
        (0..4).try_for_each(|_| store.put(b"filler", [1; 40])).map_err(reported)?;
    }
    let mut group = store.writer().map_err(reported)?;
    group.group();
    group.put(b"of the group", b"").map_err(reported)?;
    (0..2).try_for_each(|_| store.maintain()).map_err(reported)?;
    let stats = store.stats();
    if stats.compacted_bytes == 0 || stats.freed_extents > 0 {
        return Err("nothing was moved, or something was freed".into());
    }
    let is_moved = |key: &[u8]| matches!(key, [key] if *key < KEYS);
    let mut gone = Vec::new();
    for key in 0..200u8 {
        match store.put([key, key], [key; 40]) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace => break,
            done => done.map_err(reported)?,
        }
        gone.append(&mut evicted.lock().unwrap_or_else(PoisonError::into_inner));
    }
    gone.append(&mut evicted.lock().unwrap_or_else(PoisonError::into_inner));
    gone.retain(|key| is_moved(key));
    if gone.is_empty() {
        return Err("nothing was evicted that had been moved".into());
    }
    let failed = after_power_failure(&medium, Model::CacheLine);
    group.flush_group().map_err(reported)?;
    let again = StoreOn::open_on(failed, &options).map_err(reported)?;
    for key in gone {
        if again.get(&key).map_err(reported)?.is_some() {
            return Err(format!("key {key:?} was evicted and reappeared after a crash"));
        }
    }
    audited(&store)
}
