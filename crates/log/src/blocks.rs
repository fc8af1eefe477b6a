//! The state of each block in DRAM. Nothing here is durable: recovery recomputes it.
//!
//! A block's life, and the functions that change it. Each asserts the state it comes from:
//!
//! ```text
//!           Blocks::open        Blocks::seal         Block::retire         Block::free
//!     Free ─────────────▶ Open ─────────────▶ Sealed ─────────────▶ Retired ─────────▶ Free
//!      │                                       │  ▲                  │  ▲  │
//!      │                                       │  └── Blocks::keep ──┘  │  │
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
//! | `span`, `generation` | the opener of the block | everybody |
//! | `state`: its use | opener, sealer, compactor | compactor |
//! | `state`: pins | writers of transactions | the compactor |
//! | `state`: [`CELLS`] | the opener of the block, its appender | the compactor |
//! | `state`: [`FRESH`] | the opener of the block | the compactor |
//! | `state`: [`UNKNOWN`] | recovery | the compactor, the writer of an index checkpoint |
//! | `state`: [`UNVERIFIED`] | recovery, the compactor | everybody, while `Records::has_unverified` is true |
//! | `live`: live bytes | each thread that appends, supersedes or moves a record | compactor |
//! | `live`: durable tail | the block's appender | a reader that flushes on a writer's behalf |
//! | `live`: class | sealer, compactor, each thread whose record makes the class rise | compactor |
//! | `tail` | the block's appender, with each record | a reader that flushes on a writer's behalf, the committer, the compactor, the sweeper |
//! | `expiry` | the block's appender, the sweeper | the sweeper |
//! | [`Chunk::copies`] | the opener of the block, the compactor | a reader that would wait for an epoch |
//!
//! A sealed block is *listed* under the class of its dead share ([`dead_share`]), where the compactor finds it
//! ([`victims`]). It is not listed while it is retired, and while the compactor has put it off.

mod dead_share;
#[cfg(all(test, not(loom)))]
mod tests;
mod victims;

pub use dead_share::Class;

use crate::format::block::HEADER_BYTES;
use crate::format::{Extent, Generation, Secret, Seeds};
use crate::sync::OnceLock;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU32, AtomicU64};
use std::ops::{ControlFlow, Range};
use victims::{ClassSet, GROUP, Parts, ROOMY, Wanted};

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

impl Use {
    fn in_state(state: u32) -> Self {
        match state & USE {
            1 => Self::Open,
            2 => Self::Sealed,
            3 => Self::Retired,
            4 => Self::Damaged,
            5 => Self::Checkpoint,
            6 => Self::GivenBack,
            _ => Self::Free,
        }
    }
}

/// No record of the block expires.
const EXPIRES_NEVER: u32 = u32::MAX;

// The bits of `Block::state`. The lowest are a `Use`, the highest the number of pins.
const USE: u32 = 7;
/// The block may hold cells.
const CELLS: u32 = 1 << 3;
/// Writers, and not the compactor, filled the block since the store was opened.
const FRESH: u32 = 1 << 4;
/// Not verified, or known to be damaged: each record is verified at each use.
const UNVERIFIED: u32 = 1 << 5;
/// The block is damaged, and recovery did not learn from an index which keys its records belong to.
const UNKNOWN: u32 = 1 << 6;
const PIN: u32 = 1 << 7;
/// 2^25: a block of several records has at most 1 MiB, so fewer records, and each is pinned by a transaction that
/// replaced it and is not finalized.
const PINS_MAX: u32 = u32::MAX / PIN;

/// The bit of [`Block::span`] of an extent that is not the first one of its block.
const INNER: u32 = 1 << 31;

/// Live bytes of nothing. A block has fewer than 2^30 bytes, so the lower half of [`Block::live`] neither overflows nor
/// falls below zero.
const LIVE_NOTHING: u32 = 1 << 31;
/// The bit of the upper half of [`Block::live`] of a listed block.
const LISTED: u32 = 1 << 31;

/// 32 bytes, two of them in a line.
///
/// | offset | bytes | |
/// |---|---|---|
/// | 0 | 8 | `live` |
/// | 8 | 8 | `generation` |
/// | 16 | 4 | `span` |
/// | 20 | 4 | `state` |
/// | 24 | 4 | `tail` |
/// | 28 | 4 | `expiry` |
#[derive(Default)]
#[repr(C, align(32))]
pub struct Block {
    /// Lower half: bytes of records that the index points to, plus [`LIVE_NOTHING`]. Less than that while the block is
    /// open: its appender adds its own bytes when it seals the block.
    ///
    /// Upper half of an open block: bytes from its beginning to the end of its durable part, as far as known, where
    /// epochs are not in use. Of a listed block: the fewest live bytes of its class, plus [`LISTED`]. So a subtraction
    /// finds out whether it makes the class rise.
    live: AtomicU64,
    generation: AtomicU64,
    /// Of the first extent of a block the number of its extents; of another one how far it is from the first, with the
    /// bit [`INNER`].
    span: AtomicU32,
    /// Use, marks, and the number of transactions, active or not finalized, that have transaction records here, or whose
    /// transaction records replaced records here: see [`Block::pin`]. In one word, so that a block is neither pinned
    /// while it is retired nor retired while it is pinned.
    state: AtomicU32,
    tail: AtomicU32,
    /// When the first record expires, in Unix seconds, rounded up.
    expiry: AtomicU32,
}

// The atomics of models are larger.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Block>() == 32);

impl Block {
    pub fn extents(&self) -> u32 {
        let span = self.span.load(Acquire);
        debug_assert!(span & INNER == 0, "the extents of a block, asked of one of its inner extents");
        span
    }

    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Acquire))
    }

    pub fn state(&self) -> Use {
        Use::in_state(self.state.load(Acquire))
    }

    /// Changes the state by `next`, which returns `None` where it must stay.
    fn update(&self, mut next: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        let mut now = self.state.load(Acquire);
        loop {
            let Some(new) = next(now) else { return Err(now) };
            // AcqRel: a thread that pins, retires or frees a block observes what was done to it before the last such
            // change.
            match self.state.compare_exchange_weak(now, new, AcqRel, Acquire) {
                Ok(_) => return Ok(now),
                Err(other) => now = other,
            }
        }
    }

    /// One step of the block's life, which only the caller may take.
    fn change(&self, from: &[Use], to: Use) {
        let step = |state| from.contains(&Use::in_state(state)).then_some(state & !USE | to as u32);
        let changed = self.update(step);
        assert!(
            changed.is_ok(),
            "cannot change a block to {to:?}: it is {:?}, wanted {from:?}",
            self.state()
        );
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
        let retires = |state| {
            let may = Use::in_state(state) == from && !has_pins(state);
            may.then_some(state & !USE | Use::Retired as u32)
        };
        let is_retired = self.update(retires).is_ok();
        if is_retired {
            self.unlist();
        }
        is_retired
    }

    /// Keeps the compactor away from a block. Returns false, without effect, if the compactor has begun to move its
    /// records.
    pub fn pin(&self) -> bool {
        let pins = |state| {
            assert!(state / PIN < PINS_MAX, "a block has {PINS_MAX} pins");
            (Use::in_state(state) != Use::Retired).then(|| state + PIN)
        };
        self.update(pins).is_ok()
    }

    /// Pins a block so many times more that the caller has pinned: the compactor cannot have begun.
    pub fn pin_more(&self, more: u32) {
        let before = self.state.fetch_add(more * PIN, Relaxed) / PIN;
        assert!(
            before.saturating_add(more) <= PINS_MAX,
            "a block has {before} pins, and {more} more are added"
        );
        debug_assert!(before > 0, "more pins of a block that nobody pins (transaction::write, invariant 2)");
    }

    /// Reverts one [`Block::pin`].
    pub fn unpin(&self) {
        self.unpin_all(1);
    }

    /// Reverts so many of them.
    pub fn unpin_all(&self, pins: u32) {
        // Release: pairs with the Acquire in `is_pinned`, which then observes all changes made under the pins.
        let before = self.state.fetch_sub(pins * PIN, Release) / PIN;
        debug_assert!(
            before >= pins,
            "{pins} pins of a block are released, and it has {before} (transaction::write, invariant 2)"
        );
    }

    pub fn is_pinned(&self) -> bool {
        has_pins(self.state.load(Acquire))
    }

    /// The block is damaged: it is never written, and freed only when nothing live is in its damaged part.
    pub fn set_aside(&self) {
        self.change(&[Use::Sealed, Use::Retired], Use::Damaged);
        self.unlist();
    }

    /// Nothing points to it any more, durably. (Recovery also frees blocks that it found sealed and empty.)
    pub fn free(&self) {
        debug_assert!(!self.is_listed(), "a listed block is freed, which was never retired");
        self.change(&[Use::Retired, Use::Checkpoint, Use::GivenBack, Use::Sealed], Use::Free);
    }

    /// Recovery found it sealed and empty: it may have no space.
    pub fn found_given_back(&self) {
        self.change(&[Use::Sealed], Use::GivenBack);
    }

    /// Whether a choice of victims finds the block.
    fn is_listed(&self) -> bool {
        Counts(self.live.load(Relaxed)).is_listed()
    }

    /// A choice of victims does not find the block any more.
    fn unlist(&self) {
        if self.is_listed() {
            self.live.fetch_and(u64::from(u32::MAX), Relaxed);
        }
    }

    fn set_mark(&self, mark: u32, value: bool) {
        // Most often it is so already, and the line need not be taken from others.
        if (self.state.load(Relaxed) & mark != 0) == value {
            return;
        }
        // Release: pairs with the Acquire of whoever observes the mark.
        match value {
            true => self.state.fetch_or(mark, Release),
            false => self.state.fetch_and(!mark, Release),
        };
    }

    fn has_mark(&self, mark: u32) -> bool {
        self.state.load(Acquire) & mark != 0
    }

    /// Wraps below zero while the block is open.
    pub fn live(&self) -> u32 {
        Counts(self.live.load(Relaxed)).live()
    }

    /// The live bytes of a sealed block. The count that recovery took from an index checkpoint may be too low: see
    /// `duramen`, `checkpoint::plan`.
    pub fn live_sealed(&self) -> u32 {
        Counts(self.live.load(Relaxed)).live_sealed()
    }

    /// The class of a listed block may fall: it stays listed in the higher one until the compactor looks at it.
    pub fn live_add(&self, bytes: u64) {
        self.live.fetch_add(bytes, Relaxed);
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

    /// Bytes from the block's beginning to the end of its durable part, as far as known, where epochs are not in use:
    /// a block that is not open is durable.
    pub fn durable_tail(&self) -> u64 {
        // Acquire: pairs with the Release in `set_durable_tail`.
        let counts = Counts(self.live.load(Acquire));
        if self.state() == Use::Open && !counts.is_listed() { counts.upper().into() } else { self.tail() }
    }

    /// Only the block's appender may call it.
    pub fn set_durable_tail(&self, bytes: u64) {
        let before = u64::from(Counts(self.live.load(Relaxed)).upper());
        // It may include a void after the last record.
        debug_assert!(
            (before..u64::from(LISTED)).contains(&bytes) && self.state() == Use::Open,
            "the durable part of a block of {} bytes moves from {before} to {bytes}",
            self.tail()
        );
        if bytes != before {
            self.live.fetch_add((bytes - before) << 32, Release);
        }
    }

    /// Whether it may hold a cell, which changes after it was appended.
    pub fn may_hold_cells(&self) -> bool {
        self.has_mark(CELLS)
    }

    /// Whether its records came from writers, as far as known.
    pub fn is_fresh(&self) -> bool {
        self.has_mark(FRESH)
    }

    pub fn set_fresh(&self, fresh: bool) {
        self.set_mark(FRESH, fresh);
    }

    pub fn set_cells(&self, cells: bool) {
        self.set_mark(CELLS, cells);
    }

    /// Whether its records may differ from the written ones.
    pub fn is_unverified(&self) -> bool {
        self.has_mark(UNVERIFIED)
    }

    pub fn set_unverified(&self, unverified: bool) {
        self.set_mark(UNVERIFIED, unverified);
    }

    /// Whether slots point to each of its damaged records that a key needs.
    pub fn is_known(&self) -> bool {
        !self.has_mark(UNKNOWN)
    }

    /// Recovery set the block aside: its damaged records may belong to any keys, and no slots point to them.
    pub fn set_unknown(&self) {
        self.set_mark(UNKNOWN, true);
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

/// Whether a state has pins.
fn has_pins(state: u32) -> bool {
    state / PIN != 0
}

/// The word of [`Block::live`].
#[derive(Clone, Copy, PartialEq, Eq)]
struct Counts(u64);

impl Counts {
    /// With nothing live.
    fn of_upper(upper: u32) -> Self {
        Self(u64::from(upper) << 32 | u64::from(LIVE_NOTHING))
    }

    /// The same live bytes, listed in a class of blocks with at least so many.
    fn listed(self, live_least: u64) -> Self {
        Self(u64::from(LISTED | live_least as u32) << 32 | self.0 & u64::from(u32::MAX))
    }

    fn live(self) -> u32 {
        (self.0 as u32).wrapping_sub(LIVE_NOTHING)
    }

    fn live_sealed(self) -> u32 {
        (self.live() as i32).max(0) as u32
    }

    fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn is_listed(self) -> bool {
        self.upper() & LISTED != 0
    }

    /// Whether a block with these counts, less `bytes`, belongs to a higher class than the one in which it is listed.
    /// Not listed, it has an upper half below the lower one: it has fewer than 2^30 bytes.
    #[inline]
    fn rises_without(self, bytes: u64) -> bool {
        (self.0 as u32).wrapping_sub(bytes as u32) < self.upper()
    }
}

/// Bytes after the records of a sealed block of `bytes` that compaction gains: all, when at most half of the block is
/// used. Such blocks fit into each other, so fewer remain. A fuller block gains nothing: it ends where the next record
/// did not fit, and a copy would end in the same way; a record of more than half a block is alone in any block. A block
/// without records, which is an index checkpoint's or freed anyway, gains nothing either.
pub fn room_won(bytes: u64, tail: u64) -> u64 {
    if tail > HEADER_BYTES && tail * 2 <= bytes { bytes - tail } else { 0 }
}

/// Blocks with this share of room after their records are found as roomy ones: more than those that are packed, which
/// have a quarter of room and dead records.
const ROOMY_SHARE: u64 = 5;

const CHUNK: usize = if cfg!(loom) { 16 } else { 4096 };

/// The entries of adjoining extents.
struct Chunk {
    blocks: Box<[Block]>,
    /// The classes of each [`GROUP`] of them.
    groups: Box<[ClassSet]>,
    /// See [`Blocks::is_copy`]: where the copies of a block begin, in bytes from its beginning; in the low half, where
    /// they end. Only where reads may wait for epochs.
    copies: OnceLock<Box<[AtomicU64]>>,
}

impl Chunk {
    fn of(extents: usize) -> Self {
        Self {
            blocks: (0..extents).map(|_| Block::default()).collect(),
            groups: (0..extents.div_ceil(GROUP)).map(|_| ClassSet::default()).collect(),
            copies: OnceLock::new(),
        }
    }
}

/// What [`Blocks::look`] looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Entries of extents.
    pub extents: usize,
    /// It stopped because that was enough.
    pub is_enough: bool,
}

/// All blocks, by extent. Grows without moving.
pub struct Blocks {
    chunks: Box<[OnceLock<Chunk>]>,
    parts: Parts,
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
            parts: Parts::of(extents.div_ceil(CHUNK)),
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
    fn chunk(&self, at: usize) -> &Chunk {
        // A small store allocates only the entries that it can use.
        self.chunks[at].get_or_init(|| Chunk::of(CHUNK.min(self.extents - at * CHUNK)))
    }

    #[inline]
    fn entry(&self, extent: Extent) -> &Block {
        &self.chunk(extent.0 as usize / CHUNK).blocks[extent.0 as usize % CHUNK]
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

    /// The block that holds the byte at `offset`, and its first extent.
    #[inline(always)]
    pub fn block_of(&self, offset: u64) -> (Extent, &Block) {
        let extent = (offset / self.extent_bytes) as u32;
        let entry = self.entry(Extent(extent));
        let span = entry.span.load(Acquire);
        if span & INNER == 0 {
            return (Extent(extent), entry);
        }
        self.first_of(extent, span)
    }

    /// The block of an inner extent with this span.
    #[inline(never)]
    fn first_of(&self, extent: u32, span: u32) -> (Extent, &Block) {
        let first = Extent(extent - (span & !INNER));
        (first, self.entry(first))
    }

    /// The first extent of the block that holds the byte at `offset`.
    #[inline]
    pub fn extent_of(&self, offset: u64) -> Extent {
        self.block_of(offset).0
    }

    /// The offset where the records end in the block that holds the byte at `offset`.
    pub fn end_of_records(&self, offset: u64) -> u64 {
        let (extent, block) = self.block_of(offset);
        self.offset(extent) + block.tail()
    }

    /// The block that holds the byte at `offset`.
    #[inline]
    pub fn of(&self, offset: u64) -> &Block {
        self.block_of(offset).1
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
        for inner in 1..extents {
            self.entry(Extent(extent.0 + inner)).span.store(INNER | inner, Release);
        }
        let tail = if state == Use::Open { HEADER_BYTES as u32 } else { 0 };
        let block = self.entry(extent);
        block.span.store(extents, Release);
        block.generation.store(generation.0, Release);
        block.live.store(Counts::of_upper(tail).0, Release);
        block.tail.store(tail, Release);
        block.expiry_reset();
        if let Some(copies) = self.copies_of(extent) {
            copies.store(0, Relaxed);
        }
        block.set_mark(CELLS, true);
        [FRESH, UNVERIFIED, UNKNOWN].into_iter().for_each(|mark| block.set_mark(mark, false));
        block.change(&[Use::Free], state);
        block
    }

    /// Its appender, whose live bytes are these, is done with it: the compactor may choose it.
    pub fn seal(&self, extent: Extent, live: u64) {
        let block = self.entry(extent);
        block.live_add(live);
        // Listed before: the compactor takes nothing from the sets that belongs to a listed block.
        let classes = self.list(block);
        block.change(&[Use::Open], Use::Sealed);
        self.add_classes(extent, classes);
    }

    /// The compaction that [`Block::retire`] began did not succeed: the block stays as it was.
    pub fn keep(&self, extent: Extent) {
        let block = self.entry(extent);
        let classes = self.list(block);
        block.change(&[Use::Retired], Use::Sealed);
        self.add_classes(extent, classes);
    }

    /// No choice of victims finds the block until [`Blocks::bring_back`].
    pub fn put_off(&self, extent: Extent) {
        self.entry(extent).unlist();
    }

    /// Lists a sealed block that was put off, if it is still there.
    pub fn bring_back(&self, extent: Extent) {
        let block = self.entry(extent);
        if block.state() == Use::Sealed && !block.is_listed() {
            let classes = self.list(block);
            self.add_classes(extent, classes);
        }
    }

    /// Lists all sealed blocks of a store that is opened.
    pub fn list_all(&self, extents: u32) {
        for (extent, _, state) in self.walk(0..extents) {
            if state == Use::Sealed {
                self.bring_back(extent);
            }
        }
    }

    /// The record at `offset` is no longer needed: its block has fewer live bytes.
    #[inline]
    pub fn live_sub(&self, offset: u64, bytes: u64) {
        let (extent, block) = self.block_of(offset);
        let before = Counts(block.live.fetch_sub(bytes, Relaxed));
        if before.rises_without(bytes) {
            self.raise_class(extent, block);
        }
    }

    /// Lists a block in the higher class that it belongs to now.
    #[cold]
    fn raise_class(&self, extent: Extent, block: &Block) {
        let mut now = Counts(block.live.load(Relaxed));
        // Another thread lists it, or it is being retired.
        while now.is_listed() && now.rises_without(0) {
            let (class, next) = self.class_of(block, now);
            // All of it is dead, and its count was too low.
            if next == now {
                return;
            }
            // The live bytes are fewer already, and the look of the compactor goes by them: see `victims`, invariant 1.
            match block.live.compare_exchange_weak(now.0, next.0, Relaxed, Relaxed) {
                Ok(_) => return self.add_classes(extent, class.bit()),
                Err(other) => now = Counts(other),
            }
        }
    }

    /// The class of a block with these counts, and the counts with that class.
    fn class_of(&self, block: &Block, now: Counts) -> (Class, Counts) {
        let (bytes, _) = self.gain_of(block);
        let class = Class::of(bytes, now.live_sealed().into());
        (class, now.listed(class.live_least(bytes)))
    }

    /// The bytes of a sealed block that records take or could take, and how many of them are live: compaction gains the
    /// others.
    pub fn gain_of(&self, block: &Block) -> (u64, u64) {
        let tail = block.tail().max(HEADER_BYTES);
        let room = room_won(self.bytes(block), tail);
        let bytes = (tail - HEADER_BYTES + room).max(1);
        (bytes, u64::from(block.live_sealed()).min(bytes))
    }

    /// Lists a block in its class. Returns the classes to add to the sets.
    fn list(&self, block: &Block) -> u32 {
        let mut now = Counts(block.live.load(Relaxed));
        loop {
            let (class, next) = self.class_of(block, now);
            match block.live.compare_exchange_weak(now.0, next.0, Relaxed, Relaxed) {
                Ok(_) => return self.classes(block, class),
                Err(other) => now = Counts(other),
            }
        }
    }

    /// The classes under which a block of `class` is found.
    fn classes(&self, block: &Block, class: Class) -> u32 {
        let bytes = self.bytes(block);
        let roomy = if (bytes.saturating_sub(block.tail())) * ROOMY_SHARE >= bytes { ROOMY } else { 0 };
        if class == Class::LOWEST { roomy } else { class.bit() | roomy }
    }

    /// Adds classes to the sets above a block, which is listed.
    fn add_classes(&self, extent: Extent, classes: u32) {
        let at = extent.0 as usize;
        if classes != 0 && !self.chunk(at / CHUNK).groups[at % CHUNK / GROUP].add(classes) {
            self.parts.add(at / CHUNK, classes);
        }
    }

    /// Shows listed blocks to `see`: those of the highest class first, in each class those at the end of the medium
    /// first, down to `least`; then, if `roomy`, those with much room after their records. Blocks of other classes that
    /// lie in the same groups are shown too. Stops when it has looked at `most` entries, if `see` said of one that it
    /// was found. Only the thread with the compactor may call it.
    pub fn look(
        &self,
        least: Class,
        roomy: bool,
        most: usize,
        mut see: impl FnMut(Extent, &Block) -> ControlFlow<()>,
    ) -> Looked {
        let (mut looked, mut is_found) = (0, false);
        let rest = roomy.then_some(Wanted { class: Class::LOWEST, done: least.bits_above() | least.bit() });
        let dead = least.and_above().map(|class| Wanted { class, done: class.bits_above() });
        for wanted in dead.chain(rest) {
            let mut visit = |at: usize| {
                for (group, set) in self.chunk(at).groups.iter().enumerate().rev() {
                    let classes = set.get();
                    if !wanted.is_in(classes) || !wanted.is_new(classes) {
                        continue;
                    }
                    looked += self.look_at_group(at, group, &mut |extent, block| {
                        is_found |= see(extent, block).is_break();
                    });
                    if looked >= most && is_found {
                        return true;
                    }
                }
                false
            };
            let left = |at: usize| self.chunk(at).groups.iter().fold(0, |classes, set| classes | set.get());
            if self.parts.visit(wanted, &mut visit, &left) {
                return Looked { extents: looked, is_enough: true };
            }
        }
        Looked { extents: looked, is_enough: false }
    }

    /// Shows the listed blocks of a group, and renews its set. Returns the number of entries.
    fn look_at_group(&self, chunk: usize, group: usize, see: &mut dyn FnMut(Extent, &Block)) -> usize {
        let entries = &self.chunk(chunk).blocks;
        let entries = &entries[group * GROUP..entries.len().min((group + 1) * GROUP)];
        self.chunk(chunk).groups[group].renew(|| {
            let listed = entries.iter().filter(|block| block.is_listed());
            listed.fold(0, |classes, block| classes | self.list_again(block))
        });
        for (block, number) in entries.iter().zip(chunk * CHUNK + group * GROUP..) {
            if block.is_listed() && block.state() == Use::Sealed {
                see(Extent(number as u32), block);
            }
        }
        entries.len()
    }

    /// As [`Blocks::list`], for a block that is listed, maybe in another class, unless it is taken from there meanwhile.
    fn list_again(&self, block: &Block) -> u32 {
        let mut now = Counts(block.live.load(Relaxed));
        while now.is_listed() {
            let (class, next) = self.class_of(block, now);
            if next == now {
                return self.classes(block, class);
            }
            match block.live.compare_exchange_weak(now.0, next.0, Relaxed, Relaxed) {
                Ok(_) => return self.classes(block, class),
                Err(other) => now = Counts(other),
            }
        }
        0
    }

    /// What is wrong with the classes of listed blocks, while nobody writes.
    pub fn wrong_classes(&self, extents: u32) -> Vec<String> {
        let mut wrong = Vec::new();
        for (extent, block, state) in self.walk(0..extents) {
            let now = Counts(block.live.load(Relaxed));
            if !now.is_listed() {
                continue;
            }
            let (class, next) = self.class_of(block, now);
            let (at, above) = (extent.0 as usize, class.bit() | class.bits_above());
            let set = &self.chunk(at / CHUNK).groups[at % CHUNK / GROUP];
            let is_found = set.get() & above != 0 && self.parts.have(at / CHUNK, above);
            if state != Use::Sealed || now.upper() > next.upper() || class > Class::LOWEST && !is_found {
                wrong.push(format!(
                    "the {state:?} block at extent {at} has {} live bytes, class {class:?}; it is listed for at least {}, {}",
                    now.live_sealed(),
                    now.upper() & !LISTED,
                    if is_found { "where it is found" } else { "where it is not found" }
                ));
            }
        }
        wrong
    }

    /// Sealed blocks that a choice of victims does not find.
    pub fn unlisted(&self, extents: u32) -> impl Iterator<Item = Extent> {
        let sealed =
            self.walk(0..extents).filter(|(_, block, state)| *state == Use::Sealed && !block.is_listed());
        sealed.map(|(extent, ..)| extent)
    }

    fn copies_of(&self, extent: Extent) -> Option<&AtomicU64> {
        let copies = self.chunk(extent.0 as usize / CHUNK).copies.get()?;
        copies.get(extent.0 as usize % CHUNK)
    }

    /// Whether the record at `at` bytes of a block is in the last contiguous run of committed records that the compactor
    /// copied there. Earlier copies are not tracked: they are committed themselves.
    pub fn is_copy(&self, extent: Extent, at: u64) -> bool {
        let copies = self.copies_of(extent).map_or(0, |copies| copies.load(Relaxed));
        (copies >> 32..copies & u64::from(u32::MAX)).contains(&at)
    }

    /// Whether a copy that is appended at `at` follows the last one.
    pub fn follows_copies(&self, extent: Extent, at: u64) -> bool {
        let copies = self.copies_of(extent).map_or(0, |copies| copies.load(Relaxed));
        copies == 0 || copies & u64::from(u32::MAX) == at
    }

    /// The compactor appended a copy there. Relaxed: the slot that points to the copy publishes this too.
    pub fn add_copy(&self, extent: Extent, at: u64, bytes: u64) {
        let chunk = self.chunk(extent.0 as usize / CHUNK);
        let none = || chunk.blocks.iter().map(|_| AtomicU64::new(0)).collect();
        let copies = &chunk.copies.get_or_init(none)[extent.0 as usize % CHUNK];
        let before = copies.load(Relaxed);
        let follows = before != 0 && before & u64::from(u32::MAX) == at;
        let from = if follows { before >> 32 } else { at };
        copies.store(from << 32 | (at + bytes), Relaxed);
    }
}
