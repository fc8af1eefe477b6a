//! One thread against a `BTreeMap`.

use super::{contents, options, sim};
use crate::{ErrorKind, LogKind, Store};
use duramen_media::sim::{Memory, Model, SimMedium};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Scan(Vec<u8>, usize),
    /// The store is dropped and opened again.
    Reopen(bool),
}

/// Keys that share prefixes and zeros, with lengths around whole words.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 1..4),
        2 => (prop::collection::vec(prop_oneof![Just(0u8), Just(7)], 0..3), 6usize..18)
            .prop_map(|(end, pad)| [vec![3; pad], end].concat()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    (0usize..300, any::<u8>())
        .prop_map(|(bytes, byte)| (0..bytes).map(|i| byte.wrapping_add(i as u8)).collect())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        3 => key().prop_map(Op::Delete),
        2 => key().prop_map(Op::Get),
        1 => (key(), 0usize..8).prop_map(|(key, count)| Op::Scan(key, count)),
        1 => any::<bool>().prop_map(Op::Reopen),
    ]
}

fn agrees_with_a_map(log: LogKind, ops: &[Op]) {
    let medium = sim();
    let mut map = BTreeMap::new();
    let mut store = Store::open(medium.clone(), &options(log)).unwrap();
    let mut copy = Vec::new();
    for op in ops {
        if let Op::Reopen(rebuild) = op {
            drop(store);
            store =
                Store::open(medium.clone(), &crate::Options { rebuild: *rebuild, ..options(log) }).unwrap();
            assert_eq!(store.replayed(), 0);
            continue;
        }
        let mut session = store.session().unwrap();
        match op {
            Op::Put(key, value) => {
                session.put(key, value).unwrap();
                map.insert(key.clone(), value.clone());
            }
            Op::Delete(key) => assert_eq!(session.delete(key), map.remove(key).is_some()),
            Op::Get(key) => {
                assert_eq!(session.get(key, &mut copy), map.contains_key(key));
                assert!(map.get(key).is_none_or(|value| *value == copy));
            }
            Op::Scan(key, count) => {
                let from = (Bound::Included(key.clone()), Bound::Unbounded);
                let mut wanted = map.range(from).take(*count);
                session.scan(key, *count, &mut |key, value| {
                    assert!(wanted.next() == Some((&key.to_vec(), &value.to_vec())));
                });
                assert!(wanted.next().is_none());
            }
            Op::Reopen(_) => unreachable!(),
        }
    }
    assert!(contents(&store).into_iter().eq(map));
    store.verify().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_redo_log_store_agrees_with_a_map(ops in prop::collection::vec(op(), 1..120)) {
        agrees_with_a_map(LogKind::Redo, &ops);
    }

    #[test]
    fn the_undo_log_store_agrees_with_a_map(ops in prop::collection::vec(op(), 1..120)) {
        agrees_with_a_map(LogKind::Undo, &ops);
    }
}

#[test]
fn overwrites_and_deletes_of_a_few_keys_use_bounded_space() {
    for log in [LogKind::Redo, LogKind::Undo] {
        let store = Store::open(sim(), &options(log)).unwrap();
        let mut session = store.session().unwrap();
        for i in 0..20_000u32 {
            let key = (i % 50).to_le_bytes();
            session.put(&key, &vec![i as u8; (i % 150) as usize]).unwrap();
            if i % 7 == 0 {
                assert!(session.delete(&key));
            }
        }
        // 50 keys take two blocks of a line or a few each, of five sizes; epochs hold a few hundred more.
        assert!(store.used_bytes() < 256 << 10, "{log:?}: {} bytes", store.used_bytes());
    }
}

#[test]
fn a_full_medium_is_an_error_and_deletes_free_space() {
    let store = Store::open(sim(), &options(LogKind::Redo)).unwrap();
    let mut session = store.session().unwrap();
    let mut count = 0u32;
    let error = loop {
        match session.put(&count.to_be_bytes(), &[7; 1000]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    assert!(count > 100);
    for i in 0..count {
        assert!(session.delete(&i.to_be_bytes()));
    }
    for i in 0..count / 2 {
        session.put(&i.to_be_bytes(), &[8; 1000]).unwrap();
    }
    drop(session);
    assert_eq!(store.verify().unwrap(), u64::from(count / 2));
}

#[test]
fn invalid_operations_are_refused_and_change_nothing() {
    let store = Store::open(sim(), &options(LogKind::Redo)).unwrap();
    let mut session = store.session().unwrap();
    let kinds = [
        session.put(b"", b"v").unwrap_err().kind(),
        session.put(&[1; 1025], b"v").unwrap_err().kind(),
        session.put(b"k", &[1; 4096]).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [ErrorKind::InvalidInput; 3]);
    let sessions: Vec<_> = (0..3).map(|_| store.session().unwrap()).collect();
    assert_eq!(store.session().err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
    drop(sessions);
    drop(session);
    assert!(contents(&store).is_empty());
    let page = SimMedium::from_image(Model::Page, 1 << 20, Arc::new(Memory::new(1 << 20)), 0);
    assert_eq!(Store::open(page, &options(LogKind::Redo)).err().unwrap().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_store_with_the_other_log_is_refused() {
    let medium = sim();
    drop(Store::open(medium.clone(), &options(LogKind::Redo)).unwrap());
    let error = Store::open(medium, &options(LogKind::Undo)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_lock_held_at_a_crash_is_free_after_it() {
    let medium = sim();
    let store = Store::open(medium.clone(), &options(LogKind::Redo)).unwrap();
    store.session().unwrap().put(b"key", b"old").unwrap();
    let node = store.find(b"key").unwrap();
    store.lock(node);
    drop(store);
    let store = Store::open(medium, &options(LogKind::Redo)).unwrap();
    store.session().unwrap().put(b"key", b"new").unwrap();
    assert_eq!(contents(&store), [(b"key".to_vec(), b"new".to_vec())]);
}

#[test]
fn damage_is_reported_and_never_causes_a_panic() {
    let medium = sim();
    {
        let store = Store::open(medium.clone(), &options(LogKind::Redo)).unwrap();
        let mut session = store.session().unwrap();
        for i in 0..200u32 {
            session.put(&i.to_be_bytes(), &[i as u8; 60]).unwrap();
        }
    }
    let log = medium.log();
    let (memory, len) = log.replay();
    let lines = memory.snapshot();
    let (mut told, mut seed) = (0, duramen_media::sim::Rng::new(1));
    for _ in 0..600 {
        let memory = Memory::from_lines(&lines, LEN_MAX_BYTES);
        for _ in 0..4 {
            memory.flip_bit(seed.below(len * 8));
        }
        let damaged = SimMedium::from_image(Model::CacheLine, LEN_MAX_BYTES, Arc::new(memory), len);
        told += u32::from(Store::open(damaged, &options(LogKind::Redo)).is_err());
    }
    assert!(told > 50, "{told} of 600");
}

const LEN_MAX_BYTES: u64 = super::LEN_MAX;
