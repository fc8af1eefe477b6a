//! Notifies a listener of keys that are swept because they have expired.

use duramen_log::format::Owner;
use duramen_log::sync::atomic::{AtomicBool, Ordering::Relaxed};
use duramen_log::sync::{Mutex, lock};
use std::sync::Arc;

/// Identifies a table: the same for all its handles, and another after it was cleared. See
/// [`Table::id`](crate::Table::id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId(pub(crate) Owner);

/// A key that was swept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired {
    /// Its table.
    pub table: TableId,
    /// The key.
    pub key: Vec<u8>,
}

/// Called with each key that was swept, by the store's own thread or within
/// [`Store::maintain`](crate::Store::maintain). The key's lock is held during the call, so the call precedes any later
/// write of the key. It must return soon, and must not use the store.
pub type OnExpired = Arc<dyn Fn(&Expired) + Send + Sync>;

/// The function that is called, if any.
#[derive(Default)]
pub(crate) struct Expirations {
    is_wanted: AtomicBool,
    listener: Mutex<Option<OnExpired>>,
}

impl Expirations {
    pub(crate) fn set_listener(&self, listener: Option<OnExpired>) {
        self.is_wanted.store(listener.is_some(), Relaxed);
        let before = std::mem::replace(&mut *lock(&self.listener), listener);
        drop(before);
    }

    /// A key was swept. The caller holds its lock.
    #[inline]
    pub(crate) fn notify(&self, owner: Owner, key: &[u8]) {
        if self.is_wanted.load(Relaxed) {
            self.call(owner, key);
        }
    }

    #[cold]
    fn call(&self, owner: Owner, key: &[u8]) {
        // A copy: no lock of the store except the key's is held while the function runs.
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener(&Expired { table: TableId(owner), key: key.to_vec() });
        }
    }
}
