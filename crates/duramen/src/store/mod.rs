//! The handles that programs hold, and what they share.

mod catalog;
mod check;
mod close;
mod collections;
mod core;
mod erase;
mod locks;
mod open;
mod range;
mod stats;
mod tables;
mod transaction;
mod typed;
mod writer;

use self::core::{Core, Held};
#[cfg(test)]
use crate::background::Maintenance;
use crate::background::expirations::OnExpired;
use crate::format::superblock::Regime;
use crate::log::Log;
use crate::options::{Durability, IndexKind};
use crate::read::barrier::ReadBarrier;
use crate::read::table::Target;
use crate::read::{Cursor, Records, Value};
use crate::recovery;
use crate::recovery::audit::Accounts;
use crate::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use crate::sync::reclaim;
use crate::sync::statics::AtomicU64;
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, Mutex, lock};
use crate::write::{WriteContext, WriterState};
use crate::{Batch, Error, Eviction, Meta, OnEvicted, Result, Swap};
use duramen_media::{Mapped, Medium};
use std::cell::RefCell;
use std::collections::HashMap;

pub use check::{DamagedRecord, Remains, Report, check, check_on, salvage, salvage_on};
pub use close::CloseError;
pub use collections::{Collection, CollectionOn, CollectionReader, CollectionWriter, ElementOrder};
pub use erase::{STORE_HEAD_BYTES, begins_store, erase};
pub use stats::Stats;
pub use tables::{Table, TableOn, TableStats, TableWriter};
pub use transaction::{Transaction, TransactionKeys, TransactionOn};
pub use typed::TypedStore;
pub use writer::{Writer, WriterOn};

/// A store on the media of this machine.
pub type Store = StoreOn<Mapped>;

/// Places that an error names when there are many.
const DAMAGE_NAMED_MAX: usize = 8;

/// A store. Cheap to clone; all clones are the same store, which is closed when the last one and the last
/// writer are gone.
///
/// Reads take no lock. A write through the handle goes through the calling thread's own
/// [`Writer`](crate::Writer), made when first needed and kept until the thread ends.
pub struct StoreOn<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
}

/// What the last handle closes.
struct Shared<M: Medium> {
    core: Arc<Core<M>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: u64,
    /// Handles of tables and collections, which a close leaves where they are.
    parts: AtomicU64,
}

/// The store of a table or a collection: it does not keep the store from being closed.
pub(super) struct Part<M: Medium>(StoreOn<M>);

impl<M: Medium> Shared<M> {
    fn new(core: Arc<Core<M>>, thread: Option<JoinHandle<()>>) -> Self {
        let thread = Mutex::new(thread);
        Self { core, thread, id: NEXT_ID.fetch_add(1, Relaxed), parts: AtomicU64::new(0) }
    }

    /// Ends the background thread.
    fn stop(&self) {
        self.core.maintenance.wake.stop.store(true, SeqCst);
        self.core.maintenance.wake.wake();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl<M: Medium> Clone for StoreOn<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Medium> Part<M> {
    fn new(store: &StoreOn<M>) -> Self {
        // After the handle is counted, and below before it is not: whoever closes takes none of these for a handle of the store itself.
        let store = store.clone();
        store.shared.parts.fetch_add(1, Release);
        Self(store)
    }
}

impl<M: Medium> Drop for Part<M> {
    fn drop(&mut self) {
        self.shared.parts.fetch_sub(1, Release);
    }
}

impl<M: Medium> Clone for Part<M> {
    fn clone(&self) -> Self {
        Self::new(self)
    }
}

impl<M: Medium> std::ops::Deref for Part<M> {
    type Target = StoreOn<M>;

    fn deref(&self) -> &StoreOn<M> {
        &self.0
    }
}

impl<M: Medium> Drop for Shared<M> {
    fn drop(&mut self) {
        if self.core.maintenance.records.log.epochs().is_forked() {
            // The thread is not here, locks may be held by others that are not, and the medium is the parent's: all of it is left as it is.
            let thread = self.thread.get_mut().take();
            let _ = std::mem::ManuallyDrop::new((Arc::clone(&self.core), thread));
            return;
        }
        let _ = PENS.try_with(|writer_states| writer_states.borrow_mut().remove(&self.id));
        self.stop();
        // An error has nowhere to go here; `StoreOn::close` tells it. The next open recovers.
        let _ = self.core.close();
    }
}

impl<M: Medium> std::fmt::Debug for StoreOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("medium", &self.log().medium.describe()).finish_non_exhaustive()
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// This thread's writer state for each store that it wrote to through a plain handle.
    static PENS: RefCell<HashMap<u64, Box<dyn std::any::Any>>> = RefCell::default();
}

impl<M: Medium> StoreOn<M> {
    #[inline]
    fn core(&self) -> &Core<M> {
        &self.shared.core
    }

    #[inline]
    pub(crate) fn records(&self) -> &Records<M> {
        &self.shared.core.maintenance.records
    }

    #[inline]
    pub(crate) fn log(&self) -> &Log<M> {
        &self.records().log
    }

    #[cfg(test)]
    pub(crate) fn maintenance(&self) -> &Maintenance<M> {
        &self.core().maintenance
    }

    /// Runs `work` with this thread's writer state.
    fn with_writer_state<T>(
        &self,
        work: impl FnOnce(&mut WriterState, WriteContext<'_, M>) -> Result<T>,
    ) -> Result<T> {
        let id = self.shared.id;
        // Taken out while it works: `work` may come back here through a callback.
        let taken = PENS.try_with(|writer_states| writer_states.borrow_mut().remove(&id)).ok().flatten();
        let mut writer_state = match taken.map(|writer_state| writer_state.downcast::<Held<M>>()) {
            Some(Ok(writer_state)) => writer_state,
            _ => Box::new(Held::new(&self.shared.core)),
        };
        let result = work(&mut writer_state.writer_state, self.core().context());
        let _ = PENS.try_with(|writer_states| writer_states.borrow_mut().insert(id, writer_state));
        result
    }

    /// The value of `key`, without copying it. O(1): one index line and the record's lines.
    ///
    /// # Errors
    /// `Corrupt` when the key's record is damaged, or one that may be the key's: it is shown neither as a value nor as absent, until
    /// the key is put or deleted. With `EveryWrite` on a page medium a value is shown only when it is durable: when the wait for that
    /// fails, its error.
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.log().epochs().check_process()?;
        self.records().get(Target::Store, key)
    }

    /// Copies the value of `key` into `into`, which is cleared before; false when the key is absent.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        into.clear();
        self.log().epochs().check_process()?;
        self.records().get_into(Target::Store, key, into)
    }

    /// Whether `key` is there.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// Hints that these keys are read or written soon: their lines are fetched meanwhile, the misses of all keys
    /// overlapped. Changes nothing, waits for nothing, and may be wrong.
    pub fn prefetch(&self, keys: &[impl AsRef<[u8]>]) {
        self.records().prefetch(Target::Store, keys);
    }

    /// The values of several keys, their cache misses overlapped. Each is the key's value at some moment
    /// during the call. Keys may be slices, vectors, strings, or arrays of one length.
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
    /// As [`StoreOn::get`].
    pub fn get_many<'a>(&'a self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value<'a>>>> {
        self.log().epochs().check_process()?;
        self.records().get_many(Target::Store, keys)
    }

    /// Visits about `count` live entries from `cursor` on; returns the cursor to go on from, 0 at the end. A
    /// key that is present during the whole scan is seen at least once.
    ///
    /// # Errors
    /// As [`StoreOn::get`]. `Corrupt` when some of the entries are damaged: the others up to [`Error::cursor`] were visited, and the
    /// scan can go on there.
    pub fn scan(&self, cursor: Cursor, count: usize, visit: &mut dyn FnMut(&Value<'_>)) -> Result<Cursor> {
        self.scan_in(Target::Store, None, cursor, count, visit)
    }

    fn scan_in(
        &self,
        target: Target<'_>,
        read_barrier: Option<&ReadBarrier>,
        cursor: Cursor,
        count: usize,
        visit: &mut dyn FnMut(&Value<'_>),
    ) -> Result<Cursor> {
        let records = self.records();
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

    /// Some live entry that `wanted` accepts, each as likely as any other; which one, `seed` decides. Places of the index are drawn
    /// until one points to such an entry, a few thousand at most: so `None` where few entries are wanted, or nearly all
    /// keys were just deleted, says nothing. Then walk, from [`StoreOn::cursor_at`] on.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn pick(&self, seed: u64, wanted: &mut dyn FnMut(&Value<'_>) -> bool) -> Result<Option<Value<'_>>> {
        self.records().pick(Target::Store, None, seed, wanted)
    }

    /// A cursor at a place that `random` picks, for [`StoreOn::scan`].
    #[must_use]
    pub fn cursor_at(&self, random: u64) -> Cursor {
        let index = &self.records().tables.store.index;
        index.cursor_shown(index.cursor_at(random, &reclaim::pin()))
    }

    /// Calls `visit` for every live entry: each key that is present during the whole call exactly once or,
    /// while the index grows or shrinks, more often.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn for_each(&self, mut visit: impl FnMut(&Value<'_>)) -> Result<()> {
        let mut cursor = 0;
        loop {
            cursor = self.scan(cursor, 1024, &mut visit)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// The keys that damaged records say they were of, for who clears the store: to delete such a key makes it whole
    /// ([`StoreOn::delete`]). A guess: nothing of a damaged record is verified, so a key may be none of the store's, and one whose bytes
    /// are damaged themselves is not among them. Empty at once where nothing is in doubt; else all of the index is looked through.
    #[must_use]
    pub fn claimed_keys(&self) -> Vec<Vec<u8>> {
        self.records().claimed_keys(Target::Store)
    }

    /// Sets `key` to `value`. When it returns, the write survives what the durability and the
    /// medium promise. Reads of this thread that follow come after it for every other thread too; loads of atomics of the
    /// caller's own do only behind a `fence(SeqCst)`.
    ///
    /// # Errors
    /// `InvalidInput` for a key above [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) or a value above
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX); `OutOfSpace`; `Poisoned`; `Io`.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.with_writer_state(|writer_state, context| {
            writer_state.put(context, Target::Store, key, value, Meta::default())
        })
    }

    /// Sets `key` to `value`, with what goes with it.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.with_writer_state(|writer_state, context| {
            writer_state.put(context, Target::Store, key, value, meta)
        })
    }

    /// Removes `key`; whether it was there. It is gone for good, also where its record is damaged or may be ([`StoreOn::get`] answers
    /// `Corrupt`): then nobody knows whether it was there, and the answer is true. So false always means that it was not.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.with_writer_state(|writer_state, context| writer_state.delete(context, Target::Store, key))
    }

    /// Overwrites part of a value: in place where it was put with [`Meta::UPDATABLE`] and the rest allows it, else by a new version of
    /// all of it; the outcome says which. See [`Writer::update`](crate::Writer::update).
    ///
    /// # Errors
    /// As [`Writer::update`](crate::Writer::update).
    pub fn update(&self, key: &[u8], at: usize, bytes: &[u8]) -> Result<crate::Update> {
        self.with_writer_state(|writer_state, context| {
            Ok(writer_state
                .update(context, Target::Store, key, None, (at, bytes))?
                .unwrap_or(crate::Update::Absent))
        })
    }

    /// Applies a batch, all or nothing.
    ///
    /// # Errors
    /// As [`Writer::apply`](crate::Writer::apply).
    pub fn apply(&self, batch: &Batch) -> Result<Swap> {
        self.with_writer_state(|writer_state, context| writer_state.apply(context, batch))
    }

    /// A writer of its own for one thread (Viper's client).
    ///
    /// # Errors
    /// `Poisoned` when the store refuses writes.
    pub fn writer(&self) -> Result<WriterOn<M>> {
        self.log().epochs().check_writable()?;
        Ok(WriterOn::new(self.clone()))
    }

    /// Live keys of the store's own table; expired ones count until they are swept. Of all: [`Stats::keys`].
    #[must_use]
    pub fn len(&self) -> u64 {
        self.records().tables.store.keys()
    }

    /// Whether there is no key in the store's own table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How keys are found.
    #[must_use]
    pub fn index_kind(&self) -> IndexKind {
        tables::kind_of(&self.records().tables.store)
    }

    /// The durability asked for.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.log().durable.asked()
    }

    /// Changes between `EveryWrite` and `Interval` while the store is open. Where the medium makes each
    /// write durable by itself, it stays so until the next open: more than was asked for.
    ///
    /// # Errors
    /// `InvalidInput` for a change from or to `Manual`, which decides what recovery keeps.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        let records = self.records();
        records.log.epochs().check_process()?;
        if (durability == Durability::Manual) != (records.log.epochs().regime() == Regime::Manual) {
            return Err(Error::invalid(
                "cannot change durability from or to manual while the store is open: close it and open it again",
            ));
        }
        records.log.durable.ask(durability);
        if durability == Durability::EveryWrite && records.log.epochs().in_use() {
            // What was acknowledged before is covered by the new promise too.
            records.log.commit()?;
        }
        self.core().maintenance.wake.wake();
        Ok(())
    }

    /// Has `listener` called with each key, of whichever table, that is swept from now on because it has expired. It
    /// takes the place of the function before, of which a call may still be under way; `None`, as at first: nothing is
    /// called.
    pub fn set_on_expired(&self, listener: Option<OnExpired>) {
        self.core().maintenance.expirations.set_listener(listener);
    }

    /// Has the store grow to no more than so many bytes from now on; 0: to as many as the medium has. If it has grown beyond,
    /// nothing is put until as much is free, by deletes or by eviction; the medium keeps what it has.
    pub fn set_limit(&self, bytes: u64) {
        self.core().maintenance.set_limit(bytes);
    }

    /// The limit, as far as extents can say it; 0: none.
    #[must_use]
    pub fn limit(&self) -> u64 {
        u64::from(self.log().space().limit()) * self.log().extent_bytes
    }

    /// What a full store gives up from now on.
    pub fn set_eviction(&self, eviction: Option<Eviction>) {
        self.core().maintenance.set_eviction(eviction);
    }

    /// Has `listener` called with each key that is evicted, in the place of whatever was called before.
    pub fn set_on_evicted(&self, listener: OnEvicted) {
        self.core().maintenance.evictor.set_listener(listener);
    }

    /// Lets keys of the store's own table be evicted, and told of with this label; `None`, as at first: they are not.
    pub fn set_evictable(&self, label: Option<u32>) {
        self.records().tables.store.set_label(label);
    }

    /// How often `key` was asked for of late, in whichever table, as far as that is counted: an estimate, up to 15 where eviction by
    /// frequency is set, up to 3 where it is by recency, and else 0.
    #[must_use]
    pub fn reads_of(&self, key: &[u8]) -> u8 {
        let records = self.records();
        let (hash, guard) = (records.hasher.hash(key), reclaim::pin());
        if records.tables.store.check_open().is_err() {
            return 0;
        }
        let reads_in = |table: &Arc<crate::read::table::Table>| {
            let found = table.index.find_with(hash, key, &guard, |slot| records.record_of(slot, key));
            found.map(|(slot, _)| records.access.reads_at(slot.location(), &guard))
        };
        let at = records.tables.all().iter().filter_map(reads_in).max().unwrap_or(0);
        at.max(records.access.reads(hash, &guard))
    }

    /// As if `key` had been asked for `reads` times, where eviction by frequency counts that: for a key that comes from elsewhere
    /// with its count. More than 15 is as 15.
    pub fn add_reads(&self, key: &[u8], reads: u8) {
        let records = self.records();
        records.access.add(records.hasher.hash(key), reads, records.seconds(), &reclaim::pin());
    }

    /// Ends the current epoch and makes it durable: with `Manual`, the only way anything ever is.
    ///
    /// # Errors
    /// `Io` when the write-back failed; the store is then poisoned.
    pub fn commit(&self) -> Result<()> {
        self.log().commit()
    }

    /// Makes everything acknowledged so far durable on the medium.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn sync(&self) -> Result<()> {
        self.log().commit()
    }

    /// Does one round of what the background thread does: commits when the interval has passed, sweeps
    /// expired keys, compacts. For stores opened without one.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn maintain(&self) -> Result<()> {
        self.log().epochs().check_process()?;
        self.core().maintenance.maintain()
    }

    /// Verifies all records that the open did not read because an index checkpoint spared it to, instead of leaving
    /// that to the background thread. Time in proportion to their bytes; at once when all were read. Others may go on
    /// reading and writing.
    ///
    /// # Errors
    /// `Corrupt` when blocks are damaged, with their places.
    pub fn verify(&self) -> Result<()> {
        let records = self.records();
        records.log.epochs().check_process()?;
        let damaged = self.core().maintenance.verify_all();
        if damaged.is_empty() {
            return Ok(());
        }
        let places = damaged.iter().take(DAMAGE_NAMED_MAX);
        let places: Vec<_> = places
            .map(|&extent| format!("extent {} (offset {})", extent.0, records.log.offset_of(extent)))
            .collect();
        Err(Error::corrupt(format!(
            "the medium is damaged in {} block{}: at {}{}; close the store and run \"duramen check\" for what is wrong there, \
             and \"duramen check --salvage NEW\" to save what is valid into a new store",
            damaged.len(),
            if damaged.len() == 1 { "" } else { "s" },
            places.join(", "),
            if damaged.len() > places.len() { " and further on" } else { "" },
        )))
    }

    /// Whether writes are taken.
    ///
    /// # Errors
    /// Why not: `Poisoned`, `ReadOnly`, `InUse` in a child that was forked.
    pub fn check_writable(&self) -> Result<()> {
        self.log().epochs().check_writable()
    }

    /// Whether the store's path points to its file no more, which was deleted or moved, while it is open. The content
    /// is there until the store is closed or the process ends; then it is gone, unless the file has another name. Some
    /// system calls.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.log().medium.is_deleted()
    }

    /// Counts anew from the blocks what the store knows of them, and says what differs: nothing does, unless somebody writes
    /// meanwhile. For checkers; takes as long as to read the whole store.
    #[doc(hidden)]
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let core = self.core();
        let (records, log) = (self.records(), self.log());
        // In the order of their ranks: the background thread takes no extents meanwhile, nor gives
        // any back.
        let _checkpoint = core.maintenance.checkpoints.pause();
        let (_paused, kept) = core.maintenance.compaction.pause();
        let _growing = core.maintenance.growth.pause();
        let (extents, free) = {
            let space = log.space();
            (space.extents(), space.runs())
        };
        let accounts = Accounts {
            medium: &log.medium,
            hasher: &records.hasher,
            tables: &records.tables,
            blocks: &log.blocks,
            extent_bytes: log.extent_bytes,
            extents,
            free,
            kept,
            transaction_outcomes: HashMap::new(),
            estimated: core.recovered.estimated,
        };
        accounts.differences()
    }

    /// Numbers of the store.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(self.core())
    }

    /// One line for people: the medium, and what a write survives.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}; {}", self.log().medium.describe(), self.promise())
    }

    /// What an acknowledged write survives here, in words.
    #[must_use]
    pub fn promise(&self) -> String {
        let power = match (self.log().medium.survives_power(), self.durability()) {
            (false, Durability::Manual) => "a committed write survives kill -9, not a power failure".into(),
            (false, _) => "an acknowledged write survives kill -9, not a power failure".into(),
            (true, Durability::EveryWrite) => {
                "an acknowledged write survives kill -9 and power failure".into()
            }
            (true, Durability::Interval(d)) => {
                format!("an acknowledged write survives kill -9 at once and power failure after {d:?}")
            }
            (true, Durability::Manual) => "a write survives kill -9 and power failure once committed".into(),
        };
        if self.log().medium.survives_process() { power } else { "nothing survives the process".into() }
    }

    /// What recovery found when the store was opened.
    #[must_use]
    pub fn recovery(&self) -> &recovery::Summary {
        &self.core().recovered
    }
}

impl Store {
    /// Advice for the operator about the medium, in one line.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        self.log().medium.small_pages_advice()
    }
}
