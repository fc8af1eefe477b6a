//! The one place where a write of a key happens: its slot comes to point to a record that was appended under the key's
//! lock. Puts, deletes and transactions look a key up with [`Current::look_up`], append, and call [`Current::point_to`].
//! [`Old`] is the slot's previous target, which is counted then.
//!
//! A record without an old one to look at is appended before the look-up ([`crate::writer`]).

use crate::get::value::{CollectionId, Meta, Record};
use crate::records::Records;
use crate::table::tables::{RootRef, Table};
use crate::writer::WriterState;
use duramen_index::Slot;
use duramen_index::either::{Locked, Place};
use duramen_log::durability::Activity;
use duramen_log::format::Epoch;
use duramen_log::read::Unknown;
use duramen_media::{Medium, Offset};

/// The state of a locked key, which a write is about to supersede.
pub(crate) struct Current<'l, 'r> {
    /// The key's slot, if it has one.
    place: Option<Place<'l>>,
    pub(crate) old: Option<Old<'r>>,
    /// A damaged record that may be the key's.
    pub(crate) unknown: Unknown,
}

impl<'l, 'r> Current<'l, 'r> {
    #[inline(always)]
    pub(crate) fn look_up<'a: 'l, M: Medium>(
        records: &'r Records<M>,
        table: &Table,
        locked: &Locked<'a>,
        key: &'l [u8],
    ) -> Self {
        let (mut unknown, mut old) = (Unknown::default(), None);
        // Not the result of `find`, which would be copied before the record has come from memory.
        let place = locked.find(key, |slot| {
            records.log.fetch_old(slot.location(), key.len());
            let existing = records.look_up_for_write(table, slot, key, &mut unknown);
            old = existing.map(|existing| Old::new(records, slot, existing.whole()));
            old.is_some()
        });
        Self { place, old, unknown }
    }

    /// Whether the key has no slot, and a damaged record may be the key's. That record's slot stays: see
    /// [`crate::damage`].
    #[inline(always)]
    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown.is_some() && self.place.is_none()
    }

    /// A damaged record that may be the key's newest one.
    pub(crate) fn damaged(&self) -> Offset {
        if self.old.is_some_and(|old| old.record.is_some()) { Offset(0) } else { self.unknown.at }
    }

    /// Whether there is a live value, or may be one.
    #[inline(always)]
    pub(crate) fn is_present(&self) -> bool {
        self.old.as_ref().is_some_and(|old| old.present) || (self.is_unknown() && self.unknown.may_be_live)
    }

    /// The slot of the old record; an empty one without it.
    #[inline(always)]
    pub(crate) fn slot(&self) -> Slot {
        self.old.as_ref().map_or(Slot::default(), |old| old.slot)
    }

    /// Points the key's slot to `slot`, that of a reachable record at `at`: for readers, the write happens now. `meta`
    /// is that of the new value, if it is one. Returns whether the index is crowded, and should be split once no lock
    /// is held.
    #[inline(always)]
    pub(crate) fn point_to<M: Medium>(
        &self,
        records: &Records<M>,
        locked: &Locked<'_>,
        key: &[u8],
        slot: Slot,
        (at, meta): (Offset, Option<Meta>),
    ) -> bool {
        debug_assert!(
            slot.location() == at && !slot.is_empty(),
            "a slot that points elsewhere than to its record"
        );
        let is_crowded = match &self.place {
            Some(place) => {
                Old::supersede(self.old.as_ref(), key, place, slot, records);
                false
            }
            // The number of the key's records in damaged blocks is unknown.
            None if self.unknown.is_some() => locked.insert(key, slot.hiding_unknown(), records),
            None => locked.insert(key, slot, records),
        };
        if let Some(Meta { collection: Some(CollectionId(owner)), .. }) = meta {
            // Before anybody can seal its block.
            records.tables.root_written(RootRef { owner, place: at });
        }
        is_crowded
    }
}

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
        let is_expired = record.is_some_and(|record| records.is_expired(record.ends_at()));
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
