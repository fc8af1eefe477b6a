//! The index of a store, of either kind, behind one door.
//!
//! A hash index needs only a key's hash: whoever looks something up has the key, and passes both. What differs otherwise: only a hash index is ever crowded and has to be split by
//! its users, and only an ordered one can walk in the order of the keys.

use super::collection::{self, CollectionIndex};
use super::hash::{self, HashIndex};
use super::ordered::{self, OrderedIndex};
use super::stripes::{Held, Stripes};
use super::{Counts, KeyBytes, Loaded, PagesOf, Slot};
use crate::Result;
use crate::format::Version;
use crate::sync;
use crate::sync::reclaim::Guard;
use duramen_media::Offset;

pub(crate) enum Index {
    Hash(HashIndex),
    /// Boxed: it brings its counters along, and a hash index should not be moved by their size.
    Ordered(Box<OrderedIndex>),
    /// Of a collection's elements.
    Collection(Box<CollectionIndex>),
}

/// A locked key.
pub(crate) enum Locked<'a> {
    Hash(hash::Locked<'a>),
    Ordered(ordered::Locked<'a>),
    Collection(collection::Locked<'a>),
}

/// The slot of a locked key.
pub(crate) enum Place<'a> {
    Hash(hash::Place<'a>),
    Ordered(ordered::Place<'a>),
    Collection(collection::Place<'a>),
}

/// Numbers of an index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    pub bytes: u64,
    pub splits: u64,
    pub doublings: u64,
    pub merges: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub leaf_waits: u64,
}

impl Numbers {
    /// Those of two indexes together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            splits: self.splits + other.splits,
            doublings: self.doublings + other.doublings,
            merges: self.merges + other.merges,
            cache_hits: self.cache_hits + other.cache_hits,
            cache_misses: self.cache_misses + other.cache_misses,
            leaf_waits: self.leaf_waits + other.leaf_waits,
        }
    }
}

impl Index {
    /// The ordered index, if it is one.
    #[inline]
    pub(crate) fn ordered(&self) -> Option<&OrderedIndex> {
        match self {
            Self::Hash(_) | Self::Collection(_) => None,
            Self::Ordered(index) => Some(index),
        }
    }

    /// The index of a collection, if it is one.
    #[inline]
    pub(crate) fn collection(&self) -> Option<&CollectionIndex> {
        if let Self::Collection(index) = self { Some(index) } else { None }
    }

    pub(crate) fn numbers(&self, guard: &Guard) -> Numbers {
        match self {
            Self::Hash(index) => {
                let (splits, doublings) = index.grown(guard);
                let (bytes, doublings) = (index.bytes(guard), u64::from(doublings));
                Numbers { bytes, splits, merges: index.merged(), doublings, ..Numbers::default() }
            }
            Self::Ordered(index) => {
                let ((splits, merges), (cache_hits, cache_misses)) = (index.grown(), index.cached());
                let leaf_waits = index.waits();
                let bytes = index.bytes();
                Numbers { bytes, splits, merges, cache_hits, cache_misses, leaf_waits, doublings: 0 }
            }
            Self::Collection(index) => Numbers { bytes: index.bytes(), ..Numbers::default() },
        }
    }

    /// Hints that the key of `hash` is looked for soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        match self {
            Self::Hash(index) => index.prefetch(hash, guard),
            Self::Ordered(index) => index.prefetch(hash),
            Self::Collection(index) => index.prefetch(hash),
        }
    }

    /// The same, when what `prefetch` asked for has come.
    #[inline]
    pub(crate) fn prefetch_more(&self, hash: u64, guard: &Guard) {
        if let Self::Ordered(index) = self {
            index.prefetch_leaf(hash, guard);
        }
    }

    /// Hints that the key of `hash` is written soon, and may be inserted.
    #[inline(always)]
    pub(crate) fn prefetch_write(&self, hash: u64, insert: bool, guard: &Guard) {
        self.stripes().fetch(hash);
        match self {
            Self::Hash(index) if insert => index.prefetch_insert(hash, guard),
            _ => self.prefetch(hash, guard),
        }
    }

    /// The likeliest slot of `key`, whose record is to be fetched. A hash index does not ask for the key.
    #[inline]
    pub(crate) fn candidate<'k>(
        &self,
        hash: u64,
        key: impl FnOnce() -> &'k [u8],
        guard: &Guard,
    ) -> Option<Slot> {
        match self {
            Self::Hash(index) => index.candidate(hash, guard),
            Self::Ordered(index) => index.candidate(hash, key(), guard),
            Self::Collection(_) => None,
        }
    }

    /// Whether a candidate whose record is of the key was the key's slot when it was read. In an ordered index the key may have
    /// moved to another node before.
    #[inline]
    pub(crate) fn candidates_are_current(&self) -> bool {
        matches!(self, Self::Hash(_))
    }

    /// The slot of `key`, which `look` recognises, and what it says of it, without a lock. What was looked at is what is
    /// returned, even if the slot changes meanwhile.
    #[inline]
    pub(crate) fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        match self {
            Self::Hash(index) => index.find_with(hash, guard, look),
            Self::Ordered(index) => index.find_with(hash, key, guard, look),
            Self::Collection(index) => index.find_with(hash, look),
        }
    }

    /// The slot of `key`, which `is_key` recognises, without a lock.
    #[inline]
    pub(crate) fn find(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        mut is_key: impl FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.find_with(hash, key, guard, |slot| is_key(slot).then_some(())).map(|(slot, ())| slot)
    }

    /// Locks the key of `hash`.
    #[inline(always)]
    pub(crate) fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        match self {
            Self::Hash(index) => Locked::Hash(index.lock(hash, guard)),
            Self::Ordered(index) => Locked::Ordered(index.lock(hash, guard)),
            Self::Collection(index) => Locked::Collection(index.lock(hash)),
        }
    }

    /// The lock of the key of `hash` alone, for who looks at its [candidate](Self::candidate) only.
    #[inline(always)]
    pub(crate) fn hold(&self, hash: u64) -> Held<'_> {
        self.stripes().lock(hash)
    }

    #[inline]
    pub(crate) fn stripes(&self) -> &Stripes {
        match self {
            Self::Hash(index) => index.stripes(),
            Self::Ordered(index) => index.stripes(),
            Self::Collection(index) => index.stripes(),
        }
    }

    /// Locks the keys of several indexes that have the same stripes, each given with its hash. The result is in their order.
    pub(crate) fn lock_all<'g>(keys: &[(&'g Self, u64)], guard: &'g Guard) -> Vec<Locked<'g>> {
        let Some((first, _)) = keys.first() else { return Vec::new() };
        let early: Vec<_> = keys.iter().map(|(index, hash)| index.early(*hash, guard)).collect();
        let hashes: Vec<u64> = keys.iter().map(|&(_, hash)| hash).collect();
        let held = first.stripes().lock_all(&hashes);
        let each = keys.iter().zip(held).zip(early);
        each.map(|((&(index, hash), held), early)| match index {
            Self::Hash(index) => Locked::Hash(index.locked(held, hash, early, guard)),
            Self::Ordered(index) => Locked::Ordered(index.locked(held, hash, guard)),
            Self::Collection(index) => Locked::Collection(index.locked(held, hash)),
        })
        .collect()
    }

    fn early(&self, hash: u64, guard: &Guard) -> Option<hash::DirEntry> {
        if let Self::Hash(index) = self { index.early(hash, guard) } else { None }
    }

    /// What [`Locked::insert`] asked for. No lock may be held.
    pub(crate) fn split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) {
        if let Self::Hash(index) = self {
            index.split(hash, keys, guard);
        }
    }

    /// The key of `hash` was removed: gives back what is not needed any more. No lock may be held.
    pub(crate) fn shrink(&self, hash: u64, guard: &Guard) {
        // Leaves of an ordered index are joined by the removal itself.
        if let Self::Hash(index) = self {
            index.merge(hash, guard);
        }
    }

    /// Gives back what no removal came upon, in some of the index; where to go on, if there is more to look at.
    pub(crate) fn shrink_from(&self, from: Option<u64>) -> Option<u64> {
        match self {
            Self::Hash(index) => index.merge_from(from),
            Self::Ordered(_) | Self::Collection(_) => None,
        }
    }

    /// Visits some slots from `cursor` on, and returns the cursor to go on from, 0 at the end. A key that stays is visited
    /// at least once.
    pub(crate) fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        match self {
            Self::Hash(index) => index.scan(cursor, guard, visit),
            Self::Ordered(index) => index.scan(cursor, guard, visit),
            Self::Collection(index) => index.scan(cursor, visit),
        }
    }

    /// Visits each slot once, while nobody changes the index.
    pub(crate) fn each(&self, guard: &Guard, visit: &mut dyn FnMut(Slot)) {
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

    /// What the superblock and an image call it.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::Hash(_) => 0,
            Self::Ordered(_) => 1,
            Self::Collection(_) => 2,
        }
    }

    /// Whether these bytes are a page of an image of this kind of index.
    pub(crate) fn is_page(kind: u8, bytes: &[u8]) -> bool {
        match kind {
            0 => hash::image::is_page(bytes),
            _ => ordered::image::is_page(bytes),
        }
    }

    /// Hands pages for an image to `emit`, with where the keys of each begin, until that says false. Returns what
    /// was handed out, if it was all. No page of an image may be unread.
    pub(crate) fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        match self {
            Self::Hash(index) => index.dump(pending, emit),
            Self::Ordered(index) => index.dump(keys, pending, emit),
            // Recovery reads the blocks of its elements.
            Self::Collection(_) => Ok(Some(Loaded::default())),
        }
    }

    /// How many slots of an image's pages count.
    pub(crate) fn count(kind: u8, pages: &PagesOf<'_>, counts: &Counts, threads: usize) -> Loaded {
        let count = |&(_, page): &(u64, &[u8])| match kind {
            0 => counts.count(hash::image::slots(page)),
            _ => counts.count(ordered::image::slots(page)),
        };
        sync::each_on_threads(threads, pages.iter(), count).into_iter().fold(Loaded::default(), Loaded::plus)
    }

    /// Fills the index, which is empty, with those slots of an image that count; each page is read when it is first touched. `Err`: what is wrong
    /// with the image; the index is of no use then. For recovery alone: the pages lie on the medium of the store to which the index will belong,
    /// and that frees their extents only when [`Index::pages_left`] says 0 (`Keeper::free_image`).
    pub(crate) fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: Counts,
        threads: usize,
    ) -> std::result::Result<(), String> {
        match self {
            // SAFETY: a store's medium goes after its index, and nobody stores to extents that are not freed.
            Self::Hash(index) => unsafe { index.attach(pages, counts) },
            // SAFETY: as above.
            Self::Ordered(index) => unsafe { index.attach(pages, counts, threads) },
            Self::Collection(_) => Err("it has pages of a collection".into()),
        }
    }

    /// Pages of the image that it was attached to that are not read yet.
    pub(crate) fn pages_left(&self) -> u64 {
        match self {
            Self::Hash(index) => index.pages_left(),
            Self::Ordered(index) => index.pages_left(),
            Self::Collection(_) => 0,
        }
    }

    /// Reads the pages that are left, until `stops`.
    pub(crate) fn read_pages(&self, stops: &dyn Fn() -> bool) {
        match self {
            _ if self.pages_left() == 0 => {}
            Self::Hash(index) => index.read_pages(stops),
            Self::Ordered(index) => index.read_pages(stops),
            Self::Collection(_) => {}
        }
    }

    /// A cursor as it is shown outside.
    pub(crate) fn cursor_shown(&self, cursor: u64) -> u64 {
        match self {
            Self::Hash(_) => HashIndex::cursor_shown(cursor),
            Self::Ordered(_) | Self::Collection(_) => cursor,
        }
    }

    /// The cursor that was shown so.
    pub(crate) fn cursor_meant(&self, shown: u64) -> u64 {
        match self {
            Self::Hash(_) => HashIndex::cursor_meant(shown),
            Self::Ordered(_) | Self::Collection(_) => shown,
        }
    }

    /// A slot that `random` picks, each as likely as any other; `None` where it picks none, which happens the more often the
    /// fewer of the index's slots are taken.
    pub(crate) fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        match self {
            Self::Hash(index) => index.draw(random, guard),
            Self::Ordered(index) => index.draw(random, guard),
            Self::Collection(index) => {
                let mut random = random.into_iter().cycle();
                index.random(|| random.next().unwrap_or(0))
            }
        }
    }

    /// A cursor at a place that `random` picks.
    pub(crate) fn cursor_at(&self, random: u64, guard: &Guard) -> u64 {
        match self {
            Self::Hash(_) => HashIndex::cursor_at(random),
            Self::Ordered(index) => index.cursor_at(random, guard),
            Self::Collection(_) => random,
        }
    }
}

impl<'a> Locked<'a> {
    #[inline(always)]
    fn held(&self) -> &Held<'a> {
        match self {
            Self::Hash(locked) => locked.held(),
            Self::Ordered(locked) => locked.held(),
            Self::Collection(locked) => locked.held(),
        }
    }

    /// See [`Held::has_members`].
    #[inline(always)]
    pub(crate) fn has_members(&self) -> bool {
        self.held().has_members()
    }

    /// See [`Held::count_member`].
    #[inline]
    pub(crate) fn count_member(&self, more: bool) {
        self.held().count_member(more);
    }

    /// The version of the key's next record.
    #[inline]
    pub(crate) fn next_version(&self) -> Version {
        match self {
            Self::Hash(locked) => locked.next_version(),
            Self::Ordered(locked) => locked.next_version(),
            Self::Collection(locked) => locked.next_version(),
        }
    }

    /// Recovery has met a record of the key.
    #[inline]
    pub(crate) fn met_version(&self, version: Version) {
        match self {
            Self::Hash(locked) => locked.met_version(version),
            Self::Ordered(locked) => locked.met_version(version),
            Self::Collection(locked) => locked.met_version(version),
        }
    }

    /// Where the key's record probably lies.
    #[inline]
    pub(crate) fn candidate(&self, key: &[u8]) -> Option<Offset> {
        match self {
            Self::Hash(locked) => locked.candidate(),
            Self::Ordered(locked) => locked.candidate(key),
            Self::Collection(_) => None,
        }
    }

    /// The place of the record of `key` that `look` recognises, and what it says of it.
    #[inline(always)]
    pub(crate) fn find_with<'k, T>(
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
    pub(crate) fn find<'k>(&self, key: &'k [u8], mut is_key: impl FnMut(Slot) -> bool) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        self.find_with(key, |slot| is_key(slot).then_some(())).map(|(place, ())| place)
    }

    /// The slot of `key`, which is known to have one, if that can be told without a look at records.
    #[inline]
    pub(crate) fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        match self {
            Self::Hash(locked) => locked.find_sole().map(Place::Hash),
            Self::Ordered(_) | Self::Collection(_) => None,
        }
    }

    /// Adds a key that was looked for and is not there. Says whether [`Index::split`] should be called, once no lock is held any
    /// more.
    #[inline(always)]
    #[must_use]
    pub(crate) fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) -> bool {
        match self {
            Self::Hash(locked) => locked.insert(slot),
            Self::Ordered(locked) => {
                locked.insert(key, slot, keys);
                false
            }
            Self::Collection(locked) => {
                locked.insert(key, slot, keys);
                false
            }
        }
    }

    pub(crate) fn remove(&self, place: &Place<'_>, keys: &impl KeyBytes) {
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
    pub(crate) fn get(&self) -> Slot {
        match self {
            Self::Hash(place) => place.get(),
            Self::Ordered(place) => place.get(),
            Self::Collection(place) => place.get(),
        }
    }

    /// Changes marks of the slot, which leads where it did.
    #[inline]
    pub(crate) fn set(&self, slot: Slot) {
        match self {
            Self::Hash(place) => place.set(slot),
            Self::Ordered(place) => place.set(slot),
            Self::Collection(place) => place.set(slot),
        }
    }

    /// The slot leads elsewhere from now on: to another record of its key.
    #[inline]
    pub(crate) fn lead(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        match self {
            Self::Hash(place) => place.set(slot),
            Self::Ordered(place) => place.set(slot),
            Self::Collection(place) => place.lead(key, slot, keys),
        }
    }

    /// Sets the slot of a damaged record that was the key's.
    #[cold]
    pub(crate) fn heal(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        match self {
            Self::Hash(place) => place.set(slot),
            Self::Ordered(place) => place.heal(slot, keys),
            Self::Collection(place) => place.lead(key, slot, keys),
        }
    }
}
