//! A node of a stream: some entries with ascending ids, in one listpack, as Redis keeps them.
//!
//! | listpack entries | meaning |
//! |---|---|
//! | 1 | how many entries are there |
//! | 1 | how many were there and are deleted |
//! | 1 | how many fields the first entry had |
//! | … | these fields |
//! | 1 | 0 |
//! | … | the entries, deleted ones too |
//!
//! and of each entry
//!
//! | listpack entries | meaning |
//! |---|---|
//! | 1 | 1 if it is deleted, and 2 if its fields are those of the first entry |
//! | 1 | its id's milliseconds, less the node's |
//! | 1 | by how much the second number of its id is more than the node's, modulo 2^64 |
//! | 1 | how many fields it has, unless they are those of the first entry |
//! | … | alternating fields and values, or only the values |
//! | 1 | how many listpack entries it has before this one |
//!
//! The id of the node, which is that of the first entry it ever had, stands before the listpack.

use super::StreamId;
use crate::listpack::{self, Cursor, Item};
use crate::packed::Malformed;

/// Flags in an entry's first number.
const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;

const BEYOND: &str = "a node of the stream ends after the value";
const BAD_COUNT: &str = "a node of the stream counts what it does not have";

/// Limits of a node, by Redis's `stream-node-max-bytes` and `stream-node-max-entries`; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Bytes of its listpack.
    pub bytes: usize,
    /// Entries, deleted ones too.
    pub entries: u64,
}

/// A new entry: its alternating fields and values.
pub type NewEntry<'a> = (StreamId, &'a [&'a [u8]]);

/// A node where it lies in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    pub(super) id: StreamId,
    pub(super) pack: &'a [u8],
    /// Where it begins.
    pub(super) at: usize,
}

/// The fields before the entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head<'a> {
    /// Entries that are there.
    pub(super) live: u64,
    /// Those that are deleted.
    pub(super) deleted: u64,
    fields: usize,
    names: Cursor<'a>,
    entries: Cursor<'a>,
    deleted_at: usize,
}

/// An entry of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its id.
    pub id: StreamId,
    count: usize,
    // The names, unless they alternate with the values.
    names: Option<Cursor<'a>>,
    rest: Cursor<'a>,
}

/// An entry with its place in the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed<'a> {
    pub(super) entry: Entry<'a>,
    pub(super) is_deleted: bool,
    flags: i64,
    flags_at: usize,
}

/// The entries of a node. After an error there is nothing more.
#[derive(Clone, Debug)]
pub(super) struct PackedMap<'a> {
    node: Node<'a>,
    head: Head<'a>,
    cursor: Cursor<'a>,
}

impl<'a> Node<'a> {
    /// The node that begins at this place.
    pub(super) fn open(run: &'a [u8], at: usize) -> Result<Self, Malformed> {
        let beyond = Malformed { at, why: BEYOND };
        let rest = run.get(at..).unwrap_or_default();
        let (id, rest) = rest.split_first_chunk::<{ StreamId::BYTES }>().ok_or(beyond)?;
        let length = rest.first_chunk().map(|length| u32::from_le_bytes(*length) as usize).ok_or(beyond)?;
        let pack = rest.get(..length).filter(|pack| pack.len() > listpack::HEAD_BYTES).ok_or(beyond)?;
        Ok(Self { id: StreamId::of_bytes(*id), pack, at })
    }

    /// Where the next one begins.
    pub(super) fn end(self) -> usize {
        self.pack_at() + self.pack.len()
    }

    fn pack_at(self) -> usize {
        self.at + StreamId::BYTES
    }

    pub(super) fn head(self) -> Result<Head<'a>, Malformed> {
        self.report(self.read_head())
    }

    fn read_head(self) -> Result<Head<'a>, Malformed> {
        let mut cursor = Cursor::new(self.pack);
        let count = |cursor: &mut Cursor<'_>| {
            let at = cursor.at();
            u64::try_from(cursor.integer()?).map_err(|_| Malformed { at, why: BAD_COUNT })
        };
        let live = count(&mut cursor)?;
        let deleted_at = cursor.at();
        let deleted = count(&mut cursor)?;
        let fields = count(&mut cursor)? as usize;
        let names = cursor;
        for _ in 0..fields {
            cursor.skip()?;
        }
        let at = cursor.at();
        if cursor.integer()? != 0 {
            return Err(Malformed { at, why: "a node of the stream has no end of its fields" });
        }
        Ok(Head { live, deleted, fields, names, entries: cursor, deleted_at })
    }

    /// All entries, deleted ones too.
    pub(super) fn entries(self) -> Result<PackedMap<'a>, Malformed> {
        let head = self.head()?;
        Ok(PackedMap { node: self, head, cursor: head.entries })
    }

    /// The id of the last entry, even if it is deleted.
    pub(super) fn last_id(self) -> Result<StreamId, Malformed> {
        let mut last = self.id;
        for placed in self.entries()? {
            last = placed?.entry.id;
        }
        Ok(last)
    }

    /// Whether the first entry had these fields, which alternate with values.
    fn has_fields(self, head: &Head<'_>, pairs: &[&[u8]]) -> Result<bool, Malformed> {
        if head.fields != pairs.len() / 2 {
            return Ok(false);
        }
        let mut names = head.names;
        for name in pairs.iter().step_by(2) {
            if *self.report(names.next())? != **name {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An error with its place in the record.
    fn report<T>(self, result: Result<T, Malformed>) -> Result<T, Malformed> {
        result.map_err(|malformed| Malformed { at: self.pack_at() + malformed.at, ..malformed })
    }

    /// Whether it has room for an entry of these fields and values.
    pub(super) fn has_room(self, head: &Head<'_>, pairs: &[&[u8]], limits: NodeLimits) -> bool {
        let added: usize = pairs.iter().map(|string| string.len()).sum();
        let bytes_max = match limits.bytes {
            0 => NODE_BYTES_MAX,
            bytes => bytes.min(NODE_BYTES_MAX),
        };
        let is_full = limits.entries != 0 && head.live.saturating_add(head.deleted) >= limits.entries;
        self.pack.len() + added < bytes_max && !is_full
    }
}

// As Redis (`STREAM_LISTPACK_MAX_SIZE`).
const NODE_BYTES_MAX: usize = 1 << 30;

impl<'a> PackedMap<'a> {
    fn read(&mut self) -> Result<Placed<'a>, Malformed> {
        let cursor = &mut self.cursor;
        let flags_at = cursor.at();
        let flags = cursor.integer()?;
        let (ms, seq) = (cursor.integer()?, cursor.integer()?);
        let id = StreamId {
            ms: self.node.id.ms.wrapping_add(ms as u64),
            seq: self.node.id.seq.wrapping_add(seq as u64),
        };
        let has_names = flags & SAME_FIELDS == 0;
        let bad = Malformed { at: cursor.at(), why: BAD_COUNT };
        let count =
            if has_names { usize::try_from(cursor.integer()?).map_err(|_| bad)? } else { self.head.fields };
        let strings = if has_names { count.checked_mul(2).ok_or(bad)? } else { count };
        let rest = *cursor;
        for _ in 0..strings {
            cursor.skip()?;
        }
        let bad = Malformed { at: cursor.at(), why: BAD_COUNT };
        if cursor.integer()? != strings as i64 + 3 + i64::from(has_names) {
            return Err(bad);
        }
        let entry = Entry { id, count, names: (!has_names).then_some(self.head.names), rest };
        Ok(Placed { entry, is_deleted: flags & DELETED != 0, flags, flags_at })
    }
}

impl<'a> Iterator for PackedMap<'a> {
    type Item = Result<Placed<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.is_at_end() {
            return None;
        }
        let node = self.node;
        let read = node.report(self.read());
        if read.is_err() {
            self.cursor = Cursor::from(node.pack, node.pack.len() - 1);
        }
        Some(read)
    }
}

impl<'a> Entry<'a> {
    /// How many fields it has.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its fields, each with its value.
    pub fn pairs(&self) -> impl Iterator<Item = (Item<'a>, Item<'a>)> + use<'a> {
        let (mut names, mut rest) = (self.names, self.rest);
        // All of them were read when the entry was.
        (0..self.count).map_while(move |_| {
            let name = names.as_mut().map_or_else(|| rest.next(), Cursor::next).ok()?;
            Some((name, rest.next().ok()?))
        })
    }
}

/// Puts a node of one entry at the end.
pub(super) fn push_node(run: &mut Vec<u8>, id: StreamId, pairs: &[&[u8]]) {
    run.extend_from_slice(&id.to_bytes());
    let pack_at = run.len();
    run.extend_from_slice(&[0; listpack::HEAD_BYTES]);
    let fields = pairs.len() / 2;
    for number in [1, 0, fields as i64] {
        listpack::push_integer(number, run);
    }
    pairs.iter().step_by(2).for_each(|name| listpack::push(name, run));
    listpack::push_integer(0, run);
    let added = push_entry(run, SAME_FIELDS, (0, 0), pairs);
    run.push(listpack::END);
    finish(run, pack_at, 4 + fields + added);
}

/// Puts an entry at the end of the last node, which begins at `at`.
pub(super) fn push(run: &mut Vec<u8>, at: usize, id: StreamId, pairs: &[&[u8]]) -> Result<(), Malformed> {
    let node = Node::open(run, at)?;
    let head = node.head()?;
    let flags = if node.has_fields(&head, pairs)? { SAME_FIELDS } else { 0 };
    let behind = (id.ms.wrapping_sub(node.id.ms) as i64, id.seq.wrapping_sub(node.id.seq) as i64);
    let (pack_at, live) = (node.pack_at(), head.live);
    run.pop();
    let added = push_entry(run, flags, behind, pairs);
    run.push(listpack::END);
    finish(run, pack_at, added);
    replace_integer(run, pack_at, listpack::HEAD_BYTES, live as i64 + 1)
}

/// Puts the listpack entries of an entry; how many.
fn push_entry(run: &mut Vec<u8>, flags: i64, (ms, seq): (i64, i64), pairs: &[&[u8]]) -> usize {
    for number in [flags, ms, seq] {
        listpack::push_integer(number, run);
    }
    let has_names = flags & SAME_FIELDS == 0;
    if has_names {
        listpack::push_integer((pairs.len() / 2) as i64, run);
    }
    let strings = pairs.iter().skip(usize::from(!has_names)).step_by(if has_names { 1 } else { 2 });
    let mut count = 3 + usize::from(has_names);
    for string in strings {
        listpack::push(string, run);
        count += 1;
    }
    listpack::push_integer(count as i64, run);
    count + 1
}

/// Writes into the head of the last listpack its new length and this many additional entries.
fn finish(run: &mut [u8], pack_at: usize, added: usize) {
    let length = (run.len() - pack_at) as u32;
    run[pack_at..pack_at + 4].copy_from_slice(&length.to_le_bytes());
    let count = &mut run[pack_at + 4..pack_at + listpack::HEAD_BYTES];
    let more = usize::from(u16::from_le_bytes([count[0], count[1]])) + added;
    count.copy_from_slice(&(more.min(listpack::COUNT_NOT_TOLD) as u16).to_le_bytes());
}

/// Puts another integer in the place of the one that a listpack has there.
fn replace_integer(run: &mut Vec<u8>, pack_at: usize, at: usize, integer: i64) -> Result<(), Malformed> {
    let length = Node::open(run, pack_at - StreamId::BYTES)?.pack.len();
    let mut cursor = Cursor::from(&run[pack_at..pack_at + length], at);
    cursor.integer().map_err(|malformed| Malformed { at: pack_at + malformed.at, ..malformed })?;
    let old = pack_at + at..pack_at + cursor.at();
    let mut new = Vec::with_capacity(16);
    listpack::push_integer(integer, &mut new);
    let length = (length + new.len() - old.len()) as u32;
    run.splice(old, new);
    run[pack_at..pack_at + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Marks entries of the node at `at` as deleted, which were not.
pub(super) fn delete(
    run: &mut Vec<u8>,
    at: usize,
    going: impl FnOnce(PackedMap<'_>) -> Result<Vec<Deleting>, Malformed>,
) -> Result<(), Malformed> {
    let node = Node::open(run, at)?;
    let (pack_at, head) = (node.pack_at(), node.head()?);
    let going = going(node.entries()?)?;
    let (live, deleted, deleted_at) = (head.live, head.deleted, head.deleted_at);
    let count = going.len() as u64;
    let live = live.checked_sub(count).ok_or(Malformed { at, why: BAD_COUNT })?;
    // Backwards, so that earlier positions stay: a flag keeps its length, counts may not.
    for deleting in going.into_iter().rev() {
        replace_integer(run, pack_at, deleting.flags_at, deleting.flags | DELETED)?;
    }
    replace_integer(run, pack_at, deleted_at, deleted.saturating_add(count) as i64)?;
    replace_integer(run, pack_at, listpack::HEAD_BYTES, live as i64)
}

/// An entry that [`delete`] marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deleting {
    flags: i64,
    flags_at: usize,
}

impl Placed<'_> {
    pub(super) fn deleting(&self) -> Deleting {
        Deleting { flags: self.flags, flags_at: self.flags_at }
    }
}
