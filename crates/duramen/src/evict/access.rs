//! How often keys are read, for eviction ([`crate::maintenance`]). Counted in one of two ways:
//!
//! * *by place*, where at most three reads matter: 2 bits for each stretch of the medium. A stretch is shorter than
//!   most records, so nearly each record has its own. A thread that moves a record moves its count too, and a thread
//!   that frees a block clears its counts; or
//! * *by hash*: a count-min sketch. A word serves some eight keys and has 16 counters of 4 bits. A key has two counters
//!   in the word of its hash, and was read at most as often as the lower one counts. Reads of absent keys are not
//!   counted: there are more such keys than counters.
//!
//! A read that finds its counters full writes nothing, so the lines of keys that are read all the time stay shared.
//! Concurrent reads of one word may lose each other's count. Only eviction depends on it.
//!
//! Where eviction chooses keys that were not read recently, the times of reads are kept too, in a table of fixed size.
//! One word serves many keys, and the last reader overwrites it. These times are only reported; nothing is decided by
//! them.

use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::atomic::{AtomicU32, AtomicU64};
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

/// Approximate number of keys of a word.
const KEYS_PER_WORD: u64 = 8;
const WORDS_MIN: u64 = 1 << 10;
/// Bits of a counter.
const BITS: u32 = 4;
/// The maximum of a counter.
pub(crate) const READS_MAX: u8 = 15;

/// Number of words for the times of reads.
const TIMES: usize = 1 << 20;
const TAG_BITS: u32 = 8;

/// The maximum of a counter of a place.
pub(crate) const READS_AT_MAX: u8 = 3;
/// Bits of a counter of a place, and counters of a word.
const AT_BITS: u32 = 2;
const AT_COUNTERS: u64 = 64 / AT_BITS as u64;
/// Bytes of a stretch, as a power of two: at most this share of an average record, so that counts take less than a byte
/// of DRAM for each. Short records among long ones may share a count, and so are kept more easily: more of them fit.
const STRETCH_SHIFTS: std::ops::RangeInclusive<u32> = 6..=12;
const STRETCH_SHARE: u64 = 2;

type Words = Box<[AtomicU64]>;
/// The upper bits are of the key's hash; the rest are seconds.
type Times = Box<[AtomicU32]>;

/// How reads are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Counting {
    /// To [`READS_AT_MAX`].
    ByPlace = 1,
    /// To [`READS_MAX`].
    ByHash = 2,
}

/// The counts of places, from the medium's beginning on.
#[derive(Default)]
struct Places {
    /// Logarithm of a stretch's length.
    shift: u32,
    words: Words,
}

impl Places {
    fn new(shift: u32, bytes: u64) -> Self {
        let words = (bytes >> shift).div_ceil(AT_COUNTERS);
        Self { shift, words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The word of a place, and the position of its counter in it; `None`: it is beyond the counted range.
    fn counter(&self, at: Offset) -> Option<(&AtomicU64, u32)> {
        let stretch = at.0 >> self.shift;
        let word = self.words.get((stretch / AT_COUNTERS) as usize)?;
        Some((word, AT_BITS * (stretch % AT_COUNTERS) as u32))
    }

    fn count(&self, at: Offset) {
        if let Some((word, shift)) = self.counter(at) {
            let before = word.load(Relaxed);
            if counter(before, shift, AT_BITS) < READS_AT_MAX {
                word.store(before + (1 << shift), Relaxed);
            }
        }
    }

    fn reads(&self, at: Offset) -> u8 {
        self.counter(at).map_or(0, |(word, shift)| counter(word.load(Relaxed), shift, AT_BITS))
    }

    fn set(&self, at: Offset, reads: u8) {
        if let Some((word, shift)) = self.counter(at) {
            let others = word.load(Relaxed) & !(u64::from(READS_AT_MAX) << shift);
            word.store(others | u64::from(reads.min(READS_AT_MAX)) << shift, Relaxed);
        }
    }

    /// Clears the counters of records that begin in these bytes.
    fn clear(&self, from: Offset, bytes: u64) {
        let (first, end) = (from.0 >> self.shift, (from.0 + bytes).div_ceil(1 << self.shift));
        let mut stretch = first;
        while stretch < end {
            let next = (stretch / AT_COUNTERS + 1) * AT_COUNTERS;
            let Some(word) = self.words.get((stretch / AT_COUNTERS) as usize) else { return };
            let from = AT_BITS * (stretch % AT_COUNTERS) as u32;
            let mut gone = u64::MAX << from;
            if next > end {
                gone &= !(u64::MAX << (AT_BITS * (end % AT_COUNTERS) as u32));
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
            for counted in (0..AT_COUNTERS).filter(|_| word != 0) {
                let reads = counter(word, AT_BITS * counted as u32, AT_BITS);
                let place = Offset((at as u64 * AT_COUNTERS + counted) << self.shift);
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
    /// A [`Counting`], or 0 while it is off.
    counting: AtomicU32,
    /// The number is a power of two, or 0 while reads are not counted by hash.
    words: Current<Words>,
    /// Empty while reads are not counted by place.
    places: Current<Places>,
    times: Current<Times>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            counting: AtomicU32::new(0),
            words: Current::new(Words::default()),
            places: Current::new(Places::default()),
            times: Current::new(Times::default()),
        }
    }
}

/// The word of a hash among so many, and the positions of its counters in it.
fn place(hash: u64, words: usize) -> (usize, [u32; 2]) {
    // The index uses the hash's upper bits for its buckets: keys of one bucket should not share a word here too.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let counters = u64::BITS / BITS;
    let first = mixed as u32 % counters;
    let second = (first + 1 + (mixed >> 5) as u32 % (counters - 1)) % counters;
    ((mixed >> 8) as usize & (words - 1), [BITS * first, BITS * second])
}

fn counter(word: u64, shift: u32, bits: u32) -> u8 {
    (word >> shift) as u8 & ((1 << bits) - 1)
}

/// The lower one of two counters.
fn least(word: u64, [one, other]: [u32; 2]) -> u8 {
    counter(word, one, BITS).min(counter(word, other, BITS))
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
        let counting = self.counting.load(Relaxed);
        if counting != 0 && !IS_UNCOUNTED.get() {
            self.count(hash, at, counting == Counting::ByPlace as u32, now, guard);
        }
    }

    #[inline]
    fn count(&self, hash: u64, at: Option<Offset>, by_place: bool, now: impl FnOnce() -> u64, guard: &Guard) {
        if let Some(time) = time_of(self.times.load(guard), hash) {
            let now = tagged(hash, now() as u32);
            if time.load(Relaxed) != now {
                time.store(now, Relaxed);
            }
        }
        let Some(at) = at else { return };
        if by_place {
            self.places.load(guard).count(at);
            return;
        }
        let words = self.words.load(guard);
        if words.is_empty() {
            return;
        }
        let (at, shifts) = place(hash, words.len());
        let word = words[at].load(Relaxed);
        let least = least(word, shifts);
        if least == READS_MAX {
            return;
        }
        // Only the lower one: the other has counted another key.
        let mut more = word;
        for shift in shifts {
            more += u64::from(counter(word, shift, BITS) == least) << shift;
        }
        words[at].store(more, Relaxed);
    }

    /// Counts `reads` reads of a key of this hash, if reads are counted by hash.
    pub(crate) fn add(&self, hash: u64, reads: u8, now: u64, guard: &Guard) {
        if self.counting.load(Relaxed) == Counting::ByHash as u32 {
            (0..reads.min(READS_MAX)).for_each(|_| self.count(hash, Some(Offset(0)), false, || now, guard));
        }
    }

    /// How often a key of this hash was read at most, if reads are counted by hash.
    pub(crate) fn reads(&self, hash: u64, guard: &Guard) -> u8 {
        let words = self.words.load(guard);
        if words.is_empty() {
            return 0;
        }
        let (at, shifts) = place(hash, words.len());
        least(words[at].load(Relaxed), shifts)
    }

    /// How often the record at `at` was read, if reads are counted by place.
    pub(crate) fn reads_at(&self, at: Offset, guard: &Guard) -> u8 {
        self.places.load(guard).reads(at)
    }

    /// Sets the number of reads of the record at `at`.
    pub(crate) fn set_at(&self, at: Offset, reads: u8, guard: &Guard) {
        self.places.load(guard).set(at, reads);
    }

    /// Whether reads are counted by place.
    #[inline(always)]
    pub(crate) fn is_by_place(&self) -> bool {
        self.counting.load(Relaxed) == Counting::ByPlace as u32
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

    /// Starts or stops counting, and keeping the times of reads. If the way of counting changes, the counts begin again
    /// from zero.
    pub(crate) fn switch(
        &self,
        counting: Option<Counting>,
        keeps_times: bool,
        counter_sizing: CounterSizing,
    ) {
        let code = counting.map_or(0, |counting| counting as u32);
        self.counting.store(code, Relaxed);
        let has_times = !self.times.load(&reclaim::pin()).is_empty();
        if has_times != (code != 0 && keeps_times) {
            let times = if has_times { 0 } else { TIMES };
            self.times.replace((0..times).map(|_| AtomicU32::new(0)).collect(), &reclaim::pin_to_write());
        }
        if counting != Some(Counting::ByHash) && !self.words.load(&reclaim::pin()).is_empty() {
            self.words.replace(Words::default(), &reclaim::pin_to_write());
        }
        if counting != Some(Counting::ByPlace) && !self.places.load(&reclaim::pin()).words.is_empty() {
            self.places.replace(Places::default(), &reclaim::pin_to_write());
        }
        self.fit(counter_sizing);
    }

    /// Makes it large enough. The counts stay.
    pub(crate) fn fit(&self, counter_sizing: CounterSizing) {
        match self.counting.load(Relaxed) {
            code if code == Counting::ByHash as u32 => self.fit_words(counter_sizing.keys),
            code if code == Counting::ByPlace as u32 => self.fit_places(counter_sizing),
            _ => {}
        }
    }

    /// Each word's counts are copied to the words that replace it.
    fn fit_words(&self, keys: u64) {
        let guard = reclaim::pin_to_write();
        let before = self.words.load(&guard);
        let wanted = keys.div_ceil(KEYS_PER_WORD).max(WORDS_MIN).next_power_of_two() as usize;
        if before.len() >= wanted {
            return;
        }
        let of_old =
            |at: usize| before.get(at & before.len().wrapping_sub(1)).map_or(0, |word| word.load(Relaxed));
        let words = (0..wanted).map(|at| AtomicU64::new(of_old(at))).collect();
        self.words.replace(words, &guard);
    }

    fn fit_places(&self, counter_sizing: CounterSizing) {
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
        let has_bytes = (before.words.len() as u64 * AT_COUNTERS) << before.shift;
        if has_bytes < counter_sizing.bytes || before.shift != shift {
            self.places.replace(before.with(shift, counter_sizing.bytes.max(has_bytes)), &guard);
        }
    }

    /// Halves all counts, if reads are counted by hash.
    pub(crate) fn halve(&self) {
        let guard = reclaim::pin();
        // All but the highest bit of each counter.
        let low = (0..u64::BITS).filter(|at| at % BITS != BITS - 1).fold(0, |low, at| low | 1 << at);
        for word in self.words.load(&guard) {
            let before = word.load(Relaxed);
            if before != 0 {
                word.store(before >> 1 & low, Relaxed);
            }
        }
    }

    /// Bytes of DRAM used.
    pub(crate) fn bytes(&self) -> u64 {
        let guard = reclaim::pin();
        let (words, places) = (self.words.load(&guard), self.places.load(&guard));
        let bytes = size_of_val(&words[..]) + size_of_val(&places.words[..]);
        (bytes + size_of_val(&self.times.load(&guard)[..])) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A found key.
    const AT: Option<Offset> = Some(Offset(64));

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    fn counter_sizing(keys: u64, used_bytes: u64, bytes: u64) -> CounterSizing {
        CounterSizing { keys, used_bytes, bytes }
    }

    #[test]
    fn read_counts_rise_are_halved_and_survive_growth() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.touch(hash(1), AT, || 0, &guard);
        assert_eq!((access.reads(hash(1), &guard), access.bytes()), (0, 0), "counting is off");
        access.switch(Some(Counting::ByHash), false, counter_sizing(10, 0, 0));
        for _ in 0..5 {
            access.touch(hash(1), AT, || 0, &guard);
            access.touch(hash(3), None, || 0, &guard);
        }
        (0..40).for_each(|_| access.touch(hash(2), AT, || 0, &guard));
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        access.fit(counter_sizing(1 << 20, 0, 0));
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        assert_eq!(access.bytes(), 1 << 20);
        access.halve();
        assert_eq!([1, 2].map(|key| access.reads(hash(key), &guard)), [2, 7]);
        access.switch(None, false, counter_sizing(0, 0, 0));
        assert_eq!((access.reads(hash(2), &guard), access.bytes()), (0, 0));
    }

    #[test]
    fn the_time_of_the_last_read_is_reported() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(Some(Counting::ByPlace), true, counter_sizing(10, 1 << 10, 1 << 20));
        access.touch(hash(1), None, || 100, &guard);
        access.touch(hash(2), Some(Offset(64)), || 103, &guard);
        assert_eq!([1, 2, 3].map(|key| access.read_at(hash(key), &guard)), [Some(100), Some(103), None]);
    }

    #[test]
    fn few_unread_keys_count_as_read() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(Some(Counting::ByHash), false, counter_sizing(1 << 16, 0, 0));
        // A quarter of the keys that it is sized for.
        (0..1 << 14).for_each(|key| access.touch(hash(key), AT, || 0, &guard));
        let unread = 1 << 20..(1 << 20) + 10_000;
        let wrong = unread.filter(|&key| access.reads(hash(key), &guard) > 0).count();
        assert!(wrong < 1_000, "{wrong} of 10,000");
    }

    #[test]
    fn reads_are_counted_for_each_place_and_follow_records_and_blocks() {
        let access = Access::default();
        let guard = reclaim::pin();
        let reads = |places: [u64; 4]| places.map(|at| access.reads_at(Offset(at), &guard));
        access.switch(Some(Counting::ByPlace), false, counter_sizing(0, 0, 1 << 20));
        for (at, reads) in [(64, 1), (128, 2), (192, 3), (4_096, 40), (1 << 20, 1)] {
            (0..reads).for_each(|_| access.touch(0, Some(Offset(at)), || 0, &guard));
        }
        assert_eq!(reads([64, 128, 192, 4_096]), [1, 2, 3, READS_AT_MAX]);
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
    }

    #[test]
    fn counted_ranges_grow_with_the_records_and_keep_their_counts() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(Some(Counting::ByPlace), false, counter_sizing(0, 0, 1 << 20));
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
