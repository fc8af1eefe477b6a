//! Superblock, commit mark and block header from any bytes: an error or a header, never a panic. Checksums are
//! corrected first, so that the input reaches the checks after them.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// Bytes of a superblock and of a commit mark, and where each keeps its checksum, which is computed with the checksum's
/// own bytes zero.
const SUPERBLOCK: (usize, usize) = (128, 12);
const MARK: (usize, usize) = (64, 4);
const MARK_MAGIC: &[u8] = b"MARK";

fn with_checksum(data: &[u8], magic: &[u8], (bytes, checksum_at): (usize, usize)) -> Vec<u8> {
    let mut mended = data.to_vec();
    mended.resize(mended.len().max(bytes), 0);
    mended[..magic.len()].copy_from_slice(magic);
    mended[checksum_at..checksum_at + 4].fill(0);
    let checksum = crc32c::crc32c(&mended[..bytes]);
    mended[checksum_at..checksum_at + 4].copy_from_slice(&checksum.to_le_bytes());
    mended
}

fuzz_target!(|data: &[u8]| {
    duramen::fuzzing::heads(data);
    duramen::fuzzing::heads(&with_checksum(data, b"DURAMEN1", SUPERBLOCK));
    duramen::fuzzing::heads(&with_checksum(data, MARK_MAGIC, MARK));
});
