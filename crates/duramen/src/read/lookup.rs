//! Reading: no lock, no wait for growth or compaction.
//!
//! A reader pins the current state of reclamation, finds a slot, and reads the record it leads to. Four things
//! can stand between the slot and an answer (promise P7, nothing is shown that a crash could undo):
//!
//! * the slot is *pending* because its writer is in a group and has not drained yet: the reader
//!   flushes the record itself, from where its block is settled, and drains;
//! * the slot is pending because a batch is being published: the reader waits until all of it is
//!   (a few stores, no medium);
//! * an updatable value may just be under an update in place: the reader flushes it while a writer holds the key's lock;
//! * the record's epoch is not committed and writes are to be durable one by one: the reader waits
//!   for the commit, or notes the epoch when it reads within a group. Not when the record is a copy that compaction
//!   made of a committed one.

use super::Records;
use super::few::List;
use crate::format::Epoch;
use crate::format::record::{HEADER_BYTES, Head};
use crate::format::u64_at;
use crate::index::Slot;
use crate::log::read;
use crate::mutants::{Mutant, planted};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::Acquire;
use crate::sync::reclaim::{self, Guard, Hold};
use crate::{Error, ErrorKind, Result};
use duramen_media::{Medium, Offset};
use std::cell::Cell;

/// Position in a scan; 0 begins, and a returned 0 means the end.
pub type Cursor = u64;

/// What a key's state was when it was read. It changes whenever the key is written or deleted; an
/// absent key has one too, so that "was absent and still is" can be demanded. Seldom it changes although nothing happened to
/// the key, when what is left of a deleted one is cleared away; a condition then fails in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// Of a key that has no slot, when so many of its stripe were forgotten.
    pub(crate) fn absent(forgotten: u64) -> Self {
        // No version has this bit, and no cell's stamp is without the highest.
        Self(forgotten & !(3 << 62) | 1 << 62)
    }
}

/// What goes with a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The caller's; kept as is.
    pub tag: u8,
    /// When the value expires, in Unix milliseconds; from then on the key is absent.
    pub expires_at: Option<u64>,
    /// Whether [`Writer::update`](crate::Writer::update) may change the value in place. It is then read
    /// by copy, of any length as it was at one moment, and after the first update its checksum no longer covers it. Without this an
    /// update writes a new version of the whole value, which stays as it was put.
    pub updatable: bool,
}

impl Meta {
    /// Of a value that may be changed in place, and nothing else.
    pub const UPDATABLE: Self = Self { tag: 0, expires_at: None, updatable: true };
}

/// A value read from the store, usually without a copy. While it lives, the block that it lies in is not reused, though all
/// else that is in the block may be dead; nothing else is held back, neither in its store nor in another. It may be sent to
/// another thread.
pub struct Value<'a> {
    /// Keeps what `record` points to.
    _hold: Hold,
    record: Record<'a>,
    /// Of a cell, whose value may change in place.
    copy: Option<CellCopy>,
}

/// A cell's value at one moment; a small one needs no memory of its own.
pub(crate) enum CellCopy {
    Short { bytes: [u8; CELL_SHORT_BYTES], len: u8 },
    Long(Vec<u8>),
}

/// Buckets that a scan may look at, however few entries are asked for: those of the smallest index, which takes some microseconds.
const SCAN_BUCKETS_MIN: usize = 512;
/// Places of the index that are drawn for [`StoreOn::pick`](crate::StoreOn::pick) at most: in the smallest index, enough to meet one of ten keys ...
const DRAWS_MAX: u32 = 4096;
/// ... and entries that are not wanted ...
const UNWANTED_MAX: u32 = 64;
/// ... and buckets or leaves that are walked over where nothing was met.
const WALKED_MAX: u32 = 1 << 16;
/// Records that a scan fetches together.
pub(crate) const SCAN_AHEAD: usize = 32;
/// A number with what aligns it. More would make every [`Value`] longer, which all reads pay for.
const CELL_SHORT_BYTES: usize = 15;
const _: () = assert!(size_of::<Option<CellCopy>>() == size_of::<Vec<u8>>());

impl CellCopy {
    fn new(len: usize) -> Self {
        if len <= CELL_SHORT_BYTES {
            Self::Short { bytes: [0; CELL_SHORT_BYTES], len: len as u8 }
        } else {
            Self::Long(vec![0; len])
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Short { bytes, len } => &mut bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for CellCopy {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { bytes, len } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl<'a> Value<'a> {
    /// Of a record that `guard` keeps.
    #[inline]
    fn new(guard: &Guard, record: Record<'a>, copy: Option<CellCopy>) -> Self {
        Self { _hold: guard.hold(record.bytes.as_ptr()), record, copy }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.record.key()
    }

    /// The value.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.copy {
            None => self.record.value(),
            Some(copy) => copy,
        }
    }

    /// The tag it was put with.
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.record.head.tag()
    }

    /// When it expires, in Unix milliseconds.
    #[must_use]
    pub fn expires_at(&self) -> Option<u64> {
        self.record.expires_at()
    }

    /// All that goes with it.
    #[must_use]
    pub fn meta(&self) -> Meta {
        self.record.meta()
    }

    /// The key's state, for conditional writes.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.record.stamp(self.copy.as_deref())
    }

    /// Bytes that the record takes on the medium.
    #[must_use]
    pub fn footprint(&self) -> u64 {
        self.record.head.record_bytes()
    }
}

impl std::ops::Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes()
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Value")
            .field("key", &self.key())
            .field("bytes", &self.bytes().len())
            .finish_non_exhaustive()
    }
}

/// A record that an index slot led to.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub at: Offset,
    pub head: Head,
    bytes: &'a [u8],
}

impl<'a> Record<'a> {
    #[inline]
    pub(crate) fn key(&self) -> &'a [u8] {
        let from = self.head.key_at() as usize;
        &self.bytes[from..from + self.head.key_bytes() as usize]
    }

    /// The value of a record that is not a cell: nobody stores to it.
    #[inline]
    pub(crate) fn value(&self) -> &'a [u8] {
        let from = self.head.value_at() as usize;
        &self.bytes[from..from + self.head.value_bytes() as usize]
    }

    pub(crate) fn value_offset(&self) -> Offset {
        self.at.plus(self.head.value_at())
    }

    #[inline]
    pub(crate) fn expires_at(&self) -> Option<u64> {
        self.head.expires().then(|| u64_at(self.bytes, HEADER_BYTES as usize))
    }

    pub(crate) fn meta(&self) -> Meta {
        Meta { tag: self.head.tag(), expires_at: self.expires_at(), updatable: self.head.is_updatable() }
    }

    /// What a conditional write compares: the version or, where the value changes in place, its content.
    pub(crate) fn stamp(&self, cell: Option<&[u8]>) -> Stamp {
        let Some(cell) = cell else { return Stamp(self.head.version().0) };
        // Not the version: compaction gives a cell that it moves the next one. The highest bit keeps
        // it apart from every version.
        let meta = u64::from(self.head.tag()) ^ self.expires_at().unwrap_or(0) << 8;
        Stamp((rapidhash::v3::rapidhash_v3(cell) ^ meta) | 1 << 63)
    }
}

/// What is there for a key.
pub(crate) enum Looked<V> {
    /// No value, and the key's state.
    Absent(Stamp),
    Present(V),
}

impl<V> Looked<V> {
    #[inline]
    pub(crate) fn value(self) -> Option<V> {
        match self {
            Self::Absent(_) => None,
            Self::Present(value) => Some(value),
        }
    }
}

/// What a reader within a group owes before its results may be shown.
#[derive(Default)]
pub(crate) struct Owed {
    /// The newest epoch read.
    pub epoch: Cell<u64>,
}

/// Compares keys; those of usual size without a call.
#[inline]
pub(crate) fn is_same(a: &[u8], b: &[u8]) -> bool {
    let n = a.len();
    let at = |at: usize| u64_at(a, at) ^ u64_at(b, at);
    match n {
        8..=16 if n == b.len() => at(0) | at(n - 8) == 0,
        17..=32 if n == b.len() => at(0) | at(8) | at(n - 16) | at(n - 8) == 0,
        _ => a == b,
    }
}

impl<M: Medium> Records<M> {
    /// The record at a location that a slot gave, under the guard that the slot was read under.
    #[inline(always)]
    pub(crate) fn record(&self, at: Offset) -> Record<'_> {
        let (head, bytes) = read::record(&self.log.medium, at);
        Record { at, head, bytes }
    }

    /// The record that the slot leads to, if it is of this key.
    #[inline(always)]
    pub(crate) fn record_of(&self, slot: Slot, key: &[u8]) -> Option<Record<'_>> {
        self.record_or(slot, key, &mut Offset(0))
    }

    #[inline]
    pub(crate) fn is_key_at(&self, slot: Slot, key: &[u8]) -> bool {
        self.record_of(slot, key).is_some()
    }

    /// What a conditional write compares, of a key of `hash` whose slot led to `record`, or that has none.
    pub(crate) fn stamp_of(&self, record: Option<&Record<'_>>, hash: u64) -> Stamp {
        record.map_or_else(|| self.forgotten.stamp(hash), |record| self.stamp(hash, record))
    }

    /// The same, of a key that has a slot.
    fn stamp(&self, hash: u64, record: &Record<'_>) -> Stamp {
        record.stamp(self.copied(hash, record).as_deref())
    }

    /// The same, for who holds the key's lock.
    pub(crate) fn stamp_locked(&self, record: &Record<'_>) -> Stamp {
        record.stamp(record.head.is_cell().then(|| self.cell_locked(record)).as_deref())
    }

    /// A copy of the value of a cell of a key of `hash`, as it was at one moment.
    fn cell(&self, hash: u64, record: &Record<'_>) -> CellCopy {
        let mut copy = CellCopy::new(record.head.value_bytes() as usize);
        self.copy_cell(hash, record, copy.bytes_mut());
        copy
    }

    /// The same into `into`, which is as long as the cell's value.
    fn copy_cell(&self, hash: u64, record: &Record<'_>, into: &mut [u8]) {
        let from = record.value_offset();
        if from.0 % 8 + into.len() as u64 <= 8 {
            // One load.
            self.log.medium.load_pieces(from, into);
        } else {
            self.index.read_cell(hash, || self.log.medium.load_pieces(from, into));
        }
    }

    /// The same, for who holds the lock of the key: then nobody stores to it.
    #[inline]
    pub(crate) fn cell_locked(&self, record: &Record<'_>) -> CellCopy {
        let mut copy = CellCopy::new(record.head.value_bytes() as usize);
        self.log.medium.load_pieces(record.value_offset(), copy.bytes_mut());
        copy
    }

    /// Makes what was copied of a cell durable, if it may be of an update that is not: whoever updates holds the key's lock
    /// from before the store until it is durable. Or it was killed between: see [`Records::cells_unflushed`].
    #[inline]
    fn settle_cell(&self, hash: u64, record: &Record<'_>, drain: bool) {
        if self.log.shows_before_durable()
            && !planted(Mutant::CellNotLookedAtAgain)
            // Acquire: pairs with the Release in `verify`.
            && (self.cells_unflushed.load(Acquire) || self.index.is_locked(hash))
        {
            // The rest of the record was durable before a slot that is not pending led to it.
            self.log.medium.flush(record.value_offset(), record.head.value_bytes());
            if drain {
                self.log.medium.drain();
            }
        }
    }

    /// Whether what expires then has expired now.
    #[inline]
    pub(crate) fn is_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| {
            let expired = at <= self.log.clock().now() && !planted(Mutant::ExpiredShown);
            if expired {
                self.log.clock().reached(at);
            }
            expired
        })
    }

    /// Whether nothing stands between the record and an answer.
    #[inline]
    fn is_plain(&self, slot: Slot, record: &Record<'_>) -> bool {
        slot.is_settled_value() && record.head.is_plain_value() && !self.log.epochs().in_use()
    }

    /// Copies the value of `key` behind `into`; whether there is one.
    #[inline]
    pub(crate) fn get_into(&self, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let guard = reclaim::pin();
        let hash = self.hasher.hash(key);
        // Short, so that meanwhile the CPU goes on to the cache misses of the next lookup.
        if let Some(value) = self.likeliest(key, hash, &guard) {
            into.extend_from_slice(value);
            return Ok(true);
        }
        self.get_into_otherwise(key, hash, &guard, into)
    }

    /// The value of `key`, if it is where it is most likely, and nothing stands between it and an answer.
    #[inline(always)]
    fn likeliest(&self, key: &[u8], hash: u64, guard: &Guard) -> Option<&[u8]> {
        if !self.index.candidates_are_current() || self.has_doubts() {
            return None;
        }
        let slot = self.index.candidate(hash, || key, guard)?;
        self.log.fetch_ahead(slot.location());
        if !slot.is_settled_value() || self.log.epochs().in_use() {
            return None;
        }
        let (its, value) = read::plain_value(&self.log.medium, slot.location(), key.len())?;
        is_same(its, key).then_some(value)
    }

    /// The rest of `get_into`.
    #[inline(never)]
    fn get_into_otherwise(&self, key: &[u8], hash: u64, guard: &Guard, into: &mut Vec<u8>) -> Result<bool> {
        let mut damaged = Offset(0);
        let found = self.index.find_with(hash, key, guard, |slot| {
            self.log.fetch_ahead(slot.location());
            self.record_or(slot, key, &mut damaged)
        });
        let Some((slot, record)) = found else { return self.told(damaged).map(|()| false) };
        if self.is_plain(slot, &record) {
            into.extend_from_slice(record.value());
            return Ok(true);
        }
        let copied = self.settle_found(key, hash, guard, None, (slot, record), |record| {
            if record.head.is_cell() {
                let from = into.len();
                into.resize(from + record.head.value_bytes() as usize, 0);
                self.copy_cell(hash, record, &mut into[from..]);
            } else {
                into.extend_from_slice(record.value());
            }
        })?;
        Ok(copied.value().is_some())
    }

    #[inline]
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        let guard = reclaim::pin();
        let hash = self.hasher.hash(key);
        Ok(self.look_up(key, hash, &guard, None)?.value())
    }

    /// What is there for a key; `owed` when the caller is in a group.
    #[inline]
    pub(crate) fn look_up(
        &self,
        key: &[u8],
        hash: u64,
        guard: &Guard,
        owed: Option<&Owed>,
    ) -> Result<Looked<Value<'_>>> {
        let mut damaged = Offset(0);
        let found = self.index.find_with(hash, key, guard, |slot| {
            self.log.fetch_ahead(slot.location());
            self.record_or(slot, key, &mut damaged)
        });
        let Some(found) = found else {
            self.told(damaged)?;
            return Ok(Looked::Absent(self.stamp_of(None, hash)));
        };
        self.look_at(key, hash, guard, owed, found)
    }

    /// The same, when it is known where the key was found.
    #[inline]
    fn look_at<'a>(
        &'a self,
        key: &[u8],
        hash: u64,
        guard: &Guard,
        owed: Option<&Owed>,
        (slot, record): (Slot, Record<'a>),
    ) -> Result<Looked<Value<'a>>> {
        if self.is_plain(slot, &record) {
            return Ok(Looked::Present(Value::new(guard, record, None)));
        }
        Ok(
            match self
                .settle_found(key, hash, guard, owed, (slot, record), |record| self.copied(hash, record))?
            {
                Looked::Absent(stamp) => Looked::Absent(stamp),
                Looked::Present((record, copy)) => Looked::Present(Value::new(guard, record, copy)),
            },
        )
    }

    /// Goes on with what a lookup found, until nothing stands between it and an answer; `take` copies what it needs of the record.
    /// Apart, so that the code of nearly all lookups is short.
    #[inline(never)]
    fn settle_found<'a, T>(
        &'a self,
        key: &[u8],
        hash: u64,
        guard: &Guard,
        owed: Option<&Owed>,
        mut found: (Slot, Record<'a>),
        mut take: impl FnMut(&Record<'a>) -> T,
    ) -> Result<Looked<(Record<'a>, T)>> {
        let mut backoff = Backoff::default();
        loop {
            let (slot, record) = found;
            if slot.is_pending() {
                if record.head.is_member() {
                    backoff.wait();
                    let again = self.index.find_with(hash, key, guard, |slot| self.record_of(slot, key));
                    let Some(again) = again else { return Ok(Looked::Absent(self.stamp_of(None, hash))) };
                    found = again;
                    continue;
                }
                self.help(&record, owed.is_none());
            }
            self.owe(self.epoch_of(&record), owed)?;
            if slot.is_tombstone() || self.is_expired(record.expires_at()) {
                return Ok(Looked::Absent(self.stamp(hash, &record)));
            }
            let taken = take(&record);
            if record.head.is_cell() {
                self.settle_cell(hash, &record, owed.is_none());
            }
            return Ok(Looked::Present((record, taken)));
        }
    }

    /// The value of a record that is a cell.
    #[inline]
    fn copied(&self, hash: u64, record: &Record<'_>) -> Option<CellCopy> {
        record.head.is_cell().then(|| self.cell(hash, record))
    }

    /// Makes a record durable that its writer has not drained yet.
    ///
    /// Recovery reads a block from its beginning, so everything between what is settled and the end of this record
    /// must be durable with it. A caller in a group drains when it settles.
    #[cold]
    pub(crate) fn help(&self, record: &Record<'_>, drain: bool) {
        if planted(Mutant::UndurableShown) {
            return;
        }
        let unit = self.log.blocks.unit_of(record.at.0);
        let from = self.log.blocks.offset(unit) + self.log.blocks.at(unit).settled();
        let to = record.at.0 + record.head.record_bytes();
        if from < to {
            self.log.medium.flush(Offset(from), to - from);
        }
        // A cell may lie below what is settled.
        self.log.medium.flush(record.at, record.head.record_bytes());
        if drain {
            self.log.medium.drain();
        }
    }

    /// The epoch that must be durable before the record is shown. None (0) for a copy by the compactor of a committed record:
    /// until the copy is committed too, what a crash leaves is the original (`background::compact`, invariant 4).
    #[inline]
    pub(crate) fn epoch_of(&self, record: &Record<'_>) -> Epoch {
        let epoch = record.head.epoch();
        if self.log.epochs().in_use() && epoch > self.log.epochs().committed() && self.is_copy(record.at) {
            return Epoch(0);
        }
        epoch
    }

    #[cold]
    fn is_copy(&self, at: Offset) -> bool {
        let unit = self.log.blocks.unit_of(at.0);
        self.log.blocks.at(unit).is_copy(at.0 - self.log.blocks.offset(unit))
    }

    /// Waits until `epoch` is durable, or notes it.
    #[inline]
    fn owe(&self, epoch: Epoch, owed: Option<&Owed>) -> Result<()> {
        if self.log.epochs().in_use() {
            match owed {
                Some(owed) => owed.epoch.set(owed.epoch.get().max(epoch.0)),
                None if planted(Mutant::UndurableShown) => {}
                None => self.log.wait_for(epoch)?,
            }
        }
        Ok(())
    }

    /// Fetches what lookups of all `keys` need.
    pub(crate) fn prefetch(&self, keys: &[impl AsRef<[u8]>]) {
        // Misses of more keys than this are more than a core has under way at once.
        const TOGETHER: usize = 16;
        let guard = reclaim::pin();
        for keys in keys.chunks(TOGETHER) {
            let mut hashes = [0; TOGETHER];
            self.fetch_together(keys, &mut hashes, &guard, |_, slot| self.log.fetch_key(slot.location()));
        }
    }

    pub(crate) fn get_many<'a>(&'a self, keys: &[impl AsRef<[u8]>]) -> Result<Vec<Option<Value<'a>>>> {
        /// What is fetched waits in the first cache until it is read.
        const TOGETHER: usize = 32;
        let guard = reclaim::pin();
        let current = self.index.candidates_are_current();
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(TOGETHER) {
            let (mut hashes, mut slots) = ([0; TOGETHER], [Slot::default(); TOGETHER]);
            self.fetch_together(keys, &mut hashes, &guard, |i, slot| {
                self.log.fetch_ahead(slot.location());
                if current {
                    slots[i] = slot;
                }
            });
            for ((key, &hash), &slot) in keys.iter().zip(&hashes).zip(&slots) {
                let key = key.as_ref();
                // What was fetched is nearly always what is looked for.
                let record = if slot.is_empty() { None } else { self.record_of(slot, key) };
                values.push(match record {
                    Some(record) if self.is_plain(slot, &record) => Some(Value::new(&guard, record, None)),
                    Some(record) => self.look_at(key, hash, &guard, None, (slot, record))?.value(),
                    None => self.look_up(key, hash, &guard, None)?.value(),
                });
            }
        }
        Ok(values)
    }

    /// Three passes, so that the misses of all keys overlap: their hashes and buckets, what the buckets lead to in an ordered
    /// index, then `fetch` of their likeliest slots, by the keys' numbers.
    #[inline]
    fn fetch_together(
        &self,
        keys: &[impl AsRef<[u8]>],
        hashes: &mut [u64],
        guard: &Guard,
        mut fetch: impl FnMut(usize, Slot),
    ) {
        for (key, hash) in keys.iter().zip(hashes.iter_mut()) {
            *hash = self.hasher.hash(key.as_ref());
            self.index.prefetch(*hash, guard);
        }
        let hashes = &hashes[..keys.len()];
        for &hash in hashes {
            self.index.prefetch_more(hash, guard);
        }
        for (i, (key, &hash)) in keys.iter().zip(hashes).enumerate() {
            if let Some(slot) = self.index.candidate(hash, || key.as_ref(), guard) {
                fetch(i, slot);
            }
        }
    }

    /// What a slot that a walk found leads to, if it may be shown; `owed` as in `look_up`. The guard is from before the slot
    /// was read.
    #[inline]
    pub(crate) fn show(&self, slot: Slot, guard: &Guard, owed: Option<&Owed>) -> Result<Option<Value<'_>>> {
        let Some(record) = self.whole_record(slot.location()) else {
            // That a key is absent is in the slot.
            return if slot.is_tombstone() { Ok(None) } else { Err(self.corrupt(slot.location())) };
        };
        // What is not yet settled takes the ordinary way, also what is absent: that too is an answer.
        let waits = match owed {
            None => self.log.epochs().must_wait(self.epoch_of(&record)),
            Some(_) => self.log.epochs().in_use(),
        };
        let settled = !slot.is_pending() && !waits;
        if settled && slot.is_tombstone() {
            return Ok(None);
        }
        if !settled {
            let key = record.key();
            return Ok(self.look_up(key, self.hasher.hash(key), guard, owed)?.value());
        }
        if self.is_expired(record.expires_at()) {
            return Ok(None);
        }
        if !record.head.is_cell() {
            return Ok(Some(Value::new(guard, record, None)));
        }
        let hash = self.hasher.hash(record.key());
        let copy = Some(self.cell(hash, &record));
        self.settle_cell(hash, &record, owed.is_none());
        Ok(Some(Value::new(guard, record, copy)))
    }

    /// See [`StoreOn::pick`](crate::StoreOn::pick).
    pub(crate) fn pick(
        &self,
        seed: u64,
        wanted: &mut dyn FnMut(&Value<'_>) -> bool,
    ) -> Result<Option<Value<'_>>> {
        // SplitMix64.
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        let mut unwanted = 0;
        while let Some(picked) = self.few.pick(|| self.log.epochs().came(), random()) {
            let Some((came, key)) = picked else { return Ok(None) };
            match self.get(&key) {
                Ok(Some(value)) if wanted(&value) => return Ok(Some(value)),
                Ok(None) => {
                    self.few.remove(came, &key);
                    continue;
                }
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => unwanted += 1,
            }
            if unwanted == UNWANTED_MAX {
                return Ok(None);
            }
        }
        for _ in 0..DRAWS_MAX {
            let drawn = [random(), random()];
            let shown = {
                let guard = reclaim::pin();
                let slot = self.index.draw(drawn, &guard);
                let Some(slot) = slot.filter(|slot| slot.is_pending() || !slot.is_tombstone()) else {
                    continue;
                };
                self.show(slot, &guard, None)
            };
            match shown {
                Ok(Some(value)) if wanted(&value) => return Ok(Some(value)),
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                // Whatever is damaged is nobody's choice.
                _ => {}
            }
            unwanted += 1;
            if unwanted == UNWANTED_MAX {
                break;
            }
        }
        if unwanted > 0 { Ok(None) } else { self.pick_by_walk(&mut random, wanted) }
    }

    /// The same where nearly all places of the index are empty: by a walk, of as many of them as take some milliseconds. If these are
    /// all, it leaves the keys that it met for the next pick.
    #[cold]
    fn pick_by_walk(
        &self,
        random: &mut dyn FnMut() -> u64,
        wanted: &mut dyn FnMut(&Value<'_>) -> bool,
    ) -> Result<Option<Value<'_>>> {
        let (mut cursor, mut left, mut met) = (0, WALKED_MAX, 0);
        let (mut slots, mut chosen) = (Vec::new(), None);
        let mut is_whole = true;
        let mut all = List::begin(self.log.epochs().came());
        while left > 0 {
            let visit = &mut |value: &Value<'_>| {
                all.add(value.key());
                if wanted(value) {
                    met += 1;
                    if random().is_multiple_of(met) {
                        chosen = Some(value.key().to_vec());
                    }
                }
            };
            let damaged;
            (cursor, damaged) = self.scan_together(cursor, SCAN_AHEAD, &mut slots, visit, |_| {
                left -= 1;
                left == 0
            })?;
            is_whole &= damaged.is_none();
            if cursor == 0 {
                if is_whole {
                    self.few.keep(all);
                }
                break;
            }
        }
        chosen.map_or(Ok(None), |key| self.get(&key))
    }

    pub(crate) fn scan(
        &self,
        mut cursor: Cursor,
        count: usize,
        visit: &mut dyn FnMut(&Value<'_>),
    ) -> Result<Cursor> {
        let mut visited = 0;
        let mut slots = Vec::new();
        // A scan of an almost empty index must end too: look at no more than this many buckets.
        let mut buckets = count.saturating_mul(10).max(SCAN_BUCKETS_MIN);
        loop {
            let counted = &mut |value: &Value<'_>| {
                visit(value);
                visited += 1;
            };
            let (next, damaged) =
                self.scan_together(cursor, count.min(SCAN_AHEAD), &mut slots, counted, |_| {
                    buckets -= 1;
                    buckets == 0
                })?;
            cursor = next;
            if let Some(damaged) = damaged {
                return Err(damaged.with_cursor(cursor));
            }
            if cursor == 0 || visited >= count || buckets == 0 {
                return Ok(cursor);
            }
        }
    }

    /// Visits the live entries of some buckets from `cursor` on, their records fetched together so that the misses overlap: until
    /// `count` were met, the index ends, or `ends` says so of the next cursor, which is asked of each. `slots` is room that the caller keeps.
    /// What is damaged is passed over, and the first of it told beside the cursor.
    pub(crate) fn scan_together(
        &self,
        mut cursor: Cursor,
        count: usize,
        slots: &mut Vec<Slot>,
        visit: &mut dyn FnMut(&Value<'_>),
        mut ends: impl FnMut(Cursor) -> bool,
    ) -> Result<(Cursor, Option<Error>)> {
        let guard = reclaim::pin();
        slots.clear();
        loop {
            cursor = self.index.scan(cursor, &guard, &mut |slot| {
                self.log.medium.prefetch(slot.location());
                slots.push(slot);
            });
            if ends(cursor) || cursor == 0 || slots.len() >= count {
                break;
            }
        }
        let mut damaged = None;
        let mut values = Vec::with_capacity(slots.len());
        for &slot in &*slots {
            match self.show(slot, &guard, None) {
                Ok(value) => values.extend(value),
                Err(error) if error.kind() == ErrorKind::Corrupt => damaged = damaged.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        // What the caller does with them takes as long as it likes.
        drop(guard);
        values.iter().for_each(visit);
        Ok((cursor, damaged))
    }
}
