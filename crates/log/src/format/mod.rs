//! The bytes on the medium, version 4. `docs/internals/format.md` describes the same for people; they change together.
//!
//! ```text
//! offset 0       superblock 0   (192 bytes used of 4 KiB)
//!        4096    superblock 1   (the same content; one of the two survives any torn write)
//!        8192    commit mark 0  (64 bytes used of 4 KiB)
//!        12288   commit mark 1
//!        16384   blocks: each begins on a multiple of `extent_bytes` and is 1 or more extents long
//! ```
//!
//! Everything is little-endian. Nothing here is `usize`, a pointer, or padding.
//!
//! Invariants:
//!
//! 1. Nothing read from a medium is trusted before its checksum was compared. (No line can check it: damage is an error
//!    and no fault of ours, so it is not asserted. The fuzz targets and the tests of damage check it.)
//! 2. The seeds of a record's checksums are made of the generation of its block and the [secret] of the store, and a
//!    generation is never used twice. So bytes left by an earlier use of the same space do not parse as a record,
//!    except by a guess of 64 bits.
//! 3. Walking block headers from the first extent visits every extent exactly once.
//! 4. Bytes that users choose are never read as format: see [record] and [secret]. (No line can check it: bytes do not
//!    say who chose them. `a_value_forged_without_the_secret_is_no_record_after_a_lost_header` checks it.)

pub mod block;
pub mod checkpoint;
pub mod holes;
pub mod mark;
pub mod record;
pub mod secret;
mod sum;
pub mod superblock;
pub mod transaction;

/// The version written by this build, and the newest that it opens.
pub const FORMAT_VERSION: u32 = 4;

pub use secret::{Secret, Seeds};

/// Bytes before the first block.
pub const HEAD_BYTES: u64 = 16 << 10;

/// Order of the writes of a store: a write takes a version above all earlier ones of its writer and of its key's
/// stripe, and recovery keeps the highest of each key. 52 bits: 28 years of 5 million overwrites a second of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Version(pub u64);

impl Version {
    pub const MAX: u64 = (1 << 52) - 1;

    pub fn next(self) -> Self {
        Self((self.0 + 1).min(Self::MAX))
    }
}

/// The unit of group durability. 44 bits: 34 years of 16 thousand commits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    pub const MAX: u64 = (1 << 44) - 1;
}

/// One use of a block: the incarnation of the store (counts opens, 24 bits) and a counter within it (40 bits: 26 PB of
/// 24 KiB blocks). The incarnation is durable before the first block of that open is written. So a generation is unique
/// even when a power failure undid the header that carried it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The last incarnation that fits.
    pub const INCARNATION_MAX: u32 = (1 << 24) - 1;

    pub fn new(incarnation: u32, counter: u64) -> Self {
        debug_assert!(
            incarnation <= Self::INCARNATION_MAX && counter < 1 << 40,
            "use {counter} of incarnation {incarnation} would repeat another one (invariant 2)"
        );
        Self(u64::from(incarnation) << 40 | counter)
    }

    pub fn incarnation(self) -> u32 {
        (self.0 >> 40) as u32
    }
}

/// The number of a transaction: never used twice, like a [`Generation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct TransactionId(pub u64);

impl TransactionId {
    pub fn new(incarnation: u32, counter: u64) -> Self {
        Self(Generation::new(incarnation, counter).0)
    }
}

/// The owner of a record: the table or collection that it belongs to. Never used twice, so the records of an owner that
/// nothing names are dead permanently.
///
/// | bits | meaning |
/// |---|---|
/// | 0 to 2 | [`OwnerKind`] |
/// | 3 to 39 | a counter within the incarnation |
/// | 40 to 63 | the incarnation of the store, as in [`Generation`] |
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Owner(pub u64);

impl Owner {
    /// The store's own table. Its index is of the kind that the store is opened with, and its records name no owner.
    pub const STORE: Self = Self(0);
    /// The catalog, which names the owners of all other tables. A hash table.
    pub const CATALOG: Self = Self(8);

    pub fn new(incarnation: u32, counter: u64, kind: OwnerKind) -> Self {
        debug_assert!(incarnation > 0 && incarnation <= Generation::INCARNATION_MAX && counter < 1 << 37);
        Self(u64::from(incarnation) << 40 | counter << 3 | kind as u64)
    }

    /// `None`: there is no such kind.
    pub fn kind(self) -> Option<OwnerKind> {
        Some(match self.0 & 7 {
            0 => OwnerKind::Hash,
            1 => OwnerKind::Ordered,
            2 => OwnerKind::Map,
            3 => OwnerKind::ByValue,
            4 => OwnerKind::ByKey,
            _ => return None,
        })
    }

    pub fn is_ordered(self) -> bool {
        self.kind() == Some(OwnerKind::Ordered)
    }

    /// Whether it is a collection, which a root names, and not a table.
    #[inline]
    pub fn is_collection(self) -> bool {
        self.0 & 7 > 1
    }
}

/// The kind of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerKind {
    /// A table with a hash index.
    Hash = 0,
    /// A table with an ordered index.
    Ordered = 1,
    /// A collection without an order of elements.
    Map = 2,
    /// A collection whose elements are ordered by the first 8 bytes of their values.
    ByValue = 3,
    /// A collection whose elements are ordered by the first 8 bytes of their keys.
    ByKey = 4,
}

/// An extent, the unit of space, counted from the beginning of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Extent(pub u32);

/// Reads a little-endian word; the caller ensures that the bytes are there.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Reads a little-endian half word.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}
