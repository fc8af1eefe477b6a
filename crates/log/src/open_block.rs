//! A block that is written to.

use crate::format::{Extent, Seeds, block};

/// The purpose of an allocation, which decides how much of the reserve it may use. In order: each purpose may use more
/// than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Write,
    /// A write that a full store still accepts, though it may add live bytes: see
    /// `Room::Change` of the engine.
    Change,
    Delete,
    Compaction,
}

impl Purpose {
    /// Whether the reserve for deletes serves this purpose.
    pub fn is_kept_for(self) -> bool {
        matches!(self, Self::Change | Self::Delete)
    }
}

#[derive(Debug)]
pub struct OpenBlock {
    pub extent: Extent,
    pub offset: u64,
    pub bytes: u64,
    pub tail: u64,
    pub header: block::Header,
    pub seeds: Seeds,
    /// Everything below is durable; less than `tail` only within a group or with epochs.
    pub durable_tail: u64,
    /// Bytes of records that an index slot points to, not yet counted in the block table.
    pub live: u64,
    /// Records appended since the block was opened this time.
    pub records: u64,
    /// Last epoch in which this block was marked dirty for the committer.
    pub dirty_epoch: u64,
    /// The purposes that its room serves, this one and more urgent ones: see [`crate::space`].
    pub purpose: Purpose,
    /// A transaction continued in it from another block: see
    /// [`TransactionOutcomes::ended`](block::TransactionOutcomes::ended).
    pub entered: bool,
}

impl OpenBlock {
    pub fn room(&self) -> u64 {
        self.bytes - self.tail
    }

    /// Whether it belongs to the reserve for deletes, and is at most half full.
    pub fn is_roomy_for_deletes(&self) -> bool {
        self.purpose.is_kept_for() && self.room() * 2 >= self.bytes
    }
}
