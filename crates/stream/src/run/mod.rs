//! Runs a compiled job: batches from sources, through code, to sinks, until the input ends or somebody stops it. A job
//! that is given a store makes checkpoints in it, and goes on from the last one.

mod checkpoint;
mod clock;
mod entries;
mod fill;
mod format;
mod generate;
mod lookup;
mod parts;
mod records;
mod redis;
mod sink;
mod socket;
mod source;
mod take;
mod view;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::checkpoint::{Head, Keeper, Shelf};
pub use self::checkpoint::{Keep, Kept, forget, jobs};
use self::clock::now;
pub use self::fill::Fill;
use self::lookup::Lookup;
use self::records::Place;
use self::take::{Cut, Desk, Take};
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::{Held, Output, Program, Rows, Source};
use crate::error::{Error, Result};
use crate::plan::{Node, NodeOp, Sink, explain};
use crate::state::Numbers;

/// Rows of a batch: some thousand, so that what is done once for each costs nothing, and columns stay in the cache.
pub const BATCH_ROWS: usize = 4096;

/// How long pages of a checkpoint are copied after one batch, about: rows wait meanwhile.
const PAUSE: Duration = Duration::from_millis(1);

/// Where a job stands.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Records that were read.
    pub records: u64,
    /// Records that could not be read and were left out, as their table says.
    pub skipped: u64,
    /// Since the job began.
    pub elapsed: Duration,
    /// The least watermark, in microseconds.
    pub watermark: i64,
    /// What breakers hold.
    pub held: Vec<Held>,
    /// Checkpoints of this run; none without a store.
    pub checkpoints: Option<Checkpoints>,
}

/// Checkpoints of a run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checkpoints {
    /// How many are whole.
    pub count: u64,
    /// The longest time for which a checkpoint kept rows waiting: freezing, or copying pages after one batch.
    pub pause_max: Duration,
    /// Of 100 such times of the last checkpoint 99 were at most so long.
    pub pause_p99: Duration,
    /// From the beginning of the last one until it was whole.
    pub took: Duration,
    /// Of that, the commit.
    pub commit: Duration,
    /// Bytes of pages that the last one wrote.
    pub bytes: u64,
}

/// A source of a running job.
struct Feed {
    fill: Box<dyn Fill>,
    batch: Batch,
    more: bool,
}

/// Gives the source of a table if it is the caller's, for these columns.
pub type Own<'o> = dyn FnMut(&Table, &Source) -> Result<Option<Box<dyn Fill>>> + 'o;

/// A sink that the running job and its code share.
#[derive(Clone)]
struct Shared(Rc<RefCell<Box<dyn Take>>>);

impl Output for Shared {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.0.borrow_mut().take(rows)
    }
}

/// A job that runs.
pub struct Running {
    program: Program,
    feeds: Vec<Feed>,
    sinks: Vec<Shared>,
    lookups: Vec<Lookup>,
    records: u64,
    /// Records that had been read when this run began.
    before: u64,
    began: Instant,
    finished: bool,
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
    /// Pages that the thread had no room for.
    refused: Option<Vec<(u64, u32, Vec<u8>)>>,
    /// For how long the checkpoint that is under way kept rows waiting, each time.
    pauses: Vec<Duration>,
    told: Checkpoints,
}

/// What becomes of a checkpoint.
enum Phase {
    /// None is under way.
    Idle,
    /// Pages are being sent; then follows the rest.
    Saving { head: Head, state: Vec<u8>, cuts: Vec<Box<dyn Cut>> },
    /// All is sent.
    Committing,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Running({} records)", self.records)
    }
}

fn tables(node: &Arc<Node>, found: &mut Vec<Arc<Table>>) {
    match &node.op {
        NodeOp::Scan(scan) => found.push(scan.table.clone()),
        NodeOp::Lookup { table, .. } => found.push(table.clone()),
        _ => {}
    }
    node.inputs().into_iter().for_each(|input| tables(input, found));
}

/// The job as text: what a checkpoint is of.
fn plan_text(sinks: &[Sink], program: &Program) -> String {
    format!("{}{}", explain::job(sinks), program.layout())
}

/// Why a checkpoint is not this job's.
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
    .hint("--from-start forgets what was computed, another --name keeps it")
}

impl Running {
    /// Compiles a job and opens its sources and sinks. Paths of files are relative to `directory`.
    pub fn start(sinks: &[Sink], directory: &Path) -> Result<Running> {
        Running::start_in(sinks, directory, None)
    }

    /// The same with checkpoints in a store: the job goes on from the last one that the store has of it.
    pub fn start_in(sinks: &[Sink], directory: &Path, keep: Option<&Keep>) -> Result<Running> {
        Running::start_with(sinks, directory, keep, &mut |_, _| Ok(None))
    }

    /// The same with sources of the caller's: `own` is asked for each table that is read, and told which columns are
    /// wanted.
    pub fn start_with(
        sinks: &[Sink],
        directory: &Path,
        keep: Option<&Keep>,
        own: &mut Own<'_>,
    ) -> Result<Running> {
        let shelf = keep.map(Shelf::open).transpose()?;
        let place = Place { directory, job: keep.map(|keep| keep.name.as_str()) };
        let opened: Result<Vec<Shared>> = sinks
            .iter()
            .enumerate()
            .map(|(number, sink)| {
                let take = sink::open(sink, number, place)?;
                Ok(Shared(Rc::new(RefCell::new(take))))
            })
            .collect();
        let opened = opened?;
        let outputs = opened.iter().map(|sink| Box::new(sink.clone()) as Box<dyn Output>).collect();
        let plans: Vec<Arc<Node>> = sinks.iter().map(|sink| sink.input.clone()).collect();
        let mut program = Program::compile_with(&plans, outputs, keep.is_some())?;
        let mut named = Vec::new();
        plans.iter().for_each(|plan| tables(plan, &mut named));
        let table_of = |source: &Source| {
            let table = named.iter().find(|table| table.name == source.table);
            table.ok_or_else(|| Error::connector(format!("no table `{}`", source.table)))
        };
        let store = keep.map(|keep| &keep.store);
        let lookups: Result<Vec<Lookup>> =
            program.lookups().iter().map(|source| Lookup::open(table_of(source)?, source, store)).collect();
        let mut lookups = lookups?;
        let mut feed = |source: &Source| -> Result<Feed> {
            let table = table_of(source)?;
            let fill = match own(table, source)? {
                Some(fill) => fill,
                None => source::open(table, source, place)?,
            };
            Ok(Feed { fill, batch: Batch::new(&source.types)?, more: true })
        };
        let feeds: Result<Vec<Feed>> = program.sources().iter().map(&mut feed).collect();
        let mut feeds = feeds?;
        let (mut records, mut finished, mut keeping) = (0, false, None);
        if let (Some(mut shelf), Some(keep)) = (shelf, keep) {
            let plan = plan_text(sinks, &program);
            let (mut numbers, mut epoch) = (Numbers::default(), 0);
            let found = shelf.find()?;
            if let Some(found) = &found {
                let head = &found.head;
                let cuts = opened.len() + feeds.len();
                if head.plan != plan || head.sources.len() != feeds.len() || head.sinks.len() != cuts {
                    return Err(other_job(&keep.name, &head.plan, &plan));
                }
                (records, finished, epoch) = (head.records, head.finished, head.epoch);
                // What has ended is not read again; its input may be gone.
                if !finished {
                    numbers = program.restore(&found.state, &mut |number, page| shelf.get(number, page))?;
                    for (feed, position) in feeds.iter_mut().zip(&head.sources) {
                        feed.fill.seek(position)?;
                    }
                }
            }
            if found.is_none() {
                // Of the same epoch as the first checkpoint, or gone already.
                let mut desk = Desk::new(&keep.store)?;
                opened.iter().try_for_each(|sink| sink.0.borrow_mut().is_forgotten(&mut desk))?;
            }
            let cut = |number: usize| found.as_ref().map(|found| &found.head.sinks[number]);
            for (number, sink) in opened.iter().enumerate() {
                sink.0.borrow_mut().recover(cut(number), epoch + 1)?;
            }
            for (number, feed) in feeds.iter_mut().enumerate() {
                if let Some(letters) = feed.fill.letters() {
                    letters.recover(cut(opened.len() + number), epoch + 1)?;
                }
            }
            keeping = Some(Keeping {
                keeper: Keeper::start(shelf, numbers.named.clone())?,
                every: keep.every,
                plan,
                note: keep.note.clone(),
                numbers,
                epoch,
                begun: Instant::now(),
                phase: Phase::Idle,
                refused: None,
                pauses: Vec::new(),
                told: Checkpoints::default(),
            });
        }
        for (number, lookup) in lookups.iter_mut().enumerate() {
            program.load(number, &lookup.rows()?)?;
        }
        let (sinks, began) = (opened, Instant::now());
        Ok(Running { program, feeds, sinks, lookups, records, before: records, began, finished, keeping })
    }

    /// The compiled job.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Records that had been read when this run began: it goes on from a checkpoint if there are any.
    pub fn records_before(&self) -> u64 {
        self.before
    }

    /// Whether the input has ended and all of it has been given.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Where the job stands.
    pub fn progress(&self) -> Progress {
        Progress {
            records: self.records,
            skipped: self.feeds.iter().map(|feed| feed.fill.skipped()).sum(),
            elapsed: self.began.elapsed(),
            watermark: self.program.watermark(),
            held: self.program.held(),
            checkpoints: self.keeping.as_ref().map(|keeping| keeping.told),
        }
    }

    /// One batch of each source; whether there is more, and whether there were rows.
    fn turn(&mut self) -> Result<(bool, bool)> {
        let (mut more, mut rows) = (false, false);
        for (number, lookup) in self.lookups.iter_mut().enumerate() {
            if lookup.is_due() {
                let rows = lookup.rows()?;
                self.program.unload(number);
                self.program.load(number, &rows)?;
            }
        }
        for (number, feed) in self.feeds.iter_mut().enumerate() {
            if !feed.more {
                continue;
            }
            feed.batch.clear();
            feed.more = feed.fill.fill(&mut feed.batch, BATCH_ROWS)?;
            more |= feed.more;
            feed.batch.clock = now();
            self.records += feed.batch.rows() as u64;
            if feed.batch.rows() > 0 {
                rows = true;
                self.program.run(number, &feed.batch)?;
            }
        }
        Ok((more, rows))
    }

    /// Runs until all input has ended, or `stop` is set: then no window closes that the watermark has not passed, and
    /// a job with a store makes a last checkpoint. `report` is called every half second.
    pub fn run(&mut self, stop: &AtomicBool, mut report: impl FnMut(&Progress)) -> Result<Progress> {
        if self.finished {
            return Ok(self.progress());
        }
        let mut last = Instant::now();
        while !self.finished {
            let (more, rows) = self.turn()?;
            let busy = self.keep_on()?;
            if !more {
                self.program.finish()?;
                self.finished = true;
            } else if stop.load(Ordering::Relaxed) {
                break;
            } else if !rows && !busy {
                // Nothing has come: what is followed will be looked at again.
                std::thread::sleep(Duration::from_millis(2));
            }
            if last.elapsed() >= Duration::from_millis(500) {
                last = Instant::now();
                report(&self.progress());
            }
        }
        self.keep_all()?;
        Ok(self.progress())
    }

    /// Begins a checkpoint: what is kept is what is there now.
    fn freeze(&mut self) -> Result<()> {
        let Some(keeping) = &mut self.keeping else { return Ok(()) };
        let began = Instant::now();
        keeping.epoch += 1;
        let (mut told, mut cuts) = (Vec::new(), Vec::new());
        for sink in &self.sinks {
            let (publishes, cut) = sink.0.borrow_mut().cut()?;
            told.push(publishes);
            cuts.extend(cut);
        }
        for feed in &mut self.feeds {
            let (publishes, cut) = match feed.fill.letters() {
                Some(letters) => letters.cut()?,
                None => (serde_json::Value::Null, None),
            };
            told.push(publishes);
            cuts.extend(cut);
        }
        let state = self.program.freeze(&mut keeping.numbers);
        let head = Head {
            epoch: keeping.epoch,
            records: self.records,
            finished: self.finished,
            plan: keeping.plan.clone(),
            note: keeping.note.clone(),
            sources: self.feeds.iter().map(|feed| feed.fill.position()).collect(),
            sinks: told,
        };
        keeping.phase = Phase::Saving { head, state, cuts };
        keeping.begun = began;
        keeping.paused(began);
        Ok(())
    }

    /// Goes on with checkpoints for a moment; whether there is more to be done at once.
    fn keep_on(&mut self) -> Result<bool> {
        let Some(keeping) = &mut self.keeping else { return Ok(false) };
        match keeping.phase {
            Phase::Idle if keeping.begun.elapsed() >= keeping.every => {
                self.freeze()?;
                Ok(true)
            }
            Phase::Idle => Ok(false),
            Phase::Saving { .. } => {
                let began = Instant::now();
                // Some batches take longer than this, and a checkpoint shall not take as many of them as it has parts.
                while let Phase::Saving { .. } = keeping.phase {
                    keeping.save(&mut self.program, false)?;
                    if keeping.refused.is_some() || began.elapsed() >= PAUSE {
                        break;
                    }
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

    /// Makes a checkpoint of what is there now, however long that takes.
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
    fn paused(&mut self, began: Instant) {
        let pause = began.elapsed();
        self.told.pause_max = self.told.pause_max.max(pause);
        self.pauses.push(pause);
    }

    /// Sends some pages, or the end if there are no more. With `wait` the thread takes them whatever else it has.
    fn save(&mut self, program: &mut Program, wait: bool) -> Result<()> {
        // Copied within some ten microseconds.
        const BUDGET: usize = 256 << 10;
        if let Some(pages) = self.refused.take() {
            if wait {
                self.keeper.send_waiting(pages)?;
            } else {
                self.refused = self.keeper.send(pages)?;
            }
            return Ok(());
        }
        let mut pages = Vec::new();
        let all = program.save(&mut |number, page, bytes| pages.push((number, page, bytes)), BUDGET);
        if !pages.is_empty() {
            self.refused = self.keeper.send(pages)?;
        }
        if all
            && self.refused.is_none()
            && let Phase::Saving { head, state, cuts } = std::mem::replace(&mut self.phase, Phase::Committing)
        {
            self.keeper.end(head, state, cuts, self.numbers.named.clone())?;
        }
        Ok(())
    }

    fn whole(&mut self, done: checkpoint::Done) {
        self.phase = Phase::Idle;
        self.pauses.sort_unstable();
        self.told.pause_p99 =
            self.pauses.get(self.pauses.len() * 99 / 100).copied().unwrap_or(self.told.pause_p99);
        self.pauses.clear();
        self.told.count += 1;
        self.told.took = self.begun.elapsed();
        self.told.commit = done.commit;
        self.told.bytes = done.bytes;
    }

    /// Ends the checkpoint that is under way.
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
