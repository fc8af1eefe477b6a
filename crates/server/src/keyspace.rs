//! Stands in for `duramen_structures` until that crate is merged: the same names with the same meaning.

use duramen::{Result, Store, Writer};

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Everything that was buffered is written.
    Committed,
    /// Something read has changed meanwhile; nothing was written.
    Conflict,
}

/// Databases of keys over one store.
#[derive(Clone)]
pub struct Keyspace(Store);

/// Keys of one database.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyCount {
    /// All keys.
    pub keys: u64,
    /// Those among them that have an expiry time.
    pub expires: u64,
}

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unnecessary_wraps)]
impl Keyspace {
    pub fn open(store: Store, _databases: u8) -> Result<Self> {
        Ok(Self(store))
    }
    pub fn worker(&self) -> Result<Worker> {
        Ok(Worker { keyspace: self.clone(), writer: self.0.writer()? })
    }
    pub fn count(&self, _db: u8, _now: u64) -> KeyCount {
        KeyCount::default()
    }
    pub fn databases(&self) -> u8 {
        16
    }
    pub const fn store(&self) -> &Store {
        &self.0
    }
}

/// What one thread needs to run commands.
pub struct Worker {
    keyspace: Keyspace,
    writer: Writer,
}

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unnecessary_wraps)]
impl Worker {
    pub const fn begin(&mut self, now: u64) -> Txn<'_> {
        Txn { worker: self, now }
    }
    pub fn group(&mut self) {
        self.writer.group();
    }
    pub fn settle(&mut self) -> Result<()> {
        self.writer.settle()
    }
    pub fn flush(&mut self, _db: u8, _now: u64) -> Result<()> {
        Ok(())
    }
    pub const fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }
}

/// Reads recorded with their stamps, writes buffered until the commit.
pub struct Txn<'w> {
    #[allow(dead_code)]
    worker: &'w mut Worker,
    #[allow(dead_code)]
    now: u64,
}

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unnecessary_wraps)]
impl Txn<'_> {
    pub fn flush(&mut self, _db: u8) -> Result<()> {
        Ok(())
    }
    pub fn commit(self) -> Result<Outcome> {
        Ok(Outcome::Committed)
    }
}

/// A key that WATCH named, and the state it was in.
pub struct Watched(());
