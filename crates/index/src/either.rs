//! The index of a store, of any kind: from a key to its slot, by the hash of the key. Each method goes to the index
//! inside: [`HashIndex`], [`OrderedIndex`] or [`CollectionIndex`]. Only a hash index is ever crowded and must be split
//! by its users.

use super::collection::{self, CollectionIndex};
use super::hash::{self, HashIndex};
use super::numbers::Numbers;
use super::ordered::{self, OrderedIndex};
use super::stripes::{LockedStripe, Stripes};
use super::{KeepFilter, KeyBytes, Keys, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::format::Version;
use duramen_log::sync;
use duramen_log::sync::reclaim::Guard;

pub enum Index {
    Hash(HashIndex),
    /// Boxed: it includes its counters, and a hash index should not be moved with their size.
    Ordered(Box<OrderedIndex>),
    /// The index of a collection's elements.
    Collection(Box<CollectionIndex>),
}

/// A locked key.
pub enum Locked<'a> {
    Hash(hash::Locked<'a>),
    Ordered(ordered::Locked<'a>),
    Collection(collection::Locked<'a>),
}

/// The slot of a locked key. No other thread changes it, wherever it moves.
pub enum Place<'a> {
    Hash(hash::Place<'a>),
    Ordered(ordered::Place<'a>),
    Collection(collection::Place<'a>),
}

/// Calls the same method of whichever index it is.
macro_rules! each {
    ($self:ident, $index:ident => $call:expr) => {
        match $self {
            Self::Hash($index) => $call,
            Self::Ordered($index) => $call,
            Self::Collection($index) => $call,
        }
    };
}

/// The numbers of the kinds in the superblock and in checkpoints.
const HASH: u8 = 0;
const ORDERED: u8 = 1;
pub const COLLECTION: u8 = 2;

impl Index {
    pub fn kind(&self) -> u8 {
        match self {
            Self::Hash(_) => HASH,
            Self::Ordered(_) => ORDERED,
            Self::Collection(_) => COLLECTION,
        }
    }

    pub fn numbers(&self, guard: &Guard) -> Numbers {
        match self {
            Self::Hash(index) => index.numbers(guard),
            Self::Ordered(index) => index.numbers(),
            Self::Collection(index) => index.numbers(),
        }
    }

    /// The locks of its keys.
    #[inline]
    pub fn stripes(&self) -> &Stripes {
        each!(self, index => index.stripes())
    }

    /// Hints that the key of `hash` is looked for soon.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        match self {
            Self::Hash(index) => index.prefetch(hash, guard),
            Self::Ordered(index) => index.prefetch(hash),
            Self::Collection(index) => index.prefetch(hash),
        }
    }

    /// The same, once the lines that `prefetch` asked for have arrived.
    #[inline]
    pub fn prefetch_more(&self, hash: u64, guard: &Guard) {
        if let Self::Ordered(index) = self {
            index.prefetch_more(hash, guard);
        }
    }

    /// The likeliest slot of `key`, whose record is to be fetched. A hash index does not use the key.
    #[inline]
    pub fn candidate<'k>(&self, hash: u64, key: impl FnOnce() -> &'k [u8], guard: &Guard) -> Option<Slot> {
        match self {
            Self::Hash(index) => index.candidate(hash, guard),
            Self::Ordered(index) => index.candidate(hash, key, guard),
            Self::Collection(_) => None,
        }
    }

    /// Whether a candidate whose record is of the key was the key's slot when it was read. In an ordered index the key
    /// may have moved to another node before.
    #[inline]
    pub fn candidates_are_current(&self) -> bool {
        matches!(self, Self::Hash(_))
    }

    /// Looks up the slot of `key` without a lock; `look` recognises it. Returns the slot that `look` saw and its
    /// result, even if the slot changes meanwhile.
    #[inline]
    pub fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        match self {
            Self::Hash(index) => index.find_with(hash, guard, look),
            Self::Ordered(index) => index.find_with(hash, key, guard, look),
            Self::Collection(index) => index.find(hash, look),
        }
    }

    /// Locks the key of `hash`.
    #[inline(always)]
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        match self {
            Self::Hash(index) => Locked::Hash(index.lock(hash, guard)),
            Self::Ordered(index) => Locked::Ordered(index.lock(hash, guard)),
            Self::Collection(index) => Locked::Collection(index.lock(hash)),
        }
    }

    /// The key of `hash`, whose stripe is held.
    fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Locked<'g> {
        match self {
            Self::Hash(index) => Locked::Hash(index.locked(held, hash, guard)),
            Self::Ordered(index) => Locked::Ordered(index.locked(held, hash, guard)),
            Self::Collection(index) => Locked::Collection(index.locked(held, hash)),
        }
    }

    /// Does the split that [`Locked::insert`] asked for. No lock may be held.
    pub fn split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) {
        if let Self::Hash(index) = self {
            index.split(hash, keys, guard);
        }
    }

    /// The same for a caller that holds stripes for several writes; false if another thread has a stripe that it needs.
    pub fn try_split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) -> bool {
        if let Self::Hash(index) = self { index.try_split(hash, keys, guard) } else { true }
    }

    /// The key of `hash` was removed: gives back memory that is no longer needed. No lock may be held.
    pub fn shrink(&self, hash: u64, guard: &Guard) {
        if let Self::Hash(index) = self {
            index.merge(hash, guard);
        }
    }

    /// Gives back memory that no removal found, in some of the index. Returns where to continue, if there is more to
    /// look at.
    pub fn shrink_from(&self, from: Option<u64>) -> Option<u64> {
        if let Self::Hash(index) = self { index.merge_from(from) } else { None }
    }

    /// Visits some slots from `cursor` on, and returns the cursor to continue from, 0 at the end. A key that stays is
    /// visited at least once.
    pub fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        match self {
            Self::Hash(index) => index.scan(cursor, guard, visit),
            Self::Ordered(index) => index.scan(cursor, guard, visit),
            Self::Collection(index) => index.scan(cursor, visit),
        }
    }

    /// The same; while nobody changes the index, only damaged ones may be visited twice.
    pub fn scan_once(
        &self,
        cursor: u64,
        keys: &impl Keys,
        guard: &Guard,
        visit: &mut dyn FnMut(Slot),
    ) -> u64 {
        match self {
            Self::Collection(index) => index.scan_once(cursor, keys, visit),
            _ => self.scan(cursor, guard, visit),
        }
    }

    /// Visits each slot once, while nobody changes the index.
    pub fn each(&self, guard: &Guard, visit: &mut dyn FnMut(Slot)) {
        if let Self::Collection(index) = self {
            return index.each(visit);
        }
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, guard, visit);
            if cursor == 0 {
                return;
            }
        }
    }

    /// A cursor as clients see it.
    pub fn cursor_shown(&self, cursor: u64) -> u64 {
        if let Self::Hash(_) = self { HashIndex::cursor_shown(cursor) } else { cursor }
    }

    /// The cursor that a client's number means. Any number is valid.
    pub fn cursor_meant(&self, shown: u64) -> u64 {
        if let Self::Hash(_) = self { HashIndex::cursor_meant(shown) } else { shown }
    }

    /// A cursor at a place that `random` picks.
    pub fn cursor_at(&self, random: u64, guard: &Guard) -> u64 {
        match self {
            Self::Hash(_) => HashIndex::cursor_at(random),
            Self::Ordered(index) => index.cursor_at(random, guard),
            Self::Collection(_) => random,
        }
    }

    /// A slot that `random` picks, all equally likely; `None` if it picks none, which is the more frequent the fewer of
    /// the index's slots are taken.
    pub fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        match self {
            Self::Hash(index) => index.draw(random, guard),
            Self::Ordered(index) => index.draw(random, guard),
            Self::Collection(index) => index.draw(random),
        }
    }

    /// Hands pages for a checkpoint to `emit`, each with where its keys begin, until it returns false. Returns the
    /// count of the emitted slots if all were emitted. All pages of a checkpoint must have been read. For a slot that
    /// is pending, `pending` returns, while its record is there, the slot to write in its place, which may be empty.
    pub fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        match self {
            Self::Hash(index) => index.dump(pending, emit),
            Self::Ordered(index) => index.dump(keys, pending, emit),
            Self::Collection(index) => index.dump(keys, pending, emit),
        }
    }

    /// Unread pages of the checkpoint that it was attached to.
    pub fn pages_left(&self) -> u64 {
        each!(self, index => index.pages_left())
    }

    /// Reads the remaining pages, until `stops` returns true.
    pub fn read_pages(&self, stops: &dyn Fn() -> bool) {
        if self.pages_left() > 0 {
            each!(self, index => index.read_pages(stops));
        }
    }

    /// Its table is dead, and nobody reads it any more. From now on its elements have no order, since their records are
    /// removed one by one. Works until `stops` returns true; returns whether it is done.
    pub fn forget_order(&self, stops: &dyn Fn() -> bool) -> bool {
        if let Self::Collection(index) = self { index.forget_order(stops) } else { true }
    }

    /// The ordered index, if it is one: only that can walk in the order of the keys.
    #[inline]
    pub fn ordered(&self) -> Option<&OrderedIndex> {
        if let Self::Ordered(index) = self { Some(index) } else { None }
    }

    /// The index of a collection, if it is one.
    #[inline]
    pub fn collection(&self) -> Option<&CollectionIndex> {
        if let Self::Collection(index) = self { Some(index) } else { None }
    }

    /// Hints that the key of `hash` is written next, and may be inserted. Not for an element: its index is locked right
    /// away, and locking it once more costs as much as this saves.
    #[inline(always)]
    pub fn prefetch_next(&self, hash: u64, insert: bool, guard: &Guard) {
        if !matches!(self, Self::Collection(_)) {
            self.prefetch_write(hash, insert, guard);
        }
    }

    /// Hints that the key of `hash` is written soon, and may be inserted.
    #[inline(always)]
    pub fn prefetch_write(&self, hash: u64, insert: bool, guard: &Guard) {
        self.stripes().fetch(hash);
        match self {
            Self::Hash(index) if insert => index.prefetch_insert(hash, guard),
            _ => self.prefetch(hash, guard),
        }
    }

    /// The slot of `key`, which `is_key` recognises, without a lock.
    #[inline]
    pub fn find(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        mut is_key: impl FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.find_with(hash, key, guard, |slot| is_key(slot).then_some(())).map(|(slot, ())| slot)
    }

    /// Locks the key of `hash`, for callers that only look at its [candidate](Self::candidate).
    #[inline(always)]
    pub fn hold(&self, hash: u64) -> LockedStripe<'_> {
        self.stripes().lock(hash)
    }

    /// Locks the keys of several indexes that have the same stripes, each given with its hash. The result is in their
    /// order.
    pub fn lock_all<'g>(keys: &[(&'g Self, u64)], guard: &'g Guard) -> Vec<Locked<'g>> {
        // Keys first, then elements, which have other stripes.
        let mut held: Vec<Option<LockedStripe<'g>>> = keys.iter().map(|_| None).collect();
        for elements in [false, true] {
            let of: Vec<usize> =
                (0..keys.len()).filter(|&i| keys[i].0.collection().is_some() == elements).collect();
            let Some(&first) = of.first() else { continue };
            let hashes: Vec<u64> = of.iter().map(|&i| keys[i].1).collect();
            for (i, lock) in of.into_iter().zip(keys[first].0.stripes().lock_all(&hashes)) {
                held[i] = Some(lock);
            }
        }
        let held = held.into_iter().flatten();
        keys.iter().zip(held).map(|(&(index, hash), held)| index.locked(held, hash, guard)).collect()
    }

    /// Whether these bytes are a page of a checkpoint of this kind of index.
    pub fn is_page(kind: u8, bytes: &[u8]) -> bool {
        match kind {
            HASH => hash::checkpoint::is_page(bytes),
            COLLECTION => collection::checkpoint::is_page(bytes),
            _ => ordered::checkpoint::is_page(bytes),
        }
    }

    /// How many slots of a checkpoint's pages count.
    pub fn count(kind: u8, pages: &PagesOf<'_>, counts: &KeepFilter, threads: usize) -> Loaded {
        let count = |&(_, page): &(u64, &[u8])| match kind {
            HASH => counts.count(hash::checkpoint::slots(page)),
            COLLECTION => counts.count(collection::checkpoint::slots(page)),
            _ => counts.count(ordered::checkpoint::slots(page)),
        };
        sync::each_on_threads(threads, pages.iter(), count).into_iter().fold(Loaded::default(), Loaded::plus)
    }

    /// Fills an empty index with the slots of a checkpoint that `counts` keeps; each page is read when it is first
    /// touched. `Err`: the fault in the checkpoint; the index cannot be used then.
    ///
    /// Only for recovery. The pages lie on the medium of the store to which the index will belong. That store frees
    /// their extents only when [`Index::pages_left`] returns 0 (`Maintenance::free_checkpoint`).
    pub fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        threads: usize,
    ) -> std::result::Result<(), String> {
        match self {
            // SAFETY: a store's medium is dropped after its index, and nobody stores to extents that are not freed.
            Self::Hash(index) => unsafe { index.attach(pages, counts) },
            // SAFETY: as above.
            Self::Ordered(index) => unsafe { index.attach(pages, counts, threads) },
            // SAFETY: as above.
            Self::Collection(index) => unsafe { index.attach(pages, counts) },
        }
    }
}

impl<'a> Locked<'a> {
    /// The stripe that is held.
    #[inline(always)]
    fn held(&self) -> &LockedStripe<'a> {
        each!(self, locked => locked.held())
    }

    /// See [`LockedStripe::has_transaction_records`].
    #[inline(always)]
    pub fn has_transaction_records(&self) -> bool {
        self.held().has_transaction_records()
    }

    /// See [`LockedStripe::count_transaction_record`].
    #[inline]
    pub fn count_transaction_record(&self, more: bool) {
        self.held().count_transaction_record(more);
    }

    /// The version of the key's next record.
    #[inline]
    pub fn next_version(&self, floor: Version) -> Version {
        self.held().next_version(floor)
    }

    /// Recovery has read a record of the key.
    #[inline]
    pub fn observe_version(&self, version: Version) {
        self.held().observe_version(version);
    }

    /// The place of the record of `key` that `look` recognises, and the result of `look`.
    #[inline(always)]
    pub fn find_with<'k, T>(
        &self,
        key: &'k [u8],
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        match self {
            Self::Hash(locked) => locked.find_with(look).map(|(place, found)| (Place::Hash(place), found)),
            Self::Ordered(locked) => {
                locked.find_with(key, look).map(|(place, found)| (Place::Ordered(place), found))
            }
            Self::Collection(locked) => {
                locked.find_with(look).map(|(place, found)| (Place::Collection(place), found))
            }
        }
    }

    /// The slot of `key`, whose record `is_key` recognises.
    #[inline]
    pub fn find<'k>(&self, key: &'k [u8], mut is_key: impl FnMut(Slot) -> bool) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        self.find_with(key, |slot| is_key(slot).then_some(())).map(|(place, ())| place)
    }

    /// The slot of the key, which is known to have one, if it can be determined without reading records.
    #[inline]
    pub fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        match self {
            Self::Hash(locked) => locked.find_sole().map(Place::Hash),
            Self::Ordered(_) => None,
            Self::Collection(locked) => locked.find_sole().map(Place::Collection),
        }
    }

    /// Adds a key that was looked for and is absent. Returns whether [`Index::split`] should be called, once no lock
    /// is held any more.
    #[inline(always)]
    #[must_use]
    pub fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) -> bool {
        match self {
            Self::Hash(locked) => return locked.insert(slot),
            Self::Ordered(locked) => locked.insert(key, slot, keys),
            Self::Collection(locked) => locked.insert(key, slot, keys),
        }
        false
    }

    pub fn remove(&self, place: &Place<'_>, keys: &impl KeyBytes) {
        match (self, place) {
            (Self::Hash(locked), Place::Hash(place)) => locked.remove(*place),
            (Self::Ordered(locked), Place::Ordered(place)) => locked.remove(place, keys),
            (Self::Collection(locked), Place::Collection(place)) => locked.remove(place, keys),
            _ => debug_assert!(false, "a place of another kind of index"),
        }
    }
}

impl Place<'_> {
    #[inline]
    pub fn get(&self) -> Slot {
        each!(self, place => place.get())
    }

    /// Changes marks of the slot; its location stays.
    #[inline]
    pub fn set(&self, slot: Slot) {
        each!(self, place => place.set(slot));
    }

    /// From now on the slot points elsewhere: to another record of its key.
    #[inline]
    pub fn repoint(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        match self {
            Self::Hash(place) => place.set(slot),
            Self::Ordered(place) => place.set(slot),
            Self::Collection(place) => place.repoint(key, slot, keys),
        }
    }

    /// Sets the slot of a damaged record that was the key's.
    #[cold]
    pub fn repair(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        match self {
            Self::Ordered(place) => place.repair(slot, keys),
            _ => self.repoint(key, slot, keys),
        }
    }
}
