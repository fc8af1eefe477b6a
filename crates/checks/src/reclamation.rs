//! Reclamation: a block that the compactor emptied is used again only when no reader can read it any more.

use crate::Planted::{Bug, Relaxed};
use crate::blocks::{Store, get, open, open_with};
use crate::check_deep;
use duramen::Durability;
use duramen_log::mutants::Mutant;
use duramen_media::Granularity;
use loom::thread;

/// A store whose first block, of seven extents, is full: one value of one key, then seven of another.
fn with_a_full_block() -> Store {
    let store = open_with(Granularity::CacheLine, Durability::EveryWrite, 64 << 9);
    let mut writer = store.writer().unwrap();
    writer.put(b"key", &[7; 400]).unwrap();
    for i in 0..7 {
        writer.put(b"x", &[i; 400]).unwrap();
    }
    store
}

#[test]
fn block_is_not_used_again_while_a_reader_is_in_it() {
    let planted = [Bug(Mutant::FreedBeforeReadersLeave), Bug(Mutant::PinNotChecked)];
    check_deep(2, &planted, || {
        let store = with_a_full_block();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                // The record that the reader may hold is dead; its block is emptied and freed ...
                writer.put(b"key", &[8; 400]).unwrap();
                store.compact_now();
                // ... and written to, after the shorter run that follows it.
                writer.put(b"other", &[9; 400]).unwrap();
                writer.put(b"other", &[10; 400]).unwrap();
            })
        };
        {
            let value = store.get(b"key").unwrap().unwrap();
            let seen = value.bytes()[0];
            assert!(seen == 7 || seen == 8, "{seen}");
            thread::yield_now();
            store.modelled_log().medium.look(value.bytes());
            assert!(value.bytes().iter().all(|&byte| byte == seen));
        }
        writer.join().unwrap();
        assert_eq!(get(&store, b"key").unwrap()[0], 8);
        store.close().unwrap();
    });
}

#[test]
fn compaction_and_a_writer_of_the_same_key_lose_nothing() {
    let planted = [Bug(Mutant::StripeNotLocked)];
    check_deep(2, &planted, || {
        let store = with_a_full_block();
        store.writer().unwrap().put(b"y", &[0; 400]).unwrap();
        let compactor = {
            let store = store.clone();
            thread::spawn(move || {
                store.compact_now();
            })
        };
        let mut writer = store.writer().unwrap();
        writer.put(b"key", &[8; 400]).unwrap();
        compactor.join().unwrap();
        assert_eq!(get(&store, b"key").as_deref(), Some(&[8; 400][..]));
        assert_eq!(store.len(), 3);
        drop(writer);
        store.close().unwrap();
    });
}

#[test]
fn cell_is_read_as_it_was_before_or_after_its_update() {
    // Long enough that the value is aligned, so that it can be updated in place.
    const KEY: &[u8] = b"the cell";
    let planted = [Relaxed("log/src/cell.rs", "medium.store_atomic(to, bytes)")];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let meta = duramen::Meta { updatable: true, ..duramen::Meta::default() };
        let mut first = store.writer().unwrap();
        first.put_with(KEY, &[0; 16], meta).unwrap();
        assert_eq!(first.update(KEY, 0, &[1; 8]).unwrap(), duramen::Update::InPlace);
        assert_eq!(first.update(KEY, 8, &[1; 8]).unwrap(), duramen::Update::InPlace);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                assert_eq!(writer.update(KEY, 0, &[2; 8]).unwrap(), duramen::Update::InPlace);
            })
        };
        let seen = store.get(KEY).unwrap().unwrap().to_vec();
        let halves = (seen[0], seen[8]);
        assert!(seen[..8].iter().all(|&b| b == seen[0]), "{halves:?}");
        assert!([(1, 1), (2, 1)].contains(&halves), "{halves:?}");
        writer.join().unwrap();
        assert_eq!(store.get(KEY).unwrap().unwrap()[..], [[2; 8], [1; 8]].concat()[..]);
        drop(first);
        store.close().unwrap();
    });
}
