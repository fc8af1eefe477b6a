//! Random numbers for commands that draw: fast, and no secret (SplitMix64).

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

thread_local! {
    // Where the thread's next seed comes from, if it is to be the same each time.
    static SEEDS: Cell<Option<u64>> = const { Cell::new(None) };
}

/// A random number: what the standard library seeds its hash tables with, or the next of [`with_seed`].
pub(crate) fn seed() -> u64 {
    match SEEDS.get() {
        None => RandomState::new().hash_one(()),
        Some(state) => {
            let mut random = Random(state);
            let next = random.any();
            SEEDS.set(Some(random.0));
            next
        }
    }
}

/// Calls `work`, within which commands of this thread draw what follows from `seed` alone.
pub fn with_seed<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    struct Reset(Option<u64>);
    impl Drop for Reset {
        fn drop(&mut self) {
            SEEDS.set(self.0);
        }
    }
    let _reset = Reset(SEEDS.replace(Some(seed)));
    work()
}

/// A sequence of random numbers.
pub struct Random(u64);

impl Random {
    /// The sequence that begins with `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, 0 when that is 0. The chances differ by `bound` in 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(bound)) >> u64::BITS) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_ends_with_its_work() {
        let draw = || [seed(), seed(), seed()];
        let first = with_seed(7, draw);
        assert_eq!(with_seed(7, draw), first);
        assert_ne!(with_seed(8, draw), first);
        assert!(first[0] != first[1] && draw() != draw());
        let panicked = std::panic::catch_unwind(|| with_seed(7, || panic!("on purpose")));
        assert!(panicked.is_err() && SEEDS.get().is_none());
    }
}
