//! A medium that counts or times the engine's calls of another one, or leaves out the calls that make stores durable.
//!
//! The engine opens this medium like any other and does not know of the probe. All other calls are passed on.

use duramen_media::{Bytes, Device, Granularity, Medium, Offset, Persistent, Result, lines_of};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What a probe does besides passing calls on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing is flushed or drained, so nothing is durable: stores alone.
    NoPersist,
    /// Bytes, lines and calls of all threads are counted.
    Count,
    /// Calls are timed on threads that asked for it with [`time_this_thread`].
    Time,
}

/// Calls of one kind.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    nanos: AtomicU64,
}

impl Tally {
    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// The total time of the calls, including the reading of the clock.
    pub fn nanos(&self) -> u64 {
        self.nanos.load(Relaxed)
    }
}

/// The counts and times.
#[derive(Debug, Default)]
pub struct Meter {
    /// Stores of record bytes, and the start of their write-back.
    pub write: Tally,
    /// Stores of single words, and their write-back.
    pub word: Tally,
    /// Flushes alone.
    pub flush: Tally,
    /// Waits.
    pub drain: Tally,
    /// Waits for the device.
    pub sync: Tally,
    /// Bytes that were stored.
    pub stored_bytes: AtomicU64,
    /// Bytes of lines that were flushed or stored past the cache.
    pub flushed_bytes: AtomicU64,
}

impl Meter {
    /// Resets all counts and times.
    pub fn reset(&self) {
        for tally in [&self.write, &self.word, &self.flush, &self.drain, &self.sync] {
            tally.calls.store(0, Relaxed);
            tally.nanos.store(0, Relaxed);
        }
        self.stored_bytes.store(0, Relaxed);
        self.flushed_bytes.store(0, Relaxed);
    }
}

/// A memory call that took longer was interrupted and is left out. Waits for a device are all kept.
const CALL_NANOS_MAX: u64 = 50_000;

thread_local! {
    static TIMED: Cell<bool> = const { Cell::new(false) };
}

/// Whether probes of mode [`Mode::Time`] time the calling thread.
pub fn time_this_thread(timed: bool) {
    TIMED.with(|cell| cell.set(timed));
}

/// A medium seen through a probe.
#[derive(Debug)]
pub struct Probe<M> {
    medium: M,
    mode: Mode,
    meter: Arc<Meter>,
}

impl<M: Medium> Probe<M> {
    /// A probe over `medium` that records into `meter`.
    pub fn new(medium: M, mode: Mode, meter: Arc<Meter>) -> Self {
        Self { medium, mode, meter }
    }

    #[inline]
    fn observed<T>(&self, tally: &Tally, call: impl FnOnce() -> T) -> T {
        let most = if std::ptr::eq(tally, &raw const self.meter.sync) { u64::MAX } else { CALL_NANOS_MAX };
        match self.mode {
            Mode::NoPersist => call(),
            Mode::Count => {
                tally.calls.fetch_add(1, Relaxed);
                call()
            }
            Mode::Time if TIMED.with(Cell::get) => {
                let begun = Instant::now();
                let result = call();
                let nanos = begun.elapsed().as_nanos() as u64;
                if nanos <= most {
                    tally.nanos.fetch_add(nanos, Relaxed);
                    tally.calls.fetch_add(1, Relaxed);
                }
                result
            }
            Mode::Time => call(),
        }
    }

    fn count(&self, counter: &AtomicU64, bytes: u64) {
        if self.mode == Mode::Count {
            counter.fetch_add(bytes, Relaxed);
        }
    }

    fn count_flushed(&self, at: Offset, bytes: u64) {
        let lines = lines_of(at.0, bytes);
        self.count(&self.meter.flushed_bytes, lines.end - lines.start);
    }
}

/// What a reading of the clock before and after a call adds to its time.
#[must_use]
pub fn timing_cost() -> Duration {
    let mut costs: Vec<Duration> = (0..10_001)
        .map(|_| {
            let begun = Instant::now();
            begun.elapsed()
        })
        .collect();
    costs.sort_unstable();
    costs[costs.len() / 2]
}

fn bytes_of(parts: &[&[u8]]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

impl<M: Medium> Bytes for Probe<M> {
    fn len(&self) -> u64 {
        self.medium.len()
    }

    #[inline]
    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        self.medium.pointer(at, bytes)
    }

    #[inline]
    fn load_u64(&self, at: Offset) -> u64 {
        self.medium.load_u64(at)
    }

    #[inline]
    fn load_pieces(&self, at: Offset, into: &mut [u8]) {
        self.medium.load_pieces(at, into);
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        self.medium.prefetch(at);
    }
}

impl<M: Medium> Persistent for Probe<M> {
    fn granularity(&self) -> Granularity {
        self.medium.granularity()
    }

    #[inline]
    fn store_u64(&self, at: Offset, word: u64) {
        self.count(&self.meter.stored_bytes, 8);
        self.observed(&self.meter.word, || self.medium.store_u64(at, word));
    }

    #[inline]
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        self.count(&self.meter.stored_bytes, bytes.len() as u64);
        self.observed(&self.meter.word, || self.medium.store_atomic(at, bytes))
    }

    fn atomic_bytes_max(&self) -> u64 {
        self.medium.atomic_bytes_max()
    }

    #[inline]
    fn store(&self, at: Offset, parts: &[&[u8]]) {
        self.count(&self.meter.stored_bytes, bytes_of(parts));
        self.observed(&self.meter.write, || self.medium.store(at, parts));
    }

    #[inline]
    fn write(&self, at: Offset, parts: &[&[u8]]) {
        if self.mode == Mode::NoPersist {
            return self.medium.store(at, parts);
        }
        self.count(&self.meter.stored_bytes, bytes_of(parts));
        self.count_flushed(at, bytes_of(parts));
        self.observed(&self.meter.write, || self.medium.write(at, parts));
    }

    #[inline]
    fn flush(&self, at: Offset, bytes: u64) {
        if self.mode != Mode::NoPersist {
            self.count_flushed(at, bytes);
            self.observed(&self.meter.flush, || self.medium.flush(at, bytes));
        }
    }

    #[inline]
    fn drain(&self) {
        if self.mode != Mode::NoPersist {
            self.observed(&self.meter.drain, || self.medium.drain());
        }
    }

    #[inline]
    fn persist(&self, at: Offset, bytes: u64) {
        self.flush(at, bytes);
        self.drain();
    }

    #[inline]
    fn publish(&self, at: Offset, word: u64) {
        self.store_u64(at, word);
        self.persist(at, 8);
    }

    fn sync(&self) -> Result<()> {
        if self.mode == Mode::NoPersist {
            Ok(())
        } else {
            self.observed(&self.meter.sync, || self.medium.sync())
        }
    }
}

impl<M: Medium> Device for Probe<M> {
    fn len_max(&self) -> u64 {
        self.medium.len_max()
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.medium.grow(len)
    }

    fn unwritten_is_zero(&self) -> bool {
        self.medium.unwritten_is_zero()
    }

    fn interleave(&self) -> (u64, u32) {
        self.medium.interleave()
    }

    fn survives_process(&self) -> bool {
        self.medium.survives_process()
    }

    fn survives_power(&self) -> bool {
        self.medium.survives_power() && self.mode != Mode::NoPersist
    }

    fn release(&self) {
        self.medium.release();
    }

    fn describe(&self) -> String {
        let what = match self.mode {
            Mode::NoPersist => "without any flush or drain",
            Mode::Count => "counted",
            Mode::Time => "timed",
        };
        format!("{}, {what}", self.medium.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_media::{LINE_BYTES, Mapped, MediaOptions, MediumKind};
    use std::path::Path;

    fn memory() -> Mapped {
        let options = MediaOptions { kind: MediumKind::Volatile, ..MediaOptions::default() };
        Mapped::open(Path::new("memory"), &options).unwrap()
    }

    #[test]
    fn bytes_and_lines_are_counted() {
        let meter = Arc::new(Meter::default());
        let probe = Probe::new(memory(), Mode::Count, Arc::clone(&meter));
        probe.write(Offset(60), &[b"12345678"]);
        probe.drain();
        probe.publish(Offset(256), 7);
        assert_eq!(meter.stored_bytes.load(Relaxed), 16);
        assert_eq!(meter.flushed_bytes.load(Relaxed), 3 * LINE_BYTES);
        assert_eq!((meter.write.calls(), meter.word.calls(), meter.drain.calls()), (1, 1, 2));
        assert_eq!(probe.load_u64(Offset(256)), 7);
    }

    #[test]
    fn without_persist_the_written_bytes_are_readable() {
        let meter = Arc::new(Meter::default());
        let probe = Probe::new(memory(), Mode::NoPersist, Arc::clone(&meter));
        probe.write(Offset(64), &[&9u64.to_le_bytes()]);
        probe.drain();
        assert_eq!(probe.load_u64(Offset(64)), 9);
        assert_eq!(meter.drain.calls() + meter.write.calls(), 0);
    }

    #[test]
    fn only_threads_that_asked_are_timed() {
        let meter = Arc::new(Meter::default());
        let probe = Probe::new(memory(), Mode::Time, Arc::clone(&meter));
        probe.drain();
        assert_eq!(meter.drain.calls(), 0);
        time_this_thread(true);
        probe.drain();
        time_this_thread(false);
        assert_eq!(meter.drain.calls(), 1);
    }
}
