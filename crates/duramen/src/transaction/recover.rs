//! Determines which transactions count: those with a commit record and all transaction records.
//!
//! A block alone shows the outcome of a transaction that lies in it whole, or whose outcome its header records
//! (`format::transaction`). Records of other transactions wait until all blocks have been read, as a few words for each
//! block and transaction. They are read again if they count:
//!
//! | found of a transaction | then |
//! |---|---|
//! | a header that records its outcome | that outcome: a crash interrupted writing the headers |
//! | a commit record whose count and sum match all transaction records | it counts |
//! | no commit record, or one whose sum does not match, and no damage | it does not count: a crash tore it, or it was aborted |
//! | the same, and something is damaged, or a crash cannot have torn it | its transaction records are reported as damaged: the commit record, or others of them, may be damaged |
//!
//! A crash cannot have torn a transaction with a commit record in three cases: only the process died, since then all
//! stores survive in their order; the commit record belongs to an epoch that was committed; or the close was clean.
//!
//! The decisions are written to the headers, so that no later recovery repeats them: afterwards each block alone shows
//! the outcomes of its records. `Recovered::adopt` records that a transaction does not count;
//! `Recovered::confirm_transactions` records that it does.

use crate::damage::claims::claims_in;
use crate::recover::bytes::bytes_of;
use crate::recover::cut::Cut;
use crate::recover::entries::{Entries, Left};
use crate::recover::given::Scan;
use crate::recover::scan::Reading;
use crate::transaction::outcome::Outcome;
use duramen_log::format::TransactionId;
use duramen_log::format::block::{DataBlock, TransactionOutcome};
use duramen_log::format::record::{Header, Kind, Step};
use duramen_log::format::transaction::{Part, TransactionSum};
use duramen_log::sync::atomic::AtomicUsize;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;
use std::collections::HashMap;

/// The parts of one transaction in all blocks.
#[derive(Default)]
struct Found {
    transaction_outcome: TransactionOutcome,
    sum: TransactionSum,
    end: Option<TransactionSum>,
}

impl<M: Medium> Scan<'_, M> {
    /// Handles a record that belongs to a transaction, or follows one. Returns whether nothing more is to be done with
    /// it.
    #[cold]
    pub(crate) fn read_transaction_record(
        &self,
        reading: &mut Reading<'_>,
        at: u64,
        header: &Header,
    ) -> bool {
        let mut over = [None; 2];
        let mut parts = std::mem::take(&mut reading.outcome.transactions.parts);
        let is_transactional = parts.next(reading.base, at, header, &reading.bytes[at as usize..], |part| {
            let free = usize::from(over[0].is_some());
            over[free] = Some(part);
        });
        reading.outcome.transactions.parts = parts;
        for part in over.into_iter().flatten() {
            self.part_over(reading, part);
        }
        if is_transactional {
            reading.outcome.transactions.waiting.push((at, *header));
        }
        is_transactional || header.kind == Kind::End
    }

    /// Ends a row of records.
    pub(crate) fn finish_transactions(&self, reading: &mut Reading<'_>) {
        let mut last = None;
        std::mem::take(&mut reading.outcome.transactions.parts).finish(|part| last = Some(part));
        if let Some(part) = last {
            self.part_over(reading, part);
        }
    }

    fn part_over(&self, reading: &mut Reading<'_>, part: Part) {
        let waiting = std::mem::take(&mut reading.outcome.transactions.waiting);
        let transaction_outcome = part.transaction_outcome(reading.data.header.transaction_outcomes);
        if transaction_outcome == TransactionOutcome::Counts {
            for (at, header) in &waiting {
                self.enter_found(reading, *at, header);
            }
        }
        if !part.is_whole() {
            reading.outcome.transactions.several.push((part, transaction_outcome, reading.base));
        }
    }

    /// Enters the transaction records of transactions of several blocks that count, and reports those whose outcome is
    /// unknown.
    pub(crate) fn count_transactions(
        &self,
        outcomes: &mut [(DataBlock, Outcome)],
        threads: usize,
    ) -> Vec<Left> {
        let mut transactions: HashMap<TransactionId, Found> = HashMap::new();
        for (part, transaction_outcome, _) in
            outcomes.iter().flat_map(|(_, outcome)| &outcome.transactions.several)
        {
            let found = transactions.entry(part.transaction).or_default();
            found.sum = found.sum.plus(part.sum);
            found.end = found.end.or(part.end);
            if *transaction_outcome != TransactionOutcome::Open {
                found.transaction_outcome = *transaction_outcome;
            }
        }
        if transactions.is_empty() {
            return Vec::new();
        }
        let is_damaged = self.lost_heads
            || self.holes.damage().next().is_some()
            || outcomes.iter().any(|(_, outcome)| !outcome.damage.is_empty());
        let mut counting: Vec<(usize, Part, u64)> = Vec::new();
        for (number, (data, outcome)) in outcomes.iter_mut().enumerate() {
            for (part, _, base) in std::mem::take(&mut outcome.transactions.several)
                .into_iter()
                .filter(|(_, transaction_outcome, _)| *transaction_outcome == TransactionOutcome::Open)
            {
                let Some(found) = transactions.get(&part.transaction) else { continue };
                let transaction_outcome = match found.transaction_outcome {
                    TransactionOutcome::Open if found.end == Some(found.sum) => TransactionOutcome::Counts,
                    TransactionOutcome::Open if is_damaged || self.cannot_be_torn(found) => {
                        self.report_undecided(data, outcome, &part, base);
                        continue;
                    }
                    TransactionOutcome::Open => TransactionOutcome::Void,
                    known => known,
                };
                match part.end {
                    Some(_) => outcome.transaction_outcomes.ended = transaction_outcome,
                    None => outcome.transaction_outcomes.onward = transaction_outcome,
                }
                if transaction_outcome == TransactionOutcome::Counts {
                    counting.push((number, part, base));
                }
            }
        }
        self.enter_spans(outcomes, &counting, threads)
    }

    /// Whether no crash can have left only this part of a transaction.
    fn cannot_be_torn(&self, found: &Found) -> bool {
        self.all_sealed || found.end.is_some() && (self.killed || self.cut != Cut::ALL)
    }

    /// Reports that it is unknown whether the transaction records of a transaction count.
    fn report_undecided(&self, data: &DataBlock, outcome: &mut Outcome, part: &Part, base: u64) {
        let entry = self.blocks.at(data.extent);
        let bytes = bytes_at(self, data, base);
        outcome.damage.push(format!(
            "block at extent {} (offset {:#x}): {} records from offset {:#x} on belong to transaction {:#x}; {}, which the \
             damage may contain, and without it they do not count",
            data.extent.0,
            self.blocks.offset(data.extent),
            part.sum.count,
            base + part.from,
            part.transaction.0,
            if part.end.is_some() {
                "its commit record names other records that were not found"
            } else {
                "its commit record was not found"
            },
        ));
        outcome.claims.extend(claims_in(bytes, base, part.from, part.to));
        entry.set_unverified(true);
        entry.set_unknown();
        if entry.state() == duramen_log::blocks::Use::Sealed {
            entry.set_aside();
        }
    }

    /// Reads the transaction records of transactions that count again, and enters them.
    fn enter_spans(
        &self,
        outcomes: &mut [(DataBlock, Outcome)],
        counting: &[(usize, Part, u64)],
        threads: usize,
    ) -> Vec<Left> {
        let next = AtomicUsize::new(0);
        let blocks: Vec<DataBlock> = counting.iter().map(|&(number, ..)| outcomes[number].0).collect();
        let work = || {
            let mut entries = Entries::new(self);
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Relaxed);
                let (Some((number, part, base)), Some(data)) = (counting.get(at), blocks.get(at)) else {
                    break;
                };
                done.push((*number, self.enter_span(data, part, *base, &mut entries)));
            }
            (done, self.finish(entries))
        };
        let threads = if counting.len() < 2 { 1 } else { threads };
        let mut left = Vec::new();
        for (done, its) in duramen_log::sync::on_threads(threads, work) {
            for (number, read) in done {
                let outcome = &mut outcomes[number].1;
                outcome.records += read.records;
                self.blocks.at(outcomes[number].0.extent).live_add(read.entered);
            }
            left.push(its);
        }
        left
    }

    fn enter_span(&self, data: &DataBlock, part: &Part, base: u64, entries: &mut Entries) -> Outcome {
        let (entry, bytes) = (self.blocks.at(data.extent), bytes_at(self, data, base));
        let (seeds, block_at) = (self.blocks.seeds(entry), self.blocks.offset(data.extent));
        let (seal, outcome) = (Some(part.to), Outcome::default());
        let mut reading = Reading { data, entry, bytes, base, seeds, block_at, seal, entries, outcome };
        let mut walk = reading.walk(part.from);
        while let Step::Record { at, header } = walk.step() {
            if header.kind != Kind::End {
                self.enter_found(&mut reading, at, &header);
            }
        }
        reading.outcome
    }
}

/// The bytes of a block from `base` on, where the block or a readable part of it begins.
fn bytes_at<'m, M: Medium>(scan: &Scan<'m, M>, data: &DataBlock, base: u64) -> &'m [u8] {
    let (bytes, behind) = bytes_of(scan.medium, scan.extent_bytes, data, scan.holes);
    let from = base - u64::from(data.extent.0) * scan.extent_bytes;
    behind.into_iter().find(|(at, _)| *at == from && from > 0).map_or(bytes, |(_, part)| part)
}
