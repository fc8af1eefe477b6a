//! The remains of keys that the index no longer knows.
//!
//! A key whose tombstone was dropped looks as if it had never been there. A reader that saw it absent before it was
//! inserted and deleted must not conclude that nothing happened. So each drop is counted, and the count is an absent
//! key's stamp. Counts are for stripes of hashes: a drop of another key of the stripe makes a condition fail without
//! need, which is safe and rare.
//!
//! Invariant: a drop is counted before the slot is gone, under the key's lock. So a reader that finds no slot and then
//! reads the count observes every drop before.

use crate::get::stamp::Stamp;
use duramen_log::format::Owner;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::{Acquire, Release};

const STRIPES: usize = if cfg!(loom) { 1 } else { 4096 };

pub(crate) struct Forgotten(Box<[AtomicU64]>);

impl Default for Forgotten {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Forgotten {
    fn stripe(&self, hash: u64) -> &AtomicU64 {
        &self.0[(hash >> 16) as usize % STRIPES]
    }

    /// Counts a key whose tombstone is about to be dropped.
    pub(crate) fn add(&self, hash: u64) {
        // Release: pairs with the Acquire in `stamp`.
        self.stripe(hash).fetch_add(1, Release);
    }

    /// The stamp of a key that has no slot in the table of `owner`.
    pub(crate) fn stamp(&self, owner: Owner, hash: u64) -> Stamp {
        Stamp::absent(owner, self.stripe(hash).load(Acquire))
    }
}
