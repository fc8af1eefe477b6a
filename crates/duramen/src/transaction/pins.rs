//! Pins of the blocks of the records that a transaction replaces, one for each record, until the transaction is over.
//!
//! While such records of one block follow each other, only the first pin is one that the compactor must see
//! ([`Block::pin`]). It lasts as long as the others, so these are added together, by [`Pins::apply`].

use crate::records::Records;
use duramen_log::blocks::Block;
use duramen_media::{Medium, Offset};
use std::ops::Range;

#[derive(Default)]
pub(crate) struct Pins {
    /// The block that was pinned last, as a range of the medium.
    block: Range<u64>,
    /// Pins of it that are not added yet.
    more: u32,
}

impl Pins {
    /// Pins the block of the record at `at`. False: the compactor is moving it.
    #[inline]
    pub(crate) fn pin<M: Medium>(&mut self, records: &Records<M>, at: Offset) -> bool {
        if self.block.contains(&at.0) {
            self.more += 1;
            return true;
        }
        self.apply(records);
        let (block, range) = block_of(records, at);
        let is_pinned = block.pin();
        self.block = if is_pinned { range } else { 0..0 };
        is_pinned
    }

    /// Adds all pins. Must come before the first of them is released.
    pub(crate) fn apply<M: Medium>(&mut self, records: &Records<M>) {
        let more = std::mem::take(&mut self.more);
        if more > 0 {
            let block = records.log.blocks.of(self.block.start);
            debug_assert!(block.is_pinned(), "pins are added to a block without a first one");
            block.pin_more(more);
        }
    }
}

/// The block of the record at `at`, and its range on the medium.
pub(crate) fn block_of<M: Medium>(records: &Records<M>, at: Offset) -> (&Block, Range<u64>) {
    let blocks = &records.log.blocks;
    let extent = blocks.extent_of(at.0);
    let (block, from) = (blocks.at(extent), blocks.offset(extent));
    (block, from..from + blocks.bytes(block))
}
