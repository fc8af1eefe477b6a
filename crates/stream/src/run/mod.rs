//! Runs a compiled job: batches go from sources through compiled code to sinks, until the input ends or the caller
//! stops it. A job with a store makes checkpoints in it, and resumes from the last one. One file because start, turns
//! and checkpoints are steps of one [`Running`].

mod checkpoint;
pub(crate) mod claim;
pub(crate) mod clock;
mod lookup;
pub(crate) mod notice;
pub(crate) mod outbox;
pub(crate) mod parts;
pub(crate) mod records;
pub(crate) mod row_sink;
pub(crate) mod row_source;
mod workers;
pub(crate) mod writers;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::checkpoint::{Found, Head, JobTables, Keeper};
pub use self::checkpoint::{Keep, Kept, forget, jobs, open_store};
pub use self::claim::Existing;
use self::claim::Strangers;
use self::clock::{duration, now};
use self::lookup::Lookup;
pub use self::notice::show_notices;
use self::records::Place;
use self::row_sink::{CommitParticipant, JobStore, RowSink};
pub use self::row_source::RowSource;
use self::workers::{Message, Workers};
pub use self::writers::check_script;
pub(crate) use self::writers::two_tables;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::{Held, Output, Program, Rows, Source, Threads};
use crate::connectors;
use crate::error::{Error, Result};
pub use crate::memory::MemoryLimit;
use crate::memory::headroom::{caught, watch};
use crate::plan::partition::Partition;
use crate::plan::{Node, Sink, explain};
use crate::state::Numbers;
use crate::types::{DataType, Value};

/// Rows of a batch: some thousand, so that the work for each batch costs little, and columns stay in the cache.
pub const BATCH_ROWS: usize = 4096;

/// About how long pages of a checkpoint are copied after one batch: rows wait meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

/// The same after a batch that took this long. A batch whose rows wait for pages of state to be read takes seconds;
/// with short pauses the checkpoint would take hours then.
fn pause_behind(batch: Duration) -> Duration {
    PAUSE.max(batch / 4)
}

/// Bytes of pages that are copied and sent at a time: this takes some ten microseconds.
const SAVED_BYTES: usize = 256 << 10;

/// The progress of a job.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Records read.
    pub records: u64,
    /// Rows that were given to sinks since this run began.
    pub written: u64,
    /// Records that could not be read and were skipped, as the table's options allow.
    pub skipped: u64,
    /// Time since the job began.
    pub elapsed: Duration,
    /// The least watermark, in microseconds.
    pub watermark: i64,
    /// The state of each breaker.
    pub held: Vec<Held>,
    /// Checkpoints of this run; none without a store.
    pub checkpoints: Option<Checkpoints>,
    /// What sources and sinks wait for, such as a broker that cannot be reached.
    pub waits: Vec<String>,
}

/// Checkpoints of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checkpoints {
    /// Number of complete checkpoints.
    pub count: u64,
    /// The longest time for which a checkpoint kept rows waiting: freezing, or copying pages after one batch.
    pub pause_max: Duration,
    /// The 99th percentile of these times for the last checkpoint.
    pub pause_p99: Duration,
    /// When the last one was complete; until then, when the run began.
    pub at: Option<Instant>,
    /// From the beginning of the last checkpoint until it was complete.
    pub took: Duration,
    /// The time of its commit, included in `took`.
    pub commit: Duration,
    /// Bytes of pages that the last checkpoint wrote.
    pub bytes: u64,
}

/// A source of a running job.
struct Feed {
    reader: Box<dyn RowSource>,
    batch: Batch,
    more: bool,
    /// After this long without rows the source is idle; `None` means never.
    idle_after: Option<Duration>,
    /// When the last rows arrived.
    heard: Instant,
    idle: bool,
}

impl Feed {
    fn new(reader: Box<dyn RowSource>, table: &Table, source: &Source) -> Result<Feed> {
        let idle_after = table.options.get("scan.watermark.idle-timeout").and_then(|text| duration(text));
        Ok(Feed {
            reader,
            batch: Batch::new(&source.types)?,
            more: true,
            idle_after: idle_after.filter(|after| !after.is_zero()),
            heard: Instant::now(),
            idle: false,
        })
    }

    /// Records that the source gave this many rows; returns whether that made it idle or active.
    fn turns(&mut self, rows: usize) -> bool {
        let Some(after) = self.idle_after else { return false };
        if rows > 0 {
            self.heard = Instant::now();
        }
        let idle = self.heard.elapsed() >= after;
        std::mem::replace(&mut self.idle, idle) != idle
    }
}

/// Returns the source of a table with these columns, if the caller provides it.
pub type Own<'o> = dyn FnMut(&Table, &Source) -> Result<Option<Box<dyn RowSource>>> + 'o;

/// A sink that the running job and the code of all its INSERTs share.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn RowSink>>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Box<dyn RowSink>> {
        // A thread that panicked has reported it; the job ends.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The destination of the rows of one INSERT.
#[derive(Clone)]
struct Target {
    sink: Shared,
    table: Arc<Table>,
    /// Indexes of the columns that are NOT NULL.
    required: Vec<usize>,
    /// Rows given to the sink, by all threads.
    written: Arc<AtomicU64>,
}

impl Target {
    fn new(sink: Shared, table: &Arc<Table>) -> Target {
        let required = |place: &usize| !table.columns[table.physical[*place]].ty.nullable;
        let required = (0..table.physical.len()).filter(required).collect();
        Target { sink, table: table.clone(), required, written: Arc::default() }
    }
}

impl Output for Target {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        if let Some((row, place)) = rows.find_null(&self.required) {
            return Err(null_refused(&self.table, &row, rows.types(), place));
        }
        self.sink.lock().take(rows)?;
        // Relaxed: a sum that publishes nothing.
        self.written.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// The error for a row that a sink's table does not accept.
fn null_refused(table: &Table, row: &[Value], types: &[DataType], place: usize) -> Error {
    let index = table.physical[place];
    let column = &table.columns[index];
    let why = if table.primary_key.contains(&index) { "a column of its PRIMARY KEY" } else { "NOT NULL" };
    let texts: Vec<String> = row.iter().zip(types).map(|(value, ty)| value.text(ty)).collect();
    Error::evaluation(format!(
        "found NULL for column `{}` of `{}`, wanted a value of {}: it is {why}; the row is [{}]",
        column.name,
        table.name,
        column.ty.data,
        texts.join(", ")
    ))
    .hint(format_args!(
        "leave such rows out with WHERE {0} IS NOT NULL, or give a value with COALESCE({0}, ...)",
        column.name
    ))
}

/// The settings with which a job starts.
pub struct Start<'s> {
    /// The directory for relative paths of files.
    pub directory: &'s Path,
    /// Where its checkpoints are; the job resumes from the last one.
    pub keep: Option<&'s Keep>,
    /// The number of threads, if the plan can be partitioned. `None`: as many as the checkpoint has. Without a
    /// checkpoint: as many as the machine, but one if nothing is kept by keys.
    pub threads: Option<usize>,
    /// How to treat existing keys and files at the places where the job will write but did not write before.
    pub existing: Existing,
    /// Called for each table that is read, with the columns to read.
    pub own: &'s mut Own<'s>,
}

impl<'s> Start<'s> {
    /// In the working directory; refuses existing keys and files where the job will write.
    pub fn here(keep: Option<&'s Keep>, threads: Option<usize>, own: &'s mut Own<'s>) -> Self {
        Self { directory: Path::new("."), keep, threads, existing: Existing::Refuse, own }
    }
}

/// A running job.
pub struct Running {
    program: Program,
    feeds: Vec<Feed>,
    sinks: Vec<Shared>,
    /// Rows given to each sink.
    written: Vec<Arc<AtomicU64>>,
    lookups: Vec<Lookup>,
    records: u64,
    /// Records that had been read when this run began.
    before: u64,
    began: Instant,
    finished: bool,
    /// The threads; `None` if the job runs on the caller's thread of [`Running::run`]. Dropped before `keeping`, to
    /// which they send their pages.
    workers: Option<Workers>,
    meeting: Option<Meeting>,
    keeping: Option<Keeping>,
}

/// The checkpoints of a running job.
struct Keeping {
    keeper: Keeper,
    every: Duration,
    plan: String,
    note: String,
    numbers: Numbers,
    /// The number of the last checkpoint that was begun.
    epoch: u64,
    begun: Instant,
    phase: Phase,
    /// Bytes of page copies that may wait.
    copies_max: usize,
    /// Pages for which the thread's queue had no room.
    refused: Option<Vec<(u64, u32, Vec<u8>)>>,
    /// Each time for which the current checkpoint kept rows waiting.
    pauses: Vec<Duration>,
    checkpoints: Checkpoints,
}

/// A meeting at which all threads stop.
struct Meeting {
    head: Head,
    /// Those of dead letters.
    participants: Vec<Box<dyn CommitParticipant>>,
    /// The threads that have arrived: number, state, and the vectors of that state.
    met: Vec<(usize, Vec<u8>, Vec<u64>)>,
}

/// The phase of a checkpoint.
enum Phase {
    /// No checkpoint is running.
    Idle,
    /// Pages are being sent; the rest follows. `left` threads are not done.
    Saving {
        head: Head,
        states: Vec<Vec<u8>>,
        participants: Vec<Box<dyn CommitParticipant>>,
        named: Vec<u64>,
        left: usize,
    },
    /// Everything is sent.
    Committing,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({} records)", self.records)
    }
}

/// The job as text, by which a checkpoint is compared with it.
fn plan_text(sinks: &[Sink], program: &Program) -> String {
    format!("{}{}", explain::job(sinks), program.layout())
}

/// The error for a checkpoint of another job.
fn other_job(name: &str, was: &str, is: &str) -> Error {
    let (was, is) = was
        .lines()
        .zip(is.lines())
        .find(|(was, is)| was != is)
        .unwrap_or(("a plan of another length", "this one"));
    Error::invalid(
        format!("another query than the one that job `{name}` has run: {}", is.trim()),
        format!("{} as before", was.trim()),
    )
    .hint("--from-start discards the job's state; another --name keeps it")
}

/// The error for a checkpoint with another number of threads.
fn other_threads(name: &str, had: usize, wanted: usize) -> Error {
    let threads = |count| if count == 1 { "one thread".to_owned() } else { format!("{count} threads") };
    Error::invalid(
        format!("{} for job `{name}`, whose checkpoint has the state of {}", threads(wanted), threads(had)),
        format!("{} as before", threads(had)),
    )
    .hint("--from-start discards the job's state; another --name keeps it")
}

/// The partition of a job into threads; `None` if it runs on one.
fn partition(sinks: &[Sink], wanted: Option<usize>, found: Option<&Found>) -> Option<Threads> {
    let machine = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = wanted.or_else(|| Some(found?.states.len())).unwrap_or_else(machine);
    let partition = if count > 1 { Partition::of(sinks).ok()? } else { return None };
    // Without keys, several threads would only change the order of rows, which nobody asked for.
    if wanted.is_none() && found.is_none() && !partition.has_keys() {
        return None;
    }
    Some(Threads { count, partition })
}

/// Ends the checkpoint parts of all sinks. `head` already has the dead letters, whose participants are `participants`.
fn end_parts(
    sinks: &[Shared],
    head: &mut Head,
    participants: Vec<Box<dyn CommitParticipant>>,
) -> Result<Vec<Box<dyn CommitParticipant>>> {
    let (mut parts, mut all) = (Vec::new(), Vec::new());
    for sink in sinks {
        let (publishes, participant) = sink.lock().end_part()?;
        parts.push(publishes);
        all.extend(participant);
    }
    parts.append(&mut head.sinks);
    head.sinks = parts;
    all.extend(participants);
    Ok(all)
}

impl Running {
    /// Compiles a job and opens its sources and sinks. Paths of files are relative to `directory`.
    pub fn start(sinks: &[Sink], directory: &Path) -> Result<Running> {
        Running::start_in(sinks, directory, None)
    }

    /// As [`Running::start`], with checkpoints in a store: the job resumes from its last one in the store.
    pub fn start_in(sinks: &[Sink], directory: &Path, keep: Option<&Keep>) -> Result<Running> {
        Running::start_with(sinks, directory, keep, &mut |_, _| Ok(None))
    }

    /// As above, with sources of the caller: `own` is called for each table that is read, with the columns to read. All
    /// of these run on one thread.
    pub fn start_with(
        sinks: &[Sink],
        directory: &Path,
        keep: Option<&Keep>,
        own: &mut Own<'_>,
    ) -> Result<Running> {
        Running::start_on(sinks, Start { directory, keep, threads: Some(1), existing: Existing::Refuse, own })
    }

    /// As above, on several threads.
    pub fn start_on(sinks: &[Sink], start: Start<'_>) -> Result<Running> {
        caught(|| Running::begun(sinks, start))
    }

    fn begun(sinks: &[Sink], start: Start<'_>) -> Result<Running> {
        let Start { directory, keep, threads, existing, own } = start;
        let job_tables = keep.map(JobTables::open).transpose()?;
        let found = job_tables.as_ref().map(JobTables::find).transpose()?.flatten();
        let threads = partition(sinks, threads, found.as_ref());
        let place =
            Place { directory, job: keep.map(|keep| keep.name.as_str()), existing, goes_on: found.is_some() };
        let named: Vec<Arc<Table>> = sinks.iter().flat_map(Sink::tables).collect();
        writers::check(sinks, &named, place)?;
        let mut opened: Vec<Shared> = Vec::new();
        let (mut targets, mut written) = (Vec::<Target>::new(), Vec::new());
        for (number, (sink, first)) in sinks.iter().zip(writers::of(sinks)).enumerate() {
            if first == number {
                let take = connectors::open_sink(sink, number, place)?;
                opened.push(Shared(Arc::new(Mutex::new(take))));
                targets.push(Target::new(opened[opened.len() - 1].clone(), &sink.table));
                written.extend(targets.last().map(|target| target.written.clone()));
            } else {
                targets.push(targets[first].clone());
            }
        }
        let outputs = targets.iter().map(|target| Box::new(target.clone()) as Box<dyn Output>).collect();
        let plans: Vec<Arc<Node>> = sinks.iter().map(|sink| sink.input.clone()).collect();
        let mut program = Program::compile_with(&plans, outputs, keep.map(|keep| &keep.room), None)?;
        let table_of = |source: &Source| {
            let table = named.iter().find(|table| table.name == source.table);
            table.ok_or_else(|| Error::connector(format!("no table `{}`", source.table)))
        };
        let store = keep.map(|keep| &keep.store);
        let looked_up: Result<Vec<Arc<Table>>> =
            program.lookups().iter().map(|source| table_of(source).cloned()).collect();
        let looked_up = looked_up?;
        let mut lookups = Vec::new();
        if threads.is_none() {
            for (source, table) in program.lookups().iter().zip(&looked_up) {
                lookups.push(Lookup::open(table, source, store)?);
            }
        }
        let mut feed = |source: &Source| -> Result<Feed> {
            let table = table_of(source)?;
            let reader = match own(table, source)? {
                Some(reader) => reader,
                None => connectors::open_source(table, source, place)?,
            };
            Feed::new(reader, table, source)
        };
        let feeds: Result<Vec<Feed>> = program.sources().iter().map(&mut feed).collect();
        let mut feeds = feeds?;
        if feeds.iter().all(|feed| feed.reader.ends()) {
            opened.iter().for_each(|sink| sink.lock().input_ends());
        }
        let (mut records, mut finished, mut keeping) = (0, false, None);
        let mut states = Vec::new();
        if let (Some(mut job_tables), Some(keep)) = (job_tables, keep) {
            let plan = plan_text(sinks, &program);
            let (mut numbers, mut epoch) = (Numbers::default(), 0);
            if let Some(found) = &found {
                let head = &found.head;
                let participants = opened.len() + feeds.len();
                if head.plan != plan || head.sources.len() != feeds.len() || head.sinks.len() != participants
                {
                    return Err(other_job(&keep.name, &head.plan, &plan));
                }
                let count = threads.as_ref().map_or(1, |threads| threads.count);
                if found.states.len() != count {
                    return Err(other_threads(&keep.name, found.states.len(), count));
                }
                (records, finished, epoch) = (head.records, head.finished, head.epoch);
                // A finished job reads nothing again; its input may be gone.
                if !finished {
                    if threads.is_none() {
                        numbers = program
                            .restore(&found.states[0], &mut |number, page| job_tables.get(number, page))?;
                    } else {
                        states =
                            found.states.iter().map(|state| (state.clone(), job_tables.another())).collect();
                    }
                    for (feed, position) in feeds.iter_mut().zip(&head.sources) {
                        feed.reader.seek(position)?;
                    }
                }
            }
            let mut job_store = JobStore::new(&keep.store)?;
            let mut claim = job_tables.claim()?;
            if found.is_none() {
                // `Claim` documents the order.
                let mut strangers = Strangers::default();
                for sink in &opened {
                    sink.lock().look(&mut job_store, &claim, &mut strangers)?;
                }
                for letters in feeds.iter_mut().filter_map(|feed| feed.reader.letters()) {
                    letters.look(&claim, &mut strangers)?;
                }
                job_tables.begin(&mut job_store, &mut claim, existing, strangers)?;
                if claim.anew {
                    job_tables.delete_keys(&mut job_store, &claim)?;
                }
            }
            let participant = |number: usize| found.as_ref().map(|found| &found.head.sinks[number]);
            for (number, sink) in opened.iter().enumerate() {
                sink.lock().recover(participant(number), epoch + 1, &mut job_store, &claim)?;
            }
            for (number, feed) in feeds.iter_mut().enumerate() {
                if let Some(letters) = feed.reader.letters() {
                    letters.recover(participant(opened.len() + number), epoch + 1, &claim)?;
                }
            }
            keeping = Some((job_tables, plan, numbers, epoch, keep));
        }
        for (number, lookup) in lookups.iter_mut().enumerate() {
            program.load(number, &lookup.rows()?)?;
        }
        let mut workers = None;
        if let (Some(threads), false) = (threads, finished) {
            workers = Some(Workers::start(workers::Start {
                plans,
                targets,
                feeds: std::mem::take(&mut feeds),
                threads,
                lookups: looked_up,
                store: store.cloned(),
                room: keep.map(|keep| keep.room.clone()),
                states,
                records,
            })?);
        }
        let keeping = match keeping {
            None => None,
            Some((job_tables, plan, numbers, epoch, keep)) => {
                let named = workers.as_ref().map_or(&numbers.named, |workers| &workers.named).clone();
                let keeper = Keeper::start(job_tables, named)?;
                if let (Some(workers), Some(pages)) = (&workers, keeper.pages()) {
                    workers.set_pages(pages);
                }
                Some(Keeping {
                    keeper,
                    every: keep.every,
                    plan,
                    note: keep.note.clone(),
                    numbers,
                    epoch,
                    begun: Instant::now(),
                    copies_max: keep.room.copies_max(),
                    phase: Phase::Idle,
                    refused: None,
                    pauses: Vec::new(),
                    checkpoints: Checkpoints { at: Some(Instant::now()), ..Checkpoints::default() },
                })
            }
        };
        let (sinks, began) = (opened, Instant::now());
        Ok(Running {
            program,
            feeds,
            sinks,
            written,
            lookups,
            records,
            before: records,
            began,
            finished,
            workers,
            meeting: None,
            keeping,
        })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.workers.as_ref().map_or(1, Workers::count)
    }

    /// The compiled job.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Records that had been read when this run began: not zero if it resumed from a checkpoint.
    pub fn records_before(&self) -> u64 {
        self.before
    }

    /// Whether the input has ended and all its rows have been emitted.
    pub fn is_finished(&self) -> bool {
        self.finished && !self.sinks.iter().any(|sink| sink.lock().is_unpublished())
    }

    /// The job's progress.
    pub fn progress(&self) -> Progress {
        self.progress_of(self.workers.as_ref())
    }

    fn progress_of(&self, workers: Option<&Workers>) -> Progress {
        let skipped = || self.feeds.iter().map(|feed| feed.reader.skipped()).sum();
        let (records, skipped) = workers.map_or_else(|| (self.records, skipped()), Workers::records);
        let (watermark, held) =
            workers.map_or_else(|| (self.program.watermark(), self.program.held()), Workers::stand);
        let mut waits: Vec<String> = match workers {
            Some(workers) => workers.waits(),
            None => self.feeds.iter().filter_map(|feed| feed.reader.waits()).collect(),
        };
        waits.extend(self.sinks.iter().filter_map(|sink| sink.lock().waits()));
        Progress {
            records,
            written: self.written.iter().map(|written| written.load(Ordering::Relaxed)).sum(),
            skipped,
            elapsed: self.began.elapsed(),
            watermark,
            held,
            checkpoints: self.keeping.as_ref().map(|keeping| keeping.checkpoints),
            waits,
        }
    }

    /// Whether a sink is so full that a checkpoint must be made before more is read.
    fn is_full(&self) -> bool {
        self.sinks.iter().any(|sink| sink.lock().is_full())
    }

    /// Publishes what a crash left unpublished, however long other systems take; returns whether that was done before
    /// `stop` was set.
    fn publish_left(&mut self, stop: &AtomicBool, report: &mut dyn FnMut(&Progress)) -> Result<bool> {
        let mut last = Instant::now();
        loop {
            let mut all = true;
            for sink in &self.sinks {
                all &= sink.lock().publish_left()?;
            }
            if all || stop.load(Ordering::Relaxed) {
                return Ok(all);
            }
            if last.elapsed() >= Duration::from_millis(500) {
                last = Instant::now();
                report(&self.progress());
            }
        }
    }

    /// Ends the sinks: they take no more rows.
    fn end(&mut self) -> Result<()> {
        match &self.keeping {
            // Their rows are in the last checkpoint.
            Some(_) => Ok(()),
            None => self.sinks.iter().try_for_each(|sink| sink.lock().end()),
        }
    }

    /// Processes one batch of each source; returns whether there is more, and whether there were rows.
    fn turn(&mut self) -> Result<(bool, bool)> {
        let (mut more, mut rows) = (false, false);
        watch()?;
        for (number, lookup) in self.lookups.iter_mut().enumerate() {
            if lookup.is_due() {
                let rows = lookup.rows()?;
                self.program.unload(number);
                self.program.load(number, &rows)?;
            }
        }
        for (number, feed) in self.feeds.iter_mut().enumerate() {
            feed.batch.clear();
            if feed.more {
                feed.more = feed.reader.read_rows(&mut feed.batch, BATCH_ROWS)?;
                more |= feed.more;
                feed.batch.clock = now();
            }
            if feed.turns(feed.batch.rows()) {
                self.program.set_idle(number, feed.idle)?;
            }
            self.records += feed.batch.rows() as u64;
            if feed.batch.rows() > 0 {
                rows = true;
                self.program.run(number, &feed.batch)?;
            }
        }
        Ok((more, rows))
    }

    /// Runs until all input has ended, or `stop` is set. After `stop`, no window closes that the watermark has not
    /// passed, and a job with a store makes a last checkpoint. `report` is called every half second.
    pub fn run(&mut self, stop: &AtomicBool, report: impl FnMut(&Progress)) -> Result<Progress> {
        caught(|| self.run_to_end(stop, report))
    }

    fn run_to_end(&mut self, stop: &AtomicBool, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        if !self.publish_left(stop, &mut report)? || self.finished {
            return Ok(self.progress());
        }
        if let Some(workers) = self.workers.take() {
            let ran = self.run_workers(&workers, stop, &mut report);
            self.workers = Some(workers);
            return ran;
        }
        let mut last = Instant::now();
        while !self.finished {
            let full = self.keeping.is_some() && self.is_full();
            let began = Instant::now();
            let (more, rows) = if full { (true, false) } else { self.turn()? };
            let busy = self.keep_on(full, pause_behind(began.elapsed()))?;
            if !more {
                self.program.finish()?;
                self.finished = true;
            } else if stop.load(Ordering::Relaxed) {
                break;
            } else if !rows && !busy {
                // No rows came: followed inputs will be checked again.
                std::thread::sleep(Duration::from_millis(2));
            }
            if last.elapsed() >= Duration::from_millis(500) {
                last = Instant::now();
                report(&self.progress());
            }
        }
        self.stop_sinks(stop);
        self.keep_all()?;
        self.end()?;
        Ok(self.progress())
    }

    fn stop_sinks(&self, stop: &AtomicBool) {
        if stop.load(Ordering::Relaxed) {
            self.sinks.iter().for_each(|sink| sink.lock().stop());
        }
    }

    /// Begins a checkpoint: freezes the current state.
    fn freeze(&mut self) -> Result<()> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        let began = Instant::now();
        let (mut head, letters) = keeping.head(self.records, self.finished, &mut self.feeds)?;
        let participants = end_parts(&self.sinks, &mut head, letters)?;
        let states = vec![self.program.freeze(&mut keeping.numbers)];
        let named = keeping.numbers.named.clone();
        keeping.phase = Phase::Saving { head, states, participants, named, left: 1 };
        keeping.begun = began;
        keeping.paused(began);
        Ok(())
    }

    /// As [`Running::run`], on threads.
    fn run_workers(
        &mut self,
        workers: &Workers,
        stop: &AtomicBool,
        report: &mut dyn FnMut(&Progress),
    ) -> Result<Progress> {
        // How long reports and signals may wait for this thread, which only watches.
        const LOOK: Duration = Duration::from_millis(5);
        let mut last = Instant::now();
        let (mut finished, mut full) = (0, false);
        workers.read(true);
        while finished < workers.count() && !stop.load(Ordering::Relaxed) {
            if let Some(message) = workers.wait_for(LOOK).map_err(|error| self.cause(error))? {
                self.handle(workers, message, &mut finished)?;
            }
            let mut due = false;
            let now_full = self.keeping.is_some() && self.is_full();
            if now_full != full {
                full = now_full;
                workers.read(!full);
            }
            if let Some(keeping) = &mut self.keeping {
                let is_time = keeping.begun.elapsed() >= keeping.every || full;
                due = matches!(keeping.phase, Phase::Idle) && is_time;
                if let Phase::Committing = keeping.phase
                    && let Some(done) = keeping.keeper.done()?
                {
                    keeping.whole(done);
                }
            }
            if due && self.meeting.is_none() {
                self.meet(workers)?;
            }
            if last.elapsed() >= Duration::from_millis(500) {
                last = Instant::now();
                report(&self.progress_of(Some(workers)));
            }
        }
        workers.read(false);
        self.stop_sinks(stop);
        self.end_checkpoint(workers, &mut finished)?;
        while workers.has_ended() && finished < workers.count() {
            self.wait(workers, &mut finished)?;
        }
        self.finished = workers.has_ended();
        // Without a store all threads meet once more too: then everything read has been processed.
        self.meet(workers)?;
        self.end_checkpoint(workers, &mut finished)?;
        self.end()?;
        Ok(self.progress_of(Some(workers)))
    }

    /// Lets all threads meet, for a checkpoint if there is a store.
    fn meet(&mut self, workers: &Workers) -> Result<()> {
        let (keeping, finished) = (&mut self.keeping, self.finished);
        let (head, participants) = workers.meet(keeping.is_some(), |records, feeds| match keeping {
            Some(keeping) => keeping.head(records, finished, feeds),
            None => Ok((Head::default(), Vec::new())),
        })?;
        self.meeting = Some(Meeting { head, participants, met: Vec::new() });
        if let Some(keeping) = &mut self.keeping {
            keeping.begun = Instant::now();
        }
        Ok(())
    }

    /// Handles a thread's message.
    fn handle(&mut self, workers: &Workers, message: Message, finished: &mut usize) -> Result<()> {
        match message {
            Message::Ready(_) => {}
            Message::Finished => *finished += 1,
            Message::Met { thread, state, named } => {
                if let Some(meeting) = &mut self.meeting {
                    meeting.met.push((thread, state, named));
                }
                if let Some(meeting) = self.meeting.take_if(|meeting| meeting.met.len() == workers.count()) {
                    self.begin(meeting)?;
                    workers.go_on();
                }
            }
            Message::Saved(pauses) => {
                let Some(keeping) = &mut self.keeping else { return Ok(()) };
                keeping.checkpoints.pause_max =
                    keeping.checkpoints.pause_max.max(pauses.iter().max().copied().unwrap_or_default());
                keeping.pauses.extend(pauses);
                keeping.is_saved()?;
            }
            Message::Failed(error) => return Err(self.cause(error)),
        }
        Ok(())
    }

    /// All threads have met: begins the checkpoint.
    fn begin(&mut self, meeting: Meeting) -> Result<()> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        let Meeting { mut head, participants, mut met } = meeting;
        let participants = end_parts(&self.sinks, &mut head, participants)?;
        met.sort_by_key(|(thread, ..)| *thread);
        let left = met.len();
        let mut named = Vec::new();
        let mut states = Vec::new();
        for (_, state, vectors) in met {
            states.push(state);
            named.extend(vectors);
        }
        keeping.phase = Phase::Saving { head, states, participants, named, left };
        Ok(())
    }

    fn wait(&mut self, workers: &Workers, finished: &mut usize) -> Result<()> {
        let message = workers.wait().map_err(|error| self.cause(error))?;
        self.handle(workers, message, finished)
    }

    /// Waits for the current meeting and checkpoint to end.
    fn end_checkpoint(&mut self, workers: &Workers, finished: &mut usize) -> Result<()> {
        let saving = |keeping: &Option<Keeping>| {
            keeping.as_ref().is_some_and(|keeping| matches!(keeping.phase, Phase::Saving { .. }))
        };
        while self.meeting.is_some() || saving(&self.keeping) {
            self.wait(workers, finished)?;
        }
        match &mut self.keeping {
            Some(keeping) if matches!(keeping.phase, Phase::Committing) => {
                let done = keeping.keeper.wait()?;
                keeping.whole(done);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The cause of a thread's error: if the thread that writes pages failed, that error.
    fn cause(&self, error: Error) -> Error {
        match self.keeping.as_ref().map(|keeping| keeping.keeper.done()) {
            Some(Err(cause)) => cause,
            _ => error,
        }
    }

    /// Continues checkpoints for `pause`, or begins one if it is due or `now` is set; returns whether there is more to
    /// do at once.
    fn keep_on(&mut self, now: bool, pause: Duration) -> Result<bool> {
        let Some(keeping) = &mut self.keeping else { return Ok(false) };
        match keeping.phase {
            Phase::Idle if now || keeping.begun.elapsed() >= keeping.every => {
                self.freeze()?;
                Ok(true)
            }
            Phase::Idle => Ok(false),
            Phase::Saving { .. } => {
                let began = Instant::now();
                // Some batches take longer than this, and a checkpoint must not take as many of them as it has parts.
                while let Phase::Saving { .. } = keeping.phase {
                    keeping.save(&mut self.program, false)?;
                    if keeping.refused.is_some() || began.elapsed() >= pause {
                        break;
                    }
                }
                while let Phase::Saving { .. } = keeping.phase
                    && self.program.copies() > keeping.copies_max
                {
                    keeping.save(&mut self.program, true)?;
                }
                keeping.paused(began);
                Ok(keeping.refused.is_none())
            }
            Phase::Committing => {
                if let Some(done) = keeping.keeper.done()? {
                    keeping.whole(done);
                }
                Ok(false)
            }
        }
    }

    /// Makes a checkpoint of the current state, however long that takes.
    fn keep_all(&mut self) -> Result<()> {
        if let Some(keeping) = &mut self.keeping {
            keeping.end(&mut self.program)?;
            self.freeze()?;
        }
        match &mut self.keeping {
            Some(keeping) => keeping.end(&mut self.program),
            None => Ok(()),
        }
    }
}

impl Keeping {
    /// The head of the next checkpoint, which begins now. Its `sinks` have only the dead letters, whose participants
    /// are returned.
    fn head(
        &mut self,
        records: u64,
        finished: bool,
        feeds: &mut [Feed],
    ) -> Result<(Head, Vec<Box<dyn CommitParticipant>>)> {
        self.epoch += 1;
        let (mut parts, mut participants) = (Vec::new(), Vec::new());
        for feed in feeds.iter_mut() {
            let (publishes, participant) = match feed.reader.letters() {
                Some(letters) => letters.end_part()?,
                None => (serde_json::Value::Null, None),
            };
            parts.push(publishes);
            participants.extend(participant);
        }
        let head = Head {
            epoch: self.epoch,
            records,
            finished,
            plan: self.plan.clone(),
            note: self.note.clone(),
            sources: feeds.iter().map(|feed| feed.reader.position()).collect(),
            sinks: parts,
        };
        Ok((head, participants))
    }

    /// A thread has sent all its pages; after the last thread's pages the end of the checkpoint is sent.
    fn is_saved(&mut self) -> Result<()> {
        if let Phase::Saving { left, .. } = &mut self.phase {
            *left -= 1;
            if *left > 0 {
                return Ok(());
            }
        }
        if let Phase::Saving { head, states, participants, named, .. } =
            std::mem::replace(&mut self.phase, Phase::Committing)
        {
            self.keeper.end(head, states, participants, named)?;
        }
        Ok(())
    }

    fn paused(&mut self, began: Instant) {
        let pause = began.elapsed();
        self.checkpoints.pause_max = self.checkpoints.pause_max.max(pause);
        self.pauses.push(pause);
    }

    /// Sends some pages, or the end if there are no more. With `wait` it waits for room in the thread's queue.
    fn save(&mut self, program: &mut Program, wait: bool) -> Result<()> {
        if let Some(pages) = self.refused.take() {
            if wait {
                self.keeper.send_waiting(pages)?;
            } else {
                self.refused = self.keeper.send(pages)?;
            }
            return Ok(());
        }
        let mut pages = Vec::new();
        let all = program.save(&mut |number, page, bytes| pages.push((number, page, bytes)), SAVED_BYTES);
        if !pages.is_empty() {
            self.refused = self.keeper.send(pages)?;
        }
        if all && self.refused.is_none() { self.is_saved() } else { Ok(()) }
    }

    fn whole(&mut self, done: checkpoint::Done) {
        self.phase = Phase::Idle;
        self.pauses.sort_unstable();
        self.checkpoints.pause_p99 =
            self.pauses.get(self.pauses.len() * 99 / 100).copied().unwrap_or(self.checkpoints.pause_p99);
        self.pauses.clear();
        (self.checkpoints.count, self.checkpoints.at) = (self.checkpoints.count + 1, Some(Instant::now()));
        self.checkpoints.took = self.begun.elapsed();
        self.checkpoints.commit = done.commit;
        self.checkpoints.bytes = done.bytes;
    }

    /// Finishes the current checkpoint.
    fn end(&mut self, program: &mut Program) -> Result<()> {
        while let Phase::Saving { .. } = self.phase {
            self.save(program, true)?;
        }
        if let Phase::Committing = self.phase {
            let done = self.keeper.wait()?;
            self.whole(done);
        }
        Ok(())
    }
}
