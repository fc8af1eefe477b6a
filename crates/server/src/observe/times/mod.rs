//! How long commands take: percentiles of each ([`Histogram`]), those that took long ([`SlowLog`]), and the moments at which anything
//! took long ([`Spikes`]).
//!
//! The dispatcher measures the time. Reading the clock costs as much as a short command, so in a pipeline of one
//! command it is read once for several of them. Only times below [`TICK_MICROS`] need it after each.

mod histogram;
mod slow_log;
mod spikes;
mod tick;

pub use histogram::{Histogram, HistogramSums};
pub use slow_log::{Logged, SlowLog};
pub use spikes::{Series, Spikes};
pub use tick::Tick;

use crate::config::Config;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// The coarse clock of Linux moves every 1 to 10 ms: it notices anything that takes longer.
pub const TICK_MICROS: u64 = 10_000;

/// The recorded times, and which ones to record.
#[derive(Default)]
pub struct Times {
    /// SLOWLOG.
    pub slow_log: SlowLog,
    /// LATENCY.
    pub spikes: Spikes,
    // A command of this many microseconds is examined.
    notable_micros: AtomicU64,
    slow_micros: AtomicI64,
    spike_millis: AtomicU64,
    each: AtomicBool,
    tracked: AtomicBool,
}

impl Times {
    /// As a configuration says.
    pub fn new(config: &Config) -> Self {
        let times = Self::default();
        times.configure(config);
        times
    }

    /// The configuration is another.
    pub fn configure(&self, config: &Config) {
        let spike = config.latency_monitor_threshold;
        let slow = u64::try_from(config.slowlog_log_slower_than).unwrap_or(u64::MAX);
        let spike_micros = if spike == 0 { u64::MAX } else { spike.saturating_mul(1000) };
        let notable = slow.min(spike_micros);
        // Relaxed: a command that runs at this moment may be judged by either.
        let relaxed = Ordering::Relaxed;
        self.slow_micros.store(config.slowlog_log_slower_than, relaxed);
        self.spike_millis.store(spike, relaxed);
        self.notable_micros.store(notable, relaxed);
        self.each.store(notable < TICK_MICROS, relaxed);
        self.tracked.store(config.latency_tracking, relaxed);
        self.slow_log.limit(config.slowlog_max_len);
    }

    /// Whether the clock is read after each command.
    #[inline]
    pub fn each(&self) -> bool {
        self.each.load(Ordering::Relaxed)
    }

    /// Whether percentiles are kept (`latency-tracking`).
    #[inline]
    pub fn tracked(&self) -> bool {
        self.tracked.load(Ordering::Relaxed)
    }

    /// Whether so long a time is to be noted.
    #[inline]
    pub fn is_notable(&self, micros: u64) -> bool {
        micros >= self.notable_micros.load(Ordering::Relaxed)
    }

    /// Whether it goes to the slow log.
    pub fn is_slow(&self, micros: u64) -> bool {
        let least = self.slow_micros.load(Ordering::Relaxed);
        u64::try_from(least).is_ok_and(|least| micros >= least)
    }

    /// Notes how long an event took, if that is long.
    pub fn spike(&self, event: &'static str, micros: u64) {
        let (least, millis) = (self.spike_millis.load(Ordering::Relaxed), micros / 1000);
        if least > 0 && millis >= least {
            self.spikes.add(event, millis);
        }
    }
}
