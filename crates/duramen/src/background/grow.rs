//! Growth of the store. In which order granules become the store's stands at [`Growth::grow`].

use crate::Result;
use crate::format::Granule;
use crate::index::MEDIUM_BYTES_MAX;
use crate::log::Log;
use crate::log::space::{Space, write_free_headers};
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::lock;
use crate::sync::time::Instant;
use crate::sync::{Mutex, MutexGuard, rank, statics};
use crate::tuning::Phase;
use duramen_media::Medium;

/// Growth takes this share of what there is ...
const GROWTH_SHARE: u64 = 8;
/// ... within these bounds (the least is of `Tuning`), so that neither a small store jumps nor a large one stalls: a writer
/// that has to wait for growth waits for one step of it (tmpfs gives some 400 MB/s of fresh pages here).
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// The background thread grows a store while it has less room than this, or a sixteenth of itself.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// How long growth that failed is not tried again.
const GROWTH_RETRY_MILLIS: u64 = 1000;

/// How the store grows.
pub(crate) struct Growth {
    growing: Mutex<(), { rank::GROWING }>,
    /// Writers that have no space and want to grow the store: the background thread lets them look before it grows it further,
    /// since the lock alone would go back to it.
    growers: statics::AtomicU32,
    /// One more than the granule count that growth failed at, so that not every writer tries again; 0 for none.
    failed_granules: AtomicU64,
    /// When that was, in milliseconds since `begun`.
    failed_at: AtomicU64,
    /// Growth has failed since the store was opened.
    failed_ever: AtomicBool,
    /// What the medium said then; nothing when the store has reached a limit of its own.
    failed_why: Mutex<Option<duramen_media::Error>, { rank::NOT_GROWN }>,
    begun: Instant,
}

impl Default for Growth {
    fn default() -> Self {
        Self {
            growing: Mutex::new(()),
            growers: statics::AtomicU32::new(0),
            failed_granules: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            failed_ever: AtomicBool::new(false),
            failed_why: Mutex::new(None),
            begun: Instant::now(),
        }
    }
}

impl Growth {
    /// The store does not grow until the result is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, impl Sized, { rank::GROWING }> {
        lock(&self.growing)
    }

    /// `least` granules more, for a writer that waits for them: see [`Growth::grow`].
    pub(crate) fn grow_for_writer<M: Medium>(&self, log: &Log<M>, least: u32) -> Result<bool> {
        self.growers.fetch_add(1, Relaxed);
        let grown = self.grow(log, least);
        self.growers.fetch_sub(1, Relaxed);
        grown
    }

    /// Whether so little is free that the background thread should grow the store.
    pub(crate) fn is_low<M: Medium>(log: &Log<M>, space: &Space) -> bool {
        let enough = u64::from(space.granules() / 16).min(AHEAD_BYTES_MAX / log.granule_bytes);
        u64::from(space.writable_granules()) < enough
    }

    /// Whether a writer waits for what the background thread grows.
    pub(crate) fn is_awaited(&self) -> bool {
        self.growers.load(Relaxed) > 0
    }

    /// Grows the store by at least `least` granules; false when the medium has no more.
    ///
    /// Order: the medium is backed and zeroed, and prepared where each write waits for it; the headers of the
    /// new granules are durable; then the superblock says how many there are. A crash between leaves granules that
    /// nobody counts.
    pub(crate) fn grow<M: Medium>(&self, log: &Log<M>, least: u32) -> Result<bool> {
        let (before, reserve) = {
            let space = log.space();
            (space.granules(), space.reserve())
        };
        let _growing = (!planted(Mutant::GrownTwice)).then(|| lock(&self.growing));
        let granules = log.space().granules();
        if granules != before {
            return Ok(true);
        }
        // Whoever enlarges the file system is noticed within a second.
        let now = self.begun.elapsed().as_millis() as u64;
        if self.failed_granules.load(Relaxed) == u64::from(granules) + 1
            && now < self.failed_at.load(Relaxed) + GROWTH_RETRY_MILLIS
        {
            return Ok(false);
        }
        log.epochs().check_writable()?;
        let least = u64::from(least + reserve);
        let bytes = (u64::from(granules) * log.granule_bytes / GROWTH_SHARE)
            .clamp(log.tuning.growth_bytes_min, GROWTH_BYTES_MAX);
        let ample = bytes.div_ceil(log.granule_bytes).max(least);
        let len_max = log.medium.len_max().min(MEDIUM_BYTES_MAX);
        let limit = match log.space().limit() {
            0 => u32::MAX,
            limit => limit,
        };
        let granules_max =
            (len_max / log.granule_bytes).min(u64::from(limit)).saturating_sub(u64::from(granules));
        // What the medium already has beyond the store's granules costs nothing.
        let backed = (log.medium.len() / log.granule_bytes).saturating_sub(u64::from(granules)).min(ample);
        let mut last_error = None;
        for more in [ample, least, backed] {
            let more = more.min(granules_max);
            if more == 0 {
                continue;
            }
            match log.medium.grow((u64::from(granules) + more) * log.granule_bytes) {
                Ok(()) => {
                    Self::adopt_granules(log, granules, more as u32)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == duramen_media::ErrorKind::OutOfSpace => {
                    last_error = Some(error)
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Remembered until space is freed: every growth that fails costs a system call.
        if last_error.is_some() || granules_max == 0 {
            self.failed_ever.store(true, Relaxed);
            self.failed_granules.store(u64::from(granules) + 1, Relaxed);
            self.failed_at.store(now, Relaxed);
        }
        *lock(&self.failed_why) = last_error;
        Ok(false)
    }

    /// Whether a store of so many granules has no more to come, as far as is known.
    pub(crate) fn is_at_end(&self, granules: u32) -> bool {
        self.failed_granules.load(Relaxed) == u64::from(granules) + 1
    }

    /// Whether the medium has had no more since the store was opened: space is dear.
    pub(crate) fn has_ever_failed(&self) -> bool {
        self.failed_ever.load(Relaxed)
    }

    /// Tells `tell` what the medium said when growth last failed; nothing when the store has reached a limit of its own.
    pub(crate) fn with_failure<T>(&self, tell: impl FnOnce(Option<&duramen_media::Error>) -> T) -> T {
        tell(lock(&self.failed_why).as_ref())
    }

    /// Lets growth be tried again.
    pub(crate) fn forget_failure(&self) {
        self.failed_granules.store(0, Relaxed);
    }

    fn adopt_granules<M: Medium>(log: &Log<M>, from: u32, more: u32) -> Result<()> {
        let _inside = log.tuning.phase(Phase::Grow);
        if log.epochs().waits() {
            // Nobody counts these granules yet.
            let (at, bytes) = (log.offset_of(Granule(from)), u64::from(more) * log.granule_bytes);
            log.medium.prepare(at, bytes).map_err(|error| log.failed(error))?;
        }
        write_free_headers(&log.medium, log.blocks.secret(), log.granule_bytes, from, more);
        log.sync_or_poison()?;
        log.update_superblock(|superblock| superblock.granules = from + more)?;
        let mut space = log.space();
        space.set_granules(from + more);
        space.give(Granule(from), more);
        Ok(())
    }
}
