//! Tables and collections. [`tables`] has them and their owners, [`names`] the references of roots to collections, and
//! [`forgotten`] counts keys whose tombstones were dropped. A dead table is [`retired`], and [`reclaim`] takes it apart
//! in the background. [`recover`] determines after a crash which have names.

pub(crate) mod forgotten;
pub(crate) mod names;
pub(crate) mod reclaim;
pub(crate) mod recover;
pub(crate) mod retired;
pub(crate) mod tables;
