//! The settings of checkpoints, and the last one.

use crate::options::{Options, Residence};
use duramen_log::format::Extent;
use duramen_log::format::checkpoint::ExtentRun;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::{Mutex, MutexGuard, lock, rank};
use std::collections::HashSet;

/// The settings of checkpoints, and the last one.
pub(crate) struct Checkpoints {
    pub(crate) current: Mutex<Current, { rank::CHECKPOINTS }>,
    pub(crate) residence: Residence,
    /// Bytes written between two checkpoints; 0: by the size of the store.
    pub(crate) checkpoint_bytes: u64,
    /// Whether a clean close writes one.
    pub(crate) at_close: bool,
    /// Whether the store's dead bytes are an estimate: see [`Summary::estimated`](crate::Summary::estimated).
    pub(crate) estimated: bool,
    /// Blocks in which a tombstone came to count again while a checkpoint is written.
    pub(crate) revived: Mutex<Option<HashSet<Extent>>>,
    /// Checkpoints since the store was opened, and bytes of all checkpoints since then.
    pub written: AtomicU64,
    pub bytes: AtomicU64,
}

impl Checkpoints {
    /// `runs`: of the checkpoint that recovery began with. The superblock still points to it if it `counts`.
    pub(crate) fn new(options: &Options, runs: Vec<ExtentRun>, counts: bool, estimated: bool) -> Self {
        Self {
            current: Mutex::new(Current { runs, counts, written: 0 }),
            residence: options.residence,
            checkpoint_bytes: options.checkpoint_bytes,
            at_close: options.index_checkpoint,
            revived: Mutex::default(),
            estimated,
            written: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// A tombstone in this block that was subtracted from its live bytes counts among them again.
    pub(crate) fn note_revived(&self, extent: Extent) {
        if let Some(revived) = &mut *lock(&self.revived) {
            revived.insert(extent);
        }
    }

    /// No checkpoint begins or is dropped until the result is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, impl Sized, { rank::CHECKPOINTS }> {
        lock(&self.current)
    }
}

/// The index checkpoint that exists while the store is open.
pub(crate) struct Current {
    pub(crate) runs: Vec<ExtentRun>,
    /// Whether the superblock points to it. Otherwise it stays until the index has read its pages.
    pub(crate) counts: bool,
    /// Bytes that had been written when the last one was begun.
    pub(crate) written: u64,
}
