//! Transactions over a keyspace, through the public door.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{keyspace, look, now, run, run_on, store, text};
use duramen::{MediumKind, Meta, Options};
use duramen_structures::{Error, KEY_BYTES_MAX, KeyCount, Keys, Locks, Txn, Worker, string_until};

fn get(worker: &mut Worker, db: u8, key: &str) -> Option<String> {
    look(worker, |txn| text(txn.get(db, key.as_bytes()).unwrap()))
}

fn put(worker: &mut Worker, db: u8, key: &str, value: &str) {
    run(worker, |txn| txn.put(db, key.as_bytes(), value.as_bytes()).unwrap());
}

fn keys(worker: &mut Worker, db: u8) -> Vec<String> {
    let mut keys = vec![];
    look(worker, |txn| {
        keys.clear();
        all_keys(txn, db, &mut keys);
    });
    keys
}

fn all_keys(txn: &mut Txn<'_>, db: u8, keys: &mut Vec<String>) {
    let mut cursor = 0;
    loop {
        cursor =
            txn.scan(db, cursor, 3, |key, _| keys.push(String::from_utf8(key.to_vec()).unwrap())).unwrap();
        if cursor == 0 {
            break;
        }
    }
    keys.sort();
    keys.dedup();
}

#[test]
fn databases_do_not_see_each_other() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    put(&mut worker, 0, "k", "zero");
    put(&mut worker, 1, "k", "one");
    assert_eq!(get(&mut worker, 0, "k").unwrap(), "zero");
    assert_eq!(get(&mut worker, 1, "k").unwrap(), "one");
    assert_eq!(get(&mut worker, 2, "k"), None);
    assert_eq!(keys(&mut worker, 1), ["k"]);
    assert_eq!(keys(&mut worker, 2), [""; 0]);
}

#[test]
fn only_a_transaction_itself_sees_its_writes_before_commit() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let (mut one, mut other) = (keyspace.worker().unwrap(), keyspace.worker().unwrap());
    put(&mut one, 0, "old", "1");
    put(&mut one, 0, "gone", "1");
    let mut txn = one.begin(now());
    txn.put(0, b"new", b"2").unwrap();
    txn.put(0, b"old", b"3").unwrap();
    assert!(txn.delete(0, b"gone").unwrap());
    assert!(!txn.delete(0, b"gone").unwrap());
    assert_eq!(text(txn.get(0, b"new").unwrap()).unwrap(), "2");
    assert_eq!(text(txn.get(0, b"old").unwrap()).unwrap(), "3");
    assert!(txn.get(0, b"gone").unwrap().is_none());
    assert_eq!(txn.count(0).unwrap(), KeyCount { keys: 2, expires: 0 });
    let mut seen = vec![];
    all_keys(&mut txn, 0, &mut seen);
    assert_eq!(seen, ["new", "old"]);
    assert_eq!(keys(&mut other, 0), ["gone", "old"]);
    assert_eq!(get(&mut other, 0, "old").unwrap(), "1");
    txn.commit().unwrap();
    assert_eq!(keys(&mut other, 0), ["new", "old"]);
    assert_eq!(get(&mut other, 0, "old").unwrap(), "3");
}

#[test]
fn a_dropped_transaction_leaves_no_trace() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let mut txn = worker.begin(now());
    txn.put(0, b"k", b"v").unwrap();
    drop(txn);
    assert_eq!(get(&mut worker, 0, "k"), None);
    assert_eq!(keyspace.count(0, now()), KeyCount::default());
}

#[test]
fn keys_named_by_a_transaction_are_not_written_by_others_until_it_ends() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut one = keyspace.worker().unwrap();
    let mut keys = Keys::default();
    keys.add(b"a");
    keys.add(b"b");
    put(&mut one, 0, "a", "1");
    for (locks, grouped) in [
        (Locks::One(b"a"), false),
        (Locks::Keys(&keys), false),
        (Locks::All, false),
        (Locks::One(b"a"), true),
        (Locks::Keys(&keys), true),
    ] {
        let wrote = AtomicBool::new(false);
        if grouped {
            one.group();
        }
        std::thread::scope(|scope| {
            let mut txn = one.begin_on(now(), locks);
            let before = text(txn.get(0, b"a").unwrap()).unwrap();
            // By each way to a key: a put at once, in a transaction, with a gate.
            for way in 0..3 {
                let (keyspace, wrote) = (&keyspace, &wrote);
                scope.spawn(move || {
                    let mut other = keyspace.worker().unwrap();
                    match way {
                        0 => {
                            let mut txn = other.begin_on(now(), Locks::One(b"a"));
                            assert!(txn.put_at_once(0, b"a", b"theirs", string_until(None)).unwrap());
                        }
                        1 => run_on(&mut other, Locks::One(b"a"), |txn| txn.put(0, b"a", b"theirs").unwrap()),
                        _ => put(&mut other, 0, "a", "theirs"),
                    }
                    wrote.store(true, Ordering::SeqCst);
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(text(txn.get(0, b"a").unwrap()).unwrap(), before);
            assert!(!wrote.load(Ordering::SeqCst));
            txn.put(0, b"a", b"mine").unwrap();
            txn.commit().unwrap();
        });
        assert_eq!(get(&mut one, 0, "a").unwrap(), "theirs");
        one.flush_group().unwrap();
    }
}

fn named(names: &[&[u8]]) -> Keys {
    let mut keys = Keys::default();
    names.iter().for_each(|key| keys.add(key));
    keys
}

#[test]
fn a_transaction_names_more_keys_if_they_are_not_locked() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let (mut one, mut other) = (keyspace.worker().unwrap(), keyspace.worker().unwrap());
    let mut txn = one.begin_on(now(), Locks::One(b"a"));
    assert!(txn.name_more(&named(&[b"b", b"a"])));
    txn.put(0, b"a", b"1").unwrap();
    txn.put(0, b"b", b"1").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut third = keyspace.worker().unwrap();
            let mut txn = third.begin_on(now(), Locks::One(b"c"));
            assert!(!txn.exists(0, b"c").unwrap() && !txn.name_more(&named(&[b"b"])));
            txn.put(0, b"c", b"1").unwrap();
            assert!(txn.commit().is_err(), "the database has no table yet");
        });
    });
    let error = txn.commit().unwrap_err();
    one.before_again(error).unwrap();
    assert_eq!(get(&mut other, 0, "b"), None);
}

#[test]
fn a_watched_key_that_changed_is_reported() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let (mut one, mut other) = (keyspace.worker().unwrap(), keyspace.worker().unwrap());
    put(&mut one, 0, "a", "1");
    let watch =
        |worker: &mut Worker, key: &str| run(worker, |txn| txn.watch(0, key.as_bytes()).unwrap().unwrap());
    let (a, absent) = (watch(&mut one, "a"), watch(&mut one, "absent"));
    assert_eq!(a.key(), b"a");
    let mut txn = one.begin(now());
    assert!(txn.expect(&a).unwrap() && txn.expect(&absent).unwrap());
    drop(txn);
    put(&mut other, 0, "a", "1");
    assert!(!one.begin(now()).expect(&a).unwrap());
    // A key that was not there and came.
    put(&mut other, 0, "absent", "1");
    assert!(!one.begin(now()).expect(&absent).unwrap());
    // A key whose time came.
    let mut txn = one.begin(now());
    txn.put_with(0, b"soon", b"1", string_until(Some(now() + 60_000))).unwrap();
    txn.commit().unwrap();
    let soon = watch(&mut one, "soon");
    assert!(one.begin(now()).expect(&soon).unwrap());
    assert!(!one.begin(now() + 60_000).expect(&soon).unwrap());
}

#[test]
fn an_expired_value_is_absent() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let end = now() + 60_000;
    run(&mut worker, |txn| txn.put_with(0, b"k", b"v", string_until(Some(end))).unwrap());
    run(&mut worker, |txn| assert_eq!(txn.get(0, b"k").unwrap().unwrap().expires_at(), Some(end)));
    let mut txn = worker.begin(end);
    assert!(txn.get(0, b"k").unwrap().is_none());
    assert!(!txn.set_expiry(0, b"k", None).unwrap());
    let mut seen = vec![];
    all_keys(&mut txn, 0, &mut seen);
    assert!(seen.is_empty());
    drop(txn);
    // A time that has passed deletes.
    run(&mut worker, |txn| assert!(txn.set_expiry(0, b"k", Some(1)).unwrap()));
    assert_eq!(get(&mut worker, 0, "k"), None);
    run(&mut worker, |txn| txn.put_with(0, b"k", b"v", string_until(Some(1))).unwrap());
    assert_eq!(get(&mut worker, 0, "k"), None);
    assert_eq!(keyspace.count(0, now()), KeyCount::default());
}

#[test]
fn a_write_that_has_already_expired_changes_watched_keys_but_no_count() {
    type Write = fn(&mut Txn<'_>);
    // As the transaction sees it, whose time stands still.
    fn past(txn: &Txn<'_>) -> Meta {
        string_until(Some(txn.now() - 1))
    }
    let dir = tempfile::tempdir().unwrap();
    let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
    let mut worker = keyspace.worker().unwrap();
    put(&mut worker, 0, "there", "1");
    let count = KeyCount { keys: 1, expires: 0 };
    // Alone, with other writes, and put and removed again in one transaction.
    let writes: [(&str, Write); 4] = [
        ("alone", |txn| txn.put_with(0, b"k", b"v", past(txn)).unwrap()),
        ("read before", |txn| {
            assert!(!txn.exists(0, b"k").unwrap());
            txn.put_vec(0, b"k", b"v".to_vec(), past(txn)).unwrap();
        }),
        ("with another", |txn| {
            txn.put_with(0, b"k", b"v", past(txn)).unwrap();
            assert!(!txn.delete(0, b"k").unwrap());
            txn.put(0, b"there", b"2").unwrap();
        }),
        ("deleted again", |txn| {
            assert_eq!(txn.add(0, b"k", 5).unwrap(), 5);
            assert!(txn.set_expiry(0, b"k", Some(txn.now() - 1)).unwrap());
            assert_eq!(txn.add(0, b"k", 1).unwrap(), 1);
            assert!(txn.delete(0, b"k").unwrap());
        }),
    ];
    for (name, write) in writes {
        let watched = run(&mut worker, |txn| txn.watch(0, b"k").unwrap().unwrap());
        assert!(worker.begin(now()).expect(&watched).unwrap(), "{name}");
        run(&mut worker, |txn| {
            write(txn);
            assert_eq!(txn.get(0, b"k").unwrap().map(|found| found.to_vec()), None, "{name}");
            assert_eq!(txn.count(0).unwrap(), count, "{name}");
            let mut seen = vec![];
            all_keys(txn, 0, &mut seen);
            assert_eq!(seen, ["there"], "{name}");
        });
        assert!(!worker.begin(now()).expect(&watched).unwrap(), "{name}");
        assert_eq!((get(&mut worker, 0, "k"), keyspace.count(0, now())), (None, count), "{name}");
        assert_eq!(keys(&mut worker, 0), ["there"], "{name}");
    }
    // What was there is gone.
    run(&mut worker, |txn| txn.put_with(0, b"there", b"v", past(txn)).unwrap());
    assert_eq!((get(&mut worker, 0, "there"), keyspace.count(0, now())), (None, KeyCount::default()));
    // After a restart, too, and it is swept as any other.
    drop((worker, keyspace));
    let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
    assert_eq!(keyspace.count(0, now()), KeyCount::default());
    keyspace.store().maintain().unwrap();
    assert_eq!(keyspace.table(0).unwrap().len(), 0);
    let mut worker = keyspace.worker().unwrap();
    put(&mut worker, 0, "k", "again");
    assert_eq!(keyspace.count(0, now()), count);
    assert_eq!(get(&mut worker, 0, "k").unwrap(), "again");
}

#[test]
fn copies_keep_the_expiry_time_and_may_cross_databases() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let end = now() + 60_000;
    run(&mut worker, |txn| {
        txn.put_with(0, b"a", b"v", string_until(Some(end))).unwrap();
        assert!(txn.copy(0, b"a", 5, b"b").unwrap());
        assert!(!txn.copy(0, b"none", 5, b"c").unwrap());
    });
    run(&mut worker, |txn| {
        let found = txn.get_string(5, b"b").unwrap().unwrap();
        assert_eq!((&*found, found.expires_at()), (&b"v"[..], Some(end)));
    });
    run(&mut worker, |txn| assert!(txn.set_expiry(5, b"b", None).unwrap()));
    assert_eq!(keyspace.count(5, now()), KeyCount { keys: 1, expires: 0 });
    assert_eq!(keyspace.count(0, now()), KeyCount { keys: 1, expires: 1 });
}

#[test]
fn another_type_is_an_error_to_string_commands() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| txn.put_with(0, b"k", b"v", Meta { tag: 9, ..Meta::default() }).unwrap());
    run(&mut worker, |txn| assert!(matches!(txn.get_string(0, b"k"), Err(Error::WrongType))));
}

#[test]
fn a_key_that_is_too_long_is_absent_and_cannot_be_written() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let (longest, longer) = (vec![b'k'; KEY_BYTES_MAX], vec![b'k'; KEY_BYTES_MAX + 1]);
    run(&mut worker, |txn| txn.put(0, &longest, b"v").unwrap());
    run(&mut worker, |txn| {
        assert!(txn.exists(0, &longest).unwrap());
        assert!(!txn.exists(0, &longer).unwrap());
        assert!(!txn.delete(0, &longer).unwrap());
        assert!(txn.watch(0, &longer).unwrap().is_none());
        assert!(matches!(txn.put(0, &longer, b"v"), Err(Error::KeyTooLong)));
        assert!(matches!(txn.copy(0, &longest, 0, &longer), Err(Error::KeyTooLong)));
    });
}

#[test]
fn counts_are_those_of_the_keys_also_after_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
    let mut worker = keyspace.worker().unwrap();
    let end = now() + 60_000;
    run(&mut worker, |txn| {
        for n in 0..20 {
            txn.put(0, format!("p{n}").as_bytes(), b"v").unwrap();
            txn.put_with(3, format!("e{n}").as_bytes(), b"v", string_until(Some(end))).unwrap();
        }
    });
    for n in 0..5 {
        run(&mut worker, |txn| assert!(txn.delete(0, format!("p{n}").as_bytes()).unwrap()));
        put(&mut worker, 3, &format!("e{n}"), "again");
        put(&mut worker, 0, "p9", "again");
    }
    let wanted = [KeyCount { keys: 15, expires: 0 }, KeyCount { keys: 20, expires: 15 }];
    assert_eq!([keyspace.count(0, now()), keyspace.count(3, now())], wanted);
    drop(worker);
    assert_eq!([keyspace.count(0, now()), keyspace.count(3, now())], wanted);
    drop(keyspace);
    let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
    assert_eq!([keyspace.count(0, now()), keyspace.count(3, now())], wanted);
    assert_eq!(keyspace.count(3, end + 64), KeyCount { keys: 5, expires: 0 });
}

#[test]
fn a_group_is_counted_by_others_once_it_is_flushed() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    worker.group();
    put(&mut worker, 0, "k", "v");
    assert_eq!(worker.begin(now()).count(0).unwrap().keys, 1);
    let told = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let count = |is_grouped: bool| {
            let mut other = keyspace.worker().unwrap();
            if is_grouped {
                other.group();
            }
            let keys = look(&mut other, |txn| txn.keys(0).unwrap());
            // In a group it is returned when that is flushed.
            other.flush_group().unwrap();
            told.store(true, Ordering::SeqCst);
            keys
        };
        // Both wait, and not for each other.
        let others = [scope.spawn(move || count(true)), scope.spawn(move || count(false))];
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!told.load(Ordering::SeqCst), "returned a write that is not durable");
        worker.flush_group().unwrap();
        assert_eq!(others.map(|other| other.join().unwrap()), [1, 1]);
    });
    worker.group();
    // A scan sees what the group wrote, and leaves the group open.
    assert_eq!(keys(&mut worker, 0), ["k"]);
    put(&mut worker, 0, "l", "v");
    worker.flush_group().unwrap();
    worker.flush_group().unwrap();
    assert_eq!(keyspace.count(0, now()).keys, 2);
}

#[test]
fn flushing_empties_one_database() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    for n in 0..100 {
        put(&mut worker, 0, &format!("k{n}"), "v");
        put(&mut worker, 1, &format!("k{n}"), "v");
    }
    worker.flush(0).unwrap();
    assert_eq!(keys(&mut worker, 0).len(), 0);
    assert_eq!(keys(&mut worker, 1).len(), 100);
    assert_eq!((keyspace.count(0, now()).keys, keyspace.count(1, now()).keys), (0, 100));
    run(&mut worker, |txn| {
        txn.put(1, b"new", b"v").unwrap();
        txn.flush(1..=1).unwrap();
        assert!(!txn.exists(1, b"new").unwrap());
        txn.put(1, b"after", b"v").unwrap();
    });
    assert_eq!(keys(&mut worker, 1), ["after"]);
}

#[test]
fn a_random_key_is_one_of_the_database() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| assert_eq!(txn.random_key(0).unwrap(), None));
    for key in ["a", "b", "c"] {
        put(&mut worker, 0, key, "v");
        put(&mut worker, 1, "other", "v");
    }
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        seen.insert(run(&mut worker, |txn| txn.random_key(0).unwrap().unwrap()));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
}

/// Each of the long ones scans, for which it ends its group while the others wait for it.
#[test]
fn long_transactions_run_once_while_another_worker_writes_their_keys() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let over = AtomicBool::new(false);
    put(&mut keyspace.worker().unwrap(), 0, "hot", "0");
    let long = || {
        let mut worker = keyspace.worker().unwrap();
        worker.group();
        let mut runs = 0;
        run(&mut worker, |txn| {
            runs += 1;
            let hot = text(txn.get(0, b"hot").unwrap());
            all_keys(txn, 1, &mut Vec::new());
            assert!(txn.count(0).unwrap().keys > 0);
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(text(txn.get(0, b"hot").unwrap()), hot);
            txn.put(0, b"long", b"1").unwrap();
        });
        worker.flush_group().unwrap();
        assert_eq!(runs, 1);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = keyspace.worker().unwrap();
            while !over.load(Ordering::Relaxed) {
                worker.group();
                for _ in 0..50 {
                    run_on(&mut worker, Locks::One(b"hot"), |txn| txn.add(0, b"hot", 1).map(drop).unwrap());
                }
                worker.flush_group().unwrap();
            }
        });
        let threads = [scope.spawn(long), scope.spawn(long)];
        let ended = threads.map(|thread| thread.join().is_ok());
        over.store(true, Ordering::Relaxed);
        assert_eq!(ended, [true, true]);
    });
}

/// Money moves between accounts on several threads; every snapshot of all accounts has the same sum.
#[test]
fn transactions_of_several_threads_are_as_if_one_after_the_other() {
    const ACCOUNTS: u8 = 4;
    const MOVES: usize = 500;
    let accounts = |thread: u8, n: usize| {
        let thread = usize::from(thread);
        let accounts = usize::from(ACCOUNTS);
        (((thread + n) % accounts) as u8, ((thread + 1 + 2 * n) % accounts) as u8)
    };
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let balance = |txn: &mut Txn<'_>, account: u8| -> i64 {
        text(txn.get(0, &[account]).unwrap()).unwrap().parse().unwrap()
    };
    run(&mut keyspace.worker().unwrap(), |txn| {
        (0..ACCOUNTS).for_each(|account| txn.put(0, &[account], b"100").unwrap());
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..3u8)
            .map(|thread| {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    let mut worker = keyspace.worker().unwrap();
                    for n in 0..MOVES {
                        let (from, to) = accounts(thread, n);
                        if from == to {
                            continue;
                        }
                        let mut keys = Keys::default();
                        keys.add(&[to]);
                        keys.add(&[from]);
                        run_on(&mut worker, Locks::Keys(&keys), |txn| {
                            let (a, b) = (balance(txn, from) - 1, balance(txn, to) + 1);
                            txn.put(0, &[from], a.to_string().as_bytes()).unwrap();
                            txn.put(0, &[to], b.to_string().as_bytes()).unwrap();
                        });
                        run_on(&mut worker, Locks::One(b"moves"), |txn| {
                            let n: i64 =
                                text(txn.get(0, b"moves").unwrap()).map_or(0, |n| n.parse().unwrap());
                            txn.put(0, b"moves", (n + 1).to_string().as_bytes()).unwrap();
                        });
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut reader = keyspace.worker().unwrap();
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                let mut keys = Keys::default();
                (0..ACCOUNTS).for_each(|account| keys.add(&[account]));
                let locks = if looks % 2 == 0 { Locks::Keys(&keys) } else { Locks::All };
                looks += 1;
                let sum: i64 = run_on(&mut reader, locks, |txn| {
                    (0..ACCOUNTS).map(|account| balance(txn, account)).sum()
                });
                assert_eq!(sum, 100 * i64::from(ACCOUNTS));
            }
        });
        let all_moved = movers.into_iter().all(|mover| mover.join().is_ok());
        over.store(true, Ordering::Relaxed);
        assert!(all_moved);
    });
    let mut worker = keyspace.worker().unwrap();
    let moves: usize = get(&mut worker, 0, "moves").unwrap().parse().unwrap();
    let wanted = (0..3u8)
        .flat_map(|thread| (0..MOVES).map(move |n| (thread, n)))
        .filter(|&(thread, n)| {
            let (from, to) = accounts(thread, n);
            from != to
        })
        .count();
    assert_eq!(moves, wanted);
    assert_eq!(keyspace.count(0, now()).keys, u64::from(ACCOUNTS) + 1);
}

#[test]
fn scans_by_prefix_see_pending_writes_and_agree_for_both_indexes() {
    for index in [duramen::IndexKind::Hash, duramen::IndexKind::Ordered] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { medium: MediumKind::Volatile, index, ..Options::default() };
        let keyspace = crate::support::open(options.open(dir.path().join("store")).unwrap(), 16);
        let mut worker = keyspace.worker().unwrap();
        for n in 0..300 {
            put(&mut worker, n as u8 % 2, &format!("key:{n:03}"), "v");
        }
        put(&mut worker, 0, "other", "v");
        let mut found = vec![];
        run(&mut worker, |txn| {
            found.clear();
            txn.put(0, b"key:019x", b"pending").unwrap();
            txn.delete(0, b"key:014").unwrap();
            txn.scan_prefix(0, b"key:01", |key, _| found.push(String::from_utf8(key.to_vec()).unwrap()))
                .unwrap();
        });
        found.retain(|key| key.starts_with("key:01"));
        found.sort();
        assert_eq!(found, ["key:010", "key:012", "key:016", "key:018", "key:019x"], "{index}");
        let mut all = keys(&mut worker, 1);
        if index == duramen::IndexKind::Ordered {
            assert!(all.is_sorted(), "a scan goes in the order of the keys");
        }
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 150, "{index}");
        assert!(worker.begin(now()).random_key(1).unwrap().is_some_and(|key| key.starts_with(b"key:")));
    }
}
