//! Reads numbers, ids and names from the front of untrusted bytes.

use super::StreamId;
use crate::packed::Malformed;

/// The remaining bytes, and their position in the record.
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Bytes<'a> {
    /// All of `rest`, which begins at `at`.
    pub(super) fn new(rest: &'a [u8], at: usize) -> Self {
        Self { rest, at }
    }

    /// Where the next read begins.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn id(&mut self) -> Result<StreamId, Malformed> {
        self.array().map(StreamId::of_bytes)
    }

    /// A string with its length before it.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    /// All that is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing is to be left.
    pub(super) fn end(self) -> Result<(), Malformed> {
        let whole = self.rest.is_empty();
        whole
            .then_some(())
            .ok_or(Malformed { at: self.at, why: "it has more elements than its groups count" })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let at = self.at;
        let why = "it ends within a number";
        self.take(N)?.try_into().map_err(|_| Malformed { at, why })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let short = Malformed { at: self.at, why: "it ends before what it says it has" };
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(short)?;
        self.rest = rest;
        self.at += length;
        Ok(taken)
    }
}
