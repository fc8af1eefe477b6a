//! The operations of memcached's commands on items, for all protocols.
//!
//! A command uses one key, or repeats the same for each of several. It reads without locks, or locks its key, reads,
//! and writes. Its writes are durable when the turn is finished.

use super::clock::{Deadline, Now, deadline_of, millis_of};
use super::counters::{Count, Counters};
use super::number;
use super::numbering::Numbering;
use super::shared::{FLUSH_AT, Shared};
use duramen_structures::{CAS_RUN, CountedItem, Error, Item, ItemHead, Locks, Result, Room, Txn, Worker};

/// Longest key.
pub const KEY_BYTES_MAX: usize = 250;

// memcached 1.6.18's overhead of an item besides key, data and flags: its header, the CAS number, a zero after the key
// and a line end after the data.
const ITEM_BYTES: u64 = 48 + 8 + 1 + 2;
const FLAGS_BYTES: u64 = 4;

/// Items as one worker has them, for one request.
pub struct Items<'a> {
    /// Reads and writes keys.
    pub worker: &'a mut Worker,
    /// The state that all workers share.
    pub shared: &'a Shared,
    /// The worker's.
    pub counters: &'a Counters,
    /// The worker's.
    pub numbering: &'a mut Numbering,
    /// The time of the turn.
    pub now: Now,
    /// Bytes of the largest item, as memcached counts them.
    pub bytes_max: u64,
}

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In any case.
    Set,
    /// Where nothing is.
    Add,
    /// Where something is.
    Replace,
    /// After the existing data.
    Append,
    /// Before the existing data.
    Prepend,
    /// If the existing item has this CAS number.
    Cas,
}

/// A store request.
#[derive(Clone, Copy, Debug)]
pub struct Put<'a> {
    /// How.
    pub mode: Mode,
    /// Under which key.
    pub key: &'a [u8],
    /// The client's flags.
    pub flags: u32,
    /// Until when.
    pub deadline: Deadline,
    /// The data.
    pub data: &'a [u8],
    /// The required CAS number; 0: none.
    pub cas: u64,
    /// With an older CAS number it is stored too, as stale.
    pub takes_stale: bool,
    /// The key came in base64.
    pub binary_key: bool,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, with this CAS number.
    Stored(u64),
    /// The item has another CAS number.
    Exists,
    /// Nothing is there.
    NotFound,
    /// The condition does not hold.
    NotStored,
}

/// The outcome for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It is this now.
    Done {
        /// The number.
        value: u64,
        /// The item's CAS number.
        cas: u64,
        /// Until when the item would have lived; of a new one `None`.
        before: Deadline,
        /// Nothing was there.
        is_new: bool,
    },
    /// The existing value is not a number.
    NotNumeric,
    /// Nothing is there.
    NotFound,
    /// The item has another CAS number.
    Exists,
}

/// The outcome of [`Items::delete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone, or stale.
    Done,
    /// Nothing is there.
    NotFound,
    /// The item has another CAS number.
    Exists,
}

/// How a counter changes.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// Up, or down to 0.
    pub up: bool,
    /// By how much.
    pub by: u64,
    /// The required CAS number; 0: none.
    pub cas: u64,
    /// The value and the deadline of a missing counter.
    pub initial: Option<(u64, Deadline)>,
    /// Until when it lives from now on.
    pub deadline: Option<Deadline>,
}

impl Delta {
    /// The new value of a counter with this value.
    fn of(&self, value: u64) -> u64 {
        if self.up { value.wrapping_add(self.by) } else { value.saturating_sub(self.by) }
    }
}

impl Items<'_> {
    /// The bytes that memcached would need for an item.
    pub fn bytes_of(key_bytes: usize, flags: u32, data_bytes: u64) -> u64 {
        let flags_bytes = if flags == 0 { 0 } else { FLAGS_BYTES };
        ITEM_BYTES + flags_bytes + key_bytes as u64 + data_bytes
    }

    /// Whether an item is not too large.
    pub fn fits(&self, key: &[u8], flags: u32, data_bytes: u64) -> bool {
        Self::bytes_of(key.len(), flags, data_bytes) <= self.bytes_max
    }

    /// The item at `key`, as it is stored. A value that is not a string is no item.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Result<Option<Item<'_>>> {
        match self.worker.item(self.now.millis, self.shared.db, key) {
            Err(Error::WrongType) => Ok(None),
            found => found,
        }
    }

    /// Counts a fetch, and marks its item.
    #[inline]
    pub fn fetched(&self, key: &[u8], is_hit: bool) {
        self.counters.add(Count::CmdGet);
        self.counters.add(if is_hit { Count::GetHits } else { Count::GetMisses });
        if is_hit {
            self.shared.last_used.fetch(key, self.now.seconds);
        }
    }

    /// Hints that these keys are read next.
    pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.worker.prefetch(self.shared.db, keys);
    }

    /// The next CAS number.
    pub fn number(&mut self, before: Option<u64>) -> Result<u64> {
        next_number(self.numbering, self.shared, before)
    }

    /// Stores an item, if it may be.
    pub fn store(&mut self, put: Put<'_>) -> Result<Outcome> {
        self.counters.add(Count::CmdSet);
        let outcome = match put.mode {
            Mode::Set if put.cas == 0 => self.set(put)?,
            _ => self.store_if(put)?,
        };
        if let Outcome::Stored(_) = outcome {
            self.counters.add(Count::TotalItems);
            self.shared.last_used.store(put.key, self.now.seconds);
        }
        Ok(outcome)
    }

    fn set(&mut self, put: Put<'_>) -> Result<Outcome> {
        let cas = self.number(None)?;
        let head = ItemHead { flags: put.flags, cas, binary_key: put.binary_key, ..ItemHead::default() };
        let expires_at = millis_of(put.deadline);
        self.worker.set_item(self.now.millis, self.shared.db, put.key, &head, put.data, expires_at)?;
        Ok(Outcome::Stored(cas))
    }

    fn store_if(&mut self, put: Put<'_>) -> Result<Outcome> {
        let Self { worker, shared, counters, numbering, now, bytes_max } = self;
        let db = shared.db;
        let joins = matches!(put.mode, Mode::Append | Mode::Prepend);
        let (outcome, count) = worker.run(now.millis, Locks::One(put.key), |txn| {
            let mut head = ItemHead { flags: put.flags, binary_key: put.binary_key, ..ItemHead::default() };
            let mut deadline = put.deadline;
            let mut joined = None;
            let mut count = None;
            let mut before = None;
            match (look(txn, db, put.key, |item| joins.then(|| item.to_vec()))?, put.mode) {
                (Old::Absent, Mode::Set | Mode::Add) | (Old::Other, Mode::Set | Mode::Replace) => {}
                (Old::Absent, Mode::Cas) => return Ok((Outcome::NotFound, Some(Count::CasMisses))),
                // Of another type: it exists, and no CAS number matches it.
                (Old::Other, Mode::Cas) => return Ok((Outcome::Exists, Some(Count::CasBadval))),
                (Old::Absent | Old::Other, _) | (Old::Item { .. }, Mode::Add) => {
                    return Ok((Outcome::NotStored, None));
                }
                (Old::Item { number, .. }, Mode::Set | Mode::Replace) => before = number,
                (Old::Item { head: old, number, .. }, Mode::Cas) if put.cas != 0 && put.cas == old.cas => {
                    before = number;
                    count = Some(Count::CasHits);
                }
                (Old::Item { head: old, number, deadline: until, .. }, Mode::Cas)
                    if put.cas != 0 && put.takes_stale && put.cas < old.cas =>
                {
                    before = number;
                    count = Some(Count::CasHits);
                    deadline = until;
                    head.stale = true;
                    head.won = old.won;
                }
                (Old::Item { .. }, Mode::Cas) => return Ok((Outcome::Exists, Some(Count::CasBadval))),
                (
                    Old::Item { head: old, number, deadline: until, taken, .. },
                    Mode::Append | Mode::Prepend,
                ) => {
                    if put.cas != 0 && put.cas != old.cas {
                        return Ok((Outcome::Exists, None));
                    }
                    let mut bytes = taken.unwrap_or_default();
                    let all = (bytes.len() + put.data.len()) as u64;
                    if Items::bytes_of(put.key.len(), old.flags, all) > *bytes_max {
                        return Ok((Outcome::NotStored, None));
                    }
                    before = number;
                    deadline = until;
                    head = ItemHead { flags: old.flags, ..ItemHead::default() };
                    let at = if put.mode == Mode::Append { bytes.len() } else { 0 };
                    bytes.splice(at..at, put.data.iter().copied());
                    joined = Some(bytes);
                }
            }
            head.cas = next_number(numbering, shared, before)?;
            let data = joined.as_deref().unwrap_or(put.data);
            txn.put_item(db, put.key, &head, &[data], millis_of(deadline))?;
            Ok::<_, Error>((Outcome::Stored(head.cas), count))
        })?;
        count.into_iter().for_each(|count| counters.add(count));
        Ok(outcome)
    }

    /// Gives an item another deadline; whether it is there.
    pub fn touch(&mut self, key: &[u8], deadline: Deadline) -> Result<bool> {
        let Self { worker, shared, counters, now, .. } = self;
        let db = shared.db;
        let is_there = worker.run(now.millis, Locks::One(key), |txn| {
            let Old::Item { deadline: before, .. } = look(txn, db, key, |_| ())? else { return Ok(false) };
            // An unchanged value costs no write.
            if before != deadline {
                txn.set_room(Room::Change);
                txn.set_expiry(db, key, millis_of(deadline))?;
            }
            Ok::<_, Error>(true)
        })?;
        counters.add(Count::CmdTouch);
        counters.add(if is_there { Count::TouchHits } else { Count::TouchMisses });
        if is_there {
            shared.last_used.fetch(key, now.seconds);
        }
        Ok(is_there)
    }

    /// Deletes an item, or with `stale` marks it as out of date, and gives it that deadline, if there is one.
    pub fn delete(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        stale: Option<Option<Deadline>>,
    ) -> Result<Deleted> {
        let Self { worker, shared, counters, numbering, now, .. } = self;
        let db = shared.db;
        let deleted = worker.run(now.millis, Locks::One(key), |txn| {
            match (look(txn, db, key, |item| stale.map(|_| item.to_vec()))?, stale) {
                (Old::Absent, _) => return Ok(Deleted::NotFound),
                (Old::Other, Some(_)) => return Ok(Deleted::Exists),
                (Old::Other, None) if cas.is_some() => return Ok(Deleted::Exists),
                (Old::Item { head, .. }, _) if cas.is_some_and(|cas| cas != head.cas) => {
                    return Ok(Deleted::Exists);
                }
                (Old::Other | Old::Item { .. }, None) => drop(txn.delete(db, key)?),
                (Old::Item { head, number, deadline, taken, .. }, Some(asked)) => {
                    let cas = next_number(numbering, shared, number)?;
                    let head = ItemHead { cas, stale: true, won: false, ..head };
                    let data = taken.unwrap_or_default();
                    txn.set_room(Room::Change);
                    txn.put_item(db, key, &head, &[&data], millis_of(asked.unwrap_or(deadline)))?;
                }
            }
            Ok::<_, Error>(Deleted::Done)
        })?;
        match deleted {
            Deleted::Done if stale.is_none() => counters.add(Count::DeleteHits),
            Deleted::Done => {}
            Deleted::NotFound | Deleted::Exists => counters.add(Count::DeleteMisses),
        }
        Ok(deleted)
    }

    /// Counts up or down.
    pub fn count(&mut self, key: &[u8], delta: Delta) -> Result<Counted> {
        let Self { worker, shared, counters, numbering, now, bytes_max } = self;
        let db = shared.db;
        if delta.deadline.is_none() {
            let may_have = |cas| delta.cas == 0 || delta.cas == cas;
            let counted =
                worker.count_item_at_once(now.millis, db, key, may_have, |value| delta.of(value))?;
            if let Some(CountedItem { value, cas, expires_at }) = counted {
                counters.add(if delta.up { Count::IncrHits } else { Count::DecrHits });
                return Ok(Counted::Done { value, cas, before: deadline_of(expires_at), is_new: false });
            }
        }
        // A value that memcached keeps in chunks is not a number to it.
        let pieces_from = *bytes_max / 2;
        let counted = worker.run(now.millis, Locks::One(key), |txn| {
            let numeric = |item: &Item<'_>| {
                let bytes = Items::bytes_of(key.len(), item.head.flags, item.len() as u64);
                if bytes > pieces_from { None } else { number::unsigned(item) }
            };
            let (old, number, width, until, value) = match look(txn, db, key, numeric)? {
                Old::Absent => {
                    let Some((value, deadline)) = delta.initial else { return Ok(Counted::NotFound) };
                    let cas = next_run(numbering, shared, None)?;
                    let head = ItemHead { cas, ..ItemHead::default() };
                    txn.put_counter(db, key, head, value, 0, millis_of(deadline))?;
                    return Ok(Counted::Done { value, cas, before: None, is_new: true });
                }
                Old::Other | Old::Item { bytes: 0, .. } => return Ok(Counted::NotNumeric),
                Old::Item { head, .. } if delta.cas != 0 && delta.cas != head.cas => {
                    return Ok(Counted::Exists);
                }
                Old::Item { taken: None, .. } => return Ok(Counted::NotNumeric),
                Old::Item { head, number, deadline, bytes, taken: Some(value) } => {
                    (head, number, bytes, deadline, value)
                }
            };
            let value = delta.of(value);
            let cas = next_run(numbering, shared, number)?;
            let deadline = delta.deadline.unwrap_or(until);
            // In place all stays as it is; a number that has become longer is a new item.
            let head = match decimal_digits(value) <= width {
                true => ItemHead { cas, ..old },
                false => ItemHead { cas, flags: old.flags, ..ItemHead::default() },
            };
            // Padded with blanks to its old length, as memcached does when it changes it in place.
            txn.put_counter(db, key, head, value, width, millis_of(deadline))?;
            Ok::<_, Error>(Counted::Done { value, cas, before: until, is_new: false })
        })?;
        match (&counted, delta.up) {
            (Counted::Done { is_new: true, .. }, _) => {
                counters.add(Count::TotalItems);
                shared.last_used.store(key, now.seconds);
            }
            (Counted::Done { .. }, true) => counters.add(Count::IncrHits),
            (Counted::Done { .. }, false) => counters.add(Count::DecrHits),
            (Counted::NotFound, true) => counters.add(Count::IncrMisses),
            (Counted::NotFound, false) => counters.add(Count::DecrMisses),
            (Counted::NotNumeric | Counted::Exists, _) => {}
        }
        Ok(counted)
    }

    /// Empties the table of items, now or at this time; an earlier request no longer counts.
    pub fn flush(&mut self, at: Option<u64>) -> Result<()> {
        self.counters.add(Count::CmdFlush);
        let state = self.worker.keyspace().state();
        let was_to_come = self.shared.flushes_at().is_some();
        if at.is_none() {
            self.worker.flush(self.shared.db)?;
        }
        if at.is_some() || was_to_come {
            self.worker.run(self.now.millis, Locks::One(FLUSH_AT), |txn| match at {
                Some(at) => {
                    txn.set_room(Room::Change);
                    txn.put(state, FLUSH_AT, &at.to_le_bytes())
                }
                None => txn.delete(state, FLUSH_AT).map(drop),
            })?;
        }
        self.shared.flush_at(at);
        Ok(())
    }
}

/// Empties the table of items whose time has come.
///
/// # Errors
/// Those of the store; then it is still to be done.
pub fn flush_due(worker: &mut Worker, shared: &Shared, now: Now) -> Result<()> {
    let state = worker.keyspace().state();
    // In this order: a crash in between does it again, when nothing was stored since.
    worker.flush(shared.db)?;
    worker.run(now.millis, Locks::One(FLUSH_AT), |txn| txn.delete(state, FLUSH_AT).map(drop))
}

/// The state of a key, as far as a command that changes it needs it.
pub enum Old<T> {
    /// Nothing.
    Absent,
    /// No string.
    Other,
    /// An item.
    Item {
        /// Its head.
        head: ItemHead,
        /// Its CAS number, if it can be compared with ours.
        number: Option<u64>,
        /// Until when it lives.
        deadline: Deadline,
        /// Bytes of its data.
        bytes: usize,
        /// The result of `take`.
        taken: T,
    },
}

/// Looks at a key, which is locked.
///
/// # Errors
/// Those of the store.
pub fn look<T>(txn: &mut Txn<'_>, db: u8, key: &[u8], take: impl FnOnce(&Item<'_>) -> T) -> Result<Old<T>> {
    match txn.item(db, key) {
        Err(Error::WrongType) => Ok(Old::Other),
        Err(error) => Err(error),
        Ok(None) => Ok(Old::Absent),
        Ok(Some(item)) => Ok(Old::Item {
            head: item.head,
            number: item.is_numbered().then_some(item.head.cas),
            deadline: deadline_of(item.expires_at()),
            bytes: item.len(),
            taken: take(&item),
        }),
    }
}

/// The next number of a worker.
pub fn next_number(numbering: &mut Numbering, shared: &Shared, before: Option<u64>) -> Result<u64> {
    numbering.next(&shared.numbers, before).ok_or(Error::Overflow)
}

/// The first of the numbers that a counter takes.
fn next_run(numbering: &mut Numbering, shared: &Shared, before: Option<u64>) -> Result<u64> {
    numbering.next_run(&shared.numbers, before, CAS_RUN).ok_or(Error::Overflow)
}

fn decimal_digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}
