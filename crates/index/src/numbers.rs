//! Numbers of an index, for statistics.

/// Numbers of an index.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    pub bytes: u64,
    pub splits: u64,
    pub doublings: u64,
    pub merges: u64,
    pub cache_hits: u64,
    pub cache_misses: u64,
    pub leaf_waits: u64,
}

impl Numbers {
    /// The sums of the numbers of two indexes.
    pub fn plus(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            splits: self.splits + other.splits,
            doublings: self.doublings + other.doublings,
            merges: self.merges + other.merges,
            cache_hits: self.cache_hits + other.cache_hits,
            cache_misses: self.cache_misses + other.cache_misses,
            leaf_waits: self.leaf_waits + other.leaf_waits,
        }
    }
}
