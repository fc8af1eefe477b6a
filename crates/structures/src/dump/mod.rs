//! Values as Redis writes them: DUMP and RESTORE's payload, and [`mod@file`] of them, so that values move between the two.
//!
//! | bytes | meaning |
//! |---|---|
//! | 1 | RDB type: 0 is a string |
//! | … | the value in RDB encoding; in a file the key is before it |
//! | 2 | RDB version, little-endian |
//! | 8 | CRC-64 (Jones) over all before it, little-endian |
//!
//! The last two are what [`signed`] adds for a payload; a file has one checksum, at its end.
//!
//! An RDB string is a length and bytes, or an integer of 1, 2 or 4 bytes, or an LZF block. Lengths take 6, 14, 32 or 64
//! bits, by the two high bits of the first byte; 3 announces the other encodings. [`string`] writes byte for byte the
//! same as redis-server 7.0 for the same value with `rdbcompression yes`. So do [`hash`], [`set`] and [`sorted_set`]
//! for values that are small to Redis (for an intset, unless it once held larger integers), and [`list`] for a list
//! that was only ever filled at the right end. The order of other hashes and sets is arbitrary.

mod collection;
mod crc64;
pub mod file;
pub mod functions;
mod input;
mod list;
mod lzf;
mod stream;
mod ziplist;
mod zipmap;

use crate::error::{Error, Result};
use crate::string::integer;
pub use collection::{TimedField, hash, set, sorted_set, timed_hash};
use input::Input;
pub use list::list;
pub use stream::stream;

/// RDB version that payloads carry: Redis 7.0's, so that all later ones read them.
pub const VERSION_WRITTEN: u16 = 10;
/// The same for hashes whose fields expire: Redis 7.4's.
pub const VERSION_WRITTEN_TIMED: u16 = 12;
/// Highest RDB version whose payloads are read: that of Redis 7.4. Strings are alike in all of them.
pub const VERSION_READ_MAX: u16 = 12;

const TYPE_STRING: u8 = 0;
/// What Redis has up to 7.4 and [`is_read`] does not know: modules' values.
const TYPES_KNOWN: [u8; 2] = [6, 7];
const FOOTER_BYTES: usize = 10;

// First byte of a length.
const LEN_14_BITS: u8 = 0x40;
const LEN_32_BITS: u8 = 0x80;
const LEN_64_BITS: u8 = 0x81;
const ENCODED: u8 = 0xc0;
// Low bits of an ENCODED first byte.
const INT_8: u8 = 0;
const INT_16: u8 = 1;
const INT_32: u8 = 2;
const LZF: u8 = 3;

// "-2147483648": a longer string is not tried as an integer.
const INTEGER_TEXT_BYTES_MAX: usize = 11;
// A shorter string is not worth compressing; and compression must save 4 bytes.
const COMPRESS_BYTES_MIN: usize = 21;
const COMPRESS_SAVES_BYTES_MIN: usize = 4;

/// Type and value of a string.
pub fn string(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len().min(1 << 20) + 32);
    out.push(TYPE_STRING);
    encode(value, &mut out);
    out
}

/// The payload of type and value: with version and checksum after them.
pub fn signed(mut out: Vec<u8>) -> Vec<u8> {
    let is_timed = out.first().is_some_and(|rdb_type| collection::TYPES_TIMED.contains(rdb_type));
    let version = if is_timed { VERSION_WRITTEN_TIMED } else { VERSION_WRITTEN };
    out.extend_from_slice(&version.to_le_bytes());
    let crc = crc64::checksum(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// The reverse of [`signed`].
///
/// # Errors
/// `DumpChecksum`.
pub fn unsigned(payload: &[u8]) -> Result<&[u8]> {
    let Some((body, footer)) = payload.len().checked_sub(FOOTER_BYTES).map(|at| payload.split_at(at)) else {
        return Err(Error::DumpChecksum);
    };
    let (version, crc) = footer.split_at(2);
    let crc_wanted = crc.iter().rev().fold(0, |crc, &byte| crc << 8 | u64::from(byte));
    let version = version.iter().rev().fold(0, |version, &byte| version << 8 | u16::from(byte));
    if version > VERSION_READ_MAX || crc64::checksum(&payload[..payload.len() - 8]) != crc_wanted {
        return Err(Error::DumpChecksum);
    }
    Ok(body)
}

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Restored {
    /// A string.
    String(Vec<u8>),
    /// Fields and values by turns, no field twice.
    Hash(Vec<Vec<u8>>),
    /// Fields with values and expiry times, no field twice.
    TimedHash(Vec<TimedField>),
    /// Elements.
    List(Vec<Vec<u8>>),
    /// Members, none twice.
    Set(Vec<Vec<u8>>),
    /// Members with their scores, none twice and no score NaN.
    SortedSet(Vec<(Vec<u8>, f64)>),
    /// A stream as [`crate::stream`] keeps it.
    Stream(Vec<u8>),
}

impl Restored {
    /// Whether it is a collection of nothing, which no key holds.
    pub fn is_empty_collection(&self) -> bool {
        match self {
            // A stream without entries is one still.
            Self::String(_) | Self::Stream(_) => false,
            Self::Hash(strings) | Self::List(strings) | Self::Set(strings) => strings.is_empty(),
            Self::TimedHash(fields) => fields.is_empty(),
            Self::SortedSet(members) => members.is_empty(),
        }
    }
}

/// The value in a payload; a collection is not empty. `bytes_max` bounds the length of a decompressed string.
pub fn restore(payload: &[u8], bytes_max: u64) -> Result<Restored> {
    let body = unsigned(payload)?;
    let (&rdb_type, body) = body.split_first().ok_or(Error::DumpFormat)?;
    if !is_read(rdb_type) {
        return Err(if TYPES_KNOWN.contains(&rdb_type) {
            Error::DumpType(rdb_type)
        } else {
            Error::DumpFormat
        });
    }
    let mut input = Input::new(body);
    let value = read(rdb_type, &mut input, bytes_max).filter(|value| !value.is_empty_collection());
    value.filter(|_| input.is_empty()).ok_or(Error::DumpFormat)
}

/// Whether values of this RDB type are read.
fn is_read(rdb_type: u8) -> bool {
    rdb_type == TYPE_STRING
        || [&collection::TYPES[..], &list::TYPES, &stream::TYPES]
            .iter()
            .any(|types| types.contains(&rdb_type))
}

/// The value that follows on this type, which [`is_read`].
fn read(rdb_type: u8, input: &mut Input<'_>, bytes_max: u64) -> Option<Restored> {
    match rdb_type {
        TYPE_STRING => decode(input, bytes_max).map(Restored::String),
        _ if list::TYPES.contains(&rdb_type) => list::read(rdb_type, input, bytes_max),
        _ if stream::TYPES.contains(&rdb_type) => stream::read(rdb_type, input, bytes_max),
        _ => collection::read(rdb_type, input, bytes_max),
    }
}

fn encode(value: &[u8], out: &mut Vec<u8>) {
    if value.len() <= INTEGER_TEXT_BYTES_MAX
        && let Some(value) = integer::parse(value)
    {
        if let Ok(value) = i8::try_from(value) {
            out.extend_from_slice(&[ENCODED | INT_8, value as u8]);
            return;
        }
        if let Ok(value) = i16::try_from(value) {
            out.push(ENCODED | INT_16);
            out.extend_from_slice(&value.to_le_bytes());
            return;
        }
        if let Ok(value) = i32::try_from(value) {
            out.push(ENCODED | INT_32);
            out.extend_from_slice(&value.to_le_bytes());
            return;
        }
    }
    if value.len() >= COMPRESS_BYTES_MIN
        && let Some(compressed) = lzf::compress(value, value.len() - COMPRESS_SAVES_BYTES_MIN)
    {
        out.push(ENCODED | LZF);
        encode_len(compressed.len() as u64, out);
        encode_len(value.len() as u64, out);
        out.extend_from_slice(&compressed);
        return;
    }
    encode_len(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn encode_len(len: u64, out: &mut Vec<u8>) {
    if len < 1 << 6 {
        out.push(len as u8);
    } else if len < 1 << 14 {
        out.extend_from_slice(&[LEN_14_BITS | (len >> 8) as u8, len as u8]);
    } else if let Ok(len) = u32::try_from(len) {
        out.push(LEN_32_BITS);
        out.extend_from_slice(&len.to_be_bytes());
    } else {
        out.push(LEN_64_BITS);
        out.extend_from_slice(&len.to_be_bytes());
    }
}

/// Takes one string from the front of `input`.
fn decode(input: &mut Input<'_>, bytes_max: u64) -> Option<Vec<u8>> {
    let first = input.first()?;
    if first & ENCODED != ENCODED {
        let len = decode_len(input)?;
        return Some(input.take(len)?.to_vec());
    }
    input.take(1)?;
    let integer = match first & !ENCODED {
        INT_8 => i64::from(i8::from_le_bytes(input.take_array()?)),
        INT_16 => i64::from(i16::from_le_bytes(input.take_array()?)),
        INT_32 => i64::from(i32::from_le_bytes(input.take_array()?)),
        LZF => {
            let compressed_len = decode_len(input)?;
            let len = decode_len(input).filter(|&len| len <= bytes_max)?;
            return lzf::decompress(input.take(compressed_len)?, usize::try_from(len).ok()?);
        }
        _ => return None,
    };
    Some(integer::Text::new(integer).to_vec())
}

fn decode_len(input: &mut Input<'_>) -> Option<u64> {
    let [first] = input.take_array()?;
    match first {
        LEN_32_BITS => Some(u64::from(u32::from_be_bytes(input.take_array()?))),
        LEN_64_BITS => Some(u64::from_be_bytes(input.take_array()?)),
        0..LEN_14_BITS => Some(u64::from(first)),
        LEN_14_BITS..LEN_32_BITS => {
            Some(u64::from(first & !LEN_14_BITS) << 8 | u64::from(input.take_array::<1>()?[0]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listpack;
    use proptest::prelude::*;

    const MAX: u64 = 512 << 20;

    #[test]
    fn the_example_of_the_manual_is_read() {
        // SET mykey 10; DUMP mykey, on Redis 2.6 (RDB version 6 in its manual).
        let payload = b"\0\xc0\n\n\0n\x9fWE\x0e\xaec\xbb";
        assert_eq!(restore(payload, MAX).unwrap(), Restored::String(b"10".to_vec()));
        assert_eq!(signed(string(b"10")), payload);
    }

    #[test]
    fn hashes_with_times_are_those_of_redis() {
        // HPEXPIREAT of two of four fields, and DUMP, on Redis 8.2.
        let listpack = b"\x19{@\x94R\xa3\x03\0\0@@@\0\0\0\x0c\0\x85timed\x06\x81x\x02\
            \xf4{@\x94R\xa3\x03\0\0\x09\x85later\x06\x81y\x02\xf4`\xee\x9eR\xa3\x03\0\0\x09\
            \x81f\x02\x81v\x02\0\x01\x83num\x04\x0c\x01\0\x01\xff\x0c\0\x1fy\xda\x83C\xe8J\x13";
        let table = b"\x18{@\x94R\xa3\x03\0\0\x04\x80\0\x0a\xad\xe6\x05later\x01y\
            \0\x03num\xc0\x0c\x01\x05timed\x01x\0\x01f\x01v\x0c\0A\xc0\xd3o;\xed\xefe";
        for (payload, is_listpack) in [(&listpack[..], true), (table, false)] {
            let Restored::TimedHash(fields) = restore(payload, MAX).unwrap() else { panic!("no times") };
            let mut sorted = fields.clone();
            sorted.sort();
            let field = |name: &str, value: &str, at| (name.into(), value.into(), at);
            let wanted: [TimedField; 4] = [
                field("f", "v", None),
                field("later", "y", Some(4_000_000_700_000)),
                field("num", "12", None),
                field("timed", "x", Some(4_000_000_000_123)),
            ];
            assert_eq!(sorted, wanted);
            assert_eq!(signed(timed_hash(&fields, is_listpack)), payload);
        }
        // As candidates of 7.4 wrote them, with whole times.
        let whole = 4_000_000_000_123u64.to_be_bytes();
        let early = [&b"\x16\x02\x81"[..], &whole, b"\x01a\x01b", b"\0\x01c\x01d"].concat();
        let pairs = listpack::encode([&b"a"[..], b"b", b"4000000000123", b"c", b"d", b"0"].into_iter());
        let mut early_listpack = vec![23];
        encode(&pairs, &mut early_listpack);
        let field = |name: &[u8], value: &[u8], at| (name.to_vec(), value.to_vec(), at);
        let wanted = vec![field(b"a", b"b", Some(4_000_000_000_123)), field(b"c", b"d", None)];
        for body in [early, early_listpack] {
            assert_eq!(restore(&signed(body), MAX).unwrap(), Restored::TimedHash(wanted.clone()));
        }
        // Times out of range, a field twice, a part of an entry.
        let mut negative = vec![23];
        encode(&listpack::encode([&b"a"[..], b"b", b"-1"].into_iter()), &mut negative);
        let mut two = vec![23];
        encode(&listpack::encode([&b"a"[..], b"b"].into_iter()), &mut two);
        let far = [&b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\x01\x02"[..], b"\x01a\x01b"].concat();
        let twice = b"\x16\x02\0\x01a\x01b\0\x01a\x01c".to_vec();
        for body in [negative, two, far, twice] {
            assert!(matches!(restore(&signed(body), MAX), Err(Error::DumpFormat)));
        }
    }

    #[test]
    fn lengths_take_as_few_bytes_as_they_can() {
        for (len, bytes) in [(0, 1), (63, 1), (64, 2), (16383, 2), (16384, 5), (1 << 32, 9)] {
            let mut out = vec![];
            encode_len(len, &mut out);
            assert_eq!(out.len(), bytes);
            assert_eq!(decode_len(&mut Input::new(&out)), Some(len));
        }
    }

    #[test]
    fn damage_differs_from_bytes_that_are_no_value() {
        let good = signed(string(b"hello"));
        assert!(matches!(restore(&good[..9], MAX), Err(Error::DumpChecksum)));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(matches!(restore(&bad, MAX), Err(Error::DumpChecksum)), "byte {at}");
        }
        let with_version = |body: &[u8], version: u16| {
            let mut out = body.to_vec();
            out.extend_from_slice(&version.to_le_bytes());
            out.extend_from_slice(&crc64::checksum(&out).to_le_bytes());
            out
        };
        assert_eq!(
            restore(&with_version(b"\0\x05hello", 12), MAX).unwrap(),
            Restored::String(b"hello".to_vec())
        );
        assert!(matches!(restore(&with_version(b"\0\x05hello", 13), MAX), Err(Error::DumpChecksum)));
        assert!(matches!(restore(&with_version(b"\0\x06hello", 10), MAX), Err(Error::DumpFormat)));
        assert!(matches!(restore(&with_version(b"", 10), MAX), Err(Error::DumpFormat)));
        assert!(matches!(restore(&with_version(b"\x06\x05hello", 10), MAX), Err(Error::DumpType(6))));
        // A hash without fields, one of 2^63 fields, and a set that has a member twice.
        assert!(matches!(restore(&with_version(b"\x04\0", 10), MAX), Err(Error::DumpFormat)));
        assert!(matches!(
            restore(&with_version(b"\x04\x81\x80\0\0\0\0\0\0\0", 10), MAX),
            Err(Error::DumpFormat)
        ));
        assert!(matches!(restore(&with_version(b"\x02\x02\x01a\x01a", 10), MAX), Err(Error::DumpFormat)));
        assert!(matches!(restore(&with_version(b"\x02\x01\x01a!", 10), MAX), Err(Error::DumpFormat)));
        // A list without nodes, with one of no kind, one cut short, and one of an element with more bytes after it.
        for body in
            [&b"\x12\0"[..], b"\x12\x01\x03\x01a", b"\x12\x02\x01\x01a", b"\x12\x01\x01\x01a!", b"\x01\0"]
        {
            assert!(matches!(restore(&with_version(body, 10), MAX), Err(Error::DumpFormat)), "{body:?}");
        }
        let wanted = Restored::List(vec![b"a".to_vec(), b"a".to_vec()]);
        assert_eq!(restore(&with_version(b"\x12\x02\x01\x01a\x01\x01a", 10), MAX).unwrap(), wanted);
        assert_eq!(restore(&with_version(b"\x01\x02\x01a\x01a", 10), MAX).unwrap(), wanted);
        // An LZF block that claims 4 GiB.
        assert!(matches!(
            restore(&with_version(b"\0\xc3\x01\x80\xff\xff\xff\xff\0", 10), MAX),
            Err(Error::DumpFormat)
        ));
    }

    proptest! {
        #[test]
        fn a_dumped_value_is_restored(value in prop::collection::vec(0u8..4, 0..2000)) {
            prop_assert_eq!(restore(&signed(string(&value)), MAX).unwrap(), Restored::String(value));
        }

        #[test]
        fn a_hash_or_a_set_that_is_dumped_is_restored(
            pairs in prop::collection::btree_map("[a-z0-9]{0,20}", "[a-z0-9]{0,90}", 1..30), small: bool,
        ) {
            let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(f, v)| (f.as_bytes(), v.as_bytes())).collect();
            let strings = pairs.iter().flat_map(|&(field, value)| [field.to_vec(), value.to_vec()]).collect();
            prop_assert_eq!(restore(&signed(hash(&pairs, small)), MAX).unwrap(), Restored::Hash(strings));
            let members: Vec<&[u8]> = pairs.iter().map(|&(field, _)| field).collect();
            let wanted = Restored::Set(members.iter().map(|member| member.to_vec()).collect());
            prop_assert_eq!(restore(&signed(set(&members, false)), MAX).unwrap(), wanted);
        }

        #[test]
        fn a_list_that_is_dumped_is_restored(elements in prop::collection::vec("[a-z0-9]{0,20}", 1..30), times in 1usize..400) {
            let elements: Vec<Vec<u8>> = elements.into_iter().map(|element| element.repeat(times).into_bytes()).collect();
            let payload = signed(list(&elements.iter().map(Vec::as_slice).collect::<Vec<_>>()));
            prop_assert_eq!(restore(&payload, MAX).unwrap(), Restored::List(elements));
        }

        #[test]
        fn a_sorted_set_that_is_dumped_is_restored(
            members in prop::collection::btree_map("[a-z0-9]{0,20}", any::<f64>(), 1..30), small: bool,
        ) {
            let members: Vec<(&[u8], f64)> = members.iter().map(|(m, score)| (m.as_bytes(), *score)).collect();
            let Restored::SortedSet(mut found) = restore(&signed(sorted_set(&members, small)), MAX).unwrap() else {
                return Err(TestCaseError::fail("no sorted set"));
            };
            found.sort_by(|a, b| a.0.cmp(&b.0));
            prop_assert_eq!(found, members.iter().map(|(m, score)| (m.to_vec(), *score)).collect::<Vec<_>>());
        }

        #[test]
        fn integers_of_a_set_are_restored(numbers in prop::collection::btree_set(any::<i64>(), 1..20), shift in 0u32..64) {
            let numbers: std::collections::BTreeSet<i64> = numbers.into_iter().map(|number| number >> shift).collect();
            let members: Vec<Vec<u8>> = numbers.iter().map(|number| number.to_string().into_bytes()).collect();
            let payload = signed(set(&members.iter().map(Vec::as_slice).collect::<Vec<_>>(), true));
            prop_assert_eq!(restore(&payload, MAX).unwrap(), Restored::Set(members));
        }

        #[test]
        fn integers_are_restored(value: i64, shift in 0u32..64) {
            let text = (value >> shift).to_string().into_bytes();
            prop_assert_eq!(restore(&signed(string(&text)), MAX).unwrap(), Restored::String(text));
        }

        #[test]
        fn any_body_is_read_without_panic(body: Vec<u8>, rdb_type in prop::sample::select(&[0u8, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21][..])) {
            let mut body = body;
            body.insert(0, rdb_type);
            body.extend_from_slice(&VERSION_WRITTEN.to_le_bytes());
            body.extend_from_slice(&crc64::checksum(&body).to_le_bytes());
            let _ = restore(&body, 1 << 20);
        }
    }
}
