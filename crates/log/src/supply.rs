//! Opening blocks, and the supply of free extents for them.

use crate::Log;
use crate::format::{Extent, block};
use crate::open_block::{OpenBlock, Purpose};
use crate::phase::Phase;
use crate::read;
use crate::space::AMPLE_BYTES_MAX;
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use crate::sync::statics::AtomicU32;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium, PAGE_BYTES};

/// A source of free extents for blocks, which makes some where none is free.
pub trait Supply {
    /// Takes the first of `wants` that is available; at least `least` must be. Also returns the purpose that the
    /// extents may be used for. The caller holds no lock and, unless it is the compactor, no pin.
    ///
    /// # Errors
    /// `OutOfSpace`, and the medium's errors.
    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)>;

    /// Like `take_extents`, but takes only extents that are already free. The caller may hold any locks.
    fn take_free(&self, wants: [u32; 3], purpose: Purpose) -> Option<(Extent, u32, Purpose)>;

    /// Frees up to `bytes` bytes; where the medium grows, up to `wished` bytes. The caller holds no lock and no pin.
    fn make_free(&self, bytes: u64, wished: u64, purpose: Purpose);

    /// Ensures that a block could be opened for a put, and makes room as for one. The caller holds no lock and no pin.
    ///
    /// # Errors
    /// As [`Supply::take_extents`].
    fn find_extent(&self) -> Result<()>;

    /// Whether it is worth waiting for blocks that other writers have open.
    fn may_wait(&self) -> bool {
        true
    }
}

/// Counts the writers that make room, open blocks or return them. They are outside the exclusive barrier, since the
/// compactor may wait for writers inside it. No model or schedule closes a store while its handles are used, so one
/// kind of counter serves everywhere.
#[derive(Default)]
pub struct Reserving(AtomicU32);

/// Counts a writer in [`Reserving`] until it is dropped.
pub struct Reserved<'l>(&'l Reserving);

/// The flag in [`Reserving`] after which no writer may begin.
const ENDED: u32 = 1 << 31;

impl Reserving {
    /// A writer begins.
    ///
    /// # Errors
    /// The store is closed.
    pub fn begin(&self) -> Result<Reserved<'_>> {
        // AcqRel: pairs with that in `end`, so that one of the two observes the other.
        let before = self.0.fetch_add(1, AcqRel);
        let reserved = Reserved(self);
        if before & ENDED != 0 { Err(Error::closed()) } else { Ok(reserved) }
    }

    /// Lets no writer begin from now on, and waits until those that have begun are done.
    pub fn end(&self) {
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

/// A supply that takes only space that is already free, for callers that hold locks and must not wait.
pub struct FreeOnly<'a>(pub &'a dyn Supply);

impl Supply for FreeOnly<'_> {
    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)> {
        self.take_free(wants, purpose).ok_or_else(|| {
            Error::new(
                ErrorKind::OutOfSpace,
                format!("no {least} adjoining extents are free, and no space is reclaimed while the caller holds key locks"),
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
    /// Opens a block with room for a record of `bytes`, in extents from `supply`. `rest` is the number of bytes that
    /// the compactor has still to move: the block has room for all of it if possible.
    ///
    /// Order: the header is published before anything is written after it. See [`crate::space`].
    pub(crate) fn open_block(
        &self,
        supply: &dyn Supply,
        bytes: u64,
        rest: u64,
        purpose: Purpose,
    ) -> Result<OpenBlock> {
        let least = self.extents_for(bytes);
        let most = self.space().ample_extents_max();
        // Room for some eight records of this size, so that little space is left after the last that fits. At most 1
        // MiB, and no more than compaction can move; of larger records, as many as fit into that.
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
        let _inside = self.phases.enter(Phase::OpenBlock);
        let generation = self.space().generation();
        let offset = self.offset_of(extent);
        let secret = self.blocks.secret();
        let before =
            read::header(&self.medium, secret, extent, offset).unwrap_or(block::Header::fresh(secret, 1));
        // `free_blocks` made that durable before it gave the extents back.
        debug_assert_eq!(before.state, block::State::Free, "opening extent {}, which is not free", extent.0);
        let header = before.opened(extents, generation);
        header.publish_fresh(&self.medium, extent, offset);
        if extents > 1
            && self.medium.granularity() == Granularity::Page
            && let Err(error) = self.sync_or_poison()
        {
            self.space().returned(as_for);
            return Err(error);
        }
        // Behind the header's page: whatever of that a crash leaves is no record of this generation.
        let behind = (u64::from(extents) * self.extent_bytes).saturating_sub(PAGE_BYTES);
        if behind > 0 {
            self.medium.reuse(offset.plus(PAGE_BYTES), behind);
        }
        self.blocks.open(extent, extents, generation).set_fresh(purpose != Purpose::Compaction);
        // Compaction cannot always move out of a block that is longer than the spare. So such a block holds only its
        // first record, since any other might have to be moved. See `log::space`.
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
            unflushed: u64::MAX,
            purpose: as_for,
            entered: false,
        })
    }
}
