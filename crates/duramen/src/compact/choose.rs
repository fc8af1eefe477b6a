//! Selection of the blocks to move out of: rounds of compaction.

use crate::Result;
use crate::compact::beside::BLOCKS_EACH;
use crate::compact::compactor::{Compactor, ROUND_BYTES};
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use duramen_log::blocks::{Use, room_won};
use duramen_log::format::{Extent, block};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashSet;

/// One choice selects one in this many of the extents that it looks at.
const CHOOSE_SHARE: u32 = 64;

impl<M: Medium> Maintenance<M> {
    /// One round: the best victims, [`ROUND_BYTES`] or one block of them; more with several copiers, which work only
    /// where there is room enough. False when no block is worth it.
    pub(crate) fn compact_round(
        &self,
        compactor: &mut Compactor,
        dead_percent_min: u64,
        copiers: usize,
    ) -> Result<bool> {
        self.log().epochs().check_writable()?;
        // Moving out of a block that stays takes room and frees none. Where there is room enough it is done all the
        // same: most kept values are released before the block's grace period is past.
        let is_low = Growth::is_low(self.log(), &self.log().space());
        let held = if is_low { self.pinned_extents() } else { HashSet::new() };
        if !self.has_victim(compactor, dead_percent_min) {
            self.choose(compactor, dead_percent_min, copiers, &held);
        }
        if compactor.victims.is_empty() && !compactor.unmovable.is_empty() {
            compactor.unmovable.clear();
            self.choose(compactor, dead_percent_min, copiers, &held);
        }
        let mut total = 0;
        if copiers > 1 && !is_low {
            total = self.compact_beside(compactor, copiers, dead_percent_min)?;
        }
        while total < ROUND_BYTES && self.has_victim(compactor, dead_percent_min) {
            let Some(&extent) = compactor.victims.last() else { break };
            if held.contains(&extent) {
                compactor.victims.pop();
                continue;
            }
            let bytes = self.log().blocks.at(extent).tail();
            if total > 0 && total + bytes > ROUND_BYTES {
                break;
            }
            total += bytes;
            compactor.victims.pop();
            let live = u64::from(self.log().blocks.at(extent).live_sealed());
            let extents = self.log().blocks.at(extent).extents();
            if !self.fits_own(compactor, live, extents) && !self.restore_spare(compactor) {
                compactor.unmovable.push(extent);
                continue;
            }
            if !self.log().blocks.at(extent).retire() {
                continue;
            }
            if !self.move_out(compactor, extent, None)? {
                // Not again before there is more room; other blocks may be smaller.
                compactor.unmovable.push(extent);
            }
        }
        self.restore_spare(compactor);
        self.compaction.rounds.fetch_add(u64::from(total > 0), Relaxed);
        Ok(total > 0)
    }

    /// Drops victims that no longer qualify; returns whether one is left. It is the last of the list.
    pub(crate) fn has_victim(&self, compactor: &mut Compactor, dead_percent_min: u64) -> bool {
        while let Some(&extent) = compactor.victims.last() {
            if self.dead_of(extent, dead_percent_min).is_some() {
                return true;
            }
            compactor.victims.pop();
        }
        false
    }

    /// The bytes of a block that records take or could take, and how many of them are live, if it is sealed and enough
    /// of it is dead.
    fn dead_of(&self, extent: Extent, dead_percent_min: u64) -> Option<(u64, u64)> {
        let block = self.log().blocks.at(extent);
        if block.state() != Use::Sealed || block.is_pinned() {
            return None;
        }
        let tail = block.tail().max(block::HEADER_BYTES);
        let room = room_won(self.log().blocks.bytes(block), tail);
        let bytes = (tail - block::HEADER_BYTES + room).max(1);
        let live = u64::from(block.live_sealed()).min(bytes);
        let is_dead = live < bytes && (bytes - live) * 100 >= bytes * dead_percent_min;
        is_dead.then_some((bytes, live))
    }

    /// Chooses the sealed blocks with the best ratio of benefit to cost, the best one last: of the whole store, or of
    /// the next part of a large one that has any. As many as one round may move if each is half full; of a large part
    /// enough for many rounds.
    fn choose(
        &self,
        compactor: &mut Compactor,
        dead_percent_min: u64,
        copiers: usize,
        held: &HashSet<Extent>,
    ) {
        let (newest, extents) = {
            let space = self.log().space();
            (space.generation_now(), space.extents())
        };
        let part = self.records.tuning.choose_extents.max(1);
        let (mut candidates, mut looked) = (Vec::new(), 0);
        while candidates.is_empty() && looked < extents {
            // A part may begin within a block: the extents up to the next one look free.
            let from = if compactor.choose_at < extents { compactor.choose_at } else { 0 };
            let to = from.saturating_add(part).min(extents);
            (compactor.choose_at, looked) = (to, looked + (to - from));
            for (extent, block, _) in self.log().blocks.walk(from..to) {
                if let Some((bytes, live)) = self.dead_of(extent, dead_percent_min)
                    && !compactor.unmovable.contains(&extent)
                    && !held.contains(&extent)
                {
                    // Rosenblum and Ousterhout's (1 - u) × age / (1 + u), in integers.
                    let age = newest.0.saturating_sub(block.generation().0).min(1 << 32) + 1;
                    let score = u128::from(bytes - live) * u128::from(age) * 1024 / u128::from(bytes + live);
                    candidates.push((score, extent));
                }
            }
        }
        let best = |&(score, extent): &(u128, Extent)| (std::cmp::Reverse(score), extent);
        let share = part.min(extents) / CHOOSE_SHARE;
        let most = (2 * ROUND_BYTES / self.log().extent_bytes + 1).max(u64::from(share)) as usize;
        let most = most.max(2 * copiers * BLOCKS_EACH);
        if candidates.len() > most {
            candidates.select_nth_unstable_by_key(most, best);
            candidates.truncate(most);
        }
        candidates.sort_unstable_by_key(best);
        compactor.victims = candidates.iter().rev().map(|&(_, extent)| extent).collect();
    }
}
