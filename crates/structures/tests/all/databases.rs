//! Databases as tables: made by the first write, emptied and swapped as one, watched as in Redis.

use crate::support::{keyspace, look, now, run, store, text};
use duramen::{MediumKind, Options};
use duramen_structures::{Error, KeyCount, Keyspace, Locks, Txn, Watched, Worker, string_until, table_name};
use std::sync::atomic::{AtomicBool, Ordering};

fn put(worker: &mut Worker, db: u8, key: &str) {
    run(worker, |txn| txn.put(db, key.as_bytes(), b"v").unwrap());
}

fn has(worker: &mut Worker, db: u8, key: &str) -> bool {
    run(worker, |txn| txn.exists(db, key.as_bytes()).unwrap())
}

fn watch(worker: &mut Worker, db: u8, key: &str) -> Watched {
    run(worker, |txn| txn.watch(db, key.as_bytes()).unwrap().unwrap())
}

/// Whether EXEC would run, with a write of another database.
fn holds(worker: &mut Worker, watched: &Watched) -> bool {
    run(worker, |txn| {
        let holds = txn.expect(watched).unwrap();
        if holds {
            txn.put(9, b"exec", b"ran").unwrap();
        }
        holds
    })
}

#[test]
fn a_database_is_a_table_from_its_first_write_on() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        assert!(txn.get(3, b"k").unwrap().is_none());
        assert!(!txn.delete(3, b"k").unwrap());
        assert_eq!(txn.random_key(3).unwrap(), None);
        assert_eq!(txn.scan(3, 0, 10, |_, _| unreachable!()).unwrap(), 0);
        txn.scan_prefix(3, b"", |_, _| unreachable!()).unwrap();
        txn.flush(3..=3).unwrap();
        assert_eq!(txn.count(3).unwrap(), KeyCount::default());
    });
    let watched = watch(&mut worker, 3, "k");
    worker.flush(3).unwrap();
    worker.flush_all().unwrap();
    worker.swap(3, 4).unwrap();
    assert!(keyspace.store().tables().is_empty() && keyspace.table(3).is_none());
    put(&mut worker, 3, "other");
    let tables = keyspace.store().tables();
    assert_eq!((tables.len(), &tables[0].name[..], tables[0].keys), (1, table_name(3).as_bytes(), 1));
    assert!(holds(&mut worker, &watched));
    put(&mut worker, 3, "k");
    assert!(!holds(&mut worker, &watched));
}

#[test]
fn a_transaction_of_several_databases_is_one_also_when_it_makes_them() {
    let (_dir, keyspace) = keyspace(MediumKind::Shm);
    let (mut worker, mut other) = (keyspace.worker().unwrap(), keyspace.worker().unwrap());
    let write = |txn: &mut Txn<'_>| -> Result<(), Error> {
        assert!(!txn.exists(0, b"a")?);
        txn.put(5, b"b", b"1")?;
        txn.put(0, b"a", b"1")?;
        txn.put(5, b"a", b"2")
    };
    // Once each database has its table it begins again, and nothing of it was seen.
    let mut runs = 0;
    let wrote = worker.run::<_, Error>(now(), Locks::All, |txn| {
        runs += 1;
        for (db, key) in [(0, "a"), (5, "a"), (5, "b")] {
            assert!(look(&mut other, |txn| !txn.exists(db, key.as_bytes()).unwrap()));
        }
        write(txn)
    });
    wrote.unwrap();
    assert_eq!((runs, keyspace.keys(0, now()), keyspace.keys(5, now())), (3, 1, 2));
    assert_eq!(run(&mut other, |txn| text(txn.get(5, b"a").unwrap())).unwrap(), "2");
    // What does not commit makes no table.
    let mut txn = worker.begin(now());
    txn.put(7, b"new", b"1").unwrap();
    let error = txn.commit().unwrap_err();
    assert!(keyspace.table(7).is_none());
    worker.before_again(error).unwrap();
    assert!(keyspace.table(7).is_some() && !has(&mut worker, 7, "new"));
}

#[test]
fn swapped_databases_have_each_others_keys_also_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
    let mut worker = keyspace.worker().unwrap();
    (0..10).for_each(|n| put(&mut worker, 0, &format!("zero{n}")));
    put(&mut worker, 1, "one");
    worker.group();
    worker.swap(0, 1).unwrap();
    // One of them was never written.
    worker.swap(1, 2).unwrap();
    worker.swap(2, 2).unwrap();
    put(&mut worker, 2, "after");
    worker.flush_group().unwrap();
    let check = |keyspace: &Keyspace| {
        let mut worker = keyspace.worker().unwrap();
        assert_eq!([0, 1, 2].map(|db| keyspace.keys(db, now())), [1, 0, 11]);
        assert!(has(&mut worker, 0, "one") && has(&mut worker, 2, "zero9") && has(&mut worker, 2, "after"));
        assert!(!has(&mut worker, 1, "zero9"));
    };
    check(&keyspace);
    // As a process leaves it that is killed.
    let killed = dir.path().join("killed");
    std::fs::copy(dir.path().join("store"), &killed).unwrap();
    let options = Options { medium: MediumKind::File, ..Options::default() };
    check(&crate::support::open(options.open(&killed).unwrap(), 16));
}

#[test]
fn a_watched_key_has_changed_if_it_existed_before_or_exists_after() {
    // In database 0, and in database 1, with which it is swapped.
    for (before, behind) in [(false, false), (false, true), (true, false), (true, true)] {
        for operation in ["flush", "flush all", "swap", "flush another"] {
            for _ in 0..2 {
                let (_dir, keyspace) = keyspace(MediumKind::Volatile);
                let mut worker = keyspace.worker().unwrap();
                put(&mut worker, 0, "other");
                // Absent with something left of it, and without.
                for db in [0, 1] {
                    put(&mut worker, db, "k");
                    if !(if db == 0 { before } else { behind }) {
                        run(&mut worker, |txn| assert!(txn.delete(db, b"k").unwrap()));
                    }
                }
                let mut watcher = keyspace.worker().unwrap();
                let watched = watch(&mut watcher, 0, "k");
                assert!(holds(&mut watcher, &watched));
                match operation {
                    "flush" => worker.flush(0).unwrap(),
                    "flush all" => worker.flush_all().unwrap(),
                    "flush another" => worker.flush(1).unwrap(),
                    _ => worker.swap(1, 0).unwrap(),
                }
                let changed = match operation {
                    "flush another" => false,
                    "swap" => before || behind,
                    _ => before,
                };
                assert_eq!(holds(&mut watcher, &watched), !changed, "{operation}, {before}, {behind}");
                // And later writes change it as usual.
                if !changed {
                    put(&mut worker, 0, "k");
                    worker.flush(0).unwrap();
                    assert!(
                        !holds(&mut watcher, &watched),
                        "{operation}, {before}, {behind}: written after it"
                    );
                }
            }
        }
    }
}

#[test]
fn a_key_that_appeared_and_vanished_with_its_database_has_changed() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    for db in [0, 1] {
        if db == 0 {
            put(&mut worker, db, "other");
        }
        let watched = watch(&mut worker, db, "k");
        put(&mut worker, db, "k");
        worker.flush(db).unwrap();
        assert!(!has(&mut worker, db, "k") && !holds(&mut worker, &watched), "{db}");
    }
}

#[test]
fn watched_keys_are_forgotten_with_their_watcher() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let first = watch(&mut worker, 0, "k");
    drop(watch(&mut worker, 0, "k"));
    put(&mut worker, 0, "k");
    worker.flush(0).unwrap();
    assert!(!holds(&mut worker, &first));
}

#[test]
fn counts_are_right_at_once_after_a_kill_or_a_close() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let killed = dir.path().join("killed");
    let options = Options { medium: MediumKind::File, ..Options::default() };
    let wanted = {
        let keyspace = crate::support::open(options.open(&path).unwrap(), 3);
        let mut worker = keyspace.worker().unwrap();
        for db in 0..3 {
            for n in 0..1000 + u32::from(db) {
                run(&mut worker, |txn| txn.put(db, &n.to_le_bytes(), b"v").unwrap());
            }
        }
        worker.flush(1).unwrap();
        for n in 0..700u32 {
            run(&mut worker, |txn| assert!(txn.delete(0, &n.to_le_bytes()).unwrap()));
            let until = string_until(Some(now() + 100_000));
            run(&mut worker, |txn| txn.put_with(1, &n.to_le_bytes(), b"v", until).unwrap());
        }
        std::fs::copy(&path, &killed).unwrap();
        [0, 1, 2].map(|db| keyspace.count(db, now()).keys)
    };
    assert_eq!(wanted, [300, 700, 1002]);
    for path in [path, killed] {
        let keyspace = crate::support::open(options.open(&path).unwrap(), 3);
        assert_eq!([0, 1, 2].map(|db| keyspace.keys(db, now())), wanted);
        // Of many keys an estimate, which is right where all are alike.
        assert_eq!([0, 1, 2].map(|db| keyspace.count(db, now()).expires), [0, 700, 0]);
    }
}

/// Money moves between two databases that are swapped all the time: every reader sees all of it, in one or the other.
#[test]
fn transactions_see_both_databases_before_or_after_a_swap() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let over = AtomicBool::new(false);
    let amount = |found: Option<String>| found.map_or(0, |text| text.parse::<i64>().unwrap());
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        txn.put(0, b"money", b"100").unwrap();
        txn.put(1, b"money", b"50").unwrap();
    });
    std::thread::scope(|scope| {
        for seed in 0..2i64 {
            let (keyspace, over) = (&keyspace, &over);
            scope.spawn(move || {
                let mut worker = keyspace.worker().unwrap();
                for round in 0..1500 {
                    worker.group();
                    run(&mut worker, |txn| {
                        let zero = amount(text(txn.get(0, b"money").unwrap()));
                        let one = amount(text(txn.get(1, b"money").unwrap()));
                        let more = (round * 7 + seed) % 5 - 2;
                        txn.put(0, b"money", (zero + more).to_string().as_bytes()).unwrap();
                        txn.put(1, b"money", (one - more).to_string().as_bytes()).unwrap();
                    });
                    let mut sum = 0;
                    run(&mut worker, |txn| {
                        sum = amount(text(txn.get(0, b"money").unwrap()))
                            + amount(text(txn.get(1, b"money").unwrap()));
                    });
                    worker.flush_group().unwrap();
                    assert_eq!(sum, 150);
                }
                over.store(true, Ordering::Relaxed);
            });
        }
        while !over.load(Ordering::Relaxed) {
            worker.swap(0, 1).unwrap();
        }
    });
}

#[test]
fn keys_that_come_while_databases_are_emptied_are_counted_once() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let mut worker = keyspace.worker().unwrap();
                for n in 0..5000u32 {
                    worker.group();
                    run(&mut worker, |txn| {
                        txn.put(0, &(n % 500 * 2 + thread).to_le_bytes(), b"v").unwrap();
                        txn.put(1, &n.to_le_bytes(), b"v").unwrap();
                    });
                    worker.flush_group().unwrap();
                }
            });
        }
        for _ in 0..200 {
            worker.flush_all().unwrap();
        }
    });
    for db in [0, 1] {
        let mut keys = 0;
        keyspace.table(db).unwrap().for_each(|_| keys += 1).unwrap();
        assert_eq!(keyspace.keys(db, now()), keys);
    }
}
