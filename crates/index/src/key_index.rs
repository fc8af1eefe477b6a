//! The interface of every index of a store: from a key to its slot, by the hash of the key.
//!
//! [`HashIndex`](super::hash::HashIndex), [`OrderedIndex`](super::ordered::OrderedIndex) and
//! [`CollectionIndex`](super::collection::CollectionIndex) implement it, and [`Index`](super::either::Index) is one of
//! them. Methods that only one of them needs do nothing by default: only a hash index is ever crowded and must be split
//! by its users.

use super::stripes::{LockedStripe, Stripes};
use super::{KeepFilter, KeyBytes, Keys, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::format::Version;
use duramen_log::sync::reclaim::Guard;

/// Numbers of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    pub bytes: u64,
    pub splits: u64,
    pub doublings: u64,
    pub merges: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub leaf_waits: u64,
}

impl Numbers {
    /// The sums of the numbers of two indexes.
    pub fn plus(self, other: Self) -> Self {
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

pub trait KeyIndex {
    /// A locked key.
    type Locked<'a>: LockedKey<'a>
    where
        Self: 'a;

    /// Its number in the superblock and in checkpoints.
    const KIND: u8;

    /// Whether a candidate whose record is of the key was the key's slot when it was read. In an ordered index the key
    /// may have moved to another node before.
    const CANDIDATES_ARE_CURRENT: bool = false;

    fn numbers(&self, guard: &Guard) -> Numbers;

    /// The locks of its keys.
    fn stripes(&self) -> &Stripes;

    /// Hints that the key of `hash` is looked for soon.
    fn prefetch(&self, hash: u64, guard: &Guard);

    /// The same, once the lines that `prefetch` asked for have arrived.
    #[inline]
    fn prefetch_more(&self, _hash: u64, _guard: &Guard) {}

    /// Hints that the key of `hash` is inserted soon.
    #[inline(always)]
    fn prefetch_insert(&self, hash: u64, guard: &Guard) {
        self.prefetch(hash, guard);
    }

    /// The likeliest slot of `key`, whose record is to be fetched. A hash index does not use the key.
    #[inline]
    fn candidate<'k>(&self, _hash: u64, _key: impl FnOnce() -> &'k [u8], _guard: &Guard) -> Option<Slot> {
        None
    }

    /// Looks up the slot of `key` without a lock; `look` recognises it. Returns the slot that `look` saw and its
    /// result, even if the slot changes meanwhile.
    fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)>;

    /// Locks the key of `hash`.
    fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Self::Locked<'g>;

    /// The key of `hash`, whose stripe is held.
    fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Self::Locked<'g>;

    /// Does the split that [`LockedKey::insert`] asked for. No lock may be held.
    fn split(&self, _hash: u64, _keys: &impl KeyBytes, _guard: &Guard) {}

    /// The same for a caller that holds stripes for several writes; false if another thread has a stripe that it needs.
    fn try_split(&self, _hash: u64, _keys: &impl KeyBytes, _guard: &Guard) -> bool {
        true
    }

    /// The key of `hash` was removed: gives back memory that is no longer needed. No lock may be held.
    fn shrink(&self, _hash: u64, _guard: &Guard) {}

    /// Gives back memory that no removal found, in some of the index. Returns where to continue, if there is more to
    /// look at.
    fn shrink_from(&self, _from: Option<u64>) -> Option<u64> {
        None
    }

    /// Visits some slots from `cursor` on, and returns the cursor to continue from, 0 at the end. A key that stays is
    /// visited at least once.
    fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64;

    /// The same; while nobody changes the index, only damaged ones may be visited twice.
    fn scan_once(&self, cursor: u64, _keys: &impl Keys, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.scan(cursor, guard, visit)
    }

    /// Visits each slot once, while nobody changes the index.
    fn each(&self, guard: &Guard, visit: &mut dyn FnMut(Slot)) {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, guard, visit);
            if cursor == 0 {
                return;
            }
        }
    }

    /// A cursor as clients see it.
    fn cursor_shown(&self, cursor: u64) -> u64 {
        cursor
    }

    /// The cursor that a client's number means. Any number is valid.
    fn cursor_meant(&self, shown: u64) -> u64 {
        shown
    }

    /// A cursor at a place that `random` picks.
    fn cursor_at(&self, random: u64, guard: &Guard) -> u64;

    /// A slot that `random` picks, all equally likely; `None` if it picks none, which is the more frequent the fewer of
    /// the index's slots are taken.
    fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot>;

    /// Hands pages for a checkpoint to `emit`, each with where its keys begin, until it returns false. Returns the
    /// count of the emitted slots if all were emitted. All pages of a checkpoint must have been read. For a slot that
    /// is pending, `pending` returns, while its record is there, the slot to write in its place, which may be empty.
    fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>>;

    /// Fills an empty index with the slots of a checkpoint that `counts` keeps; each page is read when it is first
    /// touched. `Err`: the fault in the checkpoint; the index cannot be used then.
    ///
    /// # Safety
    /// The pages stay as they are until [`Self::pages_left`] returns 0, or the index is dropped.
    unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        threads: usize,
    ) -> std::result::Result<(), String>;

    /// Unread pages of the checkpoint that it was attached to.
    fn pages_left(&self) -> u64 {
        0
    }

    /// Reads the remaining pages, until `stops` returns true.
    fn read_pages(&self, _stops: &dyn Fn() -> bool) {}

    /// Its table is dead, and nobody reads it any more. From now on its elements have no order, since their records are
    /// removed one by one. Works until `stops` returns true; returns whether it is done.
    fn forget_order(&self, _stops: &dyn Fn() -> bool) -> bool {
        true
    }
}

/// A locked key.
pub trait LockedKey<'a> {
    type Place<'k>: KeyPlace
    where
        'a: 'k;

    /// The stripe that is held.
    fn held(&self) -> &LockedStripe<'a>;

    /// See [`LockedStripe::has_transaction_records`].
    #[inline(always)]
    fn has_transaction_records(&self) -> bool {
        self.held().has_transaction_records()
    }

    /// See [`LockedStripe::count_transaction_record`].
    #[inline]
    fn count_transaction_record(&self, more: bool) {
        self.held().count_transaction_record(more);
    }

    /// The version of the key's next record.
    #[inline]
    fn next_version(&self, floor: Version) -> Version {
        self.held().next_version(floor)
    }

    /// Recovery has read a record of the key.
    #[inline]
    fn observe_version(&self, version: Version) {
        self.held().observe_version(version);
    }

    /// The place of the record of `key` that `look` recognises, and the result of `look`.
    fn find_with<'k, T>(
        &self,
        key: &'k [u8],
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Self::Place<'k>, T)>
    where
        'a: 'k;

    /// The slot of `key`, which is known to have one, if it can be determined without reading records.
    #[inline]
    fn find_sole<'k>(&self) -> Option<Self::Place<'k>>
    where
        'a: 'k,
    {
        None
    }

    /// Adds a key that was looked for and is absent. Returns whether [`KeyIndex::split`] should be called, once no lock
    /// is held any more.
    #[must_use]
    fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) -> bool;

    fn remove(&self, place: &Self::Place<'_>, keys: &impl KeyBytes);
}

/// The slot of a locked key. No other thread changes it, wherever it moves.
pub trait KeyPlace {
    fn get(&self) -> Slot;

    /// Changes marks of the slot; its location stays.
    fn set(&self, slot: Slot);

    /// From now on the slot points elsewhere: to another record of its key.
    #[inline]
    fn repoint(&self, _key: &[u8], slot: Slot, _keys: &impl KeyBytes) {
        self.set(slot);
    }

    /// Sets the slot of a damaged record that was the key's.
    #[cold]
    fn repair(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        self.repoint(key, slot, keys);
    }
}
