//! Keys under WATCH.
//!
//! A watched key is compared by its stamp, which the engine changes with every write. When a whole database is emptied
//! or swapped, Redis counts as changed the keys that existed before or exist then, and no others. The stamp of a key
//! that is absent from another table does not show that. So the worker that empties or swaps checks all watched keys,
//! while no other worker writes or runs a transaction that names keys. Keys that were and stay absent get their new
//! stamp. The same happens for a database that gets its table.
//!
//! An element of a large value can change without the record of its key: its writer reports that (`Watchers::touch`).
//!
//! Invariant: no key is watched or compared while a database is emptied or swapped, because a client that watches a key
//! names it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duramen::{Stamp, Store, Table};

use crate::error::{Result, is_damaged};

/// A key under WATCH, as it was then.
pub struct Watched {
    pub(crate) key: Arc<Key>,
    pub(crate) expires_at: Option<u64>,
    number: u64,
    watchers: Arc<Watchers>,
}

/// A watched key: its database, its name, and a unique number.
type Place = (u8, Box<[u8]>, u64);

/// The state of a watched key.
pub(crate) struct Key {
    pub(crate) db: u8,
    pub(crate) key: Box<[u8]>,
    then: Mutex<Then>,
}

/// The state of a key when its watch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its database had no table.
    Nowhere,
    Had(Stamp),
    /// It has changed since, whatever its stamp.
    Changed,
}

/// All that is watched.
#[derive(Default)]
pub(crate) struct Watchers {
    keys: Mutex<Keys>,
    /// The number of `keys`. The holder of a key's lock sees at least those of that key, because watching a key locks
    /// it.
    count: AtomicUsize,
}

#[derive(Default)]
struct Keys {
    next: u64,
    keys: BTreeMap<Place, Arc<Key>>,
}

impl Keys {
    /// Those in a database.
    fn of(&self, db: u8) -> impl Iterator<Item = &Arc<Key>> {
        let first: Place = (db, Box::default(), 0);
        self.keys.range(first..).take_while(move |((other, ..), _)| *other == db).map(|(_, key)| key)
    }
}

impl Key {
    fn place(&self, number: u64) -> Place {
        (self.db, self.key.clone(), number)
    }

    pub(crate) fn then(&self) -> Then {
        *self.lock()
    }

    fn set(&self, then: Then) {
        *self.lock() = then;
    }

    fn lock(&self) -> MutexGuard<'_, Then> {
        self.then.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those in one of `dbs`.
    fn of(&self, dbs: &[u8]) -> Vec<Arc<Key>> {
        let keys = self.lock();
        dbs.iter().flat_map(|&db| keys.of(db)).cloned().collect()
    }

    /// Watches `key` of `db`; `look` returns its state, and when it expires.
    pub(crate) fn watch(
        self: &Arc<Self>,
        db: u8,
        key: &[u8],
        look: impl FnOnce() -> Result<(Then, Option<u64>)>,
    ) -> Result<Watched> {
        let mut keys = self.lock();
        // Under the lock: no table is made meanwhile that would not know of it.
        let (then, expires_at) = look()?;
        let key = Arc::new(Key { db, key: key.into(), then: Mutex::new(then) });
        keys.next += 1;
        let number = keys.next;
        keys.keys.insert(key.place(number), Arc::clone(&key));
        self.count.store(keys.keys.len(), Relaxed);
        Ok(Watched { key, expires_at, number, watchers: Arc::clone(self) })
    }

    /// The value at `key` changes, though its record may stay. Called under the key's lock, or by the only writer.
    pub(crate) fn touch(&self, db: u8, key: &[u8]) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let keys = self.lock();
        let first: Place = (db, key.into(), 0);
        let same =
            keys.keys.range(&first..).take_while(|((db, key, _), _)| (db, key) == (&first.0, &first.1));
        same.for_each(|(_, key)| key.set(Then::Changed));
    }

    /// `db` is about to get `table`, which is empty.
    pub(crate) fn made<T>(
        &self,
        db: u8,
        table: &Table,
        store: &Store,
        publish: impl FnOnce() -> T,
    ) -> Result<T> {
        let keys = self.lock();
        let writer = store.writer()?;
        for key in keys.of(db).filter(|key| key.then() == Then::Nowhere) {
            key.set(Then::Had(writer.read(table).get_stamped(&key.key)?.0));
        }
        Ok(publish())
    }

    /// Called before the tables of `dbs` change: existing keys in them are thereby changed.
    pub(crate) fn look<'t>(
        &self,
        dbs: &[u8],
        table: impl Fn(u8) -> Option<&'t Table>,
        store: &Store,
    ) -> Result<()> {
        let keys = self.of(dbs);
        if keys.is_empty() {
            return Ok(());
        }
        let writer = store.writer()?;
        for key in keys {
            let Some(table) = table(key.db) else { continue };
            let is_same = match writer.read(table).get_stamped(&key.key) {
                Ok((stamp, value)) => key.then() == Then::Had(stamp) && value.is_none(),
                Err(error) if is_damaged(&error) => false,
                Err(error) => return Err(error.into()),
            };
            if !is_same {
                key.set(Then::Changed);
            }
        }
        Ok(())
    }

    /// Called after that: keys that were absent and still are count as unchanged.
    pub(crate) fn again<'t>(
        &self,
        dbs: &[u8],
        table: impl Fn(u8) -> Option<&'t Table>,
        store: &Store,
    ) -> Result<()> {
        let keys = self.of(dbs);
        if keys.is_empty() {
            return Ok(());
        }
        let writer = store.writer()?;
        for key in keys.iter().filter(|key| key.then() != Then::Changed) {
            let Some(table) = table(key.db) else { continue };
            key.set(match writer.read(table).get_stamped(&key.key) {
                Ok((stamp, None)) => Then::Had(stamp),
                _ => Then::Changed,
            });
        }
        Ok(())
    }
}

impl Watched {
    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key.key
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        // The name is in its place too.
        size_of::<Self>() + size_of::<Key>() + size_of::<Place>() + self.key.key.len() * 2
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut keys = self.watchers.lock();
        keys.keys.remove(&self.key.place(self.number));
        self.watchers.count.store(keys.keys.len(), Relaxed);
    }
}
