//! Blocks shared by writers: hand-over of an open block from a writer that ends to the next, the seal, and the
//! compactor's reads of it. The whole engine runs, on the medium of [`crate::medium`].

use crate::Planted::{Bug, Relaxed};
use crate::check_deep;
use crate::medium::ModelMedium;
use duramen::StoreOn;
use duramen::{Durability, Options};
use duramen_log::blocks::Use;
use duramen_log::mutants::Mutant;
use duramen_media::{Granularity, Offset};
use loom::thread;

pub(super) type Store = StoreOn<ModelMedium>;

/// An empty store of extents of 512 bytes, 16 of them free.
pub(super) fn open(granularity: Granularity, durability: Durability) -> Store {
    open_with(granularity, durability, 48 << 9)
}

pub(super) fn open_with(granularity: Granularity, durability: Durability, bytes_max: u64) -> Store {
    let options = Options {
        durability,
        extent_bytes: Some(512),
        background: false,
        recovery_threads: 1,
        clock: Some(std::sync::Arc::new(|| 1)),
        boot_id: Some([1; 16]),
        ..Options::default()
    };
    StoreOn::open_on(ModelMedium::new(bytes_max, granularity), &options).unwrap()
}

/// The value of a key, if there is one.
pub(super) fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|value| {
        store.modelled_log().medium.look(value.bytes());
        value.to_vec()
    })
}

#[test]
fn a_block_of_an_ended_writer_goes_to_one_other() {
    let planted = [Bug(Mutant::PartialTakenTwice)];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let mut ending = store.writer().unwrap();
        ending.put(b"a", b"1").unwrap();
        drop(ending);
        // Its block is in the list now; two writers want one.
        let other = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer.put(b"b", b"2").unwrap();
            })
        };
        let mut writer = store.writer().unwrap();
        writer.put(b"c", b"3").unwrap();
        other.join().unwrap();
        for (key, value) in [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")] {
            assert_eq!(get(&store, key).as_deref(), Some(&value[..]), "key {key:?}");
        }
        drop(writer);
        store.close().unwrap();
    });
}

#[test]
fn reader_of_a_key_that_is_put_sees_nothing_or_all_of_it() {
    let planted = [Relaxed("index/src/hash.rs", "slot.compare_exchange_weak(now, word, AcqRel")];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer.put(b"key", b"1").unwrap();
                writer.put(b"key", b"2").unwrap();
            })
        };
        let first = get(&store, b"key");
        let second = get(&store, b"key");
        assert!(first <= second, "{first:?} then {second:?}");
        writer.join().unwrap();
        assert_eq!(get(&store, b"key").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

#[test]
fn reader_of_a_group_helps_it_and_sees_it_whole() {
    let planted = [Relaxed("index/src/hash.rs", "slot.compare_exchange_weak(now, word, AcqRel")];
    check_deep(2, &planted, || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        store.writer().unwrap().put(b"key", b"1").unwrap();
        let writer = {
            let store = store.clone();
            thread::spawn(move || {
                let mut writer = store.writer().unwrap();
                writer.group();
                writer.put(b"key", b"2").unwrap();
                writer.flush_group().unwrap();
            })
        };
        let seen = get(&store, b"key").unwrap();
        assert!(seen == b"1" || seen == b"2");
        writer.join().unwrap();
        assert_eq!(get(&store, b"key").as_deref(), Some(&b"2"[..]));
        store.close().unwrap();
    });
}

#[test]
fn block_is_read_up_to_its_tail_open_or_sealed() {
    // Nothing is planted: the medium of the models knows a range from its first store on, so it does not detect a
    // record that is read too early.
    check_deep(2, &[], || {
        let store = open(Granularity::CacheLine, Durability::EveryWrite);
        let mut writer = store.writer().unwrap();
        writer.put(b"a", &[0; 400]).unwrap();
        let extent = {
            let value = store.get(b"a").unwrap().unwrap();
            store.modelled_log().blocks.extent_of(store.modelled_log().medium.offset_of(value.bytes()))
        };
        // All but one of the puts that fill the block.
        let bytes = u64::from(store.modelled_log().blocks.at(extent).extents()) * 512;
        let more = (bytes - 64) / 440 - 1;
        for i in 1..more {
            writer.put(b"a", &[i as u8; 400]).unwrap();
        }
        let compactor = {
            let store = store.clone();
            thread::spawn(move || {
                let block = store.modelled_log().blocks.at(extent);
                let is_sealed = block.state() == Use::Sealed;
                // The range that the compactor reads, and the sweeper of an open block: everything below the tail.
                let (at, tail) = (store.modelled_log().blocks.offset(extent), block.tail());
                let read = duramen_media::Bytes::pointer(&store.modelled_log().medium, Offset(at), tail);
                assert!(!read.is_null() && (!is_sealed || tail > bytes - 440), "tail {tail} of {bytes}");
            })
        };
        // No room for the last: the block is sealed, and another opened.
        for i in 0..3 {
            writer.put(b"a", &[100 + i; 400]).unwrap();
        }
        compactor.join().unwrap();
        assert_eq!(get(&store, b"a").as_deref(), Some(&[102; 400][..]));
        drop(writer);
        store.close().unwrap();
    });
}
