//! LMDB through heed: a map of 64 GiB, one transaction for each operation. At `interval` nothing is synced (NOSYNC).
//!
//! Opening a map needs unsafe code, because another process could write the file. Invariant 1: the directory is made by
//! [`Directory::new`], which fails when it exists, and nobody else knows its path.

use crate::engine::{Directory, copy, failed};
use crate::level::Level;
use duramen_bench::kv::{Engine, Result, Session, Visit};
use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};
use std::ops::Bound;
use std::path::Path;

const MAP_BYTES: usize = 64 << 30;

/// An open environment with one database.
pub struct Lmdb {
    env: Env,
    database: Database<Bytes, Bytes>,
    /// Removed after the environment is closed.
    pub directory: Directory,
}

impl Lmdb {
    /// Makes an environment.
    pub fn open(path: &Path, level: Level) -> Result<Self> {
        let directory = Directory::new(path)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(1024);
        if level == Level::Interval {
            // SAFETY: NOSYNC gives up durability and nothing else; the file is new and ours (invariant 1).
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: nobody else opens or changes the file while it is mapped (invariant 1).
        let env = failed("lmdb", unsafe { options.open(directory.path()) })?;
        let mut transaction = failed("lmdb", env.write_txn())?;
        let database = failed("lmdb", env.create_database(&mut transaction, None))?;
        failed("lmdb", transaction.commit())?;
        Ok(Self { env, database, directory })
    }
}

impl Engine for Lmdb {
    type Session<'a> = &'a Self;

    fn session(&self) -> Result<&Self> {
        Ok(self)
    }
}

impl Session for &Lmdb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = failed("lmdb", self.env.write_txn())?;
        failed("lmdb", self.database.put(&mut transaction, key, value))?;
        failed("lmdb", transaction.commit())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let transaction = failed("lmdb", self.env.read_txn())?;
        Ok(copy(into, failed("lmdb", self.database.get(&transaction, key))?))
    }

    fn get_many(&mut self, keys: &[&[u8]], visit: &mut Visit<'_>) -> Result<()> {
        let transaction = failed("lmdb", self.env.read_txn())?;
        for (i, key) in keys.iter().enumerate() {
            visit(i, failed("lmdb", self.database.get(&transaction, key))?)?;
        }
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let mut transaction = failed("lmdb", self.env.write_txn())?;
        let found = failed("lmdb", self.database.delete(&mut transaction, key))?;
        failed("lmdb", transaction.commit())?;
        Ok(found)
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let transaction = failed("lmdb", self.env.read_txn())?;
        // LMDB has no empty keys, and accepts none as a bound.
        let first = if key.is_empty() { Bound::Unbounded } else { Bound::Included(key) };
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (first, Bound::Unbounded);
        let mut seen = 0;
        for entry in failed("lmdb", self.database.range(&transaction, &from))?.take(count) {
            let (key, value) = failed("lmdb", entry)?;
            visit(key, value);
            seen += 1;
        }
        Ok(seen)
    }
}
