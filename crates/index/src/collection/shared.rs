//! The index of a collection, for callers that find an element by its record: writers of elements,
//! recovery, the compactor.
//!
//! A map has all elements, including tombstones, by the hashes of their keys. If they have an order ([`Order`]), a tree
//! has those without tombstones, too. Its entries point to the same records, but do not say what is pending or stale. A
//! writer that repoints an element changes both ([`Place::repoint`]). A writer that only changes a mark changes the map
//! alone ([`Place::set`]). A writer of many elements changes both for all of them
//! ([`CollectionIndex::change_all`]).
//!
//! As in the other indexes, a writer of an element holds the stripe of its key. The mutex here is held for one step at
//! a time, and its holder waits for nothing, so it may be taken under any other lock. A caller that must see several
//! elements at one moment holds the lock of the collection's key, which all other writers of the collection hold.

use super::checkpoint;
use super::indexes::{Change, Indexes, Order, compared, put_in_order};
use super::map::Map;
use super::merge::{self, Counted};
use super::pages::{Account, Arena, Pages};
use super::tree::Tree;
use crate::attached::Attached;
use crate::numbers::Numbers;
use crate::ordered::Sorted;
use crate::stripes::{LockedStripe, Stripes};
use crate::words::Words;
use crate::{KeepFilter, KeyBytes, Keys, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::sync::{Arc, Mutex, MutexGuard, lock, rank};
use duramen_media::Offset;
use std::cell::Cell;
use std::cmp::Ordering;

/// Pages of a tree that are given back between two looks at the clock.
const FORGOTTEN_TOGETHER: usize = 16;

/// Slots of elements that may match. Mostly there is one; at worst one search in 32 finds another.
const CANDIDATES_MAX: usize = 4;

pub struct CollectionIndex {
    stripes: Arc<Stripes>,
    order: Order,
    indexes: Mutex<Indexes, { rank::INDEXES }>,
    /// The pages of a checkpoint that fill it when it is first used.
    attached: Option<Attached>,
}

impl CollectionIndex {
    pub fn new(stripes: Arc<Stripes>, arena: &Arc<Arena>, order: Order) -> Self {
        let pages = Pages::new(Arc::clone(arena), Arc::<Account>::default());
        let tree = (order != Order::None).then(|| Tree::new(pages.another()));
        let indexes = Mutex::new(Indexes::new(Map::new(pages), tree, order));
        Self { stripes, order, indexes, attached: None }
    }

    pub fn order(&self) -> Order {
        self.order
    }

    fn indexes(&self) -> MutexGuard<'_, Indexes, { rank::INDEXES }> {
        let mut indexes = lock(&self.indexes);
        if let Some(attached) = self.attached.as_ref().filter(|attached| attached.left() > 0) {
            let Indexes { map, tree, .. } = &mut *indexes;
            checkpoint::read(map, tree.as_mut(), attached);
        }
        indexes
    }

    /// Elements without tombstones.
    pub fn key_count(&self) -> u64 {
        self.indexes().map.len()
    }

    /// The mutex is not held while `look` waits for records: writers, readers and the compactor need it at each step.
    pub fn find<T>(&self, hash: u64, mut look: impl FnMut(Slot) -> Option<T>) -> Option<(Slot, T)> {
        let mut candidates = [None; CANDIDATES_MAX];
        let mut count = 0;
        {
            let indexes = self.indexes();
            indexes.map.find(hash, |slot| {
                if let Some(candidate) = candidates.get_mut(count) {
                    *candidate = Some(slot);
                }
                count += 1;
                false
            });
            if count > CANDIDATES_MAX {
                let mut found = None;
                let slot = indexes.map.find(hash, |slot| {
                    found = look(slot);
                    found.is_some()
                })?;
                return Some((slot, found?));
            }
        }
        candidates.into_iter().flatten().find_map(|slot| Some((slot, look(slot)?)))
    }

    /// Hints that elements of these hashes are looked for soon. Overlaps the misses of the map for all of them, and
    /// calls `each` with the likeliest slot of each that has one.
    pub fn prefetch_all(&self, hashes: &[u64], each: impl FnMut(Slot)) {
        // A hint is not worth waiting for.
        if let Some(indexes) = self.indexes.try_lock() {
            hashes.iter().for_each(|&hash| indexes.map.prefetch(hash));
            hashes.iter().filter_map(|&hash| indexes.map.find(hash, |_| true)).for_each(each);
        }
    }

    /// Calls `each` with the number of a hash and each slot that may be of it, for all of these hashes.
    pub fn candidates(&self, hashes: &[u64], mut each: impl FnMut(usize, Slot)) {
        let indexes = self.indexes();
        hashes.iter().for_each(|&hash| indexes.map.prefetch(hash));
        for (number, &hash) in hashes.iter().enumerate() {
            indexes.map.find(hash, |slot| {
                each(number, slot);
                false
            });
        }
    }

    /// Changes elements of different keys, whose stripes the caller holds, in one step.
    pub fn change_all(&self, changes: &[Change<'_>], keys: &impl KeyBytes) {
        self.indexes().change_all(changes, keys);
    }

    /// Clears the pending marks of elements, given by their hashes and records; the caller holds their stripes.
    /// Elements whose slots have other records by now stay as they are.
    pub fn clear_pending(&self, elements: impl Iterator<Item = (u64, Offset)>) {
        let mut indexes = self.indexes();
        elements.for_each(|(hash, at)| indexes.map.clear_pending(hash, at));
    }

    /// The slot of an element, if it is the only slot that may be of its hash.
    fn find_sole(&self, hash: u64) -> Option<Slot> {
        let mut sole = None;
        let second = self.indexes().map.find(hash, |slot| sole.replace(slot).is_some());
        sole.filter(|_| second.is_none())
    }

    /// Visits the elements of one page, and says where the next begins, as [`Map::each_at`].
    pub fn each_at(&self, position: u64, keys: &impl Keys, visit: &mut dyn FnMut(Slot)) -> Option<u64> {
        self.indexes().map.each_at(position, keys, visit)
    }

    /// An element without a tombstone, all equally likely.
    pub fn random(&self, random: impl FnMut() -> u64) -> Option<Slot> {
        self.indexes().map.random(random)
    }

    /// The order of the record at `at`; 0 if it is damaged: its place is then unknown.
    pub fn order_at(&self, at: Slot, keys: &impl KeyBytes) -> u64 {
        self.order.at(at, keys)
    }

    /// Whether it has unread pages of a checkpoint.
    pub fn is_attached(&self) -> bool {
        self.pages_left() > 0
    }

    /// Fills an empty index with elements of different keys, by position and order, sorted by position. For recovery.
    pub fn build(&self, mut elements: Vec<Sorted>, keys: &impl KeyBytes) {
        let mut indexes = self.indexes();
        indexes.map.build(&elements);
        let Some(tree) = &mut indexes.tree else { return };
        elements.retain(|element| !element.slot.is_tombstone());
        put_in_order(&mut elements, keys);
        tree.fill(elements.len() as u64, elements.iter().map(|it| (it.words()[1], it.slot)));
    }

    /// Fills an index that has read none of its attached pages, from those and from these elements of different keys.
    /// The elements have position and order, and are sorted by position. Of a record and the checkpoint's of the same
    /// key, `combine` says which counts. For recovery.
    pub fn merge(
        &self,
        elements: &[Sorted],
        keys: &impl KeyBytes,
        combine: impl FnMut(Slot, Slot) -> Counted,
    ) {
        if let Some(attached) = self.attached.as_ref() {
            merge::merge(&mut lock(&self.indexes), attached, elements, keys, combine);
        }
    }

    /// How many elements precede the one with this order and key; `None` if the elements have no order.
    pub fn rank(&self, order: u64, key: &[u8], keys: &impl KeyBytes) -> Option<u64> {
        let indexes = self.indexes();
        Some(indexes.tree.as_ref()?.rank(order, compared(key, keys)))
    }

    /// How many elements have an order below this one, or, with `behind`, not above it.
    pub fn rank_of_order(&self, order: u64, behind: bool) -> Option<u64> {
        let indexes = self.indexes();
        let side = if behind { Ordering::Less } else { Ordering::Greater };
        Some(indexes.tree.as_ref()?.rank(order, |_| side))
    }

    /// Appends the slots, without marks, of up to `count` elements from this rank on, or before it in reverse. Returns
    /// whether no element is pending.
    pub fn ranked(&self, rank: u64, reverse: bool, count: usize, into: &mut Vec<Slot>) -> bool {
        let indexes = self.indexes();
        let Some(tree) = &indexes.tree else { return true };
        let mut cursor = tree.cursor_at(rank);
        for _ in 0..count {
            let Some((_, slot)) = (if reverse { cursor.back() } else { cursor.forward() }) else { break };
            // Its marks date from when it was entered here.
            into.push(Slot::new(slot.location()));
        }
        indexes.map.is_stable()
    }
}

impl CollectionIndex {
    pub fn numbers(&self) -> Numbers {
        // Without reading attached pages: unread ones take no DRAM.
        let indexes = lock(&self.indexes);
        let bytes = indexes.map.bytes() + indexes.tree.as_ref().map_or(0, Tree::bytes);
        Numbers { bytes, ..Numbers::default() }
    }

    #[inline]
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    pub fn prefetch(&self, hash: u64) {
        // A hint is not worth waiting for.
        if let Some(indexes) = self.indexes.try_lock() {
            indexes.map.prefetch(hash);
        }
    }

    pub fn lock(&self, hash: u64) -> Locked<'_> {
        Locked { index: self, held: self.stripes.lock(hash), hash }
    }

    pub fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64) -> Locked<'g> {
        Locked { index: self, held, hash }
    }

    pub fn scan(&self, cursor: u64, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.indexes().map.scan(cursor, visit)
    }

    pub fn scan_once(&self, cursor: u64, keys: &impl Keys, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.indexes().map.scan_once(cursor, keys, visit)
    }

    pub fn each(&self, visit: &mut dyn FnMut(Slot)) {
        self.indexes().map.each(visit);
    }

    pub fn draw(&self, random: [u64; 2]) -> Option<Slot> {
        // It draws until it hits, and may need more words than these two.
        let mut words = Words::of(random[0] ^ random[1].rotate_left(32));
        self.random(|| words.draw())
    }

    pub fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        drop(self.indexes());
        checkpoint::dump(&self.indexes, keys, pending, emit)
    }

    /// Fills an empty index with the slots of a checkpoint that `counts` keeps.
    ///
    /// # Safety
    /// The pages stay as they are until [`Self::pages_left`] returns 0, or the index is dropped.
    pub unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
    ) -> std::result::Result<(), String> {
        checkpoint::check(pages, self.order != Order::None)?;
        // SAFETY: as the caller promises.
        self.attached = Some(unsafe { Attached::new(pages, counts) });
        Ok(())
    }

    pub fn pages_left(&self) -> u64 {
        self.attached.as_ref().map_or(0, Attached::left)
    }

    pub fn read_pages(&self, stops: &dyn Fn() -> bool) {
        if !stops() {
            drop(self.indexes());
        }
    }

    pub fn forget_order(&self, stops: &dyn Fn() -> bool) -> bool {
        let mut indexes = self.indexes();
        loop {
            if indexes.forget_order(FORGOTTEN_TOGETHER) {
                return true;
            }
            if stops() {
                return false;
            }
        }
    }
}

/// A locked element.
pub struct Locked<'a> {
    index: &'a CollectionIndex,
    held: LockedStripe<'a>,
    hash: u64,
}

/// The slot of a locked element.
pub struct Place<'a> {
    index: &'a CollectionIndex,
    hash: u64,
    slot: Cell<Slot>,
}

impl<'a> Locked<'a> {
    #[inline]
    pub fn held(&self) -> &LockedStripe<'a> {
        &self.held
    }

    pub fn find_with<'k, T>(&self, look: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        let (slot, found) = self.index.find(self.hash, look)?;
        Some((Place { index: self.index, hash: self.hash, slot: Cell::new(slot) }, found))
    }

    pub fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        let slot = self.index.find_sole(self.hash)?;
        Some(Place { index: self.index, hash: self.hash, slot: Cell::new(slot) })
    }

    pub fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        let mut indexes = self.index.indexes();
        indexes.changes += 1;
        indexes.map.insert(self.hash, slot, keys);
        indexes.enter(key, slot, keys);
    }

    pub fn remove(&self, place: &Place<'_>, keys: &impl KeyBytes) {
        let slot = place.get();
        let mut indexes = self.index.indexes();
        indexes.changes += 1;
        indexes.map.remove(self.hash, |other| other.location() == slot.location(), keys);
        indexes.leave(slot, keys);
    }
}

impl Place<'_> {
    pub fn get(&self) -> Slot {
        self.slot.get()
    }

    pub fn set(&self, slot: Slot) {
        let old = self.slot.replace(slot);
        debug_assert_eq!(
            old.location(),
            slot.location(),
            "set must keep the location of a slot; only repointing changes it"
        );
        self.index.indexes().map.set(self.hash, slot, |other| other.location() == old.location());
    }

    pub fn repoint(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        let old = self.slot.replace(slot);
        let mut indexes = self.index.indexes();
        indexes.changes += 1;
        indexes.map.set(self.hash, slot, |other| other.location() == old.location());
        indexes.repoint(key, old, slot, keys);
    }
}
