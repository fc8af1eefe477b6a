//! Reading whole blocks, and excluding damaged ones.

use crate::maintenance::Maintenance;
use duramen_log::format::record::{Header, Step, Walk};
use duramen_log::format::transaction::keep_what_counts;
use duramen_log::format::{Extent, Seeds, block};
use duramen_log::read;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_media::{Medium, Offset};

/// Capacity reserved for records of a block: as if all had this size ...
const RECORD_BYTES_USUAL: u64 = 128;
/// ... up to this many.
const FOUND_MAX: u64 = 1 << 10;

/// A record of a block, and where it lies in it.
pub(crate) type Found = (u64, Header);

/// Every record of a block, counting or not; `None` when it is damaged before `tail`.
fn records_of(bytes: &[u8], tail: u64, seeds: Seeds) -> Option<Vec<Found>> {
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, tail, seeds);
    let mut found = Vec::with_capacity((tail / RECORD_BYTES_USUAL).min(FOUND_MAX) as usize);
    loop {
        match walk.step() {
            Step::Record { at, header } => found.push((at, header)),
            Step::End { at } if at == tail => return Some(found),
            Step::End { .. } => return None,
        }
    }
}

/// The same of a block that may still be written to, up to the first record that is not whole.
pub(crate) fn records_of_open(bytes: &[u8], seeds: Seeds) -> Vec<Found> {
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, bytes.len() as u64, seeds);
    let mut found = Vec::new();
    while let Step::Record { at, header } = walk.step() {
        found.push((at, header));
    }
    found
}

/// All whole records of a block, also after a damaged part.
pub(crate) fn whole_records_of(bytes: &[u8], seeds: Seeds) -> Vec<Found> {
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, bytes.len() as u64, seeds);
    let mut found = Vec::new();
    loop {
        match walk.step() {
            Step::Record { at, header } => found.push((at, header)),
            Step::End { at } => match walk.find_after(at, |_| true) {
                Some(next) => walk.resume(next),
                None => return found,
            },
        }
    }
}

impl<M: Medium> Maintenance<M> {
    /// Removes the records of a block (with these bytes) that do not count. `is_pinned`, read before the bytes: the
    /// block has records of a transaction that is active or not finalized, and those count. Where it is not pinned the
    /// header alone decides.
    pub(crate) fn keep_what_counts(
        &self,
        extent: Extent,
        is_pinned: bool,
        bytes: &[u8],
        found: &mut Vec<Found>,
    ) {
        let transaction_outcomes = block::Header::decode(self.log().blocks.secret(), extent, bytes)
            .map(|header| header.transaction_outcomes)
            .unwrap_or_default();
        keep_what_counts(bytes, self.log().blocks.offset(extent), transaction_outcomes, is_pinned, found);
    }

    /// Copies a block up to its tail, each aligned 8 bytes atomically: cells in it may change meanwhile. Beyond the
    /// tail its appender may be writing.
    pub(crate) fn copy_block(&self, extent: Extent, bytes: u64, scratch: &mut Vec<u8>) {
        debug_assert!(
            bytes <= self.log().blocks.at(extent).tail(),
            "read beyond the end of a block's records"
        );
        let from = self.log().blocks.offset(extent);
        scratch.resize(bytes as usize, 0);
        for (at, word) in (from..).step_by(8).zip(scratch.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.log().medium.load_u64(Offset(at)).to_le_bytes());
        }
    }

    /// The bytes of a block without an appender, in place or in `scratch`, and its records; `None` when it is damaged,
    /// and then it is excluded from compaction.
    pub(crate) fn whole_records<'a>(
        &'a self,
        extent: Extent,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(&'a [u8], Vec<Found>)> {
        self.checked(extent, self.read_records(extent, scratch))
    }

    /// The same of a block that is not read again: if it is cold, it takes no place in the page cache.
    pub(crate) fn whole_records_once<'a>(
        &'a self,
        extent: Extent,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(&'a [u8], Vec<Found>)> {
        let (block, at) = (self.log().blocks.at(extent), self.log().offset_of(extent));
        // Cells may be stored to while the kernel copies.
        if block.may_hold_cells() || !self.log().medium.is_cold(at, block.tail()) {
            return self.whole_records(extent, scratch);
        }
        scratch.resize(block.tail() as usize, 0);
        let is_pinned = block.is_pinned();
        let is_read = self.log().medium.read_once(at, scratch);
        let found = is_read.then(|| self.records_in(extent, is_pinned, scratch)).flatten();
        self.checked(extent, found)
    }

    /// Excludes the block from compaction if it was found damaged.
    fn checked<'a>(
        &self,
        extent: Extent,
        whole: Option<(&'a [u8], Vec<Found>)>,
    ) -> Option<(&'a [u8], Vec<Found>)> {
        if whole.is_none() {
            self.set_aside(extent);
        } else {
            self.log().blocks.at(extent).set_unverified(false);
        }
        whole
    }

    /// Excludes a damaged block from compaction until it is mended: each of its records is verified at every use.
    pub(crate) fn set_aside(&self, extent: Extent) {
        let block = self.log().blocks.at(extent);
        // In this order: a reader that finds nothing unverified uses records of blocks without a check.
        block.set_unverified(true);
        self.records.set_has_unverified(true);
        block.set_aside();
        self.compaction.damaged.fetch_add(1, Relaxed);
        self.records.mended();
    }

    /// Whether the header on the medium of a sealed block equals what memory knows of it.
    pub(crate) fn has_seal(&self, extent: Extent) -> bool {
        let (block, at) = (self.log().blocks.at(extent), self.log().offset_of(extent));
        self.log().medium.unreadable(at, block::HEADER_BYTES).is_empty()
            && self.log().header_of(extent).is_ok_and(|header| {
                let tail = header.seal.map(|(tail, _)| tail);
                (header.extents, header.generation, tail)
                    == (block.extents(), block.generation(), Some(block.tail()))
            })
    }

    fn read_records<'a>(
        &'a self,
        extent: Extent,
        scratch: &'a mut Vec<u8>,
    ) -> Option<(&'a [u8], Vec<Found>)> {
        let block = self.log().blocks.at(extent);
        let tail = block.tail();
        if !self.log().medium.unreadable(self.log().offset_of(extent), tail).is_empty() {
            return None;
        }
        let is_pinned = block.is_pinned();
        let bytes = if block.may_hold_cells() {
            self.copy_block(extent, tail, scratch);
            &scratch[..]
        } else {
            read::block(&self.log().medium, self.log().offset_of(extent), tail)
        };
        self.records_in(extent, is_pinned, bytes)
    }

    /// The records in the bytes of a block; `None` when it is damaged.
    fn records_in<'a>(
        &self,
        extent: Extent,
        is_pinned: bool,
        bytes: &'a [u8],
    ) -> Option<(&'a [u8], Vec<Found>)> {
        let seeds = self.log().blocks.seeds(self.log().blocks.at(extent));
        let mut records = records_of(bytes, bytes.len() as u64, seeds)?;
        self.keep_what_counts(extent, is_pinned, bytes, &mut records);
        Some((bytes, records))
    }
}
