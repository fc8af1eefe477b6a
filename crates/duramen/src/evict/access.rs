//! How often keys are read, for eviction ([`crate::maintenance`]): 2 bits for each stretch of the medium, since at most
//! three reads matter. A stretch is shorter than most records, so nearly each record has its own. A thread that moves a
//! record moves its count too, and a thread that frees a block clears its counts.
//!
//! A read that finds its counter full writes nothing, so the lines of keys that are read all the time stay shared.
//! Concurrent reads of one word may lose each other's count. Only eviction depends on it.
//!
//! Where eviction chooses keys that were not read recently, the times of reads are kept too, in a table of fixed size.
//! One word serves many keys, and the last reader overwrites it. These times are only reported; nothing is decided by
//! them.

use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use duramen_log::sync::current::Current;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::Offset;
use std::cell::Cell;

thread_local! {
    /// Whether reads of this thread are not counted.
    static IS_UNCOUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read`, whose reads on this thread do not count for eviction.
pub fn uncounted<T>(read: impl FnOnce() -> T) -> T {
    /// Restores the setting, even after a panic.
    struct Restored(bool);

    impl Drop for Restored {
        fn drop(&mut self) {
            IS_UNCOUNTED.set(self.0);
        }
    }

    let _restored = Restored(IS_UNCOUNTED.replace(true));
    read()
}

/// Number of words for the times of reads.
const TIMES: usize = 1 << 20;
const TAG_BITS: u32 = 8;

/// The maximum of a counter of a place.
pub(crate) const READS_MAX: u8 = 3;
/// Bits of a counter of a place, and counters of a word.
const BITS: u32 = 2;
const COUNTERS: u64 = 64 / BITS as u64;
/// Bytes of a stretch, as a power of two: at most this share of an average record, so that counts take less than a byte
/// of DRAM for each. Short records among long ones may share a count, and so are kept more easily: more of them fit.
const STRETCH_SHIFTS: std::ops::RangeInclusive<u32> = 6..=12;
const STRETCH_SHARE: u64 = 2;

type Words = Box<[AtomicU64]>;
/// The upper bits are of the key's hash; the rest are seconds.
type Times = Box<[AtomicU32]>;

/// The counts of places, from the medium's beginning on.
#[derive(Default)]
struct Places {
    /// Logarithm of a stretch's length.
    shift: u32,
    words: Words,
}

impl Places {
    fn new(shift: u32, bytes: u64) -> Self {
        let words = (bytes >> shift).div_ceil(COUNTERS);
        Self { shift, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The word of a place, and the position of its counter in it; `None`: it is beyond the counted range.
    fn counter(&self, at: Offset) -> Option<(&AtomicU64, u32)> {
        let stretch = at.0 >> self.shift;
        let word = self.words.get((stretch / COUNTERS) as usize)?;
        Some((word, BITS * (stretch % COUNTERS) as u32))
    }

    fn count(&self, at: Offset) {
        if let Some((word, shift)) = self.counter(at) {
            let before = word.load(Relaxed);
            if counter(before, shift) < READS_MAX {
                word.store(before + (1 << shift), Relaxed);
            }
        }
    }

    fn reads(&self, at: Offset) -> u8 {
        self.counter(at).map_or(0, |(word, shift)| counter(word.load(Relaxed), shift))
    }

    fn set(&self, at: Offset, reads: u8) {
        if let Some((word, shift)) = self.counter(at) {
            let others = word.load(Relaxed) & !(u64::from(READS_MAX) << shift);
            word.store(others | u64::from(reads.min(READS_MAX)) << shift, Relaxed);
        }
    }

    /// Clears the counters of records that begin in these bytes.
    fn clear(&self, from: Offset, bytes: u64) {
        let (first, end) = (from.0 >> self.shift, (from.0 + bytes).div_ceil(1 << self.shift));
        let mut stretch = first;
        while stretch < end {
            let next = (stretch / COUNTERS + 1) * COUNTERS;
            let Some(word) = self.words.get((stretch / COUNTERS) as usize) else { return };
            let from = BITS * (stretch % COUNTERS) as u32;
            let mut gone = u64::MAX << from;
            if next > end {
                gone &= !(u64::MAX << (BITS * (end % COUNTERS) as u32));
            }
            let before = word.load(Relaxed);
            if before & gone != 0 {
                word.store(before & !gone, Relaxed);
            }
            stretch = next;
        }
    }

    /// The same counts in stretches of another length, for so many bytes.
    fn with(&self, shift: u32, bytes: u64) -> Self {
        let other = Self::new(shift, bytes);
        for (at, word) in self.words.iter().enumerate() {
            let word = word.load(Relaxed);
            for counted in (0..COUNTERS).filter(|_| word != 0) {
                let reads = counter(word, BITS * counted as u32);
                let place = Offset((at as u64 * COUNTERS + counted) << self.shift);
                if reads > other.reads(place) {
                    other.set(place, reads);
                }
            }
        }
        other
    }
}

/// The amounts that the counters must cover.
#[derive(Clone, Copy)]
pub(crate) struct CounterSizing {
    pub keys: u64,
    /// Bytes that are not free.
    pub used_bytes: u64,
    /// Bytes in which records may be.
    pub bytes: u64,
}

/// See the module.
pub(crate) struct Access {
    is_counting: AtomicBool,
    /// Empty while reads are not counted.
    places: Current<Places>,
    times: Current<Times>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            is_counting: AtomicBool::new(false),
            places: Current::new(Places::default()),
            times: Current::new(Times::default()),
        }
    }
}

fn counter(word: u64, shift: u32) -> u8 {
    (word >> shift) as u8 & READS_MAX
}

fn time_of(times: &Times, hash: u64) -> Option<&AtomicU32> {
    times.get(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8 & (TIMES - 1))
}

fn tagged(hash: u64, seconds: u32) -> u32 {
    (hash as u32) << (32 - TAG_BITS) | seconds & (u32::MAX >> TAG_BITS)
}

impl Access {
    /// Notes a read of a key of this hash, found at `at` or absent. `now` is the time in seconds of any clock, called
    /// only where it is kept.
    #[inline(always)]
    pub(crate) fn touch(&self, hash: u64, at: Option<Offset>, now: impl FnOnce() -> u64, guard: &Guard) {
        if self.is_counting() && !IS_UNCOUNTED.get() {
            self.count(hash, at, now, guard);
        }
    }

    #[inline]
    fn count(&self, hash: u64, at: Option<Offset>, now: impl FnOnce() -> u64, guard: &Guard) {
        if let Some(time) = time_of(self.times.load(guard), hash) {
            let now = tagged(hash, now() as u32);
            if time.load(Relaxed) != now {
                time.store(now, Relaxed);
            }
        }
        if let Some(at) = at {
            self.places.load(guard).count(at);
        }
    }

    /// How often the record at `at` was read, if reads are counted.
    pub(crate) fn reads_at(&self, at: Offset, guard: &Guard) -> u8 {
        self.places.load(guard).reads(at)
    }

    /// Sets the number of reads of the record at `at`.
    pub(crate) fn set_at(&self, at: Offset, reads: u8, guard: &Guard) {
        self.places.load(guard).set(at, reads);
    }

    #[inline(always)]
    pub(crate) fn is_counting(&self) -> bool {
        self.is_counting.load(Relaxed)
    }

    /// Moves the count of the record at `from` to `to`.
    pub(crate) fn moved(&self, from: Offset, to: Offset, guard: &Guard) {
        let places = self.places.load(guard);
        if !places.words.is_empty() {
            places.set(to, places.reads(from));
        }
    }

    /// Clears the counts: no records are there any more.
    pub(crate) fn clear(&self, from: Offset, bytes: u64, guard: &Guard) {
        self.places.load(guard).clear(from, bytes);
    }

    /// When a key of this hash was read last; `None`: unknown.
    pub(crate) fn read_at(&self, hash: u64, guard: &Guard) -> Option<u64> {
        let time = time_of(self.times.load(guard), hash)?.load(Relaxed);
        let seconds = time & (u32::MAX >> TAG_BITS);
        (time != 0 && tagged(hash, seconds) == time).then_some(u64::from(seconds))
    }

    /// Starts or stops counting, and keeping the times of reads.
    pub(crate) fn switch(&self, counts: bool, keeps_times: bool, counter_sizing: CounterSizing) {
        self.is_counting.store(counts, Relaxed);
        let has_times = !self.times.load(&reclaim::pin()).is_empty();
        if has_times != (counts && keeps_times) {
            let times = if has_times { 0 } else { TIMES };
            self.times.replace((0..times).map(|_| AtomicU32::new(0)).collect(), &reclaim::pin_to_write());
        }
        if !counts && !self.places.load(&reclaim::pin()).words.is_empty() {
            self.places.replace(Places::default(), &reclaim::pin_to_write());
        }
        self.fit(counter_sizing);
    }

    /// Makes it large enough. The counts stay.
    pub(crate) fn fit(&self, counter_sizing: CounterSizing) {
        if !self.is_counting() {
            return;
        }
        let guard = reclaim::pin_to_write();
        let before = self.places.load(&guard);
        let record = counter_sizing.used_bytes / counter_sizing.keys.max(1);
        let of = |record: u64| {
            let shift = (record / STRETCH_SHARE).max(1).ilog2();
            shift.clamp(*STRETCH_SHIFTS.start(), *STRETCH_SHIFTS.end())
        };
        let shift = match before.words.is_empty() {
            // There may be no keys yet to measure.
            true => *STRETCH_SHIFTS.start(),
            // Not longer at once, or it would change to and fro.
            false => before.shift.clamp(of(record / 5 * 4), of(record)),
        };
        let has_bytes = (before.words.len() as u64 * COUNTERS) << before.shift;
        if has_bytes < counter_sizing.bytes || before.shift != shift {
            self.places.replace(before.with(shift, counter_sizing.bytes.max(has_bytes)), &guard);
        }
    }

    /// Bytes of DRAM used.
    pub(crate) fn bytes(&self) -> u64 {
        let guard = reclaim::pin();
        let places = self.places.load(&guard);
        (size_of_val(&places.words[..]) + size_of_val(&self.times.load(&guard)[..])) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    fn counter_sizing(keys: u64, used_bytes: u64, bytes: u64) -> CounterSizing {
        CounterSizing { keys, used_bytes, bytes }
    }

    #[test]
    fn the_time_of_the_last_read_is_reported() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(true, true, counter_sizing(10, 1 << 10, 1 << 20));
        access.touch(hash(1), None, || 100, &guard);
        access.touch(hash(2), Some(Offset(64)), || 103, &guard);
        assert_eq!([1, 2, 3].map(|key| access.read_at(hash(key), &guard)), [Some(100), Some(103), None]);
    }

    #[test]
    fn reads_are_counted_for_each_place_and_follow_records_and_blocks() {
        let access = Access::default();
        let guard = reclaim::pin();
        let reads = |places: [u64; 4]| places.map(|at| access.reads_at(Offset(at), &guard));
        access.switch(true, false, counter_sizing(0, 0, 1 << 20));
        for (at, reads) in [(64, 1), (128, 2), (192, 3), (4_096, 40), (1 << 20, 1)] {
            (0..reads).for_each(|_| access.touch(0, Some(Offset(at)), || 0, &guard));
        }
        assert_eq!(reads([64, 128, 192, 4_096]), [1, 2, 3, READS_MAX]);
        assert_eq!(reads([0, 256, 1 << 20, 2 << 20]), [0; 4], "places beyond the range are not counted");
        access.moved(Offset(192), Offset(8_192), &guard);
        access.set_at(Offset(128), 1, &guard);
        assert_eq!(reads([128, 192, 8_192, 8_256]), [1, 3, 3, 0]);
        access.clear(Offset(64), 128, &guard);
        assert_eq!(reads([64, 128, 192, 8_192]), [0, 0, 3, 3]);
        access.clear(Offset(128), 8_064, &guard);
        assert_eq!(reads([128, 192, 4_096, 8_192]), [0, 0, 0, 3]);
        access.clear(Offset(0), 1 << 30, &guard);
        assert_eq!(reads([128, 192, 4_096, 8_192]), [0; 4]);
        access.touch(0, Some(Offset(128)), || 0, &guard);
        access.switch(false, false, counter_sizing(0, 0, 1 << 20));
        access.touch(0, Some(Offset(128)), || 0, &guard);
        assert_eq!((reads([128; 4]), access.bytes()), ([0; 4], 0), "counting is off");
    }

    #[test]
    fn counted_ranges_grow_with_the_records_and_keep_their_counts() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(true, false, counter_sizing(0, 0, 1 << 20));
        assert_eq!(access.bytes(), (1 << 20) / 64 / 4);
        (0..2).for_each(|_| access.touch(0, Some(Offset(1_000)), || 0, &guard));
        for (record, stretch, at) in [
            (160, 64, 1_000),
            (310, 64, 1_000),
            (330, 128, 1_000),
            (260, 128, 1_000),
            (250, 64, 896),
            (100_000, 4_096, 896),
            (2_000, 512, 0),
        ] {
            access.fit(counter_sizing(100, record * 100, 2 << 20));
            assert_eq!(access.bytes(), (2 << 20) / stretch / 4, "{record}");
            assert_eq!(access.reads_at(Offset(at), &guard), 2, "{record}");
        }
    }
}
