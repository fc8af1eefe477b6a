//! The shared state of memcached: numbers, the pending flush, when items were used, counters.

use super::counters::AllCounters;
use super::last_used::LastUsed;
use super::numbering::Numbers;
use duramen_structures::{Keyspace, Result};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

// Keys in the table of the state.
const CEILING: &[u8] = b"cas";
/// When all items are to go: 8 bytes of Unix seconds, little-endian.
pub const FLUSH_AT: &[u8] = b"flush";

/// See the module.
pub struct Shared {
    /// Where items are.
    pub db: u8,
    /// CAS numbers.
    pub numbers: Numbers,
    /// When items were used.
    pub last_used: LastUsed,
    /// Counters.
    pub counters: AllCounters,
    /// The value set by `verbosity`, which changes nothing.
    pub verbosity: AtomicU64,
    // When all items are to go, in Unix seconds; 0: they are not.
    flush_at: AtomicU64,
    // One worker flushes.
    is_flushing: AtomicBool,
}

impl Shared {
    /// Loads the state from the store; items are in `database`, or else in their own table. Durable numbers are
    /// available when this returns.
    ///
    /// # Errors
    /// Those of the store.
    pub fn open(keyspace: &Keyspace, database: Option<u8>, workers: usize) -> Result<Self> {
        let shared = Self {
            db: database.unwrap_or_else(|| keyspace.items()),
            numbers: Numbers::begin(keyspace.state_number(CEILING)?.unwrap_or(0)),
            last_used: LastUsed::default(),
            counters: AllCounters::new(workers),
            verbosity: AtomicU64::new(0),
            flush_at: AtomicU64::new(keyspace.state_number(FLUSH_AT)?.unwrap_or(0)),
            is_flushing: AtomicBool::new(false),
        };
        shared.tend(keyspace)?;
        Ok(shared)
    }

    /// Reserves numbers for the next seconds. Must not be called within a turn: it waits for a commit.
    ///
    /// # Errors
    /// Those of the store.
    pub fn tend(&self, keyspace: &Keyspace) -> Result<()> {
        if let Some(ceiling) = self.numbers.wants() {
            keyspace.set_state_number(CEILING, ceiling)?;
            self.numbers.raise_to(ceiling);
        }
        Ok(())
    }

    /// A flush at this time was written, or is not to be any more.
    pub fn flush_at(&self, seconds: Option<u64>) {
        self.flush_at.store(seconds.unwrap_or(0), Relaxed);
    }

    /// When all items are to go.
    pub fn flushes_at(&self) -> Option<u64> {
        Some(self.flush_at.load(Relaxed)).filter(|at| *at != 0)
    }

    /// Whether the caller is to flush all items now. It says so by [`flushed`](Self::flushed).
    #[inline]
    pub fn is_flush_due(&self, now: u64) -> bool {
        let at = self.flush_at.load(Relaxed);
        at != 0 && at <= now && !self.is_flushing.swap(true, Relaxed)
    }

    /// The flush that was due is done, or failed.
    pub fn flushed(&self, is_done: bool) {
        if is_done {
            self.flush_at(None);
        }
        self.is_flushing.store(false, Relaxed);
    }
}
