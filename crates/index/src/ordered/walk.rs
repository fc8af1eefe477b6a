//! Walks: in the order of the keys, forward and backward, and by a cursor that is a number.
//!
//! A walk sees each leaf at one moment, with its bounds: all keys from its lowest to the next leaf's lowest. So a walk
//! that resumes at that bound sees each key that stays once, in order, whatever is split or merged meanwhile.
//!
//! A *cursor* says in eight bytes where a walk stopped; the index keeps nothing for it. Leaves have *labels*, numbers
//! in the order of the list: 0 at first, and a new leaf's label lies between those of its neighbours. A cursor is the
//! label of the leaf to resume at, and stands for a bound: that leaf's lowest key at the time. All keys below it have
//! been seen. A walk resumes at the leaf with the greatest label that is not above the cursor. It misses no key that
//! stays, since that leaf never begins above the bound. The reason is that the leaf that covers the bound always has a
//! label not below the cursor:
//!
//! * at first it is the leaf that the cursor was made of;
//! * the label of a leaf never falls. If there is no room between two leaves, those after them get greater labels
//!   ([`super::list`]), from right to left, so that labels are in order at each moment;
//! * where the leaf is split at or below the bound, the new one covers it, and its label is not below the left one's;
//! * where the leaf is merged, the left one covers the bound and gets the right one's label.
//!
//! Cursors grow with each step, so a walk ends. It may see keys again whose leaves got greater labels meanwhile. These
//! are as many leaves as have labels too close together where keys are being added.
//!
//! If no room can be made, the new leaf has the left one's label. Leaves of one label are one for cursors. This takes
//! some 10^10 leaves after the last one, or 10^8 in one place, since the index was last opened.

use super::key::Sought;
use super::node::Node;
use super::{LEAF_SLOTS, OrderedIndex};
use crate::{KeyBytes, Slot};
use duramen_log::sync::atomic::Ordering::Acquire;
use duramen_log::sync::reclaim::Guard;
use std::ops::Bound;

/// Where a walk begins and ends.
pub type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// The result of a walk.
#[derive(Default)]
pub struct Chunk {
    pub slots: Vec<Slot>,
    /// The key to resume from.
    pub onward: Vec<u8>,
}

/// The state of a leaf that a walk needs.
struct Seen<'g> {
    slots: [Slot; LEAF_SLOTS],
    count: usize,
    next: Option<&'g Node>,
}

impl Seen<'_> {
    fn slots(&self) -> &[Slot] {
        &self.slots[..self.count]
    }

    /// How many of the keys are below `key`, or not above it.
    fn count_below(&self, key: &[u8], or_equal: bool, keys: &impl KeyBytes) -> usize {
        count_below(self.slots(), key, or_equal, keys)
    }
}

/// How many of these slots, in the order of their keys, are of keys below `key`, or not above it. A damaged slot counts
/// if a later one counts: only its place is known.
pub(super) fn count_below(slots: &[Slot], key: &[u8], or_equal: bool, keys: &impl KeyBytes) -> usize {
    let is_below = |its: &[u8]| its < key || or_equal && its == key;
    if keys.may_be_damaged() {
        let below = |slot: &Slot| keys.key_at(slot.location()).is_some_and(is_below);
        return slots.iter().rposition(below).map_or(0, |last| last + 1);
    }
    slots.partition_point(|slot| keys.key_at(slot.location()).is_some_and(is_below))
}

/// The key at a walk's far end, whichever side it lies on; `None` when there is none.
fn sought_at(end: Bound<&[u8]>) -> Option<Sought<'_>> {
    match end {
        Bound::Included(end) | Bound::Excluded(end) => Some(Sought::new(end)),
        Bound::Unbounded => None,
    }
}

impl OrderedIndex {
    /// A living leaf at one moment; `None` when it is removed. With a version: only as it was then.
    fn see<'g>(&self, node: &Node, at: Option<u64>, guard: &'g Guard) -> Option<Seen<'g>> {
        loop {
            let version = node.at_rest()?;
            if at.is_some_and(|at| at != version) {
                return None;
            }
            if node.page().is_some() {
                self.read_page(node, guard);
                continue;
            }
            let mut seen = Seen { slots: [Slot::default(); LEAF_SLOTS], count: 0, next: node.next(0, guard) };
            for position in node.order().positions() {
                seen.slots[seen.count] = node.slot(position);
                seen.count += 1;
            }
            if node.is_still(version) {
                return Some(seen);
            }
        }
    }

    /// Appends about `count` slots of keys, ascending, and says from which key on there are more, itself included.
    /// False when there are none up to the end. Records are fetched as soon as their slots are known. The last slots
    /// may lie after the end.
    pub fn forward(
        &self,
        (from, end): Bounds<'_>,
        count: usize,
        keys: &impl KeyBytes,
        guard: &Guard,
        chunk: &mut Chunk,
    ) -> bool {
        let Chunk { slots, onward } = chunk;
        let (key, above) = match from {
            Bound::Included(key) => (key, false),
            Bound::Excluded(key) => (key, true),
            Bound::Unbounded => (&[][..], false),
        };
        let sought = Sought::new(key);
        let end = sought_at(end);
        let (mut node, mut seen, mut first) = loop {
            let at = self.seek(&sought, guard);
            if let Some(seen) = self.see(at.node, Some(at.version), guard) {
                break (at.node, seen, true);
            }
        };
        loop {
            // The next leaf's lines arrive while the records of this one are fetched.
            if let Some(next) = seen.next {
                next.fetch();
            }
            seen.slots().iter().for_each(|slot| keys.prefetch_at(slot.location()));
            let is_low = !first || !above && node.low_order(&sought, guard).is_eq();
            let skipped = if is_low { 0 } else { seen.count_below(key, above, keys) };
            first = false;
            slots.extend_from_slice(&seen.slots()[skipped..]);
            let Some(next) = seen.next else { return false };
            if end.is_some_and(|end| next.low_order(&end, guard).is_gt()) {
                return false;
            }
            let more = (slots.len() < count).then(|| self.see(next, None, guard)).flatten();
            match more {
                Some(more) => (node, seen) = (next, more),
                None => {
                    // Enough, or the leaf is removed: its lowest key finds its keys again.
                    onward.clear();
                    onward.extend_from_slice(next.low(&mut [0; 16], guard));
                    return true;
                }
            }
        }
    }

    /// The same, descending from the end: the key to resume from is then excluded, and the last slots may lie before
    /// the beginning.
    pub fn backward(
        &self,
        (end, from): Bounds<'_>,
        count: usize,
        keys: &impl KeyBytes,
        guard: &Guard,
        chunk: &mut Chunk,
    ) -> bool {
        let Chunk { slots, onward } = chunk;
        let end = sought_at(end);
        // `onward` is the bound all the way down.
        onward.clear();
        let (mut bounded, mut or_equal) = match from {
            Bound::Included(key) | Bound::Excluded(key) => {
                onward.extend_from_slice(key);
                (true, matches!(from, Bound::Included(_)))
            }
            Bound::Unbounded => (false, false),
        };
        loop {
            let sought = bounded.then(|| Sought::new(onward));
            let at = match &sought {
                None => self.descend(|_| true, guard),
                Some(key) if or_equal => self.seek(key, guard),
                Some(key) => self.descend(|node| node.low_order(key, guard).is_lt(), guard),
            };
            let Some(seen) = self.see(at.node, Some(at.version), guard) else { continue };
            seen.slots().iter().for_each(|slot| keys.prefetch_at(slot.location()));
            let all = match (&sought, seen.next) {
                (None, _) => true,
                (Some(key), Some(next)) => !or_equal && next.low_order(key, guard).is_eq(),
                (Some(_), None) => false,
            };
            let taken = if all { seen.count } else { seen.count_below(onward, or_equal, keys) };
            slots.extend(seen.slots()[..taken].iter().rev());
            let mut buffer = [0; 16];
            let low = at.node.low(&mut buffer, guard);
            if low.is_empty() || end.is_some_and(|end| at.node.low_order(&end, guard).is_lt()) {
                return false;
            }
            onward.clear();
            onward.extend_from_slice(low);
            if slots.len() >= count {
                return true;
            }
            (bounded, or_equal) = (true, false);
        }
    }

    /// Visits the slots of the leaf at `cursor`, and returns the cursor of the next, 0 at the end. A key that stays is
    /// visited at least once.
    pub fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        // Acquire: pairs with the Release where a label is raised.
        let label = |node: &Node| node.label.load(Acquire);
        let first_of = |wanted| {
            let node = self.descend(|node| label(node) < wanted, guard).node;
            let next = node.next(0, guard).filter(|next| label(next) == wanted);
            // After `next`: if `node` merged with its successor meanwhile, it has that one's label now, and is itself
            // the first.
            if label(node) < wanted { next.unwrap_or(node) } else { node }
        };
        let mut node = first_of(cursor);
        if label(node) < cursor {
            node = first_of(label(node));
        }
        loop {
            let Some(seen) = self.see(node, None, guard) else {
                // Removed: its lowest key finds the leaf that has its keys. Do not start from the cursor again: where
                // many leaves have one label, one of them would be removed each time.
                node = self.seek(&Sought::new(node.low(&mut [0; 16], guard)), guard).node;
                continue;
            };
            seen.slots().iter().for_each(|&slot| visit(slot));
            match seen.next {
                None => return 0,
                Some(next) if label(next) > label(node).max(cursor) => return label(next),
                Some(next) => node = next,
            }
        }
    }

    /// A slot that `random` picks, if it is taken. All places in the memory of leaves are equally likely.
    pub fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        // SAFETY: memory of a node, which may be read whatever became of it (invariant 6).
        let node = unsafe { self.memory.any(random[0])?.as_ref() };
        let position = (((random[1] & u64::from(u32::MAX)) * self.leaf_slots as u64) >> 32) as usize;
        let seen = self.see(node, None, guard)?;
        seen.slots().get(position).copied()
    }

    /// A cursor at a leaf that `random` picks.
    pub fn cursor_at(&self, random: u64, _guard: &Guard) -> u64 {
        const TRIES: u64 = 8;
        let leaf = (0..TRIES).find_map(|turn| {
            let node = self.memory.any(random.rotate_left(8 * turn as u32))?;
            // SAFETY: memory of a node, which may be read whatever became of it (invariant 6).
            let node = unsafe { node.as_ref() };
            node.at_rest().map(|_| node.label.load(Acquire))
        });
        leaf.unwrap_or(0)
    }
}
