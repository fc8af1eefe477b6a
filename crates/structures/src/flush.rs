//! What concerns all keys of a database: FLUSHDB, FLUSHALL, SWAPDB; and deletes of more keys than a transaction takes.
//!
//! They run while no other worker writes or runs a transaction that names keys. Others see all of it or nothing, and
//! watched keys change at that moment. Each emptied database, and each swapped pair, is one write of the engine, which
//! is durable before it is visible. A crash within FLUSHALL leaves some databases empty and others unchanged; it was
//! not acknowledged then.

use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, table_name};
use crate::locks::Locks;
use crate::worker::Worker;

impl Keyspace {
    /// Empties a database, while nobody else writes.
    fn clear(&self, db: u8) -> Result<()> {
        let Some(table) = self.table(db) else { return Ok(()) };
        let kind = self.store().index_kind();
        // A damaged record counts as no key, and is removed.
        if table.is_empty() && table.index_kind()? == kind && self.store().stats().damaged_blocks == 0 {
            return Ok(());
        }
        self.shared.watchers.look(&[db], |db| self.table(db), self.store())?;
        table.clear_as(kind)?;
        self.shared.watchers.again(&[db], |db| self.table(db), self.store())
    }
}

impl Worker {
    /// Empties `db`, for FLUSHDB outside of MULTI (inside, see [`Txn::flush`](crate::Txn::flush)): one small write, however many
    /// keys there are, damaged ones included. It is durable on return as far as the store's durability says.
    pub fn flush(&mut self, db: u8) -> Result<()> {
        self.alone(|keyspace| keyspace.clear(db))
    }

    /// Empties all databases, for FLUSHALL: one small write for each that has keys.
    pub fn flush_all(&mut self) -> Result<()> {
        self.alone(|keyspace| (0..keyspace.databases()).try_for_each(|db| keyspace.clear(db)))
    }

    /// Swaps two databases, for SWAPDB: one small write.
    pub fn swap(&mut self, a: u8, b: u8) -> Result<()> {
        self.alone(|keyspace| {
            if a == b || keyspace.table(a).is_none() && keyspace.table(b).is_none() {
                return Ok(());
            }
            keyspace.make(a)?;
            keyspace.make(b)?;
            let (watchers, store) = (&keyspace.shared.watchers, keyspace.store());
            watchers.look(&[a, b], |db| keyspace.table(db), store)?;
            store.swap_tables(table_name(a).as_bytes(), table_name(b).as_bytes())?;
            watchers.again(&[a, b], |db| keyspace.table(db), store)
        })
    }

    /// Deletes keys one after the other, when a store has no room to delete all of them at once; returns how many
    /// existed. Others see the keys vanish, and a crash or an error leaves the rest.
    pub fn delete_each<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>, now: u64) -> Result<u64> {
        let mut deleted = 0;
        for key in keys {
            let found = self.run::<_, Error>(now, Locks::One(key), |txn| txn.delete(db, key))?;
            deleted += u64::from(found);
        }
        Ok(deleted)
    }
}
