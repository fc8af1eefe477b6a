//! Several writes, all or nothing.

use crate::read::value::{Meta, Stamp};

/// What a batch does to one key.
pub(crate) enum Op {
    Put { value: Vec<u8>, meta: Meta },
    Delete,
}

/// Several writes, all or nothing, with conditions. A key may be written more than once; its last
/// write counts.
///
/// All of them together, with 24 to 32 bytes each for the header, may take up to 1 GiB.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let store = duramen::Options::default().open(dir.path().join("store"))?;
/// let mut batch = duramen::Batch::new();
/// batch.put(b"from", b"90").put(b"to", b"110");
/// assert_eq!(store.apply(&batch)?, duramen::Swap::Done);
/// # Ok::<(), duramen::Error>(())
/// ```
#[derive(Default)]
pub struct Batch {
    pub(crate) writes: Vec<(Vec<u8>, Op)>,
    pub(crate) expects: Vec<(Vec<u8>, Stamp)>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with what goes with it. `meta.updatable` is ignored: members of a batch are
    /// never updated in place.
    pub fn put_with(&mut self, key: &[u8], value: &[u8], meta: Meta) -> &mut Self {
        self.writes.push((key.to_vec(), Op::Put { value: value.to_vec(), meta }));
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: &[u8]) -> &mut Self {
        self.writes.push((key.to_vec(), Op::Delete));
        self
    }

    /// The whole batch applies only if `key`'s stamp still is `stamp`.
    pub fn expect(&mut self, key: &[u8], stamp: Stamp) -> &mut Self {
        self.expects.push((key.to_vec(), stamp));
        self
    }

    /// Whether it does nothing and demands nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.expects.is_empty()
    }

    /// Makes it empty again, to be filled anew.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.expects.clear();
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch")
            .field("writes", &self.writes.len())
            .field("expects", &self.expects.len())
            .finish()
    }
}
