//! memcached's protocols, those of 1.6.18: text, meta and binary, on items of the keyspace.
//!
//! | module | is about |
//! |---|---|
//! | `protocol` | memcached on the event loop |
//! | `service`, `connection_state`, `request`, `line` | the state of a worker, a connection and a command |
//! | [`text`], [`meta`], [`binary`] | the protocols: bytes to commands, outcomes to bytes |
//! | `items` | the operations of commands, for all protocols |
//! | [`numbering`] | CAS numbers |
//! | [`clock`], `last_used` | seconds and deadlines; when items were used |
//! | `shared`, `counters`, `stats` | the state that all workers share, and its statistics |
//! | [`number`], [`base64`] | numbers and keys as clients write them |
//! | `offline` | all of it without sockets, for fuzz targets |
//!
//! How items are kept is at the head of `crates/structures/src/txn/head.rs`, and why in
//! docs/internals/decisions/027-memcached-items.md.

mod ahead;
pub mod base64;
pub mod binary;
pub mod clock;
mod connection_state;
pub mod counters;
mod items;
mod last_used;
mod line;
mod listing;
pub mod meta;
pub mod number;
pub mod numbering;
mod offline;
mod protocol;
mod request;
mod rights;
mod service;
mod shared;
mod stats;
pub mod text;

pub use counters::NAMES as COUNTER_NAMES;
pub use items::KEY_BYTES_MAX;
pub use offline::Offline;
pub use protocol::{Memcached, open};
pub use shared::Shared;
