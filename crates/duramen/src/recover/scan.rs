//! Reads data blocks and fills the index, on several threads.

use crate::damage::claims::claims_in;
use crate::options::Progress;
use crate::recover::by_collection::ByCollection;
use crate::recover::by_key::ByKey;
use crate::recover::bytes::bytes_of;
use crate::recover::cut::Cut;
use crate::recover::entries::{Entries, Left};
use crate::recover::given::{Flushes, FoundRoot, Scan};
use crate::table::tables::Table;
use crate::transaction::outcome::Outcome;
use duramen_index::Slot;
use duramen_log::blocks::{Block, Use};
use duramen_log::format::block::DataBlock;
use duramen_log::format::holes::Holes;
use duramen_log::format::mark::record_sum;
use duramen_log::format::record::{self, Header, Kind, Step, Walk};
use duramen_log::format::superblock::Superblock;
use duramen_log::format::{Epoch, Owner, Seeds, block};
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::atomic::{AtomicU64, AtomicUsize};
use duramen_log::sync::reclaim;
use duramen_media::{Medium, Offset};
use std::collections::HashSet;

/// Blocks that a thread takes at a time.
const BLOCKS_PER_TURN: usize = 16;

pub(crate) struct Scanned {
    pub outcomes: Vec<(DataBlock, Outcome)>,
    pub records: u64,
    pub uncommitted: u64,
    /// Records for ordered indexes, not entered yet.
    pub by_key: Vec<(Owner, ByKey)>,
    pub by_collection: Vec<(Owner, ByCollection)>,
    pub roots: Vec<FoundRoot>,
}

/// The number of records of `epoch`, and their sum, to compare with its mark.
pub(crate) fn count_epoch<M: Medium>(
    medium: &M,
    superblock: &Superblock,
    data: &[DataBlock],
    epoch: Epoch,
    holes: &Holes<'_>,
) -> (u64, u64) {
    let extent_bytes = u64::from(superblock.extent_bytes);
    let (mut records, mut sum) = (0, 0u64);
    for block in data {
        // A block sealed in an earlier epoch holds none of this one.
        if block.header.seal.is_some_and(|(_, sealed)| sealed < epoch) {
            continue;
        }
        let (bytes, _) = bytes_of(medium, extent_bytes, block, holes);
        let base = u64::from(block.extent.0) * extent_bytes;
        let seeds = superblock.secret.seeds(block.header.generation);
        let mut walk = Walk::new(bytes, block::HEADER_BYTES, bytes.len() as u64, seeds);
        while let Step::Record { at, header } = walk.step() {
            if header.epoch == epoch {
                records += 1;
                sum = sum.wrapping_add(record_sum(Offset(base + at), header.crc));
            }
        }
    }
    (records, sum)
}

/// A block that is read, or a part of one, and the findings.
pub(crate) struct Reading<'a> {
    pub data: &'a DataBlock,
    pub entry: &'a Block,
    /// The bytes to read, and where on the medium they begin.
    pub bytes: &'a [u8],
    pub base: u64,
    pub seeds: Seeds,
    /// Where the block begins.
    pub block_at: u64,
    /// Where in `bytes` the records end, if that is known.
    pub seal: Option<u64>,
    pub entries: &'a mut Entries,
    pub outcome: Outcome,
}

impl<'a> Reading<'a> {
    pub(crate) fn walk(&self, from: u64) -> Walk<'a> {
        let end = self.seal.unwrap_or(self.bytes.len() as u64);
        Walk::new(self.bytes, from, end, self.seeds).behind(self.origin())
    }

    /// The distance of the bytes from the block's beginning.
    fn origin(&self) -> u64 {
        self.base - self.block_at
    }

    /// The place on the medium of `at` in the bytes.
    #[inline]
    pub(crate) fn place(&self, at: u64) -> Offset {
        Offset(self.base + at)
    }

    /// Reports that no whole record begins at `from`, and the claims of the bytes up to `until`.
    fn report<M: Medium>(&mut self, scan: &Scan<'_, M>, from: u64, until: u64) {
        self.outcome.damage.push(format!(
            "block at extent {} (offset {:#x}): no whole record at offset {:#x}, {} bytes are \
             unreadable; wanted a record with a \
             checksum from generation {:#x}",
            self.data.extent.0,
            scan.blocks.offset(self.data.extent),
            self.base + from,
            until - from,
            self.entry.generation().0
        ));
        self.outcome.claims.extend(claims_in(self.bytes, self.base, from, until));
    }
}

impl<M: Medium> Scan<'_, M> {
    pub(crate) fn run(&self, data: &[DataBlock], threads: usize) -> Scanned {
        for block in data {
            self.blocks.found(block.extent, block.header.extents, block.header.generation, Use::Sealed);
        }
        let threads = if data.len() < 2 * BLOCKS_PER_TURN { 1 } else { threads };
        let next = AtomicUsize::new(0);
        let records = AtomicU64::new(0);
        let work = || {
            let mut outcomes = Vec::new();
            let mut entries = Entries::new(self);
            loop {
                let from = next.fetch_add(BLOCKS_PER_TURN, Relaxed);
                let Some(turn) = data.get(from..data.len().min(from + BLOCKS_PER_TURN)) else { break };
                if turn.is_empty() {
                    break;
                }
                for block in turn {
                    let outcome = self.block(block, &mut entries);
                    records.fetch_add(outcome.records, Relaxed);
                    outcomes.push((*block, outcome));
                }
                if let Some(on_progress) = self.on_progress {
                    on_progress(Progress {
                        blocks: (from + turn.len()) as u64,
                        blocks_total: data.len() as u64,
                        records: records.load(Relaxed),
                    });
                }
            }
            let left = self.finish(entries);
            if self.flushes != Flushes::Nothing {
                self.medium.drain();
            }
            (outcomes, left)
        };
        let (outcomes, mut left): (Vec<_>, Vec<Left>) =
            duramen_log::sync::on_threads(threads, work).into_iter().unzip();
        let mut outcomes: Vec<(DataBlock, Outcome)> = outcomes.into_iter().flatten().collect();
        outcomes.sort_by_key(|(block, _)| block.extent);
        left.extend(self.count_transactions(&mut outcomes, threads));
        let uncommitted = outcomes.iter().map(|(_, outcome)| outcome.uncommitted).sum();
        if self.counts_all {
            let absent: HashSet<Owner> = left.iter().flat_map(|left| left.absent.iter().copied()).collect();
            absent
                .into_iter()
                .filter_map(|owner| self.tables.of(owner))
                .for_each(|table| self.uncount_tombstones(&table));
        }
        Scanned {
            records: outcomes.iter().map(|(_, outcome)| outcome.records).sum(),
            outcomes,
            uncommitted,
            roots: left.iter_mut().flat_map(|left| std::mem::take(&mut left.roots)).collect(),
            by_key: left.iter_mut().flat_map(|left| std::mem::take(&mut left.by_key)).collect(),
            by_collection: left.into_iter().flat_map(|left| left.by_collection).collect(),
        }
    }

    /// Reads one block up to where its records end.
    fn block(&self, data: &DataBlock, entries: &mut Entries) -> Outcome {
        let (bytes, behind) = bytes_of(self.medium, self.extent_bytes, data, self.holes);
        let base = u64::from(data.extent.0) * self.extent_bytes;
        // A seal of an epoch that does not count was written for records that may be gone.
        let seal = data.header.seal.filter(|&(_, epoch)| self.cut.keeps(epoch)).map(|(tail, _)| tail);
        let entry = self.blocks.at(data.extent);
        let seeds = self.blocks.seeds(entry);
        let outcome = Outcome::default();
        let mut reading = Reading { data, entry, bytes, base, seeds, block_at: base, seal, entries, outcome };
        self.read_to_end(&mut reading);
        if self.all_sealed && seal.is_none() {
            reading.outcome.torn = false;
            reading.outcome.damage.push(format!(
                "block at extent {} (offset {base:#x}): no valid seal says where its records end, wanted \
                 one, since the store was \
                 closed cleanly; whole records are known up to offset {:#x}",
                data.extent.0,
                base + reading.outcome.tail
            ));
        }
        for (from, part) in behind.into_iter().filter(|&(from, _)| seal.is_none_or(|tail| from < tail)) {
            (reading.bytes, reading.base, reading.seal) = (part, base + from, seal.map(|tail| tail - from));
            self.read_behind_hole(&mut reading);
        }
        self.conclude(data, entry, seal, reading.outcome)
    }

    /// Reads the records of a block up to the first place without a whole record that counts, and classifies that
    /// place.
    fn read_to_end(&self, reading: &mut Reading<'_>) {
        let mut walk = reading.walk(block::HEADER_BYTES);
        let end = loop {
            match walk.step() {
                Step::Record { header, .. } if !self.cut.keeps(header.epoch) => {
                    // Epochs never go back within a block: nothing after this counts either.
                    let outcome = &mut reading.outcome;
                    outcome.epoch_max = outcome.epoch_max.max(header.epoch);
                    outcome.uncommitted += 1;
                    while let Step::Record { header, .. } = walk.step() {
                        outcome.uncommitted += 1;
                        outcome.epoch_max = outcome.epoch_max.max(header.epoch);
                    }
                    break None;
                }
                Step::Record { at, header } => {
                    reading.outcome.epoch_max = reading.outcome.epoch_max.max(header.epoch);
                    self.read_whole(reading, at, &header);
                }
                Step::End { at } => break Some(at),
            }
        };
        reading.outcome.tail = reading.outcome.tail.max(block::HEADER_BYTES);
        self.finish_transactions(reading);
        if let Some(at) = end {
            self.classify_end(reading, &mut walk, at);
        }
    }

    /// Reads the bytes after a range that cannot be read. The hidden content is unknown: this is damage, and a salvage
    /// needs the records that follow.
    fn read_behind_hole(&self, reading: &mut Reading<'_>) {
        let (part, seeds) = (reading.bytes, reading.seeds);
        reading.outcome.damage.push(format!(
            "block at extent {} (offset {:#x}): no records are known before offset {:#x}, where it can be read again",
            reading.data.extent.0,
            self.blocks.offset(reading.data.extent),
            reading.base
        ));
        let mut walk = reading.walk(0);
        let first =
            Header::decode(part).filter(|header| header.verify(part, seeds, reading.origin())).map(|_| 0);
        let next = first.or_else(|| walk.find_after(0, |_| true));
        self.read_on(reading, &mut walk, next, |_| true);
    }

    /// Finishes a block whose records end at `seal`, if that is known: flushes it, and records its state in DRAM.
    fn conclude(&self, data: &DataBlock, entry: &Block, seal: Option<u64>, mut outcome: Outcome) -> Outcome {
        let base = Offset(u64::from(data.extent.0) * self.extent_bytes);
        entry.live_add(outcome.entered);
        match self.flushes {
            Flushes::Nothing => {}
            Flushes::Heads => self.medium.flush(base, block::HEADER_BYTES),
            Flushes::Records => self.medium.flush(base, outcome.tail),
        }
        if !outcome.damage.is_empty() {
            // An open that serves the rest leaves it damaged for later opens: see the head of `recovery`.
            outcome.tail = seal.unwrap_or(u64::from(data.header.extents) * self.extent_bytes);
            entry.set_unverified(true);
            entry.set_unknown();
            entry.set_aside();
        }
        outcome.reseal = data.header.seal.map(|(tail, _)| tail) != Some(outcome.tail);
        entry.set_tail(outcome.tail);
        outcome
    }

    /// No whole record begins at `at`: classifies this as the end, a torn write, or damage.
    fn classify_end(&self, reading: &mut Reading<'_>, walk: &mut Walk<'_>, at: u64) {
        let seal = reading.seal;
        if seal == Some(at) {
            // After the last record there may be voids.
            reading.outcome.tail = at;
            return;
        }
        // After the break, only a record that vouches for everything before it shows damage.
        let vouches = |header: &Header| {
            // Skip the checksum if it cannot be a record of this block.
            let (first, last) = (*self.epochs.start(), *self.epochs.end());
            if header.epoch.0 > last || (seal.is_none() && header.epoch.0 < first) {
                return false;
            }
            seal.is_some()
                || self.killed
                || header.drained
                || (self.cut != Cut::ALL && header.epoch >= self.cut.base && self.cut.keeps(header.epoch))
        };
        let next = walk.find_after(at, vouches);
        if seal.is_none() && next.is_none() {
            let left = &reading.bytes[at as usize..];
            // A header that is not all zeros is an unfinished write, or a remainder of an earlier use.
            reading.outcome.torn =
                Header::decode(left).is_some_and(|h| h.epoch >= self.cut.base || h.version.0 > 0);
            return;
        }
        reading.report(self, at, next.or(seal).unwrap_or(reading.bytes.len() as u64));
        self.read_on(reading, walk, next, vouches);
    }

    /// Continues reading after damage, from `next`: a salvage needs the records that follow, an open stops anyway.
    fn read_on(
        &self,
        reading: &mut Reading<'_>,
        walk: &mut Walk<'_>,
        mut next: Option<u64>,
        vouches: impl Fn(&Header) -> bool,
    ) {
        while let Some(at) = next {
            walk.resume(at);
            let broke = loop {
                match walk.step() {
                    Step::Record { at, header } if self.cut.keeps(header.epoch) => {
                        self.read_whole(reading, at, &header);
                    }
                    Step::Record { .. } => {}
                    Step::End { at } => break at,
                }
            };
            self.finish_transactions(reading);
            next = walk.find_after(broke, &vouches);
            if let Some(until) = next.or(reading.seal).filter(|&until| until > broke) {
                reading.report(self, broke, until);
            }
        }
    }

    /// [`Scan::enter_found`] for a record that counts; a transaction record waits for its commit record.
    #[inline]
    fn read_whole(&self, reading: &mut Reading<'_>, at: u64, header: &Header) {
        reading.outcome.tail = at + header.record_bytes();
        reading.outcome.holds = true;
        if (header.transactional || reading.outcome.transactions.is_open())
            && self.read_transaction_record(reading, at, header)
        {
            return;
        }
        self.enter_found(reading, at, header);
    }

    /// Enters a record that is whole and counts: it lies at `at` in the bytes that are read.
    #[inline]
    pub(crate) fn enter_found(&self, reading: &mut Reading<'_>, at: u64, header: &Header) {
        reading.outcome.records += 1;
        if header.kind == Kind::Root {
            self.note_root(reading, at, header);
        }
        // Until a newer one is found.
        reading.outcome.entered += header.record_bytes();
        let expired = header.ends_at().is_some_and(|at| at <= self.now);
        if let Some(at) = header.expires_at
            && !expired
        {
            reading.entry.expiry_add(at);
        }
        let absent = header.kind == Kind::Tombstone || expired;
        // Records that a checkpoint does not cover were not counted.
        let slot = Slot::new(reading.place(at)).with_tombstone(absent);
        let slot = if self.counts_all { slot } else { slot.hiding_unknown() };
        let key = header.key(&reading.bytes[at as usize..]);
        self.push(header.owner, key, slot, header.version, reading.entries);
    }

    #[cold]
    fn note_root(&self, reading: &mut Reading<'_>, at: u64, header: &Header) {
        let record = &reading.bytes[at as usize..];
        let names = record::owner_of_root(&record[header.value_at() as usize..]);
        let hash = self.hasher.hash(header.key(record));
        let at = reading.place(at);
        reading.entries.roots.push(FoundRoot { owner: header.owner, hash, at, names });
    }

    /// Tombstones that hide nothing are dead themselves.
    fn uncount_tombstones(&self, table: &Table) {
        table.index.each(&reclaim::pin(), &mut |slot| {
            if slot.covers_no_older_records() {
                self.uncount_tombstone(slot);
            }
        });
    }
}
