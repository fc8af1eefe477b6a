//! Streams at keys: read as [`StreamAt`], changed through an [`EditStream`].
//!
//! All are packed in the value of their key, whatever their size, so that a write takes time in proportion to the stream. A
//! stream that changes keeps its expiry time. Unlike other collections an empty one is there.

use std::ops::{ControlFlow, Deref};

use super::collection::{error, meta};
use super::{Found, Txn};
use crate::error::Result;
use crate::packed::Malformed;
use crate::stream::{Entry, Group, Groups, NodeLimits, Stream, StreamId, Trim};
use crate::{Type, dump};

/// A stream, in bytes of its own or where it lies.
pub struct StreamAt<'k, B> {
    key: &'k [u8],
    stream: Stream<B>,
}

/// A stream that is about to change. What is not saved did not happen.
pub struct EditStream<'t, 'w> {
    txn: &'t mut Txn<'w>,
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    stream: StreamAt<'t, Vec<u8>>,
}

impl<'w> Txn<'w> {
    /// The stream at `key`; an error when it holds another type.
    pub fn stream<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<StreamAt<'k, Found<'_>>>> {
        let found = self.get_of(Type::Stream, db, key)?;
        found.map(|found| StreamAt::of(key, found)).transpose()
    }

    /// The stream at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_stream<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<EditStream<'t, 'w>> {
        let (mut expires_at, mut is_new, mut stream) =
            (None, true, StreamAt { key, stream: Stream::empty() });
        if let Some(found) = self.get_of(Type::Stream, db, key)? {
            (expires_at, is_new) = (found.expires_at(), false);
            stream = StreamAt::of(key, found.copied_to_edit())?;
        }
        Ok(EditStream { txn: self, db, expires_at, is_new, stream })
    }

    /// Makes a stream that was restored the value of `key`, over what is there.
    pub fn put_stream(&mut self, db: u8, key: &[u8], run: &[u8]) -> Result<()> {
        self.put_with(db, key, run, meta(Type::Stream, None))
    }
}

impl<'k, B: Deref<Target = [u8]>> StreamAt<'k, B> {
    pub(super) fn of(key: &'k [u8], bytes: B) -> Result<Self> {
        let stream = Stream::of(bytes).map_err(|malformed| error(Type::Stream, key, malformed))?;
        Ok(Self { key, stream })
    }

    /// A copy that does not hold the transaction.
    pub fn detached(&self) -> StreamAt<'k, Vec<u8>> {
        StreamAt { key: self.key, stream: self.stream.to_owned() }
    }

    /// What it is, for what needs no more than its head.
    pub fn as_stream(&self) -> &Stream<B> {
        &self.stream
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.stream.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    /// The id of the last entry that there ever was.
    pub fn last_id(&self) -> StreamId {
        self.stream.last_id()
    }

    /// The id of the last entry that is there.
    pub fn last_entry_id(&self) -> Result<Option<StreamId>> {
        self.told(self.stream.last_entry_id())
    }

    /// The groups.
    pub fn groups(&self) -> Result<Groups> {
        self.told(self.stream.groups())
    }

    /// The entries from one id to another, ascending or descending; no more than `most` of them.
    pub fn range(
        &self,
        from: StreamId,
        to: StreamId,
        is_descending: bool,
        most: usize,
    ) -> Result<Vec<Entry<'_>>> {
        let mut entries = Vec::new();
        if most == 0 {
            return Ok(entries);
        }
        self.told(self.stream.visit(from, to, is_descending, |entry| {
            entries.push(entry);
            if entries.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }))?;
        Ok(entries)
    }

    /// The entry with this id.
    pub fn get(&self, id: StreamId) -> Result<Option<Entry<'_>>> {
        Ok(self.range(id, id, false, 1)?.pop())
    }

    /// How many nodes Redis would keep it in, and how many its tree over them would have.
    pub fn node_counts(&self) -> Result<(usize, u64)> {
        self.told(self.stream.node_counts())
    }

    /// What DUMP tells of it.
    pub fn dumped(&self) -> Result<Vec<u8>> {
        self.told(dump::stream(&self.stream))
    }

    /// A group has read this entry, which is behind all that it had read.
    pub fn read_by(&self, group: &mut Group, id: StreamId) {
        self.stream.read_by(group, id);
    }

    /// How many entries a group has yet to read, if that can be told.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        self.stream.lag(group)
    }

    fn told<T>(&self, result: std::result::Result<T, Malformed>) -> Result<T> {
        result.map_err(|malformed| error(Type::Stream, self.key, malformed))
    }
}

impl EditStream<'_, '_> {
    /// Whether the key was not there.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Puts an entry behind all that there ever were; `pairs` are fields and values by turns. The id must be above the last.
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]], limits: NodeLimits) -> Result<()> {
        let appended = self.stream.stream.append(id, pairs, limits);
        self.told(appended)
    }

    /// Deletes entries; how many were there.
    pub fn delete(&mut self, ids: &[StreamId]) -> Result<u64> {
        let deleted = self.stream.stream.delete(ids);
        self.told(deleted)
    }

    /// Removes entries from the begin on; how many. With `whole_nodes` only whole nodes go, and of more than `most` entries
    /// (unless that is 0) none.
    pub fn trim(&mut self, trim: Trim, whole_nodes: bool, most: u64) -> Result<u64> {
        let trimmed = self.stream.stream.trim(trim, whole_nodes, most);
        self.told(trimmed)
    }

    /// XSETID: the last id that there ever was, and maybe how many there were and which one was the last that was deleted.
    pub fn set_ids(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        self.stream.stream.set_ids(last, added, deleted);
    }

    /// Gives it other groups.
    pub fn set_groups(&mut self, groups: &Groups) {
        self.stream.stream.set_groups(groups);
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { txn, db, expires_at, stream: StreamAt { key, stream }, .. } = self;
        txn.put_vec(db, key, stream.into_run(), meta(Type::Stream, expires_at))
    }
}

impl<'t> Deref for EditStream<'t, '_> {
    type Target = StreamAt<'t, Vec<u8>>;

    fn deref(&self) -> &Self::Target {
        &self.stream
    }
}
