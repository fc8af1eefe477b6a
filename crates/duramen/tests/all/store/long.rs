//! Cells of any length, and an index that shrinks.

use super::*;

/// A cell is copied piece by piece while updates continue in several of its places.
#[test]
fn a_cell_of_any_length_is_read_as_one_snapshot() {
    const KEY: &[u8] = b"the cell";
    for (bytes, with_index) in [16, 64, 1024, 8192, 65_536]
        .into_iter()
        .zip([IndexKind::Hash, IndexKind::Ordered].into_iter().cycle())
    {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let options = Options { index: with_index, background: false, ..Options::default() };
        let store = options.open(dir.path().join("store")).unwrap();
        let field = |on: u64| on.to_le_bytes();
        let mut first = vec![0; bytes];
        first[bytes - 8..].copy_from_slice(&field(1));
        store.put_with(KEY, &first, Meta { updatable: true, ..Meta::default() }).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = store.writer().unwrap();
                // (0,1) (1,1) (1,0) (1,1) (0,1): never (0,0).
                while !stop.load(Relaxed) {
                    for (at, on) in [(0, 1), (bytes - 8, 0), (bytes - 8, 1), (0, 0)] {
                        assert_eq!(writer.update(KEY, at, &field(on)).unwrap(), Update::InPlace);
                    }
                }
            });
            let begun = std::time::Instant::now();
            let (mut reads, mut never) = (0u64, 0u64);
            let mut into = Vec::new();
            let mut look = |value: &[u8]| {
                reads += 1;
                never += u64::from(value[0] == 0 && value[bytes - 8] == 0);
            };
            while begun.elapsed() < Duration::from_millis(800) {
                look(&store.get(KEY).unwrap().unwrap());
                into.clear();
                assert!(store.get_into(KEY, &mut into).unwrap());
                look(&into);
                look(store.get_many(&[KEY]).unwrap()[0].as_ref().unwrap());
                store.for_each(|value| look(value)).unwrap();
            }
            stop.store(true, Relaxed);
            assert_eq!(never, 0, "of {reads} reads of {bytes} bytes so many show a state that never was");
        });
    }
}

/// An index that has grown gives back what it does not need any more, and a scan does not pass over keys meanwhile.
#[test]
fn an_index_shrinks_when_its_keys_are_deleted_and_every_key_that_stays_is_scanned() {
    const KEYS: u32 = 60_000;
    const STAY: u32 = 100;
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options = Options {
            index,
            background: false,
            extent_bytes: Some(65_536),
            index_cache_slots: 0,
            ..Options::default()
        };
        options.tuning.compaction_bytes_min = Some(1);
        let store = options.open(dir.path().join("store")).unwrap();
        let mut writer = store.writer().unwrap();
        let key = |i: u32| format!("key {i:08}").into_bytes();
        let stays = |i: u32| i.is_multiple_of(KEYS / STAY);
        for i in 0..KEYS {
            writer.put(key(i), b"value").unwrap();
        }
        let grown = store.stats().index_bytes;
        // Scans that are under way while the index shrinks, one after each part of the deletes.
        let mut scans: Vec<(u64, std::collections::BTreeSet<Vec<u8>>)> = Vec::new();
        let step = |scan: &mut (u64, std::collections::BTreeSet<Vec<u8>>), count| {
            let seen = &mut scan.1;
            scan.0 = store
                .scan(scan.0, count, &mut |value| {
                    seen.insert(value.key().to_vec());
                })
                .unwrap();
        };
        for part in 0..16 {
            let mut scan = (0, std::collections::BTreeSet::new());
            (0..part * 3 + 1).for_each(|_| {
                if scan.0 != 0 || scan.1.is_empty() {
                    step(&mut scan, 1000)
                }
            });
            scans.push(scan);
            for i in (0..KEYS).filter(|&i| i % 16 == part && !stays(i)) {
                assert!(writer.delete(key(i)).unwrap());
            }
            for _ in 0..40 {
                store.maintain().unwrap();
            }
            for scan in scans.iter_mut().filter(|scan| scan.0 != 0) {
                step(scan, 100);
            }
        }
        writer.put(key(0), b"value").unwrap();
        drop(writer);
        // What other tests of this process hold keeps memory back for a while.
        let begun = std::time::Instant::now();
        while store.stats().index_bytes * 4 >= grown && begun.elapsed() < Duration::from_secs(20) {
            store.maintain().unwrap();
        }
        for scan in &mut scans {
            while scan.0 != 0 {
                step(scan, 10);
            }
            for i in (0..KEYS).filter(|&i| stays(i)) {
                assert!(scan.1.contains(&key(i)), "{index}: a scan passed over key {i}");
            }
        }
        let stats = store.stats();
        assert_eq!(stats.keys, u64::from(STAY));
        assert!(stats.index_bytes * 4 < grown, "{index}: {} bytes of {grown}: {stats:?}", stats.index_bytes);
        let (mut cursor, mut calls, mut seen) = (0, 0, 0);
        while calls == 0 || cursor != 0 {
            cursor = store.scan(cursor, 10, &mut |_| seen += 1).unwrap();
            calls += 1;
        }
        assert_eq!(seen, STAY);
        assert!(calls <= 14, "{index}: {calls} calls of a scan for {STAY} keys");
        // It grows again, and nothing is lost.
        let mut writer = store.writer().unwrap();
        for i in 0..KEYS {
            writer.put(key(i), b"value").unwrap();
        }
        for i in 0..KEYS {
            assert!(store.get(key(i)).unwrap().is_some());
        }
        assert_eq!(store.len(), u64::from(KEYS));
    }
}

/// As they are in Redis: 83 to 118 hits a key there.
#[test]
fn every_key_is_picked_as_often_as_any_other_after_most_were_deleted() {
    const KEYS: u32 = 60_000;
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut options =
            Options { index, background: false, extent_bytes: Some(65_536), ..Options::default() };
        options.tuning.compaction_bytes_min = Some(1);
        let store = options.open(dir.path().join("store")).unwrap();
        let mut writer = store.writer().unwrap();
        let key = |i: u32| format!("key {i:08}").into_bytes();
        (0..KEYS).for_each(|i| writer.put(key(i), b"value").unwrap());
        (0..KEYS).filter(|i| i % 600 != 0).for_each(|i| assert!(writer.delete(key(i)).unwrap()));
        for _ in 0..300 {
            store.maintain().unwrap();
        }
        let mut hits = BTreeMap::new();
        for seed in 0..10_000 {
            let picked = store.pick(seed << 20, &mut |_| true).unwrap().expect("a key");
            *hits.entry(picked.key().to_vec()).or_insert(0u32) += 1;
        }
        assert_eq!(hits.len(), 100);
        let (least, most) = (*hits.values().min().unwrap(), *hits.values().max().unwrap());
        // 10,000 draws of 100 keys: 100 each, give or take ten; four times that is one run in a hundred.
        assert!(least >= 60 && most <= 145, "{index}: {least} to {most} hits a key");
    }
}
