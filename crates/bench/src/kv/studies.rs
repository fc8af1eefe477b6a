//! Studies that are more than one workload: growth, recovery, the cost of compaction, the parts of an operation.

use crate::kv::bound::batches;
use crate::kv::contender::{Contender, Duramen};
use crate::kv::engine::{Engine, Session, Watch};
use crate::kv::forms::forms;
use crate::kv::place::{Place, never_compacting};
use crate::kv::probe::{Meter, Mode, Probe, time_this_thread, timing_cost};
use crate::kv::recovery::recover_copy;
use crate::kv::suite::{Cell, Settings, measure};
use crate::kv::variants::probed;
use crate::kv::{
    Changed, Clock, DuramenEngine, Failure, Latency, Op, Outcome, Pace, Plan, Records, Result, Shape,
    Workload, median, reporting, run,
};
use crate::report::{Better, Measurement, Metric, Part, Unit};
use duramen::Options;
use duramen_media::Mapped;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The names of all studies.
pub const NAMES: [&str; 5] = ["growth", "recovery", "compaction", "breakdown", "forms"];

/// Runs the study called `name`; `None` if there is none.
///
/// # Errors
/// An error of the store or the medium, or a wrong value.
pub fn named(
    name: &str,
    place: &Place,
    settings: &Settings,
    watch: &dyn Watch,
) -> Option<Result<Vec<Measurement>>> {
    Some(match name {
        "growth" => growth(place, settings, watch),
        "recovery" => recovery(place, settings, watch),
        "compaction" => compaction(place, settings, watch),
        "breakdown" => breakdown(place, settings, watch),
        "forms" => forms(place, settings),
        _ => return None,
    })
}

fn duramen(name: &str, place: &Place, options: Options) -> Duramen {
    Duramen { name: name.into(), place: Place { path: place.path.clone(), options }, in_place: false }
}

/// Inserts from empty, each timed: percentiles up to the 99.99th, the longest pause, and both over time.
fn growth(place: &Place, settings: &Settings, watch: &dyn Watch) -> Result<Vec<Measurement>> {
    let settings = Settings {
        workloads: vec![Workload::named("insert")?.clone()],
        latency: Latency::Every,
        ..settings.clone()
    };
    let (cells, _) = measure(&[&duramen("duramen", place, place.options.clone())], &settings, watch)?;
    let mut all = Vec::new();
    for cell in &cells {
        let mut one = reporting::measurement(cell, &settings)?;
        one.group = "growth".into();
        let longest = |over: u64| -> f64 {
            let slices = cell.outcomes.iter().flat_map(|outcome| &outcome.series);
            slices.filter(|slice| slice.nanos_max > over).count() as f64 / cell.outcomes.len() as f64
        };
        let count = |value| Metric::once(value, Unit::Count, Better::Lower);
        one.metrics.insert("tenths of a second with a pause over 1 ms".into(), count(longest(1_000_000)));
        one.metrics.insert("with a pause over 5 ms".into(), count(longest(5_000_000)));
        all.push(one);
    }
    Ok(all)
}

/// Recovery at a quarter, a half and all of the records, with each number of threads.
fn recovery(place: &Place, settings: &Settings, watch: &dyn Watch) -> Result<Vec<Measurement>> {
    let mut all: Vec<Measurement> = Vec::new();
    for &shape in &settings.shapes {
        let records = Records::new(shape);
        for part in [4, 2, 1] {
            let keys = settings.keys / part;
            if keys == 0 {
                continue;
            }
            let store = place.fresh(false)?;
            let plan = Plan::new(Workload::named("insert")?, keys, keys, 1, settings.seed)?;
            run(store.engine(), &records, &plan, Latency::None, Pace::Closed, watch)?;
            let mut samples = vec![(Vec::new(), Vec::new()); settings.threads.len()];
            for _ in 0..settings.rounds.max(1) {
                for (threads, (seconds, rates)) in settings.threads.iter().zip(&mut samples) {
                    let found = recover_copy(place, store.path(), *threads, keys)?;
                    seconds.push(found.seconds);
                    rates.push(found.records as f64 / found.seconds);
                }
            }
            for (threads, (seconds, rates)) in settings.threads.iter().zip(&samples) {
                let mut one = Measurement::new("recovery", "duramen")
                    .with("record", shape.to_string())
                    .with("threads", *threads)
                    .with("keys", keys);
                let rate = Metric::from_samples(rates, Unit::OperationsPerSecond, Better::Higher);
                one.metrics.extend(rate.map(|m| ("records".into(), m)));
                let time = Metric::from_samples(seconds, Unit::Seconds, Better::Lower);
                one.metrics.extend(time.map(|m| ("time".into(), m)));
                all.push(one);
            }
        }
    }
    Ok(all)
}

/// Half overwrites, half gets, with and without background compaction in turn. Without it space is never reclaimed, so
/// the difference is the whole cost of compaction to the foreground.
fn compaction(place: &Place, settings: &Settings, watch: &dyn Watch) -> Result<Vec<Measurement>> {
    let settings = Settings {
        workloads: vec![Workload::named("mixed-50-50")?.clone()],
        // Each key is overwritten once on average: compaction begins at a quarter dead and stays busy up to a half.
        ops: settings.ops.max(settings.keys * 2),
        ..settings.clone()
    };
    let with = duramen("with compaction", place, place.options.clone());
    let without = duramen("without", place, never_compacting(&place.options));
    let (cells, _) = measure(&[&with as &dyn Contender, &without], &settings, watch)?;
    let mut all = Vec::new();
    for pair in cells.chunks(2) {
        let [with, without] = pair else { continue };
        let rates =
            |cell: &Cell| cell.outcomes.iter().map(crate::kv::Outcome::ops_per_second).collect::<Vec<_>>();
        let costs: Vec<f64> = rates(with)
            .iter()
            .zip(rates(without))
            .map(|(with, without)| (1.0 - with / without) * 100.0)
            .collect();
        for cell in pair {
            let mut one = reporting::measurement(cell, &settings)?;
            one.group = "compaction".into();
            if cell.contender == with.contender {
                let cost = Metric::from_samples(&costs, Unit::Percent, Better::Lower);
                one.metrics.extend(cost.map(|m| ("throughput that compaction costs".into(), m)));
            }
            all.push(one);
        }
    }
    Ok(all)
}

/// The parts of one thread's operations, and the bytes they write.
///
/// Four stores are loaded and worked on alike. A plain one gives the time of an operation. One over a medium without
/// flushes and drains gives the time without them; the difference is *persist*. (Timing drains one by one does not show
/// it: the CPU continues and waits at the next store.) One over a medium whose calls are timed gives *log*: storing the
/// record and beginning its write-back, less the reading of the clock. Calls over 50 µs are left out, because another
/// process had the CPU in them. One counts bytes. *Index* is the time of a get of an absent key, less *epoch*; such a
/// get reads an index line and no record. *Epoch* is entering and leaving an epoch of readers, measured alone. *Rest*
/// is the remainder: checksums, the old record, and the overlap by the CPU, which makes it smaller.
fn breakdown(place: &Place, settings: &Settings, watch: &dyn Watch) -> Result<Vec<Measurement>> {
    let mut all = Vec::new();
    for &shape in &settings.shapes {
        let one = Breakdown { place, settings, shape, records: &Records::new(shape), watch };
        all.extend(one.measure()?);
    }
    Ok(all)
}

const PARTS_OF: [Op; 5] = [Op::Insert, Op::Get, Op::Update, Op::Overwrite, Op::Delete];

struct Breakdown<'a> {
    place: &'a Place,
    settings: &'a Settings,
    shape: Shape,
    records: &'a Records,
    watch: &'a dyn Watch,
}

/// The figures per operation of one workload over a probed medium.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Nanoseconds of the whole operation.
    nanos: f64,
    /// Nanoseconds of storing records, when calls were timed.
    log: f64,
    /// Bytes, when they were counted.
    flushed: f64,
    stored: f64,
}

impl Breakdown<'_> {
    fn measure(&self) -> Result<Vec<Measurement>> {
        let (plain, absent) = self.plain()?;
        let epoch = pin_nanos();
        let timed = self.probed(Mode::Time)?;
        let bare = self.probed(Mode::NoPersist)?;
        let counted = self.probed(Mode::Count)?;
        let mut all = Vec::new();
        for (at, op) in PARTS_OF.into_iter().enumerate() {
            let (total, log, bare) = (plain[at], timed[at].log, bare[at].nanos);
            let (flushed, stored) = (counted[at].flushed, counted[at].stored);
            // A get persists nothing: the difference would be noise.
            let persist = if op == Op::Get { 0.0 } else { total - bare };
            let index = (absent - epoch).max(0.0);
            let rest = total - log - persist - index - epoch;
            let mut one = Measurement::new("breakdown", op.name())
                .with("record", self.shape.to_string())
                .with("keys", self.settings.keys);
            one.metrics
                .insert("time of an operation".into(), Metric::once(total, Unit::Nanoseconds, Better::Lower));
            for (name, ns) in
                [("index", index), ("log", log), ("persist", persist), ("epoch", epoch), ("rest", rest)]
            {
                one.breakdown.push(Part { name: name.into(), ns: ns.max(0.0) });
                one.metrics.insert(name.into(), Metric::once(ns, Unit::Nanoseconds, Better::Lower));
            }
            if let Some(user) = self.user_bytes(op) {
                let ratio = |bytes: f64| Metric::once(bytes / user, Unit::Ratio, Better::Lower);
                one.metrics.insert("flushed per byte written".into(), ratio(flushed));
                one.metrics.insert("stored per byte written".into(), ratio(stored));
            }
            all.push(one);
        }
        Ok(all)
    }

    /// Bytes that the caller writes with one operation.
    fn user_bytes(&self, op: Op) -> Option<f64> {
        match op {
            Op::Insert | Op::Overwrite => Some(self.shape.bytes() as f64),
            Op::Update => Some(8.0),
            Op::Delete => Some(self.shape.key_bytes() as f64),
            _ => None,
        }
    }

    fn plan(&self, op: Op) -> Result<Plan> {
        let settings = self.settings;
        Plan::new(Workload::named(op.name())?, settings.keys, settings.ops, 1, settings.seed)
    }

    /// Nanoseconds of each operation, and of a get of an absent key.
    fn plain(&self) -> Result<(Vec<f64>, f64)> {
        let (mut times, mut absents) = (vec![Vec::new(); PARTS_OF.len()], Vec::new());
        for _ in 0..self.settings.rounds.max(1) {
            for updatable in [false, true] {
                let store = self.place.fresh(updatable)?;
                for (at, op) in PARTS_OF.into_iter().enumerate() {
                    // In-place updates need values that are put and read in another way.
                    if op != Op::Insert && updatable != (op == Op::Update) {
                        continue;
                    }
                    let plan = self.plan(op)?;
                    let found =
                        run(store.engine(), self.records, &plan, Latency::None, Pace::Closed, self.watch)?;
                    if !updatable || op == Op::Update {
                        times[at].push(self.nanos(&found));
                    }
                    if op == Op::Get {
                        absents.push(self.absent_nanos(store.engine())?);
                    }
                }
            }
        }
        let median_of = |samples: &Vec<f64>| median(samples).unwrap_or_default();
        Ok((times.iter().map(median_of).collect(), median_of(&absents)))
    }

    fn absent_nanos(&self, engine: &DuramenEngine) -> Result<f64> {
        let (mut session, mut key, mut value) = (engine.session()?, Vec::new(), Vec::new());
        let (keys, ops) = (self.settings.keys, self.settings.ops);
        let mut result = Ok(false);
        let nanos = batches(self.settings.clock, ops, |i| {
            // In an order that no prefetcher follows: the lookup is by the key's hash.
            self.records.key(keys * 2 + i, &mut key);
            let found = session.get(&key, &mut value);
            if !matches!(found, Ok(false)) {
                result = found;
            }
        });
        if result? {
            return Err(Failure::new("found a key that was never put; no figures are given"));
        }
        Ok(nanos)
    }

    /// Runs each operation over a probed medium.
    fn probed(&self, mode: Mode) -> Result<Vec<Seen>> {
        let mut seen = vec![Seen::default(); PARTS_OF.len()];
        for updatable in [false, true] {
            let meter = Arc::new(Meter::default());
            let (store, _remove) = probed(self.place, mode, &meter)?;
            let engine = TimedEngine(DuramenEngine::new(store, updatable));
            for (at, op) in PARTS_OF.into_iter().enumerate() {
                if op != Op::Insert && updatable != (op == Op::Update) {
                    continue;
                }
                let plan = self.plan(op)?;
                meter.reset();
                let found = run(&engine, self.records, &plan, Latency::None, Pace::Closed, self.watch)?;
                if updatable && op == Op::Insert {
                    continue;
                }
                let (ops, write) = (found.ops as f64, &meter.write);
                let cost = timing_cost().as_nanos() as f64 * write.calls() as f64;
                seen[at] = Seen {
                    nanos: self.nanos(&found),
                    log: (write.nanos() as f64 - cost).max(0.0) / ops,
                    flushed: meter.flushed_bytes.load(Relaxed) as f64 / ops,
                    stored: meter.stored_bytes.load(Relaxed) as f64 / ops,
                };
            }
        }
        Ok(seen)
    }

    fn nanos(&self, outcome: &Outcome) -> f64 {
        match self.settings.clock {
            Clock::Wall => outcome.nanos_per_op(),
            Clock::Cpu => outcome.cpu_nanos_per_op(),
        }
    }
}

/// The time of entering and leaving an epoch of readers, as each operation does, measured alone.
fn pin_nanos() -> f64 {
    batches(Clock::Wall, 1_000_000, |_| duramen::measuring::pin())
}

/// An engine whose threads' medium calls are timed.
struct TimedEngine(DuramenEngine<Probe<Mapped>>);

struct TimedSession(crate::kv::duramen_engine::DuramenSession<Probe<Mapped>>);

impl Engine for TimedEngine {
    type Session<'a> = TimedSession;

    fn session(&self) -> Result<TimedSession> {
        time_this_thread(true);
        Ok(TimedSession(self.0.session()?))
    }
}

impl Session for TimedSession {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        self.0.get(key, into)
    }

    fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Changed> {
        self.0.update(key, at, bytes)
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.0.delete(key)
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        self.0.scan(key, count, visit)
    }
}
