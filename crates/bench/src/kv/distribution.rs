//! How operations pick keys: all alike, or few of them most of the time.

use crate::kv::random::{Random, mix};
use crate::kv::{Failure, Result};
use std::fmt;
use std::str::FromStr;

/// The exponent of the zipfian distribution in YCSB and in the published evaluations.
const THETA: f64 = 0.99;

/// How operations spread over the keys that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Distribution {
    /// All keys alike.
    #[default]
    Uniform,
    /// The k-th most popular key in proportion to 1 / k^0.99; popular keys lie anywhere.
    Zipfian,
    /// As zipfian, the newest key being the most popular (YCSB D).
    Latest,
}

impl Distribution {
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Uniform, "uniform"), (Self::Zipfian, "zipfian"), (Self::Latest, "latest")];
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::NAMES.iter().find(|(d, _)| d == self).map_or("?", |(_, name)| name))
    }
}

impl FromStr for Distribution {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self> {
        Self::NAMES.iter().find(|(_, n)| *n == name).map(|(d, _)| *d).ok_or_else(|| {
            Failure::usage(format!("distribution {name:?} is unknown; use uniform, zipfian or latest"))
        })
    }
}

/// Draws key numbers.
#[derive(Clone, Debug)]
pub(crate) struct Picker {
    distribution: Distribution,
    keys: u64,
    zipf: Option<Zipf>,
}

impl Picker {
    /// For `keys` keys, at least 1. O(keys) for the skewed distributions.
    pub(crate) fn new(distribution: Distribution, keys: u64) -> Self {
        let zipf = (distribution != Distribution::Uniform).then(|| Zipf::new(keys, THETA));
        Self { distribution, keys, zipf }
    }

    /// A key's number. `newest(k)` is the number of the k-th newest key, from 0.
    pub(crate) fn pick(&self, random: &mut Random, newest: impl Fn(u64) -> u64) -> u64 {
        match (&self.zipf, self.distribution) {
            (Some(zipf), Distribution::Latest) => newest(zipf.rank(random)),
            // The rank is scattered over all keys, as in YCSB's scrambled zipfian. Ranks that fall on the same key add
            // up, and some keys are never picked.
            (Some(zipf), _) => mix(zipf.rank(random)) % self.keys,
            (None, _) => random.below(self.keys),
        }
    }
}

/// Ranks by the method of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994).
#[derive(Clone, Debug)]
struct Zipf {
    n: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
    second: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Self {
        let zeta: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
        let second = 1.0 + 0.5f64.powf(theta);
        let n = n as f64;
        let eta = (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - second / zeta);
        Self { n, alpha: 1.0 / (1.0 - theta), zeta, eta, second }
    }

    /// A rank from 0, the most popular.
    fn rank(&self, random: &mut Random) -> u64 {
        let u = random.unit();
        let scaled = u * self.zeta;
        if scaled < 1.0 || self.n < 2.0 {
            0
        } else if scaled < self.second {
            1
        } else {
            let rank = self.n * (self.eta * u - self.eta + 1.0).powf(self.alpha);
            (rank as u64).min(self.n as u64 - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_picks_pass_a_chi_square_test() {
        let picker = Picker::new(Distribution::Uniform, 1000);
        let mut random = Random::new(1, 2);
        let mut counts = [0u64; 1000];
        for _ in 0..1_000_000 {
            counts[picker.pick(&mut random, |k| k) as usize] += 1;
        }
        let chi: f64 = counts.iter().map(|&c| (c as f64 - 1000.0).powi(2) / 1000.0).sum();
        // 999 degrees of freedom: mean 999, deviation 44.7. Six deviations either way.
        assert!((730.0..1270.0).contains(&chi), "chi square {chi}");
    }

    #[test]
    fn zipfian_ranks_have_their_shares() {
        let n = 10_000;
        let zipf = Zipf::new(n, THETA);
        let mut random = Random::new(3, 4);
        let draws = 2_000_000u64;
        let mut counts = vec![0u64; n as usize];
        for _ in 0..draws {
            counts[zipf.rank(&mut random) as usize] += 1;
        }
        let share = |from: usize, to: usize| counts[from..to].iter().sum::<u64>() as f64 / draws as f64;
        let wanted = |from: usize, to: usize| {
            (from + 1..=to).map(|k| (k as f64).powf(-THETA)).sum::<f64>() / zipf.zeta
        };
        for (from, to) in [(0, 1), (1, 2), (2, 10), (10, 100), (100, 1000), (1000, 10_000)] {
            let (found, wanted) = (share(from, to), wanted(from, to));
            // The method is exact for the first two ranks and within some per cent for the rest.
            assert!((found - wanted).abs() < 0.12 * wanted, "ranks {from} to {to}: {found} for {wanted}");
        }
    }

    #[test]
    fn scattered_zipfian_is_skewed_and_in_range() {
        let picker = Picker::new(Distribution::Zipfian, 1000);
        let mut random = Random::new(5, 6);
        let mut counts = vec![0u64; 1000];
        for _ in 0..100_000 {
            counts[picker.pick(&mut random, |k| k) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u64 = counts[..10].iter().sum();
        assert!((30_000..60_000).contains(&top), "the ten most popular of 1000 keys got {top} of 100000");
    }

    #[test]
    fn latest_prefers_the_newest() {
        let picker = Picker::new(Distribution::Latest, 1000);
        let mut random = Random::new(7, 8);
        let newest = (0..10_000).filter(|_| picker.pick(&mut random, |k| 999 - k) == 999).count();
        assert!((1000..2000).contains(&newest), "the newest of 1000 got {newest} of 10000");
    }

    #[test]
    fn one_key_is_always_picked() {
        for distribution in [Distribution::Uniform, Distribution::Zipfian, Distribution::Latest] {
            let picker = Picker::new(distribution, 1);
            let mut random = Random::new(9, 9);
            assert!((0..100).all(|_| picker.pick(&mut random, |k| k) == 0));
        }
    }
}
