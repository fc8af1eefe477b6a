//! Counts how many stale records a key has; nothing else does.
//!
//! A record is *stale* when it is valid, lies in a block that is not retired, and is not the one that its key's slot
//! points to. Each slot counts those of its key, in 5 bits. 31 means unknown: 31 or more, or some may lie in damaged
//! areas. A count answers one question: may a tombstone be removed? It may when it hides nothing, or only records that
//! are freed with it.
//!
//! The promises of the counts, and their reasons:
//!
//! 1. *A count is never too low*: otherwise a crash would bring a deleted key back. Code that makes a record stale
//!    counts it in the same step, under the key's lock. A writer does so when its slot replaces another
//!    ([`Slot::superseding`]), and recovery when it finds two records of a key ([`Slot::with_stale_beside`]). The
//!    compactor does so when a copy came too late, or when a block that it had emptied stays ([`Place::count_stale`]).
//!    If the number cannot be known the count says so ([`Slot::hiding_unknown`], [`Slot::with_unverified_count`]); that
//!    keeps a tombstone, and does nothing else.
//! 2. *A count is not too high forever*: otherwise a tombstone would stay forever. When a block is retired, each of its
//!    dead records lowers its key's count by one ([`Place::forget_stale`]). An unknown count never goes down. It is
//!    replaced by the number found in a read of all blocks ([`Place::learn_stale`], `compact/recount.rs`).
//! 3. *A key with stale records has a slot*. A slot is removed only when its count says that it hides nothing, or only
//!    records that are freed with it ([`Slot::covers_at_most`]). So the count to lower is found.
//! 4. *A tombstone that hides nothing is itself dead*, though its slot points to it: it is subtracted from its block's
//!    live bytes exactly when that becomes known. So a change of a count returns the effect on the tombstone
//!    ([`TransactionOutcome`]). Code that supersedes or moves a record asks [`Slot::covers_no_older_records`] whether
//!    it was subtracted.
//!
//! A count of 0 does not mean that no older record is left: one may lie in a retired block. That block was retired
//! before the tombstone's block can be, and blocks are freed in that order (`compact/records.rs`, invariant 2). So
//! no crash finds the older record without the tombstone. If a block stays because a value in it is pinned, its records
//! count again (`compact/release.rs`). For the choice of counts over an order of blocks see
//! docs/internals/decisions/002.

use super::either::Place;
use super::{STALE_MASK, STALE_SHIFT, Slot};

/// 5 bits suffice: with a quarter of the space dead at most, a key with 31 stale records is rare, unless it is written
/// all the time.
const UNKNOWN: u64 = STALE_MASK >> STALE_SHIFT;

/// The effect of a change of its count on the record that a slot points to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// It stays live or dead.
    Unchanged,
    /// A tombstone that no longer hides anything: it is itself dead.
    Died,
    /// A tombstone that hid nothing, and hides a record again.
    Revived,
}

impl Slot {
    #[inline]
    fn stale(self) -> u64 {
        (self.0 & STALE_MASK) >> STALE_SHIFT
    }

    #[inline]
    fn with_stale(self, stale: u64) -> Self {
        Self(self.0 & !STALE_MASK | stale.min(UNKNOWN) << STALE_SHIFT)
    }

    /// How many stale records its key has; `None`: unknown.
    #[inline]
    pub fn stale_known(self) -> Option<u64> {
        Some(self.stale()).filter(|&stale| stale != UNKNOWN)
    }

    /// Whether it is a tombstone that hides nothing, and so is itself dead (4).
    #[inline]
    pub fn covers_no_older_records(self) -> bool {
        self.is_tombstone() && self.stale() == 0
    }

    /// Whether its key has at most `gone` stale records, which are freed with it (3).
    pub fn covers_at_most(self, gone: u64) -> bool {
        self.stale_known().is_some_and(|stale| stale <= gone)
    }

    /// The slot of a new record that replaces `old`, whose record is stale from now on.
    #[inline]
    pub fn superseding(self, old: Self) -> Self {
        debug_assert_eq!(
            self.stale(),
            0,
            "a new record has counted nothing yet (duramen::writer, invariant 2)"
        );
        self.with_stale(old.stale() + 1)
    }

    /// The slot that this one, of a transaction record, replaced. The transaction is aborted, so its record is no
    /// record of the key, and the previous one is no longer stale. Records counted since then stay counted.
    pub fn put_back(self, previous: Self) -> Self {
        let stale = self.stale_known().map_or(UNKNOWN, |stale| stale.saturating_sub(1));
        self.at(previous.location())
            .with_tombstone(previous.is_tombstone())
            .with_pending(previous.is_pending())
            .with_stale(stale)
    }

    /// The same slot, after recovery also found the record of `other`, which is stale.
    #[inline]
    pub fn with_stale_beside(self, other: Self) -> Self {
        self.with_more_stale(other.stale() + 1)
    }

    /// The same slot, after recovery also found this many stale records.
    #[inline]
    pub fn with_more_stale(self, stale: u64) -> Self {
        self.with_stale(self.stale() + stale)
    }

    /// The same slot, with an unknown number of stale records.
    #[inline]
    pub fn hiding_unknown(self) -> Self {
        self.with_stale(UNKNOWN)
    }

    /// The slot of a key whose table is dead: its record is dead, and it hides nothing.
    pub fn of_dead_table(self) -> Self {
        self.with_tombstone(true).with_stale(0)
    }

    /// The same slot after some of its key's stale records may have been removed, and none can have been added. Its
    /// count is no longer certain, unless it is 0.
    #[inline]
    pub fn with_unverified_count(self) -> Self {
        if self.stale() == 0 { self } else { self.hiding_unknown() }
    }
}

impl Place<'_> {
    /// The medium has a record of the key that its slot did not count.
    pub fn count_stale(&self) -> TransactionOutcome {
        self.change(|slot| slot.with_stale(slot.stale() + 1))
    }

    /// A stale record of the key no longer counts.
    #[inline]
    pub fn forget_stale(&self) -> TransactionOutcome {
        self.change(|slot| match slot.stale() {
            0 | UNKNOWN => slot,
            stale => slot.with_stale(stale - 1),
        })
    }

    /// This many stale records of the key were found; their number was unknown.
    pub fn learn_stale(&self, stale: u64) -> TransactionOutcome {
        debug_assert_eq!(self.get().stale_known(), None, "the count is known");
        self.change(|slot| slot.with_stale(stale))
    }

    #[inline]
    fn change(&self, count: impl FnOnce(Slot) -> Slot) -> TransactionOutcome {
        let before = self.get();
        let after = count(before);
        self.set(after);
        match (before.covers_no_older_records(), after.covers_no_older_records()) {
            (false, true) => TransactionOutcome::Died,
            (true, false) => TransactionOutcome::Revived,
            (false, false) | (true, true) => TransactionOutcome::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_media::Offset;

    fn slot(stale: u64) -> Slot {
        Slot::new(Offset(64)).with_tombstone(true).with_pending(true).with_stale(stale)
    }

    #[test]
    fn a_count_of_stale_records_is_unknown_from_31_on() {
        for stale in 0..=40 {
            let known = (stale < 31).then_some(stale);
            assert_eq!(slot(stale).stale_known(), known);
            assert_eq!(slot(0).with_more_stale(stale).stale_known(), known);
            assert_eq!(slot(stale).with_stale(0), slot(0));
            let next = (stale < 30).then_some(stale + 1);
            assert_eq!(slot(0).superseding(slot(stale)).stale_known(), next);
        }
    }

    #[test]
    fn an_unknown_count_of_stale_records_stays_unknown() {
        assert_eq!(slot(31).with_stale_beside(slot(0)).stale_known(), None);
        assert_eq!(slot(0).with_stale_beside(slot(31)).stale_known(), None);
        assert_eq!(slot(2).with_stale_beside(slot(3)).stale_known(), Some(6));
        assert_eq!(slot(7).with_unverified_count().stale_known(), None);
        assert_eq!(slot(0).with_unverified_count().stale_known(), Some(0));
    }

    #[test]
    fn a_tombstone_is_dropped_only_with_all_records_that_it_hides() {
        assert!(slot(0).covers_no_older_records() && slot(0).covers_at_most(0));
        assert!(
            !slot(2).covers_no_older_records() && !slot(2).covers_at_most(1) && slot(2).covers_at_most(2)
        );
        assert!(!slot(31).covers_at_most(100));
        assert!(!slot(0).with_tombstone(false).covers_no_older_records());
    }
}
