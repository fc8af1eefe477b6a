//! The ordered index through the public door: ranges against a sorted map, among writers, and after reopening.

use duramen::{Durability, ErrorKind, IndexKind, MediumKind, Meta, Options, Store};
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

fn ordered() -> Options {
    let mut options = Options {
        index: IndexKind::Ordered,
        index_cache_slots: 1 << 8,
        extent_bytes: Some(4096),
        background: false,
        ..Options::default()
    };
    options.tuning.leaf_slots = 4;
    options.tuning.compaction_bytes_min = Some(0);
    options
}

fn memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    /// 0 to 40 bytes of few letters, so that many share a beginning, and some are the beginning of others.
    fn key(&mut self) -> Vec<u8> {
        let (bytes, letters) = (self.below(41), 1 + self.below(3));
        let key: Vec<u8> = (0..bytes).map(|_| self.below(letters) as u8).collect();
        match self.below(4) {
            0 => format!("user:{:07}", self.below(300)).into_bytes(),
            1 => [b"eight by", &key[..]].concat(),
            _ => key[..bytes.min(6)].to_vec(),
        }
    }

    fn bound<'k>(&mut self, key: &'k [u8]) -> Bound<&'k [u8]> {
        match self.below(3) {
            0 => Included(key),
            1 => Excluded(key),
            _ => Unbounded,
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn pairs<'a>(range: impl Iterator<Item = duramen::Result<duramen::Value<'a>>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(|value| value.unwrap()).map(|value| (value.key().to_vec(), value.to_vec())).collect()
}

/// Everything that reads in order, on keys that `random` picks.
fn check_ranges(store: &Store, model: &Model, random: &mut Random) {
    let (a, b) = (random.key(), random.key());
    let (from, to) = (random.bound(a.as_slice().min(&b)), random.bound(a.as_slice().max(&b)));
    let wanted: Vec<_> = if matches!((from, to), (Excluded(a), Excluded(b)) if a == b) {
        Vec::new()
    } else {
        model.range::<[u8], _>((from, to)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let range = || store.range((from, to)).unwrap();
    assert_eq!(pairs(range()), wanted);
    let mut backward = pairs(range().rev());
    backward.reverse();
    assert_eq!(backward, wanted);
    // From both ends, until they meet.
    let (mut both, mut front, mut back) = (range(), Vec::new(), Vec::new());
    loop {
        let reverse = random.below(3) == 0;
        let Some(value) = (if reverse { both.next_back() } else { both.next() }) else { break };
        let value = value.unwrap();
        if reverse { &mut back } else { &mut front }.push((value.key().to_vec(), value.to_vec()));
    }
    assert!(both.next().is_none() && both.next_back().is_none());
    front.extend(back.into_iter().rev());
    assert_eq!(front, wanted);
    // Seeks, also out of the bounds.
    let mut sought = range();
    for _ in 0..4 {
        let key = random.key();
        sought.seek(&key);
        let next = sought.next().map(|value| value.unwrap().key().to_vec());
        let first = wanted.iter().map(|(key, _)| key).find(|found| **found >= key);
        assert_eq!(next.as_ref(), first, "sought {key:?}");
    }
    let mut sought = range();
    for _ in 0..4 {
        let key = random.key();
        sought.seek_back(&key);
        let next = sought.next_back().map(|value| value.unwrap().key().to_vec());
        let last = wanted.iter().map(|(key, _)| key).rfind(|found| **found <= key);
        assert_eq!(next.as_ref(), last, "sought {key:?} from behind");
    }
    let prefix = &a[..a.len() / 2];
    let with: Vec<_> = model.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
    assert!(pairs(store.prefix(prefix).unwrap()).iter().map(|(k, v)| (k, v)).eq(with));
    let ends = [store.first().unwrap(), store.last().unwrap()].map(|v| v.map(|v| v.key().to_vec()));
    assert_eq!(ends, [model.keys().next().cloned(), model.keys().next_back().cloned()]);
    assert!(store.range((Excluded(&[9][..]), Included(&[1][..]))).unwrap().next().is_none());
}

#[test]
fn ranges_equal_those_of_a_sorted_map_on_every_medium_and_after_reopening() {
    let media = [
        (MediumKind::Shm, Durability::EveryWrite),
        (MediumKind::File, Durability::EveryWrite),
        (MediumKind::File, Durability::Interval(std::time::Duration::from_secs(3600))),
    ];
    for (seed, (medium, durability)) in (1..).zip(media) {
        let dir = if medium == MediumKind::Shm { memory() } else { tempfile::tempdir().unwrap() };
        let path = dir.path().join("store");
        let clock = Arc::new(AtomicU64::new(1000));
        let now = Arc::clone(&clock);
        let options = Options {
            medium,
            durability,
            len_max: 1 << 20,
            clock: Some(Arc::new(move || now.load(Relaxed))),
            ..ordered()
        };
        let mut store = options.open(&path).unwrap();
        let (mut model, mut random) = (Model::new(), Random(seed));
        let rounds = if medium == MediumKind::Shm { 6000 } else { 1500 };
        for round in 0..rounds {
            let (key, value) = (random.key(), vec![round as u8; random.below(60)]);
            match random.below(12) {
                0..=4 => {
                    let meta = Meta { updatable: random.below(2) == 0, ..Meta::default() };
                    store.put_with(&key, &value, meta).unwrap();
                    model.insert(key, value);
                }
                // Absent at once, and a tombstone for the sweep.
                5 => {
                    let meta = Meta { expires_at: Some(clock.load(Relaxed) + 1), ..Meta::default() };
                    store.put_with(&key, &value, meta).unwrap();
                    clock.fetch_add(1, Relaxed);
                    model.remove(&key);
                }
                6..=8 => {
                    let found = store.delete(&key).unwrap();
                    assert_eq!(found, model.remove(&key).is_some());
                }
                9 => store.maintain().unwrap(),
                10 if random.below(200) == 0 => {
                    store.close().unwrap();
                    // The bytes know of no index: a store may change its kind at each open.
                    let kind = if random.below(2) == 0 { IndexKind::Hash } else { IndexKind::Ordered };
                    let other = Options { index: kind, ..options.clone() }.open(&path).unwrap();
                    assert_eq!(other.len() as usize, model.len());
                    for (key, value) in &model {
                        assert_eq!(other.get(key).unwrap().as_deref(), Some(&value[..]));
                    }
                    other.close().unwrap();
                    store = options.open(&path).unwrap();
                }
                _ => check_ranges(&store, &model, &mut random),
            }
        }
        let stats = store.stats();
        assert!(stats.index_splits > 20 && stats.index_cache_hits > 0, "{stats:?}");
        assert!(medium == MediumKind::File || stats.index_merges > 0 && stats.compactions > 0, "{stats:?}");
    }
}

#[test]
fn lasting_keys_are_visited_once_and_in_order_during_changes() {
    let dir = memory();
    let options = Options { len_max: 4 << 20, background: true, ..ordered() };
    let store = &options.open(dir.path().join("store")).unwrap();
    let key = |i: usize| format!("key:{:06}", i * 7919 % 2000).into_bytes();
    // Those at multiples of four stay.
    (0..2000).step_by(4).for_each(|i| store.put(key(i), [1; 40]).unwrap());
    let stay: Vec<Vec<u8>> = {
        let mut stay: Vec<_> = (0..2000).step_by(4).map(key).collect();
        stay.sort();
        stay
    };
    let (stop, grows) = (&AtomicBool::new(false), &AtomicBool::new(true));
    std::thread::scope(|scope| {
        for thread in 1..=2 {
            scope.spawn(move || {
                let (mut writer, mut random) = (store.writer().unwrap(), Random(thread as u64));
                while !stop.load(Relaxed) {
                    let i = random.below(500) * 4;
                    match random.below(6) {
                        0..4 if grows.load(Relaxed) => writer.put(key(i + thread), [2; 40]).unwrap(),
                        0..4 => drop(writer.delete(key(i + thread)).unwrap()),
                        _ => writer.put(key(i), [random.below(256) as u8; 40]).unwrap(),
                    }
                }
            });
        }
        let came_and_went = || store.stats().index_merges > 0 && store.stats().compactions > 0;
        for round in (0..3000).take_while(|&round| round < 150 || !came_and_went()) {
            // Both threads add for a while, then both remove. In opposite phases no leaf would be merged. The last
            // phase removes, for as long as it takes: a leaf shrinks only when compaction drops its tombstones.
            grows.store(round < 150 && (round / 25) % 2 == 0, Relaxed);
            let mut seen = pairs(store.range(..).unwrap());
            assert!(seen.windows(2).all(|w| w[0].0 < w[1].0), "round {round}: out of order, or twice");
            assert!(seen.iter().all(|(_, value)| value.len() == 40 && value.iter().all(|b| *b == value[0])));
            seen.retain(|(key, _)| stay.binary_search(key).is_ok());
            assert!(seen.iter().map(|(key, _)| key).eq(&stay), "round {round}: {} seen", seen.len());
            let back: Vec<_> = pairs(store.range(..).unwrap().rev());
            assert!(back.windows(2).all(|w| w[0].0 > w[1].0), "round {round}, reverse");
            assert_eq!(back.iter().filter(|(key, _)| stay.binary_search(key).is_ok()).count(), stay.len());
            let mut scanned = std::collections::BTreeSet::new();
            store
                .for_each(|value| {
                    scanned.insert(value.key().to_vec());
                })
                .unwrap();
            assert!(stay.iter().all(|key| scanned.contains(key)), "round {round}: a scan missed one");
        }
        stop.store(true, Relaxed);
    });
    let stats = store.stats();
    assert!(stats.index_merges > 0 && stats.compactions > 0, "nothing came and went: {stats:?}");
}

#[test]
fn a_running_iterator_does_not_delay_reclamation() {
    let dir = memory();
    let options = Options { len_max: 256 << 10, ..ordered() };
    let store = options.open(dir.path().join("store")).unwrap();
    (0..600u32).for_each(|i| store.put(i.to_be_bytes(), [0; 100]).unwrap());
    let mut all = store.range(..).unwrap();
    for (i, value) in (0..600u32).map_while(|i| Some((i, all.next()?))) {
        assert_eq!(value.unwrap().key(), i.to_be_bytes());
        // Four times the store's space, all in all.
        (0..16u32).for_each(|j| store.put(((i * 16 + j) % 600).to_be_bytes(), [1; 100]).unwrap());
    }
    assert!(all.next().is_none());
    assert!(store.stats().freed_extents > 64);
}

#[test]
fn a_group_sees_its_own_writes_in_order_and_others_only_what_is_durable() {
    let dir = memory();
    let options = Options { flush_instruction: Some(duramen::FlushInstruction::Clflush), ..ordered() };
    let store = options.open(dir.path().join("store")).unwrap();
    let mut writer = store.writer().unwrap();
    writer.put(b"b", b"1").unwrap();
    writer.group();
    writer.put(b"a", b"2").unwrap();
    writer.put(b"c", b"3").unwrap();
    assert!(writer.delete(b"b").unwrap());
    let keys = |range: duramen::Range<'_>| pairs(range).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(writer.range(..).unwrap()), [b"a", b"c"]);
    assert_eq!(keys(writer.prefix(b"c").unwrap()), [b"c"]);
    assert_eq!(keys(store.range(..).unwrap()), [b"a", b"c"], "a reader helps them to be durable");
    writer.flush_group().unwrap();
}

#[test]
fn a_range_of_a_hash_table_is_refused_with_the_remedy() {
    let dir = memory();
    let store = Options::default().open(dir.path().join("store")).unwrap();
    for error in [
        store.range(..).err(),
        store.prefix(b"a").err(),
        store.first().err(),
        store.last().err(),
        store.writer().unwrap().range(..).err(),
    ] {
        let error = error.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("with an ordered index"), "{error}");
    }
}
