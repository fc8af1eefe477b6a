//! Compaction. [`choose`] selects blocks, and [`records`] moves the live records out of them: it has the order and the
//! invariants. [`beside`] does that on several threads. [`compactor`] is the state, [`emptying`] one block that is moved
//! out of, and [`blocks`] reads whole blocks. A block is [`retired`] until no reader is in it, released ([`release`]) and freed ([`free`]). [`stale`] and
//! [`recount`] count what tombstones hide. [`pack`] makes space for a writer that found none.

pub(crate) mod beside;
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
