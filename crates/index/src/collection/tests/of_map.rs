//! The map. Its keys are numbers below `KEYS`. The record of a key lies at any of several places, which give the key.

use super::of_checkpoint::again;
use super::of_pages::pages;
use crate::collection::map::Map;
use crate::collection::position_of;
use crate::ordered::Sorted;
use crate::{Keys, Slot};
use duramen_media::Offset;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KEYS: u64 = 1 << 32;
const CASES: u32 = 24;

/// Hashes numbers, in various ways.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hashes {
    /// As good hashes are.
    Even,
    /// Few different ones, spread over all values.
    Few(u64),
    /// All with the same prefix.
    Close(u32),
    /// In order.
    Ordered,
}

pub(super) fn mix(key: u64) -> u64 {
    let bits = key.wrapping_add(0x1234_5678).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 29
}

impl Hashes {
    pub(super) fn hash(self, key: u64) -> u64 {
        match self {
            Self::Even => mix(key),
            Self::Few(count) => mix(mix(key) % count),
            Self::Close(bits) => mix(key) >> bits,
            Self::Ordered => key << 48,
        }
    }
}

/// The log: the damaged keys cannot be read.
pub(super) struct Log {
    pub hashes: Hashes,
    pub damaged: BTreeSet<u64>,
}

fn key_of(slot: Slot) -> u64 {
    slot.location().0 / 8 % KEYS - 1
}

/// A slot for the record of a key, one of many.
pub(super) fn slot_of(key: u64, place: u64) -> Slot {
    Slot::new(Offset((key + 1 + place % 16 * KEYS) * 8))
}

impl Keys for Log {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        let key = key_of(Slot::new(at));
        (!self.damaged.contains(&key)).then(|| self.hashes.hash(key))
    }

    fn prefetch_at(&self, _at: Offset) {}
}

struct Tested {
    map: Map,
    model: BTreeMap<u64, Slot>,
    log: Log,
}

impl Tested {
    fn new(hashes: Hashes) -> Self {
        Self { map: Map::new(pages()), model: BTreeMap::new(), log: Log { hashes, damaged: BTreeSet::new() } }
    }

    fn hash(&self, key: u64) -> u64 {
        self.log.hashes.hash(key)
    }

    fn find(&self, key: u64) -> Option<Slot> {
        self.map.find(self.hash(key), |slot| key_of(slot) == key)
    }

    fn put(&mut self, key: u64, slot: Slot) {
        let hash = self.hash(key);
        let old = self.map.set(hash, slot, |slot| key_of(slot) == key);
        assert_eq!(old, self.model.insert(key, slot), "previous slot of {key}");
        if old.is_none() {
            self.map.insert(hash, slot, &self.log);
        }
    }

    fn remove(&mut self, key: u64) {
        let old = self.map.remove(self.hash(key), |slot| key_of(slot) == key, &self.log);
        assert_eq!(old, self.model.remove(&key), "previous slot of {key}");
    }

    fn rebuild(&mut self) {
        let position = |key: &u64| position_of(self.hash(*key));
        let mut all: Vec<_> =
            self.model.iter().map(|(key, &slot)| Sorted::new([position(key), 0], slot)).collect();
        all.sort_unstable_by_key(|element| element.words()[0]);
        self.map = Map::new(pages());
        self.map.build(&all);
    }

    fn reload(&mut self) {
        let map = std::mem::replace(&mut self.map, Map::new(pages()));
        self.map = again(map, None).0;
        self.model.values_mut().for_each(|slot| *slot = slot.with_pending(false));
    }

    fn check(&self) {
        self.map.check(&|slot| self.hash(key_of(slot)));
        let live = self.model.values().filter(|slot| !slot.is_tombstone()).count() as u64;
        assert_eq!(self.map.len(), live);
        assert_eq!(self.map.tombstones(), self.model.len() as u64 - live);
        let mut all = BTreeMap::new();
        self.map.each(&mut |slot| assert_eq!(all.insert(key_of(slot), slot), None, "a key is there twice"));
        assert_eq!(all, self.model);
        assert!(self.model.iter().all(|(&key, &slot)| self.find(key) == Some(slot)), "a key is not found");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Put(u64, u64),
    Tombstone(u64, u64),
    Remove(u64),
    Find(u64),
    /// This many consecutive keys.
    PutMany(u64, u64),
    RemoveMany(u64, u64),
    Damage(u64),
    Clear(usize),
    /// Through an index checkpoint.
    Reload,
    /// Rebuilt from all elements.
    Rebuild,
}

fn steps(keys: u64, many: u64) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..keys;
    let step = prop_oneof![
        8 => (key.clone(), any::<u64>()).prop_map(|(key, place)| Step::Put(key, place)),
        2 => (key.clone(), any::<u64>()).prop_map(|(key, place)| Step::Tombstone(key, place)),
        6 => key.clone().prop_map(Step::Remove),
        2 => key.clone().prop_map(Step::Find),
        4 => (key.clone(), 1..many).prop_map(|(key, count)| Step::PutMany(key, count)),
        3 => (key.clone(), 1..many).prop_map(|(key, count)| Step::RemoveMany(key, count)),
        1 => key.prop_map(Step::Damage),
        1 => (1..20usize).prop_map(Step::Clear),
        1 => Just(Step::Reload),
        1 => Just(Step::Rebuild),
    ];
    prop::collection::vec(step, 1..250)
}

fn hashes() -> impl Strategy<Value = Hashes> {
    prop_oneof![
        Just(Hashes::Even),
        (1..2_000u64).prop_map(Hashes::Few),
        (1..50u32).prop_map(Hashes::Close),
        Just(Hashes::Ordered),
    ]
}

fn run(hashes: Hashes, steps: &[Step], damages: bool) {
    let mut tested = Tested::new(hashes);
    for (number, &step) in steps.iter().enumerate() {
        match step {
            Step::Put(key, place) => {
                let slot = slot_of(key, place).with_more_stale(place % 32);
                tested.put(key, slot.with_pending(place % 3 == 0));
            }
            Step::Tombstone(key, place) => {
                tested.put(key, slot_of(key, place).with_tombstone(true).with_more_stale(3))
            }
            Step::Remove(key) => tested.remove(key),
            Step::Find(key) => assert_eq!(tested.find(key), tested.model.get(&key).copied()),
            Step::PutMany(from, count) => {
                (from..from + count).for_each(|key| tested.put(key, slot_of(key, key)));
            }
            Step::RemoveMany(from, count) => (from..from + count).for_each(|key| tested.remove(key)),
            Step::Reload => tested.reload(),
            Step::Rebuild => tested.rebuild(),
            Step::Damage(key) if damages => {
                tested.log.damaged.insert(key);
            }
            Step::Damage(_) => {}
            Step::Clear(pages) if number % 16 == 0 => {
                let (mut cleared, mut calls) = (Vec::new(), 0);
                while !tested.map.clear_some(pages, &mut |slot| cleared.push(key_of(slot))) {
                    assert_eq!(tested.map.len(), 0);
                    assert!(cleared.first().is_none_or(|&key| tested.find(key).is_none()));
                    calls += 1;
                    assert!(calls < 10_000);
                }
                cleared.sort_unstable();
                assert_eq!(cleared, tested.model.keys().copied().collect::<Vec<_>>());
                tested.model.clear();
            }
            Step::Clear(_) => {}
        }
        if number % 8 == 0 {
            tested.check();
        }
    }
    tested.check();
    let keys: Vec<u64> = tested.model.keys().copied().collect();
    keys.into_iter().for_each(|key| tested.remove(key));
    tested.check();
    assert_eq!(tested.map.check(&|_| 0), 0, "an empty map has pages");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_map_holds_what_a_model_holds(hashes in hashes(), steps in steps(3_000, 2_500)) {
        run(hashes, &steps, false);
    }

    #[test]
    fn slots_of_damaged_records_survive_lookups(hashes in hashes(), steps in steps(3_000, 2_500)) {
        run(hashes, &steps, true);
    }

    #[test]
    fn a_small_map_holds_what_a_model_holds(hashes in hashes(), steps in steps(60, 20)) {
        run(hashes, &steps, true);
    }

    /// A scan during which others change the map between any two steps.
    #[test]
    fn a_scan_visits_every_lasting_element(
        hashes in hashes(),
        before in 0..4_000u64,
        changes in prop::collection::vec((any::<u64>(), 0..1_500u64, any::<bool>()), 1..12),
        every in 1..40usize,
    ) {
        let mut tested = Tested::new(hashes);
        (0..before).for_each(|key| tested.put(key, slot_of(key, 0)));
        // Every third key stays.
        let (mut cursor, mut seen, mut scans) = (0, BTreeSet::new(), 0usize);
        let mut changes = changes.into_iter().cycle();
        loop {
            cursor = tested.map.scan(cursor, &mut |slot| {
                seen.insert(key_of(slot));
            });
            if cursor == 0 {
                break;
            }
            scans += 1;
            if scans.is_multiple_of(every) && scans < 40 * every {
                let (from, count, puts) = changes.next().unwrap();
                for key in (from % 6_000..).take(count as usize).filter(|key| key % 3 != 0) {
                    if puts {
                        tested.put(key, slot_of(key, from));
                    } else {
                        tested.remove(key);
                    }
                }
            }
        }
        let missed = (0..before).step_by(3).find(|key| !seen.contains(key));
        prop_assert_eq!(missed, None);
    }

    #[test]
    fn a_scan_of_an_unchanged_map_visits_each_element_once(hashes in hashes(), count in 0..6_000u64) {
        let mut tested = Tested::new(hashes);
        (0..count).for_each(|key| tested.put(key, slot_of(key, 0)));
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            cursor = tested.map.scan_once(cursor, &tested.log, &mut |slot| seen.push(key_of(slot)));
            if cursor == 0 {
                break;
            }
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }

    /// A walk, page by page, during which the compactor removes tombstones between any two pages, so that pages are
    /// merged.
    #[test]
    fn a_walk_visits_each_element_once_while_tombstones_are_removed(
        hashes in hashes(),
        count in 0..6_000u64,
        live in 1..20u64,
        leaving in prop::collection::vec((any::<u64>(), 0..3_000u64), 1..12),
    ) {
        let mut tested = Tested::new(hashes);
        for key in 0..count {
            tested.put(key, slot_of(key, 0).with_tombstone(key % live != 0));
        }
        let (mut position, mut seen) = (Some(0), Vec::new());
        let mut leaving = leaving.into_iter();
        while let Some(at) = position {
            position = tested.map.each_at(at, &tested.log, &mut |slot| {
                if !slot.is_tombstone() {
                    seen.push(key_of(slot));
                }
            });
            let (from, many) = leaving.next().unwrap_or_default();
            for key in (from % count.max(1)..count).take(many as usize).filter(|key| key % live != 0) {
                tested.remove(key);
            }
        }
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..count).step_by(live as usize).collect::<Vec<_>>());
    }
}

/// A generator of random words.
pub(super) fn words(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed += 1;
        mix(seed)
    }
}

#[test]
fn a_map_grows_and_shrinks_through_all_sizes() {
    let count = 200_000;
    let mut tested = Tested::new(Hashes::Even);
    for key in 0..count {
        tested.put(key, slot_of(key, 0));
        if key.is_power_of_two() {
            tested.check();
        }
    }
    tested.check();
    for key in 0..count {
        tested.remove(key);
        if (count - key).is_power_of_two() {
            tested.check();
        }
    }
    tested.check();
    assert_eq!(tested.map.pages().bytes(), 0);
}

#[test]
fn splitting_ends_although_hashes_are_equal() {
    let mut tested = Tested::new(Hashes::Few(1));
    let count = 2_000;
    (0..count).for_each(|key| tested.put(key, slot_of(key, 0)));
    tested.check();
    assert!(tested.map.bytes() < 4096 + 200 + count * 64, "{} bytes", tested.map.bytes());
    (0..count).for_each(|key| tested.remove(key));
    tested.check();
}

/// As when a collection is copied, or loaded from a file that a collection was written to.
#[test]
fn elements_inserted_in_hash_order_are_split_into_pages() {
    let mut hashes: Vec<u64> = (0..200_000).map(mix).collect();
    hashes.sort_unstable();
    let mut map = Map::new(pages());
    // Each record lies where its number says.
    struct Sorted(Vec<u64>);
    impl Keys for Sorted {
        fn hash_at(&self, at: Offset) -> Option<u64> {
            self.0.get(key_of(Slot::new(at)) as usize).copied()
        }

        fn prefetch_at(&self, _at: Offset) {}
    }
    let sorted = Sorted(hashes);
    for (key, &hash) in sorted.0.iter().enumerate() {
        map.insert(hash, slot_of(key as u64, 0), &sorted);
        assert_eq!(map.overflow(), 0, "after {key} elements");
        if key > 10_000 && key % 1_000 == 0 {
            let bytes = map.bytes() as f64 / map.len() as f64;
            // A split page gets no more elements, and stays half full.
            assert!(bytes < 20.0, "{bytes} bytes an element of {key}");
        }
    }
    map.check(&|slot| sorted.0[key_of(slot) as usize]);
}

#[test]
fn pages_are_well_filled_at_every_size() {
    let mut tested = Tested::new(Hashes::Even);
    let mut worst: f64 = 0.0;
    for key in 0..400_000u64 {
        tested.map.insert(tested.hash(key), slot_of(key, 0), &tested.log);
        if key > 10_000 && key % 1_000 == 0 {
            worst = worst.max(tested.map.bytes() as f64 / tested.map.len() as f64);
        }
    }
    assert!(worst < 13.8, "{worst} bytes an element");
}

/// Chi square of draws against even chances, as standard deviations from its mean.
fn unevenness(map: &Map, draws: u64, keys: &BTreeSet<u64>) -> f64 {
    let mut counts: BTreeMap<u64, u64> = keys.iter().map(|&key| (key, 0)).collect();
    let mut random = words(draws);
    for _ in 0..draws {
        let key = key_of(map.random(&mut random).unwrap());
        *counts.get_mut(&key).expect("a key that is not there") += 1;
    }
    let mean = draws as f64 / keys.len() as f64;
    let chi: f64 = counts.values().map(|&count| (count as f64 - mean).powi(2) / mean).sum();
    let freedom = keys.len() as f64 - 1.0;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn random_elements_are_evenly_drawn() {
    for (hashes, count, step) in [
        (Hashes::Even, 10, 1),
        (Hashes::Even, 700, 1),
        (Hashes::Even, 6_000, 1),
        (Hashes::Even, 6_000, 7),
        (Hashes::Close(3), 6_000, 1),
        (Hashes::Few(3), 2_400, 1),
    ] {
        let mut tested = Tested::new(hashes);
        (0..count).for_each(|key| tested.put(key, slot_of(key, 0)));
        // Others are tombstones.
        for key in (0..count).filter(|key| key % step != 0) {
            tested.put(key, slot_of(key, 1).with_tombstone(true));
        }
        let keys = (0..count).step_by(step as usize).collect();
        let unevenness = unevenness(&tested.map, count * 200, &keys);
        assert!(unevenness.abs() < 5.0, "{hashes:?}, {count} by {step}: {unevenness} standard deviations");
    }
}

#[test]
fn a_random_element_is_found_among_tombstones() {
    let count = 20_000;
    let mut tested = Tested::new(Hashes::Even);
    assert_eq!(tested.map.random(words(1)), None);
    (0..count).for_each(|key| tested.put(key, slot_of(key, 0).with_tombstone(true)));
    assert_eq!(tested.map.random(words(1)), None);
    tested.put(77, slot_of(77, 1));
    assert_eq!(tested.map.random(words(1)).map(key_of), Some(77));
}
