//! The way of a retired block until it is freed.
//!
//! ```text
//!  retired ──(readers and groups leave)──▶ unseen ──(epoch after next committed)──▶ freed
//!                                            │ ▲
//!                          a value is kept   ▼ │   the value is gone
//!                                            kept
//! ```
//!
//! Nobody finds a retired block any more. Who was in it when it was retired has left when its moment is past
//! ([`reclaim::GracePeriod`]), but for values that were read and are kept: they hold the place where they lie, and a
//! block that is held stays for as long as they do, which may be for ever. Others are freed meanwhile, each by itself.
//!
//! Blocks are freed in the order in which they were retired, because of tombstones: one may be dropped when all older records of its key
//! lie in blocks that were retired before (see [`super::compact`]). What keeps this true where one block stays:
//!
//! * *A block that stays is counted again.* Each of its records is a stale record of its key once more, as before the block was retired: also those
//!   that were moved out of it, since they are older than what came after the copy. So no tombstone of these keys is dropped
//!   from then on, and blocks that are retired later need not wait for it. A key without a slot is left out: its tombstone was dropped
//!   already, and lies in a block that has to wait (next), or in this one, where it goes with what it hides.
//!   A block that is free on the medium already (`evict.rs`, invariant 3) is not counted.
//! * *A block that was retired before that, and that tombstones were dropped from, waits for it.* These are few: the blocks retired
//!   between a block's retirement and the end of its moment. While such a one waits it stays too, and all of this is true of it.
//! * *When it need not stay any more* what was counted again is forgotten, no more and no less, and it is freed before whatever is retired
//!   later: its epoch is older than theirs.
//!
//! So a value that is kept costs the block that it lies in and, in other blocks, one tombstone at most for each key in it that was deleted
//! meanwhile. Where room is short the compactor leaves blocks alone that are held when it chooses: to move out of them frees nothing.
//!
//! A crash at any point: the blocks that stay are found again, sealed, with records that are older than others of their keys, or are hidden
//! by tombstones that were not dropped, or lie in a block that waited.

use super::Maintenance;
use super::blocks::whole_records_of;
use super::compaction::{Compactor, GRACE_MAX};
use super::retired::{Again, Retired, Stale};
use super::stale::KeyOf;
use crate::format::Extent;
use crate::format::superblock::Regime;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::reclaim::{self, GracePeriod};
use crate::sync::time::Instant;
use duramen_media::{Medium, Offset};
use std::collections::HashSet;
use std::time::Duration;

impl<M: Medium> Maintenance<M> {
    /// Whether somebody keeps a value of this store.
    pub(crate) fn keeps_values(&self) -> bool {
        !self.pinned_extents().is_empty()
    }

    /// The blocks of this store in which values lie that somebody keeps.
    pub(super) fn pinned_extents(&self) -> HashSet<Extent> {
        if planted(Mutant::PinNotChecked) {
            return HashSet::new();
        }
        let from = self.log().medium.pointer(Offset(0), 0).addr();
        let held = reclaim::pinned_addresses();
        let held = &held[held.partition_point(|&at| at < from)..];
        let bytes = self.log().medium.len();
        let offsets = held.iter().map(|&at| (at - from) as u64).take_while(|&at| at < bytes);
        offsets.map(|at| self.log().blocks.extent_of(at)).collect()
    }

    /// Sorts the blocks whose moment is past by whether they stay.
    fn release_blocks(&self, compactor: &mut Compactor) {
        let past = compactor.retire_queue.take_past(|| GracePeriod::now(self.log().epochs().groups()));
        if past.is_empty() && compactor.retire_queue.kept.is_empty() {
            return;
        }
        // After their moment is past.
        let held = self.pinned_extents();
        let mut stay: Vec<Retired> = Vec::new();
        let before = std::mem::take(&mut compactor.retire_queue.kept);
        for mut retired in before.into_iter().chain(past) {
            let is_behind = |other: &Retired| {
                other.again.as_ref().is_some_and(|again| retired.number < again.since)
                    || planted(Mutant::KeptHoldsBackAll)
            };
            let stays = held.contains(&retired.extent)
                || (retired.dropped || planted(Mutant::KeptHoldsBackAll)) && stay.iter().any(is_behind);
            if !stays {
                if let Some(again) = retired.again.take() {
                    self.forget_again(compactor, &again);
                }
                compactor.retire_queue.reclaimable.push(retired);
                continue;
            }
            if retired.again.is_none() {
                let since = if retired.is_free { 0 } else { self.log().retirements.load(Relaxed) };
                let stale = if retired.is_free || planted(Mutant::KeptNotCounted) {
                    // What is free on the medium already hides nothing, and brings nothing back.
                    Vec::new()
                } else {
                    self.count_again(compactor, retired.extent)
                };
                retired.again = Some(Again { since, stale });
            }
            stay.push(retired);
        }
        compactor.retire_queue.kept = stay;
        // What stayed longer may have been retired before.
        compactor.retire_queue.reclaimable.sort_by_key(|retired| retired.number);
    }

    /// Nobody is in any block, nor will be, once the store has no handle left: reads and groups have one, and values borrow one. So readers
    /// of other stores are not waited for, nor holds of values that were forgotten and never dropped.
    ///
    /// A block that is still retired when the store is closed would be read by the next open, whose checkpoint knows
    /// nothing of its records. To enter them it must compare them with what the checkpoint points to; where that is
    /// damaged it cannot, and would read everything instead and no longer know whose the damaged records are.
    pub(super) fn all_left(&self, compactor: &mut Compactor) {
        for mut retired in compactor.retire_queue.take_all() {
            if let Some(again) = retired.again.take() {
                self.forget_again(compactor, &again);
            }
            compactor.retire_queue.reclaimable.push(retired);
        }
        compactor.retire_queue.reclaimable.sort_by_key(|retired| retired.number);
    }

    /// Counts each record of a block that stays for the slot of its key.
    fn count_again(&self, compactor: &mut Compactor, extent: Extent) -> Vec<Stale> {
        let block = self.log().blocks.at(extent);
        let base = self.log().blocks.offset(extent);
        let mut scratch = std::mem::take(&mut compactor.scratch);
        let is_pinned = block.is_pinned();
        self.copy_block(extent, block.tail(), &mut scratch);
        let mut stale = Vec::new();
        let mut records = whole_records_of(&scratch, self.log().blocks.seeds(block));
        self.keep_what_counts(extent, is_pinned, &scratch, &mut records);
        for (at, header) in records {
            let guard = reclaim::pin();
            let key = header.key(&scratch[at as usize..]);
            let hash = self.records.hasher.hash(key);
            let of = KeyOf { owner: header.owner, key, hash };
            if self.count_stale(compactor, of, &guard) {
                stale.push(Stale { owner: header.owner, hash, at: Offset(base + at) });
            }
        }
        compactor.scratch = scratch;
        stale
    }

    /// Takes that back.
    fn forget_again(&self, compactor: &Compactor, again: &Again) {
        // The block is as it was.
        let key = |stale: &Stale| {
            let key = self.records.record(stale.at).key();
            KeyOf { owner: stale.owner, key, hash: stale.hash }
        };
        let keys: Vec<KeyOf<'_>> = again.stale.iter().map(key).collect();
        self.forget_stale(compactor, &keys);
    }

    /// Frees the retired blocks that nobody can see any more. `urgent`: a writer waits for it.
    pub(super) fn reclaim(&self, compactor: &mut Compactor, urgent: bool) {
        // Readers that came after the blocks were retired do not see them.
        let begun = Instant::now();
        for round in 0.. {
            reclaim::collect();
            self.release_blocks(compactor);
            if !compactor.retire_queue.waits_for_readers() {
                // Nothing is waited for: a busy machine would not soon give back the CPU that is yielded.
                break;
            }
            let waiting = compactor.retire_queue.reclaimable.is_empty();
            // A thread that is pinned itself would wait for nobody else.
            let patient = urgent && waiting && !reclaim::is_pinned();
            if round >= 3 && !(patient && begun.elapsed() < GRACE_MAX) {
                break;
            }
            if round >= 64 {
                // Whoever is pinned is not on a CPU, or a group is open.
                crate::sync::thread::sleep(Duration::from_micros(200));
            } else if urgent {
                crate::sync::thread::yield_now();
            }
        }
        let mut ready = std::mem::take(&mut compactor.retire_queue.reclaimable);
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
                (ready, compactor.retire_queue.reclaimable) =
                    ready.into_iter().partition(|r: &Retired| committed > r.epoch);
                break;
            }
        }
        if let Err(error) = self.free(compactor, &ready) {
            // The medium failed: the store is poisoned, and the blocks stay as they are.
            drop(error);
        }
    }
}
