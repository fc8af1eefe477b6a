//! Strings that were written in part: an element for each KiB of them.
//!
//! | key | value |
//! |---|---|
//! | number of a piece (8 bytes, big-endian) | the bytes from that many KiB on, 1 to 1,024 of them |
//!
//! The last piece ends where the string ends, so it is always there. Of the others one may be missing or shorter: what it does not say is
//! zeros. So to write some bytes writes the pieces in which they lie, and nothing else, also where the string becomes longer.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};

use duramen::{Collection, ElementOrder, Reads as ElementReads, Value};

use crate::large::{ElementWriter, Result};
use crate::packed::Malformed;

/// Bytes of a piece.
pub(crate) const PIECE: usize = 1024;
/// Pieces that the longest value may have.
const PIECES_MAX: u64 = duramen::VALUE_BYTES_MAX.div_ceil(PIECE) as u64;

const NO_PIECE: Malformed =
    Malformed { at: 0, why: "the last piece of the string is not among its elements" };
const NO_NUMBER: Malformed = Malformed { at: 0, why: "an element of the string has no number for its key" };
const NO_LENGTH: Malformed = Malformed { at: 0, why: "a piece of the string is empty or too long" };

/// See the module.
pub(crate) struct LargeString {
    elements: Collection,
}

/// The pieces in which these bytes lie, each with the part of it that they are.
fn pieces_of(bytes: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let numbers = if bytes.is_empty() { 0..0 } else { bytes.start / PIECE..bytes.end.div_ceil(PIECE) };
    numbers.map(move |number| {
        let begin = number * PIECE;
        (number, bytes.start.max(begin) - begin..bytes.end.min(begin + PIECE) - begin)
    })
}

fn key_of(number: usize) -> [u8; 8] {
    (number as u64).to_be_bytes()
}

/// Where a piece begins.
fn begin_of(piece: &Value<'_>) -> std::result::Result<usize, Malformed> {
    let number = piece.key().try_into().map(u64::from_be_bytes).map_err(|_| NO_NUMBER)?;
    match (number, piece.len()) {
        (PIECES_MAX.., _) => Err(NO_NUMBER),
        (_, 1..=PIECE) => Ok(number as usize * PIECE),
        _ => Err(NO_LENGTH),
    }
}

impl LargeString {
    pub(crate) fn of(elements: Collection) -> Self {
        Self { elements }
    }

    /// Makes the form of a string. Nothing names it yet, and nothing may while it is empty.
    pub(crate) fn make(writer: &mut impl ElementWriter, string: &[u8]) -> Result<Self> {
        let made = Self::of(writer.new_collection(ElementOrder::ByKey));
        made.write(writer, 0, string)?;
        Ok(made)
    }

    pub(crate) fn elements(&self) -> &Collection {
        &self.elements
    }

    /// Calls `visit` for the pieces that contain some of these bytes, ascending, with the position of the first byte
    /// and the bytes within the range, until it breaks. Bytes without a call are zeros.
    pub(crate) fn visit(
        &self,
        reads: ElementReads<'_>,
        bytes: Range<usize>,
        mut visit: impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let first = self.elements.rank_of_order(key_of(bytes.start / PIECE), false)?;
        self.ranked(reads, first, |begin, piece| {
            if begin >= bytes.end {
                return ControlFlow::Break(());
            }
            let part = bytes.start.max(begin)..bytes.end.min(begin + piece.len());
            match piece.get(part.start - begin..part.end.saturating_sub(begin)) {
                Some(there) if !there.is_empty() => visit(part.start, there),
                _ => ControlFlow::Continue(()),
            }
        })
    }

    /// Calls `visit` for the pieces from the one of this rank on, with the place of its first byte, until it breaks.
    fn ranked(
        &self,
        reads: ElementReads<'_>,
        first: u64,
        mut visit: impl FnMut(usize, &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut malformed = None;
        reads.ranked(first, false, &mut |piece| match begin_of(piece) {
            Ok(begin) => visit(begin, piece).is_continue(),
            Err(found) => {
                malformed = Some(found);
                false
            }
        })?;
        malformed.map_or(Ok(()), |malformed| Err(malformed.into()))
    }

    /// Bytes of the string. O(log n).
    pub(crate) fn len(&self, reads: ElementReads<'_>) -> Result<usize> {
        let last = reads.nth(self.elements.len().wrapping_sub(1))?.ok_or(NO_PIECE)?;
        Ok(begin_of(&last)? + last.len())
    }

    /// The bytes from `from` on, which must lie within the string.
    pub(crate) fn read(&self, reads: ElementReads<'_>, from: usize, into: &mut [u8]) -> Result<()> {
        into.fill(0);
        for (number, part) in pieces_of(from..from + into.len()) {
            let Some(piece) = reads.get(key_of(number))? else { continue };
            begin_of(&piece)?;
            let at = number * PIECE + part.start - from;
            let there = &piece[part.start.min(piece.len())..part.end.min(piece.len())];
            into[at..at + there.len()].copy_from_slice(there);
        }
        Ok(())
    }

    /// All of it, and the sum of its pieces' stamps, which becomes greater with every change: a piece's own does, and none goes.
    pub(crate) fn whole(&self, reads: ElementReads<'_>) -> Result<(Vec<u8>, u64)> {
        let mut whole = vec![0; self.len(reads)?];
        let (mut stamps, mut malformed) = (0u64, None);
        reads.each(&mut |piece| {
            stamps = stamps.wrapping_add(piece.stamp().number());
            let copied = begin_of(piece).and_then(|begin| {
                let place = whole.get_mut(begin..begin + piece.len()).ok_or(NO_PIECE)?;
                place.copy_from_slice(piece);
                Ok(())
            });
            malformed = copied.err();
            malformed.is_none()
        })?;
        malformed.map_or(Ok((whole, stamps)), |malformed| Err(malformed.into()))
    }

    /// Writes bytes from `at` on. Where the string is shorter it becomes longer, with zeros up to `at`.
    pub(crate) fn write(&self, writer: &mut impl ElementWriter, at: usize, bytes: &[u8]) -> Result<()> {
        for (number, part) in pieces_of(at..at + bytes.len()) {
            let from = number * PIECE + part.start - at;
            let new = &bytes[from..from + part.len()];
            let key = key_of(number);
            if part.len() == PIECE {
                writer.put(&self.elements, &key, new)?;
                continue;
            }
            self.change(writer, number, |piece| {
                let end = part.end;
                piece[part].copy_from_slice(new);
                end
            })?;
        }
        Ok(())
    }

    /// Writes single bytes, each where its key says; each piece once.
    pub(crate) fn write_bytes(
        &self,
        writer: &mut impl ElementWriter,
        bytes: &BTreeMap<usize, u8>,
    ) -> Result<()> {
        let mut left = bytes.iter().peekable();
        while let Some(number) = left.peek().map(|(at, _)| **at / PIECE) {
            self.change(writer, number, |piece| {
                let mut end = 0;
                while let Some((at, byte)) = left.next_if(|(at, _)| *at / PIECE == number) {
                    piece[at % PIECE] = *byte;
                    end = at % PIECE + 1;
                }
                end
            })?;
        }
        Ok(())
    }

    /// Reads single bytes at the positions of their keys; after the end of the string they are zeros.
    pub(crate) fn read_bytes(&self, reads: ElementReads<'_>, bytes: &mut BTreeMap<usize, u8>) -> Result<()> {
        let mut left = bytes.iter_mut().peekable();
        while let Some(number) = left.peek().map(|(at, _)| **at / PIECE) {
            let piece = reads.get(key_of(number))?;
            piece.as_ref().map(begin_of).transpose()?;
            while let Some((at, byte)) = left.next_if(|(at, _)| **at / PIECE == number) {
                *byte = piece.as_ref().and_then(|piece| piece.get(at % PIECE).copied()).unwrap_or(0);
            }
        }
        Ok(())
    }

    /// Rewrites a piece; `write` changes it, and returns where its writes end.
    fn change(
        &self,
        writer: &mut impl ElementWriter,
        number: usize,
        write: impl FnOnce(&mut [u8; PIECE]) -> usize,
    ) -> Result<()> {
        let key = key_of(number);
        let (mut piece, mut len) = ([0; PIECE], 0);
        if let Some(old) = writer.reads(&self.elements).get(key)? {
            begin_of(&old)?;
            len = old.len();
            piece[..len].copy_from_slice(&old);
        }
        len = len.max(write(&mut piece));
        writer.put(&self.elements, &key, &piece[..len])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_string_is_split_into_records() {
        let pieces = |bytes| pieces_of(bytes).collect::<Vec<_>>();
        assert_eq!(pieces(5..5), []);
        assert_eq!(pieces(1024..1024), []);
        assert_eq!(pieces(0..1), [(0, 0..1)]);
        assert_eq!(pieces(1023..1025), [(0, 1023..1024), (1, 0..1)]);
        assert_eq!(pieces(1000..3072), [(0, 1000..1024), (1, 0..1024), (2, 0..1024)]);
    }
}
