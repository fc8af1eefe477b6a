//! The index checkpoint: a copy of the index on the medium, so that the next open need not read every record.
//!
//! A checkpoint is a *root*, whose place and checksum are in the superblock, and *pages*, which the root lists. All of
//! them are in *runs*: blocks that are sealed at their beginning, so they hold no records. A recovery that knows
//! nothing of the checkpoint finds them empty and frees them.
//!
//! Root:
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | magic, `DURIMAGE` |
//! | 8 | 4 | version of the checkpoint: 7 |
//! | 12 | 1 | kind of index of the store's own table (0 hash, 1 ordered) |
//! | 13 | 1 | 1: written at a clean close, and the list of blocks includes those not kept |
//! | 14 | 1 | 1: counts in it are estimates, since a checkpoint before it was used after a crash |
//! | 15 | 1 | zero |
//! | 16 | 8 | store id |
//! | 24 | 8 | the last epoch that it covers |
//! | 32 | 4 | runs |
//! | 36 | 4 | blocks |
//! | 40 | 4 | pages |
//! | 44 | 4 | tables |
//! | 48 | 8 | the greatest version assigned to a record |
//! | 56 | 4 | roots of collections |
//! | 60 | 4 | zero |
//! | 64 | | runs, 8 bytes each: first extent (4), extents (4) |
//! | | | blocks, 32 bytes each: see [`Kept`] |
//! | | | pages, 24 bytes each: where its keys begin (8), place (8), bytes (4), CRC-32C (4) |
//! | | | tables and collections, 40 bytes each, whose pages and roots follow each other in this order: see [`TablePages`] |
//! | | | roots of collections, 8 bytes each: place of the record |
//!
//! The index defines the content of a page: see `index::hash::checkpoint`, `index::ordered::checkpoint` and
//! `index::collection::checkpoint`.
//!
//! The checkpoint is a hint. Builds that do not know it ignore it, and their first update of the superblock drops it;
//! so it needs no version of the format.

use super::{Epoch, Extent, Generation, Owner, Version, block, u32_at, u64_at};
use duramen_media::Offset;

const MAGIC: [u8; 8] = *b"DURIMAGE";
const VERSION: u32 = 7;
const FIXED_BYTES: usize = 64;
const RUN_BYTES: usize = 8;
const KEPT_BYTES: usize = 32;
const PAGE_BYTES: usize = 24;
const TABLE_BYTES: usize = 40;
const ROOT_BYTES: usize = 8;

/// A block that recovery need not read, since the checkpoint holds everything about it.
///
/// | offset | bytes | meaning |
/// |---|---|---|
/// | 0 | 4 | first extent |
/// | 4 | 4 | extents |
/// | 8 | 8 | generation |
/// | 16 | 4 | tail / 8, as in its seal; 0: this block must be read |
/// | 20 | 4 | bytes of records that the index points to |
/// | 24 | 4 | when the first record expires, in Unix seconds; 2^32 - 1: never |
/// | 28 | 1 | [`Damage`]: 0 none known, 1 damaged, 2 damaged and the index does not know all damaged records |
/// | 29 | 3 | zero |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    pub extent: Extent,
    pub extents: u32,
    pub generation: Generation,
    pub tail: u64,
    pub live: u32,
    pub expiry: u32,
    pub damage: Damage,
}

/// The known damage of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Damage {
    #[default]
    None,
    /// Slots point to each damaged record that a key needs.
    Known,
    /// Recovery read the block, and damaged records have no slots.
    Unknown,
}

impl Damage {
    fn decode(word: u32) -> Self {
        match word {
            0 => Self::None,
            1 => Self::Known,
            _ => Self::Unknown,
        }
    }
}

impl Kept {
    /// Whether its records must be read nevertheless.
    pub fn is_unknown(&self) -> bool {
        self.tail == 0
    }
}

/// A block that holds a part of a checkpoint: its first extent, and its number of extents.
pub type ExtentRun = (Extent, u32);

/// Place and checksum of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub first: u64,
    pub at: u64,
    pub bytes: u32,
    pub crc: u32,
}

/// The part of a checkpoint that belongs to one table or collection.
///
/// | offset | bytes | meaning |
/// |---|---|---|
/// | 0 | 8 | its owner |
/// | 8 | 8 | slots in its pages |
/// | 16 | 8 | number of these slots that are not tombstones |
/// | 24 | 4 | pages |
/// | 28 | 4 | of a collection, the roots that name it |
/// | 32 | 1 | 1: the pages are not of one moment |
/// | 33 | 7 | zero |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePages {
    pub owner: Owner,
    pub slots: u64,
    pub keys: u64,
    pub pages: u32,
    pub roots: u32,
    pub changed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub kind: u8,
    pub at_close: bool,
    pub estimated: bool,
    pub store_id: u64,
    pub epoch: Epoch,
    /// No record has a higher one.
    pub version: Version,
    /// Includes the run of the root, and at a close the runs of the previous checkpoint.
    pub runs: Vec<ExtentRun>,
    pub blocks: Vec<Kept>,
    pub pages: Vec<Page>,
    pub tables: Vec<TablePages>,
    /// Places of the roots of collections.
    pub roots: Vec<Offset>,
}

impl Root {
    pub fn bytes(&self) -> usize {
        FIXED_BYTES
            + self.runs.len() * RUN_BYTES
            + self.blocks.len() * KEPT_BYTES
            + self.pages.len() * PAGE_BYTES
            + self.tables.len() * TABLE_BYTES
            + self.roots.len() * ROOT_BYTES
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[self.kind, u8::from(self.at_close), u8::from(self.estimated), 0]);
        bytes.extend_from_slice(&self.store_id.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        for count in [self.runs.len(), self.blocks.len(), self.pages.len(), self.tables.len()] {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&self.version.0.to_le_bytes());
        bytes.extend_from_slice(&(self.roots.len() as u64).to_le_bytes());
        for (extent, extents) in &self.runs {
            bytes.extend_from_slice(&extent.0.to_le_bytes());
            bytes.extend_from_slice(&extents.to_le_bytes());
        }
        for kept in &self.blocks {
            bytes.extend_from_slice(&kept.extent.0.to_le_bytes());
            bytes.extend_from_slice(&kept.extents.to_le_bytes());
            bytes.extend_from_slice(&kept.generation.0.to_le_bytes());
            for word in [(kept.tail / 8) as u32, kept.live, kept.expiry, kept.damage as u32] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        for page in &self.pages {
            bytes.extend_from_slice(&page.first.to_le_bytes());
            bytes.extend_from_slice(&page.at.to_le_bytes());
            bytes.extend_from_slice(&page.bytes.to_le_bytes());
            bytes.extend_from_slice(&page.crc.to_le_bytes());
        }
        for table in &self.tables {
            let counts = u64::from(table.pages) | u64::from(table.roots) << 32;
            for word in [table.owner.0, table.slots, table.keys, counts, table.changed.into()] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        for root in &self.roots {
            bytes.extend_from_slice(&root.0.to_le_bytes());
        }
        bytes
    }

    /// Reads a root whose checksum is right, in a store of `extents` extents; `Err` states what was found and wanted.
    pub fn decode(bytes: &[u8], extents: u32, extent_bytes: u64) -> Result<Self, String> {
        if bytes.len() < FIXED_BYTES || bytes[..8] != MAGIC {
            return Err("its beginning is not \"DURIMAGE\"".into());
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(format!("its version is {}, this build reads {VERSION}", u32_at(bytes, 8)));
        }
        let counts = [32, 36, 40, 44, 56].map(|at| u32_at(bytes, at) as usize);
        let sizes = [RUN_BYTES, KEPT_BYTES, PAGE_BYTES, TABLE_BYTES, ROOT_BYTES];
        let wanted = FIXED_BYTES + counts.iter().zip(sizes).map(|(count, size)| count * size).sum::<usize>();
        if bytes.len() != wanted {
            return Err(format!("it has {} bytes, its counts say {wanted}", bytes.len()));
        }
        let mut rest = &bytes[FIXED_BYTES..];
        let mut part = |index: usize| {
            let (part, behind) = rest.split_at(counts[index] * sizes[index]);
            rest = behind;
            part.chunks_exact(sizes[index])
        };
        let runs: Vec<_> = part(0).map(|b| (Extent(u32_at(b, 0)), u32_at(b, 4))).collect();
        let blocks: Vec<_> = part(1)
            .map(|b| Kept {
                extent: Extent(u32_at(b, 0)),
                extents: u32_at(b, 4),
                generation: Generation(u64_at(b, 8)),
                tail: u64::from(u32_at(b, 16)) * 8,
                live: u32_at(b, 20),
                expiry: u32_at(b, 24),
                damage: Damage::decode(u32_at(b, 28)),
            })
            .collect();
        let pages: Vec<_> = part(2)
            .map(|b| Page { first: u64_at(b, 0), at: u64_at(b, 8), bytes: u32_at(b, 16), crc: u32_at(b, 20) })
            .collect();
        let tables: Vec<_> = part(3)
            .map(|b| TablePages {
                owner: Owner(u64_at(b, 0)),
                slots: u64_at(b, 8),
                keys: u64_at(b, 16),
                pages: u32_at(b, 24),
                roots: u32_at(b, 28),
                changed: b[32] != 0,
            })
            .collect();
        let roots: Vec<_> = part(4).map(|b| Offset(u64_at(b, 0))).collect();
        let sum = |of: fn(&TablePages) -> u32| tables.iter().map(|table| u64::from(of(table))).sum::<u64>();
        let (of_pages, of_roots) = (sum(|table| table.pages), sum(|table| table.roots));
        if (of_pages, of_roots) != (pages.len() as u64, roots.len() as u64) {
            return Err(format!(
                "it has {} pages and {} roots, its tables say {of_pages} and {of_roots}",
                pages.len(),
                roots.len()
            ));
        }
        let root = Self {
            kind: bytes[12],
            at_close: bytes[13] != 0,
            estimated: bytes[14] != 0,
            store_id: u64_at(bytes, 16),
            epoch: Epoch(u64_at(bytes, 24)),
            version: Version(u64_at(bytes, 48)),
            runs,
            blocks,
            pages,
            tables,
            roots,
        };
        root.check_places(extents, extent_bytes)?;
        Ok(root)
    }

    /// Checks that every place it lists is in a store of `extents` extents.
    fn check_places(&self, extents: u32, extent_bytes: u64) -> Result<(), String> {
        let within =
            |extent: u32, more: u32| more > 0 && u64::from(extent) + u64::from(more) <= u64::from(extents);
        let wrong_block = self.blocks.iter().find(|kept| {
            let bytes = u64::from(kept.extents) * extent_bytes;
            let is_tail = kept.is_unknown() || (block::HEADER_BYTES..=bytes).contains(&kept.tail);
            !within(kept.extent.0, kept.extents) || !is_tail
        });
        if let Some(kept) = wrong_block {
            return Err(format!("its block at extent {} is not one of this store", kept.extent.0));
        }
        if let Some((extent, _)) = self.runs.iter().find(|(extent, more)| !within(extent.0, *more)) {
            return Err(format!("its run at extent {} is not one of this store", extent.0));
        }
        let end = u64::from(extents) * extent_bytes;
        let lies_outside =
            |page: &&Page| page.at.checked_add(u64::from(page.bytes)).is_none_or(|to| to > end);
        if let Some(page) = self.pages.iter().find(lies_outside) {
            return Err(format!("its page at offset {:#x} is beyond the end", page.at));
        }
        if let Some(root) = self.roots.iter().find(|root| root.0 >= end || !root.0.is_multiple_of(8)) {
            return Err(format!("its root of a collection at offset {root} is not in this store"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Root {
        let kept = |extent, tail| Kept {
            extent: Extent(extent),
            extents: 2,
            generation: Generation(7 << 40 | 3),
            tail,
            live: 40,
            expiry: u32::MAX,
            damage: if tail == 0 { Damage::Unknown } else { Damage::Known },
        };
        Root {
            kind: 1,
            at_close: true,
            estimated: true,
            store_id: 5,
            epoch: Epoch(9),
            version: Version(6),
            runs: vec![(Extent(3), 1), (Extent(4), 2)],
            blocks: vec![kept(6, 128), kept(8, 0)],
            pages: vec![Page { first: 0, at: 4096 * 3 + 64, bytes: 100, crc: 1 }],
            tables: vec![TablePages {
                owner: Owner::STORE,
                slots: 5,
                keys: 4,
                pages: 1,
                roots: 2,
                changed: true,
            }],
            roots: vec![Offset(4096), Offset(8)],
        }
    }

    #[test]
    fn a_checkpoint_root_reads_back() {
        assert_eq!(Root::decode(&sample().encode(), 10, 4096).unwrap(), sample());
    }

    #[test]
    fn a_root_that_points_out_of_the_store_is_refused() {
        let bytes = sample().encode();
        for (extents, wanted) in
            [(9, "block at extent 8"), (7, "block at extent 6"), (5, "block at extent 6")]
        {
            assert!(Root::decode(&bytes, extents, 4096).unwrap_err().contains(wanted), "{extents}");
        }
        let long = Root { blocks: vec![Kept { tail: 8200, ..sample().blocks[0] }], ..sample() };
        assert!(Root::decode(&long.encode(), 10, 4096).unwrap_err().contains("block at extent 6"));
        let behind = Root { runs: vec![(Extent(9), 2)], ..sample() };
        assert!(Root::decode(&behind.encode(), 10, 4096).unwrap_err().contains("run at extent 9"));
        let far = Root { pages: vec![Page { at: u64::MAX, ..sample().pages[0] }], ..sample() };
        assert!(Root::decode(&far.encode(), 10, 4096).unwrap_err().contains("beyond the end"));
        let outside = Root { roots: vec![Offset(8), Offset(40_960)], ..sample() };
        assert!(Root::decode(&outside.encode(), 10, 4096).unwrap_err().contains("root of a collection"));
        let few = Root { roots: vec![Offset(8)], ..sample() };
        assert!(Root::decode(&few.encode(), 10, 4096).unwrap_err().contains("and 1 roots"));
        for cut in [0, 63, bytes.len() - 1] {
            assert!(Root::decode(&bytes[..cut], 10, 4096).is_err(), "{cut}");
        }
    }
}
