//! The pages of a tree, word by word.

use super::Relaxed;
use crate::{LOCATION_MASK, Slot};
use duramen_log::sync::atomic::AtomicU64;

/// An entry while it is moved: order and slot.
pub(super) type Words = (u64, u64);

#[inline]
fn get(words: &[AtomicU64], at: usize) -> u64 {
    words[at].load(Relaxed)
}

/// Makes room for one at `at` among the first `count`, or closes the gap there.
fn open(words: &[AtomicU64], at: usize, count: usize) {
    words[at..=count].windows(2).rev().for_each(|pair| pair[1].store(pair[0].load(Relaxed), Relaxed));
}

fn close(words: &[AtomicU64], at: usize, count: usize) {
    words[at..count].windows(2).for_each(|pair| pair[0].store(pair[1].load(Relaxed), Relaxed));
}

/// Orders, then slots.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'a>(pub &'a [AtomicU64]);

impl<'a> Leaf<'a> {
    #[inline]
    pub(super) fn room(self) -> usize {
        self.0.len() / 2
    }

    #[inline]
    pub(super) fn order(self, at: usize) -> u64 {
        get(self.0, at)
    }

    #[inline]
    pub(super) fn slot(self, at: usize) -> Slot {
        Slot(get(self.0, self.room() + at))
    }

    pub(super) fn entry(self, at: usize) -> Words {
        (self.order(at), self.slot(at).0)
    }

    pub(super) fn set(self, at: usize, (order, slot): Words) {
        self.0[at].store(order, Relaxed);
        self.0[self.room() + at].store(slot, Relaxed);
    }

    pub(super) fn insert(self, at: usize, count: usize, entry: Words) {
        let (orders, slots) = self.0.split_at(self.room());
        open(orders, at, count);
        open(slots, at, count);
        self.set(at, entry);
    }

    pub(super) fn remove(self, at: usize, count: usize) {
        let (orders, slots) = self.0.split_at(self.room());
        close(orders, at, count);
        close(slots, at, count);
    }

    /// Removes entries from `at` on: those of which `is_gone` says so. It is called once for each, in order, before the
    /// entry is moved. Returns how many are gone.
    pub(super) fn remove_each(
        self,
        at: usize,
        count: usize,
        mut is_gone: impl FnMut(usize) -> bool,
    ) -> usize {
        let mut to = at;
        for from in at..count {
            if !is_gone(from) {
                if to != from {
                    self.set(to, self.entry(from));
                }
                to += 1;
            }
        }
        count - to
    }
}

/// A parent's data on a child: the first entry below it, and its page and count in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Child {
    pub order: u64,
    pub location: u64,
    link: u64,
}

impl Child {
    pub(super) fn new((order, slot): Words, page: u32, count: u64) -> Self {
        Self { order, location: slot & LOCATION_MASK, link: u64::from(page) | count << 32 }
    }

    pub(super) fn page(self) -> u32 {
        self.link as u32
    }

    pub(super) fn count(self) -> u64 {
        self.link >> 32
    }
}

/// The number of children, then orders, locations, links.
#[derive(Clone, Copy)]
pub(super) struct Inner<'a>(pub &'a [AtomicU64]);

impl<'a> Inner<'a> {
    #[inline]
    pub(super) fn room(self) -> usize {
        (self.0.len() - 1) / 3
    }

    #[inline]
    pub(super) fn children(self) -> usize {
        get(self.0, 0) as usize
    }

    fn set_children(self, children: usize) {
        self.0[0].store(children as u64, Relaxed);
    }

    #[inline]
    pub(super) fn order(self, child: usize) -> u64 {
        get(self.0, 1 + child)
    }

    #[inline]
    pub(super) fn slot(self, child: usize) -> Slot {
        Slot(get(self.0, 1 + self.room() + child))
    }

    #[inline]
    fn link(self, child: usize) -> u64 {
        get(self.0, 1 + 2 * self.room() + child)
    }

    #[inline]
    pub(super) fn page(self, child: usize) -> u32 {
        self.link(child) as u32
    }

    #[inline]
    pub(super) fn count(self, child: usize) -> u32 {
        (self.link(child) >> 32) as u32
    }

    /// The number of entries below the first `children` children.
    #[inline]
    pub(super) fn counts(self, children: usize) -> u64 {
        let links = &self.0[1 + 2 * self.room()..][..children];
        links.iter().map(|link| link.load(Relaxed) >> 32).sum()
    }

    /// The child that has the entry of this rank, and how many entries precede the child.
    #[inline]
    pub(super) fn child_of(self, rank: u64) -> (usize, u64) {
        let mut before = 0;
        let last = self.children() - 1;
        for child in 0..last {
            let count = u64::from(self.count(child));
            if rank < before + count {
                return (child, before);
            }
            before += count;
        }
        (last, before)
    }

    pub(super) fn child(self, at: usize) -> Child {
        Child { order: self.order(at), location: self.slot(at).0, link: self.link(at) }
    }

    pub(super) fn all(self) -> impl Iterator<Item = Child> + 'a {
        (0..self.children()).map(move |at| self.child(at))
    }

    pub(super) fn set_first(self, child: usize, (order, slot): Words) {
        self.0[1 + child].store(order, Relaxed);
        self.0[1 + self.room() + child].store(slot & LOCATION_MASK, Relaxed);
    }

    pub(super) fn set(self, at: usize, child: Child) {
        self.set_first(at, (child.order, child.location));
        self.0[1 + 2 * self.room() + at].store(child.link, Relaxed);
    }

    pub(super) fn count_add(self, child: usize, more: i64) {
        let link = &self.0[1 + 2 * self.room() + child];
        link.store(link.load(Relaxed).wrapping_add_signed(more << 32), Relaxed);
    }

    /// Replaces the contents of the node.
    pub(super) fn fill(self, children: impl Iterator<Item = Child>) {
        let mut count = 0;
        for child in children {
            self.set(count, child);
            count += 1;
        }
        self.set_children(count);
    }

    pub(super) fn insert(self, at: usize, child: Child) {
        let (children, room) = (self.children(), self.room());
        for words in self.0[1..].chunks(room).take(3) {
            open(words, at, children);
        }
        self.set(at, child);
        self.set_children(children + 1);
    }

    pub(super) fn remove(self, at: usize) {
        let (children, room) = (self.children(), self.room());
        for words in self.0[1..].chunks(room).take(3) {
            close(words, at, children);
        }
        self.set_children(children - 1);
    }
}
