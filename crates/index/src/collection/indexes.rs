//! Map and tree of a collection, which change together.
//!
//! A writer that repoints an element changes both; one that only changes a mark changes the map alone.

use super::map::Map;
use super::tree::Tree;
use crate::ordered::Sorted;
use crate::{KeyBytes, Slot};
use std::cmp::Ordering;

/// The order of a collection's elements: 8 bytes as a big-endian number. Elements with equal numbers are ordered by
/// their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// No order.
    None,
    /// The beginning of the value.
    Value,
    /// The beginning of the key.
    Key,
}

/// The number in the first bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

/// Map and tree of a collection.
pub(super) struct Indexes {
    pub(super) map: Map,
    pub(super) tree: Option<Tree>,
    order: Order,
    /// How often elements were added, removed or repointed.
    pub(super) changes: u64,
    /// Entries removed from the tree, with their order, while a checkpoint of it is written.
    lacking: Option<Vec<(u64, Slot)>>,
    /// A forgotten tree, while some of its pages are left.
    forgotten: Option<Tree>,
}

impl Order {
    pub(super) fn at(self, at: Slot, keys: &impl KeyBytes) -> u64 {
        match self {
            Self::None => 0,
            Self::Value => keys.value_at(at.location()).map_or(0, number),
            Self::Key => keys.key_at(at.location()).map_or(0, number),
        }
    }
}

/// Sorts elements by their order, then by their keys.
pub(super) fn put_in_order(elements: &mut [Sorted], keys: &impl KeyBytes) {
    let order = |element: &Sorted| element.words()[1];
    elements.sort_unstable_by_key(order);
    for same in elements.chunk_by_mut(|one, other| order(one) == order(other)) {
        if same.len() > 1 {
            sort_by_keys(same, keys);
        }
    }
}

/// Sorts elements of equal order by their keys.
fn sort_by_keys(elements: &mut [Sorted], keys: &impl KeyBytes) {
    let key_of = |element: &Sorted| keys.key_at(element.slot.location()).unwrap_or(&[]);
    // It replaces the position, which is no longer needed. It distinguishes most keys without reading their records.
    for element in elements.iter_mut() {
        let [_, order] = element.words();
        *element = Sorted::new([number(key_of(element)), order], element.slot);
    }
    elements.sort_unstable_by(|one, other| {
        one.words().cmp(&other.words()).then_with(|| key_of(one).cmp(key_of(other)))
    });
}

/// Compares the record that a slot points to with `key`.
pub(super) fn compared<'k>(key: &'k [u8], keys: &'k impl KeyBytes) -> impl FnMut(Slot) -> Ordering + 'k {
    move |slot| keys.key_at(slot.location()).unwrap_or(&[]).cmp(key)
}

impl Indexes {
    pub(super) fn new(map: Map, tree: Option<Tree>, order: Order) -> Self {
        Self { map, tree, order, changes: 0, lacking: None, forgotten: None }
    }

    /// Called when the elements have no order any more. Gives back up to `pages_max` pages of the tree, and says
    /// whether that was all. (A search in the tree compares records, and those may be removed now.)
    pub(super) fn forget_order(&mut self, pages_max: usize) -> bool {
        if let Some(tree) = self.tree.take() {
            self.forgotten = Some(tree);
        }
        let is_all = self.forgotten.as_mut().is_none_or(|tree| tree.clear_some(pages_max, &mut |_| ()));
        if is_all {
            self.forgotten = None;
        }
        is_all
    }

    /// Begins a checkpoint. Returns how often the index was changed, and how many elements are in no page of the map.
    pub(super) fn begin_dump(&mut self) -> (u64, usize) {
        self.map.block_merges(true);
        self.lacking = Some(Vec::new());
        (self.changes, self.map.rest_len())
    }

    /// Ends a checkpoint. Returns whether anything that has an order was changed meanwhile, and the entries removed
    /// from the tree.
    pub(super) fn end_dump(&mut self, changes: u64) -> (bool, Vec<(u64, Slot)>) {
        self.map.block_merges(false);
        (self.tree.is_some() && self.changes != changes, self.lacking.take().unwrap_or_default())
    }

    /// Notes elements that the checkpoint has in place of the records of transactions that superseded them. Returns
    /// whether the tree may lack any of them.
    pub(super) fn lacks(&mut self, put_back: &[Slot], keys: &impl KeyBytes) -> bool {
        let (true, Some(lacking)) = (self.tree.is_some(), &mut self.lacking) else { return false };
        let slots = put_back.iter().filter(|slot| !slot.is_empty() && !slot.is_tombstone());
        lacking.extend(slots.map(|&slot| (self.order.at(slot, keys), slot)));
        !put_back.is_empty()
    }

    /// The order of the record that `slot` points to.
    pub(super) fn order_at(&self, slot: Slot, keys: &impl KeyBytes) -> u64 {
        self.order.at(slot, keys)
    }

    /// The record that `slot` points to, with this key, becomes an element.
    pub(super) fn enter(&mut self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        if let Some(tree) = self.tree.as_mut().filter(|_| !slot.is_tombstone()) {
            tree.insert(self.order.at(slot, keys), slot, compared(key, keys));
        }
    }

    /// The element of this key now is the record that `slot` points to, and no longer the one of `old`. If its order
    /// stays, so does its place.
    pub(super) fn repoint(&mut self, key: &[u8], old: Slot, slot: Slot, keys: &impl KeyBytes) {
        let Some(tree) = &mut self.tree else { return };
        let order = self.order.at(slot, keys);
        if old.is_tombstone() || slot.is_tombstone() || self.order.at(old, keys) != order {
            self.leave(old, keys);
            return self.enter(key, slot, keys);
        }
        if let Some(lacking) = &mut self.lacking {
            lacking.push((order, old));
        }
        let led = tree.set(order, slot, compared(key, keys));
        if led.is_none_or(|led| led.location() != old.location()) {
            // As in `leave`.
            forget(tree, old);
            tree.insert(order, slot, compared(key, keys));
        }
    }

    /// The record that `slot` points to is no longer an element.
    pub(super) fn leave(&mut self, slot: Slot, keys: &impl KeyBytes) {
        let Some(tree) = &mut self.tree else { return };
        if slot.is_tombstone() {
            return;
        }
        let order = self.order.at(slot, keys);
        if let Some(lacking) = &mut self.lacking {
            lacking.push((order, slot));
        }
        let found = keys.key_at(slot.location()).and_then(|key| tree.remove(order, compared(key, keys)));
        if found.is_none_or(|found| found.location() != slot.location()) {
            // The element is damaged, or a damaged one obstructed the search: its place is unknown.
            forget(tree, slot);
        }
    }
}

/// A change of one element, of several that are changed together.
pub struct Change<'k> {
    pub hash: u64,
    pub key: &'k [u8],
    /// The slot of the current record; empty: the element is new.
    pub old: Slot,
    pub new: Slot,
}

impl Indexes {
    /// Changes elements of different keys. The tree loses what it loses at the end, in order, so that neighbours leave
    /// it together.
    pub(super) fn change_all(&mut self, changes: &[Change<'_>], keys: &impl KeyBytes) {
        self.changes += changes.len() as u64;
        let mut leaving = Vec::with_capacity(changes.len());
        for &Change { hash, key, old, new } in changes {
            if old.is_empty() {
                self.map.insert(hash, new, keys);
                self.enter(key, new, keys);
                continue;
            }
            self.map.set(hash, new, |other| other.location() == old.location());
            if self.tree.is_some() && new.is_tombstone() && !old.is_tombstone() {
                leaving.push((self.order.at(old, keys), old));
            } else {
                self.repoint(key, old, new, keys);
            }
        }
        self.leave_all(&mut leaving, keys);
    }

    /// The records that these slots point to, given with their orders, are no longer elements.
    fn leave_all(&mut self, leaving: &mut [(u64, Slot)], keys: &impl KeyBytes) {
        let Some(tree) = &mut self.tree else { return };
        leaving.sort_unstable_by_key(|&(order, _)| order);
        if let Some(lacking) = &mut self.lacking {
            lacking.extend_from_slice(leaving);
        }
        let mut left = &*leaving;
        while let Some(&(_, slot)) = left.first() {
            let compare = |key| {
                let mut compare = compared(key, keys);
                // Its own entry is known by its location.
                move |other: Slot| {
                    if other.location() == slot.location() { Ordering::Equal } else { compare(other) }
                }
            };
            let removed = keys.key_at(slot.location()).map_or(0, |key| tree.remove_run(left, compare(key)));
            if removed == 0 {
                // As in `leave`.
                forget(tree, slot);
            }
            left = &left[removed.max(1)..];
        }
    }
}

/// Removes the entry of a record, wherever it is: rebuilds the tree without it.
#[cold]
fn forget(tree: &mut Tree, slot: Slot) {
    let mut entries = Vec::with_capacity(tree.len() as usize);
    tree.each(&mut |order, other| entries.push((order, other)));
    tree.clear_some(usize::MAX, &mut |_| ());
    for (order, other) in entries.into_iter().filter(|(_, other)| other.location() != slot.location()) {
        tree.insert(order, other, |_| Ordering::Less);
    }
}
