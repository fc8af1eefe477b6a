//! The blocks to evict from next, and the state of eviction that threads share: see [`crate::evict::victims`].

use crate::evict::access::READS_MAX;
use crate::evict::ghosts::Ghosts;
use crate::options::Eviction;
use duramen_log::format::Extent;
use duramen_log::sync::atomic::AtomicU64;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::time::Instant;
use duramen_log::sync::{Arc, Mutex, lock};
use std::cmp::Reverse;
use std::collections::HashMap;

/// This share of the store is listed at once ...
pub(crate) const LISTED_SHARE: usize = 16;
/// ... or this many blocks of each queue.
pub(crate) const LISTED_MIN: usize = 16;

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
    /// The next lists, while a part of the blocks was looked at.
    pub listing: Option<Listing>,
    /// Keys that were evicted from blocks that writers filled.
    pub ghosts: Ghosts,
    /// Bytes that stayed beyond each block's share, less the unused share of other blocks.
    pub debt: u64,
    /// No more than its share may stay of a block, even if less stayed of others.
    pub without_credit: bool,
    /// If no block has enough dead bytes: bytes to move out of before that is checked again.
    pub dead_without_gain: Option<u64>,
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
    /// The number of reads with which a record stays, so that at most `most` bytes do, if any number achieves that.
    pub(crate) fn least(&self, most: u64) -> u8 {
        let stays = |least: u8| self.0[usize::from(least)..].iter().sum::<u64>();
        (1..READS_MAX).find(|&least| stays(least) <= most).unwrap_or(READS_MAX)
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

/// Lists of blocks that are not complete.
#[derive(Default)]
pub(crate) struct Listing {
    /// The extent where the search continues.
    pub at: u32,
    fresh: Queue,
    moved: Queue,
    pub fresh_bytes: u64,
    pub all_bytes: u64,
}

/// The next of the blocks that were found, and how many were found.
#[derive(Default)]
struct Queue {
    listed: Vec<Listed>,
    found: usize,
}

impl Queue {
    /// Keeps so many of the blocks that are next.
    fn cut(&mut self, most: usize) {
        if self.listed.len() > most {
            self.listed.select_nth_unstable_by_key(most, Listed::order);
            self.listed.truncate(most);
        }
    }

    /// The next ones, the first one last, without those in which nothing evictable was found since.
    fn end(mut self, passed: &HashMap<Extent, Passed>) -> Vec<Listed> {
        self.cut((self.found / LISTED_SHARE).max(LISTED_MIN));
        let is_next = |listed: &Listed| {
            let passed = passed.get(&listed.extent).filter(|passed| passed.generation == listed.generation);
            passed.is_none_or(|passed| passed.order.is_some())
        };
        self.listed.retain(is_next);
        self.listed.sort_unstable_by_key(|listed| Reverse(listed.order()));
        self.listed
    }
}

impl Listing {
    /// A block was found.
    pub(crate) fn add(&mut self, listed: Listed, is_fresh: bool) {
        let queue = if is_fresh { &mut self.fresh } else { &mut self.moved };
        queue.found += 1;
        queue.listed.push(listed);
    }

    /// Forgets blocks that are not among the next so many of each list.
    pub(crate) fn cut(&mut self, most: usize) {
        self.fresh.cut(most);
        self.moved.cut(most);
    }
}

impl Listed {
    fn order(&self) -> (u64, u64) {
        (self.order, self.generation)
    }
}

impl Queues {
    /// Goes on with complete lists.
    pub(crate) fn replace(&mut self, listing: Listing) {
        (self.fresh_bytes, self.all_bytes) = (listing.fresh_bytes, listing.all_bytes);
        self.fresh = listing.fresh.end(&self.passed);
        self.moved = listing.moved.end(&self.passed);
        let bytes = |list: &[Listed]| list.iter().map(|listed| listed.bytes).sum::<u64>();
        self.listed_bytes = bytes(&self.fresh) + bytes(&self.moved);
        self.left_bytes = self.listed_bytes;
    }
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
    fn records_that_stay_are_the_most_read_ones_that_fit() {
        assert_eq!(ByReads::default().least(0), 1, "nothing stays of nothing");
        let reads = ByReads([500, 100, 20, 3]);
        assert_eq!([623, 123, 122, 23, 22, 3, 0].map(|most| reads.least(most)), [1, 1, 2, 2, 3, 3, 3]);
    }
}
