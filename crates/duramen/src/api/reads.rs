//! Reads, the same for the store's own table, a named table and a collection.

use crate::api::StoreOn;
use crate::api::collections::CollectionOn;
use crate::api::iter::Iter;
use crate::api::tables::TableOn;
use crate::api::writer::WriterOn;
use crate::get::barrier::ReadBarrier;
use crate::get::lookup::Looked;
use crate::get::value::{Cursor, Value, ValueInfo};
use crate::records::Records;
use crate::scan::range::{prefix_of, range_of};
use crate::table::tables::{Table, Target};
use crate::{Error, ErrorKind, Range, Result, Stamp};
use duramen_index::Slot;
use duramen_index::collection::{CollectionIndex, Order};
use duramen_log::sync::reclaim;
use duramen_media::{Mapped, Medium};
use std::ops::RangeBounds;

/// Elements that a walk by ranks reads together ...
const TOGETHER: usize = 64;
/// ... and those that it reads first: many walks want no more.
const TOGETHER_FIRST: usize = 4;
/// Entries that [`Reads::for_each`] visits under one grace period.
const VISITED: usize = 1024;

/// Keys of a store: those of its own table, of a [`TableOn`], or the elements of a [`CollectionOn`].
pub trait Keys<M: Medium>: sealed::Keys<M> {}

impl<M: Medium, K: sealed::Keys<M> + ?Sized> Keys<M> for K {}

pub(crate) mod sealed {
    use super::{CollectionOn, Medium, StoreOn, TableOn, Target};

    pub trait Keys<M: Medium> {
        #[expect(private_interfaces, reason = "only this crate calls it")]
        fn target(&self) -> Target<'_>;
        fn store(&self) -> &StoreOn<M>;
    }

    #[expect(private_interfaces, reason = "only this crate calls it")]
    impl<M: Medium> Keys<M> for StoreOn<M> {
        fn target(&self) -> Target<'_> {
            Target::Store
        }

        fn store(&self) -> &StoreOn<M> {
            self
        }
    }

    #[expect(private_interfaces, reason = "only this crate calls it")]
    impl<M: Medium> Keys<M> for TableOn<M> {
        fn target(&self) -> Target<'_> {
            self.target()
        }

        fn store(&self) -> &StoreOn<M> {
            self.store()
        }
    }

    #[expect(private_interfaces, reason = "only this crate calls it")]
    impl<M: Medium> Keys<M> for CollectionOn<M> {
        fn target(&self) -> Target<'_> {
            self.target()
        }

        fn store(&self) -> &StoreOn<M> {
            self.store()
        }
    }
}

/// Reads of one table or collection. Plain ones show only durable values; those of a writer ([`WriterOn::read`]) may
/// show values that are not durable yet within its group. Costs nothing: make it for each call.
///
/// Every call returns `NotFound` when the table was dropped or the collection is gone.
pub struct Reads<'a, M: Medium = Mapped> {
    records: &'a Records<M>,
    target: Target<'a>,
    /// If the reader is a writer in a group.
    read_barrier: Option<&'a ReadBarrier>,
}

impl<M: Medium> Clone for Reads<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for Reads<'_, M> {}

impl<M: Medium> std::fmt::Debug for Reads<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reads").field("in_group", &self.read_barrier.is_some()).finish_non_exhaustive()
    }
}

impl<'a, M: Medium> Reads<'a, M> {
    #[inline(always)]
    pub(crate) fn new(
        records: &'a Records<M>,
        target: Target<'a>,
        read_barrier: Option<&'a ReadBarrier>,
    ) -> Self {
        Self { records, target, read_barrier }
    }

    /// The value of `key`, without copying it. O(1): one index line and the record's lines.
    ///
    /// # Errors
    /// `Corrupt` when the key's record is damaged, or a damaged record may be the key's: the key is shown neither with
    /// a value nor as absent, until it is put or deleted. With `EveryWrite` on a page medium a value is shown only when
    /// it is durable: if the wait for that fails, its error.
    #[inline(always)]
    pub fn get(self, key: impl AsRef<[u8]>) -> Result<Option<Value<'a>>> {
        self.records.log.epochs().check_process()?;
        self.records.get(self.target, key.as_ref(), self.read_barrier)
    }

    /// As `get`, with the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`Reads::get`].
    pub fn get_stamped(self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'a>>)> {
        let (records, key) = (self.records, key.as_ref());
        records.log.epochs().check_process()?;
        let guard = reclaim::pin();
        let table = records.tables.at(self.target, &guard)?;
        Ok(match records.look_up(table, key, records.hasher.hash(key), &guard, self.read_barrier)? {
            Looked::Absent(stamp) => (stamp, None),
            Looked::Present(value) => (value.stamp(), Some(value)),
        })
    }

    /// Copies the value of `key` into `into`, which is cleared first; false when the key is absent.
    ///
    /// # Errors
    /// As [`Reads::get`].
    #[inline(always)]
    pub fn get_into(self, key: impl AsRef<[u8]>, into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        if self.read_barrier.is_some() {
            let value = self.get(key)?;
            into.extend_from_slice(value.as_deref().unwrap_or_default());
            return Ok(value.is_some());
        }
        self.records.log.epochs().check_process()?;
        self.records.get_into(self.target, key.as_ref(), into)
    }

    /// Whether `key` is present.
    ///
    /// # Errors
    /// As [`Reads::get`].
    pub fn contains(self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.info(key)?.is_some())
    }

    /// What is known of the value of `key` without reading it: for callers that need only its metadata or its length.
    /// Keeps nothing of the store, unlike a [`Value`].
    ///
    /// # Errors
    /// As [`Reads::get`].
    #[inline(always)]
    pub fn info(self, key: impl AsRef<[u8]>) -> Result<Option<ValueInfo>> {
        self.records.log.epochs().check_process()?;
        self.records.info(self.target, key.as_ref(), self.read_barrier)
    }

    /// Hints that these keys are read or written soon: their lines are prefetched with overlapping misses. Changes
    /// nothing, waits for nothing, and may be wrong.
    pub fn prefetch(self, keys: &[impl AsRef<[u8]>]) {
        self.records.prefetch(self.target, keys);
    }

    /// The values of several keys, with overlapping cache misses. Each is the key's value at some moment during the
    /// call. Keys may be slices, vectors, strings, or arrays of one length.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = duramen::Options::default().open(dir.path().join("store"))?;
    /// store.put(b"user:7", b"Ada")?;
    /// let keys: Vec<String> = (6..8).map(|id| format!("user:{id}")).collect();
    /// let values = store.get_many(&keys)?;
    /// assert!(values[0].is_none() && values[1].as_deref() == Some(b"Ada"));
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Reads::get`].
    pub fn get_many(self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value<'a>>>> {
        if self.read_barrier.is_some() {
            return keys.iter().map(|key| self.get(key)).collect();
        }
        self.records.log.epochs().check_process()?;
        self.records.get_many(self.target, keys)
    }

    /// Visits about `count` live entries from `cursor` on; returns the cursor to continue from, 0 at the end. A key
    /// that is present during the whole scan is visited at least once.
    ///
    /// # Errors
    /// As [`Reads::get`]. `Corrupt` when some of the entries are damaged: the others up to [`Error::cursor`] were
    /// visited, and the scan can continue there.
    pub fn scan(self, cursor: Cursor, count: usize, visit: &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> {
        let Self { records, target, read_barrier } = self;
        records.log.epochs().check_process()?;
        let cursor = records.tables.at(target, &reclaim::pin())?.index.cursor_meant(cursor);
        let scanned = records.scan(target, read_barrier, cursor, count, visit);
        let guard = reclaim::pin();
        let index = &records.tables.at(target, &guard)?.index;
        match scanned {
            Ok(cursor) => Ok(index.cursor_shown(cursor)),
            Err(error) => Err(match error.cursor() {
                Some(cursor) => error.with_cursor(index.cursor_shown(cursor)),
                None => error,
            }),
        }
    }

    /// A cursor at a place that `random` picks, for [`Reads::scan`].
    ///
    /// # Errors
    /// Only that of every call.
    pub fn cursor_at(self, random: u64) -> Result<Cursor> {
        let guard = reclaim::pin();
        let index = &self.records.tables.at(self.target, &guard)?.index;
        Ok(index.cursor_shown(index.cursor_at(random, &guard)))
    }

    /// Calls `visit` for every live entry: for each key that is present during the whole call exactly once, or more
    /// often while the index grows or shrinks.
    ///
    /// # Errors
    /// As [`Reads::get`].
    pub fn for_each(self, mut visit: impl FnMut(&Value<'_>)) -> Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, VISITED, &mut visit)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Copies of all live entries. [`Reads::for_each`] visits them without a copy.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let store = duramen::Store::open(dir.path().join("store"))?;
    /// store.put("one", "1")?;
    /// store.put("two", "2")?;
    /// let mut entries = store.iter().collect::<duramen::Result<Vec<_>>>()?;
    /// entries.sort();
    /// assert_eq!(entries, [(b"one".to_vec(), b"1".to_vec()), (b"two".to_vec(), b"2".to_vec())]);
    /// # Ok::<(), duramen::Error>(())
    /// ```
    #[must_use]
    pub fn iter(self) -> Iter<'a> {
        Iter::new(move |cursor, visit| self.scan(cursor, Iter::ENTRIES, visit))
    }

    /// A random live entry that `wanted` accepts, each with the same probability; `seed` determines which. Draws at
    /// most a few thousand places of the index until one holds such an entry. So `None` proves nothing where few
    /// entries are wanted, or nearly all keys were just deleted. Then scan, from [`Reads::cursor_at`] on.
    ///
    /// # Errors
    /// As [`Reads::get`].
    pub fn pick(self, seed: u64, wanted: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<Option<Value<'a>>> {
        self.records.pick(self.target, self.read_barrier, seed, wanted)
    }

    /// Live keys; expired ones count until they are swept. 0 when the table was dropped or the collection is gone.
    /// Exact while nobody writes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.records.tables.at(self.target, &reclaim::pin()).map_or(0, Table::keys)
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Keys within bounds, and their values, in the order of the keys' bytes. O(log n) for the first one, then O(1)
    /// each. The iterator ends when its table is cleared or dropped.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// use duramen::{IndexKind, Options};
    ///
    /// let store = Options { index: IndexKind::Ordered, ..Options::default() }.open(dir.path().join("store"))?;
    /// for name in ["ash", "beech", "birch", "oak"] {
    ///     store.put(name.as_bytes(), b"tree")?;
    /// }
    /// let (from, to): (&[u8], &[u8]) = (b"b", b"c");
    /// let names: Vec<_> = store.range(from..to)?.map(|tree| Ok(tree?.key().to_vec())).collect::<duramen::Result<_>>()?;
    /// assert_eq!(names, [&b"beech"[..], b"birch"]);
    /// let last = store.range(..)?.next_back().transpose()?;
    /// assert_eq!(last.unwrap().key(), b"oak");
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` where the index is no ordered one. Items of the iterator: as [`Reads::get`]. After an error the
    /// iterator ends, except after `Corrupt`, which replaces a damaged record: the next records follow.
    pub fn range<'k>(self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range<'a, M>> {
        range_of(self.records, self.target, self.read_barrier, &keys)
    }

    /// Keys with this `prefix`; as [`Reads::range`].
    ///
    /// # Errors
    /// As [`Reads::range`].
    pub fn prefix(self, prefix: impl AsRef<[u8]>) -> Result<Range<'a, M>> {
        prefix_of(self.records, self.target, self.read_barrier, prefix.as_ref())
    }

    /// The lowest key and its value.
    ///
    /// # Errors
    /// As [`Reads::range`].
    pub fn first(self) -> Result<Option<Value<'a>>> {
        self.range(..)?.next().transpose()
    }

    /// The highest key and its value.
    ///
    /// # Errors
    /// As [`Reads::range`].
    pub fn last(self) -> Result<Option<Value<'a>>> {
        self.range(..)?.next_back().transpose()
    }

    /// The collection, alive, and its index.
    fn collection(self) -> Result<(&'a Table, &'a CollectionIndex)> {
        let Target::Collection(table) = self.target else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "only elements of a collection have ranks, and are visited once each: use range, or scan",
            ));
        };
        let table = table.alive()?;
        let index = table.index.collection();
        Ok((table, index.ok_or_else(|| Error::new(ErrorKind::Unsupported, "the collection has no index"))?))
    }

    /// As `collection`, if its elements have an order.
    fn ordered(self) -> Result<(&'a Table, &'a CollectionIndex)> {
        let found = self.collection()?;
        if found.1.order() == Order::None {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the elements have no order: make the collection with ElementOrder::ByValue or ByKey",
            ));
        }
        Ok(found)
    }

    /// Visits each element of a collection once, in no order, until `visit` returns false. Nobody may write elements
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Reads::get`]; `Unsupported` of a table.
    pub fn each(self, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.records.log.epochs().check_process()?;
        let (table, index) = self.collection()?;
        let (mut position, mut slots) = (Some(0), Vec::new());
        while let Some(at) = position {
            let mut values = Vec::with_capacity(slots.len());
            {
                let guard = reclaim::pin();
                table.alive()?;
                slots.clear();
                position = index.each_at(at, self.records, &mut |slot| slots.push(slot));
                slots.iter().for_each(|slot| self.records.log.medium.prefetch(slot.location()));
                for slot in &slots {
                    values.extend(self.records.show(table, *slot, &guard, self.read_barrier)?);
                }
            }
            if !values.iter().all(&mut *visit) {
                break;
            }
        }
        Ok(())
    }

    /// Number of elements of a collection before that of `key`; `None` when `key` is absent. O(log n).
    ///
    /// # Errors
    /// As [`Reads::get`]; `Unsupported` without an order.
    pub fn rank(self, key: &[u8]) -> Result<Option<u64>> {
        let (_, index) = self.ordered()?;
        let Some(value) = self.get(key)? else { return Ok(None) };
        let order = if index.order() == Order::Value { order_of(&value) } else { order_of(key) };
        // Keys of records are compared on the way.
        let _guard = reclaim::pin();
        self.collection()?;
        Ok(index.rank(order, key, self.records))
    }

    /// Number of elements with an order below this one or, if `behind`, not above it. O(log n).
    ///
    /// # Errors
    /// `Unsupported` without an order.
    pub fn rank_of_order(self, order: [u8; 8], behind: bool) -> Result<u64> {
        let (_, index) = self.ordered()?;
        Ok(index.rank_of_order(u64::from_be_bytes(order), behind).unwrap_or(0))
    }

    /// The element of this rank; `None` when there are no more than that. O(log n).
    ///
    /// # Errors
    /// As [`Reads::ranked`].
    pub fn nth(self, rank: u64) -> Result<Option<Value<'a>>> {
        self.ordered()?;
        Ok(self.some_ranked(rank, false, 1, &mut Vec::with_capacity(1))?.pop())
    }

    /// Visits elements in order, forward from the one of this rank or, in `reverse`, backward from it, until `visit`
    /// returns false. O(log n) for the first one, then O(1) each.
    ///
    /// # Errors
    /// As [`Reads::get`]; `Unsupported` without an order.
    pub fn ranked(self, rank: u64, reverse: bool, visit: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<()> {
        self.ordered()?;
        // In reverse the cursor is after the element.
        let mut at = if reverse { rank.saturating_add(1).min(self.len()) } else { rank };
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
        let Self { records, read_barrier, .. } = self;
        slots.clear();
        let guard = reclaim::pin();
        let (table, index) = self.collection()?;
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

/// The reads that each handle has itself: those of its `reads()`.
macro_rules! read_directly {
    ($handle:ident) => {
        impl<M: Medium> $handle<M> {
            /// See [`Reads::get`].
            ///
            /// # Errors
            /// See there.
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
                self.reads().get(key)
            }

            /// See [`Reads::get_stamped`].
            ///
            /// # Errors
            /// See there.
            pub fn get_stamped(&self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'_>>)> {
                self.reads().get_stamped(key)
            }

            /// See [`Reads::get_into`].
            ///
            /// # Errors
            /// See there.
            pub fn get_into(&self, key: impl AsRef<[u8]>, into: &mut Vec<u8>) -> Result<bool> {
                self.reads().get_into(key, into)
            }

            /// See [`Reads::contains`].
            ///
            /// # Errors
            /// See there.
            pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
                self.reads().contains(key)
            }

            /// See [`Reads::info`].
            ///
            /// # Errors
            /// See there.
            pub fn info(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueInfo>> {
                self.reads().info(key)
            }

            /// See [`Reads::prefetch`].
            pub fn prefetch(&self, keys: &[impl AsRef<[u8]>]) {
                self.reads().prefetch(keys);
            }

            /// See [`Reads::get_many`].
            ///
            /// # Errors
            /// See there.
            pub fn get_many<'a>(&'a self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value<'a>>>> {
                self.reads().get_many(keys)
            }

            /// See [`Reads::scan`].
            ///
            /// # Errors
            /// See there.
            pub fn scan(
                &self,
                cursor: Cursor,
                count: usize,
                visit: &mut dyn FnMut(&Value<'_>),
            ) -> Result<Cursor> {
                self.reads().scan(cursor, count, visit)
            }

            /// See [`Reads::cursor_at`].
            ///
            /// # Errors
            /// See there.
            pub fn cursor_at(&self, random: u64) -> Result<Cursor> {
                self.reads().cursor_at(random)
            }

            /// See [`Reads::for_each`].
            ///
            /// # Errors
            /// See there.
            pub fn for_each(&self, visit: impl FnMut(&Value<'_>)) -> Result<()> {
                self.reads().for_each(visit)
            }

            /// See [`Reads::iter`].
            #[must_use]
            pub fn iter(&self) -> Iter<'_> {
                self.reads().iter()
            }

            /// See [`Reads::pick`].
            ///
            /// # Errors
            /// See there.
            pub fn pick(
                &self,
                seed: u64,
                wanted: &mut dyn FnMut(&Value<'_>) -> bool,
            ) -> Result<Option<Value<'_>>> {
                self.reads().pick(seed, wanted)
            }

            /// See [`Reads::len`].
            #[must_use]
            pub fn len(&self) -> u64 {
                self.reads().len()
            }

            /// See [`Reads::is_empty`].
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.reads().is_empty()
            }

            /// See [`Reads::range`].
            ///
            /// # Errors
            /// See there.
            pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range<'_, M>> {
                self.reads().range(keys)
            }

            /// See [`Reads::prefix`].
            ///
            /// # Errors
            /// See there.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Range<'_, M>> {
                self.reads().prefix(prefix)
            }

            /// See [`Reads::first`].
            ///
            /// # Errors
            /// See there.
            pub fn first(&self) -> Result<Option<Value<'_>>> {
                self.reads().first()
            }

            /// See [`Reads::last`].
            ///
            /// # Errors
            /// See there.
            pub fn last(&self) -> Result<Option<Value<'_>>> {
                self.reads().last()
            }
        }
    };
}

read_directly!(StoreOn);
read_directly!(TableOn);
read_directly!(CollectionOn);
read_directly!(WriterOn);

impl<M: Medium> StoreOn<M> {
    /// Reads of the store's own table.
    #[inline(always)]
    #[must_use]
    pub fn reads(&self) -> Reads<'_, M> {
        Reads::new(self.records(), Target::Store, None)
    }
}

impl<M: Medium> TableOn<M> {
    /// Reads of the table.
    #[inline(always)]
    #[must_use]
    pub fn reads(&self) -> Reads<'_, M> {
        Reads::new(self.store().records(), self.target(), None)
    }
}

impl<M: Medium> CollectionOn<M> {
    /// Reads of the collection.
    #[inline(always)]
    #[must_use]
    pub fn reads(&self) -> Reads<'_, M> {
        Reads::new(self.store().records(), self.target(), None)
    }
}

impl<M: Medium> WriterOn<M> {
    /// Reads of the store's own table by this writer: within a group they may show values that are not durable yet.
    #[inline(always)]
    #[must_use]
    pub fn reads(&self) -> Reads<'_, M> {
        Reads::new(self.store().records(), Target::Store, self.read_barrier())
    }

    /// Reads of a table or a collection of this writer's store, as [`WriterOn::reads`].
    #[must_use]
    pub fn read<'w>(&'w self, keys: &'w impl Keys<M>) -> Reads<'w, M> {
        Reads::new(self.store().records(), keys.target(), self.read_barrier())
    }
}
