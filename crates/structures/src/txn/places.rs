//! Where entries are found by hash: a table of their numbers alone. Keys stay where the entries have them.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

// Slots of a table that has any.
const SLOTS_MIN: usize = 64;

/// Numbers by hash. A number is inserted once, and never taken out but with all others.
#[derive(Default)]
pub(super) struct Places {
    /// A power of two of them, at most half of them taken. Above is the hash, below the number and one; 0 is free. A number
    /// lies in the first slot that was free from the one of its hash on.
    slots: Vec<u64>,
    count: usize,
}

impl Places {
    /// Clients choose the keys, and must not know which of them meet.
    pub(super) fn hash(id: &[u8]) -> u32 {
        static SECRETS: LazyLock<RapidSecrets> =
            LazyLock::new(|| RapidSecrets::seed(RandomState::new().hash_one(())));
        rapidhash_v3_seeded(id, &SECRETS) as u32
    }

    /// The number with this hash that `is_it`.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        loop {
            let slot = *self.slots.get(at).filter(|slot| **slot != 0)?;
            let number = (slot as u32 - 1) as usize;
            if (slot >> 32) as u32 == hash && is_it(number) {
                return Some(number);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a number that is not there.
    pub(super) fn insert(&mut self, hash: u32, number: usize) {
        if (self.count + 1) * 2 > self.slots.len() {
            let wanted = (self.slots.len() * 2).max(SLOTS_MIN);
            let before = std::mem::replace(&mut self.slots, vec![0; wanted]);
            before.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.put(slot));
        }
        self.count += 1;
        self.put(u64::from(hash) << 32 | (number as u64 + 1));
    }

    fn put(&mut self, slot: u64) {
        let mask = self.slots.len() - 1;
        let mut at = (slot >> 32) as usize & mask;
        while self.slots[at] != 0 {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        if self.count > 0 {
            self.slots.fill(0);
            self.count = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_found_also_where_hashes_are_the_same() {
        let mut places = Places::default();
        assert_eq!(places.find(7, |_| true), None);
        for number in 0..1_000 {
            // Each hash three times; the last slots overflow to the first.
            let hash = u32::MAX - number as u32 / 3;
            assert_eq!(places.find(hash, |found| found == number), None);
            places.insert(hash, number);
        }
        for number in 0..1_000 {
            assert_eq!(places.find(u32::MAX - number as u32 / 3, |found| found == number), Some(number));
        }
        places.clear();
        assert_eq!(places.find(u32::MAX, |_| true), None);
        places.insert(u32::MAX, 5);
        assert_eq!(places.find(u32::MAX, |_| true), Some(5));
    }
}
