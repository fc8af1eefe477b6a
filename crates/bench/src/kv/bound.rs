//! The bound: the time that an operation's memory accesses take alone, on the same medium, in the same run.
//!
//! Three figures are the units of the targets. They are measured on a separate file next to the store, with the store's
//! persist step:
//!
//! * **L**: a load of a random line that the next load's address depends on.
//! * **W**: 256 bytes stored right after the previous ones, flushed and drained.
//! * **R**: 8 bytes stored to a random line, flushed and drained.
//!
//! For each operation, its own accesses are repeated without an engine: a random line of memory as large as the index,
//! which points to a record; the record's lines; a sequential write of a record's bytes, flushed and drained; or 8
//! bytes of a random record. As in the engine, an operation does not wait for the loads of the previous one. A CPU may
//! overlap them, so an operation may take less than 1 L.

use crate::kv::clock::thread_cpu;
use crate::kv::random::{Random, mix};
use crate::kv::{Clock, Op, Result, Shape};
use duramen::{MediumKind, Options};
use duramen_media::{Bytes, Device, LINE_BYTES, Mapped, MediaOptions, Offset, Persistent};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The largest size of the file on which bounds are measured.
const SCRATCH_BYTES_MAX: u64 = 1 << 30;
/// Time for each of L, W and R.
const QUICKEST_TIME: Duration = Duration::from_millis(250);
const SCRATCH_BYTES_MIN: u64 = 16 << 20;
/// The number of batches; a figure is their median.
const BATCHES: u64 = 200;
const LINE_WORDS: u64 = LINE_BYTES / 8;
/// Keys of a `get_many`.
const TOGETHER: usize = 32;
/// Bytes of a record's header in Duramen. A bound allows the engine one header per write.
const HEADER_BYTES: usize = 24;

/// L, W and R, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Units {
    /// A random dependent load.
    pub load: f64,
    /// 256 bytes in sequence, flushed and drained.
    pub write: f64,
    /// 8 bytes at random, flushed and drained.
    pub random: f64,
}

/// The memory's figures with the quickest persist instruction, as `duramen bench mem` measures them.
#[derive(Clone, Debug)]
pub struct Quickest {
    /// L, W and R.
    pub units: Units,
    /// The instructions that persisted W and R.
    pub by: String,
}

/// The places on which bounds are measured: a file next to the store, and memory instead of the index.
#[derive(Debug)]
pub struct Scratch {
    medium: Mapped,
    path: PathBuf,
    index: Mapped,
    /// Lines of the file.
    lines: u64,
    index_lines: u64,
    /// Where the next sequential write goes.
    end: std::cell::Cell<u64>,
}

impl Scratch {
    /// Makes the file next to the store at `path`, opened like the store. It is as large as `keys` records of `shape`
    /// and their index, but at most 1 GiB.
    ///
    /// # Errors
    /// As opening a store.
    pub fn new(path: &Path, options: &Options, shape: Shape, keys: u64) -> Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".bounds");
        let path = PathBuf::from(name);
        let wanted = keys * (shape.bytes() + HEADER_BYTES) as u64;
        let bytes = wanted.clamp(SCRATCH_BYTES_MIN, SCRATCH_BYTES_MAX).next_multiple_of(LINE_BYTES);
        let media = MediaOptions {
            kind: options.medium,
            create: duramen::Create::CreateNew,
            flush_instruction: options.flush_instruction,
            len_initial: bytes,
            prefault: true,
            ..MediaOptions::default()
        };
        let medium = Mapped::open(&path, &media).map_err(crate::kv::place::occupied)?;
        // From here on the file is removed when this value is dropped.
        let memory = MediaOptions { kind: MediumKind::Volatile, ..MediaOptions::default() };
        let index = Mapped::open(Path::new("index"), &memory)?;
        let scratch = Self { medium, path, index, lines: bytes / LINE_BYTES, index_lines: 0, end: 0.into() };
        scratch.filled(keys)
    }

    /// Makes an index whose lines point anywhere in the file.
    fn filled(mut self, keys: u64) -> Result<Self> {
        let mut random = Random::new(self.lines, 2);
        // Duramen's index takes 8 bytes a key at best, about 12 on average.
        self.index_lines = (keys * 12 / LINE_BYTES).max(16);
        self.index.grow(self.index_lines * LINE_BYTES)?;
        for line in 0..self.index_lines {
            for word in 0..LINE_WORDS {
                let to = random.below(self.lines) * LINE_BYTES;
                self.index.store_u64(line_at(line).plus(word * 8), to);
            }
        }
        Ok(self)
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.lines * LINE_BYTES
    }

    /// Measures L, W and R, each over a million accesses or more.
    pub fn units(&self, clock: Clock) -> Units {
        self.link();
        let count = 2_000_000;
        let mut at = 0;
        let load = batches(clock, count, |_| at = self.medium.load_u64(Offset(at)));
        black_box(at);
        let bytes = [3; 256];
        let end = self.bytes() / 256 * 256;
        let write = batches(clock, count, |i| {
            self.medium.write(Offset(i * 256 % end), &[&bytes]);
            self.medium.drain();
        });
        let random = batches(clock, count, |i| self.medium.publish(line_at(mix(i) % self.lines), i));
        Units { load, write, random }
    }

    /// Measures L, W and R with the inner loops of `duramen bench mem`, which take the quickest persist step and not
    /// the store's.
    pub fn quickest(&mut self) -> Quickest {
        let found = crate::memory::bounds(&mut self.medium, 0..self.lines * LINE_BYTES, QUICKEST_TIME);
        let units = Units { load: found.load_ns, write: found.append_ns, random: found.store_ns };
        Quickest { units, by: format!("{:?} and {:?}", found.append_persist, found.store_persist) }
    }

    /// Writes a cycle through all lines of the file, in random order.
    fn link(&self) {
        let mut order: Vec<u32> = (0..self.lines as u32).collect();
        Random::new(self.lines, 1).shuffle(&mut order);
        for (i, line) in order.iter().enumerate() {
            let next = u64::from(order[(i + 1) % order.len()]);
            self.medium.store_u64(line_at(u64::from(*line)), next * LINE_BYTES);
        }
    }

    /// Nanoseconds of the accesses of one `op` on records of `shape`. `None` for a scan: the engine chooses its
    /// accesses.
    pub fn accesses(&self, clock: Clock, op: Op, shape: Shape) -> Option<f64> {
        let record = (shape.bytes() + HEADER_BYTES).next_multiple_of(8);
        let tombstone = (shape.key_bytes() + HEADER_BYTES).next_multiple_of(8);
        let count = (256 << 20) / record.max(256) as u64;
        let count = count.clamp(1000, 1_000_000);
        let mut random = Random::new(count, 2);
        let buffer = vec![5u8; record];
        let mut sum = 0u64;
        let nanos = match op {
            Op::Get => batches(clock, count, |_| {
                let at = self.index_load(&mut random);
                sum ^= self.record_load(at, record);
            }),
            Op::GetMany => {
                let calls = (count / TOGETHER as u64).max(1);
                batches(clock, calls, |_| sum ^= self.together(&mut random, record)) / TOGETHER as f64
            }
            Op::Insert => batches(clock, count, |i| {
                let line = line_at(random.below(self.index_lines));
                self.append(&buffer);
                self.index.store_u64(line, i % self.lines * LINE_BYTES);
            }),
            Op::Overwrite => batches(clock, count, |_| {
                let at = self.index_load(&mut random);
                sum ^= self.record_load(at, 1);
                self.append(&buffer);
            }),
            Op::ReadModifyWrite => batches(clock, count, |_| {
                let at = self.index_load(&mut random);
                sum ^= self.record_load(at, record);
                self.append(&buffer);
            }),
            Op::Delete => batches(clock, count, |_| {
                let at = self.index_load(&mut random);
                sum ^= self.record_load(at, 1);
                self.append(&buffer[..tombstone]);
            }),
            Op::Update => batches(clock, count, |i| {
                let at = self.index_load(&mut random);
                sum ^= self.record_load(at, 1);
                self.medium.publish(Offset(at), i % self.lines * LINE_BYTES);
            }),
            _ => return None,
        };
        black_box(sum);
        Some(nanos)
    }

    /// For each of `ops`, the bare accesses of two threads at once over those of one thread. Each thread has its own
    /// places.
    ///
    /// # Errors
    /// As [`Scratch::new`].
    pub fn two_threads(
        path: &Path,
        options: &Options,
        shape: Shape,
        keys: u64,
        clock: Clock,
        ops: &[Op],
    ) -> Result<Vec<(Op, f64)>> {
        let mut second = path.as_os_str().to_owned();
        second.push("-2");
        let alone = Self::new(path, options, shape, keys)?;
        let mut beside = Self::new(Path::new(&second), options, shape, keys)?;
        let mut times = |&op: &Op| {
            let one = alone.accesses(clock, op, shape)?;
            let begins = Barrier::new(2);
            let timed = &|scratch: &Self| {
                begins.wait();
                scratch.accesses(clock, op, shape)
            };
            let both = std::thread::scope(|scope| {
                let beside = &mut beside;
                let other = scope.spawn(move || timed(beside));
                [timed(&alone), other.join().unwrap_or_else(|p| std::panic::resume_unwind(p))]
            });
            Some((op, one * both.into_iter().flatten().map(f64::recip).sum::<f64>()))
        };
        Ok(ops.iter().filter_map(&mut times).collect())
    }

    /// Describes in words what [`Scratch::accesses`] does.
    #[must_use]
    pub fn describe(op: Op) -> &'static str {
        match op {
            Op::Get => "index line, record's lines",
            Op::GetMany => "32 index lines, then 32 records' lines, each fetched ahead",
            Op::Insert => "index line, record written and drained",
            Op::Overwrite => "index line, old record's first line, record written and drained",
            Op::ReadModifyWrite => "index line, old record's lines, record written and drained",
            Op::Delete => "index line, old record's first line, tombstone written and drained",
            Op::Update => "index line, record's first line, 8 bytes persisted",
            _ => "",
        }
    }

    /// A random word of the index.
    #[inline]
    fn index_word(&self, random: &mut Random) -> Offset {
        let word = random.below(LINE_WORDS) * 8;
        line_at(random.below(self.index_lines)).plus(word)
    }

    #[inline]
    fn index_load(&self, random: &mut Random) -> u64 {
        self.index.load_u64(self.index_word(random)) % self.bytes()
    }

    /// The lines of a record at `at`.
    #[inline]
    fn record_lines(&self, at: u64, bytes: usize) -> impl Iterator<Item = Offset> {
        let lines = (bytes as u64).div_ceil(LINE_BYTES);
        (0..lines).map(move |line| line_at((at / LINE_BYTES + line) % self.lines))
    }

    #[inline]
    fn record_load(&self, at: u64, bytes: usize) -> u64 {
        self.record_lines(at, bytes).fold(0, |sum, line| sum ^ self.medium.load_u64(line))
    }

    /// The accesses of [`TOGETHER`] gets; all accesses of one kind are prefetched before the first of them.
    fn together(&self, random: &mut Random, record: usize) -> u64 {
        let words = [(); TOGETHER].map(|()| self.index_word(random));
        words.iter().for_each(|&word| self.index.prefetch(word));
        let records = words.map(|word| self.index.load_u64(word) % self.bytes());
        records
            .iter()
            .flat_map(|&at| self.record_lines(at, record))
            .for_each(|line| self.medium.prefetch(line));
        records.into_iter().fold(0, |sum, at| sum ^ self.record_load(at, record))
    }

    #[inline]
    fn append(&self, bytes: &[u8]) {
        let mut at = self.end.get();
        if at + bytes.len() as u64 > self.bytes() {
            at = 0;
        }
        self.medium.write(Offset(at), &[bytes]);
        self.medium.drain();
        self.end.set(at + bytes.len() as u64);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[inline]
fn line_at(line: u64) -> Offset {
    Offset(line * LINE_BYTES)
}

/// Nanoseconds of each of `count` calls: the median of batches, so that a short disturbance does not count.
pub(crate) fn batches(clock: Clock, count: u64, mut access: impl FnMut(u64)) -> f64 {
    let each = (count / BATCHES).max(1);
    let mut found = Vec::with_capacity(BATCHES as usize + 1);
    let mut from = 0;
    while from < count {
        let to = (from + each).min(count);
        let (begun, cpu) = (Instant::now(), thread_cpu());
        (from..to).for_each(&mut access);
        let took = match clock {
            Clock::Wall => begun.elapsed(),
            Clock::Cpu => thread_cpu() - cpu,
        };
        found.push(took.as_nanos() as f64 / (to - from) as f64);
        from = to;
    }
    crate::kv::median(&found).unwrap_or_default()
}
