//! Elements whose hashes are alike.

use super::of_map::{Hashes, Log, slot_of};
use crate::Slot;
use crate::collection::{Arena, CollectionIndex, Order};
use crate::stripes::Stripes;
use duramen_log::sync::Arc;
use std::collections::BTreeSet;

const HASH: u64 = 0x1234_5678_9abc_def0;

#[test]
fn elements_of_one_hash_are_distinguished_by_their_records_and_a_sole_one_without() {
    let log = Log { hashes: Hashes::Few(1), damaged: BTreeSet::new() };
    let stripes = Arc::new(Stripes::new(4));
    let index = CollectionIndex::new(stripes, &Arc::new(Arena::default()), Order::None);
    let sole = || index.lock(HASH).find_sole().map(|place| place.get());
    let is = |key: u64| move |slot: Slot| (slot == slot_of(key, 0)).then_some(key);
    assert_eq!(sole(), None);
    for key in 0..20 {
        index.lock(HASH).insert(&[], slot_of(key, 0), &log);
        assert_eq!(sole(), (key == 0).then_some(slot_of(0, 0)));
        for other in 0..=key + 1 {
            let found = index.find(HASH, is(other)).map(|(_, found)| found);
            assert_eq!(found, (other <= key).then_some(other), "of {} elements", key + 1);
        }
    }
    for key in 0..19 {
        assert_eq!(sole(), None);
        let locked = index.lock(HASH);
        let (place, _) = locked.find_with(is(key)).unwrap();
        locked.remove(&place, &log);
    }
    assert_eq!(sole(), Some(slot_of(19, 0)));
}

#[test]
fn a_prefetch_of_elements_returns_their_slots() {
    const OTHER: u64 = 0x0fed_cba9_8765_4321;
    let log = Log { hashes: Hashes::Few(1), damaged: BTreeSet::new() };
    let index = CollectionIndex::new(Arc::new(Stripes::new(4)), &Arc::new(Arena::default()), Order::None);
    let fetched = |hashes: &[u64]| {
        let mut slots = Vec::new();
        index.prefetch_all(hashes, |slot| slots.push(slot));
        slots
    };
    assert_eq!(fetched(&[HASH, OTHER]), []);
    index.lock(HASH).insert(&[], slot_of(1, 0), &log);
    index.lock(OTHER).insert(&[], slot_of(2, 0), &log);
    assert_eq!(fetched(&[OTHER, HASH, !HASH]), [slot_of(2, 0), slot_of(1, 0)]);
}
