//! Counts of keys over a close: kept, or counted anew where they may not be true any more.

use duramen::{IndexKind, MediumKind, Options, Store};
use duramen_structures::{KeyCount, Keyspace, Outcome};
use std::path::Path;

const NOW: u64 = 1_000_000;

fn store(path: &Path) -> Store {
    let clock = std::sync::Arc::new(|| NOW);
    Options { medium: MediumKind::File, clock: Some(clock), ..Options::default() }.open(path).unwrap()
}

fn counts(keyspace: &Keyspace) -> Vec<KeyCount> {
    (0..3).map(|db| keyspace.count(db, NOW)).collect()
}

/// Some keys in two databases, some of which expire.
fn fill(keyspace: &Keyspace) {
    let mut worker = keyspace.worker().unwrap();
    for number in 0..300u32 {
        let mut txn = worker.begin(NOW);
        let key = number.to_le_bytes();
        txn.put((number % 2) as u8, &key, b"value").unwrap();
        if number % 10 == 0 {
            assert!(txn.set_expiry((number % 2) as u8, &key, Some(NOW + 1000 + u64::from(number))).unwrap());
        }
        assert_eq!(txn.commit().unwrap(), Outcome::Committed);
    }
}

#[test]
fn counts_that_were_kept_are_those_of_the_keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    fill(&keyspace);
    let wanted = counts(&keyspace);
    assert_eq!((wanted[0].keys, wanted[0].expires, wanted[1].keys, wanted[2].keys), (150, 30, 150, 0));
    keyspace.keep_counts().unwrap();
    drop(keyspace);

    // They are true once, and go with the open that takes them.
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    assert_eq!(counts(&keyspace), wanted);
    assert_eq!(keyspace.store().len(), 300);
    assert_eq!(keyspace.count(0, NOW + 2000).expires, 0);
    drop(keyspace);
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    assert_eq!(counts(&keyspace), wanted);
}

#[test]
fn counts_are_not_taken_when_somebody_else_opened_the_store_since() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    fill(&keyspace);
    keyspace.keep_counts().unwrap();
    drop(keyspace);
    // Past the keyspace: a key of database 2.
    store(&path).put(&[2, 7], b"value").unwrap();
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    assert_eq!(counts(&keyspace).iter().map(|count| count.keys).collect::<Vec<_>>(), [150, 150, 1]);
    // With another number of databases they are counted anew, too.
    keyspace.keep_counts().unwrap();
    drop(keyspace);
    let keyspace = Keyspace::open(store(&path), 2).unwrap();
    assert_eq!((keyspace.count(0, NOW).keys, keyspace.count(1, NOW).keys), (150, 150));
}

#[test]
fn counts_are_not_taken_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keyspace = Keyspace::open(store(&path), 3).unwrap();
    fill(&keyspace);
    keyspace.keep_counts().unwrap();
    let mut worker = keyspace.worker().unwrap();
    let mut txn = worker.begin(NOW);
    txn.put(2, b"later", b"value").unwrap();
    assert_eq!(txn.commit().unwrap(), Outcome::Committed);
    // As a process leaves it that is killed.
    let killed = dir.path().join("killed");
    std::fs::copy(&path, &killed).unwrap();
    let keyspace = Keyspace::open(store(&killed), 3).unwrap();
    assert_eq!(keyspace.count(2, NOW).keys, 1);
    assert_eq!(keyspace.count(0, NOW).expires, 30);
}

#[test]
fn keys_that_come_and_go_while_they_are_counted_are_counted_once() {
    const KEYS: u32 = 200_000;
    const THREADS: u32 = 3;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    for index in [IndexKind::Hash, IndexKind::Ordered] {
        let path = dir.path().join(index.to_string());
        let open = || {
            let clock = std::sync::Arc::new(|| NOW);
            let options =
                Options { medium: MediumKind::Shm, clock: Some(clock), index, ..Options::default() };
            Keyspace::open(options.open(&path).unwrap(), 3).unwrap()
        };
        {
            let keyspace = open();
            let store = keyspace.store();
            for number in 0..KEYS {
                let key =
                    [&[(number % 2) as u8][..], &number.wrapping_mul(2_654_435_761).to_be_bytes()].concat();
                store.put(&key, b"value").unwrap();
            }
        }
        let mut seen_counting = 0;
        for round in 0..4 {
            let keyspace = open();
            seen_counting += u32::from(!keyspace.is_counted());
            let added = std::thread::scope(|scope| {
                let work = |thread: u32| {
                    let mut worker = keyspace.worker().unwrap();
                    let mut added = 0;
                    for number in (thread..KEYS / 20).step_by(THREADS as usize) {
                        let number = number.wrapping_mul(7919) % KEYS;
                        let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
                        let mut txn = worker.begin(NOW);
                        let db = (number % 2) as u8;
                        let there = txn.exists(db, &key).unwrap();
                        // Deleted if it was there, put if not, and another key beside it in one batch.
                        if there {
                            txn.delete(db, &key).unwrap();
                        } else {
                            txn.put(db, &key, b"again").unwrap();
                        }
                        let other = [&key[..], &[round]].concat();
                        let is_new = !txn.exists(2, &other).unwrap();
                        txn.put(2, &other, b"other").unwrap();
                        if txn.commit().unwrap() == Outcome::Committed {
                            added += i64::from(!there) - i64::from(there) + i64::from(is_new);
                        }
                    }
                    added
                };
                let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum::<i64>()
            });
            let before = keyspace.store().len() as i64 - added;
            let mut all = [0; 3];
            keyspace.store().for_each(|value| all[usize::from(value.key()[0])] += 1).unwrap();
            let counted = counts(&keyspace).iter().map(|count| count.keys).collect::<Vec<_>>();
            assert_eq!(counted, all, "{index}, round {round}: {before} keys before, {added} added");
            assert!(keyspace.is_counted());
        }
        assert!(seen_counting > 0, "all was counted before anybody could write");
    }
}
