//! Runs a plan on an engine: threads, clocks, histograms and checks.
//!
//! While the clock runs, a thread takes a step, makes key and value (copies of prepared bytes), calls the engine, and
//! checks the result. With [`Latency::Every`] it also reads the clock once per operation; the time of each begins at
//! the end of the previous one. With a rate, it begins when the operation was due, whether or not the engine was ready
//! for it (so there is no coordinated omission). With [`Latency::Prepared`] only the calls are timed: see
//! [`crate::kv::prepared`].

use crate::kv::clock::thread_cpu;
use crate::kv::engine::{Changed, Engine, Session, Watch};
use crate::kv::plan::{Plan, Steps};
use crate::kv::prepared::{self, Ran};
use crate::kv::workload::GET_MANY_KEYS;
use crate::kv::{Failure, Op, Records, Result, random};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

/// Operations between two checks of the clock and the progress.
const BEAT: usize = 1024;
const LATENCY_NANOS_MAX: u64 = 600_000_000_000;

/// The extent of what the clock times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Latency {
    /// Each operation, at the cost of one more reading of the clock.
    #[default]
    Every,
    /// All operations of a thread together: throughput alone.
    None,
    /// A few hundred operations together; keys and values are made while the clock is stopped. With several threads the
    /// time is that of the slowest.
    Prepared,
}

/// When operations begin.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Pace {
    /// When the previous one is done.
    #[default]
    Closed,
    /// At this rate in operations per second, for all threads together.
    Open(f64),
}

/// A part of a run's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slice {
    /// Its end, in seconds from the run's start.
    pub end_s: f64,
    /// The number of operations that ended in it.
    pub ops: u64,
    /// The longest of them, in nanoseconds; 0 when they were not timed.
    pub nanos_max: u64,
}

/// The figures of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The number of operations done.
    pub ops: u64,
    /// From the first thread's start to the last one's end.
    pub elapsed: Duration,
    /// CPU time of all threads together: the cost of operations even while others use the machine.
    pub cpu: Duration,
    /// Latencies in nanoseconds, when they were timed.
    pub latency: BTreeMap<Op, Histogram<u64>>,
    /// The run in slices of [`SLICE`].
    pub series: Vec<Slice>,
    /// Updates that could not be done in place.
    pub rewritten: u64,
    /// The number of entries that scans visited.
    pub scanned: u64,
    /// How often writers waited for each other, where the engine counts it.
    pub lock_waits: Option<LockWaits>,
}

/// How often writers found a lock taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaits {
    /// The lock of a key, or of the keys that share it.
    pub keys: u64,
    /// The lock of a part of the index, if it has any.
    pub leaves: Option<u64>,
}

/// The length of a slice of [`Outcome::series`].
pub const SLICE: Duration = Duration::from_millis(100);

impl Outcome {
    /// CPU time of one operation, in nanoseconds.
    #[must_use]
    pub fn cpu_nanos_per_op(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.ops.max(1) as f64
    }

    /// Nanoseconds from one operation's end to the next one's, over all threads.
    #[must_use]
    pub fn nanos_per_op(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.ops.max(1) as f64
    }

    /// Operations per second, all threads together.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// All latencies in one histogram.
    #[must_use]
    pub fn latency_all(&self) -> Option<Histogram<u64>> {
        let mut all = histogram().ok()?;
        for one in self.latency.values() {
            all.add(one).ok()?;
        }
        (!all.is_empty()).then_some(all)
    }
}

pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3)
        .map_err(|error| Failure::new(format!("cannot make a histogram: {error}")))
}

/// Runs `plan` on `engine`.
///
/// # Errors
/// An error of the engine; a value that does not belong to its key; a missing key.
pub fn run<E: Engine>(
    engine: &E,
    records: &Records,
    plan: &Plan,
    latency: Latency,
    pace: Pace,
    watch: &dyn Watch,
) -> Result<Outcome> {
    let threads = plan.threads().len();
    let (barrier, done, stop) = (Barrier::new(threads), AtomicU64::new(0), AtomicBool::new(false));
    let shared = Shared { barrier: &barrier, done: &done, stop: &stop };
    watch.begin(plan.name(), plan.ops());
    let results = std::thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for steps in plan.threads() {
            let sender = sender.clone();
            let interval = match pace {
                Pace::Closed => None,
                Pace::Open(rate) => Some(Duration::from_secs_f64(threads as f64 / rate)),
            };
            scope.spawn(move || {
                let mut thread = Thread::new(records, plan, latency, interval);
                let result = thread.work(engine, steps, &shared);
                if result.is_err() {
                    shared.stop.store(true, Relaxed);
                }
                let _ = sender.send(result.map(|span| (span, thread)));
            });
        }
        drop(sender);
        let mut results = Vec::new();
        loop {
            match receiver.recv_timeout(Duration::from_millis(200)) {
                Ok(result) => results.push(result),
                Err(mpsc::RecvTimeoutError::Timeout) => watch.at(done.load(Relaxed)),
                Err(mpsc::RecvTimeoutError::Disconnected) => return results,
            }
        }
    });
    watch.end();
    if results.len() != threads {
        return Err(Failure::new("a thread of the benchmark ended before its work was done"));
    }
    merge(plan, results)
}

fn merge(plan: &Plan, results: Vec<Result<(Span, Thread<'_>)>>) -> Result<Outcome> {
    let mut outcome = Outcome {
        ops: plan.ops(),
        elapsed: Duration::ZERO,
        cpu: Duration::ZERO,
        latency: BTreeMap::new(),
        series: Vec::new(),
        rewritten: 0,
        scanned: 0,
        lock_waits: None,
    };
    let mut whole: Option<Span> = None;
    for result in results {
        let (span, thread) = result?;
        if let Some(ran) = span.ran {
            outcome.cpu += ran.cpu;
            outcome.elapsed = outcome.elapsed.max(ran.wall);
            outcome.rewritten += ran.rewritten;
            continue;
        }
        outcome.cpu += span.cpu;
        whole = Some(whole.map_or(span, |w| Span {
            begun: w.begun.min(span.begun),
            ended: w.ended.max(span.ended),
            ..span
        }));
        outcome.rewritten += thread.rewritten;
        outcome.scanned += thread.scanned;
        for (op, histogram) in thread.latency {
            match outcome.latency.get_mut(&op) {
                None => _ = outcome.latency.insert(op, histogram),
                Some(all) => {
                    all.add(histogram).map_err(|e| Failure::new(format!("cannot add up histograms: {e}")))?;
                }
            }
        }
        for (i, slice) in thread.series.into_iter().enumerate() {
            match outcome.series.get_mut(i) {
                None => outcome.series.push(slice),
                Some(sum) => {
                    sum.ops += slice.ops;
                    sum.nanos_max = sum.nanos_max.max(slice.nanos_max);
                }
            }
        }
    }
    if let Some(whole) = whole {
        outcome.elapsed = whole.ended - whole.begun;
    }
    Ok(outcome)
}

#[derive(Clone, Copy)]
struct Shared<'a> {
    barrier: &'a Barrier,
    done: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Shared<'_> {
    /// Returns an error if another thread failed.
    fn check(&self) -> Result<()> {
        if self.stop.load(Relaxed) {
            return Err(Failure::new("another thread of the benchmark failed"));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Span {
    begun: Instant,
    ended: Instant,
    cpu: Duration,
    /// The time of the calls alone, if operations were prepared.
    ran: Option<Ran>,
}

/// The inputs and figures of one thread.
struct Thread<'a> {
    records: &'a Records,
    version: u32,
    /// The number of records in the store.
    keys: u64,
    timed: bool,
    prepared: bool,
    interval: Option<Duration>,
    latency: BTreeMap<Op, Histogram<u64>>,
    series: Vec<Slice>,
    slice: Slice,
    rewritten: u64,
    scanned: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    copy: Vec<u8>,
    many: Vec<Vec<u8>>,
}

impl<'a> Thread<'a> {
    fn new(records: &'a Records, plan: &Plan, latency: Latency, interval: Option<Duration>) -> Self {
        let bytes = records.shape().value_bytes() * 2;
        Self {
            records,
            version: plan.version(),
            keys: plan.keys(),
            timed: latency == Latency::Every || interval.is_some(),
            prepared: latency == Latency::Prepared && interval.is_none(),
            interval,
            latency: BTreeMap::new(),
            series: Vec::new(),
            slice: Slice::default(),
            rewritten: 0,
            scanned: 0,
            key: Vec::with_capacity(1024),
            value: Vec::with_capacity(bytes),
            copy: Vec::with_capacity(bytes),
            many: (0..GET_MANY_KEYS).map(|_| Vec::with_capacity(1024)).collect(),
        }
    }

    /// Runs all steps. Prepares everything before the barrier, where all threads start together.
    fn work<E: Engine>(&mut self, engine: &E, steps: &Steps, shared: &Shared<'_>) -> Result<Span> {
        let session = engine.session();
        let mut histograms = (0..Op::ALL.len()).map(|_| histogram()).collect::<Result<Vec<_>>>();
        shared.barrier.wait();
        let mut session = session?;
        let (begun, cpu) = (Instant::now(), thread_cpu());
        if self.prepared {
            let ran = prepared::take(&mut session, self.records, self.version, steps, |more| {
                shared.done.fetch_add(more as u64, Relaxed);
                shared.check()
            })?;
            return Ok(Span { begun, ended: Instant::now(), cpu: ran.cpu, ran: Some(ran) });
        }
        let result = match &mut histograms {
            Ok(histograms) => self.take_steps(&mut session, steps, shared, begun, histograms),
            Err(_) => Ok(()),
        };
        let (ended, cpu) = (Instant::now(), thread_cpu() - cpu);
        result?;
        for (op, histogram) in Op::ALL.into_iter().zip(histograms?) {
            if !histogram.is_empty() {
                self.latency.insert(op, histogram);
            }
        }
        self.beat(begun, ended, 0);
        self.series.push(Slice { end_s: (ended - begun).as_secs_f64(), ..self.slice });
        Ok(Span { begun, ended, cpu, ran: None })
    }

    fn take_steps<S: Session>(
        &mut self,
        session: &mut S,
        steps: &Steps,
        shared: &Shared<'_>,
        begun: Instant,
        histograms: &mut [Histogram<u64>],
    ) -> Result<()> {
        let (mut last, mut i, mut told) = (begun, 0, 0);
        while i < steps.len() {
            let (op, number) = steps.at(i);
            if let Some(interval) = self.interval {
                last = begun + interval.mul_f64(i as f64);
                wait_until(last);
            }
            let first = i;
            if op == Op::GetMany {
                i = self.get_many(session, steps, i)?;
            } else {
                self.one(session, op, number)?;
                i += 1;
            }
            if self.timed {
                let now = Instant::now();
                let nanos = (now - last).as_nanos() as u64;
                histograms[op as usize].saturating_record(nanos.max(1));
                self.slice.nanos_max = self.slice.nanos_max.max(nanos);
                last = now;
            }
            self.slice.ops += (i - first) as u64;
            if i / BEAT != told / BEAT {
                shared.done.fetch_add((i - told) as u64, Relaxed);
                told = i;
                let now = if self.timed { last } else { Instant::now() };
                self.beat(begun, now, 1);
                shared.check()?;
            }
        }
        shared.done.fetch_add((i - told) as u64, Relaxed);
        Ok(())
    }

    /// Ends the slices before `now`.
    fn beat(&mut self, begun: Instant, now: Instant, keep: u32) {
        let passed = (now.saturating_duration_since(begun).as_nanos() / SLICE.as_nanos()) as usize;
        while self.series.len() < passed && keep > 0 {
            let end_s = (self.series.len() + 1) as f64 * SLICE.as_secs_f64();
            self.series.push(Slice { end_s, ..self.slice });
            self.slice = Slice::default();
        }
    }

    #[inline]
    fn one<S: Session>(&mut self, session: &mut S, op: Op, number: u64) -> Result<()> {
        self.records.key(number, &mut self.key);
        match op {
            Op::Insert | Op::Overwrite => self.put(session, number),
            Op::Get | Op::GetMany => self.get(session, number),
            Op::ReadModifyWrite => {
                self.get(session, number)?;
                self.put(session, number)
            }
            Op::Update => {
                let cell = self.records.cell(number, self.version);
                match session.update(&self.key, self.records.cell_at(number), &cell)? {
                    Changed::InPlace => Ok(()),
                    Changed::Rewritten => {
                        self.rewritten += 1;
                        Ok(())
                    }
                    Changed::Absent => Err(Failure::missing(number, "update")),
                }
            }
            Op::Delete => {
                if session.delete(&self.key)? {
                    Ok(())
                } else {
                    Err(Failure::missing(number, "delete"))
                }
            }
            Op::Rank => match session.rank(&self.key)? {
                Some(rank) if rank < self.keys => Ok(()),
                _ => Err(Failure::missing(number, "rank")),
            },
            Op::Nth => {
                if session.nth(number % self.keys, &mut self.copy)? {
                    Ok(())
                } else {
                    Err(Failure::missing(number, "nth"))
                }
            }
            Op::Scan => {
                let count = 1 + random::mix(number ^ u64::from(self.version)) % 100;
                self.scan(session, count as usize)
            }
            Op::Walk | Op::Range10 | Op::Range100 | Op::Range1000 => {
                self.scan(session, op.entries(self.keys).unwrap_or(1) as usize)
            }
            Op::Sequential => {
                self.key.clear();
                let before = self.scanned;
                self.scan(session, usize::MAX)?;
                match self.scanned - before {
                    seen if seen == self.keys => Ok(()),
                    seen => Err(Failure::new(format!(
                        "a visit of the whole store found {seen} entries, wanted {}; no figures are given",
                        self.keys
                    ))),
                }
            }
        }
    }

    #[inline]
    fn put<S: Session>(&mut self, session: &mut S, number: u64) -> Result<()> {
        self.records.value(number, self.version, &mut self.value);
        session.put(&self.key, &self.value)
    }

    #[inline]
    fn get<S: Session>(&mut self, session: &mut S, number: u64) -> Result<()> {
        if !session.get(&self.key, &mut self.copy)? {
            return Err(Failure::missing(number, "get"));
        }
        self.records.check(number, &self.copy)
    }

    /// Gets the keys of consecutive `get_many` steps, at most 32; returns the step after them.
    fn get_many<S: Session>(&mut self, session: &mut S, steps: &Steps, from: usize) -> Result<usize> {
        let end = (from + GET_MANY_KEYS).min(steps.len());
        let mut numbers = [0; GET_MANY_KEYS];
        let mut count = 0;
        while from + count < end {
            let (op, number) = steps.at(from + count);
            if op != Op::GetMany {
                break;
            }
            numbers[count] = number;
            self.records.key(number, &mut self.many[count]);
            count += 1;
        }
        let mut keys = [&[][..]; GET_MANY_KEYS];
        for (key, made) in keys.iter_mut().zip(&self.many[..count]) {
            *key = made;
        }
        let (records, copy) = (self.records, &mut self.copy);
        session.get_many(&keys[..count], &mut |i, value| {
            let value = value.ok_or_else(|| Failure::missing(numbers[i], "get_many"))?;
            copy.clear();
            copy.extend_from_slice(value);
            records.check(numbers[i], copy)
        })?;
        Ok(from + count)
    }

    fn scan<S: Session>(&mut self, session: &mut S, count: usize) -> Result<()> {
        let copy = &mut self.copy;
        let seen = session.scan(&self.key, count, &mut |key, value| {
            copy.clear();
            copy.extend_from_slice(key);
            copy.extend_from_slice(value);
        })?;
        self.scanned += seen as u64;
        Ok(())
    }
}

/// Sleeps while the wait is long, and spins for the rest: a sleep ends about 60 µs late.
fn wait_until(when: Instant) {
    loop {
        let left = when.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > Duration::from_micros(200) {
            std::thread::sleep(left - Duration::from_micros(100));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Reads every key below `keys` once and checks every byte of its value, untimed.
///
/// # Errors
/// As [`run`].
pub fn check_all<E: Engine>(engine: &E, records: &Records, keys: u64) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut session = engine.session()?;
    for number in 0..keys {
        records.key(number, &mut key);
        if !session.get(&key, &mut value)? {
            return Err(Failure::missing(number, "the check afterwards"));
        }
        records.check_whole(number, &value)?;
    }
    Ok(())
}
