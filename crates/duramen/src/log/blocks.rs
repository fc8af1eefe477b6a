//! What DRAM knows of each block. Nothing here is durable: recovery counts it anew.
//!
//! A block's life, and the functions that change it. Each asserts where it comes from:
//!
//! ```text
//!           Blocks::open        Block::seal          Block::retire         Block::free
//!     Free ─────────────▶ Open ─────────────▶ Sealed ─────────────▶ Retired ─────────▶ Free
//!      │                                       │  ▲                  │  ▲  │
//!      │                                       │  └── Block::keep ───┘  │  │
//!      │                      Block::set_aside ▼                        │  ▼ Block::set_aside
//!      │                                      Damaged ──────────────────┘ Damaged
//!      │                                           Block::retire_damaged
//!      │  Blocks::open_checkpoint                         Block::free
//!      └───────────────────▶ Checkpoint ─────────────────────────────────────────────▶ Free
//! ```
//!
//! Recovery begins with what it finds: [`Blocks::found`].
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `head`, `extents`, `generation` | whoever opens the block | everybody |
//! | `state` | opener, sealer, compactor | compactor |
//! | `live` | everybody who appends, supersedes or moves a record | compactor |
//! | `tail`, `durable_tail` | the block's appender, `tail` with each record | a reader that helps, the committer, the compactor, the sweeper |
//! | `expiry` | the block's appender, the sweeper | the sweeper |
//! | `cells` | whoever opens the block, its appender | the compactor |
//! | `fresh` | whoever opens the block | the compactor |
//! | `pins` | writers of transactions | the compactor |
//! | `copies` | whoever opens the block, the compactor | a reader that would wait for an epoch |
//! | `unknown` | recovery | the compactor, whoever writes a checkpoint |
//! | `unverified` | recovery, the compactor | everybody, while [`Records::has_unverified`](crate::read::Records::has_unverified) says so |

use crate::format::block::HEADER_BYTES;
use crate::format::{Extent, Generation, Secret, Seeds};
use crate::mutants::{Mutant, planted};
use crate::sync::OnceLock;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
use std::ops::Range;

/// What may be done with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Use {
    /// Holds nothing.
    Free = 0,
    /// An appender writes to it.
    Open = 1,
    /// Full; the compactor may choose it.
    Sealed = 2,
    /// The compactor has moved what was live; waits until no reader can see it.
    Retired = 3,
    /// Damaged: never written, and freed only when nothing live lies in its damaged part.
    Damaged = 4,
    /// Holds a part of an index checkpoint, and no records.
    Checkpoint = 5,
}

/// No record of the block expires.
const EXPIRES_NEVER: u32 = u32::MAX;

#[derive(Default)]
pub(crate) struct Block {
    head: AtomicU32,
    extents: AtomicU32,
    generation: AtomicU64,
    /// Bytes of records that the index points to. Wraps below zero while the block is open: its
    /// appender adds what it wrote when it seals.
    live: AtomicU32,
    tail: AtomicU32,
    durable_tail: AtomicU32,
    /// When the first record expires, in Unix seconds, rounded up.
    expiry: AtomicU32,
    state: AtomicU8,
    /// May hold cells.
    cells: AtomicBool,
    /// Transactions that run, or are not settled, have transaction records here, or the records that their transaction
    /// records took the place of: see [`Block::pin`].
    pins: AtomicU32,
    /// See [`Block::is_copy`]: where they begin, in bytes from the block's beginning, and in the low half where they end.
    copies: AtomicU64,
    /// Writers filled it since the store was opened, and not the compactor.
    fresh: AtomicBool,
    /// Not verified, or known to be damaged: each record is verified whenever it is used.
    unverified: AtomicBool,
    /// It is damaged, and recovery did not learn from an index whose records are.
    unknown: AtomicBool,
}

impl Block {
    pub(crate) fn extents(&self) -> u32 {
        self.extents.load(Acquire)
    }

    pub(crate) fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    pub(crate) fn state(&self) -> Use {
        match self.state.load(Acquire) {
            1 => Use::Open,
            2 => Use::Sealed,
            3 => Use::Retired,
            4 => Use::Damaged,
            5 => Use::Checkpoint,
            _ => Use::Free,
        }
    }

    /// One step of the block's life, which is the caller's alone to take.
    fn change(&self, from: &[Use], to: Use) {
        let now = self.state();
        assert!(from.contains(&now), "a block is {now:?} that is to become {to:?}; wanted {from:?}");
        assert!(self.take(now, to), "somebody else changed a block that is to become {to:?}");
    }

    /// Changes `from` into `to` unless it is not `from` any more.
    fn take(&self, from: Use, to: Use) -> bool {
        self.state.compare_exchange(from as u8, to as u8, AcqRel, Relaxed).is_ok()
    }

    /// Its appender is done with it: the compactor may choose it.
    pub(crate) fn seal(&self) {
        self.change(&[Use::Open], Use::Sealed);
    }

    /// The compactor begins to move out of it, if it still is sealed, and no transaction needs it.
    pub(crate) fn retire(&self) -> bool {
        self.retire_from(Use::Sealed)
    }

    /// The same of one that was set aside.
    pub(crate) fn retire_damaged(&self) -> bool {
        self.retire_from(Use::Damaged)
    }

    fn retire_from(&self, from: Use) -> bool {
        if self.is_pinned() || !self.take(from, Use::Retired) {
            return false;
        }
        // Pairs with the fence in `pin`: a pin that is not seen here sees that the block is retired.
        fence(SeqCst);
        if self.is_pinned() {
            self.change(&[Use::Retired], from);
            return false;
        }
        true
    }

    /// Keeps the compactor away from a block, which somebody may have begun to move out of: then it says false, and does nothing.
    pub(crate) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Relaxed);
        fence(SeqCst);
        let is_there = self.state() != Use::Retired;
        if !is_there {
            self.unpin();
        }
        is_there
    }

    /// Takes one [`Block::pin`] back.
    pub(crate) fn unpin(&self) {
        // Release: pairs with the Acquire in `is_pinned`; what was changed under the pin is seen.
        self.pins.fetch_sub(1, Release);
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins.load(Acquire) != 0 && !planted(Mutant::BeforeTransactionMoved)
    }

    /// What was begun by [`Block::retire`] did not succeed: it stays as it was.
    pub(crate) fn keep(&self) {
        self.change(&[Use::Retired], Use::Sealed);
    }

    /// It is damaged: it is never written, and freed only when nothing live lies in its damaged part.
    pub(crate) fn set_aside(&self) {
        self.change(&[Use::Sealed, Use::Retired], Use::Damaged);
    }

    /// Nothing points to it any more, durably. (Recovery frees what it found sealed, and empty.)
    pub(crate) fn free(&self) {
        self.change(&[Use::Retired, Use::Checkpoint, Use::Sealed], Use::Free);
    }

    pub(crate) fn live(&self) -> u32 {
        self.live.load(Relaxed)
    }

    /// The same of a block that is sealed. What recovery took from a checkpoint may be too little: see
    /// [`crate::recovery::checkpoint`].
    pub(crate) fn live_sealed(&self) -> u32 {
        (self.live() as i32).max(0) as u32
    }

    pub(crate) fn live_add(&self, bytes: u64) {
        self.live.fetch_add(bytes as u32, Relaxed);
    }

    pub(crate) fn live_sub(&self, bytes: u64) {
        self.live.fetch_sub(bytes as u32, Relaxed);
    }

    /// Bytes from the block's beginning to the end of its records.
    pub(crate) fn tail(&self) -> u64 {
        u64::from(self.tail.load(Acquire))
    }

    #[inline]
    pub(crate) fn set_tail(&self, tail: u64) {
        self.tail.store(tail as u32, Release);
    }

    /// Bytes from the block's beginning to what is known to be durable.
    pub(crate) fn durable_tail(&self) -> u64 {
        u64::from(self.durable_tail.load(Acquire))
    }

    pub(crate) fn set_durable_tail(&self, bytes: u64) {
        self.durable_tail.store(bytes as u32, Release);
    }

    /// Whether it may hold a cell, which changes after it was appended.
    pub(crate) fn may_hold_cells(&self) -> bool {
        self.cells.load(Acquire)
    }

    /// Whether what it has came from writers, as far as that is known.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh.load(Relaxed)
    }

    pub(crate) fn set_fresh(&self, fresh: bool) {
        self.fresh.store(fresh, Relaxed);
    }

    pub(crate) fn set_cells(&self, cells: bool) {
        self.cells.store(cells, Release);
    }

    /// Whether the record at `at` bytes is one of the copies of committed records that the compactor last appended one
    /// behind the other. Of earlier ones this is forgotten: they are committed themselves.
    pub(crate) fn is_copy(&self, at: u64) -> bool {
        let copies = self.copies.load(Relaxed);
        (copies >> 32..copies & u64::from(u32::MAX)).contains(&at)
    }

    /// Whether a copy that is appended at `at` follows the last one.
    pub(crate) fn follows_copies(&self, at: u64) -> bool {
        let copies = self.copies.load(Relaxed);
        copies == 0 || copies & u64::from(u32::MAX) == at
    }

    /// The compactor appended a copy there. Relaxed: the slot that points to the copy publishes this too.
    pub(crate) fn add_copy(&self, at: u64, bytes: u64) {
        let from = if self.follows_copies(at) { self.copies.load(Relaxed) >> 32 } else { 0 };
        let from = if from == 0 { at } else { from };
        self.copies.store(from << 32 | (at + bytes), Relaxed);
    }

    /// Whether its records may not be what was written.
    pub(crate) fn is_unverified(&self) -> bool {
        // Acquire: pairs with the Release in `set_unverified`.
        self.unverified.load(Acquire)
    }

    pub(crate) fn set_unverified(&self, unverified: bool) {
        self.unverified.store(unverified, Release);
    }

    /// Whether slots point to each of its damaged records that a key needs.
    pub(crate) fn is_known(&self) -> bool {
        !self.unknown.load(Relaxed)
    }

    /// Recovery set it aside: its damaged records may have been of any keys, and those have no slots that point there.
    pub(crate) fn set_unknown(&self) {
        self.unknown.store(true, Relaxed);
    }

    /// As [`Block::expiry`], the greatest number for never.
    pub(crate) fn expiry_seconds(&self) -> u32 {
        self.expiry.load(Relaxed)
    }

    /// What [`Block::expiry_seconds`] was.
    pub(crate) fn set_expiry_seconds(&self, seconds: u32) {
        self.expiry.store(seconds, Relaxed);
    }

    /// When the first record expires, in Unix seconds.
    pub(crate) fn expiry(&self) -> Option<u64> {
        let at = self.expiry.load(Relaxed);
        (at != EXPIRES_NEVER).then_some(u64::from(at))
    }

    pub(crate) fn expiry_reset(&self) {
        // Acquire: pairs with the Release in `expiry_add`. Of what was noted before, the tail is seen.
        self.expiry.swap(EXPIRES_NEVER, AcqRel);
    }

    /// A record of this block, which lies before its tail, expires at `millis`.
    pub(crate) fn expiry_add(&self, millis: u64) {
        let seconds =
            u32::try_from(millis.div_ceil(1000)).unwrap_or(EXPIRES_NEVER - 1).min(EXPIRES_NEVER - 1);
        self.expiry.fetch_min(seconds, Release);
    }
}

/// Bytes behind the records of a sealed block of `bytes` that moving them elsewhere wins: all, when at most half of it is taken. Such
/// blocks fit in each other, so there are fewer of them afterwards. Of one that is fuller nothing counts: what ends where the next
/// record did not fit would end so again, and a record of more than half a block is alone wherever it lies. Nor of one without
/// records, which is a checkpoint's, or freed anyway.
pub(crate) fn room_won(bytes: u64, tail: u64) -> u64 {
    if tail > HEADER_BYTES && tail * 2 <= bytes { bytes - tail } else { 0 }
}

const CHUNK: usize = if cfg!(loom) { 16 } else { 4096 };

/// All blocks, by extent. Grows without moving.
pub(crate) struct Blocks {
    chunks: Box<[OnceLock<Box<[Block]>>]>,
    extents: usize,
    extent_bytes: u64,
    secret: Secret,
}

impl Blocks {
    /// For a medium of at most `bytes_max` bytes, and a store with this secret.
    pub(crate) fn new(bytes_max: u64, extent_bytes: u64, secret: Secret) -> Self {
        let extents = bytes_max.div_ceil(extent_bytes).min(u64::from(u32::MAX)) as usize;
        Self {
            chunks: (0..extents.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            extents,
            extent_bytes,
            secret,
        }
    }

    /// The secret of the store.
    pub(crate) fn secret(&self) -> Secret {
        self.secret
    }

    /// What the checksums of a block's records begin with.
    pub(crate) fn seeds(&self, block: &Block) -> Seeds {
        self.secret.seeds(block.generation())
    }

    /// Where the block at `extent` begins on the medium.
    pub(crate) fn offset(&self, extent: Extent) -> u64 {
        u64::from(extent.0) * self.extent_bytes
    }

    #[inline]
    fn entry(&self, extent: Extent) -> &Block {
        let at = extent.0 as usize / CHUNK;
        // A small store takes no more than it can use.
        let blocks = || (0..CHUNK.min(self.extents - at * CHUNK)).map(|_| Block::default()).collect();
        &self.chunks[at].get_or_init(blocks)[extent.0 as usize % CHUNK]
    }

    /// How long a block is.
    pub(crate) fn bytes(&self, block: &Block) -> u64 {
        u64::from(block.extents()) * self.extent_bytes
    }

    /// The block whose first extent is `extent`.
    #[inline]
    pub(crate) fn at(&self, extent: Extent) -> &Block {
        self.entry(extent)
    }

    /// The blocks of `extents`, which begin with one, and the state of each; free extents one by one.
    pub(crate) fn walk(&self, extents: Range<u32>) -> impl Iterator<Item = (Extent, &Block, Use)> {
        let Range { start: mut extent, end } = extents;
        std::iter::from_fn(move || {
            let at = (extent < end).then_some(Extent(extent))?;
            let block = self.at(at);
            let state = block.state();
            extent += if state == Use::Free { 1 } else { block.extents().max(1) };
            Some((at, block, state))
        })
    }

    /// The first extent of the block that holds the byte at `offset`.
    #[inline]
    pub(crate) fn extent_of(&self, offset: u64) -> Extent {
        Extent(self.entry(Extent((offset / self.extent_bytes) as u32)).head.load(Acquire))
    }

    /// Where the records of the block end that holds the byte at `offset`.
    pub(crate) fn end_of_records(&self, offset: u64) -> u64 {
        let extent = self.extent_of(offset);
        self.offset(extent) + self.at(extent).tail()
    }

    /// The block that holds the byte at `offset`.
    #[inline]
    pub(crate) fn of(&self, offset: u64) -> &Block {
        self.entry(self.extent_of(offset))
    }

    /// Hints that the entry of the byte at `offset` is changed soon.
    #[inline]
    pub(crate) fn prefetch(&self, offset: u64) {
        let entry = self.entry(Extent((offset / self.extent_bytes) as u32));
        duramen_media::prefetch_line(std::ptr::from_ref(entry).cast());
    }

    /// An appender opens a block of free extents. It holds no cell yet.
    pub(crate) fn open(&self, extent: Extent, extents: u32, generation: Generation) -> &Block {
        let block = self.enter(extent, extents, generation, Use::Open);
        block.set_durable_tail(HEADER_BYTES);
        block.set_cells(false);
        block
    }

    /// Free extents become a run of an index checkpoint.
    pub(crate) fn open_checkpoint(&self, extent: Extent, extents: u32, generation: Generation) {
        self.enter(extent, extents, generation, Use::Checkpoint);
    }

    /// Recovery found a block. Of such a one it is not known that it holds no cell.
    pub(crate) fn found(&self, extent: Extent, extents: u32, generation: Generation, state: Use) -> &Block {
        self.enter(extent, extents, generation, state)
    }

    fn enter(&self, extent: Extent, extents: u32, generation: Generation, state: Use) -> &Block {
        for u in extent.0..extent.0 + extents {
            self.entry(Extent(u)).head.store(extent.0, Release);
        }
        let block = self.entry(extent);
        block.extents.store(extents, Release);
        block.generation.store(generation.0, Release);
        block.live.store(0, Relaxed);
        block.set_tail(if state == Use::Open { HEADER_BYTES } else { 0 });
        block.set_durable_tail(0);
        block.expiry_reset();
        block.set_cells(true);
        block.set_fresh(false);
        block.copies.store(0, Relaxed);
        block.set_unverified(false);
        block.unknown.store(false, Relaxed);
        block.change(&[Use::Free], state);
        block
    }
}
