//! Duramen: a key-value store whose log of records, in memory that outlives the process, is the
//! database.
//!
//! Records are written once, straight to the medium, each durable by one flush and one drain; there is no
//! write-ahead log beside the data. Everything else (the index, space accounting) is in DRAM and is derived
//! from the log when the store is opened. The design follows Viper (Benson, Makait, Rabl: PVLDB 14(9),
//! 2021), with versions, checksums, epochs, batches and compaction added.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! use duramen::Options;
//!
//! let store = Options::default().open(&path)?;
//! store.put(b"greeting", b"hello")?;
//! drop(store); // or kill -9
//!
//! let store = Options::default().open(&path)?;
//! assert_eq!(&*store.get(b"greeting")?.unwrap(), b"hello");
//! # Ok::<(), duramen::Error>(())
//! ```
//!
//! | want | use |
//! |---|---|
//! | a few writes from any thread | [`Store::put`], [`Store::delete`], [`Store::update`] |
//! | many writes from one thread | [`Store::writer`] → [`Writer`] |
//! | several keys at once, or on a condition | [`Batch`] → [`Writer::apply`], [`Writer::compare_and_swap`] |
//! | one drain for many writes | [`Writer::group`] and [`Writer::flush_group`] |
//! | keys in order, ranges, prefixes | [`IndexKind::Ordered`] → [`Store::range`], [`Store::prefix`] |
//! | plain structs as keys and values | [`TypedStore`] |
//!
//! Three choices decide how quick it is:
//!
//! - **Put as updatable what is updated in part.** [`Store::update`] stores a few bytes in place, in a fraction of the time of a
//!   put, and leaves nothing to compact, but only in a value that was put with [`Meta::UPDATABLE`], aligned, on a medium
//!   where each write is durable by itself. In every other case it reads the value and writes all of it anew; [`Update`]
//!   says which it was. An updatable value has no checksum after its first update, and is read by copy.
//! - **Small values are read quickest by [`Store::get_into`]**, which copies into a vector that the caller keeps, and has
//!   nothing to hold back from being reused. [`Store::get`] copies nothing, which wins from some KiB on. [`Store::get_many`]
//!   overlaps the cache misses of many keys.
//! - **A store has a thread of its own**, which compacts, commits, grows the medium ahead, and after some opens verifies. While
//!   much is overwritten it may keep a core busy. [`Options::compaction_bytes_per_second`] bounds how much it moves;
//!   [`Options::background`] off leaves all of it to calls of [`Store::maintain`], and to writers that find no space.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! use duramen::{Meta, Options, Update};
//!
//! let store = Options::default().open(dir.path().join("store"))?;
//! store.put_with(b"account7", &[0; 16], Meta::UPDATABLE)?; // 8 bytes of key: fields of 8 bytes are aligned
//! match store.update(b"account7", 8, &1u64.to_le_bytes())? {
//!     Update::InPlace => {}    // on persistent memory and in /dev/shm, with `every-write`
//!     Update::NewVersion => {} // elsewhere: the value was read, and written whole
//!     Update::Absent => {}
//! }
//! let mut value = Vec::new();
//! assert!(store.get_into(b"account7", &mut value)?);
//! assert_eq!(value[8..], 1u64.to_le_bytes());
//! # Ok::<(), duramen::Error>(())
//! ```
//!
//! A store belongs to the process that opened it. In a child made by `fork` every read and write gets [`ErrorKind::InUse`], and dropping or
//! closing the store there changes nothing; a [`Value`] that was read before must not be looked at there.

mod background;
mod durability;
mod error;
mod format;
mod index;
mod log;
#[cfg(loom)]
mod models;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
mod options;
mod read;
mod recovery;
#[cfg(feature = "schedule")]
#[doc(hidden)]
pub mod schedule;
mod store;
mod sync;
#[doc(hidden)]
pub mod tuning;
mod write;

pub use background::expirations::{Expired, OnExpired, TableId};
pub use background::queues::{Evicted, OnEvicted};
pub use duramen_media::fault::report_faults;
pub use duramen_media::process::return_large_allocations;
pub use duramen_media::{Create, FlushInstruction, MediumKind, Scratch};
pub use error::{Error, ErrorKind, Result};
pub use format::FORMAT_VERSION;
pub use options::{
    Clock, Durability, EvictBy, Eviction, IndexKind, OnCorruption, OnProgress, Options, Progress, Residence,
};
pub use read::access::uncounted;
pub use read::{CollectionId, Cursor, Meta, Range, Room, Stamp, Value};
pub use recovery::Summary;
pub use store::{
    CloseError, Collection, CollectionOn, CollectionReader, CollectionWriter, DamagedRecord, ElementOrder,
    Remains, Report, STORE_HEAD_BYTES, Stats, Store, StoreOn, Table, TableOn, TableStats, TableWriter,
    Transaction, TransactionKeys, TransactionOn, TypedStore, Writer, WriterOn, begins_store, check, erase,
    salvage,
};
#[doc(hidden)]
pub use store::{check_on, salvage_on};
pub use write::{Batch, Modified, Swap, Update, padding_before_field};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// Parts of an operation by themselves, for the benchmark's breakdown.
#[doc(hidden)]
pub mod measuring {
    /// Enters and leaves an epoch of readers, as every operation does.
    #[inline]
    pub fn pin() {
        drop(crate::sync::reclaim::pin());
    }
}

/// The parsers of what is read from a medium, for fuzzing: any bytes, no panic.
#[doc(hidden)]
pub mod fuzzing {
    use crate::format::transaction::keep_what_counts;
    use crate::format::{Generation, Secret, block, mark::Mark, record, superblock::Superblock};

    /// Parses `bytes` as superblock, commit mark and block header.
    pub fn heads(bytes: &[u8]) {
        let _ = Superblock::decode(bytes);
        let secret = Secret::new(1);
        let _ = Mark::decode(secret, bytes);
        if bytes.len() >= block::HEADER_BYTES as usize {
            let _ = block::Header::decode(secret, crate::format::Extent(1), bytes);
        }
    }

    /// Walks `bytes` as the records of a block.
    pub fn records(bytes: &[u8]) {
        let mut walk = record::Walk::new(bytes, 0, bytes.len() as u64, Secret::new(1).seeds(Generation(1)));
        let mut records = Vec::new();
        while let record::Step::Record { at, header } = walk.step() {
            records.push((at, header));
        }
        keep_what_counts(bytes, 0, block::TransactionOutcomes::default(), false, &mut records);
        let _ = walk.find_after(0, |_| true);
    }
}
