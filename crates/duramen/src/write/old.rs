//! What a key's slot pointed to before a write, and what is counted of it.

use super::WriterState;
use crate::durability::Activity;
use crate::format::Epoch;
use crate::index::Slot;
use crate::index::either::{Locked, Place};
use crate::log::read::Unknown;
use crate::read::Records;
use crate::read::table::{RootRef, Table};
use crate::read::value::{Record, Stamp};
use crate::sync::reclaim::Guard;
use duramen_media::{Medium, Offset};

/// What a key's slot pointed to before a write.
#[derive(Clone, Copy)]
pub(super) struct Old<'a> {
    pub(super) slot: Slot,
    /// `None`: it is damaged.
    pub(super) record: Option<Record<'a>>,
    pub(super) present: bool,
}

impl<'a> Old<'a> {
    #[inline]
    pub(super) fn new<M: Medium>(records: &Records<M>, slot: Slot, record: Option<Record<'a>>) -> Self {
        let is_expired = record.is_some_and(|record| records.is_expired(record.expires_at()));
        Self { slot, record, present: !slot.is_tombstone() && !is_expired }
    }

    /// What it names, if it is a root that was alive: of one that was swept, that was taken off then.
    #[inline]
    pub(super) fn names(&self) -> Option<RootRef> {
        if self.slot.is_tombstone() { None } else { self.record?.root_ref() }
    }

    /// What is there of `key`, which is locked, and the place of what is damaged and may be the key's.
    pub(super) fn find<M: Medium>(
        records: &'a Records<M>,
        table: &Table,
        locked: &Locked<'_>,
        key: &[u8],
    ) -> (Option<Self>, Offset) {
        let mut unknown = Unknown::default();
        let found = locked
            .find_with(key, |slot| Some((slot, records.look_up_for_write(table, slot, key, &mut unknown)?)));
        let old = found.map(|(_, (slot, existing))| Self::new(records, slot, existing.whole()));
        let damaged = if old.is_some_and(|old| old.record.is_some()) { Offset(0) } else { unknown.at };
        (old, damaged)
    }

    /// The key's slot, which pointed to what is `old`, points to what supersedes it: to the record of `new`. Returns
    /// the slot.
    #[inline]
    pub(super) fn supersede<M: Medium>(
        old: Option<&Self>,
        key: &[u8],
        place: &Place<'_>,
        new: Slot,
        records: &Records<M>,
    ) -> Slot {
        let is_damaged = old.is_some_and(|old| old.record.is_none());
        let slot = if is_damaged { new.hiding_unknown() } else { new.superseding(place.get()) };
        if is_damaged {
            place.repair(key, slot, records);
        } else {
            place.repoint(key, slot, records);
        }
        slot
    }

    /// The record is superseded: its block has fewer live bytes. A tombstone that hides nothing any more
    /// was taken off when that became known.
    #[inline]
    pub(super) fn uncount<M: Medium>(&self, records: &Records<M>, activity: &Activity) {
        let Some(record) = &self.record else { return records.mended() };
        if !self.slot.covers_no_older_records() {
            records.log.uncount(record.at, record.head.record_bytes(), activity);
        }
    }
}

impl WriterState {
    /// Makes sure that what was found may be told of: flushes what its writer has not drained yet, and
    /// returns the epoch to wait for.
    pub(super) fn visible_epoch<M: Medium>(&self, records: &Records<M>, old: Option<&Old<'_>>) -> Epoch {
        let Some((slot, record)) = old.and_then(|old| Some((old.slot, old.record?))) else { return Epoch(0) };
        let epoch = records.epoch_of(&record);
        if slot.is_pending() {
            epoch.max(records.flush_on_behalf_of_reader(&record, self.read_barrier()))
        } else {
            epoch
        }
    }

    /// Counts a key that came or went. An expired one counts until it is swept.
    #[inline]
    pub(super) fn count_key(&self, table: &Table, old: Option<&Old<'_>>, now: bool) {
        let before = old.is_some_and(|old| !old.slot.is_tombstone());
        if before != now {
            table.count_keys(self.activity.shard, if before { -1 } else { 1 });
        }
        if now && !old.is_some_and(|old| old.present) {
            self.activity.came_add(1);
        }
    }
}

/// The key's stamp, which may be another at once.
pub(super) fn stamp_unlocked<M: Medium>(
    records: &Records<M>,
    table: &Table,
    key: &[u8],
    hash: u64,
    guard: &Guard,
) -> Stamp {
    let found = table.index.find(hash, key, guard, |slot| records.is_key_at(slot, key));
    records.stamp_of(table, found.map(|slot| records.record(slot.location())).as_ref(), hash)
}
