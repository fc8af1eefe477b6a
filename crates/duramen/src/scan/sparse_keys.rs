//! All keys of a store that has few keys in a large index: right after nearly all keys were deleted, until compaction
//! has dropped their tombstones and the index shrinks. Drawing a place at random then finds a key once in thousands of
//! times.
//!
//! A walk that has found all keys leaves them here for the picks that follow. Every inserted key is counted after its
//! slot is set ([`Epochs::came`](duramen_log::durability::Epochs::came)), and a list carries the count from before its
//! walk. So:
//!
//! Invariant: while the count is the same, all present keys, of writes that have returned, are in the list. Some of the
//! listed keys may be gone: the caller checks the picked key.

use duramen_log::sync::atomic::AtomicBool;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::{Mutex, lock, rank};

/// Maximum of keys and bytes of a list.
const KEYS_MAX: usize = 1024;
const BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub(crate) struct SparseKeys {
    /// Whether there is a list, which can be checked without the lock.
    is_there: AtomicBool,
    list: Mutex<Option<List>, { rank::SPARSE_KEYS }>,
}

/// The keys that a walk has found.
#[derive(Default)]
pub(crate) struct List {
    came: u64,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// There were too many.
    overflowed: bool,
}

impl List {
    /// For a walk that begins now, with the current count of inserted keys.
    pub(crate) fn begin(came: u64) -> Self {
        Self { came, ..Self::default() }
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        self.bytes += key.len();
        self.overflowed |= self.keys.len() == KEYS_MAX || self.bytes > BYTES_MAX;
        if !self.overflowed {
            self.keys.push(key.to_vec());
        }
    }
}

impl SparseKeys {
    /// Keeps the list of a walk that found all keys.
    pub(crate) fn keep(&self, list: List) {
        if !list.overflowed {
            *lock(&self.list) = Some(list);
            self.is_there.store(true, Relaxed);
        }
    }

    /// One of all keys, with the list's count; `Some(None)` if there are no keys; `None` without a valid list.
    pub(crate) fn pick(&self, came: impl FnOnce() -> u64, random: u64) -> Option<Option<(u64, Vec<u8>)>> {
        if !self.is_there.load(Relaxed) {
            return None;
        }
        let mut list = lock(&self.list);
        let (came, keys) = match &*list {
            Some(list) if list.came == came() => (list.came, &list.keys),
            _ => {
                *list = None;
                self.is_there.store(false, Relaxed);
                return None;
            }
        };
        let at = (u128::from(random) * keys.len() as u128) >> 64;
        Some(keys.get(at as usize).map(|key| (came, key.clone())))
    }

    /// Removes a picked key that is gone; not from a later list, which has it if it was inserted again.
    pub(crate) fn remove(&self, came: u64, key: &[u8]) {
        if let Some(list) = &mut *lock(&self.list)
            && list.came == came
        {
            list.keys.retain(|other| other != key);
        }
    }
}
