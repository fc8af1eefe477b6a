//! Epochs: group durability where a single write cannot be made durable alone, or need not be.
//!
//! In the `Immediate` regime only [`Epochs::current`] is used, which stays at the epoch base. In the other regimes:
//!
//! ```text
//!  writer:  lock the key's stripe → enter (takes the current epoch, once the one before has ended) → append, publish in the
//!           index → leave (adds to the epoch's sum)
//!  commit:  advance the epoch → wait until no writer is in the old one → flush what it wrote →
//!           store the mark → sync (one wait for the device) → `committed`
//! ```
//!
//! Where a write waits for its epoch, `group_commit` decides which writer commits, and when.
//!
//! A crash before the sync returns may leave the mark on the medium without all records of its epoch. Recovery counts
//! the records, finds the difference, and falls back to the mark before.
//!
//! Invariants:
//! 1. Records of a committed epoch are never written to again, and their block is not freed before a
//!    later epoch is committed (else the newest mark would no longer match).
//! 2. One commit at a time; the marks alternate.
//! 3. After a failed sync, or a panic within an epoch, nothing is committed or written any more: the store is poisoned.
//!    (No line can check it after [`Epochs::check_writable`], since another thread may poison the store at any time.
//!    `a_failed_sync_that_the_kernel_reports_to_another_thread_acknowledges_nothing` does.)
//! 4. Nobody writes in an epoch before all have left the one before. Otherwise a later write, even of another key,
//!    could belong to the earlier epoch, and the state after a crash would be no prefix in time.
//! 5. A writer in an epoch locks no stripe: it locked all that it needs before. So no writer in an epoch waits for a
//!    holder of stripes, and a holder of stripes may wait for an epoch to end.

use super::group_commit::GroupCommit;
use crate::format::mark::{self, Mark};
use crate::format::record::Appended;
use crate::format::superblock::Regime;
use crate::format::{Epoch, Secret};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use crate::sync::reclaim::SeqCounter;
use crate::sync::statics::AtomicU32;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, lock, rank};
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium, process};
use std::time::Duration;

/// The state of one writer that other threads need. Two lines apart from its neighbours, since the CPU fetches lines in
/// pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct Activity {
    /// The shard of a table's counts that the writer adds to.
    pub shard: usize,
    /// Bytes of records appended. Only the owner stores to this and the next one, without atomic additions, which saves
    /// two of them for each write.
    written: AtomicU64,
    /// Bytes of superseded records and of room that compaction can gain, less those reclaimed.
    dead: AtomicI64,
    /// The epoch that the writer is in, 0 when in none.
    active: AtomicU64,
    /// Count and sum of its records, by the epoch's lowest bit.
    sums: [[AtomicU64; 2]; 2],
    /// It only copies records of other writers.
    is_copier: bool,
    /// The writer's groups: see [`Epochs::groups`].
    pub group: Arc<SeqCounter>,
    /// The writer's commands, from its first lock to its last: see [`crate::sync::barrier`].
    pub inside: Arc<SeqCounter>,
}

impl Activity {
    /// An activity with the count of recovery.
    pub fn recovered(dead_bytes: u64) -> Self {
        Self { dead: AtomicI64::new(dead_bytes as i64), ..Self::default() }
    }

    #[inline]
    pub fn written_add(&self, bytes: u64) {
        self.written.store(self.written.load(Relaxed) + bytes, Relaxed);
    }

    #[inline]
    pub fn dead_add(&self, bytes: i64) {
        self.dead.store(self.dead.load(Relaxed) + bytes, Relaxed);
    }
}

/// Dropped only by a panic: poisons the store, and takes the writer out of its epoch so that nobody waits for it.
/// Nothing is written any more, since the writer's record may be there without a slot that points to it.
#[must_use]
pub struct Unwinding<'e> {
    epochs: &'e Epochs,
    /// Not by reference: the writer is borrowed for writing in the meantime. It keeps its activity for as long as it
    /// lives.
    activity: *const Activity,
}

impl Unwinding<'_> {
    /// The writer has left its epoch.
    #[inline]
    pub fn over(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }
}

impl Drop for Unwinding<'_> {
    #[cold]
    fn drop(&mut self) {
        self.epochs.poison();
        // SAFETY: the activity belongs to the writer whose function unwinds.
        let unwound = unsafe { &*self.activity };
        if unwound.active.load(Relaxed) != 0 {
            rank::leave_epoch();
        }
        unwound.active.store(0, Release);
    }
}

/// Dropped only by a panic, like [`Unwinding`], for threads that write without being a writer: nothing is written any
/// more.
#[must_use]
pub struct Poisoning<'e>(&'e Epochs);

impl Poisoning<'_> {
    /// There was no panic.
    pub fn over(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }
}

impl Drop for Poisoning<'_> {
    #[cold]
    fn drop(&mut self) {
        self.0.poison();
        // Drop leadership; the waiters wake, see the poisoned state and return its error.
        self.0.group_commit.end(None, true);
    }
}

/// See [`Epochs::totals`].
pub struct Totals {
    pub written_bytes: u64,
    pub dead_bytes: u64,
    pub writers: u64,
}

/// Value of `forks` in a closed store, in place of a count of forks.
const CLOSED: u32 = u32::MAX;

pub struct Epochs {
    regime: Regime,
    current: AtomicU64,
    /// The last epoch that all of its writers have left.
    ended: AtomicU64,
    committed: AtomicU64,
    /// Whether a write waits for its epoch before it returns.
    wait: AtomicBool,
    /// Writes are refused: the store is poisoned or opened read-only.
    refuses: AtomicBool,
    read_only: AtomicBool,
    /// Whether anything was written since the last commit.
    wrote: AtomicBool,
    /// The first belongs to no writer: it holds the counts of recovery and of writers that have ended.
    activities: Mutex<Vec<Arc<Activity>>>,
    /// Number of writers ever registered.
    registered: AtomicU64,
    /// The slot of the next mark.
    commit: Mutex<usize, { rank::COMMIT }>,
    group_commit: GroupCommit,
    /// Nanoseconds of the syncs of all commits, and their number.
    synced: [AtomicU64; 2],
    incarnation: u32,
    secret: Secret,
    /// How often the process that opened the store had forked at that time; [`CLOSED`] when the store is closed.
    forks: AtomicU32,
}

impl Epochs {
    pub fn new(
        regime: Regime,
        wait: bool,
        base: Epoch,
        next_slot: usize,
        incarnation: u32,
        secret: Secret,
        counted: Activity,
    ) -> Self {
        assert!(base.0 > 0, "epochs begin at 1: before the first, epoch 0 is committed");
        assert!(next_slot < 2, "there are two places for marks, found number {next_slot}");
        Self {
            regime,
            current: AtomicU64::new(base.0),
            ended: AtomicU64::new(base.0 - 1),
            committed: AtomicU64::new(base.0 - 1),
            wait: AtomicBool::new(wait),
            refuses: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            wrote: AtomicBool::new(false),
            activities: Mutex::new(vec![Arc::new(counted)]),
            registered: AtomicU64::new(0),
            commit: Mutex::new(next_slot),
            group_commit: GroupCommit::default(),
            synced: [AtomicU64::new(0), AtomicU64::new(0)],
            incarnation,
            secret,
            forks: AtomicU32::new(process::forks()),
        }
    }

    /// Whether records count only with their epoch.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.regime != Regime::Immediate
    }

    pub fn regime(&self) -> Regime {
        self.regime
    }

    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    #[inline]
    pub fn current(&self) -> Epoch {
        Epoch(self.current.load(Relaxed))
    }

    #[inline]
    pub fn committed(&self) -> Epoch {
        // Acquire: pairs with the Release in `commit`.
        Epoch(self.committed.load(Acquire))
    }

    /// Whether a reply must wait for `epoch`.
    #[inline]
    pub fn must_wait(&self, epoch: Epoch) -> bool {
        self.waits() && epoch > self.committed()
    }

    /// Whether a write waits for its epoch before it returns.
    #[inline]
    pub fn waits(&self) -> bool {
        self.in_use() && self.wait.load(Relaxed)
    }

    /// Nanoseconds of the syncs of all commits since the open, and their number.
    pub fn synced(&self) -> (u64, u64) {
        (self.synced[0].load(Relaxed), self.synced[1].load(Relaxed))
    }

    pub fn set_wait(&self, wait: bool) {
        self.wait.store(wait, Relaxed);
    }

    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        if self.refuses.load(Relaxed) || self.is_gone() { Err(self.refused()) } else { Ok(()) }
    }

    /// Whether this process must not use the medium any more, since its state in DRAM goes stale: the store is closed,
    /// or this is a child of the process that opened it.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.forks.load(Relaxed) != process::forks()
    }

    /// Whether this is a child of the process that opened the store.
    pub fn is_forked(&self) -> bool {
        self.is_gone() && !self.is_closed()
    }

    /// From now on another process may use the medium, even if handles remain here.
    pub fn close(&self) {
        self.forks.store(CLOSED, Relaxed);
    }

    pub fn is_closed(&self) -> bool {
        self.forks.load(Relaxed) == CLOSED
    }

    /// The check at the beginning of every read, since reads rely on this process's state in DRAM.
    #[inline]
    pub fn check_process(&self) -> Result<()> {
        if self.is_gone() { Err(self.refused()) } else { Ok(()) }
    }

    pub fn poison(&self) {
        self.refuses.store(true, SeqCst);
    }

    /// From here on nothing is written.
    pub fn read_only(&self) {
        self.read_only.store(true, Relaxed);
        self.refuses.store(true, SeqCst);
    }

    #[cold]
    fn refused(&self) -> Error {
        if self.is_closed() {
            return Error::closed();
        }
        if self.is_forked() {
            return Error::new(
                ErrorKind::InUse,
                "cannot use the store: it belongs to the process that opened it, and this process is a fork of that one; use it there, or open \
                 another store here",
            );
        }
        if self.read_only.load(Relaxed) {
            let why = "cannot write: the store was opened read-only; open it for writing";
            return Error::new(ErrorKind::ReadOnly, why);
        }
        Error::new(
            ErrorKind::Poisoned,
            "cannot write: an earlier write-back to the medium failed, so the kernel may have dropped pages, or a writing thread \
             panicked; reads still work; look into the logs, check the device, close the store and open it again",
        )
    }

    pub fn register(&self) -> Arc<Activity> {
        self.register_as(false)
    }

    /// Like [`Epochs::register`], for a thread that only copies records of others.
    pub fn register_copier(&self) -> Arc<Activity> {
        self.register_as(true)
    }

    fn register_as(&self, is_copier: bool) -> Arc<Activity> {
        let shard = self.registered.fetch_add(1, Relaxed) as usize;
        let activity = Arc::new(Activity { shard, is_copier, ..Activity::default() });
        lock(&self.activities).push(Arc::clone(&activity));
        activity
    }

    /// The groups of all writers, for callers that wait for the open groups to end.
    pub fn groups(&self) -> Vec<Arc<SeqCounter>> {
        lock(&self.activities).iter().map(|activity| Arc::clone(&activity.group)).collect()
    }

    /// The commands of all writers.
    pub fn commands(&self) -> Vec<Arc<SeqCounter>> {
        lock(&self.activities).iter().map(|activity| Arc::clone(&activity.inside)).collect()
    }

    /// Removes a writer; its counts are kept.
    pub fn unregister(&self, activity: &Arc<Activity>) {
        // No commit may be between its two passes over the list.
        let _commit = lock(&self.commit);
        debug_assert_eq!(activity.active.load(SeqCst), 0, "a writer ends within an epoch");
        let mut activities = lock(&self.activities);
        activities.retain(|a| !Arc::ptr_eq(a, activity));
        // It belongs to no writer, so the holder of the list's lock may add.
        activities[0].written_add(activity.written.load(SeqCst));
        activities[0].dead_add(activity.dead.load(SeqCst));
        for parity in 0..2 {
            for part in 0..2 {
                let value = activity.sums[parity][part].load(SeqCst);
                activities[0].sums[parity][part].fetch_add(value, SeqCst);
            }
        }
    }

    /// Counts bytes that compaction can gain, for a caller that is no writer.
    pub fn dead_add(&self, bytes: u64) {
        // It belongs to no writer, so the holder of the list's lock may add.
        lock(&self.activities)[0].dead_add(bytes as i64);
    }

    /// Bytes of records that writers have appended, without those that the compactor copied.
    pub fn written_by_writers(&self) -> u64 {
        let activities = lock(&self.activities);
        activities.iter().filter(|activity| !activity.is_copier).map(|a| a.written.load(Relaxed)).sum()
    }

    /// Numbers summed over all writers.
    pub fn totals(&self) -> Totals {
        let activities = lock(&self.activities);
        Totals {
            written_bytes: activities.iter().map(|a| a.written.load(Relaxed)).sum(),
            dead_bytes: activities.iter().map(|a| a.dead.load(Relaxed)).sum::<i64>().max(0) as u64,
            writers: activities.len() as u64,
        }
    }

    /// Guard that poisons the store if the committing or background thread panics, because nobody else would commit the
    /// interval.
    pub fn poisoning(&self) -> Poisoning<'_> {
        Poisoning(self)
    }

    /// Guard that a writer holds while it is in an epoch, in case of a panic.
    #[inline]
    pub fn unwinding(&self, activity: &Activity) -> Unwinding<'_> {
        Unwinding { epochs: self, activity }
    }

    /// Enters the current epoch.
    #[inline]
    pub fn enter(&self, activity: &Activity) -> Epoch {
        if !self.in_use() {
            return self.current();
        }
        debug_assert_eq!(activity.active.load(Relaxed), 0, "a writer enters an epoch while it is in one");
        loop {
            let epoch = self.current.load(SeqCst);
            // SeqCst: either the committer observes this writer in `epoch`, or this writer observes that the epoch has
            // advanced.
            activity.active.store(epoch, SeqCst);
            if self.current.load(SeqCst) == epoch {
                // Acquire: pairs with the Release in `commit`.
                if self.ended.load(Acquire) + 1 < epoch {
                    self.await_end(Epoch(epoch - 1));
                }
                rank::enter_epoch();
                return Epoch(epoch);
            }
        }
    }

    /// Waits until the writers of `epoch` have left it (invariant 4): a few stores, no medium.
    #[cold]
    fn await_end(&self, epoch: Epoch) {
        let mut backoff = Backoff::default();
        while self.ended.load(Acquire) < epoch.0 {
            backoff.wait();
        }
    }

    /// Counts a record that this writer, in the epoch, appended to it, before it [leaves](Self::leave).
    #[inline]
    pub fn count_appended(&self, activity: &Activity, epoch: Epoch, appended: Appended) {
        if !self.in_use() {
            return;
        }
        debug_assert!(
            cfg!(loom) || self.ended.load(Acquire) + 1 == epoch.0,
            "a write in epoch {}, when epoch {} was the last one that all had left (invariant 4)",
            epoch.0,
            self.ended.load(Acquire)
        );
        debug_assert!(
            cfg!(loom) || self.committed() < epoch,
            "a write in epoch {}, which is committed (invariant 1)",
            epoch.0
        );
        let [count, total] = &activity.sums[(epoch.0 & 1) as usize];
        count.fetch_add(1, Relaxed);
        total.fetch_add(mark::record_sum(appended.at, appended.crc), Relaxed);
        if !self.wrote.load(Relaxed) {
            self.wrote.store(true, Relaxed);
        }
    }

    /// Leaves the epoch, after appending a record to it, or none.
    #[inline]
    pub fn leave(&self, activity: &Activity, epoch: Epoch, appended: Option<Appended>) {
        if !self.in_use() {
            return;
        }
        debug_assert_eq!(
            activity.active.load(Relaxed),
            epoch.0,
            "a writer leaves an epoch that it is not in"
        );
        if let Some(appended) = appended {
            self.count_appended(activity, epoch, appended);
        }
        rank::leave_epoch();
        // Release: pairs with the committer's Acquire; the sums are in.
        activity.active.store(0, Release);
    }

    /// Whether there is anything to commit.
    pub fn wrote(&self) -> bool {
        self.wrote.load(Relaxed)
    }

    /// Number of records written since the last commit, including those of aborted transactions, without copies. Exact
    /// while nobody writes.
    pub fn uncommitted(&self) -> u64 {
        let activities = lock(&self.activities);
        let writers = activities.iter().filter(|activity| !activity.is_copier);
        writers.flat_map(|activity| &activity.sums).map(|[count, _]| count.load(Acquire)).sum()
    }

    /// Makes `epoch` durable: waits for the thread that commits it, or commits for all waiters (see
    /// `group_commit`). `flush` flushes the writes of an epoch that has ended, where the committer flushes.
    pub fn wait_for<M: Medium>(
        &self,
        epoch: Epoch,
        medium: &M,
        flush: &dyn Fn(Epoch),
        time: u64,
    ) -> Result<()> {
        if !self.group_commit.wait(epoch.0, || self.committed() >= epoch) {
            return Ok(());
        }
        let outcome = {
            let mut slot = lock(&self.commit);
            // Another thread may have committed in the meantime for another reason.
            if self.committed() < epoch {
                self.commit(&mut slot, medium, flush, time).map(Some)
            } else {
                Ok(None)
            }
        };
        self.group_commit.end(outcome.as_ref().ok().copied().flatten(), true);
        outcome.map(|_| ())
    }

    /// Ends the current epoch and makes it durable.
    pub fn commit_current<M: Medium>(&self, medium: &M, flush: &dyn Fn(Epoch), time: u64) -> Result<Epoch> {
        let committed = {
            let mut slot = lock(&self.commit);
            self.commit(&mut slot, medium, flush, time)?
        };
        self.group_commit.end(Some(committed), false);
        Ok(Epoch(committed.0))
    }

    /// Returns the committed epoch, and how long the device took.
    fn commit<M: Medium>(
        &self,
        slot: &mut usize,
        medium: &M,
        flush: &dyn Fn(Epoch),
        time: u64,
    ) -> Result<(u64, Duration)> {
        self.check_writable()?;
        let poisoning = self.poisoning();
        let committed = self.commit_writable(slot, medium, flush, time);
        poisoning.over();
        committed
    }

    fn commit_writable<M: Medium>(
        &self,
        slot: &mut usize,
        medium: &M,
        flush: &dyn Fn(Epoch),
        time: u64,
    ) -> Result<(u64, Duration)> {
        self.wrote.store(false, Relaxed);
        let epoch = self.current.fetch_add(1, SeqCst);
        let (mut records, mut sum) = (0u64, 0u64);
        for activity in lock(&self.activities).iter() {
            let mut backoff = Backoff::default();
            while (1..=epoch).contains(&activity.active.load(SeqCst)) {
                backoff.wait();
            }
            let [count, total] = &activity.sums[(epoch & 1) as usize];
            records += count.swap(0, Acquire);
            sum = sum.wrapping_add(total.swap(0, Acquire));
        }
        // Release: pairs with the Acquire in `enter`; writers of the next epoch observe the writes of this one.
        let ended = self.ended.swap(epoch, Release);
        // One commit at a time, of each epoch in turn.
        assert_eq!(ended + 1, epoch, "epoch {epoch} ends after epoch {ended} (invariants 2 and 4)");
        flush(Epoch(epoch));
        if medium.granularity() != Granularity::Page {
            medium.drain();
        }
        let mark =
            Mark { epoch: Epoch(epoch), records, sum, time_floor: time, incarnation: self.incarnation };
        mark.write(medium, self.secret, *slot);
        *slot ^= 1;
        let begun = Instant::now();
        if let Err(error) = medium.sync() {
            self.poison();
            return Err(Error::from(error));
        }
        // Release: pairs with the Acquire in `committed`.
        let committed = self.committed.swap(epoch, Release);
        assert_eq!(committed + 1, epoch, "epoch {epoch} is committed after epoch {committed} (invariant 2)");
        let took = begun.elapsed();
        // Relaxed: sums that publish nothing. A model has no time, and fewer steps without them.
        if !cfg!(loom) {
            self.synced[0].fetch_add(took.as_nanos() as u64, Relaxed);
            self.synced[1].fetch_add(1, Relaxed);
        }
        Ok((epoch, took))
    }
}
