//! From a key to the location of its newest record: the indexes of a [Duramen](https://docs.rs/duramen) store. A crate
//! of the engine, without promises of its own; programs use `duramen`.
//!
//! The index holds no keys. A slot is one word, with a fingerprint of the hash and the location of a record; a lookup
//! compares the key in the record. The index lives in DRAM and is rebuilt from the log on open.

// The items of an internal crate are documented where their names do not say it.
#![allow(missing_docs, rustdoc::private_intra_doc_links)]

mod attached;
#[cfg(not(loom))]
pub mod collection;
#[cfg(loom)]
#[path = "collection/none.rs"]
pub mod collection;
pub mod either;
mod fingerprints;
pub mod hash;
#[cfg(any(loom, miri))]
mod heap;
mod memory;
pub mod numbers;
pub mod ordered;
pub mod stale;
pub mod stripes;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod words;

use duramen_log::reachable::Reachable;
use duramen_media::{Offset, prefetch_line};

pub use attached::KeepFilter;

/// Hashes keys. It is seeded with the store's id, so that an attacker cannot choose collisions, and recovery of the
/// same bytes always builds the same index.
pub struct Hasher {
    secrets: rapidhash::v3::RapidSecrets,
    /// All ones, except in tests that need collisions.
    mask: u64,
}

impl Hasher {
    pub fn new(seed: u64, mask: u64) -> Self {
        Self { secrets: rapidhash::v3::RapidSecrets::seed(seed), mask }
    }

    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash::v3::rapidhash_v3_seeded(key, &self.secrets) & self.mask
    }
}

const LOCATION_BITS: u32 = 40;
const FINGERPRINT_BITS: u32 = 16;
const STALE_BITS: u32 = 5;
const FINGERPRINT_SHIFT: u32 = LOCATION_BITS;
const STALE_SHIFT: u32 = FINGERPRINT_SHIFT + FINGERPRINT_BITS;
const PENDING: u64 = 1 << 61;
const TOMBSTONE: u64 = 1 << 62;
/// Belongs to the bucket, not to the slot: see [`hash`].
const BUCKET_BIT: u64 = 1 << 63;
const LOCATION_MASK: u64 = (1 << LOCATION_BITS) - 1;
const FINGERPRINT_MASK: u64 = ((1 << FINGERPRINT_BITS) - 1) << FINGERPRINT_SHIFT;
const STALE_MASK: u64 = ((1 << STALE_BITS) - 1) << STALE_SHIFT;

/// The largest medium that slots can address: 40 bits of 8 bytes each, 8 TiB.
pub const MEDIUM_BYTES_MAX: u64 = 8 << LOCATION_BITS;

/// One index slot.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 39 | location: the record's offset / 8; 0 means empty |
/// | 40 to 55 | fingerprint: hash bits, set by the bucket it lies in |
/// | 56 to 60 | stale: how many other valid records of this key the medium holds; 31: unknown, see [`stale`] |
/// | 61 | pending: not yet durable, or part of a batch that is being published |
/// | 62 | tombstone: the key is absent; the record keeps older ones from coming back |
/// | 63 | the bucket's |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Slot(u64);

impl Slot {
    /// A slot for the record at `at`, which recovery has read, or which is reachable ([`duramen_log::reachable`]). `at`
    /// is 8-byte aligned and below [`MEDIUM_BYTES_MAX`].
    #[inline]
    pub fn new(at: Offset) -> Self {
        debug_assert!(at.0.is_multiple_of(8) && at.0 < MEDIUM_BYTES_MAX);
        Self(at.0 / 8)
    }

    /// A slot for an appended record.
    #[inline]
    pub fn to(record: Reachable) -> Self {
        Self::new(record.at()).with_pending(record.is_pending())
    }

    /// The same slot for a copy of its record.
    #[inline]
    pub fn moved_to(self, copy: Reachable) -> Self {
        self.at(copy.at()).with_pending(copy.is_pending())
    }

    #[inline]
    pub fn location(self) -> Offset {
        Offset((self.0 & LOCATION_MASK) * 8)
    }

    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 & LOCATION_MASK == 0
    }

    #[inline]
    pub fn is_pending(self) -> bool {
        self.0 & PENDING != 0
    }

    #[inline]
    pub fn is_tombstone(self) -> bool {
        self.0 & TOMBSTONE != 0
    }

    /// Whether it points to a value and is not pending.
    #[inline]
    pub fn is_ready_value(self) -> bool {
        self.0 & (PENDING | TOMBSTONE) == 0
    }

    #[inline]
    pub fn with_pending(self, pending: bool) -> Self {
        Self(if pending { self.0 | PENDING } else { self.0 & !PENDING })
    }

    #[inline]
    pub fn with_tombstone(self, tombstone: bool) -> Self {
        Self(if tombstone { self.0 | TOMBSTONE } else { self.0 & !TOMBSTONE })
    }

    /// The slot in a word of a bucket, without the bucket's bits.
    #[inline]
    pub fn of_word(word: u64) -> Self {
        Self(word & !(FINGERPRINT_MASK | BUCKET_BIT))
    }

    /// The same slot for a record elsewhere.
    #[inline]
    pub fn at(self, at: Offset) -> Self {
        Self(self.0 & !LOCATION_MASK | (at.0 / 8))
    }

    /// The part of a superseded slot that a transaction record keeps: all but the fingerprint, in whose place it holds
    /// its writer's transaction slot.
    #[inline]
    pub fn as_previous(self, transaction_slot: u16) -> u64 {
        self.0 & !(FINGERPRINT_MASK | BUCKET_BIT) | u64::from(transaction_slot) << FINGERPRINT_SHIFT
    }

    /// The transaction slot in a result of [`Slot::as_previous`].
    #[inline]
    pub fn transaction_slot_of(previous: u64) -> u16 {
        (previous >> FINGERPRINT_SHIFT) as u16
    }

    /// The slot in a result of [`Slot::as_previous`]; its fingerprint is not that of any key.
    #[inline]
    pub fn of_previous(previous: u64) -> Self {
        Self::of_word(previous)
    }
}

const _: () = assert!(FINGERPRINT_BITS == 16, "a transaction slot has as many bits");

/// The pages of an index checkpoint: where the keys of each begin, and its bytes.
pub type PagesOf<'a> = [(u64, &'a [u8])];

/// The slots that an index got from a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loaded {
    pub slots: u64,
    /// Those without tombstones.
    pub keys: u64,
    /// The pages are not of one moment, so recovery has to correct them. Only for a collection with an order.
    pub changed: bool,
}

impl Loaded {
    #[inline]
    fn count(&mut self, slot: Slot) {
        self.slots += 1;
        self.keys += u64::from(!slot.is_tombstone());
    }

    pub fn plus(self, other: Self) -> Self {
        Self {
            slots: self.slots + other.slots,
            keys: self.keys + other.keys,
            changed: self.changed || other.changed,
        }
    }
}

/// Hints that `what` is read or changed soon.
#[inline]
pub fn prefetch<T>(what: &T) {
    prefetch_line(std::ptr::from_ref(what).cast());
}

/// The log, as the index needs it: the hash of the key of the record at a location; `None` if it is damaged. Then the
/// key is unknown, but its lookups must still find the slot, or the key would silently seem absent.
pub trait Keys {
    fn hash_at(&self, at: Offset) -> Option<u64>;

    /// Hints that the record at `at` is read soon.
    fn prefetch_at(&self, at: Offset);

    /// Whether any record may be damaged.
    fn may_be_damaged(&self) -> bool {
        false
    }
}

/// ... and the key itself, if order matters.
pub trait KeyBytes: Keys {
    fn key_at(&self, at: Offset) -> Option<&[u8]>;

    /// The value of the record at `at`, if it determines the order of elements.
    fn value_at(&self, at: Offset) -> Option<&[u8]>;
}
