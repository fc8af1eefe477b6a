//! Direct references to nodes, in DRAM: a point read that finds one skips the descent.
//!
//! A slot holds 16 bits of the key's hash and the node. A reader that follows it compares the key and checks the node's
//! state. A reference must be gone before its node's block is used again. A session that removes a node changes the
//! state and then clears the slot. A session that fills a slot checks the state afterwards, and clears the slot again
//! if the node was removed meanwhile. One of the two sees the other. Until then, a reader that began later may have
//! followed the reference; [`crate::reclaim`] waits an epoch longer for it.

use duramen_media::LINE_BYTES;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

const PRINT_SHIFT: u32 = 48;

/// No slots, or a power of two.
pub(crate) struct Cache {
    slots: Box<[AtomicU64]>,
}

/// A hash of `key`: one multiplication per word, with the word's upper half mixed into the lower.
#[inline]
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mut hash = key.len() as u64;
    for part in key.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 32;
    }
    hash
}

impl Cache {
    /// A cache of `slots` slots, rounded up to a power of two; 0 means no cache.
    pub(crate) fn new(slots: usize) -> Self {
        let slots = if slots == 0 { 0 } else { slots.next_power_of_two() };
        Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        self.slots.get(hash as usize & self.slots.len().wrapping_sub(1))
    }

    fn reference(node: u64, hash: u64) -> u64 {
        (node / LINE_BYTES) | (hash >> PRINT_SHIFT << PRINT_SHIFT)
    }

    /// A node whose key may have `hash`.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<u64> {
        let found = self.slot(hash)?.load(Acquire);
        let print_is_same = (found ^ hash) >> PRINT_SHIFT == 0;
        let node = (found & ((1 << PRINT_SHIFT) - 1)) * LINE_BYTES;
        (print_is_same && node != 0).then_some(node)
    }

    /// Points `hash` to `node`. The caller checks the node's state afterwards.
    #[inline]
    pub(crate) fn fill(&self, hash: u64, node: u64) {
        if let Some(slot) = self.slot(hash) {
            slot.store(Self::reference(node, hash), Release);
            // The later read of the state is not reordered before this store.
            fence(SeqCst);
        }
    }

    /// Clears the slot of `hash` if it points to `node`, whose state was changed before.
    pub(crate) fn clear(&self, hash: u64, node: u64) {
        if let Some(slot) = self.slot(hash) {
            // Pairs with the fence in `fill`.
            fence(SeqCst);
            let _ = slot.compare_exchange(Self::reference(node, hash), 0, AcqRel, Relaxed);
        }
    }
}
