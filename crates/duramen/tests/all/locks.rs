//! Key locks and the gate through the public door.

use duramen::{Batch, Durability, ErrorKind, IndexKind, MediumKind, Options, Store, Writer};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn store_of(options: &Options) -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = options.open(dir.path().join("store")).unwrap();
    (dir, store)
}

fn number(writer: &Writer, key: &[u8]) -> u64 {
    writer.get(key).unwrap().map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
}

fn each_kind(mut test: impl FnMut(Options)) {
    for medium in [MediumKind::Volatile, MediumKind::File] {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            for durability in [Durability::EveryWrite, Durability::Manual] {
                test(Options { medium, index, durability, ..Options::default() });
            }
        }
    }
}

#[test]
fn reads_and_writes_under_locks_are_one_step() {
    const ROUNDS: u64 = 300;
    each_kind(|options| {
        let (_dir, store) = store_of(&options);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let store = &store;
                scope.spawn(move || {
                    let mut writer = store.writer().unwrap();
                    for round in 0..ROUNDS {
                        // In any order: a deadlock would never return.
                        let mut keys = [b"a".as_slice(), b"b", b"c"];
                        keys.rotate_left((thread + round) as usize % 3);
                        let grouped = round % 7 == 0;
                        if grouped {
                            writer.group();
                        }
                        let result = writer.locked(keys, |writer| {
                            let (a, b) = (number(writer, b"a"), number(writer, b"b"));
                            assert_eq!(a, b, "half of another's");
                            let mut batch = Batch::new();
                            batch.put(b"a", (a + 1).to_le_bytes()).put(b"b", (b + 1).to_le_bytes());
                            assert_eq!(writer.apply(&batch)?, duramen::Swap::Done);
                            writer.put(b"c", (number(writer, b"c") + 1).to_le_bytes())
                        });
                        result.unwrap();
                        if grouped {
                            writer.flush_group().unwrap();
                        }
                    }
                });
            }
        });
        let writer = store.writer().unwrap();
        for key in [b"a", b"b", b"c"] {
            assert_eq!(number(&writer, key), 3 * ROUNDS);
        }
    });
}

#[test]
fn the_holder_of_the_barrier_is_alone() {
    let (_dir, store) = store_of(&Options { medium: MediumKind::Volatile, ..Options::default() });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Plain puts, and commands with locks: both count what they did.
        scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            let mut count = 0u64;
            while !over.load(Relaxed) {
                count += 1;
                writer.put(b"plain", count.to_le_bytes()).unwrap();
                writer.put(b"plain 2", count.to_le_bytes()).unwrap();
            }
        });
        scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            while !over.load(Relaxed) {
                let keys = [b"x".as_slice(), b"y"];
                let add = |writer: &mut Writer| {
                    let x = number(writer, b"x");
                    writer.put(b"x", (x + 1).to_le_bytes())?;
                    writer.put(b"y", (x + 1).to_le_bytes())
                };
                writer.locked(keys, add).unwrap();
            }
        });
        let mut writer = store.writer().unwrap();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..500 {
                let looked = writer.locked_all(|writer| {
                    let (x, y, plain) =
                        (number(writer, b"x"), number(writer, b"y"), number(writer, b"plain"));
                    assert_eq!(x, y, "beside a command");
                    for _ in 0..200 {
                        std::hint::spin_loop();
                    }
                    assert_eq!(
                        (number(writer, b"x"), number(writer, b"plain")),
                        (x, plain),
                        "beside a writer"
                    );
                    writer.put(b"any", b"key")
                });
                looked.unwrap();
            }
        }));
        over.store(true, Relaxed);
        ended.unwrap();
    });
}

#[test]
fn a_panic_or_an_error_under_locks_releases_them() {
    let (_dir, store) = store_of(&Options { medium: MediumKind::Volatile, ..Options::default() });
    let mut writer = store.writer().unwrap();
    for all in [false, true] {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let work = |_: &mut Writer| -> duramen::Result<()> { panic!("on purpose") };
            if all { writer.locked_all(work) } else { writer.locked([b"a".as_slice()], work) }
        }));
        assert!(panicked.is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| store.put(b"a", b"other").unwrap());
        });
    }
    let other = writer.locked([b"a".as_slice()], |writer| writer.put(b"b", b"not named")).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::InvalidInput);
    std::thread::scope(|scope| {
        scope.spawn(|| store.put(b"a", b"other").unwrap());
    });
    assert_eq!(store.get(b"b").unwrap().as_deref(), None);
}

#[test]
fn more_keys_are_locked_if_no_other_thread_holds_them() {
    let (_dir, store) = store_of(&Options { medium: MediumKind::Volatile, ..Options::default() });
    let (mut writer, held) = (store.writer().unwrap(), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = store.writer().unwrap();
            writer.lock([b"taken".as_slice()]).unwrap();
            held.wait();
            held.wait();
            writer.unlock().unwrap();
            held.wait();
        });
        held.wait();
        writer.lock([b"mine".as_slice()]).unwrap();
        assert!(writer.lock_more([b"free".as_slice()]));
        writer.put(b"free", b"1").unwrap();
        assert!(!writer.lock_more([b"also free".as_slice(), b"taken"]));
        assert!(writer.put(b"also free", b"1").is_err(), "it is locked though the other is not");
        held.wait();
        held.wait();
        assert!(writer.lock_more([b"taken".as_slice()]));
        writer.put(b"taken", b"1").unwrap();
        writer.unlock().unwrap();
    });
}

#[test]
fn a_write_longer_than_the_room_succeeds_in_the_second_attempt() {
    for medium in [MediumKind::Volatile, MediumKind::File] {
        let options = Options { medium, len_max: 64 << 20, ..Options::default() };
        let (_dir, store) = store_of(&options);
        let mut writer = store.writer().unwrap();
        for bytes in [100, 1 << 16, 1 << 20, 3 << 20, 9 << 20] {
            let (value, mut runs) = (vec![7; bytes], 0);
            let put = |writer: &mut Writer| {
                runs += 1;
                writer.put(b"long", &value)
            };
            writer.locked([b"long".as_slice()], put).unwrap();
            assert!(runs <= 2, "{runs} runs for {bytes} bytes");
            assert_eq!(store.get(b"long").unwrap().unwrap().len(), bytes);
        }
        let (value, mut runs) = (vec![7; 80 << 20], 0);
        let put = |writer: &mut Writer| {
            runs += 1;
            writer.put(b"too long", &value)
        };
        let error = writer.locked([b"too long".as_slice()], put).unwrap_err();
        assert_eq!((error.kind(), runs), (ErrorKind::OutOfSpace, 1));
        assert_eq!(store.get(b"too long").unwrap().as_deref(), None);
        // Deletes still work in a full store, also under locks.
        let mut filled = 0u32;
        while writer
            .locked([&filled.to_le_bytes()[..]], |writer| writer.put(filled.to_le_bytes(), [1; 60_000]))
            .is_ok()
        {
            filled += 1;
            assert!(filled < 2000, "a store of 64 MiB is never full");
        }
        for key in 0..filled {
            let deleted = writer.locked([&key.to_le_bytes()[..]], |writer| writer.delete(key.to_le_bytes()));
            assert!(deleted.unwrap());
        }
        writer.locked([b"long".as_slice()], |writer| writer.put(b"long", vec![8; 9 << 20])).unwrap();
    }
}

#[test]
fn elements_are_written_under_the_lock_of_their_collections_key() {
    const ROUNDS: u32 = 300;
    let (_dir, store) = store_of(&Options { medium: MediumKind::Volatile, ..Options::default() });
    let collections = [0, 1].map(|_| store.new_collection(duramen::ElementOrder::ByKey));
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let (store, collections) = (&store, &collections);
            scope.spawn(move || {
                let mut writer = store.writer().unwrap();
                for round in 0..ROUNDS {
                    let which = (thread + round) as usize % 2;
                    let key = [b"first".as_slice(), b"second"][which];
                    let added = writer.locked([key], |writer| {
                        let mut elements = writer.collection(&collections[which]);
                        // Together they have all stripes: locking them as keys would wait for the other thread's.
                        for element in 0..20u32 {
                            let element = (element * 7919 + thread).to_be_bytes();
                            elements.put(element, round.to_le_bytes())?;
                        }
                        Ok::<_, duramen::Error>(())
                    });
                    added.unwrap();
                }
            });
        }
    });
    assert_eq!(collections.each_ref().map(|collection| collection.len()), [80, 80]);
}

#[test]
fn the_index_grows_while_many_keys_are_put_under_locks() {
    let keys: Vec<Vec<u8>> = (0..20_000).map(|key| format!("key {key}").into_bytes()).collect();
    let put_all = |store: &Store, writer: &mut Writer| -> duramen::Result<()> {
        keys.iter().try_for_each(|key| writer.put(key, b"value"))?;
        // Of some 2,000 slots a segment.
        let splits = store.stats().index_splits;
        assert!(splits > 8, "{splits} splits while the locks are held");
        Ok(())
    };
    for all in [false, true] {
        let (_dir, store) = store_of(&Options { medium: MediumKind::Volatile, ..Options::default() });
        let mut writer = store.writer().unwrap();
        match all {
            true => writer.locked_all(|writer| put_all(&store, writer)).unwrap(),
            false => writer.locked(keys.iter().map(Vec::as_slice), |writer| put_all(&store, writer)).unwrap(),
        }
        assert!(keys.iter().all(|key| writer.get(key).unwrap().is_some()));
    }
}
