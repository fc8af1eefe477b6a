//! From where the entries of a large value are read, and how a transaction writes them.
//!
//! This is the one place where elements meet the transaction: a read is one of the worker's writer, which sees what it wrote, and a write is
//! one of the transaction.

use duramen::{Collection, CollectionId, CollectionReader, Meta, Writer};

use super::Txn;
use crate::Type;
use crate::error::Result;
use crate::large::{self, Pen};

/// From where the entries of a large value are read.
pub trait Source {
    /// Reads of a collection of the engine.
    #[doc(hidden)]
    fn reads<'a>(&'a self, elements: &'a Collection) -> CollectionReader<'a>;
}

/// The reads of a transaction.
#[derive(Clone, Copy)]
pub struct Reads<'a>(pub(super) &'a Writer);

/// A collection of the engine that was copied, and the flags for its root.
pub(super) type Copied = (Collection, u8);

/// Of a copy, which has all entries itself.
#[derive(Clone, Copy, Debug)]
pub struct Detached;

impl Reads<'_> {
    /// The collection that a root names.
    pub(super) fn open(self, id: CollectionId) -> Result<Collection> {
        Ok(self.0.store().collection(id)?)
    }
}

impl Source for Reads<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> CollectionReader<'a> {
        self.0.read(elements)
    }
}

impl Source for Detached {
    fn reads<'a>(&'a self, elements: &'a Collection) -> CollectionReader<'a> {
        elements.reads()
    }
}

impl Source for &mut Txn<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> CollectionReader<'a> {
        self.worker.writer.read(elements)
    }
}

impl Pen for Txn<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> CollectionReader<'a> {
        self.worker.writer.read(elements)
    }

    fn put(&mut self, elements: &Collection, key: &[u8], value: &[u8]) -> duramen::Result<bool> {
        self.worker.writer.collection(elements).replace(key, value)
    }

    fn delete(&mut self, elements: &Collection, key: &[u8]) -> duramen::Result<bool> {
        self.worker.writer.collection(elements).delete(key)
    }
}

impl Txn<'_> {
    pub(super) fn store(&self) -> duramen::Store {
        self.worker.keyspace.store().clone()
    }

    /// Whether a value of so many bytes is to be kept in its large form.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.worker.keyspace.packed_bytes_max()
    }

    /// Makes a root that names these elements the value of `key`.
    pub(super) fn put_root(
        &mut self,
        type_: Type,
        db: u8,
        key: &[u8],
        elements: &Collection,
        flags: u8,
        expires_at: Option<u64>,
    ) -> Result<()> {
        let meta = Meta { tag: type_.tag(), expires_at, collection: Some(elements.id()), ..Meta::default() };
        self.put_with(db, key, &large::root(flags), meta)
    }

    /// Elements of the large value at `key` were written, and its root was not: whoever watches the key is told.
    pub(super) fn element_changed(&mut self, db: u8, key: &[u8]) -> Result<()> {
        self.worker.keyspace.shared.watchers.touch(db, key);
        Ok(())
    }

    /// Copies the value at `key`, if it is large, to a collection that nothing names yet.
    pub(super) fn copy_large(&mut self, db: u8, key: &[u8]) -> Result<Option<Copied>> {
        let Some(found) = self.get(db, key)? else { return Ok(None) };
        match Type::of_tag(found.tag()) {
            _ if found.collection().is_none() => Ok(None),
            Some(Type::List) => self.copy_list(db, key),
            Some(type_) => self.copy_collection(type_, db, key),
            None => Ok(None),
        }
    }
}
