//! The store's time.

use crate::sync::Arc;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;

/// The source of the current time, in Unix milliseconds. For tests; the default is the system's clock.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The store's time: Unix milliseconds. It never goes back, not even across restarts.
pub struct StoreClock {
    source: Option<Clock>,
    floor: AtomicU64,
}

impl StoreClock {
    pub fn new(source: Option<Clock>, floor: u64) -> Self {
        Self { source, floor: AtomicU64::new(floor) }
    }

    pub fn now(&self) -> u64 {
        let now = match &self.source {
            Some(source) => source(),
            None => std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| d.as_millis() as u64),
        };
        now.max(self.floor.load(Relaxed))
    }

    /// A caller has seen that a value with expiry time `at` has expired: from now on it stays expired.
    pub fn reached(&self, at: u64) {
        if self.floor.load(Relaxed) < at {
            self.floor.fetch_max(at, Relaxed);
        }
    }

    /// A lower bound of all later times.
    pub fn floor(&self) -> u64 {
        self.floor.load(Relaxed)
    }

    /// From now on the time is never less than now.
    pub fn raise(&self) -> u64 {
        let now = self.now();
        self.floor.fetch_max(now, Relaxed);
        now
    }
}
