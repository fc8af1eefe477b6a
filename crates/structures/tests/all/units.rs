//! Large values within transactions: making space, errors half-way, watched keys, names that are too long, cursors.

use crate::support::{now, run, run_on};
use duramen::{MediumKind, Options};
use duramen_structures::{End, Error, Keys, Keyspace, Locks, Room, Txn, Worker};
use std::collections::HashSet;
use std::ops::ControlFlow;
use tempfile::TempDir;

/// A keyspace that packs up to 64 bytes, on a store that grows to so many.
fn small(len_max: u64) -> (TempDir, Keyspace) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut options = Options { medium: MediumKind::Shm, len_max, ..Options::default() };
    options.tuning.extents_initial = 8;
    let keyspace = Keyspace::open(options.open(dir.path().join("store")).unwrap(), 4).unwrap();
    keyspace.set_small_collection_bytes_max(64);
    (dir, keyspace)
}

fn field(at: usize) -> Vec<u8> {
    format!("field {at:06}").into_bytes()
}

fn set_fields(
    txn: &mut Txn<'_>,
    key: &[u8],
    fields: std::ops::Range<usize>,
    value: &[u8],
) -> Result<(), Error> {
    let mut hash = txn.edit_hash(0, key)?;
    let names: Vec<Vec<u8>> = fields.map(field).collect();
    hash.insert_all(names.iter().map(|name| (&name[..], value)))?;
    hash.save()
}

fn len(worker: &mut Worker, key: &[u8]) -> usize {
    run(worker, |txn| txn.hash(0, key).unwrap().map_or(0, |hash| hash.len()))
}

#[test]
fn elements_that_find_no_room_under_locks_begin_again_with_room() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    let mut runs = 0;
    worker.group();
    // Far more than is free at first.
    let done = worker.run(now(), Locks::One(b"h"), |txn| {
        runs += 1;
        set_fields(txn, b"h", 0..4_000, &[7; 300])
    });
    done.unwrap();
    worker.flush_group().unwrap();
    assert!(runs > 1, "the store had room from the beginning");
    assert_eq!(len(&mut worker, b"h"), 4_000);
    // A transaction that hides the error, as EXEC does, starts again too. More fields each time, until they exceed the
    // free space, which depends on earlier compaction and growth.
    let mut count = 30_000;
    let mut failed = 0;
    while failed == 0 && count < 1_000_000 {
        count *= 2;
        let done = worker.run::<_, Error>(now(), Locks::One(b"h"), |txn| {
            failed += usize::from(set_fields(txn, b"h", 0..count, &[8; 300]).is_err());
            Ok(())
        });
        done.unwrap();
        assert_eq!(len(&mut worker, b"h"), count);
    }
    assert!(failed > 0);
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
}

#[test]
fn a_full_store_accepts_the_removal_of_elements() {
    let (_dir, keyspace) = small(8 << 20);
    let mut worker = keyspace.worker().unwrap();
    let mut count = 0;
    loop {
        worker.group();
        let put =
            worker.run(now(), Locks::One(b"h"), |txn| set_fields(txn, b"h", count..count + 1, &[1; 100]));
        let put = put.and_then(|()| {
            worker.run(now(), Locks::One(b"z"), |txn| {
                let mut set = txn.edit_sorted_set(0, b"z")?;
                set.insert(&field(count), &(count as f64).to_le_bytes())?;
                set.save()
            })
        });
        let put = put.and_then(|()| {
            worker.run(now(), Locks::One(b"l"), |txn| {
                let mut list = txn.edit_list(0, b"l")?;
                list.push(End::Right, [&field(count)[..]].into_iter())?;
                list.save()
            })
        });
        worker.flush_group().unwrap();
        match put {
            Ok(()) => count += 1,
            Err(Error::Engine(error)) if error.kind() == duramen::ErrorKind::OutOfSpace => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(count > 10_000, "{count}");
    for at in 0..count {
        worker.group();
        run_on(&mut worker, Locks::One(b"h"), |txn| {
            let mut hash = txn.edit_hash(0, b"h").unwrap();
            assert!(hash.remove(&field(at)).unwrap());
            hash.save().unwrap();
        });
        run_on(&mut worker, Locks::One(b"z"), |txn| {
            let mut set = txn.edit_sorted_set(0, b"z").unwrap();
            assert!(set.remove(&field(at)).unwrap());
            set.save().unwrap();
        });
        run_on(&mut worker, Locks::One(b"l"), |txn| {
            // The remaining node is rewritten.
            txn.set_room(Room::Removal);
            let mut list = txn.edit_list(0, b"l").unwrap();
            list.pop(End::Left, 1, |element| assert_eq!(element, field(at))).unwrap();
            list.save().unwrap();
        });
        worker.flush_group().unwrap();
    }
    // What was refused may have been one of the three.
    run_on(&mut worker, Locks::All, |txn| {
        for key in [b"h", b"z", b"l"] {
            txn.delete(0, key).unwrap();
        }
    });
    assert_eq!(keyspace.count(0, now()).keys, 0);
    run_on(&mut worker, Locks::One(b"h"), |txn| set_fields(txn, b"h", 0..1000, &[1; 100]).unwrap());
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
}

#[test]
fn a_full_store_accepts_the_removal_of_entries_of_packed_values() {
    const FIELDS: usize = 20;
    let (_dir, keyspace) = small(8 << 20);
    keyspace.set_small_collection_bytes_max(64 << 10);
    let mut worker = keyspace.worker().unwrap();
    let name = |number: usize| format!("h{number}").into_bytes();
    let mut count = 0;
    loop {
        let put = worker
            .run(now(), Locks::One(&name(count)), |txn| set_fields(txn, &name(count), 0..FIELDS, &[1; 100]));
        match put {
            Ok(()) => count += 1,
            Err(Error::Engine(error)) if error.kind() == duramen::ErrorKind::OutOfSpace => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(count > 2_000, "{count}");
    // One of each key at a time, so that each block keeps some for long; the last takes the key with it.
    for at in 0..FIELDS {
        for name in (0..count).map(name) {
            run_on(&mut worker, Locks::One(&name), |txn| {
                let mut hash = txn.edit_hash(0, &name).unwrap();
                assert!(hash.remove(&field(at)).unwrap());
                hash.save().unwrap();
            });
        }
    }
    run_on(&mut worker, Locks::One(b"h"), |txn| set_fields(txn, b"h", 0..1000, &[1; 100]).unwrap());
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
}

#[test]
fn a_transaction_that_fails_leaves_nothing_of_its_elements() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| set_fields(txn, b"old", 0..100, b"old").unwrap());
    let watched = run(&mut worker, |txn| txn.watch(0, b"old").unwrap().unwrap());
    let failed = worker.run::<(), _>(now(), Locks::All, |txn| {
        set_fields(txn, b"old", 50..150, b"new")?;
        set_fields(txn, b"made", 0..100, b"new")?;
        txn.put(0, b"plain", b"new")?;
        Err(Error::NoSuchKey)
    });
    assert!(matches!(failed, Err(Error::NoSuchKey)));
    assert_eq!(keyspace.count(0, now()).keys, 1);
    run(&mut worker, |txn| {
        assert!(txn.expect(&watched).unwrap(), "nothing was changed");
        let hash = txn.hash(0, b"old").unwrap().unwrap();
        assert_eq!(hash.len(), 100);
        hash.visit(|_, value| {
            assert_eq!(value, b"old");
            ControlFlow::Continue(())
        })
        .unwrap();
    });
    run(&mut worker, |txn| set_fields(txn, b"old", 0..1, b"new").unwrap());
    run(&mut worker, |txn| assert!(!txn.expect(&watched).unwrap()));
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
}

#[test]
fn a_half_written_edit_is_not_committed() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| set_fields(txn, b"h", 0..100, b"old").unwrap());
    // As a command within EXEC that fails half-way, alone and with others after it.
    for others in [false, true] {
        let committed = worker.run::<_, Error>(now(), Locks::All, |txn| {
            txn.put(0, b"plain", b"new")?;
            let mut hash = txn.edit_hash(0, b"h")?;
            hash.insert(&field(0), b"new")?;
            drop(hash);
            if others {
                set_fields(txn, b"h", 1..2, b"new")?;
                txn.put_set(0, b"s", vec![&[1; 50], &[2; 50]])?;
            }
            Ok(())
        });
        assert!(matches!(committed, Err(Error::Incomplete)), "{committed:?}");
        run(&mut worker, |txn| {
            assert!(!txn.exists(0, b"plain").unwrap());
            let hash = txn.hash(0, b"h").unwrap().unwrap();
            assert_eq!(&*hash.get(&field(0)).unwrap().unwrap(), b"old");
            assert_eq!(&*hash.get(&field(1)).unwrap().unwrap(), b"old");
        });
    }
}

#[test]
fn a_value_that_is_made_and_deleted_in_one_transaction_takes_nothing() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| txn.put(0, b"k", b"v").unwrap());
    for _ in 0..20 {
        run(&mut worker, |txn| {
            set_fields(txn, b"h", 0..2000, b"v").unwrap();
            assert!(txn.delete(0, b"h").unwrap());
        });
    }
    assert_eq!(len(&mut worker, b"h"), 0);
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
    // Their elements are reclaimed in the background.
    for _ in 0..500 {
        let stats = keyspace.store().stats();
        if stats.live_bytes < 256 << 10 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} bytes are still live", keyspace.store().stats().live_bytes);
}

#[test]
fn a_collection_with_a_name_longer_than_an_element_key_stays_packed() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    let long = vec![b'n'; duramen::KEY_BYTES_MAX + 1];
    run(&mut worker, |txn| set_fields(txn, b"h", 0..100, b"v").unwrap());
    run(&mut worker, |txn| {
        let mut hash = txn.edit_hash(0, b"h").unwrap();
        assert!(!hash.remove(&long).unwrap() && hash.get(&long).unwrap().is_none());
        assert!(hash.insert(&long, b"long").unwrap());
        hash.save().unwrap();
        let mut set = txn.edit_set(0, b"s").unwrap();
        assert!(set.insert(&long, b"").unwrap());
        set.save().unwrap();
    });
    run(&mut worker, |txn| {
        set_fields(txn, b"h", 100..200, b"v").unwrap();
        let hash = txn.hash(0, b"h").unwrap().unwrap();
        assert_eq!(hash.len(), 201);
        assert_eq!(&*hash.get(&long).unwrap().unwrap(), b"long");
    });
    run(&mut worker, |txn| {
        let mut hash = txn.edit_hash(0, b"h").unwrap();
        assert!(hash.remove(&long).unwrap());
        hash.save().unwrap();
        assert_eq!(txn.hash(0, b"h").unwrap().unwrap().len(), 200);
    });
    run(&mut worker, |txn| set_fields(txn, b"h", 0..1, b"v").unwrap());
    assert_eq!(len(&mut worker, b"h"), 200);
    // Large again.
    run(&mut worker, |txn| assert!(txn.get(0, b"h").unwrap().unwrap().len() < 64));
}

#[test]
fn a_scan_that_began_in_the_other_form_misses_nothing() {
    let (_dir, keyspace) = small(1 << 30);
    let mut worker = keyspace.worker().unwrap();
    let names = |from: usize, to: usize| (from..to).map(field).collect::<Vec<_>>();
    let scan = |worker: &mut Worker, cursor: u64, seen: &mut HashSet<Vec<u8>>| {
        run(worker, |txn| {
            let set = txn.set(0, b"s").unwrap().unwrap();
            let visit = |name: &[u8], _: &[u8]| seen.extend([name.to_vec()]);
            set.scan(cursor, 10, visit).unwrap()
        })
    };
    for (first, then) in [(usize::MAX, 64), (64, usize::MAX)] {
        keyspace.set_small_collection_bytes_max(first);
        let there = names(0, 300);
        run(&mut worker, |txn| txn.put_set(0, b"s", there.iter().map(Vec::as_slice).collect()).unwrap());
        let mut seen = HashSet::new();
        let mut cursor = scan(&mut worker, 0, &mut seen);
        assert_ne!(cursor, 0);
        keyspace.set_small_collection_bytes_max(then);
        // Written again in the other form, with more than before.
        let there = names(0, 400);
        run(&mut worker, |txn| txn.put_set(0, b"s", there.iter().map(Vec::as_slice).collect()).unwrap());
        while cursor != 0 {
            cursor = scan(&mut worker, cursor, &mut seen);
        }
        assert!(names(0, 300).iter().all(|name| seen.contains(name)), "{first} {then}: {} seen", seen.len());
    }
}

#[test]
fn several_workers_write_large_values_of_one_another_while_others_move() {
    let (_dir, keyspace) = small(24 << 20);
    const EACH: usize = 1500;
    let keys: Vec<Vec<u8>> = (0..4).map(|at| format!("h{at}").into_bytes()).collect();
    std::thread::scope(|scope| {
        for thread in 0..3usize {
            let (keyspace, keys) = (keyspace.clone(), &keys);
            scope.spawn(move || {
                let mut worker = keyspace.worker().unwrap();
                for at in 0..EACH {
                    let (a, b) = (&keys[(at + thread) % 4], &keys[(at * 7 + thread + 1) % 4]);
                    let mut both = Keys::default();
                    [a, b].into_iter().for_each(|key| both.add(key));
                    worker.group();
                    let done = worker.run(now(), Locks::Keys(&both), |txn| {
                        for key in [a, b] {
                            // Overwritten records are left to the compactor.
                            set_fields(txn, key, at % 50..at % 50 + 5, &[at as u8; 500])?;
                            let mut hash = txn.edit_hash(0, key)?;
                            let sum = hash
                                .get(b"sum")?
                                .map_or(0, |sum| u64::from_le_bytes((*sum).try_into().unwrap()));
                            hash.insert(b"sum", &(sum + 1).to_le_bytes())?;
                            hash.save()?;
                        }
                        Ok::<_, Error>(())
                    });
                    done.unwrap();
                    if at % 3 == 0 {
                        worker.flush_group().unwrap();
                    }
                }
                worker.flush_group().unwrap();
            });
        }
    });
    let mut worker = keyspace.worker().unwrap();
    let sum: u64 = run(&mut worker, |txn| {
        let sums = keys.iter().map(|key| {
            let hash = txn.hash(0, key).unwrap().unwrap();
            let sum = hash.get(b"sum").unwrap().unwrap();
            u64::from_le_bytes((*sum).try_into().unwrap())
        });
        sums.sum()
    });
    assert_eq!(sum, (3 * EACH * 2) as u64);
    assert_eq!(keyspace.store().audit(), Vec::<String>::new());
}
