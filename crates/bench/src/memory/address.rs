//! The offsets of accesses, generated ahead into a buffer, batch by batch.
//!
//! Invariant: every offset is a multiple of its slot, and below `slots * slot_bytes`.

// Odd, and prime: coprime with every count of slots that is not its multiple, so that multiplying by it visits every
// slot once. It spreads the popular ranks of a zipfian distribution over the whole range, as hashing does.
const SPREAD: u64 = 11_400_714_819_323_198_549;

/// A small, fast generator (Vigna's splitmix64): its quality is enough for addresses, and it needs 1 ns.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator; the same seed gives the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `bound`, evenly distributed (to 2^-64 of it).
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in (0, 1].
    #[inline]
    fn unit(&mut self) -> f64 {
        // An f64 holds 53 bits.
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

/// Zipfian ranks by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996): no table, any range.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    alpha: f64,
    /// The integral of the hull at 1.5 less 1, and at `count + 0.5`.
    low: f64,
    high: f64,
    /// Below this distance from its rank a sample is accepted at once.
    shortcut: f64,
}

impl Zipf {
    /// Ranks from 0 to `count - 1`, the first the most popular: rank k with weight 1 / (k + 1)^`alpha`.
    pub fn new(count: u64, alpha: f64) -> Self {
        let mut zipf = Self { count: count.max(1) as f64, alpha, low: 0.0, high: 0.0, shortcut: 0.0 };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.count + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.alpha * x.ln()).exp()
    }

    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = (1.0 - self.alpha) * log;
        // The limit of (e^exponent - 1) / exponent is 1.
        if exponent.abs() < 1e-8 { log } else { exponent.exp_m1() / exponent * log }
    }

    fn inverse(&self, y: f64) -> f64 {
        let scaled = ((1.0 - self.alpha) * y).max(-1.0);
        let log = if scaled.abs() < 1e-8 { y } else { scaled.ln_1p() / scaled * y };
        log.exp()
    }

    /// The next rank.
    pub fn next(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.high + random.unit() * (self.low - self.high);
            let x = self.inverse(u);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64 - 1;
            }
        }
    }
}

/// Slots of one size, from which accesses are chosen.
#[derive(Clone, Debug)]
pub struct Slots {
    slots: u64,
    slot_bytes: u64,
    zipf: Option<Zipf>,
}

impl Slots {
    /// As many slots of `slot_bytes` as fit into `bytes`. `alpha` chooses them by a zipfian distribution.
    pub fn new(bytes: u64, slot_bytes: u64, alpha: Option<f64>) -> Self {
        let slots = (bytes / slot_bytes).max(1);
        Self { slots, slot_bytes, zipf: alpha.map(|alpha| Zipf::new(slots, alpha)) }
    }

    /// The number of slots.
    pub fn count(&self) -> u64 {
        self.slots
    }

    /// The offset of a random slot.
    #[inline]
    pub fn random(&self, random: &mut Random) -> u64 {
        let slot = match &self.zipf {
            None => random.below(self.slots),
            Some(zipf) => {
                let rank = zipf.next(random);
                (u128::from(rank) * u128::from(SPREAD) % u128::from(self.slots)) as u64
            }
        };
        slot * self.slot_bytes
    }

    /// The offset of slot `index`, modulo the number of slots.
    #[inline]
    pub fn at(&self, index: u64) -> u64 {
        index % self.slots * self.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_are_inside_and_aligned(bytes in 64u64..1 << 40, shift in 3u32..16, seed: u64, zipf: bool) {
            let slot = 1u64 << shift;
            prop_assume!(bytes >= slot);
            let slots = Slots::new(bytes, slot, zipf.then_some(0.9));
            let mut random = Random::new(seed);
            for _ in 0..20 {
                let at = slots.random(&mut random);
                prop_assert!(at.is_multiple_of(slot) && at + slot <= bytes);
            }
        }

        #[test]
        fn spreading_visits_every_slot_once(slots in 1u64..5000) {
            let mut seen = vec![false; slots as usize];
            for rank in 0..slots {
                let slot = (u128::from(rank) * u128::from(SPREAD) % u128::from(slots)) as usize;
                prop_assert!(!std::mem::replace(&mut seen[slot], true));
            }
        }
    }

    /// Against the weights themselves: each of the first ranks within 5 standard deviations.
    #[test]
    fn zipfian_ranks_have_their_weights() {
        const SAMPLES: u64 = 400_000;
        for (count, alpha) in [(10u64, 0.5), (1000, 0.9), (1000, 1.0), (100_000, 1.2)] {
            let zipf = Zipf::new(count, alpha);
            let mut random = Random::new(7);
            let mut counts = vec![0u64; count as usize];
            for _ in 0..SAMPLES {
                counts[zipf.next(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=count).map(|k| (k as f64).powf(-alpha)).sum();
            for rank in 0..10u64 {
                let share = ((rank + 1) as f64).powf(-alpha) / total;
                let wanted = share * SAMPLES as f64;
                let deviation = (wanted * (1.0 - share)).sqrt();
                let found = counts[rank as usize] as f64;
                assert!((found - wanted).abs() < 5.0 * deviation, "{alpha} {rank}: {found} of {wanted}");
            }
        }
    }

    #[test]
    fn uniform_slots_are_even() {
        let slots = Slots::new(64 * 100, 64, None);
        let mut counts = [0u32; 100];
        let mut random = Random::new(3);
        for _ in 0..100_000 {
            counts[(slots.random(&mut random) / 64) as usize] += 1;
        }
        // 1000 wanted, standard deviation 31.
        assert!(counts.iter().all(|count| (840..1160).contains(count)), "{counts:?}");
    }
}
