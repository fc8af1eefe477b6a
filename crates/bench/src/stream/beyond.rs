//! State ten times as large as the memory of the process.
//!
//! A process sums by key, without windows, with checkpoints in a store on a disk. First each key comes once, so that
//! the state reaches its full size. Then keys come at random, which is the worst case for paged memory. Once the state
//! is full, the process's memory is bounded to a tenth of it. A control group bounds it if one can be made, otherwise
//! the limit on its data does. The measurement begins then.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::report::{Better, Finding, Measurement, Metric, Unit, figure};
use duramen_stream::batch::{Batch, Values};
use duramen_stream::catalog::Table;
use duramen_stream::compile::Source;
use duramen_stream::plan::Sink;
use duramen_stream::run::{BATCH_ROWS, MemoryLimit, Progress, RowSource, Running, Start};
use duramen_stream::{Error, Outcome, Session};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::stream::{Failure, Found, Home, job};

/// The state is this many times as large as the memory of the process.
const TIMES: u64 = 10;

/// The state's heap gets this part of the process's memory; code, batches and pages in flight take from the rest.
const HEAP_PART: u64 = 4;

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Beyond {
    /// Keys of the state.
    pub keys: u64,
    /// Threads of the job.
    pub threads: usize,
    /// Where the store is made and removed.
    pub home: Home,
    /// The time from one checkpoint to the next.
    pub every: Duration,
    /// How long it runs with bounded memory.
    pub time: Duration,
}

/// Each key once, and then keys at random.
struct Keys {
    keys: u64,
    next: u64,
    random: u64,
}

impl RowSource for Keys {
    fn read_rows(&mut self, batch: &mut Batch, _: usize) -> Result<bool, Error> {
        let random = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *state >> 32
        };
        let Keys { keys, next, random: state } = self;
        for (column, read) in batch.columns.iter_mut().zip(0..) {
            let Values::Int(values) = &mut column.values else { continue };
            values.clear();
            values.extend((*next..*next + BATCH_ROWS as u64).map(|row| match read {
                0 if row < *keys => row as i64,
                0 => ((random(state) * *keys) >> 32) as i64,
                _ => (row & 0xff) as i64,
            }));
        }
        *next += BATCH_ROWS as u64;
        batch.set_rows(BATCH_ROWS);
        Ok(true)
    }

    fn position(&self) -> Value {
        json!({ "next": self.next, "random": self.random })
    }

    fn seek(&mut self, position: &Value) -> Result<(), Error> {
        self.next = position["next"].as_u64().unwrap_or(0);
        self.random = position["random"].as_u64().unwrap_or(1);
        Ok(())
    }
}

fn plan() -> Result<Vec<Sink>, Failure> {
    let script = "CREATE TABLE t (k BIGINT NOT NULL, v BIGINT NOT NULL) WITH ('connector' = 'datagen');
        CREATE TABLE o (k BIGINT NOT NULL, s BIGINT NOT NULL, PRIMARY KEY (k) NOT ENFORCED)
          WITH ('connector' = 'blackhole');
        INSERT INTO o SELECT k, SUM(v) FROM t GROUP BY k;";
    match Session::default().run(script)?.pop() {
        Some(Outcome::Job(job)) => Ok(job.optimised),
        _ => Err("the sums are no job".into()),
    }
}

fn start(beyond: &Beyond, store: &Path, room: MemoryLimit) -> Result<Running, Failure> {
    let keep = job::keep_in(store, &beyond.home, beyond.every, room)?;
    let mut own = |_: &Table, _: &Source| -> Result<Option<Box<dyn RowSource>>, Error> {
        Ok(Some(Box::new(Keys { keys: beyond.keys, next: 0, random: 1 })))
    };
    Ok(Running::start_on(&plan()?, Start::here(Some(&keep), Some(beyond.threads), &mut own))?)
}

fn held(progress: &Progress) -> u64 {
    progress.held.iter().map(|held| held.bytes as u64).sum()
}

/// Prints the process's progress each half second: records, bytes of state, checkpoints.
fn say(progress: &Progress) {
    let checkpoints = progress.checkpoints.unwrap_or_default();
    let mut out = std::io::stdout().lock();
    // The reader of the output may have gone.
    let _ = writeln!(out, "{} {} {}", progress.records, held(progress), checkpoints.count)
        .and_then(|()| out.flush());
}

/// Runs the job in the process until it is killed. With `bound`, it bounds its own data to so many bytes once each key
/// has come; without, another process bounds it.
///
/// # Errors
/// When the store cannot be opened, or the job fails.
pub fn run(beyond: &Beyond, store: &Path, heap: usize, bound: Option<u64>) -> Result<(), Failure> {
    let room = MemoryLimit::of(store.parent().unwrap_or(store), heap);
    let mut running = start(beyond, store, room)?;
    let mut bounded = false;
    running.run(&AtomicBool::new(false), |progress| {
        if let (Some(bound), false, true) = (bound, bounded, progress.records > beyond.keys) {
            let limit = Rlimit { current: Some(bound), ..getrlimit(Resource::Data) };
            bounded = setrlimit(Resource::Data, limit).is_ok();
        }
        say(progress);
    })?;
    Ok(())
}

/// A control group that bounds the memory of a process.
struct Group {
    path: PathBuf,
    bound: &'static str,
    used: &'static str,
}

impl Group {
    /// A group of either version of control groups; `None` if the process may not make one.
    fn new() -> Option<Group> {
        let name = format!("duramen-bench-{}", std::process::id());
        [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ]
        .into_iter()
        .find_map(|(base, bound, used)| {
            let path = Path::new(base).join(&name);
            std::fs::create_dir(&path).ok()?;
            let group = Group { path, bound, used };
            group.path.join(bound).exists().then_some(group)
        })
    }

    fn add(&self, process: &Child) -> std::io::Result<()> {
        std::fs::write(self.path.join("cgroup.procs"), process.id().to_string())
    }

    /// Setting a bound makes the kernel write out the memory above it; the kernel refuses the bound until that has
    /// succeeded.
    fn bound(&self, bytes: u64) -> std::io::Result<()> {
        let began = Instant::now();
        loop {
            match std::fs::write(self.path.join(self.bound), bytes.to_string()) {
                Err(error) if began.elapsed() > Duration::from_secs(120) => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
                Ok(()) => return Ok(()),
            }
        }
    }

    fn used(&self) -> Option<u64> {
        std::fs::read_to_string(self.path.join(self.used)).ok()?.trim().parse().ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The process is gone, but some memory may still be charged to the group.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Makes the command of a process that calls [`run`] with this store, so many bytes on the heap, and this bound.
pub type StartBeyond<'s> = dyn Fn(&Beyond, &Path, u64, Option<u64>) -> Command + 's;

/// The progress of the process.
#[derive(Debug, Clone, Copy, Default)]
struct Stand {
    records: u64,
    held: u64,
    checkpoints: u64,
}

fn stand(output: &mut impl BufRead) -> Result<Stand, Failure> {
    loop {
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            return Err("the process has ended: it had too little memory, or its error is above".into());
        }
        let words: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        // Other output is ignored.
        if let Ok([records, held, checkpoints]) = words.as_deref() {
            return Ok(Stand { records: *records, held: *held, checkpoints: *checkpoints });
        }
    }
}

/// Expected bytes of state for so many keys: 16 for each place of a table that is at most 11/16 full, on each thread.
fn expected(keys: u64, threads: u64) -> u64 {
    ((keys / threads.max(1)) * 16 / 11).next_power_of_two() * 16 * threads.max(1)
}

/// Runs the process with bounded memory.
///
/// # Errors
/// When a store cannot be made, the job fails, or a process cannot be started, bounded or killed; also when the process
/// is killed because it has taken too much memory.
pub fn measure(
    beyond: &Beyond,
    child: &StartBeyond<'_>,
    tell: &mut dyn FnMut(&str),
) -> Result<Found, Failure> {
    let place = tempfile::tempdir_in(&beyond.home.directory)?;
    let bound = expected(beyond.keys, beyond.threads as u64) / TIMES;
    let group = Group::new();
    let by = if group.is_some() { "control group" } else { "limit on data (RLIMIT_DATA)" };
    let own = group.is_none().then_some(bound);
    let mut command = child(beyond, &place.path().join("store"), bound / HEAP_PART, own);
    let mut process = command
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start {command:?}: {error}"))?;
    let found = (|| {
        if let Some(group) = &group {
            group.add(&process)?;
        }
        let mut output = BufReader::new(process.stdout.take().ok_or("a process without an output")?);
        tell(&format!("{} keys come once", beyond.keys));
        while stand(&mut output)?.records <= beyond.keys {}
        tell(&format!("bounded to {} by a {by}", figure(bound as f64, Unit::Bytes)));
        if let Some(group) = &group {
            group.bound(bound)?;
        }
        // Progress from before the bound took effect does not count.
        let begun = Instant::now();
        let mut from = stand(&mut output)?;
        while begun.elapsed() < Duration::from_secs(1) {
            from = stand(&mut output)?;
        }
        let (began, mut to, mut used) = (Instant::now(), from, 0);
        while began.elapsed() < beyond.time {
            to = stand(&mut output)?;
            used = used.max(group.as_ref().and_then(Group::used).unwrap_or(0));
        }
        Ok::<_, Failure>((from, to, began.elapsed(), used))
    })();
    process.kill()?;
    process.wait()?;
    let (from, to, time, used) = found?;
    Ok(report(beyond, (bound, by), (from, to), time, used))
}

fn report(
    beyond: &Beyond,
    (bound, by): (u64, &str),
    (from, to): (Stand, Stand),
    time: Duration,
    used: u64,
) -> Found {
    let mut one = Measurement::new("sums by key, state beyond memory", by)
        .with("keys", beyond.keys)
        .with("threads", beyond.threads as u64)
        .with("commit_every_ms", beyond.every.as_millis() as u64);
    let rate = (to.records - from.records) as f64 / time.as_secs_f64().max(1e-9);
    let mut metric = |name: &str, value: f64, unit: Unit, better: Better| {
        one.metrics
            .extend(Metric::from_samples(&[value], unit, better).map(|metric| (name.to_owned(), metric)));
    };
    metric("rate", rate, Unit::OperationsPerSecond, Better::Higher);
    metric("state", to.held as f64, Unit::Bytes, Better::Higher);
    metric("memory allowed", bound as f64, Unit::Bytes, Better::Lower);
    if used > 0 {
        metric("memory used", used as f64, Unit::Bytes, Better::Lower);
    }
    metric("checkpoints", (to.checkpoints - from.checkpoints) as f64, Unit::Count, Better::Higher);
    let mut found = Found::default();
    let times = to.held as f64 / bound as f64;
    let goes_on = to.records > from.records && times >= TIMES as f64;
    found.verdict.findings.push(Finding {
        title: "state : memory allowed".to_owned(),
        value: figure(times, Unit::Ratio),
        detail: format!(
            "at least {TIMES}, and records are read: {}",
            if goes_on { "reached" } else { "missed" }
        ),
    });
    found.verdict.summary = format!(
        "{} records a second, with {} of state in {} of memory.",
        figure(rate, Unit::OperationsPerSecond),
        figure(to.held as f64, Unit::Bytes),
        figure(bound as f64, Unit::Bytes)
    );
    found.measurements.push(one);
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    use duramen::MediumKind;

    use super::*;

    /// Bounds the heap alone: a whole process takes more memory than a tenth of a small state.
    #[test]
    fn a_state_of_ten_times_the_heap_is_processed_and_recovered() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home { directory: directory.path().to_owned(), medium: MediumKind::Auto };
        for threads in [1, 2] {
            let (keys, every) = (200_000, Duration::from_millis(100));
            let beyond = Beyond { keys, threads, home: home.clone(), every, time: Duration::ZERO };
            let bound = expected(keys, threads as u64) / TIMES;
            let store = directory.path().join(format!("store-{threads}"));
            let room = MemoryLimit::of(directory.path(), bound as usize);
            let mut running = start(&beyond, &store, room.clone()).unwrap();
            let stop = AtomicBool::new(false);
            let (bytes, kept) = (Cell::new(0), Cell::new(0));
            let ended = running
                .run(&stop, |progress| {
                    bytes.set(held(progress));
                    kept.set(progress.checkpoints.unwrap().count);
                    if progress.records > 4 * keys && kept.get() > 2 {
                        stop.store(true, Ordering::Relaxed);
                    }
                })
                .unwrap();
            assert!(bytes.get() >= TIMES * bound, "{} of {bound}", bytes.get());
            assert!(room.mapped() as u64 >= (TIMES - 1) * bound, "{} of {bound}", room.mapped());
            drop(running);
            assert_eq!(room.mapped(), 0);
            let again = start(&beyond, &store, room.clone()).unwrap();
            assert_eq!(again.records_before(), ended.records);
            assert!(room.mapped() as u64 >= (TIMES - 1) * bound, "{} of {bound}", room.mapped());
        }
    }

    /// The settings of the process in the test below: store, keys, bytes on the heap, bound.
    const CHILD: [&str; 4] = ["BEYOND_STORE", "BEYOND_KEYS", "BEYOND_HEAP", "BEYOND_BOUND"];

    fn beyond(keys: u64) -> Beyond {
        let home = Home { directory: std::env::current_dir().unwrap(), medium: MediumKind::File };
        Beyond { keys, threads: 1, home, every: Duration::from_secs(10), time: Duration::from_secs(25) }
    }

    #[test]
    #[ignore = "the next test runs it as a process"]
    fn child() {
        let [store, keys, heap, bound] = CHILD.map(|name| std::env::var(name).ok());
        let (Some(store), Some(keys), Some(heap)) = (store, keys, heap) else { return };
        let bound = bound.map(|bound| bound.parse().unwrap());
        run(&beyond(keys.parse().unwrap()), Path::new(&store), heap.parse().unwrap(), bound).unwrap();
    }

    /// `cargo test --release -p duramen-bench --features sql tenth -- --ignored --nocapture`
    #[test]
    #[ignore = "takes minutes, and some GiB of the disk in whose directory it runs; BEYOND_KEYS says how many keys"]
    fn a_process_with_memory_for_a_tenth_of_its_state_continues() {
        let keys = std::env::var(CHILD[1]).ok().and_then(|keys| keys.parse().ok()).unwrap_or(40_000_000);
        let start = |beyond: &Beyond, store: &Path, heap: u64, bound: Option<u64>| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args(["beyond::tests::child", "--exact", "--ignored", "--nocapture"]);
            command
                .env(CHILD[0], store)
                .env(CHILD[1], beyond.keys.to_string())
                .env(CHILD[2], heap.to_string());
            command.envs(bound.map(|bound| (CHILD[3], bound.to_string())));
            command
        };
        let found = measure(&beyond(keys), &start, &mut |line| eprintln!("{line}")).unwrap();
        eprintln!("{}\n{:?}", found.verdict.summary, found.measurements[0].metrics);
        assert!(found.verdict.findings[0].detail.ends_with("reached"), "{:?}", found.verdict.findings);
    }
}
