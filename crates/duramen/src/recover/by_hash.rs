//! Records gathered by hash before they are entered in a hash index.
//!
//! A log holds keys in no order of their hashes, so each record goes to another place of the index. Each is a cache
//! miss and, in an index of hundreds of megabytes, a TLB miss too, which no prefetch hides. So records are sorted
//! first, each into its part of the index, by the first bits of its hash. When a part has many records they are entered
//! together, while its segments stay in the nearest caches.

use crate::recover::given::Scan;
use crate::table::tables::Table;
use duramen_index::Slot;
use duramen_index::either::Index;
use duramen_index::hash::HashIndex;
use duramen_log::KEY_BYTES_USUAL;
use duramen_log::format::Version;
use duramen_log::format::record::HEADER_BYTES;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::Medium;

/// Bytes of index that are worked on at a time: half of the second-level cache of most CPUs.
const PART_BYTES: u64 = 512 << 10;
/// Records that are entered together. More would touch each line of a part more often; these take 24 KiB for each part
/// that has so many.
const PART_RECORDS: usize = 1024;
/// Bounds the memory of all parts to 25 MB for each thread.
const PARTS_MAX: u64 = 1024;
/// A record's buckets are prefetched this many records before it is entered.
const AHEAD: usize = 24;
/// ... and, once the bucket has arrived, the record itself and the record of its key that the index may have.
const NEAR: usize = 12;

/// A record that was verified.
#[derive(Clone, Copy, Default)]
pub(crate) struct ToEnter {
    pub hash: u64,
    /// The slot that the index gets, if this is the newest record of its key.
    pub slot: Slot,
    pub version: Version,
}

/// What one thread has gathered.
pub(crate) struct ByHash {
    /// The records of each part, at most `PART_RECORDS`. Each grows as records arrive: a store may have thousands of
    /// small tables, and every thread reads records of each.
    parts: Vec<Vec<ToEnter>>,
    /// Bits of the hash that select the part.
    bits: u32,
    /// Keys that the index did not have; may be negative where a checkpoint had keys that are gone.
    pub added: i64,
    /// Whether any was a tombstone, or had expired.
    pub absent: bool,
}

impl ByHash {
    pub(crate) fn new(index: &HashIndex) -> Self {
        let parts = (index.bytes(&reclaim::pin()) / PART_BYTES).clamp(1, PARTS_MAX).next_power_of_two();
        Self { parts: (0..parts).map(|_| Vec::new()).collect(), bits: parts.ilog2(), added: 0, absent: false }
    }

    /// The part of a hash.
    #[inline]
    fn part(&self, hash: u64) -> usize {
        // In two steps: all 64 bits at once cannot be shifted out.
        (hash >> 1 >> (63 - self.bits)) as usize
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Gathers a record, to be entered in the index soon.
    #[inline]
    pub(crate) fn push_by_hash(&self, table: &Table, entry: ToEnter, entries: &mut ByHash) {
        entries.absent |= entry.slot.is_tombstone();
        let part = entries.part(entry.hash);
        let waiting = &mut entries.parts[part];
        waiting.push(entry);
        if waiting.len() == PART_RECORDS {
            self.enter_part(table, part, entries);
        }
    }

    /// Enters the remaining records.
    pub(crate) fn enter_all(&self, table: &Table, entries: &mut ByHash) {
        for part in 0..entries.parts.len() {
            self.enter_part(table, part, entries);
        }
    }

    fn enter_part(&self, table: &Table, part: usize, entries: &mut ByHash) {
        let guard = reclaim::pin();
        let mut waiting = std::mem::take(&mut entries.parts[part]);
        for step in 0..waiting.len() + AHEAD {
            if let Some(entry) = waiting.get(step) {
                table.index.prefetch_write(entry.hash, true, &guard);
            }
            if let Some(entry) = step.checked_sub(AHEAD - NEAR).and_then(|i| waiting.get(i)) {
                self.prefetch_records(table, entry, &guard);
            }
            if let Some(entry) = step.checked_sub(AHEAD).and_then(|i| waiting.get(i)) {
                entries.added += self.enter(&table.index, entry, &guard);
            }
        }
        waiting.clear();
        entries.parts[part] = waiting;
    }

    /// Prefetches the record and the index's record of its key, if there is one: they will be compared.
    #[inline]
    fn prefetch_records(&self, table: &Table, entry: &ToEnter, guard: &Guard) {
        let Index::Hash(index) = &table.index else { return };
        let Some(other_at) = index.candidate(entry.hash, guard).map(Slot::location) else { return };
        for at in [entry.slot.location(), other_at] {
            self.medium.prefetch(at);
            self.medium.prefetch(at.plus(HEADER_BYTES + KEY_BYTES_USUAL));
        }
        self.blocks.prefetch(other_at.0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use duramen_log::sync::Arc;

    #[test]
    fn a_table_without_records_takes_no_memory_for_records() {
        let index = HashIndex::on(Arc::default());
        let entries = ByHash::new(&index);
        let room: usize = entries.parts.iter().map(Vec::capacity).sum();
        assert_eq!((entries.parts.len(), room), (1, 0), "each thread has this for each table of a store");
    }
}
