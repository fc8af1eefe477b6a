//! The states of a retired block until it is freed.
//!
//! ```text
//!  retired ──(readers and groups leave)──▶ unseen ──(epoch after next committed)──▶ freed
//!                                            │ ▲
//!                          a value is kept   ▼ │   the value is gone
//!                                            kept
//! ```
//!
//! No slot points into a retired block. Readers that were in it when it was retired have left once its grace period is
//! past ([`reclaim::GracePeriod`]). The exception is values that a caller keeps after reading them: they pin the block
//! for as long as they live, which may be for ever. Other blocks are freed meanwhile, independently.
//!
//! Blocks are freed in the order in which they were retired, because of tombstones. A tombstone may be dropped when all
//! older records of its key lie in blocks that were retired before (see [`crate::compact::records`]). Three rules keep
//! this true where one block stays:
//!
//! * *A block that stays is counted again.* Each of its records is a stale record of its key once more, as before the
//!   block was retired. That includes records that were moved out of it, since they are older than any record that came
//!   after the copy. So no tombstone of these keys is dropped from then on, and blocks retired later need not wait for
//!   it. A key without a slot is left out: its tombstone was dropped already. That tombstone lies in a block that has
//!   to wait (next rule), or in this one, where it goes with the records that it hides. A block that is free on the
//!   medium already (`evict.rs`, invariant 3) is not counted.
//! * *A block that was retired earlier and from which tombstones were dropped waits for the block that stays.* These
//!   are few: the blocks retired between a block's retirement and the end of its grace period. While such a block waits
//!   it stays too, and all of these rules hold for it.
//! * *When a block need not stay any more* exactly the records that were counted again are uncounted. It is freed
//!   before any block that is retired later: its epoch is older than theirs.
//!
//! So a kept value costs the block that it lies in. In other blocks it costs at most one tombstone for each key in its
//! block that was deleted meanwhile. Where room is short the compactor does not choose pinned blocks: moving out of
//! them frees nothing.
//!
//! A crash at any point: recovery finds the blocks that stay again, sealed. Their records are older than others of
//! their keys, or hidden by tombstones that were not dropped, or lie in a block that waited.

use crate::compact::blocks::whole_records_of;
use crate::compact::compactor::{Compactor, Copier, GRACE_MAX};
use crate::compact::retired::{Again, Retired, Stale};
use crate::compact::stale::KeyOf;
use crate::maintenance::Maintenance;
use duramen_log::format::Extent;
use duramen_log::format::superblock::Regime;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim::{self, GracePeriod};
use duramen_log::sync::time::Instant;
use duramen_media::{Medium, Offset};
use std::collections::HashSet;
use std::time::Duration;

impl<M: Medium> Maintenance<M> {
    /// Whether a caller keeps a value of this store.
    pub(crate) fn keeps_values(&self) -> bool {
        !self.pinned_extents().is_empty()
    }

    /// The blocks of this store that contain values kept by callers.
    pub(crate) fn pinned_extents(&self) -> HashSet<Extent> {
        let from = self.log().medium.pointer(Offset(0), 0).addr();
        let held = reclaim::pinned_addresses();
        let held = &held[held.partition_point(|&at| at < from)..];
        let bytes = self.log().medium.len();
        let offsets = held.iter().map(|&at| (at - from) as u64).take_while(|&at| at < bytes);
        offsets.map(|at| self.log().blocks.extent_of(at)).collect()
    }

    /// Sorts the blocks whose grace period is past by whether they stay.
    fn release_blocks(&self, compactor: &mut Compactor) {
        let past = compactor.retire_queue.take_past(|| GracePeriod::now(self.log().epochs().groups()));
        if past.is_empty() && compactor.retire_queue.kept.is_empty() {
            return;
        }
        // Read after their grace period is past.
        let held = self.pinned_extents();
        let mut stay: Vec<Retired> = Vec::new();
        let before = std::mem::take(&mut compactor.retire_queue.kept);
        for mut retired in before.into_iter().chain(past) {
            let is_behind =
                |other: &Retired| other.again.as_ref().is_some_and(|again| retired.number < again.since);
            let stays = held.contains(&retired.extent) || retired.dropped && stay.iter().any(is_behind);
            if !stays {
                if let Some(again) = retired.again.take() {
                    self.forget_again(&compactor.copier, &again);
                }
                compactor.retire_queue.reclaimable.push(retired);
                continue;
            }
            if retired.again.is_none() {
                let since = if retired.is_free { 0 } else { self.log().retirements.load(Relaxed) };
                let stale = if retired.is_free {
                    // A block that is free on the medium already hides nothing, and brings nothing back.
                    Vec::new()
                } else {
                    self.count_again(compactor, retired.extent)
                };
                retired.again = Some(Again { since, stale });
            }
            stay.push(retired);
        }
        compactor.retire_queue.kept = stay;
        // Blocks that stayed longer may have been retired before.
        compactor.retire_queue.reclaimable.sort_by_key(|retired| retired.number);
    }

    /// Makes all retired blocks reclaimable, at close. Once the store has no handle left, no thread is in any block,
    /// nor will be: reads and groups have a handle, and values borrow one. So this waits neither for readers of other
    /// stores nor for pins of values that were forgotten and never dropped.
    ///
    /// A block that is still retired when the store is closed would be read by the next open, whose index checkpoint
    /// lacks its records. To enter them the open must compare them with the records that the checkpoint points to. If
    /// those are damaged it cannot: it would read everything instead, and no longer know which keys own the damaged
    /// records.
    pub(crate) fn all_left(&self, compactor: &mut Compactor) {
        for mut retired in compactor.retire_queue.take_all() {
            if let Some(again) = retired.again.take() {
                self.forget_again(&compactor.copier, &again);
            }
            compactor.retire_queue.reclaimable.push(retired);
        }
        compactor.retire_queue.reclaimable.sort_by_key(|retired| retired.number);
    }

    /// Counts each record of a block that stays for the slot of its key.
    fn count_again(&self, compactor: &mut Compactor, extent: Extent) -> Vec<Stale> {
        let block = self.log().blocks.at(extent);
        let base = self.log().blocks.offset(extent);
        let mut scratch = std::mem::take(&mut compactor.copier.scratch);
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
            if self.count_stale(&compactor.copier, of, &guard) {
                stale.push(Stale { owner: header.owner, hash, at: Offset(base + at) });
            }
        }
        compactor.copier.scratch = scratch;
        stale
    }

    /// Undoes [`Maintenance::count_again`].
    fn forget_again(&self, copier: &Copier, again: &Again) {
        // The block is unchanged since it was counted.
        let key = |stale: &Stale| {
            let key = self.records.record(stale.at).key();
            KeyOf { owner: stale.owner, key, hash: stale.hash }
        };
        let keys: Vec<KeyOf<'_>> = again.stale.iter().map(key).collect();
        self.forget_stale(copier, &keys);
    }

    /// Frees the retired blocks that no thread can reach any more. `urgent`: a writer waits for it.
    pub(crate) fn reclaim(&self, compactor: &mut Compactor, urgent: bool) {
        // Readers that came after the blocks were retired cannot reach them.
        let begun = Instant::now();
        for round in 0.. {
            reclaim::collect();
            self.release_blocks(compactor);
            if !compactor.retire_queue.waits_for_readers() {
                // Do not wait: a busy machine would not soon give back a CPU that is yielded.
                break;
            }
            let waiting = compactor.retire_queue.reclaimable.is_empty();
            // A thread that is pinned itself would wait for itself: its own pin keeps the grace period open.
            let patient = urgent && waiting && !reclaim::is_pinned();
            if round >= 3 && !(patient && begun.elapsed() < GRACE_MAX) {
                break;
            }
            if round >= 64 {
                // The pinned thread is not on a CPU, or a group is open.
                duramen_log::sync::thread::sleep(Duration::from_micros(200));
            } else if urgent {
                duramen_log::sync::thread::yield_now();
            }
        }
        let mut ready = std::mem::take(&mut compactor.retire_queue.reclaimable);
        if ready.is_empty() {
            return;
        }
        let last = ready.iter().map(|r| r.epoch).max().unwrap_or(0);
        while self.log().epochs().in_use() && self.log().epochs().committed().0 <= last {
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
