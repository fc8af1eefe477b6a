//! A small HTTP/1.1 server for operators: short answers to GET and HEAD, on one thread, for a bounded number of
//! connections, with TLS or without. It knows no path: a [`Site`] answers them.
//!
//! | module | is about |
//! |---|---|
//! | [`request`] | the head of a request, read by `httparse`, the parser of hyper |
//! | [`response`] | an answer and its bytes |
//! | [`handler`] | the interface to what answers |
//! | [`background`] | threads for answers that take time |
//! | [`connection`] | one connection and its deadlines |
//! | [`listen`] | addresses, the thread, and which connection is closed when there are too many |
//!
//! **Invariant 1**: no client makes another wait: sockets do not block, each connection has a deadline, and a new
//! connection takes the place of the one that has waited longest for its client. **Invariant 2**: a client that sends or reads
//! nothing takes at most [`HEAD_BYTES_MAX`] bytes and one answer of memory. **Invariant 3**: the body of a request is
//! never read; such a connection is closed after the answer.

mod background;
mod connection;
mod handler;
mod listen;
mod request;
mod response;

pub use handler::{Answer, Site, Work};
pub use listen::{Listening, address};
pub use request::{HEAD_BYTES_MAX, Request};
pub use response::{Response, Status};
