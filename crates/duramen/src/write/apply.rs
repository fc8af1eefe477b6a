//! Batches: units whose writes are known before, on conditions.
//!
//! The conditions are compared twice: before anything is written, so that a batch that fails one leaves nothing behind, and when it is
//! shown, with the stripes of their keys held. So the batch is one step to everybody else. That the keys are absent still which a unit deleted
//! in vain is such a condition too.
//!
//! A batch that meets another unit that runs, and may not wait for it since that might wait for the batch, is given up, waits, and begins
//! again.

use super::batch::{Batch, In, Op};
use super::old::Old;
use super::{Pen, Site, Swap};
use crate::format::record::Trailer;
use crate::format::{Owner, UnitId};
use crate::index::Slot;
use crate::index::either::{Index, Locked};
use crate::read::Records;
use crate::read::table::Table;
use crate::read::value::{Record, Stamp};
use crate::sync::reclaim;
use crate::{ErrorKind, Result};
use duramen_media::Medium;
use std::panic::Location;

/// What a look at the conditions came to.
pub(super) enum Compared {
    Met,
    Failed,
    /// A key came that was absent when the unit deleted it.
    Came,
    /// Another unit that runs has written a key.
    Running(Trailer),
}

/// A key, and what it was when it was read.
pub(crate) type Expect = (In, Vec<u8>, Stamp);

/// A key that was absent when a unit deleted it, so that it wrote nothing.
pub(super) struct Missed {
    pub(super) owner: Owner,
    pub(super) key: Vec<u8>,
}

impl Pen {
    pub(crate) fn apply<M: Medium>(&mut self, site: Site<'_, M>, batch: &Batch) -> Result<Swap> {
        self.apply_then(site, batch, &mut || ())
    }

    /// The same; `then` is called in the epoch of what was written, as by [`Pen::write_name`].
    pub(crate) fn apply_then<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        batch: &Batch,
        then: &mut dyn FnMut(),
    ) -> Result<Swap> {
        let records = site.records;
        for (_, key, op) in &batch.writes {
            let value_bytes = if let Op::Put { value, .. } = op { value.len() } else { 0 };
            Self::check(records, key, value_bytes)?;
        }
        if batch.is_empty() {
            return Ok(Swap::Done);
        }
        let named = batch.writes.iter().map(|(table, key, _)| (table, key));
        for (table, key) in named.chain(batch.expects.iter().map(|(table, key, _)| (table, key))) {
            self.check_named(records, table.target(), records.hasher.hash(key))?;
        }
        loop {
            self.begin_unit(records, Location::caller())?;
            match self.try_apply(site, batch, then) {
                Ok(Compared::Met) => return Ok(Swap::Done),
                Ok(Compared::Failed) => return self.give_up_unit(records).map(|()| Swap::Changed),
                Ok(Compared::Came) => self.give_up_unit(records)?,
                Ok(Compared::Running(unit)) => {
                    self.give_up_unit(records)?;
                    self.wait_for_unit(records, unit)?;
                }
                Err(error) => {
                    let given_up = self.give_up_unit(records);
                    if error.kind() != ErrorKind::Conflict || self.is_locked() {
                        return Err(error);
                    }
                    given_up?;
                    crate::sync::thread::yield_now();
                }
            }
        }
    }

    /// Once. The unit runs no more when all conditions were met.
    fn try_apply<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        batch: &Batch,
        then: &mut dyn FnMut(),
    ) -> Result<Compared> {
        let records = site.records;
        for expect in &batch.expects {
            let compared = self.compare(records, std::slice::from_ref(expect), &[], |_| ())?;
            if !matches!(compared, Compared::Met) {
                return Ok(compared);
            }
        }
        for (table, key, op) in &batch.writes {
            let new = match op {
                Op::Put { value, meta } => Some((&value[..], *meta)),
                Op::Delete => None,
            };
            self.write_in_unit(site, table.target(), key, new, false)?;
        }
        self.show_if(records, &batch.expects, then)
    }

    /// Shows the unit that runs if the conditions are met; else it runs on, and is to be given up.
    pub(super) fn show_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        expects: &[Expect],
        then: &mut dyn FnMut(),
    ) -> Result<Compared> {
        let missed = self.take_missed();
        let epochs = records.log.epochs();
        let unwinding = epochs.unwinding(&self.activity);
        let mut shown = None;
        let compared = self.compare(records, expects, &missed, |pen| {
            let epoch = epochs.enter(&pen.activity);
            let end = pen.show_unit(records, epoch);
            if end.is_some() {
                then();
            }
            epochs.leave(&pen.activity, epoch, end);
            shown = Some((end, epoch));
        });
        unwinding.over();
        if shown.is_none() {
            self.put_missed(missed);
        }
        let compared = compared?;
        if let Some((end, epoch)) = shown {
            self.unit_shown(records, end, epoch)?;
        }
        Ok(compared)
    }

    /// Compares these conditions, and calls `met` while their keys are locked if all are met.
    pub(super) fn compare<M: Medium>(
        &mut self,
        records: &Records<M>,
        expects: &[Expect],
        missed: &[Missed],
        met: impl FnOnce(&mut Self),
    ) -> Result<Compared> {
        let guard = reclaim::pin_to_write();
        let mut tables: Vec<&Table> = expects
            .iter()
            .map(|(table, ..)| records.tables.at(table.target(), &guard))
            .collect::<Result<_>>()?;
        // Of a table that died nothing comes any more.
        let named: Vec<_> =
            missed.iter().filter_map(|missed| Some((records.tables.of(missed.owner)?, missed))).collect();
        tables.extend(named.iter().map(|(table, _)| &**table));
        let names = expects.iter().map(|(_, key, _)| key).chain(named.iter().map(|(_, missed)| &missed.key));
        let hashes = names.map(|key| records.hasher.hash(key));
        let keys: Vec<(&Index, u64)> = tables.iter().map(|table| &table.index).zip(hashes).collect();
        let locks = Index::lock_all(&keys, &guard);
        for (lock, (table, missed)) in locks[expects.len()..].iter().zip(&named) {
            let present = match self.find_before(records, table, lock, &missed.key)? {
                Ok(before) => before.is_some_and(|old| old.present),
                Err(unit) => return Ok(Compared::Running(unit)),
            };
            if present {
                return Ok(Compared::Came);
            }
        }
        for (((_, key, stamp), table), lock) in expects.iter().zip(&tables).zip(&locks) {
            let before = match self.find_before(records, table, lock, key)? {
                Ok(before) => before,
                Err(unit) => return Ok(Compared::Running(unit)),
            };
            if let Some(owed) = self.owed() {
                owed.epoch.set(owed.epoch.get().max(self.told_of(records, before.as_ref()).0));
            }
            let record = before.as_ref().and_then(|old| old.record.as_ref());
            if records.stamp_of(table, record, records.hasher.hash(key)) != *stamp {
                return Ok(Compared::Failed);
            }
        }
        met(self);
        Ok(Compared::Met)
    }

    /// What is there of `key`, which is locked, but for what the unit that runs wrote. `Err` within: another unit that runs wrote it.
    fn find_before<'a, M: Medium>(
        &self,
        records: &'a Records<M>,
        table: &Table,
        lock: &Locked<'_>,
        key: &[u8],
    ) -> Result<std::result::Result<Option<Old<'a>>, Trailer>> {
        let (old, damaged) = Old::find(records, table, lock, key);
        records.told(damaged)?;
        old.map_or(Ok(Ok(None)), |old| self.before_own(records, old))
    }

    /// What was there before the unit that runs wrote it. `Err` within: another unit that runs did.
    fn before_own<'a, M: Medium>(
        &self,
        records: &'a Records<M>,
        old: Old<'a>,
    ) -> Result<std::result::Result<Option<Old<'a>>, Trailer>> {
        let own = UnitId(self.unit_id());
        let mut old = old;
        while let Some(record) = old.record
            && let Some(trailer) = records.running_at(old.slot, &record)
        {
            if trailer.unit != own {
                return Ok(Err(trailer));
            }
            let before = Slot::of_previous(trailer.previous);
            if before.is_empty() {
                return Ok(Ok(None));
            }
            let record: Option<Record<'_>> = records.whole_record(before.location());
            if record.is_none() {
                return Err(records.corrupt(before.location()));
            }
            old = Old::new(records, before, record);
        }
        Ok(Ok(Some(old)))
    }
}
