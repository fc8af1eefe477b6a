//! The previous target of a key's slot before a write, and its counting.

use crate::get::value::Record;
use crate::records::Records;
use crate::table::tables::{RootRef, Table};
use crate::writer::WriterState;
use duramen_index::Slot;
use duramen_index::either::Place;
use duramen_log::durability::Activity;
use duramen_log::format::Epoch;
use duramen_media::Medium;

/// The previous target of a key's slot before a write.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    pub(crate) slot: Slot,
    /// `None`: it is damaged.
    pub(crate) record: Option<Record<'a>>,
    pub(crate) present: bool,
}

impl<'a> Old<'a> {
    #[inline]
    pub(crate) fn new<M: Medium>(records: &Records<M>, slot: Slot, record: Option<Record<'a>>) -> Self {
        let is_expired = record.is_some_and(|record| records.is_expired(record.expires_at()));
        Self { slot, record, present: !slot.is_tombstone() && !is_expired }
    }

    /// The collection it names, if it is a live root. For a swept root the reference was released by the sweep.
    #[inline]
    pub(crate) fn names(&self) -> Option<RootRef> {
        if self.slot.is_tombstone() { None } else { self.record?.root_ref() }
    }

    /// Points the key's slot, whose target was `old`, to the record of `new`, which supersedes it. Returns the slot.
    #[inline]
    pub(crate) fn supersede<M: Medium>(
        old: Option<&Self>,
        key: &[u8],
        place: &Place<'_>,
        new: Slot,
        records: &Records<M>,
    ) -> Slot {
        let is_damaged = old.is_some_and(|old| old.record.is_none());
        let slot = if is_damaged { new.hiding_unknown() } else { new.superseding(place.get()) };
        debug_assert!(
            slot.stale_known() != Some(0) && !slot.covers_no_older_records(),
            "a superseded record is not counted (writer, invariant 2)"
        );
        if is_damaged {
            place.repair(key, slot, records);
        } else {
            place.repoint(key, slot, records);
        }
        slot
    }

    /// Counts the superseded record: its block has fewer live bytes. A tombstone that hides nothing any more was
    /// subtracted when that became known.
    #[inline]
    pub(crate) fn uncount<M: Medium>(&self, records: &Records<M>, activity: &Activity) {
        match &self.record {
            None => {
                records.log.uncount(self.slot.location(), records.superseded_damaged(self.slot), activity);
            }
            Some(record) if !self.slot.covers_no_older_records() => {
                records.log.uncount(record.at, record.head.record_bytes(), activity);
            }
            Some(_) => {}
        }
    }
}

impl WriterState {
    /// Ensures that the found record may be shown: flushes it if its writer has not drained it yet, and returns the
    /// epoch to wait for.
    pub(crate) fn visible_epoch<M: Medium>(&self, records: &Records<M>, old: Option<&Old<'_>>) -> Epoch {
        let Some((slot, record)) = old.and_then(|old| Some((old.slot, old.record?))) else { return Epoch(0) };
        let epoch = records.epoch_of(&record);
        if slot.is_pending() {
            epoch.max(records.flush_on_behalf_of_reader(&record, self.read_barrier()))
        } else {
            epoch
        }
    }

    /// Counts a key that was added or removed. An expired key counts until it is swept.
    #[inline]
    pub(crate) fn count_key(&self, table: &Table, old: Option<&Old<'_>>, now: bool) {
        let before = old.is_some_and(|old| !old.slot.is_tombstone());
        if before != now {
            table.count_keys(self.activity.shard, if before { -1 } else { 1 });
        }
    }
}
