//! Redis's ziplist, which listpacks replaced in Redis 7.0. It is read, and never written.
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | bytes of the whole, little-endian |
//! | 4 | where the last entry begins, little-endian |
//! | 2 | entries, little-endian; 65,535: not given |
//! | … | the entries |
//! | 1 | 255 |
//!
//! An entry begins with the length of the one before it, in a byte, or in 4 after the byte 254. Then follows its
//! encoding: a string and its length, or an integer of up to 64 bits.

use super::input::Input;
use crate::string::integer::Text;

const END: u8 = 0xff;
const COUNT_NOT_TOLD: usize = 0xffff;
const LENGTH_LONG: u8 = 0xfe;

// First bytes of encodings that the first bits alone do not give.
const INTEGER_8_BITS: u8 = 0xfe;
const INTEGER_16_BITS: u8 = 0xc0;
const INTEGER_24_BITS: u8 = 0xf0;
const INTEGER_32_BITS: u8 = 0xd0;
const INTEGER_64_BITS: u8 = 0xe0;

/// The strings of a ziplist, if it is one.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = Input::new(bytes);
    let told = u32::from_le_bytes(rest.take_array()?) as usize;
    let last = u32::from_le_bytes(rest.take_array()?) as usize;
    let count = u16::from_le_bytes(rest.take_array()?) as usize;
    if told != bytes.len() {
        return None;
    }
    let mut strings = Vec::new();
    let (mut before, mut start) = (0, bytes.len() - rest.len());
    while rest.first()? != END {
        let left = rest.len();
        start = bytes.len() - left;
        let length = match rest.take_array()? {
            [LENGTH_LONG] => u32::from_le_bytes(rest.take_array()?) as usize,
            [length] => length.into(),
        };
        if length != before {
            return None;
        }
        strings.push(decode_entry(&mut rest)?);
        before = left - rest.len();
    }
    let is_whole = rest.len() == 1 && last == start && (count == COUNT_NOT_TOLD || count == strings.len());
    is_whole.then_some(strings)
}

fn decode_entry(rest: &mut Input<'_>) -> Option<Vec<u8>> {
    let [first] = rest.take_array()?;
    let length = match first {
        0..0x40 => u64::from(first),
        0x40..0x80 => u64::from(first & 0x3f) << 8 | u64::from(rest.take_array::<1>()?[0]),
        0x80..0xc0 => u64::from(u32::from_be_bytes(rest.take_array()?)),
        _ => {
            let integer = match first {
                INTEGER_8_BITS => i64::from(i8::from_le_bytes(rest.take_array()?)),
                INTEGER_16_BITS => i64::from(i16::from_le_bytes(rest.take_array()?)),
                INTEGER_24_BITS => {
                    let [a, b, c] = rest.take_array()?;
                    i64::from(i32::from_le_bytes([0, a, b, c]) >> 8)
                }
                INTEGER_32_BITS => i64::from(i32::from_le_bytes(rest.take_array()?)),
                INTEGER_64_BITS => i64::from_le_bytes(rest.take_array()?),
                // 0 to 12, in the first byte itself.
                0xf1..=0xfd => i64::from(first & 0x0f) - 1,
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

    #[test]
    fn the_examples_of_redis_are_read() {
        // The one at the head of ziplist.c: "2" and "5".
        let two = b"\x0f\0\0\0\x0c\0\0\0\x02\0\0\xf3\x02\xf6\xff";
        assert_eq!(decode(two), Some(vec![b"2".to_vec(), b"5".to_vec()]));
        for cut in 0..two.len() {
            assert_eq!(decode(&two[..cut]), None);
        }
        assert_eq!(decode(b"\x0b\0\0\0\x0a\0\0\0\0\0\xff"), Some(vec![]));
    }

    #[test]
    fn entries_of_each_width_are_read() {
        let long = [b'x'; 300];
        let entries: [(&[u8], &[u8]); 9] = [
            (b"\x05hello", b"hello"),
            (&[&b"\x41\x2c"[..], &long].concat(), &long),
            (&[&b"\x80\0\0\x01\x2c"[..], &long].concat(), &long),
            (b"\xfe\x80", b"-128"),
            (b"\xc0\xff\x7f", b"32767"),
            (b"\xf0\0\0\x80", b"-8388608"),
            (b"\xd0\xff\xff\xff\x7f", b"2147483647"),
            (b"\xe0\0\0\0\0\0\0\0\x80", b"-9223372036854775808"),
            (b"\xfd", b"12"),
        ];
        let (mut body, mut before, mut last) = (vec![], 0, 10);
        for (entry, _) in entries {
            last = 10 + body.len();
            match before {
                0..254 => body.push(before as u8),
                _ => body.extend([&[LENGTH_LONG][..], &(before as u32).to_le_bytes()].concat()),
            }
            body.extend(entry);
            before = 10 + body.len() - last;
        }
        let mut bytes = ((10 + body.len() + 1) as u32).to_le_bytes().to_vec();
        bytes.extend((last as u32).to_le_bytes());
        bytes.extend(9u16.to_le_bytes());
        bytes.extend(body);
        bytes.push(END);
        let wanted: Vec<Vec<u8>> = entries.iter().map(|(_, text)| text.to_vec()).collect();
        assert_eq!(decode(&bytes), Some(wanted));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = decode(&bytes);
            let mut whole = ((10 + bytes.len()) as u32).to_le_bytes().to_vec();
            whole.extend([&[10, 0, 0, 0, 0xff, 0xff][..], &bytes].concat());
            let _ = decode(&whole);
        }
    }
}
