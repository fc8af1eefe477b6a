//! What is to be evicted next, and what threads share of eviction: see [`super::evict`].

use super::ghosts::Ghosts;
use crate::format::Granule;
use crate::options::Eviction;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, lock};
use std::collections::HashMap;

/// A key that was evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Evicted {
    /// That of its table: see [`TableOn::set_evictable`](crate::TableOn::set_evictable).
    pub label: u32,
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of its record.
    pub bytes: u64,
    /// When it would have expired, in Unix milliseconds.
    pub expires_at: Option<u64>,
}

/// Told of keys that were evicted, by the thread that did, which may be one that writes: it does not use the store.
pub type OnEvicted = Arc<dyn Fn(&[Evicted]) + Send + Sync>;

/// What threads share of eviction.
#[derive(Default)]
pub(crate) struct Evictor {
    policy: AtomicU64,
    pub told: Mutex<Option<OnEvicted>>,
    pub keys: AtomicU64,
    pub bytes: AtomicU64,
    /// DRAM of [`Ghosts`].
    pub ghost_bytes: AtomicU64,
}

/// What the compacting thread knows of it.
#[derive(Default)]
pub(super) struct Queues {
    /// The oldest last.
    pub fresh: Vec<Listed>,
    pub moved: Vec<Listed>,
    /// Bytes of the blocks that writers filled, and of all, when they were listed; less what was taken since.
    pub fresh_bytes: u64,
    pub all_bytes: u64,
    /// Bytes of blocks in both lists, then and now.
    pub listed_bytes: u64,
    pub left_bytes: u64,
    /// Of keys that went out of blocks that writers filled.
    pub ghosts: Ghosts,
    /// Such a block is moved out of.
    pub is_fresh: bool,
    /// Bytes that stayed beyond what may of each block, less what others left.
    pub debt: u64,
    /// No more may stay of a block than its share, though less did of others.
    pub without_credit: bool,
    /// Where no block has enough that is dead: bytes to be moved out of before that is looked at again.
    pub dead_in_vain: Option<u64>,
    /// Keys evicted since reads were halved.
    pub since_halved: u64,
    /// Bytes of blocks that were moved out of since a key was evicted, and when so many were that it is no use for now.
    pub vain_bytes: u64,
    pub vain_at: Option<Instant>,
    /// For blocks that are chosen by chance.
    pub chance: u64,
    /// Blocks that stayed where they are.
    pub passed: HashMap<Granule, Passed>,
    pub told: Vec<Evicted>,
}

/// A block that was passed over.
#[derive(Clone, Copy)]
pub(super) struct Passed {
    pub generation: u64,
    /// Instead of the one that it had; `None`: nothing is left in it that may go.
    pub order: Option<u64>,
}

/// A block, its generation and bytes when it was listed.
#[derive(Clone, Copy)]
pub(super) struct Listed {
    pub order: u64,
    pub generation: u64,
    pub granule: Granule,
    pub bytes: u64,
}

impl Evictor {
    pub(crate) fn eviction(&self) -> Option<Eviction> {
        Eviction::of_code(self.policy.load(Relaxed))
    }

    pub(crate) fn set(&self, eviction: Option<Eviction>) {
        self.policy.store(eviction.map_or(0, Eviction::code), Relaxed);
    }

    pub(crate) fn set_told(&self, told: OnEvicted) {
        *lock(&self.told) = Some(told);
    }
}
