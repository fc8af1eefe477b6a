//! Hashes and sets at keys: types, expiry times, the end of the last entry, transactions, damaged values.

use crate::support::{keyspace, now, run, store};
use duramen::{MediumKind, Meta};
use duramen_structures::{Encoding, Error, Txn, Type};
use std::ops::ControlFlow;

fn pairs(txn: &mut Txn<'_>, key: &[u8]) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    if let Some(hash) = txn.hash(0, key).unwrap() {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        hash.visit(|field, value| {
            pairs.push((text(field), text(value)));
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    pairs
}

fn put(txn: &mut Txn<'_>, key: &[u8], field: &[u8], value: &[u8]) -> bool {
    let mut hash = txn.edit_hash(0, key).unwrap();
    let is_new = hash.insert(field, value).unwrap();
    hash.save().unwrap();
    is_new
}

#[test]
fn a_hash_keeps_its_expiry_time_and_goes_with_its_last_field() {
    for medium in [MediumKind::Volatile, MediumKind::File] {
        let (_dir, keyspace) = keyspace(medium);
        let mut worker = keyspace.worker().unwrap();
        let until = now() + 100_000;
        run(&mut worker, |txn| assert!(put(txn, b"h", b"a", b"1")));
        run(&mut worker, |txn| assert!(txn.set_expiry(0, b"h", Some(until)).unwrap()));
        run(&mut worker, |txn| assert!(put(txn, b"h", b"b", b"2") && !put(txn, b"h", b"a", b"3")));
        run(&mut worker, |txn| {
            assert_eq!(pairs(txn, b"h"), [("a", "3"), ("b", "2")].map(|(f, v)| (f.to_owned(), v.to_owned())));
            let found = txn.get(0, b"h").unwrap().unwrap();
            assert_eq!((Type::of_tag(found.tag()), found.expires_at()), (Some(Type::Hash), Some(until)));
        });
        run(&mut worker, |txn| assert!(txn.copy(0, b"h", 0, b"copy").unwrap()));
        run(&mut worker, |txn| {
            let mut hash = txn.edit_hash(0, b"h").unwrap();
            assert!(hash.remove(b"a").unwrap() && hash.remove(b"b").unwrap() && !hash.remove(b"b").unwrap());
            hash.save().unwrap();
        });
        run(&mut worker, |txn| assert!(!txn.exists(0, b"h").unwrap() && txn.exists(0, b"copy").unwrap()));
        run(&mut worker, |txn| assert_eq!(txn.encoding(0, b"copy").unwrap(), Some(Encoding::Listpack)));
        assert_eq!((keyspace.count(0, now()).keys, keyspace.count(0, now()).expires), (1, 1));
        // What comes again is new.
        run(&mut worker, |txn| assert!(put(txn, b"h", b"a", b"1")));
        run(&mut worker, |txn| assert_eq!(txn.get(0, b"h").unwrap().unwrap().expires_at(), None));
    }
}

#[test]
fn collections_are_there_when_a_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
        let mut worker = keyspace.worker().unwrap();
        run(&mut worker, |txn| {
            assert_eq!(pairs(txn, b"h").len(), round);
            assert_eq!(txn.set(0, b"s").unwrap().map_or(0, |set| set.len()), round * 100);
        });
        assert_eq!(keyspace.count(0, now()).keys, if round == 0 { 0 } else { 2 });
        run(&mut worker, |txn| assert!(put(txn, b"h", &[round as u8], b"v")));
        let members: Vec<String> = (0..100).map(|at| format!("{round}.{at}")).collect();
        run(&mut worker, |txn| {
            let mut set = txn.edit_set(0, b"s").unwrap();
            let new = members.iter().map(|member| (member.as_bytes(), &b""[..]));
            assert_eq!(set.insert_all(new).unwrap(), 100);
            set.save().unwrap();
        });
    }
}

#[test]
fn a_sorted_set_is_there_when_a_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..3i32 {
        let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
        let mut worker = keyspace.worker().unwrap();
        run(&mut worker, |txn| {
            let found = txn.sorted_set(0, b"z").unwrap().map(|set| set.detached().unwrap());
            let found = found.as_ref().map_or(Vec::new(), |set| set.scored().unwrap());
            let scores: Vec<f64> = found.iter().map(|(_, score)| *score).collect();
            assert_eq!(scores, (0..round).rev().map(|round| -f64::from(round)).collect::<Vec<_>>());
        });
        run(&mut worker, |txn| {
            let mut set = txn.edit_sorted_set(0, b"z").unwrap();
            assert!(set.insert(&[round as u8], &(-f64::from(round)).to_le_bytes()).unwrap());
            assert_eq!(set.score(&[round as u8]).unwrap(), Some(-f64::from(round)));
            set.save().unwrap();
        });
    }
}

#[test]
fn an_edit_without_a_save_has_no_effect() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let mut set = txn.edit_set(0, b"s").unwrap();
        assert!(set.insert(b"m", b"").unwrap() && set.has(b"m").unwrap());
    });
    run(&mut worker, |txn| assert!(txn.set(0, b"s").unwrap().is_none()));
}

#[test]
fn a_key_of_another_type_is_an_error() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        txn.put(0, b"string", b"v").unwrap();
        txn.add(0, b"number", 1).unwrap();
        txn.put_set(0, b"set", vec![b"2", b"10", b"1"]).unwrap();
        txn.put_sorted_set(0, b"sorted", vec![(b"b", 1.0), (b"c", -1.0), (b"a", 1.0)]).unwrap();
        put(txn, b"hash", b"f", b"v");
    });
    let is_wrong = |result: Result<(), Error>| matches!(result, Err(Error::WrongType));
    for within in [false, true] {
        run(&mut worker, |txn| {
            if within {
                txn.put(0, b"string", b"v").unwrap();
                txn.put_set(0, b"set", vec![b"2", b"10", b"1"]).unwrap();
            }
            for key in [&b"string"[..], b"number", b"set", b"sorted"] {
                assert!(is_wrong(txn.hash(0, key).map(|_| ())), "{key:?}");
                assert!(is_wrong(txn.edit_hash(0, key).map(|_| ())), "{key:?}");
            }
            for key in [&b"string"[..], b"number", b"hash", b"sorted"] {
                assert!(is_wrong(txn.set(0, key).map(|_| ())), "{key:?}");
                assert!(is_wrong(txn.edit_set(0, key).map(|_| ())), "{key:?}");
            }
            for key in [&b"string"[..], b"number", b"hash", b"set"] {
                assert!(is_wrong(txn.sorted_set(0, key).map(|_| ())), "{key:?}");
                assert!(is_wrong(txn.edit_sorted_set(0, key).map(|_| ())), "{key:?}");
                let is_set = key == b"set";
                assert_eq!(is_wrong(txn.set_or_sorted_set(0, key).map(|_| ())), !is_set, "{key:?}");
            }
            for key in [&b"set"[..], b"hash", b"sorted"] {
                assert!(is_wrong(txn.get_string(0, key).map(|_| ())), "{key:?}");
                assert!(is_wrong(txn.add(0, key, 1).map(|_| ())), "{key:?}");
                assert!(txn.add_at_once(0, key, 1).unwrap().is_none(), "{key:?}");
            }
            let set = txn.set(0, b"set").unwrap().unwrap().detached().unwrap();
            assert_eq!(set.list().unwrap(), [b"1", b"2", &b"10"[..]]);
            let sorted = txn.set_or_sorted_set(0, b"sorted").unwrap().unwrap().detached().unwrap();
            assert_eq!(sorted.scored().unwrap(), [(&b"c"[..], -1.0), (b"a", 1.0), (b"b", 1.0)]);
            let set = txn.set_or_sorted_set(0, b"set").unwrap().unwrap().detached().unwrap();
            assert_eq!(set.scored().unwrap(), [(&b"1"[..], 1.0), (b"2", 1.0), (b"10", 1.0)]);
        });
    }
    // A set of no members is no set.
    run(&mut worker, |txn| assert!(txn.put_set(0, b"hash", Vec::new()).unwrap()));
    run(&mut worker, |txn| assert!(!txn.exists(0, b"hash").unwrap()));
}

#[test]
fn two_workers_that_change_one_hash_lose_nothing() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    const EACH: usize = 300;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let keyspace = keyspace.clone();
            scope.spawn(move || {
                let mut worker = keyspace.worker().unwrap();
                for at in 0..EACH {
                    run(&mut worker, |txn| {
                        let mut hash = txn.edit_hash(0, b"h").unwrap();
                        let sum: usize = hash
                            .get(b"sum")
                            .unwrap()
                            .map_or(0, |value| str::from_utf8(&value).unwrap().parse().unwrap());
                        hash.insert(b"sum", (sum + 1).to_string().as_bytes()).unwrap();
                        hash.insert(format!("{thread}.{at}").as_bytes(), b"").unwrap();
                        hash.save().unwrap();
                    });
                }
            });
        }
    });
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let hash = txn.hash(0, b"h").unwrap().unwrap();
        assert_eq!(hash.len(), 2 * EACH + 1);
        assert_eq!(&*hash.get(b"sum").unwrap().unwrap(), (2 * EACH).to_string().as_bytes());
    });
}

#[test]
fn a_malformed_collection_is_an_error_with_key_and_place_and_can_be_deleted() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let meta = Meta { tag: Type::Hash.tag(), ..Meta::default() };
    run(&mut worker, |txn| {
        txn.put_with(0, b"bad\r\n", b"\x01\x02\0\0\0\x01a\x05v", meta).unwrap();
        txn.put_with(0, b"empty", b"", meta).unwrap();
    });
    run(&mut worker, |txn| {
        let error = txn.hash(0, b"empty").map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            error,
            "CORRUPT the hash at key 'empty' cannot be read at byte 0: it ends within its head; delete the key or set it again"
        );
        assert!(txn.edit_hash(0, b"empty").is_err() && txn.encoding(0, b"empty").is_err());
        let hash = txn.hash(0, b"bad\r\n").unwrap().unwrap();
        let error = hash.has(b"a").unwrap_err().to_string();
        assert!(
            error.starts_with("CORRUPT the hash at key 'bad\\r\\n' cannot be read at byte 7: it ends before"),
            "{error}"
        );
        assert!(hash.visit(|_, _| ControlFlow::Continue(())).is_err());
    });
    run(&mut worker, |txn| assert!(txn.delete(0, b"bad\r\n").unwrap() && txn.delete(0, b"empty").unwrap()));
    run(&mut worker, |txn| assert!(!txn.exists(0, b"empty").unwrap()));
}
