//! Threads on interleaved keys: each read sees a whole value that was written for that key.

use super::options;
use crate::{LogKind, Options, Store};
use duramen_media::{Mapped, MediaOptions, MediumKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

fn memory() -> Mapped {
    let options = MediaOptions { kind: MediumKind::Volatile, ..MediaOptions::default() };
    Mapped::open(Path::new("memory"), &options).unwrap()
}

const KEYS: u64 = 64;

/// A value that contains its key and its writer's stamp, and determines every byte.
fn value(key: u64, stamp: u64, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&key.to_le_bytes());
    into.extend_from_slice(&stamp.to_le_bytes());
    // Values of one to three lines, so that blocks of several sizes are taken and freed.
    let bytes = 16 + (stamp * 37 % 120) as usize;
    let seed = (key ^ stamp) as u8;
    into.extend((16..bytes).map(|i| seed.wrapping_mul(31).wrapping_add(i as u8)));
}

fn check(key: u64, found: &[u8], newest: &AtomicU64, scratch: &mut Vec<u8>) {
    assert!(found.len() >= 16, "a value of {} bytes", found.len());
    let word = |at: usize| u64::from_le_bytes(found[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), key, "a value of another key");
    let stamp = word(8);
    assert!(stamp <= newest.load(Relaxed), "a stamp that nobody wrote");
    value(key, stamp, scratch);
    assert!(found == *scratch, "a torn value of key {key}");
}

fn threads_meet(log: LogKind, cache_slots: usize) {
    let store = Store::open(memory(), &Options { cache_slots, ..options(log) }).unwrap();
    let (stamps, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let key_bytes = |key: u64| key.to_be_bytes();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                let (store, stamps) = (&store, &stamps);
                scope.spawn(move || {
                    let mut rng = duramen_media::sim::Rng::new(thread + 1);
                    let (mut session, mut bytes) = (store.session().unwrap(), Vec::new());
                    for _ in 0..60_000 {
                        let key = rng.below(KEYS);
                        if rng.one_in(3) {
                            session.delete(&key_bytes(key));
                        } else {
                            value(key, stamps.fetch_add(1, Relaxed), &mut bytes);
                            session.put(&key_bytes(key), &bytes).unwrap();
                        }
                    }
                })
            })
            .collect();
        for thread in 0..2u64 {
            let (store, stamps, done) = (&store, &stamps, &done);
            scope.spawn(move || {
                let mut rng = duramen_media::sim::Rng::new(thread + 9);
                let (mut session, mut copy, mut scratch) = (store.session().unwrap(), Vec::new(), Vec::new());
                while !done.load(Relaxed) {
                    let key = rng.below(KEYS);
                    if thread == 0 || !rng.one_in(8) {
                        if session.get(&key_bytes(key), &mut copy) {
                            check(key, &copy, stamps, &mut scratch);
                        }
                        continue;
                    }
                    let mut last = None;
                    session.scan(&key_bytes(key), 20, &mut |found, bytes| {
                        let found = u64::from_be_bytes(found.try_into().unwrap());
                        assert!(found >= key && last.is_none_or(|last| last < found), "keys out of order");
                        last = Some(found);
                        check(found, bytes, stamps, &mut scratch);
                    });
                }
            });
        }
        for writer in writers {
            let ended = writer.join();
            done.store(true, Relaxed);
            ended.unwrap();
        }
    });
    let count = store.verify().unwrap();
    assert_eq!(count, super::contents(&store).len() as u64);
    // This fails if two nodes share a block.
    assert_eq!(store.rebuild_free_lists().unwrap(), count);
}

#[test]
fn redo_log_readers_see_only_values_written_for_the_key() {
    threads_meet(LogKind::Redo, 16);
    threads_meet(LogKind::Redo, 0);
}

#[test]
fn undo_log_readers_see_only_values_written_for_the_key() {
    threads_meet(LogKind::Undo, 16);
}

/// Each thread has its own keys between those of the others: its last writes are there at the end.
#[test]
fn writers_of_neighbouring_keys_lose_no_write() {
    for log in [LogKind::Redo, LogKind::Undo] {
        let store = Store::open(memory(), &options(log)).unwrap();
        let expected: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3u64)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut rng = duramen_media::sim::Rng::new(thread + 40);
                        let mut mine = std::collections::BTreeMap::new();
                        let (mut session, mut bytes) = (store.session().unwrap(), Vec::new());
                        for stamp in 0..20_000 {
                            let key = rng.below(100) * 3 + thread;
                            if rng.one_in(3) {
                                let was_there = session.delete(&key.to_be_bytes());
                                assert_eq!(was_there, mine.remove(&key).is_some(), "key {key}");
                            } else {
                                value(key, stamp, &mut bytes);
                                session.put(&key.to_be_bytes(), &bytes).unwrap();
                                mine.insert(key, stamp);
                            }
                        }
                        mine
                    })
                })
                .collect();
            let mut all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
            all.sort_unstable();
            all
        });
        let (found, mut bytes) = (super::contents(&store), Vec::new());
        assert_eq!(found.len(), expected.len());
        for ((key, stamp), (found_key, found_value)) in expected.into_iter().zip(found) {
            value(key, stamp, &mut bytes);
            assert!(found_key == key.to_be_bytes() && found_value == bytes, "key {key}");
        }
        store.verify().unwrap();
    }
}
