//! The pages of a map for an index image, and a map from them.

use super::*;
use crate::index::{Loaded, PENDING};

/// What an image says of a page of a map, beside its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::index::collection) struct Head {
    pub bits: u32,
    pub depth: u32,
    pub known: u32,
}

impl Head {
    pub(in crate::index::collection) fn words(self) -> usize {
        Class::doubled(self.bits).words()
    }

    /// Whether a map has such pages.
    pub(in crate::index::collection) fn is_right(self) -> bool {
        self.bits <= PAGE_BITS_MAX
            && self.depth <= DEPTH_MAX
            && (self.depth == 0 || self.bits == PAGE_BITS_MAX)
            && (1..=FINGERPRINT_BITS).contains(&self.known)
    }

    /// Where the page behind one at `position` begins; `Err` where no such page can begin there.
    pub(in crate::index::collection) fn behind(self, position: u64) -> Result<Option<u64>, ()> {
        let Some(step) = 1u64.checked_shl(64 - self.depth) else {
            return if position == 0 { Ok(None) } else { Err(()) };
        };
        if position & (step - 1) == 0 { Ok(position.checked_add(step)) } else { Err(()) }
    }
}

/// The pages of a map that is filled, in the order of their positions.
#[derive(Default)]
pub(in crate::index::collection) struct Loading {
    pages: Vec<(u64, Entry)>,
    next: Option<u64>,
}

impl Map {
    /// Hands out each page with its position, in their order, and its words without pending marks. `settled` says of a slot that is pending
    /// what it is once it is settled. Returns what there was, with the rest; `None` where a slot leads elsewhere once it is settled.
    pub(in crate::index::collection) fn dump<E>(
        &self,
        settled: &dyn Fn(Slot) -> Slot,
        mut emit: impl FnMut(u64, Head, &[u64]) -> Result<(), E>,
    ) -> Result<Option<Loaded>, E> {
        let mut loaded = Loaded::default();
        let mut is_settled = true;
        let mut words = Vec::new();
        let mut settle = |word: u64| {
            let slot = Slot(word & !(FINGERPRINT_MASK | BUCKET_BIT));
            if !slot.is_empty() {
                loaded.count(slot);
                is_settled &= !slot.is_pending() || settled(slot).location() == slot.location();
            }
            word & !PENDING
        };
        let mut position = Some(0).filter(|_| self.root.is_page() || self.root.is_node());
        while let Some(at) = position {
            let entry = self.entry(at);
            words.clear();
            let page = self.pages.words(entry.page(), Class::doubled(entry.bits()).words());
            words.extend(page.iter().map(|word| settle(word.load(Relaxed))));
            emit(at, Head { bits: entry.bits(), depth: entry.depth(), known: entry.known() }, &words)?;
            position = scan::behind(entry, at);
        }
        self.rest.iter().for_each(|rest| {
            settle(rest.slot.0);
        });
        Ok(is_settled.then_some(loaded))
    }

    /// The elements in no page: position, how much of it is known, and slot without a pending mark.
    pub(in crate::index::collection) fn dump_rest(&self) -> impl Iterator<Item = [u64; 3]> {
        self.rest.iter().map(|rest| [rest.position, rest.known.into(), rest.slot.with_pending(false).0])
    }

    /// Adds the next page to a map that has nothing else. Pages come in order, and are those of one map.
    pub(in crate::index::collection) fn load(
        &mut self,
        loading: &mut Loading,
        head: Head,
        words: impl Iterator<Item = u64>,
    ) {
        let position = if loading.pages.is_empty() { Some(0) } else { loading.next };
        let Some(position) = position else { return };
        let class = Class::doubled(head.bits);
        let page = self.pages.take(class);
        let mut count = 0;
        for (at, word) in self.pages.words(page, class.words()).iter().zip(words) {
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

    pub(in crate::index::collection) fn load_rest(&mut self, [position, known, slot]: [u64; 3]) {
        let slot = Slot(slot);
        self.slots += 1;
        self.tombstones += u64::from(slot.is_tombstone());
        self.rest.push(Rest { position, known: known.min(64) as u32, slot });
    }

    /// All pages have been added.
    pub(in crate::index::collection) fn loaded(&mut self, loading: &Loading) {
        if let Some(root) = self.directory(&loading.pages, 0) {
            self.root = root;
        }
    }
}
