//! The values that readers get, and their metadata.

use crate::cell::read::CellCopy;
use crate::get::stamp::Stamp;
use crate::table::tables::RootRef;
use duramen_log::cell::Cell;
use duramen_log::format::record::{self, HEADER_BYTES, Head, Trailer};
use duramen_log::format::{Owner, u64_at};
use duramen_log::sync::reclaim::{Guard, ValuePin};
use duramen_media::Offset;

/// Position in a scan; 0 begins, and a returned 0 means the end.
pub type Cursor = u64;

/// The metadata of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The caller's tag; stored as is.
    pub tag: u8,
    /// When the value expires, in Unix milliseconds; from then on the key is absent. An element of a
    /// collection stays, and is reported ([`Store::set_on_due`](crate::Store::set_on_due)).
    pub expires_at: Option<u64>,
    /// Whether [`Writer::update`](crate::Writer::update) may change the value in place. Such a value is read by copy,
    /// consistent at any length, and its checksum no longer covers it after the first update. Without this, an update
    /// writes a new version of the whole value, and the stored value never changes.
    pub updatable: bool,
    /// The value is the root of a collection: the collection lives as long as the newest value of some key names it.
    /// When the last such value is overwritten, deleted or expires, all elements disappear with it, by that one small
    /// write.
    pub collection: Option<CollectionId>,
    /// How much of the reserve of a full store the write may use. Not stored with the value.
    pub room: Room,
}

/// What is known of a value without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Its metadata.
    pub meta: Meta,
    /// Length of the value in bytes.
    pub bytes: usize,
    /// Bytes that its record takes on the medium.
    pub footprint: u64,
}

/// How much of the space that a store keeps back (its *reserve*) a write may use. A full store refuses values but
/// accepts deletes, which may use all of the reserve; this marks a value as similar to a delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Room {
    /// None of it: a full store refuses the value.
    #[default]
    Free,
    /// Half of the space kept for deletes. For values that a full store must accept although they free nothing, such as
    /// the same value with another expiry time. This half bounds what they add to the store, so deletes still have the
    /// other one.
    Change,
    /// All of the space kept for deletes. Only for a value that is no longer than the one it replaces: the old version
    /// is dead, and compaction regains at least the space of the new one. Other values would use up the space for
    /// deletes.
    Removal,
}

/// Names a collection for as long as its store lives; see [`Meta::collection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub(crate) Owner);

impl Meta {
    /// Metadata of a value that may be changed in place, with defaults otherwise.
    pub const UPDATABLE: Self =
        Self { tag: 0, expires_at: None, updatable: true, collection: None, room: Room::Free };

    /// Metadata of a value that expires after `lifetime`, by the system's clock, with defaults otherwise.
    #[must_use]
    pub fn expiring(lifetime: std::time::Duration) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let at = now.saturating_add(lifetime).as_millis();
        Self { expires_at: Some(u64::try_from(at).unwrap_or(u64::MAX)), ..Self::default() }
    }
}

/// A value read from the store, usually without a copy. While it lives, its block is not reused, even if everything
/// else in the block is dead. It blocks nothing else, in its own store or another. It may be sent to another thread.
pub struct Value<'a> {
    /// Protects the bytes of `record`.
    _pin: ValuePin,
    record: Record<'a>,
    /// The copy of a cell, whose value may change in place.
    copy: Option<CellCopy>,
}

impl<'a> Value<'a> {
    /// The value of a record that `guard` protects.
    #[inline]
    pub(crate) fn new(guard: &Guard, record: Record<'a>, copy: Option<CellCopy>) -> Self {
        Self { _pin: guard.pin_value(record.bytes.as_ptr()), record, copy }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.record.key()
    }

    /// The value.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.copy {
            None => self.record.value(),
            Some(copy) => copy,
        }
    }

    /// The tag it was put with.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.record.head.tag()
    }

    /// When it expires, in Unix milliseconds.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.record.expires_at()
    }

    /// All of its metadata.
    #[must_use]
    #[inline]
    pub fn meta(&self) -> Meta {
        self.record.meta()
    }

    /// The key's state, for conditional writes.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.record.stamp(self.copy.as_deref())
    }

    /// Bytes that the record takes on the medium.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.record.head.record_bytes()
    }
}

impl std::ops::Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value")
            .field("key", &self.key())
            .field("bytes", &self.bytes().len())
            .finish_non_exhaustive()
    }
}

/// A record that an index slot pointed to.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub at: Offset,
    pub head: Head,
    pub(crate) bytes: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        let from = self.head.key_at() as usize;
        &self.bytes[from..from + self.head.key_bytes() as usize]
    }

    /// The value of a record that is not a cell: nobody stores to it.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let from = self.head.value_at() as usize;
        let value = &self.bytes[from..from + self.head.value_bytes() as usize];
        // The collection id is left out: `meta` returns it.
        if self.head.is_root() { &value[8..] } else { value }
    }

    /// The owner of the elements, if it is the root of a collection.
    #[inline]
    pub(crate) fn names(&self) -> Option<Owner> {
        self.head.is_root().then(|| record::owner_of_root(&self.bytes[self.head.value_at() as usize..]))
    }

    /// The owner and the place of the root, if it is one.
    #[inline]
    pub(crate) fn root_ref(&self) -> Option<RootRef> {
        Some(RootRef { owner: self.names()?, place: self.at })
    }

    /// The trailer of a record that belongs to a transaction: its transaction, and the previous content of its slot.
    #[inline]
    pub(crate) fn trailer(&self) -> Trailer {
        debug_assert!(self.head.is_transactional(), "only a transaction record has a trailer");
        Trailer::of(self.bytes, self.head.record_bytes())
    }

    /// The owner of the record.
    #[inline]
    pub(crate) fn owner(&self) -> Owner {
        self.head.owner(self.bytes)
    }

    /// The record as a cell, if it is one now.
    #[inline]
    pub(crate) fn cell(&self) -> Option<Cell> {
        Cell::of(self.at, self.head)
    }

    #[inline]
    pub(crate) fn expires_at(&self) -> Option<u64> {
        self.head.expires().then(|| u64_at(self.bytes, HEADER_BYTES as usize))
    }

    /// When the value stops counting by itself, as [`Header::ends_at`](duramen_log::format::Header::ends_at).
    #[inline]
    pub(crate) fn ends_at(&self) -> Option<u64> {
        self.expires_at().filter(|_| !self.owner().is_collection())
    }

    #[inline(always)]
    pub(crate) fn meta(&self) -> Meta {
        Meta {
            tag: self.head.tag(),
            expires_at: self.expires_at(),
            updatable: self.head.is_updatable(),
            collection: self.names().map(CollectionId),
            room: Room::Free,
        }
    }

    #[inline(always)]
    pub(crate) fn info(&self) -> ValueInfo {
        let bytes = self.cell().map_or_else(|| self.value().len(), Cell::bytes);
        ValueInfo { meta: self.meta(), bytes, footprint: self.head.record_bytes() }
    }

    /// The stamp for conditional writes: the version or, where the value changes in place, a hash of its content.
    pub(crate) fn stamp(&self, cell: Option<&[u8]>) -> Stamp {
        let Some(cell) = cell else { return Stamp(self.head.version().0) };
        // Not the version: compaction gives a moved cell the next one. The highest bit keeps it apart from every
        // version.
        let meta = u64::from(self.head.tag()) ^ self.expires_at().unwrap_or(0) << 8;
        Stamp((rapidhash::v3::rapidhash_v3(cell) ^ meta) | 1 << 63)
    }
}

/// Compares keys; those of usual size without a call.
#[inline]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    let n = a.len();
    let at = |at: usize| u64_at(a, at) ^ u64_at(b, at);
    match n {
        8..=16 if n == b.len() => at(0) | at(n - 8) == 0,
        17..=32 if n == b.len() => at(0) | at(8) | at(n - 16) | at(n - 8) == 0,
        _ => a == b,
    }
}
