//! How long the answer to a failed AUTH is held back: the longer, the more have failed from the same address.
//!
//! Addresses share a fixed number of counters, so an attacker with many of them takes no memory. A right password is never
//! held back.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const COUNTERS: usize = 1024;
/// For each failure of the last minute or two.
const STEP_MILLIS: u64 = 10;
const DELAY_MILLIS_MAX: u64 = 1000;

/// See the module.
pub struct Failures {
    // The minute in the upper half, the failures in it and before it in the lower.
    counters: Box<[AtomicU64]>,
    hasher: RandomState,
    // The second in which the last failure was logged, and how many were not logged since.
    logged_at: AtomicU64,
    unlogged: AtomicU64,
}

impl Default for Failures {
    fn default() -> Self {
        Self {
            counters: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            logged_at: AtomicU64::new(0),
            unlogged: AtomicU64::new(0),
        }
    }
}

impl Failures {
    /// Counts a failure from this address (its port does not matter), and says how long its answer waits.
    pub fn note(&self, address: &str, seconds: u64) -> Duration {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let counter = &self.counters[self.hasher.hash_one(host) as usize % COUNTERS];
        let minute = seconds / 60;
        let counted = |before: u64| {
            let (then, count) = (before >> 32, before & u64::from(u32::MAX));
            let kept = match minute.saturating_sub(then) {
                0 => count,
                // Half of them in the minute after.
                1 => count / 2,
                _ => 0,
            };
            minute << 32 | (kept + 1).min(u64::from(u32::MAX))
        };
        // Relaxed: a count. The closure always gives a value.
        let before =
            counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(counted(before)));
        let count = counted(before.unwrap_or_default()) & u64::from(u32::MAX);
        Duration::from_millis((count * STEP_MILLIS).min(DELAY_MILLIS_MAX))
    }

    /// Whether to log this failure: one in a second. Gives the number of those that were not logged before it.
    pub fn is_logged(&self, seconds: u64) -> Option<u64> {
        if self.logged_at.swap(seconds, Ordering::Relaxed) == seconds {
            self.unlogged.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.unlogged.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_waits_longer_with_each_failure_and_is_forgiven_with_time() {
        let failures = Failures::default();
        let millis = |address: &str, seconds| failures.note(address, seconds).as_millis();
        assert_eq!(millis("10.0.0.1:1", 600), 10);
        assert_eq!(millis("10.0.0.1:2", 601), 20);
        assert_eq!(millis("10.0.0.1:2", 660), 20, "half of two, and one");
        for _ in 0..200 {
            failures.note("10.0.0.1:3", 661);
        }
        assert_eq!(millis("10.0.0.1:4", 661), 1000);
        assert_eq!(millis("10.0.0.1:4", 1000), 10);
        assert_eq!(failures.is_logged(5), Some(0));
        assert_eq!((failures.is_logged(5), failures.is_logged(5)), (None, None));
        assert_eq!(failures.is_logged(6), Some(2));
    }
}
