//! The consumer groups of a stream: who reads it, and what was delivered and is not acknowledged yet.
//!
//! In the record of the stream they are
//!
//! | bytes | meaning |
//! |---|---|
//! | 4 | how many groups |
//!
//! and of each, ascending by name
//!
//! | bytes | meaning |
//! |---|---|
//! | 4, … | the length of its name, and its name |
//! | 16 | the id of the last entry that was delivered |
//! | 8 | how many entries were read, -1 if nobody knows |
//! | 4 | how many consumers |
//! | … | of each the length of its name (4), its name, and when it was seen last (8) |
//! | 4 | how many entries are pending |
//! | … | of each its id (16), which of the consumers has it (4), when it was delivered last (8) and how often (8) |
//!
//! Numbers are little-endian, times in Unix milliseconds, and ids as [`StreamId::to_bytes`] has them, ascending.

use std::collections::BTreeMap;

use super::StreamId;
use super::bytes::Bytes;
use crate::packed::Malformed;

/// All groups of a stream, ascending by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    list: Vec<Group>,
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    name: Vec<u8>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// How many entries of all that there ever were come up to that one, if it is known.
    pub entries_read: Option<i64>,
    consumers: Vec<Consumer>,
    pending: BTreeMap<StreamId, Pending>,
}

/// One consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    name: Vec<u8>,
    /// When it asked for something last, in Unix milliseconds.
    pub seen_at: i64,
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Who has it: an index that [`Group::find_consumer`] told, good until a consumer goes.
    pub consumer: usize,
    /// When it was delivered last, in Unix milliseconds.
    pub delivered_at: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

const READ_NOT_KNOWN: i64 = -1;

impl Groups {
    /// The groups.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Group> {
        self.list.iter()
    }

    /// The group with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Group> {
        self.find(name).ok().map(|at| &self.list[at])
    }

    /// The group with this name, to be changed.
    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut Group> {
        self.find(name).ok().map(|at| &mut self.list[at])
    }

    /// A new group; `None` if there is one of that name.
    pub fn create(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> Option<&mut Group> {
        let at = self.find(name).err()?;
        let (consumers, pending) = Default::default();
        self.list.insert(at, Group { name: name.to_vec(), last_id, entries_read, consumers, pending });
        self.list.get_mut(at)
    }

    /// Removes a group; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let found = self.find(name).map(|at| self.list.remove(at));
        found.is_ok()
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|group| group.name.as_slice().cmp(name))
    }

    /// The bytes of the table above.
    /// Nothing without any.
    pub(crate) fn encoded(&self) -> Vec<u8> {
        if self.iter().len() == 0 {
            return Vec::new();
        }
        let mut out = Vec::new();
        let number = |number: usize, out: &mut Vec<u8>| out.extend_from_slice(&(number as u32).to_le_bytes());
        let name = |name: &[u8], out: &mut Vec<u8>| {
            number(name.len(), out);
            out.extend_from_slice(name);
        };
        number(self.list.len(), &mut out);
        for group in &self.list {
            name(&group.name, &mut out);
            out.extend_from_slice(&group.last_id.to_bytes());
            out.extend_from_slice(&group.entries_read.unwrap_or(READ_NOT_KNOWN).to_le_bytes());
            number(group.consumers.len(), &mut out);
            for consumer in &group.consumers {
                name(&consumer.name, &mut out);
                out.extend_from_slice(&consumer.seen_at.to_le_bytes());
            }
            number(group.pending.len(), &mut out);
            for (id, pending) in &group.pending {
                out.extend_from_slice(&id.to_bytes());
                number(pending.consumer, &mut out);
                out.extend_from_slice(&pending.delivered_at.to_le_bytes());
                out.extend_from_slice(&pending.deliveries.to_le_bytes());
            }
        }
        out
    }

    /// The groups in these bytes, which stand at `at` of the record.
    pub(crate) fn decode(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        let mut bytes = Bytes::new(bytes, at);
        let mut groups = Self::default();
        for _ in 0..bytes.u32()? {
            let begin = bytes.at();
            let name = bytes.string()?;
            let (last_id, entries_read) = (bytes.id()?, Some(bytes.u64()? as i64));
            let entries_read = entries_read.filter(|&read| read != READ_NOT_KNOWN);
            // They come in order.
            let is_last = groups.list.last().is_none_or(|last| *last.name < *name);
            let group = groups.create(name, last_id, entries_read).filter(|_| is_last);
            let group = group.ok_or(Malformed { at: begin, why: "its groups are not in order" })?;
            for _ in 0..bytes.u32()? {
                let name = bytes.string()?.to_vec();
                group.consumers.push(Consumer { name, seen_at: bytes.u64()? as i64 });
            }
            for _ in 0..bytes.u32()? {
                let begin = bytes.at();
                let (id, consumer) = (bytes.id()?, bytes.u32()? as usize);
                let (delivered_at, deliveries) = (bytes.u64()? as i64, bytes.u64()?);
                let is_known = consumer < group.consumers.len();
                let pending = Pending { consumer, delivered_at, deliveries };
                if !is_known || group.pending.insert(id, pending).is_some() {
                    let why = "an entry is pending twice, or for a consumer that there is not";
                    return Err(Malformed { at: begin, why });
                }
            }
        }
        bytes.end()?;
        Ok(groups)
    }
}

impl Group {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// The consumers with their indexes, ascending by name.
    pub fn consumers(&self) -> Vec<(usize, &Consumer)> {
        let mut consumers: Vec<_> = self.consumers.iter().enumerate().collect();
        consumers.sort_unstable_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        consumers
    }

    /// How many consumers there are.
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// The index of the consumer with this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<usize> {
        self.consumers.iter().position(|consumer| consumer.name == name)
    }

    /// A new consumer; `None` if there is one of that name.
    pub fn create_consumer(&mut self, name: &[u8], seen_at: i64) -> Option<usize> {
        let is_new = self.find_consumer(name).is_none();
        is_new.then(|| self.see_consumer(name, seen_at).0)
    }

    /// The index of the consumer with this name, which was seen now, and whether it was made for that.
    pub fn see_consumer(&mut self, name: &[u8], now: i64) -> (usize, bool) {
        if let Some(at) = self.find_consumer(name) {
            self.consumers[at].seen_at = now;
            return (at, false);
        }
        self.consumers.push(Consumer { name: name.to_vec(), seen_at: now });
        (self.consumers.len() - 1, true)
    }

    /// Removes a consumer with what it has pending; how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> usize {
        let Some(at) = self.find_consumer(name) else { return 0 };
        self.consumers.remove(at);
        let before = self.pending.len();
        self.pending.retain(|_, pending| pending.consumer != at);
        for pending in self.pending.values_mut() {
            pending.consumer -= usize::from(pending.consumer > at);
        }
        before - self.pending.len()
    }

    /// The name of the consumer with this index.
    pub fn consumer_name(&self, index: usize) -> &[u8] {
        self.consumers.get(index).map_or(&[], |consumer| &consumer.name)
    }

    /// How many entries are pending.
    pub fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// How many of them each consumer has, by index.
    pub fn pending_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.consumers.len()];
        for pending in self.pending.values() {
            counts[pending.consumer] += 1;
        }
        counts
    }

    /// What is pending, from an id on, of one consumer or of all.
    pub fn pending_from(
        &self,
        from: StreamId,
        consumer: Option<usize>,
    ) -> impl Iterator<Item = (StreamId, Pending)> {
        let wanted = move |pending: &Pending| consumer.is_none_or(|consumer| pending.consumer == consumer);
        self.pending.range(from..).map(|(id, pending)| (*id, *pending)).filter(move |(_, it)| wanted(it))
    }

    /// The first and the last id that are pending.
    pub fn pending_ends(&self) -> Option<(StreamId, StreamId)> {
        Some((*self.pending.first_key_value()?.0, *self.pending.last_key_value()?.0))
    }

    /// What is known of an entry that is pending.
    pub fn pending(&self, id: StreamId) -> Option<Pending> {
        self.pending.get(&id).copied()
    }

    /// An entry is pending so from now on.
    pub fn set_pending(&mut self, id: StreamId, pending: Pending) {
        self.pending.insert(id, pending);
    }

    /// An entry is not pending any more; whether it was.
    pub fn acknowledge(&mut self, id: StreamId) -> bool {
        self.pending.remove(&id).is_some()
    }
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}
