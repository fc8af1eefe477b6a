//! Selection of the blocks to move out of: rounds of compaction.

use crate::Result;
use crate::compact::beside::BLOCKS_EACH;
use crate::compact::compactor::{Compactor, ROUND_BYTES};
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use duramen_log::blocks::{Class, Use};
use duramen_log::format::Extent;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashSet;
use std::ops::ControlFlow;

/// One choice selects one in this many of the extents that it looks at.
const CHOOSE_SHARE: u32 = 64;
/// Where there are no other victims, so many blocks come back that were put off: some 0.1 ms.
pub(crate) const BROUGHT_BACK_MAX: usize = 4096;

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
            if compactor.victims.is_empty() && self.bring_back(compactor, BROUGHT_BACK_MAX) {
                self.choose(compactor, dead_percent_min, copiers, &held);
            }
        }
        let mut total = 0;
        if copiers > 1 && !is_low {
            total = self.compact_beside(compactor, copiers, dead_percent_min)?;
        }
        while total < ROUND_BYTES && self.has_victim(compactor, dead_percent_min) {
            let Some(&extent) = compactor.victims.last() else { break };
            if held.contains(&extent) {
                compactor.victims.pop();
                self.put_off(compactor, extent);
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
                self.put_off(compactor, extent);
                continue;
            }
            if !self.log().blocks.at(extent).retire() {
                continue;
            }
            if !self.move_out(compactor, extent, None)? {
                // Not again before there is more room; other blocks may be smaller.
                self.put_off(compactor, extent);
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

    /// No choice finds the block until others were freed, or there is no other victim.
    pub(crate) fn put_off(&self, compactor: &mut Compactor, extent: Extent) {
        self.log().blocks.put_off(extent);
        compactor.put_off.push_back(extent);
    }

    /// Lists so many of the blocks that were put off again, those of longest ago; returns whether there were any.
    pub(crate) fn bring_back(&self, compactor: &mut Compactor, most: usize) -> bool {
        let most = most.min(compactor.put_off.len());
        compactor.put_off.drain(..most).for_each(|extent| self.log().blocks.bring_back(extent));
        most > 0
    }

    /// The bytes of a block that records take or could take, and how many of them are live, if it is sealed and enough
    /// of it is dead.
    fn dead_of(&self, extent: Extent, dead_percent_min: u64) -> Option<(u64, u64)> {
        let block = self.log().blocks.at(extent);
        if block.state() != Use::Sealed || block.is_pinned() {
            return None;
        }
        let (bytes, live) = self.log().blocks.gain_of(block);
        let is_dead = live < bytes && (bytes - live) * 100 >= bytes * dead_percent_min;
        is_dead.then_some((bytes, live))
    }

    /// Chooses sealed blocks with the best ratio of benefit to cost, the best one last: of all that qualify, or in a
    /// large store of those with the largest dead share, at the end of the medium. As many as one round may move if
    /// each is half full; of a large store enough for many rounds.
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
        let looked_most = self.records.tuning.choose_extents.max(1);
        let (mut candidates, mut put_off) = (Vec::new(), Vec::new());
        let least = Class::of_percent(dead_percent_min);
        self.log().blocks.look(least, false, looked_most as usize, |extent, block| {
            if block.is_pinned() || held.contains(&extent) {
                put_off.push(extent);
            } else if let Some((bytes, live)) = self.dead_of(extent, dead_percent_min) {
                // Rosenblum and Ousterhout's (1 - u) × age / (1 + u), in integers.
                let age = newest.0.saturating_sub(block.generation().0).min(1 << 32) + 1;
                let score = u128::from(bytes - live) * u128::from(age) * 1024 / u128::from(bytes + live);
                candidates.push((score, extent));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        put_off.into_iter().for_each(|extent| self.put_off(compactor, extent));
        // The end of the medium first: space is given back there.
        let best = |&(score, extent): &(u128, Extent)| std::cmp::Reverse((score, extent));
        let share = looked_most.min(extents) / CHOOSE_SHARE;
        let most = (2 * ROUND_BYTES / self.log().extent_bytes + 1).max(u64::from(share)) as usize;
        let most = most.max(2 * copiers * BLOCKS_EACH);
        if candidates.len() > most {
            candidates.select_nth_unstable_by_key(most, best);
            candidates.truncate(most);
        }
        candidates.sort_unstable_by_key(best);
        // A block whose class rises meanwhile may be there twice: `has_victim` drops it the second time.
        compactor.victims = candidates.iter().rev().map(|&(_, extent)| extent).collect();
    }
}
