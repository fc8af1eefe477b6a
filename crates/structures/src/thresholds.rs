//! The sizes up to which Redis keeps a value in a compact encoding. Those of hashes, sets and sorted sets decide the
//! answer of OBJECT ENCODING, the order of a small collection in replies, and whether a score can be -0. They do not
//! decide how the value is stored.
//!
//! As in Redis they are looked at when a collection changes: one that has another encoding keeps it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::stream::NodeLimits;

/// The most that a compact encoding of a collection has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compact {
    /// Fields or members.
    pub entries: usize,
    /// Bytes of a field, of its value, or of a member; no matter for a set.
    pub bytes: usize,
}

/// Those of all types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// `hash-max-listpack-entries` and `hash-max-listpack-value`.
    pub hash: Compact,
    /// `set-max-intset-entries`.
    pub set: Compact,
    /// `zset-max-listpack-entries` and `zset-max-listpack-value`.
    pub sorted_set: Compact,
    /// `stream-node-max-entries` and `stream-node-max-bytes`.
    pub stream: NodeLimits,
    /// `hll-sparse-max-bytes`, with the head.
    pub sparse_bytes: usize,
}

impl Default for Thresholds {
    /// Redis's.
    fn default() -> Self {
        Self {
            hash: Compact { entries: 512, bytes: 64 },
            set: Compact { entries: 512, bytes: usize::MAX },
            sorted_set: Compact { entries: 128, bytes: 64 },
            stream: NodeLimits { entries: 100, bytes: 4096 },
            sparse_bytes: 3000,
        }
    }
}

/// Thresholds that may be changed while others read them.
pub(crate) struct Shared([AtomicUsize; 9]);

impl Shared {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        let shared = Self(Default::default());
        shared.set(thresholds);
        shared
    }

    // Relaxed: a command that runs meanwhile may go by either.
    pub(crate) fn set(&self, thresholds: Thresholds) {
        let Thresholds { hash, set, sorted_set, stream, sparse_bytes } = thresholds;
        let collections = [hash, set, sorted_set].map(|compact| [compact.entries, compact.bytes]);
        let others = [stream.entries as usize, stream.bytes, sparse_bytes];
        for (word, new) in self.0.iter().zip(collections.into_iter().flatten().chain(others)) {
            word.store(new, Relaxed);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Thresholds {
        let at = |at: usize| self.0[at].load(Relaxed);
        Thresholds {
            hash: Compact { entries: at(0), bytes: at(1) },
            set: Compact { entries: at(2), bytes: at(3) },
            sorted_set: Compact { entries: at(4), bytes: at(5) },
            stream: NodeLimits { entries: at(6) as u64, bytes: at(7) },
            sparse_bytes: at(8),
        }
    }
}
