//! Durability of a store: epochs and their commits, the superblock, the store's time, and the reaction to a failed
//! medium.
//!
//! When the medium has failed, the store is poisoned and records that on the medium. The kernel reports a failed
//! write-back once; afterwards it may show the pages that it could not write, or have dropped them. So nothing is
//! written any more, and the next open must not trust the page cache of the same boot. Order: the failure; then at
//! once, before any caller gets the error, the superblock's boot id is set to unknown, in the mapping. If the process
//! is then killed, that store stays in the page cache, as every other store. A power failure needs no mark: the boot is
//! another one.

mod clock;
mod epochs;
mod group_commit;

pub use clock::{Clock, StoreClock};
pub use epochs::{Activity, Epochs};

use crate::format::Epoch;
use crate::format::superblock::{BOOT_UNKNOWN, Regime, Superblock};
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Mutex, MutexGuard, lock, rank};
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium};
use std::time::Duration;

/// When an acknowledged write survives a power failure (on media that can survive one).
///
/// A crash of the process alone never loses an acknowledged write with `EveryWrite` and `Interval`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the call returns.
    EveryWrite,
    /// At most this long after the call returns; the state after a power failure is a prefix in time.
    Interval(Duration),
    /// After the next `Store::commit`. Uncommitted writes are dropped by the next open, even
    /// after a mere process crash.
    Manual,
}

/// See the module.
pub struct DurableState {
    pub epochs: Epochs,
    pub clock: StoreClock,
    superblock: Mutex<Superblock, { rank::SUPERBLOCK }>,
    interval_nanos: AtomicU64,
}

fn interval_nanos(asked: Durability) -> u64 {
    match asked {
        Durability::Interval(interval) => interval.as_nanos().min(u128::from(u64::MAX)) as u64,
        _ => 0,
    }
}

impl DurableState {
    pub fn new(epochs: Epochs, clock: StoreClock, superblock: Superblock, asked: Durability) -> Self {
        Self {
            epochs,
            clock,
            superblock: Mutex::new(superblock),
            interval_nanos: AtomicU64::new(interval_nanos(asked)),
        }
    }

    /// The regime in which a store on such a medium provides the requested durability.
    pub fn regime_for(asked: Durability, granularity: Granularity) -> Regime {
        match (asked, granularity) {
            (Durability::Manual, _) => Regime::Manual,
            (_, Granularity::Page) => Regime::Epochs,
            (Durability::Interval(_), Granularity::CacheLine) => Regime::Epochs,
            // With byte granularity a write is durable as soon as it is ordered: an interval would save nothing.
            _ => Regime::Immediate,
        }
    }

    pub fn interval(&self) -> Option<Duration> {
        match self.interval_nanos.load(Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// The requested durability.
    pub fn asked(&self) -> Durability {
        match (self.interval(), self.epochs.regime()) {
            (Some(interval), _) => Durability::Interval(interval),
            (None, Regime::Manual) => Durability::Manual,
            (None, _) => Durability::EveryWrite,
        }
    }

    /// Requests another durability, but never from or to `Manual`.
    pub fn ask(&self, asked: Durability) {
        self.interval_nanos.store(interval_nanos(asked), Relaxed);
        self.epochs.set_wait(asked == Durability::EveryWrite);
    }

    /// Makes all acknowledged writes durable; `flush` as in [`Epochs::wait_for`].
    pub fn commit<M: Medium>(&self, medium: &M, flush: &dyn Fn(Epoch)) -> Result<()> {
        if self.epochs.in_use() {
            let committed = self.epochs.commit_current(medium, flush, self.clock.now());
            committed.map_err(|error| self.commit_failed(medium, error))?;
        } else {
            self.epochs.check_writable()?;
            self.sync_or_poison(medium)?;
        }
        Ok(())
    }

    /// Waits until `epoch` is committed.
    pub fn wait_for<M: Medium>(&self, medium: &M, epoch: Epoch, flush: &dyn Fn(Epoch)) -> Result<()> {
        let waited = self.epochs.wait_for(epoch, medium, flush, self.clock.now());
        waited.map_err(|error| self.commit_failed(medium, error))
    }

    pub fn superblock(&self) -> MutexGuard<'_, Superblock, { rank::SUPERBLOCK }> {
        lock(&self.superblock)
    }

    /// Changes the superblock, durably.
    pub fn update_superblock<M: Medium>(
        &self,
        medium: &M,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let mut superblock = self.superblock();
        change(&mut superblock);
        superblock.sequence += 1;
        let persisted = superblock.persist(medium);
        drop(superblock);
        persisted.map_err(|error| self.failed(medium, error))
    }

    /// Stores the time of day on the medium, so that expired values stay expired even if the clock goes back.
    pub fn persist_time<M: Medium>(&self, medium: &M) -> Result<()> {
        if self.superblock().time_floor < self.clock.floor() {
            let now = self.clock.raise();
            self.update_superblock(medium, |superblock| superblock.time_floor = now)?;
        }
        Ok(())
    }

    /// Syncs the medium; a failure poisons the store.
    pub fn sync_or_poison<M: Medium>(&self, medium: &M) -> Result<()> {
        medium.sync().map_err(|error| self.failed(medium, error))
    }

    /// Handles a failure of the medium: refuses writes, and records that on the medium at once, in case the process is
    /// killed next. Must not be called with the superblock locked.
    pub fn failed<M: Medium>(&self, medium: &M, error: impl Into<Error>) -> Error {
        self.epochs.poison();
        self.mark_unverified(medium);
        error.into()
    }

    /// [`DurableState::failed`] for the result of a commit. It also handles a commit that was refused because another
    /// thread's commit just failed, since that thread may not have recorded it yet.
    #[cold]
    fn commit_failed<M: Medium>(&self, medium: &M, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) && !self.epochs.is_gone() {
            self.mark_unverified(medium);
        }
        error
    }

    /// After a failed write-back: makes the next open verify the store as after a power failure, even under the same
    /// boot. The kernel may show pages that it could not write, or have dropped them, until the file system is
    /// unmounted and beyond. The mark reaches the medium when the kernel writes that page, if at all. Without it, an
    /// open may find a hole below a record that counts, and refuse it as damage.
    pub fn mark_unverified<M: Medium>(&self, medium: &M) {
        // Poisoned by a panic, with a device that works: the sync has written everything.
        if medium.granularity() != Granularity::Page || medium.sync().is_ok() {
            return;
        }
        let mut superblock = self.superblock();
        if superblock.boot_id != BOOT_UNKNOWN || superblock.clean {
            superblock.boot_id = BOOT_UNKNOWN;
            // Undoes a close that failed at its very end.
            (superblock.clean, superblock.sealed, superblock.checkpoint) = (false, false, None);
            superblock.sequence += 1;
            // The sync has failed before; the stores are what counts here.
            let _ = superblock.persist(medium);
        }
    }
}
