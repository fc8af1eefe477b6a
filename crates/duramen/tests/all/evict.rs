//! Eviction: a store below a limit evicts keys instead of refusing writes.

use duramen::{
    ElementOrder, ErrorKind, EvictBy, Evicted, Eviction, IndexKind, MediumKind, Meta, Options, Store, Table,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const LIMIT: u64 = 4 << 20;

fn policy(by: EvictBy, volatile_only: bool) -> Option<Eviction> {
    Some(Eviction { by, volatile_only })
}

fn options(eviction: Option<Eviction>, background: bool) -> Options {
    Options {
        medium: MediumKind::Shm,
        limit: LIMIT,
        eviction,
        background,
        extent_bytes: Some(24 << 10),
        durability: duramen::Durability::Interval(std::time::Duration::from_secs(1)),
        ..Options::default()
    }
}

fn open(path: &Path, options: &Options) -> (Store, Table) {
    let store = options.open(path).unwrap();
    let table = store.table(b"cache", IndexKind::Hash).unwrap();
    table.set_evictable(Some(3));
    (store, table)
}

fn key(at: u64) -> Vec<u8> {
    format!("key:{at:08}").into_bytes()
}

fn value(at: u64, round: u64) -> Vec<u8> {
    let mut value = format!("{at}:{round}:").into_bytes();
    value.resize(120 + (at % 80) as usize, b'v');
    value
}

fn is_sound(store: &Store) {
    let wrong = store.audit();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn without_eviction_writes_beyond_the_limit_are_refused_and_the_limit_can_change() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, table) = open(&dir.path().join("store"), &options(None, true));
    let put_until_full = |from: u64| -> u64 {
        (from..from + 1_000_000)
            .find(|&at| match table.put(key(at), value(at, 0)) {
                Ok(()) => false,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
                    assert!(error.to_string().contains("limit"), "{error}");
                    true
                }
            })
            .unwrap()
    };
    let first = put_until_full(0);
    let stats = store.stats();
    assert!(stats.used_bytes <= LIMIT && stats.used_bytes > LIMIT * 8 / 10, "{stats:?}");
    assert_eq!((stats.evicted_keys, table.len()), (0, first));
    store.set_limit(2 * LIMIT);
    let second = put_until_full(first);
    assert!(second > first * 3 / 2, "{first} {second}");
    // It has more than it may now: nothing is put until there is less.
    store.set_limit(LIMIT);
    assert!(table.put(key(0), value(0, 1)).is_err());
    (0..second * 2 / 3).for_each(|at| assert!(table.delete(key(at)).unwrap()));
    table.put(key(0), value(0, 1)).unwrap();
    store.set_limit(0);
    (0..4 * second).for_each(|at| table.put(key(at), value(at, 2)).unwrap());
    is_sound(&store);
}

#[test]
fn no_later_write_of_a_key_comes_before_its_eviction_is_reported() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, table) = open(&dir.path().join("store"), &options(policy(EvictBy::Chance, false), false));
    let (table, early, told) = (Arc::new(table), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (to, at, seen) = (Arc::clone(&table), Arc::clone(&early), Arc::clone(&told));
    store.set_on_evicted(Arc::new(move |evicted| {
        if seen.fetch_add(1, Relaxed) % 500 != 0 {
            return;
        }
        let (table, key, is_written) = (Arc::clone(&to), evicted.key.clone(), Arc::new(AtomicU64::new(0)));
        let by = Arc::clone(&is_written);
        std::thread::spawn(move || {
            // There may be no room at this moment.
            let _ = table.put(&key, b"again");
            by.store(1, Relaxed);
        });
        // A put that does not wait for this call finishes within this time.
        std::thread::sleep(std::time::Duration::from_millis(10));
        at.fetch_add(is_written.load(Relaxed), Relaxed);
    }));
    for at in 0..60_000u64 {
        table.put(key(at), value(at, at)).unwrap();
    }
    assert!(told.load(Relaxed) > 5_000, "{} are evicted", told.load(Relaxed));
    assert_eq!(early.load(Relaxed), 0, "written before their eviction was reported");
    while Arc::strong_count(&table) > 2 {
        std::thread::yield_now();
    }
}

#[test]
fn every_policy_accepts_writes_of_ten_times_the_limit() {
    let policies = EvictBy::ALL.into_iter().flat_map(|by| [(by, false), (by, true)]);
    // By expiry only keys that expire are evicted anyway.
    for (by, volatile_only) in policies.filter(|policy| *policy != (EvictBy::Expiry, false)) {
        for background in [false, true] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = dir.path().join("store");
            let options = options(policy(by, volatile_only), background);
            let (store, table) = open(&path, &options);
            let told: Arc<Mutex<Vec<Evicted>>> = Arc::default();
            let to = Arc::clone(&told);
            store.set_on_evicted(Arc::new(move |evicted| to.lock().unwrap().push(evicted.clone())));
            let other = store.table(b"kept", IndexKind::Ordered).unwrap();
            let far = 4_000_000_000_000;
            let meta = Meta { expires_at: volatile_only.then_some(far), ..Meta::default() };
            // Keys in tables that may not evict, or that do not expire, stay.
            (0..500).for_each(|at| other.put(key(at), value(at, 7)).unwrap());
            if volatile_only {
                (0..500).for_each(|at| table.put(key(1 << 30 | at), value(at, 8)).unwrap());
            }
            let mut last = HashMap::new();
            for at in 0..100_000u64 {
                let key = key(at * 7 % 80_000);
                let meta = Meta { expires_at: meta.expires_at.map(|far| far + at % 1_000 * 60_000), ..meta };
                table.put_with(&key, value(at, at), meta).unwrap();
                last.insert(key, value(at, at));
            }
            let stats = store.stats();
            assert!(stats.used_bytes <= LIMIT, "{by:?}: {stats:?}");
            assert!(stats.evicted_keys > 30_000, "{by:?}: {stats:?}");
            // The store's background thread may still be evicting.
            let mut before = u64::MAX;
            while before != store.stats().evicted_keys {
                before = store.stats().evicted_keys;
                std::thread::sleep(std::time::Duration::from_millis(if background { 300 } else { 0 }));
            }
            let check = |store: &Store, table: &Table, other: &Table| {
                let mut found = 0;
                for (key, value) in &last {
                    if let Some(there) = table.get(key).unwrap() {
                        assert_eq!(&*there, &value[..], "{by:?}");
                        found += 1;
                    }
                }
                assert!(found > 5_000, "{by:?} keeps {found}");
                (0..500).for_each(|at| {
                    assert_eq!(other.get(key(at)).unwrap().as_deref(), Some(&value(at, 7)[..]))
                });
                if volatile_only {
                    let kept = |at| table.get(key(1 << 30 | at)).unwrap().map(|value| value.to_vec());
                    (0..500).for_each(|at| assert_eq!(kept(at), Some(value(at, 8)), "{by:?}"));
                }
                assert_eq!(table.len(), found + if volatile_only { 500 } else { 0 }, "{by:?}");
                is_sound(store);
            };
            check(&store, &table, &other);
            let told = std::mem::take(&mut *told.lock().unwrap());
            assert_eq!(told.len() as u64, store.stats().evicted_keys);
            assert!(told.iter().all(|evicted| evicted.label == 3 && evicted.key.starts_with(b"key:")));
            drop((table, other));
            store.close().unwrap();
            let (store, table) = open(&path, &options);
            check(&store, &table, &store.find_table(b"kept").unwrap().unwrap());
        }
    }
}

#[test]
fn keys_that_are_read_are_not_evicted() {
    for by in [EvictBy::Recency, EvictBy::Frequency] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (store, table) = open(&dir.path().join("store"), &options(policy(by, false), true));
        (0..2_000).for_each(|at| table.put(key(at), value(at, 0)).unwrap());
        for at in 0..200_000u64 {
            table.put(key(1_000_000 + at), value(at, 0)).unwrap();
            for _ in 0..2 {
                let _ = table.get(key(at * 2_654_435_761 % 2_000)).unwrap();
            }
        }
        let hot = (0..2_000).filter(|&at| table.get(key(at)).unwrap().is_some()).count();
        assert!(hot > 1_800, "{by:?}: {hot} of 2,000 that are read all the time stayed");
        assert!(store.reads_of(key(5)) > 0);
        assert!(store.stats().access_bytes > 0 && store.stats().access_bytes <= 5 << 20);
        store.set_eviction(None);
        assert_eq!((store.reads_of(key(5)), store.stats().access_bytes), (0, 0));
    }
}

/// By frequency, half of each block was evicted once. So the popular keys of a block competed with each other, and the
/// keys that were read once with each other.
#[test]
fn eviction_by_frequency_has_about_the_hit_ratio_of_recency() {
    let found = |by| {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (store, table) = open(&dir.path().join("store"), &options(policy(by, false), false));
        let (mut found, mut seed) = (0, 1u64);
        for at in 0..300_000 {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
            // Zipfian with skew 1: the logarithm of the rank is uniform.
            let rank = 60_000f64.powf((seed >> 11) as f64 / (1u64 << 53) as f64) as u64;
            match table.get(key(rank)).unwrap() {
                Some(_) => found += u64::from(at >= 150_000),
                None => table.put(key(rank), value(rank, 0)).unwrap(),
            }
        }
        assert!(store.stats().evicted_keys > 10_000);
        found as f64 / 150_000.0
    };
    let (recency, frequency) = (found(EvictBy::Recency), found(EvictBy::Frequency));
    assert!(frequency > recency - 0.01, "{frequency:.4} by frequency, {recency:.4} by recency");
}

/// A writer may move so much on the credit of what went before that it gave up, and refused.
#[test]
fn a_writer_finds_room_where_every_key_was_read_often() {
    let limit = 96 << 20;
    for by in [EvictBy::Frequency, EvictBy::Recency] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options { limit, ..options(policy(by, false), false) };
        let (store, table) = open(&dir.path().join("store"), &options);
        let value = vec![b'v'; 1000];
        let keys = limit / 1100;
        (0..keys).for_each(|at| table.put(key(at), &value).unwrap());
        (0..keys).for_each(|at| (0..3).for_each(|_| drop(table.get(key(at)).unwrap())));
        (keys..2 * keys).for_each(|at| table.put(key(at), &value).unwrap());
        assert!(store.stats().evicted_keys > 0);
    }
}

#[test]
fn a_collection_is_evicted_as_a_whole() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, table) = open(&dir.path().join("store"), &options(policy(EvictBy::Recency, false), true));
    for at in 0..1_000u64 {
        let collection = store.new_collection(ElementOrder::ByKey);
        for element in 0..40u64 {
            collection.put(element.to_be_bytes(), value(element, at)).unwrap();
        }
        let meta = Meta { collection: Some(collection.id()), ..Meta::default() };
        table.put_with(key(at), b"root", meta).unwrap();
        (0..100).for_each(|other| table.put(key(1_000_000 + other), value(other, at)).unwrap());
    }
    let mut whole = 0;
    for at in 0..1_000u64 {
        let Some(root) = table.get(key(at)).unwrap() else { continue };
        let collection = store.collection(root.meta().collection.unwrap()).unwrap();
        assert_eq!(collection.len(), 40);
        for element in 0..40u64 {
            assert_eq!(
                collection.get(element.to_be_bytes()).unwrap().as_deref(),
                Some(&value(element, at)[..])
            );
        }
        whole += 1;
    }
    assert!(whole > 50 && whole < 990, "{whole} of 1,000 collections are there");
    is_sound(&store);
}

#[test]
fn expiring_collections_are_evicted_and_others_stay() {
    for (by, background) in EvictBy::ALL.into_iter().flat_map(|by| [(by, false), (by, true)]) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let (store, table) = open(&dir.path().join("store"), &options(policy(by, true), background));
        let write = |name: &[u8], expires_at| {
            let collection = store.new_collection(ElementOrder::ByKey);
            for element in 0..100u64 {
                collection.put(element.to_be_bytes(), [b'e'; 48]).unwrap_or_else(|error| {
                    panic!("{by:?}: {error}: {:?}", store.stats());
                });
            }
            let meta = Meta { collection: Some(collection.id()), expires_at, ..Meta::default() };
            table.put_with(name, b"root", meta).unwrap();
        };
        for at in 0..1_000u64 {
            write(&key(at), Some(4_000_000_000_000 + at));
            if at % 50 == 0 {
                write(&key(1_000_000 + at), None);
            }
        }
        let is_there = |at: u64| {
            let Some(root) = table.get(key(at)).unwrap() else { return false };
            let collection = store.collection(root.meta().collection.unwrap()).unwrap();
            assert_eq!(collection.len(), 100);
            true
        };
        let there = (0..1_000).filter(|&at| is_there(at)).count();
        // Some 9 kB each, in 4 MiB.
        assert!(there > 80 && there < 450, "{by:?}: {there}");
        assert!((0..20).all(|at| is_there(1_000_000 + at * 50)), "{by:?}");
        is_sound(&store);
    }
}

#[test]
fn a_lower_limit_is_reached_by_evicting() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (store, table) = open(&dir.path().join("store"), &options(policy(EvictBy::Recency, false), true));
    store.set_limit(4 * LIMIT);
    (0..60_000).for_each(|at| table.put(key(at), value(at, 0)).unwrap());
    assert!(store.stats().used_bytes > 2 * LIMIT);
    store.set_limit(LIMIT);
    for _ in 0..500 {
        if store.stats().used_bytes <= LIMIT {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(store.stats().used_bytes <= LIMIT, "{:?}", store.stats());
    assert!(table.len() > 5_000);
    is_sound(&store);
}

#[test]
fn nothing_is_evicted_while_a_command_runs_alone() {
    for background in [false, true] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = options(policy(EvictBy::Recency, false), background);
        let (store, table) = open(&dir.path().join("store"), &options);
        let stop = AtomicBool::new(false);
        let evicted = || store.stats().evicted_keys;
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let (table, stop) = (&table, &stop);
                scope.spawn(move || {
                    let mut at = thread << 32;
                    while !stop.load(Relaxed) {
                        table.put(key(at), value(at, 0)).unwrap();
                        at += 1;
                    }
                });
            }
            let mut writer = store.writer().unwrap();
            let mut beside = 0;
            for round in 0..40u64 {
                let before = evicted();
                while evicted() < before + 1_000 {
                    std::thread::yield_now();
                }
                writer
                    .locked_all(|_| -> duramen::Result<()> {
                        let before = evicted();
                        // Room that is wanted at once.
                        store.set_limit(LIMIT - round % 2 * LIMIT / 4);
                        std::thread::sleep(std::time::Duration::from_millis(10));
                        beside += evicted() - before;
                        Ok(())
                    })
                    .unwrap();
            }
            stop.store(true, Relaxed);
            assert_eq!(beside, 0, "background: {background}");
        });
        is_sound(&store);
    }
}
