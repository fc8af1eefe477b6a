//! Known classes of bugs in stores on persistent memory; docs/internals/crash-classes.md assigns each class its tests.

#![allow(clippy::unwrap_used, clippy::panic)] // A panic here is a failed test.

mod support;

use duramen::tuning::Tuning;
use duramen_crash::explore::run_setup;
use duramen_crash::oracle::{Allowed, Crash};
use duramen_crash::phases::Inside;
use duramen_crash::session::Session;
use duramen_crash::setup::{CASES, Op, TIME_BEGIN};
use duramen_crash::{Effort, Setup, check};
use duramen_media::Bytes;
use duramen_media::sim::{Log, Rng, SimMedium, Walker};
use std::sync::atomic::Ordering::Relaxed;
use support::{alone, crash, crash_at_every_point, crashed, put, small};

const KEYS: [&[u8]; 4] = [b"a", b"key b", b"c1234567", b"d"];

fn mixed(count: usize) -> Vec<Op> {
    (0..count)
        .map(|i| match i % 7 {
            3 => Op::Delete { key: (i / 3) % 4 },
            5 => Op::Batch {
                writes: vec![(i % 4, Some(30), None), ((i + 1) % 4, None, None)],
                expects: vec![],
            },
            6 => Op::Maintain,
            _ => put(i % 4, 20 + i % 90),
        })
        .collect()
}

/// The recorded run of `setup` on a medium, and the states allowed at each of its positions.
fn recorded(setup: &Setup) -> (Log, duramen_crash::oracle::History) {
    setup.clock.store(TIME_BEGIN, Relaxed);
    let medium = SimMedium::resume(Log::empty(setup.case.model, setup.len_max));
    let kept = medium.clone();
    let empty = Allowed::exactly(vec![None; setup.cells()]);
    let mut session = Session::open(setup, medium, 1, empty.clone(), &empty, &mut Rng::new(1)).unwrap();
    session.run(&setup.ops).unwrap();
    let (_, history) = session.power_off();
    (kept.take_log(), history)
}

#[test]
fn a_flush_that_omits_a_line_is_detected() {
    let _alone = alone();
    let mut ops = mixed(20);
    ops.extend([Op::Group, put(1, 70), put(2, 33), Op::FlushGroup]);
    let setup = small(1, "line/every-write", &KEYS, ops);
    crash(&setup, 500);
    let broken = Setup { flush_short: true, ..setup };
    let caught = run_setup(&broken, Effort::default()).unwrap_err();
    assert!(caught.what.contains("was not durable"), "{caught}");
}

#[test]
fn a_crash_at_any_event_of_creation_or_growth_leaves_no_store_or_a_working_one() {
    let _alone = alone();
    for case in CASES {
        let tuning = Tuning { extents_initial: 5, growth_bytes_min: 512, ..Tuning::default() };
        let ops: Vec<Op> = (0..12).map(|i| put(i % 4, 300)).collect();
        let setup = Setup { tuning, ..small(1, case.name, &KEYS, ops) };
        let totals = crash_at_every_point(&setup);
        for inside in [Inside::Create, Inside::Adopt, Inside::Grow, Inside::OpenBlock] {
            assert!(totals.inside[inside as usize] > 0, "{}: never inside of {inside:?}", case.name);
        }
    }
}

#[test]
fn a_record_duplicated_by_a_crash_does_not_reappear_after_a_delete() {
    let _alone = alone();
    let tuning = Tuning { compaction_bytes_min: Some(64), ..Tuning::default() };
    // Lasting keys among short-lived ones, so that compaction must move records of every block.
    let names: Vec<Vec<u8>> = (0..12u8).map(|i| vec![i; 3]).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let mut ops = Vec::new();
    for i in 0..40 {
        ops.push(if i % 3 == 0 { put(4 + i / 3 % 8, 40) } else { put(i % 4, 60) });
        if i % 4 == 3 {
            ops.extend([Op::Delete { key: (i / 4) % 4 }, Op::Commit, Op::Maintain]);
        }
    }
    for name in ["line/every-write", "byte/every-write", "page/every-write", "line/interval"] {
        let setup = Setup { tuning: tuning.clone(), ..small(1, name, &keys, ops.clone()) };
        // A crash at every point; then everything is deleted, and the store opened again, by some images of each.
        let totals = crash_at_every_point(&setup);
        assert!(totals.inside[Inside::Move as usize] > 0, "{name}: never inside of compaction");
        assert!(totals.inside[Inside::Free as usize] > 0, "{name}: never while a block was freed");
        crash(&setup, 1500);
    }
}

#[test]
fn an_index_that_splits_and_doubles_before_a_crash_loses_nothing() {
    let _alone = alone();
    let names: Vec<Vec<u8>> = (0..60u8).map(|i| vec![b'k', i]).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let ops: Vec<Op> = (0..90).map(|i| put(i % 60, 10)).collect();
    for name in ["line/every-write", "page/every-write"] {
        let setup = Setup {
            index: duramen::IndexKind::Hash,
            hash_mask: !0xffff_ffff,
            tuning: Tuning { split_count_min: 8, ..Tuning::default() },
            len_max: 64 << 10,
            ..small(1, name, &keys, ops.clone())
        };
        let totals = crash(&setup, 4000);
        assert!(totals.inside[Inside::Split as usize] > 0, "{name}");
        assert!(totals.inside[Inside::Doubling as usize] > 0, "{name}");
    }
}

#[test]
fn free_and_used_extents_match_the_medium_after_every_recovery() {
    let _alone = alone();
    for name in ["line/every-write", "page/every-write", "byte/manual"] {
        let tuning = Tuning { compaction_bytes_min: Some(64), growth_bytes_min: 512, ..Tuning::default() };
        let setup = Setup { tuning, ..small(1, name, &KEYS, mixed(40)) };
        let (log, history) = recorded(&setup);
        let (mut walker, mut rng, mut images) = (Walker::new(&log), Rng::new(2), 0);
        while let Some(position) = walker.next_point() {
            let (allowed, now) = history.allowed(position, position + 1, Crash::Power);
            setup.clock.store(now, Relaxed);
            for choice in walker.choices(&mut rng, 4) {
                let (memory, len) = walker.form(&choice);
                let medium = SimMedium::from_image(setup.case.model, setup.len_max, memory, len);
                let opened = check::open_and_look(&setup, &medium, 2, &allowed);
                let (store, state) = opened.unwrap_or_else(|what| panic!("{name}, event {position}: {what}"));
                check::audit(&setup, &store, &medium, &state)
                    .unwrap_or_else(|what| panic!("{name}, event {position}: {what}"));
                medium.power_off();
                images += 1;
            }
        }
        assert!(images > 200, "{name}: {images}");
    }
}

#[test]
fn no_crash_makes_later_writes_of_a_key_or_block_slow() {
    let _alone = alone();
    for name in ["line/every-write", "page/every-write"] {
        let tuning = Tuning { compaction_bytes_min: Some(64), ..Tuning::default() };
        let setup = Setup { tuning, ..small(1, name, &KEYS, mixed(30)) };
        let (log, _) = recorded(&setup);
        let (mut walker, mut rng, mut most) = (Walker::new(&log), Rng::new(3), 0);
        while walker.next_point().is_some() {
            for choice in walker.choices(&mut rng, 2) {
                let (memory, len) = walker.form(&choice);
                let log = Log::on(setup.case.model, setup.len_max, memory.snapshot(), len);
                drop(memory);
                let medium = SimMedium::resume(log);
                let store = duramen::StoreOn::open_on(medium.clone(), &setup.options(2)).unwrap();
                for key in &setup.keys {
                    // In events of the medium: a put takes about ten, compaction and growth take hundreds.
                    let before = medium.position();
                    store.put(key, b"after the crash").unwrap();
                    assert!(store.delete(key).unwrap());
                    most = most.max(medium.position() - before);
                }
                medium.power_off();
            }
        }
        assert!(most < 2_000, "{name}: {most} events for a put and a delete");
    }
}

#[test]
fn a_store_opens_at_another_address() {
    let _alone = alone();
    for case in CASES {
        let setup = small(1, case.name, &KEYS, mixed(30));
        setup.clock.store(TIME_BEGIN, Relaxed);
        let medium = SimMedium::resume(Log::empty(case.model, setup.len_max));
        let empty = Allowed::exactly(vec![None; setup.cells()]);
        let (store, _) = check::open_and_look(&setup, &medium, 1, &empty).unwrap();
        for (i, key) in setup.keys.iter().enumerate() {
            store.put(key, [i as u8; 100]).unwrap();
        }
        store.commit().unwrap();
        // The first mapping still exists, so the second has another address.
        let again = SimMedium::resume(medium.log());
        let bases = [&medium, &again].map(|medium| medium.pointer(duramen_media::Offset(0), 1));
        assert_ne!(bases[0], bases[1]);
        let next = duramen::StoreOn::open_on(again.clone(), &setup.options(1)).unwrap();
        for (i, key) in setup.keys.iter().enumerate() {
            assert_eq!(next.get(key).unwrap().as_deref(), Some(&[i as u8; 100][..]), "{}", case.name);
        }
        again.power_off();
        medium.power_off();
    }
}

#[test]
fn a_value_is_read_with_its_own_tag_and_expiry() {
    // The writes differ only in tag and expiry; conditional writes distinguish each of them.
    let ops: Vec<Op> = (0..60)
        .map(|i| match i % 6 {
            4 => Op::Swap { key: i % 4, fresh: true, bytes: Some(0) },
            5 => Op::Advance(400),
            _ => Op::Put {
                key: i % 4,
                bytes: 0,
                tag: i as u8,
                ttl: [None, Some(300), Some(5_000)][i % 3],
                updatable: i % 2 == 0,
            },
        })
        .collect();
    for case in CASES {
        crashed(case.name, &KEYS, &ops);
    }
}

#[test]
fn batches_at_the_borders_of_blocks_are_whole_or_absent() {
    let _alone = alone();
    // A block of one extent of 512 bytes has 448 for records. Header and trailer take 24 each, the key 8.
    for extents in 1..=3usize {
        let exact = extents * 512 - 64 - 24 - 24 - 8;
        for bytes in [exact - 9, exact - 8, exact - 7, exact - 1, exact, exact + 1, exact + 8, exact + 9] {
            let batch = |bytes| Op::Batch { writes: vec![(2, Some(bytes), None)], expects: vec![] };
            let ops = vec![batch(bytes), batch(bytes), put(0, 8), batch(bytes)];
            for name in ["line/every-write", "page/every-write"] {
                crash(&small(1, name, &KEYS, ops.clone()), 150);
            }
        }
    }
}

#[test]
fn batches_larger_than_a_bucket_a_segment_or_a_block_are_whole_or_absent() {
    let _alone = alone();
    // Eight slots of a bucket, sixteen of two, and the stash after them; the keys share most hash bits.
    let names: Vec<Vec<u8>> = (0..40u8).map(|i| vec![b'k', i]).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    for count in [7, 8, 9, 15, 16, 17, 22, 23, 24, 39, 40] {
        let batch = |delete: bool| Op::Batch {
            writes: (0..count).map(|key| (key, (!delete).then_some(5), None)).collect(),
            expects: vec![],
        };
        let setup =
            Setup { hash_mask: 0, ..small(1, "line/every-write", &keys, vec![batch(false), batch(true)]) };
        crash(&setup, 300);
    }
}

#[test]
fn every_kind_of_key_and_value_survives_on_every_medium() {
    let lengths = [0, 1, 7, 8, 9, 63, 64, 65, 200];
    let names: Vec<Vec<u8>> = lengths.iter().map(|&bytes| vec![b'n'; bytes]).collect();
    let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    let mut ops = Vec::new();
    for (i, bytes) in [0, 1, 7, 8, 9, 63, 64, 65, 200, 447, 448, 449, 1100].into_iter().enumerate() {
        let key = i % keys.len();
        ops.push(Op::Put { key, bytes, tag: 7, ttl: (i % 3 == 0).then_some(9_000), updatable: i % 2 == 0 });
        ops.push(Op::Update { key, share: 128, bytes: bytes.min(8), fresh: None });
        let other = (key + 4) % keys.len();
        let writes = vec![(other, Some(bytes.min(300)), Some(8_000)), ((key + 1) % keys.len(), None, None)];
        ops.push(Op::Batch { writes, expects: vec![] });
    }
    for case in CASES {
        crashed(case.name, &keys, &ops);
    }
}

#[test]
fn a_store_is_recovered_after_repeated_crashes_in_recovery() {
    let _alone = alone();
    for name in ["line/every-write", "page/interval"] {
        let effort = Effort { images: 12, images_max: 3_000, depth: 3, until: None };
        let totals = run_setup(&small(1, name, &KEYS, mixed(20)), effort).unwrap();
        assert!(totals.depth >= 4, "{name}: {totals:?}");
        assert!(totals.inside[Inside::RecoveryAgain as usize] > 0, "{name}");
    }
}

#[test]
fn a_tombstone_with_an_overflowed_count_is_dropped_and_its_key_stays_deleted() {
    let _alone = alone();
    let tuning = Tuning { compaction_bytes_min: Some(32), ..Tuning::default() };
    let mut ops: Vec<Op> = (0..140).map(|_| put(0, 10)).collect();
    ops.extend([Op::Delete { key: 0 }, Op::Commit]);
    ops.extend((0..12).map(|i| if i % 2 == 0 { Op::Maintain } else { Op::Commit }));
    ops.extend([put(0, 20), Op::Delete { key: 0 }]);
    for name in ["line/every-write", "page/every-write"] {
        let setup = Setup { tuning: tuning.clone(), ..small(1, name, &KEYS, ops.clone()) };
        let (log, _) = recorded(&setup);
        let medium = SimMedium::resume(log);
        let store = duramen::StoreOn::open_on(medium.clone(), &setup.options(1)).unwrap();
        assert!(store.is_empty());
        assert!(store.recovery().records < 20, "{name}: {:?}", store.recovery());
        medium.power_off();
        drop(store);
        crash(&setup, 1500);
    }
}
