//! Keys that a worker is to look at soon, in a turn of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module. One for all workers.
#[derive(Default)]
pub struct KeyList {
    keys: Mutex<Vec<(u8, Vec<u8>)>>,
    is_any: AtomicBool,
}

impl KeyList {
    /// Adds a key of a database.
    pub fn add(&self, db: u8, key: &[u8]) {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).push((db, key.to_vec()));
        // Relaxed: the lock orders what it guards.
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether there are keys that nobody has taken.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Takes them all, with their databases.
    pub fn take(&self) -> Vec<(u8, Vec<u8>)> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut keys)
    }
}
