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
//! A large stream has an element for each entry that is pending (see `large::noded`), so that who deals with one writes no others. Then
//! a group has in place of the last two rows its number (4), which is a part of these elements' keys; and a consumer has behind the
//! others its number (4), by which they name it, and how many entries are pending for it (8). The value of such an element is
//! the number of the consumer (4), when the entry was delivered last (8) and how often (8).
//!
//! Numbers are little-endian, times in Unix milliseconds, and ids as [`StreamId::to_bytes`] has them, ascending.

use std::collections::BTreeMap;

use super::StreamId;
use super::bytes::Bytes;
use crate::large;
use crate::packed::Malformed;

/// All groups of a stream, ascending by name.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    list: Vec<Group>,
    /// They are those of a large stream.
    is_large: bool,
    /// Numbers of groups that were removed since they were read.
    removed: Vec<u32>,
}

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    name: Vec<u8>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// How many entries of all that there ever were come up to that one, if it is known.
    pub entries_read: Option<i64>,
    consumers: Vec<Consumer>,
    /// Of a stream in one value all that is pending. Of a large one what was changed since the groups were read, `None` for what is not
    /// pending any more; the rest is in the elements of this number.
    known: BTreeMap<StreamId, Option<Pending>>,
    number: Option<u32>,
}

/// One consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Vec<u8>,
    /// When it asked for something last, in Unix milliseconds.
    pub seen_at: i64,
    /// In a large stream; it stays when others go.
    number: u32,
    pending: u64,
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
        let (consumers, known) = Default::default();
        let number = self.is_large.then(|| self.next_number());
        self.list.insert(at, Group { name: name.to_vec(), last_id, entries_read, consumers, known, number });
        self.list.get_mut(at)
    }

    fn next_number(&self) -> u32 {
        let used = self.list.iter().filter_map(|group| group.number).chain(self.removed.iter().copied());
        used.max().map_or(0, |last| last.wrapping_add(1))
    }

    /// Removes a group; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Ok(at) = self.find(name) else { return false };
        self.removed.extend(self.list.remove(at).number);
        true
    }

    /// Numbers of groups of a large stream that were removed.
    pub(crate) fn removed(&self) -> &[u32] {
        &self.removed
    }

    /// All of them, read from one value, as those of a large stream that is made of it.
    pub(crate) fn into_large(mut self) -> Self {
        self.is_large = true;
        for (number, group) in (0..).zip(&mut self.list) {
            group.number = Some(number);
            for (number, consumer) in (0..).zip(&mut group.consumers) {
                consumer.number = number;
            }
        }
        self
    }

    /// Those of a large stream, with all that is pending, as those of a stream in one value.
    pub(crate) fn into_whole(
        mut self,
        mut all: impl FnMut(&Group) -> large::Result<Vec<(StreamId, Pending)>>,
    ) -> large::Result<Self> {
        for group in &mut self.list {
            group.known = all(group)?.into_iter().map(|(id, pending)| (id, Some(pending))).collect();
            group.number = None;
        }
        self.is_large = false;
        Ok(self)
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|group| group.name.as_slice().cmp(name))
    }

    /// The bytes of the table above. Nothing without any.
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
                if self.is_large {
                    number(consumer.number as usize, &mut out);
                    out.extend_from_slice(&consumer.pending.to_le_bytes());
                }
            }
            if self.is_large {
                number(group.number.unwrap_or_default() as usize, &mut out);
                continue;
            }
            number(group.pending_len(), &mut out);
            for (id, pending) in group.known_from(StreamId::MIN) {
                let Some(pending) = pending else { continue };
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
        Self::decode_as(Self::default(), bytes, at)
    }

    /// The groups of a large stream in these bytes.
    pub(crate) fn decode_large(bytes: &[u8]) -> Result<Self, Malformed> {
        let groups = Self { is_large: true, ..Self::default() };
        if bytes.is_empty() { Ok(groups) } else { Self::decode_as(groups, bytes, 0) }
    }

    fn decode_as(mut groups: Self, bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        let (mut bytes, is_large) = (Bytes::new(bytes, at), groups.is_large);
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
                let (name, seen_at) = (bytes.string()?.to_vec(), bytes.u64()? as i64);
                let (number, pending) = if is_large { (bytes.u32()?, bytes.u64()?) } else { (0, 0) };
                group.consumers.push(Consumer { name, seen_at, number, pending });
            }
            if is_large {
                group.number = Some(bytes.u32()?);
                continue;
            }
            for _ in 0..bytes.u32()? {
                let begin = bytes.at();
                let (id, consumer) = (bytes.id()?, bytes.u32()? as usize);
                let (delivered_at, deliveries) = (bytes.u64()? as i64, bytes.u64()?);
                let pending = Pending { consumer, delivered_at, deliveries };
                if consumer >= group.consumers.len() || !group.add_pending(id, pending) {
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
        let last = self.consumers.iter().map(|consumer| consumer.number).max();
        let number = last.map_or(0, |last| last.wrapping_add(1));
        self.consumers.push(Consumer { name: name.to_vec(), seen_at: now, number, pending: 0 });
        (self.consumers.len() - 1, true)
    }

    /// Removes the consumer of this index, which has nothing pending.
    pub(crate) fn remove_consumer(&mut self, at: usize) {
        debug_assert_eq!(self.consumers[at].pending, 0);
        self.consumers.remove(at);
        for pending in self.known.values_mut().flatten() {
            pending.consumer -= usize::from(pending.consumer > at);
        }
    }

    /// The name of the consumer with this index.
    pub fn consumer_name(&self, index: usize) -> &[u8] {
        self.consumers.get(index).map_or(&[], |consumer| &consumer.name)
    }

    /// How many entries are pending.
    pub fn pending_len(&self) -> usize {
        self.pending_counts().iter().sum()
    }

    /// How many of them each consumer has, by index.
    pub fn pending_counts(&self) -> Vec<usize> {
        self.consumers.iter().map(|consumer| consumer.pending as usize).collect()
    }

    /// What its elements have for their group; `None` where there are none, so that all is known that is pending.
    pub(crate) fn number(&self) -> Option<u32> {
        self.number
    }

    /// The value of the element for an entry that is pending so.
    pub(crate) fn element_of_pending(&self, pending: Pending) -> Vec<u8> {
        let consumer = self.consumers.get(pending.consumer).map_or(u32::MAX, |consumer| consumer.number);
        let Pending { delivered_at, deliveries, .. } = pending;
        [&consumer.to_le_bytes()[..], &delivered_at.to_le_bytes(), &deliveries.to_le_bytes()].concat()
    }

    /// How an entry is pending by the value of its element.
    pub(crate) fn pending_of_element(&self, value: &[u8]) -> Result<Pending, Malformed> {
        let mut bytes = Bytes::new(value, 0);
        let (number, delivered_at, deliveries) = (bytes.u32()?, bytes.u64()? as i64, bytes.u64()?);
        bytes.end()?;
        let consumer = self.consumers.iter().position(|consumer| consumer.number == number);
        let consumer = consumer
            .ok_or(Malformed { at: 0, why: "an entry is pending for a consumer that there is not" })?;
        Ok(Pending { consumer, delivered_at, deliveries })
    }

    /// What is pending, from an id on, as far as it is known without elements: all, if the stream is one value. `None` for what was
    /// acknowledged.
    pub fn known_from(&self, from: StreamId) -> impl Iterator<Item = (StreamId, Option<Pending>)> + Clone {
        self.known.range(from..).map(|(id, pending)| (*id, *pending))
    }

    /// What is known of an entry without elements: whether it is pending, and how; `None` if that is for the elements to say.
    pub(crate) fn known(&self, id: StreamId) -> Option<Option<Pending>> {
        match (self.known.get(&id), self.number) {
            (Some(known), _) => Some(*known),
            (None, None) => Some(None),
            (None, Some(_)) => None,
        }
    }

    /// An entry that was pending as `old` says is now as `new` says.
    pub(crate) fn change_pending(&mut self, id: StreamId, old: Option<Pending>, new: Option<Pending>) {
        let mut count = |pending: Option<Pending>, add: i64| {
            if let Some(consumer) = pending.and_then(|pending| self.consumers.get_mut(pending.consumer)) {
                consumer.pending = consumer.pending.saturating_add_signed(add);
            }
        };
        count(old, -1);
        count(new, 1);
        match (new, self.number) {
            (None, None) => drop(self.known.remove(&id)),
            (new, _) => drop(self.known.insert(id, new)),
        }
    }

    /// An entry of a stream in one value is pending; false if it was already.
    pub(crate) fn add_pending(&mut self, id: StreamId, pending: Pending) -> bool {
        let is_new = self.known(id) == Some(None);
        if is_new {
            self.change_pending(id, None, Some(pending));
        }
        is_new
    }
}

impl Consumer {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }
}
