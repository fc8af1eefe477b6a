//! Collections: keys whose value is many records.
//!
//! A collection is an owner named by a *root*: a value that was put with [`Meta::collection`]. Its *elements* are
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

use crate::api::writer::WriterOn;
use crate::api::{Part, StoreOn};
use crate::get::barrier::ReadBarrier;
use crate::get::value::{CollectionId, Cursor, Value};
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::transaction::batch::In;
use crate::writer::Swap;
use crate::{Batch, Error, ErrorKind, Meta, Result, Stamp};
use duramen_index::Slot;
use duramen_index::collection::Order;
use duramen_log::format::OwnerKind;
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim;
use duramen_media::{Mapped, Medium};

/// Elements that a walk by ranks takes from the index at a time, first and later: many walks need only a few.
const TOGETHER_FIRST: usize = 4;
const TOGETHER: usize = 64;

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
/// ([`Meta::collection`]), and deleting or overwriting that key removes all elements by one small write.
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

    fn records(&self) -> &Records<M> {
        self.store.records()
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

    /// The number of its elements: exact; 0 when the collection is gone. O(1).
    #[must_use]
    pub fn len(&self) -> u64 {
        self.table.alive().map_or(0, Table::keys)
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Drops a collection that no root names. Has no effect on one that a root names.
    pub fn abandon(self) {
        self.records().tables.abandon(&self.table);
    }

    /// The element of `key`, as [`StoreOn::get`].
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        self.reads().get(key)
    }

    /// Visits about `count` elements from `cursor` on, in no order, as [`StoreOn::scan`].
    ///
    /// # Errors
    /// As [`StoreOn::scan`].
    pub fn scan(&self, cursor: Cursor, count: usize, visit: &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> {
        self.reads().scan(cursor, count, visit)
    }

    /// Visits each element once, in no order, until `visit` returns false. Nobody may write elements meanwhile.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn each(&self, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.reads().each(visit)
    }

    /// A random element that `wanted` accepts, each with the same probability, as [`StoreOn::pick`].
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn pick(&self, seed: u64, wanted: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<Option<Value<'_>>> {
        self.reads().pick(seed, wanted)
    }

    /// Number of elements before that of `key`; `None` when `key` is absent. O(log n).
    ///
    /// # Errors
    /// As [`StoreOn::get`]; `Unsupported` without an order.
    pub fn rank(&self, key: &[u8]) -> Result<Option<u64>> {
        self.reads().rank(key)
    }

    /// Number of elements with an order below this one or, if `behind`, not above it. O(log n).
    ///
    /// # Errors
    /// `Unsupported` without an order.
    pub fn rank_of_order(&self, order: [u8; 8], behind: bool) -> Result<u64> {
        self.ordered()?;
        let index = self.table.alive()?.index.collection();
        Ok(index.and_then(|index| index.rank_of_order(u64::from_be_bytes(order), behind)).unwrap_or(0))
    }

    /// The element of this rank; `None` when there are no more than that. O(log n).
    ///
    /// # Errors
    /// As [`CollectionOn::ranked`].
    pub fn nth(&self, rank: u64) -> Result<Option<Value<'_>>> {
        self.reads().nth(rank)
    }

    /// Visits elements in order, forward from the one of this rank or, in `reverse`, backward from it, until `visit`
    /// returns false. O(log n) for the first one, then O(1) each.
    ///
    /// # Errors
    /// As [`StoreOn::get`]; `Unsupported` without an order.
    pub fn ranked(&self, rank: u64, reverse: bool, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.reads().ranked(rank, reverse, visit)
    }

    /// Reads outside of any writer's group.
    #[must_use]
    pub fn reads(&self) -> CollectionReader<'_, M> {
        CollectionReader { collection: self, read_barrier: None }
    }

    fn ordered(&self) -> Result<()> {
        if self.order() == ElementOrder::Unordered {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the elements have no order: make the collection with ElementOrder::ByValue or ByKey",
            ));
        }
        Ok(())
    }

    /// Sets an element, with the calling thread's own writer, as [`StoreOn::put`].
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store.with_writer_state(|writer_state, context| {
            writer_state.put(context, self.target(), key, value, Meta::default())
        })
    }

    /// Removes an element; returns whether it was present.
    ///
    /// # Errors
    /// As [`StoreOn::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.store.with_writer_state(|writer_state, context| writer_state.delete(context, self.target(), key))
    }
}

/// Reads of a collection: either plain ones, as those of [`StoreOn`], or those of a writer ([`WriterOn::read`]), which
/// may show values that are not durable yet within its group.
pub struct CollectionReader<'a, M: Medium = Mapped> {
    collection: &'a CollectionOn<M>,
    /// If the reader is a writer in a group.
    read_barrier: Option<&'a ReadBarrier>,
}

impl<M: Medium> Clone for CollectionReader<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for CollectionReader<'_, M> {}

impl<M: Medium> std::fmt::Debug for CollectionReader<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CollectionReader").field("collection", self.collection).finish_non_exhaustive()
    }
}

impl<'a, M: Medium> CollectionReader<'a, M> {
    /// As [`CollectionOn::get`].
    ///
    /// # Errors
    /// As for that method.
    pub fn get(self, key: impl AsRef<[u8]>) -> Result<Option<Value<'a>>> {
        let key = key.as_ref();
        let Self { collection, read_barrier } = self;
        collection.records().log.epochs().check_process()?;
        collection.records().get_owing(collection.target(), key, read_barrier)
    }

    /// Hints that elements with these keys are read or written soon, as [`StoreOn::prefetch`].
    pub fn prefetch(self, keys: &[impl AsRef<[u8]>]) {
        self.collection.records().prefetch(self.collection.target(), keys);
    }

    /// As [`CollectionOn::scan`].
    ///
    /// # Errors
    /// As for that method.
    pub fn scan(self, cursor: Cursor, count: usize, visit: &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> {
        let Self { collection, read_barrier } = self;
        collection.store.scan_in(collection.target(), read_barrier, cursor, count, visit)
    }

    /// As [`CollectionOn::each`].
    ///
    /// # Errors
    /// As for that method.
    pub fn each(self, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        let Self { collection, read_barrier } = self;
        let (records, table) = (collection.records(), &*collection.table);
        records.log.epochs().check_process()?;
        let Some(index) = table.index.collection() else { return Ok(()) };
        let (mut position, mut slots) = (Some(0), Vec::new());
        while let Some(at) = position {
            let mut values = Vec::with_capacity(slots.len());
            {
                let guard = reclaim::pin();
                table.alive()?;
                slots.clear();
                position = index.each_at(at, records, &mut |slot| slots.push(slot));
                slots.iter().for_each(|slot| records.log.medium.prefetch(slot.location()));
                for slot in &slots {
                    values.extend(records.show(table, *slot, &guard, read_barrier)?);
                }
            }
            if !values.iter().all(&mut *visit) {
                break;
            }
        }
        Ok(())
    }

    /// As [`CollectionOn::pick`].
    ///
    /// # Errors
    /// As for that method.
    pub fn pick(self, seed: u64, wanted: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<Option<Value<'a>>> {
        let Self { collection, read_barrier } = self;
        collection.records().pick(collection.target(), read_barrier, seed, wanted)
    }

    /// As [`CollectionOn::rank`].
    ///
    /// # Errors
    /// As for that method.
    pub fn rank(self, key: &[u8]) -> Result<Option<u64>> {
        let collection = self.collection;
        collection.ordered()?;
        let Some(value) = self.get(key)? else { return Ok(None) };
        let order = match collection.order() {
            ElementOrder::ByValue => order_of(&value),
            _ => order_of(key),
        };
        // Keys of records are compared on the way.
        let _guard = reclaim::pin();
        let index = collection.table.alive()?.index.collection();
        Ok(index.and_then(|index| index.rank(order, key, collection.records())))
    }

    /// As [`CollectionOn::nth`].
    ///
    /// # Errors
    /// As for that method.
    pub fn nth(self, rank: u64) -> Result<Option<Value<'a>>> {
        self.collection.ordered()?;
        Ok(self.some_ranked(rank, false, 1, &mut Vec::with_capacity(1))?.pop())
    }

    /// As [`CollectionOn::ranked`].
    ///
    /// # Errors
    /// As for that method.
    pub fn ranked(self, rank: u64, reverse: bool, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.collection.ordered()?;
        // In reverse the cursor is after the element.
        let mut at = if reverse { rank.saturating_add(1).min(self.collection.len()) } else { rank };
        let (mut slots, mut count) = (Vec::with_capacity(TOGETHER), TOGETHER_FIRST);
        loop {
            let values = self.some_ranked(at, reverse, count, &mut slots)?;
            let taken = slots.len() as u64;
            if !values.iter().all(&mut *visit) || slots.len() < count {
                return Ok(());
            }
            match reverse {
                true if at <= taken => return Ok(()),
                true => at -= taken,
                false => at += taken,
            }
            count = (count * 4).min(TOGETHER);
        }
    }

    /// The elements of `count` ranks. `slots` is a buffer of the caller, which receives the slots of the index there.
    fn some_ranked(
        self,
        at: u64,
        reverse: bool,
        count: usize,
        slots: &mut Vec<Slot>,
    ) -> Result<Vec<Value<'a>>> {
        let Self { collection, read_barrier } = self;
        let (records, table) = (collection.records(), &*collection.table);
        slots.clear();
        let Some(index) = table.index.collection() else { return Ok(Vec::new()) };
        let guard = reclaim::pin();
        table.alive()?;
        let is_durable = index.ranked(at, reverse, count, slots);
        slots.iter().for_each(|slot| records.log.medium.prefetch(slot.location()));
        let mut values = Vec::with_capacity(slots.len());
        for slot in &*slots {
            if is_durable {
                values.extend(records.show(table, *slot, &guard, read_barrier)?);
                continue;
            }
            let Some(record) = records.whole_record(slot.location()) else {
                return Err(records.corrupt(slot.location()));
            };
            let (key, hash) = (record.key(), records.hasher.hash(record.key()));
            // The tree does not store whether a slot is pending.
            values.extend(records.look_up(table, key, hash, &guard, read_barrier)?.value());
        }
        Ok(values)
    }
}

/// The number at the beginning of the bytes, which orders them.
fn order_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let len = bytes.len().min(8);
    word[..len].copy_from_slice(&bytes[..len]);
    u64::from_be_bytes(word)
}

impl Batch {
    /// The writes that follow are to elements of `collection`, until this or [`Batch::table`] is called again.
    pub fn collection<M: Medium>(&mut self, collection: &CollectionOn<M>) -> &mut Self {
        self.set_table(In::Collection(Arc::clone(&collection.table)));
        self
    }
}

/// A writer of one collection: see [`WriterOn::collection`].
pub struct CollectionWriter<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    collection: &'w CollectionOn<M>,
}

impl<M: Medium> std::fmt::Debug for CollectionWriter<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CollectionWriter").field("collection", self.collection).finish_non_exhaustive()
    }
}

impl<M: Medium> WriterOn<M> {
    /// This writer, for elements of `collection`, which must belong to its store. Costs nothing: make it for each call.
    pub fn collection<'w>(&'w mut self, collection: &'w CollectionOn<M>) -> CollectionWriter<'w, M> {
        CollectionWriter { writer: self, collection }
    }

    /// Reads of `collection`, which must belong to this writer's store, as by [`WriterOn::get`]: within a group they
    /// may show values that are not durable yet. Costs nothing: make it for each call.
    pub fn read<'w>(&'w self, collection: &'w CollectionOn<M>) -> CollectionReader<'w, M> {
        CollectionReader { collection, read_barrier: self.read_barrier() }
    }
}

impl<M: Medium> CollectionWriter<'_, M> {
    /// The element of `key` with its stamp, as [`WriterOn::get_stamped`].
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_stamped(&self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'_>>)> {
        let key = key.as_ref();
        self.writer.get_in(self.collection.target(), key)
    }

    /// Sets an element.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        let (writer_state, context) = self.writer.parts();
        writer_state.put(context, self.collection.target(), key, value, Meta::default())
    }

    /// Sets an element, with this metadata; returns whether there was one before.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn replace(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<bool> {
        let (writer_state, context) = self.writer.parts();
        Ok(writer_state.replace(context, self.collection.target(), key, Some((value, meta)))?.is_some())
    }

    /// Removes an element; returns whether it was present.
    ///
    /// # Errors
    /// As [`WriterOn::delete`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        let (writer_state, context) = self.writer.parts();
        writer_state.delete(context, self.collection.target(), key)
    }

    /// Writes an element only if its stamp is still `seen`, as [`WriterOn::compare_and_swap`].
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn compare_and_swap(&mut self, key: &[u8], seen: Stamp, value: Option<&[u8]>) -> Result<Swap> {
        let (writer_state, context) = self.writer.parts();
        let value = value.map(|value| (value, Meta::default()));
        writer_state.compare_and_swap(context, self.collection.target(), key, seen, value)
    }
}
