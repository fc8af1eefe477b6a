//! A block that is written to.

use crate::format::{Extent, Seeds, block};

/// What an allocation is for; decides how far down it may go. In order: what a later one may take, an earlier one may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Write,
    /// A write that a full store does not refuse, though more may live after it: see [`Room::Change`](crate::Room::Change).
    Change,
    Delete,
    Compaction,
}

impl Purpose {
    /// Whether what is kept for deletes is for this.
    pub(crate) fn is_kept_for(self) -> bool {
        matches!(self, Self::Change | Self::Delete)
    }
}

#[derive(Debug)]
#[cfg_attr(feature = "mutants", derive(Clone))]
pub(crate) struct OpenBlock {
    pub extent: Extent,
    pub offset: u64,
    pub bytes: u64,
    pub tail: u64,
    pub header: block::Header,
    pub seeds: Seeds,
    /// Everything below is durable; less than `tail` only within a group or with epochs.
    pub durable_tail: u64,
    /// Bytes of records that an index slot was made to point to, not yet counted in the block table.
    pub live: u64,
    /// Records that this opening appended.
    pub records: u64,
    /// Last epoch in which the committer was told of this block.
    pub dirty_epoch: u64,
    /// What its room may be used for, and what is more urgent: see [`crate::log::space`].
    pub purpose: Purpose,
    /// A transaction went on to it from another block: see
    /// [`TransactionOutcomes::ended`](block::TransactionOutcomes::ended).
    pub entered: bool,
}

impl OpenBlock {
    pub(crate) fn room(&self) -> u64 {
        self.bytes - self.tail
    }

    /// Whether it is of what is kept for deletes, and at most half full.
    pub(crate) fn is_roomy_for_deletes(&self) -> bool {
        self.purpose.is_kept_for() && self.room() * 2 >= self.bytes
    }
}
