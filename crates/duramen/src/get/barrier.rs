//! The read barrier of a reader within a group.

use duramen_log::format::Extent;
use std::cell::Cell;

/// The conditions for showing a reader's results within a group.
#[derive(Default)]
pub(crate) struct ReadBarrier {
    /// The newest epoch read.
    pub epoch: Cell<u64>,
    /// The reader's own active transaction, whose writes it sees, or 0.
    pub transaction: Cell<u64>,
    /// A lookup found a write of that transaction. Cleared by the code that checks it.
    pub saw_own: Cell<bool>,
    /// The slot of its transactions, and the block that it appends to: pending records there belong to its own group.
    pub transaction_slot: Cell<Option<u16>>,
    pub block: Cell<Option<Extent>>,
}
