//! What the server shows of itself.
//!
//! | module | is about |
//! |---|---|
//! | [`log`], [`systemd`] | lines for the operator, and the state for the service manager |
//! | [`info`], [`stats`], [`process`] | INFO, and the numbers in it |
//! | [`times`] | SLOWLOG and LATENCY |
//! | [`keyspace_events`] | events of keys, for subscribers |

pub mod info;
pub mod keyspace_events;
pub mod log;
pub mod process;
pub mod stats;
pub mod systemd;
pub mod times;
