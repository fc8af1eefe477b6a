//! The entries of Redis's listpack, one at a time and where they lie.
//!
//! The nodes of a stream are kept as listpacks (see `stream`), so that DUMP tells them as they are. The bytes of a whole
//! listpack stand at the head of `dump/listpack.rs`; here are its entries: how one is put at the end, and how one is read.
//!
//! 1. Any bytes may come: what is no entry is an error that tells the place, never a panic.
//! 2. An entry that is put has the least encoding, as Redis's has.

use std::ops::Deref;

use crate::packed::Malformed;
use crate::strings::integer::{self, Text};

/// Bytes before the first entry: 4 of the length of the whole, 2 of the number of entries.
pub const HEAD_BYTES: usize = 6;
/// The last byte.
pub const END: u8 = 0xff;
/// That many entries or more.
pub const COUNT_NOT_TOLD: usize = 0xffff;

// First bytes of what is not told by the first bits of one.
const STRING_32_BITS: u8 = 0xf0;
const INTEGER_16_BITS: u8 = 0xf1;
const INTEGER_24_BITS: u8 = 0xf2;
const INTEGER_32_BITS: u8 = 0xf3;
const INTEGER_64_BITS: u8 = 0xf4;

const NO_ENTRY: &str = "a node of the stream has an entry that is none";
const ENDS_EARLY: &str = "a node of the stream ends before an entry that it must have";

/// What an entry says.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// What is kept as an integer; its bytes are its text.
    Integer(i64, Text),
    /// Any other bytes.
    Bytes(&'a [u8]),
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Integer(_, text) => text,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Reads entries from some place of a listpack on.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Reads from the first entry of a listpack on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: HEAD_BYTES }
    }

    /// Reads from the entry at this place on.
    pub fn from(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// The place of the next entry.
    pub fn at(self) -> usize {
        self.at
    }

    /// Whether there are no more, which is so only at the end of the listpack.
    pub fn is_at_end(self) -> bool {
        self.at + 1 == self.bytes.len() && self.bytes.last() == Some(&END)
    }

    /// The next entry, which must be there.
    ///
    /// # Errors
    /// When there is none; the place is counted from the begin of the listpack.
    pub fn next(&mut self) -> Result<Item<'a>, Malformed> {
        let at = self.at;
        // The last byte of a listpack is not an entry's.
        let rest = self.bytes.get(at..self.bytes.len().saturating_sub(1)).unwrap_or_default();
        let Some(&first) = rest.first() else { return Err(Malformed { at, why: ENDS_EARLY }) };
        let (item, length) = item(first, rest).ok_or(Malformed { at, why: NO_ENTRY })?;
        let (back, back_bytes) = length_back(length);
        if rest.get(length..length + back_bytes) != Some(&back[..back_bytes]) {
            return Err(Malformed { at, why: NO_ENTRY });
        }
        self.at += length + back_bytes;
        Ok(item)
    }

    /// The next entry, which must be an integer.
    ///
    /// # Errors
    /// When there is none, or it is something else.
    pub fn integer(&mut self) -> Result<i64, Malformed> {
        let at = self.at;
        match self.next()? {
            Item::Integer(integer, _) => Ok(integer),
            Item::Bytes(_) => Err(Malformed { at, why: "a node of the stream has no number where it must" }),
        }
    }
}

/// What is told at the begin of `rest`, and its bytes.
fn item(first: u8, rest: &[u8]) -> Option<(Item<'_>, usize)> {
    let bytes = |start: usize, length: usize| {
        let bytes = rest.get(start..start.checked_add(length)?)?;
        Some((Item::Bytes(bytes), start + length))
    };
    let integer = |integer: i64, length| Some((Item::Integer(integer, Text::new(integer)), length));
    let wide = |width: usize| {
        let bytes = rest.get(1..1 + width)?;
        let mut all = [if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
        all[..width].copy_from_slice(bytes);
        integer(i64::from_le_bytes(all), 1 + width)
    };
    match first {
        0..0x80 => integer(first.into(), 1),
        0x80..0xc0 => bytes(1, (first & 0x3f).into()),
        0xc0..0xe0 => {
            let bits = u16::from(first & 0x1f) << 8 | u16::from(*rest.get(1)?);
            // The sign is bit 12.
            integer(i64::from((bits << 3) as i16 >> 3), 2)
        }
        0xe0..0xf0 => bytes(2, usize::from(first & 0x0f) << 8 | usize::from(*rest.get(1)?)),
        STRING_32_BITS => bytes(5, u32::from_le_bytes(rest.get(1..5)?.try_into().ok()?) as usize),
        INTEGER_16_BITS => wide(2),
        INTEGER_24_BITS => wide(3),
        INTEGER_32_BITS => wide(4),
        INTEGER_64_BITS => wide(8),
        _ => None,
    }
}

/// Puts an entry of this string, or of the integer that it spells, at the end of `out`.
pub fn push(string: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    match integer::parse(string) {
        Some(integer) => encode_integer(integer, out),
        None => encode_string(string, out),
    }
    finish(start, out);
}

/// Puts an entry of this integer at the end of `out`.
pub fn push_integer(integer: i64, out: &mut Vec<u8>) {
    let start = out.len();
    encode_integer(integer, out);
    finish(start, out);
}

fn finish(start: usize, out: &mut Vec<u8>) {
    let (back, bytes) = length_back(out.len() - start);
    out.extend_from_slice(&back[..bytes]);
}

fn encode_integer(integer: i64, out: &mut Vec<u8>) {
    let bytes = integer.to_le_bytes();
    if (0..128).contains(&integer) {
        out.push(integer as u8);
    } else if (-4096..4096).contains(&integer) {
        let bits = integer as u16 & 0x1fff;
        out.extend_from_slice(&[0xc0 | (bits >> 8) as u8, bits as u8]);
    } else {
        let (first, width) = match integer {
            -0x8000..=0x7fff => (INTEGER_16_BITS, 2),
            -0x80_0000..=0x7f_ffff => (INTEGER_24_BITS, 3),
            -0x8000_0000..=0x7fff_ffff => (INTEGER_32_BITS, 4),
            _ => (INTEGER_64_BITS, 8),
        };
        out.push(first);
        out.extend_from_slice(&bytes[..width]);
    }
}

fn encode_string(string: &[u8], out: &mut Vec<u8>) {
    match string.len() {
        length @ 0..64 => out.push(0x80 | length as u8),
        length @ 64..4096 => out.extend_from_slice(&[0xe0 | (length >> 8) as u8, length as u8]),
        length => {
            out.push(STRING_32_BITS);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
    out.extend_from_slice(string);
}

/// What stands behind an entry of so many bytes, so that it is read from behind: groups of 7 bits, the lowest last; and how
/// many bytes these are.
fn length_back(length: usize) -> ([u8; 5], usize) {
    // The limits are Redis's: one less than what would fit.
    let bytes = match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    let mut back = [0; 5];
    for (index, byte) in back[..bytes].iter_mut().enumerate() {
        let more = if index == 0 { 0 } else { 0x80 };
        *byte = (length >> (7 * (bytes - 1 - index))) as u8 & 0x7f | more;
    }
    (back, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pack(strings: &[Vec<u8>]) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        strings.iter().for_each(|string| push(string, &mut out));
        out.push(END);
        out
    }

    proptest! {
        #[test]
        fn what_is_put_is_read(
            numbers in prop::collection::vec((any::<i64>(), 0u32..64), 0..20),
            lengths in prop::collection::vec(prop_oneof![0usize..70, 4000usize..4200, 16_370usize..16_390], 0..6),
        ) {
            let mut strings: Vec<Vec<u8>> =
                numbers.into_iter().map(|(number, shift)| (number >> shift).to_string().into_bytes()).collect();
            strings.extend(lengths.into_iter().map(|length| vec![b'x'; length]));
            let bytes = pack(&strings);
            let mut cursor = Cursor::new(&bytes);
            for string in &strings {
                prop_assert!(!cursor.is_at_end());
                prop_assert_eq!(&*cursor.next().unwrap(), &string[..]);
            }
            prop_assert!(cursor.is_at_end() && cursor.next().is_err());
        }

        #[test]
        fn any_bytes_are_an_error_or_entries(bytes: Vec<u8>) {
            let mut cursor = Cursor::new(&bytes);
            while cursor.next().is_ok() {}
        }
    }
}
