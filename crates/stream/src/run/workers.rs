//! Several threads that each run the whole job over their part of the keys. `docs/internals/decisions/029-threads-by-key.md`
//! shows why their result equals that of one thread, and what a crash leaves.
//!
//! # Invariants
//!
//! 1. Every turn gets a number under the lock of the sources, and every thread takes the items of all numbers in order.
//! 2. A thread that has a turn to read and route waits for no other, so a thread that waits for its number always gets
//!    it.
//! 3. A checkpoint begins when all threads have arrived at one number and none has continued; the sinks are cut at that
//!    moment.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use duramen::Store;

use super::checkpoint::{JobTables, Pages};
use super::clock::now;
use super::lookup::Lookup;
use super::{BATCH_ROWS, Feed, SAVED_BYTES, Target, pause_behind};
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::{Held, Output, Program, Routed, Threads};
use crate::error::{Error, Result};
use crate::memory::headroom::{caught, watch};
use crate::plan::Node;
use crate::state::{MemoryLimit, Numbers};

/// Turns for each thread that may be read before the slowest thread has taken them.
const AHEAD: usize = 4;

/// How often a thread checks again, about a microsecond apart, before it sleeps: while rows come, the wait is shorter
/// than a sleep and a wake-up.
const LOOKS: u32 = 20;

/// How long a thread rests after it found nothing to read, before it checks followed inputs again.
const REST: Duration = Duration::from_millis(2);

/// A batch of each source, and the routes of its rows.
#[derive(Default)]
struct Turn {
    batches: Vec<(Batch, Routed)>,
    /// Which sources are idle.
    idle: Vec<bool>,
}

/// The items that all threads take, in order.
enum Item {
    Turn(Turn),
    /// All threads stop here; with `keep` a checkpoint is made of their state.
    Meet {
        keep: bool,
    },
    /// The input has ended.
    Finish,
}

/// Items that some thread has not taken yet.
#[derive(Default)]
struct Ring {
    items: BTreeMap<u64, (Arc<Item>, usize)>,
    /// Turns that are read or being read, and not taken by all threads.
    open: usize,
    /// Whether reading has stopped, for now or permanently.
    closed: bool,
    /// The number after that of the last meeting that has ended.
    met: u64,
    /// Turns to be reused.
    spare: Vec<Turn>,
    /// Threads that sleep until something changes.
    asleep: usize,
}

/// The sources, under one lock.
struct Feeds {
    feeds: Vec<Feed>,
    /// The number of the next item.
    next: u64,
    ended: bool,
    held: bool,
}

/// The state that a thread has reported.
#[derive(Debug, Clone)]
struct Seen {
    watermark: i64,
    held: Vec<Held>,
}

/// The data that the threads share.
struct Common {
    ring: Mutex<Ring>,
    changed: Condvar,
    feeds: Mutex<Feeds>,
    threads: usize,
    records: AtomicU64,
    /// Whether all threads shall stop.
    over: AtomicBool,
    /// Counts the requests for the threads' state.
    asked: AtomicU64,
    seen: Vec<Mutex<Seen>>,
    /// Where pages of checkpoints go.
    pages: Mutex<Option<Pages>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked has reported it; the job ends.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// About a microsecond.
fn linger() {
    (0..16).for_each(|_| std::hint::spin_loop());
}

impl Common {
    /// Wakes sleeping threads; skips the system call if none sleeps.
    fn change(&self, ring: MutexGuard<'_, Ring>) {
        let asleep = ring.asleep;
        drop(ring);
        if asleep > 0 {
            self.changed.notify_all();
        }
    }

    /// Sleeps until the ring changes.
    fn sleep<'r>(&self, mut ring: MutexGuard<'r, Ring>) -> MutexGuard<'r, Ring> {
        ring.asleep += 1;
        ring = self.changed.wait(ring).unwrap_or_else(PoisonError::into_inner);
        ring.asleep -= 1;
        ring
    }

    /// The sources; another thread may hold them for some microseconds while it reads.
    fn feeds(&self) -> MutexGuard<'_, Feeds> {
        for _ in 0..LOOKS {
            if let Ok(feeds) = self.feeds.try_lock() {
                return feeds;
            }
            linger();
        }
        lock(&self.feeds)
    }

    /// Gives all threads an item.
    fn give(&self, number: u64, item: Item) {
        let mut ring = lock(&self.ring);
        ring.items.insert(number, (Arc::new(item), self.threads));
        self.change(ring);
    }

    /// Records that one more thread has taken an item.
    fn taken(&self, number: u64) {
        let mut ring = lock(&self.ring);
        let Some((_, left)) = ring.items.get_mut(&number) else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        if let Some((item, _)) = ring.items.remove(&number)
            && let Item::Turn(_) = &*item
        {
            ring.open -= 1;
            // Each thread drops its reference before it reports the item as taken.
            if let Ok(Item::Turn(turn)) = Arc::try_unwrap(item) {
                ring.spare.push(turn);
            }
            self.change(ring);
        }
    }

    /// Drops the claims of a turn, because no thread reads it.
    fn unclaim(&self, turn: Turn) {
        let mut ring = lock(&self.ring);
        ring.open -= 1;
        ring.spare.push(turn);
        self.change(ring);
    }
}

/// A thread's report.
pub enum Message {
    /// The thread is ready; these are the vectors that it was restored from.
    Ready(Vec<u64>),
    /// The thread has stopped at a meeting: its state, and the vectors of that.
    Met {
        /// The thread.
        thread: usize,
        /// The result of [`Program::freeze`].
        state: Vec<u8>,
        /// Their numbers.
        named: Vec<u64>,
    },
    /// All pages of its checkpoint are sent. Holds each pause that rows had meanwhile.
    Saved(Vec<Duration>),
    /// It has emitted the rows due at the end of the input.
    Finished,
    /// It has failed.
    Failed(Error),
}

/// The parameters of the threads.
pub struct Start {
    /// The job.
    pub plans: Vec<Arc<Node>>,
    /// The destinations of rows.
    pub targets: Vec<Target>,
    /// Its sources, at their positions.
    pub feeds: Vec<Feed>,
    /// The number of threads, and the columns that rows are routed by.
    pub threads: Threads,
    /// Lookup tables, in the order of the program.
    pub lookups: Vec<Arc<Table>>,
    /// The job's store.
    pub store: Option<Store>,
    /// Where state lies, if there are checkpoints.
    pub room: Option<MemoryLimit>,
    /// The state from which each thread resumes, and the location of its pages.
    pub states: Vec<(Vec<u8>, JobTables)>,
    /// Records that were read before.
    pub records: u64,
}

/// The threads of a job.
pub struct Workers {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
    messages: Receiver<Message>,
    /// The vectors of the checkpoint from which it resumes.
    pub named: Vec<u64>,
}

impl Workers {
    /// Starts the threads, and waits until all are ready.
    pub fn start(start: Start) -> Result<Workers> {
        let count = start.threads.count;
        let seen = || Mutex::new(Seen { watermark: i64::MIN, held: Vec::new() });
        let common = Arc::new(Common {
            ring: Mutex::default(),
            changed: Condvar::new(),
            feeds: Mutex::new(Feeds { feeds: start.feeds, next: 0, ended: false, held: true }),
            threads: count,
            records: AtomicU64::new(start.records),
            over: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            seen: (0..count).map(|_| seen()).collect(),
            pages: Mutex::new(None),
        });
        lock(&common.ring).closed = true;
        let (say, messages) = channel();
        let mut workers =
            Workers { common: common.clone(), threads: Vec::new(), messages, named: Vec::new() };
        let mut states = start.states.into_iter();
        for number in 0..count {
            let recruit = Recruit {
                number,
                plans: start.plans.clone(),
                targets: start.targets.clone(),
                threads: start.threads.clone(),
                lookups: start.lookups.clone(),
                store: start.store.clone(),
                room: start.room.clone(),
                state: states.next(),
                common: common.clone(),
                say: say.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("job {number}"))
                .spawn(move || recruit.run())
                .map_err(|error| Error::connector(format!("cannot start a thread of the job: {error}")))?;
            workers.threads.push(thread);
        }
        for _ in 0..count {
            match workers.wait()? {
                Message::Ready(named) => workers.named.extend(named),
                _ => return Err(Error::evaluation("a thread of the job ran before it was ready")),
            }
        }
        Ok(workers)
    }

    /// Whether the input has ended.
    pub fn has_ended(&self) -> bool {
        lock(&self.common.feeds).ended
    }

    /// The number of threads.
    pub fn count(&self) -> usize {
        self.common.threads
    }

    /// Sets the destination of pages of checkpoints.
    pub fn set_pages(&self, pages: Pages) {
        *lock(&self.common.pages) = Some(pages);
    }

    /// Starts or stops reading. After `false` nothing more is read.
    pub fn read(&self, on: bool) {
        let mut feeds = lock(&self.common.feeds);
        feeds.held = !on;
        let mut ring = lock(&self.common.ring);
        ring.closed = !on || feeds.ended;
        self.common.change(ring);
    }

    /// Lets all threads stop between two turns. `at` receives the number of records read before, and their sources.
    pub fn meet<R>(&self, keep: bool, at: impl FnOnce(u64, &mut [Feed]) -> Result<R>) -> Result<R> {
        let mut feeds = lock(&self.common.feeds);
        let begun = at(self.common.records.load(Ordering::Relaxed), &mut feeds.feeds)?;
        let number = feeds.next;
        feeds.next += 1;
        drop(feeds);
        self.common.give(number, Item::Meet { keep });
        Ok(begun)
    }

    /// Lets all threads continue after a meeting.
    pub fn go_on(&self) {
        // No thread has passed that meeting: there is one at a time.
        let next = lock(&self.common.feeds).next;
        let mut ring = lock(&self.common.ring);
        ring.met = next;
        self.common.change(ring);
    }

    /// The next report of any thread.
    pub fn wait(&self) -> Result<Message> {
        match self.messages.recv() {
            Ok(Message::Failed(error)) => Err(error),
            Ok(message) => Ok(message),
            Err(_) => Err(Error::evaluation("the threads of the job have ended")),
        }
    }

    /// The next report, if it arrives within `time`.
    pub fn wait_for(&self, time: Duration) -> Result<Option<Message>> {
        match self.messages.recv_timeout(time) {
            Ok(Message::Failed(error)) => Err(error),
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::evaluation("the threads of the job have ended"))
            }
        }
    }

    /// Records that were read, and records that were skipped.
    pub fn records(&self) -> (u64, u64) {
        let feeds = lock(&self.common.feeds);
        let skipped = feeds.feeds.iter().map(|feed| feed.reader.skipped()).sum();
        (self.common.records.load(Ordering::Relaxed), skipped)
    }

    /// What the sources wait for.
    pub fn waits(&self) -> Vec<String> {
        lock(&self.common.feeds).feeds.iter().filter_map(|feed| feed.reader.waits()).collect()
    }

    /// The smallest watermark, and the state that all threads hold, as of each thread's last report between two turns.
    pub fn stand(&self) -> (i64, Vec<Held>) {
        self.common.asked.fetch_add(1, Ordering::Relaxed);
        let (mut watermark, mut all) = (i64::MAX, Vec::<Held>::new());
        for seen in &self.common.seen {
            let seen = lock(seen);
            watermark = watermark.min(seen.watermark);
            for (at, held) in seen.held.iter().enumerate() {
                match all.get_mut(at) {
                    Some(sum) => {
                        sum.bytes += held.bytes;
                        sum.keys += held.keys;
                        sum.late += held.late;
                        sum.timeless += held.timeless;
                    }
                    // A thread without rows without a time has no entry for them, which is the last one.
                    None => all.push(held.clone()),
                }
            }
        }
        (watermark, all)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.common.over.store(true, Ordering::Relaxed);
        // Under the lock, so that no thread misses it between its check and its sleep.
        self.common.change(lock(&self.common.ring));
        lock(&self.common.pages).take();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A thread before it starts.
struct Recruit {
    number: usize,
    plans: Vec<Arc<Node>>,
    targets: Vec<Target>,
    threads: Threads,
    lookups: Vec<Arc<Table>>,
    store: Option<Store>,
    room: Option<MemoryLimit>,
    state: Option<(Vec<u8>, JobTables)>,
    common: Arc<Common>,
    say: Sender<Message>,
}

/// Reports the end of a thread that did not report it itself.
struct Last(Sender<Message>);

impl Drop for Last {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.send(Message::Failed(Error::evaluation("a thread of the job has panicked")));
        }
    }
}

impl Recruit {
    fn run(self) {
        let say = self.say.clone();
        let _last = Last(say.clone());
        // Not only this thread: an unwinding one may hold a lock on the way of the others.
        if let Err(error) = caught(|| self.join().and_then(Member::work)) {
            // The receiver may be dropped.
            let _ = say.send(Message::Failed(error));
        }
    }

    fn join(self) -> Result<Member> {
        let outputs = self.targets.iter().map(|target| Box::new(target.clone()) as Box<dyn Output>).collect();
        let mut program =
            Program::compile_with(&self.plans, outputs, self.room.as_ref(), Some(&self.threads))?;
        let (number, count) = (self.number as u64, self.threads.count as u64);
        let mut numbers = Numbers::of_part(number, count);
        if let Some((state, mut job_tables)) = self.state {
            let restored = program.restore(&state, &mut |number, page| job_tables.get(number, page))?;
            numbers = restored.in_steps(count);
        }
        let sources = program.lookups();
        let opened: Result<Vec<Lookup>> = sources
            .iter()
            .zip(&self.lookups)
            .map(|(source, table)| Lookup::open(table, source, self.store.as_ref()))
            .collect();
        let mut lookups = opened?;
        for (number, lookup) in lookups.iter_mut().enumerate() {
            program.load(number, &lookup.rows()?)?;
        }
        let _ = self.say.send(Message::Ready(numbers.named.clone()));
        Ok(Member {
            number: self.number,
            program,
            lookups,
            numbers,
            copies_max: self.room.map_or(usize::MAX, |room| room.copies_max()),
            common: self.common,
            say: self.say,
            next: 0,
            asked: 0,
            saving: false,
            refused: None,
            pages: None,
            pauses: Vec::new(),
        })
    }
}

/// A running thread.
struct Member {
    number: usize,
    program: Program,
    lookups: Vec<Lookup>,
    numbers: Numbers,
    common: Arc<Common>,
    say: Sender<Message>,
    /// The number of the next item.
    next: u64,
    asked: u64,
    /// Bytes of page copies that may wait.
    copies_max: usize,
    /// Whether pages of a checkpoint remain to be sent.
    saving: bool,
    /// Pages that the queue had no room for.
    refused: Option<Vec<(u64, u32, Vec<u8>)>>,
    pages: Option<Pages>,
    pauses: Vec<Duration>,
}

/// A thread's next step.
enum Step {
    RowSink(Arc<Item>),
    Read(Turn),
    /// Only pages remain to be saved.
    Save,
    End,
}

impl Member {
    fn work(mut self) -> Result<()> {
        loop {
            match self.step() {
                Step::End => return Ok(()),
                Step::Save => {
                    self.save(None)?;
                    self.saved();
                }
                Step::Read(turn) => self.read(turn)?,
                Step::RowSink(item) => {
                    let began = Instant::now();
                    self.take(&item)?;
                    let pause = pause_behind(began.elapsed());
                    drop(item);
                    self.common.taken(self.next);
                    self.next += 1;
                    if self.saving {
                        let began = Instant::now();
                        self.save(Some(pause))?;
                        while self.saving && self.program.copies() > self.copies_max {
                            self.save(None)?;
                        }
                        self.pauses.push(began.elapsed());
                        self.saved();
                    }
                    self.report();
                }
            }
        }
    }

    fn step(&self) -> Step {
        let mut ring = lock(&self.common.ring);
        let mut looks = 0;
        loop {
            if self.common.over.load(Ordering::Relaxed) {
                return Step::End;
            }
            if let Some((item, _)) = ring.items.get(&self.next) {
                return Step::RowSink(item.clone());
            }
            if !ring.closed && ring.open < AHEAD * self.common.threads {
                ring.open += 1;
                return Step::Read(ring.spare.pop().unwrap_or_default());
            }
            if self.saving {
                return Step::Save;
            }
            if looks < LOOKS {
                looks += 1;
                drop(ring);
                linger();
                ring = lock(&self.common.ring);
            } else {
                ring = self.common.sleep(ring);
            }
        }
    }

    /// Reads a turn, and routes its rows.
    fn read(&mut self, mut turn: Turn) -> Result<()> {
        let mut feeds = self.common.feeds();
        if feeds.held || feeds.ended {
            drop(feeds);
            self.common.unclaim(turn);
            return Ok(());
        }
        if turn.batches.is_empty() {
            for source in self.program.sources() {
                turn.batches.push((Batch::new(&source.types)?, Routed::default()));
            }
        }
        let (mut more, mut rows, mut turned) = (false, 0, false);
        turn.idle.clear();
        for (feed, (batch, _)) in feeds.feeds.iter_mut().zip(&mut turn.batches) {
            batch.clear();
            if feed.more {
                feed.more = feed.reader.read_rows(batch, BATCH_ROWS)?;
                more |= feed.more;
                batch.clock = now();
                rows += batch.rows();
            }
            turned |= feed.turns(batch.rows());
            turn.idle.push(feed.idle);
        }
        self.common.records.fetch_add(rows as u64, Ordering::Relaxed);
        let number = feeds.next;
        feeds.next += u64::from(rows > 0 || turned);
        let end = feeds.next;
        if !more {
            feeds.ended = true;
            feeds.next += 1;
            lock(&self.common.ring).closed = true;
        }
        drop(feeds);
        if rows > 0 || turned {
            for (source, (batch, routed)) in turn.batches.iter_mut().enumerate() {
                if batch.rows() > 0 {
                    self.program.route(source, batch, number, routed)?;
                }
            }
            self.common.give(number, Item::Turn(turn));
        } else {
            self.common.unclaim(turn);
        }
        if !more {
            self.common.give(end, Item::Finish);
        } else if rows == 0 && !self.saving {
            std::thread::sleep(REST);
        }
        Ok(())
    }

    fn take(&mut self, item: &Item) -> Result<()> {
        match item {
            Item::Turn(turn) => {
                watch()?;
                for (number, lookup) in self.lookups.iter_mut().enumerate() {
                    if lookup.is_due() {
                        let rows = lookup.rows()?;
                        self.program.unload(number);
                        self.program.load(number, &rows)?;
                    }
                }
                for (source, idle) in turn.idle.iter().enumerate() {
                    self.program.set_idle(source, *idle)?;
                }
                for (source, (batch, routed)) in turn.batches.iter().enumerate() {
                    if batch.rows() > 0 {
                        self.program.run_part(source, batch, routed, self.number)?;
                    }
                }
                Ok(())
            }
            Item::Meet { keep } => {
                self.meet(*keep);
                Ok(())
            }
            Item::Finish => {
                self.program.finish()?;
                let _ = self.say.send(Message::Finished);
                Ok(())
            }
        }
    }

    /// Reports its state, and waits for the other threads.
    fn meet(&mut self, keep: bool) {
        #[cfg(test)]
        tests::come_late(self.number);
        let began = Instant::now();
        let state = if keep { self.program.freeze(&mut self.numbers) } else { Vec::new() };
        self.asked = u64::MAX;
        self.report();
        let named = self.numbers.named.clone();
        let _ = self.say.send(Message::Met { thread: self.number, state, named });
        let mut ring = lock(&self.common.ring);
        while ring.met <= self.next && !self.common.over.load(Ordering::Relaxed) {
            ring = self.common.sleep(ring);
        }
        if keep {
            self.saving = true;
            self.pauses = vec![began.elapsed()];
        }
    }

    /// Sends pages for `pause`, or else one part of them however long that takes.
    fn save(&mut self, pause: Option<Duration>) -> Result<()> {
        if self.pages.is_none() {
            self.pages = lock(&self.common.pages).clone();
        }
        let Some(keeper) = &self.pages else { return Ok(()) };
        let began = Instant::now();
        while self.saving {
            if let Some(pages) = self.refused.take() {
                if pause.is_none() {
                    keeper.send_waiting(pages)?;
                } else {
                    self.refused = keeper.send(pages)?;
                }
            } else {
                let mut pages = Vec::new();
                let put = &mut |number, page, bytes| pages.push((number, page, bytes));
                let all = self.program.save(put, SAVED_BYTES);
                self.refused = if pages.is_empty() { None } else { keeper.send(pages)? };
                self.saving = !(all && self.refused.is_none());
            }
            if self.refused.is_some() || pause.is_none_or(|pause| began.elapsed() >= pause) {
                break;
            }
        }
        Ok(())
    }

    /// Reports that all pages are saved, once they are.
    fn saved(&mut self) {
        if !self.saving {
            let _ = self.say.send(Message::Saved(std::mem::take(&mut self.pauses)));
        }
    }

    /// Reports its state, if it was requested.
    fn report(&mut self) {
        let asked = self.common.asked.load(Ordering::Relaxed);
        if self.asked != asked {
            self.asked = asked;
            let seen = Seen { watermark: self.program.watermark(), held: self.program.held() };
            *lock(&self.common.seen[self.number]) = seen;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::atomic::AtomicUsize;

    use duramen::{Create, Durability, Options};
    use serde_json::{Value, json};

    use super::*;
    use crate::batch::Values;
    use crate::compile::Source;
    use crate::run::{Existing, Keep, MemoryLimit, RowSource, Running, Start};
    use crate::{Outcome, Session};

    /// The test takes two or three seconds.
    const ENDS_WITHIN: Duration = Duration::from_secs(120);

    /// Arrivals of threads at meetings while the test below runs.
    static MEETINGS: AtomicUsize = AtomicUsize::new(0);
    static DELAYS: AtomicBool = AtomicBool::new(false);

    /// Delays one of two threads, in turns, so that it arrives at a meeting long after the other.
    pub(super) fn come_late(thread: usize) {
        if DELAYS.load(Ordering::Relaxed) {
            let meeting = MEETINGS.fetch_add(1, Ordering::Relaxed) / 2;
            if meeting % 2 == thread {
                std::thread::sleep(Duration::from_millis(30));
            }
        }
    }

    /// A source of consecutive numbers that records how many there were at each checkpoint.
    struct Numbered {
        next: u64,
        end: u64,
        kept: Arc<Mutex<Vec<u64>>>,
    }

    impl RowSource for Numbered {
        fn read_rows(&mut self, batch: &mut Batch, _: usize) -> Result<bool> {
            // Slow enough that some turns fit into the delay of a thread.
            std::thread::sleep(Duration::from_micros(500));
            let rows = 16.min(self.end - self.next);
            if let Values::Int(values) = &mut batch.columns[0].values {
                values.extend((self.next..self.next + rows).map(|number| number as i64));
            }
            batch.set_rows(rows as usize);
            self.next += rows;
            Ok(self.next < self.end)
        }

        fn position(&self) -> Value {
            lock(&self.kept).push(self.next);
            json!({ "next": self.next })
        }

        fn seek(&mut self, _: &Value) -> Result<()> {
            Ok(())
        }
    }

    fn job(directory: &Path, end: u64) -> (Running, Arc<Mutex<Vec<u64>>>) {
        let script = "CREATE TABLE t (n BIGINT NOT NULL) WITH ('connector' = 'datagen');
            CREATE TABLE o (n BIGINT NOT NULL) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'csv');
            INSERT INTO o SELECT n FROM t;";
        let Some(Outcome::Job(job)) = Session::default().run(script).unwrap().pop() else {
            panic!("{script}")
        };
        let options =
            Options { durability: Durability::Manual, create: Create::OpenOrCreate, ..Options::default() };
        let keep = Keep {
            store: options.open(directory.join("store")).unwrap(),
            name: "job".to_owned(),
            every: Duration::from_millis(10),
            from_start: false,
            note: String::new(),
            room: MemoryLimit::default(),
        };
        let kept = Arc::new(Mutex::new(Vec::new()));
        let own = &mut |_: &Table, _: &Source| -> Result<Option<Box<dyn RowSource>>> {
            Ok(Some(Box::new(Numbered { next: 0, end, kept: kept.clone() })))
        };
        let start = Start { directory, keep: Some(&keep), threads: Some(2), existing: Existing::Refuse, own };
        let running = Running::start_on(&job.optimised, start).unwrap();
        assert_eq!(running.threads(), 2);
        (running, kept)
    }

    /// If a thread continued from a meeting before the last one has arrived and the sinks are cut, its rows would be in
    /// a part whose checkpoint does not include them.
    #[test]
    fn a_part_has_exactly_the_rows_before_its_checkpoint_even_if_a_thread_is_late() {
        const ROWS: u64 = 16 * 600;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let (send, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (mut running, kept) = job(&path, ROWS);
            DELAYS.store(true, Ordering::Relaxed);
            let ran = running.run(&AtomicBool::new(false), |_| ());
            DELAYS.store(false, Ordering::Relaxed);
            let _ = send.send((ran, kept));
        });
        // Threads that miss each other may wait forever.
        let Ok((ran, kept)) = ended.recv_timeout(ENDS_WITHIN) else {
            panic!("the job did not end within {ENDS_WITHIN:?}");
        };
        ran.unwrap();
        let mut parts: Vec<PathBuf> = std::fs::read_dir(directory.path().join("out"))
            .unwrap()
            .map(|part| part.unwrap().path())
            .collect();
        parts.sort();
        let (kept, mut before, mut checked) = (lock(&kept).clone(), 0, 0);
        for (epoch, upto) in (1..).zip(&kept) {
            let end = format!("-{epoch:010}.csv");
            let part = parts.iter().find(|part| part.to_string_lossy().ends_with(&end));
            let text = part.map_or_else(String::new, |part| std::fs::read_to_string(part).unwrap());
            let mut numbers: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
            numbers.sort_unstable();
            let wanted: Vec<u64> = (before..*upto).collect();
            assert!(
                numbers == wanted,
                "checkpoint {epoch} of rows {before} to {upto} has {} rows",
                numbers.len()
            );
            checked += usize::from(upto > &before);
            before = *upto;
        }
        assert_eq!(before, ROWS);
        assert!(checked >= 5, "{checked} checkpoints of {kept:?}");
    }
}
