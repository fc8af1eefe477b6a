//! Transactions in DRAM: which runs, and how far those that are over are durable.
//!
//! Each writer that has a transaction has a *transaction slot*, whose number each transaction record keeps beside what
//! its slot pointed to before. A transaction goes through these states, each step a store to its transaction slot by
//! its writer:
//!
//! | state | `running` | slots of its transaction records | who meets one |
//! |---|---|---|---|
//! | runs | its number | pending | goes on to the slot that the transaction record took the place of |
//! | committed | another | pending | makes the transaction durable, or waits for that, and shows the transaction record |
//! | settled | another | not pending | shows the transaction record |
//! | given up | another | point where they led before | |
//!
//! So *all of a transaction's writes become visible by one store*, that of `running` when its end is written. A
//! transaction that is aborted puts each slot back first, and stores then: who met a transaction record, and finds that
//! its transaction does not run, looks at the slot once more. If it still points there, the transaction has committed.
//!
//! A committed transaction that is not durable has all that is not in one block: its writer drains before it goes on to
//! another block. What a reader must flush to help is the range from where that block is durable to `shown_to`.
//!
//! Where epochs are in use a transaction is durable with the epoch of its end, which is noted in `epoch`, later than
//! those of its transaction records.

use crate::format::TransactionId;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{Mutex, OnceLock, lock};
use crate::{Error, ErrorKind, Result};
use duramen_media::Offset;

/// Transaction slots at most: a transaction record keeps the number in 16 bits.
const TRANSACTION_SLOTS_MAX: usize = if cfg!(loom) { 2 } else { 1 << 16 };
const CHUNK: usize = if cfg!(loom) { 1 } else { 64 };
/// Numbers that a transaction slot takes at once, so that writers seldom meet.
const NUMBERS: u64 = if cfg!(loom) { 2 } else { 1 << 12 };

/// What others must know of the transactions of one writer. Two lines apart from its neighbours, since the CPU fetches
/// lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct TransactionSlot {
    /// The transaction that runs, or 0.
    running: AtomicU64,
    /// Where the end of the last committed transaction is over that may not be drained, or 0.
    shown_to: AtomicU64,
    /// The epoch of the end of the last committed transaction.
    epoch: AtomicU64,
}

impl TransactionSlot {
    /// A transaction begins.
    #[inline]
    pub(crate) fn begin(&self, transaction: TransactionId) {
        self.running.store(transaction.0, Release);
    }

    /// Whether the transaction runs: none of its writes is to be seen.
    #[inline]
    pub(crate) fn is_active(&self, transaction: TransactionId) -> bool {
        // Acquire: pairs with the Release in `show` and `over`: whoever sees that it is over sees what all its slots
        // point to.
        self.running.load(Acquire) == transaction.0
    }

    /// The moment of a transaction, whose end is over at `end` and belongs to `epoch`: all its writes are visible from
    /// here on.
    #[inline]
    pub(crate) fn show(&self, end: Offset, epoch: u64) {
        self.shown_to.store(end.0, Relaxed);
        self.epoch.store(epoch, Relaxed);
        // Release: pairs with the Acquire in `is_active`.
        self.running.store(0, Release);
    }

    /// The transaction was aborted, and all slots point where they did.
    pub(crate) fn over(&self) {
        // Release: pairs with the Acquire in `is_active`.
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

/// Transaction slots that are nobody's.
#[derive(Default)]
struct Free {
    made: usize,
    back: Vec<u16>,
}

/// See the module.
pub(crate) struct TransactionSlots {
    chunks: Box<[OnceLock<Box<[TransactionSlot]>>]>,
    free: Mutex<Free>,
    /// Counter of the next numbers.
    next: AtomicU64,
    incarnation: u32,
}

/// Numbers that a writer has for its transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Numbers {
    next: u64,
    end: u64,
}

impl TransactionSlots {
    pub(crate) fn new(incarnation: u32) -> Self {
        Self {
            chunks: (0..TRANSACTION_SLOTS_MAX.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            // 0 is no number.
            next: AtomicU64::new(1),
            incarnation,
        }
    }

    #[inline]
    pub(crate) fn at(&self, transaction_slot: u16) -> &TransactionSlot {
        let chunk = self.chunks[usize::from(transaction_slot) / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| TransactionSlot::default()).collect());
        &chunk[usize::from(transaction_slot) % CHUNK]
    }

    /// A transaction slot for a writer, until [`TransactionSlots::give`].
    pub(crate) fn take(&self) -> Result<u16> {
        let mut free = lock(&self.free);
        if let Some(transaction_slot) = free.back.pop() {
            return Ok(transaction_slot);
        }
        if free.made == TRANSACTION_SLOTS_MAX {
            let why = format!(
                "{TRANSACTION_SLOTS_MAX} writers of this store have written transactions, and none of them has ended: drop some"
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        free.made += 1;
        Ok((free.made - 1) as u16)
    }

    pub(crate) fn give(&self, transaction_slot: u16) {
        lock(&self.free).back.push(transaction_slot);
    }

    /// A number that no transaction ever had.
    #[inline]
    pub(crate) fn number(&self, numbers: &mut Numbers) -> TransactionId {
        if numbers.next == numbers.end {
            numbers.next = self.next.fetch_add(NUMBERS, Relaxed);
            numbers.end = numbers.next + NUMBERS;
        }
        numbers.next += 1;
        TransactionId::new(self.incarnation, numbers.next - 1)
    }
}
