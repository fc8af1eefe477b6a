//! Which blocks were written to in which epoch, where the committer flushes the writes of an epoch: on cache-line
//! media.

use crate::blocks::Blocks;
use crate::format::{Epoch, Extent};
use crate::open_block::OpenBlock;
use crate::sync::{Mutex, lock};
use duramen_media::{Medium, Offset};

/// See the module.
#[derive(Default)]
pub struct DirtyBlocks {
    is_tracking: bool,
    /// Indexed by the epoch's lowest bit. One list would not do: a commit would take the blocks already marked dirty in
    /// the next epoch, and that epoch would not flush them.
    extents: [Mutex<Vec<Extent>>; 2],
}

impl DirtyBlocks {
    /// `is_tracking`: whether the committer flushes at all.
    pub fn new(is_tracking: bool) -> Self {
        Self { is_tracking, extents: Default::default() }
    }

    fn at(&self, epoch: Epoch) -> &Mutex<Vec<Extent>> {
        &self.extents[(epoch.0 & 1) as usize]
    }

    /// Notes that `block` was appended to in `epoch`, for the committer to flush.
    #[inline]
    pub fn mark_dirty(&self, block: &mut OpenBlock, epoch: Epoch) {
        if self.is_tracking && block.dirty_epoch != epoch.0 {
            block.dirty_epoch = epoch.0;
            self.note(block.extent, epoch);
        }
    }

    #[inline(never)]
    fn note(&self, extent: Extent, epoch: Epoch) {
        lock(self.at(epoch)).push(extent);
    }

    /// Flushes the bytes written in `epoch`, which all its writers have left.
    pub fn flush<M: Medium>(&self, medium: &M, blocks: &Blocks, epoch: Epoch) {
        for extent in std::mem::take(&mut *lock(self.at(epoch))) {
            let block = blocks.at(extent);
            let (from, to) = (block.durable_tail(), block.tail());
            if from < to {
                medium.flush(Offset(blocks.offset(extent) + from), to - from);
                block.set_durable_tail(to);
            }
        }
    }
}
