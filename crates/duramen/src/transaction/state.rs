//! The state of transactions of a writer.

use crate::locks::state::Inside;
use crate::table::names::Before;
use crate::table::tables::RootRef;
use crate::transaction::pins::Pins;
use duramen_log::format::transaction::TransactionSum;
use duramen_log::format::{Epoch, Extent, Owner, TransactionId};
use duramen_log::sync::holding::{Noted, Place};
use duramen_log::transaction::Numbers;
use duramen_media::Offset;

/// The part of a block that a transaction has written.
#[derive(Clone, Copy)]
pub(crate) struct TransactionSpan {
    pub(crate) extent: Extent,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A key that was absent when a transaction deleted it, so that nothing was written.
pub(crate) struct AbsentRead {
    pub(crate) owner: Owner,
    pub(crate) key: Vec<u8>,
}

/// An active transaction.
pub(crate) struct Running {
    pub(crate) id: TransactionId,
    pub(crate) sum: TransactionSum,
    pub(crate) spans: Vec<TransactionSpan>,
    /// Collections whose roots it superseded.
    pub(crate) lost: Vec<RootRef>,
    /// Collections that its roots name, each with its previous state.
    pub(crate) named: Vec<(RootRef, Before)>,
    /// Place of the root that it wrote last.
    pub(crate) root_at: Offset,
    /// Keys of tables that were absent when it deleted them, unless they were locked.
    pub(crate) absent_reads: Vec<AbsentRead>,
    /// Of the blocks of the records that it replaces.
    pub(crate) pins: Pins,
    /// The group was begun for it.
    pub(crate) own_group: bool,
    /// Until it is over nobody else closes the barrier.
    pub(crate) _inside: Inside,
    pub(crate) _noted: Noted,
    /// The call that began it.
    pub(crate) place: Place,
    /// One of its writes found no room, so its commit record may have none, or found a record that is being moved.
    pub(crate) failed: bool,
}

/// A transaction that has committed, or was aborted, and is not finalized.
pub(crate) struct Over {
    pub(crate) spans: Vec<TransactionSpan>,
    pub(crate) epoch: Epoch,
}

impl Over {
    /// The epoch of its commit record.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// A writer's state for transactions, once it has begun one.
pub(crate) struct Transactions {
    pub(crate) transaction_slot: u16,
    pub(crate) numbers: Numbers,
    /// The stripes in which the active transaction is counted: see
    /// [`Stripes::begin_active`](duramen_index::stripes::Stripes::begin_active).
    pub(crate) counted: Vec<u64>,
}

impl Transactions {
    pub(crate) fn transaction_slot(&self) -> u16 {
        self.transaction_slot
    }
}
