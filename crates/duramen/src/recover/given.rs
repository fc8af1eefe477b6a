//! The state that the threads of recovery share.

use crate::options::OnProgress;
use crate::recover::cut::Cut;
use crate::recover::estimate::Sample;
use crate::table::tables::{Table, Tables};
use duramen_index::either::Index;
use duramen_index::ordered::Parting;
use duramen_index::{Hasher, KeyBytes, Keys, Slot};
use duramen_log::blocks::Blocks;
use duramen_log::format::holes::Holes;
use duramen_log::format::record::Header;
use duramen_log::format::{Owner, Version};
use duramen_log::read;
use duramen_log::sync::reclaim;
use duramen_log::sync::{Arc, Mutex, lock};
use duramen_media::{Medium, Offset};
use std::cmp::Reverse;
use std::ops::RangeInclusive;

/// The parts of a block that may not be durable although they were read, and must become so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushes {
    Nothing,
    Heads,
    Records,
}

/// A root that was found: it may be the newest record of its key.
pub(crate) struct FoundRoot {
    /// The owner of its table, and of its key.
    pub owner: Owner,
    pub hash: u64,
    pub at: Offset,
    /// The owner of its elements.
    pub names: Owner,
}

pub(crate) struct Scan<'a, M: Medium> {
    pub medium: &'a M,
    pub holes: &'a Holes<'a>,
    pub hasher: &'a Hasher,
    pub tables: &'a Tables,
    /// A sample of the log.
    pub sample: &'a Sample<'a>,
    /// For the keys of the store's own table, if its index is ordered.
    pub parting: &'a Parting<'a>,
    /// For the keys of all other tables.
    pub parting_whole: &'a Parting<'a>,
    pub blocks: &'a Blocks,
    pub extent_bytes: u64,
    pub cut: Cut,
    /// The epochs that an unsealed block can hold.
    pub epochs: RangeInclusive<u64>,
    /// The last opener was killed, and the machine has not been rebooted since.
    pub killed: bool,
    /// A clean close sealed every data block: one without a seal lost it to damage.
    pub all_sealed: bool,
    pub now: u64,
    pub flushes: Flushes,
    /// All records are read, so counts of stale records are exact; otherwise part of the index came from a checkpoint.
    pub counts_all: bool,
    /// Damage of records that the checkpoint points to, which prevents its use.
    pub damaged: Mutex<Option<String>>,
    /// Some block headers are damaged.
    pub lost_heads: bool,
    pub on_progress: Option<&'a OnProgress>,
}

impl<M: Medium> Keys for Scan<'_, M> {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        self.found_record(at).map(|(_, key)| self.hasher.hash(key))
    }

    fn prefetch_at(&self, at: Offset) {
        self.medium.prefetch(at);
    }

    fn may_be_damaged(&self) -> bool {
        !self.counts_all
    }
}

impl<M: Medium> KeyBytes for Scan<'_, M> {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        self.found_record(at).map(|(_, key)| key)
    }

    fn value_at(&self, at: Offset) -> Option<&[u8]> {
        let (header, _) = self.found_record(at)?;
        let (_, bytes) = read::whole_record(self.medium, at);
        let from = header.value_at() as usize;
        Some(&bytes[from..from + header.value_bytes as usize])
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Header and key of a record that is whole.
    pub(crate) fn record_at(&self, at: Offset) -> (Header, &[u8]) {
        let (header, bytes) = read::whole_record(self.medium, at);
        (header, header.key(bytes))
    }

    /// As [`Self::record_at`], for a record that a slot points to. The slot may be a checkpoint's and the record never
    /// verified. `None`: it is damaged, which is noted. Then the newer of two records cannot be known, and all must be
    /// read.
    pub(crate) fn found_record(&self, at: Offset) -> Option<(Header, &[u8])> {
        if let Err(wrong) = read::verify_unverified(self.medium, self.blocks, at) {
            let mut damaged = lock(&self.damaged);
            damaged.get_or_insert_with(|| {
                format!("it points to a record at offset {at} that is damaged: {wrong}")
            });
            return None;
        }
        Some(self.record_at(at))
    }

    /// The parts that the keys of a table are gathered in.
    pub(crate) fn parting_of(&self, table: &Table) -> &Parting<'_> {
        if table.owner == Owner::STORE { self.parting } else { self.parting_whole }
    }

    /// The table of `owner`, with room for its estimated number of keys.
    pub(crate) fn table_of(&self, owner: Owner) -> Arc<Table> {
        self.tables.get_or_insert(owner, |index| {
            if let Index::Hash(index) = index {
                index.reserve(self.sample.keys_of_log(owner, self.hasher));
            }
        })
    }

    /// Which of two records of a key counts.
    ///
    /// Records of one version are copies of one record, or an expired value and its tombstone: either is correct. The
    /// original is taken, in the block that was opened first. So a compaction that a crash interrupted leaves only dead
    /// copies, and their space is free again. Otherwise a few crashes could use up the space that compaction needs to
    /// continue.
    #[inline]
    pub(crate) fn is_newer(
        &self,
        (version, at): (Version, Offset),
        (other, other_at): (Version, Offset),
    ) -> bool {
        let order = |at: Offset| (Reverse(self.blocks.of(at.0).generation()), at);
        version.cmp(&other).then_with(|| order(at).cmp(&order(other_at))).is_gt()
    }

    /// Whether a root is the newest record of its key, and no tombstone.
    pub(crate) fn is_live_root(&self, root: &FoundRoot) -> bool {
        let Some(table) = self.tables.of(root.owner) else { return false };
        let key = self.record_at(root.at).1;
        let leads = |slot: Slot| slot.location() == root.at;
        let slot = table.index.find(root.hash, key, &reclaim::pin(), leads);
        slot.is_some_and(|slot| !slot.is_tombstone())
    }

    /// Subtracts the records of a table without a name from the live bytes of its blocks.
    pub(crate) fn reclaim_table(&self, table: &Table) {
        table.index.read_pages(&|| false);
        table.index.each(&reclaim::pin(), &mut |slot| {
            if !slot.covers_no_older_records()
                && let Some((header, _)) = self.found_record(slot.location())
            {
                self.blocks.live_sub(slot.location().0, header.record_bytes());
            }
        });
    }

    pub(crate) fn uncount_tombstone(&self, slot: Slot) {
        let bytes = self.record_at(slot.location()).0.record_bytes();
        self.blocks.live_sub(slot.location().0, bytes);
    }
}
