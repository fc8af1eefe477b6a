//! Batches: several writes, all or nothing.

use crate::read::CollectionId;
use crate::read::table::{Named, Table, Target};
use crate::read::value::{Meta, Stamp};
use crate::sync::Arc;

/// The table of a key.
#[derive(Clone, Default)]
pub(crate) enum In {
    #[default]
    Store,
    Catalog,
    Named(Arc<Named>),
    Collection(Arc<Table>),
}

impl In {
    pub(super) fn target(&self) -> Target<'_> {
        match self {
            Self::Store => Target::Store,
            Self::Catalog => Target::Catalog,
            Self::Named(named) => Target::Named(named),
            Self::Collection(table) => Target::Collection(table),
        }
    }
}

/// What a batch does to one key.
pub(crate) enum Op {
    /// The value of a root excludes the collection id that precedes it in the record.
    Put {
        value: Vec<u8>,
        meta: Meta,
    },
    Delete,
}

/// The stored value of a root: the id of the collection that it names, then the caller's value.
pub(super) fn root_value(value: &[u8], meta: Meta) -> Vec<u8> {
    let names = meta.collection.map_or(0, |CollectionId(owner)| owner.0);
    [&names.to_le_bytes(), value].concat()
}

/// Several writes, all or nothing, with conditions: a transaction ([`Writer::transaction`](crate::Writer::transaction))
/// whose writes are known in advance. A key may be written more than once; its last write counts.
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
    pub(crate) writes: Vec<(In, Vec<u8>, Op)>,
    pub(crate) expects: Vec<(In, Vec<u8>, Stamp)>,
    /// The table of the writes added next.
    pub(crate) now: In,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with this metadata. `meta.updatable` is ignored: a value written in a transaction is
    /// never updated in place.
    pub fn put_with(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, meta: Meta) -> &mut Self {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.writes.push((self.now.clone(), key.to_vec(), Op::Put { value: value.to_vec(), meta }));
        self
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        let key = key.as_ref();
        self.writes.push((self.now.clone(), key.to_vec(), Op::Delete));
        self
    }

    /// The whole batch applies only if `key` still has this stamp.
    pub fn expect(&mut self, key: &[u8], stamp: Stamp) -> &mut Self {
        self.expects.push((self.now.clone(), key.to_vec(), stamp));
        self
    }

    /// Sets an entry of the catalog.
    pub(crate) fn put_name(&mut self, name: &[u8], entry: &[u8]) {
        let op = Op::Put { value: entry.to_vec(), meta: Meta::default() };
        self.writes.push((In::Catalog, name.to_vec(), op));
    }

    /// Whether it has neither writes nor conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.expects.is_empty()
    }

    /// Removes all writes and conditions, so that the batch can be filled again.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.expects.clear();
        self.now = In::Store;
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
