//! Leaves as pages of an index checkpoint, and back.
//!
//! A page is a number of leaves (4 bytes) and then these, in the order of their keys:
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | length of the lowest key |
//! | 4 | bytes that all its keys share |
//! | 8 | slots |
//! | 8 | label |
//! | | the lowest key; then the slots, then their prefixes, 8 bytes each |
//!
//! A page holds each leaf as it was at one moment, copied under its lock; see `checkpoint::plan` of the engine for why
//! that is enough.

use super::OrderedIndex;
use super::key::Sought;
use super::node::{LEAF_SLOTS, LockedNode, LowBuffer, Node, Order};
use super::walk::count_below;
use crate::attached::{Attached, KeepFilter};
use crate::{KeyBytes, Loaded, PagesOf, Slot};
use duramen_log::Result;
use duramen_log::format::{u32_at, u64_at};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim::{self, Guard};

/// A page is full from here on.
const PAGE_BYTES: usize = 16 << 10;
const LEAF_FIXED_BYTES: usize = 24;
/// Pages that a thread takes at a time.
const PAGES_AT_ONCE: usize = 4;
/// Leaves that are passed under one guard.
const LEAVES_WALKED: usize = 256;

/// A leaf in a page.
struct Leaf<'a> {
    skip: usize,
    label: u64,
    low: &'a [u8],
    slots: &'a [u8],
    prefixes: &'a [u8],
}

impl<'a> Leaf<'a> {
    fn slots(&self) -> impl Iterator<Item = Slot> + use<'a> {
        self.slots.chunks_exact(8).map(|slot| Slot(u64_at(slot, 0)))
    }
}

/// The first leaf of `bytes`, and the bytes after it.
fn leaf(bytes: &[u8]) -> Option<(Leaf<'_>, &[u8])> {
    let (fixed, rest) = bytes.split_at_checked(LEAF_FIXED_BYTES)?;
    let (low, rest) = rest.split_at_checked(u32_at(fixed, 0) as usize)?;
    let count = usize::try_from(u64_at(fixed, 8)).ok().filter(|&count| count <= LEAF_SLOTS)?;
    let (slots, rest) = rest.split_at_checked(count * 8)?;
    let (prefixes, rest) = rest.split_at_checked(count * 8)?;
    Some((Leaf { skip: u32_at(fixed, 4) as usize, label: u64_at(fixed, 16), low, slots, prefixes }, rest))
}

/// The leaves of a page.
fn leaves(page: &[u8]) -> impl Iterator<Item = Leaf<'_>> {
    let mut next = page.get(4..).unwrap_or_default();
    std::iter::from_fn(move || {
        let leaf;
        (leaf, next) = self::leaf(next)?;
        Some(leaf)
    })
}

/// All slots of a page.
pub fn slots(page: &[u8]) -> impl Iterator<Item = Slot> {
    leaves(page).flat_map(|leaf| leaf.slots())
}

/// Whether these bytes are a page.
pub fn is_page(bytes: &[u8]) -> bool {
    let Some((count, mut rest)) = bytes.split_at_checked(4) else { return false };
    for number in 0..u32_at(count, 0) {
        match leaf(rest) {
            // Only the first leaf of all has no lowest key.
            Some((leaf, behind)) if number == 0 || !leaf.low.is_empty() => rest = behind,
            _ => return false,
        }
    }
    rest.is_empty() && bytes.len() > 4
}

/// Fills an empty leaf with those of its slots that count.
fn fill(held: &mut LockedNode<'_>, leaf: &Leaf<'_>, counts: &KeepFilter) {
    held.change();
    let mut count = 0;
    for (slot, prefix) in leaf.slots().zip(leaf.prefixes.chunks_exact(8)) {
        if let Some(slot) = counts.keep(slot) {
            held.set(count, u64_at(prefix, 0), slot);
            count += 1;
        }
    }
    held.set_skip(leaf.skip);
    held.set_order(Order::of(count));
}

/// Appends a leaf, from `low` on, without its first `skipped` slots. Appended slots are counted in `counted`. For a
/// slot that is pending, `pending` returns the slot to write.
fn encode(
    held: &LockedNode<'_>,
    low: &[u8],
    skipped: usize,
    page: &mut Vec<u8>,
    counted: &mut Loaded,
    pending: &dyn Fn(Slot) -> Slot,
) {
    let node = held.node;
    let written = |slot: Slot| if slot.is_pending() { pending(slot).with_pending(false) } else { slot };
    let entries = held.entries().skip(skipped).map(|(prefix, slot)| (prefix, written(slot)));
    let entries: Vec<_> = entries.filter(|(_, slot)| !slot.is_empty()).collect();
    page.extend_from_slice(&(low.len() as u32).to_le_bytes());
    page.extend_from_slice(&(node.skip() as u32).to_le_bytes());
    page.extend_from_slice(&(entries.len() as u64).to_le_bytes());
    page.extend_from_slice(&node.label.load(Relaxed).to_le_bytes());
    page.extend_from_slice(low);
    for &(_, slot) in &entries {
        counted.count(slot);
        page.extend_from_slice(&slot.0.to_le_bytes());
    }
    for (prefix, _) in entries {
        page.extend_from_slice(&prefix.to_le_bytes());
    }
}

impl OrderedIndex {
    /// Hands pages of all leaves to `emit`, in the order of their keys, until it returns false. Returns the count of
    /// the emitted slots if all were emitted. All pages must have been read. For a slot that is pending, `pending`
    /// returns, while its record is there, the slot to write in its place, which may be empty.
    pub fn dump(
        &self,
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        emit: &mut dyn FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Option<Loaded>> {
        let mut page = Vec::new();
        let mut counted = Loaded::default();
        let mut onward = Some(Vec::new());
        let mut pages = 0;
        while let Some(from) = onward {
            onward = self.dump_page(&from, keys, pending, &mut page, &mut counted);
            if !emit(pages, &page)? {
                return Ok(None);
            }
            pages += 1;
        }
        Ok(Some(counted))
    }

    /// Fills a page with leaves of keys from `from` on, and says where the next page begins.
    fn dump_page(
        &self,
        from: &[u8],
        keys: &impl KeyBytes,
        pending: &dyn Fn(Slot) -> Slot,
        page: &mut Vec<u8>,
        counted: &mut Loaded,
    ) -> Option<Vec<u8>> {
        let guard = reclaim::pin();
        page.clear();
        page.extend_from_slice(&[0; 4]);
        let sought = Sought::new(from);
        let mut held = loop {
            let at = self.seek(&sought, &guard);
            let held = at.node.hold(&self.waits);
            if held.is_still(at.version) {
                break held;
            }
        };
        // A leaf that was merged since holds keys that the previous page already has.
        let is_low = held.node.low_order(&sought, &guard).is_eq();
        let mut skipped = match is_low {
            true => 0,
            false => {
                let slots: Vec<Slot> = held.entries().map(|(_, slot)| slot).collect();
                count_below(&slots, from, false, keys)
            }
        };
        let mut low = from.to_vec();
        let mut leaves = 0u32;
        loop {
            encode(&held, &low, skipped, page, counted, pending);
            leaves += 1;
            page[..4].copy_from_slice(&leaves.to_le_bytes());
            // Under the lock: the leaf's successor is the successor of the slots just written.
            let next = held.node.next(0, &guard)?;
            low.clear();
            low.extend_from_slice(next.low(&mut LowBuffer::default(), &guard));
            if page.len() >= PAGE_BYTES {
                return Some(low);
            }
            // Before this one is unlocked: otherwise the next could be merged into it.
            held = next.hold(&self.waits);
            skipped = 0;
        }
    }

    /// Fills an empty index from its pages ([`is_page`]), with the slots that `counts` keeps. Each page is read when it
    /// is first touched. Until then one leaf stands for it, with the lowest key of its first leaf. `Err`: the fault in
    /// the pages; the index cannot be used then.
    ///
    /// # Safety
    /// The bytes of the pages are valid, and not stored to, until [`OrderedIndex::pages_left`] returns 0 or the index
    /// is dropped.
    pub unsafe fn attach(
        &mut self,
        pages: &PagesOf<'_>,
        counts: KeepFilter,
        threads: usize,
    ) -> std::result::Result<(), String> {
        Self::check(pages)?;
        // SAFETY: as the caller promises.
        self.attached = Some(unsafe { Attached::new(pages, counts) });
        self.fill_with(threads, pages.chunks(PAGES_AT_ONCE).enumerate(), |(piece, pages), chain| {
            for (number, &(_, page)) in (piece * PAGES_AT_ONCE..).zip(pages) {
                if let Some(first) = leaves(page).next() {
                    self.add(chain, first.low, first.label).set_page(Some(number));
                }
            }
        });
        Ok(())
    }

    /// Checks that the pages are those of an index.
    fn check(pages: &PagesOf<'_>) -> std::result::Result<(), String> {
        let is_wrong = |&(number, page): &(u64, &[u8])| {
            leaves(page).next().map(|first| first.low.is_empty()) != Some(number == 0)
        };
        match pages.iter().find(|page| is_wrong(page)) {
            Some((number, _)) => Err(format!("its page {number} does not continue the page before")),
            None if pages.is_empty() => Err("pages of it are missing".into()),
            None => Ok(()),
        }
    }

    /// Fills a leaf that is still a page from that page, and adds the page's other leaves after it.
    ///
    /// A thread that wants the leaf meanwhile waits for its lock, or for its change to end.
    #[cold]
    pub(super) fn read_page(&self, node: &Node, guard: &Guard) {
        let mut held = node.hold(&self.waits);
        let (Some(page), Some(attached)) = (node.page(), self.attached.as_ref()) else { return };
        let Some((bytes, counts)) = attached.claim(page) else { return };
        let mut leaves = leaves(bytes);
        let behind = node.next(0, guard);
        let mut added = Vec::new();
        if let Some(first) = leaves.next() {
            fill(&mut held, &first, counts);
        }
        let mut last = node;
        for leaf in leaves {
            // SAFETY: `Memory` gives memory of a node, which it keeps (invariant 6).
            let new: &Node = unsafe { self.memory.take().as_ref() };
            // The first leaf's label may have been raised since, and labels are in the order of the list. Labels after
            // it only grew.
            let label = leaf.label.max(node.label.load(Relaxed));
            fill(&mut new.init(leaf.low, self.height_of(leaf.low), label), &leaf, counts);
            new.set_next(0, behind);
            last.set_next(0, Some(new));
            last = new;
            added.push(new);
        }
        held.set_page(None);
        drop(held);
        self.fit_cache();
        attached.done();
        for new in added {
            self.link(new, guard);
        }
    }

    /// Pages that are not read yet.
    pub fn pages_left(&self) -> u64 {
        self.attached.as_ref().map_or(0, Attached::left)
    }

    /// Reads the remaining pages, until `stops` returns true.
    pub fn read_pages(&self, stops: &dyn Fn() -> bool) {
        let mut low = Vec::new();
        loop {
            let guard = reclaim::pin();
            let mut node = self.seek(&Sought::new(&low), &guard).node;
            for _ in 0..LEAVES_WALKED {
                if self.pages_left() == 0 || stops() {
                    return;
                }
                let Some(next) = node.next(0, &guard) else { return };
                if next.page().is_some() {
                    self.read_page(next, &guard);
                }
                node = next;
            }
            low = node.low(&mut LowBuffer::default(), &guard).to_vec();
        }
    }
}
