//! The nodes of a map: how a position points to a page.

use super::Map;
use crate::collection::pages::{Class, LINE_WORDS};

/// A node of one line has 8 entries.
const NODE_BITS_MIN: u32 = LINE_WORDS.ilog2();
const NODE_BITS_MAX: u32 = NODE_BITS_MIN + Class::LARGEST.doublings();

/// A reference to a page or a node.
///
/// | bits | of a page | of a node |
/// |---|---|---|
/// | 0 to 31 | its number | its number |
/// | 32 to 35 | it has two to the power of this many buckets | ... entries |
/// | 36 to 41 | depth: bits of its prefix | |
/// | 42 to 45 | known: how many bits of its fingerprints are | |
/// | 46 to 55 | count of its slots that are taken, in the first of its entries | |
/// | 62, 63 | 1 | 2 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

impl Entry {
    pub(super) const NONE: Self = Self(0);

    pub(super) fn of_page(page: u32, bits: u32, depth: u32, known: u32, count: u32) -> Self {
        let word = u64::from(page) | u64::from(bits) << 32 | u64::from(depth) << 36 | u64::from(known) << 42;
        Self(word | u64::from(count) << 46 | 1 << 62)
    }

    fn of_node(page: u32, bits: u32) -> Self {
        Self(u64::from(page) | u64::from(bits) << 32 | 2 << 62)
    }

    #[inline]
    pub(super) fn is_page(self) -> bool {
        self.0 >> 62 == 1
    }

    #[inline]
    pub(super) fn is_node(self) -> bool {
        self.0 >> 62 == 2
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn page(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub(super) fn bits(self) -> u32 {
        (self.0 >> 32) as u32 & 15
    }

    #[inline]
    pub(super) fn depth(self) -> u32 {
        (self.0 >> 36) as u32 & 63
    }

    #[inline]
    pub(super) fn known(self) -> u32 {
        (self.0 >> 42) as u32 & 15
    }

    #[inline]
    pub(super) fn count(self) -> u32 {
        (self.0 >> 46) as u32 & 1023
    }

    pub(super) fn with_count(self, count: u32) -> Self {
        Self(self.0 & !(1023 << 46) | u64::from(count) << 46)
    }
}

/// The place of an entry: page and number; `None` is the root.
pub(super) type At = Option<(u32, u32)>;

/// The node that contains an entry.
#[derive(Clone, Copy)]
struct Node {
    entry: Entry,
    at: At,
    /// Bits of the position before those that choose among its entries.
    used: u32,
}

/// The entry of the page of a position, with its count.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub entry: Entry,
    pub at: At,
    node: Option<Node>,
}

/// The class of a node of `1 << bits` entries.
fn class(bits: u32) -> Class {
    Class::doubled(bits - NODE_BITS_MIN)
}

impl Map {
    /// The entry of the page of a position; its count is not valid.
    #[inline]
    pub(super) fn entry(&self, position: u64) -> Entry {
        let (mut entry, mut left) = (self.root, position);
        while entry.is_node() {
            let bits = entry.bits();
            entry = Entry(self.pages.word(entry.page(), super::top(left, bits) as usize));
            left <<= bits;
        }
        entry
    }

    pub(super) fn locate(&self, position: u64) -> Found {
        let mut found = Found { entry: self.root, at: None, node: None };
        let mut used = 0;
        while found.entry.is_node() {
            let node = Node { entry: found.entry, at: found.at, used };
            let bits = node.entry.bits();
            let (page, mut number) = (node.entry.page(), super::top(position << used, bits));
            used += bits;
            let entry = Entry(self.pages.word(page, number as usize));
            if entry.is_page() {
                // The first of its entries has the count.
                number &= u32::MAX << (used - entry.depth());
            }
            let before = entry;
            let entry = Entry(self.pages.word(page, number as usize));
            debug_assert_eq!(
                entry.with_count(0),
                before.with_count(0),
                "entries of one page at {number} of node {page} (map, invariant 2)"
            );
            found = Found { entry, at: Some((page, number)), node: Some(node) };
        }
        found
    }

    pub(super) fn write(&mut self, at: At, entry: Entry) {
        match at {
            None => self.root = entry,
            Some((page, number)) => self.pages.set_word(page, number as usize, entry.0),
        }
    }

    fn entries(&self, node: Entry) -> impl Iterator<Item = Entry> {
        let words = self.pages.words(node.page(), 1 << node.bits());
        words.iter().map(|word| Entry(word.load(super::Relaxed)))
    }

    /// Makes all entries of a page in its node point to it.
    fn repoint(&mut self, position: u64, node: Node, entry: Entry) {
        let each = node.used + node.entry.bits() - entry.depth();
        let first = super::top(position << node.used, node.entry.bits()) >> each << each;
        for number in first..first + (1 << each) {
            self.pages.set_word(node.entry.page(), number as usize, entry.0);
        }
    }

    /// A page has become two.
    pub(super) fn point_to_halves(&mut self, position: u64, found: Found, halves: [Entry; 2]) {
        let depth = halves[0].depth() - 1;
        debug_assert!(
            halves.iter().all(|half| half.bits() == super::PAGE_BITS_MAX),
            "{halves:?} are pages below the root (map, invariant 3)"
        );
        let node = match found.node {
            Some(node) if node.used + node.entry.bits() > depth => node,
            Some(node) if node.entry.bits() < NODE_BITS_MAX => self.double(node),
            // A node for the bits from here on.
            _ => {
                debug_assert!(
                    found.node.is_none_or(|node| {
                        node.entry.bits() == NODE_BITS_MAX && node.used + NODE_BITS_MAX == depth
                    }),
                    "a node of fewer than {} entries gets a node (map, invariant 3)",
                    1 << NODE_BITS_MAX
                );
                let entry = Entry::of_node(self.pages.take(class(NODE_BITS_MIN)), NODE_BITS_MIN);
                self.write(found.at, entry);
                Node { entry, at: found.at, used: depth }
            }
        };
        let bit = 1 << (63 - depth);
        self.repoint(position & !bit, node, halves[0]);
        self.repoint(position | bit, node, halves[1]);
    }

    fn double(&mut self, node: Node) -> Node {
        let (old, bits) = (node.entry, node.entry.bits() + 1);
        let entry = Entry::of_node(self.pages.take(class(bits)), bits);
        for number in 0..1usize << bits {
            let word = self.pages.word(old.page(), number / 2);
            self.pages.set_word(entry.page(), number, word);
        }
        self.pages.give(old.page(), class(old.bits()));
        self.write(node.at, entry);
        Node { entry, ..node }
    }

    /// Two pages have become one. Nodes larger than necessary shrink.
    pub(super) fn point_to_merged(&mut self, position: u64, merged: Entry) {
        let Some(node) = self.locate(position).node else { return };
        self.repoint(position, node, merged);
        while let Some(node) = self.locate(position).node {
            let (old, bits) = (node.entry, node.entry.bits());
            let first = self.entries(old).next().unwrap_or(Entry::NONE);
            if first.is_page() && first.depth() == node.used {
                self.pages.give(old.page(), class(bits));
                self.write(node.at, first);
                continue;
            }
            let deepest = node.used + bits;
            let mut entries = self.entries(old);
            if bits == NODE_BITS_MIN || entries.any(|entry| entry.is_node() || entry.depth() == deepest) {
                return;
            }
            drop(entries);
            let half = Entry::of_node(self.pages.take(class(bits - 1)), bits - 1);
            for number in 0..1usize << (bits - 1) {
                let word = self.pages.word(old.page(), number * 2);
                self.pages.set_word(half.page(), number, word);
            }
            self.pages.give(old.page(), class(bits));
            self.write(node.at, half);
        }
    }

    /// An entry for these pages, sorted by position, whose positions all share their first `used` bits. It is the only
    /// page itself, or a node, as small as possible.
    pub(super) fn directory(&mut self, pages: &[(u64, Entry)], used: u32) -> Option<Entry> {
        let &(_, first) = pages.first()?;
        if first.depth() <= used {
            return Some(first);
        }
        let deepest = pages.iter().map(|(_, entry)| entry.depth()).max().unwrap_or(used);
        let bits = (deepest - used).clamp(NODE_BITS_MIN, NODE_BITS_MAX);
        let node = Entry::of_node(self.pages.take(class(bits)), bits);
        let mut overflow = pages;
        while let Some(&(position, page)) = overflow.first() {
            let number = super::top(position << used, bits);
            let end = used + bits;
            let (below, each) = if page.depth() <= end {
                (1, 1 << (end - page.depth()))
            } else {
                (overflow.partition_point(|(other, _)| super::top(other << used, bits) <= number), 1)
            };
            let child = self.directory(&overflow[..below], end)?;
            for number in number..number + each {
                self.pages.set_word(node.page(), number as usize, child.0);
            }
            overflow = &overflow[below..];
        }
        Some(node)
    }

    /// Moves the entries of a node to the list of entries to be freed, and frees the node.
    pub(super) fn leave_node(&mut self, node: Entry) {
        let mut last = Entry::NONE;
        let entries: Vec<_> = self.entries(node).collect();
        for entry in entries {
            if entry.page() != last.page() || last.is_none() {
                self.leaving.push(entry);
            }
            last = entry;
        }
        self.pages.give(node.page(), class(node.bits()));
    }

    /// Panics unless a node is valid. Adds the pages and nodes that it points to to `work`, each with the prefix and
    /// the depth that it should have.
    #[cfg(test)]
    fn check_node(&self, node: Entry, prefix: u64, depth: u32, work: &mut Vec<(Entry, u64, u32)>) {
        let (bits, all) = (node.bits(), self.entries(node).collect::<Vec<_>>());
        let mut number = 0;
        let mut is_needed = bits == NODE_BITS_MIN;
        while number < 1usize << bits {
            let child = all[number];
            assert!(!child.is_none());
            let at = prefix | ((number as u64) << (64 - bits)) >> depth;
            let each = if child.is_node() {
                assert_eq!(bits, NODE_BITS_MAX, "a node below one that could double");
                is_needed = true;
                work.push((child, at, depth + bits));
                1
            } else {
                assert!(child.depth() > depth, "a node with one page");
                is_needed |= child.depth() == depth + bits;
                work.push((child, at, child.depth()));
                1usize << (depth + bits - child.depth())
            };
            let same = |other: &Entry| other.with_count(0) == child.with_count(0);
            assert!(number.is_multiple_of(each) && all[number..][..each].iter().all(same));
            number += each;
        }
        assert!(is_needed, "a node is larger than it need be");
    }

    /// Walks all pages and panics unless nodes and pages satisfy the invariants in `map.rs`. Returns the number of
    /// pages.
    #[cfg(test)]
    pub(in crate::collection) fn check(&self, hash_of: &dyn Fn(super::Slot) -> u64) -> u64 {
        use super::*;
        let mut seen = std::collections::BTreeSet::new();
        let (mut bytes, mut count, mut tombstones, mut pending, mut depths) = (0, 0, 0, 0, Vec::new());
        let mut work = if self.root.is_none() { vec![] } else { vec![(self.root, 0u64, 0u32)] };
        while let Some((entry, prefix, depth)) = work.pop() {
            assert!(seen.insert(entry.page()), "page {} is pointed to twice", entry.page());
            if entry.is_node() {
                bytes += class(entry.bits()).bytes();
                self.check_node(entry, prefix, depth, &mut work);
                continue;
            }
            assert_eq!(entry.depth(), depth);
            assert!(depth == 0 || entry.bits() == PAGE_BITS_MAX);
            assert!((1..=FINGERPRINT_BITS).contains(&entry.known()));
            bytes += Class::doubled(entry.bits()).bytes();
            if depth > 0 && depths.len() <= depth as usize {
                depths.resize(depth as usize + 1, 0);
            }
            if depth > 0 {
                depths[depth as usize] += 1;
            }
            let mut here = 0;
            let mut passed_by = vec![0; 1 << entry.bits()];
            self.each_word(entry, |bucket, word| {
                here += 1;
                let slot = Slot(word & !(FINGERPRINT_MASK | BUCKET_BIT));
                tombstones += u64::from(slot.is_tombstone());
                pending += u64::from(slot.is_pending());
                let position = skew(hash_of(slot));
                assert_eq!(top(position ^ prefix, depth), 0, "an element in another's page");
                let (behind, buckets) = (position << depth, 1 << entry.bits());
                let home = top(behind, entry.bits());
                let away = bucket.wrapping_sub(home) & (buckets - 1);
                let want = fingerprint(behind, entry.bits()) | away_field(away);
                assert_eq!((word ^ want) & known_mask(entry.known()), 0, "a wrong fingerprint");
                for passed in 0..away {
                    passed_by[((home + passed) & (buckets - 1)) as usize] += 1;
                }
            });
            for (bucket, &passed_by) in passed_by.iter().enumerate() {
                let line = self.line(entry.page(), entry.bits(), bucket as u32);
                let marks = line.iter().filter(|word| word.load(Relaxed) & BUCKET_BIT != 0).count();
                // At eight the number is unknown: eight or more.
                assert!(marks == passed_by || marks == LINE_WORDS, "{marks} marks of {passed_by}");
            }
            assert_eq!(here, entry.count(), "the count of a page");
            count += u64::from(here);
        }
        let in_rest = self.overflow.iter().filter(|overflow| overflow.slot.is_tombstone()).count() as u64;
        assert_eq!(self.slots, count + self.overflow.len() as u64);
        assert_eq!(self.tombstones, tombstones + in_rest);
        let in_rest = self.overflow.iter().filter(|overflow| overflow.slot.is_pending()).count() as u64;
        assert_eq!(self.pending, pending + in_rest);
        assert_eq!(self.depths, depths);
        assert_eq!(self.pages.bytes(), bytes, "pages are lost");
        seen.len() as u64
    }
}
