//! Clients that wait for elements of a key: BLPOP and similar commands. docs/internals/decisions/025-blocking.md explains how
//! they are served and why none is forgotten.
//!
//! | module | is about |
//! |---|---|
//! | `queues` | the waiters of each key, and the claim on a waiter |
//! | `wait`, `timeout` | how a command says that it waits |
//! | `wake` | a writer serves the waiters for its keys, in its transaction |
//! | `ends` | a waiter is answered or released, its time runs out, its client goes |

mod ends;
mod queues;
mod timeout;
mod wait;
mod wake;

pub use queues::{Awaited, Kind, Wait, Waiter, Waiting, What, lock, place};
pub use timeout::{after_millis, timeout};
pub use wait::{wait_for_first, wait_for_many};
pub use wake::{Wake, add_keys, null_reply, take_out};
