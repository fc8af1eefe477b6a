//! Which units are free, and who gets them.
//!
//! On the medium every free unit has a header of its own that says so, one unit long; a data block's
//! header covers all its units. So the chain of headers is whole at every moment:
//!
//! * *open a block*: one publish of its first unit's header. On page media, a block of several units is
//!   synced before its body is written, since the body overwrites the other units' headers.
//! * *free a block*: publish "free" for all its units; then (only for several units) write the inner
//!   headers, make them durable, and publish "free, one unit".
//! * *grow*: write the headers of the new units, make them durable, then publish the new number of
//!   units in the superblock.
//!
//! Invariants:
//! 1. A unit is in `free` only when nothing on the medium or in DRAM leads to it, durably.
//! 2. [`Space::reserve`] units are kept back from ordinary writes, so that compaction and deletes always
//!    have room to make room.

use super::appender::OpenBlock;
use crate::format::{Generation, Unit, block};
#[cfg(feature = "mutants")]
use crate::mutants::{Mutant, planted};
use duramen_media::{Medium, Offset};
use std::collections::{BTreeMap, BTreeSet};

/// What an allocation is for; decides how far down it may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Write,
    Delete,
    Compaction,
}

/// Units kept back at least: two for deletes, the others for compaction.
pub(crate) const RESERVE_UNITS: u32 = 4;
const RESERVE_DELETES: u32 = 2;
/// This part of the store is kept back, up to what compaction needs for two of the largest ordinary blocks: one to
/// move out of, and one more when a crash cost it the first.
const RESERVE_SHARE: u32 = 32;
/// The largest block that is made longer than its first record needs.
pub(crate) const AMPLE_BYTES_MAX: u64 = 1 << 20;
/// Open blocks without a writer that are kept for the next one.
const PARTIAL_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Space {
    /// Runs of free units: first unit and length, never adjacent.
    by_start: BTreeMap<u32, u32>,
    by_units: BTreeSet<(u32, u32)>,
    free: u32,
    /// Units of the store, head included.
    units: u32,
    unit_bytes: u64,
    incarnation: u32,
    counter: u64,
    partial: Vec<OpenBlock>,
}

impl Space {
    pub(crate) fn new(units: u32, unit_bytes: u64, incarnation: u32) -> Self {
        Self { units, unit_bytes, incarnation, ..Self::default() }
    }

    /// Units that are kept back now (invariant 2).
    pub(crate) fn reserve(&self) -> u32 {
        let most = RESERVE_DELETES + 2 * AMPLE_BYTES_MAX.div_ceil(self.unit_bytes) as u32;
        (self.units / RESERVE_SHARE).min(most).max(RESERVE_UNITS)
    }

    /// A block that is longer than its first record needs has no more units than this, so that compaction always has
    /// room to move out of it.
    pub(crate) fn ample_units_max(&self) -> u32 {
        (self.reserve() - RESERVE_DELETES) / 2
    }

    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    pub(crate) fn set_units(&mut self, units: u32) {
        self.units = units;
    }

    pub(crate) fn free_units(&self) -> u32 {
        self.free
    }

    /// Units that ordinary writes may still take without growth.
    pub(crate) fn writable_units(&self) -> u32 {
        self.free.saturating_sub(self.reserve())
    }

    /// The same space for the writes of an incarnation.
    pub(crate) fn with_incarnation(self, incarnation: u32) -> Self {
        Self { incarnation, ..self }
    }

    /// The generation last given out.
    pub(crate) fn generation_now(&self) -> Generation {
        Generation::new(self.incarnation, self.counter)
    }

    /// A generation that was never used.
    pub(crate) fn generation(&mut self) -> Generation {
        self.counter += 1;
        Generation::new(self.incarnation, self.counter)
    }

    /// Takes `units` adjoining units: the shortest run that is long enough, its beginning.
    pub(crate) fn take(&mut self, units: u32, purpose: Purpose) -> Option<Unit> {
        let keep = match purpose {
            Purpose::Write => self.reserve(),
            Purpose::Delete => self.reserve() - RESERVE_DELETES,
            Purpose::Compaction => 0,
        };
        if self.free < units + keep {
            return None;
        }
        let &(length, start) = self.by_units.range((units, 0)..).next()?;
        self.by_units.remove(&(length, start));
        self.by_start.remove(&start);
        if length > units {
            self.by_start.insert(start + units, length - units);
            self.by_units.insert((length - units, start + units));
        }
        self.free -= units;
        Some(Unit(start))
    }

    /// Gives units back (invariant 1), joined with their free neighbours.
    pub(crate) fn give(&mut self, unit: Unit, units: u32) {
        self.free += units;
        let (mut start, mut length) = (unit.0, units);
        if let Some((&before, &n)) = self.by_start.range(..start).next_back()
            && before + n == start
        {
            self.by_start.remove(&before);
            self.by_units.remove(&(n, before));
            (start, length) = (before, length + n);
        }
        if let Some(&n) = self.by_start.get(&(start + length)) {
            self.by_start.remove(&(start + length));
            self.by_units.remove(&(n, start + length));
            length += n;
        }
        self.by_start.insert(start, length);
        self.by_units.insert((length, start));
    }

    /// An open block with room for `bytes`, left by a writer that ended or went on to a larger one.
    pub(crate) fn take_partial(&mut self, bytes: u64) -> Option<OpenBlock> {
        let at = self.partial.iter().rposition(|block| block.room() >= bytes)?;
        #[cfg(feature = "mutants")]
        if planted(Mutant::PartialTakenTwice) {
            return Some(self.partial[at].clone());
        }
        Some(self.partial.swap_remove(at))
    }

    /// Keeps an open block for the next writer; gives one back to be sealed when there are too many.
    pub(crate) fn give_partial(&mut self, block: OpenBlock) -> Option<OpenBlock> {
        self.partial.push(block);
        if self.partial.len() <= PARTIAL_MAX {
            return None;
        }
        let fullest = (0..self.partial.len()).min_by_key(|&i| self.partial[i].room())?;
        Some(self.partial.swap_remove(fullest))
    }

    pub(crate) fn drain_partial(&mut self) -> Vec<OpenBlock> {
        std::mem::take(&mut self.partial)
    }
}

/// Frees blocks, or finishes what was begun of it: see the module for the order. On return that is durable, with whatever
/// was stored before.
pub(crate) fn free_blocks<M: Medium>(
    medium: &M,
    unit_bytes: u64,
    blocks: &[(Unit, block::Header)],
) -> duramen_media::Result<()> {
    let offset = |unit: Unit| Offset(u64::from(unit.0) * unit_bytes);
    for (unit, header) in blocks {
        header.freed().publish_word(medium, *unit, offset(*unit));
    }
    medium.sync()?;
    // Each unit of a block of several gets a header of its own.
    let many: Vec<_> = blocks.iter().filter(|(_, header)| header.units > 1).collect();
    if many.is_empty() {
        return Ok(());
    }
    let publish_alone = || {
        for (unit, header) in &many {
            header.freed().alone().publish_word(medium, *unit, offset(*unit));
        }
    };
    #[cfg(feature = "mutants")]
    if planted(Mutant::FreedUnitsWithoutHeaders) {
        publish_alone();
    }
    for (unit, header) in &many {
        crate::store::write_free_headers(medium, unit_bytes, unit.0 + 1, header.units - 1);
    }
    medium.sync()?;
    publish_alone();
    medium.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reserve_is_for_deletes_and_compaction() {
        let mut space = Space::new(10, 4096, 1);
        space.give(Unit(1), RESERVE_UNITS + 1);
        assert!(space.take(2, Purpose::Write).is_none());
        assert!(space.take(1, Purpose::Write).is_some());
        assert!(space.take(1, Purpose::Write).is_none());
        assert!(space.take(2, Purpose::Delete).is_some());
        assert!(space.take(1, Purpose::Delete).is_none());
        assert!(space.take(2, Purpose::Compaction).is_some());
        assert_eq!(space.free_units(), 0);
    }

    proptest! {
        #[test]
        fn no_unit_is_lost_or_owned_twice(ops in prop::collection::vec((any::<bool>(), 1u32..6), 1..200)) {
            let mut space = Space::new(200, 1 << 20, 1);
            space.give(Unit(1), 100);
            let mut owned: Vec<(u32, u32)> = Vec::new();
            for (take, n) in ops {
                if take {
                    if let Some(unit) = space.take(n, Purpose::Compaction) {
                        for &(start, length) in &owned {
                            prop_assert!(unit.0 + n <= start || start + length <= unit.0);
                        }
                        owned.push((unit.0, n));
                    }
                } else if !owned.is_empty() {
                    let (start, length) = owned.swap_remove(n as usize % owned.len());
                    space.give(Unit(start), length);
                }
                let held: u32 = owned.iter().map(|o| o.1).sum();
                prop_assert_eq!(space.free_units() + held, 100);
                let runs: u32 = space.by_start.values().sum();
                prop_assert_eq!(runs, space.free_units());
                prop_assert_eq!(space.by_start.len(), space.by_units.len());
            }
        }
    }
}
