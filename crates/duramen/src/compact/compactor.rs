//! The state of the compactor: its progress and its counts.

use crate::compact::retired::RetireQueue;
use crate::evict::queues::Queues;
use crate::options::Options;
use crate::table::retired::RetiredTable;
use duramen_log::appender::Appender;
use duramen_log::durability::{Activity, Epochs};
use duramen_log::format::{Extent, Owner};
use duramen_log::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use duramen_log::sync::time::Instant;
use duramen_log::sync::{Arc, Mutex, MutexGuard, lock, rank};
use std::collections::{HashMap, HashSet, VecDeque};
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::thread::{available_parallelism, panicking};
use std::time::Duration;

/// Bytes of blocks that one round moves out of at most.
pub(crate) const ROUND_BYTES: u64 = 256 << 10;

/// How long a writer without space waits for readers to release compacted blocks.
pub(crate) const GRACE_MAX: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 500 });

/// By default there is one copier for so many cores: the work that a writer causes is a third to a half of its own ...
const CORES_EACH: usize = 4;
/// ... and no more than this.
const COPIERS_MAX: usize = 8;

/// What a thread needs to move records.
pub(crate) struct Copier {
    pub(crate) appender: Appender,
    pub(crate) activity: Arc<Activity>,
    /// Other copiers work at the same time.
    pub(crate) is_beside: bool,
    /// Bytes of tombstones that were moved because their count is not known: see [`crate::compact::recount`].
    pub(crate) unknown_bytes: u64,
    /// The hashes of the keys that were evicted, until they are noted.
    pub(crate) evicted: Vec<u64>,
    pub(crate) scratch: Vec<u8>,
}

impl Copier {
    pub(crate) fn new(epochs: &Epochs, is_beside: bool) -> Self {
        Self {
            appender: Appender::default(),
            activity: epochs.register_copier(),
            is_beside,
            unknown_bytes: 0,
            evicted: Vec::new(),
            scratch: Vec::new(),
        }
    }
}

/// The state that the compacting thread owns.
pub(crate) struct Compactor {
    pub(crate) copier: Copier,
    /// The others, which move records while the compacting thread waits: see [`crate::compact::beside`].
    pub(crate) beside: Vec<Copier>,
    /// The extent where the sweeper continues.
    pub(crate) sweep_at: u32,
    /// The last sweep stopped before the end.
    pub(crate) sweeping: bool,
    /// The extent where verification continues of blocks that recovery did not read; `None` when it is done.
    pub(crate) verify_at: Option<u32>,
    /// Blocks to move out of next, the best one last.
    pub(crate) victims: Vec<Extent>,
    /// Blocks that no choice of victims finds: there was no room to move out of them, or they were pinned. In the order
    /// in which they come back.
    pub(crate) put_off: VecDeque<Extent>,
    /// The extents where the next searches begin for blocks that fill the compactor's own, and for a run to clear.
    pub(crate) fill_at: u32,
    pub(crate) clear_at: u32,
    /// For each index, the hash from which its search for memory to give back continues.
    pub(crate) shrink_at: HashMap<Owner, u64>,
    /// Dead tables, and the state of each: see [`crate::table::reclaim`].
    pub(crate) retired_tables: Vec<RetiredTable>,
    /// How often the count of unknown stale records was stopped for a writer, since the last one that finished.
    pub(crate) recounts_put_off: u32,
    /// Packing gained nothing since blocks were last freed.
    pub(crate) pack_gained_nothing: bool,
    pub(crate) retire_queue: RetireQueue,
    /// Since when space is free that may be given back.
    pub(crate) surplus_since: Option<Instant>,
    /// Bytes that writers have written, and since when.
    pub(crate) written: (u64, Instant),
    /// The next keys and blocks to evict.
    pub(crate) queues: Queues,
}

/// What the compactor knows of blocks while it is paused.
pub(crate) struct Paused {
    /// Owner and hash of the key of each stale record that lies in a retired block and counts again.
    pub(crate) kept: Vec<(Owner, u64)>,
    pub(crate) put_off: HashSet<Extent>,
}

/// The state of compaction that threads share.
pub(crate) struct Compaction {
    pub(crate) compactor: Mutex<Compactor, { rank::COMPACTOR }>,
    /// Threads that wait for the compactor.
    pub(crate) waiting: AtomicU32,
    /// Blocks that are retired and not freed yet ...
    pub(crate) retired: AtomicU64,
    /// ... their extents, and their bytes that were counted as dead: space that comes back without further work.
    pub(crate) retired_extents: AtomicU64,
    pub(crate) retired_bytes: AtomicU64,
    pub(crate) bytes_per_second: u64,
    /// Dead bytes among those used, in percent, before background compaction begins.
    pub(crate) dead_percent: u32,
    /// The most copiers of a round: see [`crate::compact::beside`].
    pub(crate) copiers_max: usize,
    /// Nobody has written for a while: compaction goes on to give space back.
    pub(crate) is_resting: AtomicBool,
    /// Free bytes that are not given back.
    pub(crate) keep_free_bytes: u64,
    pub rounds: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub freed_extents: AtomicU64,
    /// Blocks that are known to be damaged.
    pub damaged: AtomicU64,
    /// Extents between the verifier's position and the end.
    pub unverified_extents: AtomicU64,
    /// How often stale records were counted again.
    pub recounts: AtomicU64,
}

impl Compaction {
    pub(crate) fn new(epochs: &Epochs, options: &Options) -> Self {
        Self {
            compactor: Mutex::new(Compactor {
                copier: Copier::new(epochs, false),
                beside: Vec::new(),
                sweep_at: 0,
                sweeping: false,
                verify_at: None,
                victims: Vec::new(),
                put_off: VecDeque::new(),
                fill_at: 0,
                clear_at: 0,
                shrink_at: HashMap::new(),
                retired_tables: Vec::new(),
                recounts_put_off: 0,
                pack_gained_nothing: false,
                retire_queue: RetireQueue::default(),
                surplus_since: None,
                written: (0, Instant::now()),
                queues: Queues::default(),
            }),
            waiting: AtomicU32::new(0),
            retired: AtomicU64::new(0),
            retired_extents: AtomicU64::new(0),
            retired_bytes: AtomicU64::new(0),
            bytes_per_second: options.compaction_bytes_per_second,
            dead_percent: options.compaction_dead_percent,
            copiers_max: match options.compactors {
                // What runs on the caller's thread alone repeats.
                0 if !options.background || cfg!(any(loom, miri, feature = "schedule")) => 1,
                0 => (available_parallelism().map_or(1, NonZero::get) / CORES_EACH).clamp(1, COPIERS_MAX),
                chosen => chosen,
            },
            is_resting: AtomicBool::new(false),
            keep_free_bytes: options.keep_free_bytes,
            rounds: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            freed_extents: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            unverified_extents: AtomicU64::new(0),
            recounts: AtomicU64::new(0),
        }
    }

    /// Compaction pauses until the result is dropped.
    pub(crate) fn pause(&self) -> (MutexGuard<'_, impl Sized, { rank::COMPACTOR }>, Paused) {
        let compactor = lock(&self.compactor);
        let kept = compactor.retire_queue.kept().map(|stale| (stale.owner, stale.hash)).collect();
        let put_off = compactor.put_off.iter().copied().collect();
        (compactor, Paused { kept, put_off })
    }
}

/// The compactor, while this thread has it. A panic meanwhile leaves a block half moved or half freed: nothing is
/// written from then on, not even by a close.
pub(crate) struct Moving<'k> {
    compactor: MutexGuard<'k, Compactor, { rank::COMPACTOR }>,
    epochs: &'k Epochs,
    /// The caller's thread may already be panicking when it closes the store: that is no damage.
    was_panicking: bool,
}

impl<'k> Moving<'k> {
    pub(crate) fn new(compactor: MutexGuard<'k, Compactor, { rank::COMPACTOR }>, epochs: &'k Epochs) -> Self {
        Self { compactor, epochs, was_panicking: panicking() }
    }
}

impl Deref for Moving<'_> {
    type Target = Compactor;

    fn deref(&self) -> &Compactor {
        &self.compactor
    }
}

impl DerefMut for Moving<'_> {
    fn deref_mut(&mut self) -> &mut Compactor {
        &mut self.compactor
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        if panicking() && !self.was_panicking {
            drop(self.epochs.poisoning());
        }
    }
}
