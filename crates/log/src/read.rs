//! Reading the log in place, without copying.
//!
//! Which caller may use which function:
//!
//! 1. [`header`]: the owner of the block's space: its opener, the compactor, recovery.
//! 2. [`record`], [`plain_value`], [`Cell`](crate::cell::Cell): a caller that got the location from an index slot and
//!    still holds the guard under which it read the slot. Such a record is whole, and only the value of a cell is ever
//!    stored to, which these functions leave out. In a block that is not verified it is whole only when [`verify`] said
//!    so under that guard.
//! 3. [`whole_record`] and [`fn@block`]: recovery, while nothing writes to the medium. [`fn@block`] also serves the
//!    compactor, up to the tail of a sealed block that holds no cell: nobody stores there any more, and only the
//!    compactor frees it.

use crate::blocks::{Blocks, Use};
use crate::format::record::{
    HEAD_BYTES_MAX, HEADER_BYTES, Head, Header, Kind, TRAILER_BYTES, body_crc, key_places,
};
use crate::format::{Extent, Secret, Seeds, block, u32_at};
use duramen_media::{Medium, Offset};

/// The header of the block at `extent`, whose offset is `at`. `Err` states what was found and wanted.
pub fn header<M: Medium>(
    medium: &M,
    secret: Secret,
    extent: Extent,
    at: Offset,
) -> Result<block::Header, String> {
    // SAFETY: the caller alone writes this header (1).
    let bytes = unsafe { medium.bytes(at, block::HEADER_BYTES) };
    block::Header::decode(secret, extent, bytes)
}

/// The fixed part of a reachable record's header.
#[inline(always)]
pub(crate) fn head_at<M: Medium>(medium: &M, at: Offset) -> Head {
    // SAFETY: the header of a reachable record is never stored to (2).
    Head::new(unsafe { medium.bytes(at, HEADER_BYTES) })
}

/// A reachable record: the fixed part of its header, and its bytes, without the value of a cell.
#[inline(always)]
pub fn record<M: Medium>(medium: &M, at: Offset) -> (Head, &[u8]) {
    let head = head_at(medium, at);
    let bytes = if head.is_cell() { head.value_at() } else { head.record_bytes() };
    // SAFETY: the bytes that may be stored to are left out (2).
    (head, unsafe { medium.bytes(at, bytes) })
}

/// Key and value of a reachable record if its key has `key_bytes` bytes and its value neither expires nor changes.
#[inline(always)]
pub fn plain_value<M: Medium>(medium: &M, at: Offset, key_bytes: usize) -> Option<(&[u8], &[u8])> {
    let head = head_at(medium, at);
    if !head.is_plain_value() || head.key_bytes() != key_bytes as u64 {
        return None;
    }
    // SAFETY: the record is no cell (2).
    let bytes = unsafe { medium.bytes(at.plus(head.key_at()), head.key_bytes() + head.value_bytes()) };
    Some(bytes.split_at(key_bytes))
}

/// The bytes before the key of a reachable record.
#[inline]
pub fn head<M: Medium>(medium: &M, at: Offset) -> &[u8] {
    let bytes = (medium.len() - at.0).min(HEAD_BYTES_MAX as u64);
    // SAFETY: header and key of a reachable record are never stored to (2, 3).
    unsafe { medium.bytes(at, bytes) }
}

/// A record with all its bytes.
pub fn whole_record<M: Medium>(medium: &M, at: Offset) -> (Header, &[u8]) {
    // One at the very end of the medium may be shorter than the largest head.
    let header = Header::decode_head(head(medium, at));
    // SAFETY: nothing writes to the medium (3).
    (header, unsafe { medium.bytes(at, header.record_bytes()) })
}

/// A match of this many key bytes is no coincidence where the index already has the same bits of their hash.
const SURE_KEY_BYTES_MIN: usize = 8;

/// The fault of a damaged record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No reachable record begins like this, or it would end after the records of its block.
    Header,
    /// The check of its header is wrong: this header was not written here.
    Check,
    Checksum {
        found: u32,
        wanted: u32,
    },
    /// The bytes must not be touched: reading them fails.
    Unreadable,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable => {
                f.write_str("it cannot be read: the device or the kernel reports an error there")
            }
            Self::Header => f.write_str("no record that begins there ends before its block does"),
            Self::Check => f.write_str("its header has changed: the header's check is wrong"),
            Self::Checksum { found, wanted } => {
                write!(f, "it has checksum {found:#010x}, wanted {wanted:#010x}")
            }
        }
    }
}

/// A damaged record, found by a writer, that may belong to the writer's key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unknown {
    /// Its offset; 0: none was found.
    pub at: Offset,
    /// Its slot, or another one, is not a tombstone's: a lookup of the key answers `Corrupt`.
    pub may_be_live: bool,
}

impl Unknown {
    pub fn is_some(self) -> bool {
        self.at.0 != 0
    }
}

/// The bytes and the decoded form of the header at `at`, if it can belong to a record that ends by `end`. Bytes that
/// may be stored to concurrently (cells that a damaged length spans) are loaded in pieces.
fn claimed<M: Medium>(medium: &M, at: Offset, end: u64) -> Option<([u8; HEAD_BYTES_MAX], Header)> {
    let room = end.checked_sub(at.0)?;
    let mut head = [0; HEAD_BYTES_MAX];
    let bytes = room.min(HEAD_BYTES_MAX as u64) as usize;
    medium.load_pieces(at, &mut head[..bytes]);
    let header = Header::decode_within(&head[..bytes], room)?;
    (!matches!(header.kind, Kind::End | Kind::Void)).then_some((head, header))
}

/// Continues the checksum `crc` over `bytes` bytes from `at`.
fn sum_pieces<M: Medium>(medium: &M, at: Offset, bytes: u64, crc: u32) -> u32 {
    let mut piece = [0; 512];
    let (mut from, end) = (at.0, at.0 + bytes);
    let mut crc = crc;
    while from < end {
        let piece = &mut piece[..(end - from).min(512) as usize];
        medium.load_pieces(Offset(from), piece);
        crc = body_crc(crc, &[piece]);
        from += piece.len() as u64;
    }
    crc
}

/// The stored checksum of the record at `at` with this header, and the checksum wanted for this `body`.
fn sums<M: Medium>(medium: &M, at: Offset, header: &Header, body: u32) -> (u32, u32) {
    let mut trailer = [0; TRAILER_BYTES as usize];
    let trailer = &mut trailer[..header.trailer_bytes() as usize];
    medium.load_pieces(at.plus(header.record_bytes() - header.trailer_bytes()), trailer);
    let mut sum = [0; 4];
    medium.load_pieces(at.plus(header.sum_at()), &mut sum);
    (u32_at(&sum, 0), header.sum_with(body, trailer))
}

/// Whether the record at `at` is what was written there. Its block begins at `block`, and its records end at `end`. Any
/// bytes may be there; the caller has the location from a slot, under the guard of (2).
pub fn verify<M: Medium>(medium: &M, at: Offset, block: u64, end: u64, seeds: Seeds) -> Result<(), Wrong> {
    let (head, header) = claimed(medium, at, end).ok_or(Wrong::Header)?;
    if !header.is_at(&head, seeds.head(at.0 - block)) {
        return Err(Wrong::Check);
    }
    let body = sum_pieces(medium, at.plus(header.head_bytes()), header.summed_bytes(), seeds.body);
    let (found, wanted) = sums(medium, at, &header, body);
    if wanted == found { Ok(()) } else { Err(Wrong::Checksum { found, wanted }) }
}

/// Whether any part of the record at `at` cannot be read. The record ends by `end`, and its header gives its length.
/// Asks the kernel.
fn is_unreadable<M: Medium>(medium: &M, at: Offset, end: u64) -> bool {
    let touches = |bytes: u64| !medium.unreadable(at, bytes.min(end.saturating_sub(at.0))).is_empty();
    touches(HEAD_BYTES_MAX as u64)
        || claimed(medium, at, end).is_some_and(|(_, header)| touches(header.record_bytes()))
}

/// As [`verify`], but only where the record's block is unverified; records of other blocks were verified before.
pub fn verify_unverified<M: Medium>(medium: &M, blocks: &Blocks, at: Offset) -> Result<(), Wrong> {
    let block = blocks.of(at.0);
    if !block.is_unverified() {
        return Ok(());
    }
    let end = blocks.end_of_records(at.0);
    // Touching an unreadable page would end the process. Blocks that are merely unverified skip this check, since it
    // costs a system call for each read.
    if block.state() == Use::Damaged && is_unreadable(medium, at, end) {
        return Err(Wrong::Unreadable);
    }
    verify(medium, at, blocks.offset(blocks.extent_of(at.0)), end, blocks.seeds(block))
}

/// The length of a damaged record, where its header is whole: that has a check of its own.
pub fn damaged_bytes<M: Medium>(medium: &M, blocks: &Blocks, at: Offset) -> Option<u64> {
    match verify_unverified(medium, blocks, at) {
        Err(Wrong::Header | Wrong::Check | Wrong::Unreadable) => None,
        Ok(()) | Err(Wrong::Checksum { .. }) => {
            claimed(medium, at, blocks.end_of_records(at.0)).map(|(_, header)| header.record_bytes())
        }
    }
}

/// Whether `key` is stored at `at`, before `end`.
fn holds<M: Medium>(medium: &M, at: Offset, end: u64, key: &[u8]) -> bool {
    let mut piece = [0; 64];
    at.0 + key.len() as u64 <= end
        && key.chunks(piece.len()).zip((at.0..).step_by(64)).all(|(wanted, from)| {
            let found = &mut piece[..wanted.len()];
            medium.load_pieces(Offset(from), found);
            *found == *wanted
        })
}

/// Whether a damaged record was of `key`: the key's bytes are at the place of a key, or the checksum is right with
/// them. Otherwise its key is unknown.
pub fn was_of<M: Medium>(
    medium: &M,
    at: Offset,
    end: u64,
    seeds: Seeds,
    (owned, key): (bool, &[u8]),
) -> bool {
    let claimed = claimed(medium, at, end);
    let is_long = claimed.is_some_and(|(_, header)| header.key_bytes as usize == key.len());
    // A short key may lie at the beginning of another one.
    if (is_long || key.len() >= SURE_KEY_BYTES_MIN)
        && key_places(owned).iter().any(|&from| holds(medium, at.plus(from), end, key))
    {
        return true;
    }
    let Some((_, header)) = claimed else { return false };
    let key_bytes = u64::from(header.key_bytes);
    key_bytes == key.len() as u64 && {
        let body = body_crc(seeds.body, &[key]);
        let behind = at.plus(header.head_bytes() + key_bytes);
        let body = sum_pieces(medium, behind, header.summed_bytes() - key_bytes, body);
        let (found, wanted) = sums(medium, at, &header, body);
        found == wanted
    }
}

/// The first `bytes` bytes of a block.
pub fn block<M: Medium>(medium: &M, at: Offset, bytes: u64) -> &[u8] {
    // SAFETY: nothing writes to the medium (3).
    unsafe { medium.bytes(at, bytes) }
}
