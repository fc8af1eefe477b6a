//! Records on their way into the index, gathered by hash.
//!
//! A log holds keys in no order of their hashes, so each record goes to another place of the index: a miss of the cache
//! and, in an index of hundreds of megabytes, one of the TLB too, which no prefetch hides. So records are sorted first: each
//! into the part of the index it belongs to, by the first bits of its hash. When a part has many they are entered together,
//! and its segments stay in the nearest caches meanwhile.

use super::scan::Scan;
use crate::format::Version;
use crate::format::record::{HEADER_BYTES, Header};
use crate::index::either::Index;
use crate::index::{Slot, ordered};
use crate::log::read;
use crate::mutants::{Mutant, planted};
use crate::store::KEY_BYTES_USUAL;
use crate::sync;
use crate::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};
use std::cmp::Reverse;

/// Bytes of index that are worked on at a time: half of what the second cache of most CPUs holds.
const PART_BYTES: u64 = 512 << 10;
/// Records that are entered together. More would meet each line of a part oftener; these take 24 KiB for each part.
const PART_RECORDS: usize = 1024;
/// Bounds what all parts take, to 25 MB for each thread.
const PARTS_MAX: u64 = 1024;
/// So many records before one is entered, its buckets are fetched.
const AHEAD: usize = 24;
/// ... and the record itself, and the one that the index may have of its key, when the bucket has come.
const NEAR: usize = 12;

/// A record that was verified.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub hash: u64,
    /// The slot that the index gets, if this is the newest record of its key.
    pub slot: Slot,
    pub version: Version,
}

/// What one thread has gathered.
pub(super) struct Entries {
    /// Of each part, room for `PART_RECORDS`.
    waiting: Vec<Entry>,
    /// Of each part, how many there are.
    counts: Vec<usize>,
    /// Bits of the hash that tell the part.
    bits: u32,
    /// Keys that the index did not have; may be less than nothing where an image knew of keys that are gone.
    pub added: i64,
    /// Whether any was a tombstone, or had expired.
    pub absent: bool,
}

impl Entries {
    pub(super) fn new(index: &Index) -> Self {
        let parts = match index {
            Index::Hash(index) => {
                (index.bytes(&reclaim::pin()) / PART_BYTES).clamp(1, PARTS_MAX).next_power_of_two()
            }
            // Its places follow the keys.
            Index::Ordered(_) => 1,
        };
        Self {
            waiting: vec![Entry::default(); parts as usize * PART_RECORDS],
            counts: vec![0; parts as usize],
            bits: parts.ilog2(),
            added: 0,
            absent: false,
        }
    }

    /// The part of a hash.
    #[inline]
    fn part(&self, hash: u64) -> usize {
        // In two steps: all 64 bits at once cannot be shifted out.
        (hash >> 1 >> (63 - self.bits)) as usize
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Enters a record in the index, soon.
    #[inline]
    pub(super) fn push(&self, entry: Entry, entries: &mut Entries) {
        let part = entries.part(entry.hash);
        let count = entries.counts[part];
        entries.waiting[part * PART_RECORDS + count] = entry;
        entries.counts[part] = count + 1;
        if count + 1 == PART_RECORDS {
            self.enter_part(part, entries);
        }
    }

    /// Enters what is left.
    pub(super) fn enter_all(&self, entries: &mut Entries) {
        for part in 0..entries.counts.len() {
            self.enter_part(part, entries);
        }
    }

    fn enter_part(&self, part: usize, entries: &mut Entries) {
        let guard = reclaim::pin();
        let count = std::mem::take(&mut entries.counts[part]);
        let waiting = &entries.waiting[part * PART_RECORDS..][..count];
        for step in 0..count + AHEAD {
            if let Some(entry) = waiting.get(step) {
                self.index.prefetch_insert(entry.hash, &guard);
            }
            if let Some(entry) = step.checked_sub(AHEAD - NEAR).and_then(|i| waiting.get(i)) {
                self.prefetch_records(entry, &guard);
            }
            if let Some(entry) = step.checked_sub(AHEAD).and_then(|i| waiting.get(i)) {
                entries.added += self.enter(self.index, entry, &guard);
            }
        }
    }

    /// Hints that the record is compared with the one that the index has of its key, if there is one.
    #[inline]
    fn prefetch_records(&self, entry: &Entry, guard: &Guard) {
        let Index::Hash(index) = self.index else { return };
        let Some(other_at) = index.candidate(entry.hash, guard).map(Slot::location) else { return };
        for at in [entry.slot.location(), other_at] {
            self.medium.prefetch(at);
            self.medium.prefetch(at.plus(HEADER_BYTES + KEY_BYTES_USUAL));
        }
        self.blocks.prefetch(other_at.0);
    }

    /// Header and key of a record that is whole.
    pub(super) fn record_at(&self, at: Offset) -> (Header, &[u8]) {
        let (header, bytes) = read::whole_record(self.medium, at);
        (header, header.key(bytes))
    }

    /// Enters a record in `index`, if it is the newest of its key so far. Says how many keys that adds.
    #[inline]
    fn enter(&self, index: &Index, entry: &Entry, guard: &Guard) -> i64 {
        let key = || self.record_at(entry.slot.location()).1;
        // A hash index does not ask for it.
        let key_of_order = if index.ordered().is_some() { key() } else { &[] };
        let locked = index.lock(entry.hash, guard);
        if !planted(Mutant::VersionNotRecovered) {
            locked.met_version(entry.version);
        }
        let found = locked.find(key_of_order, |slot| self.record_at(slot.location()).1 == key());
        let absent = entry.slot.is_tombstone();
        let Some(found) = found else {
            let crowded = locked.insert(key_of_order, entry.slot, self);
            drop(locked);
            if crowded {
                index.split(entry.hash, self, guard);
            }
            return i64::from(!absent);
        };
        let other = found.get();
        let (at, other_at) = (entry.slot.location(), other.location());
        let other_header = self.record_at(other_at).0;
        let stale = (other.stale() + 1).max(entry.slot.stale());
        // Records of one version are copies of one record, or an expired value and its tombstone: either will do. The
        // original is taken, in the block that was opened first: so compaction that a crash cut short leaves copies that
        // are all dead, and what it took is free again. Else a few crashes could use up what it needs to go on.
        let order = |at: Offset| (Reverse(self.blocks.of(at.0).generation()), at);
        let newer = entry.version.cmp(&other_header.version).then_with(|| order(at).cmp(&order(other_at)));
        if newer.is_gt() || planted(Mutant::LastScannedWins) {
            self.blocks.of(other_at.0).live_sub(other_header.record_bytes());
            found.set(entry.slot.with_stale(stale));
            i64::from(!absent) - i64::from(!other.is_tombstone())
        } else {
            self.blocks.of(at.0).live_sub(self.record_at(at).0.record_bytes());
            found.set(other.with_stale(stale));
            0
        }
    }

    /// Brings what was gathered into an ordered index. Says how many keys of what was gathered that had already: fewer than none
    /// were added by these.
    ///
    /// A descent of a large list is a miss for each level. In the order of the keys, each ends next to where the last one did.
    pub(super) fn enter_in_order(&self, ordered: &Index, slots: Vec<Slot>, threads: usize) -> i64 {
        let parts: Vec<Vec<Slot>> = ordered::in_order(slots, self, threads).collect();
        let pieces: Vec<&[Slot]> = parts.iter().flat_map(|part| part.chunks(PART_RECORDS)).collect();
        let enter = |slots: &[Slot]| {
            let guard = reclaim::pin();
            let mut added = 0;
            for (i, &slot) in slots.iter().enumerate() {
                if let Some(ahead) = slots.get(i + NEAR) {
                    self.medium.prefetch(ahead.location());
                }
                let (header, key) = self.record_at(slot.location());
                let entry = Entry { hash: self.hasher.hash(key), slot, version: header.version };
                // It was counted when it was gathered.
                added += self.enter(ordered, &entry, &guard) - i64::from(!slot.is_tombstone());
            }
            added
        };
        sync::each_on_threads(threads, pieces.into_iter(), enter).into_iter().sum()
    }
}
