//! Transactions through the public door.

use duramen::{Batch, ElementOrder, Error, ErrorKind, IndexKind, Meta, Options, Store, Swap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than a step takes that nothing holds up, on a loaded machine.
const A_WHILE: Duration = Duration::from_millis(50);

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Options::default().open(dir.path().join("store")).unwrap();
    (dir, store)
}

fn value(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| value.to_vec())
}

#[test]
fn a_transaction_writes_to_tables_and_collections_or_leaves_nothing() {
    let (_dir, store) = store();
    let table = store.table(b"table", IndexKind::Hash).unwrap();
    let mut writer = store.writer().unwrap();
    let collection = store.new_collection(ElementOrder::ByKey);
    writer.put(b"old", b"1").unwrap();
    let aborted: Result<(), Error> = writer.transaction(|transaction| {
        transaction.put(b"new", b"2")?;
        assert!(transaction.delete(b"old")?);
        transaction.table(&table).put(b"row", b"3")?;
        transaction.collection(&collection).put(b"element", b"4")?;
        Err(Error::aborted("on purpose"))
    });
    assert_eq!(aborted.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!((value(&store, b"new"), value(&store, b"old")), (None, Some(b"1".to_vec())));
    assert_eq!((table.len(), collection.len(), store.len()), (0, 0, 1));

    let root = Meta { collection: Some(collection.id()), ..Meta::default() };
    let was = writer
        .transaction(|transaction| {
            transaction.put(b"new", b"2")?;
            transaction.table(&table).put(b"row", b"3")?;
            transaction.collection(&collection).put(b"element", b"4")?;
            transaction.store().put_with(b"root", b"", root)?;
            transaction.delete(b"old")
        })
        .unwrap();
    assert!(was);
    assert_eq!((value(&store, b"new"), value(&store, b"old")), (Some(b"2".to_vec()), None));
    assert_eq!(table.get(b"row").unwrap().unwrap().to_vec(), b"3");
    assert_eq!(collection.get(b"element").unwrap().unwrap().to_vec(), b"4");
    assert_eq!((table.len(), collection.len(), store.len()), (1, 1, 2));
}

#[test]
fn a_transaction_is_invisible_until_it_ends_and_writers_of_its_keys_wait() {
    let (_dir, store) = store();
    store.put(b"a", b"old").unwrap();
    let over = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let transaction = scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            writer
                .transaction(|transaction| {
                    transaction.put(b"a", b"new")?;
                    transaction.put(b"b", b"new")?;
                    begun.send(()).unwrap();
                    std::thread::sleep(A_WHILE);
                    over.store(true, SeqCst);
                    Ok(())
                })
                .unwrap();
        });
        has_begun.recv().unwrap();
        let seen = (value(&store, b"a"), value(&store, b"b"));
        if !over.load(SeqCst) {
            assert_eq!(seen, (Some(b"old".to_vec()), None));
        }
        store.put(b"b", b"newer").unwrap();
        assert!(over.load(SeqCst), "a key of a transaction that runs was written");
        transaction.join().unwrap();
    });
    assert_eq!((value(&store, b"a"), value(&store, b"b")), (Some(b"new".to_vec()), Some(b"newer".to_vec())));
}

/// What `hold` locks is not to be had before a transaction is over that has written it.
fn waits_for_a_transaction(hold: impl Fn(&mut duramen::Writer) + Sync) {
    let (_dir, store) = store();
    let over = AtomicBool::new(false);
    let (begun, has_begun) = mpsc::channel();
    let (held, is_held) = mpsc::channel();
    std::thread::scope(|scope| {
        let (store, over) = (&store, &over);
        scope.spawn(move || {
            let mut writer = store.writer().unwrap();
            writer
                .transaction(|transaction| {
                    transaction.put(b"a", b"new")?;
                    begun.send(()).unwrap();
                    assert!(
                        is_held.recv_timeout(A_WHILE).is_err(),
                        "a key of a transaction that runs was locked"
                    );
                    // What it writes now the other must not have.
                    transaction.put(b"b", b"new")?;
                    over.store(true, SeqCst);
                    Ok(())
                })
                .unwrap();
        });
        has_begun.recv().unwrap();
        let mut writer = store.writer().unwrap();
        hold(&mut writer);
        // Nobody listens any more.
        let _ = held.send(());
        assert!(over.load(SeqCst));
        for key in [&b"a"[..], b"b"] {
            assert_eq!(writer.get(key).unwrap().as_deref(), Some(&b"new"[..]));
            writer.put(key, b"newer").unwrap();
        }
        writer.unlock().unwrap();
    });
    assert_eq!(value(&store, b"a"), Some(b"newer".to_vec()));
}

#[test]
fn keys_are_locked_after_the_transactions_that_wrote_them_end() {
    waits_for_a_transaction(|writer| writer.lock([&b"a"[..], b"b"]).unwrap());
}

#[test]
fn the_barrier_closes_after_all_transactions_end() {
    waits_for_a_transaction(|writer| writer.lock_all().unwrap());
}

#[test]
fn transactions_under_locks_are_one_step_for_other_threads() {
    let (_dir, store) = store();
    let threads = 3;
    let rounds = 300;
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (store, done) = (&store, &done);
            scope.spawn(move || {
                let mut writer = store.writer().unwrap();
                for round in 0..rounds {
                    // Named in another order by each.
                    let names: [&[u8]; 2] =
                        if (thread + round) % 2 == 0 { [b"x", b"y"] } else { [b"y", b"x"] };
                    writer
                        .locked(names, |writer| {
                            let count = |writer: &duramen::Writer, key: &[u8]| -> Result<u64, Error> {
                                let found = writer.get(key)?;
                                Ok(found.map_or(0, |found| u64::from_le_bytes((&*found).try_into().unwrap())))
                            };
                            let (x, y) = (count(writer, b"x")?, count(writer, b"y")?);
                            assert_eq!(x, y);
                            let gives_up = round % 7 == 3;
                            let wrote = writer.transaction(|transaction| {
                                transaction.put(b"x", (x + 1).to_le_bytes())?;
                                assert_eq!(
                                    transaction.get(b"x")?.as_deref(),
                                    Some(&(x + 1).to_le_bytes()[..])
                                );
                                transaction.put(b"y", (y + 1).to_le_bytes())?;
                                if gives_up { Err(Error::aborted("on purpose")) } else { Ok(()) }
                            });
                            match wrote {
                                Err(error) if error.kind() == ErrorKind::Aborted => assert!(gives_up),
                                wrote => {
                                    wrote?;
                                    done.fetch_add(1, SeqCst);
                                }
                            }
                            Ok::<_, Error>(())
                        })
                        .unwrap();
                }
            });
        }
    });
    let total = done.load(SeqCst).to_le_bytes().to_vec();
    assert_eq!((value(&store, b"x"), value(&store, b"y")), (Some(total.clone()), Some(total)));
}

#[test]
fn a_transaction_under_locks_writes_only_the_locked_keys() {
    const OTHERS: [&[u8]; 3] = [b"another", b"a third", b"a fourth"];
    let (_dir, store) = store();
    let mut writer = store.writer().unwrap();
    let wrote = writer.locked([&b"a"[..]], |writer| {
        writer.transaction(|transaction| {
            transaction.put(b"a", b"1")?;
            // One of them may have the lock of the key that was named; all of them have not.
            OTHERS.iter().try_for_each(|other| transaction.put(other, b"2"))
        })
    });
    let error = wrote.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(value(&store, b"a"), None);
    assert!(OTHERS.iter().all(|other| value(&store, other).is_none()));
    let mut batch = Batch::new();
    batch.put(b"a", b"1");
    for other in OTHERS {
        batch.put(other, b"2");
    }
    let error = writer.locked([&b"a"[..]], |writer| writer.apply(&batch)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let all = OTHERS.iter().copied().chain([&b"a"[..]]);
    assert_eq!(writer.locked(all, |writer| writer.apply(&batch)).unwrap(), Swap::Done);
    assert_eq!(value(&store, b"another"), Some(b"2".to_vec()));
}

#[test]
fn collections_are_created_and_deleted_only_by_committed_transactions() {
    let (_dir, store) = store();
    let mut writer = store.writer().unwrap();
    let made = store.new_collection(ElementOrder::ByKey);
    let root = Meta { collection: Some(made.id()), ..Meta::default() };
    let give_up = |error: Result<(), Error>| assert_eq!(error.unwrap_err().kind(), ErrorKind::Aborted);
    // Named twice and given up: it is as fresh as before.
    give_up(writer.transaction(|transaction| {
        transaction.store().put_with(b"root", b"1", root)?;
        transaction.store().put_with(b"root", b"2", root)?;
        Err(Error::aborted("on purpose"))
    }));
    writer
        .transaction(|transaction| {
            transaction.collection(&made).put(b"element", b"")?;
            transaction.store().put_with(b"root", b"1", root)?;
            transaction.store().put_with(b"root", b"2", root)
        })
        .unwrap();
    assert_eq!(store.collection(made.id()).unwrap().len(), 1);
    // Its root deleted, and given up: it lives.
    give_up(writer.transaction(|transaction| {
        assert!(transaction.delete(b"root")?);
        Err(Error::aborted("on purpose"))
    }));
    // Renamed in one transaction: it lives.
    writer
        .transaction(|transaction| {
            transaction.store().put_with(b"renamed", b"3", root)?;
            transaction.delete(b"root")
        })
        .unwrap();
    assert_eq!(store.collection(made.id()).unwrap().len(), 1);
    writer.transaction(|transaction| transaction.delete(b"renamed")).unwrap();
    assert_eq!(store.collection(made.id()).unwrap_err().kind(), ErrorKind::NotFound);
}

fn number(value: Option<duramen::Value<'_>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

#[test]
fn transfers_of_several_threads_keep_the_sum() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 250;
    let (_dir, store) = store();
    let accounts = store.table(b"accounts", IndexKind::Ordered).unwrap();
    let names = [b"ada", b"bob", b"eve"];
    names.iter().for_each(|name| accounts.put(*name, 1_000u64.to_le_bytes()).unwrap());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, accounts) = (&store, &accounts);
            scope.spawn(move || {
                let mut writer = store.writer().unwrap();
                for round in 0..ROUNDS {
                    let [from, to] =
                        [thread + round, thread + 2 * round + 1].map(|at| names[at as usize % 3]);
                    writer
                        .transaction(|transaction| {
                            let mut keys = transaction.table(accounts);
                            let left = number(keys.get(from)?).saturating_sub(1);
                            keys.put(from, left.to_le_bytes())?;
                            let more = number(keys.get(to)?) + 1;
                            keys.put(to, more.to_le_bytes())?;
                            let count = number(transaction.get(b"count")?) + 1;
                            transaction.put(b"count", count.to_le_bytes())
                        })
                        .unwrap();
                }
            });
        }
        scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            for _ in 0..ROUNDS {
                let sum = writer.transaction(|transaction| {
                    let keys = transaction.table(&accounts);
                    names.iter().map(|name| Ok(number(keys.get(*name)?))).sum::<Result<u64, Error>>()
                });
                assert_eq!(sum.unwrap(), 3_000, "of two moments");
            }
        });
    });
    assert_eq!(number(store.get(b"count").unwrap()), THREADS * ROUNDS);
    assert_eq!(names.iter().map(|name| number(accounts.get(*name).unwrap())).sum::<u64>(), 3_000);
}

#[test]
fn of_two_transactions_that_read_each_others_writes_one_sees_the_other() {
    let (_dir, store) = store();
    for round in 0..200u32 {
        store.put(b"a", b"on call").unwrap();
        store.put(b"b", b"on call").unwrap();
        std::thread::scope(|scope| {
            for (own, other) in [(b"a", b"b"), (b"b", b"a")] {
                let store = &store;
                scope.spawn(move || {
                    store.writer().unwrap().transaction(|transaction| match transaction.get(other)? {
                        // The other stays.
                        Some(_) => transaction.delete(own).map(|_| ()),
                        None => Ok(()),
                    })
                });
            }
        });
        let left = [&b"a"[..], b"b"].iter().filter(|key| store.contains(key).unwrap()).count();
        assert_eq!(left, 1, "round {round}");
    }
}

/// Another thread that writes on request.
fn other_writes(store: &Store, write: impl Fn(&Store) + Send + 'static) -> impl Fn() -> bool {
    let (tell, told) = mpsc::channel();
    let (say, said) = mpsc::channel();
    let store = store.clone();
    std::thread::spawn(move || {
        while told.recv().is_ok() {
            write(&store);
            let _ = say.send(());
        }
    });
    move || {
        tell.send(()).unwrap();
        said.recv_timeout(A_WHILE * 10).is_ok()
    }
}

#[test]
fn a_transaction_whose_reads_have_changed_runs_again() {
    let (_dir, store) = store();
    let table = store.table(b"table", IndexKind::Hash).unwrap();
    let elements = store.new_collection(ElementOrder::ByKey);
    let (t, e) = (table.clone(), elements.clone());
    type Reads<'a> = &'a dyn Fn(&mut duramen::Transaction<'_>) -> Result<Option<Vec<u8>>, Error>;
    type Writes = Box<dyn Fn(&Store) + Send>;
    let reads: [(Reads<'_>, Writes); 5] = [
        (
            &|transaction| Ok(transaction.get(b"a")?.map(|value| value.to_vec())),
            Box::new(|s| s.put(b"a", b"1").unwrap()),
        ),
        (
            &|transaction| Ok(transaction.store().get(b"a")?.map(|value| value.to_vec())),
            Box::new(|s| drop(s.delete(b"a"))),
        ),
        (
            &|transaction| Ok(transaction.table(&table).get(b"a")?.map(|value| value.to_vec())),
            Box::new(move |_| t.put(b"a", b"1").unwrap()),
        ),
        (
            &|transaction| Ok(transaction.collection(&elements).get(b"a")?.map(|value| value.to_vec())),
            Box::new(move |_| e.put(b"a", b"1").unwrap()),
        ),
        (
            &|transaction| {
                // A delete without effect.
                transaction.delete(b"missing")?;
                Ok(None)
            },
            Box::new(|s| s.put(b"missing", b"1").unwrap()),
        ),
    ];
    for (number, (read, write)) in reads.into_iter().enumerate() {
        let other = other_writes(&store, write);
        let mut runs = 0;
        let done = store.writer().unwrap().transaction(|transaction| {
            runs += 1;
            let seen = read(transaction)?;
            transaction.put(b"b", b"1")?;
            assert!(runs > 1 || other());
            Ok(seen)
        });
        let last = if matches!(number, 1 | 4) { None } else { Some(b"1".to_vec()) };
        assert_eq!((runs, done.unwrap()), (2, last), "case {number}");
    }
}

#[test]
fn an_error_caused_by_a_stale_read_is_not_returned() {
    let (_dir, store) = store();
    let other = other_writes(&store, |store| store.put(b"a", 5u64.to_le_bytes()).unwrap());
    let mut runs = 0;
    let took = store.writer().unwrap().transaction(|transaction| {
        runs += 1;
        let a = number(transaction.get(b"a")?);
        assert!(runs > 1 || other());
        if a == 0 { Err(Error::aborted("there is none")) } else { transaction.delete(b"a") }
    });
    assert_eq!((runs, took.unwrap()), (2, true));
    let none = store.writer().unwrap().transaction(|transaction| match transaction.get(b"a")? {
        None => Err::<(), _>(Error::aborted("there is none")),
        Some(_) => Ok(()),
    });
    assert_eq!(none.unwrap_err().kind(), ErrorKind::Aborted);
}

#[test]
fn a_transaction_with_repeated_conflicts_finally_runs_alone() {
    let (_dir, store) = store();
    let other = other_writes(&store, |store| store.put(b"a", [0; 8]).unwrap());
    let mut overtaken = 0;
    store
        .writer()
        .unwrap()
        .transaction(|transaction| {
            let a = number(transaction.get(b"a")?);
            transaction.put(b"b", (a + 1).to_le_bytes())?;
            overtaken += u32::from(other());
            Ok(())
        })
        .unwrap();
    assert!(overtaken > 1, "nobody overtook it");
    assert_eq!(value(&store, b"b"), Some(1u64.to_le_bytes().to_vec()));
}

#[test]
fn a_transactions_reads_of_its_own_writes_are_no_conflict() {
    let (_dir, store) = store();
    store.put(b"a", 1u64.to_le_bytes()).unwrap();
    store.put(b"gone", b"1").unwrap();
    let mut runs = 0;
    let mut writer = store.writer().unwrap();
    for _ in 0..2 {
        writer.group();
        writer
            .transaction(|transaction| {
                runs += 1;
                for _ in 0..3 {
                    let a = number(transaction.get(b"a")?) + 1;
                    transaction.put(b"a", a.to_le_bytes())?;
                }
                transaction.delete(b"gone")?;
                assert!(transaction.get(b"gone")?.is_none());
                assert!(!transaction.delete(b"never")?);
                assert!(transaction.get(b"never")?.is_none());
                transaction.put(b"new", b"1")?;
                assert!(transaction.reads_unchecked().get(b"new")?.is_some());
                Ok(())
            })
            .unwrap();
        writer.flush_group().unwrap();
    }
    assert_eq!((runs, number(store.get(b"a").unwrap())), (2, 7));
    assert!(store.get(b"gone").unwrap().is_none());
}

#[test]
fn an_unchecked_transaction_runs_once() {
    let (_dir, store) = store();
    let other = other_writes(&store, |store| store.put(b"a", [7; 8]).unwrap());
    let mut runs = 0;
    let before = store
        .writer()
        .unwrap()
        .transaction_unchecked(|transaction| {
            runs += 1;
            let before = number(transaction.get(b"a")?);
            assert!(other());
            transaction.put(b"b", before.to_le_bytes()).map(|()| before)
        })
        .unwrap();
    assert_eq!((runs, before), (1, 0));
}
