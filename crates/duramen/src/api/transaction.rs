//! Transactions: any number of writes that count all or not at all, after a crash and for every reader, as if each
//! transaction had run alone.
//!
//! A transaction's writes go to the log at once, so it may have any size. `transaction/write.rs` describes how it is
//! shown and the result of a crash.

use crate::api::collections::CollectionOn;
use crate::api::reads::Reads;
use crate::api::tables::TableOn;
use crate::api::writer::WriterOn;
use crate::table::tables::Target;
use crate::transaction::batch::Expect;
use crate::transaction::batch::In;
use crate::{Error, ErrorKind, Meta, Result, Stamp, Value};
use duramen_log::sync::Arc;
use duramen_log::sync::holding::Place;
use duramen_log::sync::thread::yield_now;
use duramen_media::{Mapped, Medium};
use std::cell::RefCell;
use std::panic::Location;

/// How often a transaction runs concurrently with others before it locks all keys. Each failed run means that another
/// write succeeded, so few transactions get that far. And a transaction that reads much, concurrent with many small
/// writes, completes.
const RUNS_MAX: u32 = 16;

/// A transaction in progress, given to the closure of [`WriterOn::transaction`]: a [`TransactionOn`] on the media of
/// this machine.
pub type Transaction<'w> = TransactionOn<'w, Mapped>;

/// The keys that a transaction read, with their stamps.
type Read = RefCell<Vec<Expect>>;

/// A transaction in progress: see [`WriterOn::transaction`].
pub struct TransactionOn<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    /// `None`: reads are not checked.
    read: Option<Read>,
}

impl<M: Medium> Drop for TransactionOn<'_, M> {
    fn drop(&mut self) {
        // After a commit there is nothing to abort. If the group of an aborted one cannot be flushed, the next call
        // reports it.
        let _ = self.writer.abort_transaction();
    }
}

impl<M: Medium> std::fmt::Debug for TransactionOn<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<M: Medium> WriterOn<M> {
    /// Runs `work` and makes all its writes through the given transaction at once: all or nothing, after a crash and
    /// for every reader. The transaction is shown when `work` has returned `Ok`, by one step; on `Err`, or a panic, it
    /// is aborted. Any number of keys and bytes, of any tables and collections. Written data is neither copied nor kept
    /// in DRAM, except in the index.
    ///
    /// Transactions are serialisable: each is as if it had run alone. The transaction remembers the stamp of each key
    /// that `work` reads through it, and checks at its end that nobody else has written the key since. If somebody has,
    /// nothing is written, and **`work` runs again from the beginning**; after some runs, with all other writers
    /// excluded. So outside the transaction, `work` must do only things that can be repeated. An error of `work` is
    /// returned only when its reads are still valid.
    ///
    /// Within a [group](WriterOn::group) it is shown to others at once and is durable when the group is flushed;
    /// otherwise it is durable when this returns.
    ///
    /// A transaction sees its own writes. It locks no keys, so reads through it cost little. A writer of a key that it
    /// has written waits for its end, or fails with `Conflict` and begins again. `work` itself would wait for itself,
    /// so its writes of such a key are refused outside the transaction. Other reads, including
    /// [`reads_unchecked`](TransactionOn::reads_unchecked), are not checked.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = duramen::Options::default().open(dir.path().join("store"))?;
    /// store.put(b"ada", b"100")?;
    /// let mut writer = store.writer()?;
    /// let left = writer.transaction(|transaction| {
    ///     let ada: u64 = std::str::from_utf8(&transaction.get(b"ada")?.unwrap()).unwrap().parse().unwrap();
    ///     transaction.put(b"ada", (ada - 30).to_string().as_bytes())?;
    ///     transaction.put(b"bob", b"30")?;
    ///     Ok(ada - 30)
    /// })?;
    /// assert_eq!(left, 70);
    /// assert_eq!(&*store.get(b"bob")?.unwrap(), b"30");
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put). `InvalidInput` as
    /// [`begin_transaction`](Self::begin_transaction), and for a read of a key that is not locked, under [key
    /// locks](Self::lock). `Conflict` only where all keys cannot be locked: under [key locks](Self::lock), or when this
    /// thread has another active transaction.
    #[track_caller]
    pub fn transaction<T>(
        &mut self,
        mut work: impl FnMut(&mut TransactionOn<'_, M>) -> Result<T>,
    ) -> Result<T> {
        let place = Location::caller();
        for _ in 0..RUNS_MAX {
            if let Some(worked) = self.run_transaction(place, &mut work)? {
                return Ok(worked);
            }
            yield_now();
        }
        if self.writer_state().is_locked() {
            return Err(keeps_conflicting(place));
        }
        self.run_locked(
            |writer| writer.lock_all_at(place).map_err(|_| keeps_conflicting(place)),
            |writer| writer.run_transaction(place, &mut work)?.ok_or_else(|| keeps_conflicting(place)),
        )
    }

    /// One run. `None`: a key that was read has changed, and nothing was written.
    fn run_transaction<T>(
        &mut self,
        place: Place,
        work: &mut impl FnMut(&mut TransactionOn<'_, M>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.begin_transaction_at(place)?;
        let mut transaction = TransactionOn { writer: self, read: Some(Read::default()) };
        let worked = work(&mut transaction);
        let read = transaction.read.take().unwrap_or_default().into_inner();
        let (writer_state, context) = transaction.writer.parts();
        match worked {
            Ok(worked) => Ok(writer_state.commit_transaction_if(context.records, &read)?.then_some(worked)),
            Err(error) if error.kind() == ErrorKind::Conflict && !writer_state.is_locked() => {
                writer_state.abort_transaction(context.records).map(|()| None)
            }
            Err(error) => {
                if writer_state.abort_transaction_if(context.records, &read)? {
                    Err(error)
                } else {
                    Ok(None)
                }
            }
        }
    }

    /// As [`transaction`](Self::transaction), but reads of `work` are not checked: others may write those keys before
    /// the transaction ends, and then results computed from them are wrong. It runs once. For work that only writes, or
    /// reads keys that nobody else writes. Under [key locks](Self::locked) of all keys that it reads, it is like
    /// `transaction`.
    ///
    /// # Errors
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put), and as
    /// [`begin_transaction`](Self::begin_transaction). `Conflict` as [`TransactionKeys::put`] and
    /// [`commit_transaction`](Self::commit_transaction).
    #[track_caller]
    pub fn transaction_unchecked<T>(
        &mut self,
        work: impl FnOnce(&mut TransactionOn<'_, M>) -> Result<T>,
    ) -> Result<T> {
        self.begin_transaction()?;
        let mut transaction = TransactionOn { writer: self, read: None };
        let worked = work(&mut transaction)?;
        transaction.writer.commit_transaction()?;
        Ok(worked)
    }

    /// Begins a [`transaction_unchecked`](Self::transaction_unchecked), for callers that cannot use a closure. It lasts
    /// until [`commit_transaction`](Self::commit_transaction) or [`abort_transaction`](Self::abort_transaction), or
    /// until the writer is dropped, which aborts it. Only writes by [`in_transaction`](Self::in_transaction) belong to
    /// it; other writes meanwhile must be of other keys.
    ///
    /// Under [key locks](Self::lock) it must end before the unlock. A write that finds no room, or a record that is
    /// being moved, then fails; the transaction is aborted, and the caller begins again as described at
    /// [`wants_room`](Self::wants_room).
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put). `InvalidInput` when a transaction of this writer is active, or another
    /// writer of this thread holds keys.
    #[track_caller]
    pub fn begin_transaction(&mut self) -> Result<()> {
        self.begin_transaction_at(Location::caller())
    }

    fn begin_transaction_at(&mut self, place: Place) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.begin_transaction(context.records, place)
    }

    /// Whether a transaction is active.
    #[must_use]
    pub fn has_transaction(&self) -> bool {
        self.writer_state().transaction_id() != 0
    }

    /// Keys of `table`, which must belong to this store, within the active transaction.
    pub fn in_transaction<'u>(&'u mut self, table: &'u TableOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { writer: self, whose: Whose::Table(table), read: None }
    }

    /// Elements of `collection`, which must belong to this store, within the active transaction.
    pub fn in_transaction_of<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { writer: self, whose: Whose::Collection(collection), read: None }
    }

    /// Commits the active transaction, and shows it.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put). `OutOfSpace` when one of its writes found no room, and `Conflict` when
    /// another writer has inserted a key that was absent when the transaction deleted it: then it was aborted.
    pub fn commit_transaction(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.commit_transaction(context.records)
    }

    /// Aborts the active transaction. Without one it does nothing.
    ///
    /// # Errors
    /// As [`WriterOn::flush_group`], when it is in no group: the error concerns its reads, not the transaction.
    pub fn abort_transaction(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.abort_transaction(context.records)
    }
}

impl<M: Medium> TransactionOn<'_, M> {
    /// The store's own keys.
    pub fn store(&mut self) -> TransactionKeys<'_, M> {
        TransactionKeys { writer: self.writer, whose: Whose::Store, read: self.read.as_ref() }
    }

    /// Keys of `table`, which must belong to the writer's store.
    pub fn table<'u>(&'u mut self, table: &'u TableOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { read: self.read.as_ref(), ..self.writer.in_transaction(table) }
    }

    /// Elements of `collection`, which must belong to the writer's store.
    pub fn collection<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { read: self.read.as_ref(), ..self.writer.in_transaction_of(collection) }
    }

    /// The writer, for reads that a transaction has no method for, such as ranges. They see the transaction's writes,
    /// but are not checked when the transaction ends.
    #[must_use]
    pub fn reads_unchecked(&self) -> &WriterOn<M> {
        self.writer
    }

    /// As [`TransactionKeys::get`], of the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        Ok(get_noted(self.writer, &Whose::Store, self.read.as_ref(), key)?.1)
    }

    /// As [`TransactionKeys::put`], in the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.store().put(key, value)
    }

    /// As [`TransactionKeys::delete`], in the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.store().delete(key)
    }
}

/// The keys of one table, or the elements of one collection, within a transaction. Costs nothing: make it for each
/// call.
pub struct TransactionKeys<'u, M: Medium = Mapped> {
    writer: &'u mut WriterOn<M>,
    whose: Whose<'u, M>,
    read: Option<&'u Read>,
}

/// The table or collection of the keys.
enum Whose<'u, M: Medium> {
    Store,
    Table(&'u TableOn<M>),
    Collection(&'u CollectionOn<M>),
}

impl<'u, M: Medium> Whose<'u, M> {
    fn target(&self) -> Target<'u> {
        match self {
            Self::Store => Target::Store,
            Self::Table(table) => table.target(),
            Self::Collection(collection) => collection.target(),
        }
    }

    /// As `target`, owned.
    fn to_keep(&self) -> In {
        match self {
            Self::Store => In::Store,
            Self::Table(table) => In::Named(Arc::clone(&table.named)),
            Self::Collection(collection) => In::Collection(Arc::clone(&collection.table)),
        }
    }
}

/// Looks up a key, and notes its stamp, unless the transaction wrote it.
fn get_noted<'a, M: Medium>(
    writer: &'a WriterOn<M>,
    whose: &Whose<'a, M>,
    read: Option<&Read>,
    key: &[u8],
) -> Result<(Stamp, Option<Value<'a>>)> {
    let reads = Reads::new(writer.store().records(), whose.target(), writer.read_barrier());
    let Some(read) = read else { return reads.get_stamped(key) };
    if writer.writer_state().is_locked() {
        // Nobody else writes it.
        let records = writer.store().records();
        writer.writer_state().check_named(records, whose.target(), records.hasher.hash(key))?;
        return reads.get_stamped(key);
    }
    writer.read_barrier().inspect(|read_barrier| read_barrier.saw_own.set(false));
    let looked = reads.get_stamped(key)?;
    if writer.read_barrier().is_some_and(|read_barrier| !read_barrier.saw_own.get()) {
        read.borrow_mut().push((whose.to_keep(), key.to_vec(), looked.0));
    }
    Ok(looked)
}

fn keeps_conflicting(place: Place) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "the transaction at {place} ran {RUNS_MAX} times, and each time other writers changed keys that it had \
             read: release the locks of this thread, and begin again"
        ),
    )
}

impl<M: Medium> std::fmt::Debug for TransactionKeys<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionKeys").finish_non_exhaustive()
    }
}

impl<M: Medium> TransactionKeys<'_, M> {
    /// The value of `key`, with the transaction's own writes.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        Ok(self.get_stamped(key)?.1)
    }

    /// As `get`, with the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get_stamped(&self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'_>>)> {
        let key = key.as_ref();
        get_noted(self.writer, &self.whose, self.read, key)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Conflict` when another active transaction has written the key, and neither may wait for the other; otherwise as
    /// [`StoreOn::put`](crate::StoreOn::put). Then `work` should return the error, so that the transaction is aborted.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with this metadata; with [`Meta::collection`] it is a root. `meta.updatable` is ignored.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn put_with(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, meta: Meta) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.write(key, Some((value, meta)), false).map(|_| ())
    }

    /// Removes `key`; returns whether it was present.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        Ok(self.replace(key, None)?.is_some())
    }

    /// Sets `key` to a value, or deletes it for `None`; returns the metadata of the live value that was there.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.write(key, value, true)
    }

    /// Sets each of these keys to its value, or deletes it for `None`, in this order and with this metadata, which
    /// names no collection. Returns how many had a live value. Of elements of a collection many at once cost less than
    /// one by one.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`]; then some of them may be written.
    pub fn replace_all(&mut self, writes: &[(&[u8], Option<&[u8]>)], meta: Meta) -> Result<u64> {
        if meta.collection.is_some() {
            return Err(Error::invalid("cannot write several roots in one call: put each one"));
        }
        self.check_active()?;
        let target = self.whose.target();
        let (writer_state, context) = self.writer.parts();
        writer_state.write_all_in_transaction(context, target, writes, meta)
    }

    fn check_active(&self) -> Result<()> {
        if self.writer.has_transaction() {
            return Ok(());
        }
        Err(Error::invalid("cannot write in a transaction: none is active; begin one before"))
    }

    fn write(&mut self, key: &[u8], value: Option<(&[u8], Meta)>, asks: bool) -> Result<Option<Meta>> {
        self.check_active()?;
        let target = self.whose.target();
        let (writer_state, context) = self.writer.parts();
        writer_state.write_in_transaction(context, target, key, value, asks)
    }
}
