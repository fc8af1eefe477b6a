//! A collection's index as pages of a checkpoint, and its handling of other bytes.

use super::of_map::{Hashes, Log, mix, slot_of};
use super::of_pages::pages;
use crate::attached::{Attached, KeepFilter};
use crate::collection::indexes::Indexes;
use crate::collection::map::Map;
use crate::collection::tree::Tree;
use crate::collection::{Arena, CollectionIndex, Counted, Order, checkpoint, position_of};
use crate::ordered::Sorted;
use crate::stripes::Stripes;
use crate::{KeyBytes, Keys, Slot};
use duramen_log::sync::{Arc, Mutex};
use duramen_media::Offset;
use proptest::prelude::*;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

impl KeyBytes for Log {
    fn key_at(&self, _: Offset) -> Option<&[u8]> {
        None
    }

    fn value_at(&self, _: Offset) -> Option<&[u8]> {
        None
    }
}

fn log() -> Log {
    Log { hashes: Hashes::Even, damaged: BTreeSet::new() }
}

type Written = Vec<(u64, Vec<u8>)>;

fn pages_of(map: Map, tree: Option<Tree>) -> Written {
    let (keys, tombstones) = (map.len(), map.tombstones());
    let mut written = Vec::new();
    let indexes = Mutex::new(Indexes::new(map, tree, Order::None));
    let loaded = checkpoint::dump(&indexes, &log(), &|slot| slot.with_pending(false), &mut |first, page| {
        written.push((first, page.to_vec()));
        Ok(true)
    });
    let loaded = loaded.unwrap().unwrap();
    assert_eq!((loaded.keys, loaded.slots, loaded.changed), (keys, keys + tombstones, false));
    let slots = written.iter().flat_map(|(_, page)| checkpoint::slots(page));
    assert_eq!(slots.count() as u64, loaded.slots);
    written
}

/// Sends the indexes through a checkpoint.
pub(super) fn again(map: Map, tree: Option<Tree>) -> (Map, Option<Tree>) {
    let has_tree = tree.is_some();
    let written = pages_of(map, tree);
    let pages_of_checkpoint: Vec<_> = written.iter().map(|(first, page)| (*first, &page[..])).collect();
    assert!(pages_of_checkpoint.iter().all(|(_, page)| checkpoint::is_page(page)));
    checkpoint::check(&pages_of_checkpoint, has_tree).unwrap();
    // SAFETY: `written` outlives it, and nobody changes it.
    let attached = unsafe { Attached::new(&pages_of_checkpoint, KeepFilter::All) };
    let (mut map, mut tree) = (Map::new(pages()), has_tree.then(|| Tree::new(pages())));
    checkpoint::read(&mut map, tree.as_mut(), &attached);
    assert_eq!(attached.left(), 0);
    (map, tree)
}

fn of_keys(count: u64, has_tree: bool) -> (Map, Option<Tree>) {
    let log = log();
    let (mut map, mut tree) = (Map::new(pages()), has_tree.then(|| Tree::new(pages())));
    for key in 0..count {
        let slot = slot_of(key, key);
        map.insert(log.hashes.hash(key), slot, &log);
        if let Some(tree) = &mut tree {
            tree.insert(key, slot, |_| Ordering::Equal);
        }
    }
    (map, tree)
}

#[test]
fn pages_that_are_not_one_index_are_refused() {
    let (map, tree) = of_keys(40_000, true);
    let written = pages_of(map, tree);
    let all: Vec<_> = written.iter().map(|(first, page)| (*first, &page[..])).collect();
    checkpoint::check(&all, true).unwrap();
    assert!(all.len() > 8, "{} pages", all.len());
    assert!(checkpoint::check(&all, false).unwrap_err().contains("in order"));
    assert!(checkpoint::check(&all[1..], true).unwrap_err().contains("at the wrong place"));
    let maps = all.iter().filter(|(_, page)| page[0] == 1).count();
    assert!(checkpoint::check(&all[..maps - 1], true).unwrap_err().contains("missing"));
    let twice = [&all[..maps], &all[..maps]].concat();
    assert!(checkpoint::check(&twice, true).unwrap_err().contains("after its last"));
    let back = [&all[maps..], &all[..maps]].concat();
    assert!(checkpoint::check(&back, true).unwrap_err().contains("in order"));
}

#[test]
fn a_checkpoint_of_an_index_ends_where_space_ends() {
    let (map, tree) = of_keys(4_000, true);
    let all = pages_of(map, tree).len();
    for room in [0, 1, all - 1] {
        let mut taken = 0;
        let (map, tree) = of_keys(4_000, true);
        let indexes = Mutex::new(Indexes::new(map, tree, Order::None));
        let dumped = checkpoint::dump(&indexes, &log(), &|slot| slot, &mut |_, _| {
            taken += 1;
            Ok(taken <= room)
        });
        assert!(dumped.unwrap().is_none(), "room for {room} of {all} pages");
        assert_eq!(taken, room + 1);
    }
}

/// A record lies at one of several places of its key. Those of the first half are in blocks that the checkpoint keeps.
const PLACES: u64 = 16;
const KEPT: u64 = PLACES / 2;

/// Keys and values of all records. There are few values, so that many elements have the same order.
struct Bytes(BTreeMap<Offset, ([u8; 8], [u8; 8])>);

impl Bytes {
    fn new(keys: u64) -> Self {
        let of = |key: u64| (0..PLACES).map(move |place| (key, place));
        let bytes = (0..keys).flat_map(of).map(|(key, place)| {
            let order = mix(key * PLACES + place) % 50;
            (slot_of(key, place).location(), (key.to_be_bytes(), order.to_be_bytes()))
        });
        Self(bytes.collect())
    }

    fn is(&self, slot: Slot, key: u64) -> bool {
        self.key_at(slot.location()) == Some(&key.to_be_bytes()[..])
    }
}

fn found(index: &CollectionIndex, bytes: &Bytes, key: u64) -> Option<Slot> {
    let is = |slot: Slot| bytes.is(slot, key).then_some(());
    Some(index.find(mix(key), is)?.0)
}

impl Keys for Bytes {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        Some(mix(u64::from_be_bytes(self.0[&at].0)))
    }

    fn prefetch_at(&self, _: Offset) {}
}

impl KeyBytes for Bytes {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        Some(&self.0[&at].0)
    }

    fn value_at(&self, at: Offset) -> Option<&[u8]> {
        Some(&self.0[&at].1)
    }
}

fn empty_index() -> CollectionIndex {
    CollectionIndex::new(Arc::new(Stripes::new(4)), &Arc::new(Arena::default()), Order::Value)
}

/// An index that is written to while a checkpoint of it is written, and the records that a crash then leaves.
struct Busy {
    index: Arc<CollectionIndex>,
    bytes: Bytes,
    keys: u64,
    /// The newest record of each key that counts.
    durable: BTreeMap<u64, Slot>,
    /// Records of an active transaction, each with the previous one.
    running: BTreeMap<u64, (Slot, Slot)>,
    /// The next place of each key.
    next: BTreeMap<u64, u64>,
}

impl Busy {
    fn new(keys: u64) -> Self {
        let index = Arc::new(empty_index());
        let (durable, running, next) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { index, bytes: Bytes::new(keys), keys, durable, running, next }
    }

    fn slot(&self, key: u64) -> Option<Slot> {
        found(&self.index, &self.bytes, key)
    }

    /// Points the key's slot elsewhere, or empties it.
    fn repoint(&self, key: u64, slot: Slot) {
        let bytes = key.to_be_bytes();
        let locked = self.index.lock(mix(key));
        let is = |slot: Slot| self.bytes.is(slot, key).then_some(());
        match locked.find_with(is) {
            Some((place, ())) if slot.is_empty() => locked.remove(&place, &self.bytes),
            Some((place, ())) => place.repoint(&bytes, slot, &self.bytes),
            None => locked.insert(&bytes, slot, &self.bytes),
        }
    }

    /// The place of the next record of a key, in a block that no checkpoint keeps; `None` after some, when there is no
    /// room left.
    fn fresh(&mut self, key: u64) -> Option<Slot> {
        let next = self.next.entry(key).or_insert(KEPT);
        *next += 1;
        (*next <= PLACES).then(|| slot_of(key, *next - 1))
    }

    fn change(&mut self, word: u64) {
        let key = word / 16 % self.keys;
        if word % 64 == 63 {
            return self.drop_tombstones(key);
        }
        let now = self.slot(key);
        if let Some((slot, before)) = self.running.get(&key).copied() {
            if word & 1 == 0 {
                // It counts.
                self.repoint(key, slot.with_pending(false));
                self.durable.insert(key, slot.with_pending(false));
                self.running.remove(&key);
            } else if word & 2 == 0 {
                self.repoint(key, before);
                self.running.remove(&key);
            }
            return;
        }
        let is_tombstone = word & 12 == 0 && now.is_some();
        let Some(slot) = self.fresh(key).map(|slot| slot.with_tombstone(is_tombstone)) else { return };
        if word & 3 == 0 {
            self.running.insert(key, (slot.with_pending(true), now.unwrap_or_default()));
            self.repoint(key, slot.with_pending(true));
        } else {
            self.repoint(key, slot);
            self.durable.insert(key, slot);
        }
    }

    /// Removes, as the compactor does, the tombstones of some keys from this one on that have no other record. Pages of
    /// the map are merged.
    fn drop_tombstones(&mut self, from: u64) {
        for key in from..self.keys.min(from + self.keys / 2) {
            if !self.next.contains_key(&key) && self.slot(key).is_some_and(Slot::is_tombstone) {
                self.repoint(key, Slot::default());
                self.durable.remove(&key);
            }
        }
    }

    /// The index that recovery builds from these pages and from all other records that count.
    fn recovered(&self, written: &Written, changed: bool) -> CollectionIndex {
        let mut index = empty_index();
        let pages: Vec<_> = written.iter().map(|(first, page)| (*first, &page[..])).collect();
        assert!(pages.iter().all(|(_, page)| checkpoint::is_page(page)));
        let extent_bytes = slot_of(0, 1).location().0 - slot_of(0, 0).location().0;
        let counts = KeepFilter::Kept { extents: vec![(1 << KEPT) - 1], extent_bytes };
        // SAFETY: `written` outlives it, and nobody changes it.
        unsafe { index.attach(&pages, counts) }.unwrap();
        let place_of = |slot: Slot| slot.location().0 / extent_bytes;
        let mut read: Vec<Sorted> = (self.durable.iter().filter(|&(_, &slot)| place_of(slot) >= KEPT))
            .map(|(&key, &slot)| {
                Sorted::new([position_of(mix(key)), index.order_at(slot, &self.bytes)], slot)
            })
            .collect();
        read.sort_unstable_by_key(|element| element.words()[0]);
        if changed || !read.is_empty() {
            index.merge(&read, &self.bytes, |slot, _| Counted::Read(slot));
        }
        index
    }
}

/// Changes the index while pages are written. Of 8 keys, `tombstones` have tombstones at first, and `at_each` changes
/// are made after each page.
fn check_busy(keys: u64, tombstones: u64, words: &[u64], at_each: usize) {
    let mut busy = Busy::new(keys);
    for key in 0..keys {
        if !mix(key).is_multiple_of(8) {
            let slot = slot_of(key, mix(key) % KEPT).with_tombstone(mix(key) % 8 <= tombstones);
            busy.repoint(key, slot);
            busy.durable.insert(key, slot);
        }
    }
    let mut words = words.iter().copied();
    // Transactions that are active already.
    words.by_ref().take(at_each).for_each(|word| busy.change(word & !3));
    let index = Arc::clone(&busy.index);
    let (busy, words) = (RefCell::new(busy), RefCell::new(words));
    let mut written = Written::new();
    let durable_slot = |slot: Slot| {
        let before =
            busy.borrow().running.values().find(|(now, _)| now.location() == slot.location()).copied();
        before.map_or(slot, |(_, before)| before)
    };
    let loaded = index.dump(&Bytes::new(keys), &durable_slot, &mut |first, page| {
        written.push((first, page.to_vec()));
        let changes: Vec<u64> = words.borrow_mut().by_ref().take(at_each).collect();
        changes.into_iter().for_each(|word| busy.borrow_mut().change(word));
        Ok(true)
    });
    let loaded = loaded.unwrap().unwrap();
    let mut busy = busy.into_inner();
    words.into_inner().for_each(|word| busy.change(word));
    let recovered = busy.recovered(&written, loaded.changed);

    let mut wanted: Vec<(u64, u64, Offset)> = (busy.durable.iter())
        .filter(|(_, slot)| !slot.is_tombstone())
        .map(|(&key, &slot)| (recovered.order_at(slot, &busy.bytes), key, slot.location()))
        .collect();
    wanted.sort_unstable();
    assert_eq!(recovered.key_count(), wanted.len() as u64);
    let mut ranked = Vec::new();
    recovered.ranked(0, false, usize::MAX, &mut ranked);
    let ranked: Vec<Offset> = ranked.iter().map(|slot| slot.location()).collect();
    assert_eq!(ranked, wanted.iter().map(|&(_, _, at)| at).collect::<Vec<_>>());
    for (&key, &slot) in &busy.durable {
        let cleared =
            found(&recovered, &busy.bytes, key).map(|found| (found.location(), found.is_tombstone()));
        assert_eq!(cleared, Some((slot.location(), slot.is_tombstone())), "key {key}");
    }
}

#[test]
fn a_checkpoint_of_an_unchanged_index_is_exact() {
    check_busy(2_000, 1, &[], 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 60 }))]

    #[test]
    fn an_index_that_is_changed_while_its_checkpoint_is_written_is_right_after_a_crash(
        keys in 1..if cfg!(miri) { 40u64 } else { 3_000 },
        words in prop::collection::vec(any::<u64>(), 0..if cfg!(miri) { 60 } else { 3_000 }),
        at_each in 0..40usize,
        tombstones in 1..8u64,
    ) {
        check_busy(keys, tombstones, &words, at_each);
    }

    #[test]
    fn any_bytes_are_a_page_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200), holds in 0..6u8) {
        let mut page = bytes;
        if let Some(first) = page.first_mut() {
            *first = holds;
        }
        page.iter_mut().take(8).skip(1).for_each(|byte| *byte = 0);
        if checkpoint::is_page(&page) {
            let _ = checkpoint::check(&[(0, &page)], true);
        }
    }
}
