//! The Redis protocol on both sides, without a server and without a store.
//!
//! | module | is |
//! |---|---|
//! | [`request`] | commands from the bytes that a client sent: resumable, without copies |
//! | [`inline`] | commands as one line of text, and lines of redis.conf |
//! | [`ahead`] | the keys of commands that have not yet run |
//! | [`number`] | integers as text |
//! | [`command`] | writes commands |
//! | [`reply`] | replies as they arrive at a client, byte for byte |
//! | [`connection`] | a client's blocking connection |
//! | [`tls`] | TLS below these, for servers and clients |
//!
//! What a server replies is written by the server: how much of a reply it keeps is a matter of its connections.
#![forbid(unsafe_code)]

pub mod ahead;
pub mod command;
pub mod connection;
pub mod inline;
pub mod number;
pub mod reply;
pub mod request;
mod span;
pub mod tls;

pub use command::encode_command;
pub use connection::{Connection, Ended};
pub use reply::{Malformed, Replies, Reply};
pub use request::{Limits, ProtocolError, Request, Requests};
pub use span::Span;
