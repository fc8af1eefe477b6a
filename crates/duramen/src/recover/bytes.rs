//! The bytes of a block, where some of them cannot be read.

use duramen_log::format::block::DataBlock;
use duramen_log::format::holes::Holes;
use duramen_log::read;
use duramen_media::{Medium, Offset};

/// The bytes of a block up to the first unreadable one, and the readable parts after it: where each begins in the
/// block, and its bytes. Of a sealed block only those up to its seal. (The block's header was read already.)
pub(crate) fn bytes_of<'m, M: Medium>(
    medium: &'m M,
    extent_bytes: u64,
    data: &DataBlock,
    holes: &Holes<'_>,
) -> (&'m [u8], Vec<(u64, &'m [u8])>) {
    let base = u64::from(data.extent.0) * extent_bytes;
    // Behind a seal nothing was appended. A block that was given back has no space there.
    let bytes = u64::from(data.header.extents) * extent_bytes;
    let bytes = data.header.seal.map_or(bytes, |(tail, _)| tail.min(bytes));
    let mut parts = holes.between(base, bytes).into_iter().map(|part| {
        let bytes = read::block(medium, Offset(part.start), part.end - part.start);
        (part.start - base, bytes)
    });
    (parts.next().map_or(&[], |(_, bytes)| bytes), parts.collect())
}
