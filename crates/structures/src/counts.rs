//! How many keys each database holds, for DBSIZE and INFO.
//!
//! Counting must not make writers of different keys meet, so each worker counts into lines of its own
//! and a reader adds all workers up. One worker's number may be negative (it deleted what another
//! wrote); only the sum means something, and only when no write is under way is it exact.
//!
//! A key that expires vanishes without a write: the engine sweeps it whenever it likes and tells nobody.
//! So keys with an expiry time are not counted but filed, under the time slot in which they expire,
//! and a slot is forgotten when it has passed. A slot knows the exact times of a few; hence:
//!
//! 1. A key is counted from the commit that creates it to the commit that deletes it or to the moment in
//!    which it expires. Where more than [`EXACT_TIMES`] times fall into one slot, the keys of the others
//!    are counted to its end, at most [`SLOT_MS`] later. When the engine sweeps it is of no matter.
//! 2. Adding to a slot that has passed changes nothing, so a commit that overtakes an expiry is harmless.
//!
//! Counts are kept over a clean close ([`Counts::encode`]): number of databases (1 byte), for each of them its keys without
//! expiry time (8 bytes), then for each slot: database (1), slot (8), the exact times (4 times 2), the rest (8).
//!
//! A clock that is set forward and back again makes keys that expire in between uncounted until then.
//! Redis counts expired keys until it happens to sweep them; these counts are never behind it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};

// 64 ms: no later than Redis, which sweeps ten times a second. Expiry times spread over a day fall into
// 1,350,000 slots of some 32 bytes: at worst 43 MB per worker, 4 bytes per key for ten million keys.
const SLOT_MS_BITS: u32 = 6;
const SLOT_MS: u64 = 1 << SLOT_MS_BITS;
// As many as make a slot 16 bytes.
const EXACT_TIMES: usize = 4;
const SLOT_BYTES: usize = 1 + 8 + 2 * EXACT_TIMES + 8;
// More are not kept: they would make a large value, and are counted again quickly compared with what is in them.
const SLOTS_KEPT_MAX: usize = 1 << 20;

/// Whether and until when a key lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Not there, or expired.
    Absent,
    /// There, without expiry time.
    Persistent,
    /// There until this time in Unix milliseconds.
    Until(u64),
}

impl Life {
    /// The life of a key that is there.
    pub(crate) fn of(expires_at: Option<u64>) -> Self {
        expires_at.map_or(Self::Persistent, Self::Until)
    }
}

/// A key that came, went, or got another expiry time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) db: u8,
    pub(crate) before: Life,
    pub(crate) after: Life,
}

/// Keys of one database, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) persistent: i64,
    pub(crate) volatile: i64,
}

impl Sum {
    /// Adds a change that is not counted yet.
    pub(crate) fn change(&mut self, before: Life, after: Life) {
        self.add(before, -1);
        self.add(after, 1);
    }

    fn add(&mut self, life: Life, delta: i64) {
        match life {
            Life::Absent => {}
            Life::Persistent => self.persistent += delta,
            Life::Until(_) => self.volatile += delta,
        }
    }
}

/// One worker's share of the counts. Only its worker writes; anybody reads.
#[derive(Debug)]
pub(crate) struct Counts {
    // One per database, rounded up to whole pairs of cache lines.
    persistent: Box<[AtomicI64]>,
    // Held for an instant by the owner per change, and by a reader per DBSIZE.
    volatile: Mutex<Box<[Volatile]>>,
}

/// Keys of one database that have an expiry time, by slot.
#[derive(Clone, Debug, Default)]
struct Volatile {
    slots: BTreeMap<u64, Slot>,
    sum: i64,
}

/// Keys that expire in the same [`SLOT_MS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    // Keys of single milliseconds of the slot; those with a count of 0 are free.
    exact: [Exact; EXACT_TIMES],
    rest: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exact {
    millis: u8,
    count: i8,
}

impl Slot {
    fn add(&mut self, time: u64, delta: i64) {
        let millis = (time % SLOT_MS) as u8;
        let known = self.exact.iter().position(|exact| exact.count != 0 && exact.millis == millis);
        let place = known.or_else(|| self.exact.iter().position(|exact| exact.count == 0));
        if let Some(exact) = place.and_then(|at| self.exact.get_mut(at))
            && let Ok(count) = i8::try_from(i64::from(exact.count) + delta)
        {
            *exact = if count == 0 { Exact::default() } else { Exact { millis, count } };
        } else {
            self.rest += delta;
        }
    }

    fn sum(&self) -> i64 {
        self.rest + self.exact.iter().map(|exact| i64::from(exact.count)).sum::<i64>()
    }

    /// Drops the keys known to have expired by `now`, a time in this slot; how many they were.
    fn forget(&mut self, now: u64) -> i64 {
        let passed = self.exact.iter_mut().filter(|exact| u64::from(exact.millis) <= now % SLOT_MS);
        passed.map(|exact| i64::from(std::mem::take(exact).count)).sum()
    }
}

impl Counts {
    pub(crate) fn new(databases: u8) -> Self {
        let databases = usize::from(databases);
        Self {
            persistent: (0..databases.next_multiple_of(16)).map(|_| AtomicI64::new(0)).collect(),
            volatile: Mutex::new(vec![Volatile::default(); databases].into_boxed_slice()),
        }
    }

    /// Counts a change, at `now`.
    pub(crate) fn change(&self, Change { db, before, after }: Change, now: u64) {
        if before == after {
            return;
        }
        let delta = i64::from(after == Life::Persistent) - i64::from(before == Life::Persistent);
        if delta != 0
            && let Some(count) = self.persistent.get(usize::from(db))
        {
            // Relaxed: a count publishes nothing else. Only this worker writes, so no atomic add.
            count.store(count.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
        }
        if matches!(before, Life::Until(_)) || matches!(after, Life::Until(_)) {
            let mut all = self.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(volatile) = all.get_mut(usize::from(db)) {
                volatile.add(before, -1);
                volatile.add(after, 1);
                // A change adds at most two slots, so dropping two keeps slots that have passed from
                // piling up when nobody asks for counts.
                volatile.forget(now, 2);
            }
        }
    }

    /// Takes over what `other` counted. Neither may be changed by anybody else meanwhile.
    pub(crate) fn absorb(&self, other: &Self) {
        for (mine, theirs) in self.persistent.iter().zip(&other.persistent) {
            mine.fetch_add(theirs.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let mut mine = self.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let theirs = other.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (mine, theirs) in mine.iter_mut().zip(&*theirs) {
            mine.sum += theirs.sum;
            for (slot, theirs) in &theirs.slots {
                let mine = mine.slots.entry(*slot).or_default();
                for exact in &theirs.exact {
                    mine.add(u64::from(exact.millis), i64::from(exact.count));
                }
                mine.rest += theirs.rest;
            }
        }
    }

    /// All of it, to be kept; `None` when that is too much.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let all = self.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if all.iter().map(|volatile| volatile.slots.len()).sum::<usize>() > SLOTS_KEPT_MAX {
            return None;
        }
        let mut bytes = vec![all.len() as u8];
        for count in self.persistent.iter().take(all.len()) {
            bytes.extend_from_slice(&count.load(Ordering::Relaxed).to_le_bytes());
        }
        for (db, volatile) in all.iter().enumerate() {
            for (time, slot) in &volatile.slots {
                bytes.push(db as u8);
                bytes.extend_from_slice(&time.to_le_bytes());
                for exact in &slot.exact {
                    bytes.extend_from_slice(&[exact.millis, exact.count.cast_unsigned()]);
                }
                bytes.extend_from_slice(&slot.rest.to_le_bytes());
            }
        }
        Some(bytes)
    }

    /// What [`Counts::encode`] gave, for as many databases; `None` for anything else.
    pub(crate) fn decode(bytes: &[u8], databases: u8) -> Option<Self> {
        let (&kept, rest) = bytes.split_first()?;
        let (persistent, slots) = rest.split_at_checked(usize::from(kept) * 8)?;
        if kept != databases || !slots.len().is_multiple_of(SLOT_BYTES) {
            return None;
        }
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |word| i64::from_le_bytes(*word));
        let counts = Self::new(databases);
        for (count, bytes) in counts.persistent.iter().zip(persistent.chunks_exact(8)) {
            count.store(word(bytes), Ordering::Relaxed);
        }
        let mut all = counts.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for bytes in slots.chunks_exact(SLOT_BYTES) {
            let volatile = all.get_mut(usize::from(bytes[0]))?;
            let mut slot = Slot { rest: word(&bytes[9 + 2 * EXACT_TIMES..]), ..Slot::default() };
            for (exact, pair) in slot.exact.iter_mut().zip(bytes[9..].chunks_exact(2)) {
                *exact = Exact { millis: pair[0], count: pair[1].cast_signed() };
            }
            volatile.sum += slot.sum();
            volatile.slots.insert(word(&bytes[1..]).cast_unsigned(), slot);
        }
        drop(all);
        Some(counts)
    }

    /// Keys in `db` at `now`, as far as this worker counted them.
    pub(crate) fn read(&self, db: u8, now: u64) -> Sum {
        let persistent = self.persistent.get(usize::from(db)).map_or(0, |n| n.load(Ordering::Relaxed));
        let mut all = self.volatile.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Sum { persistent, volatile: all.get_mut(usize::from(db)).map_or(0, |volatile| volatile.count(now)) }
    }
}

impl Volatile {
    fn add(&mut self, life: Life, delta: i64) {
        if let Life::Until(time) = life {
            self.sum += delta;
            let slot = self.slots.entry(time >> SLOT_MS_BITS).or_default();
            slot.add(time, delta);
            if *slot == Slot::default() {
                self.slots.remove(&(time >> SLOT_MS_BITS));
            }
        }
    }

    /// Drops at most `most` slots that have passed.
    fn forget(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            match self.slots.first_entry() {
                Some(first) if *first.key() < now >> SLOT_MS_BITS => self.sum -= first.remove().sum(),
                _ => break,
            }
        }
    }

    fn count(&mut self, now: u64) -> i64 {
        self.forget(now, usize::MAX);
        if let Some(slot) = self.slots.get_mut(&(now >> SLOT_MS_BITS)) {
            self.sum -= slot.forget(now);
        }
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(counts: &Counts, db: u8, before: Life, after: Life) {
        counts.change(Change { db, before, after }, 0);
    }

    fn read(counts: &Counts, db: u8, now: u64) -> (i64, i64) {
        let Sum { persistent, volatile } = counts.read(db, now);
        (persistent, volatile)
    }

    #[test]
    fn a_key_is_counted_until_it_is_deleted_or_its_slot_has_passed() {
        let counts = Counts::new(16);
        change(&counts, 3, Life::Absent, Life::Persistent);
        change(&counts, 3, Life::Absent, Life::Until(10_000));
        assert_eq!(read(&counts, 3, 0), (1, 1));
        assert_eq!(read(&counts, 0, 0), (0, 0));
        change(&counts, 3, Life::Persistent, Life::Until(20_000));
        assert_eq!(read(&counts, 3, 9_999), (0, 2));
        assert_eq!(read(&counts, 3, 10_000), (0, 1));
        change(&counts, 3, Life::Until(20_000), Life::Absent);
        assert_eq!(read(&counts, 3, 10_000 + SLOT_MS), (0, 0));
    }

    #[test]
    fn a_change_that_overtakes_an_expiry_leaves_the_count_right() {
        let counts = Counts::new(1);
        change(&counts, 0, Life::Absent, Life::Until(1_000));
        assert_eq!(read(&counts, 0, 5_000), (0, 0));
        change(&counts, 0, Life::Until(1_000), Life::Persistent);
        assert_eq!(read(&counts, 0, 5_000), (1, 0));
    }

    #[test]
    fn a_key_put_again_as_soon_as_it_has_expired_is_counted_once() {
        let counts = Counts::new(1);
        change(&counts, 0, Life::Absent, Life::Until(1_000));
        change(&counts, 0, Life::Absent, Life::Until(1_010));
        assert_eq!(read(&counts, 0, 1_005), (0, 1));
        change(&counts, 0, Life::Absent, Life::Until(1_010));
        assert_eq!(read(&counts, 0, 1_009), (0, 2));
        assert_eq!(read(&counts, 0, 1_010), (0, 0));
    }

    #[test]
    fn many_expiry_times_in_one_slot_are_counted_to_its_end() {
        let counts = Counts::new(1);
        for time in 6_400..6_400 + SLOT_MS {
            (0..200).for_each(|_| change(&counts, 0, Life::Absent, Life::Until(time)));
        }
        let all = 200 * SLOT_MS as i64;
        assert_eq!(read(&counts, 0, 6_399).1, all);
        assert!(read(&counts, 0, 6_432).1 >= all / 2);
        assert_eq!(read(&counts, 0, 6_400 + SLOT_MS), (0, 0));
        let other = Counts::new(1);
        (6_500..6_600).for_each(|time| change(&other, 0, Life::Absent, Life::Until(time)));
        counts.absorb(&other);
        assert_eq!(read(&counts, 0, 6_499), (0, 100));
        assert_eq!(read(&counts, 0, 6_700), (0, 0));
    }

    #[test]
    fn what_is_kept_reads_back_and_nothing_else_does() {
        let counts = Counts::new(3);
        change(&counts, 0, Life::Absent, Life::Persistent);
        change(&counts, 2, Life::Persistent, Life::Absent);
        for time in [5_000, 5_001, 5_001, 70_000] {
            change(&counts, 1, Life::Absent, Life::Until(time));
        }
        (0..300).for_each(|_| change(&counts, 2, Life::Absent, Life::Until(9_000)));
        let bytes = counts.encode().unwrap();
        let kept = Counts::decode(&bytes, 3).unwrap();
        for now in [0, 5_000, 5_001, 8_999, 9_000, 69_999, 70_000] {
            for db in 0..3 {
                assert_eq!(read(&kept, db, now), read(&counts, db, now), "database {db} at {now}");
            }
        }
        assert!(Counts::decode(&bytes, 4).is_none());
        for len in [0, 1, 24, bytes.len() - 1] {
            assert!(Counts::decode(&bytes[..len], 3).is_none(), "{len} bytes");
        }
    }

    #[test]
    fn two_workers_add_up() {
        let (one, other) = (Counts::new(1), Counts::new(1));
        change(&one, 0, Life::Absent, Life::Until(9_000));
        change(&other, 0, Life::Until(9_000), Life::Absent);
        assert_eq!(read(&one, 0, 0).1 + read(&other, 0, 0).1, 0);
    }
}
