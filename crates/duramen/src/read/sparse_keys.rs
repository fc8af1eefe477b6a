//! All keys of a store that has few, while its index has places for many: right after nearly all keys were deleted, until
//! compaction has dropped their tombstones and the index shrinks. To draw places then finds a key once in thousands of times.
//!
//! A walk that meets all keys leaves them here for the picks that follow. Every key that comes is counted after its slot is
//! set ([`Epochs::came`](crate::durability::Epochs::came)), and a list carries the count from before its walk. So:
//!
//! Invariant: while the count is the same, all keys that are there, of writes that have returned, are in the list. Some of the
//! list may be gone: whoever picks one looks.

use crate::sync::atomic::AtomicBool;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Mutex, lock, rank};

/// Keys and bytes of a list at most.
const KEYS_MAX: usize = 1024;
const BYTES_MAX: usize = 64 << 10;

#[derive(Default)]
pub(super) struct SparseKeys {
    /// Whether there is a list, so that nobody else takes the lock to learn that.
    is_there: AtomicBool,
    list: Mutex<Option<List>, { rank::SPARSE_KEYS }>,
}

/// Keys that a walk has met.
#[derive(Default)]
pub(super) struct List {
    came: u64,
    keys: Vec<Vec<u8>>,
    bytes: usize,
    /// There were too many.
    overflowed: bool,
}

impl List {
    /// For a walk that begins now, when so many keys have come.
    pub(super) fn begin(came: u64) -> Self {
        Self { came, ..Self::default() }
    }

    pub(super) fn add(&mut self, key: &[u8]) {
        self.bytes += key.len();
        self.overflowed |= self.keys.len() == KEYS_MAX || self.bytes > BYTES_MAX;
        if !self.overflowed {
            self.keys.push(key.to_vec());
        }
    }
}

impl SparseKeys {
    /// Keeps the list of a walk that met all keys.
    pub(super) fn keep(&self, list: List) {
        if !list.overflowed {
            *lock(&self.list) = Some(list);
            self.is_there.store(true, Relaxed);
        }
    }

    /// One of all keys, with the list's count, or `Some(None)` where there is none; `None` without a list that holds.
    pub(super) fn pick(&self, came: impl FnOnce() -> u64, random: u64) -> Option<Option<(u64, Vec<u8>)>> {
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

    /// A key was picked, and is gone; not from a later list, which has it when it came again.
    pub(super) fn remove(&self, came: u64, key: &[u8]) {
        if let Some(list) = &mut *lock(&self.list)
            && list.came == came
        {
            list.keys.retain(|other| other != key);
        }
    }
}
