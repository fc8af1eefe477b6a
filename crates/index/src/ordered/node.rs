//! A node: a leaf of sorted slots, and the tower of links through which it is found.
//!
//! | line | holds |
//! |---|---|
//! | 0 | what a descent reads: the lowest key, marks, label, the two lowest links, the rest of the tower |
//! | 1 to 4 | the leaf: version, order, and of each slot the word and a prefix of its key |
//!
//! A slot never moves inside its leaf: `order` says which positions are taken, and their order by key. The invariants
//! are those of [`super`].

use super::key::{Sought, shared_bytes, word_at};
use crate::memory::Piece;
use crate::{Slot, prefetch};
use duramen_log::sync::Backoff;
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64};
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::prefetch_line;
use std::ptr::{NonNull, null_mut};

/// Bytes of a lowest key that lie in the node itself.
const LOW_BYTES_INLINE: usize = 16;
/// Room for such a key: see [`Node::low`].
pub(super) type LowBuffer = [u8; LOW_BYTES_INLINE];

// In a model of `crate::models` a handful of keys must fill a leaf.
/// With prefixes, versions and order these are four lines.
pub(super) const LEAF_SLOTS: usize = if cfg!(loom) { 2 } else { 14 };
/// Links in the node's first line: 3 in 4 nodes have no more.
const LEVELS_INLINE: usize = 2;

const LOCKED: u64 = 1;
/// Positions are being changed: values that are read meanwhile may be inconsistent.
const CHANGING: u64 = 2;
/// Linked, or about to be. Once the node is removed, it is never set again in this life of the node.
const ALIVE: u64 = 4;
/// Versions are counted in steps of this.
const ONE: u64 = 8;

/// All zero: a node that never lived.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct Node {
    low: [AtomicU64; LOW_BYTES_INLINE / 8],
    low_bytes: AtomicU32,
    height: AtomicU8,
    /// Removed: a descent no longer steps here.
    gone: AtomicBool,
    /// On all its levels.
    linked: AtomicBool,
    /// All bytes of a lowest key that does not fit into `low`.
    low_long: AtomicPtr<u8>,
    /// See [`super::walk`].
    pub label: AtomicU64,
    links: [AtomicPtr<Node>; LEVELS_INLINE],
    tower: AtomicPtr<AtomicPtr<Node>>,
    version: AtomicU64,
    order: AtomicU64,
    /// Bytes that all keys of the leaf share, now and later: its bounds share them.
    skip: AtomicU32,
    /// The checkpoint page, plus one, that holds this leaf, and maybe others after it, until it is read; 0: none.
    page: AtomicU32,
    _unused: [u32; 2],
    prefixes: [AtomicU64; LEAF_SLOTS],
    slots: [AtomicU64; LEAF_SLOTS],
}

impl Piece for Node {}

const _: () = assert!(cfg!(loom) || size_of::<Node>() == 5 * 64);
const _: () = assert!(cfg!(loom) || std::mem::offset_of!(Node, version) == 64);

/// Which positions are taken, in the order of their keys: a count, then positions, 4 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order(u64);

impl Order {
    pub(super) fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    pub(super) fn at(self, rank: usize) -> usize {
        // A torn read must not give a position outside the leaf.
        ((self.0 >> (4 + 4 * rank)) as usize & 15).min(LEAF_SLOTS - 1)
    }

    pub(super) fn positions(self) -> impl DoubleEndedIterator<Item = usize> + Clone {
        (0..self.len().min(LEAF_SLOTS)).map(move |rank| self.at(rank))
    }

    /// The first `count` positions.
    pub(super) fn of(count: usize) -> Self {
        (0..count).fold(Self(0), |order, position| order.with(position, position))
    }

    pub(super) fn first(self, count: usize) -> Self {
        Self(self.0 & ((1 << (4 + 4 * count)) - 1) & !15 | count as u64)
    }

    /// With one more position, at `rank`.
    pub(super) fn with(self, rank: usize, position: usize) -> Self {
        let at = 4 + 4 * rank;
        let low = self.0 & ((1 << at) - 1);
        let high = (self.0 >> at) << at;
        Self((low | (position as u64) << at | high << 4) + 1)
    }

    pub(super) fn without(self, rank: usize) -> Self {
        let at = 4 + 4 * rank;
        let low = self.0 & ((1 << at) - 1);
        let high = (self.0 >> at >> 4) << at;
        Self((low | high) - 1)
    }

    /// A free position.
    pub(super) fn free(self) -> Option<usize> {
        let taken = self.positions().fold(0u32, |taken, position| taken | 1 << position);
        (0..LEAF_SLOTS).find(|position| taken >> position & 1 == 0)
    }
}

/// The result of `Node::look`.
pub(super) enum Seen<T> {
    Found(Slot, T),
    /// Absent, if the key belongs to this node.
    Absent,
    /// The leaf has changed since the version.
    Changed,
}

impl Node {
    /// The link of a level below the height.
    fn link(&self, level: usize) -> &AtomicPtr<Node> {
        if let Some(link) = self.links.get(level) {
            return link;
        }
        // SAFETY: a tower has `height - LEVELS_INLINE` links.
        let link = unsafe { self.tower.load(Relaxed).add(level - LEVELS_INLINE) };
        // SAFETY: it is there before the node is linked, and is freed with it (invariant 2).
        unsafe { &*link }
    }

    /// The next node on a level below the height.
    #[inline]
    pub(super) fn next<'g>(&self, level: usize, _guard: &'g Guard) -> Option<&'g Node> {
        // Acquire: pairs with the Release in `set_next`; the node is whole.
        // SAFETY: null or a node; `Memory` keeps it readable, and invariant 5 keeps it in its place.
        unsafe { self.link(level).load(Acquire).as_ref() }
    }

    /// As `next`, but only the address.
    #[inline]
    pub(super) fn fetch_next(&self, level: usize) {
        let next = self.link(level).load(Relaxed);
        if !next.is_null() {
            prefetch_line(next.cast());
        }
    }

    pub(super) fn set_next(&self, level: usize, next: Option<&Node>) {
        let version = || self.version.load(Relaxed);
        debug_assert!(
            cfg!(loom) || !self.is_linked() || version() & LOCKED != 0 && !self.is_gone(),
            "a link of level {level} changes without the node's lock, or when the node is gone (invariant 3)"
        );
        debug_assert!(
            cfg!(loom) || level > 0 || !self.is_linked() || version() & CHANGING != 0,
            "level 0 changes without the leaf's version (invariant 4)"
        );
        self.set_next_alone(level, next);
    }

    /// The same while no other thread sees the index.
    pub(super) fn set_next_alone(&self, level: usize, next: Option<&Node>) {
        let next = next.map_or(null_mut(), |next| std::ptr::from_ref(next).cast_mut());
        // Release: pairs with the Acquire in `next`.
        self.link(level).store(next, Release);
    }

    pub(super) fn height(&self) -> usize {
        self.height.load(Relaxed) as usize
    }

    #[inline]
    pub(super) fn is_gone(&self) -> bool {
        // Acquire: pairs with the Release in `LockedNode::mark_removed`: a thread that does not step here finds no link
        // to it below.
        self.gone.load(Acquire)
    }

    pub(super) fn is_linked(&self) -> bool {
        // Acquire: pairs with the Release in `set_linked`.
        self.linked.load(Acquire)
    }

    pub(super) fn set_linked(&self) {
        self.linked.store(true, Release);
    }

    /// Hints that the leaf is read soon.
    #[inline]
    pub(super) fn fetch_leaf(&self) {
        let first = std::ptr::from_ref(&self.version).cast::<u8>();
        for line in 0..4 {
            prefetch_line(first.wrapping_add(line * 64));
        }
    }

    #[inline]
    pub(super) fn fetch(&self) {
        prefetch(self);
        self.fetch_leaf();
    }

    /// The lowest key; short ones are copied to `buffer`.
    pub(super) fn low<'b, 'g: 'b>(&self, buffer: &'b mut LowBuffer, _guard: &'g Guard) -> &'b [u8] {
        let bytes = self.low_bytes.load(Relaxed) as usize;
        if bytes > LOW_BYTES_INLINE {
            // SAFETY: made of a box of this length in `init`, freed when no guard can see the node.
            return unsafe { std::slice::from_raw_parts(self.low_long.load(Relaxed), bytes) };
        }
        for (to, word) in buffer.chunks_exact_mut(8).zip(&self.low) {
            to.copy_from_slice(&word.load(Relaxed).to_be_bytes());
        }
        &buffer[..bytes]
    }

    /// Whether the node's keys begin at or before `key`.
    #[inline]
    pub(super) fn begins_by(&self, key: &Sought<'_>, guard: &Guard) -> bool {
        self.low_order(key, guard).is_le()
    }

    /// The lowest key compared with `key`.
    #[inline]
    pub(super) fn low_order(&self, key: &Sought<'_>, guard: &Guard) -> std::cmp::Ordering {
        let low = [self.low[0].load(Relaxed), self.low[1].load(Relaxed)];
        low.cmp(&key.words).then_with(|| {
            // Equal in the first 16 bytes, padded with zeros.
            let bytes = self.low_bytes.load(Relaxed) as usize;
            if bytes <= LOW_BYTES_INLINE || key.bytes.len() <= LOW_BYTES_INLINE {
                bytes.cmp(&key.bytes.len())
            } else {
                self.low(&mut [0; LOW_BYTES_INLINE], guard).cmp(key.bytes)
            }
        })
    }

    /// The version of a living leaf that is not being changed; waits for a change to end. `None` once the leaf is
    /// removed.
    #[inline]
    pub(super) fn at_rest(&self) -> Option<u64> {
        let mut backoff = Backoff::default();
        loop {
            // Acquire: pairs with the Release in `LockedNode::drop`; the leaf is as that change left it.
            let version = self.version.load(Acquire) & !LOCKED;
            if version & ALIVE == 0 {
                return None;
            }
            if version & CHANGING == 0 {
                return Some(version);
            }
            backoff.wait();
        }
    }

    /// The page of a checkpoint that still holds the leaf.
    #[inline]
    pub(super) fn page(&self) -> Option<usize> {
        // Acquire: pairs with the Release in `LockedNode::set_page`: a thread that sees no page sees that the leaf has
        // changed. And see `is_still`.
        (self.page.load(Acquire) as usize).checked_sub(1)
    }

    /// Whether nothing moved since `version`: values read in between, by Acquire, are consistent.
    #[inline]
    pub(super) fn is_still(&self, version: u64) -> bool {
        self.version.load(Relaxed) & !LOCKED == version
    }

    #[inline]
    pub(super) fn order(&self) -> Order {
        // Acquire: pairs with the Release in `LockedNode::set_order`; prefixes and slots are there. And see `is_still`.
        Order(self.order.load(Acquire))
    }

    #[inline]
    pub(super) fn slot(&self, position: usize) -> Slot {
        // Acquire: pairs with the Release in `LockedNode::set_slot`; the record is there.
        Slot(self.slots[position].load(Acquire))
    }

    #[inline]
    pub(super) fn prefix(&self, position: usize) -> u64 {
        self.prefixes[position].load(Acquire)
    }

    pub(super) fn skip(&self) -> usize {
        self.skip.load(Acquire) as usize
    }

    /// The first slot whose prefix is that of `key`, if the leaf still has this version.
    #[inline]
    pub(super) fn candidate(&self, version: u64, key: &[u8]) -> Option<Slot> {
        let want = word_at(key, self.skip());
        let slot = self.order().positions().find(|&p| self.prefix(p) == want).map(|p| self.slot(p));
        slot.filter(|_| self.is_still(version))
    }

    /// The slot of `key`, which `look` recognises, in the leaf as it is at `version`.
    #[inline]
    pub(super) fn look<T>(
        &self,
        version: u64,
        key: &[u8],
        look: &mut impl FnMut(Slot) -> Option<T>,
    ) -> Seen<T> {
        let want = word_at(key, self.skip());
        for position in self.order().positions() {
            if self.prefix(position) == want {
                let slot = self.slot(position);
                // Before the record is read: the slot of a removed leaf may point to anything.
                if !self.is_still(version) {
                    return Seen::Changed;
                }
                if let Some(found) = look(slot) {
                    return Seen::Found(slot, found);
                }
            }
        }
        if self.is_still(version) { Seen::Absent } else { Seen::Changed }
    }

    /// Locks the leaf, alive or not. Counts in `waits` if another thread had the lock.
    pub(super) fn hold(&self, waits: &AtomicU64) -> LockedNode<'_> {
        let mut backoff = Backoff::default();
        loop {
            let now = self.version.load(Relaxed);
            // Acquire: pairs with the Release in `LockedNode::drop`.
            if now & LOCKED == 0 && self.version.compare_exchange(now, now | LOCKED, Acquire, Relaxed).is_ok()
            {
                return LockedNode { node: self, version: now & !(LOCKED | CHANGING), changing: false };
            }
            if backoff.is_first() {
                waits.fetch_add(1, Relaxed);
            }
            backoff.wait();
        }
    }

    /// Begins the node's life. Only an old reference of the cache can reach it, and that sees that it is changing until
    /// the lock is released.
    pub(super) fn init(&self, low: &[u8], height: usize, label: u64) -> LockedNode<'_> {
        debug_assert!(
            cfg!(loom) || self.version.load(Relaxed) & ALIVE == 0 && self.height() == 0,
            "a node begins its life while it has another (invariants 2 and 6)"
        );
        let version = (self.version.load(Relaxed) & !(LOCKED | CHANGING)) | ALIVE;
        self.version.store(version | LOCKED | CHANGING, Relaxed);
        self.low_bytes.store(low.len() as u32, Relaxed);
        for (i, word) in self.low.iter().enumerate() {
            word.store(word_at(low, 8 * i), Relaxed);
        }
        if low.len() > LOW_BYTES_INLINE {
            let long = Box::leak(Box::<[u8]>::from(low));
            self.low_long.store(long.as_mut_ptr(), Relaxed);
        }
        self.height.store(height as u8, Relaxed);
        self.label.store(label, Relaxed);
        for link in &self.links {
            link.store(null_mut(), Relaxed);
        }
        if height > LEVELS_INLINE {
            let tower: Box<[AtomicPtr<Node>]> =
                (LEVELS_INLINE..height).map(|_| AtomicPtr::new(null_mut())).collect();
            self.tower.store(Box::leak(tower).as_mut_ptr(), Relaxed);
        }
        self.gone.store(false, Relaxed);
        self.linked.store(false, Relaxed);
        LockedNode { node: self, version, changing: true }
    }

    /// Frees the memory that only the node points to; nobody can reach the node any more.
    pub(super) fn deinit(&self) {
        let low_bytes = self.low_bytes.swap(0, Relaxed) as usize;
        if low_bytes > LOW_BYTES_INLINE {
            let long = self.low_long.swap(null_mut(), Relaxed);
            // SAFETY: leaked in `init` with this length.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(long, low_bytes)) });
        }
        let height = self.height.swap(0, Relaxed) as usize;
        if height > LEVELS_INLINE {
            let tower = self.tower.swap(null_mut(), Relaxed);
            // SAFETY: leaked in `init` with this length.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(tower, height - LEVELS_INLINE)) });
        }
    }

    pub(super) fn pointer(&self) -> NonNull<Node> {
        NonNull::from(self)
    }
}

/// A locked leaf.
pub(super) struct LockedNode<'g> {
    pub node: &'g Node,
    version: u64,
    changing: bool,
}

impl LockedNode<'_> {
    pub(super) fn is_alive(&self) -> bool {
        self.version & ALIVE != 0
    }

    /// Whether nothing moved since `version`.
    pub(super) fn is_still(&self, version: u64) -> bool {
        self.version == version
    }

    /// From now on positions change, and readers of them wait.
    pub(super) fn change(&mut self) {
        // Relaxed: all later stores are Release, so a thread that sees one of them sees this too.
        self.node.version.store(self.version | LOCKED | CHANGING, Relaxed);
        self.changing = true;
    }

    pub(super) fn set_slot(&self, position: usize, slot: Slot) {
        // Release: pairs with the Acquire in `Node::slot`; the record is there.
        self.node.slots[position].store(slot.0, Release);
        reclaim::published();
    }

    pub(super) fn set(&self, position: usize, prefix: u64, slot: Slot) {
        self.node.prefixes[position].store(prefix, Release);
        self.set_slot(position, slot);
    }

    pub(super) fn set_order(&self, order: Order) {
        // Release: pairs with the Acquire in `Node::order`.
        self.node.order.store(order.0, Release);
    }

    pub(super) fn set_page(&self, page: Option<usize>) {
        debug_assert!(
            cfg!(loom) || page.is_none() || self.node.order().len() == 0,
            "a leaf that is a page has slots (invariant 7)"
        );
        // Release: pairs with the Acquire in `Node::page`.
        self.node.page.store(page.map_or(0, |page| page as u32 + 1), Release);
    }

    pub(super) fn set_skip(&self, skip: usize) {
        self.node.skip.store(skip as u32, Release);
    }

    /// The leaf's life ends; another leaf holds its keys.
    pub(super) fn mark_removed(&mut self) {
        debug_assert!(
            cfg!(loom) || self.is_alive() && self.node.is_linked(),
            "a node is removed before it is linked on all its levels (invariant 5)"
        );
        debug_assert!(cfg!(loom) || self.node.page().is_none(), "a page is merged (invariant 7)");
        self.change();
        // Release: pairs with the Acquire in `Node::is_gone`.
        self.node.gone.store(true, Release);
        self.version &= !ALIVE;
    }

    /// The rank of the slot with the location of `slot`.
    pub(super) fn rank_of(&self, slot: Slot) -> Option<usize> {
        let order = self.node.order();
        order.positions().position(|p| self.node.slot(p).location() == slot.location())
    }

    /// Prefix and slot of each rank.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, Slot)> {
        let node = self.node;
        node.order().positions().map(|p| (node.prefix(p), node.slot(p)))
    }
}

impl Drop for LockedNode<'_> {
    fn drop(&mut self) {
        let version = if self.changing { self.version + ONE } else { self.version };
        debug_assert!(
            cfg!(loom) || version / ONE == self.node.version.load(Relaxed) / ONE + u64::from(self.changing),
            "a version repeats: {version:#x} (invariant 6)"
        );
        // Release: pairs with the Acquire in `hold` and `at_rest`.
        self.node.version.store(version, Release);
    }
}

/// Bytes that all keys from `low` up to `high` share.
pub(super) fn skip_between(low: &[u8], high: Option<&[u8]>) -> usize {
    high.map_or(0, |high| shared_bytes(low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_inserts_and_removes_at_any_rank() {
        let mut model: Vec<usize> = Vec::new();
        let mut order = Order::of(0);
        let mut random = 12345u64;
        for _ in 0..if cfg!(miri) { 200 } else { 10_000 } {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (random >> 33) as usize;
            if model.len() < LEAF_SLOTS && (model.is_empty() || !pick.is_multiple_of(3)) {
                let position = order.free().unwrap();
                assert!(!model.contains(&position));
                let rank = pick % (model.len() + 1);
                model.insert(rank, position);
                order = order.with(rank, position);
            } else {
                let rank = pick % model.len();
                model.remove(rank);
                order = order.without(rank);
            }
            assert_eq!(order.positions().collect::<Vec<_>>(), model);
            let half = model.len() / 2;
            assert_eq!(order.first(half).positions().collect::<Vec<_>>(), model[..half]);
        }
        assert_eq!(Order::of(LEAF_SLOTS).free(), None);
    }
}
