//! Writing: each writer appends to its own block, and writers contend only on the lock of a key. (Where each write
//! waits for a commit of pages, they also contend on the block that they share: see [`duramen_log::appender`].)
//!
//! One write, in order:
//!
//! 1. room is reserved, since that may take long and needs the index itself;
//! 2. the key is locked, the epoch entered, the newest record looked up, and the condition (if any) checked;
//! 3. the record is appended with the next version, and drained;
//! 4. the slot points to it (for readers, the write happens at this moment), the lock is released, the epoch left;
//! 5. where writes wait for their epoch: wait.
//!
//! The version does not depend on the record that is superseded: the lock assigns it (`index::stripes`). So a put
//! without a condition appends before it looks up the old record. It is written while the index's lines come from
//! memory, and the write-back of the new record overlaps with the miss of the old one.
//!
//! A crash before the end of 3 leaves the old value; after it, the new one. In a group, 3 does not drain: the slot is
//! marked pending, and [`WriterState::flush_group`] drains once and clears the marks. Writes that count all or not at
//! all are [transactions](crate::transaction).
//!
//! For several writes of keys without concurrent writes by others: see [`crate::locks`].
//!
//! Invariants:
//! 1. A slot points to a record that is durable, or is marked pending, or whose epoch is not committed.
//! 2. Every superseded record is counted by its key's slot until its block is retired (`index::stale`).
//! 3. While a group is open, its reader epoch lasts ([`Epochs::groups`](duramen_log::durability::Epochs::groups)). So a
//!    block with records that the group superseded is not freed before the group is durable.

use crate::locks::state::Locks;

use crate::get::barrier::ReadBarrier;
use crate::get::value::{Meta, Room};
use crate::records::Records;
use crate::transaction::state::{Over, Running, Transactions};
use crate::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use duramen_index::either::Locked;
use duramen_log::appender::Appender;
use duramen_log::durability::{Activity, Epochs};
use duramen_log::format::{Epoch, Owner, Version};
use duramen_log::open_block::Purpose;
use duramen_log::supply::Supply;
use duramen_log::sync::reclaim::{self, SeqCounter};
use duramen_log::sync::{Arc, rank};
use duramen_media::{Medium, Offset};

/// Outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// Written.
    Done,
    /// A key no longer had its expected stamp; nothing was written.
    Changed,
}

/// A group in progress.
pub(crate) struct Group {
    /// See invariant 3. `None` only while nothing is pending.
    pub(crate) reader_epoch: Option<ReaderEpoch>,
    /// Slots whose pending mark is to be cleared: table, hash and location.
    pub(crate) pending: Vec<(Owner, u64, Offset)>,
    /// Transactions that have committed in it.
    pub(crate) over: Vec<Over>,
    pub(crate) read_barrier: ReadBarrier,
}

/// Keeps the records that the group superseded.
pub(crate) struct ReaderEpoch(pub(crate) Arc<SeqCounter>);

impl ReaderEpoch {
    pub(crate) fn begin(activity: &Activity) -> Self {
        activity.group.begin();
        Self(Arc::clone(&activity.group))
    }
}

impl Drop for ReaderEpoch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The records that writers work on, and the supply of space for new ones.
pub(crate) struct WriteContext<'a, M: Medium> {
    pub records: &'a Records<M>,
    pub supply: &'a dyn Supply,
}

impl<M: Medium> Clone for WriteContext<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for WriteContext<'_, M> {}

/// The state of a writer: its block, and the parts that other threads need.
pub(crate) struct WriterState {
    pub(crate) appender: Appender,
    pub(crate) activity: Arc<Activity>,
    pub(crate) group: Option<Group>,
    pub(crate) locks: Locks,
    /// The greatest version that it assigned.
    pub(crate) version: Version,
    /// The active transaction, within the group.
    pub(crate) transaction: Option<Running>,
    pub(crate) transactions: Option<Transactions>,
}

impl WriterState {
    pub(crate) fn new(epochs: &Epochs) -> Self {
        Self {
            appender: Appender::default(),
            activity: epochs.register(),
            group: None,
            locks: Locks::default(),
            version: Version(0),
            transaction: None,
            transactions: None,
        }
    }

    /// A writer that bypasses the barrier; its caller must order its writes against lock holders.
    pub(crate) fn passing_barrier(mut self) -> Self {
        self.locks.passes_barrier = true;
        self
    }

    /// The least version of its next record.
    #[inline]
    pub(crate) fn floor<M: Medium>(&self, records: &Records<M>) -> Version {
        records.stripes().floor(self.version)
    }

    /// Notes that it assigned `version`.
    #[inline]
    pub(crate) fn gave(&mut self, version: Version) -> Version {
        self.version = version;
        version
    }

    /// Flushes the rest of a group, and releases the block and the counts. Not when the store is closed.
    pub(crate) fn end<M: Medium>(&mut self, records: &Records<M>) {
        let _ = self.abort_transaction(records);
        self.unlock(records);
        let _ = self.flush_group(records);
        self.end_transactions(records);
        self.appender.put_aside(&records.log);
        records.log.epochs().unregister(&self.activity);
    }

    /// The read barrier of the group, if there is one.
    pub(crate) fn read_barrier(&self) -> Option<&ReadBarrier> {
        let read_barrier = &self.group.as_ref()?.read_barrier;
        read_barrier.transaction_slot.set(self.transactions.as_ref().map(Transactions::transaction_slot));
        read_barrier.block.set(self.appender.place().map(|(extent, _)| extent));
        Some(read_barrier)
    }

    pub(crate) fn check<M: Medium>(records: &Records<M>, key: &[u8], value_bytes: usize) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "key has {} bytes; at most {KEY_BYTES_MAX} are allowed",
                key.len()
            )));
        }
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "value has {value_bytes} bytes; at most {VALUE_BYTES_MAX} are allowed"
            )));
        }
        records.log.epochs().check_writable()
    }

    /// Step 5, or defers it to the group.
    #[inline]
    pub(crate) fn finish<M: Medium>(&mut self, records: &Records<M>, epoch: Epoch) -> Result<()> {
        match self.read_barrier() {
            Some(read_barrier) => {
                read_barrier.epoch.set(read_barrier.epoch.get().max(epoch.0));
                Ok(())
            }
            None => records.log.wait_for(epoch),
        }
    }

    /// Ensures that a record of `bytes` fits.
    #[inline]
    pub(crate) fn reserve<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<()> {
        if self.is_locked() {
            return self.reserve_locked(context, bytes, purpose);
        }
        if self.group.is_none() || self.appender.has_room(bytes, purpose) {
            return self.appender.reserve(&context.records.log, context.supply, bytes, purpose);
        }
        self.reserve_in_group(context, bytes, purpose)
    }

    /// As [`WriterState::reserve`], with the group suspended.
    #[cold]
    pub(crate) fn reserve_in_group<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<()> {
        self.with_group_suspended(context.records, |writer_state| {
            writer_state.appender.reserve(&context.records.log, context.supply, bytes, purpose)
        })
    }

    /// Checks that a block can be opened for a put, and makes room for it. No stripe may be held.
    pub(crate) fn find_room<M: Medium>(&mut self, context: WriteContext<'_, M>) -> Result<()> {
        Self::check_unlocked(context.records, "make space")?;
        self.with_group_suspended(context.records, |_| context.supply.find_extent())
    }

    /// Runs `work`, which waits for others, with the group suspended: its writes so far are flushed and its pins
    /// released, so that space can be reclaimed in the meantime. No stripe may be held.
    pub(crate) fn with_group_suspended<M: Medium, T>(
        &mut self,
        records: &Records<M>,
        work: impl FnOnce(&mut Self) -> T,
    ) -> T {
        debug_assert!(
            !self.is_locked() && !rank::is_in_epoch(),
            "a writer that holds keys, or is in an epoch, waits for others (transaction::write, invariant 1)"
        );
        if self.group.is_none() {
            return work(self);
        }
        self.appender.advance_durable_tail(&records.log);
        self.transactions_drained(records);
        let mut over = Vec::new();
        if let Some(group) = &mut self.group {
            debug_assert!(
                group.pending.iter().all(|&(_, _, at)| is_drained(records, at)),
                "a mark is cleared of a record that is not durable (invariant 1)"
            );
            clear_pending(records, group.pending.drain(..));
            group.reader_epoch = None;
            if !group.over.iter().any(|over| records.log.epochs().must_wait(over.epoch())) {
                over = std::mem::take(&mut group.over);
            }
        }
        over.iter().for_each(|over| self.finalize_transaction(records, over));
        let done = work(self);
        if let Some(group) = &mut self.group {
            group.reader_epoch = Some(ReaderEpoch::begin(&self.activity));
        }
        done
    }

    /// Returns the block if it was taken below the limit of puts.
    #[inline]
    pub(crate) fn give_back<M: Medium>(&mut self, records: &Records<M>) {
        if self.appender.is_kept() {
            self.appender.put_aside(&records.log);
        }
    }

    pub(crate) fn begin_group(&mut self) {
        if self.group.is_none() {
            let read_barrier = ReadBarrier::default();
            // For a transaction that continues although the group before was flushed.
            read_barrier.transaction.set(self.transaction_id());
            self.group = Some(Group {
                reader_epoch: Some(ReaderEpoch::begin(&self.activity)),
                pending: Vec::new(),
                over: Vec::new(),
                read_barrier,
            });
            self.appender.grouped = true;
        }
    }

    pub(crate) fn flush_group<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        // The records that it superseded stay until it is durable.
        debug_assert!(
            group.reader_epoch.is_some() || group.pending.is_empty(),
            "a group without its reader epoch (invariant 3)"
        );
        self.appender.grouped = false;
        self.appender.advance_durable_tail(&records.log);
        self.transactions_drained(records);
        debug_assert!(
            group.pending.iter().all(|&(_, _, at)| is_drained(records, at)),
            "a mark is cleared of a record that is not durable (invariant 1)"
        );
        clear_pending(records, group.pending.into_iter());
        let committed = records.log.wait_for(Epoch(group.read_barrier.epoch.get()));
        if committed.is_ok() {
            group.over.iter().for_each(|over| self.finalize_transaction(records, over));
        }
        self.appender.transactions_finalized(&records.log);
        committed
    }
}

/// The purpose of the room that a write needs.
#[inline]
pub(crate) fn purpose_of(new: Option<(&[u8], Meta)>) -> Purpose {
    match new.map(|(_, meta)| meta.room) {
        Some(Room::Free) => Purpose::Write,
        Some(Room::Change) => Purpose::Change,
        Some(Room::Removal) | None => Purpose::Delete,
    }
}

/// Whether the record at `at` is below the durable tail of its block; always where epochs are in use.
fn is_drained<M: Medium>(records: &Records<M>, at: Offset) -> bool {
    let extent = records.log.blocks.extent_of(at.0);
    let durable = records.log.blocks.offset(extent) + records.log.blocks.at(extent).durable_tail();
    records.log.epochs().in_use() || at.0 < durable
}

/// Clears the pending marks of records that are now durable.
pub(crate) fn clear_pending<M: Medium>(
    records: &Records<M>,
    pending: impl Iterator<Item = (Owner, u64, Offset)>,
) {
    let guard = reclaim::pin_to_write();
    let mut last = None;
    for (owner, hash, at) in pending {
        // A table that was dropped in the meantime may be reclaimed.
        let Some(table) = records.tables.find(owner, &mut last) else { continue };
        // The group's reader epoch keeps the record. A hash index needs no key, and so not the record's line.
        let key = if table.index.ordered().is_some() { records.record(at).key() } else { &[] };
        clear_pending_at(&table.index.lock(hash, &guard), key, at);
    }
}

/// Clears the pending mark of the slot that points to the record at `at`.
pub(crate) fn clear_pending_at(locked: &Locked<'_>, key: &[u8], at: Offset) {
    // Not found: overwritten in the meantime, or moved by the compactor, which drained it.
    if let Some(place) = locked.find(key, |slot| slot.location() == at) {
        place.set(place.get().with_pending(false));
    }
}
