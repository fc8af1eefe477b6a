//! Log entries: prepare writes a whole entry, commit clears one word of it.
//!
//! Word 0 of either kind holds the active flag (bit 63) and a CRC-32C of all following words. In a redo entry the CRC
//! also covers, before those words, the new value and the new node as they lie in their blocks. All of these become
//! durable by the same drain, in no order; the sum shows whether all did.
//!
//! | redo | |
//! |---|---|
//! | 1 | action, level (byte 1) |
//! | 2, 3 | node, new value |
//! | 4 … | the predecessor on each level |
//!
//! | undo | |
//! |---|---|
//! | 1 | bytes of the ranges that follow |
//! | each range | offset, number of bytes (a multiple of 8), those bytes |

use crate::layout::{ENTRIES, ENTRY_BYTES, HEIGHT_MAX, LogKind, slot_at, slot_bytes};
use crate::store::Store;
use duramen_media::{Medium, Offset};

pub(crate) const ACTIVE: u64 = 1 << 63;

/// The action of a redo entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Action {
    Insert = 1,
    Update,
    Delete,
}

impl Action {
    pub(crate) fn of(byte: u8) -> Option<Self> {
        [Self::Insert, Self::Update, Self::Delete].into_iter().find(|action| *action as u8 == byte)
    }
}

/// One session's part of the log.
pub(crate) struct Slot {
    number: usize,
    count: u64,
    /// An entry under construction.
    bytes: Vec<u8>,
}

/// An active entry.
pub(crate) struct Active(u64);

impl Slot {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, count: 0, bytes: Vec::new() }
    }

    /// The most bytes that an undo entry copies, including a head of 16 for each range.
    pub(crate) const fn copied_bytes_max() -> u64 {
        slot_bytes(LogKind::Undo) - 16
    }

    /// The offset of the next entry.
    fn next_at(&mut self, log: LogKind) -> u64 {
        let slot = slot_at(log, self.number);
        self.count += 1;
        match log {
            LogKind::Redo => slot + self.count % ENTRIES * ENTRY_BYTES,
            LogKind::Undo => slot,
        }
    }

    fn begin(&mut self) -> &mut Vec<u8> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; 8]);
        &mut self.bytes
    }
}

impl<M: Medium> Store<M> {
    /// Prepares a redo entry: afterwards the entry and all earlier writes are durable. `sum` is that of new value and
    /// new node.
    pub(crate) fn prepare_redo(
        &self,
        slot: &mut Slot,
        action: Action,
        [node, value]: [u64; 2],
        before: &[u64],
        sum: u32,
    ) -> Active {
        debug_assert!(before.len() <= HEIGHT_MAX);
        let bytes = slot.begin();
        let word = u64::from(action as u8) | (before.len() as u64) << 8;
        for word in [word, node, value].iter().chain(before) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.prepare(slot, sum)
    }

    /// Prepares an undo entry: a copy of `ranges`, each an offset and a number of bytes, both multiples of 8.
    pub(crate) fn prepare_undo(&self, slot: &mut Slot, ranges: impl Iterator<Item = (u64, u64)>) -> Active {
        let bytes = slot.begin();
        bytes.extend_from_slice(&[0; 8]);
        for (at, count) in ranges {
            bytes.extend_from_slice(&at.to_le_bytes());
            bytes.extend_from_slice(&count.to_le_bytes());
            for word in (at..at + count).step_by(8) {
                bytes.extend_from_slice(&self.word(word).to_le_bytes());
            }
        }
        let length = bytes.len() as u64 - 16;
        debug_assert!(length <= Slot::copied_bytes_max());
        bytes[8..16].copy_from_slice(&length.to_le_bytes());
        self.prepare(slot, 0)
    }

    fn prepare(&self, slot: &mut Slot, sum: u32) -> Active {
        let at = slot.next_at(self.log);
        let first = ACTIVE | u64::from(crc32c::crc32c_append(sum, &slot.bytes[8..]));
        #[cfg(test)]
        if self.is_planted(crate::tests::Planted::ActiveBeforeChecksum) {
            slot.bytes[..8].copy_from_slice(&ACTIVE.to_le_bytes());
            self.medium.write(Offset(at), &[&slot.bytes]);
            self.medium.drain();
            self.medium.store_u64(Offset(at), first);
            self.medium.flush(Offset(at), 8);
            return Active(at);
        }
        slot.bytes[..8].copy_from_slice(&first.to_le_bytes());
        self.medium.write(Offset(at), &[&slot.bytes]);
        self.medium.drain();
        Active(at)
    }

    /// Ends modify: afterwards the stores in place are durable.
    pub(crate) fn modified(&self) {
        self.medium.drain();
    }

    /// Commits.
    #[allow(clippy::needless_pass_by_value)] // An entry is committed once.
    pub(crate) fn commit(&self, entry: Active) {
        self.medium.publish(Offset(entry.0), 0);
    }

    /// Stores a word in place and starts its write-back.
    #[inline]
    pub(crate) fn modify(&self, at: u64, word: u64) {
        self.medium.store_u64(Offset(at), word);
        self.medium.flush(Offset(at), 8);
    }
}
