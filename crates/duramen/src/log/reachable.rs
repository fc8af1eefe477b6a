//! Which records a slot may point to: those that are durable, or are marked pending, or whose epoch is not committed. A
//! [`Reachable`] is made only by what brings one of the three about, and the slot of a new record is made of nothing
//! else (`Slot::to`, `Slot::moved_to`):
//!
//! | made by | holds | the slot |
//! |---|---|---|
//! | [`Appender::make_durable`], [`Appender::make_all_durable`], [`Appender::open_cell`] | drained; where epochs are in use, its epoch is not committed while its writer is in it | is not pending |
//! | [`Appender::leave_pending`] | a group that drains later, or a transaction that runs | is pending until [`Appender::settle`], or until its transaction is finalized |
//! | [`Reachable::pending`] | durable, but of a group | is pending until that settles |

use super::Log;
use super::appender::Appender;
use crate::format::record::Appended;
use duramen_media::{Medium, Offset};

/// A record that was appended, to which a slot may lead.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reachable {
    at: Offset,
    is_pending: bool,
}

impl Reachable {
    /// A record that was drained, by whoever says so: see the table.
    #[inline]
    pub(super) fn drained(appended: Appended) -> Self {
        Self { at: appended.at, is_pending: false }
    }

    #[inline]
    pub(crate) fn at(self) -> Offset {
        self.at
    }

    /// Whether its slot must be marked pending.
    #[inline]
    pub(crate) fn is_pending(self) -> bool {
        self.is_pending
    }

    /// The same, not to be told of yet: its group is not settled.
    #[inline]
    pub(crate) fn pending(self) -> Self {
        Self { is_pending: true, ..self }
    }
}

impl Appender {
    /// Drains what was last appended. Where epochs are in use the committer flushes it, and drains.
    #[inline(always)]
    pub(crate) fn make_durable<M: Medium>(&mut self, log: &Log<M>, appended: Appended) -> Reachable {
        if !log.epochs().in_use() {
            self.drain(log);
        }
        Reachable::drained(appended)
    }

    /// The same of several records, with one drain; each comes with what it is of.
    pub(crate) fn make_all_durable<M: Medium, T, I: Iterator<Item = (T, Appended)>>(
        &mut self,
        log: &Log<M>,
        appended: I,
    ) -> impl Iterator<Item = (T, Reachable)> + use<M, T, I> {
        self.drain(log);
        appended.map(|(of, appended)| (of, Reachable::drained(appended)))
    }

    /// Leaves what was last appended to the end of the group.
    #[inline(always)]
    pub(crate) fn leave_pending(&self, appended: Appended) -> Reachable {
        debug_assert!(self.grouped, "only a group drains what is pending");
        Reachable { at: appended.at, is_pending: true }
    }
}
