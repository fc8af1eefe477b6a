//! Numbers that look random and repeat by seed.

/// A bijection of 64 bits whose output looks random (the finalizer of SplitMix64 by Steele, Lea and Flood).
#[inline]
pub(crate) const fn mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// SplitMix64: one addition and [`mix`] a number; any seed is good.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// One of many independent sequences of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream)))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, by multiplication: the bias is below n / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from 0 to 1, without 1.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Puts `numbers` into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, numbers: &mut [T]) {
        for i in (1..numbers.len()).rev() {
            numbers.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// A number from the standard normal distribution that belongs to `number` (Box and Muller).
pub(crate) fn normal_of(number: u64) -> f64 {
    let mut random = Random::new(number, 0x6e6f_726d);
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}
