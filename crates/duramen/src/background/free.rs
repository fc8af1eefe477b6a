//! Freeing blocks that were moved out of: step 4 of compaction.

use super::Keeper;
use super::compaction::{Mover, Retired};
use crate::Result;
use crate::format::Unit;
use crate::format::superblock::Regime;
use crate::log::space::free_blocks;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::lock;
use crate::sync::reclaim;
use crate::sync::time::Instant;
use crate::tuning::Phase;
use duramen_media::Medium;
use std::time::Duration;

/// How long a writer without space waits for readers to let go of what was compacted.
const GRACE_MAX: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 500 });

impl<M: Medium> Keeper<M> {
    /// Frees the retired blocks that nobody can see any more. `urgent`: a writer waits for it.
    pub(super) fn reclaim(&self, mover: &mut Mover, urgent: bool) {
        // Readers that came after the blocks were retired do not see them.
        let begun = Instant::now();
        for round in 0.. {
            reclaim::collect();
            let (retired, unseen) =
                (self.compaction.retired.load(Relaxed), lock(&self.compaction.unseen).len() as u64);
            if retired <= unseen {
                // Nothing is waited for: a busy machine would not soon give back the CPU that is yielded.
                break;
            }
            let waiting = unseen == 0;
            // A thread that keeps a value itself would wait for nobody else.
            let patient = urgent && waiting && !reclaim::is_pinned();
            if round >= 3 && !(patient && begun.elapsed() < GRACE_MAX) {
                break;
            }
            if round >= 64 {
                // Whoever is pinned is not on a CPU, or keeps a value.
                crate::sync::thread::sleep(Duration::from_micros(200));
            } else if urgent {
                crate::sync::thread::yield_now();
            }
        }
        let mut ready = std::mem::take(&mut *lock(&self.compaction.unseen));
        if ready.is_empty() {
            return;
        }
        let last = ready.iter().map(|r| r.epoch).max().unwrap_or(0);
        while self.log().epochs().in_use()
            && self.log().epochs().committed().0 <= last
            && !planted(Mutant::FreedBeforeCommit)
        {
            // With `Manual` only the caller commits.
            if self.log().epochs().regime() == Regime::Manual || self.log().commit().is_err() {
                let committed = self.log().epochs().committed().0;
                let (now, later): (Vec<_>, Vec<_>) =
                    ready.into_iter().partition(|r: &Retired| committed > r.epoch);
                ready = now;
                // In front: blocks are freed in the order in which they were retired.
                lock(&self.compaction.unseen).splice(0..0, later);
                break;
            }
        }
        if let Err(error) = self.free(mover, &ready) {
            // The medium failed: the store is poisoned, and the blocks stay as they are.
            drop(error);
        }
    }

    /// Frees blocks: see invariant 2, and [`crate::log::space`] for the order of each.
    fn free(&self, mover: &mut Mover, retired: &[Retired]) -> Result<()> {
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
            entry.free();
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
