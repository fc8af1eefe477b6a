//! The headline query, compiled and by hand: 60 s tumbling sums by key over records of 32 bytes, by event time, one
//! thread, the generator in the process, state in memory.
//!
//! `cargo run --release -p duramen-stream --example headline [-- --quick]`
//!
//! With `-- --checkpoints DIRECTORY [--quick]` the same job runs with checkpoints in a store there and without, in turn: how many
//! records a second of the clock, and for how long checkpoints keep rows waiting.
//!
//! Both read the same batches from the same generator, run in turn, five times each. Time is that of the CPU, because
//! others may use the machine; the generator alone is measured beside. The hand-written loop has the same semantics:
//! watermark 5 s behind the greatest time, late rows dropped, a window's sums given when the watermark passes its end.

#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use duramen_stream::batch::{Batch, Values};
use duramen_stream::compile::{Output, Program, Rows};
use duramen_stream::plan::Sink;
use duramen_stream::run::{Fill, Keep, Progress, Running};
use duramen_stream::{Outcome, Result, Session};
use rustix::time::{ClockId, clock_gettime};

const SCRIPT: &str = "
CREATE TABLE t (ts TIMESTAMP(3) NOT NULL, k BIGINT NOT NULL, v BIGINT NOT NULL, x BIGINT NOT NULL,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'datagen');
CREATE TABLE o (k BIGINT NOT NULL, wstart TIMESTAMP(3) NOT NULL, wend TIMESTAMP(3) NOT NULL, s BIGINT NOT NULL)
  WITH ('connector' = 'blackhole');
INSERT INTO o SELECT k, window_start, window_end, SUM(v)
FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '60' SECOND)) GROUP BY k, window_start, window_end;";

const BATCH: usize = 4096;
const SIZE: i64 = 60_000_000;
const DELAY: i64 = 5_000_000;
const ROUNDS: usize = 5;

/// Records of 32 bytes: time, key, value and one more, by columns.
struct Generator {
    keys: u64,
    random: u64,
    time: i64,
    step: i64,
}

impl Generator {
    fn new(keys: u64, per_window: u64) -> Self {
        Generator { keys, random: 1, time: 1_577_836_800_000_000, step: SIZE * 1024 / per_window as i64 }
    }

    fn fill(&mut self, [times, keys, values, extras]: &mut [Vec<i64>; 4], first: u64) {
        for row in 0..BATCH {
            // A linear congruence: the high bits choose the key.
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let passed = ((first as i64 + row as i64) * self.step) >> 10;
            times[row] = self.time + passed / 1000 * 1000;
            keys[row] = (((self.random >> 32) * self.keys) >> 32) as i64;
            values[row] = (self.random & 0xff) as i64;
            extras[row] = self.random as i64;
        }
    }
}

/// What both give, to see that they are the same: rows, and a sum over all of them.
#[derive(Default, Debug, PartialEq, Clone, Copy)]
struct Given {
    rows: u64,
    sum: i64,
}

/// What one row adds to the sum, whatever the order.
fn digest(key: i64, start: i64, sum: i64) -> i64 {
    key.wrapping_mul(31).wrapping_add(start).wrapping_mul(sum.wrapping_add(7))
}

struct Count(Rc<RefCell<Given>>);

impl Output for Count {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut given = self.0.borrow_mut();
        given.rows += rows.len() as u64;
        rows.each_ints(&mut |fields: &[i64]| {
            given.sum = given.sum.wrapping_add(digest(fields[0], fields[1], fields[3]));
        });
        Ok(())
    }
}

/// The loop that one would write: a table with linear probing for the open window.
struct ByHand {
    windows: Vec<(i64, Vec<[i64; 2]>, u64)>,
    spare: Vec<Vec<[i64; 2]>>,
    watermark: i64,
    given: Given,
}

const EMPTY: i64 = i64::MIN;

impl ByHand {
    fn hash(key: i64) -> u64 {
        let product = u128::from(key as u64 ^ 0x5bd1_e995) * u128::from(0x9e37_79b9_7f4a_7c15u64);
        (product >> 64) as u64 ^ product as u64
    }

    fn add(table: &mut [[i64; 2]], key: i64, value: i64) -> bool {
        let mask = table.len() - 1;
        let mut place = Self::hash(key) as usize & mask;
        loop {
            let entry = &mut table[place];
            if entry[0] == key {
                entry[1] += value;
                return false;
            }
            if entry[0] == EMPTY {
                *entry = [key, value];
                return true;
            }
            place = (place + 1) & mask;
        }
    }

    fn batch(&mut self, columns: &[Vec<i64>; 4]) {
        let [times, keys, values, _] = columns;
        let (mut start, mut current) = (i64::MIN, usize::MAX);
        for ((ts, key), value) in times.iter().zip(keys).zip(values) {
            if current == usize::MAX || (ts - start) as u64 >= SIZE as u64 {
                start = ts.div_euclid(SIZE) * SIZE;
                if start + SIZE - 1000 <= self.watermark {
                    current = usize::MAX;
                    continue;
                }
                current = match self.windows.iter().position(|window| window.0 == start) {
                    Some(place) => place,
                    None => {
                        let table = self.spare.pop().unwrap_or_else(|| vec![[EMPTY, 0]; 64]);
                        self.windows.push((start, table, 0));
                        self.windows.len() - 1
                    }
                };
            }
            let (_, table, count) = &mut self.windows[current];
            if Self::add(table, *key, *value) {
                *count += 1;
                if *count >= table.len() as u64 / 16 * 11 {
                    let mut larger = vec![[EMPTY, 0]; table.len() * 2];
                    for entry in table.iter().filter(|entry| entry[0] != EMPTY) {
                        Self::add(&mut larger, entry[0], entry[1]);
                    }
                    *table = larger;
                }
            }
            let bound = ts - DELAY;
            if bound > self.watermark {
                self.watermark = bound;
                if self.windows.iter().any(|window| window.0 + SIZE - 1000 <= bound) {
                    self.close(bound);
                    current = usize::MAX;
                }
            }
        }
    }

    fn close(&mut self, watermark: i64) {
        let mut at = 0;
        while at < self.windows.len() {
            if self.windows[at].0 + SIZE - 1000 > watermark {
                at += 1;
                continue;
            }
            let (start, mut table, _) = self.windows.swap_remove(at);
            for entry in table.iter().filter(|entry| entry[0] != EMPTY) {
                self.given.rows += 1;
                self.given.sum = self.given.sum.wrapping_add(digest(entry[0], start, entry[1]));
            }
            table.fill([EMPTY, 0]);
            self.spare.push(table);
        }
    }
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn timed(run: impl FnOnce()) -> (f64, f64) {
    let (cpu_began, began) = (cpu(), Instant::now());
    run();
    (cpu() - cpu_began, began.elapsed().as_secs_f64())
}

fn job() -> Vec<Sink> {
    let Some(Outcome::Job(job)) = Session::default().run(SCRIPT).unwrap().pop() else {
        std::process::exit(1)
    };
    job.optimised
}

fn program() -> (Program, Rc<RefCell<Given>>) {
    let given = Rc::new(RefCell::new(Given::default()));
    let plans = vec![job()[0].input.clone()];
    (Program::compile(&plans, vec![Box::new(Count(given.clone()))]).unwrap(), given)
}

fn columns() -> [Vec<i64>; 4] {
    std::array::from_fn(|_| vec![0; BATCH])
}

fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn measure(keys: u64, per_window: u64, events: u64) {
    let batches = events / BATCH as u64;
    let events = batches * BATCH as u64;
    let (mut alone, mut hand, mut machine, mut ratios) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let mut buffer = columns();
        let mut generator = Generator::new(keys, per_window);
        let mut sum = 0i64;
        let (time, _) = timed(|| {
            for batch in 0..batches {
                generator.fill(&mut buffer, batch * BATCH as u64);
                sum = sum.wrapping_add(buffer[3][BATCH - 1]);
            }
        });
        std::hint::black_box(sum);
        alone.push(time);

        let mut generator = Generator::new(keys, per_window);
        let mut by_hand =
            ByHand { windows: vec![], spare: vec![], watermark: i64::MIN, given: Given::default() };
        let (hand_time, _) = timed(|| {
            for batch in 0..batches {
                generator.fill(&mut buffer, batch * BATCH as u64);
                by_hand.batch(&buffer);
            }
            by_hand.close(i64::MAX);
        });
        let wanted = by_hand.given;
        drop(by_hand);

        let mut generator = Generator::new(keys, per_window);
        let (mut program, given) = program();
        let types = program.sources()[0].types.clone();
        let reads = program.sources()[0].reads.clone();
        let mut batch = Batch::new(&types).unwrap();
        for column in &mut batch.columns {
            column.values = Values::Int(vec![0; BATCH]);
        }
        batch.set_rows(BATCH);
        let (time, _) = timed(|| {
            for number in 0..batches {
                generator.fill(&mut buffer, number * BATCH as u64);
                // The columns are lent, not copied.
                for (column, read) in batch.columns.iter_mut().zip(&reads) {
                    if let Values::Int(values) = &mut column.values {
                        std::mem::swap(values, &mut buffer[*read]);
                    }
                }
                program.run(0, &batch).unwrap();
                for (column, read) in batch.columns.iter_mut().zip(&reads) {
                    if let Values::Int(values) = &mut column.values {
                        std::mem::swap(values, &mut buffer[*read]);
                    }
                }
            }
            program.finish().unwrap();
        });
        assert_eq!(*given.borrow(), wanted, "both give the same");
        hand.push(hand_time);
        machine.push(time);
        ratios.push(hand_time / time);
    }
    let rate = |times: Vec<f64>| {
        let (middle, least, most) = median(times);
        let rate = |time: f64| events as f64 / time / 1e6;
        format!("{:.1} M/s ({:.1} to {:.1})", rate(middle), rate(most), rate(least))
    };
    let (ratio, least, most) = median(ratios);
    println!("{keys} keys, {events} events, {per_window} a window, CPU time, median of {ROUNDS} (range):");
    println!("  generator alone  {}", rate(alone));
    println!("  by hand          {}", rate(hand));
    println!("  compiled         {}", rate(machine));
    println!("  compiled : hand  {ratio:.2} ({least:.2} to {most:.2})");
}

/// The generator as a source of a running job.
struct Made {
    generator: Generator,
    buffer: [Vec<i64>; 4],
    reads: Vec<usize>,
    next: u64,
    events: u64,
}

impl Fill for Made {
    fn fill(&mut self, batch: &mut Batch, _: usize) -> Result<bool> {
        self.generator.fill(&mut self.buffer, self.next);
        for (column, read) in batch.columns.iter_mut().zip(&self.reads) {
            if let Values::Int(values) = &mut column.values {
                values.extend_from_slice(&self.buffer[*read]);
            }
        }
        batch.set_rows(BATCH);
        self.next += BATCH as u64;
        Ok(self.next < self.events)
    }

    fn position(&self) -> serde_json::Value {
        serde_json::json!({ "next": self.next, "random": self.generator.random })
    }

    fn seek(&mut self, position: &serde_json::Value) -> Result<()> {
        self.next = position["next"].as_u64().unwrap_or(0);
        self.generator.random = position["random"].as_u64().unwrap_or(1);
        Ok(())
    }
}

/// One run, with checkpoints every so often or without.
fn run(keys: u64, per_window: u64, events: u64, keep: Option<&Keep>) -> Progress {
    let mut own = |_: &_, source: &duramen_stream::compile::Source| {
        let made = Made {
            generator: Generator::new(keys, per_window),
            buffer: columns(),
            reads: source.reads.clone(),
            next: 0,
            events,
        };
        Ok(Some(Box::new(made) as Box<dyn Fill>))
    };
    let mut running = Running::start_with(&job(), Path::new("."), keep, &mut own).unwrap();
    running.run(&AtomicBool::new(false), |_| ()).unwrap()
}

fn checkpoints(directory: &Path, keys: u64, per_window: u64, events: u64, every: Duration) {
    let millions = |progress: &Progress| progress.records as f64 / progress.elapsed.as_secs_f64() / 1e6;
    let (mut without, mut with, mut ratios, mut last) = (vec![], vec![], vec![], None);
    for _ in 0..ROUNDS {
        let plain = millions(&run(keys, per_window, events, None));
        let place = tempfile::tempdir_in(directory).unwrap();
        let options =
            duramen::Options { durability: duramen::Durability::Manual, ..duramen::Options::default() };
        let store = options.open(place.path().join("store")).unwrap();
        let keep = Keep { store, name: "headline".to_owned(), every, from_start: false, note: String::new() };
        let kept = run(keys, per_window, events, Some(&keep));
        without.push(plain);
        with.push(millions(&kept));
        ratios.push(millions(&kept) / plain);
        last = kept.checkpoints;
    }
    let text = |values: Vec<f64>| {
        let (middle, least, most) = median(values);
        format!("{middle:.2} ({least:.2} to {most:.2})")
    };
    println!("{keys} keys, {events} events, a checkpoint every {every:?}, median of {ROUNDS} (range):");
    println!("  without  {} M/s", text(without));
    println!("  with     {} M/s", text(with));
    println!("  ratio    {}", text(ratios));
    println!("  last run {last:?}");
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let part = if quick { 10 } else { 1 };
    let mut args = std::env::args().skip_while(|arg| arg != "--checkpoints").skip(1);
    if let Some(directory) = args.next() {
        let directory = Path::new(&directory);
        for every in if quick { &[1][..] } else { &[1, 10] } {
            let every = Duration::from_secs(*every);
            checkpoints(directory, 15_000, 2_000_000, 600_000_000 / part, every);
            checkpoints(directory, 10_000_000, 50_000_000, 300_000_000 / part, every);
        }
        return;
    }
    let (program, _) = program();
    println!("compiled in {:.1} ms", program.compiled_in().as_secs_f64() * 1e3);
    if std::env::args().any(|arg| arg == "--code") {
        println!("{}", program.listing());
        return;
    }
    measure(15_000, 2_000_000, 60_000_000 / part);
    measure(10_000_000, 50_000_000, 100_000_000 / part);
}
