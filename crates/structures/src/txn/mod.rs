//! A transaction: the one door through which commands read and write keys.
//!
//! Every command runs in a [`Txn`], alone or with others between MULTI and EXEC. It names its keys ([`Locks`]), and
//! holds them from its first look at one of them until it is committed or dropped (key locks,
//! [`duramen::Writer::lock`]). So a command is written as if it were alone: its reads stay true, and it runs once.
//! Reads go through the transaction's own pending writes to the engine. Writes wait for [`Txn::commit`], which applies
//! them, all or nothing, and releases the keys. They are pending until the worker's group is flushed, so no client
//! learns of them before they are durable.
//!
//! ```text
//! begin ──(lock)── get, put, delete … ──► commit: serve, write, unlock ──► done
//!   ▲                                        │ no room, or no table yet: unlock, make that
//!   └────────────────────────────────────────┘
//! ```
//!
//! | names | locks | for |
//! |---|---|---|
//! | `Nothing` | none | reads of one plain value, which is of one moment anyway; scans and counts, which are of none |
//! | `One`, `Keys` | those keys, whatever their databases | all other commands |
//! | `All` | the exclusive barrier: no other worker writes or holds keys | SORT with BY or GET, scans and FLUSHALL within MULTI, commands that do not know their keys |
//!
//! The steps of a commit, by the kind of writes:
//!
//! | writes | commit |
//! |---|---|
//! | none | nothing |
//! | one integer counted up or down | one update in place, where the engine can (without locks: [`Txn::add_at_once`]) |
//! | one key | one put or delete (without locks: [`Txn::put_at_once`]) |
//! | several keys | one batch |
//! | one element of a large value | one put or delete, at once where nothing else may come ([`Txn::edits_one`]) |
//! | elements of a large value | a unit that began with the first of them, and all else in it |
//!
//! **Where waiting commands are served**: at the start of `commit`, before anything is applied and under the locks of
//! all named keys. There `scratch.entries` lists the writes. A client that waits for one of these keys is served by
//! running its command in this same transaction, so that both are one batch. `Txn::name_more` requests another key of
//! that command. If another worker holds it, the transaction names it too and starts again, because none of it is
//! visible yet.
//!
//! Invariants:
//!
//! 1. An entry per key: `scratch.entries` never holds two entries of one key of one database.
//! 2. Others see nothing before `commit`, except the effects of `add_at_once` and `put_at_once`, and of changes after
//!    `edits_one`; a dropped transaction leaves no trace. Elements of a large value (`source`) are in the log earlier,
//!    in a transaction of the engine that counts with the commit.
//! 3. A database gets its table by the first commit that puts something into it; that begins again with the table, which is made without locks.
//! 4. A value whose time has come is absent, whether or not the engine has swept it.
//! 5. A watching client is notified of every write, also of one after which the key is absent as before: such a write
//!    leaves an expired record, because deleting an absent key changes no stamp. An entry that was added and removed
//!    within one edit has no write: the client is notified at the commit, as for elements.
//! 6. INCR stores a value in a special form (see `number`), which only this module sees: reading it as a string gives
//!    its text. The same holds for memcached's commands (see `head`, `counter`): reading it as a string gives the data.

mod alone;
mod collection;
mod counter;
mod encoding;
mod found;
mod head;
mod item;
mod libraries;
mod life;
mod list;
mod number;
mod restored;
pub(crate) mod scratch;
mod source;
mod stream;
mod string;

use duramen::{ErrorKind, IndexKind, Meta, Modified, Update, Value};
use std::ops::RangeInclusive;

use crate::error::{Error, Result};
use crate::keyspace::{KEY_BYTES_MAX, KeyCount, random};
use crate::locks::{Keys, Locks};
use crate::string::integer::{self, Text};
use crate::thresholds::Thresholds;
use crate::watch::{Then, Watched};
use crate::worker::Worker;
use crate::{Type, string_until};
pub use collection::{AllNames, Collection, Edit, Stored};
use counter::Counter;
pub use counter::{CAS_RUN, CAS_STEP};
pub use found::Found;
pub use head::{ItemHead, data_of_item};
pub use item::{CountedItem, Item};
use life::Life;
pub use list::{EditList, List, StoredList};
use number::Number;
pub use number::text_of_number;
use scratch::{Payload, Scratch, Write, get, is_stored, life_of, stored};
pub use source::{Detached, Reads, Source};
pub use stream::{EditStream, Part, StoredStream, StreamAt};
pub use string::{Seen, string_of_pieces};

// Entries looked at per call of the engine's scan when all keys are wanted.
const SCAN_ENTRIES: usize = 1024;
// Enough that a key alone in its bucket is not chosen much more often than one among many.
const RANDOM_ENTRIES: usize = 16;

/// Reads and pending writes over the keyspace. Dropped without `commit`, it did nothing.
pub struct Txn<'w> {
    worker: &'w mut Worker,
    now: u64,
    locks: Locks<'w>,
    /// Either all named keys are locked, or none.
    locked: bool,
}

impl Worker {
    /// Begins a transaction that sees the time as `now` (Unix milliseconds) throughout, and names no keys. See
    /// [`Worker::run`], which also commits it and starts it again where needed.
    pub fn begin(&mut self, now: u64) -> Txn<'_> {
        self.begin_on(now, Locks::All)
    }

    /// Begins a transaction on the keys of `locks`.
    #[inline]
    pub fn begin_on<'w>(&'w mut self, now: u64, locks: Locks<'w>) -> Txn<'w> {
        Txn { worker: self, now, locks, locked: matches!(locks, Locks::Nothing) }
    }

    /// Runs `work` in a transaction on the keys of `locks`, and commits it. In rare cases it runs again from the
    /// start, when nothing of it was visible: when a write found no free space, which is made meanwhile; when it is the
    /// first that writes to a database; and when it failed after [`Txn::name_more`] did. It also runs again after
    /// [`Txn::name_all`], whatever its result was.
    ///
    /// # Errors
    /// Those of `work`, after which nothing is written, and of [`Txn::commit`].
    #[inline]
    pub fn run<T, E: From<Error>>(
        &mut self,
        now: u64,
        locks: Locks<'_>,
        mut work: impl FnMut(&mut Txn<'_>) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut large_map = Keys::default();
        let mut is_alone = false;
        self.wants_all = false;
        loop {
            let named = match is_alone {
                true => Locks::All,
                false if large_map.is_empty() => locks,
                false => Locks::Keys(&large_map),
            };
            let mut txn = self.begin_on(now, named);
            let done = work(&mut txn);
            if txn.worker.wants_all {
                drop(txn);
                self.wants_keys.clear();
                (is_alone, self.wants_all) = (true, false);
                continue;
            }
            let done = match done {
                Ok(done) => done,
                Err(error) => {
                    drop(txn);
                    if !self.name_again(locks, &mut large_map) {
                        // An element found no room, as a write may in `commit`.
                        if !self.writer.wants_room() {
                            return Err(error);
                        }
                        self.writer.make_room().map_err(Error::from)?;
                    }
                    continue;
                }
            };
            match txn.commit() {
                Ok(()) => return Ok(done),
                Err(error) => self.before_again(error)?,
            }
        }
    }

    /// Adds the keys that a transaction wanted to name to its named ones; false if there are none.
    fn name_again(&mut self, locks: Locks<'_>, large_map: &mut Keys) -> bool {
        if self.wants_keys.is_empty() {
            return false;
        }
        if large_map.is_empty() {
            match locks {
                Locks::One(key) => large_map.add(key),
                Locks::Keys(keys) => keys.iter().for_each(|key| large_map.add(key)),
                Locks::Nothing | Locks::All => {}
            }
        }
        self.wants_keys.iter().for_each(|key| large_map.add(key));
        self.wants_keys.clear();
        true
    }
}

impl<'w> Txn<'w> {
    /// Locks the named keys, if they are not locked yet.
    #[inline]
    fn lock(&mut self) {
        if !std::mem::replace(&mut self.locked, true) {
            self.lock_now();
        }
    }

    fn lock_now(&mut self) {
        let writer = &mut self.worker.writer;
        let locked = match self.locks {
            Locks::Nothing => Ok(()),
            Locks::One(key) => writer.lock([key]),
            Locks::Keys(keys) => writer.lock(keys.iter()),
            Locks::All => writer.lock_all(),
        };
        assert!(locked.is_ok(), "a transaction begins within another of its thread: {locked:?}");
    }

    /// Locks more keys, if no other worker holds one of them now; returns whether it did. If not, [`Worker::run`] names
    /// them too and starts again, once the caller has returned any error.
    pub fn name_more(&mut self, keys: &Keys) -> bool {
        self.lock();
        let is_locked = self.worker.writer.lock_more(keys.iter());
        if !is_locked {
            keys.iter().for_each(|key| self.worker.wants_keys.add(key));
        }
        is_locked
    }

    /// Whether one of its writes found no space: whatever its result, [`Worker::run`] runs it again once there is some.
    pub fn wants_room(&self) -> bool {
        self.worker.writer.wants_room()
    }

    /// The thresholds at which Redis converts a changed value.
    #[inline]
    pub fn thresholds(&self) -> Thresholds {
        self.worker.keyspace.thresholds()
    }

    /// The time that everything in this transaction sees, in Unix milliseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sweeps `key` if it has expired; returns whether this call did it, so that it is reported once. It is not a write
    /// of this transaction, and stays done even if that aborts.
    pub fn expire(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        let Worker { keyspace, writer, .. } = &mut *self.worker;
        match keyspace.table(db) {
            Some(table) if key.len() <= KEY_BYTES_MAX => Ok(writer.table(table).expire(key)?),
            _ => Ok(false),
        }
    }

    /// Drops the reads so far, which take memory for each key, unless something is pending. Also forgets that a read
    /// needed its key named.
    pub fn forget_reads(&mut self) {
        self.worker.wants_keys.clear();
        if !self.is_pending() && !self.worker.writer.has_transaction() {
            self.worker.scratch.clear();
        }
    }

    /// How many databases there are.
    pub fn databases(&self) -> u8 {
        self.worker.keyspace.databases()
    }

    // --- reads

    /// The value of `key`, `None` when absent or expired.
    pub fn get(&mut self, db: u8, key: &[u8]) -> Result<Option<Found<'_>>> {
        Ok(self.get_with_reads(db, key)?.map(|(found, _)| found))
    }

    /// The same, with reads of its elements if it is large.
    fn get_with_reads(&mut self, db: u8, key: &[u8]) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        match self.root_to_read(db, key)? {
            Some((found, reads)) if found.is_root_of_string() => {
                Ok(Some((string::put_together(key, &found, reads)?, reads)))
            }
            found => Ok(found),
        }
    }

    /// The record of `key`, which may be only the root of a large value. Then its elements must be read under the key's
    /// lock: a transaction that named no keys names it and starts again.
    fn root_to_read(&mut self, db: u8, key: &[u8]) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        self.find(db, key, true)
    }

    /// The same for callers that do not read the elements.
    fn root(&mut self, db: u8, key: &[u8]) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        self.find(db, key, false)
    }

    #[inline]
    fn find(&mut self, db: u8, key: &[u8], reads_elements: bool) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        let Some(at) = self.entry(db, key) else { return Ok(None) };
        self.find_at(at, key, reads_elements)
    }

    /// The same for the entry of `key`.
    #[inline]
    fn find_at(
        &mut self,
        at: usize,
        key: &[u8],
        reads_elements: bool,
    ) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        let Self { worker, now, locks, .. } = self;
        let Worker { keyspace, writer, scratch, wants_keys, .. } = &mut **worker;
        let reads = Reads(&*writer);
        if let Write::None = scratch.entries[at].write {
            let key_bytes = scratch.entries[at].key.len();
            let Some(value) = stored(keyspace, writer, scratch, at, *now)? else { return Ok(None) };
            let found = Found::of(value, key_bytes);
            if reads_elements && found.is_root_of_string() && matches!(locks, Locks::Nothing) {
                wants_keys.add(key);
                return Err(Error::NeedsKey);
            }
            return Ok(Some((found, reads)));
        }
        let key_bytes = scratch.entries[at].key.len();
        let found = match &scratch.entries[at].write {
            Write::Put(payload, meta) => {
                Some(Found::pending(payload.bytes(&scratch.arena), *meta, key_bytes))
            }
            Write::Number { number, expires_at, .. } => {
                let text = Text::new(number.value());
                Some(Found::Number { text, expires_at: *expires_at, footprint: None })
            }
            Write::None | Write::Delete | Write::Expired => None,
        };
        Ok(found.map(|found| (found, reads)))
    }

    /// The string at `key`; an error when it holds another type.
    pub fn get_string(&mut self, db: u8, key: &[u8]) -> Result<Option<Found<'_>>> {
        match self.get(db, key)? {
            Some(found) if found.tag() != Type::String.tag() => Err(Error::WrongType),
            found => Ok(found),
        }
    }

    /// Hints that at least so many keys will be used.
    pub fn reserve(&mut self, keys: usize) {
        self.worker.scratch.reserve(keys);
    }

    /// As [`Worker::prefetch`].
    pub fn prefetch(&self, db: u8, keys: &[&[u8]]) {
        if let Some(table) = self.worker.keyspace.table(db) {
            table.prefetch(keys);
        }
    }

    /// Whether `key` is there.
    pub fn exists(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        match self.entry(db, key) {
            Some(at) => self.is_there(at),
            None => Ok(false),
        }
    }

    /// When `key` expires; `None` if it does not, or is not there.
    pub fn expires_at(&mut self, db: u8, key: &[u8]) -> Result<Option<u64>> {
        let Some(at) = self.entry(db, key) else { return Ok(None) };
        if matches!(self.worker.scratch.entries[at].write, Write::None)
            && self.worker.scratch.entries[at].seen.is_none()
        {
            self.is_there(at)?;
        }
        let entry = &self.worker.scratch.entries[at];
        let life = match (&entry.write, entry.seen) {
            (Write::None, seen) => seen.unwrap_or(Life::Absent),
            (write, _) => write.life(),
        };
        Ok(if let Life::Until(time) = life { Some(time) } else { None })
    }

    /// Whether the key of an entry is there.
    fn is_there(&mut self, at: usize) -> Result<bool> {
        let Self { worker, now, .. } = self;
        let Worker { keyspace, writer, scratch, .. } = &mut **worker;
        match &scratch.entries[at].write {
            Write::None => is_stored(keyspace, writer, scratch, at, *now),
            Write::Put(..) | Write::Number { .. } => Ok(true),
            Write::Delete | Write::Expired => Ok(false),
        }
    }

    /// Keys in `db` as [`Keyspace::count`](crate::Keyspace::count) counts them, pending writes included. Counted writes
    /// of other workers are durable when the group is flushed.
    pub fn count(&mut self, db: u8) -> Result<KeyCount> {
        let stored = self.worker.keyspace.count(db, self.now);
        self.worker.owe_others()?;
        Ok(self.with_pending(db, stored))
    }

    /// The keys of [`Txn::count`] alone: it does not look at any, unless they are few.
    pub fn keys(&mut self, db: u8) -> Result<u64> {
        let keys = self.worker.keyspace.keys(db, self.now);
        self.worker.owe_others()?;
        Ok(self.with_pending(db, KeyCount { keys, expires: 0 }).keys)
    }

    fn with_pending(&self, db: u8, stored: KeyCount) -> KeyCount {
        let Worker { keyspace, writer, scratch, .. } = &*self.worker;
        let (mut less, mut more) = (KeyCount::default(), stored);
        for entry in &scratch.entries {
            if entry.db != db || matches!(entry.write, Write::None) {
                continue;
            }
            // A key that was written without a look is looked up here. An unreadable record counts as absent.
            let look = || life_of(keyspace, writer, db, &scratch.arena[entry.key.clone()]).ok();
            let before = entry.seen.or_else(look).unwrap_or(Life::Absent);
            for (sum, life) in [(&mut less, before), (&mut more, entry.write.life())] {
                let KeyCount { keys, expires } = life.counts();
                (sum.keys, sum.expires) = (sum.keys + keys, sum.expires + expires);
            }
        }
        KeyCount {
            keys: more.keys.saturating_sub(less.keys),
            expires: more.expires.saturating_sub(less.expires),
        }
    }

    /// The keys that are written by now, with their databases, in the order of the first look at each.
    pub fn written(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let Scratch { arena, entries, .. } = &self.worker.scratch;
        let written =
            entries.iter().filter(|entry| !matches!(entry.write, Write::None) || entry.has_new_elements);
        written.map(|entry| (entry.db, &arena[entry.key.clone()]))
    }

    // --- writes: pending until commit

    /// Makes the string `bytes` the value of `key`, without expiry time.
    pub fn put(&mut self, db: u8, key: &[u8], bytes: &[u8]) -> Result<()> {
        self.put_with(db, key, bytes, string_until(None))
    }

    /// Makes `bytes` the value of `key`. With a `meta.expires_at` that has passed the key is absent from then on, and counts
    /// as written, also where nothing was.
    pub fn put_with(&mut self, db: u8, key: &[u8], bytes: &[u8], meta: Meta) -> Result<()> {
        let at = self.entry(db, key).ok_or(Error::KeyTooLong)?;
        let scratch = &mut self.worker.scratch;
        let payload = scratch.payload(bytes);
        scratch.write(at, Write::Put(payload, meta), self.now);
        Ok(())
    }

    /// Like [`put_with`](Self::put_with), for bytes that the caller no longer needs.
    pub fn put_vec(&mut self, db: u8, key: &[u8], bytes: Vec<u8>, meta: Meta) -> Result<()> {
        let at = self.entry(db, key).ok_or(Error::KeyTooLong)?;
        self.worker.scratch.write(at, Write::Put(Payload::Own(bytes), meta), self.now);
        Ok(())
    }

    /// [`put_with`](Self::put_with) and [`commit`](Self::commit) in one step, without a copy of the bytes: what SET alone needs.
    /// Whether it was done; then whatever else this transaction does is apart from it. False, and nothing done, when the
    /// transaction did something before, or `meta.expires_at` has passed.
    pub fn put_at_once(&mut self, db: u8, key: &[u8], bytes: &[u8], meta: Meta) -> Result<bool> {
        let Worker { keyspace, writer, scratch, .. } = &mut *self.worker;
        let is_over = meta.expires_at.is_some_and(|time| time <= self.now);
        if !scratch.entries.is_empty() || key.len() > KEY_BYTES_MAX || is_over {
            return Ok(false);
        }
        writer.table(keyspace.make(db)?).put_with(key, bytes, meta)?;
        Ok(true)
    }

    /// Adds to the integer that the string at `key` spells, 0 without one, and returns the sum. The expiry time stays.
    ///
    /// # Errors
    /// `WrongType`, `NotInteger`, `Overflow`; then nothing is to be written.
    pub fn add(&mut self, db: u8, key: &[u8], increment: i64) -> Result<i64> {
        let at = self.entry(db, key).ok_or(Error::KeyTooLong)?;
        let now = self.now;
        let old = self.integer(at)?;
        let sum = integer::add(old.value, increment)?;
        let number = match old.number {
            Some(number) => number.changed_to(sum),
            None => Number::new(sum, self.worker.next_changes()),
        };
        let scratch = &mut self.worker.scratch;
        let write = match number {
            Some(number) => {
                let in_place = old.in_place && old.number.is_some();
                Write::Number { number, expires_at: old.expires_at, in_place }
            }
            None => Write::Put(scratch.payload(&Text::new(sum)), string_until(old.expires_at)),
        };
        scratch.write(at, write, now);
        Ok(sum)
    }

    /// [`add`](Self::add) and [`commit`](Self::commit) in one step, where the engine can do that: what INCR alone needs.
    /// Then it is done, and whatever else this transaction does is apart from it. `None`: nothing was done, because the
    /// transaction did something before or the engine cannot; [`add`](Self::add) says what the reason is, if it is an error.
    pub fn add_at_once(&mut self, db: u8, key: &[u8], increment: i64) -> Result<Option<i64>> {
        let Self { worker, now, .. } = self;
        let Worker { keyspace, writer, scratch, .. } = &mut **worker;
        if !scratch.entries.is_empty() || key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let Some(table) = keyspace.table(db) else { return Ok(None) };
        let mut sum = 0;
        let modified = writer.table(table).modify_in_place(key, |meta, bytes| {
            if meta.expires_at.is_some_and(|time| time <= *now) {
                return None;
            }
            let number = Number::of(meta.tag, bytes, key.len())?;
            sum = number.value().checked_add(increment)?;
            Some(number.changed_to(sum)?.field(key.len()))
        })?;
        Ok((modified == Modified::InPlace).then_some(sum))
    }

    /// The integer that an entry's key has now.
    fn integer(&mut self, at: usize) -> Result<Integer> {
        let Self { worker, now, .. } = self;
        let Worker { keyspace, writer, scratch, .. } = &mut **worker;
        let key_bytes = scratch.entries[at].key.len();
        match &scratch.entries[at].write {
            Write::None => {
                let Some(value) = stored(keyspace, writer, scratch, at, *now)? else {
                    return Ok(Integer::default());
                };
                let in_place = value.meta().updatable;
                Integer::of(&value, value.meta(), key_bytes).map(|integer| Integer { in_place, ..integer })
            }
            Write::Put(payload, meta) => Integer::of(payload.bytes(&scratch.arena), *meta, key_bytes),
            Write::Number { number, expires_at, in_place } => Ok(Integer {
                value: number.value(),
                expires_at: *expires_at,
                number: Some(*number),
                in_place: *in_place,
            }),
            Write::Delete | Write::Expired => Ok(Integer::default()),
        }
    }

    /// Deletes `key`; whether it was there, which it counts as where a damaged record lets nobody know. What this transaction put itself
    /// and deletes again counts as written.
    pub fn delete(&mut self, db: u8, key: &[u8]) -> Result<bool> {
        let Some(at) = self.entry(db, key) else { return Ok(false) };
        let there = match self.is_there(at) {
            // It is to be deleted, whatever it was: that repairs it.
            Err(error) if is_damaged(&error) => true,
            found => found?,
        };
        if there {
            let write = &mut self.worker.scratch.entries[at].write;
            *write = if matches!(write, Write::None) { Write::Delete } else { Write::Expired };
        }
        Ok(there)
    }

    /// Gives `key` another expiry time (`None`: it persists), its value staying; whether it was there.
    /// A time that has passed deletes it.
    pub fn set_expiry(&mut self, db: u8, key: &[u8], expires_at: Option<u64>) -> Result<bool> {
        if expires_at.is_some_and(|time| time <= self.now) {
            return self.delete(db, key);
        }
        self.copy_with(db, key, db, key, |_| expires_at)
    }

    /// Copies the value at `(db, from)` to `(to_db, to)`, expiry time included; whether it was there. Of a large value every
    /// element is written.
    pub fn copy(&mut self, db: u8, from: &[u8], to_db: u8, to: &[u8]) -> Result<bool> {
        if let Some((elements, flags)) = self.copy_large(db, from)? {
            let Some((found, _)) = self.root(db, from)? else { return Ok(false) };
            let (type_, expires_at) = (Type::of_tag(found.tag()), found.expires_at());
            let Some(type_) = type_ else { return Ok(false) };
            self.put_root(type_, to_db, to, &elements, flags, expires_at)?;
            return Ok(true);
        }
        self.copy_with(db, from, to_db, to, |expires_at| expires_at)
    }

    /// Moves the value at `(db, from)` to `(to_db, to)`, replacing an existing one, expiry time included; returns
    /// whether it existed. The two must differ.
    pub fn rename(&mut self, db: u8, from: &[u8], to_db: u8, to: &[u8]) -> Result<bool> {
        Ok(self.copy_with(db, from, to_db, to, |expires_at| expires_at)? && self.delete(db, from)?)
    }

    fn copy_with(
        &mut self,
        db: u8,
        from: &[u8],
        to_db: u8,
        to: &[u8],
        expiry: impl FnOnce(Option<u64>) -> Option<u64>,
    ) -> Result<bool> {
        let target = self.entry(to_db, to).ok_or(Error::KeyTooLong)?;
        let Some(source) = self.entry(db, from) else { return Ok(false) };
        let Self { worker, now, .. } = self;
        let Worker { keyspace, writer, scratch, .. } = &mut **worker;
        let key_bytes = scratch.entries[source].key.len();
        let (payload, meta) = match &scratch.entries[source].write {
            Write::None => {
                let Some(value) = stored(keyspace, writer, scratch, source, *now)? else {
                    return Ok(false);
                };
                let meta = Meta { updatable: false, ..value.meta() };
                match Number::of(meta.tag, &value, key_bytes) {
                    Some(number) => (Err(number), meta),
                    None => (Ok(scratch.payload(value.bytes())), meta),
                }
            }
            Write::Put(payload, meta) => (Ok(Payload::Own(payload.bytes(&scratch.arena).to_vec())), *meta),
            Write::Number { number, expires_at, .. } => (Err(*number), Number::meta(*expires_at)),
            Write::Delete | Write::Expired => return Ok(false),
        };
        let expires_at = expiry(meta.expires_at);
        let write = match payload {
            Ok(payload) => {
                let meta = Meta { expires_at, ..meta };
                match Counter::of(meta.tag, payload.bytes(&scratch.arena), key_bytes) {
                    Some(counter) => {
                        let meta = Meta { tag: head::TAG, updatable: false, ..meta };
                        Write::Put(Payload::Own(counter.as_item()), meta)
                    }
                    None => Write::Put(payload, meta),
                }
            }
            // Its place in the record depends on the key.
            Err(number) => {
                Write::Number { number: number.moved(worker.next_changes()), expires_at, in_place: false }
            }
        };
        worker.scratch.write(target, write, *now);
        Ok(true)
    }

    /// Deletes every key of `dbs`, each as by [`delete`](Self::delete): for FLUSHDB and FLUSHALL inside of MULTI. Takes
    /// time and memory in proportion to the keys.
    ///
    /// # Errors
    /// `Corrupt`, before anything is deleted, for a damaged record: its key is unknown.
    /// [`Worker::flush`] empties such a database.
    pub fn flush(&mut self, dbs: RangeInclusive<u8>) -> Result<()> {
        let mut keys: Vec<(u8, Vec<u8>)> = Vec::new();
        for db in dbs {
            let mut cursor = 0;
            loop {
                let visit = |key: &[u8], _| keys.push((db, key.to_vec()));
                cursor = self.scan_verified(db, cursor, SCAN_ENTRIES, visit)??;
                if cursor == 0 {
                    break;
                }
            }
        }
        for (db, key) in &keys {
            self.delete(*db, key)?;
        }
        Ok(())
    }

    // --- scanning

    /// Visits about `count` keys of `db` from `cursor` and calls `visit` with key and type tag; returns the next
    /// cursor, 0 at the end. Pending writes are seen, new keys first. A key that exists during the whole scan is
    /// visited at least once; concurrent writes may be seen or not. Damaged records are skipped: a read of such a key
    /// reports them.
    pub fn scan(&mut self, db: u8, cursor: u64, count: usize, visit: impl FnMut(&[u8], u8)) -> Result<u64> {
        whole(self.scan_verified(db, cursor, count, visit)?)
    }

    /// As [`Txn::scan`]; inner `Err`: a record is damaged, see [`duramen::Error::cursor`].
    fn scan_verified(
        &mut self,
        db: u8,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], u8),
    ) -> Result<duramen::Result<u64>> {
        self.before_scan()?;
        if cursor == 0 {
            self.visit_pending(db, &mut visit);
        }
        let Some(table) = self.worker.keyspace.table(db) else { return Ok(Ok(0)) };
        let pending = self.is_pending();
        Ok(table.scan(cursor, count, &mut |value| self.visit_stored(db, value, pending, &mut visit)))
    }

    /// Visits every key of `db` that begins with `prefix`, and maybe others, each with its type tag. In a database with an
    /// ordered index it takes time in proportion to those keys, else to all of its keys. Otherwise as [`Txn::scan`].
    pub fn scan_prefix(&mut self, db: u8, prefix: &[u8], mut visit: impl FnMut(&[u8], u8)) -> Result<()> {
        self.before_scan()?;
        self.visit_pending(db, &mut visit);
        let Some(table) = self.worker.keyspace.table(db) else { return Ok(()) };
        let pending = self.is_pending();
        if table.index_kind()? == IndexKind::Ordered {
            for value in table.prefix(prefix)? {
                match value {
                    Err(error) if error.kind() == ErrorKind::Corrupt => {}
                    value => self.visit_stored(db, &value?, pending, &mut visit),
                }
            }
            return Ok(());
        }
        let mut cursor = 0;
        loop {
            let visit = &mut |value: &Value<'_>| self.visit_stored(db, value, pending, &mut visit);
            cursor = whole(table.scan(cursor, SCAN_ENTRIES, visit))?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Scans read past the group: its writes must be durable before, so its keys must not be locked by it.
    fn before_scan(&mut self) -> Result<()> {
        let holds_keys = matches!(self.locks, Locks::One(_) | Locks::Keys(_)) && self.locked;
        debug_assert!(!holds_keys, "a command that scans names no keys");
        self.worker.flush_for_scan()
    }

    fn is_pending(&self) -> bool {
        self.worker.scratch.entries.iter().any(|entry| !matches!(entry.write, Write::None))
    }

    /// Visits the keys of `db` that this transaction puts.
    fn visit_pending(&self, db: u8, visit: &mut impl FnMut(&[u8], u8)) {
        let scratch = &self.worker.scratch;
        for entry in &scratch.entries {
            let tag = match &entry.write {
                Write::Put(_, meta) if matches!(meta.tag, head::TAG | counter::TAG) => Type::String.tag(),
                Write::Put(_, meta) => meta.tag,
                Write::Number { .. } => Type::String.tag(),
                Write::None | Write::Delete | Write::Expired => continue,
            };
            if entry.db == db {
                visit(&scratch.arena[entry.key.clone()], tag);
            }
        }
    }

    /// Visits the keys of `db` that have not expired and that this transaction does not write.
    fn visit_stored(&self, db: u8, value: &Value<'_>, pending: bool, visit: &mut impl FnMut(&[u8], u8)) {
        let key = value.key();
        if value.expires_at().is_none_or(|time| time > self.now)
            && !(pending && self.worker.scratch.writes(db, key))
        {
            let is_string = matches!(value.tag(), head::TAG | counter::TAG)
                || Number::of(value.tag(), value, key.len()).is_some();
            visit(key, if is_string { Type::String.tag() } else { value.tag() });
        }
    }

    /// Some key of `db`. The chances are the same for all, unless most have expired, or this transaction has written some:
    /// then, as in Redis, not quite.
    pub fn random_key(&mut self, db: u8) -> Result<Option<Vec<u8>>> {
        self.before_scan()?;
        if !self.is_pending() {
            let mut wanted = |value: &Value<'_>| {
                let mut is_wanted = false;
                self.visit_stored(db, value, false, &mut |_, _| is_wanted = true);
                is_wanted
            };
            let Some(table) = self.worker.keyspace.table(db) else { return Ok(None) };
            if let Some(value) = table.pick(random(), &mut wanted)? {
                return Ok(Some(value.key().to_vec()));
            }
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let start = match self.worker.keyspace.table(db) {
            Some(table) => table.cursor_at(random())?,
            None => 0,
        };
        // From a random place to the end, and if there is none, from the beginning.
        for mut cursor in [start, 0] {
            loop {
                cursor = self.scan(db, cursor, RANDOM_ENTRIES, |key, _| keys.push(key.to_vec()))?;
                if !keys.is_empty() {
                    let at = random() % keys.len() as u64;
                    return Ok(Some(keys.swap_remove(at as usize)));
                }
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(None)
    }

    // --- WATCH

    /// Remembers `key`, which is named, as it is now; `None` for a key too long to ever exist.
    pub fn watch(&mut self, db: u8, key: &[u8]) -> Result<Option<Watched>> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        self.lock();
        let Worker { keyspace, writer, .. } = &*self.worker;
        let watched = keyspace.shared.watchers.watch(db, key, || {
            let (stamp, value) = get(keyspace, writer, db, key)?;
            let expires_at = value.and_then(|value| value.expires_at()).filter(|&time| time > self.now);
            Ok((stamp.map_or(Then::Nowhere, Then::Had), expires_at))
        })?;
        Ok(Some(watched))
    }

    /// Whether a watched key, which is named, is still as it was. It stays so until the transaction ends.
    pub fn expect(&mut self, watched: &Watched) -> Result<bool> {
        if watched.expires_at.is_some_and(|time| time <= self.now) {
            return Ok(false);
        }
        self.lock();
        let (db, key) = (watched.key.db, &watched.key.key);
        let (stamp, _) = get(&self.worker.keyspace, &self.worker.writer, db, key)?;
        Ok(match (watched.key.then(), stamp) {
            // A table that was made since then is empty, or its watched keys were updated.
            (Then::Nowhere, _) => true,
            (Then::Had(then), Some(now)) => then == now,
            (Then::Had(_), None) | (Then::Changed, _) => false,
        })
    }

    /// Panics within a write of the engine, to test the consequences.
    pub fn panic_within_a_write(&mut self) {
        self.worker.writer.panic_within_a_write();
    }

    // --- the end

    /// Applies all pending writes, and gives the keys back; see the table at the module's head.
    ///
    /// # Errors
    /// Those of the engine; then nothing is written, and [`Worker::before_again`] says whether it is to begin again.
    #[inline]
    pub fn commit(mut self) -> Result<()> {
        let Worker { writer, scratch: Scratch { entries, .. }, .. } = &mut *self.worker;
        match entries.iter().filter(|entry| !matches!(entry.write, Write::None)).take(2).count() {
            _ if writer.has_transaction() => self.commit_transaction()?,
            0 => {}
            1 => self.commit_single()?,
            _ => {
                writer.begin_transaction()?;
                self.commit_transaction()?;
            }
        }
        self.notify_changed();
        self.give_keys_back()
    }

    /// Notifies the watchers of keys whose elements were written.
    fn notify_changed(&self) {
        let Worker { keyspace, scratch: Scratch { arena, entries, .. }, .. } = &*self.worker;
        for entry in entries.iter().filter(|entry| entry.has_new_elements) {
            keyspace.shared.watchers.touch(entry.db, &arena[entry.key.clone()]);
        }
    }

    #[inline]
    fn give_keys_back(&mut self) -> Result<()> {
        if !matches!(self.locks, Locks::Nothing) && self.locked {
            self.worker.writer.unlock()?;
        }
        Ok(())
    }

    /// Commits a transaction of the engine, to which all pending writes belong.
    #[inline(never)]
    fn commit_transaction(&mut self) -> Result<()> {
        let Worker { keyspace, writer, scratch, wants_table, .. } = &mut *self.worker;
        if (scratch.unsaved || scratch.is_incomplete) && !writer.wants_room() {
            return Err(Error::Incomplete);
        }
        let Scratch { arena, entries, .. } = scratch;
        for entry in entries.iter().filter(|entry| !entry.writes_nothing()) {
            let Some(table) = keyspace.table(entry.db) else {
                if matches!(entry.write, Write::Delete) {
                    continue;
                }
                return no_table(wants_table, entry.db);
            };
            let key = &arena[entry.key.clone()];
            match entry.value(arena) {
                Some((bytes, meta)) => writer.in_transaction(table).put_with(key, &bytes[..], meta)?,
                None => drop(writer.in_transaction(table).delete(key)?),
            }
        }
        writer.commit_transaction()?;
        Ok(())
    }

    fn commit_single(&mut self) -> Result<()> {
        let Worker { keyspace, writer, scratch, wants_table, .. } = &mut *self.worker;
        let Scratch { arena, entries, .. } = scratch;
        let Some(entry) = entries.iter().find(|entry| !matches!(entry.write, Write::None)) else {
            return Ok(());
        };
        let Some(table) = keyspace.table(entry.db) else {
            // Without one there is nothing to delete.
            return if matches!(entry.write, Write::Delete) {
                Ok(())
            } else {
                no_table(wants_table, entry.db)
            };
        };
        let mut writer = writer.table(table);
        let key = &arena[entry.key.clone()];
        if let Write::Number { number, in_place: true, .. } = entry.write {
            let (at, field) = number.field(key.len());
            // Otherwise it has expired meanwhile, and so has the new value.
            if writer.update(key, at, &field)? != Update::Absent {
                return Ok(());
            }
        }
        match (entry.value(arena), entry.seen) {
            (Some((bytes, meta)), _) => writer.put_with(key, &bytes[..], meta)?,
            (None, Some(Life::Absent)) => {}
            (None, Some(_)) => drop(writer.delete(key)?),
            // A delete looks first, and continues if it finds damage.
            (None, None) => drop(writer.replace(key, None)?),
        }
        Ok(())
    }

    /// The entry of a key, made if need be; `None` for a key that is too long to exist.
    fn entry(&mut self, db: u8, key: &[u8]) -> Option<usize> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        self.lock();
        Some(self.worker.scratch.entry(db, key))
    }
}

impl Drop for Txn<'_> {
    /// Gives the keys back, and lets go of large values at once, not when the worker's next command comes.
    fn drop(&mut self) {
        if self.worker.writer.has_transaction() {
            let _ = self.worker.writer.abort_transaction();
        }
        if !matches!(self.locks, Locks::Nothing) && self.locked {
            // Without a group, the flush makes the reads durable; an aborted transaction does not return them.
            let _ = self.worker.writer.unlock();
        }
        self.worker.scratch.clear();
    }
}

/// The error of a transaction that begins again when the table of `db` is made.
#[cold]
fn no_table(wants_table: &mut Option<u8>, db: u8) -> Result<()> {
    *wants_table = Some(db);
    Err(Error::NoSuchDatabase)
}

/// The next cursor of a scan, also where it found damage.
pub(crate) fn whole(scanned: duramen::Result<u64>) -> Result<u64> {
    match scanned {
        Err(error) if error.kind() == ErrorKind::Corrupt && error.cursor().is_some() => {
            Ok(error.cursor().unwrap_or_default())
        }
        scanned => Ok(scanned?),
    }
}

/// Whether a key's record is damaged, or one that may be the key's.
fn is_damaged(error: &Error) -> bool {
    matches!(error, Error::Engine(error) if crate::error::is_damaged(error))
}

/// The integer of a string, with the properties of the string that INCR needs.
#[derive(Default)]
struct Integer {
    value: i64,
    expires_at: Option<u64>,
    /// It is kept as one ...
    number: Option<Number>,
    /// ... and the engine may change it where it is.
    in_place: bool,
}

impl Integer {
    fn of(bytes: &[u8], meta: Meta, key_bytes: usize) -> Result<Self> {
        let number = Number::of(meta.tag, bytes, key_bytes);
        let value = match (number, Counter::of(meta.tag, bytes, key_bytes)) {
            (Some(number), _) => number.value(),
            (None, Some(counter)) => integer::parse_or_error(&counter.text())?,
            (None, None) if meta.tag == Type::String.tag() || meta.tag == head::TAG => {
                integer::parse_or_error(&bytes[head::data_from(meta.tag, bytes)..])?
            }
            (None, None) => return Err(Error::WrongType),
        };
        Ok(Self { value, expires_at: meta.expires_at, number, in_place: false })
    }
}
