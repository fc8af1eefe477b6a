//! The coarse clock.

use rustix::time::{ClockId, clock_gettime};

/// The coarse clock, which is quick to read and moves every few milliseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tick(i64, i64);

impl Tick {
    /// As it is.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        Self(now.tv_sec, now.tv_nsec)
    }
}
