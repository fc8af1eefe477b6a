//! The store's time.

use crate::options::Clock;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;

/// The store's time: Unix milliseconds, never less than it ever was, also across restarts.
pub(crate) struct StoreClock {
    source: Option<Clock>,
    floor: AtomicU64,
}

impl StoreClock {
    pub(crate) fn new(source: Option<Clock>, floor: u64) -> Self {
        Self { source, floor: AtomicU64::new(floor) }
    }

    pub(crate) fn now(&self) -> u64 {
        let now = match &self.source {
            Some(source) => source(),
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| d.as_millis() as u64),
        };
        now.max(self.floor.load(Relaxed))
    }

    /// Somebody was told that what expires at `at` has expired: from now on it has.
    pub(crate) fn reached(&self, at: u64) {
        if self.floor.load(Relaxed) < at {
            self.floor.fetch_max(at, Relaxed);
        }
    }

    /// The least that the time will ever be.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Relaxed)
    }

    /// From now on the time is never less than this.
    pub(crate) fn raise(&self) -> u64 {
        let now = self.now();
        self.floor.fetch_max(now, Relaxed);
        now
    }
}
