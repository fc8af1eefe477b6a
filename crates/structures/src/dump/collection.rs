//! The payloads of hashes, sets and sorted sets.
//!
//! | RDB type | is | contents |
//! |---|---|---|
//! | 2 | a set | how many members, and each as a string |
//! | 3 | a sorted set, until Redis 3.2 | how many members, and each as a string with its score: a byte and so many digits, or 253 to 255 |
//! | 4 | a hash | how many fields, and each with its value as strings |
//! | 5 | a sorted set | how many members, and each as a string with its score, the 8 bytes of a double, little-endian |
//! | 9 | a hash, until Redis 2.4 | a string: a [`zipmap`] of fields and values |
//! | 11 | a set of integers | a string: bytes of an integer (4 bytes), how many (4 bytes), the integers ascending |
//! | 12 | a sorted set, until Redis 6.2 | a string: a [`ziplist`] of alternating members and scores |
//! | 13 | a hash, until Redis 6.2 | a string: a ziplist of alternating fields and values |
//! | 16 | a hash | a string: a [`listpack`] of alternating fields and values |
//! | 17 | a sorted set | a string: a listpack of alternating members and scores, ascending |
//! | 20 | a set, of Redis 7.2 and later | a string: a listpack of the members |
//! | 22 | as 24, of 7.4's candidates | as 24, but without the first time, and times in milliseconds; 0: none |
//! | 23 | as 25, of 7.4's candidates | as 25, but without the first time |
//! | 24 | a hash whose fields expire, of Redis 7.4 and later | the first time (8 bytes), how many fields; of each 1 and its time from the first on, or 0, a length; field and value as strings |
//! | 25 | the same | the first time (8 bytes); a string: a listpack of field, value and time, 0: none |
//!
//! Times are Unix milliseconds.

use std::collections::HashSet;

use super::input::Input;
use super::{Restored, decode, decode_len, encode, encode_len, ziplist, zipmap};
use crate::listpack;
use crate::map::Scored;
use crate::string::double;
use crate::string::integer::{self, Text};

const TYPE_SET: u8 = 2;
const TYPE_SORTED_SET_TEXT: u8 = 3;
const TYPE_HASH: u8 = 4;
const TYPE_SORTED_SET: u8 = 5;
const TYPE_HASH_ZIPMAP: u8 = 9;
const TYPE_SET_INTSET: u8 = 11;
const TYPE_SORTED_SET_ZIPLIST: u8 = 12;
const TYPE_HASH_ZIPLIST: u8 = 13;
const TYPE_HASH_LISTPACK: u8 = 16;
const TYPE_SORTED_SET_LISTPACK: u8 = 17;
const TYPE_SET_LISTPACK: u8 = 20;
const TYPE_TIMED_HASH_EARLY: u8 = 22;
const TYPE_TIMED_HASH_LISTPACK_EARLY: u8 = 23;
const TYPE_TIMED_HASH: u8 = 24;
const TYPE_TIMED_HASH_LISTPACK: u8 = 25;
/// The first time when there is none.
const NO_TIME: u64 = 1 << 48;
/// Those of the table.
pub(super) const TYPES: [u8; 15] = [
    TYPE_SET,
    TYPE_SORTED_SET_TEXT,
    TYPE_HASH,
    TYPE_SORTED_SET,
    TYPE_HASH_ZIPMAP,
    TYPE_SET_INTSET,
    TYPE_SORTED_SET_ZIPLIST,
    TYPE_HASH_ZIPLIST,
    TYPE_HASH_LISTPACK,
    TYPE_SORTED_SET_LISTPACK,
    TYPE_SET_LISTPACK,
    TYPE_TIMED_HASH_EARLY,
    TYPE_TIMED_HASH_LISTPACK_EARLY,
    TYPE_TIMED_HASH,
    TYPE_TIMED_HASH_LISTPACK,
];
/// Those of hashes whose fields expire, which other files than Redis's use for something else.
pub(super) const TYPES_TIMED: std::ops::RangeInclusive<u8> = TYPE_TIMED_HASH_EARLY..=TYPE_TIMED_HASH_LISTPACK;

/// A field with its value and expiry time.
pub type TimedField = (Vec<u8>, Vec<u8>, Option<u64>);

/// Type and value of a hash, which is a listpack to Redis or not.
pub fn hash(pairs: &[(&[u8], &[u8])], is_listpack: bool) -> Vec<u8> {
    let mut out = vec![if is_listpack { TYPE_HASH_LISTPACK } else { TYPE_HASH }];
    let strings = pairs.iter().flat_map(|&(field, value)| [field, value]);
    if is_listpack {
        encode(&listpack::encode(strings), &mut out);
    } else {
        encode_len(pairs.len() as u64, &mut out);
        strings.for_each(|string| encode(string, &mut out));
    }
    out
}

/// Type and value of a hash some of whose fields have expiry times, which is a listpack to Redis or not. One without
/// any time is written as other hashes are, for all versions.
pub fn timed_hash(fields: &[TimedField], is_listpack: bool) -> Vec<u8> {
    let Some(first) = fields.iter().filter_map(|(.., expires_at)| *expires_at).min() else {
        let pairs: Vec<_> = fields.iter().map(|(field, value, _)| (&field[..], &value[..])).collect();
        return hash(&pairs, is_listpack);
    };
    let mut out = vec![if is_listpack { TYPE_TIMED_HASH_LISTPACK } else { TYPE_TIMED_HASH }];
    out.extend_from_slice(&first.to_le_bytes());
    if is_listpack {
        let times: Vec<String> =
            fields.iter().map(|(.., expires_at)| expires_at.unwrap_or(0).to_string()).collect();
        let strings = fields.iter().zip(&times);
        let strings = strings.flat_map(|((field, value, _), time)| [&field[..], &value[..], time.as_bytes()]);
        encode(&listpack::encode(strings), &mut out);
        return out;
    }
    encode_len(fields.len() as u64, &mut out);
    for (field, value, expires_at) in fields {
        encode_len(expires_at.map_or(0, |at| at - first + 1), &mut out);
        encode(field, &mut out);
        encode(value, &mut out);
    }
    out
}

/// Type and value of a set, which is an intset to Redis or not: then all members are integers, ascending.
pub fn set(members: &[&[u8]], is_intset: bool) -> Vec<u8> {
    let mut out = vec![if is_intset { TYPE_SET_INTSET } else { TYPE_SET }];
    if is_intset {
        encode(&intset(members), &mut out);
    } else {
        encode_len(members.len() as u64, &mut out);
        members.iter().for_each(|member| encode(member, &mut out));
    }
    out
}

/// Type and value of a sorted set, which is a listpack to Redis or not. The members are in their order.
pub fn sorted_set(members: &[Scored<'_>], is_listpack: bool) -> Vec<u8> {
    let mut out = vec![if is_listpack { TYPE_SORTED_SET_LISTPACK } else { TYPE_SORTED_SET }];
    if is_listpack {
        let scores: Vec<String> = members.iter().map(|(_, score)| double::listpack_text(*score)).collect();
        let strings =
            members.iter().zip(&scores).flat_map(|(&(member, _), score)| [member, score.as_bytes()]);
        encode(&listpack::encode(strings), &mut out);
    } else {
        encode_len(members.len() as u64, &mut out);
        // From the end, so that Redis puts each before all others when it reads them.
        for (member, score) in members.iter().rev() {
            encode(member, &mut out);
            out.extend_from_slice(&score.to_le_bytes());
        }
    }
    out
}

fn intset(members: &[&[u8]]) -> Vec<u8> {
    let integers: Vec<i64> = members.iter().filter_map(|member| integer::parse(member)).collect();
    let all_fit = |min: i64, max: i64| integers.iter().all(|integer| (min..=max).contains(integer));
    let width = match () {
        () if all_fit(i16::MIN.into(), i16::MAX.into()) => 2,
        () if all_fit(i32::MIN.into(), i32::MAX.into()) => 4,
        () => 8,
    };
    let mut out = Vec::with_capacity(8 + integers.len() * width);
    out.extend_from_slice(&(width as u32).to_le_bytes());
    out.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    integers.iter().for_each(|integer| out.extend_from_slice(&integer.to_le_bytes()[..width]));
    out
}

fn integers(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = Input::new(bytes);
    let width = u32::from_le_bytes(rest.take_array()?) as usize;
    let count = u32::from_le_bytes(rest.take_array()?) as usize;
    if !matches!(width, 2 | 4 | 8) || count.checked_mul(width)? != rest.len() {
        return None;
    }
    let read = |bytes: &[u8]| {
        let mut wide = [if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
        wide[..width].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    };
    let bytes = rest.take(rest.len() as u64)?;
    let integers: Vec<i64> = bytes.chunks_exact(width).map(read).collect();
    let is_ascending = integers.is_sorted_by(|a, b| a < b);
    is_ascending.then(|| integers.into_iter().map(|integer| Text::new(integer).to_vec()).collect())
}

/// Reads the hash, set or sorted set of this type; `None` if it is malformed or has one name twice.
pub(super) fn read(rdb_type: u8, rest: &mut Input<'_>, bytes_max: u64) -> Option<Restored> {
    if matches!(rdb_type, TYPE_SORTED_SET | TYPE_SORTED_SET_TEXT) {
        let members = scored(rdb_type, rest, bytes_max)?;
        return are_distinct(members.iter().map(|(member, _)| member))
            .then_some(Restored::SortedSet(members));
    }
    if TYPES_TIMED.contains(&rdb_type) {
        let fields = timed(rdb_type, rest, bytes_max)?;
        return are_distinct(fields.iter().map(|(field, ..)| field)).then_some(Restored::TimedHash(fields));
    }
    let strings = match rdb_type {
        TYPE_SET => strings(rest, 1, bytes_max)?,
        TYPE_HASH => strings(rest, 2, bytes_max)?,
        TYPE_SET_INTSET => integers(&decode(rest, bytes_max)?)?,
        TYPE_HASH_ZIPMAP => zipmap::decode(&decode(rest, bytes_max)?)?,
        TYPE_HASH_ZIPLIST | TYPE_SORTED_SET_ZIPLIST => ziplist::decode(&decode(rest, bytes_max)?)?,
        _ => listpack::decode(&decode(rest, bytes_max)?)?,
    };
    let width = if matches!(rdb_type, TYPE_SET | TYPE_SET_INTSET | TYPE_SET_LISTPACK) { 1 } else { 2 };
    if !strings.len().is_multiple_of(width) || !are_distinct(strings.iter().step_by(width)) {
        return None;
    }
    match rdb_type {
        TYPE_HASH | TYPE_HASH_LISTPACK | TYPE_HASH_ZIPLIST | TYPE_HASH_ZIPMAP => {
            Some(Restored::Hash(strings))
        }
        TYPE_SORTED_SET_LISTPACK | TYPE_SORTED_SET_ZIPLIST => {
            let mut members = Vec::with_capacity(strings.len() / width);
            let mut strings = strings.into_iter();
            while let (Some(member), Some(score)) = (strings.next(), strings.next()) {
                members.push((member, double::parse(&score).filter(|score| !score.is_nan())?));
            }
            Some(Restored::SortedSet(members))
        }
        _ => Some(Restored::Set(strings)),
    }
}

fn timed(rdb_type: u8, rest: &mut Input<'_>, bytes_max: u64) -> Option<Vec<TimedField>> {
    let is_early = matches!(rdb_type, TYPE_TIMED_HASH_EARLY | TYPE_TIMED_HASH_LISTPACK_EARLY);
    let first = if is_early { 0 } else { u64::from_le_bytes(rest.take_array()?) };
    let time = |at: u64| if at == 0 { Some(None) } else { (at < NO_TIME).then_some(Some(at)) };
    let mut fields = Vec::new();
    if matches!(rdb_type, TYPE_TIMED_HASH | TYPE_TIMED_HASH_EARLY) {
        for _ in 0..decode_len(rest)? {
            let at = decode_len(rest)?;
            let at = if at == 0 || is_early { at } else { first.checked_add(at - 1)? };
            let (field, value) = (decode(rest, bytes_max)?, decode(rest, bytes_max)?);
            fields.push((field, value, time(at)?));
        }
        return Some(fields);
    }
    let mut strings = listpack::decode(&decode(rest, bytes_max)?)?.into_iter();
    while let Some(field) = strings.next() {
        let (value, at) = (strings.next()?, integer::parse(&strings.next()?)?);
        fields.push((field, value, time(u64::try_from(at).ok()?)?));
    }
    Some(fields)
}

fn are_distinct<'s>(names: impl ExactSizeIterator<Item = &'s Vec<u8>>) -> bool {
    let mut seen = HashSet::with_capacity(names.len());
    names.into_iter().all(|name| seen.insert(name))
}

fn scored(rdb_type: u8, rest: &mut Input<'_>, bytes_max: u64) -> Option<Vec<(Vec<u8>, f64)>> {
    let count = decode_len(rest)?;
    let mut members = Vec::new();
    for _ in 0..count {
        let member = decode(rest, bytes_max)?;
        let score = match rdb_type {
            TYPE_SORTED_SET => f64::from_le_bytes(rest.take_array()?),
            _ => score_of_text(rest)?,
        };
        members.push((member, Some(score).filter(|score| !score.is_nan())?));
    }
    Some(members)
}

/// A double as RDB had it until Redis 3.2.
fn score_of_text(rest: &mut Input<'_>) -> Option<f64> {
    match rest.take_array()? {
        [255] => Some(f64::NEG_INFINITY),
        [254] => Some(f64::INFINITY),
        [253] => None,
        [digits] => double::parse(rest.take(digits.into())?),
    }
}

fn strings(rest: &mut Input<'_>, width: u64, bytes_max: u64) -> Option<Vec<Vec<u8>>> {
    let count = decode_len(rest)?.checked_mul(width)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        strings.push(decode(rest, bytes_max)?);
    }
    Some(strings)
}
