//! Space for a writer that found none: dead records are compacted at once, however few, and blocks with much room are
//! packed together.

use crate::Result;
use crate::compact::choose::BROUGHT_BACK_MAX;
use crate::compact::compactor::{Compactor, GRACE_MAX, ROUND_BYTES};
use crate::maintenance::Maintenance;
use duramen_log::blocks::{Class, Use};
use duramen_log::format::superblock::Regime;
use duramen_log::format::{Extent, block};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

/// Without space, blocks with at least this share of room are packed: twice the room of a full block.
const PACK_SHARE: u64 = 4;
/// A block with that share of room, and less than a fifth after its records, has at least so many percent of dead bytes:
/// see `Blocks::look`.
const PACK_DEAD_PERCENT: u64 = 5;
/// Filling the compactor's own block, and clearing a run, look at so many times the extents of one search: 65,536, in a
/// millisecond.
const WINDOW_SEARCHES: u32 = 8;

/// The result of packing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    /// More is free.
    Gained,
    /// Records moved, and no more is free.
    InVain,
    /// Nothing to move, or a move since blocks were last freed had no effect.
    Nothing,
}

impl<M: Medium> Maintenance<M> {
    /// Compacts once, for a writer that found no space; returns whether that freed any. The caller must not be pinned,
    /// or nothing can be freed.
    pub(crate) fn compact_now(&self) -> bool {
        let mut compactor = self.compactor();
        let before = self.compaction.freed_extents.load(Relaxed);
        // Blocks moved out of may be free since. A round would take them for its copies, and with `Manual` leave the
        // writer nothing.
        self.reclaim(&mut compactor, true);
        if self.compaction.freed_extents.load(Relaxed) > before {
            return true;
        }
        for _ in 0..4 {
            // Dead tables may hold all the space there is.
            self.reclaim_all_tables(&mut compactor, GRACE_MAX);
            // First the blocks that are worth it, then any dead bytes.
            let worked = self.compact_round(&mut compactor, 1, 1).unwrap_or(false)
                || self.compact_round(&mut compactor, 0, 1).unwrap_or(false);
            self.reclaim(&mut compactor, true);
            if self.compaction.freed_extents.load(Relaxed) > before {
                return true;
            }
            if worked {
                continue;
            }
            if self.commit_transactions() || self.recount_for_writer(&mut compactor) {
                continue;
            }
            let packed = self.pack(&mut compactor).unwrap_or(Packed::Nothing);
            // Copies fill the room of open blocks and seal them: their dead records make them victims now.
            if packed != Packed::InVain {
                return packed == Packed::Gained;
            }
        }
        // Only if four rounds failed; packing that failed is not repeated.
        self.pack(&mut compactor).is_ok_and(|packed| packed == Packed::Gained)
    }

    /// Commits, so that blocks of finished transactions are unpinned. The blocks of a transaction that spans several
    /// are pinned until a commit after it ended, also if it aborted (`log::finalizing`). A writer that finds no room
    /// writes nothing that would cause that commit. False when no transaction waits for it, or only the caller commits.
    fn commit_transactions(&self) -> bool {
        let log = self.log();
        if log.finalize_transactions() || log.epochs().regime() == Regime::Manual {
            return false;
        }
        // One commit makes the commit record durable, and another the headers.
        (0..2).all(|_| log.finalize_transactions() || log.commit().is_ok())
    }

    /// Moves out of blocks that were sealed with much room left. A close or a crash does that to every open block, and
    /// in a small store a few of them hold all the space.
    fn pack(&self, compactor: &mut Compactor) -> Result<Packed> {
        if compactor.pack_gained_nothing {
            return Ok(Packed::Nothing);
        }
        self.log().epochs().check_writable()?;
        let free = self.log().space().free_extents();
        let held = self.pinned_extents();
        self.bring_back(compactor, BROUGHT_BACK_MAX);
        let mut roomy = Vec::new();
        // A block with so much room has dead records, or was sealed with much room.
        let (least, most) = (Class::of_percent(PACK_DEAD_PERCENT), self.records.tuning.choose_extents.max(1));
        self.log().blocks.look(least, true, most as usize, |extent, block| {
            let bytes = self.log().blocks.bytes(block);
            let room = bytes.saturating_sub(block::HEADER_BYTES + u64::from(block.live_sealed()));
            if room < bytes / PACK_SHARE || block.is_pinned() || held.contains(&extent) {
                return ControlFlow::Continue(());
            }
            roomy.push((room, bytes, extent));
            ControlFlow::Break(())
        });
        roomy.sort_unstable_by_key(|&(room, bytes, _)| std::cmp::Reverse(room * 1024 / bytes));
        let (mut moved, mut gain) = (0, 0);
        for (room, bytes, extent) in roomy {
            if moved >= ROUND_BYTES || gain >= 4 * self.log().extent_bytes {
                break;
            }
            if self.log().blocks.at(extent).retire() && self.move_out(compactor, extent, None)? {
                (moved, gain) = (moved + bytes - room, gain + room);
            }
        }
        if gain < 4 * self.log().extent_bytes {
            moved += self.fill_own(compactor, &held)?;
        }
        self.reclaim(compactor, true);
        let gained = self.log().space().free_extents() > free;
        compactor.pack_gained_nothing = !gained;
        Ok(match (gained, moved) {
            (true, _) => Packed::Gained,
            (false, 0) => Packed::Nothing,
            (false, _) => Packed::InVain,
        })
    }

    fn window(&self) -> u32 {
        self.records.tuning.choose_extents.max(1).saturating_mul(WINDOW_SEARCHES)
    }

    /// Fills the compactor's own block with the live records of whole other blocks, which frees their extents and takes
    /// none. Returns the bytes moved. That block is open, so no other writer would use its room.
    fn fill_own(&self, compactor: &mut Compactor, held: &HashSet<Extent>) -> Result<u64> {
        let room = compactor.copier.appender.room();
        let (extents, mut looked, mut moved) = (self.log().space().extents(), 0, 0);
        // The next part of a large store where that helps.
        while looked < extents && moved == 0 {
            let from = if compactor.fill_at < extents { compactor.fill_at } else { 0 };
            let to = from.saturating_add(self.window()).min(extents);
            (compactor.fill_at, looked) = (to, looked + (to - from));
            let mut fitting = Vec::new();
            for (extent, block, state) in self.log().blocks.walk(from..to) {
                let live = u64::from(block.live_sealed());
                if state == Use::Sealed && live <= room && !block.is_pinned() && !held.contains(&extent) {
                    fitting.push((live, extent));
                }
            }
            fitting.sort_unstable_by_key(|&(live, _)| std::cmp::Reverse(live));
            for (live, extent) in fitting {
                if self.fits_own(compactor, live, self.log().blocks.at(extent).extents())
                    && self.log().blocks.at(extent).retire()
                    && self.move_out(compactor, extent, None)?
                {
                    moved += live;
                }
            }
        }
        Ok(moved)
    }

    /// Makes `extents` extents adjoin, by moving the live records between them elsewhere; returns whether they do.
    ///
    /// Chooses the run with the fewest live bytes, of all runs that contain only free extents and movable blocks. Its
    /// free extents are withheld meanwhile, so that nothing is moved into it.
    pub(crate) fn clear_run(&self, extents: u32) -> bool {
        if self.log().epochs().check_writable().is_err() {
            return false;
        }
        self.clear(&mut self.compactor(), extents)
    }

    /// Restores the spare extents that the last move may have used: the moved records go back to the place that they
    /// came from, which is free now. False when that is not free yet, because a reader may still use it or its epoch is
    /// not committed.
    pub(crate) fn restore_spare(&self, compactor: &mut Compactor) -> bool {
        if self.log().space().has_spare() {
            return true;
        }
        self.reclaim(compactor, true);
        if self.log().space().has_spare() {
            return true;
        }
        if compactor.retire_queue.is_awaited() {
            return false;
        }
        compactor.copier.appender.seal(self.log());
        let spare = self.log().space().ample_extents_max();
        self.clear(compactor, spare);
        // If the spare cannot be had although nothing is waited for, the compactor works with the space that there is.
        true
    }

    /// Whether the compactor's own block has room for `live` bytes of a block of `extents` extents, and the spare can
    /// be restored afterwards. Without a spare, the own block with these bytes must fit one run.
    pub(crate) fn fits_own(&self, compactor: &Compactor, live: u64, extents: u32) -> bool {
        if live > compactor.copier.appender.room() {
            return false;
        }
        let all = self.log().extents_for(compactor.copier.appender.filled() + live);
        let space = self.log().space();
        space.has_spare() || all <= space.run_max().max(extents)
    }

    fn clear(&self, compactor: &mut Compactor, extents: u32) -> bool {
        if self.log().space().run_max() >= extents {
            return true;
        }
        let Some((from, to)) = self.clearable(compactor, extents) else { return false };
        let withheld = self.log().space().withhold(from, to);
        for (extent, block, state) in self.log().blocks.walk(from..to) {
            let is_moved = state == Use::Sealed
                && block.retire()
                && self.move_out(compactor, extent, None).unwrap_or(false);
            if state == Use::Sealed && !is_moved {
                break;
            }
        }
        self.reclaim(compactor, true);
        let mut space = self.log().space();
        withheld.into_iter().for_each(|(extent, extents)| space.give(extent, extents));
        space.run_max() >= extents
    }

    /// The run of `extents` adjoining extents that can be cleared at the least cost: of the store, or of the next part of
    /// a large one that has any.
    fn clearable(&self, compactor: &mut Compactor, extents: u32) -> Option<(u32, u32)> {
        let all = self.log().space().extents();
        let held = self.pinned_extents();
        let mut looked = 0;
        while looked < all {
            let from = if compactor.clear_at < all { compactor.clear_at } else { 0 };
            let to = from.saturating_add(self.window()).min(all);
            // The next part begins within this one, so that no run is in none of them.
            compactor.clear_at = if to < all { to - extents.min((to - from) / 2) } else { to };
            looked += compactor.clear_at - from;
            if let Some(run) = self.clearable_in(from..to, extents, &held) {
                return Some(run);
            }
        }
        None
    }

    /// The same within a part of the store.
    fn clearable_in(&self, part: Range<u32>, extents: u32, held: &HashSet<Extent>) -> Option<(u32, u32)> {
        /// The block or free run that begins at one extent.
        struct Part {
            from: u32,
            to: u32,
            /// Extents that its live records take elsewhere.
            cost: u32,
            free: u32,
        }
        let (runs, by_length, free, most) = {
            let space = self.log().space();
            // A run of so many extents contains fewer of the longest free runs than these.
            let by_length = space.longest_runs(extents as usize + 1);
            (space.runs_from(part.clone()), by_length, space.free_extents(), space.ample_extents_max())
        };
        let mut parts: Vec<Part> = runs
            .into_iter()
            .map(|(start, length)| Part { from: start, to: start + length, cost: 0, free: length })
            .collect();
        for (extent, block, state) in self.log().blocks.walk(part) {
            let live = u64::from(block.live_sealed());
            if state == Use::Sealed && (block.extents() <= most || live == 0) && !held.contains(&extent) {
                let cost = if live == 0 { 0 } else { self.log().extents_for(live) };
                parts.push(Part { from: extent.0, to: extent.0 + block.extents(), cost, free: 0 });
            }
        }
        // Both kinds are in order, and the stable sort merges two such runs in linear time.
        parts.sort_by_key(|part| part.from);
        let mut best: Option<(u32, u32, u32)> = None;
        let (mut first, mut cost, mut inside) = (0, 0, 0);
        for at in 0..parts.len() {
            if at > 0 && parts[at].from != parts[at - 1].to {
                (first, cost, inside) = (at, 0, 0);
            }
            (cost, inside) = (cost + parts[at].cost, inside + parts[at].free);
            while parts[at].to - parts[first].to >= extents {
                (cost, inside) = (cost - parts[first].cost, inside - parts[first].free);
                first += 1;
            }
            let is_run = parts[at].to - parts[first].from >= extents;
            if is_run && cost <= free - inside && best.is_none_or(|(least, ..)| cost < least) {
                // Records that are moved in one piece need a run elsewhere.
                let window = parts[first].from..parts[at].to;
                let piece = parts[first..=at].iter().map(|part| part.cost).max().unwrap_or(0);
                let outside = by_length.iter().find(|(from, _)| !window.contains(from));
                if piece <= outside.map_or(0, |&(_, length)| length) {
                    best = Some((cost, window.start, window.end));
                }
            }
        }
        best.map(|(_, from, to)| (from, to))
    }
}
