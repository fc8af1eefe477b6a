//! The records of a store, and the tables whose indexes point to them: what reads, writes and maintenance share.

use crate::evict::access::Access;
use crate::table::forgotten::Forgotten;
use crate::table::tables::Tables;
use crate::tuning::Tuning;
use duramen_index::stripes::Stripes;
use duramen_index::{Hasher, KeyBytes, Keys};
use duramen_log::Log;
use duramen_log::sync::atomic::{AtomicBool, AtomicU64};
use duramen_log::sync::barrier::ExclusiveBarrier;
use duramen_media::{Medium, Offset};

/// The records of a store, and the tables whose indexes point to them.
pub(crate) struct Records<M: Medium> {
    pub log: Log<M>,
    pub hasher: Hasher,
    pub tables: Tables,
    pub forgotten: Forgotten,
    /// How often keys were read, where eviction needs it.
    pub access: Access,
    /// The barrier that writers enter.
    pub barrier: ExclusiveBarrier,
    pub tuning: Tuning,
    /// Keys that were swept because they had expired.
    pub expired: AtomicU64,
    /// The process before was killed, and the medium keeps bytes that the CPU's caches had not written back. Recovery
    /// flushes the blocks it reads. Cells of blocks that it did not read, thanks to a checkpoint, may hold an update
    /// that nobody flushed, until the background thread has flushed them.
    pub cells_unflushed: AtomicBool,
    /// Some blocks that recovery took from a checkpoint are not verified yet, or are known to be damaged. See
    /// [`crate::damage`].
    pub(crate) has_unverified: AtomicBool,
    /// Keys whose record was damaged were written since the compactor last looked, or a block was found damaged.
    pub mends: AtomicBool,
}

impl<M: Medium> Records<M> {
    pub(crate) fn new(
        log: Log<M>,
        hasher: Hasher,
        tables: Tables,
        tuning: Tuning,
        cells_unflushed: bool,
        has_unverified: bool,
    ) -> Self {
        Self {
            log,
            hasher,
            tables,
            forgotten: Forgotten::default(),
            access: Access::default(),
            barrier: ExclusiveBarrier::default(),
            tuning,
            expired: AtomicU64::new(0),
            cells_unflushed: AtomicBool::new(cells_unflushed),
            has_unverified: AtomicBool::new(has_unverified),
            mends: AtomicBool::new(false),
        }
    }

    /// The locks of the keys of all tables.
    #[inline]
    pub(crate) fn stripes(&self) -> &Stripes {
        self.tables.stripes()
    }
}

impl<M: Medium> Keys for Records<M> {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        self.key_at(at).map(|key| self.hasher.hash(key))
    }

    fn prefetch_at(&self, at: Offset) {
        self.log.fetch_key(at);
    }

    fn may_be_damaged(&self) -> bool {
        self.has_unverified()
    }
}

impl<M: Medium> KeyBytes for Records<M> {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        self.whole_record(at).map(|record| record.key())
    }

    fn value_at(&self, at: Offset) -> Option<&[u8]> {
        self.whole_record(at).filter(|record| !record.head.is_cell()).map(|record| record.value())
    }
}
