//! The index of a store, of any kind: each call goes to the [`KeyIndex`] inside, where it is documented.

use super::collection::{self, CollectionIndex};
use super::hash::{self, HashIndex};
use super::key_index::{KeyIndex, KeyPlace, LockedKey, Numbers};
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

/// The slot of a locked key.
pub enum Place<'a> {
    Hash(hash::Place<'a>),
    Ordered(ordered::Place<'a>),
    Collection(collection::Place<'a>),
}

/// Calls a method of `$it`, whichever index it is.
macro_rules! index {
    ($self:ident, $it:ident => $said:expr) => {
        match $self {
            Self::Hash($it) => $said,
            Self::Ordered(boxed) => {
                let $it = &**boxed;
                $said
            }
            Self::Collection(boxed) => {
                let $it = &**boxed;
                $said
            }
        }
    };
}

/// The same for a locked key, or for its place.
macro_rules! locked {
    ($self:ident, $it:ident => $said:expr) => {
        match $self {
            Self::Hash($it) => $said,
            Self::Ordered($it) => $said,
            Self::Collection($it) => $said,
        }
    };
}

// These methods are those of `KeyIndex`.
impl Index {
    pub fn numbers(&self, guard: &Guard) -> Numbers {
        index!(self, it => KeyIndex::numbers(it, guard))
    }

    #[inline]
    pub fn stripes(&self) -> &Stripes {
        index!(self, it => KeyIndex::stripes(it))
    }

    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        index!(self, it => KeyIndex::prefetch(it, hash, guard));
    }

    #[inline]
    pub fn prefetch_more(&self, hash: u64, guard: &Guard) {
        index!(self, it => KeyIndex::prefetch_more(it, hash, guard));
    }

    #[inline]
    pub fn candidate<'k>(&self, hash: u64, key: impl FnOnce() -> &'k [u8], guard: &Guard) -> Option<Slot> {
        index!(self, it => KeyIndex::candidate(it, hash, key, guard))
    }

    #[inline]
    pub fn candidates_are_current(&self) -> bool {
        fn are_current<I: KeyIndex>(_: &I) -> bool {
            I::CANDIDATES_ARE_CURRENT
        }
        index!(self, it => are_current(it))
    }

    #[inline]
    pub fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        index!(self, it => KeyIndex::find_with(it, hash, key, guard, look))
    }

    #[inline(always)]
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        match self {
            Self::Hash(index) => Locked::Hash(KeyIndex::lock(index, hash, guard)),
            Self::Ordered(index) => Locked::Ordered(KeyIndex::lock(&**index, hash, guard)),
            Self::Collection(index) => Locked::Collection(KeyIndex::lock(&**index, hash, guard)),
        }
    }

    fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Locked<'g> {
        match self {
            Self::Hash(index) => Locked::Hash(KeyIndex::locked(index, held, hash, guard)),
            Self::Ordered(index) => Locked::Ordered(KeyIndex::locked(&**index, held, hash, guard)),
            Self::Collection(index) => Locked::Collection(KeyIndex::locked(&**index, held, hash, guard)),
        }
    }

    pub fn split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) {
        index!(self, it => KeyIndex::split(it, hash, keys, guard));
    }

    pub fn try_split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) -> bool {
        index!(self, it => KeyIndex::try_split(it, hash, keys, guard))
    }

    pub fn shrink(&self, hash: u64, guard: &Guard) {
        index!(self, it => KeyIndex::shrink(it, hash, guard));
    }

    pub fn shrink_from(&self, from: Option<u64>) -> Option<u64> {
        index!(self, it => KeyIndex::shrink_from(it, from))
    }

    pub fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        index!(self, it => KeyIndex::scan(it, cursor, guard, visit))
    }

    pub fn scan_once(
        &self,
        cursor: u64,
        keys: &impl Keys,
        guard: &Guard,
        visit: &mut dyn FnMut(Slot),
    ) -> u64 {
        index!(self, it => KeyIndex::scan_once(it, cursor, keys, guard, visit))
    }

    pub fn each(&self, guard: &Guard, visit: &mut dyn FnMut(Slot)) {
        index!(self, it => KeyIndex::each(it, guard, visit));
    }

    pub fn cursor_shown(&self, cursor: u64) -> u64 {
        index!(self, it => KeyIndex::cursor_shown(it, cursor))
    }

    pub fn cursor_meant(&self, shown: u64) -> u64 {
        index!(self, it => KeyIndex::cursor_meant(it, shown))
    }

    pub fn cursor_at(&self, random: u64, guard: &Guard) -> u64 {
        index!(self, it => KeyIndex::cursor_at(it, random, guard))
    }

    pub fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        index!(self, it => KeyIndex::draw(it, random, guard))
    }

    pub fn kind(&self) -> u8 {
        fn kind<I: KeyIndex>(_: &I) -> u8 {
            I::KIND
        }
        index!(self, it => kind(it))
    }

    pub fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        index!(self, it => KeyIndex::dump(it, keys, pending, emit))
    }

    pub fn pages_left(&self) -> u64 {
        index!(self, it => KeyIndex::pages_left(it))
    }

    pub fn read_pages(&self, stops: &dyn Fn() -> bool) {
        if self.pages_left() > 0 {
            index!(self, it => KeyIndex::read_pages(it, stops));
        }
    }

    pub fn forget_order(&self, stops: &dyn Fn() -> bool) -> bool {
        index!(self, it => KeyIndex::forget_order(it, stops))
    }
}

impl Index {
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
        match insert {
            true => index!(self, it => KeyIndex::prefetch_insert(it, hash, guard)),
            false => self.prefetch(hash, guard),
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
            HashIndex::KIND => hash::checkpoint::is_page(bytes),
            CollectionIndex::KIND => collection::checkpoint::is_page(bytes),
            _ => ordered::checkpoint::is_page(bytes),
        }
    }

    /// How many slots of a checkpoint's pages count.
    pub fn count(kind: u8, pages: &PagesOf<'_>, counts: &KeepFilter, threads: usize) -> Loaded {
        let count = |&(_, page): &(u64, &[u8])| match kind {
            HashIndex::KIND => counts.count(hash::checkpoint::slots(page)),
            CollectionIndex::KIND => counts.count(collection::checkpoint::slots(page)),
            _ => counts.count(ordered::checkpoint::slots(page)),
        };
        sync::each_on_threads(threads, pages.iter(), count).into_iter().fold(Loaded::default(), Loaded::plus)
    }

    /// As [`KeyIndex::attach`], only for recovery. The pages lie on the medium of the store to which the index will
    /// belong. That store frees their extents only when [`Index::pages_left`] returns 0
    /// (`Maintenance::free_checkpoint`).
    pub fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        threads: usize,
    ) -> std::result::Result<(), String> {
        match self {
            // SAFETY: a store's medium is dropped after its index, and nobody stores to extents that are not freed.
            Self::Hash(index) => unsafe { KeyIndex::attach(index, pages, counts, threads) },
            // SAFETY: as above.
            Self::Ordered(index) => unsafe { KeyIndex::attach(&mut **index, pages, counts, threads) },
            // SAFETY: as above.
            Self::Collection(index) => unsafe { KeyIndex::attach(&mut **index, pages, counts, threads) },
        }
    }
}

// These methods are those of `LockedKey`.
impl<'a> Locked<'a> {
    #[inline(always)]
    pub fn has_transaction_records(&self) -> bool {
        locked!(self, it => LockedKey::has_transaction_records(it))
    }

    #[inline]
    pub fn count_transaction_record(&self, more: bool) {
        locked!(self, it => LockedKey::count_transaction_record(it, more));
    }

    #[inline]
    pub fn next_version(&self, floor: Version) -> Version {
        locked!(self, it => LockedKey::next_version(it, floor))
    }

    #[inline]
    pub fn observe_version(&self, version: Version) {
        locked!(self, it => LockedKey::observe_version(it, version));
    }

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
            Self::Hash(locked) => {
                LockedKey::find_with(locked, key, look).map(|(place, found)| (Place::Hash(place), found))
            }
            Self::Ordered(locked) => {
                LockedKey::find_with(locked, key, look).map(|(place, found)| (Place::Ordered(place), found))
            }
            Self::Collection(locked) => LockedKey::find_with(locked, key, look)
                .map(|(place, found)| (Place::Collection(place), found)),
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

    #[inline]
    pub fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        match self {
            Self::Hash(locked) => LockedKey::find_sole(locked).map(Place::Hash),
            Self::Ordered(locked) => LockedKey::find_sole(locked).map(Place::Ordered),
            Self::Collection(locked) => LockedKey::find_sole(locked).map(Place::Collection),
        }
    }

    #[inline(always)]
    #[must_use]
    pub fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) -> bool {
        locked!(self, it => LockedKey::insert(it, key, slot, keys))
    }

    pub fn remove(&self, place: &Place<'_>, keys: &impl KeyBytes) {
        match (self, place) {
            (Self::Hash(locked), Place::Hash(place)) => LockedKey::remove(locked, place, keys),
            (Self::Ordered(locked), Place::Ordered(place)) => LockedKey::remove(locked, place, keys),
            (Self::Collection(locked), Place::Collection(place)) => LockedKey::remove(locked, place, keys),
            _ => debug_assert!(false, "a place of another kind of index"),
        }
    }
}

// These methods are those of `KeyPlace`.
impl Place<'_> {
    #[inline]
    pub fn get(&self) -> Slot {
        locked!(self, it => KeyPlace::get(it))
    }

    #[inline]
    pub fn set(&self, slot: Slot) {
        locked!(self, it => KeyPlace::set(it, slot));
    }

    #[inline]
    pub fn repoint(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        locked!(self, it => KeyPlace::repoint(it, key, slot, keys));
    }

    #[cold]
    pub fn repair(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        locked!(self, it => KeyPlace::repair(it, key, slot, keys));
    }
}
