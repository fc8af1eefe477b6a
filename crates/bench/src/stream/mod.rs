//! Benchmarks of the headline query of continuous SQL: sums by key in tumbling windows of 60 s, by event time, over
//! records of 32 bytes, with the generator in the process.
//!
//! The query runs in memory, with checkpoints in stores, and by hand, in turn. All read the same records. The engine
//! reports the cost of a commit to the stream. [`restart`] kills a process and measures the time until the restarted
//! job's next result. [`beyond`] measures a job whose state is larger than its memory, separately.

pub mod beyond;
mod by_hand;
mod generator;
mod job;
pub mod nexmark;
mod reporting;
pub mod restart;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::report::{Measurement, Verdict};
use duramen::MediumKind;

use self::by_hand::ByHand;
use self::generator::{Columns, Generator};
use self::job::Ran;

/// Why a benchmark stopped, in words.
pub type Failure = Box<dyn std::error::Error>;

/// Where stores are made and removed.
#[derive(Debug, Clone)]
pub struct Home {
    /// The directory.
    pub directory: PathBuf,
    /// Its medium.
    pub medium: MediumKind,
}

/// The settings of a measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Numbers of keys.
    pub keys: Vec<u64>,
    /// The number of rounds, in turn.
    pub rounds: u32,
    /// How long each run takes.
    pub time: Duration,
    /// The time from one checkpoint to the next.
    pub every: Duration,
    /// Stores, in addition to the run in memory.
    pub homes: Vec<Home>,
    /// Threads of the additional runs, in memory and with the first of the stores; no such runs if this is one.
    pub threads: usize,
}

/// The results.
#[derive(Debug, Default)]
pub struct Found {
    /// One for each query and home.
    pub measurements: Vec<Measurement>,
    /// Targets, and whether they are reached.
    pub verdict: Verdict,
}

/// The number of records in a window: enough for every key to come about five times, and at least two million.
#[must_use]
pub fn per_window(keys: u64) -> u64 {
    (keys * 5).max(2_000_000)
}

/// Runs everything. `say` receives the name of each run as it begins.
///
/// # Errors
/// When a store cannot be made, a job fails, or a process cannot be started or killed.
pub fn measure(
    settings: &Settings,
    child: &restart::Start<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<Found, Failure> {
    let mut rows = Vec::new();
    for &keys in &settings.keys {
        let mut found = reporting::Row::new(keys, &settings.homes);
        for round in 1..=settings.rounds {
            say(&format!("{keys} keys, round {round} of {}: by hand", settings.rounds));
            found.by_hand.push(by_hand(keys, 1, settings.time));
            if settings.threads > 1 {
                found.threads_by_hand.push(by_hand(keys, settings.threads, settings.time));
            }
            say(&format!("{keys} keys, round {round} of {}: in memory", settings.rounds));
            found.in_memory.push(job::run(keys, None, 1, settings)?);
            if settings.threads > 1 {
                let threads = settings.threads;
                say(&format!("{keys} keys, round {round} of {}: {threads} threads", settings.rounds));
                found.threads.push(job::run(keys, None, threads, settings)?);
                if let Some(home) = settings.homes.first() {
                    let ran = job::run(keys, Some(home), threads, settings)?;
                    found.threads_stored.push(ran);
                }
            }
            for (home, stored) in settings.homes.iter().zip(&mut found.stored) {
                say(&format!(
                    "{keys} keys, round {round} of {}: with a store, {}",
                    settings.rounds, home.medium
                ));
                stored.runs.push(job::run(keys, Some(home), 1, settings)?);
                say(&format!("{keys} keys, round {round} of {}: killed, {}", settings.rounds, home.medium));
                stored.restarts.push(restart::measure(keys, home, child)?);
            }
        }
        rows.push(found);
    }
    Ok(reporting::found(&rows, settings))
}

/// Runs the loop by hand for about this time; its tables grow in the first window, as those of a job do. Threads share
/// nothing: each has its part of the keys and makes its own records. So several threads show the machine's capacity,
/// and not how a job could run.
fn by_hand(keys: u64, threads: usize, time: Duration) -> Ran {
    let (began, cpu) = (Instant::now(), job::cpu());
    let one = || {
        let parts = threads as u64;
        let mut generator = Generator::new(keys / parts, per_window(keys) / parts);
        let (mut columns, mut hand) = (Columns::default(), ByHand::default());
        while began.elapsed() < time {
            for _ in 0..64 {
                generator.fill(&mut columns);
                hand.batch(&columns);
            }
        }
        (generator.made(), hand)
    };
    let all: Vec<(u64, ByHand)> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let others = others.into_iter().filter_map(|other| other.join().ok());
        [one()].into_iter().chain(others).collect()
    });
    let records = all.iter().map(|(made, _)| made).sum();
    let ran = Ran { records, clock: began.elapsed(), cpu: job::cpu() - cpu, ..Ran::default() };
    all.into_iter().for_each(|(_, hand)| {
        std::hint::black_box(hand.finish());
    });
    ran
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;
    use std::rc::Rc;

    use duramen_stream::batch::{Batch, Values};
    use duramen_stream::compile::{Output, Program, Rows};

    use super::by_hand::Given;
    use super::*;

    struct Count(Rc<RefCell<Given>>);

    impl Output for Count {
        fn take(&mut self, rows: &Rows<'_>) -> duramen_stream::Result<()> {
            rows.each_ints(&mut |fields| self.0.borrow_mut().add(fields[0], fields[1], fields[3]));
            Ok(())
        }
    }

    #[test]
    fn the_hand_written_loop_has_the_results_of_the_query() {
        let plans = vec![job::plan("blackhole").unwrap()[0].input.clone()];
        let given = Rc::new(RefCell::new(Given::default()));
        let mut program = Program::compile(&plans, vec![Box::new(Count(given.clone()))]).unwrap();
        let source = program.sources().remove(0);
        let (mut generator, mut columns) = (Generator::new(5_000, 100_000), Columns::default());
        let mut hand = ByHand::default();
        for _ in 0..100 {
            generator.fill(&mut columns);
            hand.batch(&columns);
            let mut batch = Batch::new(&source.types).unwrap();
            for (column, read) in batch.columns.iter_mut().zip(&source.reads) {
                column.values = Values::Int(columns[*read].clone());
            }
            batch.set_rows(columns[0].len());
            program.run(0, &batch).unwrap();
        }
        program.finish().unwrap();
        assert!(given.borrow().rows > 20_000);
        assert_eq!(*given.borrow(), hand.finish());
    }

    #[test]
    fn a_job_with_a_store_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home { directory: directory.path().to_owned(), medium: MediumKind::Auto };
        let settings = Settings {
            keys: vec![1000],
            rounds: 1,
            time: Duration::from_millis(1200),
            every: Duration::from_millis(100),
            homes: vec![home.clone()],
            threads: 1,
        };
        for threads in [1, 2] {
            let ran = job::run(1000, Some(&home), threads, &settings).unwrap();
            assert!(
                ran.records > 100_000 && ran.checkpoints > 2 && ran.pause_max > Duration::ZERO,
                "{ran:?}"
            );
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the store is removed");
    }
}
