//! The list: how a leaf is found, split, and removed.
//!
//! *Split*: under the lock of the full leaf, a new node gets the upper half and is linked after the leaf on level 0.
//! Both are marked as changing meanwhile. Then the node is linked on its other levels, one by one, each under the lock
//! of its predecessor there.
//!
//! *Removal*: under the locks of a leaf and the next one, the next one's slots move to the first, and level 0 skips it.
//! Then it is unlinked on its other levels. A thread that finds a removed node on the level it works at helps to unlink
//! it.
//!
//! *Damaged records* have slots and no key. The leaf keeps eight bytes of the key, which place the slot among slots
//! with other bytes. Among slots with the same bytes, its *run*, it may lie anywhere. So where a run is divided, the
//! slots of its damaged records go to both sides ([`OrderedIndex::split_damaged`]). When such a record is superseded,
//! its slot gets its right place (`Place::repair`). Whole records of a run are always in order.

use super::cache::place;
use super::key::{Sought, shared_bytes, word_at};
use super::node::{LEAF_SLOTS, LockedNode, Node, Order, skip_between};
use super::{HEIGHT_MAX, OrderedIndex};
use crate::memory::Memory;
use crate::{KeyBytes, Slot};
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::{Relaxed, Release};
use duramen_log::sync::reclaim::Guard;
use duramen_media::Offset;
use std::ptr::NonNull;

/// Labels are cursors, which clients keep in doubles. In tests they run out.
pub(super) const LABEL_MAX: u64 = if cfg!(test) { 1 << 20 } else { 1 << 53 };
/// The second half of the labels is for leaves after the last one, at this distance: enough for 2^32 of them.
const LABEL_STEP_LAST: u64 = if cfg!(test) { 1 << 4 } else { 1 << 20 };
/// A leaf that is split right where the last split was gets its keys in order. Then a new leaf takes 1 in 2^this of the
/// labels between its neighbours, on the side where no keys will come.
const LABEL_SHARE_IN_ORDER: u32 = if cfg!(test) { 4 } else { 10 };
/// Labels between two leaves after room was made, for each doubling of the raised leaves. So the more leaves are
/// raised, the longer it takes until they are raised again.
const LABEL_ROOM_MIN: u64 = if cfg!(test) { 2 } else { 64 };
/// Maximum number of leaves that are raised, and locked, together: a quarter of a millisecond.
const LABEL_RAISED_MAX: usize = 4096;

/// A leaf, and a version at which it was the right one.
#[derive(Clone, Copy)]
pub(super) struct At<'g> {
    pub node: &'g Node,
    pub version: u64,
}

/// A removed node, on its way to be used again.
struct RetiredNode(NonNull<Node>);

// SAFETY: a node is made of atomics, and lies in memory that the index shares.
unsafe impl Send for RetiredNode {}

fn recycle(memory: &Memory<Node>, RetiredNode(node): RetiredNode) {
    // SAFETY: the node lies in `memory`, and no guard can reach it any more (invariant 5).
    let removed = unsafe { node.as_ref() };
    assert!(removed.is_gone(), "the memory of a node that lives is used again (invariant 2)");
    removed.deinit();
    memory.give(node);
}

fn is_same(a: Option<&Node>, b: Option<&Node>) -> bool {
    a.map(std::ptr::from_ref) == b.map(std::ptr::from_ref)
}

/// A key that a leaf has no slot of, and how many of its slots belong before it.
struct New<'k> {
    rank: usize,
    key: &'k [u8],
    slot: Slot,
}

impl OrderedIndex {
    /// The living leaf to which `key` belongs.
    #[inline]
    pub(super) fn seek<'g>(&self, key: &Sought<'_>, guard: &'g Guard) -> At<'g> {
        self.descend(|node| node.begins_by(key, guard), guard)
    }

    /// The last living leaf for which `is_by` is true. It is true for some of the first nodes and false for all after
    /// them.
    pub(super) fn descend<'g>(&self, is_by: impl Fn(&'g Node) -> bool, guard: &'g Guard) -> At<'g> {
        'again: loop {
            let mut node = self.head(guard);
            for level in (1..self.height()).rev() {
                node.fetch_next(level - 1);
                // A removed node may point to a node that was freed before we came (invariant 5): do not step there.
                while let Some(next) = node.next(level, guard).filter(|next| is_by(next) && !next.is_gone()) {
                    node = next;
                    node.fetch_next(level - 1);
                }
            }
            node.fetch_leaf();
            loop {
                let Some(version) = node.at_rest() else { continue 'again };
                match node.next(0, guard).filter(|next| is_by(next)) {
                    // It has been unlinked since.
                    Some(next) if next.is_gone() => {}
                    Some(next) => {
                        node = next;
                        node.fetch_leaf();
                    }
                    None if node.page().is_some() => self.read_page(node, guard),
                    None if node.is_still(version) => return At { node, version },
                    None => {}
                }
            }
        }
    }

    /// The last node before `key` on a level, alive when it was seen. Removed nodes after it are unlinked.
    fn before<'g>(&self, level: usize, key: &Sought<'_>, guard: &'g Guard) -> &'g Node {
        'again: loop {
            let mut node = self.head(guard);
            for at in (level..self.height().max(level + 1)).rev() {
                while let Some(next) = node.next(at, guard).filter(|next| next.low_order(key, guard).is_lt())
                {
                    if !next.is_gone() {
                        node = next;
                    } else if at > level {
                        break;
                    } else if !self.unlink_from(node, at, next, guard) {
                        continue 'again;
                    }
                }
            }
            return node;
        }
    }

    /// Links a node on its levels above 0, so that it may be removed again.
    pub(super) fn link(&self, node: &Node, guard: &Guard) {
        let mut buffer = [0; 16];
        let low = Sought::new(node.low(&mut buffer, guard));
        self.raise(node.height());
        for level in 1..node.height() {
            loop {
                let before = self.before(level, &low, guard);
                let next = before.next(level, guard);
                if let Some(gone) = next.filter(|next| next.is_gone()) {
                    // It may have the same lowest key, and only nodes with a lower one may precede a node.
                    self.unlink_from(before, level, gone, guard);
                    continue;
                }
                node.set_next(level, next);
                let held = before.hold(&self.waits);
                if held.is_alive() && is_same(before.next(level, guard), next) {
                    before.set_next(level, Some(node));
                    break;
                }
            }
        }
        node.set_linked();
    }

    /// Unlinks a removed node on its levels above 0.
    fn unlink(&self, node: &Node, guard: &Guard) {
        let mut buffer = [0; 16];
        let low = Sought::new(node.low(&mut buffer, guard));
        for level in (1..node.height()).rev() {
            loop {
                let before = self.before(level, &low, guard);
                let behind = before.next(level, guard);
                // Other removed nodes with the same lowest key may precede it.
                let gone = behind.filter(|next| next.is_gone() && next.begins_by(&low, guard));
                let Some(gone) = gone else { break };
                self.unlink_from(before, level, gone, guard);
            }
        }
    }

    /// Where `key` belongs in a leaf: before the first that is not below it.
    pub(super) fn rank(held: &LockedNode<'_>, key: &[u8], keys: &impl KeyBytes) -> usize {
        let node = held.node;
        let (order, want) = (node.order(), word_at(key, node.skip()));
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let position = order.at(middle);
            let is_below = match node.prefix(position).cmp(&want) {
                std::cmp::Ordering::Equal => match keys.key_at(node.slot(position).location()) {
                    Some(its) => its < key,
                    None => return Self::rank_slowly(held, key, keys),
                },
                order => order.is_lt(),
            };
            if is_below { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The same among slots of damaged records, whose keys are unknown: after the last slot that is known to be below
    /// it.
    #[cold]
    fn rank_slowly(held: &LockedNode<'_>, key: &[u8], keys: &impl KeyBytes) -> usize {
        let want = word_at(key, held.node.skip());
        let is_below = |(prefix, slot): (u64, Slot)| match prefix.cmp(&want) {
            std::cmp::Ordering::Equal => keys.key_at(slot.location()).is_some_and(|its| its < key),
            order => order.is_lt(),
        };
        let below = held.entries().enumerate().filter(|&(_, entry)| is_below(entry));
        below.last().map_or(0, |(rank, _)| rank + 1)
    }

    /// Adds a slot to a leaf with room.
    fn place(held: &LockedNode<'_>, rank: usize, key: &[u8], slot: Slot) {
        let order = held.node.order();
        let Some(position) = order.free() else { return };
        held.set(position, word_at(key, held.node.skip()), slot);
        held.set_order(order.with(rank, position));
    }

    /// Adds a missing key to the leaf to which it belongs; returns its node.
    pub(super) fn insert<'g>(
        &self,
        held: LockedNode<'g>,
        key: &[u8],
        slot: Slot,
        keys: &impl KeyBytes,
        guard: &'g Guard,
    ) -> &'g Node {
        debug_assert!(
            cfg!(loom) || held.is_alive() && Self::belongs(&held, key, guard),
            "a key is added to the leaf of another one (invariant 1)"
        );
        debug_assert!(cfg!(loom) || held.node.page().is_none(), "a key is added to a page (invariant 7)");
        let rank = Self::rank(&held, key, keys);
        if held.node.order().len() < self.leaf_slots {
            Self::place(&held, rank, key, slot);
            return held.node;
        }
        self.split(held, New { rank, key, slot }, keys, guard)
    }

    /// Whether a key lies between the leaf's bounds.
    fn belongs(held: &LockedNode<'_>, key: &[u8], guard: &Guard) -> bool {
        let (key, next) = (Sought::new(key), held.node.next(0, guard));
        held.node.begins_by(&key, guard) && next.is_none_or(|next| !next.begins_by(&key, guard))
    }

    /// Splits a full leaf, and adds the key to one of the two.
    fn split<'g>(
        &self,
        mut held: LockedNode<'g>,
        New { rank, key, slot }: New<'_>,
        keys: &impl KeyBytes,
        guard: &'g Guard,
    ) -> &'g Node {
        let left = held.node;
        let mut entries = [(0, Slot::default()); LEAF_SLOTS];
        let count = held.entries().zip(&mut entries).map(|(entry, to)| *to = entry).count();
        let entries = &entries[..count];
        entries.iter().for_each(|(_, slot)| keys.prefetch_at(slot.location()));
        let next = left.next(0, guard);
        // Keys that come in order fill leaves, and leave no half-empty ones.
        let appended = (rank == count && next.is_none()).then_some(key);
        let key_of = |entry: &(u64, Slot)| keys.key_at(entry.1.location());
        if keys.may_be_damaged() && entries.iter().any(|entry| key_of(entry).is_none()) {
            return self.split_damaged(held, New { rank, key, slot }, keys, guard);
        }
        let (stay, low) = Self::halved(entries, appended, keys);
        let low = &low[..];
        let node = self.memory.take();
        // SAFETY: `Memory` gives memory of a node, which it keeps (invariant 6).
        let node: &'g Node = unsafe { node.as_ref() };
        let right = node.init(low, self.height_of(low), self.new_label(left, next, guard));
        let skip = left.skip();
        let (mut buffer, mut next_buffer) = ([0; 16], [0; 16]);
        let skip_left = skip_between(left.low(&mut buffer, guard), Some(low));
        let skip_right = skip_between(low, next.map(|next| next.low(&mut next_buffer, guard)));
        let prefix = |entry: &(u64, Slot), now| {
            if now == skip { entry.0 } else { word_at(key_of(entry).unwrap_or_default(), now) }
        };
        for (position, entry) in entries[stay..].iter().enumerate() {
            right.set(position, prefix(entry, skip_right), entry.1);
        }
        right.set_skip(skip_right);
        right.set_order(Order::of(count - stay));
        node.set_next(0, next);
        held.change();
        let order = left.order();
        if skip_left != skip {
            for (position, entry) in order.positions().zip(&entries[..stay]) {
                held.set(position, prefix(entry, skip_left), entry.1);
            }
        }
        held.set_skip(skip_left);
        held.set_order(order.first(stay));
        left.set_next(0, Some(node));
        let target = if key < low { &held } else { &right };
        debug_assert!(cfg!(loom) || Self::belongs(target, key, guard), "after a split (invariant 1)");
        Self::place(target, Self::rank(target, key, keys), key, slot);
        let target = target.node;
        drop((held, right));
        let splits = self.splits.fetch_add(1, Relaxed) + 1;
        if splits.is_power_of_two() || splits.is_multiple_of(64) {
            self.fit_cache();
        }
        self.link(node, guard);
        target
    }

    /// How many slots of a full leaf stay, and where the others begin: at the shortest key that is above all that stay.
    /// `appended` is the new key, if it comes after all others.
    fn halved(entries: &[(u64, Slot)], appended: Option<&[u8]>, keys: &impl KeyBytes) -> (usize, Vec<u8>) {
        let key_at = |at: usize| keys.key_at(entries[at].1.location()).unwrap_or_default();
        let stay = if appended.is_some() { entries.len() } else { entries.len() / 2 };
        let first = appended.unwrap_or_else(|| key_at(stay));
        let shared = shared_bytes(key_at(stay - 1), first);
        (stay, first[..first.len().min(shared + 1)].to_vec())
    }

    /// Splits a full leaf some of whose keys are unknown, and adds the key; returns its node. The leaf's bytes of an
    /// unknown key may fit both sides, and a lookup of the key must find its slot, or the key would silently seem
    /// absent. So the slot goes to both sides; when its key becomes known, [`OrderedIndex::forget_copies`] removes the
    /// others.
    #[cold]
    fn split_damaged<'g>(
        &self,
        mut held: LockedNode<'g>,
        New { rank, key, slot }: New<'_>,
        keys: &impl KeyBytes,
        guard: &'g Guard,
    ) -> &'g Node {
        let (left, skip) = (held.node, held.node.skip());
        let mut all: Vec<(u64, Slot, Option<&[u8]>)> =
            held.entries().map(|(word, slot)| (word, slot, keys.key_at(slot.location()))).collect();
        all.insert(rank, (word_at(key, skip), slot, Some(key)));
        let whole: Vec<&[u8]> = all.iter().filter_map(|&(.., its)| its).collect();
        let next = left.next(0, guard);
        let (mut buffer, mut next_buffer) = ([0; 16], [0; 16]);
        // Where the leaves begin after the left one.
        let mut lows = Vec::with_capacity(2);
        if let (below, [first, ..]) = whole.split_at(whole.len() / 2)
            && let Some(last) = below.last()
        {
            lows.push(first[..first.len().min(shared_bytes(last, first) + 1)].to_vec());
        } else {
            // The damaged slots leave no room for another one: the new key gets a leaf of its own.
            let behind = [key, &[0]].concat();
            lows.extend((left.low(&mut buffer, guard) != key).then(|| key.to_vec()));
            lows.extend(
                next.is_none_or(|next| next.low(&mut next_buffer, guard) != &behind[..]).then_some(behind),
            );
        }
        // Each side keeps `skip`: the bytes of unknown keys cannot be computed again. In a leaf of one key, which stands
        // before all damaged slots of its bytes (`rank_slowly`), one damaged slot says as much as all of them.
        let fill = |held: &LockedNode<'_>, from: &[u8], to: Option<&Vec<u8>>| {
            let is_in = |&&(word, _, its): &&(u64, Slot, Option<&[u8]>)| match its {
                Some(its) => its >= from && to.is_none_or(|to| its < &to[..]),
                None => word >= word_at(from, skip) && to.is_none_or(|to| word <= word_at(to, skip)),
            };
            let slots = all.iter().filter(is_in).take(self.leaf_slots).enumerate();
            let count = slots.map(|(position, &(word, slot, _))| held.set(position, word, slot)).count();
            held.set_skip(skip);
            held.set_order(Order::of(count));
        };
        // From right to left: each points to its successor before it can be found.
        let (mut behind, mut added) = (next, Vec::with_capacity(2));
        for (at, low) in lows.iter().enumerate().rev() {
            // SAFETY: `Memory` gives memory of a node, which it keeps (invariant 6).
            let node: &'g Node = unsafe { self.memory.take().as_ref() };
            // The added nodes are locked: labels after them are not raised.
            let label = match added.is_empty() {
                true => self.new_label(left, behind, guard),
                false => label_between(left, behind),
            };
            let new = node.init(low, self.height_of(low), label);
            fill(&new, low, lows.get(at + 1));
            node.set_next(0, behind);
            behind = Some(node);
            added.push(new);
        }
        held.change();
        fill(&held, &[], lows.first());
        left.set_next(0, behind);
        let nodes: Vec<&Node> = added.iter().map(|new| new.node).collect();
        drop((held, added));
        self.splits.fetch_add(nodes.len() as u64, Relaxed);
        nodes.iter().for_each(|node| self.link(node, guard));
        // The leaf that has the key, unless it moved.
        self.seek(&Sought::new(key), guard).node
    }

    /// Removes the remaining slots of the damaged record at `at`, which turned out to belong to `key` and is
    /// superseded. These are copies that [`OrderedIndex::split_damaged`] made, in leaves whose keys share `skip` bytes.
    /// The caller has the key's lock.
    #[cold]
    pub(super) fn forget_copies(&self, at: Offset, key: &[u8], skip: usize, guard: &Guard) {
        // All of those keys have this prefix. Trailing zeros are dropped, since they may be padding.
        let mut run = &key[..key.len().min(skip + 8)];
        while let [before @ .., 0] = run {
            run = before;
        }
        let mut from = run.to_vec();
        loop {
            let node = self.seek(&Sought::new(&from), guard).node;
            let mut held = node.hold(&self.waits);
            if !held.is_alive() {
                continue;
            }
            if let Some(rank) = held.rank_of(Slot::new(at)) {
                held.change();
                held.set_order(node.order().without(rank));
            }
            let mut buffer = [0; 16];
            match node.next(0, guard).map(|next| next.low(&mut buffer, guard)) {
                Some(low) if low.starts_with(run) => low.clone_into(&mut from),
                _ => return,
            }
        }
    }

    /// A label for a new leaf between two; the caller has locked the left one.
    fn new_label(&self, left: &Node, next: Option<&Node>, guard: &Guard) -> u64 {
        let from = left.label.load(Relaxed);
        let Some(next) = next else {
            return match LABEL_MAX.checked_sub(from) {
                // The leaves between the first and the last share half of all labels.
                Some(_) if from < LABEL_MAX / 2 => LABEL_MAX / 2,
                Some(room) => from + LABEL_STEP_LAST.min(room / 2),
                None => from,
            };
        };
        if next.label.load(Relaxed).saturating_sub(from) < 2 {
            self.raise_labels(left, next, guard);
        }
        let to = next.label.load(Relaxed);
        let few = (to.saturating_sub(from) >> LABEL_SHARE_IN_ORDER).max(1);
        let last = &self.labels_last[place() % self.labels_last.len()];
        let label = match last.load(Relaxed) {
            _ if to.saturating_sub(from) < 2 => from,
            ascending if ascending == from => from + few,
            descending if descending == to => to - few,
            _ => label_between(left, Some(next)),
        };
        last.store(label, Relaxed);
        label
    }

    /// Makes room for a label after `left`, which the caller has locked. The leaves from `next` on get greater labels,
    /// as few leaves as lie too close together. If these are more than may be locked together, nothing changes.
    #[cold]
    fn raise_labels<'g>(&self, left: &Node, next: &'g Node, guard: &'g Guard) {
        let from = left.label.load(Relaxed);
        let mut raised: Vec<LockedNode<'g>> = Vec::new();
        let mut behind = Some(next);
        let gap = loop {
            let gaps = raised.len() as u64 + 1;
            let wanted = LABEL_ROOM_MIN * (1 + u64::from(gaps.ilog2()));
            let end = behind.map_or(LABEL_MAX, |behind| behind.label.load(Relaxed));
            let gap = end.saturating_sub(from) / gaps;
            let Some(node) = behind else {
                // Only the greatest label bounds these leaves, and used labels do not come back.
                break gap.min(wanted.max(gap >> LABEL_SHARE_IN_ORDER));
            };
            if gap >= wanted {
                break gap;
            }
            if raised.len() == LABEL_RAISED_MAX {
                return;
            }
            // From left to right, the order of node locks.
            raised.push(node.hold(&self.waits));
            behind = node.next(0, guard);
        };
        // From right to left: at each moment the labels are in the order of the list.
        for (node, number) in raised.iter().map(|held| held.node).rev().zip((1..=raised.len() as u64).rev()) {
            let label = node.label.load(Relaxed).max(from + gap * number);
            // Release: pairs with the Acquire of a scan, which then also finds the labels after this one raised.
            node.label.store(label, Release);
        }
    }

    pub(super) fn height_of(&self, low: &[u8]) -> usize {
        (1 + self.heights.hash(low).trailing_zeros() as usize).min(HEIGHT_MAX)
    }

    /// Checks that every level points to living nodes in the order of their lowest keys, and level 0 to all of them.
    #[cfg(any(test, loom))]
    pub fn check_levels(&self, guard: &Guard) {
        let lows = |level| {
            let mut lows: Vec<Vec<u8>> = Vec::new();
            let mut next = self.head(guard).next(level, guard);
            while let Some(node) = next {
                let low = node.low(&mut [0; 16], guard).to_vec();
                assert!(
                    !node.is_gone() && node.at_rest().is_some(),
                    "level {level} points to a removed node"
                );
                assert!(lows.last().is_none_or(|last| *last < low), "level {level} is out of order");
                assert!(node.height() > level && node.is_linked());
                lows.push(low);
                next = node.next(level, guard);
            }
            lows
        };
        let all = lows(0);
        for level in 1..HEIGHT_MAX {
            assert!(lows(level).iter().all(|low| all.binary_search(low).is_ok()), "level {level}");
        }
    }

    /// The height of a node with lowest key `low` in a list of this seed.
    #[cfg(loom)]
    pub fn height_for(seed: u64, low: &[u8]) -> usize {
        let heights = crate::Hasher::new(seed, u64::MAX);
        (1 + heights.hash(low).trailing_zeros() as usize).min(HEIGHT_MAX)
    }

    /// A leaf has lost a key: merges it with a neighbour if both fit into one leaf.
    pub(super) fn shrink(&self, node: &Node, keys: &impl KeyBytes, guard: &Guard) {
        let count = node.order().len();
        // Above a third, looking at the neighbour is not worth it.
        if count > (self.leaf_slots / 3).max(1) || self.merge(node, keys, guard) || count > 0 {
            return;
        }
        // An empty leaf merges with either neighbour: a queue's keys must not leave empty leaves.
        let mut buffer = [0; 16];
        let low = node.low(&mut buffer, guard);
        if !low.is_empty() {
            self.merge(self.before(0, &Sought::new(low), guard), keys, guard);
        }
    }

    /// Merges the next leaf into `left`, if both fit.
    fn merge(&self, left: &Node, keys: &impl KeyBytes, guard: &Guard) -> bool {
        let mut held = left.hold(&self.waits);
        if !held.is_alive() {
            return false;
        }
        let Some(right) = left.next(0, guard) else { return false };
        let mut other = right.hold(&self.waits);
        let (mut order, count) = (left.order(), right.order().len());
        // A leaf that was just merged must not soon split again.
        let fits = order.len() + count <= self.leaf_slots * 2 / 3 || order.len() == 0 || count == 0;
        if !fits || !right.is_linked() || left.page().is_some() || right.page().is_some() {
            return false;
        }
        for (_, slot) in held.entries().chain(other.entries()) {
            keys.prefetch_at(slot.location());
        }
        // The bytes kept of an unknown key cannot be computed again.
        let is_damaged = |(_, slot): (u64, Slot)| keys.key_at(slot.location()).is_none();
        if keys.may_be_damaged() && held.entries().chain(other.entries()).any(is_damaged) {
            return false;
        }
        let next = right.next(0, guard);
        let (mut buffer, mut next_buffer) = ([0; 16], [0; 16]);
        let low = left.low(&mut buffer, guard);
        let skip = skip_between(low, next.map(|next| next.low(&mut next_buffer, guard)));
        held.change();
        other.mark_removed();
        let key_of = |slot: Slot| word_at(keys.key_at(slot.location()).unwrap_or_default(), skip);
        if skip != left.skip() {
            for position in order.positions() {
                let slot = left.slot(position);
                held.set(position, key_of(slot), slot);
            }
        }
        for (prefix, slot) in other.entries() {
            let prefix = if skip == right.skip() { prefix } else { key_of(slot) };
            let Some(position) = order.free() else { break };
            held.set(position, prefix, slot);
            order = order.with(order.len(), position);
        }
        held.set_skip(skip);
        held.set_order(order);
        // Labels only grow: see `walk`. Before the link, which publishes it.
        left.label.store(right.label.load(Relaxed), Release);
        left.set_next(0, next);
        drop((held, other));
        self.merges.fetch_add(1, Relaxed);
        self.unlink(right, guard);
        let (memory, gone) = (Arc::clone(&self.memory), RetiredNode(right.pointer()));
        guard.defer(move || recycle(&memory, gone));
        true
    }

    /// Makes `before` skip a removed node; false when `before` is removed too.
    fn unlink_from(&self, before: &Node, level: usize, gone: &Node, guard: &Guard) -> bool {
        let held = before.hold(&self.waits);
        if held.is_alive() && is_same(before.next(level, guard), Some(gone)) {
            debug_assert!(
                gone.is_gone(),
                "a link leads around a node that is still alive (invariants 3 and 4)"
            );
            before.set_next(level, gone.next(level, guard));
        }
        held.is_alive()
    }
}

/// A label in the middle between two leaves; without room, the left one's label.
fn label_between(left: &Node, next: Option<&Node>) -> u64 {
    let from = left.label.load(Relaxed);
    let to = next.map_or(LABEL_MAX, |next| next.label.load(Relaxed));
    from + to.saturating_sub(from) / 2
}
