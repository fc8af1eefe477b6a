//! Duramen: a persistent key-value store. Its log of records, in memory that outlives the process, is the database.
//!
//! Records are written once, directly to the medium, and each becomes durable by one flush and one drain; there is no
//! separate write-ahead log. Everything else (the index, space accounting) is in DRAM and is rebuilt from the log when
//! the store is opened. The design follows Viper (Benson, Makait, Rabl: PVLDB 14(9), 2021), with versions, checksums,
//! epochs, batches and compaction added.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("store");
//! use duramen::Store;
//!
//! let store = Store::open(&path)?;
//! store.put("greeting", "hello")?;
//! drop(store); // or kill -9
//!
//! let store = Store::open(&path)?;
//! assert_eq!(&*store.get("greeting")?.unwrap(), b"hello");
//! # Ok::<(), duramen::Error>(())
//! ```
//!
//! [`Store::open`], or [`Options::open`] with other options, returns a [`Store`]: the handle to an open store, on a
//! file, in `/dev/shm`, or on a DAX device. `Store` is [`StoreOn`] on the media of this machine, so its methods are
//! listed there. [`Writer`], [`Table`], [`Collection`] and [`Transaction`] are related to [`WriterOn`], [`TableOn`],
//! [`CollectionOn`] and [`TransactionOn`] in the same way. [`Durability`] states when a write survives a power failure.
//!
//! A store, a table, a collection and a writer have the same reads and writes: those of [`Reads`] and [`Writes`], which
//! `reads()`, [`Writer::read`] and [`Writer::write`] return for any of them.
//!
//! | want | use |
//! |---|---|
//! | a few writes from any thread | [`Store::put`], [`Store::delete`], [`Store::update`] |
//! | many writes from one thread | [`Store::writer`] → [`Writer`] |
//! | transactions: read and write any keys, all or nothing | [`Writer::transaction`] → [`Transaction`] |
//! | several known writes at once, or on a condition | [`Batch`] → [`Writer::apply`], [`Writer::compare_and_swap`] |
//! | exclusive access to some keys | [`Writer::locked`] |
//! | one drain for many writes | [`Writer::group`] and [`Writer::flush_group`] |
//! | tables: separate sets of keys with names | [`Store::table`] → [`Table`] |
//! | collections: many elements under one key, such as a set or a list | [`Store::new_collection`] → [`Collection`] |
//! | all entries | [`Store::iter`] |
//! | keys in order, ranges, prefixes | [`IndexKind::Ordered`] → [`Store::range`], [`Store::prefix`] |
//! | expiry of values, and notifications of it | [`Meta::expiring`], [`Store::set_on_expired`], [`Store::set_on_due`] |
//! | eviction: a cache of limited size | [`Options::limit`], [`Options::eviction`], [`Table::set_evictable`] |
//! | plain structs as keys and values | [`TypedStore`] |
//! | a check for damage, and a copy of the valid records | [`check`], [`salvage`] |
//!
//! # Threads
//!
//! All threads of a process may use one store at the same time. A [`Store`] is cheap to clone, and a reference to it
//! may be shared. Reads take no lock, and writers contend only on the locks of keys. A [`Writer`] stays in the thread
//! that made it; a [`Value`] may be sent to another thread.
//!
//! A store has a background thread, which compacts, commits, grows the medium ahead, and verifies after some opens.
//! While much is overwritten it may keep a core busy. [`Options::compaction_bytes_per_second`] bounds how much it
//! moves. With [`Options::background`] off, its work is done by calls of [`Store::maintain`], and by writers without
//! space.
//!
//! A store belongs to the process that opened it. In a child made by `fork` every read and write fails with
//! [`ErrorKind::InUse`], and dropping or closing the store there has no effect. A [`Value`] that was read before the
//! `fork` must not be used there.
//!
//! # Async programs
//!
//! There is no async interface: calls block their thread. A read of data in memory waits for nothing. A read from a
//! file may wait for the device, and so does a write that must be durable on a file when it returns. In an async
//! program:
//!
//! * call reads directly where the store fits in memory;
//! * make other calls where blocking is allowed, such as in tokio's `spawn_blocking`;
//! * or give all writes to one thread with a [`Writer`], over a channel. It writes the waiting ones in one
//!   [group](Writer::group), and answers them after [`Writer::flush_group`].
//!
//! A [`Writer`] cannot move to another thread, so it must not be kept across an `.await` of a task that can.
//!
//! # Backup
//!
//! There is no online backup yet, and a copy of the file of an open store is not consistent. Close the store
//! ([`Store::close`]), and then either copy its file, which opens like the original, or write it to a text file with
//! the command `duramen dump`, which `duramen load` reads into a new store.
//!
//! # Speed
//!
//! - **Put values as updatable if you update parts of them.** [`Store::update`] stores a few bytes in place, in a
//!   fraction of the time of a put, and leaves nothing to compact. That works only in a value that was put with
//!   [`Meta::UPDATABLE`], aligned, on a medium where each write is durable alone. In every other case it reads the
//!   value and writes a new version of all of it; [`Update`] states which it was. An updatable value has no checksum
//!   after its first update, and is read by copy.
//! - **[`Store::get_into`] is the fastest read of small values.** It copies into a vector that the caller keeps, and
//!   pins nothing. [`Store::get`] copies nothing, and is faster from some KiB on. [`Store::get_many`] overlaps the
//!   cache misses of many keys.
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

#![forbid(unsafe_code)]

mod api;
mod cell;
mod checkpoint;
mod compact;
mod damage;
mod evict;
mod expire;
mod get;
mod locks;
mod maintenance;
mod options;
mod put;
mod records;
mod recover;
mod scan;
#[cfg(feature = "schedule")]
#[doc(hidden)]
pub mod schedule;
mod table;
mod transaction;
#[doc(hidden)]
pub mod tuning;
mod writer;

pub use api::{
    BlockCounts, CloseError, Collection, CollectionOn, DamagedRecord, ElementOrder, Iter, Keys, Reads,
    Remains, Report, STORE_HEAD_BYTES, Stats, Store, StoreOn, Table, TableOn, TableStats, Transaction,
    TransactionKeys, TransactionOn, TypedStore, Writer, WriterOn, Writes, begins_store, check, erase,
    salvage,
};
#[doc(hidden)]
pub use api::{check_on, salvage_on};
pub use cell::update::{Modified, Update, padding_before_field};
#[doc(inline)]
pub use duramen_log::durability::{Clock, Durability};
pub use duramen_log::format::FORMAT_VERSION;
#[doc(inline)]
pub use duramen_log::{Error, ErrorKind, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
pub use duramen_media::fault::report_faults;
pub use duramen_media::process::{look_hosts_up_without_modules, return_large_allocations};
pub use duramen_media::{Create, FlushInstruction, MediumKind, Scratch};
pub use evict::access::uncounted;
pub use evict::queues::{Evicted, OnEvicted};
pub use expire::listeners::{Due, Expired, OnDue, OnExpired, TableId};
pub use get::stamp::Stamp;
pub use get::value::{CollectionId, Cursor, Meta, Room, Value, ValueInfo};
pub use options::{EvictBy, Eviction, IndexKind, OnCorruption, OnProgress, Options, Progress, Residence};
pub use recover::Summary;
pub use scan::range::Range;
pub use transaction::batch::Batch;
pub use writer::Swap;

/// Separate parts of an operation, for the benchmark's breakdown.
#[doc(hidden)]
pub mod measuring {
    /// Enters and leaves an epoch of readers, as every operation does.
    #[inline]
    pub fn pin() {
        drop(duramen_log::sync::reclaim::pin());
    }
}

/// The parsers of bytes from a medium, for fuzzing: no bytes may cause a panic.
#[doc(hidden)]
pub mod fuzzing {
    use duramen_log::format::transaction::keep_what_counts;
    use duramen_log::format::{Generation, Secret, block, mark::Mark, record, superblock::Superblock};

    /// Parses `bytes` as superblock, commit mark and block header.
    pub fn heads(bytes: &[u8]) {
        let _ = Superblock::decode(bytes);
        let secret = Secret::new(1);
        let _ = Mark::decode(secret, bytes);
        if bytes.len() >= block::HEADER_BYTES as usize {
            let _ = block::Header::decode(secret, duramen_log::format::Extent(1), bytes);
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
