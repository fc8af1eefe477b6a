//! A tree from all of its entries, in order.

use super::node::{Child, Words};
use super::*;

/// A leaf has room for 128 entries, and a node for 42 children; a build fills fewer, so that the first insertions split
/// no leaf.
const LEAF_FILL: u64 = 120;
const INNER_FILL: u64 = 40;

/// The smallest class from `least` on with room for `count`.
fn class_for(least: Class, count: u64, room: impl Fn(Class) -> usize) -> Class {
    let mut class = least;
    while (room(class) as u64) < count {
        class = class.larger();
    }
    class
}

/// Divides `count` evenly into shares of at most `most`.
fn shares(count: u64, most: u64) -> impl Iterator<Item = u64> {
    let parts = count.div_ceil(most).max(1);
    (0..parts).map(move |part| count * (part + 1) / parts - count * part / parts)
}

impl Tree {
    /// Fills an empty tree with these `len` entries, which are sorted.
    pub fn fill(&mut self, len: u64, mut entries: impl Iterator<Item = (u64, Slot)>) {
        debug_assert_eq!(self.len, 0, "it is empty");
        assert!(len <= u64::from(u32::MAX), "a collection has at most {} elements", u32::MAX);
        if len == 0 {
            return;
        }
        self.len = len;
        let room = |class: Class| class.words() / 2;
        if len <= room(LEAF) as u64 {
            self.class = class_for(Class::SMALLEST, len, room);
            self.root = self.pages.take(self.class);
            self.fill_leaf(self.root, self.class, len, &mut entries);
            return;
        }
        let mut children: Vec<Child> = Vec::with_capacity(len.div_ceil(LEAF_FILL) as usize);
        for share in shares(len, LEAF_FILL) {
            let page = self.pages.take(LEAF);
            let first = self.fill_leaf(page, LEAF, share, &mut entries);
            children.push(Child::new(first, page, share));
        }
        self.height = 1;
        let room = |class: Class| (class.words() - 1) / 3;
        while children.len() > room(INNER) {
            let mut below = children.into_iter();
            children = shares(below.len() as u64, INNER_FILL)
                .map(|share| self.add_inner(INNER, below.by_ref().take(share as usize).collect()))
                .collect();
            self.height += 1;
        }
        self.class = class_for(INNER_MIN, children.len() as u64, room);
        self.root = self.add_inner(self.class, children).page();
    }

    /// The first entry of a leaf being filled.
    fn fill_leaf(
        &self,
        page: u32,
        class: Class,
        count: u64,
        entries: &mut impl Iterator<Item = (u64, Slot)>,
    ) -> Words {
        let leaf = Leaf(self.pages.words(page, class.words()));
        for (at, (order, slot)) in entries.take(count as usize).enumerate() {
            leaf.set(at, (order, slot.0));
        }
        leaf.entry(0)
    }

    /// Makes a node of these children, and returns its parent's data on it.
    fn add_inner(&mut self, class: Class, children: Vec<Child>) -> Child {
        let page = self.pages.take(class);
        let count = children.iter().map(|child| child.count()).sum();
        let first = children.first().map_or((0, 0), |child| (child.order, child.location));
        Inner(self.pages.words(page, class.words())).fill(children.into_iter());
        Child::new(first, page, count)
    }
}
