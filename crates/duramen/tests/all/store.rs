//! The store's promises through its public door, over media and durabilities.

mod batches;
mod expiry;
mod long;
mod pick;

use duramen::{
    Batch, Durability, ErrorKind, IndexKind, MediumKind, Meta, Modified, Options, Store, Swap, Update,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Every configuration that tests run over: a name, and how to open. Each with both kinds of index.
fn configurations() -> Vec<(String, Options)> {
    let kinds = [IndexKind::Hash, IndexKind::Ordered];
    let of_kind = |index| {
        media().into_iter().map(move |(name, options)| {
            let mut options = Options { index, index_cache_slots: 1 << 10, ..options };
            options.tuning.leaf_slots = 4;
            (format!("{name}, {index}"), options)
        })
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

fn media() -> Vec<(&'static str, Options)> {
    let small = Options { extent_bytes: Some(4096), background: false, ..Options::default() };
    let with = |medium, durability| Options { medium, durability, ..small.clone() };
    let interval = Durability::Interval(Duration::from_secs(3600));
    vec![
        ("shm every-write", with(MediumKind::Shm, Durability::EveryWrite)),
        (
            "shm every-write, real flushes",
            Options {
                flush_instruction: Some(duramen::FlushInstruction::Clflush),
                ..with(MediumKind::Shm, Durability::EveryWrite)
            },
        ),
        (
            "shm interval, real flushes",
            Options {
                flush_instruction: Some(duramen::FlushInstruction::Clflush),
                ..with(MediumKind::Shm, interval)
            },
        ),
        ("shm manual", with(MediumKind::Shm, Durability::Manual)),
        ("file every-write", with(MediumKind::File, Durability::EveryWrite)),
        ("file interval", with(MediumKind::File, interval)),
        ("file manual", with(MediumKind::File, Durability::Manual)),
    ]
}

fn for_each_store(test: impl Fn(&str, &Options, &Path)) {
    for (name, options) in configurations() {
        eprintln!("configuration: {name}");
        let dir = if options.medium == MediumKind::Shm {
            tempfile::tempdir_in("/dev/shm").unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        test(&name, &options, &dir.path().join("store"));
    }
}

fn contents(store: &Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    store
        .for_each(|value| {
            all.insert(value.key().to_vec(), value.to_vec());
        })
        .unwrap();
    all
}

#[test]
fn a_value_that_expires_can_be_updated_in_place() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        let meta = Meta { tag: 5, expires_at: Some(u64::MAX), updatable: true, ..Meta::default() };
        store.put_with(b"12345678", [1; 16], meta).unwrap();
        let _ = store.update(b"12345678", 8, &[2; 8]).unwrap();
        store.commit().unwrap();
        store.close().unwrap();
        let store = options.open(path).unwrap();
        let value = store.get(b"12345678").unwrap().unwrap();
        assert_eq!(&value[..], [[1; 8], [2; 8]].concat());
        assert_eq!((value.tag(), value.expires_at()), (5, Some(u64::MAX)));
    });
}

#[test]
fn a_tombstone_survives_dead_records_of_another_key_with_its_hash() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let options = Options {
        extent_bytes: Some(4096),
        background: false,
        hash_mask: 0,
        len_max: 128 << 10,
        ..Options::default()
    };
    let store = options.open(&path).unwrap();
    let mut writer = store.writer().unwrap();
    let fill = |writer: &mut duramen::Writer, from: u8| {
        (from..from + 8).for_each(|i| writer.put([i], [i; 400]).unwrap());
    };
    // One block with the old value, another with the tombstone and what the other key leaves dead.
    // So small that its block is not worth compacting for it.
    writer.put(b"d", b"").unwrap();
    fill(&mut writer, 0);
    writer.put(b"pad", [0; 400]).unwrap();
    writer.put(b"other", [1; 400]).unwrap();
    assert!(writer.delete(b"d").unwrap());
    fill(&mut writer, 8);
    writer.put(b"other", [2; 400]).unwrap();
    for _ in 0..1000 {
        writer.put(b"churn", [3; 400]).unwrap();
    }
    assert!(store.stats().compactions > 0);
    drop(writer);
    store.close().unwrap();
    assert!(options.open(&path).unwrap().get(b"d").unwrap().is_none());
}

#[test]
fn dead_records_in_blocks_without_a_writer_are_reclaimed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let options =
        Options { extent_bytes: Some(768), background: false, len_max: 24 << 10, ..Options::default() };
    let store = options.open(dir.path().join("store")).unwrap();
    let key = |i: usize| vec![i as u8; [2, 9, 40, 120, 16, 3, 120, 16, 120, 120, 16, 40, 9, 4][i]];
    (0..14).for_each(|i| store.put(key(i), [1; 16]).unwrap());
    // A block with room for a short key is kept open when a long one goes to the next.
    let mut random = 1u64;
    for _ in 0..5000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        store.put(key((random >> 62) as usize), [2; 20]).unwrap();
    }
}

#[test]
fn values_are_readable_after_reopening() {
    for_each_store(|_, options, path| {
        let mut model = BTreeMap::new();
        {
            let store = options.open(path).unwrap();
            for i in 0..3000u32 {
                let (key, value) = (format!("key{}", i % 700), vec![i as u8; (i % 311) as usize]);
                store.put(key.as_bytes(), &value).unwrap();
                model.insert(key.into_bytes(), value);
                if i % 7 == 0 {
                    let key = format!("key{}", i % 500).into_bytes();
                    assert_eq!(store.delete(&key).unwrap(), model.remove(&key).is_some());
                }
            }
            assert_eq!(store.len(), model.len() as u64);
            assert_eq!(contents(&store), model);
            store.commit().unwrap();
        }
        for _ in 0..2 {
            let store = options.open(path).unwrap();
            assert_eq!(store.len(), model.len() as u64);
            assert_eq!(contents(&store), model);
            for (key, value) in &model {
                assert_eq!(&*store.get(key).unwrap().unwrap(), &value[..]);
            }
            assert!(store.get(b"never").unwrap().is_none());
            store.close().unwrap();
            assert!(duramen::check(path, options).unwrap().damage.is_empty());
        }
    });
}

#[test]
fn keys_and_values_of_every_size_read_back() {
    for_each_store(|_, options, path| {
        let sizes =
            [0, 1, 7, 8, 63, 64, 4000, 4032, 4072, 4073, 4090, 4096, 8192, 65_535, 65_536, 1 << 20, 3 << 20];
        let value = |n: usize| (0..n).map(|i| (i * 31 + n) as u8).collect::<Vec<_>>();
        let store = options.open(path).unwrap();
        for &n in &sizes {
            store.put(format!("v{n}").as_bytes(), value(n)).unwrap();
            if n <= duramen::KEY_BYTES_MAX {
                store.put(value(n), b"long key").unwrap();
            }
        }
        store.commit().unwrap();
        store.close().unwrap();
        let store = options.open(path).unwrap();
        for &n in &sizes {
            assert_eq!(&*store.get(format!("v{n}").as_bytes()).unwrap().unwrap(), &value(n)[..], "{n}");
            if n <= duramen::KEY_BYTES_MAX {
                assert_eq!(&*store.get(value(n)).unwrap().unwrap(), b"long key", "{n}");
            }
        }
        let too_long = vec![0; duramen::KEY_BYTES_MAX + 1];
        assert_eq!(store.put(&too_long, b"").unwrap_err().kind(), ErrorKind::InvalidInput);
    });
}

#[test]
fn a_batch_is_all_or_nothing_and_checks_its_conditions() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        writer.put(b"a", b"1").unwrap();
        let (absent, _) = writer.get_stamped(b"b").unwrap();
        let (stamp, _) = writer.get_stamped(b"a").unwrap();
        let mut batch = Batch::new();
        batch.put(b"a", b"2").put(b"b", b"2").delete(b"c").put(b"a", b"3");
        batch.expect(b"a", stamp).expect(b"b", absent);
        assert_eq!(writer.apply(&batch).unwrap(), Swap::Done);
        assert_eq!(writer.apply(&batch).unwrap(), Swap::Changed);
        assert_eq!(&*store.get(b"a").unwrap().unwrap(), b"3");
        assert_eq!(&*store.get(b"b").unwrap().unwrap(), b"2");
        let (stamp, _) = writer.get_stamped(b"a").unwrap();
        assert_eq!(writer.compare_and_swap(b"a", stamp, None).unwrap(), Swap::Done);
        assert_eq!(writer.compare_and_swap(b"a", stamp, None).unwrap(), Swap::Changed);
        assert_eq!(store.len(), 1);
        // A batch larger than any ordinary block.
        let mut large = Batch::new();
        for i in 0..2000u32 {
            large.put(i.to_le_bytes(), [i as u8; 200]);
        }
        assert_eq!(writer.apply(&large).unwrap(), Swap::Done);
        drop(writer);
        store.commit().unwrap();
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(store.len(), 2001);
        assert_eq!(&*store.get(1999u32.to_le_bytes()).unwrap().unwrap(), &[1999u32 as u8; 200]);
    });
}

#[test]
fn an_update_changes_a_part_of_a_value() {
    for_each_store(|name, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let meta = Meta { updatable: true, ..Meta::default() };
        // A 16-byte key leaves the value 8-byte aligned.
        writer.put_with(b"sixteen byte key", [0; 32], meta).unwrap();
        let wanted = if name.contains("every-write") && name.contains("shm") {
            Update::InPlace
        } else {
            Update::NewVersion
        };
        assert_eq!(writer.update(b"sixteen byte key", 8, &7u64.to_le_bytes()).unwrap(), wanted, "{name}");
        assert_eq!(writer.update(b"sixteen byte key", 3, &[9; 5]).unwrap(), Update::NewVersion);
        assert_eq!(writer.update(b"nothing", 0, &[1]).unwrap(), Update::Absent);
        let error = writer.update(b"sixteen byte key", 30, &[1; 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let mut model = [0; 32];
        model[8..16].copy_from_slice(&7u64.to_le_bytes());
        model[3..8].fill(9);
        assert_eq!(&*store.get(b"sixteen byte key").unwrap().unwrap(), &model);
        drop(writer);
        store.commit().unwrap();
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(&*store.get(b"sixteen byte key").unwrap().unwrap(), &model);
    });
}

#[test]
fn an_update_on_condition_is_done_only_if_nothing_changed() {
    for_each_store(|name, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let key = b"sixteen byte key";
        let in_place = name.contains("every-write") && name.contains("shm");
        for bytes in [16, 200] {
            writer.put_with(key, vec![0; bytes], Meta { updatable: true, ..Meta::default() }).unwrap();
            let seen = writer.get_stamped(key).unwrap().0;
            let wanted = if in_place { Update::InPlace } else { Update::NewVersion };
            assert_eq!(writer.compare_and_update(key, seen, 8, &[1; 8]).unwrap(), Some(wanted), "{name}");
            assert_eq!(writer.compare_and_update(key, seen, 8, &[2; 8]).unwrap(), None, "{name}");
            assert_eq!(store.get(key).unwrap().unwrap()[8..16], [1; 8]);
            // What cannot be done in place has the same condition.
            let seen = writer.get_stamped(key).unwrap().0;
            let wanted = Some(Update::NewVersion);
            assert_eq!(writer.compare_and_update(key, seen, 3, &[3; 3]).unwrap(), wanted, "{name}");
            assert_eq!(writer.compare_and_update(key, seen, 3, &[4; 3]).unwrap(), None, "{name}");
            assert_eq!(store.get(key).unwrap().unwrap()[2..7], [0, 3, 3, 3, 0]);
            let seen = writer.get_stamped(key).unwrap().0;
            let error = writer.compare_and_update(key, seen, bytes - 4, &[5; 8]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            // An absent key has a stamp too.
            let before = writer.get_stamped(key).unwrap().0;
            assert!(writer.delete(key).unwrap());
            let gone = writer.get_stamped(key).unwrap().0;
            assert_eq!(writer.compare_and_update(key, before, 8, &[6; 8]).unwrap(), None, "{name}");
            let absent = Some(Update::Absent);
            assert_eq!(writer.compare_and_update(key, gone, 8, &[6; 8]).unwrap(), absent, "{name}");
        }
        let never = writer.get_stamped(b"never").unwrap().0;
        assert_eq!(writer.compare_and_update(b"never", never, 0, &[1]).unwrap(), Some(Update::Absent));
        assert_eq!(contents(&store), BTreeMap::new());
    });
}

#[test]
fn a_value_is_read_and_updated_in_one_step_or_not_at_all() {
    for_each_store(|name, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let in_place = name.contains("every-write") && name.contains("shm");
        let expires_at = Some(u64::MAX >> 1);
        let meta = Meta { tag: 7, updatable: true, expires_at, ..Meta::default() };
        let key = b"sixteen byte key";
        writer.put_with(key, [5; 24], meta).unwrap();
        let mut seen = None;
        let done = writer.modify_in_place(key, |meta, value| {
            seen = Some((meta, value.to_vec()));
            Some((16, [9; 8]))
        });
        assert_eq!(done.unwrap(), if in_place { Modified::InPlace } else { Modified::NotInPlace }, "{name}");
        assert_eq!(seen, in_place.then(|| (meta, vec![5; 24])), "{name}");
        let found = store.get(key).unwrap().unwrap();
        assert_eq!(found[..16], [5; 16]);
        assert_eq!(found[16..], [if in_place { 9 } else { 5 }; 8], "{name}");
        let found = found.to_vec();
        if in_place {
            assert_eq!(writer.modify_in_place(key, |_, _| None).unwrap(), Modified::Declined);
            let error = writer.modify_in_place(key, |_, _| Some((17, [1; 8]))).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        // Not aligned; not updatable; not there.
        writer.put(b"plain", [1; 8]).unwrap();
        for key in [&key[..], b"plain", b"absent"] {
            let done = writer.modify_in_place(key, |_, _| Some((3, [1; 8]))).unwrap();
            assert_eq!(done, Modified::NotInPlace, "{name}");
        }
        assert_eq!(*store.get(key).unwrap().unwrap(), found);
        assert_eq!(*store.get(b"plain").unwrap().unwrap(), [1; 8]);
    });
}

/// Additions by both kinds of update, alone and in groups, while the compactor moves the counters.
#[test]
fn updates_of_several_threads_do_not_lose_each_other() {
    const ROUNDS: u64 = 3_000;
    const KEYS: [&[u8]; 3] = [b"eight by", b"a key of sixteen", b"two dozen bytes as a key"];
    for_each_store(|name, options, path| {
        if !(name.contains("shm") && name.contains("every-write")) {
            return;
        }
        let store = Options { background: true, ..options.clone() }.open(path).unwrap();
        let meta = Meta { updatable: true, ..Meta::default() };
        KEYS.iter().for_each(|key| store.put_with(key, [0; 8], meta).unwrap());
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let store = &store;
                scope.spawn(move || {
                    let mut writer = store.writer().unwrap();
                    for round in 0..ROUNDS {
                        if thread == 1 && round.is_multiple_of(8) {
                            writer.flush_group().unwrap();
                            writer.group();
                        }
                        let key = KEYS[(round % 3) as usize];
                        // Space that is overwritten, so that there is something to compact.
                        writer.put(thread.to_le_bytes(), [1; 600]).unwrap();
                        if (round + thread).is_multiple_of(2) {
                            let done = writer.modify_in_place(key, |_, value| {
                                Some((0, (number(value) + 1).to_le_bytes()))
                            });
                            assert_eq!(done.unwrap(), Modified::InPlace);
                            continue;
                        }
                        loop {
                            let (stamp, value) = writer.get_stamped(key).unwrap();
                            let next = (number(&value.unwrap()) + 1).to_le_bytes();
                            match writer.compare_and_update(key, stamp, 0, &next).unwrap() {
                                Some(Update::InPlace) => break,
                                None => {}
                                other => panic!("{name}: {other:?}"),
                            }
                        }
                    }
                    writer.flush_group().unwrap();
                });
            }
        });
        for key in KEYS {
            assert_eq!(number(&store.get(key).unwrap().unwrap()), ROUNDS, "{name}");
        }
    });
}

#[test]
fn expired_keys_are_gone_and_stay_gone() {
    for_each_store(|_, options, path| {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&now);
        let options = Options { clock: Some(Arc::new(move || clock.load(Relaxed))), ..options.clone() };
        let store = options.open(path).unwrap();
        store.put(b"k", b"before").unwrap();
        store.put_with(b"k", b"v", Meta { expires_at: Some(1_000_500), ..Meta::default() }).unwrap();
        assert_eq!(store.get(b"k").unwrap().unwrap().expires_at(), Some(1_000_500));
        now.store(1_000_500, Relaxed);
        assert!(store.get(b"k").unwrap().is_none());
        assert_eq!(store.len(), 1, "not yet swept");
        now.store(1_002_000, Relaxed);
        store.maintain().unwrap();
        assert_eq!(store.len(), 0);
        assert!(!store.delete(b"k").unwrap());
        store.commit().unwrap();
        store.close().unwrap();
        // The clock goes back: keys that were seen as expired stay gone.
        now.store(900_000, Relaxed);
        let store = options.open(path).unwrap();
        assert!(store.get(b"k").unwrap().is_none());
        assert_eq!(store.len(), 0);
    });
}

#[test]
fn an_expired_key_is_reported_once_by_any_sweep() {
    for_each_store(|_, options, path| {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&now);
        let options = Options { clock: Some(Arc::new(move || clock.load(Relaxed))), ..options.clone() };
        let store = options.open(path).unwrap();
        let table = store.table(b"t", store.index_kind()).unwrap();
        let told: Arc<std::sync::Mutex<Vec<duramen::Expired>>> = Arc::default();
        let to = Arc::clone(&told);
        store.set_on_expired(Some(Arc::new(move |expired| to.lock().unwrap().push(expired.clone()))));
        let meta = |at| Meta { expires_at: Some(at), ..Meta::default() };
        let mut writer = store.writer().unwrap();
        for key in [b"a", b"b", b"c"] {
            writer.table(&table).put_with(key, b"v", meta(1_000_500)).unwrap();
        }
        writer.table(&table).put_with(b"later", b"v", meta(9_000_000)).unwrap();
        writer.put_with(b"own", b"v", meta(1_000_500)).unwrap();
        assert!(!writer.table(&table).expire(b"a").unwrap(), "not yet");
        now.store(1_000_500, Relaxed);
        assert!(writer.table(&table).expire(b"a").unwrap());
        assert_eq!((table.len(), store.stats().expired_keys), (3, 1));
        for key in [&b"a"[..], b"later", b"absent"] {
            assert!(!writer.table(&table).expire(key).unwrap());
        }
        // It has another value when it would be swept.
        writer.table(&table).put(b"b", b"new").unwrap();
        assert!(!writer.table(&table).expire(b"b").unwrap());
        now.store(1_002_000, Relaxed);
        store.maintain().unwrap();
        let mut keys = std::mem::take(&mut *told.lock().unwrap());
        keys.sort_by_key(|expired| expired.key.clone());
        let keys: Vec<_> = keys.iter().map(|it| (&it.key[..], it.table == table.id().unwrap())).collect();
        assert_eq!(keys, [(&b"c"[..], true), (b"own", false)]);
        assert_eq!((table.len(), table.get(b"b").unwrap().as_deref()), (2, Some(&b"new"[..])));
        // What was swept by its name comes again as any other.
        writer.table(&table).put_with(b"a", b"again", meta(1_003_000)).unwrap();
        assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"again"[..]));
        store.set_on_expired(None);
        now.store(1_005_000, Relaxed);
        store.maintain().unwrap();
        assert_eq!((table.len(), told.lock().unwrap().len()), (2, 0));
        assert_eq!(store.audit(), Vec::<String>::new());
    });
}

#[test]
fn endless_overwrites_and_deletes_use_bounded_space() {
    for_each_store(|name, options, path| {
        let options = Options { durability: Durability::EveryWrite, ..options.clone() };
        if name.starts_with("file") {
            return; // One sync a write; the same code as below but for the waiting.
        }
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let mut after_first = 0;
        for round in 0..60u32 {
            for i in 0..2000u32 {
                writer.put((i % 1000).to_le_bytes(), [round as u8; 100]).unwrap();
                if i % 3 == 0 {
                    writer.delete((i % 1000).to_le_bytes()).unwrap();
                }
            }
            store.maintain().unwrap();
            if round == 10 {
                after_first = store.stats().medium_bytes;
            }
        }
        assert!(store.stats().medium_bytes <= after_first, "{:?}", store.stats());
        // New keys each time, all deleted: tombstones must go too.
        for round in 0..60u32 {
            for i in 0..1000u32 {
                writer.put((round * 1000 + i).to_le_bytes(), [7; 100]).unwrap();
            }
            for i in 0..1000u32 {
                assert!(writer.delete((round * 1000 + i).to_le_bytes()).unwrap());
            }
            store.maintain().unwrap();
        }
        for i in 0..1000u32 {
            writer.delete(i.to_le_bytes()).unwrap();
        }
        let stats = store.stats();
        assert!(stats.medium_bytes <= 2 * after_first, "{after_first} {stats:?}");
        assert_eq!(store.len(), 0);
        drop(writer);
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(contents(&store), BTreeMap::new());
    });
}

#[test]
fn a_key_created_and_deleted_has_a_changed_version_even_without_a_tombstone() {
    for_each_store(|name, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let (absent, value) = writer.get_stamped(b"key").unwrap();
        assert!(value.is_none());
        writer.put(b"key", b"value").unwrap();
        assert!(writer.delete(b"key").unwrap());
        // Until its tombstone is compacted away.
        for round in 0..20u32 {
            for i in 0..2000u32 {
                writer.put((i % 500).to_le_bytes(), [round as u8; 100]).unwrap();
            }
            store.maintain().unwrap();
        }
        let swap = writer.compare_and_swap(b"key", absent, Some((b"new", Meta::default()))).unwrap();
        assert_eq!(swap, Swap::Changed, "{name}");
        let (absent, _) = writer.get_stamped(b"key").unwrap();
        let swap = writer.compare_and_swap(b"key", absent, Some((b"new", Meta::default()))).unwrap();
        assert_eq!(swap, Swap::Done, "{name}");
    });
}

#[test]
fn full_store_refuses_writes_and_takes_deletes() {
    for_each_store(|name, options, path| {
        if options.durability == Durability::Manual {
            return; // Space comes back only with the caller's commits.
        }
        let options = Options { len_max: 1 << 20, ..options.clone() };
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let mut count = 0u32;
        let error = loop {
            match writer.put(count.to_le_bytes(), [1; 1000]) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{name}: {error}");
        assert!(count > 800, "{name}: only {count}");
        for i in 0..count {
            assert_eq!(&*store.get(i.to_le_bytes()).unwrap().unwrap(), &[1; 1000]);
        }
        for i in 0..count / 2 {
            assert!(writer.delete(i.to_le_bytes()).unwrap(), "{name}: delete {i}");
        }
        for i in 0..count / 3 {
            writer.put(i.to_le_bytes(), [2; 1000]).unwrap_or_else(|e| panic!("{name}: put {i}: {e}"));
        }
        drop(writer);
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(store.len(), u64::from(count - count / 2 + count / 3));
    });
}

#[test]
fn group_is_read_by_its_writer_at_once_and_by_others_durably() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let mut other = store.writer().unwrap();
        for round in 0..50u32 {
            writer.group();
            other.group();
            for i in 0..40u32 {
                writer.put(i.to_le_bytes(), round.to_le_bytes()).unwrap();
                assert_eq!(&*writer.get(i.to_le_bytes()).unwrap().unwrap(), &round.to_le_bytes());
                if i % 5 == 0 {
                    other.put(i.to_le_bytes(), (round + 1000).to_le_bytes()).unwrap();
                    assert!(writer.delete(i.to_le_bytes()).unwrap());
                    assert!(other.get(i.to_le_bytes()).unwrap().is_none());
                }
            }
            other.flush_group().unwrap();
            writer.flush_group().unwrap();
        }
        assert_eq!(store.len(), 32);
        drop((writer, other));
        store.commit().unwrap();
        store.close().unwrap();
        assert_eq!(options.open(path).unwrap().len(), 32);
    });
}

#[test]
fn a_second_open_is_refused_with_the_process_of_the_first() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        let error = options.open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(store);
        options.open(path).unwrap();
    });
}

#[test]
fn keys_with_one_hash_are_all_kept() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for mask in [0, 1 << 63, 0xff] {
        let path = dir.path().join(format!("store{mask}"));
        let options = Options { hash_mask: mask, ..Options::default() };
        let store = options.open(&path).unwrap();
        for i in 0..300u32 {
            store.put(i.to_le_bytes(), i.to_le_bytes()).unwrap();
        }
        for i in (0..300u32).step_by(3) {
            assert!(store.delete(i.to_le_bytes()).unwrap());
        }
        store.close().unwrap();
        let store = options.open(&path).unwrap();
        for i in 0..300u32 {
            assert_eq!(store.contains(i.to_le_bytes()).unwrap(), i % 3 != 0);
        }
        assert_eq!(store.len(), 200);
    }
}

#[test]
fn deleting_an_absent_long_key_leaves_the_next_write_whole() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        let long = vec![7; 60_000];
        assert!(!writer.delete(&long).unwrap());
        let (stamp, _) = writer.get_stamped(&long).unwrap();
        writer.put(b"small", b"value").unwrap();
        assert_eq!(&*store.get(b"small").unwrap().unwrap(), b"value");
        writer.put(&long, b"there now").unwrap();
        assert_eq!(
            writer.compare_and_swap(&long, stamp, Some((&long, Meta::default()))).unwrap(),
            Swap::Changed
        );
        writer.put(b"small", b"again").unwrap();
        drop(writer);
        store.commit().unwrap();
        store.close().unwrap();
        let store = options.open(path).unwrap();
        assert_eq!(&*store.get(b"small").unwrap().unwrap(), b"again");
        assert_eq!(&*store.get(&long).unwrap().unwrap(), b"there now");
    });
}

#[test]
fn a_group_reclaims_what_it_overwrites() {
    for_each_store(|name, options, path| {
        if options.durability == Durability::Manual {
            return; // Space comes back only with the caller's commits.
        }
        let options = Options { len_max: 1 << 20, ..options.clone() };
        let store = options.open(path).unwrap();
        let mut writer = store.writer().unwrap();
        // Four times the medium, in groups that each fit only if the one before is reclaimed while they run.
        for round in 0..8u32 {
            writer.group();
            for i in 0..500u32 {
                writer
                    .put((i % 100).to_le_bytes(), [round as u8; 1000])
                    .unwrap_or_else(|e| panic!("{name}: round {round}, {i}: {e}"));
            }
            writer.flush_group().unwrap();
        }
        assert_eq!(store.len(), 100);
    });
}

#[test]
fn a_key_present_throughout_is_scanned_while_the_index_grows() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    // Few hashes, so that buckets overflow and the stash is used.
    let options = Options { hash_mask: 0xffff_0000_0000_00ff, ..Options::default() };
    let store = options.open(dir.path().join("store")).unwrap();
    for i in 0..2000u32 {
        store.put(i.to_le_bytes(), b"from the beginning").unwrap();
    }
    let (mut seen, mut cursor, mut next) = (std::collections::HashSet::new(), 0, 2000u32);
    loop {
        cursor = store
            .scan(cursor, 1, &mut |value| {
                seen.insert(value.key().to_vec());
            })
            .unwrap();
        for _ in 0..20 {
            store.put(next.to_le_bytes(), b"later").unwrap();
            next += 1;
        }
        if cursor == 0 {
            break;
        }
    }
    for i in 0..2000u32 {
        assert!(seen.contains(&i.to_le_bytes()[..]), "key {i} of {next}");
    }
}

#[test]
fn every_cursor_is_valid_and_those_of_a_hash_index_are_small() {
    const KEYS: u32 = 20_000;
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { medium: MediumKind::Volatile, index, ..Options::default() };
        let store = options.open(dir.path().join("store")).unwrap();
        (0..KEYS).for_each(|key| store.put(key.to_be_bytes(), b"v").unwrap());
        let (mut cursor, mut largest, mut seen) = (0, 0, BTreeMap::new());
        loop {
            let mut see = |value: &duramen::Value<'_>| {
                seen.insert(value.key().to_vec(), ());
            };
            cursor = store.scan(cursor, 7, &mut see).unwrap();
            largest = largest.max(cursor);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), KEYS as usize);
        // Clients hold them in doubles, or in 63 bits.
        assert!(largest <= 1 << 53, "{index}: {largest}");
        // A position, and in six bits how many bits of the hashes counted when it was given.
        assert!(index == IndexKind::Ordered || largest < u64::from(KEYS) << 6, "{largest}");
        // Whatever a client sends is a place.
        for odd in [1, 255, 1 << 56, 1 << 63, u64::MAX] {
            store.scan(odd, 10, &mut |_| {}).unwrap();
        }
    }
}

#[test]
fn a_torn_large_value_does_not_delay_recovery() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let mut state = 1u64;
    let noise: Vec<u8> = (0..64 << 20)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let store = Options::default().open(&path).unwrap();
    store.put(b"small", b"value").unwrap();
    store.put(b"large", &noise).unwrap();
    // What kill -9 leaves in the middle of a put: a copy of the open store, the record's header gone.
    let mut checkpoint = std::fs::read(&path).unwrap();
    let at = checkpoint.windows(16).position(|w| w == &noise[..16]).unwrap();
    checkpoint[at - 29..at - 5].fill(0);
    let copy = dir.path().join("copy");
    std::fs::write(&copy, checkpoint).unwrap();
    let begun = std::time::Instant::now();
    let store = Options::default().open(&copy).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(&*store.get(b"small").unwrap().unwrap(), b"value");
    assert!(store.get(b"large").unwrap().is_none());
}

#[test]
fn a_store_made_over_another_never_shows_the_others_records() {
    // As on a device whose head alone was erased: what the blocks of the old store hold is still there.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = Options {
        medium: MediumKind::File,
        extent_bytes: Some(4096),
        background: false,
        ..Options::default()
    };
    let old = options.open(&path).unwrap();
    for number in 0..20 {
        old.put(format!("old {number}").as_bytes(), b"of another store").unwrap();
    }
    old.commit().unwrap();
    std::mem::drop(old);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Only the head, as `duramen::erase` leaves it: the rest that it erases would hide the matter in so small a store.
    let mut head = [0; 16 << 10];
    for at in [120, 4096 + 120] {
        head[at..at + 8].copy_from_slice(b"ERASED01");
    }
    std::os::unix::fs::FileExt::write_all_at(&file, &head, 0).unwrap();
    // The new store's first block lies where the old one's did. A crash leaves it open.
    let new = options.open(&path).unwrap();
    new.put(b"new", b"value").unwrap();
    let copy = dir.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let keys: Vec<Vec<u8>> = contents(&options.open(&copy).unwrap()).into_keys().collect();
    assert_eq!(keys, [b"new".to_vec()]);
}

#[test]
fn an_erased_store_makes_room_for_a_new_one() {
    for_each_store(|_, options, path| {
        let store = options.open(path).unwrap();
        store.put(b"old", b"value").unwrap();
        store.commit().unwrap();
        assert_eq!(duramen::erase(path, options).unwrap_err().kind(), ErrorKind::InUse);
        store.close().unwrap();
        assert!(duramen::erase(path, options).unwrap() > 0);
        assert_eq!(duramen::check(path, options).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(options.open(path).unwrap().stats().keys, 0);
        // As of another use, without a word that a store knows.
        std::fs::write(path, [7; 64 << 10]).unwrap();
        let error = options.open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("duramen erase"), "{error}");
        assert_eq!(duramen::erase(path, options).unwrap(), 64 << 10);
        options.open(path).unwrap().put(b"new", b"value").unwrap();
    });
}

#[test]
fn a_log_with_dead_records_gets_an_index_sized_for_its_keys() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, copy) = (dir.path().join("store"), dir.path().join("copy"));
    let options = Options { background: false, recovery_threads: 2, ..Options::default() };
    let store = options.open(&path).unwrap();
    // An index of 16 segments; for as many keys as there are records it would have 32. So few are dead that nothing is
    // compacted.
    let (keys, overwritten) = (20_000u64, 11_000);
    let mut writer = store.writer().unwrap();
    for (round, keys) in [keys, overwritten].into_iter().enumerate() {
        for key in 0..keys {
            writer.put(key.to_le_bytes(), [round as u8]).unwrap();
        }
    }
    drop(writer);
    let grown = store.stats();
    std::fs::copy(&path, &copy).unwrap();
    let recovered = options.open(&copy).unwrap();
    let stats = recovered.stats();
    assert_eq!(recovered.recovery().records, keys + overwritten);
    assert_eq!(stats.keys, keys);
    assert_eq!(stats.dead_bytes, grown.dead_bytes);
    assert!(stats.index_splits < grown.index_splits / 2, "{stats:?}, grown {grown:?}");
    assert!(stats.index_bytes <= grown.index_bytes, "{stats:?}, grown {grown:?}");
    for key in 0..keys {
        let round = u8::from(key < overwritten);
        assert_eq!(recovered.get(key.to_le_bytes()).unwrap().as_deref(), Some(&[round][..]));
    }
}

/// Each open that writes begins a block, and each close seals it.
#[test]
fn blocks_sealed_nearly_empty_by_closes_are_reclaimed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    // As long as a process that puts one key lives: the background thread has not looked yet.
    let options = Options { extent_bytes: Some(192 << 10), background: false, ..Options::default() };
    let mut first = 0;
    for round in 0..100u32 {
        let store = options.open(&path).unwrap();
        store.put(b"one", round.to_le_bytes()).unwrap();
        store.put(round.to_le_bytes(), b"another").unwrap();
        let stats = store.stats();
        if round == 0 {
            first = stats.medium_bytes;
        }
        assert_eq!(stats.medium_bytes, first, "the store grew in round {round}: {stats:?}");
        store.close().unwrap();
    }
    // Recovery counts the same as was counted before, and the remaining records are live.
    let store = options.open(&path).unwrap();
    let stats = store.stats();
    assert!(stats.dead_bytes > stats.used_bytes / 2, "{stats:?}");
    for _ in 0..3 {
        store.maintain().unwrap();
    }
    let before = store.stats().compactions;
    for _ in 0..20 {
        store.maintain().unwrap();
    }
    assert_eq!(store.stats().compactions, before, "blocks that nothing is won of are not moved again");
    drop(store);
    let store = options.open(&path).unwrap();
    assert_eq!(store.len(), 101);
    assert_eq!(*store.get(b"one").unwrap().unwrap(), 99u32.to_le_bytes());
}

/// A value of more than half a block lies alone in one, wherever it is moved.
#[test]
fn blocks_of_one_long_record_are_not_packed() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let mut options = Options { extent_bytes: Some(64 << 10), background: false, ..Options::default() };
    options.tuning.compaction_bytes_min = Some(0);
    let store = options.open(&path).unwrap();
    for key in 0..100u32 {
        store.put(key.to_le_bytes(), [1; 40_000]).unwrap();
    }
    store.close().unwrap();
    let store = options.open(&path).unwrap();
    for _ in 0..20 {
        store.maintain().unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.compacted_bytes, 0, "{stats:?}");
}

/// Flips bits of one byte.
fn damage(path: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x11], at).unwrap();
}

#[test]
fn a_damaged_seal_is_reported_after_a_clean_close_and_not_missed_after_a_crash() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, crashed) = (dir.path().join("store"), dir.path().join("crashed"));
    let options = Options { extent_bytes: Some(64 << 10), background: false, ..Options::default() };
    let store = options.open(&path).unwrap();
    for key in 0..10u32 {
        store.put(key.to_le_bytes(), [key as u8; 20]).unwrap();
    }
    std::fs::copy(&path, &crashed).unwrap();
    store.close().unwrap();
    let report = duramen::check(&crashed, &options).unwrap();
    assert!(report.damage.is_empty() && report.keys == 10, "{report:?}");
    assert_eq!(options.open(&crashed).unwrap().len(), 10);

    // Each record takes 56 bytes, from byte 64 of the first extent after the head.
    let (block, whole) = (64 << 10, std::fs::read(&path).unwrap());
    assert!(duramen::check(&path, &options).unwrap().damage.is_empty());
    for (bytes, keys) in [(&[28][..], 10), (&[24], 10), (&[32], 10), (&[28, 64 + 9 * 56 + 40], 9)] {
        std::fs::write(&path, &whole).unwrap();
        bytes.iter().for_each(|at| damage(&path, block + at));
        let report = duramen::check(&path, &options).unwrap();
        assert!(report.damage.len() == 1 && report.damage[0].contains("seal"), "{bytes:?}: {report:?}");
        assert!(report.notes.is_empty(), "{bytes:?}: {report:?}");
        assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::Corrupt);
        let saved = dir.path().join(format!("saved{bytes:?}"));
        assert_eq!(duramen::salvage(&path, saved, &options).unwrap().0, keys);
    }
}

/// The block of a thread's own writer is open until the thread ends.
#[test]
fn a_store_closed_before_one_of_its_threads_ends_is_undamaged() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let options = Options { background: false, ..Options::default() };
    let store = options.open(&path).unwrap();
    let (wrote, has_written) = std::sync::mpsc::channel();
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let handle = store.clone();
    let thread = std::thread::spawn(move || {
        handle.put(b"a", b"b").unwrap();
        drop(handle);
        wrote.send(()).unwrap();
        let _ = ends.recv();
    });
    has_written.recv().unwrap();
    store.close().unwrap();
    assert!(duramen::check(&path, &options).unwrap().damage.is_empty());
    for _ in 0..2 {
        assert_eq!(options.open(&path).unwrap().len(), 1);
    }
    drop(end);
    thread.join().unwrap();
}

#[test]
fn in_a_poisoned_store_only_reads_of_uncommitted_values_fail() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { medium: MediumKind::File, background: false, ..Options::default() };
    let store = options.open(dir.path().join("store")).unwrap();
    store.put(b"kept", b"1").unwrap();
    let (mut writer, mut reader) = (store.writer().unwrap(), store.writer().unwrap());
    writer.group();
    writer.put(b"lost", b"1").unwrap();
    let panics = store.clone();
    std::thread::spawn(move || panics.writer().unwrap().panic_within_a_write()).join().unwrap_err();
    assert_eq!(store.check_writable().unwrap_err().kind(), ErrorKind::Poisoned);
    reader.group();
    assert_eq!(reader.get(b"lost").unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(reader.get(b"kept").unwrap().as_deref(), Some(&b"1"[..]));
    reader.flush_group().unwrap();
}
