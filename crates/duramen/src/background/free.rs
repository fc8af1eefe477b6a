//! Freeing blocks that were moved out of: step 4 of compaction.

use super::Keeper;
use super::compaction::Mover;
use super::retired::Retired;
use crate::Result;
use crate::format::Granule;
use crate::log::space::free_blocks;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::reclaim;
use crate::tuning::Phase;
use duramen_media::{Medium, Offset};

impl<M: Medium> Keeper<M> {
    /// Frees blocks: see invariant 2 of [`super::compact`], and [`crate::log::space`] for the order of each.
    pub(super) fn free(&self, mover: &mut Mover, retired: &[Retired]) -> Result<()> {
        let together = |_: &Retired, next: &Retired| !next.dropped || planted(Mutant::FreedWithoutOrder);
        for retired in retired.chunk_by(together) {
            let _inside = self.log().tuning.phase(Phase::Free);
            let granules: Vec<Granule> = retired.iter().map(|block| block.granule).collect();
            let blocks = self.headers_to_free(&granules);
            free_blocks(&self.log().medium, self.log().granule_bytes, &blocks)
                .map_err(|error| self.log().failed(error))?;
        }
        for block in retired {
            let entry = self.log().blocks.at(block.granule);
            let granules = entry.granules();
            // Nothing leads to it, says whoever moved out of it; so do those who counted what leads to it.
            debug_assert!(
                entry.live_sealed() == 0 || entry.is_doubtful(),
                "{} bytes are live of a block that is freed, at granule {}",
                entry.live_sealed(),
                block.granule.0
            );
            let from = Offset(self.log().blocks.offset(block.granule));
            self.records.access.clear(from, self.log().blocks.bytes(entry), &reclaim::pin());
            entry.free();
            mover.leaving.forget(block);
            mover.activity.dead_add(-(block.bytes as i64));
            self.log().space().give(block.granule, granules);
            self.compaction.retired.fetch_sub(1, Relaxed);
            self.compaction.retired_granules.fetch_sub(granules.into(), Relaxed);
            self.compaction.retired_bytes.fetch_sub(block.bytes, Relaxed);
            self.compaction.freed_granules.fetch_add(u64::from(granules), Relaxed);
        }
        mover.unmovable.clear();
        mover.packed_in_vain = false;
        self.growth.forget_failure();
        Ok(())
    }
}
