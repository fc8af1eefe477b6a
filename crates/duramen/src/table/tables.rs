//! Tables: sets of keys, each with its own index.
//!
//! Every record belongs to a table by its [`Owner`], and each table has one. The store's own table always exists, and
//! so does the *catalog*. Its keys are the names of all other tables, and its values are their owners
//! (`api::tables`). An owner's records count as long as a live record of the catalog names the owner.
//!
//! A named table can be cleared: then its name points to a new owner with an empty index, and the old one is *dead*. So
//! a caller that uses a table by its name looks up its current owner ([`Named::table`]), under the same guard under
//! which it uses the table. A thread that reclaims a dead table's index (`table::reclaim`) waits until all
//! callers have left that came before it died. Every write into a table that dies concurrently happened before its
//! death.
//!
//! Keys of all tables share the stripes of one store: locks taken in the order of their stripes cannot deadlock.
//! Elements of collections have their own stripes. A thread that holds the lock of a collection's key locks an element
//! for one step, and never waits for a key while it holds an element.

use crate::table::names::{Before, Names};
use crate::{Error, ErrorKind, Result};
use duramen_index::collection::{Arena, CollectionIndex, Order};
use duramen_index::either::Index;
use duramen_index::hash::HashIndex;
use duramen_index::ordered::OrderedIndex;
use duramen_index::stripes::Stripes;
use duramen_log::format::{Owner, OwnerKind, Version};
use duramen_log::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use duramen_log::sync::current::Current;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_log::sync::{Arc, Mutex, lock, rank, statics};
use duramen_media::Offset;
use std::collections::{HashMap, HashSet};

/// Counts of keys, so that writers do not contend on one.
const COUNTS: usize = if cfg!(loom) { 1 } else { 16 };
/// Parts of the list of collections.
const PARTS: usize = if cfg!(loom) { 1 } else { 64 };

#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicI64);

/// See the module.
pub(crate) struct Table {
    pub owner: Owner,
    pub index: Index,
    /// Keys added less keys removed, by the writers' shards. Empty for a collection, whose index knows its number of
    /// elements.
    keys: Box<[Count]>,
    /// The roots that name it, if it is a collection.
    names: Names,
    /// Nothing names it any more.
    dead: AtomicBool,
    /// Its store is closed. The same type everywhere: no model or schedule closes a store while its handles are used.
    closed: statics::AtomicBool,
    /// Its label plus one when its keys may be evicted, else 0.
    label: AtomicU64,
}

impl Table {
    fn new(owner: Owner, index: Index) -> Self {
        let counts = if owner.is_collection() { 0 } else { COUNTS };
        let keys = (0..counts).map(|_| Count::default()).collect();
        let names = Names::default();
        let (dead, label) = (AtomicBool::new(false), AtomicU64::new(0));
        let closed = statics::AtomicBool::new(false);
        Self { owner, index, keys, names, dead, closed, label }
    }

    /// Its live keys; expired ones count until they are swept. Exact while nobody writes.
    pub(crate) fn keys(&self) -> u64 {
        if let Some(index) = self.index.collection() {
            return index.key_count();
        }
        self.keys.iter().map(|count| count.0.load(Relaxed)).sum::<i64>().max(0) as u64
    }

    /// Counts keys that were added or removed, for a writer of this shard.
    #[inline]
    pub(crate) fn count_keys(&self, shard: usize, more: i64) {
        if let Some(count) = self.keys.get(shard % COUNTS) {
            count.0.fetch_add(more, Relaxed);
        }
    }

    /// The label under which evictions of its keys are reported; `None`: they are not evicted.
    #[inline]
    pub(crate) fn label(&self) -> Option<u32> {
        self.label.load(Relaxed).checked_sub(1).map(|label| label as u32)
    }

    pub(crate) fn set_label(&self, label: Option<u32>) {
        self.label.store(label.map_or(0, |label| u64::from(label) + 1), Relaxed);
    }

    /// Whether its records name their owner.
    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        self.owner != Owner::STORE
    }

    /// Adds the root at this place, which names it. For recovery.
    pub(crate) fn add_name(&self, place: Offset) {
        if self.names.add().is_some() {
            self.names.note(place);
        }
    }

    /// Number of roots that name it.
    pub(crate) fn names(&self) -> u32 {
        self.names.count()
    }

    /// Their places, without those not written yet.
    pub(crate) fn places_of_names(&self) -> Vec<Offset> {
        self.names.places()
    }

    /// Itself, unless it is dead or its store is closed. Checked after the pin under which it is used: a thread that
    /// reclaims a dead table, or closes the store, waits for that pin.
    #[inline]
    pub(crate) fn alive(&self) -> Result<&Self> {
        if self.is_dead() { Err(gone()) } else { self.check_open() }
    }

    /// Itself, unless its store is closed. Checked like [`Table::alive`].
    #[inline]
    pub(crate) fn check_open(&self) -> Result<&Self> {
        // Acquire: pairs with the Release in `Tables::set_closed`.
        if self.closed.load(Acquire) { Err(Error::closed()) } else { Ok(self) }
    }

    /// Whether nothing names it any more: its records are dead, whatever slots say.
    pub(crate) fn is_dead(&self) -> bool {
        // Acquire: pairs with the Release in `Tables::retire`.
        self.dead.load(Acquire)
    }
}

/// Creates indexes.
#[derive(Clone)]
pub(crate) struct Maker {
    pub stripes: Arc<Stripes>,
    /// The stripes of elements.
    pub elements: Arc<Stripes>,
    /// Chooses the heights of ordered indexes.
    pub seed: u64,
    pub cache_slots: usize,
    pub split_count_min: u32,
    pub leaf_slots: usize,
    /// Memory for indexes of collections.
    pub arena: Arc<Arena>,
}

impl Maker {
    pub(crate) fn make(&self, kind: OwnerKind) -> Index {
        let stripes = Arc::clone(match kind {
            OwnerKind::Hash | OwnerKind::Ordered => &self.stripes,
            OwnerKind::Map | OwnerKind::ByValue | OwnerKind::ByKey => &self.elements,
        });
        let order = match kind {
            OwnerKind::Hash => return Index::Hash(HashIndex::on(stripes).splitting_at(self.split_count_min)),
            OwnerKind::Ordered => {
                let index = OrderedIndex::on(stripes, self.seed, self.cache_slots, self.leaf_slots);
                return Index::Ordered(Box::new(index));
            }
            OwnerKind::Map => Order::None,
            OwnerKind::ByValue => Order::Value,
            OwnerKind::ByKey => Order::Key,
        };
        Index::Collection(Box::new(CollectionIndex::new(stripes, &self.arena, order)))
    }
}

/// Tables by their owners.
type Owners = HashMap<Owner, Arc<Table>>;

/// All tables of a store that have an index.
pub(crate) struct Tables {
    pub store: Arc<Table>,
    pub catalog: Arc<Table>,
    /// Dead ones included, until they are reclaimed.
    others: Mutex<Owners, { rank::TABLES }>,
    /// The collections, in parts by their numbers, so that threads that use different ones seldom contend.
    collections: [Mutex<Owners, { rank::TABLES }>; PARTS],
    /// Collections whose indexes have not read their pages of a checkpoint.
    unread: Mutex<Vec<Arc<Table>>, { rank::UNREAD }>,
    /// Dead ones, in the order in which they died.
    retired: Mutex<Vec<Arc<Table>>>,
    /// Previous places of roots that were moved or superseded while a checkpoint is written.
    left: Mutex<Option<Vec<RootRef>>, { rank::LEFT }>,
    maker: Maker,
    /// The counter of the next owner, and the incarnation in which it is assigned.
    next: AtomicU64,
    incarnation: u32,
}

/// The table that was found last: records of one table often follow each other.
pub(crate) type Last = Option<Arc<Table>>;

impl Tables {
    pub(crate) fn new(maker: Maker, kind: OwnerKind, incarnation: u32) -> Self {
        Self {
            store: Arc::new(Table::new(Owner::STORE, maker.make(kind))),
            catalog: Arc::new(Table::new(Owner::CATALOG, maker.make(OwnerKind::Hash))),
            others: Mutex::default(),
            collections: std::array::from_fn(|_| Mutex::default()),
            unread: Mutex::default(),
            retired: Mutex::default(),
            left: Mutex::default(),
            maker,
            next: AtomicU64::new(0),
            incarnation,
        }
    }

    /// The locks of the keys of all tables.
    pub(crate) fn stripes(&self) -> &Arc<Stripes> {
        &self.maker.stripes
    }

    /// The locks of the elements of all collections.
    pub(crate) fn elements(&self) -> &Arc<Stripes> {
        &self.maker.elements
    }

    /// The stripes for the keys of `owner`.
    pub(crate) fn stripes_of(&self, owner: Owner) -> &Stripes {
        if owner.is_collection() { &self.maker.elements } else { &self.maker.stripes }
    }

    /// The greatest version of all records.
    pub(crate) fn version(&self) -> Version {
        self.maker.stripes.version().max(self.maker.elements.version())
    }

    /// Ensures that no record has a version above the stripes'.
    pub(crate) fn raise_versions(&self, version: Version) {
        self.maker.stripes.raise_versions(version);
        self.maker.elements.raise_versions(version);
    }

    /// The table of `owner`; `None`: it was reclaimed.
    pub(crate) fn of(&self, owner: Owner) -> Option<Arc<Table>> {
        match owner {
            Owner::STORE => Some(Arc::clone(&self.store)),
            Owner::CATALOG => Some(Arc::clone(&self.catalog)),
            _ => lock(self.list_of(owner)).get(&owner).cloned(),
        }
    }

    /// The list that has the table of `owner`.
    fn list_of(&self, owner: Owner) -> &Mutex<Owners, { rank::TABLES }> {
        if owner.is_collection() { &self.collections[(owner.0 >> 3) as usize % PARTS] } else { &self.others }
    }

    /// As [`Tables::of`], cached in `last`.
    #[inline]
    pub(crate) fn find<'a>(&'a self, owner: Owner, last: &'a mut Last) -> Option<&'a Table> {
        if owner == Owner::STORE {
            return Some(&self.store);
        }
        if last.as_ref().is_none_or(|last| last.owner != owner) {
            *last = Some(self.of(owner)?);
        }
        last.as_deref()
    }

    /// The table of an owner that recovery has found, created if there is none yet; `fresh` is called with a created
    /// index.
    pub(crate) fn get_or_insert(&self, owner: Owner, fresh: impl FnOnce(&mut Index)) -> Arc<Table> {
        match owner {
            Owner::STORE => Arc::clone(&self.store),
            Owner::CATALOG => Arc::clone(&self.catalog),
            _ => {
                let mut others = lock(self.list_of(owner));
                let make = || {
                    let mut index = self.maker.make(owner.kind().unwrap_or(OwnerKind::Hash));
                    fresh(&mut index);
                    Arc::new(Table::new(owner, index))
                };
                Arc::clone(others.entry(owner).or_insert_with(make))
            }
        }
    }

    /// Calls `fill` on the empty index of a table. For recovery, which has exclusive access; otherwise nothing is done.
    pub(crate) fn fill<T>(&mut self, owner: Owner, fill: impl FnOnce(&mut Index) -> T) -> Option<T> {
        let table = match owner {
            Owner::STORE => &mut self.store,
            Owner::CATALOG => &mut self.catalog,
            _ => {
                self.get_or_insert(owner, |_| {});
                let mut list = lock(self.list_of(owner));
                return Arc::get_mut(list.get_mut(&owner)?).map(|table| fill(&mut table.index));
            }
        };
        Arc::get_mut(table).map(|table| fill(&mut table.index))
    }

    /// An empty table, of an owner that was never used before.
    pub(crate) fn fresh(&self, kind: OwnerKind) -> Arc<Table> {
        let owner = Owner::new(self.incarnation, self.next.fetch_add(1, Relaxed), kind);
        self.get_or_insert(owner, |_| {})
    }

    /// All owners, dead ones too: tables, then collections.
    pub(crate) fn all_owners(&self) -> Vec<Arc<Table>> {
        let mut all = self.all();
        all.append(&mut self.all_collections());
        all
    }

    /// All collections, dead ones too.
    pub(crate) fn all_collections(&self) -> Vec<Arc<Table>> {
        let mut all = Vec::new();
        self.collections.iter().for_each(|part| all.extend(lock(part).values().cloned()));
        all
    }

    /// Bytes of DRAM of the indexes of all collections.
    pub(crate) fn collections_bytes(&self) -> u64 {
        let collections: usize = self.collections.iter().map(|part| lock(part).len()).sum();
        self.maker.arena.bytes() + (collections * (size_of::<Table>() + size_of::<CollectionIndex>())) as u64
    }

    /// All tables, dead ones too; no collections.
    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        let mut all = vec![Arc::clone(&self.store), Arc::clone(&self.catalog)];
        let others = lock(&self.others);
        all.extend(others.values().cloned());
        all[2..].sort_unstable_by_key(|table| table.owner);
        all
    }

    /// All tables that are alive.
    pub(crate) fn living(&self) -> Vec<Arc<Table>> {
        let mut all = self.all();
        all.retain(|table| !table.is_dead());
        all
    }

    /// Live keys of all tables, without the catalog's.
    pub(crate) fn keys(&self) -> u64 {
        let living = self.living();
        living.iter().filter(|table| table.owner != Owner::CATALOG).map(|table| table.keys()).sum()
    }

    /// Counts a root of this collection that is about to be written.
    ///
    /// # Errors
    /// `NotFound` when the collection is gone.
    pub(crate) fn name(&self, owner: Owner) -> Result<PendingRootRef<'_>> {
        let table = self.of(owner).filter(|_| owner.is_collection());
        let named = table.and_then(|table| Some((table.names.add()?, table)));
        let (before, table) = named.ok_or_else(gone)?;
        Ok(PendingRootRef { tables: self, table, before, is_written: false })
    }

    /// The root at this place is superseded.
    pub(crate) fn release_root(&self, RootRef { owner, place }: RootRef) {
        let Some(table) = self.of(owner).filter(|_| owner.is_collection()) else {
            return;
        };
        let is_gone = {
            let mut left = lock(&self.left);
            note_left(&mut left, RootRef { owner, place });
            table.names.remove(place)
        };
        if is_gone {
            self.retire(&table);
        }
    }

    /// From now on records the places that roots leave, or at which they are superseded, until the result is taken.
    pub(crate) fn note_left(&self) -> LeftPlaces<'_> {
        *lock(&self.left) = Some(Vec::new());
        LeftPlaces(self)
    }

    /// Notes that a slot now points to a root of this collection, which was [counted](Tables::name). Under its key's
    /// lock.
    #[cold]
    pub(crate) fn root_written(&self, RootRef { owner, place }: RootRef) {
        if let Some(table) = self.of(owner) {
            table.names.note(place);
        }
    }

    /// Notes the new place of a root. Under its key's lock.
    pub(crate) fn root_moved(&self, RootRef { owner, place }: RootRef, to: Offset) {
        if let Some(table) = self.of(owner) {
            let mut left = lock(&self.left);
            note_left(&mut left, RootRef { owner, place });
            table.names.moved(place, to);
        }
    }

    /// Reverts a root that was [kept](PendingRootRef::keep) as one that names this collection.
    pub(crate) fn release_unwritten_root(&self, RootRef { owner, place }: RootRef, before: Before) {
        if let Some(table) = self.of(owner)
            && table.names.release_unwritten(before, Some(place))
        {
            self.retire(&table);
        }
    }

    /// Drops a collection that no root names.
    pub(crate) fn abandon(&self, table: &Arc<Table>) {
        if table.names.abandon() {
            self.retire(table);
        }
    }

    /// Marks this table dead: nothing names it any more.
    pub(crate) fn retire(&self, table: &Arc<Table>) {
        // AcqRel: pairs with the Acquire in `is_dead`.
        if !table.dead.swap(true, AcqRel) {
            lock(&self.retired).push(Arc::clone(table));
        }
    }

    /// From now on, calls on a table or collection fail if they pin their thread after this; or no longer.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        for table in self.all_owners() {
            // Release: pairs with the Acquire in `Table::check_open`.
            table.closed.store(is_closed, Release);
        }
    }

    /// Dead tables that are to be reclaimed.
    pub(crate) fn take_retired(&self) -> Vec<Arc<Table>> {
        std::mem::take(&mut lock(&self.retired))
    }

    /// Removes a dead table whose slots no longer matter.
    pub(crate) fn remove_reclaimed(&self, owner: Owner) {
        lock(self.list_of(owner)).remove(&owner);
    }

    /// Owners that have a table and are not among `named`.
    pub(crate) fn unnamed(&self, named: &HashSet<Owner>) -> Vec<Arc<Table>> {
        let mut all = self.all_owners();
        all.retain(|table| table.owner > Owner::CATALOG && !named.contains(&table.owner));
        all.sort_unstable_by_key(|table| table.owner);
        all
    }

    /// Adds a collection whose index has pages of a checkpoint to read. For recovery.
    pub(crate) fn add_unread(&self, table: Arc<Table>) {
        lock(&self.unread).push(table);
    }

    /// Pages of a checkpoint that indexes have not read yet; a collection counts as one.
    pub(crate) fn pages_left(&self) -> u64 {
        let collections = lock(&self.unread).len() as u64;
        self.all().iter().map(|table| table.index.pages_left()).sum::<u64>() + collections
    }

    /// Reads them, until `stops`.
    pub(crate) fn read_pages(&self, stops: &dyn Fn() -> bool) {
        self.all().iter().for_each(|table| table.index.read_pages(stops));
        while !stops() {
            let Some(table) = lock(&self.unread).last().cloned() else { return };
            table.index.read_pages(stops);
            // It stays in the list until it is read, since others take an empty list for the end.
            let mut unread = lock(&self.unread);
            while unread.last().is_some_and(|table| table.index.pages_left() == 0) {
                unread.pop();
            }
        }
    }
}

/// The value in the catalog under a table's name.
pub(crate) fn entry_of(owner: Owner) -> [u8; 8] {
    owner.0.to_le_bytes()
}

/// The owner in an entry of the catalog; `None`: this build does not write such an entry.
pub(crate) fn owner_in(entry: &[u8]) -> Option<Owner> {
    let owner = Owner(u64::from_le_bytes(entry.try_into().ok()?));
    (owner > Owner::CATALOG).then_some(owner)
}

/// A name, and the table that it points to now.
pub(crate) struct Named {
    pub name: Vec<u8>,
    /// `None`: it was dropped.
    current: Current<Option<Arc<Table>>>,
    /// The [label](Table::label) of the tables that it points to.
    label: Mutex<Option<u32>, { rank::LABEL }>,
}

impl Named {
    pub(crate) fn new(name: Vec<u8>, table: Option<Arc<Table>>) -> Self {
        Self { name, current: Current::new(table), label: Mutex::default() }
    }

    /// The table, for as long as the guard lives.
    #[inline]
    pub(crate) fn table<'g>(&self, guard: &'g Guard) -> Result<&'g Arc<Table>> {
        let table = self.current.load(guard).as_ref().ok_or_else(|| self.dropped())?;
        table.check_open().map(|_| table)
    }

    #[cold]
    fn dropped(&self) -> Error {
        let name = String::from_utf8_lossy(&self.name);
        Error::new(
            ErrorKind::NotFound,
            format!("table \"{name}\" was dropped: open it again to create a new one"),
        )
    }

    /// Points the name to `table`. Returns the previous table.
    pub(crate) fn repoint(&self, table: Option<Arc<Table>>) -> Option<Arc<Table>> {
        let label = lock(&self.label);
        if let Some(table) = &table {
            table.set_label(*label);
        }
        self.current.replace(table, &reclaim::pin_to_write()).clone()
    }
}

impl Named {
    /// Enables eviction, under this label, of the keys of the table that it points to, now and later; or disables it.
    pub(crate) fn set_label(&self, label: Option<u32>) {
        let mut now = lock(&self.label);
        *now = label;
        if let Some(table) = self.current.load(&reclaim::pin()) {
            table.set_label(label);
        }
    }
}

impl std::fmt::Debug for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Named").field(&String::from_utf8_lossy(&self.name)).finish()
    }
}

/// The table of an operation.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    /// The store's own.
    Store,
    Catalog,
    Named(&'a Named),
    Collection(&'a Table),
}

impl Target<'_> {
    /// Whether its records name an owner.
    #[inline]
    pub(crate) fn is_owned(self) -> bool {
        !matches!(self, Self::Store)
    }

    #[inline]
    pub(crate) fn is_collection(self) -> bool {
        matches!(self, Self::Collection(_))
    }
}

impl Tables {
    /// The table of `target`, for as long as the guard lives.
    #[inline(always)]
    pub(crate) fn at<'g>(&'g self, target: Target<'g>, guard: &'g Guard) -> Result<&'g Table> {
        match target {
            Target::Store => self.store.check_open(),
            Target::Catalog => Ok(&self.catalog),
            Target::Named(named) => named.table(guard).map(|table| &**table),
            Target::Collection(table) => table.alive(),
        }
    }
}

/// A root: the collection that it names, and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RootRef {
    pub owner: Owner,
    pub place: Offset,
}

fn note_left(left: &mut Option<Vec<RootRef>>, name: RootRef) {
    if let Some(left) = left.as_mut() {
        left.push(name);
    }
}

/// See [`Tables::note_left`].
pub(crate) struct LeftPlaces<'t>(&'t Tables);

impl LeftPlaces<'_> {
    /// The places that were left since it was begun.
    pub(crate) fn take(self) -> Vec<RootRef> {
        lock(&self.0.left).take().unwrap_or_default()
    }
}

impl Drop for LeftPlaces<'_> {
    fn drop(&mut self) {
        *lock(&self.0.left) = None;
    }
}

/// A root that is being written, which already counts as one that names its collection. If it is dropped before it is
/// written, it no longer counts.
pub(crate) struct PendingRootRef<'t> {
    tables: &'t Tables,
    table: Arc<Table>,
    before: Before,
    is_written: bool,
}

impl PendingRootRef<'_> {
    /// Makes the root count from now on, unless [`Tables::release_unwritten_root`] reverts that.
    pub(crate) fn keep(mut self) -> Before {
        self.is_written = true;
        self.before
    }

    /// Reports the outcome of the write: whether a slot points to the root. Where the medium has failed that is
    /// unknown, and one too many is counted: nobody writes to that store any more.
    pub(crate) fn finish<T>(mut self, done: &Result<T>, is_written: impl FnOnce(&T) -> bool) {
        self.is_written = match done {
            Ok(done) => is_written(done),
            Err(error) => matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned),
        };
    }
}

impl Drop for PendingRootRef<'_> {
    fn drop(&mut self) {
        if !self.is_written && self.table.names.release_unwritten(self.before, None) {
            self.tables.retire(&self.table);
        }
    }
}

/// The error for a caller that uses a dead collection.
#[cold]
fn gone() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "the collection is gone: its key was overwritten, deleted or has expired, or its table was cleared",
    )
}
