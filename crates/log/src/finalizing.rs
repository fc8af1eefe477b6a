//! Transactions of several blocks, from their commit record until the compactor may have their blocks.
//!
//! Recovery counts a transaction of several blocks because it finds its commit record and all its transaction records.
//! So none of its blocks may be compacted before the headers of all of them record its outcome permanently
//! ([`TransactionOutcomes`]). In order, with the result of a crash:
//!
//! 1. The commit record is durable, or nothing is written to headers. A crash before: either all of the transaction is
//!    there, or it does not count.
//! 2. Each block's header records that the transaction counts. A crash between two of them: the commit record and all
//!    transaction records are there, and recovery counts them as before.
//! 3. The headers are durable. Now each block alone states which of its records count.
//! 4. The blocks' pins are released; only from here on they can be retired.
//!
//! For an aborted transaction, the headers record in the same way that it does not count, so that recovery does not
//! search for its commit record.
//!
//! Where epochs are in use, 1 waits for the commit of the commit record's epoch, and on page media 3 waits for the
//! commit of another one.

use crate::Log;
use crate::format::block::{self, TransactionOutcome, TransactionOutcomes};
use crate::format::{Epoch, Extent};
use crate::sync::{Mutex, lock, rank};
use duramen_media::{Granularity, Medium};

/// A transaction whose blocks' headers do not record its outcome yet.
struct Unfinalized {
    blocks: Vec<Extent>,
    /// The last block has the commit record.
    has_commit: bool,
    transaction_outcome: TransactionOutcome,
    /// Epoch of the commit record.
    epoch: Epoch,
    /// The epoch whose commit makes the headers durable, once they are written.
    written: Option<Epoch>,
}

/// See the module.
#[derive(Default)]
pub struct Finalizing(Mutex<Vec<Unfinalized>, { rank::FINALIZING }>);

impl<M: Medium> Log<M> {
    /// A transaction is over and drained. Its commit record, if it has one, is in the last of these blocks; each block
    /// has a pin for it.
    pub fn finalize_transaction(
        &self,
        blocks: Vec<Extent>,
        transaction_outcome: TransactionOutcome,
        has_commit: bool,
        epoch: Epoch,
    ) {
        lock(&self.finalizing.0).push(Unfinalized {
            blocks,
            has_commit,
            transaction_outcome,
            epoch,
            written: None,
        });
        self.finalize_transactions();
    }

    /// Continues the transactions of several blocks whose commit records are durable. True when none is left.
    pub fn finalize_transactions(&self) -> bool {
        let mut waiting = lock(&self.finalizing.0);
        if waiting.is_empty() {
            return true;
        }
        let is_committed = |epoch: Epoch| !self.epochs().in_use() || self.epochs().committed() >= epoch;
        if self.epochs().check_writable().is_err() {
            return false;
        }
        let mut any = false;
        for transaction in waiting.iter_mut().filter(|transaction| transaction.written.is_none()) {
            // An aborted transaction has nothing that must be durable.
            if transaction.transaction_outcome == TransactionOutcome::Void || is_committed(transaction.epoch)
            {
                self.write_transaction_outcomes(transaction);
                // A later commit than any that has begun.
                transaction.written = Some(self.epochs().current());
                any = true;
            }
        }
        if any {
            self.medium.drain();
        }
        let waits = self.medium.granularity() == Granularity::Page && self.epochs().in_use();
        waiting.retain(|transaction| {
            let is_over = transaction.written.is_some_and(|epoch| !waits || is_committed(epoch));
            if is_over {
                transaction.blocks.iter().for_each(|&extent| self.blocks.at(extent).unpin());
            }
            !is_over
        });
        waiting.is_empty()
    }

    fn write_transaction_outcomes(&self, transaction: &Unfinalized) {
        let ended =
            TransactionOutcomes { ended: transaction.transaction_outcome, ..TransactionOutcomes::default() };
        let onward =
            TransactionOutcomes { onward: transaction.transaction_outcome, ..TransactionOutcomes::default() };
        let (others, last) =
            transaction.blocks.split_at(transaction.blocks.len() - usize::from(transaction.has_commit));
        let others = others.iter().map(|&extent| (extent, onward));
        for (extent, transaction_outcomes) in others.chain(last.iter().map(|&extent| (extent, ended))) {
            let at = self.offset_of(extent);
            // Copied: its appender may seal the block concurrently.
            let mut bytes = [0; block::HEADER_BYTES as usize];
            self.medium.load_pieces(at, &mut bytes);
            if let Ok(header) = block::Header::decode(self.blocks.secret(), extent, &bytes) {
                header.store_transaction_outcomes(
                    &self.medium,
                    at,
                    header.transaction_outcomes.with(transaction_outcomes),
                );
            }
        }
    }
}
