//! Redis's listpack: its form of a small hash, and of the parts of a list and of a stream; DUMP contains it.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | bytes of the whole, little-endian |
//! | 2 | entries, little-endian; 65,535: not given |
//! | … | the entries |
//! | 1 | 255 |
//!
//! An entry is a string or an integer of up to 64 bits; its first bits give kind and length. Its length follows it
//! again, in groups of 7 bits, so that a listpack can also be read from its end.
//!
//! 1. Any bytes may come: a malformed entry is an error with its place, never a panic.
//! 2. An entry that is put has the least encoding, as Redis's has.

use std::ops::Deref;

use crate::packed::Malformed;
use crate::string::integer::{self, Text};

/// Bytes before the first entry: 4 of the length of the whole, 2 of the number of entries.
pub const HEAD_BYTES: usize = 6;
/// The last byte.
pub const END: u8 = 0xff;
/// That many entries or more.
pub const COUNT_NOT_TOLD: usize = 0xffff;

// First bytes of encodings that the first bits alone do not give.
const STRING_32_BITS: u8 = 0xf0;
const INTEGER_16_BITS: u8 = 0xf1;
const INTEGER_24_BITS: u8 = 0xf2;
const INTEGER_32_BITS: u8 = 0xf3;
const INTEGER_64_BITS: u8 = 0xf4;

const NO_ENTRY: &str = "a listpack has an entry that is none";
const ENDS_EARLY: &str = "a listpack ends before an entry that it must have";

/// The listpack of these strings.
pub fn encode<'s>(strings: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut builder = Builder::default();
    strings.for_each(|string| builder.push(string));
    builder.finish()
}

/// The strings of a listpack, if it is one.
pub fn decode(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (told, rest) = bytes.split_first_chunk()?;
    let count = usize::from(u16::from_le_bytes(*rest.first_chunk()?));
    if u32::from_le_bytes(*told) as usize != bytes.len() {
        return None;
    }
    let (mut cursor, mut strings) = (Cursor::new(bytes), Vec::new());
    while !cursor.is_at_end() {
        strings.push(cursor.next().ok()?.to_vec());
    }
    (count == COUNT_NOT_TOLD || count == strings.len()).then_some(strings)
}

/// A listpack that is being made.
pub struct Builder {
    out: Vec<u8>,
    count: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self { out: vec![0; HEAD_BYTES], count: 0 }
    }
}

impl Builder {
    /// One more string.
    pub fn push(&mut self, string: &[u8]) {
        push(string, &mut self.out);
        self.count += 1;
    }

    /// Bytes of the whole if it ended here.
    pub fn bytes(&self) -> usize {
        self.out.len() + 1
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The listpack.
    pub fn finish(self) -> Vec<u8> {
        let Self { mut out, count } = self;
        out.push(END);
        let bytes = out.len() as u32;
        out[..4].copy_from_slice(&bytes.to_le_bytes());
        out[4..HEAD_BYTES].copy_from_slice(&(count.min(COUNT_NOT_TOLD) as u16).to_le_bytes());
        out
    }
}

/// The content of an entry.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// The text of a value that is kept as an integer.
    Integer(Text),
    /// Any other bytes.
    Bytes(&'a [u8]),
}

impl Deref for Item<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Integer(text) => text,
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The encoding of an entry.
enum Raw<'a> {
    Integer(i64),
    Bytes(&'a [u8]),
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
        self.read().map(|raw| match raw {
            Raw::Integer(integer) => Item::Integer(Text::new(integer)),
            Raw::Bytes(bytes) => Item::Bytes(bytes),
        })
    }

    /// Passes over the next entry, which must be there.
    ///
    /// # Errors
    /// When there is none.
    pub fn skip(&mut self) -> Result<(), Malformed> {
        self.read().map(|_| ())
    }

    fn read(&mut self) -> Result<Raw<'a>, Malformed> {
        let at = self.at;
        // The last byte of a listpack is not an entry's.
        let rest = self.bytes.get(at..self.bytes.len().saturating_sub(1)).unwrap_or_default();
        let Some(&first) = rest.first() else { return Err(Malformed { at, why: ENDS_EARLY }) };
        let (raw, length) = raw(first, rest).ok_or(Malformed { at, why: NO_ENTRY })?;
        let (back, back_bytes) = length_back(length);
        if rest.get(length..length + back_bytes) != Some(&back[..back_bytes]) {
            return Err(Malformed { at, why: NO_ENTRY });
        }
        self.at += length + back_bytes;
        Ok(raw)
    }

    /// The next entry, which must be an integer.
    ///
    /// # Errors
    /// When there is none, or it is something else.
    pub fn integer(&mut self) -> Result<i64, Malformed> {
        let at = self.at;
        match self.read()? {
            Raw::Integer(integer) => Ok(integer),
            Raw::Bytes(_) => Err(Malformed { at, why: "a listpack has no number where it must" }),
        }
    }
}

/// The encoding at the start of `rest`, and its bytes.
fn raw(first: u8, rest: &[u8]) -> Option<(Raw<'_>, usize)> {
    let bytes = |start: usize, length: usize| {
        let bytes = rest.get(start..start.checked_add(length)?)?;
        Some((Raw::Bytes(bytes), start + length))
    };
    let integer = |integer: i64, length| Some((Raw::Integer(integer), length));
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

/// The trailing length of an entry of this many bytes, to be read backwards: groups of 7 bits, the lowest last; and its
/// size.
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

    #[test]
    fn the_bytes_are_those_of_redis() {
        // DEBUG LISTPACK's example of listpack.c, and integers of each width.
        let strings: [&[u8]; 4] = [b"hello", b"1", b"-1", b"1000000"];
        let wanted = b"\x1a\0\0\0\x04\0\x85hello\x06\x01\x01\xdf\xff\x02\xf2\x40\x42\x0f\x04\xff";
        let mut wanted = wanted.to_vec();
        wanted[0] = wanted.len() as u8;
        assert_eq!(encode(strings.into_iter()), wanted);
    }

    proptest! {
        #[test]
        fn an_encoded_value_is_decoded(
            numbers in prop::collection::vec((any::<i64>(), 0u32..64), 0..20),
            lengths in prop::collection::vec(prop_oneof![0usize..70, 4000usize..4200, 16_370usize..16_390], 0..6),
        ) {
            let mut strings: Vec<Vec<u8>> =
                numbers.into_iter().map(|(number, shift)| (number >> shift).to_string().into_bytes()).collect();
            strings.extend(lengths.into_iter().map(|length| vec![b'x'; length]));
            let bytes = encode(strings.iter().map(Vec::as_slice));
            let mut cursor = Cursor::new(&bytes);
            for string in &strings {
                prop_assert!(!cursor.is_at_end());
                prop_assert_eq!(&*cursor.next().unwrap(), &string[..]);
            }
            prop_assert!(cursor.is_at_end() && cursor.next().is_err());
            prop_assert_eq!(decode(&bytes), Some(strings));
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_an_error_or_entries(bytes: Vec<u8>, at: usize, bit in 0..8u32) {
            let mut cursor = Cursor::new(&bytes);
            while cursor.next().is_ok() {}
            let _ = decode(&bytes);
            let mut good = encode([&b"hello"[..], b"12345", b"-7", &[b'x'; 100]].into_iter());
            let at = at % good.len();
            good[at] ^= 1 << bit;
            let _ = decode(&good);
        }
    }
}
