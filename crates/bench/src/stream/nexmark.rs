//! Nexmark's queries, each alone: over events made in advance, on one thread and on several, and by hand.
//!
//! All queries read the same events from memory: columns are shared, not copied, and making events does not count.
//! Sinks drop the rows. q4 and q6 are missing because they consume retractions. q9 is left out as well, as in the
//! targets of the project.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::report::{Better, Measurement, Metric, Unit};
use duramen::{Create, Durability, MediumKind, Options};
use duramen_stream::batch::{Batch, Held, Values};
use duramen_stream::catalog::Table;
use duramen_stream::compile::Source;
use duramen_stream::nexmark::{Generator, TABLES};
use duramen_stream::plan::Sink;
use duramen_stream::run::{BATCH_ROWS, Keep, MemoryLimit, RowSource, Running, Start};
use duramen_stream::types::Type;
use duramen_stream::{Error, Outcome, Session};
use serde_json::{Value, json};

use crate::stream::by_hand::{EMPTY, Entry, add};
use crate::stream::{Failure, Found};

/// The settings of a run.
#[derive(Debug, Clone)]
pub struct Nexmark {
    /// The number of events, of all three tables together.
    pub events: u64,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// The number of runs of each query.
    pub rounds: u32,
    /// The directory with the queries.
    pub queries: std::path::PathBuf,
    /// Numbers of the queries to run; empty means all.
    pub only: Vec<u32>,
}

/// The numbers of the queries.
pub fn numbers() -> impl Iterator<Item = u32> {
    (0..=22).filter(|number| ![4, 6, 9].contains(number))
}

/// The number of rows of a side input, and the step from key to key.
const SIDE: (u64, u64) = (10_000, 3);

/// All columns of a table, in turns of as many events as a batch may have rows.
struct Rows {
    name: &'static str,
    turns: Vec<Batch>,
}

/// The events.
struct Events(Vec<Rows>);

impl Events {
    fn make(count: u64) -> Result<Events, Failure> {
        let mut session = Session::default();
        session.run(TABLES)?;
        let mut tables = Vec::new();
        for name in ["person", "auction", "bid"] {
            let table = session.table(name)?;
            let types: Vec<Type> =
                table.physical.iter().map(|column| table.columns[*column].ty.clone()).collect();
            tables.push((Rows { name, turns: Vec::new() }, types));
        }
        let generator = Generator::new(1);
        for first in (0..count).step_by(BATCH_ROWS) {
            for (rows, types) in &mut tables {
                rows.turns.push(Batch::new(types.iter())?);
            }
            for number in first..count.min(first + BATCH_ROWS as u64) {
                let event = generator.event(number);
                for (rows, _) in &mut tables {
                    if let (true, Some(batch)) = (rows.name == event.table, rows.turns.last_mut()) {
                        batch.push(&event.row)?;
                    }
                }
            }
        }
        for batch in tables.iter_mut().flat_map(|(rows, _)| &mut rows.turns) {
            batch.columns.iter_mut().for_each(Held::share);
        }
        Ok(Events(tables.into_iter().map(|(rows, _)| rows).collect()))
    }

    fn of(&self, name: &str) -> Option<&Rows> {
        self.0.iter().find(|rows| rows.name == name)
    }
}

/// Replays a table's columns.
struct Replay {
    events: Arc<Events>,
    table: usize,
    reads: Vec<usize>,
    next: usize,
}

impl RowSource for Replay {
    fn read_rows(&mut self, batch: &mut Batch, _: usize) -> Result<bool, Error> {
        let turns = &self.events.0[self.table].turns;
        if let Some(turn) = turns.get(self.next) {
            for (column, read) in batch.columns.iter_mut().zip(&self.reads) {
                column.clone_from(&turn.columns[*read]);
            }
            batch.set_rows(turn.rows());
            self.next += 1;
        }
        Ok(self.next < turns.len())
    }

    fn position(&self) -> Value {
        json!({ "turns": self.next })
    }

    fn seek(&mut self, position: &Value) -> Result<(), Error> {
        self.next = position["turns"].as_u64().unwrap_or(0) as usize;
        Ok(())
    }
}

/// The sinks of a script; each drops its rows.
fn plan(script: &str) -> Result<Vec<Sink>, Failure> {
    let mut session = Session::default();
    session.run(TABLES)?;
    let mut dropped = String::new();
    for statement in script.split_inclusive(';') {
        let (table, connector) = match statement.find("CREATE TABLE result") {
            Some(_) => statement.rsplit_once("WITH (").unwrap_or((statement, "")),
            None => (statement, ""),
        };
        dropped.push_str(table);
        if !connector.is_empty() {
            dropped.push_str("WITH ('connector' = 'blackhole');");
        }
    }
    match session.run(&dropped)?.pop() {
        Some(Outcome::Job(job)) => Ok(job.optimised),
        _ => Err("a query of Nexmark is no job".into()),
    }
}

fn run_job(
    sinks: &[Sink],
    events: &Arc<Events>,
    threads: usize,
    keep: Option<&Keep>,
) -> Result<Duration, Failure> {
    let mut own = |table: &Table, source: &Source| -> Result<Option<Box<dyn RowSource>>, Error> {
        let place = events.0.iter().position(|rows| rows.name == table.name);
        Ok(place.map(|table| {
            let replay = Replay { events: events.clone(), table, reads: source.reads.clone(), next: 0 };
            Box::new(replay) as Box<dyn RowSource>
        }))
    };
    let mut running = Running::start_on(sinks, Start::here(keep, Some(threads), &mut own))?;
    let began = Instant::now();
    running.run(&AtomicBool::new(false), |_| ())?;
    Ok(began.elapsed())
}

/// A store with the side input of q13; the directory is removed with it.
fn side_input(directory: &Path) -> Result<Keep, Failure> {
    let options = Options {
        medium: MediumKind::Auto,
        create: Create::OpenOrCreate,
        durability: Durability::Manual,
        ..Options::default()
    };
    let keep = Keep {
        store: options.open(directory.join("store"))?,
        name: "side".to_owned(),
        // Only at the end.
        every: Duration::from_secs(3600),
        from_start: false,
        note: String::new(),
        room: MemoryLimit::default(),
    };
    let (count, step) = SIDE;
    let script = format!(
        "CREATE TABLE n (key BIGINT) WITH ('connector' = 'datagen', 'fields.key.kind' = 'sequence',
           'fields.key.start' = '0', 'fields.key.end' = '{}');
         CREATE TABLE side_input (key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED)
           WITH ('connector' = 'duramen');
         INSERT INTO side_input SELECT key * {step}, 'side ' || CAST(key AS STRING) FROM n;",
        count / step
    );
    let Some(Outcome::Job(job)) = Session::default().run(&script)?.pop() else {
        return Err("the side input is no job".into());
    };
    Running::start_in(&job.optimised, directory, Some(&keep))?.run(&AtomicBool::new(false), |_| ())?;
    Ok(Keep { name: "q13".to_owned(), from_start: true, ..keep })
}

/// Runs all queries.
///
/// # Errors
/// When a query is missing, is refused, or fails.
pub fn measure(settings: &Nexmark, tell: &mut dyn FnMut(&str)) -> Result<Found, Failure> {
    tell(&format!("makes {} events", settings.events));
    let events = Arc::new(Events::make(settings.events)?);
    let mut found = Found::default();
    let mut add = |query: u32, how: &str, times: &[Duration]| {
        let rates: Vec<f64> = times.iter().map(|time| settings.events as f64 / time.as_secs_f64()).collect();
        let mut one = Measurement::new("nexmark", format!("q{query}, {how}")).with("events", settings.events);
        let metric = Metric::from_samples(&rates, Unit::OperationsPerSecond, Better::Higher);
        one.metrics.extend(metric.map(|metric| ("rate".to_owned(), metric)));
        found.measurements.push(one);
    };
    for number in numbers().filter(|number| settings.only.is_empty() || settings.only.contains(number)) {
        let file = settings.queries.join(format!("q{number}.sql"));
        let script = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let sinks = plan(&script)?;
        let mut ran = vec![Vec::new(); settings.threads.len() + 1];
        for round in 1..=settings.rounds {
            tell(&format!("q{number}, round {round} of {}", settings.rounds));
            for (threads, times) in settings.threads.iter().zip(&mut ran) {
                let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
                let keep = if number == 13 { Some(side_input(place.path())?) } else { None };
                times.push(run_job(&sinks, &events, *threads, keep.as_ref())?);
            }
            if let (Some(bids), Some(times)) = (events.of("bid"), ran.last_mut()) {
                times.extend(by_hand(number, bids).map(|(_, time)| time));
            }
        }
        for (threads, times) in settings.threads.iter().zip(&ran) {
            add(number, &format!("{threads} thread{}", if *threads == 1 { "" } else { "s" }), times);
        }
        if let Some(times) = ran.last().filter(|times| !times.is_empty()) {
            add(number, "by hand", times);
        }
    }
    found.verdict.summary = format!("{} queries over {} events.", numbers().count(), settings.events);
    Ok(found)
}

/// The rows of a loop by hand: words in a reused buffer, as compiled code passes them to its sinks.
struct Given {
    buffer: Vec<u64>,
    rows: u64,
}

impl Given {
    fn row<const N: usize>(&mut self, words: [u64; N]) {
        if self.buffer.len() + N > 4096 {
            std::hint::black_box(&self.buffer);
            self.buffer.clear();
        }
        self.buffer.extend_from_slice(&words);
        self.rows += 1;
    }
}

fn ints(batch: &Batch, column: usize) -> &[i64] {
    if let Values::Int(values) = &batch.columns[column].values { values } else { &[] }
}

fn texts(batch: &Batch, column: usize) -> (&[[u64; 2]], u64) {
    match &batch.columns[column].values {
        Values::Text(places, bytes) => (places, bytes.as_ptr() as u64),
        _ => (&[], 0),
    }
}

/// Columns of `bid`.
const AUCTION: usize = 0;
const BIDDER: usize = 1;
const PRICE: usize = 2;
const TIME: usize = 5;
const EXTRA: usize = 6;

/// The function of a loop that processes a batch.
type Each = Box<dyn FnMut(&Batch, &mut Given)>;

/// Runs the handwritten loop for a query over the bids; returns the number of rows and the time. `None` for most
/// queries.
fn by_hand(number: u32, bids: &Rows) -> Option<(u64, Duration)> {
    let mut given = Given { buffer: Vec::with_capacity(4096), rows: 0 };
    let mut each: Each = match number {
        0 => Box::new(q0),
        1 => Box::new(q1),
        2 => Box::new(q2),
        5 => {
            let mut hot = Hot::default();
            Box::new(move |batch, given| hot.batch(batch, given))
        }
        12 => {
            let mut counts = Counts::default();
            Box::new(move |batch, given| counts.batch(batch, given))
        }
        _ => return None,
    };
    let began = Instant::now();
    for turn in &bids.turns {
        each(turn, &mut given);
    }
    // An empty batch marks the end of the input.
    let mut end = bids.turns.first()?.clone();
    end.clear();
    each(&end, &mut given);
    Some((given.rows, began.elapsed()))
}

fn q0(bids: &Batch, given: &mut Given) {
    let (extras, base) = texts(bids, EXTRA);
    let columns = [AUCTION, BIDDER, PRICE, TIME].map(|column| ints(bids, column));
    for (row, [place, length]) in extras.iter().enumerate() {
        let [auction, bidder, price, time] = columns.map(|column| column[row] as u64);
        given.row([auction, bidder, price, time, base + place, *length]);
    }
}

fn q1(bids: &Batch, given: &mut Given) {
    let (extras, base) = texts(bids, EXTRA);
    let columns = [AUCTION, BIDDER, PRICE, TIME].map(|column| ints(bids, column));
    for (row, [place, length]) in extras.iter().enumerate() {
        let [auction, bidder, price, time] = columns.map(|column| column[row]);
        // DECIMAL(23, 3).
        let price = i128::from(price) * 908;
        let words = [auction as u64, bidder as u64, price as u64, (price >> 64) as u64, time as u64];
        given.row([words[0], words[1], words[2], words[3], words[4], base + place, *length]);
    }
}

fn q2(bids: &Batch, given: &mut Given) {
    for (auction, price) in ints(bids, AUCTION).iter().zip(ints(bids, PRICE)) {
        if auction % 123 == 0 {
            given.row([*auction as u64, *price as u64]);
        }
    }
}

/// Counts by key in a table with linear probing.
struct Keyed {
    table: Vec<Entry>,
    count: usize,
}

impl Default for Keyed {
    fn default() -> Self {
        Keyed { table: vec![[EMPTY, 0]; 64], count: 0 }
    }
}

impl Keyed {
    fn add(&mut self, key: i64, value: i64) {
        if add(&mut self.table, key, value) {
            self.count += 1;
            if self.count >= self.table.len() / 16 * 11 {
                let mut larger = vec![[EMPTY, 0]; self.table.len() * 2];
                self.each(|key, value| {
                    add(&mut larger, key, value);
                });
                self.table = larger;
            }
        }
    }

    fn each(&self, mut each: impl FnMut(i64, i64)) {
        let taken = self.table.iter().filter(|[key, _]| *key != EMPTY);
        taken.for_each(|[key, sum]| each(*key as i64, *sum as i64));
    }
}

const SECOND: i64 = 1_000_000;

/// q5: the auctions with the most bids in windows of 10 s that begin every 2 s.
struct Hot {
    /// Counts by auction, of each slice of 2 s.
    slices: std::collections::BTreeMap<i64, Keyed>,
    watermark: i64,
}

impl Default for Hot {
    fn default() -> Self {
        Hot { slices: std::collections::BTreeMap::new(), watermark: i64::MIN }
    }
}

impl Hot {
    fn batch(&mut self, bids: &Batch, given: &mut Given) {
        const SLICE: i64 = 2 * SECOND;
        const WINDOW: i64 = 10 * SECOND;
        let (auctions, times) = (ints(bids, AUCTION), ints(bids, TIME));
        let (mut at, count) = (0, times.len());
        while at < count {
            // Bids are in the order of their times: runs of one slice.
            let start = times[at].div_euclid(SLICE) * SLICE;
            let end =
                at + times[at..].iter().take_while(|time| ((**time - start) as u64) < SLICE as u64).count();
            let slice = self.slices.entry(start).or_default();
            auctions[at..end].iter().for_each(|auction| slice.add(*auction, 1));
            at = end;
        }
        let bound = times.last().map_or(i64::MAX, |last| last - 4 * SECOND);
        // The first window that contains the first slice ends with that slice.
        while let Some(first) = self.slices.keys().next().copied() {
            let from = self.watermark.max(first + SLICE - WINDOW);
            if from + WINDOW - 1000 > bound {
                break;
            }
            let mut window = Keyed::default();
            for slice in self.slices.range(from..from + WINDOW).map(|(_, slice)| slice) {
                slice.each(|auction, bids| window.add(auction, bids));
            }
            let mut most = 0;
            window.each(|_, bids| most = bids.max(most));
            window.each(|auction, bids| {
                if bids == most {
                    given.row([auction as u64, bids as u64]);
                }
            });
            self.watermark = from + SLICE;
            self.slices = self.slices.split_off(&self.watermark);
        }
    }
}

/// q12: bids of each bidder in windows of 10 s of processing time. All come within one window.
#[derive(Default)]
struct Counts(Keyed);

impl Counts {
    fn batch(&mut self, bids: &Batch, given: &mut Given) {
        let bidders = ints(bids, BIDDER);
        bidders.iter().for_each(|bidder| self.0.add(*bidder, 1));
        if bidders.is_empty() {
            self.0.each(|bidder, bids| given.row([bidder as u64, bids as u64, 0, 0]));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::Cell;
    use std::path::PathBuf;
    use std::rc::Rc;

    use duramen_stream::compile::{Output, Program};

    use super::*;

    fn queries() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/stream/nexmark")
    }

    #[test]
    fn every_query_runs_over_pregenerated_events() {
        let settings =
            Nexmark { events: 10_000, threads: vec![1, 2], rounds: 1, queries: queries(), only: vec![] };
        let found = measure(&settings, &mut |_| ()).unwrap();
        // 20 queries on one and two threads, and five by hand.
        assert_eq!(found.measurements.len(), 45);
    }

    struct Count(Rc<Cell<u64>>);

    impl Output for Count {
        fn take(&mut self, rows: &duramen_stream::compile::Rows<'_>) -> duramen_stream::Result<()> {
            self.0.set(self.0.get() + rows.iter().count() as u64);
            Ok(())
        }
    }

    #[test]
    fn hand_written_loops_have_the_row_counts_of_their_queries() {
        let events = Events::make(30_000).unwrap();
        let bids = events.of("bid").unwrap();
        for number in [0, 1, 2, 5, 12] {
            let script = std::fs::read_to_string(queries().join(format!("q{number}.sql"))).unwrap();
            let plans: Vec<_> = plan(&script).unwrap().iter().map(|sink| sink.input.clone()).collect();
            let count = Rc::new(Cell::new(0));
            let mut program = Program::compile(&plans, vec![Box::new(Count(count.clone()))]).unwrap();
            let source = program.sources().remove(0);
            for turn in &bids.turns {
                let mut batch = Batch::new(&source.types).unwrap();
                for (column, read) in batch.columns.iter_mut().zip(&source.reads) {
                    column.clone_from(&turn.columns[*read]);
                }
                batch.set_rows(turn.rows());
                program.run(0, &batch).unwrap();
            }
            program.finish().unwrap();
            let (rows, _) = by_hand(number, bids).unwrap();
            assert!(rows > 10, "q{number}: {rows}");
            assert_eq!(rows, count.get(), "q{number}");
        }
    }
}
