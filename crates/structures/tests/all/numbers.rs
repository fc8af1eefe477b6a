//! Strings that INCR and its like wrote: kept as integers, seen as text by everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{keyspace, now, run, store, text};
use duramen::{MediumKind, Meta, Options};
use duramen_structures::{Error, KeyCount, Keyspace, Locks, Txn, Type, Worker, string_until, text_of_number};

/// The tag of a number, and the largest one: part of the stored format.
const TAG: u8 = 0x81;
const MAX: i64 = (1 << 47) - 1;

/// Media on which the engine updates in place, and one on which it does not.
const MEDIA: [MediumKind; 3] = [MediumKind::Volatile, MediumKind::Shm, MediumKind::File];

/// `test` on an empty keyspace of each medium, with a worker of it.
fn on_each_medium(test: impl Fn(MediumKind, &Keyspace, &mut Worker)) {
    for medium in MEDIA {
        let (_dir, keyspace) = keyspace(medium);
        let mut worker = keyspace.worker().unwrap();
        test(medium, &keyspace, &mut worker);
    }
}

fn add(worker: &mut Worker, key: &str, increment: i64) -> i64 {
    run(worker, |txn| txn.add(0, key.as_bytes(), increment).unwrap())
}

/// As the server counts when the command is alone.
fn add_alone(worker: &mut Worker, key: &str, increment: i64) -> i64 {
    run(worker, |txn| match txn.add_at_once(0, key.as_bytes(), increment).unwrap() {
        Some(sum) => sum,
        None => txn.add(0, key.as_bytes(), increment).unwrap(),
    })
}

fn put(worker: &mut Worker, key: &str, value: &str) {
    run(worker, |txn| txn.put(0, key.as_bytes(), value.as_bytes()).unwrap());
}

fn get(worker: &mut Worker, key: &str) -> Option<String> {
    run(worker, |txn| text(txn.get_string(0, key.as_bytes()).unwrap()))
}

/// What the engine holds: tag and bytes.
fn stored(keyspace: &Keyspace, db: u8, key: &str) -> (u8, Vec<u8>) {
    let table = keyspace.table(db).unwrap();
    let value = table.get(key.as_bytes()).unwrap().unwrap();
    (value.tag(), value.to_vec())
}

fn is_number(keyspace: &Keyspace, db: u8, key: &str) -> bool {
    let (tag, bytes) = stored(keyspace, db, key);
    let is_number = tag == TAG;
    // A text may be as long as a number by chance.
    assert!(!is_number || bytes.len() == 8 + (8 - key.len() % 8) % 8, "{key}: {bytes:?}");
    is_number
}

#[test]
fn a_counter_is_stored_as_a_field_that_its_key_aligns() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    for key in ["", "1", "seven b", "eight by", "a longer key than those"] {
        assert_eq!(add(&mut worker, key, -5), -5);
        let (tag, bytes) = stored(&keyspace, 0, key);
        let (padding, field) = bytes.split_at(bytes.len() - 8);
        assert_eq!((tag, padding.len()), (TAG, (8 - key.len() % 8) % 8));
        assert!(padding.iter().all(|byte| *byte == 0));
        assert_eq!(&*text_of_number(key.as_bytes(), tag, &bytes).unwrap(), b"-5");
        assert!(text_of_number(key.as_bytes(), Type::String.tag(), &bytes).is_none());
        let begun = u16::from_le_bytes([field[6], field[7]]);
        assert_eq!(field[..6], (-5i64).to_le_bytes()[..6]);
        assert_eq!(add(&mut worker, key, 7), 2);
        let (_, bytes) = stored(&keyspace, 0, key);
        let changed = &bytes[padding.len()..];
        assert_eq!(changed[..6], 2i64.to_le_bytes()[..6]);
        assert_eq!(u16::from_le_bytes([changed[6], changed[7]]), begun.wrapping_add(1));
    }
}

#[test]
fn counting_writes_nothing_new_where_the_engine_updates_in_place() {
    on_each_medium(|medium, keyspace, worker| {
        add(worker, "counter", 1);
        let before = keyspace.store().stats().written_bytes;
        for grouped in [false, true] {
            if grouped {
                worker.group();
            }
            for n in 0..100 {
                let add = if n % 2 == 0 { add } else { add_alone };
                add(worker, "counter", 1);
            }
            worker.flush_group().unwrap();
        }
        let written = keyspace.store().stats().written_bytes - before;
        assert_eq!(written == 0, medium != MediumKind::File, "{medium}: {written}");
        assert_eq!(get(worker, "counter").unwrap(), "201");
    });
}

#[test]
fn every_reader_sees_the_text() {
    on_each_medium(|_, keyspace, worker| {
        add(worker, "n", 41);
        let check = |txn: &mut Txn<'_>, wanted: &str| {
            let found = txn.get(0, b"n").unwrap().unwrap();
            assert_eq!((found.tag(), found.expires_at()), (Type::String.tag(), None));
            assert_eq!(&*found, wanted.as_bytes());
            assert_eq!(text(txn.get_string(0, b"n").unwrap()).unwrap(), wanted);
            assert!(txn.exists(0, b"n").unwrap());
            assert_eq!(txn.count(0).unwrap(), KeyCount { keys: 1, expires: 0 });
            let mut seen = vec![];
            let mut cursor = 0;
            loop {
                cursor = txn.scan(0, cursor, 10, |key, tag| seen.push((key.to_vec(), tag))).unwrap();
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(seen, [(b"n".to_vec(), Type::String.tag())]);
            assert_eq!(txn.random_key(0).unwrap().unwrap(), b"n");
        };
        run(worker, |txn| {
            check(txn, "41");
            assert!(txn.get(0, b"n").unwrap().unwrap().footprint().is_some_and(|bytes| bytes >= 32));
        });
        // The same before it is committed.
        run(worker, |txn| {
            assert_eq!(txn.add(0, b"n", 1).unwrap(), 42);
            check(txn, "42");
            assert_eq!(txn.get(0, b"n").unwrap().unwrap().footprint(), None);
            assert_eq!(txn.add(0, b"n", 1).unwrap(), 43);
        });
        assert_eq!(get(worker, "n").unwrap(), "43");
        assert!(is_number(keyspace, 0, "n"));
    });
}

#[test]
fn other_commands_write_text_and_counting_makes_it_a_number() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    put(&mut worker, "n", "10");
    assert!(!is_number(&keyspace, 0, "n"));
    assert_eq!(add(&mut worker, "n", 1), 11);
    assert!(is_number(&keyspace, 0, "n"));
    put(&mut worker, "n", "20");
    assert!(!is_number(&keyspace, 0, "n"));
    // All in one transaction: the last form counts.
    run(&mut worker, |txn| {
        txn.put(0, b"n", b"30").unwrap();
        assert_eq!(txn.add(0, b"n", 1).unwrap(), 31);
    });
    assert_eq!(get(&mut worker, "n").unwrap(), "31");
    run(&mut worker, |txn| {
        assert_eq!(txn.add(0, b"n", 1).unwrap(), 32);
        assert!(txn.delete(0, b"n").unwrap());
        assert_eq!(txn.add(0, b"n", 1).unwrap(), 1);
    });
    assert_eq!(get(&mut worker, "n").unwrap(), "1");
    run(&mut worker, |txn| {
        assert_eq!(txn.add(0, b"n", 1).unwrap(), 2);
        txn.put(0, b"n", b"x").unwrap();
        assert!(matches!(txn.add(0, b"n", 1), Err(Error::NotInteger)));
    });
    assert_eq!(get(&mut worker, "n").unwrap(), "x");
    run(&mut worker, |txn| assert!(matches!(txn.add(0, b"n", 1), Err(Error::NotInteger))));
    assert_eq!(get(&mut worker, "n").unwrap(), "x");
}

#[test]
fn integers_of_every_size_are_counted() {
    on_each_medium(|_, keyspace, worker| {
        let mut wanted = 0i64;
        // Over both bounds of what fits, and back.
        for increment in
            [MAX, 1, -1, i64::MAX - MAX, -1, -(i64::MAX - 1), -MAX - 1, -1, 1, i64::MIN + MAX + 1]
        {
            wanted += increment;
            assert_eq!(add(worker, "n", increment), wanted);
            assert_eq!(get(worker, "n").unwrap(), wanted.to_string());
            assert_eq!(is_number(keyspace, 0, "n"), (-MAX - 1..=MAX).contains(&wanted), "{wanted}");
        }
        assert_eq!(wanted, i64::MIN);
        run(worker, |txn| assert!(matches!(txn.add(0, b"n", -1), Err(Error::Overflow))));
        assert_eq!(get(worker, "n").unwrap(), i64::MIN.to_string());
    });
}

#[test]
fn copies_and_expiry_keep_the_number() {
    on_each_medium(|_, keyspace, worker| {
        let end = now() + 600_000;
        add(worker, "n", 7);
        run(worker, |txn| assert!(txn.set_expiry(0, b"n", Some(end)).unwrap()));
        assert_eq!(keyspace.count(0, now()), KeyCount { keys: 1, expires: 1 });
        // Counting keeps the time, and it is still counted once.
        assert_eq!(add(worker, "n", 1), 8);
        assert_eq!(run(worker, |txn| txn.get(0, b"n").unwrap().unwrap().expires_at()), Some(end));
        assert_eq!(keyspace.count(0, now()), KeyCount { keys: 1, expires: 1 });
        // To a key of another length, in another database; from a stored and from a pending value.
        run(worker, |txn| assert!(txn.copy(0, b"n", 3, b"longer").unwrap()));
        run(worker, |txn| {
            assert_eq!(txn.add(3, b"longer", 1).unwrap(), 9);
            assert!(txn.copy(3, b"longer", 3, b"even longer than that").unwrap());
            assert!(txn.delete(3, b"longer").unwrap());
        });
        assert!(is_number(keyspace, 3, "even longer than that"));
        run(worker, |txn| {
            let found = txn.get_string(3, b"even longer than that").unwrap().unwrap();
            assert_eq!((&*found, found.expires_at()), (&b"9"[..], Some(end)));
            drop(found);
            assert_eq!(txn.add(3, b"even longer than that", 1).unwrap(), 10);
        });
        assert_eq!(keyspace.count(3, now()), KeyCount { keys: 1, expires: 1 });
        run(worker, |txn| assert!(txn.set_expiry(0, b"n", None).unwrap()));
        assert_eq!((get(worker, "n").unwrap(), add(worker, "n", 1)), ("8".into(), 9));
        assert_eq!(keyspace.count(0, now()), KeyCount { keys: 1, expires: 0 });
        // A time that has passed deletes.
        run(worker, |txn| assert!(txn.set_expiry(0, b"n", Some(1)).unwrap()));
        assert_eq!(get(worker, "n"), None);
        assert_eq!(keyspace.count(0, now()), KeyCount::default());
    });
}

/// The engine's clock passes the expiry time between the look and the commit.
#[test]
fn a_counter_that_expires_during_increments_starts_again() {
    let dir = tempfile::tempdir().unwrap();
    let time = Arc::new(AtomicU64::new(1_000));
    let clock = Arc::clone(&time);
    let options = Options {
        medium: MediumKind::Volatile,
        clock: Some(Arc::new(move || clock.load(Ordering::Relaxed))),
        ..Options::default()
    };
    let keyspace = crate::support::open(options.open(dir.path().join("store")).unwrap(), 16);
    let mut worker = keyspace.worker().unwrap();
    let begun = worker.run::<_, Error>(1_000, Locks::One(b"n"), |txn| {
        txn.put_with(0, b"n", b"5", string_until(Some(2_000)))?;
        txn.add(0, b"n", 1)
    });
    assert_eq!(begun.unwrap(), 6);
    let mut txn = worker.begin(1_999);
    assert_eq!(txn.add(0, b"n", 1).unwrap(), 7);
    time.store(2_000, Ordering::Relaxed);
    txn.commit().unwrap();
    let mut txn = worker.begin(1_999);
    assert_eq!(txn.add(0, b"n", 1).unwrap(), 1);
    txn.commit().unwrap();
    let mut txn = worker.begin(3_000);
    let found = txn.get(0, b"n").unwrap().unwrap();
    assert_eq!((&*found, found.expires_at()), (&b"1"[..], None));
    drop(found);
    assert_eq!(txn.count(0).unwrap(), KeyCount { keys: 1, expires: 0 });
}

#[test]
fn a_watched_counter_that_changes_and_returns_counts_as_changed() {
    for medium in MEDIA {
        let (_dir, keyspace) = keyspace(medium);
        let (mut one, mut other) = (keyspace.worker().unwrap(), keyspace.worker().unwrap());
        let changes: [&dyn Fn(&mut Worker); 4] = [
            &|worker| {
                add_alone(worker, "n", 1);
                add_alone(worker, "n", -1);
            },
            &|worker| assert_eq!(add(worker, "n", 0), 1),
            &|worker| {
                assert!(run(worker, |txn| txn.delete(0, b"n").unwrap()));
                add(worker, "n", 1);
            },
            &|worker| put(worker, "n", "1"),
        ];
        for (at, change) in changes.iter().enumerate() {
            put(&mut one, "n", "0");
            assert_eq!(add(&mut other, "n", 1), 1);
            let watched = run(&mut one, |txn| txn.watch(0, b"n").unwrap().unwrap());
            let mut txn = one.begin(now());
            assert!(txn.expect(&watched).unwrap());
            drop(txn);
            change(&mut other);
            assert!(!one.begin(now()).expect(&watched).unwrap(), "{medium} {at}");
            assert_eq!(get(&mut other, "n").unwrap(), "1");
        }
        // And one that was left alone is not.
        let watched = run(&mut one, |txn| txn.watch(0, b"n").unwrap().unwrap());
        run(&mut one, |txn| {
            assert!(txn.expect(&watched).unwrap());
            txn.add(0, b"n", 1).unwrap();
        });
        assert_eq!(get(&mut one, "n").unwrap(), "2");
        assert_eq!(get(&mut one, "done"), None);
    }
}

/// Several threads count two counters, alone and together; readers see those that are counted together as one.
#[test]
fn counters_of_several_threads_sum_up() {
    const THREADS: i64 = 3;
    for medium in MEDIA {
        // On a disk each of them waits for it.
        let rounds = if medium == MediumKind::File { 200 } else { 2_000 };
        let (_dir, keyspace) = keyspace(medium);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let counting: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let keyspace = &keyspace;
                    scope.spawn(move || {
                        let mut worker = keyspace.worker().unwrap();
                        for round in 0..rounds {
                            // In groups, as the server does, and without.
                            if thread > 0 && round % 8 == 0 {
                                worker.flush_group().unwrap();
                                worker.group();
                            }
                            let add = if round % 3 == 0 { add } else { add_alone };
                            add(&mut worker, "alone", 1);
                            add(&mut worker, "up and down", if round % 2 == 0 { 1 } else { -1 });
                            if round % 4 == 0 {
                                run(&mut worker, |txn| {
                                    txn.add(0, b"left", 1).unwrap();
                                    txn.add(0, b"right hand", -1).unwrap();
                                });
                            }
                        }
                        worker.flush_group().unwrap();
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut reader = keyspace.worker().unwrap();
                let mut last = 0;
                while !over.load(Ordering::Relaxed) {
                    let (left, right) = run(&mut reader, |txn| {
                        let mut number = |key: &[u8]| {
                            let text = text(txn.get(0, key).unwrap());
                            text.map_or(0, |text| text.parse::<i64>().unwrap())
                        };
                        (number(b"left"), number(b"right hand"))
                    });
                    assert_eq!(left, -right, "{medium}");
                    let alone = get(&mut reader, "alone").map_or(0, |text| text.parse::<i64>().unwrap());
                    assert!(alone >= last, "{medium}: {alone} after {last}");
                    last = alone;
                }
            });
            let all_counted = counting.into_iter().all(|thread| thread.join().is_ok());
            over.store(true, Ordering::Relaxed);
            assert!(all_counted);
        });
        let mut worker = keyspace.worker().unwrap();
        assert_eq!(get(&mut worker, "alone").unwrap(), (THREADS * rounds).to_string(), "{medium}");
        assert_eq!(get(&mut worker, "up and down").unwrap(), "0", "{medium}");
        assert_eq!(get(&mut worker, "left").unwrap(), (THREADS * rounds / 4).to_string(), "{medium}");
        assert_eq!(keyspace.count(0, now()).keys, 4);
    }
}

#[test]
fn a_value_put_at_once_exists_and_is_counted() {
    on_each_medium(|medium, keyspace, worker| {
        let end = now() + 600_000;
        let at_once = |worker: &mut Worker, value: &str, expires_at: Option<u64>| {
            let mut txn = worker.begin(now());
            let done = txn.put_at_once(0, b"k", value.as_bytes(), string_until(expires_at)).unwrap();
            txn.commit().unwrap();
            done
        };
        let count = || keyspace.count(0, now());
        assert!(at_once(worker, "a", None));
        assert_eq!((get(worker, "k").unwrap(), count()), ("a".into(), KeyCount { keys: 1, expires: 0 }));
        assert!(at_once(worker, "b", Some(end)), "{medium}");
        assert_eq!((get(worker, "k").unwrap(), count()), ("b".into(), KeyCount { keys: 1, expires: 1 }));
        // Over a number too.
        run(worker, |txn| txn.put(0, b"k", b"1").unwrap());
        add(worker, "k", 1);
        assert!(at_once(worker, "c", None));
        assert_eq!((get(worker, "k").unwrap(), count()), ("c".into(), KeyCount { keys: 1, expires: 0 }));
        // Deletes, and writes that are not alone, are left to `put_with` and `commit`.
        assert!(!at_once(worker, "d", Some(now() - 1)));
        let mut txn = worker.begin(now());
        txn.get(0, b"other").unwrap();
        assert!(!txn.put_at_once(0, b"k", b"e", string_until(None)).unwrap());
        drop(txn);
        assert!(!run(worker, |txn| txn.put_at_once(0, &[0; 1 << 17], b"f", string_until(None)).unwrap()));
        assert_eq!((get(worker, "k").unwrap(), count()), ("c".into(), KeyCount { keys: 1, expires: 0 }));
    });
}

#[test]
fn only_an_existing_number_is_counted_at_once() {
    on_each_medium(|medium, keyspace, worker| {
        let in_place = medium != MediumKind::File;
        let at_once = |worker: &mut Worker, increment: i64| {
            let mut txn = worker.begin(now());
            let sum = txn.add_at_once(0, b"n", increment).unwrap();
            txn.commit().unwrap();
            sum
        };
        assert_eq!(at_once(worker, 1), None);
        assert_eq!(get(worker, "n"), None);
        put(worker, "n", "5");
        assert_eq!(at_once(worker, 1), None);
        assert_eq!(get(worker, "n").unwrap(), "5");
        let end = now() + 600_000;
        add(worker, "n", 1);
        run(worker, |txn| assert!(txn.set_expiry(0, b"n", Some(end)).unwrap()));
        assert_eq!(at_once(worker, 1), in_place.then_some(7), "{medium}");
        assert_eq!(get(worker, "n").unwrap(), if in_place { "7" } else { "6" });
        // What does not fit is left to `add`.
        for increment in [MAX, i64::MAX, -MAX - 9] {
            assert_eq!(at_once(worker, increment), None);
        }
        // A transaction that did something: then it is not done before its commit.
        let before = get(worker, "n").unwrap();
        let mut txn = worker.begin(now());
        txn.get(0, b"other").unwrap();
        assert_eq!(txn.add_at_once(0, b"n", 1).unwrap(), None);
        drop(txn);
        // One whose time has come, as the transaction sees it.
        let mut txn = worker.begin(end);
        assert_eq!(txn.add_at_once(0, b"n", 1).unwrap(), None);
        assert_eq!(txn.add(0, b"n", 1).unwrap(), 1);
        drop(txn);
        assert_eq!(get(worker, "n").unwrap(), before);
        let found = run(worker, |txn| txn.get(0, b"n").unwrap().unwrap().expires_at());
        assert_eq!(found, Some(end));
        assert_eq!(keyspace.count(0, now()), KeyCount { keys: 1, expires: 1 });
        // Too long a key: the error is `add`'s.
        let mut txn = worker.begin(now());
        let long = vec![b'k'; duramen_structures::KEY_BYTES_MAX + 1];
        assert_eq!(txn.add_at_once(0, &long, 1).unwrap(), None);
        assert!(matches!(txn.add(0, &long, 1), Err(Error::KeyTooLong)));
    });
}

#[test]
fn counters_are_there_after_reopening() {
    for medium in [MediumKind::Shm, MediumKind::File] {
        let (dir, keyspace) = keyspace(medium);
        let mut worker = keyspace.worker().unwrap();
        put(&mut worker, "n", "1");
        for _ in 0..10 {
            add(&mut worker, "n", 1);
        }
        drop(worker);
        drop(keyspace);
        let keyspace = crate::support::open(store(medium, &dir), 16);
        let mut worker = keyspace.worker().unwrap();
        assert_eq!(get(&mut worker, "n").unwrap(), "11");
        assert_eq!(add(&mut worker, "n", 1), 12);
    }
}

#[test]
fn bytes_that_are_no_number_are_a_wrong_type() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    for bytes in [&b""[..], b"12", &[0; 8], &[0; 30]] {
        run(&mut worker, |txn| txn.put_with(0, b"k", bytes, Meta { tag: TAG, ..Meta::default() }).unwrap());
        run(&mut worker, |txn| {
            assert!(matches!(txn.get_string(0, b"k"), Err(Error::WrongType)));
            assert!(matches!(txn.add(0, b"k", 1), Err(Error::WrongType)));
            assert_eq!(&*txn.get(0, b"k").unwrap().unwrap(), bytes);
        });
    }
}
