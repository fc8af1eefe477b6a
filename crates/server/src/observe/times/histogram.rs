//! How often something took how long, in nanoseconds up to a second, within one part in 128: HdrHistogram's buckets for two digits, as Redis
//! has them, so that percentiles come out alike.
//!
//! The first 256 buckets are one nanosecond wide; each 128 that follow are twice as wide as those before.

use crate::counter::Counter;
use std::sync::OnceLock;

const NANOS_MAX: u64 = 1_000_000_000;
const BUCKETS: usize = index(NANOS_MAX) + 1;

const fn index(nanos: u64) -> usize {
    let shift = 56 - (nanos | 0xff).leading_zeros() as usize;
    shift * 128 + (nanos >> shift) as usize
}

/// The longest time that a bucket counts.
const fn highest(index: usize) -> u64 {
    let shift = (index / 128).saturating_sub(1);
    (((index - shift * 128) as u64 + 1) << shift) - 1
}

/// One thread counts, any reads. Nothing is allocated before the first.
#[derive(Debug, Default)]
pub struct Histogram(OnceLock<Box<[Counter]>>);

impl Histogram {
    /// Counts a time, `times` times; from the owning thread only.
    #[inline]
    pub fn record(&self, nanos: u64, times: u64) {
        let counts = self.0.get_or_init(|| (0..BUCKETS).map(|_| Counter::default()).collect());
        counts[index(nanos.min(NANOS_MAX))].add(times);
    }
}

/// The sum of several histograms.
#[derive(Clone, Debug, Default)]
pub struct HistogramSums(Vec<u64>);

impl HistogramSums {
    /// Adds the counts of one.
    pub fn add(&mut self, other: &Histogram) {
        let Some(counts) = other.0.get() else { return };
        self.0.resize(BUCKETS, 0);
        self.0.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.get());
    }

    /// The counts since `base`.
    #[must_use]
    pub fn since(mut self, base: &Self) -> Self {
        self.0.iter_mut().zip(&base.0).for_each(|(now, then)| *now -= (*then).min(*now));
        self
    }

    /// How many times were counted.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The percentile: the time in nanoseconds that `percent` of the counted times did not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent.clamp(0.0, 100.0) / 100.0 * self.total() as f64 + 0.5) as u64).max(1);
        let mut so_far = 0;
        let reached = self.0.iter().position(|count| {
            so_far += count;
            so_far >= wanted
        });
        reached.map_or(0, highest)
    }

    /// How many times are above the bound before and at most each of these bounds, which ascend, and how many are above
    /// all of them. A bucket that contains a bound counts above it, so the counts are exact within one part in 128.
    pub fn buckets(&self, bounds_nanos: &[u64]) -> Vec<u64> {
        let mut at = 0;
        let mut counts: Vec<u64> = Vec::with_capacity(bounds_nanos.len() + 1);
        for bound in bounds_nanos {
            let mut sum = 0;
            while at < self.0.len() && highest(at) <= *bound {
                sum += self.0[at];
                at += 1;
            }
            counts.push(sum);
        }
        counts.push(self.0.get(at..).unwrap_or_default().iter().sum());
        counts
    }

    /// Powers of two of about a microsecond, and how many times were no longer, where that is more than at the one before.
    pub fn distribution(&self) -> Vec<(u64, u64)> {
        let (mut steps, mut so_far, mut at) = (Vec::new(), 0, 0);
        let mut level = 1024;
        let total = self.total();
        while so_far < total {
            let end = index(level).min(BUCKETS - 1);
            let more: u64 = self.0[at..=end].iter().sum();
            if more > 0 {
                so_far += more;
                steps.push((highest(index(level)) / 1000, so_far));
            }
            (at, level) = (end + 1, level * 2);
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_contain_their_bounds() {
        let mut lowest = 0;
        for at in 0..BUCKETS {
            assert_eq!((index(lowest), index(highest(at))), (at, at));
            lowest = highest(at) + 1;
        }
        assert!(highest(BUCKETS - 1) >= NANOS_MAX);
    }

    // The numbers are those that redis-server 7.0.15 gave.
    #[test]
    fn percentiles_are_those_of_redis() {
        let sums = |micros: &[u64]| {
            let histogram = Histogram::default();
            micros.iter().for_each(|micros| histogram.record(micros * 1000, 1));
            let mut sums = HistogramSums::default();
            sums.add(&histogram);
            sums
        };
        let one = sums(&[39, 10_120]);
        assert_eq!((one.percentile(50.0), one.percentile(99.0)), (39_167, 10_158_079));
        assert_eq!(sums(&[3]).percentile(99.9), 3_007);
        let many = sums(&[2, 3, 4, 5, 6, 7, 8, 8, 20]);
        assert_eq!(many.distribution(), [(2, 1), (4, 3), (8, 8), (33, 9)]);
        assert_eq!(many.clone().since(&sums(&[2, 3])).distribution(), [(4, 1), (8, 6), (33, 7)]);
        assert_eq!(sums(&[5_000_000]).percentile(50.0), highest(index(NANOS_MAX)));
        assert_eq!(sums(&[5_000_000]).distribution().len(), 1);
        assert_eq!(HistogramSums::default().percentile(50.0), 0);
        assert_eq!(many.buckets(&[2_500, 5_100, 10_000, 15_000]), [1, 3, 4, 0, 1]);
        assert_eq!(many.buckets(&[]), [9]);
        assert_eq!(HistogramSums::default().buckets(&[1, 2]), [0, 0, 0]);
    }
}
