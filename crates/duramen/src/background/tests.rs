//! How long readers verify what they read.

use crate::log::blocks::Use;
use crate::options::Options;
use crate::sync::reclaim;
use duramen_media::MediumKind;

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
