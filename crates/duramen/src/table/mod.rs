//! Tables and collections: their names, their indexes, how they are dropped and recovered.

pub(crate) mod forgotten;
pub(crate) mod names;
pub(crate) mod reclaim;
pub(crate) mod recover;
pub(crate) mod retired;
pub(crate) mod tables;
