//! The CPU's own counter: for latencies of single operations, and for waiting.

use super::arch;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The counter, read after everything earlier and before anything later.
#[inline]
pub(crate) fn ticks() -> u64 {
    arch::ticks()
}

/// Ticks per nanosecond, measured once against the system's clock for 20 ms.
pub(crate) fn ticks_per_ns() -> f64 {
    static RATE: OnceLock<f64> = OnceLock::new();
    *RATE.get_or_init(|| {
        let (start, from) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (to, elapsed) = (ticks(), start.elapsed());
        to.wrapping_sub(from) as f64 / elapsed.as_nanos() as f64
    })
}

/// The cost of reading the counter twice: the shortest of many, in nanoseconds. It is part of each latency.
pub(crate) fn cost_ns() -> f64 {
    let shortest = (0..10_000)
        .map(|_| {
            let from = ticks();
            ticks().wrapping_sub(from)
        })
        .min();
    shortest.unwrap_or(0) as f64 / ticks_per_ns()
}

/// Waits so many ticks from the moment when `after` is known.
#[inline]
pub(crate) fn wait(ticks: u64, after: u64) {
    // `after` is 0 but known only when the data has arrived: the wait begins then.
    std::hint::black_box(after);
    let start = arch::ticks().wrapping_add(after);
    while arch::ticks_rough().wrapping_sub(start) < ticks {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_takes_about_as_long_as_asked() {
        let rate = ticks_per_ns();
        for ns in [1_000.0, 10_000.0] {
            let shortest = (0..200)
                .map(|_| {
                    let start = Instant::now();
                    wait((ns * rate) as u64, 0);
                    start.elapsed().as_nanos() as f64
                })
                .fold(f64::MAX, f64::min);
            assert!((ns * 0.95..ns * 1.3 + 100.0).contains(&shortest), "{shortest} of {ns}");
        }
    }
}
