//! Records from any block: the walk ends and nothing panics. Checksums are corrected first, so that the input reaches
//! the checks after them: records of odd kinds and lengths, and batches of such records.

#![no_main]

use libfuzzer_sys::fuzz_target;

// A record's layout, and the seed that `duramen::fuzzing::records` reads with.
const HEADER_BYTES: usize = 24;
const EXPIRY_BYTES: usize = 8;
const EXPIRES: u8 = 1;
const CELL: u8 = 4;
const BATCH: u8 = 5;
const SEED: u32 = 1;

/// Gives each record its right checksum, one after the other, and the records inside a batch first.
fn mend(block: &mut [u8], inside_batch: bool) {
    let mut at = 0;
    while let Some(bytes) = block.get_mut(at..).filter(|bytes| bytes.len() >= HEADER_BYTES) {
        let (kind, flags) = (bytes[4] & 15, bytes[4] >> 4);
        let sizes = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
        let key_bytes = usize::from(u16::from_le_bytes([bytes[6], bytes[7]])) | (sizes >> 30 & 1) << 16;
        let key_at = HEADER_BYTES + if flags & EXPIRES != 0 { EXPIRY_BYTES } else { 0 };
        let value_at = key_at + key_bytes;
        let end = value_at + (sizes & ((1 << 30) - 1));
        if end > bytes.len() {
            return;
        }
        if kind == BATCH && !inside_batch {
            mend(&mut bytes[value_at..end], true);
        }
        let body_end = if kind == CELL { value_at } else { end };
        let body = crc32c::crc32c_append(SEED, &bytes[key_at..body_end]);
        let checksum = crc32c::crc32c_append(body, &bytes[4..key_at]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        at += end.next_multiple_of(8);
    }
}

fuzz_target!(|data: &[u8]| {
    duramen::fuzzing::records(data);
    let mut mended = data.to_vec();
    mend(&mut mended, false);
    duramen::fuzzing::records(&mended);
});
