//! Time as versions count it: units of 256 ns since the process first asked.
//!
//! It never goes back, on whatever CPU and thread it is read. So if one write begins after another has returned, it
//! reads at least as much. On x86-64 it is the time stamp counter, if the CPU reports that it is invariant and the
//! kernel uses it as its own clock, which it does only while the counters of all CPUs agree; some 20 cycles. Elsewhere
//! it is `CLOCK_MONOTONIC`.
//!
//! Models and schedules have no such clock: their runs must repeat, and versions do without it (see
//! `duramen_index::stripes`).

/// A unit is 2^8 ns.
#[cfg(not(any(loom, miri, feature = "schedule")))]
const UNIT_BITS: u32 = 8;

/// The time now; 0 where there is none.
#[inline]
pub fn now() -> u64 {
    #[cfg(any(loom, miri, feature = "schedule"))]
    return 0;
    #[cfg(not(any(loom, miri, feature = "schedule")))]
    return source::now();
}

#[cfg(not(any(loom, miri, feature = "schedule")))]
mod source {
    use super::UNIT_BITS;
    use std::sync::OnceLock;
    use std::time::Instant;

    /// The source of the time.
    enum Source {
        #[cfg(target_arch = "x86_64")]
        Counter {
            start: u64,
            units_for_2_64: u64,
        },
        Monotonic(Instant),
    }

    static SOURCE: OnceLock<Source> = OnceLock::new();

    #[inline]
    pub(super) fn now() -> u64 {
        match SOURCE.get_or_init(find) {
            #[cfg(target_arch = "x86_64")]
            Source::Counter { start, units_for_2_64 } => {
                let counted = counter::read().saturating_sub(*start);
                ((u128::from(counted) * u128::from(*units_for_2_64)) >> 64) as u64
            }
            Source::Monotonic(start) => (start.elapsed().as_nanos() >> UNIT_BITS) as u64,
        }
    }

    #[cold]
    fn find() -> Source {
        #[cfg(target_arch = "x86_64")]
        if counter::is_time()
            && let Some(units_for_2_64) = counter::measure()
        {
            return Source::Counter { start: counter::read(), units_for_2_64 };
        }
        Source::Monotonic(Instant::now())
    }

    #[cfg(target_arch = "x86_64")]
    mod counter {
        use super::UNIT_BITS;
        use std::arch::x86_64::{__cpuid, _rdtsc};
        use std::time::{Duration, Instant};

        /// How long the counter is compared with the kernel's clock. Each end is accurate to some 100 ns, so the unit
        /// is accurate to 1 in 10,000, which nothing depends on.
        const MEASURED: Duration = Duration::from_millis(1);

        #[inline]
        pub(super) fn read() -> u64 {
            // SAFETY: it needs no feature, and touches no memory.
            unsafe { _rdtsc() }
        }

        /// Whether it runs at one speed, and is the same on all CPUs.
        pub(super) fn is_time() -> bool {
            const POWER: u32 = 0x8000_0007;
            const INVARIANT: u32 = 1 << 8;
            let is_invariant = __cpuid(0x8000_0000).eax >= POWER && __cpuid(POWER).edx & INVARIANT != 0;
            let kernels = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
            is_invariant && std::fs::read_to_string(kernels).is_ok_and(|name| name.trim() == "tsc")
        }

        /// Number of units in 2^64 counts; `None` where the counter does not count.
        pub(super) fn measure() -> Option<u64> {
            let (from, start) = (Instant::now(), read());
            std::thread::sleep(MEASURED);
            let (nanos, counted) = (from.elapsed().as_nanos(), read().checked_sub(start)?);
            let units = (nanos << (64 - UNIT_BITS)).checked_div(u128::from(counted))?;
            u64::try_from(units).ok().filter(|&units| units > 0)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_tick_is_256_ns_and_ticks_never_decrease() {
            now();
            let (began, first) = (Instant::now(), now());
            let mut last = first;
            while began.elapsed() < std::time::Duration::from_millis(20) {
                let next = now();
                assert!(next >= last, "{next} after {last}");
                last = next;
            }
            let passed = (began.elapsed().as_nanos() >> UNIT_BITS) as u64;
            let counted = now() - first;
            assert!(counted.abs_diff(passed) <= passed / 20 + 200, "{counted} units counted in {passed}");
        }
    }
}
