//! Limits that tests lower, so that events that are rare in a large store happen all the time in a small one, and
//! notifications for tests. Nothing here is for programs.

pub use duramen_log::phase::{OnPhase, Phase};

use duramen_log::phase::Phases;

/// Whether versions also count time. In builds for models and schedules they do not, since their runs must repeat; then
/// [`Table::idle_seconds`](crate::Table::idle_seconds) knows no time.
pub const HAS_CLOCK: bool = !cfg!(any(loom, miri, feature = "schedule"));

/// See the module.
#[derive(Clone)]
pub struct Tuning {
    /// Number of keys from which an index segment may split. Hashes that agree in many leading bits must not cause
    /// early splits: the directory would double for each of those bits.
    pub split_count_min: u32,
    /// The number of top bits of a hash that select the key's lock, 1 to 16. With few of them, a handful of keys
    /// already produces index segments whose keys all share one lock, as in a large store.
    pub stripe_bits: u32,
    /// Slots of a leaf of the ordered index, from 2 to 14.
    pub leaf_slots: usize,
    /// The first extents of a new store, beyond the head.
    pub extents_initial: u32,
    /// The minimum growth of a store, in bytes.
    pub growth_bytes_min: u64,
    /// Background compaction ignores up to this many dead bytes, however small the store is; `None`: depends on the
    /// extent.
    pub compaction_bytes_min: Option<u64>,
    /// Extents that one search for blocks looks at, unless it finds none.
    pub choose_extents: u32,
    /// So many copiers in every round of background compaction, which work one after the other on the compacting thread.
    pub copiers_in_turn: Option<usize>,
    /// How long space must have been free before it is given back.
    pub give_back_after: std::time::Duration,
    /// The minimum that is given back in one piece, in bytes.
    pub give_back_bytes_min: u64,
    /// The minimum of used bytes at which a close writes an index checkpoint.
    pub close_checkpoint_bytes_min: u64,
    /// The minimum of bytes written between two checkpoints of the index.
    pub checkpoint_bytes_min: u64,
    /// Called when phases begin and end.
    pub on_phase: Option<OnPhase>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            split_count_min: duramen_index::hash::SPLIT_COUNT_MIN,
            stripe_bits: duramen_index::stripes::STRIPE_BITS,
            leaf_slots: usize::MAX,
            extents_initial: 16,
            // So that a small store does not jump; a writer that must wait for growth waits for one step of it.
            growth_bytes_min: 1 << 20,
            compaction_bytes_min: None,
            // 8,192: 256 KiB of entries, 0.1 ms; in extents of 192 KiB 1.5 GiB.
            choose_extents: 1 << 13,
            copiers_in_turn: None,
            // A store that is cleared and filled again keeps its space.
            give_back_after: std::time::Duration::from_secs(10),
            // The page of each header stays: of two of the smallest extents a twelfth.
            give_back_bytes_min: 48 << 10,
            // Smaller stores are read, and thereby verified, in a tenth of a second.
            close_checkpoint_bytes_min: 64 << 20,
            checkpoint_bytes_min: 64 << 20,
            on_phase: None,
        }
    }
}

impl Tuning {
    /// The log's part.
    pub(crate) fn phases(&self) -> Phases {
        Phases(self.on_phase.clone())
    }
}
