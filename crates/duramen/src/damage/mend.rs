//! Frees damaged blocks once no key needs their damaged records any more: see [`crate::damage::detect`]. Blocks that
//! recovery read without an index stay, because the keys that need them are unknown.
//!
//! Order: whole live records are moved as in any other block, durable before their slots point to the copies; then the
//! block is retired. A damaged header is replaced by one that says "free", durable before the block counts as free. A
//! crash before leaves the block unchanged, with dead records; a crash between leaves a free block.
//!
//! The records in the damaged part were counted as stale records of keys that are unknown now. So afterwards each
//! tombstone that hides a record becomes one with an unknown count, and [`crate::compact::recount`] counts again.

use crate::Result;
use crate::compact::blocks::whole_records_of;
use crate::compact::compactor::Compactor;
use crate::compact::retired::Retired;
use crate::maintenance::Maintenance;
use crate::table::tables::Table;
use duramen_log::blocks::Use;
use duramen_log::format::{Extent, block};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim;
use duramen_media::Medium;
use std::collections::HashSet;

impl<M: Medium> Maintenance<M> {
    /// Frees the damaged blocks without slots that point to damaged records, if such a block may exist.
    pub(crate) fn mend(&self, compactor: &mut Compactor) -> Result<()> {
        if self.compaction.damaged.load(Relaxed) == 0 || !self.records.mends.swap(false, Relaxed) {
            return Ok(());
        }
        let extents = self.log().space().extents();
        let damaged: Vec<Extent> = self
            .log()
            .blocks
            .walk(0..extents)
            .filter(|&(_, block, state)| state == Use::Damaged && block.is_known())
            .map(|(extent, ..)| extent)
            .collect();
        let needed = self.needed();
        for extent in damaged {
            let block = self.log().blocks.at(extent);
            let bytes = block.tail();
            if needed.contains(&extent)
                || !self.log().medium.unreadable(self.log().offset_of(extent), bytes).is_empty()
            {
                continue;
            }
            if !block.retire_damaged() {
                continue;
            }
            let mut scratch = std::mem::take(&mut compactor.copier.scratch);
            self.copy_block(extent, bytes, &mut scratch);
            let records = whole_records_of(&scratch, self.log().blocks.seeds(block));
            let moved = self.move_records(compactor, &self.contents(extent, &scratch, &records), None);
            compactor.copier.scratch = scratch;
            if matches!(moved, Ok(true)) {
                self.compaction.damaged.fetch_sub(1, Relaxed);
                self.forget_counts(compactor);
            } else {
                block.set_aside();
                // Tried again when there is more room.
                self.records.mended();
                moved?;
            }
        }
        Ok(())
    }

    /// Ends the verification of records at each use, if all were verified and none is damaged. That includes damaged
    /// records whose slots readers may have read before. So it waits until all readers have left that came before the
    /// last damaged block was retired.
    pub(crate) fn finish_verification(&self, compactor: &Compactor) {
        let is_unverified = |retired: &Retired| self.log().blocks.at(retired.extent).is_unverified();
        if self.records.has_unverified()
            && compactor.verify_at.is_none()
            && self.compaction.damaged.load(Relaxed) == 0
            && !compactor.retire_queue.pending_grace().any(is_unverified)
        {
            self.records.set_has_unverified(false);
        }
    }

    /// The damaged blocks with damaged records that slots point to.
    fn needed(&self) -> HashSet<Extent> {
        let mut needed = HashSet::new();
        for table in self.records.tables.all_owners().into_iter().filter(|table| !table.is_dead()) {
            self.needed_by(&table, &mut needed);
        }
        needed
    }

    fn needed_by(&self, table: &Table, needed: &mut HashSet<Extent>) {
        let mut cursor = 0;
        loop {
            let guard = reclaim::pin();
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                let at = slot.location();
                let extent = self.log().blocks.extent_of(at.0);
                if self.log().blocks.at(extent).state() == Use::Damaged && !self.records.is_whole(at) {
                    needed.insert(extent);
                }
            });
            if cursor == 0 {
                return;
            }
        }
    }

    /// Makes the counts of all tombstones unknown.
    fn forget_counts(&self, compactor: &mut Compactor) {
        for table in self.records.tables.all_owners().into_iter().filter(|table| !table.is_dead()) {
            self.forget_counts_of(&table, compactor);
        }
    }

    fn forget_counts_of(&self, table: &Table, compactor: &mut Compactor) {
        let mut cursor = 0;
        let mut tombstones = Vec::new();
        loop {
            let guard = reclaim::pin();
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                if slot.is_tombstone() && !slot.covers_no_older_records() {
                    tombstones.push(slot.location());
                }
            });
            for at in tombstones.drain(..) {
                let Some(record) = self.records.whole_record(at) else { continue };
                let locked = table.index.lock(self.records.hasher.hash(record.key()), &guard);
                if let Some(place) = locked.find(record.key(), |slot| slot.location() == at)
                    && place.get().is_tombstone()
                    && !place.get().covers_no_older_records()
                {
                    place.set(place.get().with_unverified_count());
                    compactor.copier.unknown_bytes += record.head.record_bytes();
                }
            }
            if cursor == 0 {
                return;
            }
        }
    }

    /// The headers of blocks that are to be freed; a damaged one is replaced first.
    pub(crate) fn headers_to_free(&self, extents: &[Extent]) -> Vec<(Extent, block::Header)> {
        for &extent in extents {
            let at = self.log().offset_of(extent);
            let block = self.log().blocks.at(extent);
            let is_right = |header: block::Header| header.extents == block.extents();
            if !self.log().header_of(extent).is_ok_and(is_right) {
                block::Header::fresh(self.log().blocks.secret(), block.extents()).publish_fresh(
                    &self.log().medium,
                    extent,
                    at,
                );
            }
        }
        self.log().headers_of(extents)
    }
}
