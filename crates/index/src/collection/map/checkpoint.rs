//! The pages of a map for an index checkpoint, and a map from them.

use super::*;

/// The description of a map's page in a checkpoint, besides its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collection) struct Head {
    pub bits: u32,
    pub depth: u32,
    pub known: u32,
}

impl Head {
    pub(in crate::collection) fn words(self) -> usize {
        Class::doubled(self.bits).words()
    }

    /// Whether a map can have such pages.
    pub(in crate::collection) fn is_right(self) -> bool {
        self.bits <= PAGE_BITS_MAX
            && self.depth <= DEPTH_MAX
            && (self.depth == 0 || self.bits == PAGE_BITS_MAX)
            && (1..=FINGERPRINT_BITS).contains(&self.known)
    }

    /// Where the page after one at `position` begins; `Err` if no such page can begin there.
    pub(in crate::collection) fn behind(self, position: u64) -> Result<Option<u64>, ()> {
        let Some(step) = 1u64.checked_shl(64 - self.depth) else {
            return if position == 0 { Ok(None) } else { Err(()) };
        };
        if position & (step - 1) == 0 { Ok(position.checked_add(step)) } else { Err(()) }
    }
}

/// The pages of a map that is being filled, in the order of their positions.
#[derive(Default)]
pub(in crate::collection) struct Loading {
    pages: Vec<(u64, Entry)>,
    next: Option<u64>,
}

impl Map {
    /// Blocks or allows merges of pages. While they are blocked, the pages that [`Map::dump_page`] returns one after
    /// the other are those of one map.
    pub(in crate::collection) fn block_merges(&mut self, keeps: bool) {
        self.blocks_merges = keeps;
    }

    /// The page at this position, with each slot as `to_durable` returns it, and where the next page begins. `None`:
    /// there is none.
    pub(in crate::collection) fn dump_page(
        &self,
        at: u64,
        words: &mut Vec<u64>,
        to_durable: &mut dyn FnMut(Slot) -> Slot,
    ) -> Option<(Head, Option<u64>)> {
        let entry = if self.root.is_none() { self.root } else { self.entry(at) };
        if !entry.is_page() {
            return None;
        }
        words.clear();
        let page = self.pages.words(entry.page(), Class::doubled(entry.bits()).words());
        words.extend(page.iter().map(|word| with_slot(word.load(Relaxed), &mut *to_durable)));
        let head = Head { bits: entry.bits(), depth: entry.depth(), known: entry.known() };
        Some((head, scan::behind(entry, at)))
    }

    /// How many elements are in no page.
    pub(in crate::collection) fn rest_len(&self) -> usize {
        self.overflow.len()
    }

    /// The elements in no page: position, number of its known bits, and slot.
    pub(in crate::collection) fn dump_rest(&self) -> impl Iterator<Item = (u64, u32, Slot)> {
        self.overflow.iter().map(|overflow| (overflow.position, overflow.known, overflow.slot))
    }

    /// Adds the next page to a map that has nothing else; `keep` returns the slots to keep. Pages come in order, and
    /// are those of one map.
    pub(in crate::collection) fn load(
        &mut self,
        loading: &mut Loading,
        head: Head,
        words: impl Iterator<Item = u64>,
        keep: impl Fn(Slot) -> Option<Slot>,
    ) {
        let position = if loading.pages.is_empty() { Some(0) } else { loading.next };
        let Some(position) = position else { return };
        let class = Class::doubled(head.bits);
        let page = self.pages.take(class);
        let mut count = 0;
        for (at, word) in self.pages.words(page, class.words()).iter().zip(words) {
            let word = with_slot(word, &mut |slot| keep(slot).unwrap_or_default());
            at.store(word, Relaxed);
            let slot = Slot(word);
            if !slot.is_empty() {
                count += 1;
                self.slots += 1;
                self.tombstones += u64::from(slot.is_tombstone());
            }
        }
        self.count_depth(head.depth, 1);
        loading.pages.push((position, Entry::of_page(page, head.bits, head.depth, head.known, count)));
        loading.next = head.behind(position).ok().flatten();
    }

    pub(in crate::collection) fn load_rest(&mut self, position: u64, known: u64, slot: Slot) {
        self.slots += 1;
        self.tombstones += u64::from(slot.is_tombstone());
        self.overflow.push(Overflow { position, known: known.min(64) as u32, slot });
    }

    /// All pages have been added.
    pub(in crate::collection) fn loaded(&mut self, loading: &Loading) {
        if let Some(root) = self.directory(&loading.pages, 0) {
            self.root = root;
        }
    }
}

/// Applies `change` to the slot in a word of a page, if it has one. The bucket's bit stays.
fn with_slot(word: u64, change: &mut dyn FnMut(Slot) -> Slot) -> u64 {
    let slot = Slot::of_word(word);
    if slot.is_empty() {
        return word;
    }
    let slot = change(slot);
    let print = if slot.is_empty() { 0 } else { word & FINGERPRINT_MASK };
    Slot::of_word(slot.0).0 | print | word & BUCKET_BIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_slot_leaves_the_rest_of_its_word() {
        let print = 7 << FINGERPRINT_SHIFT;
        let mut moved = |slot: Slot| Slot(slot.0 + 1);
        assert_eq!(with_slot(5 | print | BUCKET_BIT, &mut moved), 6 | print | BUCKET_BIT);
        assert_eq!(with_slot(BUCKET_BIT, &mut moved), BUCKET_BIT);
        assert_eq!(with_slot(5 | print | BUCKET_BIT, &mut |_| Slot::default()), BUCKET_BIT);
    }
}
