//! What memcached's `stats` and INFO count. As in [`crate::stats`] each worker counts for itself.

use crate::counter::Counter;
use std::sync::{Arc, Mutex, PoisonError};

macro_rules! counts {
    ($($count:ident $name:literal,)*) => {
        /// What is counted.
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
    // What they were when they were reset.
    reset: Mutex<Sums>,
}

/// Sums over all workers.
pub type Sums = [u64; NAMES.len()];

impl AllCounters {
    /// For so many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Arc::default()).collect(), reset: Mutex::default() }
    }

    /// Those of a worker.
    pub fn of(&self, worker: usize) -> Arc<Counters> {
        self.workers.get(worker).cloned().unwrap_or_default()
    }

    /// Sums since they were reset last.
    pub fn sums(&self) -> Sums {
        let reset = self.reset.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sums = self.ever();
        sums.iter_mut().zip(reset.iter()).for_each(|(sum, before)| *sum = sum.saturating_sub(*before));
        sums
    }

    /// Begins anew.
    pub fn reset(&self) {
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = self.ever();
    }

    fn ever(&self) -> Sums {
        std::array::from_fn(|at| self.workers.iter().map(|worker| worker.0[at].get()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_over_all_workers_and_begin_anew() {
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
