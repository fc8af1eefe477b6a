//! The values that each key may hold at any moment, computed without the store.
//!
//! A key's number and a sequence number determine everything: whether that write deletes, and otherwise each byte of
//! its value. The writer of a key records when it begins and when it has the answer. A reader that checks both gets an
//! interval of sequence numbers, and must have read one of them.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The writes of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Put and deleted by one thread.
    Owned,
    /// Put by batches, two keys at a time, by one thread. The other key has the next number.
    Pair,
    /// Incremented by conditional writes, by all threads.
    Shared,
    /// Updated in place by one thread.
    Cell,
    /// As `Owned`, each write by a new writer.
    Short,
    /// Put once, at the beginning.
    Still,
}

/// One key.
pub struct Key {
    pub kind: Kind,
    pub number: u64,
    /// The last write that has begun.
    begun: AtomicU64,
    /// The last write that was acknowledged.
    acknowledged: AtomicU64,
}

/// Bits that depend on all of both.
fn mix(number: u64, sequence: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ sequence.wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ bits >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ bits >> 29
}

impl Key {
    pub fn new(kind: Kind, number: u64) -> Self {
        Self { kind, number, begun: AtomicU64::new(0), acknowledged: AtomicU64::new(0) }
    }

    /// The key's bytes: 4 to 35 of them.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8 + b'a'];
        bytes.extend_from_slice(&self.number.to_le_bytes()[..3]);
        bytes.resize(4 + (mix(self.number, 7) % 32) as usize, b'.');
        bytes
    }

    pub fn begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }

    /// Begins the next write.
    pub fn begin(&self) -> u64 {
        self.begun.fetch_add(1, SeqCst) + 1
    }

    /// Records that the write was acknowledged.
    pub fn acknowledge(&self, sequence: u64) {
        self.acknowledged.store(sequence, SeqCst);
    }

    /// Records one more acknowledged conditional write.
    pub fn acknowledge_one(&self) {
        self.acknowledged.fetch_add(1, SeqCst);
    }

    /// Whether the write deletes; sequence number 0 means that nothing was written yet.
    pub fn is_absent_at(&self, sequence: u64) -> bool {
        sequence == 0
            || matches!(self.kind, Kind::Owned | Kind::Short) && mix(self.number, sequence).is_multiple_of(5)
    }

    /// The value of the write: its sequence number, then bytes computed from it.
    pub fn value(&self, sequence: u64) -> Vec<u8> {
        let mut value = sequence.to_le_bytes().to_vec();
        if self.kind == Kind::Cell {
            // Only the sequence number is updated.
            value.extend_from_slice(&mix(self.number, 0).to_le_bytes());
            return value;
        }
        let bits = mix(self.number, sequence);
        // Mostly small; one in 64 several KiB; one in 1024 takes its own blocks.
        let bytes = match bits % 1024 {
            0 => 20_000 + bits / 1024 % 80_000,
            1..=16 => 2_000 + bits / 1024 % 6_000,
            _ => bits / 1024 % 300,
        };
        let mut state = bits | 1;
        while (value.len() as u64) < 8 + bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            value.extend_from_slice(&state.to_le_bytes());
        }
        value.truncate(8 + bytes as usize);
        value
    }

    /// Checks that `found` is a possible result of a read that began when `from` was acknowledged, and ended when `to`
    /// had begun. Returns the sequence number that was read, if there is one.
    pub fn check(&self, found: Option<&[u8]>, from: u64, to: u64) -> Result<Option<u64>, Failure> {
        let fail = |what: String| {
            Err(format!("key {:?} {}: {what}; wanted writes {from} to {to}", self.kind, self.number).into())
        };
        let Some(value) = found else {
            return if (from..=to).any(|sequence| self.is_absent_at(sequence)) {
                Ok(None)
            } else {
                fail("found nothing".into())
            };
        };
        let Some(sequence) = value.first_chunk() else {
            return fail(format!("found {} bytes", value.len()));
        };
        let sequence = u64::from_le_bytes(*sequence);
        if !(from..=to).contains(&sequence) || self.is_absent_at(sequence) {
            return fail(format!("found write {sequence}"));
        }
        if value != self.value(sequence) {
            return fail(format!("found write {sequence}, but not its bytes"));
        }
        Ok(Some(sequence))
    }
}

/// Random numbers of one thread.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, thread: u64) -> Self {
        Self(mix(seed, thread + 1) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end.max(1)
    }
}
