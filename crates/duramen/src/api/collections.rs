//! Collections: keys whose value is many records.
//!
//! A collection is an owner named by a *root*: a value that was put with [`Meta::collection`](crate::Meta::collection). Its *elements* are
//! separate records, found by the collection's own index. It lives as long as the newest value of some key names it. So
//! whatever its size, one small write deletes, overwrites, renames or expires its key. Elements count when they and a
//! root that names them are durable. So a collection is created by one batch that writes elements and the root;
//! afterwards each element is written separately.
//!
//! A crash may leave elements of an owner that no root names, from batches that did not complete or from removed roots.
//! Recovery checks for each root that it finds whether it is the newest record of its key, and reclaims the other
//! owners (`table::reclaim`).
//!
//! Elements are neither locked nor read together: a caller that needs several at one moment must keep others from
//! writing the collection meanwhile.

use crate::api::{Part, StoreOn};
use crate::get::value::{CollectionId, Value};
use crate::table::tables::{Table, Target};
use crate::transaction::batch::In;
use crate::{Batch, Error, ErrorKind, Result};
use duramen_index::collection::Order;
use duramen_log::format::OwnerKind;
use duramen_log::sync::Arc;
use duramen_media::{Mapped, Medium};

/// The order of the elements of a collection. The order is by 8 bytes, as a big-endian number; equal ones are ordered
/// by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementOrder {
    /// No order: a map. 14 bytes of DRAM per element.
    Unordered,
    /// By the first 8 bytes of the value, such as the score in a sorted set. 34 bytes of DRAM per element, as the next.
    ByValue,
    /// By the first 8 bytes of the key, such as the place in a list or the id in a stream.
    ByKey,
}

/// A collection, made by [`StoreOn::new_collection`]: a [`CollectionOn`] on the media of this machine.
pub type Collection = CollectionOn<Mapped>;

/// A collection of a store: many records, called elements, under one key. A key's value names it
/// ([`Meta::collection`](crate::Meta::collection)), and deleting or overwriting that key removes all elements by one small write.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use duramen::{Batch, ElementOrder, Meta, Options, Swap};
///
/// let store = Options::default().open(dir.path().join("store"))?;
/// let scores = store.new_collection(ElementOrder::ByValue);
/// let mut batch = Batch::new();
/// batch.put_with(b"game", b"", Meta { collection: Some(scores.id()), ..Meta::default() });
/// batch.collection(&scores).put(b"Ada", &7u64.to_be_bytes()).put(b"Bob", &3u64.to_be_bytes());
/// assert_eq!(store.apply(&batch)?, Swap::Done);
///
/// let id = store.get(b"game")?.unwrap().meta().collection.unwrap();
/// let scores = store.collection(id)?;
/// assert_eq!((scores.len(), scores.rank(b"Ada")?), (2, Some(1)));
/// let mut first = Vec::new();
/// scores.ranked(0, false, &mut |element| {
///     first = element.key().to_vec();
///     false
/// })?;
/// assert_eq!(first, b"Bob");
/// store.delete(b"game")?; // one small write: all elements are gone
/// # Ok::<(), duramen::Error>(())
/// ```
pub struct CollectionOn<M: Medium = Mapped> {
    store: Part<M>,
    pub(crate) table: Arc<Table>,
}

impl<M: Medium> Clone for CollectionOn<M> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), table: Arc::clone(&self.table) }
    }
}

impl<M: Medium> std::fmt::Debug for CollectionOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection").field("id", &self.table.owner.0).finish_non_exhaustive()
    }
}

impl<M: Medium> StoreOn<M> {
    /// A new collection, which nothing names yet: write a root that names it, and elements, in one batch. Without a
    /// root it is gone when the store is opened again, or after [`CollectionOn::abandon`].
    #[must_use]
    pub fn new_collection(&self, order: ElementOrder) -> CollectionOn<M> {
        let kind = match order {
            ElementOrder::Unordered => OwnerKind::Map,
            ElementOrder::ByValue => OwnerKind::ByValue,
            ElementOrder::ByKey => OwnerKind::ByKey,
        };
        CollectionOn { store: Part::new(self), table: self.records().tables.fresh(kind) }
    }

    /// The collection that a root names.
    ///
    /// # Errors
    /// `NotFound` when it is gone, since its last root was overwritten, deleted or has expired.
    pub fn collection(&self, id: CollectionId) -> Result<CollectionOn<M>> {
        let records = self.records();
        records.log.epochs().check_process()?;
        let found = records.tables.of(id.0).filter(|table| !table.is_dead() && id.0.is_collection());
        let table = found.ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                "the collection is gone: its key was overwritten, deleted or has expired",
            )
        })?;
        Ok(CollectionOn { store: Part::new(self), table })
    }
}

impl<M: Medium> CollectionOn<M> {
    pub(crate) fn target(&self) -> Target<'_> {
        Target::Collection(&self.table)
    }

    /// The id with which a root names it.
    #[must_use]
    pub fn id(&self) -> CollectionId {
        CollectionId(self.table.owner)
    }

    /// The order of its elements.
    #[must_use]
    pub fn order(&self) -> ElementOrder {
        match self.table.index.collection().map(|index| index.order()) {
            None | Some(Order::None) => ElementOrder::Unordered,
            Some(Order::Value) => ElementOrder::ByValue,
            Some(Order::Key) => ElementOrder::ByKey,
        }
    }

    /// Drops a collection that no root names. Has no effect on one that a root names.
    pub fn abandon(self) {
        self.store.records().tables.abandon(&self.table);
    }

    /// The store that it belongs to.
    #[must_use]
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// See [`Reads::each`](crate::Reads::each).
    ///
    /// # Errors
    /// See there.
    pub fn each(&self, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.reads().each(visit)
    }

    /// See [`Reads::rank`](crate::Reads::rank).
    ///
    /// # Errors
    /// See there.
    pub fn rank(&self, key: &[u8]) -> Result<Option<u64>> {
        self.reads().rank(key)
    }

    /// See [`Reads::rank_of_order`](crate::Reads::rank_of_order).
    ///
    /// # Errors
    /// See there.
    pub fn rank_of_order(&self, order: [u8; 8], behind: bool) -> Result<u64> {
        self.reads().rank_of_order(order, behind)
    }

    /// See [`Reads::nth`](crate::Reads::nth).
    ///
    /// # Errors
    /// See there.
    pub fn nth(&self, rank: u64) -> Result<Option<Value<'_>>> {
        self.reads().nth(rank)
    }

    /// See [`Reads::ranked`](crate::Reads::ranked).
    ///
    /// # Errors
    /// See there.
    pub fn ranked(&self, rank: u64, reverse: bool, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.reads().ranked(rank, reverse, visit)
    }
}

impl Batch {
    /// The writes that follow are to elements of `collection`, until this or [`Batch::table`] is called again.
    pub fn collection<M: Medium>(&mut self, collection: &CollectionOn<M>) -> &mut Self {
        self.set_table(In::Collection(Arc::clone(&collection.table)));
        self
    }
}
