//! The schedule of the store's own thread: compaction, sweeps, verification, growth, commits, checkpoints.

use crate::Result;
use crate::compact::compactor::Compactor;
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use crate::options::DEAD_PERCENT;
use crate::table::retired::{Left, Until};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::time::Instant;
use duramen_media::{Granularity, Medium};
use std::time::Duration;

/// A block is worth moving when at least this share of it, in percent, is dead.
pub(crate) const DEAD_PERCENT_MIN: u64 = 5;
/// While nobody writes, compaction goes on until this share of the used space is dead, and space can be given back.
const RESTING_DEAD_PERCENT: u32 = 10;
/// Each copier more is for so many percent of the used space.
const COPIER_PERCENT: u64 = 5;
/// Background compaction ignores this many dead bytes, however small the store is ...
const DEAD_BYTES_MIN: u64 = 256 << 10;
/// ... and, while somebody writes, nine twentieths of the store, up to this, where the medium can grow. That is less than the half at which
/// writers without space compact before they let the store grow.
const DEAD_BYTES_SPARE: u64 = 64 << 20;
/// ... which is so when the medium can be this many times larger.
const SPARE_SHARE: u64 = 16;
/// How long the compactor waits, at first, before it checks again whether readers have released retired blocks.
const GRACE_MIN: Duration = Duration::from_millis(1);
/// The longest time between two checks for work.
const TICK: Duration = Duration::from_millis(100);
/// How long due work may be put off while writers compact.
const PUT_OFF_MAX: Duration = Duration::from_secs(1);
/// While there is room the thread rests after each round for as long as the round took, at most this.
const REST_MAX: Duration = Duration::from_millis(1);
/// A block's first expiry is noted in whole seconds, later by less than this.
const EXPIRY_ROUNDED: Duration = Duration::from_secs(1);

impl<M: Medium> Maintenance<M> {
    /// Begins with the work that recovery does when it reads all records, and did not do: expire keys, and verify if
    /// `verifies`.
    pub(crate) fn begin(&self, verifies: bool) {
        let mut compactor = self.compactor();
        if verifies {
            compactor.verify_at = Some(0);
            self.compaction.unverified_extents.store(self.log().space().extents().into(), Relaxed);
        }
        compactor.sweeping = self.sweep(&mut compactor, EXPIRY_ROUNDED);
    }

    /// Releases the compactor's own block and frees retired blocks, at close: the store has no handle left.
    pub(crate) fn end(&self) {
        let mut compactor = self.compactor();
        // An index checkpoint that is written after this contains no dead records.
        self.reclaim_tables(&mut compactor, Until::Closed);
        compactor.copier.appender.put_aside(self.log());
        self.all_left(&mut compactor);
        self.reclaim(&mut compactor, false);
    }

    /// Whether enough is dead for background compaction to run.
    pub(crate) fn wants_compaction(&self) -> bool {
        self.copiers_wanted() > 0
    }

    /// How many copiers background compaction should have, 0 if too little is dead: one more for each
    /// [`COPIER_PERCENT`] of the used space that is dead beyond what may be. So there are as many as keep up with the
    /// writers.
    fn copiers_wanted(&self) -> usize {
        // Without blocks that were compacted already and wait for their readers.
        let dead = self.log().epochs().totals().dead_bytes;
        let dead = dead.saturating_sub(self.compaction.retired_bytes.load(Relaxed));
        let used = self.log().used_bytes();
        let used =
            used.saturating_sub(self.compaction.retired_extents.load(Relaxed) * self.log().extent_bytes);
        let is_resting = self.compaction.is_resting.load(Relaxed);
        let spare = || if is_resting { 0 } else { self.dead_bytes_spare(used) };
        let least = match self.records.tuning.compaction_bytes_min {
            Some(least) => least,
            None => DEAD_BYTES_MIN.max(16 * self.log().extent_bytes).max(spare()),
        };
        let percent = match is_resting {
            true => self.compaction.dead_percent.min(RESTING_DEAD_PERCENT),
            false => self.compaction.dead_percent,
        };
        let is_enough = dead > least && dead * 100 > used * u64::from(percent);
        if !is_enough {
            return 0;
        }
        if let Some(copiers) = self.records.tuning.copiers_in_turn {
            return copiers;
        }
        let may_be = least.max(used * u64::from(percent) / 100);
        let more = dead.saturating_sub(may_be) * 100 / (used * COPIER_PERCENT).max(1);
        // Nobody waits for space at rest, and eviction makes the space of a cache.
        let is_one = is_resting || self.evictor.eviction().is_some();
        if is_one { 1 } else { (more as usize).saturating_add(1).min(self.compaction.copiers_max) }
    }

    /// How many bytes of a small store may be dead, whatever share is allowed. Otherwise compaction would move all its
    /// live records again and again to save a few megabytes. They count where the medium is small or full, or the share
    /// was lowered.
    pub(crate) fn dead_bytes_spare(&self, used: u64) -> u64 {
        if self.growth.has_ever_failed() || self.compaction.dead_percent < DEAD_PERCENT {
            return 0;
        }
        let limit = match u64::from(self.log().space().limit()) * self.log().extent_bytes {
            0 => u64::MAX,
            limit => limit,
        };
        (used / 20 * 9).min(DEAD_BYTES_SPARE).min(self.log().medium.len_max().min(limit) / SPARE_SHARE)
    }

    /// One round of maintenance; see [`crate::StoreOn::maintain`].
    pub(crate) fn maintain(&self) -> Result<()> {
        self.leave_checkpoint(&|| false)?;
        // It commits too.
        self.checkpoint_if_due()?;
        if self.log().durable.interval().is_some()
            && self.log().epochs().in_use()
            && self.log().epochs().wrote()
        {
            self.log().commit()?;
        }
        self.maintain_space(true, false)?;
        while self.evict_ahead()? {}
        self.log().durable.persist_time(&self.log().medium)
    }

    /// Compacts and reclaims once, and sweeps if `sweep` or if the last sweep is unfinished. Returns whether there is
    /// more to do. `None`, and nothing done, while a writer compacts, unless it `waits` for that.
    pub(crate) fn maintain_space(&self, sweep: bool, waits: bool) -> Result<Option<bool>> {
        let compactor = if waits { Some(self.compactor()) } else { self.compactor_if_free() };
        let Some(mut compactor) = compactor else { return Ok(None) };
        if sweep || compactor.sweeping {
            compactor.sweeping = self.sweep(&mut compactor, Duration::ZERO);
        }
        let mut more = self.reclaim_tables(&mut compactor, Until::Part) == Left::More;
        let copiers = self.copiers_wanted();
        if copiers > 0 {
            // If nothing could be moved there is nothing more to do, until space is freed otherwise.
            let retired = self.compaction.retired.load(Relaxed);
            more |= self.compact_round(&mut compactor, DEAD_PERCENT_MIN, copiers)?
                && self.compaction.retired.load(Relaxed) > retired;
        } else {
            // There will be better ones when compaction runs again.
            compactor.victims.clear();
        }
        self.mend(&mut compactor)?;
        self.recount(&mut compactor);
        self.shrink(&mut compactor);
        self.reclaim(&mut compactor, false);
        more |= self.give_space_back(&mut compactor)?;
        // Where it takes the device's time, a little in each tick.
        more |= self.verify(&mut compactor) && self.log().medium.granularity() != Granularity::Page;
        Ok(Some(more))
    }

    /// Gives back memory that indexes do not need any more, a part of it at a time.
    fn shrink(&self, compactor: &mut Compactor) {
        for table in self.records.tables.all() {
            let from = compactor.shrink_at.remove(&table.owner);
            if let Some(next) = table.index.shrink_from(from) {
                compactor.shrink_at.insert(table.owner, next);
            }
        }
    }

    /// Grows before writers need it, so that they seldom wait for it.
    pub(crate) fn grow_ahead(&self) {
        let is_low = || Growth::is_low(self.log(), &self.log().space());
        while is_low() && !self.wants_compaction() && !self.wake.stop.load(Relaxed) {
            // The writer that finds no space gets the error.
            if !self.growth.grow(self.log(), 1).unwrap_or(false) || self.growth.is_awaited() {
                return;
            }
        }
    }

    /// The loop of the store's own thread, until it is stopped.
    pub(crate) fn run_background(&self) {
        if self.log().durable.interval().is_none() {
            duramen_media::process::yield_to_wakers();
        }
        let poisoning = self.log().epochs().poisoning();
        let mut rounds = Rounds::begin();
        while !self.wake.stop.load(Relaxed) {
            let pause = self.run_round(&mut rounds);
            self.wake
                .no_progress
                .store(rounds.makes_no_progress && self.is_short(&self.log().space()), Relaxed);
            rounds.hurried = self.wake.rest(pause);
        }
        poisoning.over();
    }

    /// Does the work that is due; returns how long the thread may rest then. A failure poisons the store, and writers
    /// get the error.
    fn run_round(&self, rounds: &mut Rounds) -> Duration {
        let interval = self.log().durable.interval().filter(|_| self.log().epochs().in_use());
        if interval.is_some_and(|interval| rounds.committed.elapsed() >= interval) {
            rounds.committed = Instant::now();
            if self.log().epochs().wrote() {
                let _ = self.log().commit();
            }
        }
        self.grow_ahead();
        if rounds.unread {
            let is_due = || interval.is_some_and(|interval| rounds.committed.elapsed() >= interval);
            let _ = self.leave_checkpoint(&|| self.wake.stop.load(Relaxed) || is_due());
            rounds.unread = self.records.tables.pages_left() > 0;
        }
        let begun = Instant::now();
        let moved = self.compaction.moved_bytes.load(Relaxed);
        let due = rounds.looked.elapsed() >= TICK;
        rounds.put_off = false;
        // Writers that run low wake this thread: for growth, or to remove an obstacle to it.
        if rounds.more || due || rounds.waits || rounds.hurried && self.wants_compaction() {
            // Waiting for a writer delays commits.
            let waits = interval.is_none() && rounds.looked.elapsed() >= PUT_OFF_MAX;
            let more = self.maintain_space(due, waits).unwrap_or(Some(false));
            rounds.put_off = due && more.is_none();
            rounds.more = more.unwrap_or(false);
            // Compaction may have been in the way of growth.
            self.grow_ahead();
        }
        let evicts = self.evict_ahead().unwrap_or(false);
        if due {
            if !rounds.put_off {
                rounds.looked = begun;
            }
            self.fit_reads();
            let _ = self.checkpoint_if_due();
            if self.log().epochs().check_writable().is_err() {
                self.log().mark_unverified();
            }
        }
        if rounds.reported_at.elapsed() >= Duration::from_secs(1) {
            rounds.reported_at = Instant::now();
            let _ = self.log().durable.persist_time(&self.log().medium);
        }
        rounds.makes_no_progress = !rounds.more && !evicts;
        let moved = self.compaction.moved_bytes.load(Relaxed) - moved;
        let mut pause = self.pause_of(rounds, evicts);
        // On a shared processor, a writer then waits no longer than one round takes.
        if rounds.more && !rounds.hurried && !self.is_short(&self.log().space()) {
            pause = begun.elapsed().min(REST_MAX);
        }
        if rounds.more && self.compaction.bytes_per_second > 0 {
            let due = Duration::from_secs_f64(moved as f64 / self.compaction.bytes_per_second as f64);
            pause = due.saturating_sub(begun.elapsed());
        }
        interval.map_or(pause, |interval| pause.min(interval.saturating_sub(rounds.committed.elapsed())))
    }

    /// How long the thread may rest, as far as space is concerned. Retired blocks are free as soon as their readers
    /// have left: mostly at once, but readers do not report it.
    fn pause_of(&self, rounds: &mut Rounds, evicts: bool) -> Duration {
        rounds.waits = self.compaction.retired.load(Relaxed) > 0;
        rounds.grace = if rounds.waits && !rounds.hurried { (2 * rounds.grace).min(TICK) } else { GRACE_MIN };
        match () {
            () if rounds.more || rounds.unread || evicts => Duration::ZERO,
            () if rounds.put_off => GRACE_MIN,
            () if rounds.waits => rounds.grace,
            () => TICK,
        }
    }
}

/// When the store's own thread did each kind of work, and the work that it knows to be left.
struct Rounds {
    committed: Instant,
    reported_at: Instant,
    looked: Instant,
    /// There is more to compact, there are pages of an index checkpoint to read, or blocks to free.
    more: bool,
    unread: bool,
    waits: bool,
    /// How long the thread waits for the retired blocks.
    grace: Duration,
    /// The work of a tick is due, and a writer was in its way.
    put_off: bool,
    /// Another thread woke this one.
    hurried: bool,
    /// Nothing was gained, and nothing more can be.
    makes_no_progress: bool,
}

impl Rounds {
    fn begin() -> Self {
        let now = Instant::now();
        Self {
            committed: now,
            reported_at: now,
            looked: now,
            more: false,
            unread: true,
            waits: false,
            grace: GRACE_MIN,
            put_off: false,
            hurried: false,
            makes_no_progress: false,
        }
    }
}
