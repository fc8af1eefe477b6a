//! Which blocks were written to in which epoch, where the committer flushes what an epoch wrote: on cache-line media.

use super::blocks::Blocks;
use super::open_block::OpenBlock;
use crate::format::{Epoch, Granule};
use crate::mutants::{Mutant, planted};
use crate::sync::{Mutex, lock};
use duramen_media::{Medium, Offset};

/// See the module.
#[derive(Default)]
pub(crate) struct Told {
    tells: bool,
    /// By the epoch's lowest bit. Not one list: a commit that took what the next epoch has told already would leave that one
    /// without.
    granules: [Mutex<Vec<Granule>>; 2],
}

impl Told {
    /// `tells`: whether the committer flushes at all.
    pub(crate) fn new(tells: bool) -> Self {
        Self { tells, granules: Default::default() }
    }

    fn at(&self, epoch: Epoch) -> &Mutex<Vec<Granule>> {
        let at = if planted(Mutant::ToldInOneList) { 0 } else { epoch.0 & 1 };
        &self.granules[at as usize]
    }

    /// Notes that `block` was appended to in `epoch`, for the committer to flush.
    #[inline]
    pub(crate) fn tell(&self, block: &mut OpenBlock, epoch: Epoch) {
        if self.tells && block.told_epoch != epoch.0 {
            block.told_epoch = epoch.0;
            self.note(block.granule, epoch);
        }
    }

    #[inline(never)]
    fn note(&self, granule: Granule, epoch: Epoch) {
        lock(self.at(epoch)).push(granule);
    }

    /// Flushes what was written in `epoch`, which all of its writers have left.
    pub(crate) fn flush<M: Medium>(&self, medium: &M, blocks: &Blocks, epoch: Epoch) {
        for granule in std::mem::take(&mut *lock(self.at(epoch))) {
            let block = blocks.at(granule);
            let (from, to) = (block.settled(), block.tail());
            if from < to {
                medium.flush(Offset(blocks.offset(granule) + from), to - from);
                block.set_settled(to);
            }
        }
    }
}
