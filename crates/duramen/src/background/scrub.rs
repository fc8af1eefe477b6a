//! Verifying what recovery did not read.

use super::Keeper;
use super::compaction::{Mover, ROUND_BYTES};
use crate::format::Granule;
use crate::log::blocks::Use;
use crate::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;

/// Verifying reads about this much in one round.
const VERIFY_BYTES: u64 = 8 << 20;

impl<M: Medium> Keeper<M> {
    /// Verifies blocks that recovery did not read, and flushes them where that may be due; whether there are more.
    pub(super) fn verify(&self, mover: &mut Mover) -> bool {
        let Some(from) = mover.verify_at.take() else {
            self.end_doubts(mover);
            return false;
        };
        let (granules, incarnation) = {
            let space = self.log().space();
            (space.granules(), space.generation_now().incarnation())
        };
        let mut scratch = std::mem::take(&mut mover.scratch);
        let mut read = 0;
        for (granule, block, state) in self.log().blocks.walk(from..granules) {
            if read >= VERIFY_BYTES {
                mover.verify_at = Some(granule.0);
                break;
            }
            if state == Use::Sealed && block.generation().incarnation() < incarnation {
                read += block.tail();
                if self.records.has_unflushed_cells() {
                    self.log().medium.flush(self.log().offset_of(granule), block.tail());
                }
                if self.has_seal(granule) {
                    let _ = self.whole_records(granule, &mut scratch);
                } else {
                    self.set_aside(granule);
                }
            }
        }
        if self.records.has_unflushed_cells() {
            self.log().medium.drain();
            self.records.flushed_cells(mover.verify_at.is_some());
        }
        self.end_doubts(mover);
        scratch.shrink_to(ROUND_BYTES as usize);
        mover.scratch = scratch;
        let left = mover.verify_at.map_or(0, |at| granules - at);
        self.compaction.unverified_granules.store(left.into(), Relaxed);
        mover.verify_at.is_some()
    }

    /// Verifies at once what is left of what recovery did not read; the blocks that are known to be damaged.
    pub(crate) fn verify_all(&self) -> Vec<Granule> {
        let mut mover = self.mover();
        while self.verify(&mut mover) {}
        let granules = self.log().space().granules();
        let damaged = self.log().blocks.walk(0..granules).filter(|&(_, _, state)| state == Use::Damaged);
        damaged.map(|(granule, _, _)| granule).collect()
    }
}
