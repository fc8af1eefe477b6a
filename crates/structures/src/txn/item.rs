//! Items of memcached as its commands read and write them; how they are kept is at the head of `head`.

use std::ops::Deref;

use duramen::{ErrorKind, Meta, Modified, Value};

use super::counter::{self, Counter};
use super::found::Found;
use super::head::{ItemHead, TAG};
use super::number;
use super::scratch::{self, Payload, Write, stored};
use super::source::Reads;
use super::string::put_together_stamped;
use super::{KEY_BYTES_MAX, Txn};
use crate::Type;
use crate::error::{Error, Result};
use crate::locks::Locks;
use crate::worker::Worker;

// A string in pieces that others keep writing to is read so often without a lock, until two reads are of the same.
const TRIES_MAX: u32 = 1000;
// No number that was given out has this bit.
const FOREIGN: u64 = 1 << 62;

/// A string as memcached sees it, not copied; its bytes are the data.
pub struct Item<'a> {
    /// Its meta field.
    pub head: ItemHead,
    found: Found<'a>,
}

impl<'a> Item<'a> {
    fn of(value: Value<'a>, key_bytes: usize) -> Result<Self> {
        const STRING: u8 = Type::String as u8;
        let head = match value.tag() {
            TAG => ItemHead::decode(&value).map(|(head, _)| head).unwrap_or_default(),
            counter::TAG => {
                Counter::of(value.tag(), &value, key_bytes).map(|counter| counter.head()).unwrap_or_default()
            }
            STRING | number::TAG => foreign(value.stamp().number()),
            _ => return Err(Error::WrongType),
        };
        Ok(Self { head, found: Found::of(value, key_bytes) })
    }

    /// The same with its pieces, if it is in some.
    fn whole(self, key: &[u8], reads: Reads<'_>) -> Result<Self> {
        if !self.found.is_root_of_string() {
            return Ok(self);
        }
        let (found, stamps) = put_together_stamped(key, &self.found, reads)?;
        Ok(Self { head: foreign(self.head.cas.wrapping_add(stamps)), found })
    }

    /// When it expires, in Unix milliseconds.
    pub fn expires_at(&self) -> Option<u64> {
        self.found.expires_at()
    }

    /// Whether the writer gave out its CAS number; otherwise it is made of its stamp.
    pub fn is_numbered(&self) -> bool {
        self.head.cas & FOREIGN == 0
    }
}

/// The head of a string whose changes are distinguished by this number.
fn foreign(number: u64) -> ItemHead {
    ItemHead { cas: FOREIGN | number & (FOREIGN - 1), ..ItemHead::default() }
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.found
    }
}

impl Worker {
    /// The item at `key`, for readers; in a group it may be returned to clients once the group is flushed.
    ///
    /// # Errors
    /// `WrongType` for a value that is not a string.
    #[inline]
    pub fn item(&self, now: u64, db: u8, key: &[u8]) -> Result<Option<Item<'_>>> {
        if key.len() > KEY_BYTES_MAX {
            return Ok(None);
        }
        let (_, value) = scratch::get(&self.keyspace, &self.writer, db, key)?;
        let value = value.filter(|value| value.expires_at().is_none_or(|time| time > now));
        let Some(value) = value else { return Ok(None) };
        let item = Item::of(value, key.len())?;
        if item.found.is_root_of_string() { self.item_in_pieces(db, key) } else { Ok(Some(item)) }
    }

    /// The same of one in pieces: as it was when it did not change between two looks.
    #[cold]
    fn item_in_pieces(&self, db: u8, key: &[u8]) -> Result<Option<Item<'_>>> {
        let mut before = None;
        for _ in 0..TRIES_MAX {
            let (_, value) = scratch::get(&self.keyspace, &self.writer, db, key)?;
            let Some(value) = value else { return Ok(None) };
            match Item::of(value, key.len())?.whole(key, Reads(&self.writer)) {
                // The root that named it went meanwhile.
                Err(Error::Engine(error)) if error.kind() == ErrorKind::NotFound => before = None,
                item => {
                    let item = item?;
                    if before.replace(item.head.cas) == Some(item.head.cas) {
                        return Ok(Some(item));
                    }
                }
            }
        }
        Err(Error::NeedsKey)
    }

    /// Stores an item at `key`, replacing an existing value.
    pub fn set_item(
        &mut self,
        now: u64,
        db: u8,
        key: &[u8],
        head: &ItemHead,
        data: &[u8],
        expires_at: Option<u64>,
    ) -> Result<()> {
        if expires_at.is_some_and(|time| time <= now) {
            return self.run(now, Locks::One(key), |txn| txn.put_item(db, key, head, &[data], expires_at));
        }
        let Self { keyspace, writer, scratch, .. } = self;
        scratch.arena.clear();
        head.encode(&mut scratch.arena);
        scratch.arena.extend_from_slice(data);
        let meta = Meta { tag: TAG, expires_at, ..Meta::default() };
        let put = keyspace
            .make(db)
            .and_then(|table| Ok(writer.table(table).put_with(key, &scratch.arena, meta)?));
        scratch.clear();
        put
    }
}

/// A counter that was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedItem {
    /// Its present value.
    pub value: u64,
    /// Its CAS number.
    pub cas: u64,
    /// When it expires, in Unix milliseconds.
    pub expires_at: Option<u64>,
}

impl Worker {
    /// Changes a counter with `change`, in one step and without a new record, if `may_have` accepts its CAS number and
    /// the engine can. `None`: nothing was done.
    pub fn count_item_at_once(
        &mut self,
        now: u64,
        db: u8,
        key: &[u8],
        may_have: impl Fn(u64) -> bool,
        change: impl Fn(u64) -> u64,
    ) -> Result<Option<CountedItem>> {
        let Self { keyspace, writer, .. } = self;
        let Some(table) = keyspace.table(db).filter(|_| key.len() <= KEY_BYTES_MAX) else { return Ok(None) };
        let mut counted = None;
        let modified = writer.table(table).modify_in_place(key, |meta, bytes| {
            if meta.expires_at.is_some_and(|time| time <= now) {
                return None;
            }
            let counter = Counter::of(meta.tag, bytes, key.len())?;
            if !may_have(counter.head().cas) {
                return None;
            }
            let changed = counter.changed_to(change(counter.value()))?;
            let cas = changed.head().cas;
            counted = Some(CountedItem { value: changed.value(), cas, expires_at: meta.expires_at });
            Some(changed.field(bytes.len()))
        })?;
        Ok(counted.filter(|_| modified == Modified::InPlace))
    }
}

impl Txn<'_> {
    /// The item at `key` in the store, without this transaction's pending writes.
    ///
    /// # Errors
    /// `WrongType` for a value that is not a string.
    pub fn item(&mut self, db: u8, key: &[u8]) -> Result<Option<Item<'_>>> {
        let Some(at) = self.entry(db, key) else { return Ok(None) };
        let Self { worker, now, .. } = self;
        let Worker { keyspace, writer, scratch, .. } = &mut **worker;
        debug_assert!(
            matches!(scratch.entries[at].write, Write::None),
            "an item is read before it is written"
        );
        let Some(value) = stored(keyspace, writer, scratch, at, *now)? else { return Ok(None) };
        Item::of(value, key.len())?.whole(key, Reads(&*writer)).map(Some)
    }

    /// Makes an item of these parts the value of `key`. With a time that has passed the key is absent from then on.
    pub fn put_item(
        &mut self,
        db: u8,
        key: &[u8],
        head: &ItemHead,
        data: &[&[u8]],
        expires_at: Option<u64>,
    ) -> Result<()> {
        let at = self.entry(db, key).ok_or(Error::KeyTooLong)?;
        let scratch = &mut self.worker.scratch;
        let meta = Meta { tag: TAG, expires_at, ..Meta::default() };
        let mut bytes = Vec::with_capacity(16 + data.iter().map(|part| part.len()).sum::<usize>());
        head.encode(&mut bytes);
        data.iter().for_each(|part| bytes.extend_from_slice(part));
        scratch.write(at, Write::Put(Payload::Own(bytes), meta), self.now);
        Ok(())
    }

    /// Makes a counter the value of `key`, whose text takes `width` bytes at least. Its head has the first of [`CAS_RUN`](super::CAS_RUN)
    /// CAS numbers, [`CAS_STEP`](super::CAS_STEP) apart, that are its own.
    pub fn put_counter(
        &mut self,
        db: u8,
        key: &[u8],
        head: ItemHead,
        value: u64,
        width: usize,
        expires_at: Option<u64>,
    ) -> Result<()> {
        let Some(counter) = Counter::new(head, value, width) else {
            // A number with more digits than are counted in place.
            let mut text = value.to_string().into_bytes();
            text.resize(text.len().max(width), b' ');
            return self.put_item(db, key, &head, &[&text], expires_at);
        };
        let at = self.entry(db, key).ok_or(Error::KeyTooLong)?;
        let meta = Meta { tag: counter::TAG, expires_at, updatable: true, ..Meta::default() };
        let bytes = Payload::Own(counter.bytes(key.len()));
        self.worker.scratch.write(at, Write::Put(bytes, meta), self.now);
        Ok(())
    }
}
