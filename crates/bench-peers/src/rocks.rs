//! RocksDB through its C interface: a memtable of 64 MiB, a block cache of 256 MiB, bloom filters of 10 bits a key,
//! no compression.

use crate::engine::{Directory, copy, failed};
use crate::level::Level;
use duramen_bench::kv::{Engine, Result, Session, Visit};
use rocksdb::{BlockBasedOptions, Cache, DB, Options, WriteOptions};
use std::path::Path;

/// An open database.
pub struct Rocks {
    db: DB,
    sync: bool,
    /// Removed after the database is closed.
    pub directory: Directory,
}

impl Rocks {
    /// Makes a database.
    pub fn open(path: &Path, level: Level) -> Result<Self> {
        let directory = Directory::new(path)?;
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&failed("rocksdb", Cache::new_lru_cache(256 << 20))?);
        table.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_block_based_table_factory(&table);
        options.increase_parallelism(2);
        let db = failed("rocksdb", DB::open(&options, directory.path()))?;
        Ok(Self { db, sync: level == Level::EveryWrite, directory })
    }
}

/// The database, and its options for writes.
pub struct Turn<'a> {
    db: &'a DB,
    write: WriteOptions,
}

impl Engine for Rocks {
    type Session<'a> = Turn<'a>;

    fn session(&self) -> Result<Turn<'_>> {
        let mut write = WriteOptions::default();
        write.set_sync(self.sync);
        Ok(Turn { db: &self.db, write })
    }

    /// Compacts into one sorted run, the best state for reads.
    fn finish_background(&self) -> Result<()> {
        failed("rocksdb", self.db.flush())?;
        self.db.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }
}

impl Session for Turn<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        failed("rocksdb", self.db.put_opt(key, value, &self.write))
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let found = failed("rocksdb", self.db.get_pinned(key))?;
        Ok(copy(into, found.as_deref()))
    }

    fn get_many(&mut self, keys: &[&[u8]], visit: &mut Visit<'_>) -> Result<()> {
        for (i, found) in self.db.multi_get(keys).into_iter().enumerate() {
            visit(i, failed("rocksdb", found)?.as_deref())?;
        }
        Ok(())
    }

    /// RocksDB's delete does not return whether the key existed, so a get precedes it: the other engines return it too.
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        if failed("rocksdb", self.db.get_pinned(key))?.is_none() {
            return Ok(false);
        }
        failed("rocksdb", self.db.delete_opt(key, &self.write))?;
        Ok(true)
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        // The raw iterator: the other one copies each key and value into its own memory.
        let mut entries = self.db.raw_iterator();
        entries.seek(key);
        let mut seen = 0;
        while seen < count
            && let Some((key, value)) = entries.item()
        {
            visit(key, value);
            seen += 1;
            entries.next();
        }
        failed("rocksdb", entries.status())?;
        Ok(seen)
    }
}
