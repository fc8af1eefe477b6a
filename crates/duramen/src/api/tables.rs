//! Tables by name: the catalog, and the handles that programs hold.
//!
//! The catalog is a table of the store whose keys are names and whose values are owners. Each change is one write to
//! it, of one record or of a batch, so a crash leaves the state before or after the change:
//!
//! | operation | writes | then |
//! |---|---|---|
//! | create | name → a new owner | the name points to its index |
//! | clear | name → a new owner | the name points to that one's index; the old table is dead |
//! | drop | name deleted | handles return `NotFound`; the table is dead |
//! | swap | both names → each other's owner, in one batch | both names point there |
//!
//! Order: where each write is durable when it returns, a write to the catalog is durable before anybody sees it in
//! DRAM. So no record is ever acknowledged whose owner a crash would lose, and nobody sees an empty table that a crash
//! would fill again. In between, writers still write to the old owner: those writes came before the clearing.
//!
//! With an interval and with `manual`, a change is visible in the epoch of its write, before any write of a later
//! epoch. The state after a crash is a prefix in time; if a clearing became visible after a write of a later epoch, it
//! would survive without that write. With an interval that epoch is committed before the call returns. In all cases the
//! old table is dead only afterwards.
//!
//! One change at a time: each holds the catalog's writer state, for as long as a write takes. Reads and writes of keys
//! never hold it. A lookup of a name waits for a change under way, but not while its thread holds keys.

use crate::api::core::Core;
use crate::api::{Part, StoreOn};
use crate::expire::listeners::TableId;
use crate::locks::close_barrier;
use crate::options::IndexKind;
use crate::records::Records;
use crate::table::tables::{self, Named, Target};
use crate::transaction::batch::In;
use crate::writer::WriterState;
use crate::{Batch, Error, ErrorKind, Result};
use duramen_index::either::Index;
use duramen_log::format::superblock::Regime;
use duramen_log::format::{Owner, OwnerKind};
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim;
use duramen_media::{Mapped, Medium};
use std::panic::Location;

/// The longest name of a table, in bytes.
const NAME_BYTES_MAX: usize = 1 << 10;

pub(crate) fn kind_of(table: &tables::Table) -> IndexKind {
    match table.index {
        Index::Hash(_) | Index::Collection(_) => IndexKind::Hash,
        Index::Ordered(_) => IndexKind::Ordered,
    }
}

fn kind_to_make(kind: IndexKind) -> OwnerKind {
    match kind {
        IndexKind::Hash => OwnerKind::Hash,
        IndexKind::Ordered => OwnerKind::Ordered,
    }
}

/// A table of a store, made by [`StoreOn::table`]: a [`TableOn`] on the media of this machine.
pub type Table = TableOn<Mapped>;

/// A named table of a store: a separate set of keys with its own index. Cheap to clone; made by [`StoreOn::table`].
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use duramen::{IndexKind, Options};
///
/// let store = Options::default().open(dir.path().join("store"))?;
/// let users = store.table(b"users", IndexKind::Ordered)?;
/// let sessions = store.table(b"sessions", IndexKind::Hash)?;
/// users.put(b"7", b"Ada")?;
/// sessions.put(b"7", b"token")?;
/// assert_eq!(users.get(b"7")?.as_deref(), Some(&b"Ada"[..]));
/// sessions.clear()?; // one small write, however many there are
/// assert_eq!((users.len(), sessions.len()), (1, 0));
/// # Ok::<(), duramen::Error>(())
/// ```
pub struct TableOn<M: Medium = Mapped> {
    store: Part<M>,
    pub(crate) named: Arc<Named>,
}

/// Numbers of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Its name.
    pub name: Vec<u8>,
    /// Whether its index is ordered.
    pub is_ordered: bool,
    /// Live keys; expired ones count until they are swept. Exact while nobody writes.
    pub keys: u64,
    /// DRAM used by its index.
    pub index_bytes: u64,
}

impl<M: Medium> Clone for TableOn<M> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), named: Arc::clone(&self.named) }
    }
}

impl<M: Medium> std::fmt::Debug for TableOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.named).finish_non_exhaustive()
    }
}

impl<M: Medium> Core<M> {
    /// Writes or deletes one entry of the catalog, makes it as durable as the store does, and calls `show` to make it
    /// visible.
    fn write_name(
        &self,
        writer_state: &mut WriterState,
        name: &[u8],
        owner: Option<Owner>,
        mut show: impl FnMut(),
    ) -> Result<()> {
        let entry = owner.map(tables::entry_of);
        let entry = entry.as_ref().map(|entry| &entry[..]);
        let is_early = self.shows_early();
        let is_new = self.catalog.find(name).is_none();
        writer_state.write_name(self.context(), name, entry, is_new, || {
            if is_early {
                show();
            }
        })?;
        self.commit_names()?;
        if !is_early {
            show();
        }
        Ok(())
    }

    /// Retires this table: durably, nothing names it any more.
    fn retire(&self, table: Option<Arc<tables::Table>>) {
        if let Some(table) = table {
            self.maintenance.records.tables.retire(&table);
            self.maintenance.wake.wake();
        }
    }

    /// Whether a change may be visible before it is durable: if it is lost, so are all later writes.
    fn shows_early(&self) -> bool {
        let log = &self.maintenance.records.log;
        log.epochs().regime() == Regime::Manual || log.epochs().in_use() && log.durable.interval().is_some()
    }

    fn commit_names(&self) -> Result<()> {
        let log = &self.maintenance.records.log;
        if log.epochs().regime() == Regime::Epochs {
            // Also with an interval.
            log.commit()?;
        }
        Ok(())
    }
}

impl<M: Medium> StoreOn<M> {
    /// The table of this name, created if there is none, with an index of this kind. Creating it costs one small write;
    /// each call searches the names, so keep the handle.
    ///
    /// An existing one is also found under [key locks](crate::WriterOn::locked), without waiting for anybody.
    ///
    /// # Errors
    /// `InvalidInput` for a name above 1,024 bytes, when the table exists with an index of the other kind, or when
    /// there is none and this thread holds [keys](crate::WriterOn::locked). Otherwise as [`StoreOn::put`].
    pub fn table(&self, name: impl AsRef<[u8]>, kind: IndexKind) -> Result<TableOn<M>> {
        let name = name.as_ref();
        let (core, records) = (self.core(), self.records());
        if let Some(table) = self.open_table(core.catalog.find_durable(records, name), kind)? {
            return Ok(table);
        }
        let writer_state = &mut *core.catalog.writer_state(records, "make a table")?;
        // Another thread created it in the meantime.
        if let Some(table) = self.open_table(core.catalog.find(name), kind)? {
            return Ok(table);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the name of the table has {} bytes; at most {NAME_BYTES_MAX} are allowed",
                name.len()
            )));
        }
        records.log.epochs().check_writable()?;
        let table = records.tables.fresh(kind_to_make(kind));
        if let Err(error) = core.write_name(writer_state, name, Some(table.owner), || ()) {
            records.tables.remove_reclaimed(table.owner);
            return Err(error);
        }
        let named = Arc::new(Named::new(name.to_vec(), Some(table)));
        core.catalog.set(name, Some(Arc::clone(&named)));
        Ok(TableOn { store: Part::new(self), named })
    }

    /// The found table, if there is one, after a check of its index kind.
    fn open_table(&self, named: Option<Arc<Named>>, kind: IndexKind) -> Result<Option<TableOn<M>>> {
        let Some(named) = named else { return Ok(None) };
        let guard = reclaim::pin();
        // It was just dropped.
        let Ok(table) = named.table(&guard) else { return Ok(None) };
        let found = kind_of(table);
        if found != kind {
            return Err(Error::invalid(format!(
                "table \"{}\" has an index of kind {found:?}, wanted {kind:?}: open it with its own kind, or drop it",
                String::from_utf8_lossy(&named.name)
            )));
        }
        drop(guard);
        Ok(Some(TableOn { store: Part::new(self), named }))
    }

    /// The table of this name, if there is one, whatever its kind.
    ///
    /// # Errors
    /// `InUse` in a forked child.
    pub fn find_table(&self, name: impl AsRef<[u8]>) -> Result<Option<TableOn<M>>> {
        let name = name.as_ref();
        self.log().epochs().check_process()?;
        let named = self.core().catalog.find_durable(self.records(), name);
        Ok(named.map(|named| TableOn { store: Part::new(self), named }))
    }

    /// The named tables, by name.
    #[must_use]
    pub fn tables(&self) -> Vec<TableStats> {
        let guard = reclaim::pin();
        let stats = |named: &Arc<Named>| {
            let table = named.table(&guard).ok()?;
            Some(TableStats {
                name: named.name.clone(),
                is_ordered: kind_of(table) == IndexKind::Ordered,
                keys: table.keys(),
                index_bytes: table.index.numbers(&guard).bytes,
            })
        };
        self.core().catalog.all().iter().filter_map(stats).collect()
    }

    /// Drops the table of this name: one small write, whatever its size. Returns whether there was one. Its handles
    /// return `NotFound` from then on. Each write and each transaction comes before it or after it, as with
    /// [`TableOn::clear`].
    ///
    /// # Errors
    /// As [`TableOn::clear`].
    #[track_caller]
    pub fn drop_table(&self, name: impl AsRef<[u8]>) -> Result<bool> {
        let name = name.as_ref();
        let core = self.core();
        let _alone = close_barrier(self.records(), "drop a table", Location::caller())?;
        let writer_state = &mut *core.catalog.writer_state(self.records(), "drop a table")?;
        let Some(named) = core.catalog.find(name) else { return Ok(false) };
        let mut before = None;
        core.write_name(writer_state, name, None, || before = named.repoint(None))?;
        core.catalog.set(name, None);
        core.retire(before);
        Ok(true)
    }

    /// Swaps the tables of two names: one small write, whatever the sizes. Handles follow their names. Each write and
    /// each transaction comes before the swap or after it: the swap waits for those under way, and others wait for it.
    /// Readers do not wait: **a read under way may still return values of the table that its name pointed to when it
    /// began**, and a read that begins during the swap may find one name swapped and the other not yet. It needs space
    /// like a put.
    ///
    /// # Errors
    /// `NotFound` when there is no table of one of the names. `InvalidInput` within a transaction or a scan of this
    /// thread, or while it holds keys. Otherwise as [`StoreOn::put`].
    #[track_caller]
    pub fn swap_tables(&self, a: &[u8], b: &[u8]) -> Result<()> {
        let core = self.core();
        let _alone = close_barrier(self.records(), "swap tables", Location::caller())?;
        let writer_state = &mut *core.catalog.writer_state(self.records(), "swap tables")?;
        let find = |name: &[u8]| {
            core.catalog.find(name).ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                Error::new(ErrorKind::NotFound, format!("no table is named \"{name}\""))
            })
        };
        let (first, second) = (find(a)?, find(b)?);
        if a == b {
            return Ok(());
        }
        let owners = {
            let guard = reclaim::pin();
            [first.table(&guard)?.clone(), second.table(&guard)?.clone()]
        };
        let mut batch = Batch::new();
        batch.put_name(a, &tables::entry_of(owners[1].owner));
        batch.put_name(b, &tables::entry_of(owners[0].owner));
        let show = || {
            let [a, b] = owners.clone();
            first.repoint(Some(b));
            second.repoint(Some(a));
        };
        let is_early = core.shows_early();
        let _ = writer_state.apply_then(core.context(), &batch, &mut || {
            if is_early {
                show();
            }
        })?;
        core.commit_names()?;
        if !is_early {
            show();
        }
        Ok(())
    }
}

impl Batch {
    /// The writes that follow are to keys of `table`, until this is called again; `None`, the initial state: to the
    /// store's own.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use duramen::{Batch, IndexKind, Options, Swap};
    /// let store = Options::default().open(dir.path().join("store"))?;
    /// let orders = store.table(b"orders", IndexKind::Ordered)?;
    /// let mut batch = Batch::new();
    /// batch.put(b"orders", b"1").table(Some(&orders)).put(b"2026-1", b"paid");
    /// assert_eq!(store.apply(&batch)?, Swap::Done);
    /// assert_eq!(orders.len(), 1);
    /// # Ok::<(), duramen::Error>(())
    /// ```
    pub fn table<M: Medium>(&mut self, table: Option<&TableOn<M>>) -> &mut Self {
        self.set_table(table.map_or(In::Store, |table| In::Named(Arc::clone(&table.named))));
        self
    }
}

impl<M: Medium> TableOn<M> {
    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        Target::Named(&self.named)
    }

    fn records(&self) -> &Records<M> {
        self.store.records()
    }

    /// The store that it belongs to.
    #[must_use]
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        &self.named.name
    }

    /// The table's id, as passed to listeners for its keys ([`StoreOn::set_on_expired`]).
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn id(&self) -> Result<TableId> {
        Ok(TableId(self.named.table(&reclaim::pin())?.owner))
    }

    /// Allows eviction of its keys, reported with this label ([`StoreOn::set_on_evicted`]). `None`, the initial state:
    /// no eviction. The setting belongs to the name, also when the table is cleared or swapped, and is lost when the
    /// store is closed.
    pub fn set_evictable(&self, label: Option<u32>) {
        self.named.set_label(label);
    }

    /// The kind of its index.
    ///
    /// # Errors
    /// `NotFound` when it was dropped.
    pub fn index_kind(&self) -> Result<IndexKind> {
        Ok(kind_of(self.named.table(&reclaim::pin())?))
    }

    /// Seconds since `key` was last written or read, as far as known; `None`: it is absent. Reads are noted only with
    /// an [eviction](crate::Options::eviction) by recency, in a table of fixed size that keys share, and not across
    /// restarts.
    ///
    /// # Errors
    /// `NotFound` when the table was dropped.
    pub fn idle_seconds(&self, key: impl AsRef<[u8]>) -> Result<Option<u64>> {
        let key = key.as_ref();
        self.records().idle(self.target(), key)
    }

    /// Empties the table: one small write, whatever its size. Its space and its DRAM are reclaimed in the background.
    /// Each write and each transaction comes before it or after it: it waits for those under way, and others wait for
    /// it.
    ///
    /// # Errors
    /// As [`StoreOn::delete`]: it may use the space kept for deletes. `InvalidInput` within a transaction or a scan of
    /// this thread, or while it holds keys.
    #[track_caller]
    pub fn clear(&self) -> Result<()> {
        self.clear_to(None)
    }

    /// As [`TableOn::clear`], and changes the kind of its index.
    ///
    /// # Errors
    /// As [`TableOn::clear`].
    #[track_caller]
    pub fn clear_as(&self, kind: IndexKind) -> Result<()> {
        self.clear_to(Some(kind))
    }

    #[track_caller]
    fn clear_to(&self, kind: Option<IndexKind>) -> Result<()> {
        let core = self.store.core();
        let records = self.records();
        records.log.epochs().check_writable()?;
        let _alone = close_barrier(records, "clear a table", Location::caller())?;
        let writer_state = &mut *core.catalog.writer_state(records, "clear a table")?;
        let found = self.index_kind()?;
        let fresh = records.tables.fresh(kind_to_make(kind.unwrap_or(found)));
        let owner = fresh.owner;
        let mut before = None;
        let mut show = || before = self.named.repoint(Some(Arc::clone(&fresh)));
        if let Err(error) = core.write_name(writer_state, &self.named.name, Some(owner), &mut show) {
            if before.is_none() {
                records.tables.remove_reclaimed(owner);
            }
            return Err(error);
        }
        core.retire(before);
        Ok(())
    }
}
