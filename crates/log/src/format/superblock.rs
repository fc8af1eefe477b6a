//! The superblock: the identity of the store, and how it was last opened.
//!
//! Two copies hold the same content. An update writes one, persists it, then writes and persists the other, so at every
//! moment one of them is whole. The first update after an open begins with the copy that was *not* read: a crash may
//! have left it broken, or older. While a store is created, the magic word is written last: until then the medium is
//! not a store.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `DURAMEN1` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of bytes 0 to 191 with this field zero |
//! | 16 | 8 | store id: random, chosen at creation, seeds the hash |
//! | 24 | 8 | sequence: counts superblock updates |
//! | 32 | 4 | extent bytes |
//! | 36 | 1 | index kind (0 hash) |
//! | 37 | 1 | index residence (0 dram) |
//! | 38 | 1 | state (1 open, 2 closed cleanly) |
//! | 39 | 1 | durability of this incarnation ([`Regime`]) |
//! | 40 | 4 | incarnation: counts opens, from a number below 2^22 drawn when the store is created |
//! | 44 | 4 | zero |
//! | 48 | 16 | kernel's boot id at the last open |
//! | 64 | 8 | epoch base: the first epoch of this incarnation; all earlier ones are final |
//! | 72 | 8 | time floor, Unix milliseconds: the store's clock never shows less |
//! | 80 | 8 | creation time, Unix milliseconds |
//! | 88 | 8 | extents in use by the store, head included |
//! | 96 | 8 | place of the root of the index checkpoint (see [`super::checkpoint`]); 0: there is none |
//! | 104 | 8 | bytes of the root |
//! | 112 | 4 | CRC-32C of the root |
//! | 116 | 1 | 1: closed cleanly, and every data block was sealed |
//! | 117 | 3 | zero |
//! | 120 | 8 | zero; `ERASED01` where a head was erased on purpose, and the magic is zero: see [`ERASED`] |
//! | 128 | 8 | the secret: random, drawn at creation, never 0 ([`Secret`]) |
//! | 136 | 56 | zero |

use super::{Epoch, FORMAT_VERSION, HEAD_BYTES, Secret, u32_at, u64_at};
use crate::format::holes::Holes;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Medium, Offset};

pub const MAGIC: [u8; 8] = *b"DURAMEN1";
pub const BYTES: usize = 192;
const COPIES: [Offset; 2] = [Offset(0), Offset(4096)];
/// As boot id: it is unknown whether the machine has been rebooted since.
pub const BOOT_UNKNOWN: [u8; 16] = [0; 16];
/// Left by `erase` in both copies, at [`ERASED_AT`]: the data after the head is not wanted, so a new store may be
/// created over it. It stays in the second copy until the first one is whole.
pub const ERASED: [u8; 8] = *b"ERASED01";
pub const ERASED_AT: usize = 120;
/// In so many bytes of a device any file system has a byte that is not zero. The last is btrfs, at 64 KiB.
const USED_BYTES_MAX: u64 = 2 << 20;
const CRC_AT: usize = 12;
const SECRET_AT: usize = 128;
/// The first version that has a secret, and the bytes of a copy before it, so that an older store is recognized by its
/// version.
const VERSION_OF_SECRET: u32 = 4;
const BYTES_BEFORE_SECRET: usize = 128;

// The smallest extent holds a block header and one small record; the largest keeps extent counts of
// any medium in 32 bits.
pub const EXTENT_BYTES_MIN: u32 = 512;
pub const EXTENT_BYTES_MAX: u32 = 64 << 20;

/// How writes of one incarnation became durable; recovery interprets a crash by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Regime {
    /// Each record was durable before it was acknowledged: every valid record counts.
    Immediate = 0,
    /// Epochs; after a mere process crash every valid record counts, after a reboot only those of committed epochs.
    Epochs = 1,
    /// Epochs; only committed ones ever count.
    Manual = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub store_id: u64,
    pub secret: Secret,
    pub sequence: u64,
    pub extent_bytes: u32,
    pub clean: bool,
    /// Every data block was sealed when it was closed cleanly: an unsealed one is damaged.
    pub sealed: bool,
    pub regime: Regime,
    pub incarnation: u32,
    pub boot_id: [u8; 16],
    pub epoch_base: u64,
    pub time_floor: u64,
    pub created: u64,
    pub extents: u32,
    pub checkpoint: Option<CheckpointPlace>,
}

/// Place and checksum of the root of an index checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPlace {
    pub at: u64,
    pub bytes: u64,
    pub crc: u32,
}

/// The content of the head of a medium.
#[derive(Debug)]
pub enum Found {
    /// Nothing was ever written here, or a creation did not finish.
    Nothing,
    /// A store, read from `copy` (0 or 1); `damaged` describes the other copy when it is not whole.
    Store { superblock: Superblock, copy: usize, damaged: Option<String> },
}

impl Superblock {
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.store_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.extent_bytes.to_le_bytes());
        bytes[38] = if self.clean { 2 } else { 1 };
        bytes[39] = self.regime as u8;
        bytes[40..44].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.boot_id);
        bytes[64..72].copy_from_slice(&self.epoch_base.to_le_bytes());
        bytes[72..80].copy_from_slice(&self.time_floor.to_le_bytes());
        bytes[80..88].copy_from_slice(&self.created.to_le_bytes());
        bytes[88..96].copy_from_slice(&u64::from(self.extents).to_le_bytes());
        if let Some(checkpoint) = self.checkpoint {
            bytes[96..104].copy_from_slice(&checkpoint.at.to_le_bytes());
            bytes[104..112].copy_from_slice(&checkpoint.bytes.to_le_bytes());
            bytes[112..116].copy_from_slice(&checkpoint.crc.to_le_bytes());
        }
        bytes[116] = self.sealed.into();
        bytes[SECRET_AT..SECRET_AT + 8].copy_from_slice(&self.secret.word().to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads one copy. The error states what was found and wanted.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let bytes = whole(bytes)?;
        let field = |name: &str, found: u64, wanted: &str| {
            Err(Error::corrupt(format!("superblock field {name} is {found}, wanted {wanted}")))
        };
        let extent_bytes = u32_at(bytes, 32);
        if !(EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes) || !extent_bytes.is_multiple_of(64)
        {
            return field("extent bytes", u64::from(extent_bytes), "a multiple of 64 from 512 to 64 MiB");
        }
        if bytes[36] != 0 {
            return field("index kind", u64::from(bytes[36]), "0 (hash)");
        }
        if bytes[37] != 0 {
            return field("index residence", u64::from(bytes[37]), "0 (dram)");
        }
        let clean = match bytes[38] {
            1 => false,
            2 => true,
            other => return field("state", u64::from(other), "1 (open) or 2 (closed)"),
        };
        let regime = match bytes[39] {
            0 => Regime::Immediate,
            1 => Regime::Epochs,
            2 => Regime::Manual,
            other => return field("durability", u64::from(other), "0, 1 or 2"),
        };
        let extents = match u32::try_from(u64_at(bytes, 88)) {
            Ok(extents) if u64::from(extents) * u64::from(extent_bytes) >= HEAD_BYTES => extents,
            _ => return field("extents", u64_at(bytes, 88), "enough for the head, below 2^32"),
        };
        if !(1..Epoch::MAX).contains(&u64_at(bytes, 64)) {
            return field("epoch base", u64_at(bytes, 64), "1 to 2^44 - 2");
        }
        let Some(secret) = Secret::of_word(u64_at(bytes, SECRET_AT)) else {
            return field("secret", 0, "a number other than 0");
        };
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&bytes[48..64]);
        Ok(Self {
            store_id: u64_at(bytes, 16),
            secret,
            sequence: u64_at(bytes, 24),
            extent_bytes,
            clean,
            // Builds without this field wrote 0.
            sealed: clean && bytes[116] == 1,
            regime,
            incarnation: u32_at(bytes, 40),
            boot_id,
            epoch_base: u64_at(bytes, 64),
            time_floor: u64_at(bytes, 72),
            created: u64_at(bytes, 80),
            extents,
            checkpoint: (u64_at(bytes, 96) != 0).then(|| CheckpointPlace {
                at: u64_at(bytes, 96),
                bytes: u64_at(bytes, 104),
                crc: u32_at(bytes, 112),
            }),
        })
    }

    /// Reads the head of a medium.
    ///
    /// # Errors
    /// `Corrupt` when neither copy is whole, or when something other than a store is there; `Unsupported` when a newer
    /// format is there.
    ///
    /// `opened` searches for a block that was ever opened, if both copies are lost.
    pub fn find<M: Medium>(medium: &M, opened: impl FnOnce(&M) -> Option<Offset>) -> Result<Found> {
        if medium.len() < HEAD_BYTES {
            return Err(Error::corrupt(format!(
                "the medium has {} bytes, a store has at least {HEAD_BYTES}",
                medium.len()
            )));
        }
        let holes = Holes::of(medium, HEAD_BYTES);
        let copies = COPIES.map(|at| {
            if holes.touch(at.0, BYTES as u64) {
                return Err(Error::corrupt("superblock cannot be read"));
            }
            // SAFETY: nothing writes to a medium before its superblock was found or made.
            Self::decode(unsafe { medium.bytes(at, BYTES as u64) })
        });
        match copies {
            [Ok(a), Ok(b)] => {
                let copy = usize::from(a.sequence < b.sequence);
                Ok(Found::Store { superblock: [a, b][copy], copy, damaged: None })
            }
            // A newer format in either copy decides: its other copy may look damaged to this build.
            [Err(e), _] | [_, Err(e)] if e.kind() == ErrorKind::Unsupported => Err(e),
            [Ok(superblock), Err(e)] => {
                let damaged = Some(format!("copy 1 at offset 4096: {e}"));
                Ok(Found::Store { superblock, copy: 0, damaged })
            }
            [Err(e), Ok(superblock)] => {
                let damaged = Some(format!("copy 0 at offset 0: {e}"));
                Ok(Found::Store { superblock, copy: 1, damaged })
            }
            [Err(first), Err(second)] if holes.touch(0, HEAD_BYTES) => Err(Error::corrupt(format!(
                "neither superblock is whole (copy 0: {first}; copy 1: {second}), and part of the head cannot be read: {}",
                holes.damage().collect::<Vec<_>>().join("; ")
            ))),
            [Err(first), Err(second)] => {
                // SAFETY: nothing writes to a medium before its superblock was found or made.
                let head = unsafe { medium.bytes(Offset(0), HEAD_BYTES) };
                // While a store is created its magic words are written last; before that, only the two superblocks can
                // hold anything.
                let magics_zero = COPIES.iter().all(|at| u64_at(head, at.0 as usize) == 0);
                let rest_zero =
                    head[BYTES..4096].iter().all(|&b| b == 0) && head[4096 + BYTES..].iter().all(|&b| b == 0);
                let erased = COPIES.iter().any(|at| head[at.0 as usize + ERASED_AT..][..8] == ERASED);
                let nothing = magics_zero && rest_zero;
                if nothing && erased {
                    return Ok(Found::Nothing);
                }
                match opened(medium) {
                    Some(at) => Err(Error::corrupt(format!(
                        "neither superblock is whole (copy 0: {first}; copy 1: {second}), but a block of a store that was \
                         written to is at offset {at}: the head of the store is lost; nothing was changed; run \
                         \"duramen check --salvage NEW\" to save the valid records"
                    ))),
                    None if nothing && !is_used_behind_head(medium) => Ok(Found::Nothing),
                    None => Err(Error::corrupt(format!(
                        "neither superblock is whole (copy 0: {first}; copy 1: {second}): this is not a \
                         Duramen store, or its head was overwritten; check the path, or, to discard its content, \
                         make room for a new store with \"duramen erase --force\""
                    ))),
                }
            }
        }
    }

    /// Writes both copies, each durable before the next is touched. Only while both hold the same.
    pub fn persist<M: Medium>(&self, medium: &M) -> Result<()> {
        self.persist_from(medium, 0)
    }

    /// Like `persist`, with copy `first` (0 or 1) before the other.
    pub fn persist_from<M: Medium>(&self, medium: &M, first: usize) -> Result<()> {
        let bytes = self.encode();
        for at in [COPIES[first], COPIES[1 - first]] {
            // The magic word is the commit: everything else of the copy is durable before it. When the copy already has
            // its magic, the checksum detects a torn write.
            medium.store(at.plus(8), &[&bytes[8..]]);
            medium.persist(at.plus(8), BYTES as u64 - 8);
            medium.publish(at, u64_at(&bytes, 0));
            medium.sync()?;
        }
        Ok(())
    }
}

/// Whether a device, which shows what its last user left, is in use behind a head that is zero: some file systems leave
/// their first bytes to a boot loader.
fn is_used_behind_head<M: Medium>(medium: &M) -> bool {
    let end = medium.len().min(USED_BYTES_MAX);
    if medium.unwritten_is_zero() || end <= HEAD_BYTES {
        return false;
    }
    // SAFETY: nothing writes to a medium before its superblock was found or made.
    let is_zero =
        || unsafe { medium.bytes(Offset(HEAD_BYTES), end - HEAD_BYTES) }.iter().all(|&byte| byte == 0);
    Holes::of(medium, end).touch(HEAD_BYTES, end - HEAD_BYTES) || !is_zero()
}

/// Notes durably that what follows the head is not wanted.
///
/// # Errors
/// A failed sync.
pub fn mark_erased<M: Medium>(medium: &M) -> Result<()> {
    for at in COPIES {
        medium.publish(at.plus(ERASED_AT as u64), u64::from_le_bytes(ERASED));
    }
    Ok(medium.sync()?)
}

/// The bytes of a copy that is whole and of the format that this build reads.
fn whole(bytes: &[u8]) -> Result<&[u8]> {
    if bytes.len() < BYTES {
        return Err(Error::corrupt(format!("superblock has {} bytes, wanted {BYTES}", bytes.len())));
    }
    let bytes = &bytes[..BYTES];
    if bytes[..8] != MAGIC {
        return Err(Error::corrupt(format!(
            "superblock begins with {:02x?}, wanted {:02x?} (\"DURAMEN1\")",
            &bytes[..8],
            MAGIC
        )));
    }
    let unsupported =
        |why: String| Err(Error::new(ErrorKind::Unsupported, format!("format version is {why}")));
    let version = u32_at(bytes, 8);
    if version > FORMAT_VERSION {
        return unsupported(format!(
            "{version}, this build reads up to {FORMAT_VERSION}: open it with a newer duramen"
        ));
    }
    let mut zeroed = [0; BYTES];
    zeroed.copy_from_slice(bytes);
    zeroed[CRC_AT..CRC_AT + 4].fill(0);
    let covered = if version < VERSION_OF_SECRET { BYTES_BEFORE_SECRET } else { BYTES };
    let (found, wanted) = (u32_at(bytes, CRC_AT), crc32c::crc32c(&zeroed[..covered]));
    if found != wanted {
        return Err(Error::corrupt(format!("superblock has checksum {found:#010x}, wanted {wanted:#010x}")));
    }
    if version != FORMAT_VERSION {
        return unsupported(format!(
            "{version}, this build reads only {FORMAT_VERSION}: export the store to a file with \"duramen dump\" of the build that \
             wrote it, and import the file into a new store with \"duramen load\" of this build"
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            store_id: 7,
            secret: Secret::new(8),
            sequence: 3,
            extent_bytes: 24 << 10,
            clean: true,
            sealed: true,
            regime: Regime::Epochs,
            incarnation: 9,
            boot_id: [5; 16],
            epoch_base: 11,
            time_floor: 12,
            created: 13,
            extents: 14,
            checkpoint: Some(CheckpointPlace { at: 15, bytes: 16, crc: 17 }),
        }
    }

    #[test]
    fn superblock_reads_back() {
        for superblock in [sample(), Superblock { checkpoint: None, ..sample() }] {
            assert_eq!(Superblock::decode(&superblock.encode()).unwrap(), superblock);
        }
    }

    #[test]
    fn every_flipped_bit_is_reported() {
        let bytes = sample().encode();
        // Miri takes a second for a dozen.
        for bit in (0..BYTES * 8).step_by(if cfg!(miri) { 37 } else { 1 }) {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&flipped).is_err(), "bit {bit}");
        }
    }
}
