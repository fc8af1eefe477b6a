//! The state of a writer while it changes a key.

use super::OrderedIndex;
use super::key::Sought;
use super::list::At;
use super::node::{Node, Seen};
use crate::stripes::LockedStripe;
use crate::{KeyBytes, Slot};
use duramen_log::sync::reclaim::Guard;
use std::cell::Cell;

/// The lock of a key's stripe.
pub struct Locked<'a> {
    index: &'a OrderedIndex,
    guard: &'a Guard,
    hash: u64,
    stripe: LockedStripe<'a>,
    /// Where the key was last looked for, and whether a key that was not found there belongs there.
    at: Cell<Option<(At<'a>, bool)>>,
}

/// The slot of a locked key. No other thread changes it, wherever it moves.
pub struct Place<'p> {
    index: &'p OrderedIndex,
    guard: &'p Guard,
    node: &'p Node,
    key: &'p [u8],
    slot: Cell<Slot>,
}

impl OrderedIndex {
    /// Locks the stripe of `hash`.
    pub fn lock<'a>(&'a self, hash: u64, guard: &'a Guard) -> Locked<'a> {
        self.locked(self.stripes.lock(hash), hash, guard)
    }

    /// The key of `hash`, whose stripe is held.
    pub fn locked<'a>(&'a self, stripe: LockedStripe<'a>, hash: u64, guard: &'a Guard) -> Locked<'a> {
        Locked { index: self, guard, hash, stripe, at: Cell::new(None) }
    }
}

impl<'a> Locked<'a> {
    fn seek(&self, key: &[u8]) -> At<'a> {
        let at = self.index.seek(&Sought::new(key), self.guard);
        self.at.set(Some((at, true)));
        at
    }
}

impl<'a> Locked<'a> {
    #[inline(always)]
    pub fn held(&self) -> &LockedStripe<'a> {
        &self.stripe
    }

    pub fn find_with<'k, T>(
        &self,
        key: &'k [u8],
        mut look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Place<'k>, T)>
    where
        'a: 'k,
    {
        let place =
            |node, slot| Place { index: self.index, guard: self.guard, node, key, slot: Cell::new(slot) };
        let (mut at, mut is_its) = match self.at.get() {
            Some(known) => known,
            None => match self.index.find_cached(self.hash, key, self.guard, &mut look) {
                Some((at, slot, found)) => {
                    self.at.set(Some((at, false)));
                    return Some((place(at.node, slot), found));
                }
                None => (self.seek(key), true),
            },
        };
        loop {
            match at.node.look(at.version, key, &mut look) {
                Seen::Found(slot, found) => {
                    self.index.cache.put(self.hash, at.node);
                    return Some((place(at.node, slot), found));
                }
                Seen::Absent if is_its => return None,
                Seen::Absent | Seen::Changed => (at, is_its) = (self.seek(key), true),
            }
        }
    }

    pub fn insert(&self, key: &[u8], slot: Slot, keys: &impl KeyBytes) {
        let mut known = self.at.get().filter(|&(_, is_its)| is_its).map(|(at, _)| at);
        loop {
            let at = known.take().unwrap_or_else(|| self.seek(key));
            let held = at.node.hold(&self.index.waits);
            if held.is_still(at.version) {
                let node = self.index.insert(held, key, slot, keys, self.guard);
                self.index.cache.put(self.hash, node);
                return;
            }
        }
    }

    pub fn remove(&self, place: &Place<'_>, keys: &impl KeyBytes) {
        let node = place.held(|held, rank| {
            held.change();
            held.set_order(held.node.order().without(rank));
            held.node
        });
        self.index.shrink(node, keys, self.guard);
    }
}

impl Place<'_> {
    pub fn get(&self) -> Slot {
        self.slot.get()
    }

    pub fn set(&self, slot: Slot) {
        self.held(|held, rank| held.set_slot(held.node.order().at(rank), slot));
        self.slot.set(slot);
    }

    /// The record is damaged, and belonged to this key: its place in the leaf was a guess until now.
    #[cold]
    pub fn repair(&self, slot: Slot, keys: &impl KeyBytes) {
        let skip = self.held(|held, rank| {
            held.change();
            let order = held.node.order();
            let position = order.at(rank);
            held.set_order(order.without(rank));
            let rank = OrderedIndex::rank(held, self.key, keys);
            held.set_slot(position, slot);
            held.set_order(held.node.order().with(rank, position));
            held.node.skip()
        });
        let was = self.slot.replace(slot);
        self.index.forget_copies(was.location(), self.key, skip, self.guard);
    }
}

impl<'p> Place<'p> {
    /// Works on the slot, wherever it is now, under its leaf's lock.
    fn held<T>(&self, work: impl FnOnce(&mut super::node::LockedNode<'p>, usize) -> T) -> T {
        let mut node = self.node;
        loop {
            let mut held = node.hold(&self.index.waits);
            if held.is_alive()
                && let Some(rank) = held.rank_of(self.slot.get())
            {
                return work(&mut held, rank);
            }
            drop(held);
            node = self.index.seek(&Sought::new(self.key), self.guard).node;
        }
    }
}
