//! Messages to clients outside their own turns: pub/sub, invalidations and events of keys, and replies to blocked
//! commands.
//!
//! ```text
//!  a command ──► Outgoing ── turn is durable ──► Delivery ── in order ──► inboxes of workers ──► Subscribers ──► connections
//! ```
//!
//! - **Invariant 1**: a message is handed to workers after the turn that caused it is durable, and never when the turn
//!   failed.
//! - **Invariant 2**: every connection gets messages in the order in which their commands ran, on any worker: each
//!   takes a number when its command runs, and messages are handed over in the order of their numbers.
//! - **Invariant 3**: a worker's inbox is woken once for all that a turn has for it.

mod delivery;
mod message;
mod subscribers;
mod subscriptions;

pub use delivery::{Delivery, Outgoing};
pub use message::{Content, Message, PutBack};
pub use subscribers::Subscribers;
pub use subscriptions::{Kind, Monitors, Name, Subscribed, Subscriptions};
