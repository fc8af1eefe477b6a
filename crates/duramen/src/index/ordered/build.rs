//! An index made at once, of all its slots: recovery finds them in no order, and a descent for each would take ten times as
//! long.
//!
//! The slots are sorted by the 16 bytes of their keys behind those that all keys share, and by their records where these do
//! not tell. Then leaves are filled from left to right. On several threads: a sample of the keys says where to part them, each part is sorted by
//! one thread, and the leaves of each are a chain of their own ([`super::chain`]).

use super::OrderedIndex;
use super::key::{shared_bytes, word_at};
use super::node::{Order, skip_between};
use crate::format::Version;
use crate::index::{KeyBytes, Slot};
use crate::sync;

/// Records whose lines are under way while one is looked at.
const AHEAD: usize = 16;
/// A leaf has room for this share of its slots.
const ROOM_SHARE: usize = 7;
/// Slots whose keys a thread reads before it takes others.
const SLOTS_AT_ONCE: usize = if cfg!(test) { 100 } else { 1 << 20 };
/// Parts for each thread, so that all end at about the same time.
const PARTS_PER_THREAD: usize = 8;
/// Keys of a sample.
const SAMPLES: usize = if cfg!(test) { 20 } else { 1 << 12 };
/// Leaves that a thread fills before it takes others.
const LEAVES_AT_ONCE: usize = if cfg!(test) { 5 } else { 1 << 10 };

/// 16 bytes of a key, in its order.
type Words = [u64; 2];

/// A slot, and what tells most keys apart.
#[derive(Clone, Copy)]
struct Entry {
    words: Words,
    slot: Slot,
}

/// Puts keys in order.
struct Sorter<'k, K> {
    keys: &'k K,
    /// What all of them begin with.
    shared: &'k [u8],
    threads: usize,
}

impl OrderedIndex {
    /// Fills an index, which is empty and not shared yet, with slots of different keys, on so many threads. `version` is at least
    /// that of every record.
    pub(crate) fn build(
        &self,
        slots: Vec<Slot>,
        version: Version,
        keys: &(impl KeyBytes + Sync),
        threads: usize,
    ) {
        self.stripes.meet_all(version);
        let Some((sorter, parts)) = Sorter::sorted(slots, keys, threads) else { return };
        let each = (self.leaf_slots - self.leaf_slots / ROOM_SHARE).max(1);
        let leaves: Vec<&[Entry]> = parts.iter().flat_map(|part| part.chunks(each)).collect();
        let step = u64::MAX / 2 / (leaves.len() + 1) as u64;
        self.fill_with(threads, (0..leaves.len()).step_by(LEAVES_AT_ONCE), |from, chain| {
            let until = leaves.len().min(from + LEAVES_AT_ONCE);
            // Where a leaf begins: with the shortest key that is above all of the one before.
            let low_of = |number: usize| match (leaves.get(number.wrapping_sub(1)), leaves.get(number)) {
                (Some([.., last]), Some([next, ..])) => Some(sorter.shortest_between(last, next)),
                _ => None,
            };
            let mut low = low_of(from).unwrap_or_default();
            for (number, entries) in (from..until).zip(&leaves[from..until]) {
                let mut held = self.add(chain, &low, number as u64 * step);
                let next = low_of(number + 1);
                held.change();
                let skip = skip_between(&low, next.as_deref());
                for (position, entry) in entries.iter().enumerate() {
                    held.set(position, sorter.prefix(entry, skip), entry.slot);
                }
                held.set_skip(skip);
                held.set_order(Order::of(entries.len()));
                low = next.unwrap_or_default();
            }
        });
    }
}

/// Slots of different keys in their order, in parts.
pub(crate) fn in_order(
    slots: Vec<Slot>,
    keys: &(impl KeyBytes + Sync),
    threads: usize,
) -> impl Iterator<Item = Vec<Slot>> {
    let parts = Sorter::sorted(slots, keys, threads).map_or_else(Vec::new, |(_, parts)| parts);
    parts.into_iter().map(|part| part.into_iter().map(|entry| entry.slot).collect())
}

impl<'k, K: KeyBytes + Sync> Sorter<'k, K> {
    /// The entries of these slots in order, in parts. `None`: there are none.
    fn sorted(mut slots: Vec<Slot>, keys: &'k K, threads: usize) -> Option<(Self, Vec<Vec<Entry>>)> {
        let mut sorter = Self::of_sample(&slots, keys, threads)?;
        loop {
            match sorter.part(&mut slots) {
                Ok(parts) => {
                    drop(slots);
                    let parts = sorter.sort(parts);
                    return Some((sorter, parts));
                }
                // Not all keys begin as those of the sample do.
                Err(shared) => sorter.shared = &sorter.shared[..shared],
            }
        }
    }

    /// For slots whose keys share what those of a sample do. `None`: there are none.
    fn of_sample(slots: &[Slot], keys: &'k K, threads: usize) -> Option<Self> {
        let mut keys_of_sample = sample(slots).map(|slot| keys.key_at(slot.location()));
        let first = keys_of_sample.next()?;
        let shared = keys_of_sample.fold(first.len(), |shared, key| shared_bytes(&first[..shared], key));
        Some(Self { keys, shared: &first[..shared], threads })
    }

    fn key(&self, slot: Slot) -> &'k [u8] {
        self.keys.key_at(slot.location())
    }

    fn words(&self, key: &[u8]) -> Words {
        [word_at(key, self.shared.len()), word_at(key, self.shared.len() + 8)]
    }

    /// Entries of all slots, one part behind the other in the order of their keys, each in pieces as they were found. `Err`:
    /// how many bytes all keys share, which is less than was said.
    fn part(&self, slots: &mut [Slot]) -> Result<Vec<Vec<Vec<Entry>>>, usize> {
        let parts = if self.threads > 1 { self.threads * PARTS_PER_THREAD } else { 1 };
        let mut sample: Vec<Words> = sample(slots).map(|slot| self.words(self.key(slot))).collect();
        sample.sort_unstable();
        let bounds: Vec<Words> = (1..parts).map(|part| sample[part * sample.len() / parts]).collect();
        let found = sync::each_on_threads(self.threads, slots.chunks_mut(SLOTS_AT_ONCE), |slots| {
            // In the order of their records: the way to a neighbour in memory is short.
            slots.sort_unstable_by_key(|slot| slot.location());
            let mut found = vec![Vec::with_capacity(slots.len() / parts * 9 / 8); parts];
            let mut shared = self.shared.len();
            for (i, &slot) in slots.iter().enumerate() {
                if let Some(ahead) = slots.get(i + AHEAD) {
                    self.keys.prefetch_at(ahead.location());
                }
                let key = self.key(slot);
                shared = shared_bytes(&self.shared[..shared], key);
                let words = self.words(key);
                found[bounds.partition_point(|bound| *bound <= words)].push(Entry { words, slot });
            }
            (found, shared)
        });
        let shared = found.iter().map(|&(_, shared)| shared).min().unwrap_or(0);
        if shared < self.shared.len() {
            return Err(shared);
        }
        let mut whole: Vec<Vec<Vec<Entry>>> = (0..parts).map(|_| Vec::new()).collect();
        for (found, _) in found {
            for (part, found) in whole.iter_mut().zip(found) {
                part.push(found);
            }
        }
        Ok(whole)
    }

    /// The entries of each part in the order of their keys.
    fn sort(&self, parts: Vec<Vec<Vec<Entry>>>) -> Vec<Vec<Entry>> {
        sync::each_on_threads(self.threads, parts.into_iter(), |pieces| {
            let mut entries = pieces.concat();
            drop(pieces);
            entries.sort_unstable_by(|a, b| {
                a.words.cmp(&b.words).then_with(|| self.key(a.slot).cmp(self.key(b.slot)))
            });
            entries
        })
    }

    /// A key above that of `last`, and not above that of `next`; short, if not the shortest.
    fn shortest_between(&self, last: &Entry, next: &Entry) -> Vec<u8> {
        let bytes = |words: Words| [words[0].to_be_bytes(), words[1].to_be_bytes()].concat();
        let (before, behind) = (bytes(last.words), bytes(next.words));
        let same = shared_bytes(&before, &behind);
        if same < behind.len() {
            // The byte that tells them apart is above another one, so it is of the key and not a zero behind its end.
            return [self.shared, &behind[..=same]].concat();
        }
        let next = self.key(next.slot);
        next[..=shared_bytes(self.key(last.slot), next)].to_vec()
    }

    /// The eight bytes behind `skip` bytes of the key, from those at hand if they are among them.
    fn prefix(&self, entry: &Entry, skip: usize) -> u64 {
        match skip.checked_sub(self.shared.len()) {
            Some(0) => entry.words[0],
            Some(by @ 1..=7) => entry.words[0] << (8 * by) | entry.words[1] >> (64 - 8 * by),
            Some(8) => entry.words[1],
            _ => word_at(self.key(entry.slot), skip),
        }
    }
}

/// Some of the slots, from everywhere.
fn sample(slots: &[Slot]) -> impl Iterator<Item = Slot> {
    slots.iter().copied().step_by(slots.len() / SAMPLES + 1)
}
