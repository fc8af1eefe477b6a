//! A record: one write of one key, immutable once appended, and valid on its own.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | check of the header, see below |
//! | 4 | 1 | bits 0 to 3 kind, bits 4 to 7 flags |
//! | 5 | 1 | tag: belongs to the caller, stored as is |
//! | 6 | 2 | key bytes, low 16 bits |
//! | 8 | 8 | bits 0 to 29 value bytes, bit 30 key bytes' bit 16, bit 31 zero, bits 32 to 63 epoch's low 32 bits |
//! | 16 | 8 | bits 0 to 51 version, bits 52 to 63 epoch's high 12 bits |
//! | 24 | 8 | expiry, Unix milliseconds: only with flag 1 |
//! | | 8 | owner ([`Owner`]): only with flag 8, after the expiry if there is one |
//! | 24, 32 or 40 | | key, then value |
//! | | 4 | checksum of the record, see below |
//! | | 4 | only of kinds 3 and 4: the checksum of the record as kind 4 |
//! | | | zeros up to a multiple of 8 |
//! | | 16 | [`Trailer`]: the record's transaction, and the previous content of the key's slot: only with flag 2 |
//!
//! Kinds: 1 value; 2 tombstone; 3 cell being appended; 4 cell; 5 commit record of a transaction
//! ([`super::transaction`]); 6 root of a collection, whose value begins with the owner of the elements (8 bytes); 7
//! void: no record, but as many bytes as one with this header. A cell is appended as kind 3, whole and durable. One
//! store of its first 8 bytes then makes it kind 4, before the index points to it. Flags: 1 expires; 2 belongs to a
//! transaction; 4 everything before this record in its block was durable when it was written (so a broken record before
//! it is damage and not a torn write); 8 belongs to the table of the named owner, without it to the store's own.
//!
//! # Bytes of users are never format
//!
//! The seeds of both checksums are numbers that no client can know ([`Seeds`]).
//!
//! 1. The *check of the header* covers bytes 4 to the key (of a void: bytes 4 to 11, which give its length), and
//!    depends on the place in the block. So bytes copied from elsewhere, or from this very block, form no header.
//! 2. The *checksum of the record* covers, in this order: key, value, check of the header, trailer. The body comes
//!    first so that it can be summed before the version is known. For kind 4 the value is left out: it changes in
//!    place.
//! 3. A header is stored before any byte of its body. A long body is written before the key is locked, into a void. One
//!    store of 8 bytes then makes the void a record; if nothing is written after all, the void stays.
//! 4. So a reader of a whole header knows where the next one begins, and never searches within the body, whole or torn
//!    ([`Walk`]).
//!
//! The fields of a transaction follow the value, so that a lookup need not check for them to find the key.

use super::secret::Seeds;
use super::{Epoch, Owner, TransactionId, Version, sum, u32_at, u64_at};
use duramen_media::Offset;

pub const HEADER_BYTES: u64 = 24;
const EXPIRY_BYTES: u64 = 8;
const OWNER_BYTES: u64 = 8;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 512 << 20;

/// The largest header.
pub const HEAD_BYTES_MAX: usize = 40;
pub const TRAILER_BYTES: u64 = 16;
/// Bytes of the value of a commit record: the number of its transaction records, and their sum.
pub const END_VALUE_BYTES: usize = 16;
/// Bytes of a commit record.
pub const END_BYTES: u64 = record_bytes(HEADER_BYTES, 0, END_VALUE_BYTES, Kind::End) + TRAILER_BYTES;
/// Bytes of a checksum of a record.
const SUM_BYTES: u64 = 4;
/// The most bytes between a value and the trailer: two checksums, and zeros.
const RECORD_TAIL_BYTES_MAX: usize = 16;
/// The check of a void covers bytes 4 up to here: its flags and lengths.
const VOID_COVERED: usize = 12;

const FLAG_EXPIRES: u8 = 1;
const FLAG_TRANSACTIONAL: u8 = 2;
const FLAG_DRAINED: u8 = 4;
const FLAG_OWNED: u8 = 8;

/// Bytes before the key.
#[inline(always)]
pub const fn head_bytes(expires: bool, owned: bool) -> u64 {
    HEADER_BYTES + EXPIRY_BYTES * expires as u64 + OWNER_BYTES * owned as u64
}

/// Where a key may begin in a record that names an owner, or does not.
pub const fn key_places(owned: bool) -> [u64; 2] {
    [head_bytes(false, owned), head_bytes(true, owned)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Value = 1,
    Tombstone = 2,
    CellSealed = 3,
    CellOpen = 4,
    End = 5,
    Root = 6,
    Void = 7,
}

impl Kind {
    /// Whether it was put to be updated in place. (A sealed cell was not yet opened when a crash occurred.)
    pub fn is_updatable(self) -> bool {
        matches!(self, Self::CellSealed | Self::CellOpen)
    }

    /// Bytes of checksums after the value.
    #[inline(always)]
    const fn sums_bytes(self) -> u64 {
        match self {
            Self::CellSealed | Self::CellOpen => 2 * SUM_BYTES,
            _ => SUM_BYTES,
        }
    }
}

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    pub at: Offset,
    pub bytes: u64,
    /// The check of its header.
    pub crc: u32,
}

/// A record's header, decoded. Sizes are within the limits, but only [`Header::is_at`] verifies that the bytes are a
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub crc: u32,
    pub kind: Kind,
    pub tag: u8,
    pub transactional: bool,
    pub drained: bool,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub epoch: Epoch,
    pub version: Version,
    pub expires_at: Option<u64>,
    pub owner: Owner,
}

/// The fixed part of the header of a record that is known to be whole. Fields are decoded only on demand: a lookup
/// needs few of them, and most of its cost besides cache misses is instructions.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    first: u64,
    sizes: u64,
    order: u64,
}

impl Head {
    /// Reads the header at the beginning of `bytes`.
    #[inline]
    pub fn new(bytes: &[u8]) -> Self {
        Self { first: u64_at(bytes, 0), sizes: u64_at(bytes, 8), order: u64_at(bytes, 16) }
    }

    #[inline]
    fn kind_bits(self) -> u8 {
        (self.first >> 32) as u8 & 15
    }

    #[inline]
    fn flags(self) -> u8 {
        (self.first >> 36) as u8 & 15
    }

    /// # Panics
    /// If there is no such kind: then the index is wrong, which is a defect.
    #[inline]
    fn kind(self) -> Kind {
        match self.kind_bits() {
            1 => Kind::Value,
            2 => Kind::Tombstone,
            3 => Kind::CellSealed,
            4 => Kind::CellOpen,
            5 => Kind::End,
            6 => Kind::Root,
            7 => Kind::Void,
            other => unreachable!("the index points to a record of kind {other}"),
        }
    }

    /// Whether it is a value, of a transaction or not, that neither expires nor changes.
    #[inline]
    pub fn is_plain_value(self) -> bool {
        self.kind_bits() == Kind::Value as u8 && !self.expires()
    }

    /// Whether it is the commit record of a transaction.
    #[inline]
    pub fn is_commit(self) -> bool {
        self.kind_bits() == Kind::End as u8
    }

    /// Whether it is the root of a collection.
    #[inline]
    pub fn is_root(self) -> bool {
        self.kind_bits() == Kind::Root as u8
    }

    /// Whether the value may change in place, now, and does not expire.
    #[inline]
    pub fn is_lasting_cell(self) -> bool {
        self.is_cell() && !self.expires()
    }

    /// Whether the value may change in place, now.
    #[inline]
    pub fn is_cell(self) -> bool {
        self.kind_bits() == Kind::CellOpen as u8
    }

    /// As [`Kind::is_updatable`].
    #[inline]
    pub fn is_updatable(self) -> bool {
        self.kind().is_updatable()
    }

    #[inline]
    pub fn is_transactional(self) -> bool {
        self.flags() & FLAG_TRANSACTIONAL != 0
    }

    #[inline]
    pub fn expires(self) -> bool {
        self.flags() & FLAG_EXPIRES != 0
    }

    /// Whether it belongs to another table than the store's own.
    #[inline]
    pub fn is_owned(self) -> bool {
        self.flags() & FLAG_OWNED != 0
    }

    #[inline]
    pub fn tag(self) -> u8 {
        (self.first >> 40) as u8
    }

    #[inline]
    pub fn key_bytes(self) -> u64 {
        self.first >> 48 | (self.sizes >> 30 & 1) << 16
    }

    #[inline]
    pub fn value_bytes(self) -> u64 {
        self.sizes & ((1 << 30) - 1)
    }

    #[inline]
    pub fn epoch(self) -> Epoch {
        Epoch(self.sizes >> 32 | self.order >> 52 << 32)
    }

    #[inline]
    pub fn version(self) -> Version {
        Version(self.order & Version::MAX)
    }

    /// Bytes before the key.
    #[inline]
    pub fn key_at(self) -> u64 {
        head_bytes(self.expires(), self.is_owned())
    }

    /// The owner of the record with this head; the record begins with `bytes`.
    #[inline]
    pub fn owner(self, bytes: &[u8]) -> Owner {
        if self.is_owned() {
            Owner(u64_at(bytes, (self.key_at() - OWNER_BYTES) as usize))
        } else {
            Owner::STORE
        }
    }

    /// Where the value begins in the record.
    #[inline]
    pub fn value_at(self) -> u64 {
        self.key_at() + self.key_bytes()
    }

    /// Bytes of the whole record, padding and trailer included.
    #[inline]
    pub fn record_bytes(self) -> u64 {
        // Kinds 3 and 4 have two checksums, and no other kind has these bits.
        let sums = SUM_BYTES << u64::from(matches!(self.kind_bits(), 3 | 4));
        ((self.value_at() + self.value_bytes() + sums + 7) & !7)
            + TRAILER_BYTES * u64::from(self.is_transactional())
    }
}

/// The last bytes of a record that belongs to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub transaction: TransactionId,
    /// The slot that the record's slot replaced, with the number of its writer's transaction slot in place of the
    /// fingerprint. If there was none: that number alone. (`index::Slot::as_previous`)
    pub previous: u64,
}

impl Trailer {
    /// The trailer of the record at the beginning of `bytes`, which has `record_bytes`.
    #[inline]
    pub fn of(bytes: &[u8], record_bytes: u64) -> Self {
        let at = (record_bytes - TRAILER_BYTES) as usize;
        Self { transaction: TransactionId(u64_at(bytes, at)), previous: u64_at(bytes, at + 8) }
    }

    #[inline]
    pub fn bytes(self) -> [u8; TRAILER_BYTES as usize] {
        let mut bytes = [0; TRAILER_BYTES as usize];
        bytes[..8].copy_from_slice(&self.transaction.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.previous.to_le_bytes());
        bytes
    }
}

impl Header {
    /// When the record stops counting by itself. An element's expiry does not end it, but makes it due: its writer
    /// deletes it.
    #[inline]
    pub fn ends_at(&self) -> Option<u64> {
        self.expires_at.filter(|_| !self.owner.is_collection())
    }

    /// Bytes before the key.
    #[inline]
    pub fn head_bytes(&self) -> u64 {
        head_bytes(self.expires_at.is_some(), self.owner != Owner::STORE)
    }

    /// Bytes of the whole record, padding and trailer included.
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        let end = self.value_at() + u64::from(self.value_bytes) + self.kind.sums_bytes();
        ((end + 7) & !7) + TRAILER_BYTES * u64::from(self.transactional)
    }

    /// Where the value begins in the record.
    #[inline]
    pub fn value_at(&self) -> u64 {
        self.head_bytes() + u64::from(self.key_bytes)
    }

    /// The header as bytes, at a place with this seed ([`Seeds::head`]).
    #[inline(always)]
    pub fn encode(&self, seed: u32) -> Encoded {
        let owner = (self.owner != Owner::STORE).then_some(self.owner.0);
        let flags = if self.expires_at.is_some() { FLAG_EXPIRES } else { 0 }
            | if self.transactional { FLAG_TRANSACTIONAL } else { 0 }
            | if self.drained { FLAG_DRAINED } else { 0 }
            | if owner.is_some() { FLAG_OWNED } else { 0 };
        let first = u32::from(self.kind as u8 | flags << 4)
            | u32::from(self.tag) << 8
            | u32::from(self.key_bytes as u16) << 16;
        let sizes = u64::from(self.value_bytes) | u64::from(self.key_bytes >> 16) << 30;
        let words = [sizes | self.epoch.0 << 32, self.version.0 | (self.epoch.0 >> 32) << 52];
        let crc = match self.kind {
            Kind::Void => sum::append_word(seed, u64::from(first) | sizes << 32),
            _ => sum::append_words(seed, first, words, [self.expires_at, owner]),
        };
        let mut bytes = [0; HEAD_BYTES_MAX];
        let word = u64::from(crc) | u64::from(first) << 32;
        let fourth = self.expires_at.or(owner).unwrap_or(0);
        let words = [word, words[0], words[1], fourth, owner.unwrap_or(0)];
        for (word, at) in words.into_iter().zip((0..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        Encoded { bytes, len: self.head_bytes() as usize, crc }
    }

    /// The bytes between the value and the trailer: the checksums, for a body with the checksum `body` ([`body_crc`]),
    /// and zeros. Only for a cell, `open` is its header's check as an open cell, and the checksum of the key alone.
    #[inline(always)]
    pub fn rest(
        &self,
        crc: u32,
        body: u32,
        open: Option<(u32, u32)>,
        trailer: Option<Trailer>,
    ) -> RecordTail {
        let sum = sum::append_check(body, crc);
        let sum = trailer.map_or(sum, |trailer| sum::append(sum, &trailer.bytes()));
        let mut bytes = [0; RECORD_TAIL_BYTES_MAX];
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        if let Some((crc, key)) = open {
            bytes[4..8].copy_from_slice(&sum::append_check(key, crc).to_le_bytes());
        }
        let from = self.value_at() + u64::from(self.value_bytes);
        RecordTail { bytes, len: (self.record_bytes() - self.trailer_bytes() - from) as usize }
    }

    /// Reads the header at the beginning of `bytes`; `None` when no record of this format can begin so or it would not
    /// fit in `bytes`.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_within(bytes, bytes.len() as u64)
    }

    /// Like `decode`, for a record whose first bytes are `bytes` and which must fit in `room`. `bytes` has at least the
    /// size of a header, unless `room` is smaller.
    #[inline]
    pub fn decode_within(bytes: &[u8], room: u64) -> Option<Self> {
        if bytes.len() < HEADER_BYTES as usize {
            return None;
        }
        let sizes = u64_at(bytes, 8) as u32;
        let (kind, flags) = (bytes[4] & 15, bytes[4] >> 4);
        let known = (1..=7).contains(&kind) && sizes >> 31 == 0;
        let head_bytes = head_bytes(flags & FLAG_EXPIRES != 0, flags & FLAG_OWNED != 0);
        if !known || (bytes.len() as u64) < head_bytes {
            return None;
        }
        let header = Self::decode_head(bytes);
        // A record names an owner only if that is not the store, and of a known kind.
        if flags & FLAG_OWNED != 0 && (header.owner == Owner::STORE || header.owner.kind().is_none())
            || header.kind == Kind::Root && u64::from(header.value_bytes) < OWNER_BYTES
            || header.transactional && header.kind.is_updatable()
            || header.kind == Kind::End && !header.is_commit()
        {
            return None;
        }
        if header.key_bytes as usize > KEY_BYTES_MAX || header.value_bytes as usize > VALUE_BYTES_MAX {
            return None;
        }
        (header.record_bytes() <= room).then_some(header)
    }

    /// Reads the header of a record that is known to be whole, since the index points to it.
    ///
    /// # Panics
    /// If it has no known kind: then the index is wrong, which is a defect.
    #[inline]
    pub fn decode_head(head: &[u8]) -> Self {
        let fixed = Head::new(head);
        Self {
            crc: fixed.first as u32,
            kind: fixed.kind(),
            tag: fixed.tag(),
            transactional: fixed.is_transactional(),
            drained: fixed.flags() & FLAG_DRAINED != 0,
            key_bytes: fixed.key_bytes() as u32,
            value_bytes: fixed.value_bytes() as u32,
            epoch: fixed.epoch(),
            version: fixed.version(),
            expires_at: fixed.expires().then(|| u64_at(head, 24)),
            owner: fixed.owner(head),
        }
    }

    /// Whether a commit record has exactly the fields of one.
    fn is_commit(&self) -> bool {
        self.transactional
            && self.expires_at.is_none()
            && self.owner == Owner::STORE
            && (self.key_bytes, self.value_bytes) == (0, END_VALUE_BYTES as u32)
    }

    /// Whether the header at the beginning of `head`, from which `self` was decoded, was written at a place with this
    /// seed.
    #[inline]
    pub fn is_at(&self, head: &[u8], seed: u32) -> bool {
        let to = if self.kind == Kind::Void { VOID_COVERED } else { self.head_bytes() as usize };
        // The bytes themselves: a header that decodes has no bit that is not in `self`.
        sum::append(seed, &head[4..to]) == self.crc
    }

    /// Whether key, value and trailer of the record at the beginning of `bytes` are intact, given an intact header.
    #[inline]
    fn is_body_whole(&self, bytes: &[u8], seeds: Seeds) -> bool {
        let body = body_crc(seeds.body, &[self.summed_body(bytes)]);
        let to = self.record_bytes();
        let trailer = &bytes[(to - self.trailer_bytes()) as usize..to as usize];
        self.kind != Kind::Void && self.sum_with(body, trailer) == u32_at(bytes, self.sum_at() as usize)
    }

    /// Whether the record at the beginning of `bytes`, from which `self` was decoded, is whole. It begins `at` bytes
    /// after the beginning of its block.
    pub fn verify(&self, bytes: &[u8], seeds: Seeds, at: u64) -> bool {
        self.is_at(bytes, seeds.head(at)) && self.is_body_whole(bytes, seeds)
    }

    /// Bytes of the trailer, if there is one.
    pub fn trailer_bytes(&self) -> u64 {
        TRAILER_BYTES * u64::from(self.transactional)
    }

    /// The trailer of the record at the beginning of `bytes`, if it belongs to a transaction.
    #[inline]
    pub fn trailer(&self, bytes: &[u8]) -> Option<Trailer> {
        self.transactional.then(|| Trailer::of(bytes, self.record_bytes()))
    }

    /// Number of bytes of the body, after `head_bytes`, that the checksum covers.
    pub fn summed_bytes(&self) -> u64 {
        let value_bytes = if self.kind == Kind::CellOpen { 0 } else { self.value_bytes };
        u64::from(self.key_bytes) + u64::from(value_bytes)
    }

    /// The checksum of a record whose body has the checksum `body`, and whose trailer is `trailer`.
    pub fn sum_with(&self, body: u32, trailer: &[u8]) -> u32 {
        sum::append(sum::append_check(body, self.crc), trailer)
    }

    /// Where in the record its checksum is.
    #[inline]
    pub fn sum_at(&self) -> u64 {
        let other = if self.kind == Kind::CellOpen { SUM_BYTES } else { 0 };
        self.value_at() + u64::from(self.value_bytes) + other
    }

    /// The part of the body that the checksum covers.
    fn summed_body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let from = self.head_bytes() as usize;
        &bytes[from..from + self.summed_bytes() as usize]
    }

    /// The key of the record at the beginning of `bytes`.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let from = self.head_bytes() as usize;
        &bytes[from..from + self.key_bytes as usize]
    }
}

/// A header in its form on a medium.
pub struct Encoded {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
    /// The header's check.
    pub crc: u32,
}

/// The bytes between a value and the trailer.
pub struct RecordTail {
    bytes: [u8; RECORD_TAIL_BYTES_MAX],
    len: usize,
}

impl RecordTail {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Encoded {
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The word that holds kind and checksum.
    #[inline]
    pub fn first_word(&self) -> u64 {
        u64_at(&self.bytes, 0)
    }
}

/// Bytes of a whole record of this kind with so many bytes before its key, without a trailer.
#[inline]
pub const fn record_bytes(head_bytes: u64, key_bytes: usize, value_bytes: usize, kind: Kind) -> u64 {
    (head_bytes + key_bytes as u64 + value_bytes as u64 + kind.sums_bytes() + 7) & !7
}

/// Checksum of a body given in parts, from the seed of its block's generation.
#[inline]
pub fn body_crc(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(seed, |crc, part| sum::append(crc, part))
}

/// The owner that a root names, by its value.
pub fn owner_of_root(value: &[u8]) -> Owner {
    Owner(u64_at(value, 0))
}

/// One step of reading a block.
#[derive(Debug)]
pub enum Step {
    /// A whole record of this block begins at `at`.
    Record { at: u64, header: Header },
    /// No whole record begins at `at`. The caller decides whether that is the end, a torn write or damage.
    End { at: u64 },
}

/// Reads the records of one block in order, verifies each, and skips voids.
///
/// *Invariant*: after a whole header, the walk searches nothing before the record's end, whether or not the body is
/// whole: those bytes are a user's.
pub struct Walk<'a> {
    block: &'a [u8],
    at: u64,
    end: u64,
    seeds: Seeds,
    /// Where `block` begins, in bytes from the block's beginning.
    origin: u64,
}

impl<'a> Walk<'a> {
    /// Walks `block` (the whole of it, header included) from `from` to `end`, both in bytes from its beginning.
    pub fn new(block: &'a [u8], from: u64, end: u64, seeds: Seeds) -> Self {
        Self { block, at: from, end: end.min(block.len() as u64), seeds, origin: 0 }
    }

    /// Marks the given bytes as a later part of the block, `origin` bytes after its beginning.
    pub fn behind(self, origin: u64) -> Self {
        Self { origin, ..self }
    }

    /// The header at `at`, if it is whole, and the bytes from there on.
    #[inline]
    fn header(&self, at: u64) -> Option<(Header, &'a [u8])> {
        let bytes = &self.block[at.min(self.end) as usize..self.end as usize];
        let header = Header::decode(bytes)?;
        let seed = self.seeds.head(self.origin + at);
        header.is_at(bytes, seed).then_some((header, bytes))
    }

    #[inline]
    pub fn step(&mut self) -> Step {
        loop {
            let at = self.at;
            match self.header(at) {
                Some((header, _)) if header.kind == Kind::Void => self.at += header.record_bytes(),
                Some((header, bytes)) if header.is_body_whole(bytes, self.seeds) => {
                    self.at += header.record_bytes();
                    return Step::Record { at, header };
                }
                _ => return Step::End { at },
            }
        }
    }

    /// The first whole record after `at` that matches: used to distinguish damage from a torn end, and to salvage. At
    /// `at`, no whole record begins. If its header is whole, the search continues at that record's end. If not, it
    /// tries every 8 bytes up to the next whole header. Two checks guard that: one of 32 bits that depends on the
    /// secret and the place, and then the record's checksum.
    pub fn find_after(&self, at: u64, matches: impl Fn(&Header) -> bool) -> Option<u64> {
        let mut next = at;
        loop {
            next += match self.header(next) {
                Some((header, _)) => header.record_bytes(),
                _ => 8,
            };
            if next >= self.end {
                return None;
            }
            if let Some((header, bytes)) = self.header(next)
                && matches(&header)
                && header.is_body_whole(bytes, self.seeds)
            {
                return Some(next);
            }
        }
    }

    /// Continues at `at`.
    pub fn resume(&mut self, at: u64) {
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Generation, Secret};
    use proptest::prelude::*;

    const AT: u64 = 4096;

    fn seeds(counter: u64) -> Seeds {
        Secret::new(99).seeds(Generation::new(1, counter))
    }

    fn whole_at(at: u64, header: Header, key: &[u8], value: &[u8], seeds: Seeds) -> Vec<u8> {
        let trailer = Trailer { transaction: TransactionId(7), previous: 1 << 62 | 9 };
        let trailer = header.transactional.then_some(trailer);
        let head = header.encode(seeds.head(at));
        let rest = header.rest(head.crc, body_crc(seeds.body, &[key, value]), None, trailer);
        let mut bytes = [head.bytes(), key, value, rest.bytes()].concat();
        bytes.extend(trailer.into_iter().flat_map(Trailer::bytes));
        assert_eq!(bytes.len() as u64, header.record_bytes());
        assert_eq!(header.trailer(&bytes), trailer);
        bytes
    }

    fn whole(header: Header, key: &[u8], value: &[u8], seeds: Seeds) -> Vec<u8> {
        whole_at(AT, header, key, value, seeds)
    }

    /// A header of a plain value.
    fn plain(kind: Kind, key_bytes: usize, value_bytes: usize) -> Header {
        Header {
            crc: 0,
            kind,
            tag: 0,
            transactional: false,
            drained: true,
            key_bytes: key_bytes as u32,
            value_bytes: value_bytes as u32,
            epoch: Epoch(1),
            version: Version(1),
            expires_at: None,
            owner: Owner::STORE,
        }
    }

    proptest! {
        #[test]
        fn record_reads_back_and_only_with_its_generation(
            key in prop::collection::vec(any::<u8>(), 0..80),
            value in prop::collection::vec(any::<u8>(), 0..300),
            tag: u8, epoch in 0..=Epoch::MAX, version in 0..=Version::MAX,
            expires_at: Option<u64>, owner: u64, transactional: bool, drained: bool, flip: prop::sample::Index,
        ) {
            let header = Header {
                crc: 0, kind: Kind::Value, tag, transactional, drained,
                key_bytes: key.len() as u32, value_bytes: value.len() as u32,
                epoch: Epoch(epoch), version: Version(version), expires_at,
                // Half of them are the store's own.
                owner: Owner(if owner % 2 == 0 { 0 } else { owner & !6 }),
            };
            let bytes = whole(header, &key, &value, seeds(2));
            let read = Header::decode(&bytes).unwrap();
            prop_assert_eq!(Header { crc: 0, ..read }, header);
            prop_assert!(read.verify(&bytes, seeds(2), AT));
            prop_assert_eq!(read.key(&bytes), &key[..]);
            prop_assert!(!read.verify(&bytes, seeds(3), AT));
            prop_assert!(!read.verify(&bytes, Secret::new(98).seeds(Generation::new(1, 2)), AT));
            prop_assert!(!read.is_at(&bytes, seeds(2).head(AT + 8)));
            // Any flipped bit of header, key, value, checksum or trailer is detected.
            let bits = (header.sum_at() as usize + 4) * 8;
            let trailer = bytes.len() * 8 - header.trailer_bytes() as usize * 8;
            let bit = flip.index(bits + header.trailer_bytes() as usize * 8);
            let bit = if bit < bits { bit } else { bit - bits + trailer };
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&flipped).is_none_or(|h| !h.verify(&flipped, seeds(2), AT)));
        }

        #[test]
        fn any_bytes_decode_or_not_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut walk = Walk::new(&bytes, 0, bytes.len() as u64, seeds(7));
            while let Step::Record { .. } = walk.step() {}
            let _ = walk.find_after(0, |_| true);
        }
    }

    #[test]
    fn key_of_64_kib_keeps_its_length() {
        let key = vec![1; KEY_BYTES_MAX];
        let bytes = whole(plain(Kind::Tombstone, key.len(), 0), &key, b"", seeds(5));
        assert_eq!(Header::decode(&bytes).unwrap().key_bytes, 65_536);
    }

    #[test]
    fn a_cell_is_valid_before_and_after_it_is_opened_and_changed() {
        let (key, value) = (b"counter!", 5u64.to_le_bytes());
        let sealed = plain(Kind::CellSealed, 8, 8);
        let open = Header { kind: Kind::CellOpen, ..sealed };
        let (seed, at) = (seeds(2).head(AT), open.encode(seeds(2).head(AT)));
        let head = sealed.encode(seed);
        let body = |parts: &[&[u8]]| body_crc(seeds(2).body, parts);
        let rest = sealed.rest(head.crc, body(&[key, &value]), Some((at.crc, body(&[key]))), None);
        let mut bytes = [head.bytes(), key, &value, rest.bytes()].concat();
        let is_whole = |bytes: &[u8]| Header::decode(bytes).is_some_and(|h| h.verify(bytes, seeds(2), AT));
        assert!(is_whole(&bytes) && bytes.len() as u64 == Head::new(&bytes).record_bytes());
        let mut changed = bytes.clone();
        changed[HEADER_BYTES as usize + 8] ^= 1;
        assert!(!is_whole(&changed), "a sealed cell must keep its value");
        bytes[..8].copy_from_slice(&at.first_word().to_le_bytes());
        assert!(is_whole(&bytes) && bytes.len() as u64 == Head::new(&bytes).record_bytes());
        bytes[HEADER_BYTES as usize + 8] ^= 1;
        assert!(is_whole(&bytes), "the value of an open cell may change");
        bytes[HEADER_BYTES as usize] ^= 1;
        assert!(!is_whole(&bytes), "the key of an open cell must not change");
    }

    /// A block with a void, a record, a torn one whose body holds a record that is valid at its place, and one after
    /// it.
    #[test]
    fn a_walk_of_a_block_skips_bodies_and_voids() {
        let mut block = vec![0; 64];
        let append = |block: &mut Vec<u8>, header: Header, value: &[u8]| {
            let at = block.len() as u64;
            block.extend(whole_at(at, header, b"key", value, seeds(2)));
            at
        };
        append(&mut block, plain(Kind::Void, 3, 500), &[9; 500]);
        let first = append(&mut block, plain(Kind::Value, 3, 4), b"good");
        let torn = block.len() as u64;
        // Only with the secret, the generation and the place could anybody forge this.
        let inner_at = torn + HEADER_BYTES + 8;
        let inner = whole_at(inner_at, plain(Kind::Value, 3, 6), b"key", b"forged", seeds(2));
        append(&mut block, plain(Kind::Value, 3, 500), &[&[0; 5], &inner[..], &[0; 500]].concat()[..500]);
        block[inner_at as usize + inner.len() + 8] ^= 1;
        let behind = append(&mut block, plain(Kind::Value, 3, 4), b"last");
        let mut walk = Walk::new(&block, 64, block.len() as u64, seeds(2));
        assert!(matches!(walk.step(), Step::Record { at, .. } if at == first));
        assert!(matches!(walk.step(), Step::End { at } if at == torn));
        let inner_header = Header::decode(&block[inner_at as usize..]).unwrap();
        assert!(
            inner_header.verify(&block[inner_at as usize..], seeds(2), inner_at),
            "the forged record must be valid at its place"
        );
        assert_eq!(walk.find_after(torn, |_| true), Some(behind));
    }

    #[test]
    fn a_record_copied_to_another_place_of_its_block_is_invalid() {
        let header = plain(Kind::Value, 3, 4);
        let step = if cfg!(miri) { 504 } else { 8 };
        for at in (64..4096).step_by(step) {
            let bytes = whole_at(at, header, b"key", b"four", seeds(2));
            let read = Header::decode(&bytes).unwrap();
            let elsewhere =
                (64..4096).step_by(step).filter(|&other| read.is_at(&bytes, seeds(2).head(other)));
            assert_eq!(elsewhere.collect::<Vec<u64>>(), [at]);
        }
    }
}
