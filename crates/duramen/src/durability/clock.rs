//! The store's time.

use crate::options::Clock;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;

/// The store's time: Unix milliseconds. It never goes back, not even across restarts.
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

    /// A caller has seen that a value with expiry time `at` has expired: from now on it stays expired.
    pub(crate) fn reached(&self, at: u64) {
        if self.floor.load(Relaxed) < at {
            self.floor.fetch_max(at, Relaxed);
        }
    }

    /// A lower bound of all later times.
    pub(crate) fn floor(&self) -> u64 {
        self.floor.load(Relaxed)
    }

    /// From now on the time is never less than now.
    pub(crate) fn raise(&self) -> u64 {
        let now = self.now();
        self.floor.fetch_max(now, Relaxed);
        now
    }
}
