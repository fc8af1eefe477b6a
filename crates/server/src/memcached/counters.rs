//! The counters of memcached's `stats` and of INFO. As in [`crate::observe::stats`] each worker counts for itself.

use super::last_used::Use;
use crate::counter::Counter;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! counts {
    ($($count:ident $name:literal,)*) => {
        /// The counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // Each is named in `NAMES`.
        pub enum Count { $($count,)* }

        /// As `stats` names them.
        pub const NAMES: &[&str] = &[$($name,)*];
    };
}

counts! {
    CmdGet "cmd_get",
    CmdSet "cmd_set",
    CmdFlush "cmd_flush",
    CmdTouch "cmd_touch",
    CmdMeta "cmd_meta",
    GetHits "get_hits",
    GetMisses "get_misses",
    DeleteMisses "delete_misses",
    DeleteHits "delete_hits",
    IncrMisses "incr_misses",
    IncrHits "incr_hits",
    DecrMisses "decr_misses",
    DecrHits "decr_hits",
    CasMisses "cas_misses",
    CasHits "cas_hits",
    CasBadval "cas_badval",
    TouchHits "touch_hits",
    TouchMisses "touch_misses",
    StoreTooLarge "store_too_large",
    StoreNoMemory "store_no_memory",
    AuthCmds "auth_cmds",
    AuthErrors "auth_errors",
    TotalItems "total_items",
}

/// One worker's.
#[derive(Debug)]
#[repr(align(128))]
pub struct Counters([Counter; NAMES.len()]);

impl Default for Counters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl Counters {
    /// Counts one more, from the owning thread only.
    #[inline]
    pub fn add(&self, count: Count) {
        self.0[count as usize].add(1);
    }
}

/// Those of all workers.
#[derive(Debug, Default)]
pub struct AllCounters {
    workers: Vec<Arc<Counters>>,
    // Their values at the last reset.
    reset: Mutex<Sums>,
    evictions: [AtomicU64; 3],
}

/// Items that were evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// All.
    pub all: u64,
    /// Evicted items that are not known to have been fetched.
    pub unfetched: u64,
    /// Those that were fetched in the last minute.
    pub active: u64,
}

// So long ago an item is in use.
const ACTIVE_SECONDS: u64 = 60;

/// Sums over all workers.
pub type Sums = [u64; NAMES.len()];

impl AllCounters {
    /// For this many workers.
    pub fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| Arc::default()).collect();
        Self { workers, ..Self::default() }
    }

    /// Counts an item that was evicted, from any thread.
    pub fn evicted(&self, used: Use) {
        let is_active = used.is_fetched && used.seconds < ACTIVE_SECONDS;
        for (count, more) in self.evictions.iter().zip([true, !used.is_fetched, is_active]) {
            count.fetch_add(u64::from(more), Release);
        }
    }

    /// Evictions since the last reset. No part exceeds the total: an item is first counted in the total, which is read
    /// last.
    pub fn evictions(&self) -> Evictions {
        let [all, unfetched, active] = &self.evictions;
        let (unfetched, active) = (unfetched.load(Acquire), active.load(Acquire));
        Evictions { all: all.load(Relaxed), unfetched, active }
    }

    /// Those of a worker.
    pub fn of(&self, worker: usize) -> Arc<Counters> {
        self.workers.get(worker).cloned().unwrap_or_default()
    }

    /// Sums since they were reset last.
    pub fn sums(&self) -> Sums {
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = self.sums_ever();
        sums.iter_mut().zip(reset.iter()).for_each(|(sum, before)| *sum = sum.saturating_sub(*before));
        sums
    }

    /// Resets the counters.
    pub fn reset(&self) {
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = self.sums_ever();
        self.evictions.iter().for_each(|count| count.store(0, Relaxed));
    }

    /// Sums since the start.
    pub fn sums_ever(&self) -> Sums {
        std::array::from_fn(|at| self.workers.iter().map(|worker| worker.0[at].get()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_all_workers_and_can_be_reset() {
        let all = AllCounters::new(2);
        all.of(0).add(Count::CmdGet);
        all.of(1).add(Count::CmdGet);
        assert_eq!(all.sums()[Count::CmdGet as usize], 2);
        all.reset();
        all.of(1).add(Count::CmdGet);
        assert_eq!(all.sums()[Count::CmdGet as usize], 1);
        assert_eq!(NAMES[Count::TotalItems as usize], "total_items");
    }
}
