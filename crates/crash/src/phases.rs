//! Counts the phases that crashes hit, to prove that none was left out.

use duramen::tuning::{OnPhase, Phase};
use duramen_media::sim::SimMedium;
use std::sync::{Arc, Mutex, PoisonError};

/// Every phase that a crash must hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Inside {
    /// Work that the engine reports.
    Create,
    /// See [`Phase::Adopt`].
    Adopt,
    /// See [`Phase::Grow`].
    Grow,
    /// See [`Phase::OpenBlock`].
    OpenBlock,
    /// See [`Phase::Seal`].
    Seal,
    /// See [`Phase::Move`].
    Move,
    /// See [`Phase::Free`].
    Free,
    /// See [`Phase::Commit`].
    Commit,
    /// See [`Phase::Close`].
    Close,
    /// See [`Phase::Checkpoint`].
    Checkpoint,
    /// See [`Phase::CheckpointRoot`].
    CheckpointRoot,
    /// An operation in which a segment of the index split. (That changes DRAM only.)
    Split,
    /// ... and the directory doubled.
    Doubling,
    /// An operation in which expired keys were swept.
    Sweep,
    /// A round of maintenance that ran compaction.
    Background,
    /// A put of a value longer than an extent.
    Large,
    /// A batch.
    Batch,
    /// A group, before it is flushed.
    Group,
    /// An update of a part of a value.
    Update,
    /// A delete.
    Delete,
    /// Making, clearing, dropping, or swapping tables.
    Tables,
    /// An open after a crash.
    Recovery,
    /// ... that had crashed before.
    RecoveryAgain,
}

/// How many there are.
pub const COUNT: usize = Inside::RecoveryAgain as usize + 1;

/// Their names in reports.
pub const NAMES: [&str; COUNT] = [
    "creation",
    "adoption by recovery",
    "growth",
    "opening a block",
    "sealing a block",
    "moving out of a block",
    "freeing blocks",
    "epoch commit",
    "clean close",
    "writing an index checkpoint",
    "writing its root",
    "index split",
    "directory doubling",
    "sweep of expired keys",
    "background compaction",
    "large value",
    "batch",
    "group",
    "update",
    "delete",
    "change of tables",
    "recovery",
    "recovery of a crashed recovery",
];

impl From<Phase> for Inside {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Create => Self::Create,
            Phase::Adopt => Self::Adopt,
            Phase::Grow => Self::Grow,
            Phase::OpenBlock => Self::OpenBlock,
            Phase::Seal => Self::Seal,
            Phase::Move => Self::Move,
            Phase::Free => Self::Free,
            Phase::Commit => Self::Commit,
            Phase::Close => Self::Close,
            Phase::Checkpoint => Self::Checkpoint,
            Phase::CheckpointRoot => Self::CheckpointRoot,
        }
    }
}

/// Points crashed at, by the phases that contain them.
pub type Counts = [u64; COUNT];

/// Notes when phases begin and end, by positions of the medium's record.
#[derive(Clone)]
pub struct Trace {
    medium: SimMedium,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    open: Vec<(Phase, usize)>,
    done: Vec<Span>,
}

/// A range of the log.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its phase.
    pub inside: Inside,
    /// Events before it.
    pub start: usize,
    /// Events when it ended.
    pub end: usize,
}

impl Span {
    /// Whether a crash at `position` leaves a part of it.
    #[must_use]
    pub fn is_cut(&self, position: usize) -> bool {
        self.start < position && position < self.end
    }
}

impl Trace {
    /// Of what is done to `medium`.
    #[must_use]
    pub fn new(medium: SimMedium) -> Self {
        Self { medium, notes: Arc::default() }
    }

    /// The callback for the engine.
    #[must_use]
    pub fn listener(&self) -> OnPhase {
        let trace = self.clone();
        Arc::new(move |phase, begins| trace.note(phase, begins))
    }

    fn note(&self, phase: Phase, begins: bool) {
        let position = self.medium.position();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if begins {
            notes.open.push((phase, position));
        } else if let Some(at) = notes.open.iter().rposition(|(open, _)| *open == phase) {
            let (_, start) = notes.open.remove(at);
            notes.done.push(Span { inside: phase.into(), start, end: position });
        }
    }

    /// All ranges so far.
    #[must_use]
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner).done)
    }
}
