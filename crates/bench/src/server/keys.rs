//! The choice of the next key, and the bytes of keys and values.
//!
//! A key's value follows from its number, so that a reply can be checked without a record of earlier writes.

use std::fmt;
use std::str::FromStr;

/// How often each key is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// A few keys very often: the i-th with a share of 1 / i^theta. theta is below 1; YCSB uses 0.99.
    Zipfian(f64),
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let theta = match text.split_once(':') {
            None if text == "uniform" => return Ok(Self::Uniform),
            None if text == "zipfian" => 0.99,
            Some(("zipfian", theta)) => theta.parse().unwrap_or(f64::NAN),
            _ => f64::NAN,
        };
        if theta > 0.0 && theta < 1.0 {
            Ok(Self::Zipfian(theta))
        } else {
            Err(format!(
                "{text:?} is no distribution: wanted uniform, zipfian, or zipfian:T with T between 0 and 1"
            ))
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipfian(theta) => write!(f, "zipfian:{theta}"),
        }
    }
}

/// Chooses keys by number.
pub(crate) struct Keys {
    state: u64,
    count: u64,
    zipf: Option<Zipf>,
}

impl Keys {
    pub(crate) fn new(count: u64, distribution: Distribution, seed: u64) -> Self {
        let zipf = match distribution {
            Distribution::Uniform => None,
            Distribution::Zipfian(theta) => Some(Zipf::new(count, theta)),
        };
        Self { state: mix(seed), count, zipf }
    }

    /// The next key's number, below the count.
    pub(crate) fn next(&mut self) -> u64 {
        let random = self.random();
        match &self.zipf {
            None => scaled(random, self.count),
            // Ranks are spread over the keys: adjacent ranks are not adjacent keys.
            Some(zipf) => mix(zipf.rank(random)) % self.count,
        }
    }

    /// A number below `below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        scaled(self.random(), below)
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }
}

/// 64 bits spread over `0..below` without a division.
fn scaled(random: u64, below: u64) -> u64 {
    ((u128::from(random) * u128::from(below)) >> 64) as u64
}

/// A bijection that leaves no pattern (the finisher of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Zipfian ranks after Gray et al., "Quickly generating billion-record synthetic databases", SIGMOD 1994.
struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Self {
        let zeta = zeta(count, theta);
        let alpha = 1.0 / (1.0 - theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_2(theta) / zeta);
        Self { count, theta, zeta, alpha, eta }
    }

    fn rank(&self, random: u64) -> u64 {
        let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
        let place = share * self.zeta;
        if place < 1.0 {
            return 0;
        }
        if place < zeta_2(self.theta) {
            return 1.min(self.count - 1);
        }
        let rank = self.count as f64 * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

fn zeta_2(theta: f64) -> f64 {
    1.0 + 0.5_f64.powf(theta)
}

/// The sum of 1 / i^theta; beyond a million terms by its integral, which is off by less than one term.
fn zeta(count: u64, theta: f64) -> f64 {
    let exact = count.min(1_000_000);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    let power = 1.0 - theta;
    sum + ((count as f64).powf(power) - (exact as f64).powf(power)) / power
}

/// Bytes of a key: `key:` or `num:` and 12 digits.
pub(crate) const KEY_BYTES: usize = 16;

/// A key: its prefix, and a number.
pub(crate) fn key(prefix: &[u8; 4], number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"    000000000000";
    key[..4].copy_from_slice(prefix);
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// The source of values, which are slices of it: printable bytes without a pattern.
pub(crate) struct Values {
    pool: Vec<u8>,
    bytes: usize,
    /// The bytes before a value in a RESP reply: the same for all, so they are made once.
    pub(crate) head: Vec<u8>,
}

// 64 Ki places to start from: two keys have the same value once in 65,536.
const PLACES: usize = 1 << 16;

impl Values {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut state = 7_u64;
        let pool = (0..PLACES + bytes)
            .map(|_| {
                state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                b'!' + (mix(state) % 94) as u8
            })
            .collect();
        Self { pool, bytes, head: format!("${bytes}\r\n").into_bytes() }
    }

    /// The value of a key.
    pub(crate) fn of(&self, key: u64) -> &[u8] {
        let place = (mix(key.wrapping_add(1)) % PLACES as u64) as usize;
        &self.pool[place..place + self.bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_keys_come_about_equally_often() {
        let mut keys = Keys::new(10, Distribution::Uniform, 1);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[keys.next() as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_most_frequent_zipfian_key_has_its_share() {
        let mut keys = Keys::new(1000, Distribution::Zipfian(0.99), 1);
        let mut counts = vec![0_u32; 1000];
        for _ in 0..100_000 {
            counts[keys.next() as usize] += 1;
        }
        counts.sort_unstable();
        // 1 / zeta(1000, 0.99) is 0.129; two ranks may fall on one key.
        let most = *counts.last().unwrap();
        assert!((12_000..22_000).contains(&most), "{most}");
        assert_eq!(Keys::new(1, Distribution::Zipfian(0.5), 1).next(), 0);
    }

    #[test]
    fn keys_have_twelve_digits() {
        for (number, wanted) in
            [(0, "key:000000000000"), (42, "key:000000000042"), (999_999_999_999, "key:999999999999")]
        {
            assert_eq!(key(b"key:", number), wanted.as_bytes());
        }
    }

    #[test]
    fn distributions_are_named() {
        assert_eq!("zipfian:0.5".parse(), Ok(Distribution::Zipfian(0.5)));
        for bad in ["", "zipf", "zipfian:1", "zipfian:x", "uniform:1"] {
            assert!(bad.parse::<Distribution>().is_err(), "{bad}");
        }
    }
}
