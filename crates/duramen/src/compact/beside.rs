//! Rounds in which several threads move records out of blocks.
//!
//! The thread that has the compactor chooses the blocks, hands them out to *copiers*, and waits until all are done. Then
//! it retires the blocks one after the other, in an order of its own. So everything that happens between the choice and
//! the first retirement happens to blocks that were sealed before it, and nothing is retired or freed meanwhile.
//!
//! Why the order of [`crate::compact::records`] holds:
//!
//! * *Copies* (steps 1 and 2) of different blocks are independent: at most one of the blocks has the record that a slot
//!   points to, and each copier appends to a block of its own, which is not among the chosen ones.
//! * *Tombstones* are dropped by the thread that has the compactor. A copier only decides which hide nothing. Then all
//!   older records of the key lie in blocks that were retired in earlier rounds, or in the tombstone's own block. Until
//!   the tombstone is dropped none is added: a copy of this round was of a record that a slot pointed to when the round
//!   began, and then the key has no tombstone in a chosen block.
//! * *Counts* of stale records fall only when a block is retired (step 3), after all copiers are done.
//! * *A block stays* when its copier found no room. Its originals become stale records before any other block is retired.
//!
//! Copiers take only extents that a put could take ([`Beside`]), and return the rest of their blocks at the end of the
//! round as writers do. So to the argument in [`duramen_log::space`], why a delete always finds room, they are writers.

use crate::Result;
use crate::compact::blocks::Found;
use crate::compact::compactor::{Compactor, Copier};
use crate::compact::emptying::{Contents, Emptied};
use crate::maintenance::Maintenance;
use crate::tuning::Phase;
use duramen_log::blocks::Use;
use duramen_log::format::Extent;
use duramen_log::open_block::Purpose;
use duramen_log::supply::{FreeOnly, Supply};
use duramen_log::sync::each_on_threads;
use duramen_media::Medium;

/// How many blocks a copier moves out of in one round: enough that its thread's start is a small part of the work.
pub(crate) const BLOCKS_EACH: usize = 4;

/// The supply of a copier: free extents that a put could take.
pub(crate) struct Beside<'a, M: Medium>(pub &'a Maintenance<M>);

impl<M: Medium> Supply for Beside<'_, M> {
    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)> {
        FreeOnly(self).take_extents(least, wants, purpose)
    }

    fn take_free(&self, wants: [u32; 3], _: Purpose) -> Option<(Extent, u32, Purpose)> {
        self.0.take_free(wants, Purpose::Write)
    }

    fn make_free(&self, _: u64, _: u64, _: Purpose) {}

    fn find_extent(&self) -> Result<()> {
        self.0.find_extent()
    }

    fn may_wait(&self) -> bool {
        false
    }
}

/// A block that a copier moves out of, with the memory for its bytes and records.
struct Source {
    extent: Extent,
    scratch: Vec<u8>,
    records: Vec<Found>,
}

/// The outcome: `None` when the block is damaged.
type Outcome<'b> = Result<Option<(Contents<'b>, Emptied<'b>, bool)>>;

impl<M: Medium> Maintenance<M> {
    /// Moves out of the best victims on so many threads; returns the bytes of their blocks.
    pub(crate) fn compact_beside(
        &self,
        compactor: &mut Compactor,
        copiers: usize,
        dead_percent_min: u64,
    ) -> Result<u64> {
        let mut sources = self.sources(compactor, copiers * BLOCKS_EACH, dead_percent_min);
        let share = sources.len().div_ceil(copiers).max(1);
        let total = sources.iter().map(|source| self.log().blocks.at(source.extent).tail()).sum();
        let mut at_work = std::mem::take(&mut compactor.beside);
        while at_work.len() < copiers {
            at_work.push(Copier::new(self.log().epochs(), true));
        }
        let threads = if self.records.tuning.copiers_in_turn.is_some() { 1 } else { copiers };
        let done = each_on_threads(
            threads,
            at_work.iter_mut().zip(sources.chunks_mut(share)),
            |(copier, sources)| self.move_all(copier, sources),
        );
        let retired = self.retire_moved(compactor, done.into_iter().flatten().collect());
        compactor.copier.unknown_bytes +=
            at_work.iter_mut().map(|copier| std::mem::take(&mut copier.unknown_bytes)).sum::<u64>();
        compactor.beside = at_work;
        retired.map(|()| total)
    }

    /// Takes up to so many of the best victims, as far as puts would find room for all that is in them.
    fn sources(&self, compactor: &mut Compactor, most: usize, dead_percent_min: u64) -> Vec<Source> {
        let mut room = self.log().space().extents_for(Purpose::Write);
        let mut sources = Vec::new();
        while sources.len() < most && self.has_victim(compactor, dead_percent_min) {
            let Some(&extent) = compactor.victims.last() else { break };
            let block = self.log().blocks.at(extent);
            let Some(left) = room.checked_sub(block.extents()) else { break };
            compactor.victims.pop();
            if block.retire() {
                room = left;
                sources.push(Source { extent, scratch: Vec::new(), records: Vec::new() });
            }
        }
        sources
    }

    /// The share of one copier.
    fn move_all<'b>(&'b self, copier: &mut Copier, sources: &'b mut [Source]) -> Vec<(Extent, Outcome<'b>)> {
        let done =
            sources.iter_mut().map(|source| (source.extent, self.move_beside(copier, source))).collect();
        copier.appender.put_aside(self.log());
        done
    }

    /// A copier's part of [`Maintenance::move_out`].
    fn move_beside<'b>(&'b self, copier: &mut Copier, source: &'b mut Source) -> Outcome<'b> {
        let _inside = self.log().phases.enter(Phase::Move);
        let Source { extent, scratch, records } = source;
        let state = self.log().blocks.at(*extent).state();
        assert_eq!(state, Use::Retired, "only the compactor moves out of a block (records, invariant 1)");
        let Some((bytes, found)) = self.whole_records_once(*extent, scratch) else { return Ok(None) };
        *records = found;
        let contents = self.contents(*extent, bytes, records);
        let mut emptied = Emptied::new(contents.records.len());
        let is_complete = self.move_live(copier, &contents, None, &mut emptied)?;
        self.swap_slots(copier, &mut emptied);
        Ok(Some((contents, emptied, is_complete)))
    }

    /// Keeps the blocks that are not empty, and retires the others.
    fn retire_moved(&self, compactor: &mut Compactor, done: Vec<(Extent, Outcome<'_>)>) -> Result<()> {
        let (mut empty, mut result) = (Vec::new(), Ok(()));
        for (extent, outcome) in done {
            match outcome {
                Ok(None) => {}
                Ok(Some((contents, emptied, true))) => empty.push((contents, emptied)),
                Ok(Some((_, emptied, false))) => {
                    self.keep_originals(&compactor.copier, emptied.originals());
                    self.log().blocks.keep(extent);
                    // Not again before there is more room.
                    self.put_off(compactor, extent);
                }
                Err(error) => {
                    self.log().blocks.keep(extent);
                    result = Err(error);
                }
            }
        }
        for (contents, emptied) in empty {
            result = result.and(self.retire(compactor, &contents, emptied));
        }
        result
    }
}
