//! What an index has not read yet of the checkpoint that it comes from. An open attaches the index to the checkpoint's
//! pages, which takes a time that hardly depends on their number; each is read when it is first touched.
//!
//! Invariants:
//! 1. The bytes of the pages stay where they are, and as they are, until `left` is 0: that is the promise that
//!    [`Attached::new`] asks for.
//! 2. Each page is read once, by whoever claims it. `left` falls when what was read can be found, so who sees 0 needs no
//!    page any more.

use super::{Loaded, PagesOf, Slot};
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicU64};
use std::ptr::NonNull;

pub(super) struct Attached {
    pages: Box<[Page]>,
    left: AtomicU64,
    counts: KeepFilter,
}

/// Which slots of a checkpoint count.
pub(crate) enum KeepFilter {
    All,
    /// Those that point into kept blocks: a bit for each extent, which has this many bytes. (The blocks' own entries
    /// take a thousand times as much memory, and to ask them would be a miss for each slot.) Who else knows of old records of their keys is not known any more.
    Kept {
        extents: Vec<u64>,
        extent_bytes: u64,
    },
}

impl KeepFilter {
    /// The slot as the index is to have it, if it counts.
    #[inline]
    pub(crate) fn keep(&self, slot: Slot) -> Option<Slot> {
        let Self::Kept { extents, extent_bytes } = self else { return Some(slot) };
        let extent = slot.location().0 / extent_bytes;
        let is_kept = extents.get(extent as usize / 64).is_some_and(|bits| bits >> (extent % 64) & 1 != 0);
        (is_kept || planted(Mutant::CheckpointSlotsAllKept)).then_some(slot.with_unverified_count())
    }

    /// How many of these slots count.
    pub(super) fn count(&self, slots: impl Iterator<Item = Slot>) -> Loaded {
        let mut loaded = Loaded::default();
        slots.filter_map(|slot| self.keep(slot)).for_each(|slot| loaded.count(slot));
        loaded
    }
}

struct Page {
    /// Where its keys begin.
    first: u64,
    bytes: NonNull<[u8]>,
    claimed: AtomicBool,
}

// SAFETY: the bytes are only read, and nobody stores to them (invariant 1).
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Attached {
    /// # Safety
    /// The bytes of `pages` are valid, and not stored to, until [`Attached::left`] says 0 or the result is dropped.
    pub(super) unsafe fn new(pages: &PagesOf<'_>, counts: KeepFilter) -> Self {
        let page = |&(first, bytes): &(u64, &[u8])| Page {
            first,
            bytes: NonNull::from(bytes),
            claimed: AtomicBool::new(false),
        };
        let left = AtomicU64::new(pages.len() as u64);
        Self { pages: pages.iter().map(page).collect(), left, counts }
    }

    /// The bytes of a page, and which slots of it count, for the first who asks; that one calls [`Attached::done`] afterwards.
    pub(super) fn claim(&self, page: usize) -> Option<(&[u8], &KeepFilter)> {
        let page = self.pages.get(page)?;
        // Relaxed: the bytes have been there from the beginning, and what is made of them is published elsewhere.
        if page.claimed.swap(true, Relaxed) && !planted(Mutant::PageReadTwice) {
            return None;
        }
        // SAFETY: until `done` is called `left` is above 0 (invariant 1).
        Some((unsafe { page.bytes.as_ref() }, &self.counts))
    }

    /// A claimed page was read, and what it held can be found.
    pub(super) fn done(&self) {
        // Release: pairs with the Acquire in `left`; whoever frees the pages comes after who read them.
        self.left.fetch_sub(1, Release);
    }

    /// Pages that are not read yet.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Acquire)
    }

    /// Where the keys of each page begin.
    pub(super) fn firsts(&self) -> impl Iterator<Item = u64> {
        self.pages.iter().map(|page| page.first)
    }
}
