//! What a reader within a group owes.

use crate::format::Granule;
use std::cell::Cell;

/// What a reader within a group owes before its results may be shown.
#[derive(Default)]
pub(crate) struct Owed {
    /// The newest epoch read.
    pub epoch: Cell<u64>,
    /// The reader's own unit that runs, whose writes it sees, or 0.
    pub unit: Cell<u64>,
    /// A look-up met what that unit wrote. Cleared by who asks.
    pub met_own: Cell<bool>,
    /// The lane of its units, and the block that it appends to: what is pending there is of its own group.
    pub lane: Cell<Option<u16>>,
    pub block: Cell<Option<Granule>>,
}
