//! The records that a slot may point to: durable ones, ones marked pending, and ones whose epoch is not committed. A
//! [`Reachable`] is made only by the functions that ensure one of the three, and a slot for a new record is made only
//! from a [`Reachable`] (`Slot::to`, `Slot::moved_to`):
//!
//! | made by | holds | the slot |
//! |---|---|---|
//! | [`Appender::make_durable`], [`Appender::make_all_durable`], [`Appender::open_cell`] | drained; with epochs, its epoch is not committed while its writer is in it | is not pending |
//! | [`Appender::leave_pending`] | part of a group that drains later, or of an active transaction | is pending until [`Appender::advance_durable_tail`], or until its transaction is finalized |
//! | [`Reachable::pending`] | durable, but part of a group | is pending until the group is flushed |

use crate::Log;
use crate::appender::Appender;
use crate::format::record::Appended;
use duramen_media::{Medium, Offset};

/// An appended record that a slot may point to.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Reachable {
    at: Offset,
    is_pending: bool,
}

impl Reachable {
    /// A record that is drained, as the caller guarantees: see the table.
    #[inline]
    pub(crate) fn drained(appended: Appended) -> Self {
        Self { at: appended.at, is_pending: false }
    }

    #[inline]
    pub fn at(self) -> Offset {
        self.at
    }

    /// Whether its slot must be marked pending.
    #[inline]
    pub fn is_pending(self) -> bool {
        self.is_pending
    }

    /// The same record, marked pending because its group is not flushed.
    #[inline]
    pub fn pending(self) -> Self {
        Self { is_pending: true, ..self }
    }
}

impl Appender {
    /// Drains the record last appended. Where epochs are in use, the committer flushes and drains it instead.
    #[inline(always)]
    pub fn make_durable<M: Medium>(&mut self, log: &Log<M>, appended: Appended) -> Reachable {
        if !log.epochs().in_use() {
            self.drain(log);
        }
        debug_assert!(self.has_drained(log, appended), "it is durable (duramen::writer, invariant 1)");
        Reachable::drained(appended)
    }

    /// Like `make_durable` for several records, with one drain. Each record comes with a value of the caller's.
    pub fn make_all_durable<M: Medium, T, I: Iterator<Item = (T, Appended)>>(
        &mut self,
        log: &Log<M>,
        appended: I,
    ) -> impl Iterator<Item = (T, Reachable)> + use<M, T, I> {
        self.drain(log);
        appended.map(|(of, appended)| (of, Reachable::drained(appended)))
    }

    /// Leaves the record last appended pending until the end of the group.
    #[inline(always)]
    pub fn leave_pending(&self, appended: Appended) -> Reachable {
        debug_assert!(self.grouped, "only a group may leave records pending (duramen::writer, invariant 1)");
        Reachable { at: appended.at, is_pending: true }
    }
}
