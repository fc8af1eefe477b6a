//! redb: a cache of 256 MiB, one transaction for each operation. At `interval`, transactions are not persisted, except
//! for one each second.

use crate::engine::{Directory, copy, failed};
use crate::level::Level;
use duramen_bench::kv::{Engine, Result, Session};
use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
const INTERVAL: Duration = Duration::from_secs(1);

/// An open database.
pub struct Red {
    database: Database,
    /// When a transaction was last persisted; `None` if every transaction is.
    persisted: Option<Mutex<Instant>>,
    /// Removed after the database is closed.
    pub directory: Directory,
}

impl Red {
    /// Makes a database.
    pub fn open(path: &Path, level: Level) -> Result<Self> {
        let directory = Directory::new(path)?;
        let mut builder = Database::builder();
        builder.set_cache_size(256 << 20);
        let database = failed("redb", builder.create(directory.path().join("redb")))?;
        let persisted = (level == Level::Interval).then(|| Mutex::new(Instant::now()));
        let red = Self { database, persisted, directory };
        let transaction = red.begin()?;
        failed("redb", transaction.open_table(TABLE))?;
        failed("redb", transaction.commit())?;
        Ok(red)
    }

    fn begin(&self) -> Result<WriteTransaction> {
        let mut transaction = failed("redb", self.database.begin_write())?;
        if let Some(persisted) = &self.persisted {
            let mut persisted = persisted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if persisted.elapsed() < INTERVAL {
                failed("redb", transaction.set_durability(Durability::None))?;
            } else {
                *persisted = Instant::now();
            }
        }
        Ok(transaction)
    }
}

impl Engine for Red {
    type Session<'a> = &'a Self;

    fn session(&self) -> Result<&Self> {
        Ok(self)
    }
}

impl Session for &Red {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.begin()?;
        failed("redb", failed("redb", transaction.open_table(TABLE))?.insert(key, value).map(drop))?;
        failed("redb", transaction.commit())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let transaction = failed("redb", self.database.begin_read())?;
        let table = failed("redb", transaction.open_table(TABLE))?;
        let found = failed("redb", table.get(key))?;
        Ok(copy(into, found.as_ref().map(redb::AccessGuard::value)))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let transaction = self.begin()?;
        let found = {
            let mut table = failed("redb", transaction.open_table(TABLE))?;
            failed("redb", table.remove(key))?.is_some()
        };
        failed("redb", transaction.commit())?;
        Ok(found)
    }

    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let transaction = failed("redb", self.database.begin_read())?;
        let table = failed("redb", transaction.open_table(TABLE))?;
        let mut seen = 0;
        for entry in failed("redb", table.range::<&[u8]>(key..))?.take(count) {
            let (key, value) = failed("redb", entry)?;
            visit(key.value(), value.value());
            seen += 1;
        }
        Ok(seen)
    }
}
