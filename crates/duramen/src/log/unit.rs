//! Units in DRAM: which runs, and how far those that are over are durable.
//!
//! Each writer that has a unit has a *lane*, whose number each member keeps beside what its slot led to before. A unit goes through these
//! states, each step a store to its lane by its writer:
//!
//! | state | `running` | slots of its members | who meets one |
//! |---|---|---|---|
//! | runs | its number | pending | goes on to the slot that the member took the place of |
//! | committed | another | pending | makes the unit durable, or waits for that, and shows the member |
//! | settled | another | not pending | shows the member |
//! | given up | another | lead where they led before | |
//!
//! So *all of a unit's writes become visible by one store*, that of `running` when its end is written. A unit that is given up puts each
//! slot back first, and stores then: who met a member, and finds that its unit does not run, looks at the slot once more. If it still leads
//! there, the unit has committed.
//!
//! A committed unit that is not durable has all that is not in one block: its writer drains before it goes on to another block. What
//! a reader must flush to help is the range from where that block is durable to `shown_to`.
//!
//! Where epochs are in use a unit is durable with the epoch of its end, which is noted in `epoch`, later than those of its members.

use crate::format::UnitId;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{Mutex, OnceLock, lock};
use crate::{Error, ErrorKind, Result};
use duramen_media::Offset;

/// Lanes at most: a member keeps the number in 16 bits.
const LANES_MAX: usize = if cfg!(loom) { 2 } else { 1 << 16 };
const CHUNK: usize = if cfg!(loom) { 1 } else { 64 };
/// Numbers that a lane takes at once, so that writers seldom meet.
const NUMBERS: u64 = if cfg!(loom) { 2 } else { 1 << 12 };

/// What others must know of the units of one writer. Two lines apart from its neighbours, since the CPU fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Lane {
    /// The unit that runs, or 0.
    running: AtomicU64,
    /// Where the end of the last committed unit is over that may not be drained, or 0.
    shown_to: AtomicU64,
    /// The epoch of the end of the last committed unit.
    epoch: AtomicU64,
}

impl Lane {
    /// A unit begins.
    #[inline]
    pub(crate) fn begin(&self, unit: UnitId) {
        self.running.store(unit.0, Release);
    }

    /// Whether the unit runs: none of its writes is to be seen.
    #[inline]
    pub(crate) fn runs(&self, unit: UnitId) -> bool {
        // Acquire: pairs with the Release in `show` and `over`: whoever sees that it is over sees what all its slots lead to.
        self.running.load(Acquire) == unit.0
    }

    /// The moment of a unit, whose end is over at `end` and belongs to `epoch`: all its writes are visible from here on.
    #[inline]
    pub(crate) fn show(&self, end: Offset, epoch: u64) {
        self.shown_to.store(end.0, Relaxed);
        self.epoch.store(epoch, Relaxed);
        // Release: pairs with the Acquire in `runs`.
        self.running.store(0, Release);
    }

    /// The unit was given up, and all slots lead where they did.
    pub(crate) fn over(&self) {
        // Release: pairs with the Acquire in `runs`.
        self.running.store(0, Release);
    }

    /// All that was committed is drained.
    #[inline]
    pub(crate) fn drained(&self) {
        // Release: pairs with the Acquire in `shown_to`.
        self.shown_to.store(0, Release);
    }

    /// Up to where a reader must flush what is committed, or 0.
    pub(crate) fn shown_to(&self) -> u64 {
        self.shown_to.load(Acquire)
    }

    /// The epoch that what is committed waits for at most.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }
}

/// Lanes that are nobody's.
#[derive(Default)]
struct Free {
    made: usize,
    back: Vec<u16>,
}

/// See the module.
pub(crate) struct Lanes {
    chunks: Box<[OnceLock<Box<[Lane]>>]>,
    free: Mutex<Free>,
    /// Counter of the next numbers.
    next: AtomicU64,
    incarnation: u32,
}

/// Numbers that a writer has for its units.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    next: u64,
    end: u64,
}

impl Lanes {
    pub(crate) fn new(incarnation: u32) -> Self {
        Self {
            chunks: (0..LANES_MAX.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            // 0 is no number.
            next: AtomicU64::new(1),
            incarnation,
        }
    }

    #[inline]
    pub(crate) fn at(&self, lane: u16) -> &Lane {
        let chunk = self.chunks[usize::from(lane) / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| Lane::default()).collect());
        &chunk[usize::from(lane) % CHUNK]
    }

    /// A lane for a writer, until [`Lanes::give`].
    pub(crate) fn take(&self) -> Result<u16> {
        let mut free = lock(&self.free);
        if let Some(lane) = free.back.pop() {
            return Ok(lane);
        }
        if free.made == LANES_MAX {
            let why = format!(
                "{LANES_MAX} writers of this store have written units, and none of them has ended: drop some"
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        free.made += 1;
        Ok((free.made - 1) as u16)
    }

    pub(crate) fn give(&self, lane: u16) {
        lock(&self.free).back.push(lane);
    }

    /// A number that no unit ever had.
    #[inline]
    pub(crate) fn number(&self, numbers: &mut Numbers) -> UnitId {
        if numbers.next == numbers.end {
            numbers.next = self.next.fetch_add(NUMBERS, Relaxed);
            numbers.end = numbers.next + NUMBERS;
        }
        numbers.next += 1;
        UnitId::new(self.incarnation, numbers.next - 1)
    }
}
