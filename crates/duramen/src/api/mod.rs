//! The handles that programs hold, and their shared state.

mod catalog;
mod check;
mod close;
mod collections;
mod core;
mod erase;
mod iter;
mod locks;
mod open;
pub(crate) mod reads;
mod stats;
mod tables;
mod transaction;
mod typed;
mod writer;
pub(crate) mod writes;

use crate::api::core::{Core, Held};
use crate::expire::listeners::{OnDue, OnExpired};
#[cfg(test)]
use crate::maintenance::Maintenance;
use crate::options::IndexKind;
use crate::records::Records;
use crate::recover;
use crate::recover::audit::Accounts;
use crate::writer::{WriteContext, WriterState};
use crate::{Batch, Error, Eviction, OnEvicted, Result, Swap};
use duramen_log::Log;
use duramen_log::durability::Durability;
use duramen_log::format::superblock::Regime;
use duramen_log::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use duramen_log::sync::reclaim;
use duramen_log::sync::statics::AtomicU64;
use duramen_log::sync::thread::JoinHandle;
use duramen_log::sync::{Arc, Mutex, lock};
use duramen_media::{Mapped, Medium};
use std::cell::RefCell;
use std::collections::HashMap;

pub use crate::api::check::{DamagedRecord, Remains, Report, check, check_on, salvage, salvage_on};
pub use crate::api::close::CloseError;
pub use crate::api::collections::{Collection, CollectionOn, ElementOrder};
pub use crate::api::erase::{STORE_HEAD_BYTES, begins_store, erase};
pub use crate::api::iter::Iter;
pub use crate::api::reads::{Keys, Reads};
pub use crate::api::stats::{BlockCounts, Stats};
pub use crate::api::tables::{Table, TableOn, TableStats};
pub use crate::api::transaction::{Transaction, TransactionKeys, TransactionOn};
pub use crate::api::typed::TypedStore;
pub use crate::api::writer::{Writer, WriterOn};
pub use crate::api::writes::Writes;

/// A store: the handle that programs open ([`Options::open`](crate::Options::open)), read and write. It is a
/// [`StoreOn`] on the media of this machine: files, `/dev/shm`, DAX devices and volatile memory.
pub type Store = StoreOn<Mapped>;

/// Maximum number of places that an error names.
const DAMAGE_NAMED_MAX: usize = 8;

/// A store. Cheap to clone; all clones are the same store, which is closed when the last clone and the last writer are
/// dropped.
///
/// Reads take no lock. A write through the handle uses the calling thread's own [`Writer`], created at
/// the first write and kept until the thread ends.
pub struct StoreOn<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
}

/// The state that the last handle closes.
struct Shared<M: Medium> {
    core: Arc<Core<M>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    id: u64,
    /// Handles of tables and collections, which a close ignores.
    parts: AtomicU64,
}

/// The store of a table or a collection: it does not prevent a close of the store.
pub(crate) struct Part<M: Medium>(StoreOn<M>);

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
        // Counted after the handle, and below uncounted before it: a close never takes one of these for a handle of the
        // store itself.
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
            // The thread does not exist here, locks may be held by other threads that do not either, and the medium
            // belongs to the parent: all of it is left as it is.
            let thread = self.thread.get_mut().take();
            let _ = std::mem::ManuallyDrop::new((Arc::clone(&self.core), thread));
            return;
        }
        let _ = PENS.try_with(|writer_states| writer_states.borrow_mut().remove(&self.id));
        self.stop();
        // An error cannot be returned here; `StoreOn::close` returns it. The next open recovers.
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

    /// For models.
    #[cfg(loom)]
    pub fn modelled_log(&self) -> &Log<M> {
        self.log()
    }

    /// For models.
    #[cfg(loom)]
    pub fn compact_now(&self) {
        self.core().maintenance.compact_now();
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
        // Taken out during the call: `work` may call this function again through a callback.
        let taken = PENS.try_with(|writer_states| writer_states.borrow_mut().remove(&id)).ok().flatten();
        let mut writer_state = match taken.map(|writer_state| writer_state.downcast::<Held<M>>()) {
            Some(Ok(writer_state)) => writer_state,
            _ => Box::new(Held::new(&self.shared.core)),
        };
        let result = work(&mut writer_state.writer_state, self.core().context());
        let _ = PENS.try_with(|writer_states| writer_states.borrow_mut().insert(id, writer_state));
        result
    }

    /// Applies a batch, all or nothing.
    ///
    /// # Errors
    /// As [`Writer::apply`](crate::Writer::apply).
    pub fn apply(&self, batch: &Batch) -> Result<Swap> {
        self.with_writer_state(|writer_state, context| writer_state.apply(context, batch))
    }

    /// A new writer for one thread (Viper's client).
    ///
    /// # Errors
    /// `Poisoned` when the store refuses writes.
    pub fn writer(&self) -> Result<WriterOn<M>> {
        self.log().epochs().check_writable()?;
        Ok(WriterOn::new(self.clone()))
    }

    /// The kind of index.
    #[must_use]
    pub fn index_kind(&self) -> IndexKind {
        tables::kind_of(&self.records().tables.store)
    }

    /// The requested durability.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.log().durable.asked()
    }

    /// Changes between `EveryWrite` and `Interval` while the store is open. Where the medium makes each write durable
    /// alone, it stays so until the next open: more than requested.
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
            // Writes acknowledged before are covered by the new promise too.
            records.log.commit()?;
        }
        self.core().maintenance.wake.wake();
        Ok(())
    }

    /// Calls `listener` for each key, of any table, that is swept from now on because it has expired. Replaces the
    /// previous listener, of which a call may still be under way. `None`, the initial state: no calls.
    pub fn set_on_expired(&self, listener: Option<OnExpired>) {
        self.core().maintenance.expirations.expired.set(listener);
    }

    /// Calls `listener` for each element, of any collection, whose expiry time has come. The store keeps such elements,
    /// and reads return them: the listener's owner deletes them. Replaces the previous listener, of which a call may
    /// still be under way. `None`, the initial state: no calls.
    pub fn set_on_due(&self, listener: Option<OnDue>) {
        self.core().maintenance.expirations.due.set(listener);
    }

    /// The store's time is never below this, in Unix milliseconds, also after it was opened again.
    #[must_use]
    pub fn time_floor(&self) -> u64 {
        self.log().clock().floor()
    }

    /// A caller has seen that an element with expiry time `at` is over: from now on the store's time is not below it.
    pub fn time_reached(&self, at: u64) {
        self.log().clock().reached(at);
    }

    /// Limits the store to this size from now on; 0: no limit but the medium's. If it is already larger, nothing is put
    /// until as much is free, by deletes or by eviction; the medium keeps its size.
    pub fn set_limit(&self, bytes: u64) {
        self.core().maintenance.set_limit(bytes);
    }

    /// The limit in bytes, rounded to extents; 0: none.
    #[must_use]
    pub fn limit(&self) -> u64 {
        u64::from(self.log().space().limit()) * self.log().extent_bytes
    }

    /// Sets which keys a full store evicts from now on.
    pub fn set_eviction(&self, eviction: Option<Eviction>) {
        self.core().maintenance.set_eviction(eviction);
    }

    /// Calls `listener` for each evicted key. Replaces the previous listener.
    pub fn set_on_evicted(&self, listener: OnEvicted) {
        self.core().maintenance.evictor.set_listener(listener);
    }

    /// Allows eviction of keys of the store's own table, reported with this label. `None`, the initial state: no
    /// eviction.
    pub fn set_evictable(&self, label: Option<u32>) {
        self.records().tables.store.set_label(label);
    }

    /// How often `key` was read recently, in any table, up to 3: an estimate. 0 without eviction by recency or frequency.
    #[must_use]
    pub fn reads_of(&self, key: impl AsRef<[u8]>) -> u8 {
        let key = key.as_ref();
        let records = self.records();
        let (hash, guard) = (records.hasher.hash(key), reclaim::pin());
        if records.tables.store.check_open().is_err() {
            return 0;
        }
        let reads_in = |table: &Arc<crate::table::tables::Table>| {
            let found = table.index.find_with(hash, key, &guard, |slot| records.record_of(slot, key));
            found.map(|(slot, _)| records.access.reads_at(slot.location(), &guard))
        };
        records.tables.all().iter().filter_map(reads_in).max().unwrap_or(0)
    }

    /// Ends the current epoch and makes it durable: with `Manual`, the only way to make writes durable.
    ///
    /// # Errors
    /// `Io` when the write-back failed; the store is then poisoned.
    pub fn commit(&self) -> Result<()> {
        self.log().commit()
    }

    /// Makes all acknowledged writes durable on the medium.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn sync(&self) -> Result<()> {
        self.log().commit()
    }

    /// Does one round of the background thread's work: commits when the interval has passed, sweeps expired keys,
    /// compacts. For stores opened without that thread.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    pub fn maintain(&self) -> Result<()> {
        self.log().epochs().check_process()?;
        self.core().maintenance.maintain()
    }

    /// Compacts until no block is worth it, and gives the free space back beyond [`Options::keep_free_bytes`], without
    /// the wait that the background thread has. Takes time in proportion to the live bytes. Others may continue to
    /// read and write. What was deleted since the last commit goes with the next call after one.
    ///
    /// # Errors
    /// As [`StoreOn::commit`].
    ///
    /// [`Options::keep_free_bytes`]: crate::Options::keep_free_bytes
    pub fn compact(&self) -> Result<()> {
        self.log().epochs().check_process()?;
        self.core().maintenance.compact_all()
    }

    /// Verifies all records that the open did not read thanks to an index checkpoint, instead of leaving that to the
    /// background thread. Takes time in proportion to their bytes; returns at once when all were read. Others may
    /// continue to read and write.
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
            "the medium is damaged in {} block{}: at {}{}; close the store and run \"duramen check\" for details, \
             and \"duramen check --salvage NEW\" to save the valid records into a new store",
            damaged.len(),
            if damaged.len() == 1 { "" } else { "s" },
            places.join(", "),
            if damaged.len() > places.len() { " and more" } else { "" },
        )))
    }

    /// Whether writes are accepted.
    ///
    /// # Errors
    /// The reason: `Poisoned`, `ReadOnly`, `InUse` in a forked child.
    pub fn check_writable(&self) -> Result<()> {
        self.log().epochs().check_writable()
    }

    /// Whether the store's file was deleted or moved while it is open, so that the path no longer points to it. The
    /// content exists until the store is closed or the process ends; then it is gone, unless the file has another name.
    /// Some system calls.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.log().medium.is_deleted()
    }

    /// Recomputes the store's counts from the blocks, and returns the differences: none, unless somebody writes
    /// concurrently. For checkers; takes as long as reading the whole store.
    #[doc(hidden)]
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let core = self.core();
        let (records, log) = (self.records(), self.log());
        // In the order of their ranks: the background thread takes and returns no extents meanwhile.
        let _checkpoint = core.maintenance.checkpoints.pause();
        let (_paused, paused) = core.maintenance.compaction.pause();
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
            kept: paused.kept,
            put_off: Some(paused.put_off),
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

    /// Blocks by state. Takes as long as a walk over all blocks, some ten nanoseconds each; writers do not wait for it.
    #[must_use]
    pub fn block_counts(&self) -> BlockCounts {
        BlockCounts::of(self.core())
    }

    /// One line for people: the medium, and the events that a write survives.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("{}; {}", self.log().medium.describe(), self.promise())
    }

    /// The events that an acknowledged write survives here, in words.
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
        if self.log().medium.survives_process() { power } else { "no write survives the process".into() }
    }

    /// The findings of recovery when the store was opened.
    #[must_use]
    pub fn recovery(&self) -> &recover::Summary {
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
