//! The payload of streams.
//!
//! RDB type 19 is that of Redis 7.0:
//!
//! - how many nodes, and each as two strings: its id and its listpack, as `stream` keeps them;
//! - the number of entries; the last id, the first one and the greatest deleted one, each as two numbers; the number of
//!   entries ever added;
//! - the number of groups, and for each its name, its last id as two numbers, its count of read entries, its pending
//!   entries, and its consumers;
//! - the pending entries: their number, and for each its id in 16 bytes, the time of its delivery in 8 bytes and its
//!   count of deliveries;
//! - the consumers: their number, and for each its name, the time it was seen in 8 bytes, and the number of its pending
//!   entries, each by its id in 16 bytes.
//!
//! Type 15 is that of Redis 5.0: it lacks the first id, the deleted one, and the numbers of entries added and read.
//! Type 21 is that of Redis 7.2: a consumer has a second time after the first. Lengths, counts and numbers of ids are
//! RDB lengths, times little-endian.

use std::collections::HashMap;
use std::ops::Deref;

use super::input::Input;
use super::{Restored, decode, decode_len, encode, encode_len};
use crate::packed::Malformed;
use crate::stream::{Groups, Pending, Stream, StreamId};

const TYPE_STREAM_5: u8 = 15;
const TYPE_STREAM_7: u8 = 19;
const TYPE_STREAM_7_2: u8 = 21;
/// Those of the text above.
pub(super) const TYPES: [u8; 3] = [TYPE_STREAM_5, TYPE_STREAM_7, TYPE_STREAM_7_2];

// A group's count of read entries, if it is unknown.
const READ_NOT_KNOWN: i64 = -1;

/// Type and value of a stream.
///
/// # Errors
/// When its bytes are malformed.
pub fn stream<B: Deref<Target = [u8]>>(stream: &Stream<B>) -> Result<Vec<u8>, Malformed> {
    let mut out = vec![TYPE_STREAM_7];
    encode_len(stream.node_ids()?.len() as u64, &mut out);
    stream.visit_nodes(|id, pack| {
        encode(&id.to_bytes(), &mut out);
        encode(pack, &mut out);
    })?;
    encode_len(stream.len(), &mut out);
    for id in [stream.last_id(), stream.first_id(), stream.deleted_id()] {
        encode_id(id, &mut out);
    }
    encode_len(stream.added(), &mut out);
    let groups = stream.groups()?;
    encode_len(groups.iter().len() as u64, &mut out);
    for group in groups.iter() {
        encode(group.name(), &mut out);
        encode_id(group.last_id, &mut out);
        encode_len(group.entries_read.unwrap_or(READ_NOT_KNOWN) as u64, &mut out);
        encode_len(group.pending_len() as u64, &mut out);
        let pending = group.known_from(StreamId::MIN).filter_map(|(id, pending)| Some((id, pending?)));
        for (id, pending) in pending.clone() {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&pending.delivered_at.to_le_bytes());
            encode_len(pending.deliveries, &mut out);
        }
        encode_len(group.consumers_len() as u64, &mut out);
        let mut ids: HashMap<u32, Vec<StreamId>> = HashMap::new();
        for (id, pending) in pending {
            ids.entry(pending.consumer).or_default().push(id);
        }
        for (number, consumer) in group.consumers() {
            encode(consumer.name(), &mut out);
            out.extend_from_slice(&consumer.seen_at().to_le_bytes());
            let ids = ids.remove(&number).unwrap_or_default();
            encode_len(ids.len() as u64, &mut out);
            ids.iter().for_each(|id| out.extend_from_slice(&id.to_bytes()));
        }
    }
    Ok(out)
}

fn encode_id(id: StreamId, out: &mut Vec<u8>) {
    encode_len(id.ms, out);
    encode_len(id.seq, out);
}

/// Reads the stream of this type; `None` if it is malformed.
pub(super) fn read(rdb_type: u8, rest: &mut Input<'_>, bytes_max: u64) -> Option<Restored> {
    let mut stream = Stream::empty();
    for _ in 0..decode_len(rest)? {
        let id = StreamId::of_bytes(decode(rest, bytes_max)?.try_into().ok()?);
        let pack = decode(rest, bytes_max)?;
        // Its length field is needed to find the next one.
        if u32::from_le_bytes(*pack.first_chunk()?) as usize != pack.len() {
            return None;
        }
        stream.push_pack(id, &pack);
    }
    let len = decode_len(rest)?;
    let last = decode_id(rest)?;
    let (mut first, mut deleted, mut added) = (None, StreamId::MIN, len);
    if rdb_type != TYPE_STREAM_5 {
        first = Some(decode_id(rest)?);
        deleted = decode_id(rest)?;
        added = decode_len(rest)?;
    }
    stream.set_ids(last, Some(added), Some(deleted));
    // Redis 5 could write a length greater than the actual one, and loads it.
    let is_counted = rdb_type == TYPE_STREAM_5 && stream.set_counts(len, first).is_ok();
    let len = if is_counted { len.min(stream.counted().ok()?) } else { len };
    stream.set_counts(len, first).ok()?;
    let groups = groups(rdb_type, rest, &stream, bytes_max)?;
    stream.set_groups(&groups);
    // Forged bytes must be found now, not later.
    stream.check().ok()?;
    Some(Restored::Stream(stream.into_run()))
}

fn groups(rdb_type: u8, rest: &mut Input<'_>, stream: &Stream<Vec<u8>>, bytes_max: u64) -> Option<Groups> {
    let mut groups = Groups::default();
    for _ in 0..decode_len(rest)? {
        let name = decode(rest, bytes_max)?;
        let last = decode_id(rest)?;
        let read = match rdb_type {
            TYPE_STREAM_5 => stream.count_up_to(last),
            _ => Some(decode_len(rest)? as i64).filter(|&read| read != READ_NOT_KNOWN),
        };
        let group = groups.create(&name, last, read)?;
        let mut pending = std::collections::BTreeMap::new();
        for _ in 0..decode_len(rest)? {
            let id = StreamId::of_bytes(rest.take_array()?);
            let delivered_at = i64::from_le_bytes(rest.take_array()?);
            if pending.insert(id, (delivered_at, decode_len(rest)?)).is_some() {
                return None;
            }
        }
        for _ in 0..decode_len(rest)? {
            let name = decode(rest, bytes_max)?;
            let seen_at = i64::from_le_bytes(rest.take_array()?);
            // Before 7.2 one was not seen that got nothing. Of two times the later one is kept.
            let active_at =
                if rdb_type == TYPE_STREAM_7_2 { i64::from_le_bytes(rest.take_array()?) } else { seen_at };
            let consumer = group.create_consumer(&name, seen_at)?;
            group.set_active(consumer, Some(seen_at).filter(|_| active_at >= 0));
            for _ in 0..decode_len(rest)? {
                let id = StreamId::of_bytes(rest.take_array()?);
                // An entry is pending for one consumer.
                let (delivered_at, deliveries) = pending.remove(&id)?;
                group.add_pending(id, Pending { consumer, delivered_at, deliveries });
            }
        }
        if !pending.is_empty() {
            return None;
        }
    }
    Some(groups)
}

fn decode_id(rest: &mut Input<'_>) -> Option<StreamId> {
    Some(StreamId { ms: decode_len(rest)?, seq: decode_len(rest)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::NodeLimits;

    #[test]
    fn a_too_high_length_of_redis_5_becomes_the_actual_one() {
        let mut made = Stream::empty();
        for ms in 1..=3 {
            let id = StreamId { ms, seq: 0 };
            made.append(id, &[&b"f"[..], b"v"], NodeLimits { bytes: 4096, entries: 100 }).unwrap();
        }
        let mut told = Vec::new();
        encode_len(made.node_ids().unwrap().len() as u64, &mut told);
        made.visit_nodes(|id, pack| {
            encode(&id.to_bytes(), &mut told);
            encode(pack, &mut told);
        })
        .unwrap();
        for (len, wanted) in [(3, Some(3)), (7, Some(3)), (2, None)] {
            let mut bytes = told.clone();
            encode_len(len, &mut bytes);
            encode_id(made.last_id(), &mut bytes);
            encode_len(0, &mut bytes);
            let read = read(TYPE_STREAM_5, &mut Input::new(&bytes), 1 << 20);
            let found = read.map(|read| match read {
                Restored::Stream(run) => Stream::of(run).unwrap().len(),
                other => panic!("{other:?}"),
            });
            assert_eq!(found, wanted, "{len}");
        }
    }
}
