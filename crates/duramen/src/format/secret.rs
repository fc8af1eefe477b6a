//! The secret of a store: what makes a checksum a proof that the store itself wrote the bytes.
//!
//! Users choose the bytes of keys and values. Everything that recovery takes for its own therefore has checks that begin with numbers made
//! of the secret, which nobody outside of the medium knows. It is drawn when the store is made, and it is never in a reply, a dump or a log.
//!
//! | number | made of | is in |
//! |---|---|---|
//! | [`Seeds`] | a block's generation | the two checksums of each record |
//! | [`Secret::of_blocks`] | | the checks of a block header |
//! | [`Secret::tie`] | the number of an extent | each block header, as it is |
//! | [`Secret::of_marks`] | | commit marks |
//! | [`Secret::of_checkpoints`] | | the root and the pages of an index checkpoint |
//!
//! All of them are SipHash-2-4 under the secret: which of them somebody learns tells nothing of the others.

use super::{Extent, Generation};
use crate::mutants::{Mutant, planted};
use siphasher::sip::SipHasher24;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Secret(u64);

/// What the checksums of the records of one block begin with.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seeds {
    head: u32,
    /// Of the checksum over key and value, and what follows.
    pub body: u32,
}

/// What a number is made for, so that no two are the same.
#[derive(Clone, Copy)]
enum Use {
    Records = 1,
    Blocks = 2,
    Extent = 3,
    Marks = 4,
    Checkpoints = 5,
}

impl Secret {
    /// A secret of random bits. 0 is none, so that zeros on a medium never tell one.
    pub(crate) fn new(bits: u64) -> Self {
        Self(bits.max(1))
    }

    /// What a medium holds of it.
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// The secret that a medium holds.
    pub(crate) fn of_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Self(word))
    }

    fn number(self, for_use: Use, of: u64) -> u64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(for_use as u64).to_le_bytes());
        bytes[8..].copy_from_slice(&of.to_le_bytes());
        let key = if planted(Mutant::SecretLeftOut) { 0 } else { self.0 };
        SipHasher24::new_with_keys(key, 0).hash(&bytes)
    }

    /// For the records of a block of this generation.
    pub(crate) fn seeds(self, generation: Generation) -> Seeds {
        let number = self.number(Use::Records, generation.0);
        Seeds { head: number as u32, body: (number >> 32) as u32 }
    }

    pub(crate) fn of_blocks(self) -> u32 {
        self.number(Use::Blocks, 0) as u32
    }

    /// What a header at this extent has besides its check.
    pub(crate) fn tie(self, extent: Extent) -> u64 {
        self.number(Use::Extent, extent.0.into())
    }

    pub(crate) fn of_marks(self) -> u32 {
        self.number(Use::Marks, 0) as u32
    }

    pub(crate) fn of_checkpoints(self) -> u32 {
        self.number(Use::Checkpoints, 0) as u32
    }
}

impl Seeds {
    /// What the check of a header begins with that lies `at` bytes behind the beginning of its block. No two places of a block have the
    /// same, and the steps of a CRC keep numbers apart: so a header that was copied to another place of its block never is one there.
    #[inline(always)]
    pub(crate) fn head(self, at: u64) -> u32 {
        self.head ^ if planted(Mutant::PlaceNotChecked) { 0 } else { (at >> 3) as u32 }
    }
}

/// Without the number: it must not come into a message or a log.
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
    fn numbers_of_a_secret_differ_by_secret_use_and_what_they_are_of() {
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
    fn a_secret_does_not_come_into_messages() {
        let (secret, seeds) = (Secret::new(0xabcd_ef01), Secret::new(5).seeds(Generation(1)));
        assert_eq!(format!("{secret:?} {seeds:?}"), "Secret Seeds");
    }

    #[test]
    fn the_places_of_a_block_have_seeds_of_their_own() {
        let seeds = Secret::new(7).seeds(Generation::new(1, 2));
        assert!((1..1000).all(|at| seeds.head(at * 8) != seeds.head(0)));
    }
}
