//! CLIENT TRACKING: clients keep copies of keys that they read, and get an invalidation when a key changes.
//!
//! For a client, the server either remembers the keys that it reads and notifies it once per key; or the client names
//! prefixes and is notified of every key with one of them (BCAST). As in Redis a key has a name and no database here: a
//! client gets too many invalidations rather than too few.
//!
//! - **Invariant 1**: a reader remembers a key for its client while it holds the key's lock, and a writer takes the
//!   remembered clients under that lock. So no write between a read and its remembering is missed.
//! - **Invariant 2**: entries taken for a transaction that did not commit are put back.
//! - **Invariant 3**: a key has at most one expiry time in each database, and none once it is forgotten. The lock of
//!   its shard is held while its times change.
//!
//! `table` has the tracking clients and their keys, `written` is called by commands in their transactions, and
//! `dispatched` comes after these.

mod dispatched;
mod table;
mod written;

pub use table::{Taken, Tracked, Tracking, Tracks};
pub use written::{before_commit, invalidate, invalidate_written, remember, remembers};
