//! Many writes of one collection by one call of a transaction.

use crate::collections::{Model, ORDERS, after_kill, check, make, of, options, random};
use duramen::{Durability, ElementOrder, ErrorKind, MediumKind, Meta, Options, Store};
use std::time::Duration;

type Writes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn borrowed(writes: &Writes) -> Vec<(&[u8], Option<&[u8]>)> {
    writes.iter().map(|(key, value)| (&key[..], value.as_deref())).collect()
}

/// Applies writes to a model; returns how many keys had a value.
fn apply(model: &mut Model, writes: &Writes) -> u64 {
    let apply = |(key, value): &(Vec<u8>, Option<Vec<u8>>)| match value {
        Some(value) => model.insert(key.clone(), value.clone()).is_some(),
        None => model.remove(key).is_some(),
    };
    writes.iter().map(apply).filter(|was_there| *was_there).count() as u64
}

/// Writes of keys of which some are absent, some come several times, and some follow each other in the order.
fn some_writes(state: &mut u64) -> Writes {
    let count = [1, 5, 40, 300][random(state, 4) as usize];
    let (deletes, runs) = (random(state, 4), random(state, 2) == 0);
    let from = random(state, 300);
    (0..count)
        .map(|at| {
            let order = if runs { (from + at) % 300 } else { random(state, 300) };
            let key = [&order.to_be_bytes()[..], &b"tail"[..random(state, 2) as usize]].concat();
            let bytes = if random(state, 50) == 0 { 5000 } else { random(state, 90) };
            let value = [&random(state, 50).to_be_bytes()[..], &vec![7; bytes as usize]].concat();
            (key, (random(state, 4) >= deletes).then_some(value))
        })
        .collect()
}

#[test]
fn writes_of_one_call_are_those_of_a_model_and_count_all_or_not_at_all() {
    let epochs = Durability::Interval(Duration::from_secs(3600));
    let media = [
        options(),
        // Many keys of one hash.
        Options { hash_mask: 0xFF00_0000_0000_0003, ..options() },
        Options { medium: MediumKind::File, durability: epochs, ..options() },
        Options { medium: MediumKind::File, durability: Durability::Manual, ..options() },
    ];
    for (number, options) in media.iter().enumerate() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = dir.path().join("store");
        let store = options.open(&path).unwrap();
        for order in ORDERS {
            let collection = make(&store, b"key", order);
            let mut model = Model::from([(b"first one".to_vec(), vec![0; 9])]);
            let state = &mut (number as u64 * 7 + order as u64 + 1);
            let mut writer = store.writer().unwrap();
            for round in 0..40 {
                let (writes, is_aborted) = (some_writes(state), random(state, 4) == 0);
                let mut after = model.clone();
                let were_there = apply(&mut after, &writes);
                if round % 2 == 0 {
                    writer.lock([&b"key"[..]]).unwrap();
                }
                writer.begin_transaction().unwrap();
                let written =
                    writer.in_transaction_of(&collection).replace_all(&borrowed(&writes), Meta::default());
                let found_room = written.is_ok() || !writer.wants_room();
                if found_room {
                    assert_eq!(written.unwrap(), were_there, "{number} {order:?} {round}");
                    // Others, and a store opened after a crash, have nothing of it.
                    for (key, _) in writes.iter().take(20) {
                        assert_eq!(collection.get(key).unwrap().as_deref(), model.get(key).map(|it| &it[..]));
                    }
                    if round % 10 == 3 && options.durability != Durability::Manual {
                        check(&of(&after_kill(&path, options), b"key").unwrap(), &model);
                    }
                }
                if is_aborted || !found_room {
                    writer.abort_transaction().unwrap();
                } else {
                    writer.commit_transaction().unwrap();
                    model = after;
                }
                if round % 2 == 0 {
                    writer.unlock().unwrap();
                    if !found_room {
                        writer.make_room().unwrap();
                    }
                }
                check(&collection, &model);
                if round % 8 == 7 {
                    store.maintain().unwrap();
                    check(&collection, &model);
                    assert_eq!(store.audit(), [""; 0]);
                }
                if round % 10 == 9 {
                    store.commit().unwrap();
                    let after = after_kill(&path, options);
                    check(&of(&after, b"key").unwrap(), &model);
                    assert_eq!(after.audit(), [""; 0]);
                }
            }
        }
    }
}

/// A collection with these elements, by value.
fn filled(store: &Store, count: u64) -> (duramen::Collection, Model) {
    let collection = make(store, b"key", ElementOrder::ByValue);
    let mut model = Model::from([(b"first one".to_vec(), vec![0; 9])]);
    for at in 0..count {
        let (key, value) = (format!("element {at}").into_bytes(), vec![at as u8; 100]);
        collection.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    (collection, model)
}

#[test]
fn a_call_that_runs_out_of_room_fails_the_transaction_and_deletes_still_work() {
    let options = Options { medium: MediumKind::Volatile, len_max: 4 << 20, limit: 4 << 20, ..options() };
    let store = options.open("unused").unwrap();
    let (collection, model) = filled(&store, 500);
    let mut writer = store.writer().unwrap();
    let writes: Writes =
        (0..60_000).map(|at| (format!("new {at}").into_bytes(), Some(vec![1; 100]))).collect();
    writer.begin_transaction().unwrap();
    let error =
        writer.in_transaction_of(&collection).replace_all(&borrowed(&writes), Meta::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
    let is_begun = collection.len() > model.len() as u64;
    assert!(is_begun, "the first stretches found room");
    assert_eq!(writer.commit_transaction().unwrap_err().kind(), ErrorKind::OutOfSpace);
    check(&collection, &model);
    // A full store.
    let mut at = 0u64;
    while store.put(at.to_be_bytes(), [1; 2000]).is_ok() {
        at += 1;
    }
    let deletes: Writes = model.keys().map(|key| (key.clone(), None)).collect();
    writer.begin_transaction().unwrap();
    let deleted = writer.in_transaction_of(&collection).replace_all(&borrowed(&deletes), Meta::default());
    assert_eq!(deleted.unwrap(), model.len() as u64);
    writer.commit_transaction().unwrap();
    check(&collection, &Model::new());
    assert_eq!(store.audit(), [""; 0]);
}

#[test]
fn a_call_under_locks_wants_all_the_room_that_it_needs() {
    let options = Options { medium: MediumKind::Shm, background: false, ..Options::default() };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options.open(dir.path().join("store")).unwrap();
    let (collection, mut model) = filled(&store, 10);
    let writes: Writes =
        (0..60_000).map(|at| (format!("new {at}").into_bytes(), Some(vec![1; 100]))).collect();
    let (mut writer, mut runs) = (store.writer().unwrap(), 0);
    writer
        .locked([&b"key"[..]], |writer| {
            runs += 1;
            writer.begin_transaction()?;
            let written =
                writer.in_transaction_of(&collection).replace_all(&borrowed(&writes), Meta::default());
            if written.is_err() {
                writer.abort_transaction()?;
                return written.map(|_| ());
            }
            writer.commit_transaction()
        })
        .unwrap();
    // Each run gets what the one before asked for, and what its blocks lose.
    assert!(runs <= 16, "{runs} runs");
    apply(&mut model, &writes);
    check(&collection, &model);
}

#[test]
fn records_that_compaction_moves_are_replaced_and_deleted() {
    let options = Options { compaction_dead_percent: 5, ..options() };
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options.open(dir.path().join("store")).unwrap();
    let (collection, mut model) = filled(&store, 2_000);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                store.maintain().unwrap();
            }
        });
        let (mut writer, state) = (store.writer().unwrap(), &mut 5);
        for round in 0..300 {
            let writes: Writes = (0..100)
                .map(|_| {
                    let key = format!("element {}", random(state, 2_000)).into_bytes();
                    (key, (random(state, 3) > 0).then(|| vec![random(state, 256) as u8; 100]))
                })
                .collect();
            let mut after = model.clone();
            let were_there = apply(&mut after, &writes);
            let written = writer.transaction_unchecked(|transaction| {
                transaction.collection(&collection).replace_all(&borrowed(&writes), Meta::default())
            });
            assert_eq!(written.unwrap(), were_there, "{round}");
            model = after;
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(store.stats().compacted_bytes > 0, "{:?}", store.stats());
    check(&collection, &model);
    assert_eq!(store.audit(), [""; 0]);
}

#[test]
fn a_call_names_no_collections_and_needs_a_transaction() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let store = options().open(dir.path().join("store")).unwrap();
    let collection = make(&store, b"key", ElementOrder::Unordered);
    let mut writer = store.writer().unwrap();
    let writes: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (b"a", None)];
    let error = writer.in_transaction_of(&collection).replace_all(&writes, Meta::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    writer.begin_transaction().unwrap();
    let root = Meta { collection: Some(collection.id()), ..Meta::default() };
    let error = writer.in_transaction_of(&collection).replace_all(&writes, root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    // A key longer than a key may be.
    let long = vec![1; duramen::KEY_BYTES_MAX + 1];
    let writes: [(&[u8], Option<&[u8]>); 2] = [(b"a", Some(b"1")), (&long, None)];
    let error = writer.in_transaction_of(&collection).replace_all(&writes, Meta::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    writer.abort_transaction().unwrap();
    assert_eq!(collection.len(), 1);
}
