//! Transactions of several blocks, on their way from their end until the compactor may have their blocks.
//!
//! A transaction of several blocks counts after a crash because its end is found, and all its transaction records are.
//! So none of its blocks may be moved out of before the headers of all of them say for good what became of it
//! ([`TransactionOutcomes`]). In order, and what a crash leaves:
//!
//! 1. The end is durable, or nothing is written to headers. A crash before: all of the transaction is there, or it does
//!    not count.
//! 2. Each block's header says that the transaction counts. A crash between two of them: the end and all transaction
//!    records are there, and recovery counts them as before.
//! 3. That is durable. Now each block tells by itself what counts of it.
//! 4. The blocks' pins are taken back; only from here on they can be retired.
//!
//! Of a transaction that was aborted the headers say that it does not count, in the same way, so that recovery does not
//! look for its end.
//!
//! Where epochs are in use, 1 waits for the commit of the end's epoch, and on page media 3 for that of another one.

use super::Log;
use crate::format::block::{self, TransactionOutcome, TransactionOutcomes};
use crate::format::{Epoch, Extent};
use crate::mutants::{Mutant, planted};
use crate::sync::{Mutex, lock, rank};
use duramen_media::{Granularity, Medium};

/// A transaction whose blocks' headers do not say yet what became of it.
struct Unfinalized {
    blocks: Vec<Extent>,
    /// The last one has the end.
    has_commit: bool,
    transaction_outcome: TransactionOutcome,
    /// Of the end.
    epoch: Epoch,
    /// The epoch whose commit makes the headers durable, once they are written.
    written: Option<Epoch>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Finalizing(Mutex<Vec<Unfinalized>, { rank::FINALIZING }>);

impl<M: Medium> Log<M> {
    /// A transaction with its end, if it has one, in the last of these blocks is over, and drained; each of them has a
    /// pin of it.
    pub(crate) fn finalize_transaction(
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

    /// Goes on with the transactions of several blocks whose ends are durable. True when none is left.
    pub(crate) fn finalize_transactions(&self) -> bool {
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
            // What was aborted has nothing that must be durable.
            if transaction.transaction_outcome == TransactionOutcome::Void
                || is_committed(transaction.epoch)
                || planted(Mutant::FinalizedTooEarly)
            {
                self.write_transaction_outcomes(transaction);
                // Another commit than any that has begun.
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
        let last = if planted(Mutant::CommitNotConfirmed) { &[] } else { last };
        let others = others.iter().map(|&extent| (extent, onward));
        for (extent, transaction_outcomes) in others.chain(last.iter().map(|&extent| (extent, ended))) {
            let at = self.offset_of(extent);
            // Copied: its appender may seal the block meanwhile.
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
