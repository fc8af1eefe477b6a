//! Freeing blocks that were moved out of: step 4 of compaction.

use crate::Result;
use crate::compact::compactor::Compactor;
use crate::compact::retired::Retired;
use crate::maintenance::Maintenance;
use crate::tuning::Phase;
use duramen_log::blocks::Use;
use duramen_log::format::Extent;
use duramen_log::space::free_blocks;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim;
use duramen_media::{Medium, Offset};

/// For each freed block so many come back that were put off.
const BROUGHT_BACK_EACH: usize = 8;

impl<M: Medium> Maintenance<M> {
    /// Frees blocks: see invariant 2 of [`crate::compact::records`], and [`duramen_log::space`] for the order of each.
    pub(crate) fn free(&self, compactor: &mut Compactor, retired: &[Retired]) -> Result<()> {
        assert!(
            retired.is_sorted_by_key(|block| block.number),
            "blocks are freed in another order than they were retired in (records, invariant 2)"
        );
        let epochs = self.log().epochs();
        for block in retired {
            let committed = epochs.committed().0;
            assert!(
                !epochs.in_use() || block.epoch < committed,
                "a block retired in epoch {} is freed when {committed} is committed (records, invariant 4; epochs, 1)",
                block.epoch
            );
            debug_assert!(
                compactor.retire_queue.is_next(block),
                "the block at extent {} is freed before another that was retired before it (records, invariant 2)",
                block.extent.0
            );
        }
        let together = |_: &Retired, next: &Retired| !next.dropped;
        for retired in retired.chunk_by(together) {
            let _inside = self.log().phases.enter(Phase::Free);
            let extents: Vec<Extent> = retired.iter().map(|block| block.extent).collect();
            let blocks = self.headers_to_free(&extents);
            free_blocks(&self.log().medium, self.log().extent_bytes, &blocks)
                .map_err(|error| self.log().failed(error))?;
        }
        for block in retired {
            let entry = self.log().blocks.at(block.extent);
            let extents = entry.extents();
            // The thread that moved out of it says that nothing points to it; so must the live bytes.
            debug_assert!(
                entry.live_sealed() == 0 || entry.is_unverified(),
                "freeing the block at extent {1}: found {0} live bytes, wanted 0 (log::space, invariant 1)",
                entry.live_sealed(),
                block.extent.0
            );
            let from = Offset(self.log().blocks.offset(block.extent));
            self.records.access.clear(from, self.log().blocks.bytes(entry), &reclaim::pin());
            assert_eq!(
                entry.state(),
                Use::Retired,
                "a block that is freed was retired before, when it was sealed (records, invariant 1; evict::victims, 3)"
            );
            entry.free();
            compactor.retire_queue.forget(block);
            compactor.copier.activity.dead_add(-(block.bytes as i64));
            self.log().space().give(block.extent, extents);
            self.compaction.retired.fetch_sub(1, Relaxed);
            self.compaction.retired_extents.fetch_sub(extents.into(), Relaxed);
            self.compaction.retired_bytes.fetch_sub(block.bytes, Relaxed);
            self.compaction.freed_extents.fetch_add(u64::from(extents), Relaxed);
        }
        self.bring_back(compactor, BROUGHT_BACK_EACH * retired.len());
        compactor.pack_gained_nothing = false;
        self.growth.forget_failure();
        Ok(())
    }
}
