//! The coarse clock.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// The coarse clock, which is quick to read and moves every few milliseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tick(i64, i64);

impl Tick {
    /// As it is.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }

    /// When it was so.
    pub fn instant(self) -> Instant {
        let [now, then] = [Self::now(), self].map(|Self(seconds, nanos)| {
            Duration::new(
                u64::try_from(seconds).unwrap_or_default(),
                u32::try_from(nanos).unwrap_or_default(),
            )
        });
        let instant = Instant::now();
        instant.checked_sub(now.saturating_sub(then)).unwrap_or(instant)
    }
}
