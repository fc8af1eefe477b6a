//! Insertion and removal, and their changes of nodes.
//!
//! An insertion that finds a full leaf makes one change towards room (a larger page, a new level, a split node, entries
//! moved to a neighbour), and descends again. So each of these steps leaves a valid tree.

use super::node::Words;
use super::*;

/// A neighbour with less room than this share counts as full.
const ROOM_SHARE: usize = 12;
/// Entries inserted in this last part of the last leaf, or this first part of the first, come more or less in order.
const END_SHARE: usize = 4;

/// The maximum number of entries of two neighbours that are merged.
fn merged_most(room: usize) -> usize {
    room * 3 / 4
}

impl Tree {
    /// Adds an entry. If it is there already, it gets the new slot, and the old one is returned.
    pub fn insert(
        &mut self,
        order: u64,
        slot: Slot,
        mut compare: impl FnMut(Slot) -> Ordering,
    ) -> Option<Slot> {
        if self.len == 0 {
            self.class = Class::SMALLEST;
            self.root = self.pages.take(self.class);
        }
        loop {
            let (path, is_there) = self.path(order, &mut compare);
            debug_assert!(
                self.is_exact(&path, path.count),
                "a node does not say what is below (invariants 1, 2)"
            );
            let leaf = self.leaf(path.steps[0].0);
            if is_there {
                let old = leaf.slot(path.at());
                self.change(&path, (order, slot.0));
                return Some(old);
            }
            if (path.count as usize) < leaf.room() {
                assert!(
                    self.len < u64::from(u32::MAX),
                    "a collection has at most {} elements (invariant 4)",
                    u32::MAX
                );
                leaf.insert(path.at(), path.count as usize, (order, slot.0));
                self.count(&path, 1);
                self.update_first(&path, 0);
                debug_assert!(self.is_exact(&path, path.count + 1), "after an insertion (invariants 1, 2)");
                return None;
            }
            self.make_room(&path);
        }
    }

    /// Changes the slot of an entry, and returns the old one.
    pub fn set(&mut self, order: u64, slot: Slot, compare: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        let (path, is_there) = self.path(order, compare);
        is_there.then(|| {
            let old = self.leaf(path.steps[0].0).slot(path.at());
            self.change(&path, (order, slot.0));
            old
        })
    }

    fn change(&mut self, path: &Path, entry: Words) {
        self.leaf(path.steps[0].0).set(path.at(), entry);
        self.update_first(path, 0);
        debug_assert!(self.is_exact(path, path.count), "after a change (invariant 1)");
    }

    pub fn remove(&mut self, order: u64, compare: impl FnMut(Slot) -> Ordering) -> Option<Slot> {
        let (path, is_there) = self.path(order, compare);
        if !is_there {
            return None;
        }
        debug_assert!(
            self.is_exact(&path, path.count),
            "a node does not say what is below (invariants 1, 2)"
        );
        let (page, at) = path.steps[0];
        let leaf = self.leaf(page);
        let old = leaf.slot(at as usize);
        leaf.remove(at as usize, path.count as usize);
        self.count(&path, -1);
        let freed = if path.count == 1 {
            self.remove_node(&path, 0)
        } else {
            self.update_first(&path, 0);
            debug_assert!(self.is_exact(&path, path.count - 1), "after a removal (invariants 1, 2)");
            0
        };
        self.shrink(&path, freed);
        Some(old)
    }

    /// Removes entries that are next to each other in one leaf, given in order; `compare` is for the first of them.
    /// Returns how many it removed, from the first on: 0 if that one is not where it should be.
    pub(crate) fn remove_run(
        &mut self,
        entries: &[(u64, Slot)],
        compare: impl FnMut(Slot) -> Ordering,
    ) -> usize {
        let Some(&(order, first)) = entries.first() else { return 0 };
        let (path, is_there) = self.path(order, compare);
        let (leaf, count) = (self.leaf(path.steps[0].0), path.count as usize);
        if !is_there || leaf.slot(path.at()).location() != first.location() {
            return 0;
        }
        let mut gone = entries.iter().peekable();
        let is_gone = |at: usize| {
            let is_next = |&&(order, slot): &&(u64, Slot)| {
                order == leaf.order(at) && slot.location() == leaf.slot(at).location()
            };
            gone.next_if(is_next).is_some()
        };
        let removed = leaf.remove_each(path.at(), count, is_gone);
        self.count(&path, -(removed as i64));
        let freed = if removed == count {
            self.remove_node(&path, 0)
        } else {
            self.update_first(&path, 0);
            0
        };
        self.shrink(&path, freed);
        removed
    }

    /// Adds `more` to the counts on the path.
    fn count(&mut self, path: &Path, more: i64) {
        self.len = self.len.wrapping_add_signed(more);
        for level in 1..=self.height {
            let (page, child) = path.steps[level as usize];
            self.inner(page, level).count_add(child as usize, more);
        }
    }

    /// If the path points to the first entry or child of a node, updates the data on it in the nodes above (invariant
    /// 1).
    fn update_first(&mut self, path: &Path, level: u32) {
        let (page, at) = path.steps[level as usize];
        if at != 0 || level == self.height {
            return;
        }
        let first = match level {
            0 => self.leaf(page).entry(0),
            level => {
                let inner = self.inner(page, level);
                (inner.order(0), inner.slot(0).0)
            }
        };
        for above in level + 1..=self.height {
            let (page, child) = path.steps[above as usize];
            self.inner(page, above).set_first(child as usize, first);
            if child != 0 {
                return;
            }
        }
    }

    /// Whether the path points to the last node of a level, or to the first.
    fn is_last(&self, path: &Path, above: u32) -> bool {
        (above..=self.height).all(|level| {
            let (page, child) = path.steps[level as usize];
            child as usize == self.inner(page, level).children() - 1
        })
    }

    fn is_first(&self, path: &Path, above: u32) -> bool {
        path.steps[above as usize..=self.height as usize].iter().all(|step| step.1 == 0)
    }

    /// Makes one change towards room for an entry in a full leaf.
    fn make_room(&mut self, path: &Path) {
        if self.height == 0 {
            return if self.class < LEAF { self.enlarge_root() } else { self.add_level() };
        }
        let (page, at) = path.steps[1];
        let (parent, at) = (self.inner(page, 1), at as usize);
        let (last, full) = (parent.children() - 1, path.count as usize);
        let behind = path.at();
        let is_last = self.is_last(path, 1) && behind >= full - full / END_SHARE;
        let is_first = self.is_first(path, 1) && behind <= full / END_SHARE;
        let count = |child: usize| parent.count(child) as usize;
        if !is_last && !is_first {
            let neighbours = [(at > 0).then(|| at - 1), (at < last).then_some(at + 1)];
            let emptiest = neighbours.into_iter().flatten().min_by_key(|&child| count(child));
            if let Some(other) = emptiest.filter(|&child| count(child) + full / ROOM_SHARE <= full) {
                let mut moved = (full - count(other)) / 2;
                // Entries that come more or less in order must leave full leaves: the leaf at the end gets few.
                if other == last && self.is_last(path, 2) || other == 0 && self.is_first(path, 2) {
                    moved = moved.min(full / ROOM_SHARE);
                }
                let (own, theirs) = (full - moved, count(other) + moved);
                let counts = if at < other { [own, theirs] } else { [theirs, own] };
                return self.share(page, at.min(other), 2, &counts);
            }
        }
        if parent.children() == parent.room() {
            return self.split(path, 1);
        }
        if is_last || is_first {
            // Split at the new entry's place. It then finds room in the first of the two, or, at the very end, in the
            // second.
            let left = behind.clamp(1, full - 1);
            self.share(page, at, 1, &[left, full - left]);
        } else if last == 0 {
            self.share(page, at, 1, &[full / 2, full - full / 2]);
        } else {
            let first = at.min(last - 1);
            let both = count(first) + count(first + 1);
            self.share(
                page,
                first,
                2,
                &[both / 3, (both - both / 3) / 2, both - both / 3 - (both - both / 3) / 2],
            );
        }
    }

    /// Redistributes the entries of `leaves` leaves among as many leaves as there are `counts`.
    fn share(&mut self, parent: u32, first: usize, leaves: usize, counts: &[usize]) {
        let inner = self.inner(parent, 1);
        let mut entries = Vec::with_capacity(LEAF.words());
        let mut pages = Vec::with_capacity(3);
        for child in first..first + leaves {
            let leaf = self.leaf(inner.page(child));
            entries.extend((0..inner.count(child) as usize).map(|at| leaf.entry(at)));
            pages.push(inner.page(child));
        }
        debug_assert_eq!(entries.len(), counts.iter().sum::<usize>());
        while pages.len() > counts.len() {
            let gone = pages.pop().unwrap_or_default();
            self.pages.give(gone, LEAF);
            self.inner(parent, 1).remove(first + pages.len());
        }
        let mut entries = entries.into_iter();
        for (number, &count) in counts.iter().enumerate() {
            let is_new = number == pages.len();
            if is_new {
                pages.push(self.pages.take(LEAF));
            }
            let (leaf, inner) = (self.leaf(pages[number]), self.inner(parent, 1));
            entries.by_ref().take(count).enumerate().for_each(|(at, entry)| leaf.set(at, entry));
            let child = Child::new(leaf.entry(0), pages[number], count as u64);
            if is_new {
                inner.insert(first + number, child);
            } else {
                inner.set(first + number, child);
            }
        }
    }

    /// Makes one change towards room for a child in a full node of a level.
    fn split(&mut self, path: &Path, level: u32) {
        if level == self.height {
            return if self.class < INNER { self.enlarge_root() } else { self.add_level() };
        }
        let (above, at) = path.steps[level as usize + 1];
        let parent = self.inner(above, level + 1);
        if parent.children() == parent.room() {
            return self.split(path, level + 1);
        }
        let page = path.steps[level as usize].0;
        let all: Vec<Child> = self.inner(page, level).all().collect();
        let left = if self.is_last(path, level) {
            all.len() - 1
        } else if self.is_first(path, level) {
            1
        } else {
            all.len() / 2
        };
        let right = self.pages.take(INNER);
        for (page, at, children, is_new) in
            [(page, at, &all[..left], false), (right, at + 1, &all[left..], true)]
        {
            self.inner(page, level).fill(children.iter().copied());
            let count = children.iter().map(|child| child.count()).sum();
            let child = Child::new((children[0].order, children[0].location), page, count);
            let parent = self.inner(above, level + 1);
            if is_new {
                parent.insert(at as usize, child);
            } else {
                parent.set(at as usize, child);
            }
        }
    }

    /// Adds a root with the old root as its only child, which gets the class of its level.
    fn add_level(&mut self) {
        let first = match self.height {
            0 => self.leaf(self.root).entry(0),
            height => {
                let inner = self.inner(self.root, height);
                (inner.order(0), inner.slot(0).0)
            }
        };
        let child = Child::new(first, self.root, self.len);
        self.class = INNER_MIN;
        self.height += 1;
        assert!((self.height as usize) < LEVELS_MAX, "a tree of {} levels", self.height);
        self.root = self.pages.take(self.class);
        self.inner(self.root, self.height).fill(std::iter::once(child));
    }

    fn enlarge_root(&mut self) {
        self.move_root(self.class.larger());
    }

    fn move_root(&mut self, class: Class) {
        let root = self.pages.take(class);
        let (old, new) =
            (self.pages.words(self.root, self.class.words()), self.pages.words(root, class.words()));
        match self.height {
            0 => {
                let count = self.len as usize;
                (0..count).for_each(|at| Leaf(new).set(at, Leaf(old).entry(at)));
            }
            _ => Inner(new).fill(Inner(old).all()),
        }
        self.pages.give(self.root, self.class);
        (self.root, self.class) = (root, class);
    }

    /// Frees the empty node of a level, and those above that become empty. Returns the level of the last.
    fn remove_node(&mut self, path: &Path, level: u32) -> u32 {
        self.pages.give(path.steps[level as usize].0, self.class_of(level));
        if level == self.height {
            (self.height, self.class) = (0, Class::SMALLEST);
            return level;
        }
        let (page, child) = path.steps[level as usize + 1];
        let parent = self.inner(page, level + 1);
        parent.remove(child as usize);
        if parent.children() == 0 {
            return self.remove_node(path, level + 1);
        }
        self.update_first(path, level + 1);
        level
    }

    /// After a removal: merges half-empty nodes on the path, from this level on, with a neighbour, and shrinks the
    /// root.
    fn shrink(&mut self, path: &Path, from: u32) {
        for level in from..self.height {
            // Where a node was freed, the path points to its successor, or after the last.
            let (above, at) = path.steps[level as usize + 1];
            let parent = self.inner(above, level + 1);
            let at = at as usize;
            if at >= parent.children() || parent.children() == 1 {
                continue;
            }
            let neighbours = [(at > 0).then(|| at - 1), Some(at).filter(|at| at + 1 < parent.children())];
            let is_little = self.size(parent, level, at) <= self.room(level) / 2;
            let both = |first: &usize| self.size(parent, level, *first) + self.size(parent, level, first + 1);
            let mut firsts = neighbours.into_iter().flatten().filter(|_| is_little);
            let Some(first) = firsts.find(|first| both(first) <= merged_most(self.room(level))) else {
                continue;
            };
            if level == 0 {
                let both = both(&first);
                self.share(above, first, 2, &[both]);
                continue;
            }
            let [left, right] = [parent.child(first), parent.child(first + 1)];
            let children =
                [left, right].map(|child| self.inner(child.page(), level).all().collect::<Vec<_>>());
            self.inner(left.page(), level).fill(children.concat().into_iter());
            let merged = Child::new((left.order, left.location), left.page(), left.count() + right.count());
            parent.set(first, merged);
            parent.remove(first + 1);
            self.pages.give(right.page(), INNER);
        }
        while self.height > 0 && self.inner(self.root, self.height).children() == 1 {
            let only = self.inner(self.root, self.height).page(0);
            self.pages.give(self.root, self.class);
            self.root = only;
            self.height -= 1;
            self.class = if self.height == 0 { LEAF } else { INNER };
        }
        let (size, least) = match self.height {
            0 => (self.len as usize, Class::SMALLEST),
            height => (self.inner(self.root, height).children(), INNER_MIN),
        };
        // More than once only after a removal of several entries.
        while let Some(smaller) = self.class.smaller().filter(|&class| class >= least)
            && self.len > 0
            && size <= self.room(self.height) / 4
        {
            self.move_root(smaller);
        }
    }

    /// The room of a node of a level.
    fn room(&self, level: u32) -> usize {
        let words = self.class_of(level).words();
        if level == 0 { words / 2 } else { (words - 1) / 3 }
    }

    /// How many entries or children a child of this level has.
    fn size(&self, parent: Inner<'_>, level: u32, child: usize) -> usize {
        match level {
            0 => parent.count(child) as usize,
            level => self.inner(parent.page(child), level).children(),
        }
    }

    /// Walks all nodes and panics unless they satisfy the invariants of the tree. Returns the number of leaves.
    #[cfg(test)]
    pub(in crate::collection) fn check(&self, compare: &dyn Fn(Slot, Slot) -> Ordering) -> u64 {
        let mut seen = std::collections::BTreeSet::new();
        let (mut bytes, mut leaves, mut last) = (0, 0, None::<Words>);
        if self.len > 0 {
            let mut work = vec![(self.root, self.height, self.len, None::<Child>)];
            while let Some((page, level, count, expected)) = work.pop() {
                assert!(seen.insert(page), "page {page} is pointed to twice");
                bytes += self.class_of(level).bytes();
                if level > 0 {
                    let inner = self.inner(page, level);
                    assert!((1..=inner.room()).contains(&inner.children()));
                    assert_eq!(inner.all().map(Child::count).sum::<u64>(), count, "a count");
                    assert!(level < self.height || inner.children() > 1, "a root of one child");
                    let first = inner.child(0);
                    assert!(expected.is_none_or(
                        |expected| (expected.order, expected.location) == (first.order, first.location)
                    ));
                    let children: Vec<_> = inner.all().collect();
                    work.extend(
                        children.into_iter().rev().map(|c| (c.page(), level - 1, c.count(), Some(c))),
                    );
                    continue;
                }
                leaves += 1;
                let leaf = self.leaf(page);
                assert!((1..=leaf.room()).contains(&(count as usize)));
                if let Some(expected) = expected {
                    let (order, slot) = leaf.entry(0);
                    assert_eq!((expected.order, expected.location), (order, slot & crate::LOCATION_MASK));
                }
                for entry in (0..count as usize).map(|at| leaf.entry(at)) {
                    if let Some(before) = last {
                        let by_slot = || compare(Slot(before.1), Slot(entry.1));
                        assert!(before.0.cmp(&entry.0).then_with(by_slot).is_lt(), "out of order");
                    }
                    last = Some(entry);
                }
            }
        }
        assert_eq!(self.pages.bytes(), bytes, "pages are lost");
        leaves
    }
}
