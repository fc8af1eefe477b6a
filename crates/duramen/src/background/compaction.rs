//! What the compactor knows: how far it has come, and what it counts.

use super::dying::Dying;
use super::queues::Queues;
use super::retired::Leaving;
use crate::durability::{Activity, Epochs};
use crate::format::{Granule, Owner};
use crate::log::appender::Appender;
use crate::options::Options;
use crate::sync::atomic::{AtomicU32, AtomicU64};
use crate::sync::{Arc, Mutex, MutexGuard, lock, rank};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::thread::panicking;
use std::time::Duration;

/// Bytes that one round moves out of at most.
pub(super) const ROUND_BYTES: u64 = 256 << 10;

/// How long a writer without space waits for readers to let go of what was compacted.
pub(super) const GRACE_MAX: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 500 });

/// What the compacting thread owns.
pub(super) struct Mover {
    pub(super) appender: Appender,
    pub(super) activity: Arc<Activity>,
    /// The granule where the sweeper goes on.
    pub(super) sweep_at: u32,
    /// The last time it stopped before it had seen all.
    pub(super) sweeping: bool,
    /// The granule where verifying goes on what recovery did not read, until it is done.
    pub(super) verify_at: Option<u32>,
    /// Blocks to move out of next, the best one last.
    pub(super) victims: Vec<Granule>,
    /// Blocks that there was no room to move out of, since something was last freed.
    pub(super) unmovable: Vec<Granule>,
    /// The hashes from which on indexes are still to be looked through for what they can give back.
    pub(super) shrink_at: HashMap<Owner, u64>,
    /// Dead tables, and how far each is on its way: see [`super::bury`].
    pub(super) dying: Vec<Dying>,
    /// Bytes of tombstones that were moved because their count is not known: see [`super::recount`].
    pub(super) unknown_bytes: u64,
    /// How often such a count was given up for a writer, since one was done.
    pub(super) recounts_put_off: u32,
    /// Packing gained nothing since something was last freed.
    pub(super) packed_in_vain: bool,
    pub(super) leaving: Leaving,
    /// What is evicted next.
    pub(super) queues: Queues,
    pub(super) scratch: Vec<u8>,
}

/// The state of compaction that threads share.
pub(crate) struct Compaction {
    pub(super) mover: Mutex<Mover, { rank::MOVER }>,
    /// Threads that wait for the mover.
    pub(super) waiting: AtomicU32,
    /// Blocks retired and not freed yet ...
    pub(super) retired: AtomicU64,
    /// ... their granules, and what of them was counted as dead: what is to come back by itself.
    pub(super) retired_granules: AtomicU64,
    pub(super) retired_bytes: AtomicU64,
    pub(super) bytes_per_second: u64,
    /// Dead bytes among those used, in percent, before background compaction begins.
    pub(super) dead_percent: u32,
    pub rounds: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub freed_granules: AtomicU64,
    /// Blocks that are known to be damaged.
    pub damaged: AtomicU64,
    /// Granules from where verifying goes on to the end.
    pub unverified_granules: AtomicU64,
    /// How often stale records were counted anew.
    pub recounts: AtomicU64,
}

impl Compaction {
    pub(crate) fn new(epochs: &Epochs, options: &Options) -> Self {
        Self {
            mover: Mutex::new(Mover {
                appender: Appender::default(),
                activity: epochs.register_copier(),
                sweep_at: 0,
                sweeping: false,
                verify_at: None,
                victims: Vec::new(),
                unmovable: Vec::new(),
                shrink_at: HashMap::new(),
                dying: Vec::new(),
                unknown_bytes: 0,
                recounts_put_off: 0,
                packed_in_vain: false,
                leaving: Leaving::default(),
                queues: Queues::default(),
                scratch: Vec::new(),
            }),
            waiting: AtomicU32::new(0),
            retired: AtomicU64::new(0),
            retired_granules: AtomicU64::new(0),
            retired_bytes: AtomicU64::new(0),
            bytes_per_second: options.compaction_bytes_per_second,
            dead_percent: options.compaction_dead_percent,
            rounds: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            freed_granules: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            unverified_granules: AtomicU64::new(0),
            recounts: AtomicU64::new(0),
        }
    }

    /// Nothing is compacted until the result is dropped. Given are also owner and hash of the key of each stale record that lies in a
    /// retired block and counts again.
    pub(crate) fn pause(&self) -> (MutexGuard<'_, impl Sized, { rank::MOVER }>, Vec<(Owner, u64)>) {
        let mover = lock(&self.mover);
        let kept = mover.leaving.kept().map(|stale| (stale.owner, stale.hash)).collect();
        (mover, kept)
    }
}

/// The mover, while this thread has it. A panic meanwhile leaves something half moved or half freed: nothing is written from then on, also
/// not by a close.
pub(super) struct Moving<'k> {
    mover: MutexGuard<'k, Mover, { rank::MOVER }>,
    epochs: &'k Epochs,
    /// A store may be closed because its user's thread panics: that harms nothing.
    was_panicking: bool,
}

impl<'k> Moving<'k> {
    pub(super) fn new(mover: MutexGuard<'k, Mover, { rank::MOVER }>, epochs: &'k Epochs) -> Self {
        Self { mover, epochs, was_panicking: panicking() }
    }
}

impl Deref for Moving<'_> {
    type Target = Mover;

    fn deref(&self) -> &Mover {
        &self.mover
    }
}

impl DerefMut for Moving<'_> {
    fn deref_mut(&mut self) -> &mut Mover {
        &mut self.mover
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            drop(self.epochs.poisoning());
        }
    }
}
