//! Counts again, from the blocks, what DRAM records of them. Both must agree whenever no writer is active.
//!
//! 1. *Stale counts.* A slot's count is the number of valid records of its key in blocks that were not retired, without
//!    the record that the slot points to. An unknown count is not compared. A record of a key without a slot lies in a
//!    retired block.
//! 2. *Live bytes* of a sealed block are those of the records that slots point to, without tombstones that hide
//!    nothing. The live bytes that a checkpoint recorded may be too low.
//! 3. *Classes.* Each sealed block is found under the class of its dead share, or was put off.
//! 4. *Space.* Each extent belongs to the head, or to one block, or is free.
//!
//! A count that is too high keeps a tombstone forever; one that is too low lets a deleted key come back after a crash.
//! A store's answers show neither. Counts are compared by the hash of the key, so that an audit takes little memory.

use crate::table::tables::Tables;
use duramen_index::Hasher;
use duramen_log::blocks::{Blocks, Use};
use duramen_log::format::block::TransactionOutcomes;
use duramen_log::format::record::{Step, Walk};
use duramen_log::format::transaction::keep_what_counts;
use duramen_log::format::{Extent, HEAD_BYTES, Owner, Seeds, block};
use duramen_log::read;
use duramen_log::sync::reclaim;
use duramen_media::{Medium, Offset};
use std::collections::{HashMap, HashSet};

/// Differences that are reported in words; more of them would add little.
const REPORTED_MAX: usize = 20;

/// The counts to compare.
pub(crate) struct Accounts<'a, M: Medium> {
    pub medium: &'a M,
    pub hasher: &'a Hasher,
    pub tables: &'a Tables,
    pub blocks: &'a Blocks,
    pub extent_bytes: u64,
    /// Extents of the store, head included.
    pub extents: u32,
    /// Runs of free extents.
    pub free: Vec<(u32, u32)>,
    /// Owner and hash of the key of each record in a retired block that counts again.
    pub kept: Vec<(Owner, u64)>,
    /// Blocks that the compactor has put off; `None` before it finds any.
    pub put_off: Option<HashSet<Extent>>,
    /// Outcomes of transactions of several blocks that recovery determined and that the headers do not record yet.
    pub transaction_outcomes: HashMap<Extent, TransactionOutcomes>,
    /// Live bytes are not exact: a checkpoint recorded part of the records only.
    pub estimated: bool,
}

/// Counts of the keys with one hash.
#[derive(Default)]
struct Keys {
    /// Their valid records.
    records: u64,
    /// Records that slots point to or include in their counts.
    counted: u64,
    /// A slot's count says nothing.
    unknown: bool,
}

impl<M: Medium> Accounts<'_, M> {
    /// The differences in words. Empty if something is damaged or cannot be read: then the counts cannot be known.
    pub(crate) fn differences(&self) -> Vec<String> {
        let mut differences = self.space();
        differences.extend(self.victims());
        let mut keys: HashMap<(Owner, u64), Keys> = HashMap::new();
        let mut live: HashMap<Extent, u64> = HashMap::new();
        let guard = reclaim::pin();
        let tables = self.tables.all_owners();
        for now in &tables {
            now.index.each(&guard, &mut |slot| {
                if now.is_dead() && slot.covers_no_older_records() {
                    // Reclaimed: another block may be in its place by now.
                    return;
                }
                let (head, bytes) = read::record(self.medium, slot.location());
                let from = head.key_at() as usize;
                let hash = self.hasher.hash(&bytes[from..from + head.key_bytes() as usize]);
                let of = keys.entry((now.owner, hash)).or_default();
                of.counted += 1 + slot.stale_known().unwrap_or(0);
                of.unknown |= slot.stale_known().is_none();
                if !slot.covers_no_older_records() {
                    *live.entry(self.blocks.extent_of(slot.location().0)).or_default() += head.record_bytes();
                }
            });
        }
        let of_dead = |owner: Owner| tables.iter().all(|table| table.owner != owner || table.is_dead());
        for (extent, block, state) in self.blocks.walk(0..self.extents) {
            let bytes = match state {
                Use::Damaged => return Vec::new(),
                Use::Free | Use::Checkpoint | Use::GivenBack | Use::Retired => continue,
                Use::Sealed => block.tail(),
                Use::Open => self.blocks.bytes(block),
            };
            let at = Offset(self.blocks.offset(extent));
            if !self.medium.unreadable(at, bytes).is_empty() {
                return Vec::new();
            }
            self.count(at, bytes, self.blocks.seeds(block), &mut keys);
            let wanted = live.get(&extent).copied().unwrap_or(0);
            let found = u64::from(block.live_sealed());
            if state == Use::Sealed && found != wanted && !(self.estimated && found < wanted) {
                differences.push(format!(
                    "block at extent {}: {wanted} of its bytes are live, its count is {found}",
                    extent.0
                ));
            }
        }
        for &key in &self.kept {
            keys.entry(key).or_default().records += 1;
        }
        // Records of an owner without a name are dead and not counted.
        for ((owner, hash), of) in keys.into_iter().filter(|&((owner, _), _)| !of_dead(owner)) {
            if of.records != of.counted && !of.unknown {
                differences.push(format!(
                    "the keys of hash {hash:#x} of owner {:#x} have {} records, their slots count {}",
                    owner.0, of.records, of.counted
                ));
            }
        }
        let more = differences.len().saturating_sub(REPORTED_MAX);
        differences.truncate(REPORTED_MAX);
        if more > 0 {
            differences.push(format!("and {more} more"));
        }
        differences
    }

    /// Counts the records of a block by the hashes of their keys.
    fn count(&self, at: Offset, bytes: u64, seeds: Seeds, keys: &mut HashMap<(Owner, u64), Keys>) {
        // As words, since cells in it may change.
        let words = (0..bytes / 8).map(|word| self.medium.load_u64(at.plus(word * 8)).to_le_bytes());
        let block: Vec<u8> = words.flatten().collect();
        let mut walk = Walk::new(&block, block::HEADER_BYTES, bytes, seeds);
        let mut records = Vec::new();
        while let Step::Record { at: from, header } = walk.step() {
            records.push((from, header));
        }
        let extent = self.blocks.extent_of(at.0);
        let header = block::Header::decode(self.blocks.secret(), extent, &block);
        let known = self.transaction_outcomes.get(&extent).copied().unwrap_or_default();
        let transaction_outcomes =
            header.map(|header| header.transaction_outcomes).unwrap_or_default().with(known);
        // A transaction that is committed but not finalized yet has its blocks pinned.
        let open_counts = self.blocks.of(at.0).is_pinned();
        keep_what_counts(&block, at.0, transaction_outcomes, open_counts, &mut records);
        for (from, header) in records {
            let hash = self.hasher.hash(header.key(&block[from as usize..]));
            keys.entry((header.owner, hash)).or_default().records += 1;
        }
    }

    /// Differences between the live bytes of blocks and where the compactor finds them.
    fn victims(&self) -> Vec<String> {
        let Some(put_off) = &self.put_off else { return Vec::new() };
        let mut wrong = self.blocks.wrong_classes(self.extents);
        let lost = self.blocks.unlisted(self.extents).filter(|extent| !put_off.contains(extent));
        wrong.extend(lost.map(|extent| {
            format!("the sealed block at extent {} is not listed, and was not put off", extent.0)
        }));
        wrong
    }

    fn space(&self) -> Vec<String> {
        let head = HEAD_BYTES.div_ceil(self.extent_bytes) as u32;
        let mut parts: Vec<(u32, u32)> = self.free.clone();
        let blocks = self.blocks.walk(head..self.extents).filter(|&(_, _, state)| state != Use::Free);
        parts.extend(blocks.map(|(extent, block, _)| (extent.0, block.extents())));
        parts.sort_unstable();
        parts.push((self.extents, 0));
        let mut next = head;
        let mut wrong = Vec::new();
        for (from, extents) in parts {
            if from != next {
                wrong.push(format!("extents {next} to {from} are neither free nor in a block"));
            }
            next = from + extents;
        }
        wrong
    }
}
