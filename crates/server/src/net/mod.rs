//! Sockets and threads: the acceptor and the workers. Nothing here depends on the protocol: see [`Protocol`].
//!
//! ```text
//!   acceptor (the calling thread)            worker 0 … N-1
//!   listeners, signals, SHUTDOWN   ──────►   inbox ─► event loop, connections, engine writer
//!                             round robin
//! ```
//!
//! A connection stays with its worker. Workers share the store and nothing else that a request writes to. See
//! docs/internals/decisions/009-server-event-loop.md.

mod accept;
mod buffer_pool;
mod connection;
mod inbox;
mod listen;
pub mod open_files;
mod output;
mod pair;
mod protocol;
mod stream;
pub mod tls;
mod turn;
mod worker;

pub use accept::{WAKE, accept};
pub use inbox::{Inbox, Message};
pub use listen::{Listener, Place};
pub use output::{Mark, Output};
pub use pair::Pair;
pub use protocol::{Conversation, Protocol, Refusal, run_alone};
pub use stream::Stream;
pub use turn::{Bystanders, Turn};
pub use worker::{INBOX, Worker};
