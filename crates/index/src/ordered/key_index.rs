//! The ordered index as an index of a store.

use super::{Locked, OrderedIndex};
use crate::key_index::{KeyIndex, Numbers};
use crate::stripes::{LockedStripe, Stripes};
use crate::{KeepFilter, KeyBytes, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::sync::reclaim::Guard;

impl KeyIndex for OrderedIndex {
    type Locked<'a> = Locked<'a>;

    const KIND: u8 = 1;

    fn numbers(&self, _: &Guard) -> Numbers {
        let ((splits, merges), (cache_hits, cache_misses)) = (self.grown(), self.cached());
        let (bytes, leaf_waits) = (self.bytes(), self.waits());
        Numbers { bytes, splits, merges, cache_hits, cache_misses, leaf_waits, doublings: 0 }
    }

    #[inline]
    fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    #[inline]
    fn prefetch(&self, hash: u64, _: &Guard) {
        self.cache.fetch(hash);
    }

    #[inline]
    fn prefetch_more(&self, hash: u64, guard: &Guard) {
        if let Some(node) = self.cache.get(hash, guard) {
            node.fetch_leaf();
        }
    }

    /// The leaf of the key, if the cache knows it.
    #[inline]
    fn candidate<'k>(&self, hash: u64, key: impl FnOnce() -> &'k [u8], guard: &Guard) -> Option<Slot> {
        let node = self.cache.get(hash, guard)?;
        node.candidate(node.at_rest()?, key())
    }

    #[inline]
    fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        self.find_with(hash, key, guard, look)
    }

    fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        self.lock(hash, guard)
    }

    fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Locked<'g> {
        self.locked(held, hash, guard)
    }

    fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.scan(cursor, guard, visit)
    }

    fn cursor_at(&self, random: u64, guard: &Guard) -> u64 {
        self.cursor_at(random, guard)
    }

    fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        self.draw(random, guard)
    }

    fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        self.dump(keys, pending, emit)
    }

    unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        threads: usize,
    ) -> std::result::Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe { self.attach(pages, counts, threads) }
    }

    fn pages_left(&self) -> u64 {
        self.pages_left()
    }

    fn read_pages(&self, stops: &dyn Fn() -> bool) {
        self.read_pages(stops);
    }
}
