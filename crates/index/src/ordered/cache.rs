//! From a key's hash to the node whose leaf probably holds it, so that most point lookups need no descent.
//!
//! A slot is the address of a node and some bits of the hash. It is a guess: nothing removes it when the key moves or
//! the node is removed. That is not needed (invariant 6 of the index). A reader that follows it looks at the node's
//! version, and finds the key there or does not.

use super::Node;
use crate::memory::Table;
use crate::prefetch;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};
use duramen_log::sync::reclaim::Guard;

/// The bits for the tag: those not used by the address of a node, which has 48 bits and is aligned to 64 bytes.
const TAG_MASK: usize = !0x0000_ffff_ffff_ffc0;
/// Slots in use at first: a page of them.
const SLOTS_FIRST: usize = 512;
/// Counters of hits and misses: one line each, and each thread uses one.
const COUNTERS: usize = if cfg!(loom) { 1 } else { 64 };

#[repr(align(128))]
#[derive(Default)]
struct Counter {
    hits: AtomicU64,
    misses: AtomicU64,
}

pub(super) struct Cache {
    /// The maximum number of slots. The system backs those that are touched.
    slots: Table<AtomicPtr<Node>>,
    /// The hash's top bits choose the slot: the shift is 64 minus the number of these bits, so it sets how many slots
    /// are in use. When more come into use, a key gets another slot, and is looked for in the list once more.
    shift: AtomicU32,
    counters: [Counter; COUNTERS],
}

impl Cache {
    /// With `slots` slots, rounded up to a power of two; 0: none.
    pub(super) fn new(slots: usize) -> Self {
        let slots = if slots == 0 { 0 } else { slots.next_power_of_two().max(2) };
        Self {
            slots: Table::new(slots),
            shift: AtomicU32::new(64 - slots.clamp(2, SLOTS_FIRST).trailing_zeros()),
            counters: std::array::from_fn(|_| Counter::default()),
        }
    }

    #[inline]
    fn slot(&self, hash: u64) -> Option<&AtomicPtr<Node>> {
        // Relaxed: any slot will do.
        self.slots.get((hash >> self.shift.load(Relaxed)) as usize)
    }

    /// Sets how many slots are in use, by the slots that `keys` want; never fewer than before.
    pub(super) fn fit(&self, keys: u64) {
        let most = self.slots.len().max(2) as u64;
        let slots = keys.clamp(2, most).next_power_of_two();
        let shift = 64 - slots.trailing_zeros();
        if shift < self.shift.load(Relaxed) {
            self.shift.fetch_min(shift, Relaxed);
            self.slots.used(slots as usize);
        }
    }

    /// Bits of the hash that an address leaves room for.
    #[inline]
    fn tag(hash: u64) -> usize {
        (hash << 48) as usize & TAG_MASK | hash as usize >> 16 & 63
    }

    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        if let Some(slot) = self.slot(hash) {
            prefetch(slot);
        }
    }

    /// The node that a key of `hash` was last found in, dead or alive.
    #[inline]
    pub(super) fn get<'g>(&self, hash: u64, _guard: &'g Guard) -> Option<&'g Node> {
        let word = self.slot(hash)?.load(Relaxed);
        if word.is_null() || word.addr() & TAG_MASK != Self::tag(hash) {
            return None;
        }
        // SAFETY: `put` stored a node, whose memory is a node's for as long as the index lives (invariant 6).
        unsafe { word.map_addr(|address| address & !TAG_MASK).as_ref() }
    }

    #[inline]
    pub(super) fn put(&self, hash: u64, node: &Node) {
        let Some(slot) = self.slot(hash) else { return };
        let word = node.pointer().as_ptr().map_addr(|address| address | Self::tag(hash));
        // Relaxed: a reader that follows it pairs with the writer that changed the node, at its version.
        if slot.load(Relaxed) != word {
            slot.store(word, Relaxed);
        }
    }

    #[inline]
    pub(super) fn count(&self, hit: bool) {
        let counter = &self.counters[place() % COUNTERS];
        if hit { &counter.hits } else { &counter.misses }.fetch_add(1, Relaxed);
    }

    /// Hits and misses.
    pub(super) fn counted(&self) -> (u64, u64) {
        self.counters.iter().fold((0, 0), |(hits, misses), counter| {
            (hits + counter.hits.load(Relaxed), misses + counter.misses.load(Relaxed))
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        if self.slots.len() == 0 { 0 } else { 8 << (64 - self.shift.load(Relaxed)) }
    }
}

/// A number for this thread; threads are numbered in order.
#[cfg(not(loom))]
#[inline]
pub(super) fn place() -> usize {
    static NEXT: duramen_log::sync::statics::AtomicU64 = duramen_log::sync::statics::AtomicU64::new(0);
    thread_local! {
        static PLACE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }
    let place = PLACE.get();
    if place != 0 {
        return place;
    }
    let place = NEXT.fetch_add(1, Relaxed) as usize + 1;
    PLACE.set(place);
    place
}

#[cfg(loom)]
pub(super) fn place() -> usize {
    0
}
