//! One run of the compiled query.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use duramen::{Create, Durability, Options};
use duramen_stream::catalog::Table;
use duramen_stream::compile::Source;
use duramen_stream::plan::Sink;
use duramen_stream::run::{Keep, MemoryLimit, RowSource, Running, Start, open_store};
use duramen_stream::{Error, Outcome, Session};
use rustix::time::{ClockId, clock_gettime};

use crate::stream::generator::{Generator, Made, Watch};
use crate::stream::{Failure, Home, Settings, per_window};

/// The figures of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ran {
    /// The number of records read.
    pub records: u64,
    /// The wall-clock time.
    pub clock: Duration,
    /// CPU time of all its threads, in seconds.
    pub cpu: f64,
    /// The longest time between two batches, including all work in it, also the rows of a closed window.
    pub gap_max: Duration,
    /// The number of completed checkpoints.
    pub checkpoints: u64,
    /// The longest time for which a checkpoint kept rows waiting.
    pub pause_max: Duration,
    /// The 99th percentile of such times, in the worst checkpoint.
    pub pause_p99: Duration,
    /// How long the last checkpoint took concurrently with the rows.
    pub took: Duration,
    /// Bytes of pages that it wrote.
    pub bytes: u64,
}

/// CPU time of this process, in seconds.
pub fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The headline query, with its results to a connector.
pub fn plan(connector: &str) -> Result<Vec<Sink>, Failure> {
    let script = format!(
        "CREATE TABLE t (ts TIMESTAMP(3) NOT NULL, k BIGINT NOT NULL, v BIGINT NOT NULL, x BIGINT NOT NULL,
           WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
         CREATE TABLE o (k BIGINT NOT NULL, wstart TIMESTAMP(3) NOT NULL, wend TIMESTAMP(3) NOT NULL, s BIGINT NOT NULL)
           WITH ('connector' = '{connector}');
         INSERT INTO o SELECT k, window_start, window_end, SUM(v)
           FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '60' SECOND)) GROUP BY k, window_start, window_end;"
    );
    match Session::default().run(&script)?.pop() {
        Some(Outcome::Job(job)) => Ok(job.optimised),
        _ => Err("the headline query is no job".into()),
    }
}

/// A job in a store that is opened, or made.
pub fn keep(path: &Path, home: &Home, every: Duration) -> Result<Keep, Failure> {
    keep_in(path, home, every, MemoryLimit::default())
}

/// The same job with a memory limit for its state.
pub fn keep_in(path: &Path, home: &Home, every: Duration, room: MemoryLimit) -> Result<Keep, Failure> {
    let options = Options {
        medium: home.medium,
        create: Create::OpenOrCreate,
        durability: Durability::Manual,
        ..Options::default()
    };
    Ok(Keep {
        store: open_store(&options, path)?,
        name: "headline".to_owned(),
        every,
        from_start: false,
        note: String::new(),
        room,
    })
}

/// Starts the job with the generator as its source.
pub fn start<W: Watch + 'static>(
    keys: u64,
    connector: &str,
    (keep, threads): (Option<&Keep>, usize),
    watch: W,
) -> Result<Running, Failure> {
    let mut watch = Some(watch);
    let mut own = |_: &Table, source: &Source| -> Result<Option<Box<dyn RowSource>>, Error> {
        let watch = watch.take().ok_or_else(|| Error::connector("the headline query has one source"))?;
        let generator = Generator::new(keys, per_window(keys));
        Ok(Some(Box::new(Made::new(generator, &source.reads, watch))))
    };
    Ok(Running::start_on(&plan(connector)?, Start::here(keep, Some(threads), &mut own))?)
}

/// Measures times between batches.
#[derive(Clone, Default)]
struct Gaps(Arc<Mutex<(Option<Instant>, Duration)>>);

impl Gaps {
    fn with<R>(&self, then: impl FnOnce(&mut (Option<Instant>, Duration)) -> R) -> R {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch for Gaps {
    fn waits(&mut self, _: u64) -> bool {
        self.with(|(last, longest)| {
            if let Some(last) = last.take() {
                *longest = last.elapsed().max(*longest);
            }
        });
        false
    }

    fn kept(&self, _: u64) {}

    fn gave(&mut self, _: u64) {
        self.with(|(last, _)| *last = Some(Instant::now()));
    }
}

/// Runs the job once, and stops it after the time in the settings. The final checkpoint, for which it waits, is not
/// counted; neither is compiling.
pub fn run(keys: u64, home: Option<&Home>, threads: usize, settings: &Settings) -> Result<Ran, Failure> {
    let place = home.map(|home| tempfile::tempdir_in(&home.directory)).transpose()?;
    let keep = match (home, &place) {
        (Some(home), Some(place)) => Some(keep(&place.path().join("store"), home, settings.every)?),
        _ => None,
    };
    let gaps = Gaps::default();
    let mut running = start(keys, "blackhole", (keep.as_ref(), threads), gaps.clone())?;
    let stop = AtomicBool::new(false);
    let mut ran = Ran::default();
    let (began, cpu_before) = (Instant::now(), cpu());
    running.run(&stop, |progress| {
        let kept = progress.checkpoints.unwrap_or_default();
        ran.pause_p99 = ran.pause_p99.max(kept.pause_p99);
        if began.elapsed() >= settings.time && !stop.load(Ordering::Relaxed) {
            ran = Ran {
                records: progress.records,
                clock: began.elapsed(),
                cpu: cpu() - cpu_before,
                gap_max: gaps.with(|(_, longest)| *longest),
                checkpoints: kept.count,
                pause_max: kept.pause_max,
                pause_p99: ran.pause_p99,
                took: kept.took,
                bytes: kept.bytes,
            };
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    Ok(ran)
}
