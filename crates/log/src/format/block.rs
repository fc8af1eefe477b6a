//! The header of a block: 64 bytes, one cache line, at the beginning of the block's first extent.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | word: bits 0 to 3 state, bit 4 which generation counts, bits 5 to 31 extents, bits 32 to 63 check |
//! | 8 | 8 | generation 0 |
//! | 16 | 8 | generation 1 |
//! | 24 | 8 | seal: bits 0 to 31 tail in bytes / 8, bits 32 to 63 check |
//! | 32 | 8 | epoch of the seal |
//! | 40 | 8 | outcomes of transactions: bits 0 to 1 of the one that began in another block and ends in this one, bits 2 to 3 of the one that continues in another block ([`TransactionOutcomes`]); bits 32 to 63 check |
//! | 48 | 8 | the secret of the store ([`Secret`]), which remains here if the head is lost |
//! | 56 | 8 | tie: a number that [`Secret::tie`] makes of the extent |
//!
//! The seed of the checks is a number made of the secret, and the tie is another: no bytes of a user form a header,
//! wherever they are.
//!
//! States: 1 free, 2 data. The word is the commit of every transition:
//!
//! ```text
//!            open: write the unused generation, then the word
//!   free ──────────────────────────────────────────────────▶ data ──seal──▶ data, sealed
//!     ▲                                                                          │
//!     └────────────────── free: the word (same generation) ─────────────────────┘
//! ```
//!
//! The fields that a word makes valid lie in the same line and are stored before it. A line reaches the medium as a
//! prefix of its stores (on page media, in one sector), so one persist is enough. There are two generation fields
//! because the old word must stay valid until the new one replaces it.
//!
//! A seal states where the records end. It is written when the last record is durable, so a sealed block whose records
//! end earlier is damaged; an unsealed block may end in a torn record. On media with epochs, a seal counts only when
//! its epoch is committed.
//!
//! The outcomes of transactions are written once they are final: see `log::transaction`. The check covers this
//! generation, so outcomes left by an earlier use of the block do not count.

use super::{Epoch, Extent, Generation, Secret, u64_at};
use duramen_media::{Medium, Offset};

pub const HEADER_BYTES: u64 = 64;
const EXTENTS_MAX: u32 = (1 << 27) - 1;
const SECRET_AT: usize = 48;
const TIE_AT: usize = 56;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free,
    Data,
}

/// A data block, as its header describes it.
#[derive(Clone, Copy, Debug)]
pub struct DataBlock {
    pub extent: Extent,
    pub header: Header,
}

/// A block header that passed its check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub state: State,
    pub extents: u32,
    pub generation: Generation,
    /// Bytes from the block's beginning to the end of its records, and the epoch in which it was sealed.
    pub seal: Option<(u64, Epoch)>,
    pub transaction_outcomes: TransactionOutcomes,
    which: bool,
    secret: Secret,
}

/// The permanent outcome of a transaction of several blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// Not recorded yet: its commit record decides.
    #[default]
    Open,
    /// Its records count, whatever else of it is found.
    Counts,
    /// Its records never count.
    Void,
}

/// The outcomes of the transactions that are only partly in one block. A block has at most one of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionOutcomes {
    /// Of the transaction that began in another block, and whose commit record is here.
    pub ended: TransactionOutcome,
    /// Of the transaction that has no commit record here: its records are the last ones.
    pub onward: TransactionOutcome,
}

impl TransactionOutcomes {
    fn bits(self) -> u32 {
        let bits = |transaction_outcome| match transaction_outcome {
            TransactionOutcome::Open => 0,
            TransactionOutcome::Counts => 1,
            TransactionOutcome::Void => 2,
        };
        bits(self.ended) | bits(self.onward) << 2
    }

    fn of_bits(bits: u32) -> Self {
        let transaction_outcome = |bits| match bits & 3 {
            1 => TransactionOutcome::Counts,
            2 => TransactionOutcome::Void,
            _ => TransactionOutcome::Open,
        };
        Self { ended: transaction_outcome(bits), onward: transaction_outcome(bits >> 2) }
    }

    /// Only the outcomes equal to this one.
    pub fn only(self, transaction_outcome: TransactionOutcome) -> Self {
        let only = |it| if it == transaction_outcome { it } else { TransactionOutcome::Open };
        Self { ended: only(self.ended), onward: only(self.onward) }
    }

    /// These outcomes, replaced by those that `other` records.
    pub fn with(self, other: Self) -> Self {
        let with = |a, b| if b == TransactionOutcome::Open { a } else { b };
        Self { ended: with(self.ended, other.ended), onward: with(self.onward, other.onward) }
    }
}

fn transaction_outcomes_check(secret: Secret, bits: u32, generation: Generation) -> u32 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&bits.to_le_bytes());
    bytes[4..8].copy_from_slice(b"UNIT");
    bytes[8..].copy_from_slice(&generation.0.to_le_bytes());
    crc32c::crc32c_append(secret.of_blocks(), &bytes)
}

fn check(secret: Secret, at: Extent, low: u32, generation: Generation) -> u32 {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&at.0.to_le_bytes());
    bytes[4..8].copy_from_slice(&low.to_le_bytes());
    bytes[8..].copy_from_slice(&generation.0.to_le_bytes());
    crc32c::crc32c_append(secret.of_blocks(), &bytes)
}

fn seal_check(secret: Secret, tail: u32, epoch: u64, generation: Generation) -> u32 {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&tail.to_le_bytes());
    bytes[4..12].copy_from_slice(&epoch.to_le_bytes());
    bytes[12..].copy_from_slice(&generation.0.to_le_bytes());
    crc32c::crc32c_append(secret.of_blocks(), &bytes)
}

/// The secret in a header with these bytes, and the difference between its check and the one wanted for extent 0.
/// `None` if no state of ours begins like this.
pub fn check_from_extent_0(bytes: &[u8]) -> Option<(Secret, u32)> {
    let word = u64_at(bytes, 0);
    let low = word as u32;
    let generation = Generation(u64_at(bytes, if low & 16 != 0 { 16 } else { 8 }));
    let is_one = matches!(low & 15, 1 | 2) && low >> 5 > 0;
    let secret = Secret::of_word(u64_at(bytes, SECRET_AT))?;
    is_one.then(|| (secret, (word >> 32) as u32 ^ check(secret, Extent(0), low, generation)))
}

/// The difference between the checks of two headers whose extent numbers differ by the bits of `by`: a CRC is linear.
pub fn check_difference(by: Extent) -> u32 {
    let check = |at| check(Secret::default(), at, 0, Generation(0));
    check(by) ^ check(Extent(0))
}

impl Header {
    /// Reads the header of the block at `at`; `Err` states what was found and wanted.
    pub fn decode(secret: Secret, at: Extent, bytes: &[u8]) -> Result<Self, String> {
        let word = u64_at(bytes, 0);
        let low = word as u32;
        let which = low & 16 != 0;
        let generation = Generation(u64_at(bytes, if which { 16 } else { 8 }));
        let wanted = check(secret, at, low, generation);
        let found = (word >> 32) as u32;
        if found != wanted {
            return Err(format!("block header has check {found:#010x}, wanted {wanted:#010x}"));
        }
        if (u64_at(bytes, SECRET_AT), u64_at(bytes, TIE_AT)) != (secret.word(), secret.tie(at)) {
            return Err("block header belongs to another place or another store".into());
        }
        let state = match low & 15 {
            1 => State::Free,
            2 => State::Data,
            other => return Err(format!("block state is {other}, wanted 1 (free) or 2 (data)")),
        };
        let extents = low >> 5;
        if extents == 0 {
            return Err("block has 0 extents".into());
        }
        let seal = u64_at(bytes, 24);
        let epoch = u64_at(bytes, 32);
        let tail = seal as u32;
        let sealed = state == State::Data
            && u64::from(tail) * 8 >= HEADER_BYTES
            && (seal >> 32) as u32 == seal_check(secret, tail, epoch, generation);
        let seal = sealed.then_some((u64::from(tail) * 8, Epoch(epoch)));
        let word = u64_at(bytes, 40);
        let is_known = state == State::Data
            && (word >> 32) as u32 == transaction_outcomes_check(secret, word as u32, generation);
        let transaction_outcomes =
            if is_known { TransactionOutcomes::of_bits(word as u32) } else { TransactionOutcomes::default() };
        Ok(Self { state, extents, generation, seal, transaction_outcomes, which, secret })
    }

    /// The secret of the store that wrote it.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// A header for space that was never used.
    pub fn fresh(secret: Secret, extents: u32) -> Self {
        Self {
            state: State::Free,
            extents,
            generation: Generation(0),
            seal: None,
            transaction_outcomes: TransactionOutcomes::default(),
            which: false,
            secret,
        }
    }

    fn word(&self, at: Extent) -> u64 {
        debug_assert!(self.extents > 0 && self.extents <= EXTENTS_MAX);
        let state = match self.state {
            State::Free => 1,
            State::Data => 2,
        };
        let low = state | u32::from(self.which) << 4 | self.extents << 5;
        u64::from(check(self.secret, at, low, self.generation)) << 32 | u64::from(low)
    }

    /// Writes `self` as the header of the block at `at`, in one line, whatever was there before; not drained.
    pub fn store<M: Medium>(&self, medium: &M, at: Extent, offset: Offset) {
        medium.store_u64(offset.plus(SECRET_AT as u64), self.secret.word());
        medium.store_u64(offset.plus(TIE_AT as u64), self.secret.tie(at));
        medium.store_u64(offset.plus(if self.which { 16 } else { 8 }), self.generation.0);
        medium.store_u64(offset, self.word(at));
        medium.flush(offset, HEADER_BYTES);
    }

    /// Like `store`, and durable on return (except on page media).
    pub fn publish_fresh<M: Medium>(&self, medium: &M, at: Extent, offset: Offset) {
        self.store(medium, at, offset);
        medium.drain();
    }

    /// The header of the next use of the block: data, with a new generation.
    pub fn opened(&self, extents: u32, generation: Generation) -> Self {
        Self {
            state: State::Data,
            extents,
            generation,
            seal: None,
            transaction_outcomes: TransactionOutcomes::default(),
            which: !self.which,
            secret: self.secret,
        }
    }

    /// The header after the block was freed.
    pub fn freed(&self) -> Self {
        Self { state: State::Free, seal: None, transaction_outcomes: TransactionOutcomes::default(), ..*self }
    }

    /// The header of the first extent of a freed block, once its other extents have their own headers.
    pub fn alone(&self) -> Self {
        Self { extents: 1, ..*self }
    }

    /// Frees the block: one word.
    pub fn publish_word<M: Medium>(&self, medium: &M, at: Extent, offset: Offset) {
        medium.publish(offset, self.word(at));
    }

    /// Seals the block at `tail` bytes. Every record below it must be durable (or, with epochs, belong to an epoch that
    /// is committed no later than `epoch`).
    pub fn publish_seal<M: Medium>(&self, medium: &M, offset: Offset, tail: u64, epoch: Epoch) {
        let tail = (tail / 8) as u32;
        medium.store_u64(offset.plus(32), epoch.0);
        medium.publish(
            offset.plus(24),
            u64::from(seal_check(self.secret, tail, epoch.0, self.generation)) << 32 | u64::from(tail),
        );
    }

    /// Records the outcomes of transactions, and starts the write-back. A transaction that counts must be durable.
    pub fn store_transaction_outcomes<M: Medium>(
        &self,
        medium: &M,
        offset: Offset,
        transaction_outcomes: TransactionOutcomes,
    ) {
        let bits = transaction_outcomes.bits();
        let word =
            u64::from(transaction_outcomes_check(self.secret, bits, self.generation)) << 32 | u64::from(bits);
        medium.store_u64(offset.plus(40), word);
        medium.flush(offset.plus(40), 8);
    }
}
