//! Verifies the records that recovery did not read.

use crate::compact::compactor::{Compactor, ROUND_BYTES};
use crate::maintenance::Maintenance;
use duramen_log::blocks::Use;
use duramen_log::format::Extent;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;

/// Verifying reads about this much in one round.
const VERIFY_BYTES: u64 = 8 << 20;

impl<M: Medium> Maintenance<M> {
    /// Verifies blocks that recovery did not read, and flushes them where that may be due; returns whether there are
    /// more.
    pub(crate) fn verify(&self, compactor: &mut Compactor) -> bool {
        let Some(from) = compactor.verify_at.take() else {
            self.finish_verification(compactor);
            return false;
        };
        let (extents, incarnation) = {
            let space = self.log().space();
            (space.extents(), space.generation_now().incarnation())
        };
        let mut scratch = std::mem::take(&mut compactor.copier.scratch);
        let mut read = 0;
        for (extent, block, state) in self.log().blocks.walk(from..extents) {
            if read >= VERIFY_BYTES {
                compactor.verify_at = Some(extent.0);
                break;
            }
            if state == Use::Sealed && block.generation().incarnation() < incarnation {
                read += block.tail();
                if self.records.has_unflushed_cells() {
                    self.log().medium.flush(self.log().offset_of(extent), block.tail());
                }
                if self.has_seal(extent) {
                    let _ = self.whole_records(extent, &mut scratch);
                } else {
                    self.set_aside(extent);
                }
            }
        }
        if self.records.has_unflushed_cells() {
            self.log().medium.drain();
            self.records.flushed_cells(compactor.verify_at.is_some());
        }
        self.finish_verification(compactor);
        scratch.shrink_to(ROUND_BYTES as usize);
        compactor.copier.scratch = scratch;
        let left = compactor.verify_at.map_or(0, |at| extents - at);
        self.compaction.unverified_extents.store(left.into(), Relaxed);
        compactor.verify_at.is_some()
    }

    /// Verifies at once all remaining records that recovery did not read; returns the blocks that are known to be
    /// damaged.
    pub(crate) fn verify_all(&self) -> Vec<Extent> {
        let mut compactor = self.compactor();
        while self.verify(&mut compactor) {}
        let extents = self.log().space().extents();
        let damaged = self.log().blocks.walk(0..extents).filter(|&(_, _, state)| state == Use::Damaged);
        damaged.map(|(extent, _, _)| extent).collect()
    }
}
