//! A number that one thread adds to and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds, from the owning thread only.
    #[inline]
    pub fn add(&self, more: u64) {
        // Relaxed, and no read-modify-write: there is one writer, and it publishes nothing.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// The number, from any thread.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the number, from the owning thread only.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}
