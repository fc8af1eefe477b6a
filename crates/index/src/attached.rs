//! The unread pages of the checkpoint that an index comes from. An open attaches the index to the checkpoint's pages,
//! in a time that hardly depends on their number. Each page is read when it is first touched.
//!
//! Invariants:
//! 1. The bytes of the pages stay in place and unchanged until `left` is 0: that is the promise that [`Attached::new`]
//!    asks for.
//! 2. Each page is read once, by the thread that claims it. `left` falls once the page's slots can be found in the
//!    index, so a thread that sees 0 needs no page any more.

use super::{Loaded, PagesOf, Slot};
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicBool, AtomicU64};
use std::ptr::NonNull;

pub(super) struct Attached {
    pages: Box<[Page]>,
    left: AtomicU64,
    counts: KeepFilter,
}

/// Which slots of a checkpoint count.
pub enum KeepFilter {
    All,
    /// Those that point into kept blocks: a bit for each extent, which has `extent_bytes` bytes. (The blocks' own
    /// entries take a thousand times as much memory, and asking them would be a miss for each slot.) A kept slot's
    /// count of stale records is no longer certain.
    Kept {
        extents: Vec<u64>,
        extent_bytes: u64,
    },
}

impl KeepFilter {
    /// The slot for the index, if it counts.
    #[inline]
    pub fn keep(&self, slot: Slot) -> Option<Slot> {
        let Self::Kept { extents, extent_bytes } = self else { return Some(slot) };
        let extent = slot.location().0 / extent_bytes;
        let is_kept = extents.get(extent as usize / 64).is_some_and(|bits| bits >> (extent % 64) & 1 != 0);
        is_kept.then_some(slot.with_unverified_count())
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
    /// The bytes of `pages` are valid, and not stored to, until [`Attached::left`] returns 0 or the result is dropped.
    pub(super) unsafe fn new(pages: &PagesOf<'_>, counts: KeepFilter) -> Self {
        let page = |&(first, bytes): &(u64, &[u8])| Page {
            first,
            bytes: NonNull::from(bytes),
            claimed: AtomicBool::new(false),
        };
        let left = AtomicU64::new(pages.len() as u64);
        Self { pages: pages.iter().map(page).collect(), left, counts }
    }

    /// The bytes of a page, and the filter of its slots, for the first caller, which calls [`Attached::done`]
    /// afterwards.
    pub(super) fn claim(&self, page: usize) -> Option<(&[u8], &KeepFilter)> {
        let page = self.pages.get(page)?;
        // Relaxed: the bytes have been there from the beginning, and the slots read from them are published elsewhere.
        if page.claimed.swap(true, Relaxed) {
            return None;
        }
        assert!(cfg!(loom) || self.left() > 0, "a page is read after all were (invariant 1)");
        // SAFETY: until `done` is called `left` is above 0 (invariant 1).
        Some((unsafe { page.bytes.as_ref() }, &self.counts))
    }

    /// A claimed page was read, and its slots can be found in the index.
    pub(super) fn done(&self) {
        // Release: pairs with the Acquire in `left`; the thread that frees the pages comes after the readers.
        let left = self.left.fetch_sub(1, Release);
        assert!(left > 0, "more pages were read than there are (invariant 2)");
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
