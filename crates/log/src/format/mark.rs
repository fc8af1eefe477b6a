//! Commit marks: the last epoch that is whole on the medium.
//!
//! Two marks alternate, so that the older one survives while the next is written. A mark proves its epoch: it carries
//! the number of the epoch's records and a sum over them that does not depend on their order. On page media the mark
//! and the records go to the device in one wait. Recovery counts the records of the newest mark's epoch, and falls back
//! to the other mark if they do not match.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 4 | magic, `MARK` |
//! | 4 | 4 | CRC-32C of bytes 0 to 63 with this field zero, begun with [`Secret::of_marks`] |
//! | 8 | 8 | epoch |
//! | 16 | 8 | records of the epoch |
//! | 24 | 8 | sum of [`record_sum`] over them, modulo 2^64 |
//! | 32 | 8 | time floor, Unix milliseconds |
//! | 40 | 4 | incarnation |
//! | 44 | 20 | zero |

use super::{Epoch, Secret, u32_at, u64_at};
use crate::format::holes::Holes;
use duramen_media::{Medium, Offset};

pub const BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"MARK";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub epoch: Epoch,
    pub records: u64,
    pub sum: u64,
    pub time_floor: u64,
    pub incarnation: u32,
}

/// The contribution of one record to its epoch's sum: depends on its content and its place.
pub fn record_sum(offset: Offset, crc: u32) -> u64 {
    // Two rounds of a multiply and shift mix; a sum of raw checksums would cancel too easily.
    let mut x = (offset.0 << 20) ^ u64::from(crc);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

/// Place of the mark of `slot` (0 or 1). Marks alternate by count of commits, not by epoch: between two epochs with
/// records, empty ones may be committed.
fn place(slot: usize) -> Offset {
    Offset(8192 + 4096 * slot as u64)
}

impl Mark {
    fn encode(&self, secret: Secret) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.records.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sum.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.time_floor.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.incarnation.to_le_bytes());
        let crc = crc32c::crc32c_append(secret.of_marks(), &bytes);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(secret: Secret, bytes: &[u8]) -> Option<Self> {
        let mut zeroed = [0; BYTES];
        zeroed.copy_from_slice(bytes.get(..BYTES)?);
        zeroed[4..8].fill(0);
        let wanted = crc32c::crc32c_append(secret.of_marks(), &zeroed);
        let whole = bytes[..4] == MAGIC && u32_at(bytes, 4) == wanted;
        (whole && u64_at(bytes, 8) < Epoch::MAX).then(|| Self {
            epoch: Epoch(u64_at(bytes, 8)),
            records: u64_at(bytes, 16),
            sum: u64_at(bytes, 24),
            time_floor: u64_at(bytes, 32),
            incarnation: u32_at(bytes, 40),
        })
    }

    /// Stores the mark and starts its write-back; the caller drains or syncs.
    pub fn write<M: Medium>(&self, medium: &M, secret: Secret, slot: usize) {
        let at = place(slot & 1);
        medium.store(at, &[&self.encode(secret)]);
        medium.flush(at, BYTES as u64);
    }

    /// Both marks, with their slots, newest first; without a mark that is torn, was never written or cannot be read.
    pub fn find<M: Medium>(medium: &M, secret: Secret, holes: &Holes<'_>) -> Vec<(usize, Self)> {
        let mut marks: Vec<_> = (0..2)
            .filter(|&slot| !holes.touch(place(slot).0, BYTES as u64))
            .filter_map(|slot| {
                // SAFETY: marks are written only after recovery, under the commit lock.
                let bytes = unsafe { medium.bytes(place(slot), BYTES as u64) };
                Self::decode(secret, bytes).map(|mark| (slot, mark))
            })
            .collect();
        marks.sort_by_key(|(_, mark)| std::cmp::Reverse(mark.epoch));
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_reads_back_and_flipped_bits_are_reported() {
        let mark = Mark { epoch: Epoch(5), records: 6, sum: 7, time_floor: 8, incarnation: 9 };
        let secret = Secret::new(3);
        let bytes = mark.encode(secret);
        assert_eq!(Mark::decode(secret, &bytes), Some(mark));
        assert_eq!(Mark::decode(Secret::new(4), &bytes), None);
        // Miri takes a second for a dozen.
        for bit in (0..BYTES * 8).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Mark::decode(secret, &flipped), None, "bit {bit}");
        }
    }
}
