//! Records of 32 bytes: time, key, value and one more, by columns.

use duramen_stream::Result;
use duramen_stream::batch::{Batch, Values};
use duramen_stream::run::RowSource;
use serde_json::{Value, json};

/// Records of a batch, as the engine asks for them.
pub const BATCH: usize = duramen_stream::run::BATCH_ROWS;
/// Length of a window, in microseconds.
pub const SIZE: i64 = 60_000_000;
/// The delay of the watermark after the greatest time.
pub const DELAY: i64 = 5_000_000;

/// Time, key, value, one more.
pub type Columns = [Vec<i64>; 4];

/// Makes the records: keys at random, times that rise by the same step.
#[derive(Debug, Clone)]
pub struct Generator {
    keys: u64,
    random: u64,
    /// The time from record to record, in 1,024ths of a microsecond.
    step: i64,
    next: u64,
}

impl Generator {
    /// A generator with so many keys, and so many records in a window.
    pub fn new(keys: u64, per_window: u64) -> Self {
        Generator { keys, random: 1, step: SIZE * 1024 / per_window as i64, next: 0 }
    }

    /// The number of records made.
    pub fn made(&self) -> u64 {
        self.next
    }

    /// Replaces the content of the columns with the next batch.
    pub fn fill(&mut self, [times, keys, values, extras]: &mut Columns) {
        // 2020-01-01.
        const BEGIN: i64 = 1_577_836_800_000_000;
        for column in [&mut *times, &mut *keys, &mut *values, &mut *extras] {
            column.clear();
        }
        // A linear congruential generator: the high bits choose the key.
        let random = &mut self.random;
        extras.extend((0..BATCH).map(|_| {
            *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *random as i64
        }));
        let (first, step, count) = (self.next as i64, self.step, self.keys);
        times.extend((0..BATCH as i64).map(|row| BEGIN + (((first + row) * step) >> 10) / 1000 * 1000));
        keys.extend(extras.iter().map(|random| (((*random as u64 >> 32) * count) >> 32) as i64));
        values.extend(extras.iter().map(|random| random & 0xff));
        self.next += BATCH as u64;
    }
}

/// Observes a source and may make it wait.
pub trait Watch: Send {
    /// Whether the source returns nothing for now.
    fn waits(&mut self, made: u64) -> bool;

    /// A checkpoint has taken the source's position.
    fn kept(&self, made: u64);

    /// A batch was made; `made` is the number of records including it.
    fn gave(&mut self, made: u64);
}

/// The generator as a source of a job.
pub struct Made<W> {
    generator: Generator,
    buffer: Columns,
    /// The columns that the job reads.
    reads: Vec<usize>,
    watch: W,
}

impl<W: Watch> Made<W> {
    /// A source of the columns in `reads`.
    pub fn new(generator: Generator, reads: &[usize], watch: W) -> Self {
        Made { generator, buffer: Columns::default(), reads: reads.to_vec(), watch }
    }
}

impl<W: Watch> RowSource for Made<W> {
    fn read_rows(&mut self, batch: &mut Batch, _: usize) -> Result<bool> {
        if self.watch.waits(self.generator.next) {
            return Ok(true);
        }
        self.generator.fill(&mut self.buffer);
        for (column, read) in batch.columns.iter_mut().zip(&self.reads) {
            if let Values::Int(values) = &mut column.values {
                std::mem::swap(values, &mut self.buffer[*read]);
            }
        }
        batch.set_rows(BATCH);
        self.watch.gave(self.generator.next);
        Ok(true)
    }

    fn position(&self) -> Value {
        self.watch.kept(self.generator.next);
        json!({ "next": self.generator.next, "random": self.generator.random })
    }

    fn seek(&mut self, position: &Value) -> Result<()> {
        self.generator.next = position["next"].as_u64().unwrap_or(0);
        self.generator.random = position["random"].as_u64().unwrap_or(1);
        Ok(())
    }
}
