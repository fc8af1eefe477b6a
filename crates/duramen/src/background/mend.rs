//! Damaged blocks are freed when no key needs what is damaged in them any more: see [`crate::read::damage`]. Of those that recovery
//! read without an index nobody knows which keys need them: they stay.
//!
//! Order: what is whole and live is moved as in any other block, durable before its slots lead to it; then the block is retired. If its header
//! is damaged it gets one that says "free", durable before the block counts as free. A crash before leaves the block as it was, with
//! dead records; one between leaves a free block.
//!
//! What lay in the damaged part was counted as stale records of keys that nobody knows any more. So afterwards each tombstone that hides
//! something is one whose count is not known, and [`super::recount`] counts it anew.

use super::Keeper;
use super::blocks::whole_records_of;
use super::compaction::Mover;
use super::retired::Retired;
use crate::Result;
use crate::format::{Granule, block};
use crate::log::blocks::Use;
use crate::read::table::Table;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::reclaim;
use duramen_media::Medium;
use std::collections::HashSet;

impl<M: Medium> Keeper<M> {
    /// Frees the damaged blocks in which no slot leads to a damaged record, if any may have become such a one.
    pub(super) fn mend(&self, mover: &mut Mover) -> Result<()> {
        if self.compaction.damaged.load(Relaxed) == 0 || !self.records.mends.swap(false, Relaxed) {
            return Ok(());
        }
        let granules = self.log().space().granules();
        let damaged: Vec<Granule> = self
            .log()
            .blocks
            .walk(0..granules)
            .filter(|&(_, block, state)| state == Use::Damaged && block.is_known())
            .map(|(granule, ..)| granule)
            .collect();
        let needed = self.needed();
        for granule in damaged {
            let block = self.log().blocks.at(granule);
            let bytes = block.tail();
            if needed.contains(&granule)
                || !self.log().medium.unreadable(self.log().offset_of(granule), bytes).is_empty()
            {
                continue;
            }
            if !block.retire_damaged() {
                continue;
            }
            let mut scratch = std::mem::take(&mut mover.scratch);
            self.copy_block(granule, bytes, &mut scratch);
            let records = whole_records_of(&scratch, self.log().blocks.seeds(block));
            let moved = self.move_records(mover, &self.contents(granule, &scratch, &records), None);
            mover.scratch = scratch;
            if matches!(moved, Ok(true)) {
                self.compaction.damaged.fetch_sub(1, Relaxed);
                self.forget_counts(mover);
            } else {
                block.set_aside();
                // When there is more room.
                self.records.mended();
                moved?;
            }
        }
        Ok(())
    }

    /// From now on records are used as they are, if all were verified and none is damaged: also none of those to which a slot led that a
    /// reader may still have in hand. So not before the readers have left who came before the last damaged block was retired.
    pub(super) fn end_doubts(&self, mover: &Mover) {
        let is_doubtful = |retired: &Retired| self.log().blocks.at(retired.granule).is_doubtful();
        if self.records.has_doubts()
            && mover.verify_at.is_none()
            && self.compaction.damaged.load(Relaxed) == 0
            && !mover.leaving.in_sight().any(is_doubtful)
        {
            self.records.set_doubts(false);
        }
    }

    /// The damaged blocks to whose damaged records slots lead.
    fn needed(&self) -> HashSet<Granule> {
        let mut needed = HashSet::new();
        for table in self.records.tables.all_owners().into_iter().filter(|table| !table.is_dead()) {
            self.needed_by(&table, &mut needed);
        }
        needed
    }

    fn needed_by(&self, table: &Table, needed: &mut HashSet<Granule>) {
        let mut cursor = 0;
        loop {
            let guard = reclaim::pin();
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                let at = slot.location();
                let granule = self.log().blocks.granule_of(at.0);
                if self.log().blocks.at(granule).state() == Use::Damaged && !self.records.is_whole(at) {
                    needed.insert(granule);
                }
            });
            if cursor == 0 {
                return;
            }
        }
    }

    /// What tombstones hide is not known any more.
    fn forget_counts(&self, mover: &mut Mover) {
        for table in self.records.tables.all_owners().into_iter().filter(|table| !table.is_dead()) {
            self.forget_counts_of(&table, mover);
        }
    }

    fn forget_counts_of(&self, table: &Table, mover: &mut Mover) {
        let mut cursor = 0;
        let mut tombstones = Vec::new();
        loop {
            let guard = reclaim::pin();
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                if slot.is_tombstone() && !slot.hides_nothing() {
                    tombstones.push(slot.location());
                }
            });
            for at in tombstones.drain(..) {
                let Some(record) = self.records.whole_record(at) else { continue };
                let locked = table.index.lock(self.records.hasher.hash(record.key()), &guard);
                if let Some(place) = locked.find(record.key(), |slot| slot.location() == at)
                    && place.get().is_tombstone()
                    && !place.get().hides_nothing()
                {
                    place.set(place.get().count_doubted());
                    mover.unknown_bytes += record.head.record_bytes();
                }
            }
            if cursor == 0 {
                return;
            }
        }
    }

    /// The headers of blocks that are to be freed; one that is damaged is made anew first.
    pub(super) fn headers_to_free(&self, granules: &[Granule]) -> Vec<(Granule, block::Header)> {
        for &granule in granules {
            let at = self.log().offset_of(granule);
            let block = self.log().blocks.at(granule);
            let is_right = |header: block::Header| header.granules == block.granules();
            if !self.log().header_of(granule).is_ok_and(is_right) {
                block::Header::fresh(self.log().blocks.secret(), block.granules()).publish_fresh(
                    &self.log().medium,
                    granule,
                    at,
                );
            }
        }
        self.log().headers_of(granules)
    }
}
