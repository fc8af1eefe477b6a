//! What recovery finds in one block.

use super::claims::Claim;
use crate::format::Epoch;
use crate::format::block::{TransactionOutcome, TransactionOutcomes};
use crate::format::record::Header;
use crate::format::transaction::{Part, Parts};

/// What one block turned out to hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub records: u64,
    /// Bytes from the block's beginning to the end of the records that count.
    pub tail: u64,
    /// Whether the header does not say so yet.
    pub reseal: bool,
    pub torn: bool,
    pub uncommitted: u64,
    pub damage: Vec<String>,
    /// What the damaged records say of themselves.
    pub claims: Vec<Claim>,
    pub epoch_max: Epoch,
    /// Whether it holds any whole record, counting or not: of the epochs that it belongs to each one is needed to prove them.
    pub holds: bool,
    /// What became of transactions of several blocks, which its header does not say yet.
    pub transaction_outcomes: TransactionOutcomes,
    /// Bytes of the records that were entered in the index.
    pub(super) entered: u64,
    pub(super) transactions: TransactionsFound,
}

/// What a block has of transactions.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionsFound {
    pub parts: Parts,
    /// Members that wait for an end.
    pub waiting: Vec<(u64, Header)>,
    /// Of transactions that the block does not have whole: what it has, what its header says, and where the bytes lie
    /// that `Part` counts from.
    pub several: Vec<(Part, TransactionOutcome, u64)>,
}

impl TransactionsFound {
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.waiting.is_empty()
    }
}
