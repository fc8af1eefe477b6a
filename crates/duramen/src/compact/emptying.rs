//! A block that is moved out of: its records, and the outcome of each.

use crate::cell::read::CellCopy;
use crate::compact::blocks::Found;
use crate::compact::stale::KeyOf;
use duramen_index::Hasher;
use duramen_log::format::Extent;
use duramen_log::format::Owner;
use duramen_log::format::record::{Appended, Header, Kind};
use duramen_media::Offset;
use std::collections::{HashMap, HashSet};

/// A record of a block, or of a copy of it.
#[derive(Clone, Copy)]
pub(crate) struct BlockRecord<'b> {
    pub of: KeyOf<'b>,
    /// Where it lies on the medium.
    pub place: Offset,
    pub header: &'b Header,
    /// The bytes that begin with it.
    pub record: &'b [u8],
}

impl<'b> BlockRecord<'b> {
    /// The record `found` in `block`, which begins at `base` on the medium.
    pub(crate) fn new(base: u64, block: &'b [u8], found: &'b Found, hasher: &Hasher) -> Self {
        let (at, header) = found;
        let record = &block[*at as usize..];
        let key = header.key(record);
        let of = KeyOf { owner: header.owner, key, hash: hasher.hash(key) };
        Self { of, place: Offset(base + at), header, record }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.header.record_bytes()
    }
}

/// The records of a block, in their order.
pub(crate) struct Contents<'b> {
    pub extent: Extent,
    pub records: Vec<BlockRecord<'b>>,
}

impl<'b> Contents<'b> {
    /// Of the block of `extent`, which begins at `base` and has these bytes.
    pub(crate) fn new(
        extent: Extent,
        base: u64,
        bytes: &'b [u8],
        records: &'b [Found],
        hasher: &Hasher,
    ) -> Self {
        let block_record = |found| BlockRecord::new(base, bytes, found, hasher);
        Self { extent, records: records.iter().map(block_record).collect() }
    }

    /// Bytes of the records that `which` selects.
    pub(crate) fn bytes_of(&self, which: &[bool]) -> u64 {
        let chosen = self.records.iter().zip(which).filter(|(_, which)| **which);
        chosen.map(|(block_record, _)| block_record.bytes()).sum()
    }
}

/// A live record that was copied; its key's slot points to the original until the copy is durable.
pub(crate) struct Move<'b> {
    pub block_record: BlockRecord<'b>,
    pub copy: Appended,
    /// Another thread wrote the key before its slot pointed to the copy.
    pub is_superseded: bool,
}

/// The record that supersedes another one of its key, by compaction or eviction.
pub(crate) struct Successor {
    pub kind: Kind,
    pub tag: u8,
    pub expires_at: Option<u64>,
    /// `None`: empty.
    pub value: Option<CellCopy>,
}

/// A record that goes without a tombstone.
pub(crate) struct EvictedRecord<'b> {
    pub block_record: BlockRecord<'b>,
    /// Older records of the key in the same block.
    pub dead_here: u64,
}

/// The outcome of the records of a block.
pub(crate) struct Emptied<'b> {
    /// By key: keys that share a hash do not share their dead.
    pub dead: Vec<KeyOf<'b>>,
    /// The number of dead records of each key, computed at first use.
    counts: Option<HashMap<(Owner, &'b [u8]), u64>>,
    pub moves: Vec<Move<'b>>,
    /// Keys that already have another record (moved cells and evicted keys), and the bytes of the one here.
    pub replaced: Vec<(KeyOf<'b>, u64)>,
    /// Tombstones that hide nothing.
    pub drops: Vec<BlockRecord<'b>>,
    pub evicted: Vec<EvictedRecord<'b>>,
    /// Bytes of all records that are not needed any more.
    pub gone: u64,
}

impl<'b> Emptied<'b> {
    /// Of a block with `records` records.
    pub(crate) fn new(records: usize) -> Self {
        Self {
            dead: Vec::with_capacity(records),
            counts: None,
            moves: Vec::with_capacity(records),
            replaced: Vec::new(),
            drops: Vec::new(),
            evicted: Vec::new(),
            gone: 0,
        }
    }

    /// A record that no slot points to.
    pub(crate) fn add_dead(&mut self, block_record: &BlockRecord<'b>) {
        self.dead.push(block_record.of);
        if let Some(counts) = &mut self.counts {
            *counts.entry((block_record.of.owner, block_record.of.key)).or_default() += 1;
        }
        self.gone += block_record.bytes();
    }

    /// A record whose key got another one, unless it was superseded meanwhile.
    pub(crate) fn add_replaced(&mut self, block_record: &BlockRecord<'b>, is_done: bool) {
        if is_done {
            self.replaced.push((block_record.of, block_record.bytes()));
        } else {
            self.add_dead(block_record);
        }
    }

    /// How many dead records of this key there are so far.
    pub(crate) fn dead_of(&mut self, of: KeyOf<'_>) -> u64 {
        let counts = self.counts.get_or_insert_with(|| {
            let mut counts = HashMap::new();
            for dead in &self.dead {
                *counts.entry((dead.owner, dead.key)).or_default() += 1;
            }
            counts
        });
        counts.get(&(of.owner, of.key)).copied().unwrap_or(0)
    }

    /// The slots of these keys are gone, for which their dead records were counted.
    pub(crate) fn uncount(&mut self, keys: &HashSet<(Owner, &[u8])>) {
        if !keys.is_empty() {
            self.dead.retain(|of| !keys.contains(&(of.owner, of.key)));
        }
    }

    /// Records that were superseded before the copies counted are dead.
    pub(crate) fn note_superseded(&mut self) {
        let moves = std::mem::take(&mut self.moves);
        moves.iter().filter(|moved| moved.is_superseded).for_each(|moved| self.add_dead(&moved.block_record));
        self.moves = moves;
    }

    /// The originals of moved records, except superseded ones: the superseding writer counts those.
    pub(crate) fn originals(&self) -> impl Iterator<Item = (KeyOf<'b>, u64)> {
        let moved = self.moves.iter().filter(|moved| !moved.is_superseded);
        moved
            .map(|moved| (moved.block_record.of, moved.block_record.bytes()))
            .chain(self.replaced.iter().copied())
    }
}
