//! The ordered index: a concurrent skip list with fat nodes. The list follows the lazy skip list of Herlihy, Lev,
//! Luchangco and Shavit (SIROCCO 2007). Leaves are read as in Masstree (Mao, Kohler, Morris: EuroSys 2012).
//!
//! ```text
//! level 2  head ───────────────────────────▶ node ──────────────────▶
//! level 1  head ────────────▶ node ────────▶ node ──────────────────▶
//! level 0  head ──▶ node ───▶ node ──▶ node ▶ node ──▶ node ─────────▶
//!           │        │         │        │      │         │
//!          leaf     leaf      leaf     leaf   leaf      leaf     up to 14 slots each, in the order of their keys
//! ```
//!
//! A node owns its *lowest key*, a short separator. The keys from there up to the next node's lowest key belong to it,
//! so a descent reads no records. All keys of a leaf share a prefix; the leaf holds the next eight bytes of each key.
//! Two keys that agree in these bytes are distinguished by their records. There is one slot for each record, and one
//! miss for each leaf instead of each key, so a scan can fetch ahead.
//!
//! In front lies a cache of references from hashes to nodes ([`cache`]). A stale entry is harmless because of invariant
//! 6.
//!
//! Rules for threads:
//!
//! * *Readers* take no lock. They hold a guard, compare a leaf's version before and after they read it, and retry when
//!   it has changed. While positions of that very leaf are being changed (some dozen stores) they wait.
//! * *Writers* of a key hold its stripe ([`super::stripes`]) from before they look it up until its slot is set. Leaves
//!   and links are locked only for the stores that change them. A thread never waits for a stripe under such a lock.
//! * A thread that locks two nodes locks the left one first.
//!
//! Invariants:
//! 1. A key lies in one leaf at most: the living one with the greatest lowest key that is not above it.
//! 2. A node's lowest key, height and memory stay while a guard can see it.
//! 3. A link changes only under the lock of the node it lies in, and never once that node is gone.
//! 4. Level 0 points to every living node and, from living nodes, to no other. It and a leaf's bounds change only
//!    together with the leaf's version. Higher levels are shortcuts: they may miss a node, and may point to a removed
//!    one.
//! 5. A node is removed only when it is linked on all its levels. It is handed to reclamation when no link of a node
//!    that new guards can reach points to it, on any level. (No line can check the latter: it is about links that others
//!    change. The model `a_reader_finds_its_key_while_its_node_is_removed` and `check_levels` do.)
//! 6. The memory of a node never becomes anything else, and its version never repeats. So any reference to a node may
//!    be followed under a guard. If its version says "alive", it is a leaf of this index now, and its contents are
//!    valid.
//! 7. A leaf that is still a page of a checkpoint has no slots yet, and is neither split nor merged. A descent that
//!    ends there reads the page first. All leaves of the page lie between it and the next node.

mod build;
mod cache;
mod chain;
pub(super) mod checkpoint;
mod gathered;
mod key;
mod list;
mod locked;
mod node;
#[cfg(all(test, not(loom)))]
mod tests;
mod walk;

use super::attached::Attached;
use super::memory::Memory;
use super::stripes::Stripes;
use super::{Hasher, Slot};
use crate::numbers::Numbers;
use cache::Cache;
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_log::sync::reclaim::{self, Guard};
use key::Sought;
use list::At;
use node::{LEAF_SLOTS, Seen};
use std::ptr::NonNull;

pub use build::{Parting, Sorted};
pub use gathered::Gathered;
pub use locked::{Locked, Place};
pub use node::Node;
pub use walk::Chunk;

/// One node in two has one level more. 2^24 nodes fill this; more nodes only lengthen the walk along the top level.
const HEIGHT_MAX: usize = if cfg!(loom) { 3 } else { 24 };
/// Default slots of the cache: 8 MiB.
pub const CACHE_SLOTS: usize = 1 << 20;

/// Threads that can add keys in order concurrently, each with its own label.
const LABELS_LAST: usize = if cfg!(loom) { 1 } else { 8 };

pub struct OrderedIndex {
    head: NonNull<Node>,
    /// Levels that have a node, or are about to have one.
    height: AtomicU64,
    memory: Arc<Memory<Node>>,
    /// Chooses heights. It is seeded, so that no client can force a list without levels.
    heights: Hasher,
    stripes: Arc<Stripes>,
    cache: Cache,
    /// The label that was last given between two leaves, per thread slot: see `list`.
    labels_last: [AtomicU64; LABELS_LAST],
    splits: AtomicU64,
    merges: AtomicU64,
    /// How often a leaf was waited for.
    waits: AtomicU64,
    /// Fewer than `LEAF_SLOTS` in tests that want many leaves.
    leaf_slots: usize,
    /// The checkpoint that the index was attached to, if it was.
    attached: Option<Attached>,
}

// SAFETY: nodes are made of atomics, and lie in memory that the index owns.
unsafe impl Send for OrderedIndex {}
// SAFETY: as above.
unsafe impl Sync for OrderedIndex {}

impl OrderedIndex {
    pub fn numbers(&self) -> Numbers {
        let ((splits, merges), (cache_hits, cache_misses)) = (self.grown(), self.cached());
        let (bytes, leaf_waits) = (self.bytes(), self.waits());
        Numbers { bytes, splits, merges, cache_hits, cache_misses, leaf_waits, doublings: 0 }
    }

    #[inline]
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    #[inline]
    pub fn prefetch(&self, hash: u64) {
        self.cache.fetch(hash);
    }

    #[inline]
    pub fn prefetch_more(&self, hash: u64, guard: &Guard) {
        if let Some(node) = self.cache.get(hash, guard) {
            node.fetch_leaf();
        }
    }

    /// A slot of the leaf of the key, if the cache knows it.
    #[inline]
    pub fn candidate<'k>(&self, hash: u64, key: impl FnOnce() -> &'k [u8], guard: &Guard) -> Option<Slot> {
        let node = self.cache.get(hash, guard)?;
        node.candidate(node.at_rest()?, key())
    }

    /// An index with its own stripes.
    #[cfg(any(test, loom))]
    pub fn new(seed: u64, cache_slots: usize, leaf_slots: usize) -> Self {
        Self::on(Arc::default(), seed, cache_slots, leaf_slots)
    }

    /// One whose keys are locked by `stripes`.
    pub fn on(stripes: Arc<Stripes>, seed: u64, cache_slots: usize, leaf_slots: usize) -> Self {
        let memory = Arc::new(Memory::<Node>::default());
        let head = memory.take();
        // SAFETY: `Memory` gives memory of a node, which it keeps (invariant 6).
        drop(unsafe { head.as_ref() }.init(&[], HEIGHT_MAX, 0));
        Self {
            head,
            height: AtomicU64::new(1),
            memory,
            heights: Hasher::new(seed, u64::MAX),
            stripes,
            cache: Cache::new(cache_slots),
            labels_last: std::array::from_fn(|_| AtomicU64::new(u64::MAX)),
            splits: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            leaf_slots: leaf_slots.clamp(2, LEAF_SLOTS),
            attached: None,
        }
    }

    fn head<'g>(&self, _guard: &'g Guard) -> &'g Node {
        // SAFETY: initialized in `on`, and never removed.
        unsafe { self.head.as_ref() }
    }

    fn height(&self) -> usize {
        // Acquire: pairs with the Release in `raise`.
        self.height.load(Acquire) as usize
    }

    fn raise(&self, height: usize) {
        if self.height.load(Relaxed) < height as u64 {
            self.height.fetch_max(height as u64, Release);
        }
    }

    /// Leaves split, and merged, since the index was made.
    pub fn grown(&self) -> (u64, u64) {
        (self.splits.load(Relaxed), self.merges.load(Relaxed))
    }

    /// How often a writer had to wait for a leaf's lock.
    pub fn waits(&self) -> u64 {
        self.waits.load(Relaxed)
    }

    /// Lookups that the cache answered, and that it did not.
    pub fn cached(&self) -> (u64, u64) {
        self.cache.counted()
    }

    /// Lets the cache grow with the leaves. It has four slots for each key that the leaves have room for, so few keys
    /// share one.
    fn fit_cache(&self) {
        self.cache.fit(4 * self.memory.bytes() / size_of::<Node>() as u64 * LEAF_SLOTS as u64);
    }

    /// Bytes of DRAM that the index uses.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() + self.cache.bytes()
    }

    /// Looks up the slot of `key` without a lock; `look` recognises it. Returns the slot that `look` saw and its
    /// result, even if the slot changes meanwhile.
    // Not inlined: the hash index's lookups stay short.
    #[inline(never)]
    pub fn find_with<T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &Guard,
        mut look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        if let Some((_, slot, found)) = self.find_cached(hash, key, guard, &mut look) {
            return Some((slot, found));
        }
        let sought = Sought::new(key);
        loop {
            let at = self.seek(&sought, guard);
            match at.node.look(at.version, key, &mut look) {
                Seen::Found(slot, found) => {
                    self.cache.put(hash, at.node);
                    return Some((slot, found));
                }
                Seen::Absent => return None,
                Seen::Changed => {}
            }
        }
    }

    /// Looks in the cache only. A miss does not mean that the key is absent.
    #[inline]
    fn find_cached<'g, T>(
        &self,
        hash: u64,
        key: &[u8],
        guard: &'g Guard,
        look: &mut impl FnMut(Slot) -> Option<T>,
    ) -> Option<(At<'g>, Slot, T)> {
        let found = self.cache.get(hash, guard).and_then(|node| {
            node.fetch_leaf();
            let version = node.at_rest()?;
            match node.look(version, key, look) {
                Seen::Found(slot, found) => Some((At { node, version }, slot, found)),
                Seen::Absent | Seen::Changed => None,
            }
        });
        self.cache.count(found.is_some());
        found
    }
}

impl Drop for OrderedIndex {
    fn drop(&mut self) {
        let guard = reclaim::pin();
        let mut next = Some(self.head(&guard));
        while let Some(node) = next {
            next = node.next(0, &guard);
            node.deinit();
        }
        // The retired nodes hold a reference to our memory.
        drop(guard);
        reclaim::collect();
    }
}
