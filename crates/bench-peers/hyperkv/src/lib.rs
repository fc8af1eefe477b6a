//! A concurrent skip list that lies on the medium, in place: nodes, values and log, after HyperKV. Duramen's design (a
//! log of records, with its index in DRAM) is measured against it; it is no part of Duramen.
//!
//! A node takes whole cache lines: *header* (level and key length), *lock*, *state* (present, linked), *value* (where
//! the value lies), `next` on each level, key. A value is a length and its bytes, in separate lines, written once.
//! Writers lock nodes, the greater key first (a lazy skip list); readers lock nothing. Each session has its own log
//! entries on the medium, and its own free blocks by size and chunks of the heap in DRAM.
//!
//! # What becomes durable when
//!
//! With [`LogKind::Redo`] (the action-oriented redo log, ARL) a write has three phases, with a drain at the end of
//! each. All nodes that it changes stay locked until the third phase is over.
//!
//! | | prepare | modify, in place | commit |
//! |---|---|---|---|
//! | insert | value, node, entry (node, predecessors) | `next` of the predecessors | entry inactive |
//! | update | new value, entry (node, new value) | value reference of the node | entry inactive |
//! | delete | entry (node, predecessors) | state of the node, `next` of the predecessors | entry inactive |
//!
//! The word that makes an entry active also holds a checksum of the entry, the new value and the new node. So these
//! three need no order among them, and one drain is enough. (The crash test found why the checksum covers all:
//! otherwise an entry could be durable before the node that it links.) The state after a crash:
//!
//! * before all of prepare's writes are durable: the checksum is wrong, or the entry is not active. Nothing reachable
//!   was changed. The new blocks are not reachable and in no free list; the sweep finds them. The write did not happen.
//! * after that, up to the end of modify: everything that the entry refers to is durable. Recovery does the
//!   modification (again): the write happened, whether it was acknowledged or not.
//! * in commit, or later: the modification is durable. If the entry is still active, the same words are stored again.
//!   No later write can have changed them, since the nodes were locked until the entry was durably inactive.
//!
//! With [`LogKind::Undo`] the entry holds the bytes that the write is going to overwrite: old words of nodes, and the
//! old bytes of the value. The value is overwritten in place if the new one needs as many lines. Prepare makes that
//! copy (and new nodes and values) durable. Modify and commit are as above. Recovery stores the old bytes back: a write
//! happened if its entry was durably inactive. Readers of values compare the node's version before and after. A reader
//! may see a value that a crash then takes back. With `Redo` it may not, since every visible write is redone.
//!
//! Recovery marks an entry inactive only after the stores for it are durable. After a crash of recovery, the next one
//! finds the entry again, and the same stores give the same bytes. A killed process leaves lines in the caches that are
//! older on the medium. So recovery first writes back each entry that it reads, and everything that an active one
//! points to. Otherwise an entry that the dead process committed only in the cache would be redone after a power
//! failure much later.
//!
//! # Invariants
//!
//! 1. A reachable block is durable as a whole (prepare's drain) before a word points to it.
//! 2. Entries that are active at the same time name different words. Each holds the locks of the nodes it changes, and
//!    a new node is locked from its first byte to its commit.
//! 3. Locks are taken in descending order of keys, so there is no cycle of waiters.
//! 4. A block is used again only when nobody can read it any more ([`reclaim`]), and is in at most one free list.
//! 5. A lock word of an earlier open counts as unlocked: it carries the number of its open. (Node lines are written
//!    back with the lock in any state.)
//!
//! # Where this departs from the paper
//!
//! *Linked* is set before a node can be reached, not after. Nobody can take its lock before its links are committed,
//! which is the flag's purpose, and its line need not be flushed twice. Free lists are in DRAM; recovery rebuilds them
//! by a walk of all nodes. [`Options::rebuild`] can leave the walk out. An open then takes the same time whatever the
//! size, and earlier free space is not used until an open that does the walk.

#![deny(unsafe_op_in_unsafe_fn)]

mod cache;
mod heap;
mod layout;
mod list;
mod log;
mod reclaim;
mod recovery;
mod session;
mod store;
#[cfg(test)]
mod tests;
mod word;

pub use duramen_media::{Error, ErrorKind, Result};
pub use layout::{KEY_BYTES_MAX, LogKind};
pub use session::Session;
pub use store::{Options, Store};
