//! The indexes of a collection: from its elements to the places of their records.
//!
//! A collection is a key whose value is many records, its elements: a Redis hash, set, sorted set, list or stream. Its
//! index has them and nothing else does. As with the index of a table, a slot is one word that leads to a record, and
//! whoever looks something up compares the key there.
//!
//! | index | is | DRAM an element, at most | for |
//! |---|---|---|---|
//! | [`Map`] | extendible hashing by the hash of the subkey | 14 bytes | hashes, sets; sorted sets, by member |
//! | [`Tree`] | a counted B+ tree by an order key of 8 bytes | 20 bytes | sorted sets, by score |
//! | [`Ordered`] | the same with tombstones | 20 bytes | lists, streams |
//!
//! Whoever uses an index holds the lock of the collection's key, also to read: nothing here is concurrent. All lies in
//! pages that are addressed by number ([`Pages`]), without a pointer in them, so an image may copy them; threads with
//! different collections share only the arena that pages come from.

mod map;
mod pages;
#[cfg(test)]
mod tests;
mod tree;

use super::Slot;
use std::cmp::Ordering;

pub(crate) use map::Map;
pub(crate) use pages::{Account, Arena, Pages};
pub(crate) use tree::{Cursor, Tree};

/// A tree whose elements may be tombstones: deleted, while older records of theirs are on the medium.
///
/// Tombstones lie in a second tree, so that positions and counts of the first are those of the elements.
pub(crate) struct Ordered {
    elements: Tree,
    tombstones: Tree,
}

impl Ordered {
    pub(crate) fn new(pages: Pages) -> Self {
        Self { tombstones: Tree::new(pages.another()), elements: Tree::new(pages) }
    }

    /// The elements that are no tombstones.
    pub(crate) fn elements(&self) -> &Tree {
        &self.elements
    }

    pub(crate) fn tombstones(&self) -> &Tree {
        &self.tombstones
    }

    /// Bytes of DRAM.
    pub(crate) fn bytes(&self) -> u64 {
        self.elements.bytes() + self.tombstones.bytes()
    }

    /// The slot of an element, be it a tombstone or not.
    pub(crate) fn find(&self, order: u64, mut compare: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        self.elements.find(order, &mut compare).or_else(|| self.tombstones.find(order, compare))
    }

    /// Gives an element this slot, and returns the one it had.
    pub(crate) fn put(
        &mut self,
        order: u64,
        slot: Slot,
        mut compare: impl FnMut(Slot) -> Ordering,
    ) -> Option<Slot> {
        let (to, from) = if slot.is_tombstone() {
            (&mut self.tombstones, &mut self.elements)
        } else {
            (&mut self.elements, &mut self.tombstones)
        };
        let old = from.remove(order, &mut compare);
        to.insert(order, slot, compare).or(old)
    }

    /// Forgets an element, be it a tombstone or not.
    pub(crate) fn remove(&mut self, order: u64, mut compare: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        self.elements.remove(order, &mut compare).or_else(|| self.tombstones.remove(order, compare))
    }

    /// Removes all, as [`Tree::clear_some`] does.
    pub(crate) fn clear_some(&mut self, pages_max: usize, visit: &mut dyn FnMut(Slot)) -> bool {
        self.elements.clear_some(pages_max, visit) && self.tombstones.clear_some(pages_max, visit)
    }
}
