//! Reading the log where it lies, without copying.
//!
//! Who may call what:
//!
//! 1. [`header`]: whoever owns the block's space: its opener, the compacting thread, recovery.
//! 2. [`record`], [`plain_value`], [`lasting_cell`]: whoever got the location from an index slot and still holds the guard that it read the slot
//!    under. Such a record is whole, and nobody stores to it but to the value of a cell, which is left out.
//! 3. [`whole_record`] and [`block`]: recovery, while nothing writes to the medium; [`block`] also the compacting thread, up to the
//!    tail of a sealed block that holds no cell: nobody stores there any more, and that thread frees it.

use crate::format::record::{HEAD_BYTES_MAX, HEADER_BYTES, Head, Header};
use crate::format::{Unit, block as blocks};
use duramen_media::{Medium, Offset};

/// The header of the block at `unit`, which lies at `at`; `Err` says what was found and wanted.
pub(crate) fn header<M: Medium>(medium: &M, unit: Unit, at: Offset) -> Result<blocks::Header, String> {
    // SAFETY: the caller alone writes this header (1).
    let bytes = unsafe { medium.bytes(at, blocks::HEADER_BYTES) };
    blocks::Header::decode(unit, bytes)
}

/// The fixed part of a reachable record's header.
#[inline(always)]
fn head_at<M: Medium>(medium: &M, at: Offset) -> Head {
    // SAFETY: the header of a reachable record is never stored to (2).
    Head::new(unsafe { medium.bytes(at, HEADER_BYTES) })
}

/// A reachable record: the fixed part of its header, and its bytes, without the value of a cell.
#[inline(always)]
pub(crate) fn record<M: Medium>(medium: &M, at: Offset) -> (Head, &[u8]) {
    let head = head_at(medium, at);
    let bytes = if head.is_cell() { head.value_at() } else { head.record_bytes() };
    // SAFETY: what is stored to is left out (2).
    (head, unsafe { medium.bytes(at, bytes) })
}

/// Key and value of a reachable record, if that is a value which neither expires nor changes, of a key of `key_bytes`.
#[inline(always)]
pub(crate) fn plain_value<M: Medium>(medium: &M, at: Offset, key_bytes: usize) -> Option<(&[u8], &[u8])> {
    let head = head_at(medium, at);
    if !head.is_plain_value() || head.key_bytes() != key_bytes as u64 {
        return None;
    }
    // SAFETY: it is no cell (2).
    let bytes = unsafe { medium.bytes(at.plus(HEADER_BYTES), head.key_bytes() + head.value_bytes()) };
    Some(bytes.split_at(key_bytes))
}

/// Key and length of the value of a reachable record, if that is a cell that does not expire, of a key of `key_bytes`.
#[inline(always)]
pub(crate) fn lasting_cell<M: Medium>(medium: &M, at: Offset, key_bytes: usize) -> Option<(&[u8], u64)> {
    let head = head_at(medium, at);
    if !head.is_lasting_cell() || head.key_bytes() != key_bytes as u64 {
        return None;
    }
    // SAFETY: the key of a reachable record is never stored to (2).
    Some((unsafe { medium.bytes(at.plus(HEADER_BYTES), head.key_bytes()) }, head.value_bytes()))
}

/// The bytes before the key of a reachable record.
#[inline]
pub(crate) fn head<M: Medium>(medium: &M, at: Offset) -> &[u8] {
    let bytes = (medium.len() - at.0).min(HEAD_BYTES_MAX as u64);
    // SAFETY: header and key of a reachable record are never stored to (2, 3).
    unsafe { medium.bytes(at, bytes) }
}

/// A record with all its bytes.
pub(crate) fn whole_record<M: Medium>(medium: &M, at: Offset) -> (Header, &[u8]) {
    // One at the very end of the medium may be shorter than the largest head.
    let header = Header::decode_head(head(medium, at));
    // SAFETY: nothing writes to the medium (3).
    (header, unsafe { medium.bytes(at, header.record_bytes()) })
}

/// The first `bytes` bytes of a block.
pub(crate) fn block<M: Medium>(medium: &M, at: Offset, bytes: u64) -> &[u8] {
    // SAFETY: nothing writes to the medium (3).
    unsafe { medium.bytes(at, bytes) }
}
