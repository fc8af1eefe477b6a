//! A concurrent skip list that lies on the medium, in place: nodes, values and log, after HyperKV. It is what
//! Duramen's way (a log of records, its index in DRAM) is measured against, and no part of Duramen.
//!
//! A node takes whole cache lines: *header* (level and key length), *lock*, *state* (present, linked), *value* (where
//! the value lies), `next` on each level, key. A value is a length and its bytes, in lines of its own, written once.
//! Writers lock nodes, the greater key first (a lazy skip list); readers lock nothing. Each session has entries of a
//! log on the medium, and free blocks by size and chunks of the heap of its own in DRAM.
//!
//! # What becomes durable when
//!
//! With [`LogKind::Redo`] (the action-oriented redo log, ARL) a write has three phases, with a drain at the end of
//! each. All nodes that it changes stay locked until the third is over.
//!
//! | | prepare | modify, in place | commit |
//! |---|---|---|---|
//! | insert | value, node, entry (node, predecessors) | `next` of the predecessors | entry inactive |
//! | update | new value, entry (node, new value) | value reference of the node | entry inactive |
//! | delete | entry (node, predecessors) | state of the node, `next` of the predecessors | entry inactive |
//!
//! The word that makes an entry active also holds the checksum: of the entry, and of the new value and the new node that
//! it leads to. So the three need no order among them, and one drain does. (With a checksum of the entry alone, an entry
//! could be durable before the node that it links; the crash test found that.) What a crash leaves:
//!
//! * before all that prepare writes is durable: the checksum is wrong, or the entry is not active. Nothing that is reachable
//!   was changed; the new blocks are in no free list and not reachable, and are found by the sweep. The write did not happen.
//! * after it, up to the end of modify: all that the entry refers to is durable. Recovery does the modification
//!   (again): the write happened, whether it was acknowledged or not.
//! * in commit, or after: the modification is durable. Where the entry is still active the same words are stored again.
//!   No later write can have changed them, since the nodes were locked until the entry was durably inactive.
//!
//! With [`LogKind::Undo`] the entry holds what lies where the write is going to store: old words of nodes, and the old
//! bytes of the value, which is overwritten where it is if it needs as many lines. Prepare makes that copy (and new nodes and
//! values) durable, modify and commit are as above, and recovery stores the old bytes back: a write happened if its
//! entry was durably inactive. Readers of values compare the node's version before and after. A reader may be shown a
//! value that a crash then takes back; with `Redo` it may not, since what it can see is redone.
//!
//! Recovery marks an entry inactive only after what it stored for it is durable; a crash of recovery
//! finds the entry again, and the same stores give the same bytes. A process that was killed leaves lines in the caches that are
//! older on the medium. So recovery writes back what it sees of each entry, and what an active one leads to, before it goes on:
//! else an entry that the dead process committed in the cache alone would be done again after a power failure much later.
//!
//! # Invariants
//!
//! 1. A block that can be reached is durable as a whole (prepare's drain) before a word leads to it.
//! 2. Entries that are active at the same time name different words: each holds the locks of the nodes it changes, and a
//!    new node is locked from its first byte to its commit.
//! 3. Locks are taken in descending order of keys, so nobody waits in a circle.
//! 4. A block is used again only when nobody can read it any more ([`reclaim`]), and is in one free list at most.
//! 5. A lock word of an earlier open is an unlocked one: it carries the number of its open. (Node lines are written back
//!    with whatever the lock is.)
//!
//! # Where this departs from the paper
//!
//! *Linked* is set before a node can be reached, not after: nobody can have its lock before its links are committed, which
//! is what the flag is for, and its line need not be flushed twice. Free lists are in DRAM and recovery builds them anew by a
//! walk of all nodes, which [`Options::rebuild`] can leave out: an open then takes the same time whatever the size,
//! and free space of before is not used until one that does it.

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
