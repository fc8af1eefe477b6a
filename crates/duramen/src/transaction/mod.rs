//! Transactions: begin, write, commit, abort, finalize, and what recovery makes of them.

pub(crate) mod apply;
pub(crate) mod batch;
pub(crate) mod outcome;
pub(crate) mod recover;
pub(crate) mod state;
pub(crate) mod write;
