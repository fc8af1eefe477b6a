//! A list of keys that a worker will process soon, in a turn of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// See the module. All workers share it.
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

    /// Whether the list has keys.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Takes all keys, with their databases.
    pub fn take(&self) -> Vec<(u8, Vec<u8>)> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut keys)
    }
}
