//! When space is given back, by itself or since a caller wants it: see [`duramen_log::given_back`] for how.

use crate::Result;
use crate::compact::compactor::{Compactor, GRACE_MAX};
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use crate::maintenance::run::DEAD_PERCENT_MIN;
use duramen_log::format::Extent;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::time::Instant;
use duramen_media::Medium;
use std::time::Duration;

/// This share of what is used stays free.
const KEPT_SHARE: u64 = 16;
/// Space is given back in pieces of at most this, since growth takes whole pieces back.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// How long a caller that wants the space waits for readers of blocks that were moved out of.
const READERS_MAX: Duration = Duration::from_secs(10);
/// Pieces that are given back in one round.
const PIECES_MAX: usize = 64;

impl<M: Medium> Maintenance<M> {
    /// Notes whether nobody has written for a while.
    fn note_rest(&self, compactor: &mut Compactor) {
        let written = self.log().epochs().written_by_writers();
        if compactor.written.0 != written {
            compactor.written = (written, Instant::now());
        }
        let rests = compactor.written.1.elapsed() >= self.records.tuning.give_back_after;
        self.compaction.is_resting.store(rests, Relaxed);
    }

    /// Gives back what has been free for a while, beyond what the store keeps. A part of it at a time; returns whether
    /// there may be more.
    pub(crate) fn give_space_back(&self, compactor: &mut Compactor) -> Result<bool> {
        let log = self.log();
        let (keep, tuning) = (self.compaction.keep_free_bytes, &self.records.tuning);
        if keep == u64::MAX || !log.medium.gives_back() || log.epochs().check_writable().is_err() {
            return Ok(false);
        }
        self.note_rest(compactor);
        let (kept, least) = self.kept_and_least();
        let is_resting = self.compaction.retired.load(Relaxed) == 0 && !self.wants_compaction();
        if !is_resting || log.space().surplus(kept) < least {
            compactor.surplus_since = None;
            return Ok(false);
        }
        let since = *compactor.surplus_since.get_or_insert_with(Instant::now);
        if since.elapsed() < tuning.give_back_after {
            return Ok(false);
        }
        self.give_surplus_back()
    }

    /// Extents that stay free, and the minimum of a piece.
    fn kept_and_least(&self) -> (u32, u32) {
        let log = self.log();
        let extents = |bytes: u64| u32::try_from(bytes.div_ceil(log.extent_bytes)).unwrap_or(u32::MAX);
        let kept = self.compaction.keep_free_bytes.max(log.used_bytes() / KEPT_SHARE);
        // With less the background thread would take it back at once.
        let kept = extents(kept).max(Growth::ahead(log, &log.space()));
        (kept, extents(self.records.tuning.give_back_bytes_min).max(2))
    }

    /// As [`Maintenance::give_space_back`], however long the space has been free.
    fn give_surplus_back(&self) -> Result<bool> {
        let (log, (kept, least)) = (self.log(), self.kept_and_least());
        if self.compaction.keep_free_bytes == u64::MAX || !log.medium.gives_back() {
            return Ok(false);
        }
        let most = u32::try_from(PIECE_BYTES_MAX / log.extent_bytes).unwrap_or(u32::MAX).max(least);
        let _growing = self.growth.pause();
        let mut pieces: Vec<(Extent, u32)> = log.space().take_surplus(kept, least, most);
        let rest = pieces.split_off(pieces.len().min(PIECES_MAX));
        rest.iter().for_each(|&(extent, extents)| log.space().give(extent, extents));
        if !pieces.is_empty() {
            log.give_back(&pieces)?;
        }
        Ok(!rest.is_empty())
    }

    /// Compacts until no block is worth it, and gives back what the store does not keep. Moves at most as many bytes
    /// as the store has: others may write meanwhile, and then there is always more.
    pub(crate) fn compact_all(&self) -> Result<()> {
        let log = self.log();
        let moved = || self.compaction.moved_bytes.load(Relaxed);
        let moved_max = moved() + log.used_bytes();
        let copiers = self.records.tuning.copiers_in_turn.unwrap_or(self.compaction.copiers_max);
        loop {
            let mut compactor = self.compactor();
            self.reclaim_all_tables(&mut compactor, GRACE_MAX);
            let retired = log.retirements.load(Relaxed);
            self.compact_round(&mut compactor, DEAD_PERCENT_MIN, copiers)?;
            self.reclaim(&mut compactor, true);
            if log.retirements.load(Relaxed) == retired || moved() > moved_max {
                let begun = Instant::now();
                while compactor.retire_queue.waits_for_readers() && begun.elapsed() < READERS_MAX {
                    self.reclaim(&mut compactor, true);
                }
                break;
            }
        }
        loop {
            let _compactor = self.compactor();
            if !self.give_surplus_back()? {
                return Ok(());
            }
        }
    }
}
