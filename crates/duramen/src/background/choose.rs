//! Which blocks are moved out of, and when: rounds of compaction.

use super::Keeper;
use super::compaction::{Mover, ROUND_BYTES};
use super::grow::Growth;
use crate::Result;
use crate::format::{Granule, block};
use crate::log::blocks::{Use, room_won};
use crate::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashSet;

/// Of the granules of a store, one in this many is chosen at once.
const CHOOSE_SHARE: u32 = 64;

impl<M: Medium> Keeper<M> {
    /// One round: the best victims, [`ROUND_BYTES`] or one block of them. False when nothing is worth it.
    pub(super) fn compact_round(&self, mover: &mut Mover, dead_percent_min: u64) -> Result<bool> {
        self.log().epochs().check_writable()?;
        // To move out of a block that stays takes room and frees none. Where there is room enough it is done all the same: most values are
        // gone before the block's moment is past.
        let is_low = Growth::is_low(self.log(), &self.log().space());
        let held = if is_low { self.held() } else { HashSet::new() };
        if !self.has_victim(mover, dead_percent_min) {
            mover.victims = self.choose(dead_percent_min, &mover.unmovable, &held);
        }
        if mover.victims.is_empty() && !mover.unmovable.is_empty() {
            mover.unmovable.clear();
            mover.victims = self.choose(dead_percent_min, &[], &held);
        }
        let mut total = 0;
        while self.has_victim(mover, dead_percent_min) {
            let Some(&granule) = mover.victims.last() else { break };
            if held.contains(&granule) {
                mover.victims.pop();
                continue;
            }
            let bytes = self.log().blocks.at(granule).tail();
            if total > 0 && total + bytes > ROUND_BYTES {
                break;
            }
            total += bytes;
            mover.victims.pop();
            let live = u64::from(self.log().blocks.at(granule).live_sealed());
            let granules = self.log().blocks.at(granule).granules();
            if !self.fits_own(mover, live, granules) && !self.restore_spare(mover) {
                mover.unmovable.push(granule);
                continue;
            }
            if !self.log().blocks.at(granule).retire() {
                continue;
            }
            if !self.move_out(mover, granule, None)? {
                // Not again before there is more room; others may be smaller.
                mover.unmovable.push(granule);
            }
        }
        self.restore_spare(mover);
        self.compaction.rounds.fetch_add(u64::from(total > 0), Relaxed);
        Ok(total > 0)
    }

    /// Forgets victims that are none any more; whether one is left. It is the last.
    fn has_victim(&self, mover: &mut Mover, dead_percent_min: u64) -> bool {
        while let Some(&granule) = mover.victims.last() {
            if self.dead_of(granule, dead_percent_min).is_some() {
                return true;
            }
            mover.victims.pop();
        }
        false
    }

    /// The bytes of a block that records take or could, and how many of them are live, if it is sealed and enough of it is dead.
    fn dead_of(&self, granule: Granule, dead_percent_min: u64) -> Option<(u64, u64)> {
        let block = self.log().blocks.at(granule);
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

    /// The sealed blocks with the highest benefit for their cost, the best one last. As many as one round may move if each is
    /// half full and, in a large store, for many rounds: each choice looks at every block.
    fn choose(&self, dead_percent_min: u64, unmovable: &[Granule], held: &HashSet<Granule>) -> Vec<Granule> {
        let newest = self.log().space().generation_now();
        let granules = self.log().space().granules();
        let mut candidates = Vec::new();
        for (granule, block, _) in self.log().blocks.walk(0..granules) {
            if let Some((bytes, live)) = self.dead_of(granule, dead_percent_min)
                && !unmovable.contains(&granule)
                && !held.contains(&granule)
            {
                // Rosenblum and Ousterhout's (1 - u) × age / (1 + u), in integers.
                let age = newest.0.saturating_sub(block.generation().0).min(1 << 32) + 1;
                let score = u128::from(bytes - live) * u128::from(age) * 1024 / u128::from(bytes + live);
                candidates.push((score, granule));
            }
        }
        let best = |&(score, granule): &(u128, Granule)| (std::cmp::Reverse(score), granule);
        let most =
            (2 * ROUND_BYTES / self.log().granule_bytes + 1).max(u64::from(granules / CHOOSE_SHARE)) as usize;
        if candidates.len() > most {
            candidates.select_nth_unstable_by_key(most, best);
            candidates.truncate(most);
        }
        candidates.sort_unstable_by_key(best);
        candidates.iter().rev().map(|&(_, granule)| granule).collect()
    }
}
