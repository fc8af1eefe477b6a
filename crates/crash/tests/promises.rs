//! The short form of the crash driver, and the medium's faults: what `cargo test` runs.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::{Batch, Durability, ErrorKind, Meta, Options, Residence, StoreOn};
use duramen_crash::oracle::Allowed;
use duramen_crash::setup::{CASES, Op, TIME_BEGIN};
use duramen_crash::{Effort, Setup, Totals, check, explore::run_setup, run_seed};
use duramen_media::sim::{Log, Model, Rng, SimMedium, Walker};
use duramen_media::{Bytes, Offset, Persistent};
use std::sync::atomic::Ordering::Relaxed;
use support::{alone, case, crashed, put};

fn seeds(name: &str) {
    let _alone = alone();
    let effort = Effort { images_max: 1_200, ..Effort::default() };
    let mut totals = Totals::default();
    for seed in 1..=4 {
        totals.add(&run_seed(seed, case(name), effort).unwrap_or_else(|violation| panic!("{violation}")));
    }
    assert!(totals.images > 2_000, "{totals:?}");
}

/// All dead records were in open blocks, which packing sealed, and compaction did not examine them again.
#[test]
fn a_full_store_compacts_blocks_that_packing_sealed() {
    let _alone = alone();
    let totals = run_seed(71_048, case("line/every-write"), Effort::default());
    totals.unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn every_write_survives_on_cache_lines() {
    seeds("line/every-write");
}

#[test]
fn every_write_survives_with_byte_granularity() {
    seeds("byte/every-write");
}

#[test]
fn every_write_survives_on_pages() {
    seeds("page/every-write");
}

#[test]
fn interval_leaves_a_prefix_on_pages() {
    seeds("page/interval");
}

#[test]
fn interval_leaves_a_prefix_on_cache_lines() {
    seeds("line/interval");
}

#[test]
fn manual_leaves_the_last_commit() {
    for name in ["page/manual", "line/manual", "byte/manual"] {
        seeds(name);
    }
}

#[test]
fn a_creation_that_crashed_is_restarted_and_never_left_incomplete() {
    for case in CASES {
        crashed(case.name, &[b"a"], &[]);
    }
}

#[test]
fn a_long_chain_of_updates_and_deletes_recovers_its_last_state() {
    let ops: Vec<Op> =
        (0..120).map(|i| if i % 3 == 2 { Op::Delete { key: 0 } } else { put(0, 30) }).collect();
    crashed("line/every-write", &[b"a", b"b"], &ops);
    crashed("page/every-write", &[b"a", b"b"], &ops);
}

#[test]
fn values_over_several_extents_are_whole_or_absent() {
    let ops: Vec<Op> = (0..24).map(|i| put(i % 3, 400 + 130 * i)).collect();
    for name in ["line/every-write", "byte/every-write", "page/interval"] {
        crashed(name, &[b"a", b"b", b"c"], &ops);
    }
}

#[test]
fn updates_in_place_are_old_or_new() {
    let cell = Op::Put { key: 0, bytes: 64, tag: 0, ttl: None, updatable: true };
    let mut ops = vec![cell];
    ops.extend((0..40).map(|i| Op::Update {
        key: 0,
        share: 6 * i,
        bytes: [8, 4, 2, 16][i % 4],
        fresh: [None, Some(true)][i / 4 % 2],
    }));
    crashed("line/every-write", &[b"12345678"], &ops);
    crashed("byte/every-write", &[b"12345678"], &ops);
}

#[test]
fn expired_keys_stay_away_through_compaction_and_crashes() {
    let mut ops = Vec::new();
    for i in 0..60 {
        ops.push(Op::Put {
            key: i % 4,
            bytes: 60,
            tag: 0,
            ttl: (i % 2 == 0).then_some(500),
            updatable: i % 5 == 0,
        });
        if i % 3 == 0 {
            ops.extend([Op::Advance(200), Op::Maintain]);
        }
    }
    for name in ["line/every-write", "page/every-write", "line/interval"] {
        crashed(name, &[b"a", b"b", b"c", b"d"], &ops);
    }
}

#[test]
fn batches_are_applied_whole_or_not_at_all() {
    let ops: Vec<Op> = (0..30)
        .map(|i| Op::Batch {
            writes: (0..4).map(|key| (key, (i % 4 != key).then_some(20 + i), None)).collect(),
            expects: vec![(i % 4, true)],
        })
        .collect();
    for case in CASES {
        crashed(case.name, &[b"a", b"b", b"c", b"d"], &ops);
    }
}

fn open(medium: &SimMedium, durability: Durability, boot: u8) -> duramen::Result<StoreOn<SimMedium>> {
    let options = Options {
        durability,
        extent_bytes: Some(512),
        recovery_threads: 1,
        background: false,
        boot_id: Some([boot; 16]),
        ..Options::default()
    };
    StoreOn::open_on(medium.clone(), &options)
}

#[test]
fn a_failed_write_back_poisons_the_store_and_loses_nothing_acknowledged() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::Page, 64 << 10));
    let store = open(&medium, Durability::EveryWrite, 1).unwrap();
    store.put(b"a", b"old").unwrap();
    medium.fail_sync_in(0);
    assert_eq!(store.put(b"a", b"new").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(store.put(b"b", b"").unwrap_err().kind(), ErrorKind::Poisoned);
    medium.power_off();
    drop(store);
    let log = medium.log();
    let mut walker = Walker::new(&log);
    walker.advance(log.events.len());
    for choice in walker.choices(&mut Rng::new(1), 50) {
        let (memory, len) = walker.form(&choice);
        let image = SimMedium::from_image(Model::Page, 64 << 10, memory, len);
        let store = open(&image, Durability::EveryWrite, 2).unwrap();
        let value = store.get(b"a").unwrap().unwrap().to_vec();
        assert!(value == b"old" || value == b"new", "{value:?}");
        assert!(store.get(b"b").unwrap().is_none());
        image.power_off();
    }
}

/// A process is killed between the store of an update in place and its flush. The next process finds the new value in
/// the CPU's caches, in a block that it does not read thanks to a checkpoint. A value that it returns must survive a
/// power failure.
#[test]
fn an_unflushed_update_in_place_is_durable_before_it_is_returned() {
    let _alone = alone();
    const LEN_MAX: u64 = 256 << 10;
    let open = |medium: &SimMedium, boot: u8| {
        let mut options = Options {
            extent_bytes: Some(512),
            residence: Residence::Persistent,
            recovery_threads: 1,
            background: false,
            boot_id: Some([boot; 16]),
            ..Options::default()
        };
        options.tuning.close_checkpoint_bytes_min = 0;
        options.tuning.checkpoint_bytes_min = 4 << 10;
        StoreOn::open_on(medium.clone(), &options).unwrap()
    };
    let (old, new) = (*b"it was A", *b"it is  B");
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, LEN_MAX));
    let store = open(&medium, 1);
    let meta = Meta { updatable: true, ..Meta::default() };
    store.writer().unwrap().put_with(b"8 bytes!", old, meta).unwrap();
    for round in 0..4u8 {
        for i in 0..60u8 {
            store.put([i, round], [i; 100]).unwrap();
        }
        store.maintain().unwrap();
    }
    assert!(store.stats().checkpoints > 1, "{:?}", store.stats());
    let place = (0..LEN_MAX / 8).map(|word| Offset(word * 8));
    let mut place = place.filter(|&at| at.0 < medium.len() && medium.load_u64(at) == u64::from_le_bytes(old));
    let (at, None) = (place.next().unwrap(), place.next()) else { panic!("two copies") };
    assert!(medium.store_atomic(at, &new));
    let log = medium.log();
    medium.power_off();
    drop(store);

    // Flushed by the reader, by the close, or by the background thread.
    for (closes, maintains) in [(false, false), (true, false), (false, true)] {
        let mut medium = SimMedium::resume(log.clone());
        let mut store = open(&medium, 1);
        assert!(store.recovery().checkpointed > 0 && !store.recovery().clean, "{:?}", store.recovery());
        if closes {
            store.close().unwrap();
            medium = SimMedium::resume(medium.log());
            store = open(&medium, 1);
            assert!(store.recovery().clean);
        }
        for _ in 0..if maintains { 50 } else { 0 } {
            store.maintain().unwrap();
        }
        assert_eq!(store.get(b"8 bytes!").unwrap().unwrap().bytes(), new);
        let log = medium.log();
        medium.power_off();
        drop(store);
        let mut walker = Walker::new(&log);
        walker.advance(log.events.len());
        for choice in walker.choices(&mut Rng::new(3), 20) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::CacheLine, LEN_MAX, memory, len);
            assert_eq!(open(&image, 2).get(b"8 bytes!").unwrap().unwrap().bytes(), new);
            image.power_off();
        }
    }
}

#[test]
fn a_medium_that_ignores_a_sync_has_an_old_state_or_is_reported() {
    let _alone = alone();
    let (mut old, mut reported) = (0, 0);
    for lie in 0..12 {
        let medium = SimMedium::resume(Log::empty(Model::Page, 64 << 10));
        let store = open(&medium, Durability::EveryWrite, 1).unwrap();
        medium.lie_sync_in(lie);
        for i in 0..12u8 {
            store.put([i % 4], [i; 100]).unwrap();
        }
        medium.power_off();
        drop(store);
        let log = medium.log();
        let mut walker = Walker::new(&log);
        walker.advance(log.events.len());
        for choice in walker.choices(&mut Rng::new(u64::from(lie)), 40) {
            let (memory, len) = walker.form(&choice);
            let image = SimMedium::from_image(Model::Page, 64 << 10, memory, len);
            match open(&image, Durability::EveryWrite, 2) {
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                    reported += 1;
                }
                Ok(store) => {
                    for i in 0..4 {
                        let value = store.get([i]).unwrap().map(|value| value.to_vec());
                        let whole =
                            |v: &Vec<u8>| v.len() == 100 && v.iter().all(|&b| b == v[0] && b % 4 == i);
                        assert!(value.as_ref().is_none_or(whole), "{value:?}");
                    }
                    old += 1;
                }
            }
            image.power_off();
        }
    }
    assert!(old + reported > 0);
}

#[test]
fn a_flipped_bit_is_reported_or_changes_nothing() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, 64 << 10));
    let store = open(&medium, Durability::EveryWrite, 1).unwrap();
    let mut batch = Batch::new();
    for i in 0..20u8 {
        store.put([i], [i; 60]).unwrap();
        batch.put([i + 100], [i; 20]);
    }
    let _ = store.apply(&batch).unwrap();
    store.close().unwrap();
    let log = medium.log();
    let mut walker = Walker::new(&log);
    walker.advance(log.events.len());
    let mut rng = Rng::new(7);
    let mut reported = 0;
    for _ in 0..2_000 {
        let all = walker.all();
        let (memory, len) = walker.form(&all);
        memory.flip_bit(rng.below(24 << 13));
        let image = SimMedium::from_image(Model::CacheLine, 64 << 10, memory, len);
        match open(&image, Durability::EveryWrite, 2) {
            Err(_) => reported += 1,
            Ok(store) => {
                for i in 0..20u8 {
                    assert_eq!(store.get([i]).unwrap().as_deref(), Some(&[i; 60][..]));
                    assert_eq!(store.get([i + 100]).unwrap().as_deref(), Some(&[i; 20][..]));
                }
            }
        }
        image.power_off();
    }
    assert!(reported > 50, "{reported}");
}

#[test]
fn refused_growth_is_out_of_space_and_deletes_free_space() {
    let _alone = alone();
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, 4 << 20));
    let store = open(&medium, Durability::EveryWrite, 1).unwrap();
    medium.refuse_growth(true);
    let mut written = 0u32;
    let error = loop {
        match store.put(written.to_le_bytes(), [1; 100]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfSpace);
    for key in 0..written {
        assert!(store.get(key.to_le_bytes()).unwrap().is_some());
        assert!(store.delete(key.to_le_bytes()).unwrap());
    }
    assert!(store.is_empty());
    for key in 0..written / 2 {
        store.put(key.to_le_bytes(), [1; 100]).unwrap();
    }
}

#[test]
fn sixteen_keys_with_one_hash_are_all_kept() {
    let _alone = alone();
    let keys: Vec<[u8; 2]> = (0..16).map(|i| [b'k', i]).collect();
    for name in ["line/every-write", "page/interval"] {
        let setup = Setup {
            hash_mask: 0,
            tuning: duramen::tuning::Tuning::default(),
            extent_bytes: 512,
            len_max: 64 << 10,
            keys: keys.iter().map(|key| key.to_vec()).collect(),
            ops: (0..80)
                .map(|i| if i % 5 == 4 { Op::Delete { key: i % 16 } } else { put(i % 16, 20) })
                .collect(),
            places: 0,
            ..Setup::new(5, case(name))
        };
        run_setup(&setup, Effort { images_max: 1_500, ..Effort::default() })
            .unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn the_audit_finds_the_keys_that_the_store_returns() {
    let _alone = alone();
    let setup = Setup::new(3, case("line/every-write"));
    setup.clock.store(TIME_BEGIN, Relaxed);
    let medium = SimMedium::resume(Log::empty(Model::CacheLine, setup.len_max));
    let empty = Allowed::exactly(vec![None; setup.cells()]);
    let (store, _) = check::open_and_look(&setup, &medium, 1, &empty).unwrap();
    store.put(&setup.keys[1], b"value").unwrap();
    store.close().unwrap();
    let store = StoreOn::open_on(medium.clone(), &setup.options(1)).unwrap();
    let state = check::read_all(&setup, &store, true, None).unwrap();
    check::audit(&setup, &store, &medium, &state).unwrap();
    assert!(check::audit(&setup, &store, &medium, &vec![None; setup.cells()]).is_err());
    assert!(medium.len() > 0);
}
