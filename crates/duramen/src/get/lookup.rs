//! Looking up one key: without a lock, and without waiting for growth or compaction. [`crate::get::visibility`] decides
//! what may be shown.

use crate::Result;
use crate::cell::read::CellCopy;
use crate::get::barrier::ReadBarrier;
use crate::get::stamp::Stamp;
use crate::get::value::{Record, Value, ValueInfo, is_same};
use crate::get::visibility::{Standing, Visibility};
use crate::records::Records;
use crate::table::tables::{Table, Target};
use duramen_index::Slot;
use duramen_log::format::Version;
use duramen_log::read;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};

/// Versions count units of 256 ns, where there is a clock.
const VERSIONS_PER_SECOND: u64 = 1_000_000_000 >> 8;

/// The result of a lookup.
pub(crate) enum Looked<V> {
    /// No value, and the key's state.
    Absent(Stamp),
    Present(V),
}

impl<V> Looked<V> {
    #[inline(always)]
    pub(crate) fn value(self) -> Option<V> {
        match self {
            Self::Absent(_) => None,
            Self::Present(value) => Some(value),
        }
    }
}

/// A key that is looked up; `read_barrier` when the caller is in a group.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'l> {
    pub table: &'l Table,
    pub key: &'l [u8],
    pub hash: u64,
    pub guard: &'l Guard,
    pub read_barrier: Option<&'l ReadBarrier>,
}

impl<M: Medium> Records<M> {
    /// The record at a location from a slot, under the guard that the slot was read under.
    #[inline(always)]
    pub(crate) fn record(&self, at: Offset) -> Record<'_> {
        let (head, bytes) = read::record(&self.log.medium, at);
        Record { at, head, bytes }
    }

    /// The record that the slot points to, if it is of this key.
    #[inline(always)]
    pub(crate) fn record_of(&self, slot: Slot, key: &[u8]) -> Option<Record<'_>> {
        self.record_or(slot, key, &mut Offset(0))
    }

    /// Records a read of a key of `hash`, where reads are counted, and the slot found.
    #[inline(always)]
    pub(crate) fn touch(&self, table: &Table, hash: u64, found: Option<Slot>, guard: &Guard) {
        if table.label().is_some() {
            self.access.touch(hash, found.map(Slot::location), || self.seconds(), guard);
        }
    }

    /// Seconds of the clock of versions, or 0 where there is none.
    pub(crate) fn seconds(&self) -> u64 {
        self.stripes().floor(Version(0)).0 / VERSIONS_PER_SECOND
    }

    /// Seconds since a key was last written or read, as far as known; `None`: it is absent. This call does not count as
    /// a read.
    pub(crate) fn idle(&self, target: Target<'_>, key: &[u8]) -> Result<Option<u64>> {
        let guard = reclaim::pin();
        let table = self.tables.at(target, &guard)?;
        let hash = self.hasher.hash(key);
        let found = table.index.find_with(hash, key, &guard, |slot| self.record_of(slot, key));
        let is_there =
            |(slot, record): &(Slot, Record<'_>)| !slot.is_tombstone() && !self.is_expired(record.ends_at());
        let Some((_, record)) = found.filter(is_there) else { return Ok(None) };
        let written = record.head.version().0 / VERSIONS_PER_SECOND;
        // The read time has only the low bits: take the high bits from now.
        let now = self.seconds();
        let read =
            self.access.read_at(hash, &guard).map_or(0, |read| now & !(u64::from(u32::MAX) >> 8) | read);
        Ok(Some(now.saturating_sub(written.max(if read > now { 0 } else { read }))))
    }

    #[inline]
    pub(crate) fn is_key_at(&self, slot: Slot, key: &[u8]) -> bool {
        self.record_of(slot, key).is_some()
    }

    /// The stamp for conditional writes, for a key of `hash` whose slot points to `record`, or that has none in this
    /// table.
    pub(crate) fn stamp_of(&self, table: &Table, record: Option<&Record<'_>>, hash: u64) -> Stamp {
        record.map_or_else(|| self.forgotten.stamp(table.owner, hash), |record| self.stamp(hash, record))
    }

    /// The stamp of a key that has a slot.
    fn stamp(&self, hash: u64, record: &Record<'_>) -> Stamp {
        record.stamp(self.copied(hash, record).as_deref())
    }

    /// As `stamp`, for a caller that holds the key's lock.
    pub(crate) fn stamp_locked(&self, record: &Record<'_>) -> Stamp {
        record.stamp(record.cell().map(|cell| self.copy_cell_locked(cell)).as_deref())
    }

    /// Appends the value of `key` to `into`; returns whether there is one.
    #[inline]
    pub(crate) fn get_into(&self, target: Target<'_>, key: &[u8], into: &mut Vec<u8>) -> Result<bool> {
        let guard = reclaim::pin();
        let table = self.tables.at(target, &guard)?;
        let hash = self.hasher.hash(key);
        // Short, so that the CPU reaches the cache misses of the next lookup in the meantime.
        if let Some(value) = self.likeliest(table, key, hash, &guard) {
            into.extend_from_slice(value);
            return Ok(true);
        }
        self.get_into_otherwise(table, key, hash, &guard, into)
    }

    /// The value of `key`, if its slot is at the likeliest place and no special case applies. Saves 83 of the 479
    /// instructions of a get (16+200 bytes, as `bench kv get`).
    #[inline(always)]
    fn likeliest(&self, table: &Table, key: &[u8], hash: u64, guard: &Guard) -> Option<&[u8]> {
        if !table.index.candidates_are_current() || self.has_unverified() {
            return None;
        }
        let slot = table.index.candidate(hash, || key, guard)?;
        self.log.fetch_ahead(slot.location());
        if !slot.is_ready_value() || self.log.epochs().in_use() {
            return None;
        }
        let (its, value) = read::plain_value(&self.log.medium, slot.location(), key.len())?;
        let is_it = is_same(its, key);
        if is_it {
            self.touch(table, hash, Some(slot), guard);
        }
        is_it.then_some(value)
    }

    /// The rest of `get_into`.
    #[inline(never)]
    fn get_into_otherwise(
        &self,
        table: &Table,
        key: &[u8],
        hash: u64,
        guard: &Guard,
        into: &mut Vec<u8>,
    ) -> Result<bool> {
        let mut damaged = Offset(0);
        let found = table.index.find_with(hash, key, guard, |slot| {
            self.log.fetch_ahead(slot.location());
            self.record_or(slot, key, &mut damaged)
        });
        self.touch(table, hash, found.as_ref().map(|(slot, _)| *slot), guard);
        let Some((slot, record)) = found else { return self.error_if_damaged(damaged).map(|()| false) };
        if self.check_visible(slot, &record, None) == Visibility::Shown {
            into.extend_from_slice(record.value());
            return Ok(true);
        }
        let lookup = Lookup { table, key, hash, guard, read_barrier: None };
        let copied = self.go_on_with(&lookup, (slot, record), |record| {
            if let Some(cell) = record.cell() {
                let from = into.len();
                into.resize(from + cell.bytes(), 0);
                self.copy_cell_into(hash, cell, &mut into[from..]);
            } else {
                into.extend_from_slice(record.value());
            }
        })?;
        Ok(copied.value().is_some())
    }

    /// The value of `key`; `read_barrier` when the caller is in a group.
    #[inline]
    pub(crate) fn get(
        &self,
        target: Target<'_>,
        key: &[u8],
        read_barrier: Option<&ReadBarrier>,
    ) -> Result<Option<Value<'_>>> {
        let guard = reclaim::pin();
        let table = self.tables.at(target, &guard)?;
        let hash = self.hasher.hash(key);
        Ok(self.look_up(table, key, hash, &guard, read_barrier)?.value())
    }

    /// Looks up a key; `read_barrier` when the caller is in a group.
    #[inline(always)]
    pub(crate) fn look_up(
        &self,
        table: &Table,
        key: &[u8],
        hash: u64,
        guard: &Guard,
        read_barrier: Option<&ReadBarrier>,
    ) -> Result<Looked<Value<'_>>> {
        let mut damaged = Offset(0);
        let found = table.index.find_with(hash, key, guard, |slot| {
            self.log.fetch_ahead(slot.location());
            self.record_or(slot, key, &mut damaged)
        });
        self.touch(table, hash, found.as_ref().map(|(slot, _)| *slot), guard);
        let Some(found) = found else {
            self.error_if_damaged(damaged)?;
            return Ok(Looked::Absent(self.stamp_of(table, None, hash)));
        };
        self.look_at(&Lookup { table, key, hash, guard, read_barrier }, found)
    }

    /// What is known of the value of `key` without reading it. Inlined, so that only what the caller uses is computed,
    /// and nothing goes through memory.
    #[inline(always)]
    pub(crate) fn info(
        &self,
        target: Target<'_>,
        key: &[u8],
        read_barrier: Option<&ReadBarrier>,
    ) -> Result<Option<ValueInfo>> {
        let guard = reclaim::pin();
        let table = self.tables.at(target, &guard)?;
        let hash = self.hasher.hash(key);
        let mut damaged = Offset(0);
        // Only the slot: a record returned through memory is copied in wider pieces than it was written in. The CPU
        // then waits until all its earlier stores have left it (44 of the 490 ns of a key of a DEL of 10,000).
        let slot = table.index.find(hash, key, &guard, |slot| {
            self.log.fetch_ahead(slot.location());
            self.record_or(slot, key, &mut damaged).is_some()
        });
        self.touch(table, hash, slot, &guard);
        let Some(slot) = slot else { return self.error_if_damaged(damaged).map(|()| None) };
        let record = self.record(slot.location());
        if self.check_visible(slot, &record, read_barrier) == Visibility::Shown {
            return Ok(Some(record.info()));
        }
        let lookup = Lookup { table, key, hash, guard: &guard, read_barrier };
        Ok(self.go_on_with(&lookup, (slot, record), Record::info)?.value().map(|(_, info)| info))
    }

    /// Completes a lookup whose slot and record are already found.
    #[inline(always)]
    pub(crate) fn look_at<'a>(
        &'a self,
        lookup: &Lookup<'_>,
        (slot, record): (Slot, Record<'a>),
    ) -> Result<Looked<Value<'a>>> {
        let Lookup { hash, guard, read_barrier, .. } = *lookup;
        if self.check_visible(slot, &record, read_barrier) == Visibility::Shown {
            return Ok(Looked::Present(Value::new(guard, record, None)));
        }
        let looked = self.go_on_with(lookup, (slot, record), |record| self.copied(hash, record))?;
        Ok(match looked {
            Looked::Absent(stamp) => Looked::Absent(stamp),
            Looked::Present((record, copy)) => Looked::Present(Value::new(guard, record, copy)),
        })
    }

    /// Resolves the visibility of a found record, until it can be shown; `take` copies the needed part of the record.
    /// Separate, so that the code of nearly all lookups is short.
    #[inline(never)]
    fn go_on_with<'a, T>(
        &'a self,
        lookup: &Lookup<'_>,
        mut found: (Slot, Record<'a>),
        mut take: impl FnMut(&Record<'a>) -> T,
    ) -> Result<Looked<(Record<'a>, T)>> {
        let Lookup { table, key, hash, guard, read_barrier } = *lookup;
        // The active transaction whose transaction record replaced `found`.
        let mut before = None;
        loop {
            let (slot, record) = found;
            match self.check_visible(slot, &record, read_barrier) {
                Visibility::OfTransaction => match self.standing(&record, read_barrier) {
                    Standing::Own => {
                        read_barrier.inspect(|read_barrier| read_barrier.saw_own.set(true));
                        found.0 = slot.with_pending(false);
                    }
                    Standing::Active => {
                        let previous = Slot::of_previous(record.trailer().previous);
                        if previous.is_empty() {
                            return Ok(Looked::Absent(self.stamp_of(table, None, hash)));
                        }
                        before = Some(record.trailer().transaction);
                        let Some(record) = self.whole_record(previous.location()) else {
                            return Err(self.corrupt(previous.location()));
                        };
                        found = (previous, record);
                    }
                    Standing::Over => {
                        // If the transaction was shown after the reader skipped its newest record, this record is only
                        // an intermediate step.
                        let passed = before == Some(record.trailer().transaction);
                        if before.is_none() || passed {
                            before = None;
                            // A transaction that was aborted has restored its slots before.
                            let again =
                                table.index.find_with(hash, key, guard, |slot| self.record_of(slot, key));
                            let Some(again) = again else {
                                return Ok(Looked::Absent(self.stamp_of(table, None, hash)));
                            };
                            if again.0.location() != slot.location() {
                                found = again;
                                continue;
                            }
                        }
                        let epoch = self.flush_on_behalf_of_reader(&record, read_barrier);
                        self.require_durable(epoch, read_barrier)?;
                        found.0 = slot.with_pending(false);
                    }
                },
                Visibility::Undrained => {
                    self.flush_on_behalf_of_reader(&record, read_barrier);
                    found.0 = slot.with_pending(false);
                }
                Visibility::Uncommitted(epoch) => self.require_durable(epoch, read_barrier)?,
                Visibility::Absent => return Ok(Looked::Absent(self.stamp(hash, &record))),
                Visibility::Shown => return Ok(Looked::Present((record, take(&record)))),
                Visibility::Copied => {
                    let taken = take(&record);
                    self.flush_shown(hash, record.cell(), read_barrier);
                    return Ok(Looked::Present((record, taken)));
                }
            }
        }
    }

    /// A copy of the value, if the record is a cell.
    #[inline]
    fn copied(&self, hash: u64, record: &Record<'_>) -> Option<CellCopy> {
        record.cell().map(|cell| self.copy_cell(hash, cell))
    }
}
