//! How often keys are read, for who decides which of them stay ([`crate::background`]'s eviction): a count-min sketch by hash.
//!
//! A word has 16 counters of 4 bits, and stands for some eight keys. A key has two counters in the word of its hash, and was read as
//! often as the lower one says, or less. A read that finds the counters full writes nothing, so the lines of keys that
//! are read all the time stay shared.
//!
//! Keys that are not there are counted too: what is asked for in vain is soon put, and is then known to be wanted.
//!
//! Reads that meet in a word may lose each other's count. Nothing depends on it but what is evicted.
//!
//! Where keys are given up that were not read lately, it is kept too when they were, in a table of fixed size: a word for many keys,
//! which who comes later takes over. Nothing is decided by that, it is told.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::sync::current::Current;
use crate::sync::reclaim::{self, Guard};

/// Keys of a word, about.
const KEYS_PER_WORD: u64 = 8;
const WORDS_MIN: u64 = 1 << 10;
/// A counter that is full.
pub(crate) const READS_MAX: u8 = 15;
const LOW_BITS: u64 = 0x7777_7777_7777_7777;

/// Words for when keys were read.
const TIMES: usize = 1 << 20;
const TAG_BITS: u32 = 8;

type Words = Box<[AtomicU64]>;
/// The upper bits: of the key's hash; the rest: seconds.
type Times = Box<[AtomicU32]>;

/// See the module.
pub(crate) struct Access {
    is_on: AtomicBool,
    /// A power of two of them; none while it is off.
    words: Current<Words>,
    times: Current<Times>,
    /// Seconds, as the store's own thread last knew.
    now: AtomicU32,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            words: Current::new(Words::default()),
            times: Current::new(Times::default()),
            now: AtomicU32::new(0),
        }
    }
}

/// The word of a hash among so many, and where its counters begin in it.
fn place(hash: u64, words: usize) -> (usize, [u32; 2]) {
    // The index uses the hash's upper bits for its buckets: keys of one are not to meet here too.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (mixed & 15) as u32;
    let second = (first + 1 + (mixed >> 4) as u32 % 15) % 16;
    ((mixed >> 8) as usize & (words - 1), [4 * first, 4 * second])
}

fn counter(word: u64, shift: u32) -> u8 {
    (word >> shift & 15) as u8
}

fn time_of(times: &Times, hash: u64) -> Option<&AtomicU32> {
    times.get(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8 & (TIMES - 1))
}

fn tagged(hash: u64, seconds: u32) -> u32 {
    (hash as u32) << (32 - TAG_BITS) | seconds & (u32::MAX >> TAG_BITS)
}

impl Access {
    /// Notes that a key of this hash was asked for.
    #[inline(always)]
    pub(crate) fn touch(&self, hash: u64, guard: &Guard) {
        if self.is_on.load(Relaxed) {
            self.count(hash, guard);
        }
    }

    #[inline]
    fn count(&self, hash: u64, guard: &Guard) {
        let words = self.words.load(guard);
        if words.is_empty() {
            return;
        }
        if let Some(time) = time_of(self.times.load(guard), hash) {
            let now = tagged(hash, self.now.load(Relaxed));
            if time.load(Relaxed) != now {
                time.store(now, Relaxed);
            }
        }
        let (at, shifts) = place(hash, words.len());
        let word = words[at].load(Relaxed);
        let least = shifts.map(|shift| counter(word, shift)).into_iter().min().unwrap_or(READS_MAX);
        if least == READS_MAX {
            return;
        }
        // Only the lower one: the other has counted somebody else.
        let mut more = word;
        for shift in shifts {
            more += u64::from(counter(word, shift) == least) << shift;
        }
        words[at].store(more, Relaxed);
    }

    /// How often a key of this hash was read, at most.
    pub(crate) fn reads(&self, hash: u64, guard: &Guard) -> u8 {
        let words = self.words.load(guard);
        if words.is_empty() {
            return 0;
        }
        let (at, shifts) = place(hash, words.len());
        let word = words[at].load(Relaxed);
        shifts.map(|shift| counter(word, shift)).into_iter().min().unwrap_or(0)
    }

    /// From now on it was read so often, if that is less than it was.
    pub(crate) fn lower(&self, hash: u64, reads: u8, guard: &Guard) {
        let words = self.words.load(guard);
        if words.is_empty() {
            return;
        }
        let (at, shifts) = place(hash, words.len());
        let mut word = words[at].load(Relaxed);
        for shift in shifts {
            let now = counter(word, shift).min(reads);
            word = word & !(15 << shift) | u64::from(now) << shift;
        }
        words[at].store(word, Relaxed);
    }

    /// The time now, in seconds of any clock.
    pub(crate) fn set_now(&self, seconds: u64) {
        if self.is_on.load(Relaxed) {
            self.now.store(seconds as u32, Relaxed);
        }
    }

    /// When a key of this hash was read last; `None`: that is not known.
    pub(crate) fn read_at(&self, hash: u64, guard: &Guard) -> Option<u64> {
        let time = time_of(self.times.load(guard), hash)?.load(Relaxed);
        let seconds = time & (u32::MAX >> TAG_BITS);
        (time != 0 && tagged(hash, seconds) == time).then_some(u64::from(seconds))
    }

    /// Counts from now on, for some so many keys, or no more; and notes when they are read.
    pub(crate) fn switch(&self, is_on: bool, keeps_times: bool, keys: u64) {
        self.is_on.store(is_on, Relaxed);
        let has_times = !self.times.load(&reclaim::pin()).is_empty();
        if has_times != (is_on && keeps_times) {
            let times = if has_times { 0 } else { TIMES };
            self.times.replace((0..times).map(|_| AtomicU32::new(0)).collect(), &reclaim::pin_to_write());
        }
        if is_on {
            self.fit(keys);
        } else if !self.words.load(&reclaim::pin()).is_empty() {
            self.words.replace(Words::default(), &reclaim::pin_to_write());
        }
    }

    /// Makes it large enough for so many keys. Each word's counts go to the words that take its place.
    pub(crate) fn fit(&self, keys: u64) {
        let guard = reclaim::pin_to_write();
        let before = self.words.load(&guard);
        let wanted = keys.div_ceil(KEYS_PER_WORD).max(WORDS_MIN).next_power_of_two() as usize;
        if !self.is_on.load(Relaxed) || before.len() >= wanted {
            return;
        }
        let of_old =
            |at: usize| before.get(at & before.len().wrapping_sub(1)).map_or(0, |word| word.load(Relaxed));
        let words = (0..wanted).map(|at| AtomicU64::new(of_old(at))).collect();
        self.words.replace(words, &guard);
    }

    /// All have been read half as often.
    pub(crate) fn halve(&self) {
        let guard = reclaim::pin();
        for word in self.words.load(&guard) {
            let before = word.load(Relaxed);
            if before != 0 {
                word.store(before >> 1 & LOW_BITS, Relaxed);
            }
        }
    }

    /// DRAM that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let guard = reclaim::pin();
        (size_of_val(&self.words.load(&guard)[..]) + size_of_val(&self.times.load(&guard)[..])) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        rapidhash::v3::rapidhash_v3(&key.to_le_bytes())
    }

    #[test]
    fn reads_are_counted_and_halved_and_outlive_growth() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.touch(hash(1), &guard);
        assert_eq!((access.reads(hash(1), &guard), access.bytes()), (0, 0), "it is off");
        access.switch(true, false, 10);
        for _ in 0..5 {
            access.touch(hash(1), &guard);
        }
        (0..40).for_each(|_| access.touch(hash(2), &guard));
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        access.fit(1 << 20);
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        assert_eq!(access.bytes(), 1 << 20);
        access.halve();
        assert_eq!([1, 2].map(|key| access.reads(hash(key), &guard)), [2, 7]);
        access.lower(hash(2), 3, &guard);
        access.lower(hash(1), 3, &guard);
        assert_eq!([1, 2].map(|key| access.reads(hash(key), &guard)), [2, 3]);
        access.switch(false, false, 0);
        assert_eq!((access.reads(hash(2), &guard), access.bytes()), (0, 0));
    }

    #[test]
    fn it_is_told_when_a_key_was_read() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(true, true, 10);
        access.set_now(100);
        access.touch(hash(1), &guard);
        access.set_now(103);
        access.touch(hash(2), &guard);
        assert_eq!([1, 2, 3].map(|key| access.read_at(hash(key), &guard)), [Some(100), Some(103), None]);
    }

    #[test]
    fn few_that_were_not_read_look_as_if_they_were() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(true, false, 1 << 16);
        // A third of the keys it is for.
        (0..1 << 14).for_each(|key| access.touch(hash(key), &guard));
        let wrong = (1 << 20..(1 << 20) + 10_000).filter(|&key| access.reads(hash(key), &guard) > 0).count();
        assert!(wrong < 1_000, "{wrong} of 10,000");
    }
}
