//! A collection's map: from the hash of a subkey to the location of its element, by extendible hashing.
//!
//! ```text
//! position (the hash, spread): | node | node ... to the page's depth | home bucket: 6 | fingerprint: 14 | ...
//! root → node of 8 to 512 entries → ... → page of 64 buckets → bucket of 8 slots, one line
//! ```
//!
//! Everything is ordered by *position*. A page has the elements whose positions begin with its prefix of `depth` bits,
//! and a bucket those of the next bits. An element lies in its *home* bucket. If that is full, it lies in one of the
//! next buckets of the same page, wrapping around at its end. Two bits of the slot's fingerprint field give the
//! distance in buckets, 3 for three or more. 14 bits hold the bits of the position that follow the home bucket's. Bit
//! 63 of a bucket's slots is a count in unary: how many elements were put further on because this bucket was full. 8
//! means 8 or more, and stays. A lookup continues with the next bucket as long as that is not 0.
//!
//! *Growth* is one operation at all sizes: all buckets are split by the first bit of the fingerprints. While the map is
//! one page of fewer than 64 buckets, that page becomes twice as large; later one page becomes two. Only records of
//! elements three or more buckets from home are read. When few bits of the fingerprints are left ([`KNOWN_MIN`], once
//! in seven times), all of the page's are. *Shrinking* is the reverse, and reads nothing else.
//!
//! *Spread*: with evenly spread hashes all pages would fill and split at the same time, and be half empty afterwards.
//! So hashes are skewed ([`skew`]): elements at one end of the positions are twice as dense as at the other. Then pages
//! split one after the other while the map doubles, and are about 60 % full at any size.
//!
//! *Nodes* are the directory, a trie of pages. An entry points to a page, as do all other entries of the page's prefix,
//! or to a node for the next bits. A node doubles up to 512 entries; then a page that needs more bits gets its own
//! node. So no insertion does more than split one page and double one node of 4 KiB.
//!
//! *The rest* is a list of the elements that are in no page. These are elements of a full page of equal positions,
//! which no split would separate, and elements with damaged records, whose positions are unknown.
//!
//! Costs: at most 14 bytes of DRAM an element from 10,000 on. Smaller maps take up to 18 just after they grew. They
//! take up to 20 if elements came in the order of their positions, which leaves pages half full. A lookup loads an
//! entry of one or two nodes, most of which are in the CPU's caches, and one line of a page, seldom another next to it.
//!
//! Invariants:
//! 1. An element is in one slot of the page of its position, between its home and the first bucket from there with a
//!    count of 0, or in the rest.
//! 2. All entries of a page's prefix in a node are equal, except that the first of them holds the count.
//! 3. A page at a depth above 0 has 64 buckets. A node with entries for nodes has 512, each of one entry.
//! 4. Elements never move out of the rest, so a scan that visits it last misses none. (Asserted where pages are split
//!    and merged.)

mod build;
mod checkpoint;
mod node;
mod scan;

use super::pages::{Class, LINE_WORDS, Pages};
use crate::fingerprints::High;
use crate::{BUCKET_BIT, FINGERPRINT_MASK, FINGERPRINT_SHIFT, Keys, LOCATION_MASK, Slot};
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Offset;
use node::Entry;

pub(super) use checkpoint::{Head, Loading};

const PAGE_BITS_MAX: u32 = Class::LARGEST.doublings();
/// Bits of the position in a slot, and the minimum of them that must be known. With 8 slots, one probe in 32 then
/// mistakes a slot for another.
const FINGERPRINT_BITS: u32 = 14;
const KNOWN_MIN: u32 = 8;
const AWAY_SHIFT: u32 = FINGERPRINT_SHIFT + FINGERPRINT_BITS;
/// The greatest distance in buckets from home that a slot can hold; it also stands for more.
const AWAY_MANY: u32 = 3;
const DEPTH_MAX: u32 = 40;
/// The share of slots that may be taken before a page grows or splits. Just before, one element in eight is away from
/// home.
const FULL_SHARE: (u32, u32) = (29, 32);
/// A page with this share of its slots taken becomes half as large; two with the same share of both become one.
const SHRINK_SHARE: u32 = 4;

const _: () = assert!(DEPTH_MAX + PAGE_BITS_MAX + FINGERPRINT_BITS <= 64);

/// The position of a hash: x + c·x·(1 - x) with x in 0..1. Along the positions the density of elements rises from
/// 1 / (1 + c) to 1 / (1 - c): with c = 11/32 by a factor of 2.05.
#[inline]
pub fn skew(hash: u64) -> u64 {
    let bend = ((u128::from(hash) * u128::from(!hash)) >> 64) as u64;
    hash + (bend >> 5) * 11
}

/// The top `bits` of a word; 0 if `bits` is 0.
#[inline]
fn top(word: u64, bits: u32) -> u32 {
    (word >> 1 >> (63 - bits)) as u32
}

/// An element in no page.
#[derive(Clone, Copy)]
struct Overflow {
    position: u64,
    /// Number of known bits of the position.
    known: u32,
    slot: Slot,
}

impl Overflow {
    fn is_at(&self, position: u64) -> bool {
        (self.position ^ position).leading_zeros() >= self.known
    }
}

/// The known part of an element's position, after the page's prefix, and the element's word.
type Partial = (u64, u64);

pub struct Map {
    pages: Pages,
    root: Entry,
    /// Elements, including tombstones.
    slots: u64,
    tombstones: u64,
    /// Pending elements.
    pending: u64,
    overflow: Vec<Overflow>,
    /// Number of pages of each depth above 0.
    depths: Vec<u32>,
    /// Entries that [`Map::clear_some`] has yet to free.
    leaving: Vec<Entry>,
    /// See [`Map::block_merges`].
    blocks_merges: bool,
}

/// The place of an element.
enum Place {
    /// Page, home bucket, distance from it in buckets, slot in the bucket.
    Page(u32, u32, u32, u32),
    Overflow(usize),
}

impl Map {
    pub fn new(pages: Pages) -> Self {
        Self {
            pages,
            root: Entry::NONE,
            slots: 0,
            tombstones: 0,
            pending: 0,
            overflow: Vec::new(),
            depths: Vec::new(),
            leaving: Vec::new(),
            blocks_merges: false,
        }
    }

    /// Elements without tombstones.
    pub fn len(&self) -> u64 {
        self.slots - self.tombstones
    }

    pub fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// Whether no element is pending.
    pub fn is_stable(&self) -> bool {
        self.pending == 0
    }

    /// Bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        let beside =
            self.overflow.capacity() * size_of::<Overflow>() + self.depths.capacity() * size_of::<u32>();
        self.pages.bytes() + (size_of::<Self>() + beside) as u64
    }

    /// How many elements are in no page.
    #[cfg(test)]
    pub(super) fn overflow(&self) -> usize {
        self.overflow.len()
    }

    #[cfg(test)]
    pub(super) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The slot of the element that `is` recognises.
    #[inline]
    pub fn find(&self, hash: u64, is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.find_at(skew(hash), is)
    }

    /// The same, by position.
    #[inline]
    pub fn find_at(&self, position: u64, is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.place(position, self.entry(position), is).map(|(_, slot)| slot)
    }

    /// Hints that an element of this hash is looked for soon.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.prefetch_at(skew(hash));
    }

    #[inline]
    pub fn prefetch_at(&self, position: u64) {
        let entry = self.entry(position);
        if entry.is_page() {
            self.pages.prefetch(entry.page() + top(position << entry.depth(), entry.bits()), 1);
        }
    }

    #[inline]
    fn place(&self, position: u64, entry: Entry, mut is: impl FnMut(Slot) -> bool) -> Option<(Place, Slot)> {
        if entry.is_page() {
            let behind = position << entry.depth();
            let home = top(behind, entry.bits());
            let (want, mask) = (fingerprint(behind, entry.bits()), known_mask(entry.known()));
            for away in 0..1 << entry.bits() {
                let line = self.line(entry.page(), entry.bits(), home + away);
                let words = High::of(line);
                let mut which = words.matching(want | away_field(away), mask);
                while let Some(word) = line.get(which.trailing_zeros() as usize) {
                    let slot = Slot::of_word(word.load(Relaxed));
                    if !slot.is_empty() && is(slot) {
                        return Some((Place::Page(entry.page(), home, away, which.trailing_zeros()), slot));
                    }
                    which &= which - 1;
                }
                if words.matching(BUCKET_BIT, BUCKET_BIT) == 0 {
                    break;
                }
            }
        }
        if self.overflow.is_empty() { None } else { self.place_in_rest(position, is) }
    }

    #[cold]
    fn place_in_rest(&self, position: u64, mut is: impl FnMut(Slot) -> bool) -> Option<(Place, Slot)> {
        let at = self.overflow.iter().position(|overflow| overflow.is_at(position) && is(overflow.slot))?;
        Some((Place::Overflow(at), self.overflow[at].slot))
    }

    /// Bucket `at` of a page of `1 << bits` buckets, wrapping around at its end.
    #[inline]
    fn line(&self, page: u32, bits: u32, at: u32) -> &[AtomicU64; LINE_WORDS] {
        let words = self.pages.words(page + (at & ((1 << bits) - 1)), LINE_WORDS);
        match words.first_chunk() {
            Some(line) => line,
            None => unreachable!("a line has {LINE_WORDS} words"),
        }
    }

    /// Adds an absent element.
    pub fn insert(&mut self, hash: u64, slot: Slot, keys: &impl Keys) {
        self.insert_at(skew(hash), slot, keys);
    }

    /// The same, by position.
    pub fn insert_at(&mut self, position: u64, slot: Slot, keys: &impl Keys) {
        self.slots += 1;
        self.count(slot);
        if self.root.is_none() {
            self.root = Entry::of_page(self.pages.take(Class::SMALLEST), 0, 0, FINGERPRINT_BITS, 0);
        }
        let mut found = self.locate(position);
        while found.entry.count() >= full(found.entry.bits()) {
            if !self.part(position, found, keys) {
                if found.entry.count() == slots(found.entry.bits()) {
                    return self.overflow.push(Overflow { position, known: 64, slot });
                }
                break;
            }
            found = self.locate(position);
        }
        let entry = found.entry;
        self.put(entry, position << entry.depth(), slot.0);
        self.write(found.at, entry.with_count(entry.count() + 1));
        debug_assert!(
            self.find_at(position, |other| other.location() == slot.location()).is_some(),
            "the element at {:?} cannot be found after it was added (invariant 1)",
            slot.location()
        );
    }

    /// Puts a slot into a page that has room; `behind` is the position without the page's prefix.
    fn put(&self, entry: Entry, behind: u64, word: u64) {
        let (bits, home) = (entry.bits(), top(behind, entry.bits()));
        let word = word & !(FINGERPRINT_MASK | BUCKET_BIT) | fingerprint(behind, bits);
        for away in 0..1 << bits {
            let line = self.line(entry.page(), bits, home + away);
            // An empty slot has at most the bucket's bit set; few others have an empty high half.
            let mut which = High::of(line).matching(0, !BUCKET_BIT & u64::from(u32::MAX) << 32);
            while let Some(empty) = line.get(which.trailing_zeros() as usize) {
                let now = empty.load(Relaxed);
                if now & LOCATION_MASK == 0 {
                    return empty.store(now | word | away_field(away), Relaxed);
                }
                which &= which - 1;
            }
            // One more element that this bucket had no room for.
            if let Some(unmarked) = line.iter().find(|word| word.load(Relaxed) & BUCKET_BIT == 0) {
                unmarked.store(unmarked.load(Relaxed) | BUCKET_BIT, Relaxed);
            }
        }
        unreachable!("a page has no room for what its count has room for");
    }

    /// Changes the slot of the element that `is` recognises, and returns the old slot.
    pub fn set(&mut self, hash: u64, slot: Slot, is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.set_at(skew(hash), slot, is)
    }

    /// The same, by position.
    pub fn set_at(&mut self, position: u64, slot: Slot, is: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let entry = self.entry(position);
        let (place, old) = self.place(position, entry, is)?;
        match place {
            Place::Page(page, home, away, at) => {
                let word = &self.line(page, entry.bits(), home + away)[at as usize];
                const KEPT: u64 = FINGERPRINT_MASK | BUCKET_BIT;
                word.store(slot.0 & !KEPT | word.load(Relaxed) & KEPT, Relaxed);
            }
            Place::Overflow(at) => self.overflow[at].slot = slot,
        }
        self.count(slot);
        self.discount(old);
        Some(old)
    }

    /// Clears the pending mark of the element whose record is at `at`, if it has one.
    pub fn clear_pending(&mut self, hash: u64, at: Offset) {
        let position = skew(hash);
        let entry = self.entry(position);
        let is_it = |slot: Slot| slot.location() == at && slot.is_pending();
        let Some((place, slot)) = self.place(position, entry, is_it) else { return };
        let unmarked = slot.with_pending(false);
        match place {
            Place::Page(page, home, away, at) => {
                let word = &self.line(page, entry.bits(), home + away)[at as usize];
                // Both without the bucket's bits.
                word.store(word.load(Relaxed) ^ slot.0 ^ unmarked.0, Relaxed);
            }
            Place::Overflow(at) => self.overflow[at].slot = unmarked,
        }
        self.pending -= 1;
    }

    /// Counts the marks of a new slot ...
    fn count(&mut self, slot: Slot) {
        self.tombstones += u64::from(slot.is_tombstone());
        self.pending += u64::from(slot.is_pending());
    }

    /// ... and of a removed one.
    fn discount(&mut self, slot: Slot) {
        self.tombstones -= u64::from(slot.is_tombstone());
        self.pending -= u64::from(slot.is_pending());
    }

    /// Removes the element that `is` recognises.
    pub fn remove(&mut self, hash: u64, is: impl FnMut(Slot) -> bool, keys: &impl Keys) -> Option<Slot> {
        let position = skew(hash);
        let found = self.locate(position);
        let entry = found.entry;
        let (place, old) = self.place(position, entry, is)?;
        self.slots -= 1;
        self.discount(old);
        match place {
            Place::Overflow(at) => {
                self.overflow.swap_remove(at);
            }
            Place::Page(page, home, away, at) => {
                let word = &self.line(page, entry.bits(), home + away)[at as usize];
                word.store(word.load(Relaxed) & BUCKET_BIT, Relaxed);
                for passed in 0..away {
                    let line = self.line(page, entry.bits(), home + passed);
                    let mut marked = line.iter().filter(|word| word.load(Relaxed) & BUCKET_BIT != 0);
                    if let (Some(word), true) = (marked.next(), marked.count() + 1 < LINE_WORDS) {
                        word.store(word.load(Relaxed) & !BUCKET_BIT, Relaxed);
                    }
                }
                self.write(found.at, entry.with_count(entry.count() - 1));
                self.shrink(position, keys);
            }
        }
        debug_assert!(
            self.find_at(position, |other| other.location() == old.location()).is_none(),
            "the element at {:?} was in two places (invariant 1)",
            old.location()
        );
        Some(old)
    }

    /// The elements of a page with the known part of their positions after its prefix. With `anew` this is read from
    /// the records again. Elements whose records would have to be read and are damaged go to the rest.
    fn gather(&mut self, position: u64, entry: Entry, anew: bool, keys: &impl Keys) -> Vec<Partial> {
        let mut all = Vec::with_capacity(entry.count() as usize);
        let bits = entry.bits();
        if anew {
            self.each_word(entry, |_, word| keys.prefetch_at(Slot(word).location()));
        }
        let mut damaged = Vec::new();
        self.each_word(entry, |bucket, word| {
            let away = (word >> AWAY_SHIFT) as u32 & AWAY_MANY;
            if !anew && away < AWAY_MANY {
                let home = u64::from(bucket.wrapping_sub(away) & ((1 << bits) - 1));
                let print = word << (64 - AWAY_SHIFT) >> (64 - FINGERPRINT_BITS);
                return all
                    .push(((home << FINGERPRINT_BITS | print) << (64 - FINGERPRINT_BITS - bits), word));
            }
            match keys.hash_at(Slot(word).location()) {
                Some(hash) => all.push((skew(hash) << entry.depth(), word)),
                None => damaged.push(Slot::of_word(word)),
            }
        });
        let known = entry.depth();
        self.overflow.extend(damaged.into_iter().map(|slot| Overflow { position, known, slot }));
        all
    }

    fn each_word(&self, entry: Entry, mut visit: impl FnMut(u32, u64)) {
        for bucket in 0..1 << entry.bits() {
            for word in self.line(entry.page(), entry.bits(), bucket) {
                let word = word.load(Relaxed);
                if word & LOCATION_MASK != 0 {
                    visit(bucket, word);
                }
            }
        }
    }

    /// Fills a page of zeros.
    fn fill(&self, entry: Entry, all: impl Iterator<Item = Partial>) -> Entry {
        let mut words = self.pages.words(entry.page(), Class::doubled(entry.bits()).words()).iter();
        debug_assert!(
            cfg!(miri) || words.all(|word| word.load(Relaxed) == 0),
            "page {} is taken or cleared, and reads as zeros (pages, invariant 3)",
            entry.page()
        );
        let mut count = 0;
        for (behind, word) in all {
            self.put(entry, behind, word);
            count += 1;
        }
        entry.with_count(count)
    }

    /// Makes a page larger, or splits it into two. Returns whether that helped.
    fn part(&mut self, position: u64, found: node::Found, keys: &impl Keys) -> bool {
        let entry = found.entry;
        let (page, bits, depth) = (entry.page(), entry.bits(), entry.depth());
        if bits == PAGE_BITS_MAX && !self.would_part(position, entry, keys) {
            return false;
        }
        let overflow = self.overflow.len();
        let anew = entry.known() <= KNOWN_MIN;
        let known = if anew { FINGERPRINT_BITS } else { entry.known() - 1 };
        let all = self.gather(position, entry, anew, keys);
        let class = Class::doubled(bits);
        if bits < PAGE_BITS_MAX {
            let larger = self.pages.take(class.larger());
            let larger = self.fill(Entry::of_page(larger, bits + 1, depth, known, 0), all.into_iter());
            self.pages.give(page, class);
            self.write(found.at, larger);
            return true;
        }
        self.pages.clear(page, class);
        let halves =
            [page, self.pages.take(class)].map(|page| Entry::of_page(page, bits, depth + 1, known, 0));
        let of_half = |half: u64| {
            let theirs = all.iter().filter(move |&&(behind, _)| behind >> 63 == half);
            theirs.map(|&(behind, word)| (behind << 1, word))
        };
        let halves = [self.fill(halves[0], of_half(0)), self.fill(halves[1], of_half(1))];
        self.count_depth(depth, -1);
        self.count_depth(depth + 1, 2);
        self.point_to_halves(position, found, halves);
        debug_assert!(self.overflow.len() >= overflow, "elements left the rest (invariant 4)");
        true
    }

    /// Whether the page has an element at another position, so that splits separate the two sooner or later.
    fn would_part(&self, position: u64, entry: Entry, keys: &impl Keys) -> bool {
        if entry.depth() >= DEPTH_MAX {
            return false;
        }
        let (bits, behind) = (entry.bits(), position << entry.depth());
        let (home, print) = (top(behind, bits), fingerprint(behind, bits) & known_mask(entry.known()));
        let mut parts = false;
        self.each_word(entry, |bucket, word| {
            if parts {
                return;
            }
            let away = (word >> AWAY_SHIFT) as u32 & AWAY_MANY;
            let differs = away < AWAY_MANY
                && (bucket.wrapping_sub(away) & ((1 << bits) - 1) != home
                    || (word ^ print) & known_mask(entry.known()) & !(u64::from(AWAY_MANY) << AWAY_SHIFT)
                        != 0);
            parts = differs || keys.hash_at(Slot(word).location()).is_some_and(|hash| skew(hash) != position);
        });
        parts
    }

    /// Shrinks a page from which an element was removed, or merges it with its sibling, if few slots are taken.
    fn shrink(&mut self, position: u64, keys: &impl Keys) {
        if self.blocks_merges {
            return;
        }
        let found = self.locate(position);
        let entry = found.entry;
        let (page, bits, depth) = (entry.page(), entry.bits(), entry.depth());
        let class = Class::doubled(bits);
        if depth == 0 && entry.count() == 0 {
            self.pages.give(page, class);
            self.root = Entry::NONE;
            return;
        }
        if entry.count() > slots(bits) / SHRINK_SHARE * if depth == 0 { 1 } else { 2 } {
            return;
        }
        if depth == 0 {
            let Some(smaller) = class.smaller() else { return };
            let all = self.gather(position, entry, false, keys);
            let known = (entry.known() + 1).min(FINGERPRINT_BITS);
            let smaller = Entry::of_page(self.pages.take(smaller), bits - 1, 0, known, 0);
            self.root = self.fill(smaller, all.into_iter());
            return self.pages.give(page, class);
        }
        let bit = 1 << (64 - depth);
        let sibling = self.locate(position ^ bit).entry;
        let most = slots(bits) * 2 / SHRINK_SHARE;
        if sibling.depth() != depth || !sibling.is_page() || entry.count() + sibling.count() > most {
            return;
        }
        let overflow = self.overflow.len();
        let known = (entry.known().min(sibling.known()) + 1).min(FINGERPRINT_BITS);
        let mut all = Vec::new();
        for (position, entry) in [(position, entry), (position ^ bit, sibling)] {
            let half = position << (depth - 1) & 1 << 63;
            all.extend(
                self.gather(position, entry, false, keys).iter().map(|&(b, word)| (half | b >> 1, word)),
            );
        }
        self.pages.clear(page, class);
        let merged = self.fill(Entry::of_page(page, bits, depth - 1, known, 0), all.into_iter());
        self.pages.give(sibling.page(), class);
        self.count_depth(depth, -2);
        self.count_depth(depth - 1, 1);
        self.point_to_merged(position, merged);
        debug_assert!(self.overflow.len() >= overflow, "elements left the rest (invariant 4)");
    }

    fn count_depth(&mut self, depth: u32, more: i32) {
        if depth == 0 {
            return;
        }
        let depth = depth as usize;
        if self.depths.len() <= depth {
            self.depths.resize(depth + 1, 0);
        }
        self.depths[depth] = self.depths[depth].wrapping_add_signed(more);
        while self.depths.last() == Some(&0) {
            self.depths.pop();
        }
    }

    /// Removes all elements and passes them to `visit`, page by page, at most `pages_max` pages a call. Returns whether
    /// that was all. From the first call on the map is empty, and may be used as such.
    pub fn clear_some(&mut self, pages_max: usize, visit: &mut dyn FnMut(Slot)) -> bool {
        if !self.root.is_none() {
            self.leaving.push(std::mem::replace(&mut self.root, Entry::NONE));
        }
        self.depths = Vec::new();
        (self.slots, self.tombstones, self.pending) = (0, 0, 0);
        // The rest is visited in one go; it is short.
        std::mem::take(&mut self.overflow).iter().for_each(|overflow| visit(overflow.slot));
        for _ in 0..pages_max {
            let Some(entry) = self.leaving.pop() else { break };
            if entry.is_page() {
                self.each_word(entry, |_, word| visit(Slot::of_word(word)));
                self.pages.give(entry.page(), Class::doubled(entry.bits()));
            } else {
                self.leave_node(entry);
            }
        }
        self.leaving.is_empty()
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        self.clear_some(usize::MAX, &mut |_| ());
    }
}

/// Slots of a page of `1 << bits` buckets.
fn slots(bits: u32) -> u32 {
    (LINE_WORDS as u32) << bits
}

fn full(bits: u32) -> u32 {
    slots(bits) * FULL_SHARE.0 / FULL_SHARE.1
}

/// The part of the position after the page's prefix, as the fingerprint in a slot.
#[inline]
fn fingerprint(behind: u64, bits: u32) -> u64 {
    behind << bits >> (64 - FINGERPRINT_BITS) << FINGERPRINT_SHIFT
}

#[inline]
fn away_field(away: u32) -> u64 {
    u64::from(away.min(AWAY_MANY)) << AWAY_SHIFT
}

/// The bits of a slot that a lookup compares.
#[inline]
fn known_mask(known: u32) -> u64 {
    const PRINT_MASK: u64 = (1 << FINGERPRINT_BITS) - 1;
    FINGERPRINT_MASK & !((PRINT_MASK >> known) << FINGERPRINT_SHIFT)
}
