//! Counts the records that tombstones hide again, where the slots no longer know the number.
//!
//! A slot counts the stale records of its key up to 30; 31 means "31 or more" and never goes down. A key that was
//! overwritten that often between two compactions and then deleted would keep its tombstone until the store is opened
//! again. When the compactor has found enough such tombstones, all blocks are read once and the stale records of those
//! keys counted.
//!
//! Why the count is right although others write meanwhile: the compacting thread counts, so nothing is freed or copied.
//! A writer of such a key makes its slot point elsewhere, under its lock. So a slot that still points to the tombstone
//! at the end stood for the same stale records all the time. All of them were appended before the tombstone, and its
//! block's tail was published then, so they lie before that tail. Records of retired blocks count for no slot, except
//! those that were counted again ([`crate::compact::release`]).

use crate::compact::blocks::records_of_open;
use crate::compact::compactor::{Compactor, Copier};
use crate::maintenance::Maintenance;
use crate::table::tables::Table;
use duramen_log::blocks::Use;
use duramen_log::format::{Owner, Version};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::{Medium, Offset};
use std::collections::HashMap;

/// Bytes of tombstones with unknown counts that the compactor must find before all blocks are read.
const UNKNOWN_BYTES_MIN: u64 = 256 << 10;

/// At most this much is read for a writer that waits for space: some 50 ms. In a larger store the writer does without
/// the space of tombstones with unknown counts: that is below 1 in 64 of the store, or is counted in the background.
const WAITED_BYTES_MAX: u64 = 64 << 20;

/// How often the background thread stops a count for a writer that waits for the compactor. After that the writer
/// counts, if only that may find space.
const PUT_OFF_MAX: u32 = 4;

/// A tombstone whose count is not known.
struct Unknown {
    hash: u64,
    place: Offset,
    version: Version,
    stale: u64,
}

impl<M: Medium> Maintenance<M> {
    /// Counts if it is worth it.
    pub(crate) fn recount(&self, compactor: &mut Compactor) {
        let used = self.log().used_bytes();
        // Reading everything must pay for itself by the bytes that it may free.
        let least = self.records.tuning.compaction_bytes_min.unwrap_or(UNKNOWN_BYTES_MIN.max(used / 64));
        if compactor.copier.unknown_bytes >= least {
            self.recount_unless(compactor, || self.compaction.waiting.load(Relaxed) > 0);
        }
    }

    /// Counts for a writer that found no space, where that reads little; as [`Maintenance::recount_unless`].
    pub(crate) fn recount_for_writer(&self, compactor: &mut Compactor) -> bool {
        let reads_little = self.log().used_bytes() <= WAITED_BYTES_MAX;
        (reads_little || compactor.recounts_put_off >= PUT_OFF_MAX)
            && self.recount_unless(compactor, || false)
    }

    /// Counts if there is anything to count, unless it `is_in_the_way` before a block is read. Returns whether any
    /// tombstone turned out to hide nothing, or less than was known. Partial counts are discarded: other threads may
    /// move records meanwhile.
    fn recount_unless(&self, compactor: &mut Compactor, is_in_the_way: impl Fn() -> bool) -> bool {
        let unknown_bytes = std::mem::take(&mut compactor.copier.unknown_bytes);
        if unknown_bytes == 0 {
            return false;
        }
        let put_off = |compactor: &mut Compactor| {
            compactor.copier.unknown_bytes = unknown_bytes;
            compactor.recounts_put_off += 1;
            false
        };
        let Some(mut unknown) = self.unknown(&is_in_the_way) else { return put_off(compactor) };
        let mut scratch = std::mem::take(&mut compactor.copier.scratch);
        let extents = self.log().space().extents();
        for (at, block, state) in self.log().blocks.walk(0..extents) {
            if unknown.is_empty() {
                break;
            }
            if matches!(state, Use::Free | Use::Checkpoint | Use::GivenBack | Use::Retired) {
                continue;
            }
            if is_in_the_way() {
                compactor.copier.scratch = scratch;
                return put_off(compactor);
            }
            // After the tail there may be records that do not count, of uncommitted epochs, and records that are being
            // written.
            let bytes = block.tail();
            if state == Use::Damaged
                || !self.log().medium.unreadable(self.log().offset_of(at), bytes).is_empty()
            {
                // The content of this block is unknown: no tombstone may be dropped.
                unknown.clear();
                break;
            }
            if block.is_unverified() && self.whole_records(at, &mut scratch).is_none() {
                unknown.clear();
                break;
            }
            let is_pinned = block.is_pinned();
            self.copy_block(at, bytes, &mut scratch);
            let base = self.log().blocks.offset(at);
            let mut records = records_of_open(&scratch, self.log().blocks.seeds(block));
            self.keep_what_counts(at, is_pinned, &scratch, &mut records);
            for (place, header) in records {
                let key = header.key(&scratch[place as usize..]);
                // A newer record was appended by a writer that has not set its slot yet.
                if let Some(found) = unknown.get_mut(&header.owner).and_then(|of| of.get_mut(key))
                    && found.place != Offset(base + place)
                    && header.version <= found.version
                {
                    found.stale += 1;
                }
            }
        }
        (compactor.copier.scratch, compactor.recounts_put_off) = (scratch, 0);
        for stale in compactor.retire_queue.kept() {
            let key = self.records.record(stale.at).key();
            if let Some(found) = unknown.get_mut(&stale.owner).and_then(|of| of.get_mut(key)) {
                found.stale += 1;
            }
        }
        let mut fewer = false;
        for (owner, unknown) in unknown {
            let Some(table) = self.records.tables.of(owner) else { continue };
            for (key, found) in unknown {
                fewer |= self.learn_count(&compactor.copier, &table, &key, &found);
            }
        }
        self.compaction.recounts.fetch_add(1, Relaxed);
        fewer
    }

    /// All tombstones with unknown counts, by table and key; none if that `is_in_the_way`.
    fn unknown(
        &self,
        is_in_the_way: &impl Fn() -> bool,
    ) -> Option<HashMap<Owner, HashMap<Vec<u8>, Unknown>>> {
        let mut living = self.records.tables.all_owners();
        living.retain(|table| !table.is_dead());
        let mut all = HashMap::new();
        for table in &living {
            let unknown = self.unknown_of(table, is_in_the_way)?;
            if !unknown.is_empty() {
                all.insert(table.owner, unknown);
            }
        }
        Some(all)
    }

    fn unknown_of(
        &self,
        table: &Table,
        is_in_the_way: &impl Fn() -> bool,
    ) -> Option<HashMap<Vec<u8>, Unknown>> {
        let mut unknown = HashMap::new();
        let mut cursor = 0;
        loop {
            if is_in_the_way() {
                return None;
            }
            let guard = duramen_log::sync::reclaim::pin();
            cursor = table.index.scan(cursor, &guard, &mut |slot| {
                if slot.is_tombstone()
                    && slot.stale_known().is_none()
                    && let Some(record) = self.records.whole_record(slot.location())
                {
                    let key = record.key().to_vec();
                    let hash = self.records.hasher.hash(&key);
                    let (place, version) = (slot.location(), record.head.version());
                    unknown.insert(key, Unknown { hash, place, version, stale: 0 });
                }
            });
            if cursor == 0 {
                return Some(unknown);
            }
        }
    }

    /// Stores the count in the slot, if it still points to the same tombstone; returns whether its count is known now.
    fn learn_count(&self, copier: &Copier, table: &Table, key: &[u8], found: &Unknown) -> bool {
        let guard = duramen_log::sync::reclaim::pin();
        let locked = table.index.lock(found.hash, &guard);
        let Some(place) = locked.find(key, |slot| slot.location() == found.place) else { return false };
        if !place.get().is_tombstone() || place.get().stale_known().is_some() {
            return false;
        }
        self.account(copier, &place, place.learn_stale(found.stale));
        place.get().stale_known().is_some()
    }
}
