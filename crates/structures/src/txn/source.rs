//! From where the entries of a large value are read, and how a transaction writes them.
//!
//! Only this module applies elements within a transaction. A read is one of the worker's writer, which sees its own
//! writes. A write goes to the log at once, as part of a *transaction* of the engine that begins with the first of
//! them. All writes of this transaction then belong to it, and count when it commits.

use duramen::{Collection, CollectionId, ElementOrder, Meta, Reads as ElementReads, Room, Writer};

use super::Txn;
use crate::Type;
use crate::error::{Error, Result};
use crate::large::{self, ElementWriter, Fault};
use crate::map::{CONVERTED, TIMED};
use crate::worker::Worker;

/// From where the entries of a large value are read.
pub trait Source {
    /// Reads of a collection of the engine.
    #[doc(hidden)]
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a>;
}

/// The reads of a transaction.
#[derive(Clone, Copy)]
pub struct Reads<'a>(pub(super) &'a Writer);

/// A collection of the engine that was copied, and the flags for its root.
pub(super) type Copied = (Collection, u8);

/// The source of a copy, which has all entries itself.
#[derive(Clone, Copy, Debug)]
pub struct Detached;

impl Reads<'_> {
    /// The collection that a root names.
    pub(super) fn open(self, id: CollectionId) -> Result<Collection> {
        Ok(self.0.store().collection(id)?)
    }
}

impl Source for Reads<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a> {
        self.0.read(elements)
    }
}

impl Source for Detached {
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a> {
        elements.reads()
    }
}

impl Source for &mut Txn<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a> {
        self.worker.writer.read(elements)
    }
}

impl ElementWriter for Txn<'_> {
    fn reads<'a>(&'a self, elements: &'a Collection) -> ElementReads<'a> {
        self.worker.writer.read(elements)
    }

    fn new_collection(&mut self, order: ElementOrder) -> Collection {
        let made = self.worker.keyspace.store().new_collection(order);
        self.worker.scratch.made.push(made.clone());
        made
    }

    fn ends_with_next(&mut self) {
        let Worker { writer, scratch, .. } = &mut *self.worker;
        let is_first =
            !writer.has_transaction() && scratch.entries.iter().all(|entry| entry.writes_nothing());
        scratch.is_alone = scratch.edits_one && is_first;
    }

    fn put_until(
        &mut self,
        elements: &Collection,
        key: &[u8],
        value: &[u8],
        expires_at: Option<u64>,
    ) -> duramen::Result<bool> {
        self.write_element(elements, key, Some((value, expires_at)))
    }

    fn delete(&mut self, elements: &Collection, key: &[u8]) -> duramen::Result<bool> {
        self.write_element(elements, key, None)
    }

    fn write_all_until(
        &mut self,
        elements: &Collection,
        writes: &[(&[u8], Option<&[u8]>)],
        expires_at: Option<u64>,
    ) -> duramen::Result<u64> {
        if writes.is_empty() {
            return Ok(0);
        }
        self.lock();
        let Worker { writer, scratch, .. } = &mut *self.worker;
        scratch.is_alone = false;
        let meta = Meta { room: scratch.room, expires_at, ..Meta::default() };
        if !writer.has_transaction() {
            writer.begin_transaction()?;
        }
        let were_there = writer.in_transaction_of(elements).replace_all(writes, meta)?;
        scratch.unsaved |= were_there > 0 || writes.iter().any(|(_, value)| value.is_some());
        Ok(were_there)
    }
}

impl Txn<'_> {
    /// Lets the next writes use this much of the reserve of a full store, for writes that a full store must not refuse.
    /// For a key that is written several times the smallest value counts.
    pub fn set_room(&mut self, room: Room) {
        self.worker.scratch.room = room;
    }

    /// All that this transaction does is one edit of one value, and nothing is to be served by it. If the edit is one write of an
    /// element, that needs no unit: it is made at once, and seen by others as from [`Txn::put_at_once`].
    pub fn edits_one(&mut self) {
        self.worker.scratch.edits_one = true;
    }

    /// All its writes are several edits of one value, as [`edits_one`](Self::edits_one) says for one: each written
    /// element is visible at once.
    pub(super) fn edits_each(&mut self) {
        let scratch = &mut self.worker.scratch;
        (scratch.edits_one, scratch.edits_each) = (true, true);
    }

    /// Writes an element, or removes it, in the unit of the transaction; whether it was there.
    fn write_element(
        &mut self,
        elements: &Collection,
        key: &[u8],
        value: Option<(&[u8], Option<u64>)>,
    ) -> duramen::Result<bool> {
        self.lock();
        let Worker { writer, scratch, .. } = &mut *self.worker;
        let room = scratch.room;
        let new = value.map(|(value, expires_at)| (value, Meta { room, expires_at, ..Meta::default() }));
        if std::mem::take(&mut scratch.is_alone) {
            scratch.edits_one = scratch.edits_each;
            let mut elements = writer.collection(elements);
            return match new {
                Some(_) => elements.replace(key, new).map(|old| old.is_some()),
                None => elements.delete(key),
            };
        }
        if !writer.has_transaction() {
            writer.begin_transaction()?;
        }
        let was_there = writer.in_transaction_of(elements).replace(key, new)?.is_some();
        scratch.unsaved |= was_there || value.is_some();
        Ok(was_there)
    }

    /// Bytes on the medium of the value at `key`, without pending writes; samples `samples` elements, or all for 0.
    pub fn footprint(&mut self, db: u8, key: &[u8], samples: u64) -> Result<Option<u64>> {
        let Some((found, reads)) = self.root(db, key)? else { return Ok(None) };
        // Not on the medium yet: the lengths of key and value are all that is known.
        let root = found.footprint().unwrap_or((key.len() + found.len()) as u64);
        let Some(id) = found.collection() else { return Ok(Some(root)) };
        let elements = reads.open(id)?;
        let (mut looked, mut bytes) = (0, 0);
        Source::reads(&reads, &elements).each(&mut |element| {
            looked += 1;
            bytes += element.footprint();
            looked != samples
        })?;
        Ok(Some(root + bytes * elements.len() / looked.max(1)))
    }

    /// Called before a change. If an earlier change was not saved, some of its elements may be written and others not:
    /// then the transaction cannot be committed.
    pub(super) fn begin_edit(&mut self) {
        let scratch = &mut self.worker.scratch;
        scratch.is_incomplete |= std::mem::take(&mut scratch.unsaved);
    }

    /// Whether elements of a value were written or removed without a save since: a command that succeeds in this state
    /// has stored something and reported that nothing changed.
    pub fn has_unsaved(&self) -> bool {
        self.worker.scratch.unsaved
    }

    /// All elements are written that belong together.
    pub(super) fn end_edit(&mut self) {
        self.worker.scratch.unsaved = false;
    }

    /// Whether a value of this size is to be kept in its large form.
    pub(super) fn is_large(&self, bytes: usize) -> bool {
        bytes > self.worker.keyspace.small_collection_bytes_max()
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
        self.end_edit();
        let meta = Meta { tag: type_.tag(), expires_at, collection: Some(elements.id()), ..Meta::default() };
        self.put_with(db, key, &large::root(flags), meta)
    }

    /// Elements of the large value at `key` were written, and its root was not: its watchers are notified at the
    /// commit.
    pub(super) fn element_changed(&mut self, db: u8, key: &[u8]) {
        if let Some(at) = self.entry(db, key) {
            self.worker.scratch.entries[at].has_new_elements = true;
        }
    }

    /// Copies the value at `key`, if it is large, to a collection that nothing names yet.
    pub(super) fn copy_large(&mut self, db: u8, key: &[u8]) -> Result<Option<Copied>> {
        let Some((found, reads)) = self.root(db, key)? else { return Ok(None) };
        let (Some(type_), Some(id)) = (Type::of_tag(found.tag()), found.collection()) else {
            return Ok(None);
        };
        let known = match type_ {
            Type::Stream => return self.copy_stream(db, key),
            Type::String | Type::List => 0,
            Type::Hash => CONVERTED | TIMED,
            Type::Set | Type::SortedSet => CONVERTED,
        };
        let flags = large::flags(&found, known).map_err(|it| error(type_, key, it))?;
        let elements = reads.open(id)?;
        drop(found);
        self.begin_edit();
        let made = large::copy(self, &elements).map_err(|fault| error(type_, key, fault))?;
        Ok(Some((made, flags)))
    }
}

/// The error of a large value that could not be read or written.
pub(super) fn error(type_: Type, key: &[u8], fault: impl Into<Fault>) -> Error {
    match fault.into() {
        Fault::Malformed(malformed) => Error::Malformed { type_, key: key.into(), malformed },
        Fault::Engine(error) => Error::Engine(error),
    }
}
