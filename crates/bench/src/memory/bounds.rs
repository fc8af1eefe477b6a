//! The three figures that bound any store on a medium, each measured in a few hundred milliseconds.
//!
//! * L: a random dependent load of 64 bytes;
//! * W: 256 bytes stored in sequence and persisted;
//! * R: 8 bytes stored at a random place and persisted.
//!
//! W and R use the quickest persist instruction of those that make a store durable on the medium, because no store can
//! be better than a bound. On media that need no flush, and on files, whose pages the kernel writes back, that is a
//! plain store.

use crate::memory::address::{Random, Slots};
use crate::memory::kernel::{Memory, Persist, Width};
use duramen_media::{Granularity, LINE_BYTES, Mapped, Persistent};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The number of addresses generated at a time: 32 KiB of them stay in the caches next to the core.
pub(crate) const BATCH: usize = 4096;
// Large enough that an access misses caches of a few MiB; batches visit new places anyway.
const RANGE_BYTES_MIN: u64 = 1 << 20;
const APPEND_BYTES: u64 = 256;

/// The cost of bare accesses on a medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// L: one random dependent load of 64 bytes, in nanoseconds.
    pub load_ns: f64,
    /// W: one store of 256 bytes right after the previous one, persisted, in nanoseconds.
    pub append_ns: f64,
    /// R: one store of 8 bytes at a random line, persisted, in nanoseconds.
    pub store_ns: f64,
    /// The instruction that persisted W.
    pub append_persist: Persist,
    /// The instruction that persisted R.
    pub store_persist: Persist,
}

/// The persist instructions that make a store durable on `medium`. The plain store if no instruction is needed, or if
/// none reaches the medium.
pub fn persists_of(medium: &Mapped) -> Vec<Persist> {
    let flushing = [Persist::Cache, Persist::CacheInvalidate, Persist::NoCache];
    match medium.granularity() {
        Granularity::CacheLine => flushing.into_iter().filter(|p| p.missing().is_none()).collect(),
        Granularity::Byte | Granularity::Page => vec![Persist::None],
    }
}

/// Measures L, W and R on `range` of `medium`, each for about `time`. **Overwrites the range.**
///
/// The range should be much larger than the caches, and faulted in. The figures are medians of batches, so that a short
/// disturbance does not count.
///
/// # Panics
/// When the range is not inside the medium, is not aligned to a line, or has less than 1 MiB.
pub fn bounds(medium: &mut Mapped, range: Range<u64>, time: Duration) -> Bounds {
    assert!(range.end.saturating_sub(range.start) >= RANGE_BYTES_MIN, "range {range:?} is below 1 MiB");
    assert!(range.start.is_multiple_of(LINE_BYTES), "range {range:?} is not aligned to a line");
    let persists = persists_of(medium);
    let memory = Memory::hold(medium, range);
    let width = Width::widest();
    let mut offsets = vec![0; BATCH];
    let mut random = Random::new(0x5EED);
    let lines = Slots::new(memory.bytes(), LINE_BYTES, None);
    let appends = Slots::new(memory.bytes(), APPEND_BYTES, None);

    let load_ns = median_ns(time, || {
        offsets.fill_with(|| lines.random(&mut random));
        let bound = memory.bind(&mut offsets, LINE_BYTES);
        let start = Instant::now();
        bound.chase(width);
        start.elapsed()
    });
    let share = time / persists.len().max(1) as u32;
    let mut append = (f64::INFINITY, Persist::None);
    let mut store = (f64::INFINITY, Persist::None);
    let mut next = 0;
    for persist in persists {
        let ns = median_ns(share, || {
            offsets.fill_with(|| {
                next += 1;
                appends.at(next)
            });
            let bound = memory.bind(&mut offsets, APPEND_BYTES);
            let start = Instant::now();
            bound.write(width, persist);
            start.elapsed()
        });
        append = if ns < append.0 { (ns, persist) } else { append };
        let ns = median_ns(share, || {
            offsets.fill_with(|| lines.random(&mut random));
            let bound = memory.bind(&mut offsets, 8);
            let start = Instant::now();
            bound.write(width, persist);
            start.elapsed()
        });
        store = if ns < store.0 { (ns, persist) } else { store };
    }
    Bounds {
        load_ns,
        append_ns: append.0,
        store_ns: store.0,
        append_persist: append.1,
        store_persist: store.1,
    }
}

/// Nanoseconds for one access: the median over at least five batches.
fn median_ns(time: Duration, mut batch: impl FnMut() -> Duration) -> f64 {
    let start = Instant::now();
    let mut found = Vec::new();
    while found.len() < 5 || start.elapsed() < time {
        found.push(batch().as_nanos() as f64 / BATCH as f64);
    }
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_media::{FlushInstruction, MediaOptions, MediumKind};
    use std::path::Path;

    #[test]
    fn memory_bounds_are_plausible() {
        for step in [None, Some(FlushInstruction::OrderOnly)] {
            let options = MediaOptions {
                kind: MediumKind::Volatile,
                len_initial: 64 << 20,
                len_max: 64 << 20,
                flush_instruction: step,
                prefault: true,
                ..MediaOptions::default()
            };
            let mut medium = Mapped::open(Path::new("test"), &options).unwrap();
            let found = bounds(&mut medium, 0..64 << 20, Duration::from_millis(20));
            assert!((1.0..100_000.0).contains(&found.load_ns), "{found:?}");
            assert!((0.5..100_000.0).contains(&found.append_ns), "{found:?}");
            assert!((0.2..100_000.0).contains(&found.store_ns), "{found:?}");
            assert_eq!(found.append_persist, Persist::None);
        }
    }

    #[test]
    fn flushing_media_are_measured_with_flushes() {
        let step =
            FlushInstruction::available().into_iter().find(|step| *step != FlushInstruction::OrderOnly);
        let options = MediaOptions {
            kind: MediumKind::Volatile,
            len_initial: 8 << 20,
            len_max: 8 << 20,
            flush_instruction: step,
            ..MediaOptions::default()
        };
        let mut medium = Mapped::open(Path::new("test"), &options).unwrap();
        let found = bounds(&mut medium, 0..8 << 20, Duration::from_millis(10));
        assert!(found.append_persist != Persist::None && found.store_persist != Persist::None, "{found:?}");
    }
}
