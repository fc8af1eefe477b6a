//! A few threads on one store, for what one thread does not show.

use super::{LEN_MAX, audited, options, reported};
use duramen::{Durability, Options, StoreOn};
use duramen_media::sim::schedule::{self, Settings, Strategy};
use duramen_media::sim::{Log, Model, Rng, SimMedium};
use std::sync::{Arc, Mutex, PoisonError};

/// What a thread does.
pub(super) type Work = fn(&StoreOn<SimMedium>) -> duramen::Result<()>;

const SCHEDULES: u64 = 40;
/// A schedule that ends takes some thousand.
const STEPS_MAX: u64 = 100_000;

/// Threads on one store that `make` has written to, by the schedules of some seeds: all come to their ends, without an error.
pub(super) fn in_all_ways<const N: usize>(
    durability: Durability,
    make: Work,
    threads: [Work; N],
) -> Result<(), String> {
    (1..=SCHEDULES).try_for_each(|seed| {
        duramen::schedule::finish_reclamation();
        let strategy = Strategy::some(&mut Rng::new(seed));
        let wrong = Arc::new(Mutex::new(Ok(())));
        let notes = Arc::clone(&wrong);
        let report = schedule::run(&Settings { seed, strategy, steps_max: STEPS_MAX }, move || {
            let done = together(&options(1, durability), make, &threads);
            *notes.lock().unwrap_or_else(PoisonError::into_inner) = done;
        });
        let done = match report.failure {
            Some(what) => Err(what),
            None => wrong.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        done.map_err(|what| format!("schedule {seed}: {what}"))
    })
}

fn together(options: &Options, make: Work, threads: &[Work]) -> Result<(), String> {
    let store = StoreOn::open_on(SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX)), options)
        .map_err(reported)?;
    make(&store).map_err(reported)?;
    let wrong = Arc::new(Mutex::new(Ok(())));
    let threads: Vec<_> = threads
        .iter()
        .map(|&work| {
            let (store, notes) = (store.clone(), Arc::clone(&wrong));
            let run = move || {
                if let Err(error) = work(&store) {
                    *notes.lock().unwrap_or_else(PoisonError::into_inner) = Err(reported(error));
                }
            };
            schedule::spawn("one of some", run).map_err(|_| "no schedule".to_owned())
        })
        .collect::<Result<_, _>>()?;
    threads.iter().for_each(schedule::Spawned::join);
    audited(&store)?;
    store.close().map_err(reported)?;
    wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
