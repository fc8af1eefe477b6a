//! Sockets and threads: the acceptor and the workers. Which protocol is spoken there, nobody in here knows: see
//! [`Protocol`].
//!
//! ```text
//!   acceptor (the calling thread)            worker 0 … N-1
//!   listeners, signals, SHUTDOWN   ──────►   inbox ─► event loop, connections, engine writer
//!                             round robin
//! ```
//!
//! A connection stays with the worker it was handed to. Workers share the store and nothing else that is written
//! on the way of a request. See docs/internals/decisions/009-server-event-loop.md.

mod accept;
mod buffer_pool;
mod connection;
mod inbox;
mod listen;
pub mod open_files;
mod output;
mod protocol;
mod stream;
mod worker;

pub use accept::{WAKE, accept};
pub use inbox::{Inbox, Message};
pub use listen::{Listener, Place};
pub use output::{Mark, Output};
pub use protocol::{Conversation, Protocol, Refusal};
pub use stream::Stream;
pub use worker::{INBOX, Worker};
