//! Transactions: any number of writes that count all or not at all, after a crash and to every reader, and that are as
//! if each transaction had run alone.
//!
//! What a transaction writes goes to the log at once, so it may be of any size; how it is shown and what a crash leaves
//! stands in `write/transaction.rs`.

use super::collections::CollectionOn;
use super::tables::TableOn;
use super::writer::WriterOn;
use crate::read::table::Target;
use crate::sync::Arc;
use crate::sync::holding::Place;
use crate::sync::thread::yield_now;
use crate::write::Expect;
use crate::write::batch::In;
use crate::{Error, ErrorKind, Meta, Result, Stamp, Value};
use duramen_media::{Mapped, Medium};
use std::cell::RefCell;
use std::panic::Location;

/// How often a transaction runs beside others before it locks all keys. Each time in vain somebody else's write
/// counted, so few transactions come that far; and one that reads much beside many small writes comes to an end.
const RUNS_MAX: u32 = 16;

/// A transaction on the media of this machine.
pub type Transaction<'w> = TransactionOn<'w, Mapped>;

/// What a transaction read, and what it was.
type Read = RefCell<Vec<Expect>>;

/// A transaction in progress: see [`WriterOn::transaction`].
pub struct TransactionOn<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    /// `None`: it is not checked.
    read: Option<Read>,
}

impl<M: Medium> Drop for TransactionOn<'_, M> {
    fn drop(&mut self) {
        // Of one that was committed there is nothing to give up. Why one could not be settled that is given up concerns who asks next.
        let _ = self.writer.abort_transaction();
    }
}

impl<M: Medium> std::fmt::Debug for TransactionOn<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<M: Medium> WriterOn<M> {
    /// Writes what `work` writes through the transaction that it is given, all or nothing: after a crash, and to every
    /// reader. It is shown when `work` has returned `Ok`, by one step; on `Err`, or a panic, nothing of it is left. Any
    /// number of keys and bytes, of any tables and collections; of what is written nothing is copied or kept in DRAM,
    /// but for what the index takes.
    ///
    /// Transactions are serialisable: each is as if it had run alone. Of each key that `work` reads through the
    /// transaction it is remembered what it was, and when the transaction ends, it is checked that nobody else has
    /// written it since. If somebody has, nothing is written, and **`work` runs again from the beginning**, after some
    /// runs with all other writers kept out. So it does nothing that cannot be done twice but through the transaction.
    /// An error of `work` is returned only when what it had read still holds.
    ///
    /// Within a [group](WriterOn::group) it is shown to others at once and is durable when the group is flushed; else
    /// it is durable when this returns.
    ///
    /// A transaction sees its own writes. It locks no keys, so reads through it cost little. Who writes a key that it
    /// has written waits for its end, or fails with `Conflict` and begins again; `work` itself, which would wait for
    /// itself, is refused to write such a key but through the transaction. What is read by other means,
    /// [`reads_unchecked`](TransactionOn::reads_unchecked) too, is not checked.
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
    /// [`begin_transaction`](Self::begin_transaction), and for a key that is read under [key locks](Self::lock) and is
    /// none of them. `Conflict` only where all keys cannot be locked: under [key locks](Self::lock), or when this
    /// thread has another transaction that runs.
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

    /// Once. `None`: what was read has changed meanwhile, and nothing was written.
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

    /// As [`transaction`](Self::transaction), but what `work` reads is not checked: others may write it before the
    /// transaction ends, and then what `work` made of it is wrong. It runs once. For what only writes, or reads what
    /// nobody else writes; under [key locks](Self::locked) of all keys that it reads it is as `transaction`.
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

    /// Begins what [`transaction_unchecked`](Self::transaction_unchecked) does, for who cannot write it as a closure:
    /// until [`commit_transaction`](Self::commit_transaction) or [`abort_transaction`](Self::abort_transaction), and at
    /// the latest until the writer is dropped, which gives it up. What is not written by
    /// [`in_transaction`](Self::in_transaction) meanwhile is no part of it, and must be of other keys.
    ///
    /// Under [key locks](Self::lock) it ends before they are given back. A write that finds no room, or what is being moved, fails
    /// then; the transaction is aborted, and what runs begins again as [`wants_room`](Self::wants_room) says.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put). `InvalidInput` when a transaction of this writer runs, or another
    /// writer of this thread holds keys.
    #[track_caller]
    pub fn begin_transaction(&mut self) -> Result<()> {
        self.begin_transaction_at(Location::caller())
    }

    fn begin_transaction_at(&mut self, place: Place) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.begin_transaction(context.records, place)
    }

    /// Whether a transaction runs.
    #[must_use]
    pub fn has_transaction(&self) -> bool {
        self.writer_state().transaction_id() != 0
    }

    /// Keys of `table`, which is one of this store, within the transaction that runs.
    pub fn in_transaction<'u>(&'u mut self, table: &'u TableOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { writer: self, whose: Whose::Table(table), read: None }
    }

    /// Elements of `collection`, which is one of this store, within the transaction that runs.
    pub fn in_transaction_of<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { writer: self, whose: Whose::Collection(collection), read: None }
    }

    /// Ends the transaction that runs, and shows it.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put); `OutOfSpace` when one of its writes found no room, and `Conflict` when a key that it
    /// deleted, and that was not there, was written meanwhile: then it was given up.
    pub fn commit_transaction(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.commit_transaction(context.records)
    }

    /// Gives the transaction up that runs: nothing of it is left. Without one it does nothing.
    ///
    /// # Errors
    /// As [`WriterOn::flush_group`], when it is in no group: of what was read, not of the transaction.
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

    /// Keys of `table`, which is one of the writer's store.
    pub fn table<'u>(&'u mut self, table: &'u TableOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { read: self.read.as_ref(), ..self.writer.in_transaction(table) }
    }

    /// Elements of `collection`, which is one of the writer's store.
    pub fn collection<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> TransactionKeys<'u, M> {
        TransactionKeys { read: self.read.as_ref(), ..self.writer.in_transaction_of(collection) }
    }

    /// The writer, to read by what a transaction has no call for, as ranges: what it reads is as the transaction has
    /// left it, but is not checked when the transaction ends.
    #[must_use]
    pub fn reads_unchecked(&self) -> &WriterOn<M> {
        self.writer
    }

    /// As [`TransactionKeys::get`], of the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(get_noted(self.writer, &Whose::Store, self.read.as_ref(), key)?.1)
    }

    /// As [`TransactionKeys::put`], in the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store().put(key, value)
    }

    /// As [`TransactionKeys::delete`], in the store's own table.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
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

/// Whose keys.
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

    /// The same, to be kept.
    fn to_keep(&self) -> In {
        match self {
            Self::Store => In::Store,
            Self::Table(table) => In::Named(Arc::clone(&table.named)),
            Self::Collection(collection) => In::Collection(Arc::clone(&collection.table)),
        }
    }
}

/// Looks up a key, and notes what it was, unless the transaction wrote it.
fn get_noted<'a, M: Medium>(
    writer: &'a WriterOn<M>,
    whose: &Whose<'_, M>,
    read: Option<&Read>,
    key: &[u8],
) -> Result<(Stamp, Option<Value<'a>>)> {
    let Some(read) = read else { return writer.get_in(whose.target(), key) };
    if writer.writer_state().is_locked() {
        // Nobody else writes it.
        let records = writer.store().records();
        writer.writer_state().check_named(records, whose.target(), records.hasher.hash(key))?;
        return writer.get_in(whose.target(), key);
    }
    writer.read_barrier().inspect(|read_barrier| read_barrier.saw_own.set(false));
    let looked = writer.get_in(whose.target(), key)?;
    if writer.read_barrier().is_some_and(|read_barrier| !read_barrier.saw_own.get()) {
        read.borrow_mut().push((whose.to_keep(), key.to_vec(), looked.0));
    }
    Ok(looked)
}

fn keeps_conflicting(place: Place) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "the transaction at {place} was run {RUNS_MAX} times, and what it had read was written by others each time: give up what this thread \
             holds, and begin again"
        ),
    )
}

impl<M: Medium> std::fmt::Debug for TransactionKeys<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransactionKeys").finish_non_exhaustive()
    }
}

impl<M: Medium> TransactionKeys<'_, M> {
    /// The value of `key`, as it was before the transaction.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.get_stamped(key)?.1)
    }

    /// As `get`, and the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get_stamped(&self, key: &[u8]) -> Result<(Stamp, Option<Value<'_>>)> {
        get_noted(self.writer, &self.whose, self.read, key)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Conflict` when another transaction that runs has written the key, and neither may wait for the other; otherwise
    /// as [`StoreOn::put`](crate::StoreOn::put). Then `work` should return the error, so that the transaction is
    /// aborted.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with what goes with it; with [`Meta::collection`] it is a root. `meta.updatable` is ignored.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.write(key, Some((value, meta)), false).map(|_| ())
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.replace(key, None)?.is_some())
    }

    /// Sets `key` to a value, or deletes it for `None`; returns what went with the live value that was there.
    ///
    /// # Errors
    /// As [`TransactionKeys::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.write(key, value, true)
    }

    fn write(&mut self, key: &[u8], value: Option<(&[u8], Meta)>, asks: bool) -> Result<Option<Meta>> {
        if !self.writer.has_transaction() {
            return Err(Error::invalid("a write within a transaction, and none runs: begin one before"));
        }
        let target = self.whose.target();
        let (writer_state, context) = self.writer.parts();
        writer_state.write_in_transaction(context, target, key, value, asks)
    }
}
