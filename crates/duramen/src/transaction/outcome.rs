//! The result of reading one block.

use crate::damage::claims::Claim;
use duramen_log::format::Epoch;
use duramen_log::format::block::{TransactionOutcome, TransactionOutcomes};
use duramen_log::format::record::Header;
use duramen_log::format::transaction::{Part, Parts};

/// The contents of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub records: u64,
    /// Bytes from the block's beginning to the end of the records that count.
    pub tail: u64,
    /// Whether the header does not record this tail yet.
    pub reseal: bool,
    pub torn: bool,
    pub uncommitted: u64,
    pub damage: Vec<String>,
    /// The claims of the damaged records.
    pub claims: Vec<Claim>,
    pub epoch_max: Epoch,
    /// Whether it holds any whole record, counting or not: proving an epoch needs every record of it.
    pub holds: bool,
    /// Outcomes of transactions of several blocks that its header does not record yet.
    pub transaction_outcomes: TransactionOutcomes,
    /// Bytes of the records that were entered in the index.
    pub(crate) entered: u64,
    pub(crate) transactions: TransactionsFound,
}

/// The transactions of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransactionsFound {
    pub parts: Parts,
    /// Transaction records that wait for a commit record.
    pub waiting: Vec<(u64, Header)>,
    /// Transactions that lie only partly in the block: their part, the outcome in its header, and the place of the
    /// bytes from which `Part` counts.
    pub several: Vec<(Part, TransactionOutcome, u64)>,
}

impl TransactionsFound {
    #[inline]
    pub fn is_open(&self) -> bool {
        !self.waiting.is_empty()
    }
}
