//! Numbers of a store.

use crate::api::Core;
use duramen_index::MEDIUM_BYTES_MAX;
use duramen_index::numbers::Numbers;
use duramen_log::blocks::Use;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim;
use duramen_media::Medium;

/// Numbers of a store, summed on request; counting them costs writes no shared access.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Live keys of all tables; expired ones count until they are swept.
    pub keys: u64,
    /// Bytes that the medium has.
    pub medium_bytes: u64,
    /// Bytes up to which the medium can grow.
    pub medium_max_bytes: u64,
    /// Bytes of the medium that have no space, since the store does not need them: see [`Options::keep_free_bytes`].
    ///
    /// [`Options::keep_free_bytes`]: crate::Options::keep_free_bytes
    pub given_back_bytes: u64,
    /// Bytes of blocks in use, live or dead.
    pub used_bytes: u64,
    /// Bytes of blocks in use, less the bytes known to be dead.
    pub live_bytes: u64,
    /// Bytes that compaction can gain: superseded records, and the room in blocks that were sealed less than half full,
    /// as every close leaves some.
    pub dead_bytes: u64,
    /// Bytes of free extents.
    pub free_bytes: u64,
    /// Bytes of one extent, the unit of space.
    pub extent_bytes: u64,
    /// DRAM used by the indexes of all tables, including the locks of keys.
    pub index_bytes: u64,
    /// Pages of the checkpoint that the store was opened with, which the index has not read yet; each is read when it
    /// is first used.
    pub index_pages_left: u64,
    /// Segments or leaves of the index that were split since the store was opened, recovery included.
    pub index_splits: u64,
    /// How often the hash index's directory doubled since the open.
    pub index_doublings: u64,
    /// Segments or leaves of the index that were merged with a neighbour since the open.
    pub index_merges: u64,
    /// Point lookups that the ordered index answered from its cache, without a descent.
    pub index_cache_hits: u64,
    /// Point lookups for which the ordered index had to descend.
    pub index_cache_misses: u64,
    /// How often a writer found a key's lock taken, and waited.
    pub index_key_waits: u64,
    /// How often a writer found the lock of a leaf of the ordered index taken.
    pub index_leaf_waits: u64,
    /// Writers, the store's own included.
    pub writers: u64,
    /// Bytes of records appended since the store was opened.
    pub written_bytes: u64,
    /// Checkpoints of the index, with residence `persistent`.
    pub checkpoints: u64,
    /// Bytes that the checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Rounds of compaction.
    pub compactions: u64,
    /// Bytes that compaction moved.
    pub compacted_bytes: u64,
    /// Extents that compaction freed.
    pub freed_extents: u64,
    /// Blocks that compaction, or verification after an open, found damaged and set aside.
    pub damaged_blocks: u64,
    /// Bytes of the store that the background thread has still to check for damage, since the open used an index
    /// checkpoint and did not read them.
    pub unverified_bytes: u64,
    /// How often compaction read everything to find out which tombstones still hide something.
    pub recounts: u64,
    /// Keys that were swept because they had expired.
    pub expired_keys: u64,
    /// Keys that were evicted.
    pub evicted_keys: u64,
    /// Bytes of the evicted records.
    pub evicted_bytes: u64,
    /// The size up to which the store grows, in bytes; 0: no limit.
    pub limit_bytes: u64,
    /// DRAM used to count reads of keys.
    pub access_bytes: u64,
    /// Epochs that were made durable since the open, each by one sync of the medium.
    pub commits: u64,
    /// Time of these syncs.
    pub commit_nanos: u64,
    /// The current epoch.
    pub epoch: u64,
    /// The last epoch that is durable.
    pub epoch_committed: u64,
    /// Records that recovery read.
    pub recovered_records: u64,
    /// Time that recovery took.
    pub recovery_nanos: u64,
}

impl Stats {
    pub(crate) fn of<M: Medium>(core: &Core<M>) -> Self {
        let maintenance = &core.maintenance;
        let (records, log) = (&maintenance.records, &maintenance.records.log);
        let totals = log.epochs().totals();
        let (extents, free, given_back) = {
            let space = log.space();
            let numbers = (space.backed_extents(), space.free_extents(), space.given_back_extents());
            (u64::from(numbers.0), u64::from(numbers.1), u64::from(numbers.2))
        };
        let used_bytes = (extents - free) * log.extent_bytes;
        let compaction = &maintenance.compaction;
        let guard = reclaim::pin();
        let mut index = Numbers::default();
        for table in records.tables.all() {
            index = index.plus(table.index.numbers(&guard));
        }
        let (commit_nanos, commits) = log.epochs().synced();
        let (stripes, elements) = (records.stripes(), records.tables.elements());
        Self {
            keys: records.tables.keys(),
            medium_bytes: log.medium.len(),
            medium_max_bytes: log.medium.len_max().min(MEDIUM_BYTES_MAX),
            given_back_bytes: given_back * log.extent_bytes,
            used_bytes,
            live_bytes: used_bytes.saturating_sub(totals.dead_bytes),
            dead_bytes: totals.dead_bytes,
            free_bytes: free * log.extent_bytes,
            extent_bytes: log.extent_bytes,
            index_bytes: index.bytes
                + stripes.bytes()
                + elements.bytes()
                + records.tables.collections_bytes(),
            index_pages_left: records.tables.pages_left(),
            index_splits: index.splits,
            index_doublings: index.doublings,
            index_merges: index.merges,
            index_cache_hits: index.cache_hits,
            index_cache_misses: index.cache_misses,
            index_key_waits: stripes.waits() + elements.waits(),
            index_leaf_waits: index.leaf_waits,
            writers: totals.writers,
            written_bytes: totals.written_bytes,
            checkpoints: maintenance.checkpoints.written.load(Relaxed),
            checkpoint_bytes: maintenance.checkpoints.bytes.load(Relaxed),
            compactions: compaction.rounds.load(Relaxed),
            compacted_bytes: compaction.moved_bytes.load(Relaxed),
            freed_extents: compaction.freed_extents.load(Relaxed),
            damaged_blocks: compaction.damaged.load(Relaxed),
            unverified_bytes: compaction.unverified_extents.load(Relaxed) * log.extent_bytes,
            recounts: compaction.recounts.load(Relaxed),
            expired_keys: records.expired.load(Relaxed),
            evicted_keys: maintenance.evictor.keys.load(Relaxed),
            evicted_bytes: maintenance.evictor.bytes.load(Relaxed),
            limit_bytes: u64::from(log.space().limit()) * log.extent_bytes,
            access_bytes: records.access.bytes() + maintenance.evictor.ghost_bytes.load(Relaxed),
            commits,
            commit_nanos,
            epoch: log.epochs().current().0,
            epoch_committed: log.epochs().committed().0,
            recovered_records: core.recovered.records,
            recovery_nanos: core.recovered.nanos,
        }
    }
}

/// Blocks by state; a block is one extent or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockCounts {
    /// Written to.
    pub open: u64,
    /// Full: compaction may choose them.
    pub sealed: u64,
    /// Copied by compaction, and not free yet.
    pub retired: u64,
    /// Damaged, and set aside.
    pub damaged: u64,
    /// With a part of an index checkpoint.
    pub checkpoint: u64,
    /// Without space: it went back to the file system.
    pub given_back: u64,
}

impl BlockCounts {
    pub(crate) fn of<M: Medium>(core: &Core<M>) -> Self {
        let log = &core.maintenance.records.log;
        let extents = log.space().extents();
        let mut counts = Self::default();
        for (_, _, state) in log.blocks.walk(0..extents) {
            let count = match state {
                Use::Free => continue,
                Use::Open => &mut counts.open,
                Use::Sealed => &mut counts.sealed,
                Use::Retired => &mut counts.retired,
                Use::Damaged => &mut counts.damaged,
                Use::Checkpoint => &mut counts.checkpoint,
                Use::GivenBack => &mut counts.given_back,
            };
            *count += 1;
        }
        counts
    }

    /// Each state's name and count.
    #[must_use]
    pub const fn by_state(&self) -> [(&'static str, u64); 6] {
        [
            ("open", self.open),
            ("sealed", self.sealed),
            ("retired", self.retired),
            ("damaged", self.damaged),
            ("checkpoint", self.checkpoint),
            ("given_back", self.given_back),
        ]
    }
}
