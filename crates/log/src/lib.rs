//! Bytes, blocks and epochs: the log of records of a [Duramen](https://docs.rs/duramen) store. The log knows nothing of
//! keys. A crate of the engine, without promises of its own; programs use `duramen`.
//!
//! [`format`] is the layout of everything on the medium, and [`durability`] decides when it is durable. [`sync`] has
//! all primitives of threads, and the reclamation of memory.
//!
//! [`blocks`] holds the state of each block in DRAM. [`space`] hands out extents and takes them back, and [`supply`]
//! opens blocks. [`appender`] writes records into an [open block](open_block) of its own, or one that writers share;
//! [`read`] reads them in place. [`cell`] is a record whose value is updated in place, and [`reachable`] one that a
//! slot may point to. [`transaction`] knows which transactions are active, and [`finalizing`] records the outcomes of
//! those of several blocks.
// The items of an internal crate are documented where their names do not say it.
#![allow(missing_docs)]

pub mod appender;
pub mod blocks;
pub mod cell;
mod dirty;
pub mod durability;
mod error;
mod finalizing;
pub mod format;
mod log;
pub mod mutants;
pub mod open_block;
pub mod phase;
pub mod reachable;
pub mod read;
pub mod space;
pub mod supply;
pub mod sync;
pub mod transaction;

pub use dirty::DirtyBlocks;
pub use error::{Error, ErrorKind, Result};
pub use format::record::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use log::{KEY_BYTES_USUAL, Log};
