//! What a move counts that others cut short, and how long readers verify what they read.

use crate::format::Unit;
use crate::log::blocks::Block;
use crate::log::blocks::Use;
use crate::options::Options;
use crate::sync::Mutex;
use crate::sync::reclaim;
use crate::sync::{Arc, lock};
use crate::tuning::Phase;
use crate::tuning::Tuning;
use duramen_media::MediumKind;

/// Overwritten between its copy and the end of a move for which there was not room enough, an original was counted by the
/// overwriter and by the move.
#[test]
fn an_original_is_counted_once_though_its_move_is_cut_short() {
    // Two records fill a unit.
    const VALUE: [u8; 1900] = [1; 1900];
    type Hook = Arc<Mutex<Option<Box<dyn FnMut() + Send>>>>;
    let hook: Hook = Arc::default();
    let hooked = Arc::clone(&hook);
    let on_phase = move |phase, begins| {
        if let (Phase::OpenBlock, true, Some(hook)) = (phase, begins, &mut *lock(&hooked)) {
            hook();
        }
    };
    let options = Options {
        medium: MediumKind::Volatile,
        unit_bytes: Some(4096),
        len_max: 1 << 20,
        background: false,
        tuning: Tuning { on_phase: Some(Arc::new(on_phase)), ..Tuning::default() },
        ..Options::default()
    };
    let store = options.open("none").unwrap();
    let mut writer = store.writer().unwrap();
    for key in 0..40u8 {
        writer.put(&[key], &VALUE).unwrap();
    }
    // So that an overwrite needs no space.
    store.put(b"other", b"").unwrap();
    let keeper = store.keeper();
    let log = store.log();
    let units = log.space().units();
    let is_source = |(_, block, state): &(Unit, &Block, Use)| *state == Use::Sealed && block.units() >= 3;
    let (unit, ..) = log.blocks.walk(0..units).find(is_source).unwrap();
    let mut scratch = Vec::new();
    let (bytes, records) = keeper.whole_records(unit, &mut scratch).unwrap();
    let first = records[0].1.key(&bytes[records[0].0 as usize..]).to_vec();
    let taken = log.space().withhold(0, units);
    let (from, length) = taken.iter().copied().max_by_key(|&(_, length)| length).unwrap();
    assert!(length >= 3 && records.len() >= 5, "{length} units, {} records", records.len());
    for lonely in [0, 2] {
        log.space().give(Unit(from.0 + lonely), 1);
    }
    let (other, mut opened) = (store.clone(), 0);
    *lock(&hook) = Some(Box::new(move || {
        opened += 1;
        if opened == 2 {
            // The first unit is full of copies.
            other.put(&first, b"").unwrap();
        }
    }));
    let moved = keeper.move_records(&mut lock(&keeper.compaction.mover), unit, bytes, &records);
    assert!(!moved.unwrap());
    *lock(&hook) = None;
    for (run, length) in taken {
        if run != from {
            log.space().give(run, length);
        } else {
            log.space().give(Unit(from.0 + 1), 1);
            log.space().give(Unit(from.0 + 3), length - 3);
        }
    }
    assert_eq!(store.audit(), Vec::<String>::new());
}

/// A reader that has read a slot verifies the record then. The slot may have been set anew since, and the block of the damaged record it
/// led to retired: it is to be verified all the same.
#[test]
fn records_are_verified_until_the_readers_have_left_who_may_have_a_slot_of_a_damaged_one() {
    let options = Options {
        medium: MediumKind::Volatile,
        unit_bytes: Some(4096),
        len_max: 4 << 20,
        background: false,
        ..Options::default()
    };
    let store = options.open("none").unwrap();
    let mut writer = store.writer().unwrap();
    for key in 0..200u8 {
        writer.put(&[key], &[key; 1900]).unwrap();
    }
    let (keeper, log) = (store.keeper(), store.log());
    let records = &keeper.records;
    let units = log.space().units();
    let (unit, ..) = log.blocks.walk(0..units).find(|(_, _, state)| *state == Use::Sealed).unwrap();
    keeper.set_aside(unit);
    assert!(records.has_doubts());
    let reader = reclaim::pin();
    // Nothing is damaged in truth: the block goes at once.
    keeper.maintain().unwrap();
    assert_eq!(store.stats().damaged_blocks, 0);
    assert!(records.has_doubts());
    drop(reader);
    for _ in 0..3 {
        keeper.maintain().unwrap();
    }
    assert!(!records.has_doubts());
    for key in 0..200u8 {
        assert_eq!(store.get(&[key]).unwrap().as_deref(), Some(&[key; 1900][..]));
    }
}
