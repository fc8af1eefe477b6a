//! Transactions. [`write`] begins, writes, commits, aborts and finalizes, and has the order and the invariants;
//! [`state`] is what a writer keeps meanwhile, and [`pins`] keep the records in place that it replaces. [`batch`] has
//! writes that are known in advance, with conditions, and [`apply`] makes them. [`recover`] determines after a crash
//! which transactions count, and [`outcome`] is what it found in a block.

pub(crate) mod apply;
pub(crate) mod batch;
pub(crate) mod outcome;
pub(crate) mod pins;
pub(crate) mod recover;
pub(crate) mod state;
pub(crate) mod write;
