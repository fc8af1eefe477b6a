//! Telling somebody of keys that are swept since they have expired.

use crate::format::Owner;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// Keys told of at once.
const KEYS_MAX: usize = 1024;

/// Which table it is: the same for all handles of it, and another after it was cleared. See [`Table::id`](crate::Table::id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableId(pub(crate) Owner);

/// A key that was swept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired {
    /// Its table.
    pub table: TableId,
    /// Itself.
    pub key: Vec<u8>,
}

/// What is called with keys that were swept, each once; by the store's own thread, or within
/// [`Store::maintain`](crate::Store::maintain).
pub type OnExpired = Arc<dyn Fn(&[Expired]) + Send + Sync>;

/// Who is told, and of what he is to be told.
#[derive(Default)]
pub(crate) struct Expirations {
    is_wanted: AtomicBool,
    told: Mutex<Option<OnExpired>>,
    keys: Mutex<Vec<Expired>>,
}

impl Expirations {
    /// When this returns, who was told before is not called any more.
    pub(crate) fn set_told(&self, told: Option<OnExpired>) {
        self.is_wanted.store(told.is_some(), Relaxed);
        let before = std::mem::replace(&mut *lock(&self.told), told);
        lock(&self.keys).clear();
        drop(before);
    }

    /// A key was swept.
    #[inline]
    pub(super) fn note(&self, owner: Owner, key: &[u8]) {
        if self.is_wanted.load(Relaxed) {
            lock(&self.keys).push(Expired { table: TableId(owner), key: key.to_vec() });
        }
    }

    /// Tells of what was swept.
    pub(super) fn tell(&self) {
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        let told = lock(&self.told);
        let keys = std::mem::take(&mut *lock(&self.keys));
        if let Some(told) = &*told {
            keys.chunks(KEYS_MAX).for_each(|keys| told(keys));
        }
    }
}
