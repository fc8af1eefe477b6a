//! Bytes, blocks and epochs: the log of records of a [Duramen](https://docs.rs/duramen) store. The log knows nothing of
//! keys. A crate of the engine, without promises of its own; programs use `duramen`.
//!
//! [`mod@format`] is the layout of everything on the medium, and [`durability`] decides when it is durable. [`sync`]
//! has all primitives of threads, and the reclamation of memory.
//!
//! [`blocks`] holds the state of each block in DRAM. [`space`] hands out extents and takes them back, and [`supply`]
//! opens blocks. [`appender`] writes records into an [open block](open_block) of its own, or one that writers share;
//! [`read`] reads them in place. [`cell`] is a record whose value is updated in place, and [`reachable`] one that a
//! slot may point to. [`transaction`] knows which transactions are active, and `finalizing` records the outcomes of
//! those of several blocks.
// The items of an internal crate are documented where their names do not say it.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]

pub mod appender;
pub mod blocks;
pub mod cell;
pub mod durability;
mod error;
mod finalizing;
pub mod format;
mod given_back;
pub mod open_block;
pub mod phase;
pub mod reachable;
pub mod read;
pub mod space;
pub mod supply;
pub mod sync;
pub mod transaction;

use blocks::{Blocks, room_won};
use durability::{Activity, DurableState, Epochs, StoreClock};
use duramen_media::{Granularity, LINE_BYTES, Medium, Offset};
use format::record::HEADER_BYTES;
use format::superblock::Superblock;
use format::{Epoch, Extent, block};
use open_block::{DirtyBlocks, OpenBlock, Purpose};
use phase::{Phase, Phases};
use space::Space;
use supply::Reserving;
use sync::atomic::AtomicU64;
use sync::atomic::Ordering::Relaxed;
use sync::{Mutex, MutexGuard, lock, rank};

pub use error::{Error, ErrorKind, Result};
pub use format::record::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

/// The most lines of a record that are fetched before its length is known.
const RECORD_LINES_MAX: u64 = 8;
/// Bytes fetched of a key of unknown length.
pub const KEY_BYTES_USUAL: u64 = 16;
/// Records of this many bytes or more go to the writer's own block even where others share one. The device takes as
/// long for 16 KiB more in one place as for another place; the copy takes a few microseconds of the turn.
const SHARED_BYTES_MAX: u64 = 16 << 10;

/// A medium, the blocks on it, and their durable state.
pub struct Log<M: Medium> {
    pub medium: M,
    pub blocks: Blocks,
    pub durable: DurableState,
    pub extent_bytes: u64,
    /// The shared block, for writers that wait for a commit of pages: see [`appender`].
    shared: appender::Shared,
    space: Mutex<Space, { rank::SPACE }>,
    dirty_blocks: DirtyBlocks,
    /// Which transactions are active.
    pub transaction_slots: transaction::TransactionSlots,
    finalizing: finalizing::Finalizing,
    /// The usual number of lines of a record in this store: a lookup fetches so many ahead.
    record_lines: AtomicU64,
    /// Blocks ever retired. Raised before the grace period of a block begins: a thread that pins itself and finds this
    /// unchanged may still read all targets that slots had then.
    pub retirements: AtomicU64,
    pub reserving: Reserving,
    pub phases: Phases,
}

impl<M: Medium> Log<M> {
    pub fn new(medium: M, blocks: Blocks, durable: DurableState, space: Space, phases: Phases) -> Self {
        let is_tracking = durable.epochs.in_use() && medium.granularity() == Granularity::CacheLine;
        Self {
            extent_bytes: space.extent_bytes(),
            transaction_slots: transaction::TransactionSlots::new(durable.epochs.incarnation()),
            finalizing: finalizing::Finalizing::default(),
            medium,
            blocks,
            durable,
            shared: appender::Shared::default(),
            space: Mutex::new(space),
            dirty_blocks: DirtyBlocks::new(is_tracking),
            record_lines: AtomicU64::new(1),
            retirements: AtomicU64::new(0),
            reserving: Reserving::default(),
            phases,
        }
    }

    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.durable.epochs
    }

    pub fn clock(&self) -> &StoreClock {
        &self.durable.clock
    }

    pub fn space(&self) -> MutexGuard<'_, Space, { rank::SPACE }> {
        lock(&self.space)
    }

    /// Records the typical size of records in this store.
    pub fn note_records(&self, bytes: u64, records: u64) {
        let lines = (bytes / records.max(1)).div_ceil(LINE_BYTES).min(RECORD_LINES_MAX);
        if self.record_lines.load(Relaxed) != lines {
            self.record_lines.store(lines, Relaxed);
        }
    }

    /// Hints that the value of the record at `at` is read soon, before its length is known. Its lines are fetched at
    /// once, without waiting for its header.
    #[inline]
    pub fn fetch_ahead(&self, at: Offset) {
        let lines = self.record_lines.load(Relaxed);
        // Unrolled: a loop to a constant, not to the number of lines needed.
        for line in (0..RECORD_LINES_MAX).take_while(|&line| line < lines) {
            self.medium.prefetch(at.plus(line * LINE_BYTES));
        }
    }

    /// Hints that the key of the record at `at` is read soon. It usually ends in the line after that of the header.
    #[inline]
    pub fn fetch_key(&self, at: Offset) {
        self.medium.prefetch(at);
        self.medium.prefetch(at.plus(HEADER_BYTES + KEY_BYTES_USUAL));
    }

    /// Hints that the record at `at`, whose key probably has `key_bytes` bytes, is read and superseded soon.
    #[inline]
    pub fn fetch_old(&self, at: Offset, key_bytes: usize) {
        self.medium.prefetch(at);
        self.medium.prefetch(at.plus(HEADER_BYTES + key_bytes as u64));
        self.blocks.prefetch(at.0);
    }

    /// Whether a single durable write can be visible before it is durable: a group's records are marked pending until
    /// they are drained, and readers of a cell check for updates under way.
    #[inline]
    pub fn shows_before_durable(&self) -> bool {
        !self.epochs().in_use() && self.medium.granularity() == Granularity::CacheLine
    }

    /// The headers of blocks that are to be freed.
    pub fn headers_of(&self, extents: &[Extent]) -> Vec<(Extent, block::Header)> {
        let header = |&extent| Some((extent, self.header_of(extent).ok()?));
        extents.iter().filter_map(header).collect()
    }

    /// The header of the block at `extent`; `Err` states what was found and wanted.
    pub fn header_of(&self, extent: Extent) -> std::result::Result<block::Header, String> {
        read::header(&self.medium, self.blocks.secret(), extent, self.offset_of(extent))
    }

    pub fn offset_of(&self, extent: Extent) -> Offset {
        Offset(self.blocks.offset(extent))
    }

    /// The record at `at` is no longer needed: its block has fewer live bytes.
    pub fn uncount(&self, at: Offset, bytes: u64, activity: &Activity) {
        self.blocks.live_sub(at.0, bytes);
        activity.dead_add(bytes as i64);
    }

    pub fn extents_for(&self, bytes: u64) -> u32 {
        (bytes + block::HEADER_BYTES).div_ceil(self.extent_bytes) as u32
    }

    /// Bytes of extents that are not free.
    pub fn used_bytes(&self) -> u64 {
        let space = self.space();
        u64::from(space.backed_extents() - space.free_extents()) * self.extent_bytes
    }

    /// Makes all acknowledged writes durable.
    pub fn commit(&self) -> Result<()> {
        let _inside = self.phases.enter(Phase::Commit);
        self.durable
            .commit(&self.medium, &|epoch| self.dirty_blocks.flush(&self.medium, &self.blocks, epoch))?;
        self.finalize_transactions();
        Ok(())
    }

    /// Waits until `epoch` is committed, if a reply must wait for it.
    #[inline]
    pub fn wait_for(&self, epoch: Epoch) -> Result<()> {
        if self.epochs().must_wait(epoch) {
            let _inside = self.phases.enter(Phase::Commit);
            let flush = |epoch| self.dirty_blocks.flush(&self.medium, &self.blocks, epoch);
            return self.durable.wait_for(&self.medium, epoch, &flush);
        }
        Ok(())
    }

    /// Changes the superblock, durably.
    pub fn update_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        self.durable.update_superblock(&self.medium, change)
    }

    /// Syncs the medium; a failure poisons the store.
    pub fn sync_or_poison(&self) -> Result<()> {
        self.durable.sync_or_poison(&self.medium)
    }

    /// See [`DurableState::failed`].
    pub fn failed(&self, error: impl Into<crate::Error>) -> crate::Error {
        self.durable.failed(&self.medium, error)
    }

    /// See [`DurableState::mark_unverified`].
    pub fn mark_unverified(&self) {
        self.durable.mark_unverified(&self.medium);
    }

    /// Seals the open blocks without a writer, so that they can be compacted, except those kept for more urgent
    /// purposes. Returns whether there were any.
    pub fn seal_partial(&self, purpose: Purpose) -> bool {
        let mut partial = self.space().drain_partial(purpose, |_| true);
        partial.extend(lock(&self.shared).take());
        let any = !partial.is_empty();
        partial.into_iter().for_each(|block| self.seal(block));
        any
    }

    /// Like [`Log::seal_partial`], but only blocks without live records: sealed, they can be freed.
    pub fn seal_dead_partial(&self, purpose: Purpose) -> bool {
        // Appended bytes are added when a block is sealed; dead bytes are subtracted at once.
        let is_dead =
            |block: &OpenBlock| self.blocks.at(block.extent).live().wrapping_add(block.live as u32) == 0;
        let dead = self.space().drain_partial(purpose, is_dead);
        let any = !dead.is_empty();
        dead.into_iter().for_each(|block| self.seal(block));
        any
    }

    /// Whether a record of `bytes` goes to the shared block now.
    #[inline]
    pub fn shares(&self, bytes: u64) -> bool {
        self.epochs().waits() && bytes < SHARED_BYTES_MAX && self.medium.granularity() == Granularity::Page
    }

    /// Seals a full block and makes it available to the compactor.
    ///
    /// Order: the records are durable (appender, invariant 3), then the seal is persisted. A crash between leaves an unsealed
    /// block, whose end recovery finds by its last whole record.
    pub fn seal(&self, block: OpenBlock) {
        let _inside = self.phases.enter(Phase::Seal);
        let entry = self.blocks.at(block.extent);
        // A reader of the block checks the seal again (`Maintenance::has_seal`), and that its records end there.
        let (tail, end) = (block.tail, self.blocks.bytes(entry));
        assert!(
            (block::HEADER_BYTES..=end).contains(&tail) && tail.is_multiple_of(8) && tail >= entry.tail(),
            "cannot seal a block of {end} bytes at {tail}: its records reach to {}",
            entry.tail()
        );
        assert!(
            block.durable_tail == tail || self.epochs().in_use(),
            "cannot seal a block at {tail}: only {} bytes are drained (appender, invariant 3)",
            block.durable_tail
        );
        entry.set_tail(block.tail);
        if block.records > 0 {
            self.note_records(block.tail - block::HEADER_BYTES, block.records);
        }
        let epoch = self.epochs().current();
        assert!(
            block.dirty_epoch <= epoch.0,
            "sealed in epoch {}, with records of epoch {} (appender, invariant 3)",
            epoch.0,
            block.dirty_epoch
        );
        block.header.publish_seal(&self.medium, Offset(block.offset), block.tail, epoch);
        let room = room_won(self.blocks.bytes(entry), block.tail);
        if room > 0 {
            self.epochs().dead_add(room);
        }
        self.blocks.seal(block.extent, block.live);
    }
}
