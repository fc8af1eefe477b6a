//! A block that is written to, and which blocks were, by epoch.

use crate::blocks::Blocks;
use crate::format::{Epoch, Extent, Seeds, block};
use crate::sync::{Mutex, lock};
use duramen_media::{Medium, Offset};

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
    /// Where the first void begins that was left since then: the next commit flushes it too. `u64::MAX`: there is none.
    pub unflushed: u64,
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

/// Which blocks were written to in which epoch, where the committer flushes the writes of an epoch: on cache-line
/// media.
#[derive(Default)]
pub struct DirtyBlocks {
    is_tracking: bool,
    /// Indexed by the epoch's lowest bit. One list would not do: a commit would take the blocks already marked dirty in
    /// the next epoch, and that epoch would not flush them.
    ///
    /// With each block, where the writes of the epoch begin.
    extents: [Mutex<Vec<(Extent, u64)>>; 2],
}

impl DirtyBlocks {
    /// `is_tracking`: whether the committer flushes at all.
    pub fn new(is_tracking: bool) -> Self {
        Self { is_tracking, extents: Default::default() }
    }

    fn at(&self, epoch: Epoch) -> &Mutex<Vec<(Extent, u64)>> {
        &self.extents[(epoch.0 & 1) as usize]
    }

    /// Notes that `block` was appended to from `at` on in `epoch`, for the committer to flush.
    #[inline]
    pub fn mark_dirty(&self, block: &mut OpenBlock, at: u64, epoch: Epoch) {
        if self.is_tracking && block.dirty_epoch != epoch.0 {
            block.dirty_epoch = epoch.0;
            self.note(block, at, epoch);
        }
    }

    #[inline(never)]
    fn note(&self, block: &mut OpenBlock, at: u64, epoch: Epoch) {
        // Recovery walks over voids: one that is lost would hide the records after it.
        let from = std::mem::replace(&mut block.unflushed, u64::MAX).min(at);
        lock(self.at(epoch)).push((block.extent, from));
    }

    /// Flushes the bytes written in `epoch`, which all its writers have left.
    pub fn flush<M: Medium>(&self, medium: &M, blocks: &Blocks, epoch: Epoch) {
        for (extent, from) in std::mem::take(&mut *lock(self.at(epoch))) {
            let to = blocks.at(extent).tail();
            debug_assert!(from < to, "a block of {to} bytes is dirty from {from} on");
            medium.flush(Offset(blocks.offset(extent) + from), to - from);
        }
    }
}
