//! The Redis protocol: requests from bytes, replies to bytes. Pure: no sockets, no store.

pub mod ahead;
pub mod inline;
pub mod reply;
pub mod request;

pub use reply::{Protocol, Reply};
pub use request::{Limits, ProtocolError, Request, Requests};
