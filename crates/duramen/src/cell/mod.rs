//! Cells: values that are updated in place. [`read`] copies one as it was at one moment, [`update`] stores to it.
//! [`duramen_log::cell`] defines what a cell is; compaction moves one under its key's lock
//! ([`crate::compact::records`]).

pub(crate) mod read;
pub(crate) mod update;
