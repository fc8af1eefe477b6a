//! Jobs of continuous SQL on the simulated medium: crashed at persist points of their checkpoints, opened, and run to
//! the end of their input.
//!
//! ```text
//!  seed ──▶ a job runs in a store on a medium that records; its source notes where each checkpoint begins
//!             │
//!  Walker: at drains and syncs (with byte granularity: stores) the images that a power failure could leave there
//!             │
//!  look: the store opens; its checkpoint is the last whole one or that in flight, and its keys are of that checkpoint
//!             │
//!  the job resumes from some of them and runs to the end: keys and files are those of an undisturbed job;
//!  from a few, and after a process crash, on a medium that records again and is crashed again
//! ```
//!
//! Checks of an image, with E the checkpoint that it contains:
//!
//! 1. E is not older than the last one that the store reported as complete, and not newer than the last that began.
//! 2. The keys of the job's sinks are, byte for byte, those that the store had when E was whole: state, positions and
//!    results are of one epoch.
//! 3. The audit of the store finds no fault.
//! 4. At the end of the input keys and files are those of an undisturbed run: no row is missing, none counted twice.
//!
//! Files lie in a real directory. For an image they are laid out as the sink leaves them then: parts of whole
//! checkpoints published; that of E published, or complete and not yet renamed; of the next one any beginning.
//!
//! [`Rhythm::Apart`] repeats with its seed, event by event. With [`Rhythm::Beside`], threads change the state while it
//! is saved: there the seed repeats the operations, but not their times.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

use duramen::{Options, Store};
use duramen_crash::explore::caught;
use duramen_crash::{Case, Totals};
use duramen_media::sim::{Choice, Log, Mapped, Memory, Model, Rng, SimMedium, Walker};
use duramen_stream::batch::Batch;
use duramen_stream::catalog::Table;
use duramen_stream::compile::Source;
use duramen_stream::plan::Sink;
use duramen_stream::run::{Existing, Keep, MemoryLimit, RowSource, Running, Start, jobs};
use duramen_stream::types::{Row, Value};
use duramen_stream::{Outcome, Session};
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The approximate number of images examined per kind of run; an eighth for large ones.
const IMAGES: &str = "DURAMEN_STREAM_IMAGES";
/// The seed of the first run.
const SEED: &str = "DURAMEN_STREAM_SEED";
/// The number of seeds to run.
const SEEDS: &str = "DURAMEN_STREAM_SEEDS";

/// State that is updated and state that is dropped with its window; sinks of keys, and one of files. All of it by one
/// key, so that it runs on threads too.
const JOB: &str = "
CREATE TABLE bid (bidder BIGINT, price BIGINT, at TIMESTAMP(3), WATERMARK FOR at AS at - INTERVAL '1' SECOND)
  WITH ('connector' = 'datagen');
CREATE TABLE totals (bidder BIGINT, n BIGINT, total BIGINT, dear BIGINT, PRIMARY KEY (bidder) NOT ENFORCED)
  WITH ('connector' = 'duramen');
CREATE TABLE windows (bidder BIGINT, wend TIMESTAMP(3), n BIGINT, total BIGINT,
  PRIMARY KEY (bidder, wend) NOT ENFORCED) WITH ('connector' = 'duramen', 'database' = '1', 'value' = 'json');
CREATE TABLE tumbled (bidder BIGINT, wend TIMESTAMP(3), n BIGINT, total BIGINT)
  WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
EXECUTE STATEMENT SET BEGIN
INSERT INTO totals SELECT bidder, COUNT(*), SUM(price), COUNT(*) FILTER (WHERE price > 500) FROM bid GROUP BY bidder;
INSERT INTO windows SELECT bidder, window_end, COUNT(*), SUM(price)
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end;
INSERT INTO tumbled SELECT bidder, window_end, COUNT(*), SUM(price)
  FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(at), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end;
END;";

const NAME: &str = "job";

/// The size of a job.
#[derive(Debug)]
struct Size {
    rows: u64,
    /// Rows of a checkpoint of a run that is recorded, about.
    batch_rows: u64,
    bidders: u64,
    /// Milliseconds from row to row.
    step_millis: u64,
    /// The most bytes of the medium.
    len_max: u64,
}

/// A few pages of state; 3 windows.
static SMALL: Size = Size { rows: 600, batch_rows: 40, bidders: 60, step_millis: 50, len_max: 8 << 20 };
/// Vectors of more than 1 MiB, which have tables of their own in the store, dropped when they have grown or their
/// window has closed; 2 windows.
static LARGE: Size =
    Size { rows: 24_000, batch_rows: 3000, bidders: 30_000, step_millis: 1, len_max: 48 << 20 };
/// Batches from one checkpoint to the next, in a run that continues during its checkpoints.
const BATCHES_BESIDE: u64 = 4;

/// Images at one position; with byte granularity there are seldom more than two.
fn images_at_once(model: Model) -> usize {
    if model == Model::Byte { 2 } else { 6 }
}

/// When checkpoints are made while the job is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rhythm {
    /// One after each batch, with nothing else running.
    Apart,
    /// One after the other, while this many threads process rows; the store has its background thread.
    Beside(usize),
}

impl Rhythm {
    fn threads(self) -> usize {
        match self {
            Rhythm::Apart => 1,
            Rhythm::Beside(threads) => threads,
        }
    }
}

/// A planted bug, which shows that the check can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A checkpoint has a position of its source that is older than its state.
    PlaceBehind,
    /// ... that is newer than its state.
    PlaceAhead,
    /// Another thread commits the job's store: positions, state and results are in several epochs.
    SomebodyCommits,
    /// A sync of the medium reports success and makes nothing durable.
    SyncLies,
}

/// The keys of the sinks in the store: database and name, type and value.
type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// The results of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    keys: Keys,
    lines: Vec<String>,
}

/// A part of the sink of files, with its checkpoint.
#[derive(Clone, Debug)]
struct Part {
    epoch: u64,
    name: String,
    bytes: Vec<u8>,
}

/// A checkpoint that begins: all before it are whole, and the store holds what the last one wrote.
struct Begun {
    at: usize,
    keys: Arc<Keys>,
}

/// Notes when checkpoints begin.
struct Watch {
    medium: SimMedium,
    store: Store,
    begun: Mutex<Vec<Begun>>,
}

/// The source: rows that follow from their numbers.
struct Bids {
    size: &'static Size,
    columns: Vec<usize>,
    next: u64,
    batch_rows: u64,
    /// Batches until no rows come before the next checkpoint begins.
    left: Cell<u64>,
    bug: Bug,
    watch: Option<Arc<Watch>>,
}

fn row(size: &Size, number: u64, columns: &[usize]) -> Row {
    let random = Rng::new(number).bits();
    let value = |column: &usize| match column {
        0 => (random % size.bidders) as i64,
        1 => (random >> 32) as i64 % 1000,
        // Out of order, by less than the watermark waits.
        _ => (number * size.step_millis + (random >> 20) % 900) as i64 * 1000,
    };
    columns.iter().map(|column| Value::Int(value(column))).collect()
}

impl RowSource for Bids {
    fn read_rows(&mut self, batch: &mut Batch, _: usize) -> duramen_stream::Result<bool> {
        if self.left.get() == 0 {
            return Ok(true);
        }
        self.left.set(self.left.get() - 1);
        let end = (self.next + self.batch_rows).min(self.size.rows);
        for number in self.next..end {
            batch.push(&row(self.size, number, &self.columns))?;
        }
        self.next = end;
        Ok(end < self.size.rows)
    }

    fn position(&self) -> serde_json::Value {
        self.left.set(self.left.get().max(BATCHES_BESIDE));
        if let Some(watch) = &self.watch {
            let keys = Arc::new(keys(&watch.store).unwrap());
            let begun = Begun { at: watch.medium.position(), keys };
            watch.begun.lock().unwrap_or_else(PoisonError::into_inner).push(begun);
        }
        let next = match self.bug {
            Bug::PlaceBehind => self.next.saturating_sub(self.batch_rows),
            Bug::PlaceAhead => self.next + self.batch_rows,
            _ => self.next,
        };
        json!({ "next": next.min(self.size.rows) })
    }

    fn seek(&mut self, position: &serde_json::Value) -> duramen_stream::Result<()> {
        self.next = position["next"].as_u64().unwrap();
        Ok(())
    }
}

fn keys(store: &Store) -> Result<Keys, String> {
    let mut keys = Keys::new();
    for database in [0u8, 1] {
        let name = format!("redis.{database}");
        let Some(table) = store.find_table(name.as_bytes()).map_err(reported("find a table"))? else {
            continue;
        };
        table
            .for_each(|value| {
                let key = [&[database], value.key()].concat();
                keys.insert(key, [&[value.tag()], &value[..]].concat());
            })
            .map_err(reported("read a table"))?;
    }
    Ok(keys)
}

fn reported(what: &'static str) -> impl Fn(duramen::Error) -> String {
    move |error| format!("cannot {what}: {error}")
}

fn parts(directory: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir(directory.join("out")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let epoch = name.rsplit_once('-').and_then(|(_, rest)| rest.split_once('.')?.0.parse().ok()).unwrap();
        parts.push(Part { epoch, name, bytes: std::fs::read(entry.path()).unwrap() });
    }
    parts.sort_by_key(|part| part.epoch);
    parts
}

/// The results of a job that has ended; threads write lines in any order.
fn given(store: &Store, directory: &Path, rhythm: Rhythm) -> Result<Given, String> {
    let parts = parts(directory);
    if let Some(part) = parts.iter().find(|part| part.name.starts_with('.')) {
        return Err(format!("{} was never published", part.name));
    }
    let text: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
    let mut lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
    if rhythm.threads() > 1 {
        lines.sort_unstable();
    }
    Ok(Given { keys: keys(store)?, lines })
}

/// A description of the differences.
fn compare(found: &Given, wanted: &Given) -> Result<(), String> {
    compare_keys(&found.keys, &wanted.keys)?;
    if found.lines != wanted.lines {
        let at = found.lines.iter().zip(&wanted.lines).take_while(|(found, wanted)| found == wanted).count();
        return Err(format!(
            "files differ from line {at} on: {} lines, wanted {}; {:?}, wanted {:?}",
            found.lines.len(),
            wanted.lines.len(),
            found.lines.get(at),
            wanted.lines.get(at)
        ));
    }
    Ok(())
}

fn compare_keys(found: &Keys, wanted: &Keys) -> Result<(), String> {
    let mut names: Vec<&Vec<u8>> = found.keys().chain(wanted.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let mut different = names.into_iter().filter(|name| found.get(*name) != wanted.get(*name));
    let Some(first) = different.next() else { return Ok(()) };
    let text = |bytes: Option<&Vec<u8>>| bytes.map(|bytes| bytes[1..].escape_ascii().to_string());
    Err(format!(
        "{} keys differ: {} holds {:?}, wanted {:?}",
        1 + different.count(),
        first[1..].escape_ascii(),
        text(found.get(first)),
        text(wanted.get(first))
    ))
}

/// Checkpoints that a store may have, and the keys of each.
#[derive(Clone, Debug)]
struct Known {
    epochs: RangeInclusive<u64>,
    keys: BTreeMap<u64, Arc<Keys>>,
}

/// The operations of a recorded run, with their times.
struct History {
    /// The states that the store may have before it was open.
    before: Known,
    /// From here on the store was open, and had checkpoint `base`.
    opened: usize,
    base: u64,
    /// Here the job had recorded which data it will own: before, it has written nothing.
    claimed: usize,
    /// Where each checkpoint began, and where the job had ended: there all are whole.
    begun: Vec<usize>,
    ended: usize,
    keys: BTreeMap<u64, Arc<Keys>>,
    /// The parts at the end.
    parts: Vec<Part>,
}

impl History {
    /// The last checkpoint that is whole for certain, and the last that had begun, when the events before `at` had
    /// happened and perhaps, `torn`, a part of the one there.
    fn epochs(&self, at: usize, torn: bool) -> RangeInclusive<u64> {
        if at < self.opened {
            return self.before.epochs.clone();
        }
        let whole = if at >= self.ended {
            self.begun.len()
        } else {
            self.begun.iter().filter(|begun| **begun <= at).count().saturating_sub(1)
        };
        let begun = self.begun.iter().filter(|begun| **begun < at + usize::from(torn)).count();
        self.base + whole as u64..=self.base + begun.max(whole) as u64
    }

    fn known(&self, at: usize, torn: bool) -> Known {
        // A dropped checkpoint and its replacement have the same number.
        let keys = if at < self.opened { &self.before.keys } else { &self.keys };
        Known { epochs: self.epochs(at, torn), keys: keys.clone() }
    }

    /// Creates files as they may be when the store has checkpoint `epoch`.
    fn lay_out(&self, directory: &Path, epoch: u64, at: usize, rng: &mut Rng) {
        let out = directory.join("out");
        std::fs::create_dir_all(&out).unwrap();
        let is_reported = *self.epochs(at, false).start() >= epoch;
        for part in &self.parts {
            let hidden = format!(".{}", part.name);
            if part.epoch < epoch || part.epoch == epoch && (is_reported || rng.one_in(2)) {
                std::fs::write(out.join(&part.name), &part.bytes).unwrap();
            } else if part.epoch == epoch {
                std::fs::write(out.join(hidden), &part.bytes).unwrap();
            } else if part.epoch == epoch + 1 && (epoch > 0 || at >= self.claimed) && !rng.one_in(4) {
                let bytes = rng.below(part.bytes.len() as u64 + 1) as usize;
                std::fs::write(out.join(hidden), &part.bytes[..bytes]).unwrap();
            }
        }
    }
}

/// The environment of one run.
struct Run {
    seed: u64,
    case: Case,
    size: &'static Size,
    rhythm: Rhythm,
    bug: Bug,
    job: Vec<Sink>,
    wanted: Given,
}

impl Run {
    fn new(seed: u64, case: &str, size: &'static Size, rhythm: Rhythm, bug: Bug) -> Run {
        let Some(Outcome::Job(job)) = Session::default().run(JOB).unwrap().pop() else { panic!("no job") };
        let mut run = Run {
            seed,
            case: Case::named(case).unwrap(),
            size,
            rhythm,
            bug,
            job: job.optimised,
            wanted: Given { keys: Keys::new(), lines: Vec::new() },
        };
        let medium = run.medium_of(Arc::new(Memory::new(size.len_max)), 0);
        let directory = tempfile::tempdir().unwrap();
        run.wanted = run.go_on(&run.open(&medium, 0).unwrap(), directory.path()).unwrap();
        assert!(run.wanted.keys.len() > 100 && run.wanted.lines.len() > 100, "a sink was given little");
        run
    }

    fn medium_of(&self, memory: Arc<Memory>, len: u64) -> SimMedium {
        SimMedium::from_image(self.case.model, self.size.len_max, memory, len)
    }

    fn open(&self, medium: &SimMedium, boot: u64) -> Result<Store, String> {
        let mut id = [9; 16];
        id[8..].copy_from_slice(&boot.to_le_bytes());
        let options = Options {
            durability: self.case.durability,
            len_max: self.size.len_max,
            extent_bytes: Some(16 << 10),
            recovery_threads: 1,
            background: matches!(self.rhythm, Rhythm::Beside(_)),
            boot_id: Some(id),
            ..Options::default()
        };
        Store::open_on(Mapped::simulated(medium.clone()), &options).map_err(reported("open the store"))
    }

    fn start(
        &self,
        store: &Store,
        directory: &Path,
        every: Duration,
        watch: Option<&Arc<Watch>>,
    ) -> Result<Running, String> {
        let keep = Keep {
            store: store.clone(),
            name: NAME.to_owned(),
            every,
            from_start: false,
            note: String::new(),
            room: MemoryLimit::default(),
        };
        let (mut first, beside) = (true, every == Duration::ZERO);
        let own = &mut |_: &Table, source: &Source| -> duramen_stream::Result<Option<Box<dyn RowSource>>> {
            // One of all sources notes it.
            let watch = watch.filter(|_| std::mem::take(&mut first)).cloned();
            Ok(Some(Box::new(Bids {
                size: self.size,
                columns: source.reads.clone(),
                next: 0,
                batch_rows: self.size.batch_rows / if beside { BATCHES_BESIDE } else { 1 },
                left: Cell::new(if beside { BATCHES_BESIDE } else { u64::MAX }),
                bug: self.bug,
                watch,
            })))
        };
        let start = Start {
            directory,
            keep: Some(&keep),
            threads: Some(self.rhythm.threads()),
            existing: Existing::Refuse,
            own,
        };
        Running::start_on(&self.job, start).map_err(|error| format!("the job does not start: {error}"))
    }

    /// Runs the job from its position to its end.
    fn go_on(&self, store: &Store, directory: &Path) -> Result<Given, String> {
        let mut running = self.start(store, directory, Duration::from_secs(3600), None)?;
        running.run(&AtomicBool::new(false), |_| ()).map_err(|error| format!("the job fails: {error}"))?;
        drop(running);
        given(store, directory, self.rhythm)
    }

    /// The same with many checkpoints, on a medium that records. Returns the event at which the job recorded the data
    /// that it will own.
    fn record(&self, store: &Store, directory: &Path, watch: &Arc<Watch>) -> Result<usize, String> {
        let failed = |error| format!("the job fails: {error}");
        if self.rhythm == Rhythm::Apart {
            let mut running = self.start(store, directory, Duration::from_secs(3600), Some(watch))?;
            let claimed = watch.medium.position();
            while !running.is_finished() {
                // One that is stopped at once reads a batch of each source and makes a checkpoint.
                running.run(&AtomicBool::new(true), |_| ()).map_err(failed)?;
                store.maintain().map_err(reported("maintain"))?;
            }
            return Ok(claimed);
        }
        let mut running = self.start(store, directory, Duration::ZERO, Some(watch))?;
        let claimed = watch.medium.position();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            if self.bug == Bug::SomebodyCommits {
                scope.spawn(|| {
                    while !over.load(Relaxed) {
                        store.commit().unwrap();
                        std::thread::sleep(Duration::from_micros(50));
                    }
                });
            }
            let ran = running.run(&AtomicBool::new(false), |_| ()).map_err(failed);
            over.store(true, Relaxed);
            ran.map(|_| claimed)
        })
    }

    /// Finds the checkpoint of a store that was just opened.
    fn look(&self, store: &Store, known: &Known) -> Result<u64, String> {
        let found = jobs(store).map_err(|error| format!("cannot list jobs: {error}"))?;
        let epoch = found.first().map_or(0, |job| job.epoch);
        if found.len() > 1 || !known.epochs.contains(&epoch) {
            return Err(format!("checkpoint {epoch} is there, allowed: {:?}", known.epochs));
        }
        let wanted = known.keys.get(&epoch).ok_or_else(|| format!("nobody saw checkpoint {epoch} whole"))?;
        compare_keys(&keys(store)?, wanted)
            .map_err(|what| format!("of checkpoint {epoch}, that of {:?}, {what}", known.epochs))?;
        match store.audit() {
            wrong if wrong.is_empty() => Ok(epoch),
            wrong => Err(format!("the audit finds wrong counts: {}", wrong.join("; "))),
        }
    }
}

struct Explorer<'r> {
    run: &'r Run,
    rng: Rng,
    boot: u64,
    images_max: u64,
    totals: Totals,
}

impl Explorer<'_> {
    /// Resumes the job where `log` ends, and crashes it at every point. `begin` creates its files.
    fn session(
        &mut self,
        log: Log,
        before: Known,
        lay_out: &mut dyn FnMut(&Path, u64),
        depth: u32,
    ) -> Result<(), String> {
        let run = self.run;
        let begin = log.events.len();
        let medium = SimMedium::resume(log);
        if run.bug == Bug::SyncLies {
            medium.lie_sync_in(12 + self.rng.below(12) as u32);
        }
        self.boot += 1;
        let boot = self.boot;
        let ran = caught(|| {
            let directory = tempfile::tempdir().unwrap();
            let store = run.open(&medium, boot)?;
            let opened = medium.position();
            let base = run.look(&store, &before)?;
            lay_out(directory.path(), base);
            let watch =
                Arc::new(Watch { medium: medium.clone(), store: store.clone(), begun: Mutex::default() });
            let claimed = run.record(&store, directory.path(), &watch)?;
            let ended = medium.position();
            let found = given(&store, directory.path(), run.rhythm)?;
            if run.bug == Bug::None {
                compare(&found, &run.wanted)
                    .map_err(|what| format!("without a crash of this run, {what}"))?;
            }
            let mut begun = std::mem::take(&mut *watch.begun.lock().unwrap());
            begun.push(Begun { at: ended, keys: Arc::new(found.keys) });
            let keys = (base..).zip(&begun).map(|(epoch, begun)| (epoch, Arc::clone(&begun.keys))).collect();
            begun.pop();
            let begun: Vec<usize> = begun.iter().map(|begun| begun.at).collect();
            if run.bug == Bug::None && base == 0 {
                assert!(begun.len() >= 8, "{} checkpoints", begun.len());
                let is_vector = |name: &[u8]| {
                    let number = name.strip_prefix(b"sql.job.");
                    number.is_some_and(|number| number.iter().all(u8::is_ascii_digit))
                };
                let own = store.tables().iter().filter(|table| is_vector(&table.name)).count();
                assert_eq!(own > 0, run.size.rows > SMALL.rows, "{own} vectors with tables of their own");
            }
            // The close of the store is crashed too.
            Ok(History { before, opened, base, claimed, begun, ended, keys, parts: parts(directory.path()) })
        });
        medium.power_off();
        let log = medium.take_log();
        self.crash_everywhere(&log, begin, &ran?, depth)
    }

    fn crash_everywhere(
        &mut self,
        log: &Log,
        begin: usize,
        history: &History,
        depth: u32,
    ) -> Result<(), String> {
        let mut walker = Walker::new(log);
        walker.advance(begin);
        let points = {
            let mut counter = Walker::new(log);
            counter.advance(begin);
            std::iter::from_fn(|| counter.next_point()).count() as u64
        };
        let at_once = images_at_once(self.run.case.model);
        let left = self.images_max.saturating_sub(self.totals.images).max(8);
        let share = if depth > 0 { left / 2 } else { left / 8 };
        let skip = (points * at_once as u64 / share.max(1)).max(1);
        let mut wait = self.rng.below(skip.min(points));
        while let Some(at) = walker.next_point() {
            if wait > 0 {
                wait -= 1;
                continue;
            }
            // Between half and one and a half of it.
            wait = skip / 2 + self.rng.below(skip);
            self.totals.points += 1;
            for choice in walker.choices(&mut self.rng, at_once) {
                let what =
                    |what| format!("at event {at} of {}: {what}\n    image: {choice:?}", log.events.len());
                self.crash(&mut walker, &choice, history, at, depth).map_err(what)?;
            }
            if depth > 0 && self.rng.one_in(16) {
                // The process is killed, and the machine continues.
                self.totals.nested += 1;
                let mut rng = self.rng.fork();
                let mut lay_out = |directory: &Path, epoch| history.lay_out(directory, epoch, at, &mut rng);
                self.session(log.up_to(at), history.known(at, false), &mut lay_out, depth - 1)
                    .map_err(|what| format!("at event {at}, process killed: {what}"))?;
            }
        }
        Ok(())
    }

    /// Opens and checks one image; resumes the job from some of them.
    fn crash(
        &mut self,
        walker: &mut Walker<'_>,
        choice: &Choice,
        history: &History,
        at: usize,
        depth: u32,
    ) -> Result<(), String> {
        let run = self.run;
        self.totals.images += 1;
        self.boot += 1;
        let known = history.known(at, choice.is_torn());
        let mut rng = self.rng.fork();
        if depth > 0 && self.rng.one_in(24) {
            self.totals.nested += 1;
            let (memory, len) = walker.form(choice);
            let log = Log::on(run.case.model, run.size.len_max, memory.snapshot(), len);
            drop(memory);
            let mut lay_out = |directory: &Path, epoch| history.lay_out(directory, epoch, at, &mut rng);
            return self
                .session(log, known, &mut lay_out, depth - 1)
                .map_err(|what| format!("crashed again: {what}"));
        }
        let (memory, len) = walker.form(choice);
        let medium = run.medium_of(memory, len);
        // At least one, however few images there are.
        let goes_on = self.rng.one_in(4) || self.totals.ops == 0 && self.totals.images * 8 >= self.images_max;
        let looked = caught(|| {
            let store = run.open(&medium, self.boot)?;
            let epoch = run.look(&store, &known)?;
            if goes_on {
                let directory = tempfile::tempdir().unwrap();
                history.lay_out(directory.path(), epoch, at, &mut rng);
                self.totals.ops += 1;
                compare(&run.go_on(&store, directory.path())?, &run.wanted)
                    .map_err(|what| format!("from checkpoint {epoch} to the end: {what}"))?;
            }
            medium.power_off();
            Ok(())
        });
        medium.power_off();
        looked
    }
}

/// Crashes a run and returns the counts, where `ops` counts the images from which the job resumed.
fn explore(run: &Run, images_max: u64) -> Result<Totals, String> {
    let mut explorer = Explorer {
        run,
        rng: Rng::new(run.seed),
        boot: 1,
        images_max,
        totals: Totals { seeds: 1, ..Totals::default() },
    };
    let nothing = Known { epochs: 0..=0, keys: BTreeMap::from([(0, Arc::default())]) };
    let log = Log::empty(run.case.model, run.size.len_max);
    explorer.session(log, nothing, &mut |_, _| (), 2)?;
    Ok(explorer.totals)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Crashes runs of this rhythm on this medium.
fn crash(case: &str, size: &'static Size, rhythm: Rhythm, test: &str) {
    let images = number(IMAGES).unwrap_or(200) / if size.rows > SMALL.rows { 8 } else { 1 };
    let first = number(SEED).unwrap_or(1);
    let more = number(IMAGES).map_or(String::new(), |images| format!(" {IMAGES}={images}"));
    for seed in first..first + number(SEEDS).unwrap_or(1) {
        let totals = explore(&Run::new(seed, case, size, rhythm, Bug::None), images).unwrap_or_else(|what| {
            panic!(
                "seed {seed}, {case}, {rhythm:?}, {size:?}: {what}\n  repeat with: {SEED}={seed}{more} cargo \
                 test -p duramen-crash --test jobs {test}"
            )
        });
        eprintln!(
            "seed {seed}, {case}, {rhythm:?}, {} rows: {} images at {} points, {} run to the end, {} recorded again",
            size.rows, totals.images, totals.points, totals.ops, totals.nested
        );
        assert!(totals.images >= images / 4 && totals.ops > 0, "little was tried: {totals:?}");
    }
}

#[test]
fn a_job_on_cache_lines_resumes_after_every_crash() {
    crash("line/manual", &SMALL, Rhythm::Apart, "a_job_on_cache_lines");
}

#[test]
fn a_job_on_pages_resumes_after_every_crash() {
    crash("page/manual", &SMALL, Rhythm::Apart, "a_job_on_pages");
}

#[test]
fn a_job_with_byte_granularity_resumes_after_every_crash() {
    crash("byte/manual", &SMALL, Rhythm::Apart, "a_job_with_byte_granularity");
}

#[test]
fn a_job_whose_rows_change_a_running_checkpoint_resumes_after_every_crash() {
    crash("line/manual", &SMALL, Rhythm::Beside(1), "a_job_whose_rows");
    crash("page/manual", &SMALL, Rhythm::Beside(1), "a_job_whose_rows");
}

#[test]
fn a_job_on_several_threads_resumes_after_every_crash() {
    crash("line/manual", &SMALL, Rhythm::Beside(2), "a_job_on_several_threads");
    crash("page/manual", &SMALL, Rhythm::Beside(2), "a_job_on_several_threads");
}

#[test]
fn a_job_with_a_table_per_vector_resumes_after_every_crash() {
    crash("line/manual", &LARGE, Rhythm::Beside(1), "a_job_with_a_table_per_vector");
    crash("page/manual", &LARGE, Rhythm::Apart, "a_job_with_a_table_per_vector");
}

/// Checks that a planted bug is detected; returns the violation.
fn caught_by(case: &str, rhythm: Rhythm, bug: Bug) -> String {
    for seed in 1..=4 {
        if let Err(what) = explore(&Run::new(seed, case, &SMALL, rhythm, bug), 600) {
            eprintln!("{bug:?} by seed {seed}: {}", what.lines().next().unwrap_or_default());
            return what;
        }
    }
    panic!("{bug:?} is not caught");
}

#[test]
fn source_positions_older_or_newer_than_the_state_are_detected() {
    let what = caught_by("line/manual", Rhythm::Apart, Bug::PlaceBehind);
    assert!(what.contains("to the end"), "{what}");
    let what = caught_by("page/manual", Rhythm::Apart, Bug::PlaceAhead);
    assert!(what.contains("to the end"), "{what}");
}

#[test]
fn a_checkpoint_split_over_several_epochs_is_detected() {
    caught_by("line/manual", Rhythm::Beside(1), Bug::SomebodyCommits);
}

#[test]
fn an_ignored_sync_is_detected() {
    caught_by("page/manual", Rhythm::Apart, Bug::SyncLies);
}
