//! The state of each block in DRAM. Nothing here is durable: recovery recomputes it.
//!
//! A block's life, and the functions that change it. Each asserts the state it comes from:
//!
//! ```text
//!           Blocks::open        Block::seal          Block::retire         Block::free
//!     Free ─────────────▶ Open ─────────────▶ Sealed ─────────────▶ Retired ─────────▶ Free
//!      │                                       │  ▲                  │  ▲  │
//!      │                                       │  └── Block::keep ───┘  │  │
//!      │                      Block::set_aside ▼                        │  ▼ Block::set_aside
//!      │                                      Damaged ──────────────────┘ Damaged
//!      │                                           Block::retire_damaged
//!      │  Blocks::open_checkpoint                    Block::free
//!      └───────────────────▶ Checkpoint ────────────────────────────────────────▶ Free
//!      │  Blocks::give_back                          Block::free
//!      └───────────────────▶ GivenBack ─────────────────────────────────────────▶ Free
//! ```
//!
//! Recovery begins with the blocks it finds: [`Blocks::found`].
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `head`, `extents`, `generation` | the opener of the block | everybody |
//! | `state` | opener, sealer, compactor | compactor |
//! | `live` | each thread that appends, supersedes or moves a record | compactor |
//! | `tail`, `durable_tail` | the block's appender, `tail` with each record | a reader that flushes on a writer's behalf, the committer, the compactor, the sweeper |
//! | `expiry` | the block's appender, the sweeper | the sweeper |
//! | `cells` | the opener of the block, its appender | the compactor |
//! | `fresh` | the opener of the block | the compactor |
//! | `pins` | writers of transactions | the compactor |
//! | `copies` | the opener of the block, the compactor | a reader that would wait for an epoch |
//! | `unknown` | recovery | the compactor, the writer of an index checkpoint |
//! | `unverified` | recovery, the compactor | everybody, while `Records::has_unverified` is true |

use crate::format::block::HEADER_BYTES;
use crate::format::{Extent, Generation, Secret, Seeds};
use crate::sync::OnceLock;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
use std::ops::Range;

/// The state of a block, which decides its permitted uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Use {
    /// Holds nothing.
    Free = 0,
    /// An appender writes to it.
    Open = 1,
    /// Full; the compactor may choose it.
    Sealed = 2,
    /// The compactor has moved its live records; it waits until no reader can access it.
    Retired = 3,
    /// Damaged: never written, and freed only when nothing live is in its damaged part.
    Damaged = 4,
    /// Holds a part of an index checkpoint, and no records.
    Checkpoint = 5,
    /// Has no space behind its header's page: see [`crate::given_back`].
    GivenBack = 6,
}

/// No record of the block expires.
const EXPIRES_NEVER: u32 = u32::MAX;

#[derive(Default)]
pub struct Block {
    head: AtomicU32,
    extents: AtomicU32,
    generation: AtomicU64,
    /// Bytes of records that the index points to. Wraps below zero while the block is open: its appender adds its own
    /// bytes when it seals the block.
    live: AtomicU32,
    tail: AtomicU32,
    durable_tail: AtomicU32,
    /// When the first record expires, in Unix seconds, rounded up.
    expiry: AtomicU32,
    state: AtomicU8,
    /// May hold cells.
    cells: AtomicBool,
    /// Number of transactions, active or not finalized, that have transaction records here, or whose transaction
    /// records replaced records here: see [`Block::pin`].
    pins: AtomicU32,
    /// See [`Block::is_copy`]: where the copies begin, in bytes from the block's beginning; in the low half, where they
    /// end.
    copies: AtomicU64,
    /// Writers, and not the compactor, filled it since the store was opened.
    fresh: AtomicBool,
    /// Not verified, or known to be damaged: each record is verified at each use.
    unverified: AtomicBool,
    /// The block is damaged, and recovery did not learn from an index which keys its records belong to.
    unknown: AtomicBool,
}

impl Block {
    pub fn extents(&self) -> u32 {
        self.extents.load(Acquire)
    }

    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    pub fn state(&self) -> Use {
        match self.state.load(Acquire) {
            1 => Use::Open,
            2 => Use::Sealed,
            3 => Use::Retired,
            4 => Use::Damaged,
            5 => Use::Checkpoint,
            6 => Use::GivenBack,
            _ => Use::Free,
        }
    }

    /// One step of the block's life, which only the caller may take.
    fn change(&self, from: &[Use], to: Use) {
        let now = self.state();
        assert!(from.contains(&now), "cannot change a block to {to:?}: it is {now:?}, wanted {from:?}");
        assert!(self.take(now, to), "cannot change a block to {to:?}: another thread changed it");
    }

    /// Changes `from` into `to` unless the state is no longer `from`.
    fn take(&self, from: Use, to: Use) -> bool {
        self.state.compare_exchange(from as u8, to as u8, AcqRel, Relaxed).is_ok()
    }

    /// Its appender is done with it: the compactor may choose it.
    pub fn seal(&self) {
        self.change(&[Use::Open], Use::Sealed);
    }

    /// The compactor begins to move its records, if it is still sealed and no transaction needs it.
    pub fn retire(&self) -> bool {
        self.retire_from(Use::Sealed)
    }

    /// Like [`Block::retire`], for a block that was set aside.
    pub fn retire_damaged(&self) -> bool {
        self.retire_from(Use::Damaged)
    }

    fn retire_from(&self, from: Use) -> bool {
        if self.is_pinned() || !self.take(from, Use::Retired) {
            return false;
        }
        // Pairs with the fence in `pin`: a pin that is not observed here observes that the block is retired.
        fence(SeqCst);
        if self.is_pinned() {
            self.change(&[Use::Retired], from);
            return false;
        }
        true
    }

    /// Keeps the compactor away from a block. Returns false, without effect, if the compactor has begun to move its
    /// records.
    pub fn pin(&self) -> bool {
        self.pins.fetch_add(1, Relaxed);
        fence(SeqCst);
        let is_there = self.state() != Use::Retired;
        if !is_there {
            self.unpin();
        }
        is_there
    }

    /// Pins a block so many times more that the caller has pinned: the compactor cannot have begun.
    pub fn pin_more(&self, more: u32) {
        let before = self.pins.fetch_add(more, Relaxed);
        debug_assert!(before > 0, "more pins of a block that nobody pins (transaction::write, invariant 2)");
    }

    /// Reverts one [`Block::pin`].
    pub fn unpin(&self) {
        self.unpin_all(1);
    }

    /// Reverts so many of them.
    pub fn unpin_all(&self, pins: u32) {
        // Release: pairs with the Acquire in `is_pinned`, which then observes all changes made under the pins.
        let before = self.pins.fetch_sub(pins, Release);
        debug_assert!(
            before >= pins,
            "{pins} pins of a block are released, and it has {before} (transaction::write, invariant 2)"
        );
    }

    pub fn is_pinned(&self) -> bool {
        self.pins.load(Acquire) != 0
    }

    /// The compaction that [`Block::retire`] began did not succeed: the block stays as it was.
    pub fn keep(&self) {
        self.change(&[Use::Retired], Use::Sealed);
    }

    /// The block is damaged: it is never written, and freed only when nothing live is in its damaged part.
    pub fn set_aside(&self) {
        self.change(&[Use::Sealed, Use::Retired], Use::Damaged);
    }

    /// Nothing points to it any more, durably. (Recovery also frees blocks that it found sealed and empty.)
    pub fn free(&self) {
        self.change(&[Use::Retired, Use::Checkpoint, Use::GivenBack, Use::Sealed], Use::Free);
    }

    /// Recovery found it sealed and empty: it may have no space.
    pub fn found_given_back(&self) {
        self.change(&[Use::Sealed], Use::GivenBack);
    }

    pub fn live(&self) -> u32 {
        self.live.load(Relaxed)
    }

    /// The live bytes of a sealed block. The count that recovery took from an index checkpoint may be too low: see
    /// `duramen`, `checkpoint::plan`.
    pub fn live_sealed(&self) -> u32 {
        (self.live() as i32).max(0) as u32
    }

    pub fn live_add(&self, bytes: u64) {
        self.live.fetch_add(bytes as u32, Relaxed);
    }

    pub fn live_sub(&self, bytes: u64) {
        self.live.fetch_sub(bytes as u32, Relaxed);
    }

    /// Bytes from the block's beginning to the end of its records.
    pub fn tail(&self) -> u64 {
        u64::from(self.tail.load(Acquire))
    }

    #[inline]
    pub fn set_tail(&self, tail: u64) {
        // Bytes below the tail never change, so it never moves back (appender, invariant 2).
        debug_assert!(tail >= self.tail(), "the tail of a block moves back from {} to {tail}", self.tail());
        self.tail.store(tail as u32, Release);
    }

    /// Bytes from the block's beginning to the end of its durable part, as far as known.
    pub fn durable_tail(&self) -> u64 {
        u64::from(self.durable_tail.load(Acquire))
    }

    pub fn set_durable_tail(&self, bytes: u64) {
        self.durable_tail.store(bytes as u32, Release);
    }

    /// Whether it may hold a cell, which changes after it was appended.
    pub fn may_hold_cells(&self) -> bool {
        self.cells.load(Acquire)
    }

    /// Whether its records came from writers, as far as known.
    pub fn is_fresh(&self) -> bool {
        self.fresh.load(Relaxed)
    }

    pub fn set_fresh(&self, fresh: bool) {
        self.fresh.store(fresh, Relaxed);
    }

    pub fn set_cells(&self, cells: bool) {
        self.cells.store(cells, Release);
    }

    /// Whether the record at `at` bytes is in the last contiguous run of committed records that the compactor copied
    /// here. Earlier copies are not tracked: they are committed themselves.
    pub fn is_copy(&self, at: u64) -> bool {
        let copies = self.copies.load(Relaxed);
        (copies >> 32..copies & u64::from(u32::MAX)).contains(&at)
    }

    /// Whether a copy that is appended at `at` follows the last one.
    pub fn follows_copies(&self, at: u64) -> bool {
        let copies = self.copies.load(Relaxed);
        copies == 0 || copies & u64::from(u32::MAX) == at
    }

    /// The compactor appended a copy there. Relaxed: the slot that points to the copy publishes this too.
    pub fn add_copy(&self, at: u64, bytes: u64) {
        let from = if self.follows_copies(at) { self.copies.load(Relaxed) >> 32 } else { 0 };
        let from = if from == 0 { at } else { from };
        self.copies.store(from << 32 | (at + bytes), Relaxed);
    }

    /// Whether its records may differ from the written ones.
    pub fn is_unverified(&self) -> bool {
        // Acquire: pairs with the Release in `set_unverified`.
        self.unverified.load(Acquire)
    }

    pub fn set_unverified(&self, unverified: bool) {
        self.unverified.store(unverified, Release);
    }

    /// Whether slots point to each of its damaged records that a key needs.
    pub fn is_known(&self) -> bool {
        !self.unknown.load(Relaxed)
    }

    /// Recovery set the block aside: its damaged records may belong to any keys, and no slots point to them.
    pub fn set_unknown(&self) {
        self.unknown.store(true, Relaxed);
    }

    /// As [`Block::expiry`]; `u32::MAX` for never.
    pub fn expiry_seconds(&self) -> u32 {
        self.expiry.load(Relaxed)
    }

    /// Restores a value that [`Block::expiry_seconds`] returned.
    pub fn set_expiry_seconds(&self, seconds: u32) {
        self.expiry.store(seconds, Relaxed);
    }

    /// When the first record expires, in Unix seconds.
    pub fn expiry(&self) -> Option<u64> {
        let at = self.expiry.load(Relaxed);
        (at != EXPIRES_NEVER).then_some(u64::from(at))
    }

    pub fn expiry_reset(&self) {
        // Acquire: pairs with the Release in `expiry_add`, so that the tail is observed for each expiry noted before.
        self.expiry.swap(EXPIRES_NEVER, AcqRel);
    }

    /// A record of this block, below its tail, expires at `millis`.
    pub fn expiry_add(&self, millis: u64) {
        let seconds =
            u32::try_from(millis.div_ceil(1000)).unwrap_or(EXPIRES_NEVER - 1).min(EXPIRES_NEVER - 1);
        self.expiry.fetch_min(seconds, Release);
    }
}

/// Bytes after the records of a sealed block of `bytes` that compaction gains: all, when at most half of the block is
/// used. Such blocks fit into each other, so fewer remain. A fuller block gains nothing: it ends where the next record
/// did not fit, and a copy would end in the same way; a record of more than half a block is alone in any block. A block
/// without records, which is an index checkpoint's or freed anyway, gains nothing either.
pub fn room_won(bytes: u64, tail: u64) -> u64 {
    if tail > HEADER_BYTES && tail * 2 <= bytes { bytes - tail } else { 0 }
}

const CHUNK: usize = if cfg!(loom) { 16 } else { 4096 };

/// All blocks, by extent. Grows without moving.
pub struct Blocks {
    chunks: Box<[OnceLock<Box<[Block]>>]>,
    extents: usize,
    extent_bytes: u64,
    secret: Secret,
}

impl Blocks {
    /// For a medium of at most `bytes_max` bytes, and a store with this secret.
    pub fn new(bytes_max: u64, extent_bytes: u64, secret: Secret) -> Self {
        let extents = bytes_max.div_ceil(extent_bytes).min(u64::from(u32::MAX)) as usize;
        Self {
            chunks: (0..extents.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            extents,
            extent_bytes,
            secret,
        }
    }

    /// The secret of the store.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// The seeds of the checksums of a block's records.
    pub fn seeds(&self, block: &Block) -> Seeds {
        self.secret.seeds(block.generation())
    }

    /// Offset of the block at `extent` on the medium.
    pub fn offset(&self, extent: Extent) -> u64 {
        u64::from(extent.0) * self.extent_bytes
    }

    #[inline]
    fn entry(&self, extent: Extent) -> &Block {
        let at = extent.0 as usize / CHUNK;
        // A small store allocates only the entries that it can use.
        let blocks = || (0..CHUNK.min(self.extents - at * CHUNK)).map(|_| Block::default()).collect();
        &self.chunks[at].get_or_init(blocks)[extent.0 as usize % CHUNK]
    }

    /// Length of a block in bytes.
    pub fn bytes(&self, block: &Block) -> u64 {
        u64::from(block.extents()) * self.extent_bytes
    }

    /// The block whose first extent is `extent`.
    #[inline]
    pub fn at(&self, extent: Extent) -> &Block {
        self.entry(extent)
    }

    /// The blocks within `extents`, which begins with a block, with the state of each; free extents one by one.
    pub fn walk(&self, extents: Range<u32>) -> impl Iterator<Item = (Extent, &Block, Use)> {
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
    pub fn extent_of(&self, offset: u64) -> Extent {
        Extent(self.entry(Extent((offset / self.extent_bytes) as u32)).head.load(Acquire))
    }

    /// The offset where the records end in the block that holds the byte at `offset`.
    pub fn end_of_records(&self, offset: u64) -> u64 {
        let extent = self.extent_of(offset);
        self.offset(extent) + self.at(extent).tail()
    }

    /// The block that holds the byte at `offset`.
    #[inline]
    pub fn of(&self, offset: u64) -> &Block {
        self.entry(self.extent_of(offset))
    }

    /// Hints that the entry of the byte at `offset` is changed soon.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        let entry = self.entry(Extent((offset / self.extent_bytes) as u32));
        duramen_media::prefetch_line(std::ptr::from_ref(entry).cast());
    }

    /// An appender opens a block of free extents, which [`Block::change`] asserts (appender, invariant 1). It holds no
    /// cell yet.
    pub fn open(&self, extent: Extent, extents: u32, generation: Generation) -> &Block {
        let block = self.enter(extent, extents, generation, Use::Open);
        block.set_durable_tail(HEADER_BYTES);
        block.set_cells(false);
        block
    }

    /// Free extents become a run of an index checkpoint.
    pub fn open_checkpoint(&self, extent: Extent, extents: u32, generation: Generation) {
        self.enter(extent, extents, generation, Use::Checkpoint);
    }

    /// Free extents become a block without space.
    pub fn give_back(&self, extent: Extent, extents: u32, generation: Generation) {
        self.enter(extent, extents, generation, Use::GivenBack).set_tail(HEADER_BYTES);
    }

    /// Recovery found a block, which may hold cells.
    pub fn found(&self, extent: Extent, extents: u32, generation: Generation, state: Use) -> &Block {
        self.enter(extent, extents, generation, state)
    }

    fn enter(&self, extent: Extent, extents: u32, generation: Generation, state: Use) -> &Block {
        assert!(
            extents > 0 && u64::from(extent.0) + u64::from(extents) <= self.extents as u64,
            "a block of {extents} extents at extent {} of at most {} (format, invariant 3)",
            extent.0,
            self.extents
        );
        let before = self.entry(extent).generation();
        // A generation is used once: bytes of an earlier use never parse as records (format, invariant 2).
        assert!(
            generation > before || state != Use::Open,
            "a block is opened with generation {}, and one at extent {} had {}",
            generation.0,
            extent.0,
            before.0
        );
        for u in extent.0..extent.0 + extents {
            self.entry(Extent(u)).head.store(extent.0, Release);
        }
        let block = self.entry(extent);
        block.extents.store(extents, Release);
        block.generation.store(generation.0, Release);
        block.live.store(0, Relaxed);
        block.durable_tail.store(0, Release);
        block.tail.store(if state == Use::Open { HEADER_BYTES as u32 } else { 0 }, Release);
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
