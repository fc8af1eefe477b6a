//! Transactions in DRAM: which are active, and how far the finished ones are durable.
//!
//! Each writer with a transaction has a *transaction slot*. Each transaction record stores the number of that slot next
//! to the previous target of its index slot. A transaction goes through these states, each step a store to its
//! transaction slot by its writer:
//!
//! | state | `running` | slots of its transaction records | a reader that finds one |
//! |---|---|---|---|
//! | active | its number | pending | continues with the slot that the transaction record replaced |
//! | committed | another | pending | makes the transaction durable, or waits for that, and shows the transaction record |
//! | finalized | another | not pending | shows the transaction record |
//! | aborted | another | point where they pointed before | |
//!
//! So *all of a transaction's writes become visible by one store*, that of `running` when its commit record is written.
//! A transaction that aborts restores each slot first, and stores then. So a reader that found a transaction record,
//! and finds that its transaction is not active, reads the slot again. If the slot still points there, the transaction
//! has committed.
//!
//! A committed transaction that is not durable has all its undrained bytes in one block: its writer drains before it
//! continues in another block. To help, a reader must flush the range from that block's durable tail to `shown_to`.
//!
//! Where epochs are in use, a transaction is durable with the epoch of its commit record, which `epoch` holds. That
//! epoch is not earlier than those of its transaction records.

use crate::format::TransactionId;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{Mutex, OnceLock, lock};
use crate::{Error, ErrorKind, Result};
use duramen_media::Offset;

/// Maximum number of transaction slots: a transaction record keeps the number in 16 bits.
const TRANSACTION_SLOTS_MAX: usize = if cfg!(loom) { 2 } else { 1 << 16 };
const CHUNK: usize = if cfg!(loom) { 1 } else { 64 };
/// Numbers that a writer takes at once, so that writers seldom contend.
const NUMBERS: u64 = if cfg!(loom) { 2 } else { 1 << 12 };

/// The state of one writer's transactions that other threads need. Two lines apart from its neighbours, since the CPU
/// fetches lines in pairs.
#[derive(Default)]
#[repr(align(128))]
pub struct TransactionSlot {
    /// The active transaction, or 0.
    running: AtomicU64,
    /// Offset of the end of the last commit record that may not be drained, or 0.
    shown_to: AtomicU64,
    /// The epoch of the last commit record.
    epoch: AtomicU64,
}

impl TransactionSlot {
    /// A transaction begins.
    #[inline]
    pub fn begin(&self, transaction: TransactionId) {
        debug_assert!(
            cfg!(loom) || self.running.load(Relaxed) == 0,
            "a writer has two active transactions (transaction::write, invariant 1)"
        );
        self.running.store(transaction.0, Release);
    }

    /// Whether the transaction is active: none of its writes is visible.
    #[inline]
    pub fn is_active(&self, transaction: TransactionId) -> bool {
        // Acquire: pairs with the Release in `show` and `over`: a thread that observes the end of the transaction also
        // observes the targets of all its slots.
        self.running.load(Acquire) == transaction.0
    }

    /// Commits a transaction whose commit record ends at `end` and belongs to `epoch`: all its writes are visible from
    /// here on.
    #[inline]
    pub fn show(&self, end: Offset, epoch: u64) {
        self.shown_to.store(end.0, Relaxed);
        self.epoch.store(epoch, Relaxed);
        // Release: pairs with the Acquire in `is_active`.
        self.running.store(0, Release);
    }

    /// The transaction was aborted, and all slots point to their earlier targets.
    pub fn over(&self) {
        // Release: pairs with the Acquire in `is_active`.
        self.running.store(0, Release);
    }

    /// All committed transactions of this writer are drained.
    #[inline]
    pub fn drained(&self) {
        // Release: pairs with the Acquire in `shown_to`.
        self.shown_to.store(0, Release);
    }

    /// The offset up to which a reader must flush to make the committed transactions durable, or 0.
    pub fn shown_to(&self) -> u64 {
        self.shown_to.load(Acquire)
    }

    /// The latest epoch that a committed transaction of this writer waits for.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }
}

/// Transaction slots without a writer.
#[derive(Default)]
struct Free {
    made: usize,
    back: Vec<u16>,
}

/// See the module.
pub struct TransactionSlots {
    chunks: Box<[OnceLock<Box<[TransactionSlot]>>]>,
    free: Mutex<Free>,
    /// Counter of the next numbers.
    next: AtomicU64,
    incarnation: u32,
}

/// A range of transaction numbers that a writer has taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    next: u64,
    end: u64,
}

impl TransactionSlots {
    pub fn new(incarnation: u32) -> Self {
        Self {
            chunks: (0..TRANSACTION_SLOTS_MAX.div_ceil(CHUNK)).map(|_| OnceLock::new()).collect(),
            free: Mutex::default(),
            // 0 is no number.
            next: AtomicU64::new(1),
            incarnation,
        }
    }

    #[inline]
    pub fn at(&self, transaction_slot: u16) -> &TransactionSlot {
        let chunk = self.chunks[usize::from(transaction_slot) / CHUNK]
            .get_or_init(|| (0..CHUNK).map(|_| TransactionSlot::default()).collect());
        &chunk[usize::from(transaction_slot) % CHUNK]
    }

    /// Takes a transaction slot for a writer, until [`TransactionSlots::give`].
    pub fn take(&self) -> Result<u16> {
        let mut free = lock(&self.free);
        if let Some(transaction_slot) = free.back.pop() {
            return Ok(transaction_slot);
        }
        if free.made == TRANSACTION_SLOTS_MAX {
            let why = format!(
                "{TRANSACTION_SLOTS_MAX} writers of this store hold transaction slots, which is the maximum: drop some writers"
            );
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        free.made += 1;
        Ok((free.made - 1) as u16)
    }

    pub fn give(&self, transaction_slot: u16) {
        lock(&self.free).back.push(transaction_slot);
    }

    /// A number that no transaction ever had.
    #[inline]
    pub fn number(&self, numbers: &mut Numbers) -> TransactionId {
        if numbers.next == numbers.end {
            numbers.next = self.next.fetch_add(NUMBERS, Relaxed);
            numbers.end = numbers.next + NUMBERS;
        }
        numbers.next += 1;
        TransactionId::new(self.incarnation, numbers.next - 1)
    }
}
