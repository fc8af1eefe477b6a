//! fjall: a cache of 256 MiB, no compression. At `every-write` the journal is synced after each write.

use crate::engine::{Directory, copy, failed};
use crate::level::Level;
use duramen_bench::kv::{Engine, Result, Session};
use fjall::config::CompressionPolicy;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

/// An open database with one keyspace.
pub struct Fjall {
    keyspace: Keyspace,
    database: Database,
    sync: bool,
    /// Removed after the database is closed.
    pub directory: Directory,
}

impl Fjall {
    /// Makes a database.
    pub fn open(path: &Path, level: Level) -> Result<Self> {
        let directory = Directory::new(path)?;
        let database = failed("fjall", Database::builder(directory.path()).cache_size(256 << 20).open())?;
        let options =
            || KeyspaceCreateOptions::default().data_block_compression_policy(CompressionPolicy::disabled());
        let keyspace = failed("fjall", database.keyspace("records", options))?;
        Ok(Self { keyspace, database, sync: level == Level::EveryWrite, directory })
    }

    fn sync_write(&self) -> Result<()> {
        if self.sync { failed("fjall", self.database.persist(PersistMode::SyncData)) } else { Ok(()) }
    }
}

impl Engine for Fjall {
    type Session<'a> = &'a Self;

    fn session(&self) -> Result<&Self> {
        Ok(self)
    }
}

impl Session for &Fjall {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("fjall", self.keyspace.insert(key, value))?;
        self.sync_write()
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        Ok(copy(into, failed("fjall", self.keyspace.get(key))?.as_deref()))
    }

    /// fjall's delete does not return whether the key existed, so a get precedes it.
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        if !failed("fjall", self.keyspace.contains_key(key))? {
            return Ok(false);
        }
        failed("fjall", self.keyspace.remove(key))?;
        self.sync_write()?;
        Ok(true)
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let mut seen = 0;
        for entry in self.keyspace.range(key..).take(count) {
            let (key, value) = failed("fjall", entry.into_inner())?;
            visit(&key, &value);
            seen += 1;
        }
        Ok(seen)
    }
}
