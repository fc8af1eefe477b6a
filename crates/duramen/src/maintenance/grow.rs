//! Growth of the store. [`Growth::grow`] describes the order in which extents become the store's. What was given back is
//! taken back first ([`Log::take_back`]).

use crate::Result;
use crate::tuning::Phase;
use duramen_index::MEDIUM_BYTES_MAX;
use duramen_log::Log;
use duramen_log::format::Extent;
use duramen_log::space::{Space, write_free_headers};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::atomic::{AtomicBool, AtomicU64};
use duramen_log::sync::lock;
use duramen_log::sync::time::Instant;
use duramen_log::sync::{Mutex, MutexGuard, rank, statics};
use duramen_media::Medium;

/// One step grows the store by this share of its size ...
const GROWTH_SHARE: u64 = 8;
/// ... within these bounds (`Tuning` has the lower one), so that neither a small store jumps nor a large one stalls. A
/// writer that has to wait for growth waits for one step of it (tmpfs gives some 400 MB/s of fresh pages here).
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// The background thread grows a store while it has less room than this, or a sixteenth of itself.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// How long growth is not tried again after a failure.
const GROWTH_RETRY_MILLIS: u64 = 1000;

/// How the store grows.
pub(crate) struct Growth {
    bytes_min: u64,
    growing: Mutex<(), { rank::GROWING }>,
    /// Writers that have no space and want to grow the store. The background thread lets them check before it grows the
    /// store further, since the lock alone would go back to that thread.
    growers: statics::AtomicU32,
    /// One more than the extent count at which growth failed, so that not every writer tries again; 0 for none.
    failed_extents: AtomicU64,
    /// When that was, in milliseconds since `begun`.
    failed_at: AtomicU64,
    /// Growth has failed since the store was opened.
    failed_ever: AtomicBool,
    /// The medium's error at that time; `None` when the store has reached its own limit.
    failed_why: Mutex<Option<duramen_media::Error>, { rank::NOT_GROWN }>,
    begun: Instant,
}

impl Growth {
    /// Of a store that grows by at least `bytes_min`.
    pub(crate) fn new(bytes_min: u64) -> Self {
        Self {
            bytes_min,
            growing: Mutex::new(()),
            growers: statics::AtomicU32::new(0),
            failed_extents: AtomicU64::new(0),
            failed_at: AtomicU64::new(0),
            failed_ever: AtomicBool::new(false),
            failed_why: Mutex::new(None),
            begun: Instant::now(),
        }
    }

    /// The store does not grow until the result is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, impl Sized, { rank::GROWING }> {
        lock(&self.growing)
    }

    /// Adds at least `least` extents, for a writer that waits for them: see [`Growth::grow`].
    pub(crate) fn grow_for_writer<M: Medium>(&self, log: &Log<M>, least: u32) -> Result<bool> {
        self.growers.fetch_add(1, Relaxed);
        let grown = self.grow(log, least);
        self.growers.fetch_sub(1, Relaxed);
        grown
    }

    /// Whether so little is free that the background thread should grow the store.
    pub(crate) fn is_low<M: Medium>(log: &Log<M>, space: &Space) -> bool {
        space.writable_extents() < Self::ahead(log, space)
    }

    /// The extents that are to be free ahead of puts. Those given back do not count: else the store would take them back
    /// as soon as it had given them.
    pub(crate) fn ahead<M: Medium>(log: &Log<M>, space: &Space) -> u32 {
        let extents_max = u32::try_from(AHEAD_BYTES_MAX / log.extent_bytes).unwrap_or(u32::MAX);
        (space.backed_extents() / 16).min(extents_max)
    }

    /// Whether a writer waits for extents that the background thread grows.
    pub(crate) fn is_awaited(&self) -> bool {
        self.growers.load(Relaxed) > 0
    }

    /// Grows the store by at least `least` extents; false when the medium has no more.
    ///
    /// Order: the medium is backed and zeroed, and prepared where each write waits for it; the headers of the new
    /// extents are durable; then the superblock has the new count. A crash between leaves extents beyond the count.
    pub(crate) fn grow<M: Medium>(&self, log: &Log<M>, least: u32) -> Result<bool> {
        let (before, reserve) = {
            let space = log.space();
            (space.backed_extents(), space.reserve())
        };
        let _growing = lock(&self.growing);
        let (extents, backed_before, limit) = {
            let space = log.space();
            (space.extents(), space.backed_extents(), space.limit())
        };
        if backed_before != before {
            return Ok(true);
        }
        // Retry after a second, so that an enlarged file system is noticed.
        let now = self.begun.elapsed().as_millis() as u64;
        if self.failed_extents.load(Relaxed) == u64::from(extents) + 1
            && now < self.failed_at.load(Relaxed) + GROWTH_RETRY_MILLIS
        {
            return Ok(false);
        }
        log.epochs().check_writable()?;
        let least = u64::from(least + reserve);
        let bytes = (u64::from(backed_before) * log.extent_bytes / GROWTH_SHARE)
            .clamp(self.bytes_min, GROWTH_BYTES_MAX);
        let ample = bytes.div_ceil(log.extent_bytes).max(least);
        let len_max = log.medium.len_max().min(MEDIUM_BYTES_MAX);
        let allowed = match limit {
            0 => u64::from(u32::MAX),
            limit => u64::from(limit.saturating_sub(backed_before)),
        };
        if log.take_back(ample.min(allowed) as u32)? {
            return Ok(true);
        }
        let extents_max = (len_max / log.extent_bytes).saturating_sub(u64::from(extents)).min(allowed);
        // Extents that the medium already has beyond the store's cost nothing.
        let backed = (log.medium.len() / log.extent_bytes).saturating_sub(u64::from(extents)).min(ample);
        let mut last_error = None;
        for more in [ample, least, backed] {
            let more = more.min(extents_max);
            if more == 0 {
                continue;
            }
            match log.medium.grow((u64::from(extents) + more) * log.extent_bytes) {
                Ok(()) => {
                    Self::adopt_extents(log, extents, more as u32)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == duramen_media::ErrorKind::OutOfSpace => {
                    last_error = Some(error)
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Remembered until space is freed: every growth that fails costs a system call.
        if last_error.is_some() || extents_max == 0 {
            self.failed_ever.store(true, Relaxed);
            self.failed_extents.store(u64::from(extents) + 1, Relaxed);
            self.failed_at.store(now, Relaxed);
        }
        *lock(&self.failed_why) = last_error;
        Ok(false)
    }

    /// Whether a store of so many extents cannot grow further, as far as is known.
    pub(crate) fn is_at_end(&self, extents: u32) -> bool {
        self.failed_extents.load(Relaxed) == u64::from(extents) + 1
    }

    /// Whether the medium has had no more since the store was opened: space is dear.
    pub(crate) fn has_ever_failed(&self) -> bool {
        self.failed_ever.load(Relaxed)
    }

    /// Calls `report` with the medium's error of the last failed growth; `None` when the store has reached its own
    /// limit.
    pub(crate) fn with_failure<T>(&self, report: impl FnOnce(Option<&duramen_media::Error>) -> T) -> T {
        report(lock(&self.failed_why).as_ref())
    }

    /// Lets growth be tried again.
    pub(crate) fn forget_failure(&self) {
        self.failed_extents.store(0, Relaxed);
    }

    fn adopt_extents<M: Medium>(log: &Log<M>, from: u32, more: u32) -> Result<()> {
        let _inside = log.phases.enter(Phase::Grow);
        if log.epochs().waits() {
            // The extent count does not include these extents yet.
            let (at, bytes) = (log.offset_of(Extent(from)), u64::from(more) * log.extent_bytes);
            log.medium.prepare(at, bytes).map_err(|error| log.failed(error))?;
        }
        write_free_headers(&log.medium, log.blocks.secret(), log.extent_bytes, from, more);
        log.sync_or_poison()?;
        log.update_superblock(|superblock| superblock.extents = from + more)?;
        let mut space = log.space();
        space.set_extents(from + more);
        space.give(Extent(from), more);
        Ok(())
    }
}
