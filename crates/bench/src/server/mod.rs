//! Load over sockets for any server that speaks the Redis or the memcached protocol. It links no engine, so
//! every server is measured by the same client.
//!
//! One thread drives all connections, so that client and server take one core each. Every reply is compared with the
//! expected one: a wrong reply ends the run, since a server that answers wrongly can be arbitrarily fast.
//!
//! - *Closed loop*: each connection sends a batch of `pipeline` commands and waits for all its replies. Latency is
//!   counted from the batch's write.
//! - *Open loop*: commands are due at a fixed rate whatever the server does. Latency is counted from the moment a
//!   command was due. So it includes the wait after a slow command (no coordinated omission).
//!
//! redis-benchmark and memtier do not suffice. Neither compares the replies: a server that loses or mixes up values
//! looks fast. Neither counts from when a command was due and also reports the server's processor time for a command.
//! Neither lets servers take turns, with the others stopped, which makes ratios reliable on a shared machine.
//! redis-benchmark does not speak memcached.

mod address;
mod client;
mod failure;
mod keys;
mod plan;
mod protocol;
pub mod servers;
mod typed;
mod verdict;
mod versus;

pub use address::Address;
pub use client::{Outcome, Watch, run};
pub use failure::{Failure, Result};
pub use keys::Distribution;
pub use plan::{Command, Length, Plan};
pub use protocol::Protocol;
pub use typed::Load;
pub use versus::{Versus, compare};
