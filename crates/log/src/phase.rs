//! Kinds of work on the medium, reported to tests that interrupt them.

use crate::sync::Arc;

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

/// Who is told of phases.
#[derive(Clone, Default)]
pub struct Phases(pub Option<OnPhase>);

impl Phases {
    /// Reports that `phase` begins, and when the result is dropped, that it ends.
    #[must_use]
    pub fn enter(&self, phase: Phase) -> Inside<'_> {
        if let Some(on_phase) = &self.0 {
            on_phase(phase, true);
        }
        Inside { on_phase: self.0.as_ref(), phase }
    }
}

/// A phase in progress.
pub struct Inside<'a> {
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
