//! Cells: values that are updated in place.

pub(crate) mod read;
pub(crate) mod update;
