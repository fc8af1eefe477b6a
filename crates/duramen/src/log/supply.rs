//! Opening blocks, and who finds room for them.

use super::Log;
use super::open_block::{OpenBlock, Purpose};
use super::read;
use super::space::AMPLE_BYTES_MAX;
use crate::format::{Extent, block};
use crate::mutants::{Mutant, planted};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::sync::statics::AtomicU32;
use crate::tuning::Phase;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium};

/// Who has room for blocks, and makes some where none is free.
pub(crate) trait Supply {
    /// Takes the first of `wants` that can be had, of which `least` must be; says also what the extents may be used
    /// for. The caller holds no lock and, unless it is the compactor, no pin.
    ///
    /// # Errors
    /// `OutOfSpace`; what the medium fails with.
    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)>;

    /// The same of what is free, without making any: the caller may hold what it likes.
    fn take_free(&self, wants: [u32; 3], purpose: Purpose) -> Option<(Extent, u32, Purpose)>;

    /// Makes so many bytes free, as far as that can be; and where the medium grows, as many as are wished for. The caller holds no lock
    /// and no pin.
    fn make_free(&self, bytes: u64, wished: u64, purpose: Purpose);

    /// Makes sure that a block could be opened for a put, making room as for one. The caller holds no lock and no pin.
    ///
    /// # Errors
    /// As [`Supply::take_extents`].
    fn find_extent(&self) -> Result<()>;

    /// Whether it is worth waiting for what others have in hand.
    fn may_wait(&self) -> bool {
        true
    }
}

/// Writers that make room, open blocks or give them up. They are not inside the gate, since the compactor may wait for those who are. No
/// model or schedule closes a store beside its handles, so what counts them is of one kind everywhere.
#[derive(Default)]
pub(crate) struct Reserving(AtomicU32);

/// A writer is among them until this is dropped.
pub(crate) struct Reserved<'l>(&'l Reserving);

/// Of [`Reserving`]: none begins any more.
const ENDED: u32 = 1 << 31;

impl Reserving {
    /// One begins.
    ///
    /// # Errors
    /// The store is closed.
    pub(crate) fn begin(&self) -> Result<Reserved<'_>> {
        // AcqRel: pairs with that in `end`, so that one of the two sees the other.
        let before = self.0.fetch_add(1, AcqRel);
        let reserved = Reserved(self);
        if before & ENDED != 0 { Err(Error::closed()) } else { Ok(reserved) }
    }

    /// None begins from now on, and those that have begun are over.
    pub(crate) fn end(&self) {
        self.0.fetch_or(ENDED, AcqRel);
        let mut backoff = Backoff::default();
        while self.0.load(Acquire) & !ENDED != 0 {
            backoff.wait();
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `end`.
        self.0.0.fetch_sub(1, Release);
    }
}

/// What is free of another's, for who holds locks and must not wait.
pub(crate) struct FreeOnly<'a>(pub &'a dyn Supply);

impl Supply for FreeOnly<'_> {
    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)> {
        self.take_free(wants, purpose).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfSpace,
                format!("no {least} adjoining extents are free, and none are made while keys are locked"),
            )
        })
    }

    fn take_free(&self, wants: [u32; 3], purpose: Purpose) -> Option<(Extent, u32, Purpose)> {
        self.0.take_free(wants, purpose)
    }

    fn make_free(&self, _: u64, _: u64, _: Purpose) {}

    fn find_extent(&self) -> Result<()> {
        self.0.find_extent()
    }

    fn may_wait(&self) -> bool {
        false
    }
}

impl<M: Medium> Log<M> {
    /// Opens a block with room for a record of `bytes`, of extents that `supply` has. With `rest`, which
    /// the compactor has still to move, for all of that if it can be.
    ///
    /// Order: the header is published before anything is written behind it. See [`crate::log::space`].
    pub(super) fn open_block(
        &self,
        supply: &dyn Supply,
        bytes: u64,
        rest: u64,
        purpose: Purpose,
    ) -> Result<OpenBlock> {
        let least = self.extents_for(bytes);
        let most = self.space().ample_extents_max();
        // Room for some eight records of this size, so that the space behind the last that fits is
        // little, but no more than 1 MiB, nor than compaction can move: of larger records, for as many as fit into that.
        let room =
            (u64::from(most) * self.extent_bytes).min(AMPLE_BYTES_MAX).saturating_sub(block::HEADER_BYTES);
        let ample = self.extents_for(bytes * (room / bytes).clamp(1, 8)).min(most).max(least);
        let wants = match purpose {
            Purpose::Compaction => {
                let rest = self.extents_for(rest).min(most).max(least);
                [ample.max(rest), rest, least]
            }
            _ => [ample, least, least],
        };
        let (extent, extents, as_for) = supply.take_extents(least, wants, purpose)?;
        let _inside = self.tuning.phase(Phase::OpenBlock);
        let generation = self.space().generation();
        let offset = self.offset_of(extent);
        let secret = self.blocks.secret();
        let before =
            read::header(&self.medium, secret, extent, offset).unwrap_or(block::Header::fresh(secret, 1));
        // Whoever gave the extents made that durable before (`free_blocks`).
        debug_assert_eq!(before.state, block::State::Free, "extent {} is opened that is not free", extent.0);
        let generation = match before.generation {
            kept if planted(Mutant::GenerationKept) && kept.0 > 0 => kept,
            _ => generation,
        };
        let header = before.opened(extents, generation);
        header.publish_fresh(&self.medium, extent, offset);
        if extents > 1
            && self.medium.granularity() == Granularity::Page
            && let Err(error) = self.sync_or_poison()
        {
            self.space().returned(as_for);
            return Err(error);
        }
        self.blocks.open(extent, extents, generation).set_fresh(purpose != Purpose::Compaction);
        // Compaction cannot always move out of a block that is longer than the spare: so nothing is put beside
        // its first record, which would have to be. See `log::space`.
        let room =
            if extents > most { block::HEADER_BYTES + bytes } else { u64::from(extents) * self.extent_bytes };
        Ok(OpenBlock {
            extent,
            offset: offset.0,
            bytes: room,
            tail: block::HEADER_BYTES,
            header,
            seeds: secret.seeds(generation),
            durable_tail: block::HEADER_BYTES,
            live: 0,
            records: 0,
            dirty_epoch: 0,
            purpose: as_for,
            entered: false,
        })
    }
}
