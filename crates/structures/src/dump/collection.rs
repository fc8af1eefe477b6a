//! The payloads of hashes, sets and sorted sets.
//!
//! | RDB type | is | what follows |
//! |---|---|---|
//! | 2 | a set | how many members, and each as a string |
//! | 4 | a hash | how many fields, and each with its value as strings |
//! | 5 | a sorted set | how many members, and each as a string with its score, the 8 bytes of a double, little-endian |
//! | 11 | a set of integers | a string: bytes of an integer (4 bytes), how many (4 bytes), the integers ascending |
//! | 16 | a hash | a string: a [`listpack`] of fields and values by turns |
//! | 17 | a sorted set | a string: a listpack of members and scores by turns, ascending |
//! | 20 | a set, of Redis 7.2 and later | a string: a listpack of the members |

use std::collections::HashSet;

use super::{Restored, decode, decode_len, encode, encode_len, listpack, signed, take_array};
use crate::entries::Scored;
use crate::strings::double;
use crate::strings::integer::{self, Text};

const TYPE_SET: u8 = 2;
const TYPE_HASH: u8 = 4;
const TYPE_SORTED_SET: u8 = 5;
const TYPE_SET_INTSET: u8 = 11;
const TYPE_HASH_LISTPACK: u8 = 16;
const TYPE_SORTED_SET_LISTPACK: u8 = 17;
const TYPE_SET_LISTPACK: u8 = 20;
/// Those of the table.
pub(super) const TYPES: [u8; 7] = [
    TYPE_SET,
    TYPE_HASH,
    TYPE_SORTED_SET,
    TYPE_SET_INTSET,
    TYPE_HASH_LISTPACK,
    TYPE_SORTED_SET_LISTPACK,
    TYPE_SET_LISTPACK,
];

/// The payload for a hash, which is a listpack to Redis or not.
pub fn hash(pairs: &[(&[u8], &[u8])], is_listpack: bool) -> Vec<u8> {
    let mut out = vec![if is_listpack { TYPE_HASH_LISTPACK } else { TYPE_HASH }];
    let strings = pairs.iter().flat_map(|&(field, value)| [field, value]);
    if is_listpack {
        encode(&listpack::encode(strings), &mut out);
    } else {
        encode_len(pairs.len() as u64, &mut out);
        strings.for_each(|string| encode(string, &mut out));
    }
    signed(out)
}

/// The payload for a set, which is an intset to Redis or not: then all members are integers, ascending.
pub fn set(members: &[&[u8]], is_intset: bool) -> Vec<u8> {
    let mut out = vec![if is_intset { TYPE_SET_INTSET } else { TYPE_SET }];
    if is_intset {
        encode(&intset(members), &mut out);
    } else {
        encode_len(members.len() as u64, &mut out);
        members.iter().for_each(|member| encode(member, &mut out));
    }
    signed(out)
}

/// The payload for a sorted set, which is a listpack to Redis or not. The members are in their order.
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
    signed(out)
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
    let mut rest = bytes;
    let width = u32::from_le_bytes(take_array(&mut rest)?) as usize;
    let count = u32::from_le_bytes(take_array(&mut rest)?) as usize;
    if !matches!(width, 2 | 4 | 8) || count.checked_mul(width)? != rest.len() {
        return None;
    }
    let read = |bytes: &[u8]| {
        let mut wide = [if bytes[width - 1] & 0x80 == 0 { 0 } else { 0xff }; 8];
        wide[..width].copy_from_slice(bytes);
        i64::from_le_bytes(wide)
    };
    let integers: Vec<i64> = rest.chunks_exact(width).map(read).collect();
    let is_ascending = integers.is_sorted_by(|a, b| a < b);
    is_ascending.then(|| integers.into_iter().map(|integer| Text::new(integer).to_vec()).collect())
}

/// The hash, set or sorted set in the body of a payload of this type; `None` for what is none, has no entries, or one name twice.
pub(super) fn restore(rdb_type: u8, mut rest: &[u8], bytes_max: u64) -> Option<Restored> {
    let rest = &mut rest;
    let strings = match rdb_type {
        TYPE_SET => strings(rest, 1, bytes_max)?,
        TYPE_HASH => strings(rest, 2, bytes_max)?,
        TYPE_SORTED_SET => scored_strings(rest, bytes_max)?,
        TYPE_SET_INTSET => integers(&decode(rest, bytes_max)?)?,
        _ => listpack::decode(&decode(rest, bytes_max)?)?,
    };
    if strings.is_empty() || !rest.is_empty() {
        return None;
    }
    let width = if matches!(rdb_type, TYPE_SET | TYPE_SET_INTSET | TYPE_SET_LISTPACK) { 1 } else { 2 };
    let mut names = HashSet::new();
    let are_distinct = strings.iter().step_by(width).all(|name| names.insert(name));
    if !are_distinct || !strings.len().is_multiple_of(width) {
        return None;
    }
    match rdb_type {
        TYPE_HASH | TYPE_HASH_LISTPACK => Some(Restored::Hash(strings)),
        TYPE_SORTED_SET | TYPE_SORTED_SET_LISTPACK => {
            let mut members = Vec::with_capacity(strings.len() / width);
            let mut strings = strings.into_iter();
            while let (Some(member), Some(score)) = (strings.next(), strings.next()) {
                let score = match rdb_type {
                    TYPE_SORTED_SET => f64::from_le_bytes(score.try_into().ok()?),
                    _ => double::parse(&score)?,
                };
                members.push((member, Some(score).filter(|score| !score.is_nan())?));
            }
            Some(Restored::SortedSet(members))
        }
        _ => Some(Restored::Set(strings)),
    }
}

/// Members, and by turns the 8 bytes of their scores.
fn scored_strings(rest: &mut &[u8], bytes_max: u64) -> Option<Vec<Vec<u8>>> {
    let count = decode_len(rest)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        strings.push(decode(rest, bytes_max)?);
        strings.push(take_array::<8>(rest)?.to_vec());
    }
    Some(strings)
}

fn strings(rest: &mut &[u8], width: u64, bytes_max: u64) -> Option<Vec<Vec<u8>>> {
    let count = decode_len(rest)?.checked_mul(width)?;
    let mut strings = Vec::new();
    for _ in 0..count {
        strings.push(decode(rest, bytes_max)?);
    }
    Some(strings)
}
