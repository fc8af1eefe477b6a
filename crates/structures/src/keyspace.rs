//! Numbered databases over one store, shared by all threads, and how many keys they have.
//!
//! Database `n` is the table `redis.n` of the store, from its first write on: before, there is none, and reads find nothing.
//! So its keys are counted by the engine, and what concerns all of them is one small write. Its index is of the kind that the
//! store was opened with when it was made, or emptied last.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use duramen::{Store, Table, TableId, Value};

use crate::error::{Error, Result};
use crate::random::seed;
use crate::thresholds::{self, Thresholds};
use crate::turns::Turns;
use crate::watch::Watchers;

/// Databases that Redis has by default.
pub const DATABASES_DEFAULT: u8 = 16;
/// Most databases a keyspace can have.
pub const DATABASES_MAX: u8 = 128;
// Tables after those of the databases.
const OTHERS: [&str; 3] = ["memcached", "memcached.state", "redis.functions"];
// Their one key in the last of them.
pub(crate) const LIBRARIES: &[u8] = b"libraries";
/// Longest user key.
pub const KEY_BYTES_MAX: usize = duramen::KEY_BYTES_MAX;

/// See [`Keyspace::small_collection_bytes_max`].
pub const SMALL_COLLECTION_BYTES_MAX_DEFAULT: usize = 1024;

// A smaller database is counted by visiting its keys, in some microseconds: then expired keys do not count even if the
// engine has not swept them yet.
const VISITED_MAX: u64 = 128;
// In a larger one, this many places and entries after each are sampled for the share of keys that expire.
const SAMPLES: usize = 16;
const SAMPLE_ENTRIES: usize = 64;

/// The name of the table that holds the keys of this database.
pub fn table_name(db: u8) -> String {
    format!("redis.{db}")
}

/// Databases of keys over one store. Cheap to clone; all clones are the same keyspace.
#[derive(Clone)]
pub struct Keyspace {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    tables: Box<[OnceLock<Table>]>,
    store: Store,
    // Held while a table is made, so that its watched keys are updated.
    making: Mutex<()>,
    small_collection_bytes_max: AtomicUsize,
    thresholds: thresholds::Shared,
    pub(crate) turns: Turns,
    pub(crate) watchers: Arc<Watchers>,
}

/// Keys of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// All keys.
    pub keys: u64,
    /// Those among them that have an expiry time.
    pub expires: u64,
}

impl Keyspace {
    /// Opens the keyspace in `store`, with `databases` (1 to [`DATABASES_MAX`]) databases. Keys of the store's own table, and of other
    /// tables, are in none of them.
    pub fn open(store: Store, databases: u8) -> Result<Self> {
        let databases = databases.clamp(1, DATABASES_MAX);
        let find = |db| {
            let name = name(databases, db);
            let table = store.find_table(name.as_bytes())?.inspect(|table| may_evict(table, databases, db));
            Ok(table.map_or_else(OnceLock::new, OnceLock::from))
        };
        let tables = (0..databases + OTHERS.len() as u8).map(find).collect::<Result<_>>()?;
        let (making, turns, watchers) = Default::default();
        let small_collection_bytes_max = AtomicUsize::new(SMALL_COLLECTION_BYTES_MAX_DEFAULT);
        let thresholds = thresholds::Shared::new(Thresholds::default());
        let shared =
            Shared { tables, store, making, small_collection_bytes_max, thresholds, turns, watchers };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The table of `db`, if there is one yet.
    #[inline]
    pub fn table(&self, db: u8) -> Option<&Table> {
        self.shared.tables.get(usize::from(db))?.get()
    }

    /// The table of `db`, which is made if there is none.
    #[inline]
    pub(crate) fn make(&self, db: u8) -> Result<&Table> {
        match self.table(db) {
            Some(table) => Ok(table),
            None => self.make_new(db),
        }
    }

    #[cold]
    fn make_new(&self, db: u8) -> Result<&Table> {
        let _making = self.shared.making.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.shared.tables.get(usize::from(db)).ok_or(Error::NoSuchDatabase)?;
        if place.get().is_none() {
            let store = &self.shared.store;
            let table = store.table(name(self.databases(), db).as_bytes(), store.index_kind())?;
            may_evict(&table, self.databases(), db);
            // Before any worker can write to it: watched keys are still absent.
            let made = table.clone();
            let _ = self.shared.watchers.made(db, &table, store, || place.set(made))?;
        }
        place.get().ok_or(Error::NoSuchDatabase)
    }

    /// Keys in `db` at `now` (Unix milliseconds), exact when no write is in progress. Expired keys count until the
    /// engine has swept them, some seconds later, unless there are few keys in all. It may include writes that are not
    /// durable yet, unlike [`Txn::count`](crate::Txn::count).
    ///
    /// Of more than 128 keys, how many expire is an estimate, from looking at a thousand.
    pub fn count(&self, db: u8, now: u64) -> KeyCount {
        let Some(table) = self.table(db) else { return KeyCount::default() };
        let keys = table.len();
        if keys <= VISITED_MAX
            && let Some(count) = visit_all(table, now)
        {
            return count;
        }
        let (mut looked, mut expires) = (0u64, 0u64);
        sample(table, &mut |value| {
            looked += 1;
            expires += u64::from(value.expires_at().is_some());
        });
        let expires = u128::from(keys) * u128::from(expires) / u128::from(looked.max(1));
        KeyCount { keys, expires: u64::try_from(expires).unwrap_or(keys) }
    }

    /// The keys of [`Keyspace::count`] alone: it does not look at any, unless they are few.
    pub fn keys(&self, db: u8, now: u64) -> u64 {
        let Some(table) = self.table(db) else { return 0 };
        match table.len() {
            keys @ ..=VISITED_MAX => visit_all(table, now).map_or(keys, |count| count.keys),
            keys => keys,
        }
    }

    /// Up to how many bytes a hash, list, set or sorted set is packed in the value of its key. A larger one has a record for each entry.
    pub fn small_collection_bytes_max(&self) -> usize {
        self.shared.small_collection_bytes_max.load(Relaxed)
    }

    /// Sets [`small_collection_bytes_max`](Self::small_collection_bytes_max), for later writes.
    pub fn set_small_collection_bytes_max(&self, bytes: usize) {
        self.shared.small_collection_bytes_max.store(bytes, Relaxed);
    }

    /// When Redis would convert a collection that changes.
    #[inline]
    pub fn thresholds(&self) -> Thresholds {
        self.shared.thresholds.get()
    }

    /// Sets [`thresholds`](Self::thresholds), for what changes from now on.
    pub fn set_thresholds(&self, thresholds: Thresholds) {
        self.shared.thresholds.set(thresholds);
    }

    /// How long the keys of `db` that expire have still to live on average, in milliseconds: an estimate, from looking at a thousand.
    pub fn ttl_average(&self, db: u8, now: u64) -> u64 {
        let Some(table) = self.table(db) else { return 0 };
        let (mut expires, mut ttl) = (0u64, 0u64);
        sample(table, &mut |value| {
            if let Some(left) = value.expires_at().and_then(|at| at.checked_sub(now)) {
                expires += 1;
                ttl = ttl.saturating_add(left);
            }
        });
        ttl / expires.max(1)
    }

    /// The database whose keys are in this table now.
    pub fn database_of(&self, table: TableId) -> Option<u8> {
        (0..self.databases())
            .find(|&db| self.table(db).is_some_and(|its| its.id().is_ok_and(|id| id == table)))
    }

    /// How many databases there are.
    pub fn databases(&self) -> u8 {
        (self.shared.tables.len() - OTHERS.len()) as u8
    }

    /// Where memcached's items are that share no database with Redis's strings: used as one, though no command of Redis
    /// reaches it.
    pub fn items(&self) -> u8 {
        self.databases()
    }

    /// Where is kept what memcached's commands need besides items.
    pub fn state(&self) -> u8 {
        self.databases() + 1
    }

    /// Where libraries of functions are kept: [`Txn::libraries`](crate::Txn::libraries).
    pub fn functions(&self) -> u8 {
        self.databases() + 2
    }

    /// A number that is kept under this name in the table of [`state`](Self::state).
    pub fn state_number(&self, name: &[u8]) -> Result<Option<u64>> {
        let Some(table) = self.table(self.state()) else { return Ok(None) };
        let value = table.get(name)?;
        Ok(value.and_then(|value| value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))))
    }

    /// Sets such a number, durable on return whatever the store's durability is. Not to be called while the thread is in a
    /// group, for which it would wait.
    pub fn set_state_number(&self, name: &[u8], value: u64) -> Result<()> {
        let table = self.make(self.state())?;
        table.put_with(name, value.to_le_bytes(), crate::string_until(None))?;
        Ok(self.store().commit()?)
    }

    /// The store below, for its statistics and settings.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

/// Keys of databases and items may be evicted, where the store does that, under the number of their database; what memcached needs besides
/// may not.
fn may_evict(table: &Table, databases: u8, db: u8) {
    table.set_evictable((db <= databases).then_some(u32::from(db)));
}

/// The name of the table of `db`, including those after the `databases` of Redis.
fn name(databases: u8, db: u8) -> String {
    match db.checked_sub(databases).and_then(|other| OTHERS.get(usize::from(other))) {
        Some(other) => (*other).to_owned(),
        None => table_name(db),
    }
}

/// Counts the keys of a table that has few; `None`: that takes too long, or one is damaged.
fn visit_all(table: &Table, now: u64) -> Option<KeyCount> {
    let mut count = KeyCount::default();
    let mut cursor = 0;
    // It ends also where a few keys are left in the index of many.
    for _ in 0..8 {
        cursor = table
            .scan(cursor, VISITED_MAX as usize, &mut |value| {
                if value.expires_at().is_none_or(|time| time > now) {
                    count.keys += 1;
                    count.expires += u64::from(value.expires_at().is_some());
                }
            })
            .ok()?;
        if cursor == 0 {
            return Some(count);
        }
    }
    None
}

/// Visits some thousand values of a table, from random places; skips damaged ones.
fn sample(table: &Table, visit: &mut dyn FnMut(&Value<'_>)) {
    for _ in 0..SAMPLES {
        let cursor = table.cursor_at(random()).unwrap_or_default();
        let _ = table.scan(cursor, SAMPLE_ENTRIES, &mut *visit);
    }
}

/// A random number: see [`seed`].
pub(crate) fn random() -> u64 {
    seed()
}
