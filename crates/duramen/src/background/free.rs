//! Freeing blocks that were moved out of: step 4 of compaction.

use super::Keeper;
use super::compaction::Mover;
use super::retired::Retired;
use crate::Result;
use crate::format::Unit;
use crate::log::space::free_blocks;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::tuning::Phase;
use duramen_media::Medium;

impl<M: Medium> Keeper<M> {
    /// Frees blocks: see invariant 2 of [`super::compact`], and [`crate::log::space`] for the order of each.
    pub(super) fn free(&self, mover: &mut Mover, retired: &[Retired]) -> Result<()> {
        let together = |_: &Retired, next: &Retired| !next.dropped || planted(Mutant::FreedWithoutOrder);
        for retired in retired.chunk_by(together) {
            let _inside = self.log().tuning.phase(Phase::Free);
            let units: Vec<Unit> = retired.iter().map(|block| block.unit).collect();
            let blocks = self.headers_to_free(&units);
            free_blocks(&self.log().medium, self.log().unit_bytes, &blocks)
                .map_err(|error| self.log().failed(error))?;
        }
        for block in retired {
            let entry = self.log().blocks.at(block.unit);
            let units = entry.units();
            // Nothing leads to it, says whoever moved out of it; so do those who counted what leads to it.
            debug_assert!(
                entry.live_sealed() == 0 || entry.is_doubtful(),
                "{} bytes are live of a block that is freed, at unit {}",
                entry.live_sealed(),
                block.unit.0
            );
            entry.free();
            mover.leaving.forget(block);
            mover.activity.dead_add(-(block.bytes as i64));
            self.log().space().give(block.unit, units);
            self.compaction.retired.fetch_sub(1, Relaxed);
            self.compaction.retired_units.fetch_sub(units.into(), Relaxed);
            self.compaction.retired_bytes.fetch_sub(block.bytes, Relaxed);
            self.compaction.freed_units.fetch_add(u64::from(units), Relaxed);
        }
        mover.unmovable.clear();
        mover.packed_in_vain = false;
        self.growth.forget_failure();
        Ok(())
    }
}
