//! The ordered index: readers and writers of a leaf, its split, and the removal of a node, concurrently.
//!
//! Records are cells that loom watches: a reader that sees a slot before its record is whole is reported as a race.
//! Leaves have two slots, and nodes up to three levels. The list's seed is chosen so that the node that a model creates
//! has two levels. So it is linked, and unlinked, above level 0 too.

use crate::Planted::{Bug, Relaxed};
use crate::check;
use duramen_index::ordered::{Chunk, OrderedIndex};
use duramen_index::{KeepFilter, KeyBytes, Keys, Slot};
use duramen_log::mutants::Mutant;
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim::pin;
use duramen_media::Offset;
use loom::cell::UnsafeCell;
use loom::thread;
use std::ops::Bound::Unbounded;

type Key = &'static [u8];

const A: Key = b"a";
const AND_A: Key = b"aa";
const B: Key = b"b";
const C: Key = b"c";
const D: Key = b"d";

fn hash(key: Key) -> u64 {
    // One stripe for all: the locks of leaves alone must keep the list whole. Two slots of the cache.
    u64::from(key[0]) << 63
}

/// Records by location; each holds a key and a version.
struct Log(Vec<UnsafeCell<(Key, u64)>>);

impl Log {
    fn write(&self, record: usize, key: Key, version: u64) -> Slot {
        // SAFETY: loom reports a race; there is one thread of the system.
        self.0[record].with_mut(|cell| unsafe { *cell = (key, version) });
        Slot::new(Offset((record as u64 + 1) * 8))
    }

    fn read(&self, at: Offset) -> (Key, u64) {
        // SAFETY: loom reports a race; there is one thread of the system.
        self.0[(at.0 / 8 - 1) as usize].with(|cell| unsafe { *cell })
    }
}

impl Keys for Log {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        Some(hash(self.read(at).0))
    }

    fn prefetch_at(&self, _at: Offset) {}
}

impl KeyBytes for Log {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        Some(self.read(at).0)
    }

    fn value_at(&self, _: Offset) -> Option<&[u8]> {
        None
    }
}

struct Store {
    index: OrderedIndex,
    log: Log,
}

impl Store {
    /// A node that begins with `tall` has two levels.
    fn new(records: usize, tall: Key, cache_slots: usize) -> Arc<Self> {
        Arc::new(Self::unshared(records, tall, cache_slots))
    }

    fn unshared(records: usize, tall: Key, cache_slots: usize) -> Self {
        let seed = (0..).find(|&seed| OrderedIndex::height_for(seed, tall) == 2).unwrap_or(0);
        let log = Log((0..records).map(|_| UnsafeCell::new((A, 0))).collect());
        Self { index: OrderedIndex::new(seed, cache_slots, 2), log }
    }

    /// In the order of a writer: the record first, then the slot, under the key's stripe.
    fn put(&self, record: usize, key: Key, version: u64) {
        let guard = pin();
        let slot = self.log.write(record, key, version);
        let locked = self.index.lock(hash(key), &guard);
        let is_key = |slot: Slot| (self.log.read(slot.location()).0 == key).then_some(());
        match locked.find_with(key, is_key) {
            Some((place, ())) => place.set(slot),
            None => locked.insert(key, slot, &self.log),
        }
    }

    fn remove(&self, key: Key) -> bool {
        let guard = pin();
        let locked = self.index.lock(hash(key), &guard);
        let is_key = |slot: Slot| (self.log.read(slot.location()).0 == key).then_some(());
        locked.find_with(key, is_key).map(|(place, ())| locked.remove(&place, &self.log)).is_some()
    }

    fn get(&self, key: Key) -> Option<u64> {
        let guard = pin();
        let read = |slot: Slot| Some(self.log.read(slot.location())).filter(|found| found.0 == key);
        self.index.find_with(hash(key), key, &guard, read).map(|(_, (_, version))| version)
    }

    /// Every key once, in order, with its version.
    fn all(&self) -> Vec<(Key, u64)> {
        let guard = pin();
        let mut chunk = Chunk::default();
        let mut from = Unbounded;
        let mut key;
        while self.index.forward((from, Unbounded), 1, &self.log, &guard, &mut chunk) {
            key = std::mem::take(&mut chunk.onward);
            from = std::ops::Bound::Included(&key[..]);
        }
        chunk.slots.iter().map(|slot| self.log.read(slot.location())).collect()
    }
}

#[test]
fn a_page_of_a_checkpoint_is_complete_for_every_concurrent_reader() {
    let planted = [
        Relaxed("index/src/ordered/node.rs", "self.node.page.store("),
        Relaxed("index/src/ordered/node.rs", "(self.page.load(Acquire) as usize)"),
    ];
    check(1, &planted, || {
        let mut pages = Vec::new();
        {
            let before = Store::new(3, C, 2);
            for (record, key) in [A, B, C].into_iter().enumerate() {
                before.put(record, key, 1);
            }
            let emit = &mut |first, page: &[u8]| {
                pages.push((first, page.to_vec()));
                Ok(true)
            };
            before.index.dump(&before.log, &|slot| slot, emit).unwrap();
        }
        let pages: Vec<(u64, &[u8])> = pages.iter().map(|(first, page)| (*first, &page[..])).collect();
        let mut store = Store::unshared(3, C, 2);
        for (record, key) in [A, B, C].into_iter().enumerate() {
            store.log.write(record, key, 1);
        }
        // SAFETY: the pages live until the end of this execution, and so do their readers.
        unsafe { store.index.attach(&pages, KeepFilter::All, 1) }.unwrap();
        let store = Arc::new(store);
        let reader = {
            let store = Arc::clone(&store);
            thread::spawn(move || assert_eq!(store.get(C), Some(1)))
        };
        assert_eq!(store.get(A), Some(1));
        reader.join().unwrap();
        assert_eq!(store.all(), [(A, 1), (B, 1), (C, 1)]);
        assert_eq!(store.index.pages_left(), 0);
    });
}

#[test]
fn reader_of_an_overwritten_key_sees_old_or_new_whole() {
    let planted = [
        Relaxed("index/src/ordered/node.rs", "self.node.slots[position].store(slot.0, Release)"),
        Relaxed("index/src/ordered/node.rs", "Slot(self.slots[position].load(Acquire))"),
    ];
    check(2, &planted, || {
        let store = Store::new(2, B, 2);
        store.put(0, A, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(1, A, 2))
        };
        let first = store.get(A).unwrap();
        let second = store.get(A).unwrap();
        assert!((1..=2).contains(&first) && second >= first, "{first} then {second}");
        writer.join().unwrap();
        assert_eq!(store.all(), [(A, 2)]);
    });
}

#[test]
fn two_writers_of_one_key_make_one_slot() {
    let planted = [
        Bug(Mutant::StripeNotLocked),
        Relaxed("index/src/stripes.rs", "self.stripe.state.store(0, Release)"),
    ];
    check(2, &planted, || {
        let store = Store::new(2, B, 0);
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(0, A, 1))
        };
        store.put(1, A, 2);
        other.join().unwrap();
        let version = store.get(A).unwrap();
        assert_eq!(store.all(), [(A, version)]);
    });
}

#[test]
fn reader_misses_no_key_while_its_leaf_splits() {
    let planted = [Bug(Mutant::LeafChangedUnmarked)];
    check(2, &planted, || {
        let store = Store::new(3, C, 2);
        store.put(0, A, 1);
        store.put(1, C, 1);
        // Both are in the cache, as in the first leaf.
        assert_eq!((store.get(A), store.get(C)), (Some(1), Some(1)));
        let writer = {
            let store = Arc::clone(&store);
            // Splits before C.
            thread::spawn(move || store.put(2, B, 1))
        };
        assert_eq!(store.get(C), Some(1));
        assert_eq!(store.get(A), Some(1));
        writer.join().unwrap();
        assert_eq!(store.all(), [(A, 1), (B, 1), (C, 1)]);
    });
}

#[test]
fn a_walk_visits_each_lasting_key_once_while_its_leaf_splits() {
    let planted = [
        Bug(Mutant::LeafChangedUnmarked),
        Bug(Mutant::LeafNotLookedAtAgain),
        Relaxed("index/src/ordered/node.rs", "self.link(level).store(next, Release)"),
        Relaxed("index/src/ordered/node.rs", "self.node.version.store(version, Release)"),
    ];
    check(2, &planted, || {
        let store = Store::new(3, C, 0);
        store.put(0, A, 1);
        store.put(1, C, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(2, B, 1))
        };
        let mut seen = store.all();
        seen.retain(|(key, _)| *key != B);
        assert_eq!(seen, [(A, 1), (C, 1)]);
        writer.join().unwrap();
    });
}

#[test]
fn writers_of_neighbours_lose_nothing_to_a_split() {
    let planted = [Bug(Mutant::LeafNotLocked)];
    check(2, &planted, || {
        let store = Store::new(4, C, 0);
        store.put(0, A, 1);
        store.put(1, C, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(2, B, 1))
        };
        // Its slot moves meanwhile; its key has another stripe.
        let guard = pin();
        let slot = store.log.write(3, C, 2);
        let locked = store.index.lock(1 << 63, &guard);
        let found = locked.find_with(C, |slot| (store.log.read(slot.location()).0 == C).then_some(()));
        found.unwrap().0.set(slot);
        drop(locked);
        drop(guard);
        writer.join().unwrap();
        assert_eq!(store.all(), [(A, 1), (B, 1), (C, 2)]);
    });
}

/// Two leaves: A and C, then D, whose node is linked on two levels.
fn two_leaves() -> Arc<Store> {
    let store = Store::new(8, D, 2);
    for (record, key) in [A, D, C].into_iter().enumerate() {
        store.put(record, key, 1);
    }
    store
}

#[test]
fn a_reader_finds_its_key_while_its_node_is_removed() {
    let planted = [Bug(Mutant::NodeLeftLinked)];
    check(1, &planted, || {
        let store = Store::new(3, B, 0);
        // A leaf with A, and after it one with B.
        for (record, key) in [A, AND_A, B].into_iter().enumerate() {
            store.put(record, key, 1);
        }
        assert!(store.remove(AND_A));
        let writer = {
            let store = Arc::clone(&store);
            // The first leaf is empty then, and takes the slots of the next.
            thread::spawn(move || assert!(store.remove(A)))
        };
        assert_eq!(store.get(B), Some(1));
        writer.join().unwrap();
        store.index.check_levels(&pin());
        assert_eq!(store.all(), [(B, 1)]);
    });
}

#[test]
fn a_split_and_a_removal_of_its_neighbour_keep_the_list_linked() {
    let planted = [Bug(Mutant::LeafNotLocked)];
    // With two preemptions there are 661,363 executions, which pass as well.
    check(1, &planted, || {
        let store = two_leaves();
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let guard = pin();
                // With another stripe than the split's.
                let locked = store.index.lock(1 << 63, &guard);
                let found =
                    locked.find_with(D, |slot| (store.log.read(slot.location()).0 == D).then_some(()));
                locked.remove(&found.unwrap().0, &store.log);
            })
        };
        store.put(3, B, 1);
        other.join().unwrap();
        store.index.check_levels(&pin());
        assert_eq!(store.all(), [(A, 1), (B, 1), (C, 1)]);
    });
}
