//! What a reader within a group owes.

use crate::format::Extent;
use std::cell::Cell;

/// What a reader within a group owes before its results may be shown.
#[derive(Default)]
pub(crate) struct ReadBarrier {
    /// The newest epoch read.
    pub epoch: Cell<u64>,
    /// The reader's own transaction that runs, whose writes it sees, or 0.
    pub transaction: Cell<u64>,
    /// A look-up met what that transaction wrote. Cleared by who asks.
    pub saw_own: Cell<bool>,
    /// The lane of its transactions, and the block that it appends to: what is pending there is of its own group.
    pub transaction_slot: Cell<Option<u16>>,
    pub block: Cell<Option<Extent>>,
}
