//! The Redis protocol: requests from bytes, replies to bytes. Pure: no sockets, no store.

pub mod reply;

pub use reply::{Protocol, Reply};
