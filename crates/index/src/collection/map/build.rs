//! A map from all of its elements.

use super::*;
use crate::ordered::Sorted;

impl Map {
    /// Fills an empty map with these elements, sorted by their positions, which are their first words.
    pub(in crate::collection) fn build(&mut self, elements: &[Sorted]) {
        debug_assert!(self.root.is_none() && self.overflow.is_empty(), "it is empty");
        self.slots = elements.len() as u64;
        elements.iter().for_each(|element| self.count(element.slot));
        let mut pages = Vec::new();
        self.build_pages(elements, 0, 0, &mut pages);
        if let Some(root) = self.directory(&pages, 0) {
            self.root = root;
        }
    }

    /// Makes the pages of the elements whose positions share the first `depth` bits of `prefix`.
    fn build_pages(&mut self, elements: &[Sorted], prefix: u64, depth: u32, pages: &mut Vec<(u64, Entry)>) {
        let (Some(first), Some(last)) = (elements.first(), elements.last()) else {
            // An empty page, the sibling of a split one.
            if depth > 0 {
                self.build_page(elements, prefix, depth, pages);
            }
            return;
        };
        let count = elements.len() as u32;
        if count <= full(PAGE_BITS_MAX) {
            return self.build_page(elements, prefix, depth, pages);
        }
        if position(first) == position(last) || depth == DEPTH_MAX {
            // No split would separate them.
            let (fit, overflow) = elements.split_at(elements.len().min(slots(PAGE_BITS_MAX) as usize));
            self.overflow.extend(overflow.iter().map(|it| Overflow {
                position: position(it),
                known: 64,
                slot: it.slot,
            }));
            return self.build_page(fit, prefix, depth, pages);
        }
        let bit = 1 << (63 - depth);
        let (low, high) = elements.split_at(elements.partition_point(|it| position(it) & bit == 0));
        self.build_pages(low, prefix, depth + 1, pages);
        self.build_pages(high, prefix | bit, depth + 1, pages);
    }

    fn build_page(&mut self, elements: &[Sorted], prefix: u64, depth: u32, pages: &mut Vec<(u64, Entry)>) {
        let has_room = |&bits: &u32| full(bits) as usize >= elements.len();
        let least = if depth == 0 { 0 } else { PAGE_BITS_MAX };
        let bits = (least..PAGE_BITS_MAX).find(has_room).unwrap_or(PAGE_BITS_MAX);
        let page = self.pages.take(Class::doubled(bits));
        let empty = Entry::of_page(page, bits, depth, FINGERPRINT_BITS, 0);
        let all = elements.iter().map(|it| (position(it) << depth, it.slot.0));
        pages.push((prefix, self.fill(empty, all)));
        self.count_depth(depth, 1);
    }
}

fn position(element: &Sorted) -> u64 {
    element.words()[0]
}
