//! The keys that a transaction used: the state in which it found them, and their pending writes.
//!
//! An entry is found by its database and key, by a walk while there are few and by hashing when there are more.
//! Keys and small values lie end to end in one arena that is kept from transaction to transaction.

use std::hash::{BuildHasher, RandomState};
use std::ops::{Deref, Range};
use std::sync::LazyLock;

use duramen::{Collection, Meta, Room, Stamp, Value, ValueInfo, Writer};
use hashbrown::HashTable;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use super::life::Life;
use super::number::{self, Number};
use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::string_until;

// Up to this many entries a linear search is faster than hashing.
const LINEAR_ENTRIES: usize = 16;
// A larger value gets separate memory, so that the arena, which is kept, stays small.
const ARENA_VALUE_BYTES: usize = 64 << 10;
// An arena grown past this by many values in one transaction is given back.
const ARENA_KEEP_BYTES: usize = 1 << 20;

// The memory of a transaction of more keys than this, some 2 MiB, is freed after it. Less is kept: the next one of many
// keys would need new pages.
const ENTRIES_KEEP_MAX: usize = 16 << 10;

/// Where an entry is, and the hash by which it is found: keys stay where the entries have them.
struct Place {
    hash: u64,
    at: usize,
}

/// Clients choose the keys, and must not know which of them collide. Not of the bytes in the arena: they were just
/// stored, in other pieces than this reads, and the CPU would wait until they had left it (a tenth of a DEL of 10,000).
fn hash_of(db: u8, key: &[u8]) -> u64 {
    static SECRETS: LazyLock<RapidSecrets> =
        LazyLock::new(|| RapidSecrets::seed(RandomState::new().hash_one(())));
    // Odd, so that each database changes the hash.
    const OF_DATABASE: u64 = 0x9e37_79b9_7f4a_7c15;
    rapidhash_v3_seeded(key, &SECRETS) ^ u64::from(db).wrapping_mul(OF_DATABASE)
}

fn insert(by_key: &mut HashTable<Place>, hash: u64, at: usize) {
    by_key.insert_unique(hash, Place { hash, at }, |place| place.hash);
}

/// The memory of a transaction, kept by the worker for the next one.
#[derive(Default)]
pub(crate) struct Scratch {
    // Keys and small values of the entries, end to end.
    pub(super) arena: Vec<u8>,
    pub(super) entries: Vec<Entry>,
    // By database and key; filled when there are more than LINEAR_ENTRIES.
    by_key: HashTable<Place>,
    /// Collections that were made for large values; they are deleted unless a root refers to them.
    pub(super) made: Vec<Collection>,
    /// Elements were written for an edit that is not saved yet.
    pub(super) unsaved: bool,
    /// Elements were written for an edit that was not saved, and never will be.
    pub(super) is_incomplete: bool,
    /// The transaction is one edit ...
    pub(super) edits_one: bool,
    /// ... and the write of an element that comes next is all of it.
    pub(super) is_alone: bool,
    /// It is several edits, each of which is such a write.
    pub(super) edits_each: bool,
    /// How much of the reserve of a full store the next writes may use.
    pub(super) room: Room,
}

/// One key that the transaction touched.
pub(super) struct Entry {
    pub(super) db: u8,
    pub(super) key: Range<usize>,
    /// The engine's value when the key was looked up.
    pub(super) seen: Option<Life>,
    /// How many bytes.
    seen_bytes: usize,
    pub(super) write: Write,
    /// The least that was said of its writes.
    room: Room,
    /// Elements of the large value that is there were written.
    pub(super) has_new_elements: bool,
}

impl Entry {
    /// Whether a commit has nothing to do for it. A delete of a key that was not read looks first, and continues if it
    /// finds damage.
    pub(super) fn writes_nothing(&self) -> bool {
        match self.write {
            Write::None => true,
            Write::Delete => self.seen == Some(Life::Absent),
            Write::Put(..) | Write::Number { .. } | Write::Expired => false,
        }
    }

    /// Notes what the engine has: when it expires, and its length. Returns whether it is there still.
    #[inline]
    fn note(&mut self, found: Option<(Option<u64>, usize)>, now: u64) -> bool {
        let found = found.filter(|(expires_at, _)| expires_at.is_none_or(|time| time > now));
        self.seen = Some(found.map_or(Life::Absent, |(expires_at, _)| Life::of(expires_at)));
        self.seen_bytes = found.map_or(0, |(_, bytes)| bytes);
        found.is_some()
    }
}

/// The pending write of a key.
pub(super) enum Write {
    None,
    Put(Payload, Meta),
    /// `in_place`: only the integer differs from the stored value, which may be updated in place.
    Number {
        number: Number,
        expires_at: Option<u64>,
        in_place: bool,
    },
    Delete,
    /// Absent as by `Delete`, but the stamp changes even if the key was absent: by an empty record that has expired.
    /// Unlike `Delete` it needs space, so it is for writes that would have needed some anyway.
    Expired,
}

/// Bytes for the engine.
pub(super) enum Stored<'a> {
    Bytes(&'a [u8]),
    Number(number::Bytes),
}

/// Where the bytes to be written are.
pub(super) enum Payload {
    Arena(Range<usize>),
    Own(Vec<u8>),
}

impl Scratch {
    pub(super) fn clear(&mut self) {
        self.arena.clear();
        self.arena.shrink_to(ARENA_KEEP_BYTES);
        let capacity = self.entries.capacity();
        self.entries.clear();
        self.made.drain(..).for_each(Collection::abandon);
        (self.unsaved, self.is_incomplete) = (false, false);
        (self.edits_one, self.is_alone, self.edits_each) = (false, false, false);
        self.room = Room::Free;
        if capacity > ENTRIES_KEEP_MAX {
            // Also the table: to clear it takes as long as it is large, not as it is full.
            *self = Self::default();
        } else {
            self.by_key.clear();
        }
    }

    /// So many keys will be used, so that the table of entries need not grow step by step.
    pub(super) fn reserve(&mut self, keys: usize) {
        let more = keys.saturating_sub(self.entries.len());
        if keys > LINEAR_ENTRIES {
            self.entries.reserve(more);
            self.by_key.reserve(keys.saturating_sub(self.by_key.len()), |place| place.hash);
        }
    }

    /// The entry of `key` in `db`, made if need be (invariant 1 of the transaction).
    pub(super) fn entry(&mut self, db: u8, key: &[u8]) -> usize {
        let at = self.entries.len();
        let hash = if at > LINEAR_ENTRIES { hash_of(db, key) } else { 0 };
        if let Some(at) = self.find(db, key, hash) {
            return at;
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(key);
        let key = start..self.arena.len();
        self.entries.push(Entry {
            db,
            key,
            seen: None,
            seen_bytes: 0,
            write: Write::None,
            room: Room::Free,
            has_new_elements: false,
        });
        if at == LINEAR_ENTRIES {
            let Self { arena, entries, by_key, .. } = self;
            let hash_of = |entry: &Entry| hash_of(entry.db, &arena[entry.key.clone()]);
            entries.iter().enumerate().for_each(|(at, entry)| insert(by_key, hash_of(entry), at));
        } else if at > LINEAR_ENTRIES {
            insert(&mut self.by_key, hash, at);
        }
        at
    }

    /// The entry of a key, and this its hash, if there are too many for a walk.
    fn find(&self, db: u8, key: &[u8], hash: u64) -> Option<usize> {
        let is_it = |entry: &Entry| entry.db == db && self.arena[entry.key.clone()] == *key;
        if self.entries.len() > LINEAR_ENTRIES {
            return self.by_key.find(hash, |place| is_it(&self.entries[place.at])).map(|place| place.at);
        }
        self.entries.iter().position(is_it)
    }

    /// Whether there is a pending write of this key.
    pub(super) fn writes(&self, db: u8, key: &[u8]) -> bool {
        let hash = if self.entries.len() > LINEAR_ENTRIES { hash_of(db, key) } else { 0 };
        self.find(db, key, hash).is_some_and(|at| !matches!(self.entries[at].write, Write::None))
    }

    pub(super) fn payload(&mut self, bytes: &[u8]) -> Payload {
        if bytes.len() > ARENA_VALUE_BYTES {
            return Payload::Own(bytes.to_vec());
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        Payload::Arena(start..self.arena.len())
    }

    /// An expired value need not be kept: no reader will see it.
    pub(super) fn write(&mut self, at: usize, write: Write, now: u64) {
        let expired = matches!(write.life(), Life::Until(time) if time <= now);
        let (entry, room) = (&mut self.entries[at], self.room);
        // A delete has all the room there is.
        let is_first = matches!(entry.write, Write::None | Write::Delete);
        entry.room = if is_first { room } else { entry.room.min(room) };
        entry.write = if expired { Write::Expired } else { write };
    }
}

impl Entry {
    /// The value to write, as the engine takes it; `None` for a delete.
    pub(super) fn value<'a>(&'a self, arena: &'a [u8]) -> Option<(Stored<'a>, Meta)> {
        let (bytes, mut meta) = self.write.value(arena, self.key.len())?;
        // Else a full store would let nothing go out of a packed value.
        meta.room = if bytes.len() < self.seen_bytes { Room::Removal } else { self.room };
        Some((bytes, meta))
    }
}

impl Write {
    /// As the engine takes it for a key of `key_bytes`.
    fn value<'a>(&'a self, arena: &'a [u8], key_bytes: usize) -> Option<(Stored<'a>, Meta)> {
        match self {
            Self::Put(payload, meta) => Some((Stored::Bytes(payload.bytes(arena)), *meta)),
            Self::Number { number, expires_at, .. } => {
                Some((Stored::Number(number.bytes(key_bytes)), Number::meta(*expires_at)))
            }
            // Expired from the beginning: a clock that is set back does not bring it to life.
            Self::Expired => Some((Stored::Bytes(&[]), string_until(Some(0)))),
            Self::None | Self::Delete => None,
        }
    }

    /// The life of the key once this is applied.
    pub(super) fn life(&self) -> Life {
        match self {
            Self::Put(_, meta) => Life::of(meta.expires_at),
            Self::Number { expires_at, .. } => Life::of(*expires_at),
            Self::None | Self::Delete | Self::Expired => Life::Absent,
        }
    }
}

impl Deref for Stored<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(bytes) => bytes,
        }
    }
}

impl Payload {
    pub(super) fn bytes<'a>(&'a self, arena: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Arena(range) => &arena[range.clone()],
            Self::Own(bytes) => bytes,
        }
    }
}

/// The life of a key in the engine.
pub(super) fn life_of(keyspace: &Keyspace, writer: &Writer, db: u8, key: &[u8]) -> Result<Life> {
    Ok(info(keyspace, writer, db, key)?.map_or(Life::Absent, |info| Life::of(info.meta.expires_at)))
}

fn info(keyspace: &Keyspace, writer: &Writer, db: u8, key: &[u8]) -> Result<Option<ValueInfo>> {
    let Some(table) = keyspace.table(db) else { return Ok(None) };
    Ok(writer.read(table).info(key)?)
}

/// Notes the life of an entry's key in the engine; whether it is there.
pub(super) fn is_stored(
    keyspace: &Keyspace,
    writer: &Writer,
    scratch: &mut Scratch,
    at: usize,
    now: u64,
) -> Result<bool> {
    let entry = &mut scratch.entries[at];
    let info = info(keyspace, writer, entry.db, &scratch.arena[entry.key.clone()])?;
    Ok(entry.note(info.map(|info| (info.meta.expires_at, info.bytes)), now))
}

/// Reads a key from the engine; no stamp when its database has no table.
#[inline]
pub(super) fn get<'v>(
    keyspace: &'v Keyspace,
    writer: &'v Writer,
    db: u8,
    key: &[u8],
) -> Result<(Option<Stamp>, Option<Value<'v>>)> {
    let Some(table) = keyspace.table(db) else { return Ok((None, None)) };
    let (stamp, value) = writer.read(table).get_stamped(key)?;
    Ok((Some(stamp), value))
}

/// Reads an entry's key from the engine.
pub(super) fn stored<'v>(
    keyspace: &'v Keyspace,
    writer: &'v Writer,
    scratch: &mut Scratch,
    at: usize,
    now: u64,
) -> Result<Option<Value<'v>>> {
    let entry = &mut scratch.entries[at];
    let value = match keyspace.table(entry.db) {
        Some(table) => writer.read(table).get(&scratch.arena[entry.key.clone()])?,
        None => None,
    };
    let is_there = entry.note(value.as_ref().map(|value| (value.expires_at(), value.len())), now);
    Ok(value.filter(|_| is_there))
}
