//! A segment as a page of an index checkpoint, and back.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | depth |
//! | 1 | 1 | fingerprint bits that are known |
//! | 2 | 2 | zero |
//! | 4 | 4 | slots of the stash |
//! | 8 | 255 | of each bucket: which slots are taken, one bit each |
//! | 263 | 32 | of each bucket: whether a key with this primary lies elsewhere, one bit each |
//! | 295 | | the slots that are taken, 8 bytes each, bucket by bucket, then those of the stash |
//!
//! A page is read without a lock while others write, so its slots are not of one moment.
//! `checkpoint::plan` of the engine says why that does not matter. The necessary condition does hold: a key that was in
//! its secondary bucket or the stash before the page was begun had marked its primary bucket before.

use super::{BUCKET_SLOTS, BUCKETS, DEPTH_MAX, DirEntry, Directory, HashIndex, Segment};
use crate::attached::{Attached, KeepFilter};
use crate::{BUCKET_BIT, FINGERPRINT_BITS, Loaded, PagesOf, Slot};
use duramen_log::format::{u32_at, u64_at};
use duramen_log::sync::Backoff;
use duramen_log::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use duramen_log::sync::atomic::{AtomicPtr, AtomicU64};
use duramen_log::sync::reclaim::{self, Guard};
use duramen_log::{Result, sync};

const OCCUPIED_AT: usize = 8;
const OVERFLOW_AT: usize = OCCUPIED_AT + BUCKETS;
const SLOTS_AT: usize = OVERFLOW_AT + BUCKETS.div_ceil(8);

/// Writes the segment's page and counts its slots in `counted`. For a slot that is pending, `pending` returns the slot
/// to write.
fn encode(
    segment: &Segment,
    entry: DirEntry,
    page: &mut Vec<u8>,
    counted: &mut Loaded,
    pending: &dyn Fn(Slot) -> Slot,
) {
    let mut push = |page: &mut Vec<u8>, slot: Slot| {
        let slot = if slot.is_pending() { pending(slot) } else { slot };
        if !slot.is_empty() {
            counted.count(slot);
            page.extend_from_slice(&slot.with_pending(false).0.to_le_bytes());
        }
        !slot.is_empty()
    };
    page.clear();
    page.resize(SLOTS_AT, 0);
    page[0] = entry.depth() as u8;
    page[1] = entry.known() as u8;
    for (b, bucket) in segment.buckets.iter().enumerate() {
        for (s, slot) in bucket.0.iter().enumerate() {
            let word = slot.load(Acquire);
            if s == 1 && word & BUCKET_BIT != 0 {
                page[OVERFLOW_AT + b / 8] |= 1 << (b % 8);
            }
            if !Slot(word).is_empty() && push(page, Slot(word & !BUCKET_BIT)) {
                page[OCCUPIED_AT + b] |= 1 << s;
            }
        }
    }
    let mut stashed = 0u32;
    for slot in segment.stashes().flat_map(|stash| &stash.slots) {
        let slot = Slot(slot.load(Acquire));
        if !slot.is_empty() {
            stashed += u32::from(push(page, slot));
        }
    }
    page[4..8].copy_from_slice(&stashed.to_le_bytes());
}

/// Depth and known bits; `None` if it is not a page.
fn head(page: &[u8]) -> Option<(u32, u32)> {
    let taken = || page[OCCUPIED_AT..OVERFLOW_AT].iter().map(|bits| bits.count_ones()).sum::<u32>();
    let (depth, known) = (*page.first()?, *page.get(1)?);
    let whole = page.len() >= SLOTS_AT
        && (1..=DEPTH_MAX).contains(&u32::from(depth))
        && (1..=FINGERPRINT_BITS).contains(&u32::from(known))
        && page.len() as u64 == SLOTS_AT as u64 + 8 * (u64::from(taken()) + u64::from(u32_at(page, 4)));
    whole.then_some((depth.into(), known.into()))
}

/// Whether these bytes are a page.
pub fn is_page(bytes: &[u8]) -> bool {
    head(bytes).is_some()
}

/// All slots of a page.
pub fn slots(page: &[u8]) -> impl Iterator<Item = Slot> {
    page.get(SLOTS_AT..).unwrap_or_default().chunks_exact(8).map(|word| Slot(u64_at(word, 0)))
}

/// The greatest depth of pages that are one hash index; `Err` says why they are not.
fn depth_of(pages: &PagesOf<'_>) -> std::result::Result<u32, String> {
    let mut next = Some(0u64);
    let mut depth_max = 1;
    for &(first, page) in pages {
        let (depth, _) = head(page).ok_or("a page of it is not one of a hash index")?;
        if next != Some(first) || first & ((1 << (64 - depth)) - 1) != 0 {
            return Err(format!("its page of hashes from {first:#x} is at the wrong place"));
        }
        next = first.checked_add(1 << (64 - depth));
        depth_max = depth_max.max(depth);
    }
    if next.is_some() || pages.is_empty() { Err("pages of it are missing".into()) } else { Ok(depth_max) }
}

impl HashIndex {
    /// Hands each segment's page to `emit`, in the order of the hashes, until it returns false. Returns the count of
    /// the emitted slots if all were emitted. For a slot that is pending, `pending` returns, while its record is there,
    /// the slot to write in its place, which may be empty.
    pub fn dump(
        &self,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        let mut page = Vec::new();
        let mut counted = Loaded::default();
        let mut prefix = 0u64;
        let _whole = sync::lock(&self.merging);
        loop {
            let depth = {
                let guard = reclaim::pin();
                let entry = self.entry(prefix, &guard);
                encode(self.segment(entry, &guard), entry, &mut page, &mut counted, pending);
                entry.depth()
            };
            if !emit(prefix, &page)? {
                return Ok(None);
            }
            match prefix.checked_add(1 << (64 - depth)) {
                Some(next) => prefix = next,
                None => return Ok(Some(counted)),
            }
        }
    }

    /// Fills an empty index from its pages, with the slots that `counts` keeps; each page is read when it is first
    /// touched. `Err`: the fault in the pages; the index cannot be used then.
    ///
    /// # Safety
    /// The bytes of the pages are valid, and not stored to, until [`HashIndex::pages_left`] returns 0 or the index is
    /// dropped.
    pub unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
    ) -> std::result::Result<(), String> {
        let depth = depth_of(pages)?;
        let entries: Box<[_]> = (0..1usize << depth).map(|_| AtomicPtr::default()).collect();
        let mut directory = Directory { depth, entries, deepest: AtomicU64::new(0) };
        for (number, &(first, page)) in pages.iter().enumerate() {
            // `head` accepted every page.
            let (depth, _) = head(page).unwrap_or((depth, 0));
            directory.repoint(first, DirEntry::unread(number, depth));
        }
        directory = Directory::new(directory.depth, directory.entries);
        self.begin_with(directory);
        // SAFETY: as the caller promises.
        self.attached = Some(unsafe { Attached::new(pages, counts) });
        Ok(())
    }

    /// Replaces the directory before the index is shared.
    pub(super) fn begin_with(&self, directory: Directory) {
        let guard = reclaim::pin();
        let empty = self.directory.swap(Some(reclaim::Owned::new(directory)), AcqRel, &guard);
        // SAFETY: replaced, and nobody else has seen it.
        unsafe { guard.defer_destroy(empty) };
    }

    /// The entry of `hash`, whose segment was still a page a moment ago: reads the page, or waits for its reader.
    #[cold]
    pub(super) fn read_page(&self, hash: u64, guard: &Guard) -> DirEntry {
        let mut backoff = Backoff::default();
        loop {
            let entry = self.directory(guard).entry(hash);
            let (Some(page), Some(attached)) = (entry.page(), self.attached.as_ref()) else { return entry };
            if let Some((bytes, counts)) = attached.claim(page) {
                let read = self.load_page(bytes, counts);
                {
                    let _growing = sync::lock(&self.growing);
                    self.directory(guard).repoint(hash, read);
                }
                attached.done();
                return read;
            }
            backoff.wait();
        }
    }

    /// Pages that are not read yet.
    pub fn pages_left(&self) -> u64 {
        self.attached.as_ref().map_or(0, Attached::left)
    }

    /// Reads the remaining pages, until `stops` returns true.
    pub fn read_pages(&self, stops: &dyn Fn() -> bool) {
        let firsts = self.attached.iter().flat_map(Attached::firsts);
        for first in firsts.take_while(|_| !stops()) {
            self.entry(first, &reclaim::pin());
        }
    }

    fn load_page(&self, page: &[u8], counts: &KeepFilter) -> DirEntry {
        let memory = self.memory.take();
        // `head` accepted every page before.
        let (depth, known) = head(page).unwrap_or((1, FINGERPRINT_BITS));
        let entry = DirEntry::new(memory, depth, known);
        // SAFETY: `Memory` gives zeroed memory of a segment, which it keeps, and nobody else knows of it.
        let segment = unsafe { memory.as_ref() };
        let mut words = slots(page);
        let mut count = 0;
        for (b, bucket) in segment.buckets.iter().enumerate() {
            if page[OVERFLOW_AT + b / 8] >> (b % 8) & 1 != 0 {
                bucket.0[1].store(BUCKET_BIT, Relaxed);
            }
            let mut taken = page[OCCUPIED_AT + b];
            while taken != 0 {
                let s = taken.trailing_zeros() as usize % BUCKET_SLOTS;
                taken &= taken - 1;
                if let Some(slot) = words.next().and_then(|slot| counts.keep(slot)) {
                    let bit = bucket.0[s].load(Relaxed);
                    bucket.0[s].store(slot.0 & !BUCKET_BIT | bit, Relaxed);
                    count += 1;
                }
            }
        }
        for slot in words.filter_map(|slot| counts.keep(slot)) {
            segment.stash(slot.0, super::Change::Alone);
            count += 1;
        }
        segment.count.store(count, Relaxed);
        entry
    }
}
