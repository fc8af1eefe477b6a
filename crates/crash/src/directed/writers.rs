//! Groups, and keys that are locked: what is durable when, and who waits for whom.

use super::{LEN_MAX, after_power_failure, audited, options, told};
use duramen::{Durability, Options, StoreOn};
use duramen_media::sim::schedule::{self, Settings, Strategy};
use duramen_media::sim::{Log, Model, Rng, SimMedium};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What one of several threads does.
type Work = fn(&StoreOn<SimMedium>) -> duramen::Result<()>;

const SCHEDULES: u64 = 40;
/// A schedule that ends takes some thousand.
const STEPS_MAX: u64 = 100_000;
const ONE: &[u8] = b"one";
const TWO: &[u8] = b"two";

/// A group is settled, then power fails.
///
/// # Errors
/// What is wrong.
pub fn settled() -> Result<(), String> {
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = StoreOn::open_on(medium.clone(), &options(1, Durability::EveryWrite)).map_err(told)?;
    let mut writer = store.writer().map_err(told)?;
    writer.put(ONE, b"before").map_err(told)?;
    writer.group();
    writer.delete(ONE).map_err(told)?;
    writer.put(TWO, b"of the group").map_err(told)?;
    writer.settle().map_err(told)?;
    let failed = after_power_failure(&medium, Model::CacheLine);
    let again = StoreOn::open_on(failed, &options(2, Durability::EveryWrite)).map_err(told)?;
    let found = |key| again.get(key).map(|found| found.map(|value| value.to_vec())).map_err(told);
    match (found(ONE)?, found(TWO)?.as_deref()) {
        (None, Some(b"of the group")) => Ok(()),
        found => Err(format!("after a power failure there is {found:?} of a group that was settled")),
    }
}

/// Two threads lock the same keys, each in an order of its own.
///
/// # Errors
/// What is wrong.
pub fn locked_in_any_order() -> Result<(), String> {
    in_all_ways(Durability::EveryWrite, [|store| lock(store, [ONE, TWO]), |store| lock(store, [TWO, ONE])])
}

fn lock(store: &StoreOn<SimMedium>, keys: [&[u8]; 2]) -> duramen::Result<()> {
    store.writer()?.locked(keys, |writer| writer.put(keys[0], b"written under its lock"))
}

/// A thread writes a key that it holds, another one waits for the key, and a third one commits, each more than once.
///
/// # Errors
/// What is wrong.
pub fn committed_beside_locks() -> Result<(), String> {
    const ROUNDS: u8 = 10;
    let holds: Work = |store| {
        store.writer()?.locked([ONE], |writer| (0..ROUNDS).try_for_each(|round| writer.put(ONE, &[round])))
    };
    let waits: Work = |store| (0..ROUNDS).try_for_each(|round| store.put(ONE, &[round]));
    let commits: Work = |store| {
        (0..ROUNDS).try_for_each(|round| {
            store.put(TWO, &[round])?;
            store.commit()
        })
    };
    // Nothing is committed by itself.
    in_all_ways(Durability::Interval(Duration::from_secs(1_000_000)), [holds, waits, commits])
}

/// Threads on one store, by the schedules of some seeds: all come to their ends.
fn in_all_ways<const N: usize>(durability: Durability, threads: [Work; N]) -> Result<(), String> {
    (1..=SCHEDULES).try_for_each(|seed| {
        duramen::schedule::finish_reclamation();
        let strategy = Strategy::some(&mut Rng::new(seed));
        let wrong = Arc::new(Mutex::new(Ok(())));
        let notes = Arc::clone(&wrong);
        let report = schedule::run(&Settings { seed, strategy, steps_max: STEPS_MAX }, move || {
            let done = together(&options(1, durability), &threads);
            *notes.lock().unwrap_or_else(PoisonError::into_inner) = done;
        });
        let done = match report.failure {
            Some(what) => Err(what),
            None => wrong.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        done.map_err(|what| format!("schedule {seed}: {what}"))
    })
}

fn together(options: &Options, threads: &[Work]) -> Result<(), String> {
    let store =
        StoreOn::open_on(SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX)), options).map_err(told)?;
    let wrong = Arc::new(Mutex::new(Ok(())));
    let threads: Vec<_> = threads
        .iter()
        .map(|&work| {
            let (store, notes) = (store.clone(), Arc::clone(&wrong));
            let run = move || {
                if let Err(error) = work(&store) {
                    *notes.lock().unwrap_or_else(PoisonError::into_inner) = Err(told(error));
                }
            };
            schedule::spawn("one of some", run).map_err(|_| "no schedule".to_owned())
        })
        .collect::<Result<_, _>>()?;
    threads.iter().for_each(schedule::Spawned::join);
    audited(&store)?;
    store.close().map_err(told)?;
    wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
