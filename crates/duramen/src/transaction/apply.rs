//! Batches: transactions whose writes are known in advance, with conditions.
//!
//! The conditions are compared twice: before anything is written, so that a batch that fails one leaves nothing behind,
//! and when it is shown, with the stripes of their keys held. So to other threads the batch is one step. The commit
//! also checks that every key the transaction deleted without finding it is still absent.
//!
//! A batch may find a key that another active transaction has written. If it may not wait for that one, which might
//! wait for the batch, it is aborted, waits, and begins again.

use crate::get::value::Record;
use crate::put::place::{Current, Old};
use crate::records::Records;
use crate::table::tables::Table;
use crate::transaction::batch::{Batch, BatchWrite, Expect};
use crate::transaction::state::AbsentRead;
use crate::writer::{Swap, WriteContext, WriterState};
use crate::{ErrorKind, Result};
use duramen_index::Slot;
use duramen_index::either::{Index, Locked};
use duramen_log::format::TransactionId;
use duramen_log::format::record::Trailer;
use duramen_log::sync::reclaim;
use duramen_media::Medium;
use std::panic::Location;

/// The result of comparing the conditions.
pub(crate) enum Compared {
    Satisfied,
    Failed,
    /// A key was inserted that was absent when the transaction deleted it.
    PhantomInserted,
    /// Another active transaction has written a key.
    Blocked(Trailer),
}

impl WriterState {
    pub(crate) fn apply<M: Medium>(&mut self, context: WriteContext<'_, M>, batch: &Batch) -> Result<Swap> {
        self.apply_then(context, batch, &mut || ())
    }

    /// Like `apply`; `then` is called in the epoch of the writes, as by [`WriterState::write_name`].
    pub(crate) fn apply_then<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        batch: &Batch,
        then: &mut dyn FnMut(),
    ) -> Result<Swap> {
        let records = context.records;
        if batch.is_empty() {
            return Ok(Swap::Done);
        }
        // Each write is checked when it is appended; an error then aborts the transaction.
        for (table, key, _) in &batch.expects {
            self.check_named(records, table.target(), records.hasher.hash(key))?;
        }
        loop {
            self.begin_transaction(records, Location::caller())?;
            match self.try_apply(context, batch, then) {
                Ok(Compared::Satisfied) => return Ok(Swap::Done),
                Ok(Compared::Failed) => return self.abort_transaction(records).map(|()| Swap::Changed),
                Ok(Compared::PhantomInserted) => self.abort_transaction(records)?,
                Ok(Compared::Blocked(transaction)) => {
                    self.abort_transaction(records)?;
                    self.wait_for_transaction(records, transaction)?;
                }
                Err(error) => {
                    let aborted = self.abort_transaction(records);
                    if error.kind() != ErrorKind::Conflict || self.is_locked() {
                        return Err(error);
                    }
                    aborted?;
                    duramen_log::sync::thread::yield_now();
                }
            }
        }
    }

    /// One attempt. If all conditions are met, the transaction has ended on return.
    fn try_apply<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        batch: &Batch,
        then: &mut dyn FnMut(),
    ) -> Result<Compared> {
        let records = context.records;
        for expect in &batch.expects {
            let compared = self.compare(records, std::slice::from_ref(expect), &[], |_| ())?;
            if !matches!(compared, Compared::Satisfied) {
                return Ok(compared);
            }
        }
        for BatchWrite { table, key, new } in batch.writes() {
            self.write_in_transaction(context, table.target(), key, new, false)?;
        }
        self.show_if(records, &batch.expects, then)
    }

    /// Shows the active transaction if the conditions are met; otherwise it stays active, and the caller must abort it.
    pub(crate) fn show_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        expects: &[Expect],
        then: &mut dyn FnMut(),
    ) -> Result<Compared> {
        let absent_reads = self.take_missed();
        let epochs = records.log.epochs();
        let unwinding = epochs.unwinding(&self.activity);
        let mut shown = None;
        let compared = self.compare(records, expects, &absent_reads, |writer_state| {
            let epoch = epochs.enter(&writer_state.activity);
            let end = writer_state.show_transaction(records, epoch);
            if end.is_some() {
                then();
            }
            epochs.leave(&writer_state.activity, epoch, end);
            shown = Some((end, epoch));
        });
        unwinding.over();
        if shown.is_none() {
            self.put_missed(absent_reads);
        }
        let compared = compared?;
        if let Some((end, epoch)) = shown {
            self.transaction_shown(records, end, epoch)?;
        }
        Ok(compared)
    }

    /// Compares these conditions, and calls `observe` while their keys are locked if all are met.
    pub(crate) fn compare<M: Medium>(
        &mut self,
        records: &Records<M>,
        expects: &[Expect],
        absent_reads: &[AbsentRead],
        observe: impl FnOnce(&mut Self),
    ) -> Result<Compared> {
        let guard = reclaim::pin_to_write();
        let mut tables: Vec<&Table> = expects
            .iter()
            .map(|(table, ..)| records.tables.at(table.target(), &guard))
            .collect::<Result<_>>()?;
        // A dropped table gets no new keys.
        let named: Vec<_> = absent_reads
            .iter()
            .filter_map(|absent_reads| Some((records.tables.of(absent_reads.owner)?, absent_reads)))
            .collect();
        tables.extend(named.iter().map(|(table, _)| &**table));
        let names = expects
            .iter()
            .map(|(_, key, _)| key)
            .chain(named.iter().map(|(_, absent_reads)| &absent_reads.key));
        let hashes = names.map(|key| records.hasher.hash(key));
        let keys: Vec<(&Index, u64)> = tables.iter().map(|table| &table.index).zip(hashes).collect();
        let locks = Index::lock_all(&keys, &guard);
        for (lock, (table, absent_reads)) in locks[expects.len()..].iter().zip(&named) {
            let present = match self.find_before(records, table, lock, &absent_reads.key)? {
                Ok(before) => before.is_some_and(|old| old.present),
                Err(transaction) => return Ok(Compared::Blocked(transaction)),
            };
            if present {
                return Ok(Compared::PhantomInserted);
            }
        }
        for (((_, key, stamp), table), lock) in expects.iter().zip(&tables).zip(&locks) {
            let before = match self.find_before(records, table, lock, key)? {
                Ok(before) => before,
                Err(transaction) => return Ok(Compared::Blocked(transaction)),
            };
            if let Some(read_barrier) = self.read_barrier() {
                read_barrier
                    .epoch
                    .set(read_barrier.epoch.get().max(self.visible_epoch(records, before.as_ref()).0));
            }
            let record = before.as_ref().and_then(|old| old.record.as_ref());
            if records.stamp_of(table, record, records.hasher.hash(key)) != *stamp {
                return Ok(Compared::Failed);
            }
        }
        observe(self);
        Ok(Compared::Satisfied)
    }

    /// The record of `key`, which is locked, without the writes of this transaction. Inner `Err`: another active
    /// transaction has written it.
    fn find_before<'a, M: Medium>(
        &self,
        records: &'a Records<M>,
        table: &Table,
        lock: &Locked<'_>,
        key: &[u8],
    ) -> Result<std::result::Result<Option<Old<'a>>, Trailer>> {
        let current = Current::look_up(records, table, lock, key);
        records.error_if_damaged(current.damaged())?;
        current.old.map_or(Ok(Ok(None)), |old| self.before_own(records, old))
    }

    /// The record before this transaction's own writes. Inner `Err`: another active transaction has written the key.
    fn before_own<'a, M: Medium>(
        &self,
        records: &'a Records<M>,
        old: Old<'a>,
    ) -> Result<std::result::Result<Option<Old<'a>>, Trailer>> {
        let own = TransactionId(self.transaction_id());
        let mut old = old;
        while let Some(record) = old.record
            && let Some(trailer) = records.running_at(old.slot, &record)
        {
            if trailer.transaction != own {
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
