//! What tests turn down, so that what is rare in a large store happens all the time in a small one, and what
//! they are told of while it happens. Nothing here is for programs.

use crate::sync::Arc;

/// Whether versions count the time too. In builds for models and schedules they do not, since their runs must repeat; then
/// [`Table::idle_seconds`](crate::Table::idle_seconds) knows of no time.
pub const HAS_CLOCK: bool = !cfg!(any(loom, miri, feature = "schedule"));

/// Work on the medium whose inside a crash test wants to hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// An empty store is made.
    Create,
    /// What recovery decided is made durable, and the new incarnation begun.
    Adopt,
    /// New extents get headers, and are counted.
    Grow,
    /// A block is opened.
    OpenBlock,
    /// A block is sealed.
    Seal,
    /// Compaction moves what is live out of a block.
    Move,
    /// Blocks are freed.
    Free,
    /// An epoch is committed.
    Commit,
    /// The store is closed.
    Close,
    /// An index checkpoint is written.
    Checkpoint,
    /// ... its pages are, and its root follows.
    CheckpointRoot,
}

/// Called when a phase begins (true) and when it ends.
pub type OnPhase = Arc<dyn Fn(Phase, bool) + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub struct Tuning {
    /// Keys of an index segment from which on it may split. Hashes that agree in many leading bits must not
    /// be split early: the directory would double for each of those bits.
    pub split_count_min: u32,
    /// The top bits of a hash that tell which lock its key has, 1 to 16. With few of them a handful of keys already has
    /// index segments whose keys all have one lock, as a large store's have.
    pub stripe_bits: u32,
    /// Slots of a leaf of the ordered index, from 2 to 14.
    pub leaf_slots: usize,
    /// The first extents of a new store, beyond the head.
    pub extents_initial: u32,
    /// The least that a store grows by, in bytes.
    pub growth_bytes_min: u64,
    /// Background compaction leaves this many dead bytes alone, however small the store is; `None`: by the extent.
    pub compaction_bytes_min: Option<u64>,
    /// The least that a store uses, in bytes, for an index checkpoint to be worth it.
    pub close_checkpoint_bytes_min: u64,
    /// The least that is written between two checkpoints of the index, in bytes.
    pub checkpoint_bytes_min: u64,
    /// Told of phases.
    pub on_phase: Option<OnPhase>,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            split_count_min: crate::index::hash::SPLIT_COUNT_MIN,
            stripe_bits: crate::index::stripes::STRIPE_BITS,
            leaf_slots: usize::MAX,
            extents_initial: 16,
            // So that a small store does not jump; a writer that has to wait for growth waits for one step of it.
            growth_bytes_min: 1 << 20,
            compaction_bytes_min: None,
            // Less than this is read, and verified by that, in a tenth of a second.
            close_checkpoint_bytes_min: 64 << 20,
            checkpoint_bytes_min: 64 << 20,
            on_phase: None,
        }
    }
}

impl Tuning {
    /// Tells that `phase` begins, and when the result is dropped that it ends.
    #[must_use]
    pub(crate) fn phase(&self, phase: Phase) -> Inside<'_> {
        if let Some(on_phase) = &self.on_phase {
            on_phase(phase, true);
        }
        Inside { on_phase: self.on_phase.as_ref(), phase }
    }
}

/// A phase that goes on.
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
