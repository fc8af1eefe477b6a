//! Telling somebody of keys that are swept since they have expired.

use crate::format::Owner;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, lock, rank, this_thread};
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
/// [`Store::maintain`](crate::Store::maintain). It may use the store; nothing is swept or compacted until it returns.
pub type OnExpired = Arc<dyn Fn(&[Expired]) + Send + Sync>;

/// Who is told, and of what he is to be told.
#[derive(Default)]
pub(crate) struct Expirations {
    is_wanted: AtomicBool,
    told: Mutex<Option<OnExpired>>,
    /// Held while it is told, by this thread, else 0.
    telling: Mutex<(), { rank::TELLING }>,
    teller: AtomicU64,
    keys: Mutex<Vec<Expired>>,
}

impl Expirations {
    /// When this returns, who was told before is not called any more.
    pub(crate) fn set_told(&self, told: Option<OnExpired>) {
        self.is_wanted.store(told.is_some(), Relaxed);
        let before = std::mem::replace(&mut *lock(&self.told), told);
        lock(&self.keys).clear();
        // Relaxed: only this thread stores its own number. Called by who is told, it is the call that is under way.
        if self.teller.load(Relaxed) != this_thread() {
            drop(lock(&self.telling));
        }
        drop(before);
    }

    /// A key was swept.
    #[inline]
    pub(super) fn note(&self, owner: Owner, key: &[u8]) {
        if self.is_wanted.load(Relaxed) {
            lock(&self.keys).push(Expired { table: TableId(owner), key: key.to_vec() });
        }
    }

    /// Tells of what was swept. The caller holds no lock: who is told may use the store.
    pub(super) fn tell(&self) {
        // Within a call it is told of the rest by that one.
        if !self.is_wanted.load(Relaxed) || self.teller.load(Relaxed) == this_thread() {
            return;
        }
        let _telling = lock(&self.telling);
        let told = lock(&self.told).clone();
        let keys = std::mem::take(&mut *lock(&self.keys));
        let Some(told) = told.filter(|_| !keys.is_empty()) else { return };
        let _teller = Teller::new(&self.teller);
        keys.chunks(KEYS_MAX).for_each(|keys| told(keys));
    }
}

/// Who is told is called by this thread, until the end of it, or a panic.
struct Teller<'a>(&'a AtomicU64);

impl<'a> Teller<'a> {
    fn new(teller: &'a AtomicU64) -> Self {
        teller.store(this_thread(), Relaxed);
        Self(teller)
    }
}

impl Drop for Teller<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}
