//! A collection's tree: elements in order, counted, as a B+ tree.
//!
//! ```text
//! inner node: | children | first order of each | first location of each | page and count of each |   1 KiB: 42
//! leaf:       | order of each | slot of each |                                                       2 KiB: 128
//! ```
//!
//! An entry is an order key of 8 bytes and a slot. Entries are ordered by the key, and equal keys by their records,
//! which the caller compares. An inner node has, for each child, the first entry below it and the number of entries
//! below it. So a descent reads a record only where order keys are equal. The rank of an entry, the n-th entry, and so
//! a random one, each take one descent. The number of entries of a leaf is only in its parent.
//!
//! *Fill*: a full leaf moves entries to a neighbour that has room; two full ones become three. So leaves are some 85 %
//! full when entries come in any order. At an end of the tree a new leaf is begun instead: entries that come in order
//! fill leaves. A leaf that is half empty is merged with a neighbour, if both fit into three quarters. A root is as
//! small as its contents: 64 bytes for 4 entries.
//!
//! *Tombstones* are not in the tree, but only in the map. So counts are positions in leaves, and the n-th entry is read
//! directly. A list from whose end much was taken has no leaves of tombstones to step over.
//!
//! There are no links between leaves. A cursor knows its rank: at the end of a leaf it descends to that.
//!
//! Costs: at most 20 bytes of DRAM an entry, 16.5 for entries that came in order. An operation reads a node on each
//! level. At 10 million entries there are four levels above the leaves; the CPU's caches hold three of them. A change
//! moves half a leaf.
//!
//! Invariants:
//! 1. A parent's data on a child is exact: its first entry (order, and the location in its slot) and its count.
//! 2. No node is empty. Without entries there is no root.
//! 3. Pages below the root have the class of their level. (Asserted by [`Pages::give`], which is told it.)
//! 4. There are at most 2^32 - 1 entries, as many as Redis allows.

mod build;
mod change;
mod node;

use super::pages::{Class, Pages};
use crate::Slot;
use duramen_log::sync::atomic::Ordering::Relaxed;
use node::{Child, Inner, Leaf};
use std::cmp::Ordering;

const LEAF: Class = Class::doubled(5);
const INNER: Class = Class::doubled(4);
const INNER_MIN: Class = Class::doubled(2);
/// A node is made when one of its level is full, which was half empty before. Of 21 new nodes, at most one is of the
/// level above. So no number of insertions makes more levels.
const LEVELS_MAX: usize = 16;

pub struct Tree {
    pages: Pages,
    root: u32,
    /// The root's class.
    class: Class,
    /// Levels above the leaves.
    height: u32,
    len: u64,
    /// Nodes that [`Tree::clear_some`] has yet to free.
    leaving: Vec<Node>,
}

/// A page of the tree, alone.
#[derive(Clone, Copy)]
struct Node {
    page: u32,
    class: Class,
    level: u32,
    /// Number of entries, if it is a leaf.
    count: u32,
}

/// The path from the root to an entry, or to where it would be.
#[derive(Clone, Copy)]
struct Path {
    /// By level: the page, and the number of the child, or of the entry.
    steps: [(u32, u32); LEVELS_MAX],
    /// Number of entries of the leaf.
    count: u32,
}

impl Path {
    fn at(&self) -> usize {
        self.steps[0].1 as usize
    }
}

impl Tree {
    pub fn new(pages: Pages) -> Self {
        Self { pages, root: 0, class: Class::SMALLEST, height: 0, len: 0, leaving: Vec::new() }
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes() + size_of::<Self>() as u64
    }

    #[cfg(test)]
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    fn class_of(&self, level: u32) -> Class {
        match level {
            level if level == self.height => self.class,
            0 => LEAF,
            _ => INNER,
        }
    }

    /// Whether the data on each child along a path is exact, and no node on it is empty (invariants 1 and 2); its leaf
    /// has `count` entries.
    fn is_exact(&self, path: &Path, count: u32) -> bool {
        let is_exact = |level: u32| {
            let (page, child) = path.steps[level as usize];
            let below = path.steps[level as usize - 1].0;
            let (first, count) = match level {
                1 => (self.leaf(below).entry(0), u64::from(count)),
                level => {
                    let inner = self.inner(below, level - 1);
                    ((inner.order(0), inner.slot(0).0), inner.all().map(Child::count).sum())
                }
            };
            count > 0 && self.inner(page, level).child(child as usize) == Child::new(first, below, count)
        };
        // Miri would take too long.
        cfg!(miri) || self.len == 0 || count > 0 && (1..=self.height).all(is_exact)
    }

    #[inline]
    fn leaf(&self, page: u32) -> Leaf<'_> {
        Leaf(self.pages.words(page, self.class_of(0).words()))
    }

    #[inline]
    fn inner(&self, page: u32, level: u32) -> Inner<'_> {
        Inner(self.pages.words(page, self.class_of(level).words()))
    }

    /// Descends to the leaf that has the last entry which is not `after`, or to the first leaf.
    #[inline]
    fn descend(&self, mut after: impl FnMut(u64, Slot) -> bool) -> Path {
        let mut path = Path { steps: [(0, 0); LEVELS_MAX], count: self.len as u32 };
        let mut page = self.root;
        for level in (1..=self.height).rev() {
            let inner = self.inner(page, level);
            let child = partition(1, inner.children(), |at| !after(inner.order(at), inner.slot(at))) - 1;
            path.steps[level as usize] = (page, child as u32);
            path.count = inner.count(child);
            page = inner.page(child);
            // The orders, which are searched first.
            self.pages.prefetch(page, if level == 1 { LEAF.lines() / 2 } else { INNER.lines() / 2 });
        }
        path.steps[0] = (page, 0);
        path
    }

    /// The path to an entry, and whether it is there. `compare` says how the element of a slot with this order compares
    /// with it.
    #[inline]
    fn path(&self, order: u64, mut compare: impl FnMut(Slot) -> Ordering) -> (Path, bool) {
        let mut path = self.descend(|other, slot| match other.cmp(&order) {
            Ordering::Equal => compare(slot).is_gt(),
            other => other.is_gt(),
        });
        if self.len == 0 {
            return (path, false);
        }
        let leaf = self.leaf(path.steps[0].0);
        let mut is_there = false;
        let at = partition(0, path.count as usize, |at| match leaf.order(at).cmp(&order) {
            Ordering::Equal => {
                let other = compare(leaf.slot(at));
                is_there |= other.is_eq();
                other.is_lt()
            }
            other => other.is_lt(),
        });
        path.steps[0].1 = at as u32;
        (path, is_there)
    }

    /// The slot of an entry.
    #[inline]
    pub fn find(&self, order: u64, compare: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        let (path, is_there) = self.path(order, compare);
        is_there.then(|| self.leaf(path.steps[0].0).slot(path.at()))
    }

    /// How many entries precede this one, which need not be there. With a `compare` that returns the same for all, it
    /// is a bound: before all entries of the order (`Greater`), or after them (`Less`).
    #[inline]
    pub fn rank(&self, order: u64, compare: impl FnMut(Slot) -> Ordering) -> u64 {
        self.rank_at(&self.path(order, compare).0)
    }

    fn rank_at(&self, path: &Path) -> u64 {
        let mut rank = path.at() as u64;
        for level in 1..=self.height {
            let (page, child) = path.steps[level as usize];
            rank += self.inner(page, level).counts(child as usize);
        }
        rank
    }

    /// Descends to the entry of this rank, which is below `len`.
    fn descend_to(&self, mut rank: u64) -> Path {
        let mut path = Path { steps: [(0, 0); LEVELS_MAX], count: self.len as u32 };
        let mut page = self.root;
        for level in (1..=self.height).rev() {
            let inner = self.inner(page, level);
            let (child, before) = inner.child_of(rank);
            rank -= before;
            path.steps[level as usize] = (page, child as u32);
            path.count = inner.count(child);
            page = inner.page(child);
            if level > 1 {
                // The counts.
                self.pages.prefetch(page + INNER.lines() * 2 / 3, INNER.lines() / 3);
            }
        }
        path.steps[0] = (page, rank as u32);
        path
    }

    /// The entry of this rank.
    pub fn nth(&self, rank: u64) -> Option<(u64, Slot)> {
        if rank >= self.len {
            return None;
        }
        let path = self.descend_to(rank);
        let leaf = self.leaf(path.steps[0].0);
        Some((leaf.order(path.at()), leaf.slot(path.at())))
    }

    pub fn first(&self) -> Option<(u64, Slot)> {
        self.nth(0)
    }

    pub fn last(&self) -> Option<(u64, Slot)> {
        self.nth(self.len.checked_sub(1)?)
    }

    /// An entry that a random word picks, all equally likely.
    pub fn random(&self, random: u64) -> Option<(u64, Slot)> {
        self.nth(((u128::from(random) * u128::from(self.len)) >> 64) as u64)
    }

    /// A cursor before the entry of this rank, or at the end.
    pub fn cursor_at(&self, rank: u64) -> Cursor<'_> {
        Cursor { tree: self, rank: rank.min(self.len), page: 0, at: 0, count: 0 }
    }

    /// A cursor before this entry, or before where it would be: see [`Tree::rank`].
    pub fn seek(&self, order: u64, compare: impl FnMut(Slot) -> Ordering) -> Cursor<'_> {
        let (path, _) = self.path(order, compare);
        let (page, at) = path.steps[0];
        Cursor { tree: self, rank: self.rank_at(&path), page, at, count: path.count }
    }

    /// Visits all entries, in order.
    pub fn each(&self, visit: &mut dyn FnMut(u64, Slot)) {
        let mut cursor = self.cursor_at(0);
        while let Some((order, slot)) = cursor.forward() {
            visit(order, slot);
        }
    }

    /// Removes all entries and passes their slots to `visit`, at most `pages_max` pages a call. Returns whether that
    /// was all. From the first call on the tree is empty, and may be used as such.
    pub fn clear_some(&mut self, pages_max: usize, visit: &mut dyn FnMut(Slot)) -> bool {
        if self.len > 0 {
            let (page, class, level) = (self.root, self.class, self.height);
            self.leaving.push(Node { page, class, level, count: self.len as u32 });
            (self.len, self.height, self.class) = (0, 0, Class::SMALLEST);
        }
        for _ in 0..pages_max {
            let Some(Node { page, class, level, count }) = self.leaving.pop() else { break };
            let words = self.pages.words(page, class.words());
            if level == 0 {
                (0..count as usize).for_each(|at| visit(Leaf(words).slot(at)));
            } else {
                let (inner, level) = (Inner(words), level - 1);
                let class = if level == 0 { LEAF } else { INNER };
                self.leaving.extend((0..inner.children()).map(|child| Node {
                    page: inner.page(child),
                    class,
                    level,
                    count: inner.count(child),
                }));
            }
            self.pages.give(page, class);
        }
        self.leaving.is_empty()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.clear_some(usize::MAX, &mut |_| ());
    }
}

/// A place between two entries, or at an end.
pub struct Cursor<'a> {
    tree: &'a Tree,
    rank: u64,
    /// The leaf of an adjacent entry, if `count` is not 0. Then the place is before its entry `at`, or at its end.
    page: u32,
    at: u32,
    count: u32,
}

impl Cursor<'_> {
    /// How many entries precede it.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// Returns the next entry and passes it.
    pub fn forward(&mut self) -> Option<(u64, Slot)> {
        if self.at == self.count {
            if self.rank == self.tree.len {
                return None;
            }
            self.go_to(self.rank);
        }
        let leaf = self.tree.leaf(self.page);
        let found = (leaf.order(self.at as usize), leaf.slot(self.at as usize));
        self.at += 1;
        self.rank += 1;
        Some(found)
    }

    /// Returns the previous entry and passes it.
    pub fn back(&mut self) -> Option<(u64, Slot)> {
        if self.at == 0 {
            self.go_to(self.rank.checked_sub(1)?);
            self.at += 1;
        }
        self.at -= 1;
        self.rank -= 1;
        let leaf = self.tree.leaf(self.page);
        Some((leaf.order(self.at as usize), leaf.slot(self.at as usize)))
    }

    fn go_to(&mut self, rank: u64) {
        let path = self.tree.descend_to(rank);
        (self.page, self.at) = path.steps[0];
        self.count = path.count;
    }
}

/// The first number for which `is_before` is false; it is false for all after it.
#[inline]
fn partition(mut from: usize, mut to: usize, mut is_before: impl FnMut(usize) -> bool) -> usize {
    while from < to {
        let middle = from + (to - from) / 2;
        if is_before(middle) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    from
}
