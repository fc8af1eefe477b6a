//! Which blocks were written to in which epoch, where the committer flushes what an epoch wrote: on cache-line media.

use super::blocks::Blocks;
use super::open_block::OpenBlock;
use crate::format::{Epoch, Extent};
use crate::mutants::{Mutant, planted};
use crate::sync::{Mutex, lock};
use duramen_media::{Medium, Offset};

/// See the module.
#[derive(Default)]
pub(crate) struct DirtyBlocks {
    is_tracking: bool,
    /// By the epoch's lowest bit. Not one list: a commit that took what the next epoch has told already would leave that one
    /// without.
    extents: [Mutex<Vec<Extent>>; 2],
}

impl DirtyBlocks {
    /// `is_tracking`: whether the committer flushes at all.
    pub(crate) fn new(is_tracking: bool) -> Self {
        Self { is_tracking, extents: Default::default() }
    }

    fn at(&self, epoch: Epoch) -> &Mutex<Vec<Extent>> {
        let at = if planted(Mutant::DirtyBlocksInOneList) { 0 } else { epoch.0 & 1 };
        &self.extents[at as usize]
    }

    /// Notes that `block` was appended to in `epoch`, for the committer to flush.
    #[inline]
    pub(crate) fn mark_dirty(&self, block: &mut OpenBlock, epoch: Epoch) {
        if self.is_tracking && block.dirty_epoch != epoch.0 {
            block.dirty_epoch = epoch.0;
            self.note(block.extent, epoch);
        }
    }

    #[inline(never)]
    fn note(&self, extent: Extent, epoch: Epoch) {
        lock(self.at(epoch)).push(extent);
    }

    /// Flushes what was written in `epoch`, which all of its writers have left.
    pub(crate) fn flush<M: Medium>(&self, medium: &M, blocks: &Blocks, epoch: Epoch) {
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
