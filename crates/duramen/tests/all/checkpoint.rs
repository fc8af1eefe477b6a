//! The index checkpoint: which records an open takes from it instead of reading all, and when it reads all.

use crate::{collections, maintained};
use duramen::tuning::Phase;
use duramen::{Batch, Durability, ElementOrder, IndexKind, MediumKind, Meta, Options, Residence, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

const NOW: u64 = 1_000_000;

/// Every medium and index that a checkpoint is written on.
fn configurations() -> Vec<Options> {
    let media = [MediumKind::Shm, MediumKind::File];
    let of_medium = |medium| {
        [IndexKind::Hash, IndexKind::Ordered].map(|index| {
            let mut options = Options {
                medium,
                index,
                extent_bytes: Some(4096),
                background: false,
                clock: Some(Arc::new(|| NOW)),
                // Each write of a file would wait for the disk.
                durability: match medium {
                    MediumKind::File => Durability::Interval(Duration::from_secs(3600)),
                    _ => Durability::EveryWrite,
                },
                ..Options::default()
            };
            options.tuning.close_checkpoint_bytes_min = 0;
            options.tuning.checkpoint_bytes_min = 10_000;
            options
        })
    };
    media.into_iter().flat_map(of_medium).collect()
}

fn for_each_store(test: impl Fn(&Options, &Path)) {
    for options in configurations() {
        eprintln!("configuration: {:?}, {}", options.medium, options.index);
        let dir = match options.medium {
            MediumKind::Shm => tempfile::tempdir_in("/dev/shm").unwrap(),
            _ => tempfile::tempdir().unwrap(),
        };
        test(&options, &dir.path().join("store"));
    }
}

fn key(number: u32) -> Vec<u8> {
    // Of many lengths, so that some lowest keys of leaves are long.
    format!("key {:0width$}", number.wrapping_mul(2_654_435_761), width = 10 + number as usize % 40)
        .into_bytes()
}

/// Puts, overwrites, deletes, batches, and values that have expired or will.
fn fill(store: &Store) {
    for number in 0..6000 {
        store.put(key(number), number.to_le_bytes().repeat(1 + number as usize % 30)).unwrap();
    }
    for number in (0..6000).step_by(7) {
        store.put(key(number), b"overwritten").unwrap();
    }
    for number in (0..6000).step_by(11) {
        assert!(store.delete(key(number)).unwrap());
    }
    for number in (0..6000).step_by(500) {
        let meta = |expires_at| Meta { expires_at: Some(expires_at), ..Meta::default() };
        store.put_with(key(number + 1), b"gone", meta(NOW - 1)).unwrap();
        store.put_with(key(number + 2), b"there", meta(NOW + 1_000_000)).unwrap();
        let mut batch = Batch::new();
        batch.put(key(number + 3), b"one of two").delete(key(number + 4));
        let _ = store.apply(&batch).unwrap();
    }
}

/// Including recovery after a crash, and with another kind of index than the checkpoint's.
#[test]
fn a_store_that_is_opened_read_only_stays_as_it_is() {
    for_each_store(|options, path| {
        let store = options.open(path).unwrap();
        fill(&store);
        let wanted = contents(&store);
        let crashed = path.with_extension("crashed");
        std::fs::copy(path, &crashed).unwrap();
        store.close().unwrap();
        for path in [path, &crashed] {
            let before = std::fs::read(path).unwrap();
            for index in [IndexKind::Hash, IndexKind::Ordered] {
                let read_only = Options { read_only: true, index, background: true, ..options.clone() };
                let [one, other] = [0, 1].map(|_| read_only.open(path).unwrap());
                assert!(contents(&one) == wanted && contents(&other) == wanted);
                let mut batch = Batch::new();
                batch.put(b"key", b"value");
                for refused in [
                    one.put(b"key", b"value"),
                    one.delete(key(1)).map(|_| ()),
                    one.update(&key(1), 0, b"x").map(|_| ()),
                    one.apply(&batch).map(|_| ()),
                    one.writer().map(|_| ()),
                    one.commit(),
                ] {
                    assert_eq!(refused.unwrap_err().kind(), duramen::ErrorKind::ReadOnly);
                }
                one.verify().unwrap();
                assert_eq!(one.stats().damaged_blocks, 0);
                assert_eq!(options.open(path).unwrap_err().kind(), duramen::ErrorKind::InUse);
                assert!(contents(&one) == wanted);
                one.close().unwrap();
            }
            assert!(std::fs::read(path).unwrap() == before);
            // An open for writing does the work that a read-only open does not.
            let store = options.open(path).unwrap();
            assert!(contents(&store) == wanted);
            store.put(b"key", b"value").unwrap();
        }
    });
}

/// Enough keys for several pages of a checkpoint.
fn fill_pages(store: &Store) {
    for number in 0..12_000 {
        store.put(key(number), number.to_le_bytes()).unwrap();
    }
}

fn contents(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    store.for_each(|value| assert!(all.insert(value.key().to_vec(), value.to_vec()).is_none())).unwrap();
    for (key, value) in &all {
        assert_eq!(&*store.get(key).unwrap().unwrap(), &value[..]);
    }
    all
}

/// As above, for a store that was just opened: expired keys no longer count.
fn contents_at_open(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = contents(store);
    assert_eq!(store.len(), all.len() as u64);
    all
}

/// A store that was filled and closed, and its contents.
fn closed(options: &Options, path: &Path, fill: impl Fn(&Store)) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let store = options.open(path).unwrap();
    fill(&store);
    let all = contents(&store);
    store.close().unwrap();
    all
}

#[test]
fn an_open_after_a_close_takes_the_index_from_the_checkpoint() {
    for_each_store(|options, path| {
        let wanted = closed(options, path, fill);

        let all_read = Options { index_checkpoint: false, ..options.clone() };
        let store = all_read.open(path).unwrap();
        assert_eq!(store.recovery().checkpointed, 0);
        let (read, counted) = (store.recovery().clone(), store.stats());
        assert_eq!(contents_at_open(&store), wanted);
        drop(store);
        // That one wrote none.
        assert_eq!(options.open(path).unwrap().recovery().checkpointed, 0);

        for round in 0..3 {
            let store = options.open(path).unwrap();
            let recovery = store.recovery();
            assert!(recovery.clean && recovery.checkpoint_refused.is_none() && !recovery.estimated);
            // Tombstones have slots too.
            assert!(recovery.checkpointed >= wanted.len() as u64 && recovery.checkpointed < read.records);
            assert_eq!(recovery.records, recovery.checkpointed, "nothing was read");
            assert_eq!(contents_at_open(&store), wanted, "round {round}");
            // The checkpoint's own space is given back when all of it was read.
            store.maintain().unwrap();
            let stats = store.stats();
            assert_eq!((stats.dead_bytes, stats.used_bytes), (counted.dead_bytes, counted.used_bytes));
        }
    });
}

#[test]
fn an_open_by_checkpoint_reads_its_pages_when_they_are_touched() {
    for_each_store(|options, path| {
        let wanted = closed(options, path, fill_pages);
        for round in 0..3 {
            let store = options.open(path).unwrap();
            let pages = store.stats().index_pages_left;
            assert!(pages >= 4, "{pages} pages");
            let (first, value) = wanted.iter().next().unwrap();
            assert_eq!(&*store.get(first).unwrap().unwrap(), &value[..]);
            assert_eq!(store.stats().index_pages_left, pages - 1);
            let before = store.stats().free_bytes;
            match round {
                // A close reads the remaining pages, and so does a walk, and maintenance.
                0 => {}
                1 => assert_eq!(contents(&store), wanted),
                _ => store.maintain().unwrap(),
            }
            if round > 0 {
                assert_eq!(store.stats().index_pages_left, 0);
                store.maintain().unwrap();
                assert!(store.stats().free_bytes > before, "the checkpoint's space is still taken");
            }
            assert_eq!(store.len(), wanted.len() as u64);
            store.close().unwrap();
        }
    });
}

#[test]
fn an_open_after_a_crash_also_reads_pages_when_they_are_touched() {
    for_each_store(|options, path| {
        let options = &Options { residence: Residence::Persistent, ..options.clone() };
        let wanted = closed(options, path, fill_pages);
        // Killed when it had just been opened.
        let store = options.open(path).unwrap();
        let killed = path.with_extension("killed");
        std::fs::copy(path, &killed).unwrap();
        drop(store);

        let store = options.open(&killed).unwrap();
        let recovery = store.recovery();
        assert!(!recovery.clean && recovery.checkpointed == 12_000, "{recovery:?}");
        let pages = store.stats().index_pages_left;
        assert!(pages >= 4, "{pages} pages");
        assert_eq!(store.len(), 12_000);
        let (first, value) = wanted.iter().next().unwrap();
        assert_eq!(&*store.get(first).unwrap().unwrap(), &value[..]);
        assert_eq!(store.stats().index_pages_left, pages - 1);
        // Writes made meanwhile survive the next crash, whether their page was read or not.
        let mut now = wanted.clone();
        for number in (0..12_000).step_by(900) {
            store.put(key(number), b"written").unwrap();
            now.insert(key(number), b"written".to_vec());
        }
        std::fs::copy(&killed, path).unwrap();
        assert_eq!(contents(&store), now);
        assert_eq!(store.stats().index_pages_left, 0);
        assert_eq!(contents_at_open(&options.open(path).unwrap()), now);
    });
}

#[test]
fn threads_that_touch_a_store_just_opened_lose_nothing() {
    const THREADS: u32 = 4;
    for_each_store(|options, path| {
        let mut wanted = closed(options, path, fill);
        for round in 0..20_u32 {
            let options = Options { background: round % 2 == 0, ..options.clone() };
            let store = options.open(path).unwrap();
            assert!(store.recovery().checkpointed > 0);
            let value = round.to_le_bytes();
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (store, wanted) = (&store, &wanted);
                    scope.spawn(move || {
                        // All threads go through the same pages, and each has separate keys there.
                        for number in (0..6000).filter(|number| number % THREADS == thread) {
                            let key = key(number);
                            if number % 5 == round % 5 {
                                store.put(&key, value).unwrap();
                            } else {
                                assert_eq!(
                                    store.get(&key).unwrap().as_deref(),
                                    wanted.get(&key).map(Vec::as_slice)
                                );
                            }
                        }
                    });
                }
            });
            for number in (0..6000).filter(|number| number % 5 == round % 5) {
                wanted.insert(key(number), value.to_vec());
            }
            assert_eq!(contents_at_open(&store), wanted, "round {round}");
            store.close().unwrap();
        }
    });
}

#[test]
fn writes_after_an_open_by_checkpoint_survive_a_crash() {
    for_each_store(|options, path| {
        closed(options, path, fill);
        let store = options.open(path).unwrap();
        assert!(store.recovery().checkpointed > 0);
        for number in (0..6000).step_by(3) {
            store.put(key(number), b"after").unwrap();
        }
        for number in (0..6000).step_by(5) {
            let _ = store.delete(key(number)).unwrap();
        }
        for _ in 0..20 {
            store.maintain().unwrap();
        }
        let wanted = contents(&store);
        // As a killed process leaves it.
        std::fs::copy(path, path.with_extension("killed")).unwrap();
        let store = options.open(path.with_extension("killed")).unwrap();
        assert_eq!(store.recovery().checkpointed, 0, "the checkpoint went when the store was opened");
        assert_eq!(contents_at_open(&store), wanted);
    });
}

#[test]
fn after_a_crash_a_persistent_index_reads_the_records_after_the_checkpoint() {
    for_each_store(|options, path| {
        let options = &Options { residence: Residence::Persistent, ..options.clone() };
        let store = options.open(path).unwrap();
        fill(&store);
        let all = store.stats().written_bytes;
        store.maintain().unwrap();
        for number in 10_000..10_050 {
            store.put(key(number), b"after").unwrap();
        }
        assert!(store.delete(key(10_000)).unwrap());
        let wanted = contents(&store);
        for round in 0..3 {
            let copy = path.with_extension(format!("killed-{round}"));
            std::fs::copy(path, &copy).unwrap();
            // Also when the open that used the checkpoint is killed itself.
            let first = options.open(&copy).unwrap();
            std::fs::copy(&copy, path.with_extension("again")).unwrap();
            drop(first);
            let store = options.open(path.with_extension("again")).unwrap();
            let recovery = store.recovery();
            assert!(!recovery.clean && recovery.checkpoint_refused.is_none());
            assert!(
                recovery.checkpointed > 4000 && recovery.records - recovery.checkpointed < 2500,
                "{recovery:?}"
            );
            assert_eq!(contents_at_open(&store), wanted);
            // And all records say the same.
            let all_read = Options { index_checkpoint: false, ..options.clone() };
            std::fs::copy(path, &copy).unwrap();
            assert_eq!(contents_at_open(&all_read.open(&copy).unwrap()), wanted);
        }
        assert!(store.stats().written_bytes > all);
        // After a close everything is known again, and dead records are counted.
        store.close().unwrap();
        for _ in 0..2 {
            let store = options.open(path).unwrap();
            assert_eq!(store.recovery().records, store.recovery().checkpointed);
            assert!(!store.recovery().estimated);
            assert_eq!(contents_at_open(&store), wanted);
        }
        let (counted, free) =
            (options.open(path).unwrap().stats(), |stats: &duramen::Stats| stats.free_bytes);
        let store = Options { index_checkpoint: false, ..options.clone() }.open(path).unwrap();
        assert_eq!(store.stats().dead_bytes, counted.dead_bytes);
        assert!(free(&store.stats()) > free(&counted), "the checkpoint's room came back");
    });
}

#[test]
fn another_kind_of_index_reads_all_records() {
    for_each_store(|options, path| {
        let wanted = closed(options, path, fill);
        let index = match options.index {
            IndexKind::Hash => IndexKind::Ordered,
            IndexKind::Ordered => IndexKind::Hash,
        };
        let store = Options { index, ..options.clone() }.open(path).unwrap();
        assert_eq!((store.recovery().checkpointed, &store.recovery().checkpoint_refused), (0, &None));
        assert_eq!(contents_at_open(&store), wanted);
    });
}

#[test]
fn a_damaged_checkpoint_is_refused_and_all_records_are_read() {
    for_each_store(|options, path| {
        let wanted = closed(options, path, fill);
        let bytes = std::fs::read(path).unwrap();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        // In the superblock: where the root lies. In the root: counts, and then the first page.
        let root = word(96);
        assert_eq!(&bytes[root..root + 8], b"DURIMAGE");
        let count = |at: usize| word(root + at) & 0xffff_ffff;
        let page = word(root + 64 + 8 * count(32) + 32 * count(36) + 8);
        for (at, part) in [(root + 17, "root"), (page + 10, "page")] {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            std::fs::write(path, damaged).unwrap();
            let store = options.open(path).unwrap();
            let refused = store.recovery().checkpoint_refused.clone().unwrap();
            assert!(refused.contains(part) && refused.contains("checksum"), "{refused}");
            assert_eq!(contents_at_open(&store), wanted);
        }
    });
}

#[test]
fn damage_unread_by_an_open_by_checkpoint_is_found_in_the_background() {
    for_each_store(|options, path| {
        let store = options.open(path).unwrap();
        fill(&store);
        store.put(b"the damaged one", [0x77; 600]).unwrap();
        store.close().unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.windows(600).position(|window| window == [0x77; 600]).unwrap();
        bytes[at + 300] = 0;
        std::fs::write(path, &bytes).unwrap();
        let store = options.open(path).unwrap();
        assert!(store.recovery().checkpointed > 0);
        let stats = store.stats();
        assert_eq!((stats.damaged_blocks, stats.unverified_bytes), (0, stats.used_bytes + stats.free_bytes));
        for _ in 0..100 {
            store.maintain().unwrap();
        }
        let stats = store.stats();
        assert_eq!((stats.damaged_blocks, stats.unverified_bytes), (1, 0));
        let tells = |store: &Store| {
            let told = store.verify().unwrap_err();
            assert_eq!(told.kind(), duramen::ErrorKind::Corrupt);
            assert!(told.to_string().contains("damaged in 1 block: at extent "), "{told}");
        };
        tells(&store);
        store.close().unwrap();
        // The next open reads the blocks that are known to be damaged, and refuses them.
        assert_eq!(options.open(path).unwrap_err().kind(), duramen::ErrorKind::Corrupt);
        // A caller that cannot wait for the background thread asks.
        std::fs::write(path, &bytes).unwrap();
        tells(&options.open(path).unwrap());
        // A seal, of a store that is whole but for that: of the block whose record was damaged.
        bytes[at + 300] = 0x77;
        let is_block = |at: &usize| bytes[*at] & 15 == 2 && bytes[at + 24..at + 28] != [0; 4];
        let block = (0..=at / 4096).rev().map(|extent| extent * 4096).find(is_block).unwrap();
        bytes[block + 28] ^= 1;
        std::fs::write(path, &bytes).unwrap();
        tells(&options.open(path).unwrap());
    });
}

#[test]
fn a_full_store_drops_its_checkpoint() {
    for_each_store(|options, path| {
        let options = Options { residence: Residence::Persistent, len_max: 1 << 20, ..options.clone() };
        let store = options.open(path).unwrap();
        let mut put = 0;
        while store.put(key(put), [1; 200]).is_ok() {
            put += 1;
            if put % 100 == 0 {
                store.maintain().unwrap();
            }
        }
        // Whatever a checkpoint took came back before the store said that it is full.
        let stats = store.stats();
        assert!(stats.live_bytes * 10 > stats.used_bytes * 9, "{stats:?}");
        drop(store);
        let store = options.open(path).unwrap();
        assert_eq!(store.len(), u64::from(put));
    });
}

#[test]
fn no_checkpoint_is_written_with_durability_manual() {
    for_each_store(|options, path| {
        let options =
            Options { durability: Durability::Manual, residence: Residence::Persistent, ..options.clone() };
        let store = options.open(path).unwrap();
        fill(&store);
        store.maintain().unwrap();
        drop(store);
        let store = options.open(path).unwrap();
        assert!(store.is_empty());
        assert_eq!(store.recovery().checkpointed, 0);
        fill(&store);
        store.commit().unwrap();
        let wanted = contents(&store);
        drop(store);
        let store = options.open(path).unwrap();
        assert!(store.recovery().checkpointed > 0);
        assert_eq!(contents_at_open(&store), wanted);
    });
}

/// What a slot no longer counts must not be forgotten: an old record of a deleted key, in a block that the checkpoint
/// kept.
#[test]
fn a_key_that_is_deleted_after_a_checkpoint_and_a_crash_stays_deleted() {
    for_each_store(|options, path| {
        let mut options =
            Options { residence: Residence::Persistent, compaction_dead_percent: 5, ..options.clone() };
        options.tuning.compaction_bytes_min = Some(0);
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let big = |name: &str, store: &mut duramen::Writer| store.put(name.as_bytes(), [1; 3500]).unwrap();
        // A block with an old record of the key that is not worth compacting, and an open one with the new record.
        writer.put(b"key", b"old").unwrap();
        big("stays 1", &mut writer);
        big("stays 2", &mut writer);
        big("goes 1", &mut writer);
        writer.put(b"key", b"new").unwrap();
        store.maintain().unwrap();
        let killed = path.with_extension("killed");
        std::fs::copy(path, &killed).unwrap();
        drop((writer, store));

        let store = options.open(&killed).unwrap();
        assert!(store.recovery().checkpointed > 0, "{:?}", store.recovery());
        let mut writer = store.writer().unwrap();
        assert!(writer.delete(b"key").unwrap());
        // Now the blocks of the new record and of the tombstone are compacted, again and again.
        for round in 0..20 {
            for name in ["goes 1", "goes 2", "goes 3"] {
                big(name, &mut writer);
            }
            store.maintain().unwrap();
            assert!(store.get(b"key").unwrap().is_none(), "round {round}");
        }
        std::fs::copy(&killed, path).unwrap();
        drop((writer, store));
        let store = Options { index_checkpoint: false, ..options }.open(path).unwrap();
        assert!(store.get(b"key").unwrap().is_none(), "it came back");
    });
}

/// Pages of a checkpoint miss records that are written while the pages are; blocks that were sealed meanwhile must not
/// count either.
#[test]
fn writes_during_a_checkpoint_survive_a_crash() {
    for_each_store(|options, path| {
        let during: Arc<Mutex<Option<Store>>> = Arc::default();
        let mut options = Options { residence: Residence::Persistent, ..options.clone() };
        let store_in = Arc::clone(&during);
        options.tuning.on_phase = Some(Arc::new(move |phase, begins| {
            // Once: it is taken out.
            let store = store_in.try_lock().ok().filter(|_| begins && phase == Phase::CheckpointRoot);
            if let Some(store) = store.and_then(|mut store| store.take()) {
                let mut writer = store.writer().unwrap();
                for number in 0..200 {
                    writer.put(key(number), [2; 100]).unwrap();
                }
                assert!(writer.delete(key(200)).unwrap());
            }
        }));
        let store = options.open(path).unwrap();
        for number in 0..300 {
            store.put(key(number), [1; 100]).unwrap();
        }
        *during.lock().unwrap() = Some(store.clone());
        store.maintain().unwrap();
        assert!(during.lock().unwrap().is_none(), "a checkpoint was made");
        let killed = path.with_extension("killed");
        std::fs::copy(path, &killed).unwrap();
        options.tuning.on_phase = None;
        let store = options.open(&killed).unwrap();
        assert!(store.recovery().checkpointed > 0);
        for number in 0..300 {
            let wanted = match number {
                0..200 => Some(vec![2; 100]),
                200 => None,
                _ => Some(vec![1; 100]),
            };
            assert_eq!(store.get(key(number)).unwrap().map(|value| value.to_vec()), wanted, "{number}");
        }
    });
}

const ORDERS: [ElementOrder; 3] = [ElementOrder::Unordered, ElementOrder::ByValue, ElementOrder::ByKey];
const SIZES: [u64; 4] = [9000, 1, 40, 200];

fn name(order: usize, size: usize) -> Vec<u8> {
    format!("collection {order} {size}").into_bytes()
}

/// Collections of each order and of several sizes; one of each order is gone again, and some elements are.
fn fill_collections(store: &Store) {
    fill(store);
    for (at, order) in ORDERS.into_iter().enumerate() {
        for (size, elements) in SIZES.into_iter().enumerate() {
            let made = collections::make(store, &name(at, size), order);
            for element in 0..elements {
                made.put(key(element as u32), (element * 7 % 100).to_be_bytes()).unwrap();
            }
            for element in (3..elements).step_by(5) {
                assert!(made.delete(key(element as u32)).unwrap());
            }
        }
        assert!(store.delete(name(at, 2)).unwrap());
        // Renamed, so that another record names it than the first.
        let moved = collections::of(store, &name(at, 1)).unwrap();
        let mut batch = Batch::new();
        batch.delete(name(at, 1)).put_with(name(at, 9), b"state", collections::root(moved.id()));
        let _ = store.apply(&batch).unwrap();
    }
}

/// The elements of all collections, in their order.
fn elements(store: &Store) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut all = Vec::new();
    for (order, kind) in ORDERS.into_iter().enumerate() {
        assert!(collections::of(store, &name(order, 1)).is_none());
        assert!(collections::of(store, &name(order, 2)).is_none());
        for size in [0, 3, 9] {
            let collection = collections::of(store, &name(order, size)).unwrap();
            let mut those = Vec::new();
            let mut visit = |value: &duramen::Value<'_>| {
                those.push((value.key().to_vec(), value.to_vec()));
                true
            };
            match kind {
                ElementOrder::Unordered => collection.each(&mut visit).unwrap(),
                _ => collection.ranked(0, false, &mut visit).unwrap(),
            }
            for (rank, (key, value)) in those.iter().enumerate() {
                assert_eq!(collection.get(key).unwrap().as_deref(), Some(&value[..]));
                if kind != ElementOrder::Unordered && rank % 100 == 0 {
                    assert_eq!(collection.rank(key).unwrap(), Some(rank as u64));
                }
            }
            assert_eq!(collection.len(), those.len() as u64);
            those.sort_unstable_by_key(|(key, _)| (kind == ElementOrder::Unordered).then(|| key.clone()));
            all.push(those);
        }
    }
    assert_eq!(store.audit(), [""; 0]);
    all
}

#[test]
fn collections_are_in_the_checkpoint_of_a_clean_close() {
    for_each_store(|options, path| {
        let store = options.open(path).unwrap();
        fill_collections(&store);
        let (wanted, all) = (elements(&store), contents(&store));
        store.close().unwrap();
        let all_read = Options { index_checkpoint: false, ..options.clone() };
        let store = all_read.open(path).unwrap();
        assert_eq!(store.recovery().checkpointed, 0);
        let read = store.stats();
        store.close().unwrap();
        // That one wrote none.
        options.open(path).unwrap().close().unwrap();
        for round in 0..3 {
            let store = options.open(path).unwrap();
            let recovery = store.recovery();
            assert_eq!((recovery.records, recovery.clean), (recovery.checkpointed, true), "nothing was read");
            assert!(recovery.checkpointed > 27_000 && recovery.checkpoint_refused.is_none());
            let left = store.stats().index_pages_left;
            assert!(left >= 9, "{left} pages");
            match round {
                // Read by the threads that use them, or by the store itself.
                0 => assert_eq!(elements(&store), wanted),
                1 => store.maintain().unwrap(),
                _ => {}
            }
            assert_eq!(elements(&store), wanted, "round {round}");
            assert_eq!(contents(&store), all);
            store.maintain().unwrap();
            let stats = store.stats();
            assert_eq!(stats.index_pages_left, 0);
            assert_eq!((stats.used_bytes, stats.live_bytes), (read.used_bytes, read.live_bytes));
            store.close().unwrap();
        }
    });
}

/// Changes of collections after a checkpoint, or while it is made.
fn change_collections(store: &Store, round: u64) {
    for order in 0..ORDERS.len() {
        let large = collections::of(store, &name(order, 0)).unwrap();
        for element in 0..300 {
            large.put(key(element * 11 % 9000), (u64::from(element) + round).to_be_bytes()).unwrap();
        }
        large.put(format!("new {round}").as_bytes(), 0u64.to_be_bytes()).unwrap();
        for element in [1, 2, 7000 + round as u32] {
            let _ = large.delete(key(element)).unwrap();
        }
    }
    let small = collections::of(store, &name(1, 3)).unwrap();
    small.put(key(5), 1_000_000u64.to_be_bytes()).unwrap();
    // Another under the same name, and one under another.
    assert!(store.delete(name(2, 3)).unwrap());
    let made = collections::make(store, &name(2, 3), ElementOrder::ByKey);
    made.put(key(round as u32), b"of another").unwrap();
    let moved = collections::of(store, &name(0, 9)).unwrap();
    let mut batch = Batch::new();
    batch.delete(name(0, 9)).put_with(name(0, 4), b"state", collections::root(moved.id()));
    let _ = store.apply(&batch).unwrap();
    let mut batch = Batch::new();
    batch.delete(name(0, 4)).put_with(name(0, 9), b"state", collections::root(moved.id()));
    let _ = store.apply(&batch).unwrap();
}

/// Simulates a killed process: the next one must find the same by checkpoint as by all records. Returns how many
/// records it read of how many.
fn after_kill(path: &Path, options: &Options, wanted: &[Vec<(Vec<u8>, Vec<u8>)>]) -> (u64, u64) {
    let killed = collections::after_kill(path, options);
    let recovery = killed.recovery();
    assert!(!recovery.clean && recovery.checkpoint_refused.is_none());
    let read = (recovery.records - recovery.checkpointed, recovery.records);
    assert_eq!(elements(&killed), wanted);
    killed.maintain().unwrap();
    assert_eq!(elements(&killed), wanted);
    let all_read = collections::after_kill(path, &Options { index_checkpoint: false, ..options.clone() });
    assert_eq!(elements(&all_read), wanted);
    read
}

#[test]
fn after_a_crash_collections_are_read_from_the_checkpoint_of_the_last_close() {
    for_each_store(|options, path| {
        let options = &Options { residence: Residence::Persistent, ..options.clone() };
        let store = options.open(path).unwrap();
        fill_collections(&store);
        let wanted = elements(&store);
        store.close().unwrap();
        let store = options.open(path).unwrap();
        let (read, all) = after_kill(path, options, &wanted);
        assert!(read == 0 && all > 27_000, "{read} of {all}");
        for round in 0..3 {
            change_collections(&store, round);
            store.commit().unwrap();
            let (read, all) = after_kill(path, options, &elements(&store));
            assert!(read < all / 3, "{read} of {all} in round {round}");
        }
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(store.recovery().records, store.recovery().checkpointed);
    });
}

#[test]
fn collections_are_in_checkpoints() {
    for_each_store(|options, path| {
        let options =
            &Options { residence: Residence::Persistent, checkpoint_bytes: 50_000, ..options.clone() };
        let store = options.open(path).unwrap();
        fill_collections(&store);
        for round in 0..4 {
            // It waits until the dead records are reclaimed.
            let is_checkpointed = || {
                store.maintain().unwrap();
                let (read, all) = after_kill(path, options, &elements(&store));
                read < all / 3
            };
            assert!((0..100).any(|_| is_checkpointed()), "all was read in round {round}");
            (0..3).for_each(|part| change_collections(&store, 3 * round + part));
            store.commit().unwrap();
            let (read, all) = after_kill(path, options, &elements(&store));
            assert!(read < all / 3, "{read} of {all} in round {round}");
        }
        store.maintain().unwrap();
        assert!(store.stats().checkpoints >= 2, "{} checkpoints", store.stats().checkpoints);
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(store.recovery().records, store.recovery().checkpointed);
    });
}

#[test]
fn collections_changed_during_a_checkpoint_survive_a_crash() {
    for_each_store(|options, path| {
        let during: Arc<Mutex<Option<Store>>> = Arc::default();
        for wanted_phase in [Phase::Checkpoint, Phase::CheckpointRoot] {
            let mut options = Options { residence: Residence::Persistent, ..options.clone() };
            let store_in = Arc::clone(&during);
            options.tuning.on_phase = Some(Arc::new(move |phase, begins| {
                let store = store_in.try_lock().ok().filter(|_| begins && phase == wanted_phase);
                if let Some(store) = store.and_then(|mut store| store.take()) {
                    change_collections(&store, 1);
                }
            }));
            let path = path.with_extension(format!("{wanted_phase:?}"));
            let store = options.open(&path).unwrap();
            fill_collections(&store);
            *during.lock().unwrap() = Some(store.clone());
            // It waits until the dead records are reclaimed.
            let is_made = || during.lock().unwrap().is_none();
            assert!((0..100).any(|_| store.maintain().is_ok() && is_made()), "a checkpoint was made");
            options.tuning.on_phase = None;
            let (read, all) = after_kill(&path, &options, &elements(&store));
            assert!(read < all / 3, "{read} of {all}");
        }
    });
}

/// Stops the threads that look at it, also when a test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The elements of three collections that threads write; each transaction writes one element of all three.
fn of_threads(store: &Store) -> [BTreeMap<Vec<u8>, Vec<u8>>; 3] {
    [0, 1, 2].map(|order| {
        let those = collections::of(store, &name(order, 0)).unwrap();
        let mut all = BTreeMap::new();
        let visit = &mut |value: &duramen::Value<'_>| {
            if value.key().starts_with(b"thread") {
                assert_eq!(all.insert(value.key().to_vec(), value.to_vec()), None);
            }
            true
        };
        match those.order() {
            ElementOrder::Unordered => those.each(visit).unwrap(),
            _ => those.ranked(0, false, visit).unwrap(),
        }
        all
    })
}

/// Threads write while checkpoints are made; they rest while the medium is copied, as a kill would leave it.
#[test]
fn writes_of_threads_to_collections_during_checkpoints_survive_kills() {
    for_each_store(|options, path| {
        let options =
            &Options { residence: Residence::Persistent, checkpoint_bytes: 20_000, ..options.clone() };
        let store = options.open(path).unwrap();
        fill_collections(&store);
        let (over, rest) = (AtomicBool::new(false), RwLock::new(()));
        let checkpointed = std::thread::scope(|scope| {
            let _over = Over(&over);
            for thread in 0..2u64 {
                let (store, over, rest) = (&store, &over, &rest);
                scope.spawn(move || {
                    let those = [0, 1, 2].map(|order| collections::of(store, &name(order, 0)).unwrap());
                    let mut writer = store.writer().unwrap();
                    for number in (0u64..).take_while(|_| !over.load(Relaxed)) {
                        let _works = rest.read().unwrap();
                        let key = format!("thread {thread} {}", number % 700).into_bytes();
                        let written = writer.transaction(|transaction| {
                            let put = |those| transaction.collection(those).put(&key, number.to_be_bytes());
                            those.iter().try_for_each(put)
                        });
                        written.unwrap();
                    }
                });
            }
            let mut checkpointed = 0;
            for _ in 0..4 {
                for _ in 0..6 {
                    store.maintain().unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
                let (killed, wanted) = {
                    let _rests = rest.write().unwrap();
                    store.commit().unwrap();
                    (collections::after_kill(path, options), of_threads(&store))
                };
                checkpointed += u64::from(killed.recovery().checkpointed > 20_000);
                let found = of_threads(&killed);
                assert!(!found[0].is_empty() && found[0] == found[1] && found[1] == found[2]);
                assert!(found == wanted);
                assert_eq!(killed.audit(), [""; 0]);
            }
            checkpointed
        });
        assert!(checkpointed >= 2, "{checkpointed} of 4 opens had a checkpoint");
    });
}

#[test]
fn a_collection_deleted_before_its_pages_are_read_frees_its_space() {
    for_each_store(|options, path| {
        let store = options.open(path).unwrap();
        fill_collections(&store);
        store.close().unwrap();
        let store = options.open(path).unwrap();
        let live = store.stats().live_bytes;
        for order in 0..ORDERS.len() {
            assert!(store.delete(name(order, 0)).unwrap());
        }
        store.commit().unwrap();
        let is_back = maintained(&store, || store.stats().live_bytes < live / 2);
        assert!(is_back, "{} of {live}", store.stats().live_bytes);
        assert_eq!(store.audit(), [""; 0]);
    });
}

#[test]
fn collections_of_a_table_cleared_before_the_close_are_not_counted() {
    for_each_store(|options, path| {
        let store = options.open(path).unwrap();
        fill(&store);
        let table = store.table(b"table", IndexKind::Hash).unwrap();
        let made = store.new_collection(ElementOrder::ByValue);
        let mut batch = Batch::new();
        batch.table(Some(&table)).put_with(b"key", b"state", collections::root(made.id()));
        let _ = store.apply(&batch).unwrap();
        for element in 0..3000 {
            made.put(key(element), [1; 50]).unwrap();
        }
        let live = store.stats().live_bytes;
        table.clear().unwrap();
        drop((made, table));
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(store.recovery().records, store.recovery().checkpointed);
        assert_eq!(store.audit(), [""; 0]);
        store.maintain().unwrap();
        assert!(store.stats().live_bytes < live - 150_000, "{} of {live}", store.stats().live_bytes);
    });
}
