//! Batches: several writes, all or nothing.

use crate::get::stamp::Stamp;
use crate::get::value::{CollectionId, Meta};
use crate::table::tables::{Named, Table, Target};
use duramen_log::sync::Arc;
use std::ops::Range;

// A batch that is filled again keeps this much memory for keys and values.
const BYTES_KEEP: usize = 1 << 20;

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
    pub(crate) fn target(&self) -> Target<'_> {
        match self {
            Self::Store => Target::Store,
            Self::Catalog => Target::Catalog,
            Self::Named(named) => Target::Named(named),
            Self::Collection(table) => Target::Collection(table),
        }
    }
}

/// A key, and its stamp when it was read.
pub(crate) type Expect = (In, Vec<u8>, Stamp);

/// One write of a batch. Its bytes lie in [`Batch::bytes`]: the key, then the value.
struct Planned {
    /// Its table in [`Batch::tables`].
    table: usize,
    key: Range<usize>,
    /// The end of the value, and its metadata; `None` deletes the key. The value of a root excludes the collection id
    /// that precedes it in the record.
    put: Option<(usize, Meta)>,
}

/// One write of a batch, for the engine.
pub(crate) struct BatchWrite<'a> {
    pub(crate) table: &'a In,
    pub(crate) key: &'a [u8],
    /// `None` deletes the key.
    pub(crate) new: Option<(&'a [u8], Meta)>,
}

/// The stored value of a root: the id of the collection that it names, then the caller's value.
pub(crate) fn root_value(value: &[u8], meta: Meta) -> Vec<u8> {
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
    writes: Vec<Planned>,
    /// Keys and values of all writes: one allocation however many they are.
    bytes: Vec<u8>,
    /// The tables of the writes, in the order of their first use. Writes go to the last one.
    tables: Vec<In>,
    pub(crate) expects: Vec<Expect>,
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
        self.add(key.as_ref(), Some((value.as_ref(), meta)))
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.add(key.as_ref(), None)
    }

    /// The whole batch applies only if `key` still has this stamp.
    pub fn expect(&mut self, key: &[u8], stamp: Stamp) -> &mut Self {
        let table = self.tables.last().cloned().unwrap_or_default();
        self.expects.push((table, key.to_vec(), stamp));
        self
    }

    /// Sets an entry of the catalog. The writes added next go there too.
    pub(crate) fn put_name(&mut self, name: &[u8], entry: &[u8]) {
        self.set_table(In::Catalog);
        self.put(name, entry);
    }

    /// Directs the writes and conditions added next to `table`.
    pub(crate) fn set_table(&mut self, table: In) {
        self.tables.push(table);
    }

    fn add(&mut self, key: &[u8], new: Option<(&[u8], Meta)>) -> &mut Self {
        if self.tables.is_empty() {
            self.set_table(In::Store);
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let key = start..self.bytes.len();
        let put = new.map(|(value, meta)| {
            self.bytes.extend_from_slice(value);
            (self.bytes.len(), meta)
        });
        self.writes.push(Planned { table: self.tables.len() - 1, key, put });
        self
    }

    /// The writes, in the order in which they were added.
    pub(crate) fn writes(&self) -> impl Iterator<Item = BatchWrite<'_>> {
        self.writes.iter().map(|planned| BatchWrite {
            table: &self.tables[planned.table],
            key: &self.bytes[planned.key.clone()],
            new: planned.put.map(|(end, meta)| (&self.bytes[planned.key.end..end], meta)),
        })
    }

    /// Whether it has neither writes nor conditions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.expects.is_empty()
    }

    /// Removes all writes and conditions, so that the batch can be filled again.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEEP);
        self.tables.clear();
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
