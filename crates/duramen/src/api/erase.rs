//! Making room for a new store in place of other data.
//!
//! A file can be removed; a device cannot, and keeps the data of its last user. Erasing its head is enough: the data
//! after it is only read through block headers that the new store writes, and the records of another store are not
//! valid in its blocks.

use crate::options::Options;
use crate::{Error, Result};
use duramen_log::format::{HEAD_BYTES, superblock};
use duramen_media::{Bytes, Create, Offset, PAGE_BYTES, Persistent};
use std::path::Path;

/// The part that must be zero for a device to count as empty.
const BYTES: u64 = 2 << 20;

/// Bytes that [`begins_store`] examines.
pub const STORE_HEAD_BYTES: usize = superblock::MAGIC.len();

/// Whether a file that begins with these bytes is a store, intact or not: a program that writes files can check this
/// before it overwrites one.
#[must_use]
pub fn begins_store(head: &[u8]) -> bool {
    head.starts_with(&superblock::MAGIC)
}

/// Erases the head of the medium at `path`, a store or anything else, so that a new store can be created there. Returns
/// the number of bytes erased.
///
/// Order: the copies of the superblock, which then record the erasure, the commit marks, then the rest, each durable
/// before the next. A crash in between leaves the store as it was, or none.
///
/// # Errors
/// When the medium cannot be opened, is in use, is already empty (`NotFound`), or is too small to hold a store
/// (`InvalidInput`): remove such a file instead.
pub fn erase(path: impl AsRef<Path>, options: &Options) -> Result<u64> {
    let options = Options { create: Create::OpenExisting, prefault: false, ..options.clone() };
    let medium = options.open_medium(path.as_ref())?;
    if medium.len() < HEAD_BYTES {
        return Err(Error::invalid(format!(
            "{} has {} bytes: it is no store, and is too small for one; remove it instead",
            path.as_ref().display(),
            medium.len()
        )));
    }
    let bytes = medium.len().min(BYTES);
    let zeros = vec![0; BYTES as usize];
    let mut erased = vec![0; PAGE_BYTES as usize];
    erased[superblock::ERASED_AT..][..superblock::ERASED.len()].copy_from_slice(&superblock::ERASED);
    let head = (0..HEAD_BYTES / PAGE_BYTES).map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES);
    for range in head.chain(std::iter::once(HEAD_BYTES..BYTES)) {
        let end = range.end.min(bytes);
        if range.start < end {
            let bytes = if range.start < 2 * PAGE_BYTES { &erased } else { &zeros };
            medium.write(Offset(range.start), &[&bytes[..(end - range.start) as usize]]);
            medium.drain();
            medium.sync()?;
        }
    }
    Ok(bytes)
}
