//! Streams at keys: read as [`StreamAt`], changed through an [`EditStream`].
//!
//! They are kept packed or large, as collections (`collection`), and its invariants hold here too, but that an empty stream is there.

use std::ops::Deref;

use super::collection::meta;
use super::source::{Copied, Detached, Reads, Source, error};
use super::{Found, Txn};
use crate::error::{Error, Result};
use crate::large::{self, Fault};
use crate::stream::large::{AT_ONCE, LargeStream, STREAM_FLAGS};
use crate::stream::{
    Consumer, Entry, Group, Groups, NewEntry, NodeLimits, Pending, Stream, StreamId, Trim, tree_nodes,
};
use crate::{Type, dump};

/// A node of a stream has 100 entries by default: so nodes are read about twice.
const SOUGHT_TOGETHER: usize = 64;

/// A stream: see [`Collection`](super::Collection) for its parameters.
pub struct StreamAt<'k, B, S = Detached> {
    key: &'k [u8],
    source: S,
    form: Form<B>,
}

/// Opens a large stream, whose root has this value.
type OpenLarge = fn(&[u8], duramen::Collection, duramen::Reads<'_>) -> large::Result<LargeStream>;

/// How a stream is kept.
enum Form<B> {
    /// All of it in the value of its key.
    Packed(Stream<B>),
    /// A record for each node.
    Large(LargeStream),
}

/// A stream as a transaction reads it.
pub type StoredStream<'k, 'a> = StreamAt<'k, Found<'a>, Reads<'a>>;

/// Entries of a stream, with the bytes where they lie.
pub struct Part<'s, B> {
    key: &'s [u8],
    bytes: PartBytes<'s, B>,
    ends: (StreamId, StreamId),
    is_descending: bool,
    most: usize,
}

enum PartBytes<'s, B> {
    Lent(&'s Stream<B>),
    Read(Stream<Vec<u8>>),
}

/// A stream that is being changed. For a packed one, changes without a save have no effect.
pub struct EditStream<'t, 'w> {
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    stream: StreamAt<'t, Vec<u8>, &'t mut Txn<'w>>,
}

impl<'w> Txn<'w> {
    /// The stream at `key`; an error when it holds another type.
    pub fn stream<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<StoredStream<'k, '_>>> {
        let found = self.read_of(Type::Stream, db, key)?;
        found.map(|(found, reads)| StoredStream::of(key, found, reads)).transpose()
    }

    /// The stream at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_stream<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<EditStream<'t, 'w>> {
        self.edit_stream_as(db, key, LargeStream::open)
    }

    /// The same for a stream to which entries are added at once.
    pub fn edit_stream_end<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<EditStream<'t, 'w>> {
        self.edit_stream_as(db, key, LargeStream::open_at_end)
    }

    fn edit_stream_as<'t>(
        &'t mut self,
        db: u8,
        key: &'t [u8],
        open: OpenLarge,
    ) -> Result<EditStream<'t, 'w>> {
        self.begin_edit();
        let (mut expires_at, mut is_new) = (None, true);
        let mut form = Form::Packed(Stream::empty());
        if let Some((found, reads)) = self.read_of(Type::Stream, db, key)? {
            (expires_at, is_new) = (found.expires_at(), false);
            form = Form::of(key, found, reads, |found| found.copied_to_edit(), open)?;
        }
        Ok(EditStream { db, expires_at, is_new, stream: StreamAt { key, source: self, form } })
    }

    /// Stores a restored stream at `key`, replacing an existing value.
    pub fn put_stream(&mut self, db: u8, key: &[u8], run: &[u8]) -> Result<()> {
        self.begin_edit();
        if !self.is_large(run.len()) {
            return self.put_with(db, key, run, meta(Type::Stream, None));
        }
        let stream = Stream::of(run.to_vec()).map_err(|it| error(Type::Stream, key, it))?;
        self.put_noded(db, key, &stream, None)
    }

    fn put_noded(
        &mut self,
        db: u8,
        key: &[u8],
        stream: &Stream<Vec<u8>>,
        expires_at: Option<u64>,
    ) -> Result<()> {
        let made = LargeStream::make(self, stream).map_err(|it| error(Type::Stream, key, it))?;
        self.put_root(Type::Stream, db, key, made.elements(), STREAM_FLAGS, expires_at)
    }

    /// Copies the nodes of a large stream to one that nothing names yet.
    pub(super) fn copy_stream(&mut self, db: u8, key: &[u8]) -> Result<Option<Copied>> {
        self.begin_edit();
        let Some(stream) = self.stream(db, key)? else { return Ok(None) };
        let Form::Large(large_stream) = &stream.form else { return Ok(None) };
        let whole = stream.report(large_stream.whole(stream.reads(large_stream)))?;
        let made = LargeStream::make(self, &whole).map_err(|it| error(Type::Stream, key, it))?;
        Ok(Some((made.elements().clone(), STREAM_FLAGS)))
    }
}

impl<B: Deref<Target = [u8]>> Form<B> {
    fn of<'a>(
        key: &[u8],
        found: Found<'a>,
        reads: Reads<'a>,
        packed: impl FnOnce(Found<'a>) -> B,
        open: OpenLarge,
    ) -> Result<Self> {
        let Some(id) = found.collection() else {
            return Stream::of(packed(found)).map(Self::Packed).map_err(|it| error(Type::Stream, key, it));
        };
        let elements = reads.open(id)?;
        let large_stream = open(&found, elements.clone(), Source::reads(&reads, &elements));
        large_stream.map(Self::Large).map_err(|it| error(Type::Stream, key, it))
    }
}

impl<'k, 'a> StoredStream<'k, 'a> {
    pub(super) fn of(key: &'k [u8], found: Found<'a>, reads: Reads<'a>) -> Result<Self> {
        Ok(Self { key, source: reads, form: Form::of(key, found, reads, |found| found, LargeStream::open)? })
    }
}

/// The contents of a stream's head, in either form.
macro_rules! head {
    ($stream:expr, $head:ident => $report:expr) => {
        match &$stream.form {
            Form::Packed($head) => $report,
            Form::Large(large_stream) => {
                let $head = large_stream.head();
                $report
            }
        }
    };
}

impl<'k, B: Deref<Target = [u8]>, S: Source> StreamAt<'k, B, S> {
    /// How many entries there are.
    pub fn len(&self) -> u64 {
        head!(self, head => head.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the last entry that there ever was.
    pub fn last_id(&self) -> StreamId {
        head!(self, head => head.last_id())
    }

    /// The id of the first entry, 0-0 without one.
    pub fn first_id(&self) -> StreamId {
        head!(self, head => head.first_id())
    }

    /// The greatest id that was deleted, 0-0 without one.
    pub fn deleted_id(&self) -> StreamId {
        head!(self, head => head.deleted_id())
    }

    /// How many entries there ever were.
    pub fn added(&self) -> u64 {
        head!(self, head => head.added())
    }

    /// The id of the last entry that is there.
    pub fn last_entry_id(&self) -> Result<Option<StreamId>> {
        let last = self.part(StreamId::MIN, StreamId::MAX, true, 1)?;
        Ok(last.entries()?.first().map(|entry| entry.id))
    }

    /// The groups, with all their consumers.
    pub fn groups(&self) -> Result<Groups> {
        match &self.form {
            Form::Packed(stream) => self.report(stream.groups()),
            Form::Large(large_stream) => self.report(large_stream.groups(self.reads(large_stream))),
        }
    }

    /// How many groups there are.
    pub fn groups_len(&self) -> Result<u64> {
        match &self.form {
            Form::Packed(stream) => self.report(stream.groups()).map(|groups| groups.iter().len() as u64),
            Form::Large(large_stream) => self.report(large_stream.groups_len(self.reads(large_stream))),
        }
    }

    /// The group of this name. Its consumers are loaded when they are requested here.
    pub fn group(&self, name: &[u8]) -> Result<Option<Group>> {
        match &self.form {
            Form::Packed(stream) => self.report(stream.groups()).map(|mut groups| groups.remove(name)),
            Form::Large(large_stream) => self.report(large_stream.group(self.reads(large_stream), name)),
        }
    }

    /// The number of a group's consumer with this name.
    pub fn find_consumer(&self, group: &mut Group, name: &[u8]) -> Result<Option<u32>> {
        if let Form::Large(large_stream) = &self.form {
            self.report(large_stream.know_name(self.reads(large_stream), group, name))?;
        }
        Ok(group.find_consumer(name))
    }

    /// The number of a group's consumer with this name, which was seen now, and whether it was made for that.
    pub fn see_consumer(&self, group: &mut Group, name: &[u8], now: i64) -> Result<(u32, bool)> {
        self.find_consumer(group, name)?;
        Ok(group.see_consumer(name, now))
    }

    /// The consumer of this number.
    pub fn consumer<'g>(&self, group: &'g mut Group, number: u32) -> Result<Option<&'g Consumer>> {
        if let Form::Large(large_stream) = &self.form {
            self.report(large_stream.know_consumer(self.reads(large_stream), group, number))?;
        }
        Ok(group.consumer(number))
    }

    /// All consumers of a group become known.
    pub fn know_consumers(&self, group: &mut Group) -> Result<()> {
        match &self.form {
            Form::Packed(_) => Ok(()),
            Form::Large(large_stream) => {
                self.report(large_stream.know_consumers(self.reads(large_stream), group))
            }
        }
    }

    /// How an entry is pending in a group, if it is.
    pub fn pending(&self, group: &Group, id: StreamId) -> Result<Option<Pending>> {
        match (group.known(id), &self.form) {
            (None, Form::Large(large_stream)) => {
                self.report(large_stream.pending(self.reads(large_stream), group, id))
            }
            (known, _) => Ok(known.flatten()),
        }
    }

    /// Calls `visit` for the pending entries of a group from an id on, of one consumer or of all, until it returns
    /// false.
    pub fn visit_pending(
        &self,
        group: &Group,
        from: StreamId,
        consumer: Option<u32>,
        mut visit: impl FnMut(StreamId, Pending) -> bool,
    ) -> Result<()> {
        // Changes replace the content of the elements.
        let (mut known, mut goes_on) = (group.known_from(from).peekable(), true);
        let mut visit = |id, pending: Option<Pending>| {
            let wanted =
                pending.filter(|pending| consumer.is_none_or(|consumer| pending.consumer == consumer));
            wanted.is_none_or(|pending| visit(id, pending))
        };
        if let Form::Large(large_stream) = &self.form {
            let visited =
                large_stream.pending_from(self.reads(large_stream), group, from, consumer, |id, pending| {
                    while goes_on && let Some((before, changed)) = known.next_if(|(before, _)| *before < id) {
                        goes_on = visit(before, changed);
                    }
                    if goes_on {
                        let changed = known.next_if(|(same, _)| *same == id);
                        goes_on = visit(id, changed.map_or(Some(pending), |(_, changed)| changed));
                    }
                    goes_on
                });
            self.report(visited)?;
        }
        while goes_on && let Some((id, changed)) = known.next() {
            goes_on = visit(id, changed);
        }
        Ok(())
    }

    /// The first pending entries of a group from an id on, for one consumer or for all, at most `most`.
    pub fn pending_from(
        &self,
        group: &Group,
        from: StreamId,
        consumer: Option<u32>,
        most: usize,
    ) -> Result<Vec<(StreamId, Pending)>> {
        let mut found = Vec::new();
        if most > 0 {
            self.visit_pending(group, from, consumer, |id, pending| {
                found.push((id, pending));
                found.len() < most
            })?;
        }
        Ok(found)
    }

    /// The first and the last id that are pending in a group that was not changed.
    pub fn pending_ends(&self, group: &Group) -> Result<Option<(StreamId, StreamId)>> {
        let Some(&(first, _)) = self.pending_from(group, StreamId::MIN, None, 1)?.first() else {
            return Ok(None);
        };
        let last = match &self.form {
            Form::Packed(_) => group.known_from(StreamId::MIN).last().map(|(id, _)| id),
            Form::Large(large_stream) => {
                self.report(large_stream.last_pending(self.reads(large_stream), group))?
            }
        };
        Ok(last.map(|last| (first, last)))
    }

    /// An entry is pending so from now on, once the group is saved. Its consumer is known; `old` is what [`Self::pending`] tells.
    pub fn set_pending(
        &self,
        group: &mut Group,
        id: StreamId,
        old: Option<Pending>,
        new: Pending,
    ) -> Result<()> {
        self.change_pending(group, id, old, Some(new)).map(|_| ())
    }

    /// An entry is not pending any more; whether it was.
    pub fn acknowledge(&self, group: &mut Group, id: StreamId) -> Result<bool> {
        self.change_pending(group, id, self.pending(group, id)?, None)
    }

    /// How an entry is pending changes, if it was pending or will be; whether it was.
    fn change_pending(
        &self,
        group: &mut Group,
        id: StreamId,
        old: Option<Pending>,
        new: Option<Pending>,
    ) -> Result<bool> {
        if let Some(old) = old {
            self.consumer(group, old.consumer)?;
        }
        if old.is_some() || new.is_some() {
            group.change_pending(id, old, new);
        }
        Ok(old.is_some())
    }

    /// Removes a consumer with what it has pending; how much that was. Of one that has much the rest goes by [`EditStream::clear_part`].
    pub fn remove_consumer(&self, group: &mut Group, name: &[u8]) -> Result<usize> {
        let Some(number) = self.find_consumer(group, name)? else { return Ok(0) };
        let len = group.consumer(number).map_or(0, Consumer::pending_len);
        if group.number().is_some() && len > AT_ONCE && group.changes().next().is_none() {
            group.remove_consumer(number);
            return Ok(len);
        }
        let pending = self.pending_from(group, StreamId::MIN, Some(number), usize::MAX)?;
        pending.iter().for_each(|&(id, old)| group.change_pending(id, Some(old), None));
        group.remove_consumer(number);
        Ok(pending.len())
    }

    /// The entries from one id to another, ascending or descending; no more than `most` of them.
    pub fn part(
        &self,
        from: StreamId,
        to: StreamId,
        is_descending: bool,
        most: usize,
    ) -> Result<Part<'_, B>> {
        let bytes = match &self.form {
            Form::Packed(stream) => PartBytes::Lent(stream),
            Form::Large(large_stream) => {
                let window = large_stream.window(self.reads(large_stream), (from, to), is_descending, most);
                PartBytes::Read(self.report(window)?)
            }
        };
        Ok(Part { key: self.key, bytes, ends: (from, to), is_descending, most })
    }

    /// Calls `visit` for each of these ids, in their order, with its entry if there is one, until it says false. Ids that ascend are
    /// sought together.
    pub fn visit_at<E: From<Error>>(
        &self,
        ids: &[StreamId],
        mut visit: impl FnMut(StreamId, Option<&Entry<'_>>) -> std::result::Result<bool, E>,
    ) -> std::result::Result<(), E> {
        let mut left = ids;
        while let Some(&from) = left.first() {
            let some = &left[..left.len().min(SOUGHT_TOGETHER)];
            let some = &some[..some.windows(2).take_while(|two| two[0] < two[1]).count() + 1];
            let part = self.part(from, some[some.len() - 1], false, some.len())?;
            let entries = part.entries()?;
            // Where entries that nobody asks for are between them, the last ones were not reached.
            let reached = entries.get(some.len() - 1).map_or(StreamId::MAX, |last| last.id);
            let (mut at, mut found) = (0, entries.iter().peekable());
            while let Some(&id) = some.get(at).filter(|id| **id <= reached) {
                at += 1;
                while found.next_if(|entry| entry.id < id).is_some() {}
                if !visit(id, found.next_if(|entry| entry.id == id))? {
                    return Ok(());
                }
            }
            left = &left[at..];
        }
        Ok(())
    }

    /// How many nodes Redis would keep it in, and how many its tree over them would have.
    pub fn node_counts(&self) -> Result<(usize, u64)> {
        let ids = match &self.form {
            Form::Packed(stream) => self.report(stream.node_ids())?,
            Form::Large(large_stream) => self.report(large_stream.node_ids(self.reads(large_stream)))?,
        };
        Ok((ids.len(), tree_nodes(&ids)))
    }

    /// The stream's payload for DUMP.
    pub fn dumped(&self) -> Result<Vec<u8>> {
        match &self.form {
            Form::Packed(stream) => self.report(dump::stream(stream)),
            Form::Large(large_stream) => {
                let whole = self.report(large_stream.whole(self.reads(large_stream)))?;
                self.report(dump::stream(&whole))
            }
        }
    }

    /// The group has read this entry, which is after all that it had read.
    pub fn read_by(&self, group: &mut Group, id: StreamId) {
        head!(self, head => head.read_by(group, id));
    }

    /// How many entries a group has yet to read, if that is known.
    pub fn lag(&self, group: &Group) -> Option<i64> {
        head!(self, head => head.lag(group))
    }

    fn reads<'s>(&'s self, large_stream: &'s LargeStream) -> duramen::Reads<'s> {
        self.source.reads(large_stream.elements())
    }

    fn report<T, F: Into<Fault>>(&self, result: std::result::Result<T, F>) -> Result<T> {
        result.map_err(|fault| error(Type::Stream, self.key, fault))
    }
}

impl<B: Deref<Target = [u8]>> Part<'_, B> {
    /// The entries.
    pub fn entries(&self) -> Result<Vec<Entry<'_>>> {
        match &self.bytes {
            PartBytes::Lent(stream) => self.entries_of(stream),
            PartBytes::Read(stream) => self.entries_of(stream),
        }
    }

    /// The first entry.
    pub fn first(&self) -> Result<Option<Entry<'_>>> {
        Ok(self.entries()?.first().copied())
    }

    fn entries_of<'s, T: Deref<Target = [u8]>>(&self, stream: &'s Stream<T>) -> Result<Vec<Entry<'s>>> {
        let entries = stream.entries(self.ends, self.is_descending, self.most);
        entries.map_err(|malformed| error(Type::Stream, self.key, malformed))
    }
}

fn change_groups<T>(
    stream: &mut Stream<Vec<u8>>,
    change: impl FnOnce(&mut Groups) -> T,
) -> std::result::Result<T, Fault> {
    let mut groups = stream.groups()?;
    let changed = change(&mut groups);
    stream.set_groups(&groups);
    Ok(changed)
}

impl EditStream<'_, '_> {
    /// Whether the key was not there.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Appends an entry; `pairs` are fields and values alternately. The id must be above the last.
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]], limits: NodeLimits) -> Result<()> {
        self.append_all(&[(id, pairs)], limits)
    }

    /// The same for some entries, whose ids ascend.
    pub fn append_all(&mut self, entries: &[NewEntry<'_>], limits: NodeLimits) -> Result<()> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let appended = match form {
            Form::Packed(stream) => {
                let mut entries = entries.iter();
                entries.try_for_each(|&(id, pairs)| stream.append(id, pairs, limits)).map_err(Fault::from)
            }
            Form::Large(large_stream) => large_stream.append(&mut **source, entries, limits),
        };
        self.report(appended)
    }

    /// Deletes entries; how many were there.
    pub fn delete(&mut self, ids: &[StreamId]) -> Result<u64> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let deleted = match form {
            Form::Packed(stream) => stream.delete(ids).map_err(Fault::from),
            Form::Large(large_stream) => large_stream.delete(&mut **source, ids),
        };
        self.report(deleted)
    }

    /// Removes entries from the start on; returns their number. With `whole_nodes` only whole nodes go, and nothing if
    /// that is more than `most` entries (unless `most` is 0).
    pub fn trim(&mut self, trim: Trim, whole_nodes: bool, most: u64) -> Result<u64> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let trimmed = match form {
            Form::Packed(stream) => stream.trim(trim, whole_nodes, most).map_err(Fault::from),
            Form::Large(large_stream) => large_stream.trim(&mut **source, trim, whole_nodes, most),
        };
        self.report(trimmed)
    }

    /// XSETID: the last id that there ever was, and maybe how many there were and which one was the last that was deleted.
    pub fn set_ids(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        match &mut self.stream.form {
            Form::Packed(stream) => stream.set_ids(last, added, deleted),
            Form::Large(large_stream) => large_stream.set_ids(last, added, deleted),
        }
    }

    /// Makes a group; false if one with that name exists.
    pub fn create_group(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> Result<bool> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let created = match form {
            Form::Packed(stream) => {
                change_groups(stream, |groups| groups.create(name, last_id, entries_read).is_some())
            }
            Form::Large(large_stream) => {
                large_stream.create_group(&mut **source, name, last_id, entries_read)
            }
        };
        self.report(created)
    }

    /// Writes the changes of a group that was read here.
    pub fn set_group(&mut self, group: &Group) -> Result<()> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let set = match form {
            Form::Packed(stream) => change_groups(stream, |groups| groups.put(group.clone())),
            Form::Large(large_stream) => large_stream.put_group(&mut **source, group),
        };
        self.report(set)
    }

    /// Removes a group; whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> Result<bool> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let removed = match form {
            Form::Packed(stream) => change_groups(stream, |groups| groups.remove(name).is_some()),
            Form::Large(large_stream) => large_stream.remove_group(&mut **source, name),
        };
        self.report(removed)
    }

    /// Whether groups and consumers that were removed have left something, which [`Self::clear_part`] deletes.
    pub fn has_leftovers(&self) -> Result<bool> {
        match &self.stream.form {
            Form::Packed(_) => Ok(false),
            Form::Large(large_stream) => {
                self.report(large_stream.has_removed(self.stream.reads(large_stream)))
            }
        }
    }

    /// Deletes so much, at most, of what removed groups and consumers have left; whether there may be more. Nobody sees a difference.
    pub fn clear_part(&mut self, most: usize) -> Result<bool> {
        let StreamAt { source, form, .. } = &mut self.stream;
        let cleared = match form {
            Form::Packed(_) => Ok(false),
            Form::Large(large_stream) => large_stream.clear_part(&mut **source, most),
        };
        self.report(cleared)
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { db, expires_at, stream: StreamAt { key, source: txn, form }, .. } = self;
        match form {
            Form::Packed(stream) if !txn.is_large(stream.run_bytes()) => {
                txn.put_vec(db, key, stream.into_run(), meta(Type::Stream, expires_at))
            }
            Form::Packed(stream) => txn.put_noded(db, key, &stream, expires_at),
            Form::Large(mut large_stream) => {
                large_stream.save(txn).map_err(|it| error(Type::Stream, key, it))?;
                txn.end_edit();
                txn.element_changed(db, key);
                Ok(())
            }
        }
    }
}

impl<'t, 'w> Deref for EditStream<'t, 'w> {
    type Target = StreamAt<'t, Vec<u8>, &'t mut Txn<'w>>;

    fn deref(&self) -> &Self::Target {
        &self.stream
    }
}
