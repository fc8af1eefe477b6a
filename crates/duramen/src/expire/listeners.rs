//! Notifies listeners: of keys that are swept because they have expired, and of elements whose time has come.

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

/// An element of a collection whose expiry time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Due {
    /// The table of the key.
    pub table: TableId,
    /// The key whose value is the collection.
    pub key: Vec<u8>,
    /// The element's own key.
    pub element: Vec<u8>,
}

/// Called with each key that was swept, by the store's own thread or within
/// [`Store::maintain`](crate::Store::maintain). The key's lock is held during the call, so the call precedes any later
/// write of the key. It must return soon, and must not use the store.
pub type OnExpired = Arc<dyn Fn(&Expired) + Send + Sync>;

/// Called with each element that is due, by the same threads, about once a second until it is deleted or has another
/// time. No lock is held: both may have happened meanwhile. It must return soon, and must not use the store.
pub type OnDue = Arc<dyn Fn(&Due) + Send + Sync>;

/// The functions that are called, if any.
#[derive(Default)]
pub(crate) struct Expirations {
    pub expired: Listener<Expired>,
    pub due: Listener<Due>,
}

type Function<T> = Arc<dyn Fn(&T) + Send + Sync>;

/// A function that is called, if any.
pub(crate) struct Listener<T> {
    is_wanted: AtomicBool,
    listener: Mutex<Option<Function<T>>>,
}

impl<T> Default for Listener<T> {
    fn default() -> Self {
        Self { is_wanted: AtomicBool::new(false), listener: Mutex::default() }
    }
}

impl<T> Listener<T> {
    pub(crate) fn set(&self, listener: Option<Function<T>>) {
        self.is_wanted.store(listener.is_some(), Relaxed);
        let before = std::mem::replace(&mut *lock(&self.listener), listener);
        drop(before);
    }

    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    /// Calls it, if there is one.
    #[inline]
    pub(crate) fn notify(&self, of: impl FnOnce() -> T) {
        if self.is_wanted() {
            self.call(&of());
        }
    }

    #[cold]
    fn call(&self, of: &T) {
        // A copy: no lock of the store except a swept key's is held while the function runs.
        let listener = lock(&self.listener).clone();
        if let Some(listener) = listener {
            listener(of);
        }
    }
}
