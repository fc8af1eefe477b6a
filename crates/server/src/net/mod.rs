//! Sockets and threads: the acceptor, the workers, and how the server starts and ends.
//!
//! ```text
//!   acceptor (the calling thread)            worker 0 … N-1
//!   listeners, signals, SHUTDOWN   ──────►   inbox ─► event loop, connections, engine writer
//!                             round robin
//! ```
//!
//! A connection stays with the worker it was handed to. Workers share the store and nothing else that is written
//! on the way of a command. See docs/decisions/009-server-event-loop.md.

mod accept;
mod connection;
mod inbox;
mod listen;
mod notify;
pub mod open_files;
mod spare;
mod start;
mod stream;
mod worker;

pub use inbox::{Inbox, Message};
pub use start::{Started, serve};
