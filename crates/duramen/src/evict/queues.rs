//! The blocks to evict from next, and the state of eviction that threads share: see [`crate::evict::victims`].

use crate::evict::access::READS_MAX;
use crate::evict::ghosts::Ghosts;
use crate::options::Eviction;
use duramen_log::format::Extent;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::time::Instant;
use duramen_log::sync::{Arc, Mutex, lock};
use std::collections::HashMap;

/// [`ByReads::add`] describes about this many recent blocks.
const BLOCKS: u64 = 64;

/// A key that was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted {
    /// Its table's label: see [`TableOn::set_evictable`](crate::TableOn::set_evictable).
    pub label: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of its record.
    pub bytes: u64,
    /// When it would have expired, in Unix milliseconds.
    pub expires_at: Option<u64>,
}

/// Called with each key that was evicted, by the thread that evicted it, which may be a thread that writes another key.
/// The key's lock is held during the call, so the call precedes any later write of the key. It must return soon, and
/// must not use the store.
pub type OnEvicted = Arc<dyn Fn(&Evicted) + Send + Sync>;

/// The state of eviction that threads share.
#[derive(Default)]
pub(crate) struct Evictor {
    policy: AtomicU64,
    pub listener: Mutex<Option<OnEvicted>>,
    pub keys: AtomicU64,
    pub bytes: AtomicU64,
    /// DRAM of [`Ghosts`].
    pub ghost_bytes: AtomicU64,
}

/// The eviction state of the compacting thread.
#[derive(Default)]
pub(crate) struct Queues {
    /// The oldest last.
    pub fresh: Vec<Listed>,
    pub moved: Vec<Listed>,
    /// Bytes of the blocks that writers filled, and of all blocks, when they were listed; less the bytes taken since.
    pub fresh_bytes: u64,
    pub all_bytes: u64,
    /// Bytes of blocks in both lists, then and now.
    pub listed_bytes: u64,
    pub left_bytes: u64,
    /// Keys that were evicted from blocks that writers filled.
    pub ghosts: Ghosts,
    /// The current block is one that writers filled.
    pub is_fresh: bool,
    /// Bytes that stayed beyond each block's share, less the unused share of other blocks.
    pub debt: u64,
    /// No more than its share may stay of a block, even if less stayed of others.
    pub without_credit: bool,
    /// If no block has enough dead bytes: bytes to move out of before that is checked again.
    pub dead_without_gain: Option<u64>,
    /// By frequency: read counts of the records in blocks that the compactor filled, later blocks weighted more, and
    /// the number of reads with which a record stays.
    pub main_reads: ByReads,
    pub main_least: u8,
    /// Keys evicted since the read counts were halved.
    pub since_halved: u64,
    /// Bytes of blocks moved out of since a key was evicted, and the time at which they became so many that eviction
    /// pauses.
    pub no_gain_bytes: u64,
    pub no_gain_at: Option<Instant>,
    /// State for choosing random blocks.
    pub chance: u64,
    /// Blocks that were passed over.
    pub passed: HashMap<Extent, Passed>,
}

/// Bytes of records for each number of reads.
#[derive(Default)]
pub(crate) struct ByReads(pub [u64; READS_MAX as usize + 1]);

impl ByReads {
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of reads with which a record stays, so that at most `most` bytes do, if any number up to `full`
    /// achieves that.
    pub(crate) fn least(&self, most: u64, full: u8) -> u8 {
        let stays = |least: u8| self.0[usize::from(least)..].iter().sum::<u64>();
        (1..full).find(|&least| stays(least) <= most).unwrap_or(full)
    }

    /// Adds another block's bytes; those of earlier blocks count a little less.
    pub(crate) fn add(&mut self, other: &Self) {
        for (bytes, more) in self.0.iter_mut().zip(other.0) {
            *bytes = *bytes - *bytes / BLOCKS + more;
        }
    }

    /// Halves every number of reads.
    pub(crate) fn halve(&mut self) {
        let before = std::mem::take(&mut self.0);
        for (reads, bytes) in before.into_iter().enumerate() {
            self.0[reads / 2] += bytes;
        }
    }
}

/// A block that was passed over.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub generation: u64,
    /// Its order instead of its generation; `None`: nothing evictable is left in it.
    pub order: Option<u64>,
}

/// A block, its generation and bytes when it was listed.
#[derive(Clone, Copy)]
pub(crate) struct Listed {
    pub order: u64,
    pub generation: u64,
    pub extent: Extent,
    pub bytes: u64,
}

impl Evictor {
    pub(crate) fn eviction(&self) -> Option<Eviction> {
        Eviction::of_code(self.policy.load(Relaxed))
    }

    pub(crate) fn set(&self, eviction: Option<Eviction>) {
        self.policy.store(eviction.map_or(0, Eviction::code), Relaxed);
    }

    pub(crate) fn set_listener(&self, listener: OnEvicted) {
        *lock(&self.listener) = Some(listener);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn queued_bytes_stay_within_their_limit_and_newer_blocks_count_more() {
        let mut reads = ByReads::default();
        assert_eq!(reads.least(0, READS_MAX), 1, "nothing stays of nothing");
        let block = |at: usize, bytes| {
            let mut block = ByReads::default();
            block.0[at] = bytes;
            block
        };
        (0..1_000).for_each(|_| reads.add(&block(2, 1_000)));
        assert!((60_000..=64_000).contains(&reads.sum()), "as of {BLOCKS} blocks: {}", reads.sum());
        (0..10).for_each(|_| reads.add(&block(9, 1_000)));
        let all = reads.sum();
        assert_eq!([all, all - 1, 9_000, 0].map(|most| reads.least(most, READS_MAX)), [1, 3, 10, 10]);
        assert_eq!(reads.least(0, 9), 9, "higher numbers of reads are not distinguished");
        reads.halve();
        assert_eq!(
            (reads.least(all - 1, READS_MAX), reads.least(9_000, READS_MAX), reads.sum()),
            (2, 5, all)
        );
    }
}
