//! Collections: elements as separate records, alive as long as a root names them; over compaction, closes and crashes.
use crate::maintained;
use duramen::{
    Batch, Collection, CollectionId, Due, ElementOrder, ErrorKind, IndexKind, MediumKind, Meta, Options,
    Residence, Store, Swap,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

pub fn options() -> Options {
    Options { medium: MediumKind::Shm, extent_bytes: Some(4096), background: false, ..Options::default() }
}

pub fn after_kill(path: &Path, options: &Options) -> Store {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    let copy = path.with_extension(format!("copy-{}", COPIES.fetch_add(1, Relaxed)));
    std::fs::copy(path, &copy).unwrap();
    let store = options.open(&copy).unwrap();
    std::fs::remove_file(&copy).unwrap();
    store
}

pub fn root(id: CollectionId) -> Meta {
    Meta { tag: 2, collection: Some(id), ..Meta::default() }
}

pub const ORDERS: [ElementOrder; 3] = [ElementOrder::Unordered, ElementOrder::ByValue, ElementOrder::ByKey];

/// Makes a collection under a key, with one element.
pub fn make(store: &Store, key: &[u8], order: ElementOrder) -> Collection {
    let made = store.new_collection(order);
    let mut batch = Batch::new();
    batch.put_with(key, b"state", root(made.id())).collection(&made).put(b"first one", [0; 9]);
    assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
    made
}

pub fn of(store: &Store, key: &[u8]) -> Option<Collection> {
    let value = store.get(key).unwrap()?;
    assert_eq!((&*value, value.tag()), (&b"state"[..], 2));
    Some(store.collection(value.meta().collection.unwrap()).unwrap())
}

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

/// Everything of a collection, in every way it can be looked at.
pub fn check(collection: &Collection, model: &Model) {
    assert_eq!(collection.len(), model.len() as u64);
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = collection
            .scan(cursor, 10, &mut |value| {
                seen.insert(value.key().to_vec(), value.to_vec());
            })
            .unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(&seen, model);
    let (mut each, mut met) = (BTreeMap::new(), 0);
    let visit = &mut |value: &duramen::Value<'_>| {
        met += 1;
        each.insert(value.key().to_vec(), value.to_vec());
        true
    };
    collection.each(visit).unwrap();
    // Each once.
    assert_eq!((&each, met), (model, model.len()));
    if collection.order() == ElementOrder::Unordered {
        assert_eq!(collection.rank(b"first one").unwrap_err().kind(), ErrorKind::Unsupported);
        return;
    }
    let by = |key: &Vec<u8>, value: &Vec<u8>| match collection.order() {
        ElementOrder::ByValue => (number(value), key.clone()),
        _ => (number(key), key.clone()),
    };
    let sorted: BTreeSet<(u64, Vec<u8>)> = model.iter().map(|(key, value)| by(key, value)).collect();
    let wanted: Vec<Vec<u8>> = sorted.iter().map(|(_, key)| key.clone()).collect();
    for (reverse, from) in [(false, 0), (true, u64::MAX), (false, 3), (true, model.len() as u64 / 2)] {
        let mut walked = Vec::new();
        collection
            .ranked(from.min(model.len() as u64), reverse, &mut |value| {
                walked.push(value.key().to_vec());
                true
            })
            .unwrap();
        let from = from as usize;
        let wanted: Vec<Vec<u8>> = if reverse {
            wanted.iter().take(from.saturating_add(1)).rev().cloned().collect()
        } else {
            wanted.iter().skip(from).cloned().collect()
        };
        assert_eq!(walked, wanted, "{reverse} from {from}");
    }
    for (rank, (order, key)) in sorted.iter().enumerate().step_by(7) {
        assert_eq!(collection.nth(rank as u64).unwrap().unwrap().key(), key);
        assert_eq!(collection.rank(key).unwrap(), Some(rank as u64));
        let below = sorted.iter().filter(|(other, _)| other < order).count() as u64;
        let not_above = sorted.iter().filter(|(other, _)| other <= order).count() as u64;
        assert_eq!(collection.rank_of_order(order.to_be_bytes(), false).unwrap(), below);
        assert_eq!(collection.rank_of_order(order.to_be_bytes(), true).unwrap(), not_above);
    }
    assert_eq!(collection.rank(b"nothing").unwrap(), None);
    assert!(collection.nth(sorted.len() as u64).unwrap().is_none());
}

pub fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % bound
}

#[test]
fn collections_have_the_elements_of_a_model() {
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        for residence in [Residence::Dram, Residence::Persistent] {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = dir.path().join("store");
            let options = Options {
                index,
                residence,
                checkpoint_bytes: 100 << 10,
                tuning: duramen::tuning::Tuning { close_checkpoint_bytes_min: 0, ..Default::default() },
                ..options()
            };
            let mut store = options.open(&path).unwrap();
            let mut models: Vec<Option<Model>> = vec![None; 6];
            let state = &mut (index as u64 * 2 + residence as u64 + 1);
            for round in 0..5 {
                for _ in 0..1500 {
                    let at = random(state, 6) as usize;
                    let name = [b'n', at as u8];
                    let Some(model) = &mut models[at] else {
                        make(&store, &name, ORDERS[at % 3]);
                        models[at] = Some(Model::from([(b"first one".to_vec(), vec![0; 9])]));
                        continue;
                    };
                    let collection = of(&store, &name).unwrap();
                    let key = [&random(state, 300).to_be_bytes()[..], &b"tail"[..random(state, 5) as usize]]
                        .concat();
                    match random(state, 400) {
                        0 => {
                            assert!(store.delete(name).unwrap());
                            assert_eq!(
                                store.collection(collection.id()).unwrap_err().kind(),
                                ErrorKind::NotFound
                            );
                            models[at] = None;
                        }
                        // Overwritten by a value that is not a collection.
                        1 => {
                            store.put(name, b"a string").unwrap();
                            assert!(store.delete(name).unwrap());
                            models[at] = None;
                        }
                        // Renamed there and back.
                        2 => {
                            let mut batch = Batch::new();
                            batch.delete(name).put_with(b"elsewhere", b"state", root(collection.id()));
                            assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
                            check(&of(&store, b"elsewhere").unwrap(), model);
                            let mut batch = Batch::new();
                            batch.delete(b"elsewhere").put_with(name, b"state", root(collection.id()));
                            assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
                        }
                        // The same root once more.
                        3 => store.put_with(name, b"state", root(collection.id())).unwrap(),
                        4..100 => {
                            assert_eq!(collection.delete(&key).unwrap(), model.remove(&key).is_some());
                        }
                        _ => {
                            let value =
                                [&random(state, 50).to_be_bytes()[..], &vec![7; random(state, 90) as usize]]
                                    .concat();
                            collection.put(&key, &value).unwrap();
                            model.insert(key, value);
                        }
                    }
                    if random(state, 40) == 0 {
                        store.put(b"filler", [1; 3000]).unwrap();
                        store.maintain().unwrap();
                    }
                }
                let look = |store: &Store| {
                    for (at, model) in models.iter().enumerate() {
                        match (of(store, &[b'n', at as u8]), model) {
                            (None, None) => {}
                            (Some(collection), Some(model)) => check(&collection, model),
                            (found, wanted) => panic!("{at}: {} {}", found.is_some(), wanted.is_some()),
                        }
                    }
                    assert_eq!(store.audit(), [""; 0]);
                };
                look(&store);
                look(&after_kill(&path, &options));
                if round % 2 == 0 {
                    store.close().unwrap();
                    store = options.open(&path).unwrap();
                    look(&store);
                }
            }
            for at in 0..6 {
                store.delete([b'n', at]).unwrap();
            }
            // With a persistent index the checkpoint of the last close stays.
            let most = if residence == Residence::Persistent { 250_000 } else { 150_000 };
            assert!(maintained(&store, || store.stats().live_bytes <= most), "{:?}", store.stats());
            assert_eq!(store.audit(), [""; 0]);
        }
    }
}

/// The distance of counts of equally likely events from their mean, in standard deviations of chi-square.
fn unevenness(counts: &BTreeMap<Vec<u8>, u64>, keys: usize) -> f64 {
    let mean = counts.values().sum::<u64>() as f64 / keys as f64;
    let missing = (keys - counts.len()) as f64 * mean;
    let chi = missing + counts.values().map(|&count| (count as f64 - mean).powi(2) / mean).sum::<f64>();
    let freedom = keys as f64 - 1.0;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn each_element_is_picked_as_often_as_any_other() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options().open(dir.path().join("store")).unwrap();
    let collection = make(&store, b"name", ElementOrder::Unordered);
    let keys = 6000usize;
    (0..keys as u32).for_each(|key| collection.put(key.to_be_bytes(), b"").unwrap());
    collection.delete(b"first one").unwrap();
    // Then of those that most others left, whose tombstones are there still.
    for step in [1, 7] {
        (0..keys as u32).filter(|key| key % step != 0).for_each(|key| {
            let _ = collection.delete(key.to_be_bytes()).unwrap();
        });
        let mut counts = BTreeMap::new();
        for seed in 0..100 * keys as u64 {
            let picked = collection.pick(seed << 8, &mut |_| true).unwrap().unwrap();
            *counts.entry(picked.key().to_vec()).or_insert(0) += 1;
        }
        let uneven = unevenness(&counts, keys.div_ceil(step as usize));
        assert!(uneven.abs() < 5.0, "one in {step}: {uneven} standard deviations");
    }
}

#[test]
fn an_expired_root_takes_its_elements_with_it() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let now = Arc::new(AtomicU64::new(1_000_000));
    let clock = Arc::clone(&now);
    let options = Options { clock: Some(Arc::new(move || clock.load(Relaxed))), ..options() };
    let store = options.open(&path).unwrap();
    let made = store.new_collection(ElementOrder::ByValue);
    let mut batch = Batch::new();
    batch.put_with(b"k", b"state", Meta { expires_at: Some(1_005_000), ..root(made.id()) }).collection(&made);
    for key in 0..1000u64 {
        batch.put(key.to_be_bytes(), key.to_be_bytes());
    }
    assert_eq!(store.apply(&batch).unwrap(), Swap::Done);
    let live = store.stats().live_bytes;
    now.store(1_010_000, Relaxed);
    assert!(store.get(b"k").unwrap().is_none());
    let killed = after_kill(&path, &options);
    assert_eq!(killed.collection(made.id()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(killed.audit(), [""; 0]);
    let is_back = maintained(&store, || store.stats().live_bytes < live / 3);
    assert!(is_back, "{} of {live}", store.stats().live_bytes);
    assert_eq!(store.collection(made.id()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.audit(), [""; 0]);
}

#[test]
fn an_element_whose_time_has_come_is_reported_until_it_is_deleted_and_goes_by_no_other_means() {
    for order in ORDERS {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = Arc::clone(&now);
        let options =
            Options { clock: Some(Arc::new(move || clock.load(Relaxed))), len_max: 4 << 20, ..options() };
        let store = options.open(&path).unwrap();
        let made = make(&store, b"k", order);
        let until = |at| Meta { expires_at: Some(at), ..Meta::default() };
        made.put_with(b"overdue-1", [1; 9], until(1_005_000)).unwrap();
        made.put_with(b"overdue-2", [2; 9], until(1_005_000)).unwrap();
        made.put_with(b"not due-1", [3; 9], until(9_005_000)).unwrap();
        let reported = |store: &Store| {
            let told = Arc::new(Mutex::new(Vec::new()));
            let to = Arc::clone(&told);
            store.set_on_due(Some(Arc::new(move |due: &Due| {
                assert_eq!(due.key, b"k");
                to.lock().unwrap().push(due.element.clone());
            })));
            store.maintain().unwrap();
            store.set_on_due(None);
            let mut told = told.lock().unwrap().clone();
            told.sort();
            told
        };
        let holds = |store: &Store, len| {
            let elements = of(store, b"k").unwrap();
            assert_eq!(
                (elements.len(), elements.get(b"overdue-2").unwrap().as_deref()),
                (len, Some(&[2; 9][..]))
            );
            assert_eq!(store.audit(), [""; 0]);
        };
        assert_eq!(reported(&store), [b""; 0]);
        now.store(1_007_000, Relaxed);
        assert_eq!(reported(&store), [b"overdue-1".to_vec(), b"overdue-2".to_vec()]);
        assert_eq!(reported(&store), [b""; 0], "again at once");
        now.store(1_009_000, Relaxed);
        assert_eq!(reported(&store), [b"overdue-1".to_vec(), b"overdue-2".to_vec()]);
        holds(&store, 4);
        // Opened again, twice: the second reads what the first wrote.
        let killed = after_kill(&path, &options);
        holds(&killed, 4);
        now.store(1_011_000, Relaxed);
        assert_eq!(reported(&killed), [b"overdue-1".to_vec(), b"overdue-2".to_vec()]);
        drop(killed);
        assert!(made.delete(b"overdue-1").unwrap());
        // Compaction moves what is there.
        for at in 0..12_000u32 {
            store.put((at % 3000).to_be_bytes(), [7; 100]).unwrap();
        }
        assert!(maintained(&store, || store.stats().compacted_bytes > 0));
        holds(&store, 3);
        now.store(1_013_000, Relaxed);
        assert_eq!(reported(&store), [b"overdue-2".to_vec()]);
        drop((made, store));
        let store = options.open(&path).unwrap();
        holds(&store, 3);
        now.store(1_015_000, Relaxed);
        assert_eq!(reported(&store), [b"overdue-2".to_vec()]);
        // Salvage keeps the times.
        let copy = dir.path().join("copy");
        std::fs::copy(&path, &copy).unwrap();
        duramen::salvage(&copy, dir.path().join("saved"), &options).unwrap();
        let saved = options.open(dir.path().join("saved")).unwrap();
        holds(&saved, 3);
        let of_saved = |key| of(&saved, b"k").unwrap().get(key).unwrap().unwrap().expires_at();
        assert_eq!((of_saved(b"not due-1"), of_saved(b"overdue-2")), (Some(9_005_000), Some(1_005_000)));
        drop(saved);
        // Another time, or none.
        let elements = of(&store, b"k").unwrap();
        elements.put_with(b"overdue-2", [2; 9], until(9_005_000)).unwrap();
        now.store(1_019_000, Relaxed);
        assert_eq!(reported(&store), [b""; 0]);
        holds(&store, 3);
        now.store(9_009_000, Relaxed);
        elements.put(b"not due-1", [3; 9]).unwrap();
        assert_eq!(reported(&store), [b"overdue-2".to_vec()]);
        // Of a key that is gone nothing is reported.
        store.delete(b"k").unwrap();
        now.store(9_019_000, Relaxed);
        assert_eq!(reported(&store), [b""; 0]);
        assert_eq!(store.audit(), [""; 0]);
    }
}

#[test]
fn deleting_a_collection_is_one_small_write_and_frees_its_space() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = Options { len_max: 8 << 20, ..options() }.open(dir.path().join("store")).unwrap();
    let value = [7; 100];
    for round in 0..5u64 {
        let made = make(&store, b"k", ElementOrder::Unordered);
        let mut elements = 0u64;
        let full = loop {
            match made.put(elements.to_be_bytes(), value) {
                Ok(()) => elements += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(full.kind(), ErrorKind::OutOfSpace);
        assert!(elements > 35_000, "{elements} in round {round}");
        let written = store.stats().written_bytes;
        assert!(store.delete(b"k").unwrap());
        assert!(store.stats().written_bytes - written < 200);
    }
    assert_eq!(store.audit(), [""; 0]);
}

/// Dead elements are subtracted from their blocks a part at a time. Between two parts blocks are moved out of and
/// written again, so no lookup may follow an order that points to the former records.
#[test]
fn a_large_collection_is_deleted_during_writes_to_its_blocks() {
    const ELEMENTS: u64 = 40_000;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let tuned = Options { len_max: 8 << 20, compaction_dead_percent: 5, ..options() };
    let store = tuned.open(dir.path().join("store")).unwrap();
    let mut writer = store.writer().unwrap();
    for round in 0..3 {
        let made = make(&store, b"root", ElementOrder::ByValue);
        let mut elements = writer.collection(&made);
        // All of one order: a lookup of one compares keys.
        for at in 0..ELEMENTS {
            elements.put(format!("element:{:08}", at * 7919 % ELEMENTS).as_bytes(), [7; 8]).unwrap();
            // Some of each block is dead, so that it is moved out of.
            if at % 3 == 0 {
                elements.put(format!("element:{:08}", at * 31 % ELEMENTS).as_bytes(), [7; 8]).unwrap();
            }
        }
        assert!(store.delete(b"root").unwrap());
        for at in 0..400_u32 {
            store.maintain().unwrap();
            (0..20).for_each(|more| store.put((at % 100 * 20 + more).to_be_bytes(), [0xee; 300]).unwrap());
        }
        assert!(maintained(&store, || store.stats().live_bytes < 2 << 20), "{round}: {:?}", store.stats());
        (0..2_000_u32)
            .for_each(|key| assert_eq!(&*store.get(key.to_be_bytes()).unwrap().unwrap(), &[0xee; 300]));
    }
}

#[test]
fn salvage_skips_elements_without_a_root() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    let kept = make(&store, b"kept", ElementOrder::ByKey);
    for key in 0..500u64 {
        kept.put(key.to_be_bytes(), [5; 50]).unwrap();
    }
    let forgotten = store.new_collection(ElementOrder::Unordered);
    forgotten.put(b"k", b"v").unwrap();
    let killed = after_kill(&path, &options());
    assert_eq!(killed.collection(forgotten.id()).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(of(&killed, b"kept").unwrap().len(), 501);
    forgotten.abandon();
    drop(kept);
    store.close().unwrap();
    let (saved, report) = duramen::salvage(&path, dir.path().join("saved"), &options()).unwrap();
    assert_eq!((saved, report.damage.len()), (1, 0));
    let saved = options().open(dir.path().join("saved")).unwrap();
    let kept = of(&saved, b"kept").unwrap();
    assert_eq!((kept.len(), kept.order()), (501, ElementOrder::ByKey));
    assert_eq!(kept.get(7u64.to_be_bytes()).unwrap().as_deref(), Some(&[5; 50][..]));
}

#[test]
fn a_writer_in_a_group_reads_the_elements_that_it_wrote() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options().open(dir.path().join("store")).unwrap();
    let made = make(&store, b"key", ElementOrder::ByKey);
    let mut writer = store.writer().unwrap();
    writer.group();
    let mut wanted = vec![b"first one".to_vec()];
    for at in 0..300u64 {
        let key = at.to_be_bytes();
        writer.collection(&made).put(key, b"v").unwrap();
        wanted.insert(at as usize, key.to_vec());
        let reads = writer.read(&made);
        assert_eq!(&*reads.get(key).unwrap().unwrap(), b"v");
        assert_eq!(reads.nth(at).unwrap().unwrap().key(), key);
        assert_eq!(reads.rank(&key).unwrap(), Some(at));
        assert!(reads.pick(at, &mut |_| true).unwrap().is_some());
    }
    let (mut each, mut scanned, mut cursor, mut ranked) = (Vec::new(), Vec::new(), 0, Vec::new());
    let reads = writer.read(&made);
    reads
        .each(&mut |value| {
            each.push(value.key().to_vec());
            true
        })
        .unwrap();
    loop {
        cursor = reads.scan(cursor, 7, &mut |value| scanned.push(value.key().to_vec())).unwrap();
        if cursor == 0 {
            break;
        }
    }
    reads
        .ranked(0, false, &mut |value| {
            ranked.push(value.key().to_vec());
            true
        })
        .unwrap();
    each.sort();
    scanned.sort();
    scanned.dedup();
    assert_eq!((&each, &scanned, &ranked), (&wanted, &wanted, &wanted));
    writer.flush_group().unwrap();
    assert_eq!(made.len(), 301);
}

#[test]
fn writes_of_an_active_transaction_are_not_returned_in_order() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options().open(dir.path().join("store")).unwrap();
    let made = make(&store, b"key", ElementOrder::ByKey);
    for at in 0..20u64 {
        made.put(at.to_be_bytes(), b"old").unwrap();
    }
    let in_order = |reads: duramen::Reads<'_>| {
        let mut values = Vec::new();
        reads
            .ranked(0, false, &mut |value| {
                values.push(value.to_vec());
                true
            })
            .unwrap();
        assert_eq!(reads.nth(5).unwrap().unwrap().to_vec(), values[5]);
        values.iter().map(|value| value == b"new").collect::<Vec<_>>()
    };
    let new: Vec<bool> = (0..21).map(|at| at == 5).collect();
    let mut writer = store.writer().unwrap();
    assert_eq!(in_order(made.reads()), [false; 21]);
    writer.begin_transaction().unwrap();
    writer.in_transaction_of(&made).put(5u64.to_be_bytes(), b"new").unwrap();
    assert_eq!(in_order(made.reads()), [false; 21]);
    assert_eq!(in_order(writer.read(&made)), new);
    writer.commit_transaction().unwrap();
    assert_eq!(in_order(made.reads()), new);
}
