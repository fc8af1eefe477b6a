//! Lists at keys: types, expiry times, the end of the last element, transactions, damaged values.

use crate::support::{keyspace, now, run, store};
use duramen::{MediumKind, Meta};
use duramen_structures::{Encoding, End, Error, Txn, Type};
use std::ops::ControlFlow;

fn elements(txn: &mut Txn<'_>, key: &[u8]) -> Vec<String> {
    let mut elements = Vec::new();
    if let Some(list) = txn.list(0, key).unwrap() {
        list.visit(0..list.len(), |element| {
            elements.push(String::from_utf8(element.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
    }
    elements
}

fn push(txn: &mut Txn<'_>, key: &[u8], end: End, new: &[&str]) {
    let mut list = txn.edit_list(0, key).unwrap();
    list.push(end, new.iter().map(|element| element.as_bytes())).unwrap();
    list.save().unwrap();
}

#[test]
fn a_list_keeps_its_expiry_time_and_goes_with_its_last_element() {
    for medium in [MediumKind::Volatile, MediumKind::File] {
        let (_dir, keyspace) = keyspace(medium);
        let mut worker = keyspace.worker().unwrap();
        let until = now() + 100_000;
        run(&mut worker, |txn| push(txn, b"l", End::Right, &["a", "b"]));
        run(&mut worker, |txn| assert!(txn.set_expiry(0, b"l", Some(until)).unwrap()));
        run(&mut worker, |txn| push(txn, b"l", End::Left, &["c", "d"]));
        run(&mut worker, |txn| {
            assert_eq!(elements(txn, b"l"), ["d", "c", "a", "b"]);
            let found = txn.get(0, b"l").unwrap().unwrap();
            assert_eq!((Type::of_tag(found.tag()), found.expires_at()), (Some(Type::List), Some(until)));
            assert_eq!(txn.encoding(0, b"l").unwrap(), Some(Encoding::Quicklist));
        });
        run(&mut worker, |txn| assert!(txn.copy(0, b"l", 0, b"copy").unwrap()));
        run(&mut worker, |txn| {
            let mut list = txn.edit_list(0, b"l").unwrap();
            assert!(list.set(3, b"B").unwrap() && !list.set(4, b"x").unwrap());
            assert!(
                list.insert(End::Right, b"a", b"e").unwrap() && !list.insert(End::Right, b"x", b"e").unwrap()
            );
            assert_eq!(list.remove(b"c", End::Right, 7).unwrap(), 1);
            list.trim(1..4).unwrap();
            list.save().unwrap();
            assert_eq!(elements(txn, b"l"), ["a", "e", "B"]);
        });
        run(&mut worker, |txn| {
            let mut popped = Vec::new();
            let mut list = txn.edit_list(0, b"l").unwrap();
            list.pop(End::Right, 9, |element| popped.push(element.to_vec())).unwrap();
            assert_eq!(popped, [b"B", b"e", b"a"]);
            list.save().unwrap();
        });
        run(&mut worker, |txn| {
            assert!(!txn.exists(0, b"l").unwrap());
            assert_eq!(elements(txn, b"copy"), ["d", "c", "a", "b"]);
        });
        assert_eq!((keyspace.count(0, now()).keys, keyspace.count(0, now()).expires), (1, 1));
        // What comes again is new.
        run(&mut worker, |txn| push(txn, b"l", End::Left, &["a"]));
        run(&mut worker, |txn| assert_eq!(txn.get(0, b"l").unwrap().unwrap().expires_at(), None));
    }
}

#[test]
fn lists_are_there_when_a_store_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut wanted = Vec::new();
    for round in 0..3 {
        let keyspace = crate::support::open(store(MediumKind::File, &dir), 16);
        let mut worker = keyspace.worker().unwrap();
        run(&mut worker, |txn| assert_eq!(elements(txn, b"l"), wanted));
        let new: Vec<String> = (0..100).map(|at| format!("{round}.{at}")).collect();
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        run(&mut worker, |txn| push(txn, b"l", End::Right, &new));
        wanted.extend(new.into_iter().map(str::to_owned));
    }
}

#[test]
fn a_list_that_is_not_saved_did_not_change() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let mut list = txn.edit_list(0, b"l").unwrap();
        list.push(End::Left, [&b"a"[..]].into_iter()).unwrap();
        assert_eq!(list.len(), 1);
    });
    run(&mut worker, |txn| assert!(txn.list(0, b"l").unwrap().is_none()));
}

#[test]
fn a_list_is_refused_by_commands_of_other_types() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        txn.put(0, b"string", b"v").unwrap();
        txn.add(0, b"number", 1).unwrap();
        txn.put_set(0, b"set", vec![b"a"]).unwrap();
        push(txn, b"list", End::Left, &["a"]);
    });
    let is_wrong = |result: Result<(), Error>| matches!(result, Err(Error::WrongType));
    run(&mut worker, |txn| {
        for key in [&b"string"[..], b"number", b"set"] {
            assert!(is_wrong(txn.list(0, key).map(|_| ())), "{key:?}");
            assert!(is_wrong(txn.edit_list(0, key).map(|_| ())), "{key:?}");
        }
        assert!(is_wrong(txn.get_string(0, b"list").map(|_| ())));
        assert!(is_wrong(txn.add(0, b"list", 1).map(|_| ())));
        assert!(is_wrong(txn.set(0, b"list").map(|_| ())));
        assert!(is_wrong(txn.edit_hash(0, b"list").map(|_| ())));
    });
}

#[test]
fn two_workers_that_rotate_and_grow_one_list_lose_nothing() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    const EACH: usize = 300;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let keyspace = keyspace.clone();
            scope.spawn(move || {
                let mut worker = keyspace.worker().unwrap();
                for at in 0..EACH {
                    run(&mut worker, |txn| push(txn, b"l", End::Left, &[&format!("{thread}.{at}")]));
                    run(&mut worker, |txn| {
                        let mut list = txn.edit_list(0, b"l").unwrap();
                        let mut moved = Vec::new();
                        list.pop(End::Right, 1, |element| moved.extend_from_slice(element)).unwrap();
                        list.push(End::Left, [&moved[..]].into_iter()).unwrap();
                        list.save().unwrap();
                    });
                }
            });
        }
    });
    let mut worker = keyspace.worker().unwrap();
    run(&mut worker, |txn| {
        let mut found = elements(txn, b"l");
        found.sort();
        let mut wanted: Vec<String> =
            (0..EACH).flat_map(|at| [0, 1].map(|thread| format!("{thread}.{at}"))).collect();
        wanted.sort();
        assert_eq!(found, wanted);
    });
}

#[test]
fn a_malformed_list_is_an_error_with_key_and_place_and_can_be_deleted() {
    let (_dir, keyspace) = keyspace(MediumKind::Volatile);
    let mut worker = keyspace.worker().unwrap();
    let meta = Meta { tag: Type::List.tag(), ..Meta::default() };
    run(&mut worker, |txn| {
        txn.put_with(0, b"bad", b"\x01\x02\0\0\0\x01a\x05v", meta).unwrap();
        txn.put_with(0, b"empty", b"", meta).unwrap();
    });
    run(&mut worker, |txn| {
        let error = txn.list(0, b"empty").map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            error,
            "CORRUPT the list at key 'empty' cannot be read at byte 0: it ends within its head; delete the key or set it again"
        );
        assert!(txn.edit_list(0, b"empty").is_err() && txn.encoding(0, b"empty").is_err());
        let list = txn.list(0, b"bad").unwrap().unwrap();
        let error = list.get(1).err().unwrap().to_string();
        assert!(
            error.starts_with("CORRUPT the list at key 'bad' cannot be read at byte 7: it ends"),
            "{error}"
        );
        assert_eq!(list.get(0).unwrap().as_deref(), Some(&b"a"[..]));
    });
    run(&mut worker, |txn| assert!(txn.delete(0, b"bad").unwrap() && txn.delete(0, b"empty").unwrap()));
    run(&mut worker, |txn| assert!(!txn.exists(0, b"empty").unwrap()));
}
