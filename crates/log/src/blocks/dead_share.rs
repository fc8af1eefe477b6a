//! Classes of sealed blocks by the share of their bytes that compaction gains. The compactor looks at high classes first.
//!
//! | class | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 |
//! |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
//! | dead, at least, in percent | 0 | any | 1 | 5 | 10 | 15 | 20 | 30 | 40 | 50 | 60 | 70 | 80 | 90 | 95 | all |
//!
//! The percentages that the engine asks for (any, 1, 5, 30) are bounds of classes, so that all blocks of the classes
//! that it looks at qualify.

/// A class; see the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(u8);

const PERCENT: [u64; 16] = [0, 0, 1, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 95, 100];

/// The class of a block with dead bytes, by their whole percent.
const OF_PERCENT: [u8; 101] = {
    let mut classes = [1; 101];
    let (mut percent, mut class) = (1, 1);
    while percent <= 100 {
        while class + 1 < PERCENT.len() && PERCENT[class + 1] <= percent as u64 {
            class += 1;
        }
        classes[percent] = class as u8;
        percent += 1;
    }
    classes
};

impl Class {
    /// Nothing is dead.
    pub const LOWEST: Self = Self(0);
    /// Everything is dead.
    pub const HIGHEST: Self = Self(PERCENT.len() as u8 - 1);

    /// The class of a block of which compaction gains `bytes` when nothing is live.
    pub fn of(bytes: u64, live: u64) -> Self {
        let dead = bytes.saturating_sub(live);
        if dead == 0 {
            return Self::LOWEST;
        }
        Self(OF_PERCENT[(dead * 100 / bytes) as usize])
    }

    /// The lowest class whose blocks all have dead bytes, and this percentage of them, or the one below it.
    pub fn of_percent(percent: u64) -> Self {
        Self(OF_PERCENT[percent.min(100) as usize])
    }

    /// The fewest live bytes of a block of this class. With fewer it is in a higher one.
    pub fn live_least(self, bytes: u64) -> u64 {
        match PERCENT.get(usize::from(self.0) + 1) {
            Some(percent) => bytes + 1 - (bytes * percent).div_ceil(100).max(1),
            None => 0,
        }
    }

    /// The classes from this one up, the highest first.
    pub fn and_above(self) -> impl Iterator<Item = Self> {
        (self.0..=Self::HIGHEST.0).rev().map(Self)
    }

    /// A set of this class alone.
    pub const fn bit(self) -> u32 {
        1 << self.0
    }

    /// The set of all higher classes.
    pub fn bits_above(self) -> u32 {
        !0 << self.0 << 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentages_that_the_engine_asks_for_are_bounds_of_classes() {
        for percent in [1, 5, 30, 100] {
            let class = Class::of_percent(percent);
            assert_eq!(
                (Class::of(1000, 1000 - 10 * percent), PERCENT[usize::from(class.0)]),
                (class, percent)
            );
        }
        assert_eq!(Class::of_percent(0), Class::of(1 << 30, (1 << 30) - 1), "any dead byte");
        assert_eq!((Class::of(7, 7), Class::of(7, 0)), (Class::LOWEST, Class::HIGHEST));
    }

    proptest! {
        #[test]
        fn a_block_is_in_its_class_down_to_the_fewest_live_bytes(bytes in 1u64..1 << 30, live in 0u64..1 << 30) {
            let live = live.min(bytes);
            let class = Class::of(bytes, live);
            let least = class.live_least(bytes);
            prop_assert!(least <= live);
            prop_assert_eq!(Class::of(bytes, least), class);
            if let Some(fewer) = least.checked_sub(1) {
                prop_assert!(Class::of(bytes, fewer) > class);
            }
        }
    }
}
