//! The visibility check: may the record that a slot points to be shown? All readers use this module for it.
//!
//! Four things can prevent a slot's record from being shown (promise P7: nothing is shown that a crash could undo).
//! [`Records::check_visible`] returns the first of them; the caller resolves it and checks again:
//!
//! | visibility | reason | resolved by |
//! |---|---|---|
//! | [`OfTransaction`](Visibility::OfTransaction) | the slot is pending, since the transaction of its record is active or not finalized | [`Records::standing`]: the slot's previous target is shown, or the transaction is made durable |
//! | [`Undrained`](Visibility::Undrained) | the slot is pending, since its writer is in a group and has not drained yet | [`Records::flush_on_behalf_of_reader`]: the reader flushes from the block's durable tail to the record, and drains |
//! | [`Uncommitted`](Visibility::Uncommitted) | its epoch is not committed, and each write must be durable, or the reader is in a group. Not for a copy that compaction made of a committed record | [`Records::require_durable`]: it waits for the commit, or notes the epoch |
//! | [`Copied`](Visibility::Copied) | the value is updated in place, perhaps at this moment | [`Records::flush_shown`]: it is copied, and flushed if a writer holds the key's lock |

use crate::Result;
use crate::get::barrier::ReadBarrier;
use crate::get::value::Record;
use crate::records::Records;
use duramen_index::Slot;
use duramen_log::format::Epoch;
use duramen_media::{Medium, Offset};

/// The state of the transaction of a pending transaction record, for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is active, and is the reader's own.
    Own,
    /// It is active: the slot's previous target is current.
    Active,
    /// It has committed, or was aborted.
    Over,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// A value: it is shown without a copy.
    Shown,
    /// A value that is updated in place: a copy is shown.
    Copied,
    /// The key is absent, and this answer may be returned.
    Absent,
    OfTransaction,
    Undrained,
    Uncommitted(Epoch),
}

impl<M: Medium> Records<M> {
    /// What the reader must do with the record that `slot` points to; `read_barrier` when the reader is in a group.
    #[inline(always)]
    pub(crate) fn check_visible(
        &self,
        slot: Slot,
        record: &Record<'_>,
        read_barrier: Option<&ReadBarrier>,
    ) -> Visibility {
        if slot.is_ready_value() && record.head.is_plain_value() && !self.log.epochs().in_use() {
            return Visibility::Shown;
        }
        self.check_visible_slow(slot, record, read_barrier)
    }

    /// The rest of `check_visible`. Separate, so that the code of nearly all lookups is short.
    #[inline(never)]
    fn check_visible_slow(
        &self,
        slot: Slot,
        record: &Record<'_>,
        read_barrier: Option<&ReadBarrier>,
    ) -> Visibility {
        if slot.is_pending() {
            return if record.head.is_transactional() {
                Visibility::OfTransaction
            } else {
                Visibility::Undrained
            };
        }
        if self.log.epochs().in_use() {
            let epoch = self.epoch_of(record);
            let stands = match read_barrier {
                None => self.log.epochs().must_wait(epoch),
                Some(read_barrier) => epoch.0 > read_barrier.epoch.get(),
            };
            if stands {
                return Visibility::Uncommitted(epoch);
            }
        }
        if slot.is_tombstone() || self.is_expired(record.ends_at()) {
            return Visibility::Absent;
        }
        if record.head.is_cell() { Visibility::Copied } else { Visibility::Shown }
    }

    /// Whether this expiry time has been reached.
    #[inline]
    pub(crate) fn is_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| {
            let expired = at <= self.log.clock().now();
            if expired {
                self.log.clock().reached(at);
            }
            expired
        })
    }

    /// The state of the transaction that a pending record belongs to.
    #[cold]
    pub(crate) fn standing(&self, record: &Record<'_>, read_barrier: Option<&ReadBarrier>) -> Standing {
        let trailer = record.trailer();
        if read_barrier.is_some_and(|read_barrier| read_barrier.transaction.get() == trailer.transaction.0) {
            return Standing::Own;
        }
        let is_active = self
            .log
            .transaction_slots
            .at(Slot::transaction_slot_of(trailer.previous))
            .is_active(trailer.transaction);
        if is_active { Standing::Active } else { Standing::Over }
    }

    /// Makes the last commit of a transaction record's writer durable; returns the epoch to wait for as well.
    fn flush_transaction_on_behalf(&self, record: &Record<'_>, drain: bool) -> Epoch {
        let transaction_slot =
            self.log.transaction_slots.at(Slot::transaction_slot_of(record.trailer().previous));
        if self.log.epochs().in_use() {
            return Epoch(transaction_slot.epoch());
        }
        let to = transaction_slot.shown_to();
        if to != 0 {
            let extent = self.log.blocks.extent_of(to - 8);
            let from = self.log.blocks.offset(extent) + self.log.blocks.at(extent).durable_tail();
            if from < to {
                self.log.medium.flush(Offset(from), to - from);
            }
            if drain {
                self.log.medium.drain();
            }
        }
        Epoch(0)
    }

    /// Makes a record durable that its writer has not drained yet, with all of its transaction; returns the epoch to
    /// wait for as well.
    ///
    /// Recovery reads a block from its beginning, so everything between the durable tail and the end of this record
    /// must be durable with it.
    #[cold]
    pub(crate) fn flush_on_behalf(&self, record: &Record<'_>, drain: bool) -> Epoch {
        if record.head.is_transactional() {
            return self.flush_transaction_on_behalf(record, drain);
        }
        let extent = self.log.blocks.extent_of(record.at.0);
        let from = self.log.blocks.offset(extent) + self.log.blocks.at(extent).durable_tail();
        let to = record.at.0 + record.head.record_bytes();
        if from < to {
            self.log.medium.flush(Offset(from), to - from);
        }
        // A cell may be below the durable tail.
        self.log.medium.flush(record.at, record.head.record_bytes());
        if drain {
            self.log.medium.drain();
        }
        Epoch(0)
    }

    /// As [`Records::flush_on_behalf`], for a reader that is shown the record; `read_barrier` when it is in a group.
    /// Records of its own group are drained when the group is flushed. A record of another writer is drained at once:
    /// the reader's next writes may depend on it, and must not survive a power failure without it.
    #[cold]
    pub(crate) fn flush_on_behalf_of_reader(
        &self,
        record: &Record<'_>,
        read_barrier: Option<&ReadBarrier>,
    ) -> Epoch {
        let is_own = |read_barrier: &ReadBarrier| match record.head.is_transactional() {
            true => {
                read_barrier.transaction_slot.get()
                    == Some(Slot::transaction_slot_of(record.trailer().previous))
            }
            false => read_barrier.block.get() == Some(self.log.blocks.extent_of(record.at.0)),
        };
        let waits = read_barrier.is_some_and(is_own);
        self.flush_on_behalf(record, read_barrier.is_none() || !waits)
    }

    /// The epoch that must be durable before the record is shown. None (0) for a copy by the compactor of a committed
    /// record: until the copy is committed too, a crash leaves the original (`compact::records`, invariant 4).
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
        let extent = self.log.blocks.extent_of(at.0);
        self.log.blocks.is_copy(extent, at.0 - self.log.blocks.offset(extent))
    }

    /// Waits until `epoch` is durable, or notes it.
    #[inline]
    pub(crate) fn require_durable(&self, epoch: Epoch, read_barrier: Option<&ReadBarrier>) -> Result<()> {
        match read_barrier {
            Some(read_barrier) => {
                if self.log.epochs().check_writable().is_err() {
                    // The epoch will never be committed. Only this read gets the error, so that the group can be
                    // flushed.
                    self.log.wait_for(epoch)?;
                }
                read_barrier.epoch.set(read_barrier.epoch.get().max(epoch.0));
            }
            None => self.log.wait_for(epoch)?,
        }
        Ok(())
    }
}
