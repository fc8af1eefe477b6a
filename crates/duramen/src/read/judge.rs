//! May the record that a slot leads to be shown? Every reader asks here, and nowhere else.
//!
//! Four things can stand between a slot and an answer (promise P7: nothing is shown that a crash could undo). [`Records::judge`]
//! names the first of them; whoever has dealt with it asks again:
//!
//! | verdict | because | dealt with by |
//! |---|---|---|
//! | [`OfUnit`](Verdict::OfUnit) | the slot is pending, since the unit of its record runs or is not settled | [`Records::standing`]: what the slot led to before is shown, or the unit is made durable |
//! | [`Undrained`](Verdict::Undrained) | the slot is pending, since its writer is in a group and has not drained yet | [`Records::help_read`]: the reader flushes the record itself, from where its block is settled, and drains |
//! | [`Uncommitted`](Verdict::Uncommitted) | its epoch is not committed, and writes are to be durable one by one, or the reader is in a group. Not so for a copy that compaction made of a committed record | [`Records::owe`]: it waits for the commit, or notes the epoch |
//! | [`Copied`](Verdict::Copied) | the value is updated in place, and may just be | [`Records::flush_shown`]: it is copied, and flushed while a writer holds the key's lock |

use super::Records;
use super::owed::Owed;
use super::value::Record;
use crate::Result;
use crate::format::Epoch;
use crate::index::Slot;
use crate::mutants::{Mutant, planted};
use duramen_media::{Medium, Offset};

/// Where the unit of a member stands, whose slot is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It runs, and is the reader's own.
    Own,
    /// It runs: what the slot led to before is what is there.
    Runs,
    /// It has committed, or was given up.
    Over,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A value: it is shown as it lies.
    Shown,
    /// A value that is updated in place: a copy is shown.
    Copied,
    /// The key is absent, and that may be told.
    Absent,
    OfUnit,
    Undrained,
    Uncommitted(Epoch),
}

impl<M: Medium> Records<M> {
    /// What is to be done with the record that `slot` leads to; `owed` when the reader is in a group.
    #[inline(always)]
    pub(crate) fn judge(&self, slot: Slot, record: &Record<'_>, owed: Option<&Owed>) -> Verdict {
        if slot.is_ready_value() && record.head.is_plain_value() && !self.log.epochs().in_use() {
            return Verdict::Shown;
        }
        self.judge_otherwise(slot, record, owed)
    }

    /// The rest of `judge`. Apart, so that the code of nearly all lookups is short.
    #[inline(never)]
    fn judge_otherwise(&self, slot: Slot, record: &Record<'_>, owed: Option<&Owed>) -> Verdict {
        if slot.is_pending() {
            return if record.head.is_member() { Verdict::OfUnit } else { Verdict::Undrained };
        }
        if self.log.epochs().in_use() {
            let epoch = self.epoch_of(record);
            let stands = match owed {
                None => self.log.epochs().must_wait(epoch) && !planted(Mutant::UndurableShown),
                Some(owed) => epoch.0 > owed.epoch.get(),
            };
            if stands {
                return Verdict::Uncommitted(epoch);
            }
        }
        if slot.is_tombstone() || self.is_expired(record.expires_at()) {
            return Verdict::Absent;
        }
        if record.head.is_cell() { Verdict::Copied } else { Verdict::Shown }
    }

    /// Whether what expires then has expired now.
    #[inline]
    pub(crate) fn is_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| {
            let expired = at <= self.log.clock().now() && !planted(Mutant::ExpiredShown);
            if expired {
                self.log.clock().reached(at);
            }
            expired
        })
    }

    /// Where the unit stands that a pending record belongs to.
    #[cold]
    pub(super) fn standing(&self, record: &Record<'_>, owed: Option<&Owed>) -> Standing {
        let trailer = record.trailer();
        if owed.is_some_and(|owed| owed.unit.get() == trailer.unit.0) {
            return Standing::Own;
        }
        let runs = self.log.lanes.at(Slot::lane_of(trailer.previous)).runs(trailer.unit);
        if runs && !planted(Mutant::UnitShownInParts) { Standing::Runs } else { Standing::Over }
    }

    /// Makes what was committed last by the writer of a member durable; what is to be waited for besides.
    fn help_unit(&self, record: &Record<'_>, drain: bool) -> Epoch {
        let lane = self.log.lanes.at(Slot::lane_of(record.trailer().previous));
        if self.log.epochs().in_use() {
            return Epoch(lane.epoch());
        }
        let to = lane.shown_to();
        if to != 0 {
            let granule = self.log.blocks.granule_of(to - 8);
            let from = self.log.blocks.offset(granule) + self.log.blocks.at(granule).settled();
            if from < to {
                self.log.medium.flush(Offset(from), to - from);
            }
            if drain {
                self.log.medium.drain();
            }
        }
        Epoch(0)
    }

    /// Makes a record durable that its writer has not drained yet, with all of its unit; what is to be waited for
    /// besides.
    ///
    /// Recovery reads a block from its beginning, so everything between what is settled and the end of this record
    /// must be durable with it.
    #[cold]
    pub(crate) fn help(&self, record: &Record<'_>, drain: bool) -> Epoch {
        if planted(Mutant::UndurableShown) {
            return Epoch(0);
        }
        if record.head.is_member() {
            return self.help_unit(record, drain);
        }
        let granule = self.log.blocks.granule_of(record.at.0);
        let from = self.log.blocks.offset(granule) + self.log.blocks.at(granule).settled();
        let to = record.at.0 + record.head.record_bytes();
        if from < to {
            self.log.medium.flush(Offset(from), to - from);
        }
        // A cell may lie below what is settled.
        self.log.medium.flush(record.at, record.head.record_bytes());
        if drain {
            self.log.medium.drain();
        }
        Epoch(0)
    }

    /// The same for who is shown it; `owed` when that is in a group. What its own group wrote is drained when it is settled. What another
    /// wrote is drained at once: what is written next may be built on it, and must not survive a power failure without it.
    #[cold]
    pub(crate) fn help_read(&self, record: &Record<'_>, owed: Option<&Owed>) -> Epoch {
        let is_own = |owed: &Owed| match record.head.is_member() {
            true => owed.lane.get() == Some(Slot::lane_of(record.trailer().previous)),
            false => owed.block.get() == Some(self.log.blocks.granule_of(record.at.0)),
        };
        let waits = planted(Mutant::BuiltOnUndrained) || owed.is_some_and(is_own);
        self.help(record, owed.is_none() || !waits)
    }

    /// The epoch that must be durable before the record is shown. None (0) for a copy by the compactor of a committed record:
    /// until the copy is committed too, what a crash leaves is the original (`background::compact`, invariant 4).
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
        let granule = self.log.blocks.granule_of(at.0);
        self.log.blocks.at(granule).is_copy(at.0 - self.log.blocks.offset(granule))
    }

    /// Waits until `epoch` is durable, or notes it.
    #[inline]
    pub(super) fn owe(&self, epoch: Epoch, owed: Option<&Owed>) -> Result<()> {
        match owed {
            Some(owed) => {
                if self.log.epochs().check_writable().is_err() {
                    // What is not committed never will be. The error is of this read alone, so that the group can be settled.
                    self.log.wait_for(epoch)?;
                }
                owed.epoch.set(owed.epoch.get().max(epoch.0));
            }
            None => self.log.wait_for(epoch)?,
        }
        Ok(())
    }
}
