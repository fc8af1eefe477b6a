//! Limits that tests lower, so that events that are rare in a large store happen all the time in a small one, and
//! notifications for tests. Nothing here is for programs.

use crate::sync::Arc;

/// Whether versions also count time. In builds for models and schedules they do not, since their runs must repeat; then
/// [`Table::idle_seconds`](crate::Table::idle_seconds) knows no time.
pub const HAS_CLOCK: bool = !cfg!(any(loom, miri, feature = "schedule"));

/// A kind of work on the medium that a crash test wants to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// An empty store is created.
    Create,
    /// The decisions of recovery are made durable, and the new incarnation begins.
    Adopt,
    /// New extents get headers, and are counted.
    Grow,
    /// A block is opened.
    OpenBlock,
    /// A block is sealed.
    Seal,
    /// Compaction moves the live records out of a block.
    Move,
    /// Blocks are freed.
    Free,
    /// An epoch is committed.
    Commit,
    /// The store is closed.
    Close,
    /// An index checkpoint is written.
    Checkpoint,
    /// The pages of an index checkpoint are written, and its root follows.
    CheckpointRoot,
}

/// Called when a phase begins (true) and when it ends.
pub type OnPhase = Arc<dyn Fn(Phase, bool) + Send + Sync>;

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
            split_count_min: crate::index::hash::SPLIT_COUNT_MIN,
            stripe_bits: crate::index::stripes::STRIPE_BITS,
            leaf_slots: usize::MAX,
            extents_initial: 16,
            // So that a small store does not jump; a writer that must wait for growth waits for one step of it.
            growth_bytes_min: 1 << 20,
            compaction_bytes_min: None,
            // Smaller stores are read, and thereby verified, in a tenth of a second.
            close_checkpoint_bytes_min: 64 << 20,
            checkpoint_bytes_min: 64 << 20,
            on_phase: None,
        }
    }
}

impl Tuning {
    /// Reports that `phase` begins, and when the result is dropped, that it ends.
    #[must_use]
    pub(crate) fn phase(&self, phase: Phase) -> Inside<'_> {
        if let Some(on_phase) = &self.on_phase {
            on_phase(phase, true);
        }
        Inside { on_phase: self.on_phase.as_ref(), phase }
    }
}

/// A phase in progress.
pub(crate) struct Inside<'a> {
    on_phase: Option<&'a OnPhase>,
    phase: Phase,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(on_phase) = self.on_phase {
            on_phase(self.phase, false);
        }
    }
}
