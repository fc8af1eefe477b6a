//! The state of a writer that holds keys, or the barrier.

use duramen_index::Slot;
use duramen_log::format::Owner;
use duramen_log::open_block::Purpose;
use duramen_log::sync::Arc;
use duramen_log::sync::holding::Noted;
use duramen_log::sync::reclaim::SeqCounter;

/// The state of a writer between `lock_keys` and `unlock`.
#[derive(Default)]
pub(crate) struct Locks {
    pub(crate) held: Held,
    /// The note of the held locks.
    pub(crate) noted: Option<Noted>,
    /// The stripes, by their numbers.
    pub(crate) numbers: Vec<u32>,
    /// The group was begun with the locks, and ends with them.
    pub(crate) ends_group: bool,
    /// Bytes reserved since the locks were taken.
    pub(crate) reserved: u64,
    /// The write that did not fit.
    pub(crate) wanted: Option<Wanted>,
    /// A transaction found a record that the compactor is moving.
    pub(crate) saw_move: bool,
    /// Targets restored by aborted transactions that were pending: they are finalized when no lock is held.
    pub(crate) put_back: Vec<(Owner, u64, Slot)>,
    /// How often room was made since the last run that wanted none.
    pub(crate) tries: u32,
    /// Keys in parts of indexes that are to be split.
    pub(crate) crowded: Vec<(Owner, u64)>,
    /// It never waits at the barrier.
    pub(crate) passes_barrier: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Held {
    #[default]
    Nothing,
    /// The stripes of some keys.
    Keys,
    /// The barrier.
    All,
}

/// A write that found no room under locks.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Length of the record, or of the batch.
    pub(crate) bytes: u64,
    /// Including everything that was written before it under the same locks.
    pub(crate) total: u64,
    pub(crate) purpose: Purpose,
}

/// Keeps a writer inside the barrier until it is dropped.
pub(crate) struct Inside(pub(crate) Option<Arc<SeqCounter>>);

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.end();
        }
    }
}
