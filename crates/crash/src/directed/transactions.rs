//! Transactions of several blocks.

use super::{LEN_MAX, after_power_failure, audited, options, reported};
use crate::check::sound;
use duramen::{Durability, Error, Options, StoreOn};
use duramen_media::sim::{Log, Model, SimMedium, Walker};
use std::time::Duration;

/// A transaction of two blocks begins in an epoch that is committed, and ends in one that is not. The process dies, and
/// power fails while the next one opens the store.
///
/// # Errors
/// Returns a description of the violation.
pub fn confirmed_by_recovery() -> Result<(), String> {
    // Nothing commits automatically, and after a process crash every write counts.
    let options = |boot| options(boot, Durability::Interval(Duration::from_secs(1_000_000)));
    let medium = SimMedium::resume(Log::empty(Model::Page, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(reported)?;
    let written = store.writer().map_err(reported)?.transaction(|transaction| {
        transaction.put(b"a", [1; 300])?;
        store.commit()?;
        transaction.put(b"b", [2; 300])
    });
    written.map_err(reported)?;
    let whole = |log: &Log| log.up_to(log.events.len());
    let log = whole(&medium.log());
    medium.power_off();
    drop(store);
    let begin = log.events.len();
    let medium = SimMedium::resume(log);
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(reported)?;
    let found = |store: &StoreOn<SimMedium>| -> Result<[bool; 2], String> {
        let is_there = |key: &[u8]| store.get(key).map(|value| value.is_some()).map_err(reported);
        Ok([is_there(b"a")?, is_there(b"b")?])
    };
    if found(&store)? != [true, true] {
        return Err("the process is killed within a transaction".into());
    }
    let log = whole(&medium.log());
    medium.power_off();
    drop(store);
    let mut walker = Walker::new(&log);
    walker.advance(begin);
    while let Some(position) = walker.next_point() {
        let (memory, len) = walker.form(&walker.none());
        let medium = SimMedium::from_image(Model::Page, LEN_MAX, memory, len);
        let again = StoreOn::open_on(medium.clone(), &options(2)).map_err(reported)?;
        let found = found(&again)?;
        if found[0] != found[1] {
            return Err(format!(
                "at event {position} of {begin} to {}: found half of a transaction, {found:?}",
                log.events.len()
            ));
        }
        medium.power_off();
        drop(again);
    }
    Ok(())
}

/// A transaction of two blocks has its commit record, and the process dies: the offline check finds the store in order,
/// as recovery does.
///
/// # Errors
/// Returns a description of the violation.
pub fn checked_before_recovery() -> Result<(), String> {
    let options = options(1, Durability::EveryWrite);
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options).map_err(reported)?;
    let begun = medium.position();
    let written = store.writer().map_err(reported)?.transaction(|transaction| {
        transaction.put(b"a", [1; 300])?;
        transaction.put(b"b", [2; 300])
    });
    written.map_err(reported)?;
    let log = medium.log();
    for position in begun..=medium.position() {
        sound(&SimMedium::resume(log.up_to(position)), &options)
            .map_err(|wrong| format!("at event {position}: {wrong}"))?;
    }
    Ok(())
}

/// Two transactions continue into the same block, each from a different one: one commits, the other is aborted. Then
/// power fails.
///
/// # Errors
/// Returns a description of the violation.
pub fn two_transactions_in_one_block() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let options = |boot| Options { extent_bytes: Some(4096), ..options(boot, Durability::EveryWrite) };
    let store = StoreOn::open_on(medium.clone(), &options(1)).map_err(reported)?;
    let mut writer = store.writer().map_err(reported)?;
    writer.put(b"fills the first block", [0; 2800]).map_err(reported)?;
    writer
        .transaction(|transaction| {
            transaction.put(b"a", [1; 400])?;
            transaction.put(b"b", [1; 2000])
        })
        .map_err(reported)?;
    // Does not fit next to them, and leaves little space.
    writer.put(b"fills the third block", [0; 3500]).map_err(reported)?;
    let aborted = writer.transaction(|transaction| {
        transaction.put(b"c", [2; 100])?;
        transaction.put(b"d", [2; 1200])?;
        Err::<(), Error>(Error::aborted("on purpose"))
    });
    if aborted.is_ok() {
        return Err("an aborted transaction commits".into());
    }
    audited(&store)?;
    let medium = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(medium, &options(2)).map_err(reported)?;
    for (key, wanted) in [(&b"a"[..], Some(400)), (b"b", Some(2000)), (b"c", None), (b"d", None)] {
        let found = again.get(key).map_err(reported)?.map(|value| value.len());
        if found != wanted {
            return Err(format!(
                "{} has {found:?} bytes after a crash, wanted {wanted:?}",
                key.escape_ascii()
            ));
        }
    }
    audited(&again)
}
