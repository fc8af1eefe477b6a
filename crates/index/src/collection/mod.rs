//! The indexes of a collection: from its elements to the locations of their records.
//!
//! A collection is a key whose value is many records, its elements: a Redis hash, set, sorted set, list or stream. Only
//! its own index holds them. As with the index of a table, a slot is one word that points to a record, and a lookup
//! compares the key there.
//!
//! | index | is | DRAM an element, at most | for |
//! |---|---|---|---|
//! | `Map` | extendible hashing by the hash of the subkey | 14 bytes | all elements |
//! | `Tree` | a counted B+ tree by an order key of 8 bytes | 20 bytes | also, if elements have an order |
//!
//! A caller of an index holds the lock of the collection's key, even to read: nothing here is concurrent. All data lies
//! in pages that are addressed by number (`Pages`) and contain no pointers, so a checkpoint may copy them. Threads
//! with different collections share only the arena that pages come from.

pub mod checkpoint;
mod indexes;
#[cfg_attr(not(test), expect(dead_code, reason = "accounts of their DRAM come next"))]
mod map;
mod merge;
#[cfg_attr(not(test), expect(dead_code, reason = "as above"))]
mod pages;
mod shared;
#[cfg(test)]
mod tests;
#[cfg_attr(not(test), expect(dead_code, reason = "as above"))]
mod tree;

pub use indexes::{Change, Order};
pub use map::skew as position_of;
pub use merge::Counted;
pub use pages::Arena;
pub use shared::{CollectionIndex, Locked, Place};
