//! The hash index as an index of a store.

use super::*;
use crate::key_index::{KeyIndex, KeyPlace, LockedKey, Numbers};
use crate::{KeepFilter, KeyBytes, Loaded, PagesOf};
use duramen_log::Result;

impl KeyIndex for HashIndex {
    type Locked<'a> = Locked<'a>;

    const KIND: u8 = 0;
    const CANDIDATES_ARE_CURRENT: bool = true;

    fn numbers(&self, guard: &Guard) -> Numbers {
        let (splits, doublings) = self.grown(guard);
        let (bytes, doublings) = (self.bytes(guard), u64::from(doublings));
        Numbers { bytes, splits, merges: self.merged(), doublings, ..Numbers::default() }
    }

    #[inline]
    fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    #[inline]
    fn prefetch(&self, hash: u64, guard: &Guard) {
        self.prefetch(hash, guard);
    }

    #[inline(always)]
    fn prefetch_insert(&self, hash: u64, guard: &Guard) {
        self.prefetch_insert(hash, guard);
    }

    #[inline]
    fn candidate<'k>(&self, hash: u64, _: impl FnOnce() -> &'k [u8], guard: &Guard) -> Option<Slot> {
        self.candidate(hash, guard)
    }

    #[inline]
    fn find_with<T>(
        &self,
        hash: u64,
        _: &[u8],
        guard: &Guard,
        look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        self.find_with(hash, guard, look)
    }

    #[inline(always)]
    fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        self.lock(hash, guard)
    }

    #[inline(always)]
    fn locked<'g>(&'g self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Locked<'g> {
        self.locked(held, hash, None, guard)
    }

    fn split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) {
        self.split(hash, keys, guard);
    }

    fn try_split(&self, hash: u64, keys: &impl KeyBytes, guard: &Guard) -> bool {
        self.try_split(hash, keys, guard)
    }

    fn shrink(&self, hash: u64, guard: &Guard) {
        self.merge(hash, guard);
    }

    fn shrink_from(&self, from: Option<u64>) -> Option<u64> {
        self.merge_from(from)
    }

    fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        self.scan(cursor, guard, visit)
    }

    fn cursor_shown(&self, cursor: u64) -> u64 {
        Self::cursor_shown(cursor)
    }

    fn cursor_meant(&self, shown: u64) -> u64 {
        Self::cursor_meant(shown)
    }

    fn cursor_at(&self, random: u64, _: &Guard) -> u64 {
        Self::cursor_at(random)
    }

    fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        self.draw(random, guard)
    }

    fn dump(
        &self,
        _: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        self.dump(pending, emit)
    }

    unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        _: usize,
    ) -> std::result::Result<(), String> {
        // SAFETY: as the caller promises.
        unsafe { self.attach(pages, counts) }
    }

    fn pages_left(&self) -> u64 {
        self.pages_left()
    }

    fn read_pages(&self, stops: &dyn Fn() -> bool) {
        self.read_pages(stops);
    }
}

impl<'a> LockedKey<'a> for Locked<'a> {
    type Place<'k>
        = Place<'k>
    where
        'a: 'k;

    #[inline(always)]
    fn held(&self) -> &LockedStripe<'a> {
        &self.held
    }

    #[inline(always)]
    fn find_with<'k, T>(&self, _: &'k [u8], look: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        self.find_with(look)
    }

    #[inline]
    fn find_sole<'k>(&self) -> Option<Place<'k>>
    where
        'a: 'k,
    {
        self.find_sole()
    }

    #[inline(always)]
    fn insert(&self, _: &[u8], slot: Slot, _: &impl KeyBytes) -> bool {
        self.insert(slot)
    }

    fn remove(&self, place: &Place<'_>, _: &impl KeyBytes) {
        self.remove(*place);
    }
}

impl KeyPlace for Place<'_> {
    #[inline]
    fn get(&self) -> Slot {
        (*self).get()
    }

    #[inline]
    fn set(&self, slot: Slot) {
        (*self).set(slot);
    }
}
