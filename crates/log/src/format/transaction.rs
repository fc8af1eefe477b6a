//! Transactions on the medium: records of one writer that count all or not at all.
//!
//! A transaction's records are *transaction records*: each has the transaction's number after its value
//! ([`super::record::Trailer`]). After the last one, in the same block, follows the *commit record*. It has no key, and
//! its value holds the number of the transaction records and a sum over them; without any, the transaction was aborted.
//! The transaction records of one transaction are contiguous, in one block or in several.
//!
//! The outcome of a transaction record is known
//!
//! 1. when the commit record in its block has the count and sum of the transaction records before it: then all of the
//!    transaction is here, and counts;
//! 2. when that commit record marks an abort: it does not count;
//! 3. otherwise by the outcomes in the block's header ([`TransactionOutcomes`]): of the transaction that ends here and
//!    began elsewhere, or of the one that continues elsewhere;
//! 4. otherwise, only in recovery, when all blocks were read.

use super::block::{TransactionOutcome, TransactionOutcomes};
use super::mark::record_sum;
use super::record::{END_VALUE_BYTES, Header, Kind};
use super::{TransactionId, u64_at};
use duramen_media::Offset;

/// The number of transaction records, and a sum over their places and checksums that does not depend on their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionSum {
    pub count: u64,
    pub sum: u64,
}

impl TransactionSum {
    #[inline]
    pub fn add(&mut self, at: Offset, crc: u32) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(record_sum(at, crc));
    }

    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }

    /// The value of a commit record.
    pub fn bytes(self) -> [u8; END_VALUE_BYTES] {
        let mut bytes = [0; END_VALUE_BYTES];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    fn of(bytes: &[u8]) -> Self {
        Self { count: u64_at(bytes, 0), sum: u64_at(bytes, 8) }
    }
}

/// The part of a transaction that is in one block.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub transaction: TransactionId,
    /// Where its transaction records begin in the block, and where they and the commit record end.
    pub from: u64,
    pub to: u64,
    pub sum: TransactionSum,
    pub end: Option<TransactionSum>,
}

impl Part {
    /// Whether the commit record is here, with all transaction records that it counts.
    pub fn is_whole(&self) -> bool {
        self.end == Some(self.sum)
    }

    /// The outcome of the transaction as known from this block alone, whose header has these outcomes.
    pub fn transaction_outcome(&self, transaction_outcomes: TransactionOutcomes) -> TransactionOutcome {
        match self.end {
            Some(end) if end.count == 0 => TransactionOutcome::Void,
            Some(_) if self.is_whole() => TransactionOutcome::Counts,
            Some(_) => transaction_outcomes.ended,
            None => transaction_outcomes.onward,
        }
    }
}

/// Takes the records of a block in their order, and finds the part of each transaction.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    open: Option<Part>,
}

impl Parts {
    /// Takes the next record. `header` is its header, `at` its distance from the block's beginning, which is at `base`
    /// on the medium, and `bytes` begin with it. `found` is called with each completed part. Returns whether the record
    /// is a transaction record.
    #[inline]
    pub fn next(
        &mut self,
        base: u64,
        at: u64,
        header: &Header,
        bytes: &[u8],
        found: impl FnMut(Part),
    ) -> bool {
        if !header.transactional && self.open.is_none() {
            return false;
        }
        self.next_of_transaction(base, at, header, bytes, found)
    }

    fn next_of_transaction(
        &mut self,
        base: u64,
        at: u64,
        header: &Header,
        bytes: &[u8],
        mut found: impl FnMut(Part),
    ) -> bool {
        let trailer = header.trailer(bytes);
        if let Some(open) =
            self.open.take_if(|open| trailer.is_none_or(|trailer| trailer.transaction != open.transaction))
        {
            found(open);
        }
        let Some(trailer) = trailer else { return false };
        let to = at + header.record_bytes();
        let fresh = Part {
            transaction: trailer.transaction,
            from: at,
            to,
            sum: TransactionSum::default(),
            end: None,
        };
        let mut part = self.open.take().unwrap_or(fresh);
        part.to = to;
        if header.kind == Kind::End {
            part.end = Some(TransactionSum::of(&bytes[header.value_at() as usize..]));
            found(part);
            return false;
        }
        part.sum.add(Offset(base + at), header.crc);
        self.open = Some(part);
        true
    }

    /// There are no more records.
    pub fn finish(self, found: impl FnMut(Part)) {
        self.open.into_iter().for_each(found);
    }
}

/// Removes the records of a block that do not count, and commit records. `bytes` are the block from its beginning,
/// which is at `base` on the medium. `transaction_outcomes` are those of its header, and `open_counts` decides for
/// transactions without an outcome there.
pub fn keep_what_counts(
    bytes: &[u8],
    base: u64,
    transaction_outcomes: TransactionOutcomes,
    open_counts: bool,
    records: &mut Vec<(u64, Header)>,
) {
    if !records.iter().any(|(_, header)| header.transactional) {
        return;
    }
    let mut parts = Parts::default();
    let mut void = Vec::new();
    let mut found = |part: Part| match part.transaction_outcome(transaction_outcomes) {
        TransactionOutcome::Counts => {}
        TransactionOutcome::Open if open_counts => {}
        TransactionOutcome::Open | TransactionOutcome::Void => void.push(part.from..part.to),
    };
    for (at, header) in &*records {
        parts.next(base, *at, header, &bytes[*at as usize..], &mut found);
    }
    parts.finish(&mut found);
    let mut void = void.into_iter().peekable();
    records.retain(|(at, header)| {
        while void.next_if(|void| void.end <= *at).is_some() {}
        header.kind != Kind::End && void.peek().is_none_or(|void| *at < void.start)
    });
}
