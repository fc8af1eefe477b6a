//! Typed values over the Duramen engine: the meaning of the server's commands, without their wire form.
//!
//! A [`Keyspace`] divides one store into numbered databases. Each thread that runs commands takes a [`Worker`] from it
//! and begins a [`Txn`] for every command, or for every MULTI/EXEC. All reads and writes of keys pass through it. The
//! other modules are pure functions on bytes: they know neither keys nor the engine.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let store = duramen::Options::default().open(dir.path().join("store"))?;
//! use duramen_structures::{DATABASES_DEFAULT, Error, Keyspace, Locks};
//!
//! let keyspace = Keyspace::open(store, DATABASES_DEFAULT)?;
//! let mut worker = keyspace.worker()?;
//! let now = 1_700_000_000_000;
//! worker.run::<_, Error>(now, Locks::One(b"visits"), |txn| {
//!     let visits = txn.get_string(0, b"visits")?.map_or(0, |value| value.len());
//!     txn.put(0, b"visits", &vec![b'|'; visits + 1])
//! })?;
//! assert_eq!(keyspace.count(0, now).keys, 1);
//! # Ok::<(), duramen_structures::Error>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `keyspace`, `worker`, `locks`, `txn` | databases, the state of one thread, transactions and the keys that they name |
//! | `turns`, `watch`, `flush` | undurable writes of others, keys under WATCH, operations on all keys of a database |
//! | [`string`] | integers, doubles and long doubles, ranges, longest common subsequence; `large`: written in part |
//! | `map` | hashes, sets and sorted sets: `packed` in one value, `large` with an element for each entry |
//! | `list` | lists: `packed` in one value, `large` with an element for each node |
//! | [`stream`] | streams in one value; `large`: with an element for each node, group and pending entry |
//! | `packed`, `listpack`, `large` | bytes of small collections, roots and elements of large ones, for all types |
//! | [`bits`] | bitmaps: counting, searching, combining, bit fields |
//! | [`geo`] | places on the earth as scores |
//! | [`hyperloglog`] | how many different elements there were, about |
//! | [`glob`] | the patterns of KEYS and SCAN |
//! | [`dump`] | the payload of DUMP and RESTORE |
//!
//! Database `n` is the table of the engine with the name `redis.n`; its keys are the user's. Two more are no databases of Redis:
//! [`Keyspace::items`] and [`Keyspace::state`].
#![forbid(unsafe_code)]

mod ahead;
pub mod bits;
pub mod dump;
mod error;
mod flush;
pub mod geo;
pub mod glob;
pub mod hyperloglog;
mod keyspace;
mod large;
mod list;
mod listpack;
mod locks;
mod map;
mod packed;
mod random;
pub mod stream;
pub mod string;
mod thresholds;
mod turns;
mod txn;
mod watch;
mod worker;

pub use ahead::{AHEAD_MAX, Ahead};
pub use duramen::Room;
pub use error::{Error, Result};
pub use keyspace::{
    DATABASES_DEFAULT, DATABASES_MAX, KEY_BYTES_MAX, KeyCount, Keyspace, SMALL_COLLECTION_BYTES_MAX_DEFAULT,
    table_name,
};
pub use list::End;
pub use locks::{Keys, Locks};
pub use map::{Encoding, Scored, order, rank, score_of};
pub use packed::Malformed;
pub use random::{Random, with_seed};
pub use thresholds::{Compact, Thresholds};
pub use txn::{
    AllNames, CAS_RUN, CAS_STEP, Collection, CountedItem, Detached, Edit, EditList, EditStream, Found, Item,
    ItemHead, List, Part, Reads, Seen, Source, Stored, StoredList, StoredStream, StreamAt, Txn, data_of_item,
    string_of_pieces, text_of_number,
};
pub use watch::Watched;
pub use worker::Worker;

/// Type of a value, kept in the engine's tag byte. Numbers are part of the stored format. Further tags: 0x81, a string
/// kept as an integer because INCR or a similar command wrote it (see `src/txn/number.rs`); 0x82, a string that
/// memcached's commands wrote (`src/txn/head.rs`); 0x83, one that they counted (`src/txn/counter.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// Bytes; also numbers and bitmaps, as in Redis.
    String = 1,
    /// Fields with a value each.
    Hash = 2,
    /// Elements in an order, from either end.
    List = 3,
    /// Members, each once.
    Set = 4,
    /// Members, each once, with a score that orders them.
    SortedSet = 5,
    /// Entries that are only ever put at the end, by ascending ids.
    Stream = 6,
}

impl Type {
    /// The type a tag stands for; `None` for a tag written by something else.
    pub fn of_tag(tag: u8) -> Option<Self> {
        let all = [Self::String, Self::Hash, Self::List, Self::Set, Self::SortedSet, Self::Stream];
        all.into_iter().find(|type_| type_.tag() == tag)
    }

    /// The tag that stands for this type.
    pub fn tag(self) -> u8 {
        self as u8
    }

    /// As TYPE and SCAN's TYPE option spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "zset",
            Self::Stream => "stream",
        }
    }
}

/// The meta field of a string that expires at `expires_at`.
pub fn string_until(expires_at: Option<u64>) -> duramen::Meta {
    duramen::Meta { tag: Type::String.tag(), expires_at, ..duramen::Meta::default() }
}
