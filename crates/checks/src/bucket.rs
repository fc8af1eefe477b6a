//! The hash index: writers and readers of one bucket, and the concurrent split of its segment.
//!
//! Records are cells that loom watches: a reader that sees a slot before its record is whole is reported as a race. A
//! key's hash chooses its place: bit 63 the first directory entry, bits 0 to 15 its primary bucket (of two), bits 16 to
//! 31 the secondary one.

use crate::Planted::{Bug, Relaxed};
use crate::check;
use duramen_index::hash::HashIndex;
use duramen_index::{KeepFilter, Keys, Slot};
use duramen_log::mutants::Mutant;
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim::{pin, pin_to_write};
use duramen_media::Offset;
use loom::cell::UnsafeCell;
use loom::thread;

/// A hash whose key lies in bucket 0: bit 22 of the key decides the half at the first split, bits 12 to 21 are
/// its fingerprint.
const fn hash(key: u64) -> u64 {
    key << 40
}

const fn key(number: u64, half: u64) -> u64 {
    half << 22 | number << 12
}

/// Records by location; each holds a key and a version.
struct Log(Vec<UnsafeCell<(u64, u64)>>);

impl Log {
    fn new(records: usize) -> Self {
        Self((0..records).map(|_| UnsafeCell::new((0, 0))).collect())
    }

    fn write(&self, record: u64, key: u64, version: u64) -> Slot {
        // SAFETY: loom reports a race; there is one thread of the system.
        self.0[record as usize].with_mut(|cell| unsafe { *cell = (key, version) });
        Slot::new(Offset((record + 1) * 8))
    }

    fn read(&self, at: Offset) -> (u64, u64) {
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

struct Store {
    index: HashIndex,
    log: Log,
}

impl Store {
    fn new(records: usize) -> Arc<Self> {
        Arc::new(Self { index: HashIndex::default(), log: Log::new(records) })
    }

    /// In the order of a writer: the record first, then the slot, under the key's stripe, then maybe a split.
    fn put(&self, record: u64, key: u64, version: u64) {
        let guard = pin_to_write();
        let slot = self.log.write(record, key, version);
        let locked = self.index.lock(hash(key), &guard);
        let crowded = match locked.find(|slot| self.log.read(slot.location()).0 == key) {
            Some(place) => {
                place.set(slot);
                false
            }
            None => locked.insert(slot),
        };
        drop(locked);
        if crowded {
            self.index.split(hash(key), &self.log, &guard);
        }
    }

    fn remove(&self, key: u64) -> bool {
        let guard = pin_to_write();
        let locked = self.index.lock(hash(key), &guard);
        let found = locked.find(|slot| self.log.read(slot.location()).0 == key);
        found.map(|place| locked.remove(place)).is_some()
    }

    fn get(&self, key: u64) -> Option<u64> {
        let guard = pin();
        let found = self.index.find(hash(key), &guard, |slot| self.log.read(slot.location()).0 == key);
        found.map(|slot| self.log.read(slot.location()).1)
    }

    /// Every key once, with its version.
    fn all(&self) -> Vec<(u64, u64)> {
        let guard = pin();
        let (mut cursor, mut all) = (0, Vec::new());
        loop {
            cursor = self.index.scan(cursor, &guard, &mut |slot| all.push(self.log.read(slot.location())));
            if cursor == 0 {
                all.sort_unstable();
                return all;
            }
        }
    }
}

#[test]
fn reader_of_an_overwritten_key_sees_old_or_new_whole() {
    let planted = [
        Relaxed("index/src/hash.rs", "slot.compare_exchange_weak(now, word, AcqRel"),
        Relaxed("index/src/hash.rs", "let word = slot.load(Acquire);"),
    ];
    check(3, &planted, || {
        let store = Store::new(2);
        store.put(0, 1, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(1, 1, 2))
        };
        let first = store.get(1).unwrap();
        let second = store.get(1).unwrap();
        assert!((1..=2).contains(&first) && second >= first, "{first} then {second}");
        writer.join().unwrap();
        assert_eq!(store.get(1), Some(2));
        assert_eq!(store.all(), [(1, 2)]);
    });
}

#[test]
fn reader_of_an_inserted_key_sees_nothing_or_all_of_it() {
    let planted = [Relaxed("index/src/hash.rs", "slot.compare_exchange_weak(now, word, AcqRel")];
    check(3, &planted, || {
        let store = Store::new(2);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(0, 1, 1);
                assert!(store.remove(1));
                store.put(1, 1, 3);
            })
        };
        let seen = store.get(1);
        assert!(matches!(seen, None | Some(1 | 3)), "{seen:?}");
        writer.join().unwrap();
        assert_eq!(store.all(), [(1, 3)]);
    });
}

#[test]
fn a_page_of_a_checkpoint_is_read_once_by_concurrent_readers() {
    let planted = [Bug(Mutant::PageReadTwice), Relaxed("index/src/hash.rs", "place.store(entry.0, Release)")];
    check(2, &planted, || {
        let mut pages = Vec::new();
        {
            let before = Store::new(1);
            before.put(0, 1, 1);
            before
                .index
                .dump(&|slot| slot, &mut |first, page| {
                    pages.push((first, page.to_vec()));
                    Ok(true)
                })
                .unwrap();
        }
        let pages: Vec<(u64, &[u8])> = pages.iter().map(|(first, page)| (*first, &page[..])).collect();
        let mut index = HashIndex::default();
        // SAFETY: the pages live until the end of this execution, and so do their readers.
        unsafe { index.attach(&pages, KeepFilter::All) }.unwrap();
        let store = Arc::new(Store { index, log: Log::new(2) });
        store.log.write(0, 1, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(1, 2, 1))
        };
        assert_eq!(store.get(1), Some(1));
        writer.join().unwrap();
        assert_eq!(store.all(), [(1, 1), (2, 1)]);
        assert_eq!(store.index.pages_left(), 0);
    });
}

#[test]
fn two_writers_of_one_bucket_lose_nothing() {
    let planted = [
        Relaxed("index/src/stripes.rs", "self.stripe.state.store(0, Release)"),
        Bug(Mutant::StripeNotLocked),
    ];
    check(2, &planted, || {
        let store = Store::new(4);
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(0, 1, 1);
                store.put(1, 2, 1);
            })
        };
        // The same key from both sides: one slot, in either order.
        store.put(2, 2, 2);
        other.join().unwrap();
        let version = store.get(2).unwrap();
        assert_eq!(store.all(), [(1, 1), (2, version)]);
    });
}

#[test]
fn writers_of_two_stripes_lose_nothing_in_a_bucket_that_they_share() {
    let planted = [Bug(Mutant::SharedSegmentAlone)];
    check(2, &planted, || {
        let store = Store::new(4);
        store.put(0, CROWDED[0], 1);
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(1, CROWDED[1], 1);
                assert!(store.remove(CROWDED[0]));
            })
        };
        store.put(2, CROWDED[2], 1);
        store.put(3, CROWDED[2], 2);
        other.join().unwrap();
        assert_eq!(store.all(), [(CROWDED[1], 1), (CROWDED[2], 2)]);
    });
}

#[test]
fn reader_of_a_segment_of_one_stripe_sees_whole_records() {
    let planted = [Relaxed("index/src/hash.rs", "slot.store(word, Release);")];
    check(2, &planted, || {
        let store = crowded();
        store.put(4, ANOTHER, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(5, CROWDED[0], 2);
                assert!(store.remove(CROWDED[1]));
                store.put(6, CROWDED[1], 3);
            })
        };
        let seen = [0, 1].map(|key| store.get(CROWDED[key]));
        assert!(matches!(seen, [Some(1 | 2), None | Some(1 | 3)]), "{seen:?}");
        writer.join().unwrap();
        let all = [(CROWDED[0], 2), (CROWDED[1], 3), (CROWDED[2], 1), (CROWDED[3], 1), (ANOTHER, 1)];
        assert_eq!(store.all(), all);
    });
}

#[test]
fn of_two_writers_that_read_each_others_key_one_finds_it() {
    let planted = [Relaxed("index/src/hash.rs", "reclaim::published();")];
    check(2, &planted, || {
        let store = crowded();
        store.put(4, ANOTHER, 1);
        let other = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(5, CROWDED[0], 2);
                store.get(CROWDED[2])
            })
        };
        store.put(6, CROWDED[2], 2);
        let seen = [store.get(CROWDED[0]), other.join().unwrap()];
        assert!(seen.contains(&Some(2)), "{seen:?}");
    });
}

#[test]
fn reader_finds_a_key_that_overflowed_its_bucket() {
    // Three keys of a bucket with two slots: the third lies in the secondary bucket.
    let planted = [Bug(Mutant::OverflowNotMarked)];
    check(2, &planted, || {
        let store = Store::new(6);
        store.put(0, 1, 1);
        store.put(1, 2, 1);
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store.put(2, 3, 1);
                assert!(store.remove(2));
            })
        };
        if store.get(3).is_some() {
            assert_eq!(store.get(3), Some(1), "seen once, and then not");
        }
        writer.join().unwrap();
        assert_eq!(store.get(3), Some(1));
        assert_eq!(store.all(), [(1, 1), (3, 1)]);
    });
}

/// A segment whose next key of bucket 0 goes to the stash, and makes it split.
fn crowded() -> Arc<Store> {
    let store = Store::new(10);
    for (record, key) in CROWDED.into_iter().enumerate() {
        store.put(record as u64, key, 1);
    }
    store
}

const CROWDED: [u64; 4] = [key(1, 0), key(2, 0), key(3, 1), key(4, 1)];
const ANOTHER: u64 = key(5, 1);

#[test]
fn reader_misses_no_key_while_its_segment_splits() {
    let planted = [
        Relaxed("index/src/hash.rs", "unsafe { self.directory.load(Acquire, guard).deref() }"),
        Bug(Mutant::SegmentReusedAtOnce),
        Bug(Mutant::SplitPublishedFirst),
    ];
    check(2, &planted, || {
        let store = crowded();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(4, ANOTHER, 1))
        };
        for key in [CROWDED[0], CROWDED[3]] {
            assert_eq!(store.get(key), Some(1), "key {key:#x}");
        }
        writer.join().unwrap();
        let mut all = CROWDED.map(|key| (key, 1)).to_vec();
        all.push((ANOTHER, 1));
        assert_eq!(store.all(), all);
    });
}

#[test]
fn reader_misses_no_key_while_a_segment_of_a_deep_directory_splits() {
    let planted = [
        Relaxed("index/src/hash.rs", "place.store(entry.0, Release)"),
        Relaxed("index/src/hash.rs", "[(hash >> (64 - self.depth)) as usize].load(Acquire)"),
    ];
    check(2, &planted, || {
        let store = crowded();
        store.put(4, ANOTHER, 1);
        // The directory is two deep now; the second segment of the first depth splits without doubling it.
        let side = 1 << 23;
        for (record, key) in CROWDED.into_iter().enumerate() {
            store.put(5 + record as u64, side | key, 1);
        }
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(9, side | ANOTHER, 1))
        };
        for key in [CROWDED[0], CROWDED[3]] {
            assert_eq!(store.get(side | key), Some(1), "key {key:#x}");
        }
        writer.join().unwrap();
        assert_eq!(store.all().len(), 10);
    });
}

#[test]
fn writer_loses_nothing_to_a_split() {
    let planted = [Bug(Mutant::SplitWithoutLocks)];
    check(2, &planted, || {
        let store = crowded();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(4, ANOTHER, 1))
        };
        store.put(5, CROWDED[3], 2);
        assert!(store.remove(CROWDED[0]));
        writer.join().unwrap();
        assert_eq!(store.all(), [(CROWDED[1], 1), (CROWDED[2], 1), (CROWDED[3], 2), (ANOTHER, 1)]);
    });
}

#[test]
fn a_batch_that_waited_for_a_split_finds_its_keys_in_the_halves() {
    let planted = [Bug(Mutant::SegmentBeforeLock)];
    check(2, &planted, || {
        let store = crowded();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(4, ANOTHER, 1))
        };
        {
            let guard = pin();
            let keys = [CROWDED[3], CROWDED[0]];
            let locks = store.index.lock_all(&keys.map(hash), &guard);
            for (i, lock) in locks.iter().enumerate() {
                let slot = store.log.write(5 + i as u64, keys[i], 2);
                let place = lock.find(|slot| store.log.read(slot.location()).0 == keys[i]).unwrap();
                place.set(slot);
            }
        }
        writer.join().unwrap();
        let all = [(CROWDED[0], 2), (CROWDED[1], 1), (CROWDED[2], 1), (CROWDED[3], 2), (ANOTHER, 1)];
        assert_eq!(store.all(), all);
    });
}

#[test]
fn scan_visits_every_key_that_stays_while_the_directory_doubles() {
    let planted = [Relaxed("index/src/hash.rs", "self.directory.swap(Some(doubled), AcqRel, guard)")];
    check(2, &planted, || {
        let store = crowded();
        let writer = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.put(4, ANOTHER, 1))
        };
        let seen = store.all();
        for key in CROWDED {
            assert!(seen.contains(&(key, 1)), "key {key:#x} is not in {seen:x?}");
        }
        writer.join().unwrap();
    });
}

/// Two segments that came from one split, with a key in each, few enough to be merged again.
fn sparse() -> Arc<Store> {
    let index = HashIndex::default().merging_at(2);
    let store = Arc::new(Store { index, log: Log::new(10) });
    for (record, key) in CROWDED.into_iter().chain([ANOTHER]).enumerate() {
        store.put(record as u64, key, 1);
    }
    for key in [CROWDED[1], CROWDED[3], ANOTHER] {
        assert!(store.remove(key));
    }
    store
}

fn merge(store: &Store) {
    store.index.merge(hash(CROWDED[0]), &pin());
    assert_eq!(store.index.merged(), 1);
}

#[test]
fn reader_misses_no_key_while_its_segment_is_merged() {
    let planted = [Bug(Mutant::MergePublishedFirst), Bug(Mutant::SegmentReusedAtOnce)];
    check(2, &planted, || {
        let store = sparse();
        let merger = {
            let store = Arc::clone(&store);
            thread::spawn(move || merge(&store))
        };
        for key in [CROWDED[0], CROWDED[2]] {
            assert_eq!(store.get(key), Some(1), "key {key:#x}");
        }
        merger.join().unwrap();
        assert_eq!(store.all(), [(CROWDED[0], 1), (CROWDED[2], 1)]);
    });
}

#[test]
fn writer_loses_nothing_to_a_merge() {
    let planted = [Bug(Mutant::MergeWithoutLocks)];
    check(2, &planted, || {
        let store = sparse();
        let merger = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.index.merge(hash(CROWDED[0]), &pin()))
        };
        store.put(5, CROWDED[2], 2);
        assert!(store.remove(CROWDED[0]));
        merger.join().unwrap();
        assert_eq!(store.all(), [(CROWDED[2], 2)]);
    });
}

#[test]
fn scan_visits_every_key_that_stays_while_segments_are_merged() {
    let planted = [Bug(Mutant::ScanForgetsMerge)];
    check(2, &planted, || {
        let store = sparse();
        let merger = {
            let store = Arc::clone(&store);
            thread::spawn(move || merge(&store))
        };
        let seen = store.all();
        for key in [CROWDED[0], CROWDED[2]] {
            assert!(seen.contains(&(key, 1)), "key {key:#x} is not in {seen:x?}");
        }
        merger.join().unwrap();
    });
}
