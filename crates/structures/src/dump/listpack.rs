//! Redis's listpack: how it keeps a small hash and the parts of a list, and so what DUMP says of them.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | bytes of the whole, little-endian |
//! | 2 | entries, little-endian; 65,535: not told |
//! | … | the entries |
//! | 1 | 255 |
//!
//! An entry is a string or an integer of up to 64 bits, whose first bits tell which and how long; behind it stands how many
//! bytes that took, in groups of 7 bits, so that a listpack is read from its end too.

use super::input::Input;
use crate::strings::integer::{self, Text};

const HEAD_BYTES: usize = 6;
const END: u8 = 0xff;
const COUNT_NOT_TOLD: usize = 0xffff;

// First bytes of what is not told by the first bits of one.
const STRING_32_BITS: u8 = 0xf0;
const INTEGER_16_BITS: u8 = 0xf1;
const INTEGER_24_BITS: u8 = 0xf2;
const INTEGER_32_BITS: u8 = 0xf3;
const INTEGER_64_BITS: u8 = 0xf4;

/// The listpack of these strings.
pub fn encode<'s>(strings: impl Iterator<Item = &'s [u8]>) -> Vec<u8> {
    let mut builder = Builder::default();
    strings.for_each(|string| builder.push(string));
    builder.finish()
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
        let start = self.out.len();
        match integer::parse(string) {
            Some(integer) => encode_integer(integer, &mut self.out),
            None => encode_string(string, &mut self.out),
        }
        encode_length_back(self.out.len() - start, &mut self.out);
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

/// So that it is read from behind: the first byte read is the last, and has the lowest bits.
fn encode_length_back(length: usize, out: &mut Vec<u8>) {
    for at in (0..length_back_bytes(length)).rev() {
        let more = if at + 1 == length_back_bytes(length) { 0 } else { 0x80 };
        out.push((length >> (7 * at)) as u8 & 0x7f | more);
    }
}

fn length_back_bytes(length: usize) -> usize {
    // The limits are Redis's: one less than what would fit.
    match length {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// The strings of a listpack, if it is one.
pub fn decode(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = Input::new(bytes);
    let told = u32::from_le_bytes(rest.take_array()?) as usize;
    let count = u16::from_le_bytes(rest.take_array()?) as usize;
    if told != bytes.len() {
        return None;
    }
    let mut strings = Vec::new();
    while rest.first()? != END {
        let before = rest.len();
        strings.push(decode_entry(&mut rest)?);
        let (length, mut wanted) = (before - rest.len(), Vec::new());
        encode_length_back(length, &mut wanted);
        if rest.take(wanted.len() as u64)? != wanted {
            return None;
        }
    }
    let is_whole = rest.len() == 1 && (count == COUNT_NOT_TOLD || count == strings.len());
    is_whole.then_some(strings)
}

fn decode_entry(rest: &mut Input<'_>) -> Option<Vec<u8>> {
    let [first] = rest.take_array()?;
    let length = match first {
        0x80..0xc0 => u64::from(first & 0x3f),
        0xe0..0xf0 => u64::from(first & 0x0f) << 8 | u64::from(rest.take_array::<1>()?[0]),
        STRING_32_BITS => u64::from(u32::from_le_bytes(rest.take_array()?)),
        _ => {
            let integer = match first {
                0..0x80 => i64::from(first),
                0xc0..0xe0 => {
                    let bits = u16::from(first & 0x1f) << 8 | u16::from(rest.take_array::<1>()?[0]);
                    // The sign is bit 12.
                    i64::from((bits << 3) as i16 >> 3)
                }
                INTEGER_16_BITS => i64::from(i16::from_le_bytes(rest.take_array()?)),
                INTEGER_24_BITS => {
                    let [a, b, c] = rest.take_array()?;
                    i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
                }
                INTEGER_32_BITS => i64::from(i32::from_le_bytes(rest.take_array()?)),
                INTEGER_64_BITS => i64::from_le_bytes(rest.take_array()?),
                _ => return None,
            };
            return Some(Text::new(integer).to_vec());
        }
    };
    Some(rest.take(length)?.to_vec())
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
        fn what_is_encoded_is_decoded(
            numbers in prop::collection::vec((any::<i64>(), 0u32..64), 0..20),
            lengths in prop::collection::vec(prop_oneof![0usize..70, 4000usize..4200, 16_370usize..16_390], 0..6),
        ) {
            let mut strings: Vec<Vec<u8>> =
                numbers.into_iter().map(|(number, shift)| (number >> shift).to_string().into_bytes()).collect();
            strings.extend(lengths.into_iter().map(|length| vec![b'x'; length]));
            let bytes = encode(strings.iter().map(Vec::as_slice));
            prop_assert_eq!(decode(&bytes), Some(strings));
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>, at: usize, bit in 0..8u32) {
            let _ = decode(&bytes);
            let mut good = encode([&b"hello"[..], b"12345", b"-7", &[b'x'; 100]].into_iter());
            let at = at % good.len();
            good[at] ^= 1 << bit;
            let _ = decode(&good);
        }
    }
}
