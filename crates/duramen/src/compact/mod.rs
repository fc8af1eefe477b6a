//! Compaction: live records move, and their blocks become free.

pub(crate) mod blocks;
pub(crate) mod choose;
pub(crate) mod compactor;
pub(crate) mod emptying;
pub(crate) mod free;
pub(crate) mod pack;
pub(crate) mod records;
pub(crate) mod recount;
pub(crate) mod release;
pub(crate) mod retired;
pub(crate) mod stale;
