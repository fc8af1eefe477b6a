//! Updates of a few bytes of a value: in place by one atomic store where record, CPU and regime allow it, otherwise as
//! a new version of the whole value.
//!
//! An update in place holds the lock of the key's bucket, so that for other writers lookup, comparison and store are
//! one step. A crash before the store leaves the old bytes, after it the new ones. On media that write lines back, the
//! line is durable before the lock is released.
//!
//! Invariants:
//! 1. Nothing is updated in place while its slot is pending: a crash could undo the record itself.
//! 2. While an update is stored and not durable, the key's lock is held, and readers check that lock.
//!
//! [`duramen_log::cell`] states how the bytes of a cell may change, and when.

use crate::get::lookup::Looked;
use crate::get::stamp::Stamp;
use crate::get::value::{Meta, is_same};
use crate::get::visibility::Visibility;
use crate::put::write::{Condition, Wrote};
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::writer::{WriteContext, WriterState};
use crate::{Error, Result};
use duramen_log::cell::Cell;
use duramen_log::format::record::{HEAD_BYTES_MAX, HEADER_BYTES};
use duramen_log::sync::holding::What;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};
use std::panic::Location;

/// How an update was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Update {
    /// One atomic store into the record.
    InPlace,
    /// The value was read and a new version of all of it written, as by a put. Reasons: it was not put as
    /// [`Meta::updatable`], the range is not aligned or not of a size that one store can have, or medium and durability
    /// do not make a single write durable.
    NewVersion,
    /// Not done: the key is absent.
    Absent,
}

/// The result of [`modify_in_place`](crate::WriterOn::modify_in_place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Modified {
    /// One atomic store into the record.
    InPlace,
    /// Not done: the caller declined after it saw the value.
    Declined,
    /// Not done, and the caller must not use the value it saw: it cannot be updated in place, or the key is absent.
    NotInPlace,
}

/// Bytes to put before a field of 8 bytes at the beginning of a value, so that the field can be updated in place. They
/// depend only on the length of the key: records, their headers and the values' expiry times are multiples of 8 bytes.
#[must_use]
pub const fn padding_before_field(key_bytes: usize) -> usize {
    key_bytes.wrapping_neg() & 7
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(8) && (HEAD_BYTES_MAX as u64).is_multiple_of(8));

/// The result of an attempt to update in place.
enum Tried {
    Done(Update),
    /// Not done: the stamp differs.
    Changed,
    /// Not done: the record, the CPU or the regime does not allow it.
    Refused,
}

/// An update to perform.
#[derive(Clone, Copy)]
struct Edit<'a> {
    target: Target<'a>,
    key: &'a [u8],
    hash: u64,
    /// The stamp that the key must have, if any.
    seen: Option<Stamp>,
    /// Offset in the value.
    at: usize,
    bytes: &'a [u8],
}

impl WriterState {
    /// `None` when the stamp is no longer `seen`.
    pub(crate) fn update<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        seen: Option<Stamp>,
        (at, bytes): (usize, &[u8]),
    ) -> Result<Option<Update>> {
        let records = context.records;
        Self::check(records, key, bytes.len())?;
        let hash = records.hasher.hash(key);
        let edit = Edit { target, key, hash, seen, at, bytes };
        let mut tried = self.update_in_place(records, edit)?;
        while let Tried::Refused = tried {
            tried = self.update_otherwise(context, edit)?;
        }
        Ok(if let Tried::Done(update) = tried { Some(update) } else { None })
    }

    /// The path of `update` after an attempt in place was refused. Separate, so that updates in place do not set up its
    /// locals.
    #[inline(never)]
    fn update_otherwise<M: Medium>(&mut self, context: WriteContext<'_, M>, edit: Edit<'_>) -> Result<Tried> {
        let records = context.records;
        match self.update_anew(context, edit)? {
            // Another writer wrote it in the meantime: it may now be a value that can be updated in place.
            Tried::Refused => self.update_in_place(records, edit),
            tried => Ok(tried),
        }
    }

    /// Writes a new version of the whole value; refused if another writer writes it concurrently.
    fn update_anew<M: Medium>(&mut self, context: WriteContext<'_, M>, edit: Edit<'_>) -> Result<Tried> {
        let records = context.records;
        let Edit { target, key, hash, seen, at, bytes } = edit;
        let (stamp, value) = {
            let guard = reclaim::pin();
            let table = records.tables.at(target, &guard)?;
            match records.look_up(table, key, hash, &guard, self.read_barrier())? {
                Looked::Absent(stamp) => (stamp, None),
                Looked::Present(value) => (value.stamp(), Some(value)),
            }
        };
        if seen.is_some_and(|seen| seen != stamp) {
            return Ok(Tried::Changed);
        }
        let Some(value) = value else { return Ok(Tried::Done(Update::Absent)) };
        check_range(at, bytes.len(), value.len())?;
        let mut copy = value.to_vec();
        copy[at..at + bytes.len()].copy_from_slice(bytes);
        let meta = value.meta();
        drop(value);
        let wrote = self.write(context, target, key, Some((&copy, meta)), Condition::Stamp(stamp))?;
        Ok(if let Wrote::Done { .. } = wrote { Tried::Done(Update::NewVersion) } else { Tried::Refused })
    }

    #[inline(always)]
    fn update_in_place<M: Medium>(&mut self, records: &Records<M>, edit: Edit<'_>) -> Result<Tried> {
        if records.log.epochs().in_use() {
            return Ok(Tried::Refused);
        }
        let guard = &self.pin(records);
        let table = records.tables.at(edit.target, guard)?;
        self.check_named(records, edit.target, edit.hash)?;
        table.index.prefetch_write(edit.hash, false, guard);
        if edit.seen.is_none() && update_likeliest(records, table, edit, guard) {
            return Ok(Tried::Done(Update::InPlace));
        }
        self.update_found(records, table, edit, guard)
    }

    /// The rest of `update_in_place`.
    #[inline(never)]
    fn update_found<M: Medium>(
        &mut self,
        records: &Records<M>,
        table: &Table,
        edit: Edit<'_>,
        guard: &Guard,
    ) -> Result<Tried> {
        let Edit { key, hash, seen, at, bytes, .. } = edit;
        let locked = table.index.lock(hash, guard);
        let mut damaged = Offset(0);
        let found = locked.find_with(key, |slot| Some((slot, records.record_or(slot, key, &mut damaged)?)));
        let Some((_, (slot, record))) = found else {
            records.error_if_damaged(damaged)?;
            let changed = seen.is_some_and(|seen| seen != records.stamp_of(table, None, hash));
            return Ok(if changed { Tried::Changed } else { Tried::Done(Update::Absent) });
        };
        if records.running_at(slot, &record).is_some() {
            // The caller writes a new version instead, which waits.
            return Ok(Tried::Refused);
        }
        let changed = seen.is_some_and(|seen| seen != records.stamp_locked(&record));
        if changed || slot.is_tombstone() || records.is_expired(record.ends_at()) {
            if slot.is_pending() {
                records.flush_on_behalf_of_reader(&record, self.read_barrier());
            }
            return Ok(if changed { Tried::Changed } else { Tried::Done(Update::Absent) });
        }
        let Some(cell) = record.cell().filter(|_| !slot.is_pending()) else { return Ok(Tried::Refused) };
        check_range(at, bytes.len(), cell.bytes())?;
        let stored = records.store_in_cell(hash, slot, cell, at, bytes);
        Ok(if stored { Tried::Done(Update::InPlace) } else { Tried::Refused })
    }

    /// See [`crate::WriterOn::modify_in_place`].
    #[track_caller]
    pub(crate) fn modify_in_place<M: Medium>(
        &mut self,
        records: &Records<M>,
        target: Target<'_>,
        key: &[u8],
        change: impl FnOnce(Meta, &[u8]) -> Option<(usize, [u8; 8])>,
    ) -> Result<Modified> {
        Self::check(records, key, 0)?;
        if records.log.epochs().in_use() {
            return Ok(Modified::NotInPlace);
        }
        let hash = records.hasher.hash(key);
        let guard = self.pin(records);
        let table = records.tables.at(target, &guard)?;
        self.check_named(records, target, hash)?;
        table.index.prefetch_write(hash, false, &guard);
        let locked = table.index.lock(hash, &guard);
        let mut damaged = Offset(0);
        let found = locked.find_with(key, |slot| Some((slot, records.record_or(slot, key, &mut damaged)?)));
        let Some((_, (slot, record))) = found else {
            records.error_if_damaged(damaged)?;
            return Ok(Modified::NotInPlace);
        };
        let is_shown = records.check_visible(slot, &record, None) == Visibility::Copied;
        let Some(cell) = record.cell().filter(|_| is_shown) else { return Ok(Modified::NotInPlace) };
        let changing = records.barrier.note(What::Change, Location::caller());
        let changed = change(record.meta(), &records.copy_cell_locked(cell));
        drop(changing);
        let Some((at, field)) = changed else { return Ok(Modified::Declined) };
        check_range(at, field.len(), cell.bytes())?;
        let stored = records.store_in_cell(hash, slot, cell, at, &field);
        Ok(if stored { Modified::InPlace } else { Modified::NotInPlace })
    }
}

/// Updates the cell of `key` if its slot is at the likeliest place and no special case applies; returns whether it did.
/// Short, and nearly without stores of its own, which would wait after the one that is made durable: so the CPU reaches
/// the cache misses of the next update in the meantime. Saves 115 of the 762 instructions of an update (16+200 bytes,
/// as `bench kv update`).
#[inline(always)]
fn update_likeliest<M: Medium>(records: &Records<M>, table: &Table, edit: Edit<'_>, guard: &Guard) -> bool {
    let Edit { key, hash, at, bytes, .. } = edit;
    if !table.index.candidates_are_current() || records.has_unverified() {
        return false;
    }
    let _held = table.index.hold(hash);
    let Some(slot) = table.index.candidate(hash, || key, guard).filter(|slot| slot.is_ready_value()) else {
        return false;
    };
    let location = slot.location();
    debug_assert!(!slot.is_pending(), "a ready slot is not pending (invariant 1)");
    let Some((its, cell)) = Cell::lasting(&records.log.medium, location, key.len()) else {
        return false;
    };
    is_same(its, key)
        && check_range(at, bytes.len(), cell.bytes()).is_ok()
        && records.store_in_cell(hash, slot, cell, at, bytes)
}

#[inline]
fn check_range(at: usize, bytes: usize, value: usize) -> Result<()> {
    if at.checked_add(bytes).is_none_or(|end| end > value) {
        return Err(out_of_range(at, bytes, value));
    }
    Ok(())
}

#[cold]
#[inline(never)]
fn out_of_range(at: usize, bytes: usize, value: usize) -> Error {
    Error::invalid(format!("cannot update {bytes} bytes at {at}: the value has {value} bytes"))
}
