//! The secret of a store, which makes a checksum a proof that the store itself wrote the bytes.
//!
//! Users choose the bytes of keys and values. So all bytes that recovery trusts have checks whose seeds are made of the
//! secret, which only the medium knows. It is drawn when the store is created, and is never in a reply, a dump or a
//! log.
//!
//! | number | made of | is in |
//! |---|---|---|
//! | [`Seeds`] | a block's generation | the two checksums of each record |
//! | [`Secret::of_blocks`] | | the checks of a block header |
//! | [`Secret::tie`] | the number of an extent | each block header, as it is |
//! | [`Secret::of_marks`] | | commit marks |
//! | [`Secret::of_checkpoints`] | | the root and the pages of an index checkpoint |
//!
//! All of them are SipHash-2-4 under the secret: knowing one of them reveals nothing about the others.

use super::{Extent, Generation};
use siphasher::sip::SipHasher24;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Secret(u64);

/// The seeds of the checksums of the records of one block.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Seeds {
    head: u32,
    /// Of the checksum over key and value and the fields after them.
    pub body: u32,
}

/// The use of a number, so that no two are the same.
#[derive(Clone, Copy)]
enum Use {
    Records = 1,
    Blocks = 2,
    Extent = 3,
    Marks = 4,
    Checkpoints = 5,
}

impl Secret {
    /// A secret of random bits. 0 is none, so that zeros on a medium are never read as one.
    pub fn new(bits: u64) -> Self {
        Self(bits.max(1))
    }

    /// The form of the secret on a medium.
    pub fn word(self) -> u64 {
        self.0
    }

    /// The secret in its form on a medium.
    pub fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    fn number(self, for_use: Use, of: u64) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(for_use as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&of.to_le_bytes());
        SipHasher24::new_with_keys(self.0, 0).hash(&bytes)
    }

    /// For the records of a block of this generation.
    pub fn seeds(self, generation: Generation) -> Seeds {
        let number = self.number(Use::Records, generation.0);
        Seeds { head: number as u32, body: (number >> 32) as u32 }
    }

    pub fn of_blocks(self) -> u32 {
        self.number(Use::Blocks, 0) as u32
    }

    /// The number in a header at this extent besides its check.
    pub fn tie(self, extent: Extent) -> u64 {
        self.number(Use::Extent, extent.0.into())
    }

    pub fn of_marks(self) -> u32 {
        self.number(Use::Marks, 0) as u32
    }

    pub fn of_checkpoints(self) -> u32 {
        self.number(Use::Checkpoints, 0) as u32
    }
}

impl Seeds {
    /// The seed of the check of a header `at` bytes after the beginning of its block. No two places of a block have the
    /// same, and the steps of a CRC keep numbers distinct. So a header copied to another place of its block is never
    /// valid there.
    #[inline(always)]
    pub fn head(self, at: u64) -> u32 {
        self.head ^ (at >> 3) as u32
    }
}

/// Without the number: it must not appear in a message or a log.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl std::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seeds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_secret_differ_by_secret_use_and_argument() {
        let (one, other) = (Secret::new(7), Secret::new(8));
        let generation = Generation::new(1, 2);
        let numbers = [
            one.seeds(generation).head.into(),
            one.seeds(generation).body.into(),
            other.seeds(generation).head.into(),
            one.seeds(Generation::new(1, 3)).head.into(),
            u64::from(one.of_blocks()),
            u64::from(one.of_marks()),
            u64::from(one.of_checkpoints()),
            one.tie(Extent(1)),
            one.tie(Extent(2)),
            other.tie(Extent(1)),
        ];
        for (at, number) in numbers.iter().enumerate() {
            assert!(!numbers[..at].contains(number), "number {at}");
        }
    }

    #[test]
    fn debug_output_does_not_show_the_secret() {
        let (secret, seeds) = (Secret::new(0xabcd_ef01), Secret::new(5).seeds(Generation(1)));
        assert_eq!(format!("{secret:?} {seeds:?}"), "Secret Seeds");
    }

    #[test]
    fn each_place_of_a_block_has_its_own_seed() {
        let seeds = Secret::new(7).seeds(Generation::new(1, 2));
        assert!((1..1000).all(|at| seeds.head(at * 8) != seeds.head(0)));
    }
}
