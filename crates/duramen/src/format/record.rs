//! A record: one write of one key, immutable once appended, valid by itself.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | CRC-32C, see below |
//! | 4 | 1 | bits 0 to 3 kind, bits 4 to 7 flags |
//! | 5 | 1 | tag: the caller's, kept as is |
//! | 6 | 2 | key bytes, low 16 bits |
//! | 8 | 8 | bits 0 to 29 value bytes, bit 30 key bytes' bit 16, bit 31 zero, bits 32 to 63 epoch's low 32 bits |
//! | 16 | 8 | bits 0 to 51 version, bits 52 to 63 epoch's high 12 bits |
//! | 24 | 8 | expiry, Unix milliseconds: only with flag 1 |
//! | | 8 | owner ([`Owner`]): only with flag 8, behind the expiry if there is one |
//! | 24, 32 or 40 | | key, then value, then zeros up to a multiple of 8 |
//! | | 16 | [`Trailer`]: the unit that it belongs to, and what the key's slot was before: only with flag 2 |
//!
//! Kinds: 1 value; 2 tombstone; 3 cell being appended; 4 cell; 5 end of a unit ([`super::unit`]); 6 root of a collection, whose value
//! begins with the owner of the elements (8 bytes). A cell is appended as kind 3, whole and durable,
//! and then made kind 4 by one store of its first 8 bytes, before the index leads to it.
//! Flags: 1 expires; 2 belongs to a unit; 4 everything before this record in its block was durable
//! when it was written (so a broken record before it is damage and not a torn write); 8 belongs to the table of the owner that
//! is named, without it to the store's own.
//!
//! The checksum starts from the block's generation ([`super::Generation::seed`]) and covers, in this
//! order, key and value as stored, bytes 4 to 23, the expiry, the owner, and the trailer. The body comes first so that it
//! can be summed before the version is known. For kind 4 the value is left out: it changes in
//! place. What belongs to a unit stands behind the value, so that a lookup need not ask for it to find the key.

use super::{Epoch, Owner, UnitId, Version, sum, u64_at};
use crate::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use duramen_media::Offset;

pub(crate) const HEADER_BYTES: u64 = 24;
const EXPIRY_BYTES: u64 = 8;
const OWNER_BYTES: u64 = 8;
/// The largest header.
pub(crate) const HEAD_BYTES_MAX: usize = 40;
pub(crate) const TRAILER_BYTES: u64 = 16;
/// Bytes of the value of an end: how many members its unit has, and their sum.
pub(crate) const END_VALUE_BYTES: usize = 16;
/// Bytes of an end.
pub(crate) const END_BYTES: u64 = HEADER_BYTES + END_VALUE_BYTES as u64 + TRAILER_BYTES;

const FLAG_EXPIRES: u8 = 1;
const FLAG_MEMBER: u8 = 2;
const FLAG_DRAINED: u8 = 4;
const FLAG_OWNED: u8 = 8;

/// Bytes before the key.
#[inline(always)]
pub(crate) const fn head_bytes(expires: bool, owned: bool) -> u64 {
    HEADER_BYTES + EXPIRY_BYTES * expires as u64 + OWNER_BYTES * owned as u64
}

/// Where a key of a record that names an owner, or does not, may begin.
pub(crate) const fn key_places(owned: bool) -> [u64; 2] {
    [head_bytes(false, owned), head_bytes(true, owned)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Value = 1,
    Tombstone = 2,
    CellSealed = 3,
    CellOpen = 4,
    End = 5,
    Root = 6,
}

impl Kind {
    /// Whether it was put to be updated in place. (A sealed cell was not yet opened when a crash came.)
    pub(crate) fn is_updatable(self) -> bool {
        matches!(self, Self::CellSealed | Self::CellOpen)
    }
}

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub at: Offset,
    pub bytes: u64,
    /// The record's checksum.
    pub crc: u32,
}

/// A record's header, as numbers. Sizes are within the limits; nothing says yet that the checksum is
/// right: that is [`Header::crc_of`]'s comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub crc: u32,
    pub kind: Kind,
    pub tag: u8,
    pub member: bool,
    pub drained: bool,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub epoch: Epoch,
    pub version: Version,
    pub expires_at: Option<u64>,
    pub owner: Owner,
}

/// The fixed part of the header of a record that is known to be whole, taken apart only as far as it is asked:
/// a lookup needs little of it, and most of what a lookup costs besides its cache misses is instructions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    first: u64,
    sizes: u64,
    order: u64,
}

impl Head {
    /// Reads the header at the beginning of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: &[u8]) -> Self {
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
    /// When there is none: the index would be wrong, which is a defect.
    #[inline]
    fn kind(self) -> Kind {
        match self.kind_bits() {
            1 => Kind::Value,
            2 => Kind::Tombstone,
            3 => Kind::CellSealed,
            4 => Kind::CellOpen,
            5 => Kind::End,
            6 => Kind::Root,
            other => unreachable!("the index leads to a record of kind {other}"),
        }
    }

    /// Whether it is a value, of a unit or not, that neither expires nor changes.
    #[inline]
    pub(crate) fn is_plain_value(self) -> bool {
        self.kind_bits() == Kind::Value as u8 && !self.expires()
    }

    /// Whether it is the end of a unit.
    #[inline]
    pub(crate) fn is_end(self) -> bool {
        self.kind_bits() == Kind::End as u8
    }

    /// Whether it is the root of a collection.
    #[inline]
    pub(crate) fn is_root(self) -> bool {
        self.kind_bits() == Kind::Root as u8
    }

    /// Whether the value may change in place, now, and does not expire.
    #[inline]
    pub(crate) fn is_lasting_cell(self) -> bool {
        self.is_cell() && !self.expires()
    }

    /// Whether the value may change in place, now.
    #[inline]
    pub(crate) fn is_cell(self) -> bool {
        self.kind_bits() == Kind::CellOpen as u8
    }

    /// As [`Kind::is_updatable`].
    #[inline]
    pub(crate) fn is_updatable(self) -> bool {
        self.kind().is_updatable()
    }

    #[inline]
    pub(crate) fn is_member(self) -> bool {
        self.flags() & FLAG_MEMBER != 0
    }

    #[inline]
    pub(crate) fn expires(self) -> bool {
        self.flags() & FLAG_EXPIRES != 0
    }

    /// Whether it belongs to another table than the store's own.
    #[inline]
    pub(crate) fn is_owned(self) -> bool {
        self.flags() & FLAG_OWNED != 0
    }

    #[inline]
    pub(crate) fn tag(self) -> u8 {
        (self.first >> 40) as u8
    }

    #[inline]
    pub(crate) fn key_bytes(self) -> u64 {
        self.first >> 48 | (self.sizes >> 30 & 1) << 16
    }

    #[inline]
    pub(crate) fn value_bytes(self) -> u64 {
        self.sizes & ((1 << 30) - 1)
    }

    #[inline]
    pub(crate) fn epoch(self) -> Epoch {
        Epoch(self.sizes >> 32 | self.order >> 52 << 32)
    }

    #[inline]
    pub(crate) fn version(self) -> Version {
        Version(self.order & Version::MAX)
    }

    /// Bytes before the key.
    #[inline]
    pub(crate) fn key_at(self) -> u64 {
        head_bytes(self.expires(), self.is_owned())
    }

    /// The owner of the record whose head this is, and that begins with `bytes`.
    #[inline]
    pub(crate) fn owner(self, bytes: &[u8]) -> Owner {
        if self.is_owned() {
            Owner(u64_at(bytes, (self.key_at() - OWNER_BYTES) as usize))
        } else {
            Owner::STORE
        }
    }

    /// Where the value begins in the record.
    #[inline]
    pub(crate) fn value_at(self) -> u64 {
        self.key_at() + self.key_bytes()
    }

    /// Bytes of the whole record, padding and trailer included.
    #[inline]
    pub(crate) fn record_bytes(self) -> u64 {
        ((self.value_at() + self.value_bytes() + 7) & !7) + TRAILER_BYTES * u64::from(self.is_member())
    }
}

/// What is behind the value of a record that belongs to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trailer {
    pub unit: UnitId,
    /// The slot that the record's took the place of, with the lane of its writer where a slot has the fingerprint; the lane alone: there
    /// was none. (`index::Slot::as_previous`)
    pub previous: u64,
}

impl Trailer {
    /// Of the record at the beginning of `bytes`, which has `record_bytes`.
    #[inline]
    pub(crate) fn of(bytes: &[u8], record_bytes: u64) -> Self {
        let at = (record_bytes - TRAILER_BYTES) as usize;
        Self { unit: UnitId(u64_at(bytes, at)), previous: u64_at(bytes, at + 8) }
    }

    #[inline]
    pub(crate) fn bytes(self) -> [u8; TRAILER_BYTES as usize] {
        let mut bytes = [0; TRAILER_BYTES as usize];
        bytes[..8].copy_from_slice(&self.unit.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.previous.to_le_bytes());
        bytes
    }
}

impl Header {
    /// Bytes before the key.
    #[inline]
    pub(crate) fn head_bytes(&self) -> u64 {
        head_bytes(self.expires_at.is_some(), self.owner != Owner::STORE)
    }

    /// Bytes of the whole record, padding and trailer included.
    #[inline]
    pub(crate) fn record_bytes(&self) -> u64 {
        ((self.value_at() + u64::from(self.value_bytes) + 7) & !7) + TRAILER_BYTES * u64::from(self.member)
    }

    /// Where the value begins in the record.
    #[inline]
    pub(crate) fn value_at(&self) -> u64 {
        self.head_bytes() + u64::from(self.key_bytes)
    }

    /// The header as bytes, for a body with this checksum ([`body_crc`]).
    #[inline(always)]
    pub(crate) fn encode(&self, body: u32, trailer: Option<Trailer>) -> Encoded {
        let owner = (self.owner != Owner::STORE).then_some(self.owner.0);
        let flags = if self.expires_at.is_some() { FLAG_EXPIRES } else { 0 }
            | if self.member { FLAG_MEMBER } else { 0 }
            | if self.drained { FLAG_DRAINED } else { 0 }
            | if owner.is_some() { FLAG_OWNED } else { 0 };
        let first = u32::from(self.kind as u8 | flags << 4)
            | u32::from(self.tag) << 8
            | u32::from(self.key_bytes as u16) << 16;
        let sizes = u64::from(self.value_bytes) | u64::from(self.key_bytes >> 16) << 30;
        let words = [sizes | self.epoch.0 << 32, self.version.0 | (self.epoch.0 >> 32) << 52];
        let crc = sum::append_words(body, first, words, [self.expires_at, owner]);
        let crc = trailer.map_or(crc, |trailer| sum::append(crc, &trailer.bytes()));
        let mut bytes = [0; HEAD_BYTES_MAX];
        let word = u64::from(crc) | u64::from(first) << 32;
        let fourth = self.expires_at.or(owner).unwrap_or(0);
        let words = [word, words[0], words[1], fourth, owner.unwrap_or(0)];
        for (word, at) in words.into_iter().zip((0..).step_by(8)) {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        Encoded { bytes, len: self.head_bytes() as usize, crc }
    }

    /// Reads the header at the beginning of `bytes`; `None` when no record of this format can begin so
    /// or it would not fit in `bytes`.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        Self::decode_within(bytes, bytes.len() as u64)
    }

    /// The same of a record whose first bytes are `bytes`, at least as many as a header has unless `room` is less, which is what
    /// it would have to fit in.
    #[inline]
    pub(crate) fn decode_within(bytes: &[u8], room: u64) -> Option<Self> {
        if bytes.len() < HEADER_BYTES as usize {
            return None;
        }
        let sizes = u64_at(bytes, 8) as u32;
        let (kind, flags) = (bytes[4] & 15, bytes[4] >> 4);
        let known = (1..=6).contains(&kind) && sizes >> 31 == 0;
        let head_bytes = head_bytes(flags & FLAG_EXPIRES != 0, flags & FLAG_OWNED != 0);
        if !known || (bytes.len() as u64) < head_bytes {
            return None;
        }
        let header = Self::decode_head(bytes);
        // No record names the owner of those that name none.
        if flags & FLAG_OWNED != 0 && (header.owner == Owner::STORE || header.owner.kind().is_none())
            || header.kind == Kind::Root && u64::from(header.value_bytes) < OWNER_BYTES
            || header.member && header.kind.is_updatable()
            || header.kind == Kind::End && !header.is_end()
        {
            return None;
        }
        if header.key_bytes as usize > KEY_BYTES_MAX || header.value_bytes as usize > VALUE_BYTES_MAX {
            return None;
        }
        (header.record_bytes() <= room).then_some(header)
    }

    /// Reads the header of a record that is known to be whole: one that the index leads to.
    ///
    /// # Panics
    /// When there is none: the index would be wrong, which is a defect.
    #[inline]
    pub(crate) fn decode_head(head: &[u8]) -> Self {
        let fixed = Head::new(head);
        Self {
            crc: fixed.first as u32,
            kind: fixed.kind(),
            tag: fixed.tag(),
            member: fixed.is_member(),
            drained: fixed.flags() & FLAG_DRAINED != 0,
            key_bytes: fixed.key_bytes() as u32,
            value_bytes: fixed.value_bytes() as u32,
            epoch: fixed.epoch(),
            version: fixed.version(),
            expires_at: fixed.expires().then(|| u64_at(head, 24)),
            owner: fixed.owner(head),
        }
    }

    /// Whether an end has what an end has, and nothing else.
    fn is_end(&self) -> bool {
        self.member
            && self.expires_at.is_none()
            && self.owner == Owner::STORE
            && (self.key_bytes, self.value_bytes) == (0, END_VALUE_BYTES as u32)
    }

    /// Whether the record at the beginning of `bytes`, which `self` was decoded from, is whole.
    pub(crate) fn verify(&self, bytes: &[u8], seed: u32) -> bool {
        let body = body_crc(seed, &[self.summed_body(bytes)]);
        let to = self.record_bytes();
        // The bytes themselves: a header that decodes has no bit that `self` does not say.
        self.crc_with(body, bytes, &bytes[(to - self.trailer_bytes()) as usize..to as usize]) == self.crc
    }

    /// Bytes of the trailer, if there is one.
    pub(crate) fn trailer_bytes(&self) -> u64 {
        TRAILER_BYTES * u64::from(self.member)
    }

    /// The trailer of the record at the beginning of `bytes`, if it belongs to a unit.
    #[inline]
    pub(crate) fn trailer(&self, bytes: &[u8]) -> Option<Trailer> {
        self.member.then(|| Trailer::of(bytes, self.record_bytes()))
    }

    /// How many bytes of the body, behind `head_bytes`, the checksum covers.
    pub(crate) fn summed_bytes(&self) -> u64 {
        let value_bytes = if self.kind == Kind::CellOpen { 0 } else { self.value_bytes };
        u64::from(self.key_bytes) + u64::from(value_bytes)
    }

    /// The checksum of a record whose header is `head`, whose body has this one, and that ends in this trailer.
    pub(crate) fn crc_with(&self, body: u32, head: &[u8], trailer: &[u8]) -> u32 {
        sum::append(sum::append(body, &head[4..self.head_bytes() as usize]), trailer)
    }

    /// The part of the body that the checksum covers.
    fn summed_body<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let from = self.head_bytes() as usize;
        &bytes[from..from + self.summed_bytes() as usize]
    }

    /// The key of the record at the beginning of `bytes`.
    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let from = self.head_bytes() as usize;
        &bytes[from..from + self.key_bytes as usize]
    }
}

/// A header as a medium holds it.
pub(crate) struct Encoded {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
    /// The record's checksum.
    pub crc: u32,
}

impl Encoded {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The word that holds kind and checksum.
    #[inline]
    pub(crate) fn first_word(&self) -> u64 {
        u64_at(&self.bytes, 0)
    }
}

/// Bytes of a whole record with so many before its key.
#[inline]
pub(crate) fn record_bytes(head_bytes: u64, key_bytes: usize, value_bytes: usize) -> u64 {
    (head_bytes + key_bytes as u64 + value_bytes as u64 + 7) & !7
}

/// Checksum of a body given in parts, from the seed of its block's generation.
#[inline]
pub(crate) fn body_crc(seed: u32, parts: &[&[u8]]) -> u32 {
    parts.iter().fold(seed, |crc, part| sum::append(crc, part))
}

/// The owner that a root names, by its value.
pub(crate) fn owner_of_root(value: &[u8]) -> Owner {
    Owner(u64_at(value, 0))
}

/// One step of reading a block.
#[derive(Debug)]
pub(crate) enum Step {
    /// A whole record of this block begins at `at` and is `bytes` long.
    Record { at: u64, header: Header },
    /// No whole record begins at `at`. Whether that is the end, a torn write or damage is the caller's
    /// to judge.
    End { at: u64 },
}

/// Reads the records of one block in order, verifying each.
pub(crate) struct Walk<'a> {
    block: &'a [u8],
    at: u64,
    end: u64,
    seed: u32,
}

impl<'a> Walk<'a> {
    /// Walks `block` (the whole of it, header included) from `from` to `end`, both in bytes from its
    /// beginning.
    pub(crate) fn new(block: &'a [u8], from: u64, end: u64, seed: u32) -> Self {
        Self { block, at: from, end: end.min(block.len() as u64), seed }
    }

    pub(crate) fn step(&mut self) -> Step {
        let at = self.at;
        let bytes = &self.block[at.min(self.end) as usize..self.end as usize];
        match Header::decode(bytes) {
            Some(header) if header.verify(bytes, self.seed) => {
                self.at += header.record_bytes();
                Step::Record { at, header }
            }
            _ => Step::End { at },
        }
    }

    /// The first whole record that begins after `at` and matches, at any 8-byte position: used to
    /// tell damage from a torn end, and to salvage.
    ///
    /// Looks at no more than some ten times the block's bytes: a value made to look like many long records
    /// cannot hold up recovery.
    pub(crate) fn find_after(&self, at: u64, matches: impl Fn(&Header) -> bool) -> Option<u64> {
        let mut budget = 8 * self.end + (1 << 20);
        (at + 8..self.end).step_by(8).find(|&at| {
            let bytes = &self.block[at as usize..self.end as usize];
            Header::decode(bytes).is_some_and(|header| {
                matches(&header) && {
                    let cost = header.record_bytes();
                    let affordable = cost <= budget;
                    budget = budget.saturating_sub(cost);
                    affordable && header.verify(bytes, self.seed)
                }
            })
        })
    }

    /// Goes on at `at`.
    pub(crate) fn resume(&mut self, at: u64) {
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Generation;
    use proptest::prelude::*;

    fn whole(header: Header, key: &[u8], value: &[u8], seed: u32) -> Vec<u8> {
        let trailer = Trailer { unit: UnitId(7), previous: 1 << 62 | 9 };
        let trailer = header.member.then_some(trailer);
        let head = header.encode(body_crc(seed, &[key, value]), trailer);
        let mut bytes = [head.bytes(), key, value].concat();
        bytes.resize((header.record_bytes() - header.trailer_bytes()) as usize, 0);
        bytes.extend(trailer.into_iter().flat_map(Trailer::bytes));
        assert_eq!(header.trailer(&bytes), trailer);
        bytes
    }

    proptest! {
        #[test]
        fn record_reads_back_and_only_with_its_generation(
            key in prop::collection::vec(any::<u8>(), 0..80),
            value in prop::collection::vec(any::<u8>(), 0..300),
            tag: u8, epoch in 0..=Epoch::MAX, version in 0..=Version::MAX,
            expires_at: Option<u64>, owner: u64, member: bool, drained: bool, flip: prop::sample::Index,
        ) {
            let header = Header {
                crc: 0, kind: Kind::Value, tag, member, drained,
                key_bytes: key.len() as u32, value_bytes: value.len() as u32,
                epoch: Epoch(epoch), version: Version(version), expires_at,
                // One in two is the store's own.
                owner: Owner(if owner % 2 == 0 { 0 } else { owner & !6 }),
            };
            let seed = Generation::new(1, 2).seed();
            let bytes = whole(header, &key, &value, seed);
            let read = Header::decode(&bytes).unwrap();
            prop_assert_eq!(Header { crc: 0, ..read }, header);
            prop_assert!(read.verify(&bytes, seed));
            prop_assert_eq!(read.key(&bytes), &key[..]);
            prop_assert!(!read.verify(&bytes, Generation::new(1, 3).seed()));
            // Any flipped bit of header, key, value or trailer is told.
            let bits = (header.value_at() as usize + value.len()) * 8;
            let trailer = bytes.len() * 8 - header.trailer_bytes() as usize * 8;
            let bit = flip.index(bits + header.trailer_bytes() as usize * 8);
            let bit = if bit < bits { bit } else { bit - bits + trailer };
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&flipped).is_none_or(|h| !h.verify(&flipped, seed)));
        }

        #[test]
        fn any_bytes_decode_or_not_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut walk = Walk::new(&bytes, 0, bytes.len() as u64, 7);
            while let Step::Record { .. } = walk.step() {}
            let _ = walk.find_after(0, |_| true);
        }
    }

    #[test]
    fn key_of_64_kib_keeps_its_length() {
        let key = vec![1; KEY_BYTES_MAX];
        let header = Header {
            crc: 0,
            kind: Kind::Tombstone,
            tag: 0,
            member: false,
            drained: true,
            key_bytes: key.len() as u32,
            value_bytes: 0,
            epoch: Epoch(1),
            version: Version(1),
            expires_at: None,
            owner: Owner::STORE,
        };
        let bytes = whole(header, &key, b"", 5);
        assert_eq!(Header::decode(&bytes).unwrap().key_bytes, 65_536);
    }
}
