//! Units of several blocks, on their way from their end until the compactor may have their blocks.
//!
//! A unit of several blocks counts after a crash because its end is found, and all its members are. So none of its
//! blocks may be moved out of before the headers of all of them say for good what became of it ([`Fates`]). In order,
//! and what a crash leaves:
//!
//! 1. The end is durable, or nothing is written to headers. A crash before: all of the unit is there, or it does not
//!    count.
//! 2. Each block's header says that the unit counts. A crash between two of them: the end and all members are there,
//!    and recovery counts them as before.
//! 3. That is durable. Now each block tells by itself what counts of it.
//! 4. The blocks' pins are taken back; only from here on they can be retired.
//!
//! Of a unit that was given up the headers say that it does not count, in the same way, so that recovery does not look
//! for its end.
//!
//! Where epochs are in use, 1 waits for the commit of the end's epoch, and on page media 3 for that of another one.

use super::Log;
use crate::format::block::{self, Fate, Fates};
use crate::format::{Epoch, Granule};
use crate::mutants::{Mutant, planted};
use crate::sync::{Mutex, lock, rank};
use duramen_media::{Granularity, Medium};

/// A unit whose blocks' headers do not say yet what became of it.
struct Settle {
    blocks: Vec<Granule>,
    /// The last one has the end.
    has_end: bool,
    fate: Fate,
    /// Of the end.
    epoch: Epoch,
    /// The epoch whose commit makes the headers durable, once they are written.
    written: Option<Epoch>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Settling(Mutex<Vec<Settle>, { rank::SETTLING }>);

impl<M: Medium> Log<M> {
    /// A unit with its end, if it has one, in the last of these blocks is over, and drained; each of them has a pin of
    /// it.
    pub(crate) fn settle_unit(&self, blocks: Vec<Granule>, fate: Fate, has_end: bool, epoch: Epoch) {
        lock(&self.settling.0).push(Settle { blocks, has_end, fate, epoch, written: None });
        self.settle_units();
    }

    /// Goes on with the units of several blocks whose ends are durable. True when none is left.
    pub(crate) fn settle_units(&self) -> bool {
        let mut waiting = lock(&self.settling.0);
        if waiting.is_empty() {
            return true;
        }
        let is_committed = |epoch: Epoch| !self.epochs().in_use() || self.epochs().committed() >= epoch;
        if self.epochs().check_writable().is_err() {
            return false;
        }
        let mut any = false;
        for settle in waiting.iter_mut().filter(|settle| settle.written.is_none()) {
            // What was given up has nothing that must be durable.
            if settle.fate == Fate::Void || is_committed(settle.epoch) || planted(Mutant::SettledTooEarly) {
                self.write_fates(settle);
                // Another commit than any that has begun.
                settle.written = Some(self.epochs().current());
                any = true;
            }
        }
        if any {
            self.medium.drain();
        }
        let waits = self.medium.granularity() == Granularity::Page && self.epochs().in_use();
        waiting.retain(|settle| {
            let is_over = settle.written.is_some_and(|epoch| !waits || is_committed(epoch));
            if is_over {
                settle.blocks.iter().for_each(|&granule| self.blocks.at(granule).unpin());
            }
            !is_over
        });
        waiting.is_empty()
    }

    fn write_fates(&self, settle: &Settle) {
        let ended = Fates { ended: settle.fate, ..Fates::default() };
        let onward = Fates { onward: settle.fate, ..Fates::default() };
        let (others, last) = settle.blocks.split_at(settle.blocks.len() - usize::from(settle.has_end));
        let last = if planted(Mutant::EndNotConfirmed) { &[] } else { last };
        let others = others.iter().map(|&granule| (granule, onward));
        for (granule, fates) in others.chain(last.iter().map(|&granule| (granule, ended))) {
            let at = self.offset_of(granule);
            // Copied: its appender may seal the block meanwhile.
            let mut bytes = [0; block::HEADER_BYTES as usize];
            self.medium.load_pieces(at, &mut bytes);
            if let Ok(header) = block::Header::decode(self.blocks.secret(), granule, &bytes) {
                header.store_fates(&self.medium, at, header.fates.with(fates));
            }
        }
    }
}
