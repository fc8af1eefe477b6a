//! When the store's own thread does what: compacts, sweeps, verifies, grows, commits, writes checkpoints.

use super::*;

impl<M: Medium> Core<M> {
    /// Whether so much is dead that background compaction should run.
    pub(super) fn wants_compaction(&self) -> bool {
        // Without what was compacted already, and waits for whoever may still read it.
        let dead = self.epochs.totals().dead_bytes;
        let dead = dead.saturating_sub(self.compaction.retired_bytes.load(Relaxed));
        let used = {
            let space = self.space();
            u64::from(space.units() - space.free_units()) * self.unit_bytes
        };
        let used = used.saturating_sub(self.compaction.retired_units.load(Relaxed) * self.unit_bytes);
        let least = match self.tuning.compaction_bytes_min {
            Some(least) => least,
            None => DEAD_BYTES_MIN.max(16 * self.unit_bytes).max(self.dead_bytes_spare(used)),
        };
        dead > least && dead * 100 > used * u64::from(self.dead_percent)
    }

    /// How much may be dead of a small store, whatever the share that is allowed. It would otherwise move all that lives in it
    /// again and again to save a few megabytes; where the medium is small or has no more, or the share was lowered, they count.
    pub(super) fn dead_bytes_spare(&self, used: u64) -> u64 {
        if self.has_ever_grown_out() || self.dead_percent < DEAD_PERCENT {
            return 0;
        }
        (used / 20 * 9).min(DEAD_BYTES_SPARE).min(self.medium.len_max() / SPARE_SHARE)
    }

    /// One round of maintenance; see [`crate::StoreOn::maintain`].
    pub(crate) fn maintain(&self) -> Result<()> {
        self.leave_image(&|| false)?;
        // It commits too.
        self.checkpoint_if_due()?;
        if self.interval().is_some() && self.epochs.in_use() && self.epochs.wrote() {
            self.commit()?;
        }
        self.maintain_space(true)?;
        self.persist_time()
    }

    /// Compacts and reclaims once, and sweeps if asked or not done; whether there is more to do. Leaves it to a writer that compacts: who
    /// waits for that must not keep the commits waiting.
    pub(super) fn maintain_space(&self, sweep: bool) -> Result<bool> {
        let Ok(mut mover) = self.compaction.mover.try_lock() else { return Ok(false) };
        if sweep || mover.sweeping {
            mover.sweeping = self.sweep(&mut mover, Duration::ZERO);
        }
        let mut more = false;
        if self.wants_compaction() {
            // Where nothing could be moved there is nothing more to do, until space comes from elsewhere.
            let retired = self.compaction.retired.load(Relaxed);
            more = self.compact_round(&mut mover, DEAD_PERCENT_MIN)?
                && self.compaction.retired.load(Relaxed) > retired;
        } else {
            // Better ones will have come by the time that it is wanted again.
            mover.victims.clear();
        }
        self.mend(&mut mover)?;
        self.recount(&mut mover);
        mover.shrink_at = self.index.shrink_from(mover.shrink_at);
        self.reclaim(&mut mover, false);
        // Where it takes the device's time, a little in each tick.
        more |= self.verify(&mut mover) && self.medium.granularity() != Granularity::Page;
        Ok(more)
    }

    /// Grows ahead of the writers, so that they seldom wait for it.
    pub(super) fn grow_ahead(&self) {
        while self.is_low(&self.space()) && !self.wants_compaction() && !self.background.stop.load(Relaxed) {
            // An error comes back to the writer that finds no space.
            if !self.grow(1).unwrap_or(false) || self.is_growth_awaited() {
                return;
            }
        }
    }

    /// What the store's own thread does until it is stopped.
    pub(crate) fn run_background(&self) {
        let poisoning = self.epochs.poisoning();
        let mut committed = Instant::now();
        let mut told_time = Instant::now();
        let mut looked = Instant::now();
        let mut more = false;
        let mut unread = true;
        // Somebody woke this thread; blocks wait to be freed, and how long it waits for that.
        let (mut hurried, mut waits, mut grace) = (false, false, GRACE_MIN);
        let stopped = || self.background.stop.load(Relaxed);
        while !stopped() {
            let interval = self.interval().filter(|_| self.epochs.in_use());
            if let Some(interval) = interval
                && committed.elapsed() >= interval
            {
                committed = Instant::now();
                if self.epochs.wrote() {
                    // A failure poisons the store; writers are told.
                    let _ = self.commit();
                }
            }
            self.grow_ahead();
            if unread {
                let is_due = || interval.is_some_and(|interval| committed.elapsed() >= interval);
                // A failure poisons the store.
                let _ = self.leave_image(&|| stopped() || is_due());
                unread = self.index.pages_left() > 0;
            }
            let begun = Instant::now();
            let moved = self.compaction.moved_bytes.load(Relaxed);
            let due = looked.elapsed() >= TICK;
            // Writers that run low wake this thread: for growth, or for what stands in its way.
            if more || due || waits || hurried && self.wants_compaction() {
                more = self.maintain_space(due).unwrap_or(false);
                // Compaction may have been what stood in the way of growth.
                self.grow_ahead();
            }
            if due {
                looked = begun;
                // A failure poisons the store.
                let _ = self.checkpoint_if_due();
                if self.epochs.check_writable().is_err() {
                    self.doubt();
                }
            }
            if told_time.elapsed() >= Duration::from_secs(1) {
                told_time = Instant::now();
                // A failure poisons the store.
                let _ = self.persist_time();
            }
            // What was retired is free as soon as those have left who may read it: mostly at once, but nobody tells.
            waits = self.compaction.retired.load(Relaxed) > 0;
            grace = if waits && !hurried { (2 * grace).min(TICK) } else { GRACE_MIN };
            let mut pause = match (more || unread, waits) {
                (true, _) => Duration::ZERO,
                (false, true) => grace,
                (false, false) => TICK,
            };
            let moved = self.compaction.moved_bytes.load(Relaxed) - moved;
            if more && self.compaction.bytes_per_second > 0 {
                let due = Duration::from_secs_f64(moved as f64 / self.compaction.bytes_per_second as f64);
                pause = due.saturating_sub(begun.elapsed());
            }
            if let Some(interval) = interval {
                pause = pause.min(interval.saturating_sub(committed.elapsed()));
            }
            self.background.in_vain.store(!more && self.is_low(&self.space()), Relaxed);
            hurried = self.background.rest(pause);
        }
        poisoning.over();
    }
}
