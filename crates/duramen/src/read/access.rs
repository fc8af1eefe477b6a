//! How often keys are read, for who decides which of them stay ([`crate::background`]'s eviction): a count-min sketch by hash.
//!
//! A word stands for some eight keys. It has 32 counters of 2 bits, or 16 of 4 where more than three reads matter. A key has two
//! counters in the word of its hash, and was read as often as the lower one says, or less. The more counters, the fewer keys look as if
//! they had been read that were not. A read that finds the counters full writes nothing, so the lines of keys that are read all the time
//! stay shared.
//!
//! Keys that are not there are counted too: what is asked for in vain is soon put, and is then known to be wanted.
//!
//! Reads that meet in a word may lose each other's count. Nothing depends on it but what is evicted.
//!
//! Where keys are given up that were not read lately, it is kept too when they were, in a table of fixed size: a word for many keys,
//! which who comes later takes over. Nothing is decided by that, it is told.

use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::current::Current;
use crate::sync::reclaim::{self, Guard};

/// Keys of a word, about.
const KEYS_PER_WORD: u64 = 8;
const WORDS_MIN: u64 = 1 << 10;
/// The most that any counter says.
pub(crate) const READS_MAX: u8 = 15;

/// Words for when keys were read.
const TIMES: usize = 1 << 20;
const TAG_BITS: u32 = 8;

type Words = Box<[AtomicU64]>;
/// The upper bits: of the key's hash; the rest: seconds.
type Times = Box<[AtomicU32]>;

/// How far reads are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// To 3.
    Few,
    /// To [`READS_MAX`].
    Many,
}

impl Counting {
    /// Bits of a counter.
    fn bits(self) -> u32 {
        match self {
            Self::Few => 2,
            Self::Many => 4,
        }
    }
}

/// See the module.
pub(crate) struct Access {
    /// Bits of a counter; 0 while it is off.
    bits: AtomicU32,
    /// A power of two of them; none while it is off.
    words: Current<Words>,
    times: Current<Times>,
}

impl Default for Access {
    fn default() -> Self {
        Self {
            bits: AtomicU32::new(0),
            words: Current::new(Words::default()),
            times: Current::new(Times::default()),
        }
    }
}

/// The word of a hash among so many, and where its counters of so many bits begin in it.
fn place(hash: u64, words: usize, bits: u32) -> (usize, [u32; 2]) {
    // The index uses the hash's upper bits for its buckets: keys of one are not to meet here too.
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let counters = u64::BITS / bits;
    let first = mixed as u32 % counters;
    let second = (first + 1 + (mixed >> 5) as u32 % (counters - 1)) % counters;
    ((mixed >> 8) as usize & (words - 1), [bits * first, bits * second])
}

/// What a counter says that is full.
fn full(bits: u32) -> u8 {
    (1 << bits) - 1
}

fn counter(word: u64, shift: u32, bits: u32) -> u8 {
    (word >> shift) as u8 & full(bits)
}

/// The lower one of two counters.
fn least(word: u64, [one, other]: [u32; 2], bits: u32) -> u8 {
    counter(word, one, bits).min(counter(word, other, bits))
}

fn time_of(times: &Times, hash: u64) -> Option<&AtomicU32> {
    times.get(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 8 & (TIMES - 1))
}

fn tagged(hash: u64, seconds: u32) -> u32 {
    (hash as u32) << (32 - TAG_BITS) | seconds & (u32::MAX >> TAG_BITS)
}

impl Access {
    /// Notes that a key of this hash was asked for. `now`: the time in seconds of any clock, asked for where it is kept.
    #[inline(always)]
    pub(crate) fn touch(&self, hash: u64, now: impl FnOnce() -> u64, guard: &Guard) {
        let bits = self.bits.load(Relaxed);
        if bits != 0 {
            self.count(hash, bits, now, guard);
        }
    }

    #[inline]
    fn count(&self, hash: u64, bits: u32, now: impl FnOnce() -> u64, guard: &Guard) {
        let words = self.words.load(guard);
        if words.is_empty() {
            return;
        }
        if let Some(time) = time_of(self.times.load(guard), hash) {
            let now = tagged(hash, now() as u32);
            if time.load(Relaxed) != now {
                time.store(now, Relaxed);
            }
        }
        let (at, shifts) = place(hash, words.len(), bits);
        let word = words[at].load(Relaxed);
        let least = least(word, shifts, bits);
        if least == full(bits) {
            return;
        }
        // Only the lower one: the other has counted somebody else.
        let mut more = word;
        for shift in shifts {
            more += u64::from(counter(word, shift, bits) == least) << shift;
        }
        words[at].store(more, Relaxed);
    }

    /// The most reads that are told now.
    pub(crate) fn most(&self) -> u8 {
        full(self.bits.load(Relaxed))
    }

    /// How often a key of this hash was read, at most.
    pub(crate) fn reads(&self, hash: u64, guard: &Guard) -> u8 {
        let (words, bits) = (self.words.load(guard), self.bits.load(Relaxed));
        if words.is_empty() || bits == 0 {
            return 0;
        }
        let (at, shifts) = place(hash, words.len(), bits);
        least(words[at].load(Relaxed), shifts, bits)
    }

    /// From now on it was read so often, if that is less than it was.
    pub(crate) fn lower(&self, hash: u64, reads: u8, guard: &Guard) {
        let (words, bits) = (self.words.load(guard), self.bits.load(Relaxed));
        if words.is_empty() || bits == 0 {
            return;
        }
        let (at, shifts) = place(hash, words.len(), bits);
        let mut word = words[at].load(Relaxed);
        for shift in shifts {
            let now = counter(word, shift, bits).min(reads);
            word = word & !(u64::from(full(bits)) << shift) | u64::from(now) << shift;
        }
        words[at].store(word, Relaxed);
    }

    /// When a key of this hash was read last; `None`: that is not known.
    pub(crate) fn read_at(&self, hash: u64, guard: &Guard) -> Option<u64> {
        let time = time_of(self.times.load(guard), hash)?.load(Relaxed);
        let seconds = time & (u32::MAX >> TAG_BITS);
        (time != 0 && tagged(hash, seconds) == time).then_some(u64::from(seconds))
    }

    /// Counts from now on, for some so many keys, or no more; and notes when they are read. Who counts otherwise than before begins anew.
    pub(crate) fn switch(&self, counting: Option<Counting>, keeps_times: bool, keys: u64) {
        let bits = counting.map_or(0, Counting::bits);
        let is_as_before = self.bits.swap(bits, Relaxed) == bits;
        let has_times = !self.times.load(&reclaim::pin()).is_empty();
        if has_times != (bits != 0 && keeps_times) {
            let times = if has_times { 0 } else { TIMES };
            self.times.replace((0..times).map(|_| AtomicU32::new(0)).collect(), &reclaim::pin_to_write());
        }
        if !is_as_before && !self.words.load(&reclaim::pin()).is_empty() {
            self.words.replace(Words::default(), &reclaim::pin_to_write());
        }
        self.fit(keys);
    }

    /// Makes it large enough for so many keys. Each word's counts go to the words that take its place.
    pub(crate) fn fit(&self, keys: u64) {
        let guard = reclaim::pin_to_write();
        let before = self.words.load(&guard);
        let wanted = keys.div_ceil(KEYS_PER_WORD).max(WORDS_MIN).next_power_of_two() as usize;
        if self.bits.load(Relaxed) == 0 || before.len() >= wanted {
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
        let bits = self.bits.load(Relaxed);
        // All but the highest bit of each counter.
        let low =
            (0..u64::BITS).filter(|at| bits != 0 && at % bits != bits - 1).fold(0, |low, at| low | 1 << at);
        for word in self.words.load(&guard) {
            let before = word.load(Relaxed);
            if before != 0 {
                word.store(before >> 1 & low, Relaxed);
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
        access.touch(hash(1), || 0, &guard);
        assert_eq!((access.reads(hash(1), &guard), access.bytes()), (0, 0), "it is off");
        access.switch(Some(Counting::Many), false, 10);
        for _ in 0..5 {
            access.touch(hash(1), || 0, &guard);
        }
        (0..40).for_each(|_| access.touch(hash(2), || 0, &guard));
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        access.fit(1 << 20);
        assert_eq!([1, 2, 3].map(|key| access.reads(hash(key), &guard)), [5, READS_MAX, 0]);
        assert_eq!(access.bytes(), 1 << 20);
        access.halve();
        assert_eq!([1, 2].map(|key| access.reads(hash(key), &guard)), [2, 7]);
        access.lower(hash(2), 3, &guard);
        access.lower(hash(1), 3, &guard);
        assert_eq!([1, 2].map(|key| access.reads(hash(key), &guard)), [2, 3]);
        access.switch(None, false, 0);
        assert_eq!((access.reads(hash(2), &guard), access.bytes()), (0, 0));
    }

    #[test]
    fn it_is_told_when_a_key_was_read() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(Some(Counting::Few), true, 10);
        access.touch(hash(1), || 100, &guard);
        access.touch(hash(2), || 103, &guard);
        assert_eq!([1, 2, 3].map(|key| access.read_at(hash(key), &guard)), [Some(100), Some(103), None]);
    }

    #[test]
    fn few_that_were_not_read_look_as_if_they_were() {
        for (counting, most) in [(Counting::Many, 1_000), (Counting::Few, 300)] {
            let access = Access::default();
            let guard = reclaim::pin();
            access.switch(Some(counting), false, 1 << 16);
            // A quarter of the keys it is for.
            (0..1 << 14).for_each(|key| access.touch(hash(key), || 0, &guard));
            let unread = 1 << 20..(1 << 20) + 10_000;
            let wrong = unread.filter(|&key| access.reads(hash(key), &guard) > 0).count();
            assert!(wrong < most, "{counting:?}: {wrong} of 10,000");
        }
    }

    #[test]
    fn where_few_reads_matter_more_are_not_told() {
        let access = Access::default();
        let guard = reclaim::pin();
        access.switch(Some(Counting::Few), false, 1 << 16);
        for (key, reads) in [(1, 1), (2, 2), (3, 3), (4, 40)] {
            (0..reads).for_each(|_| access.touch(hash(key), || 0, &guard));
        }
        assert_eq!([1, 2, 3, 4, 5].map(|key| access.reads(hash(key), &guard)), [1, 2, 3, access.most(), 0]);
        access.halve();
        assert_eq!([1, 2, 3, 4, 5].map(|key| access.reads(hash(key), &guard)), [0, 1, 1, 1, 0]);
        access.switch(Some(Counting::Many), false, 1 << 16);
        assert_eq!((access.reads(hash(4), &guard), access.most()), (0, READS_MAX), "it begins anew");
    }
}
