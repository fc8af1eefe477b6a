//! The consumer groups of a stream: their consumers, and the entries that were delivered and are not acknowledged yet.
//!
//! In the record of a stream in one value they are
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
//! | 8 | the number of read entries, -1 if it is unknown |
//! | 4 | how many consumers |
//! | … | for each the length of its name (4), its name, and when it was last seen (8), negated bit by bit if it has not got an entry yet |
//! | 4 | how many entries are pending |
//! | … | of each its id (16), which of the consumers has it (4), when it was delivered last (8) and how often (8) |
//!
//! A large stream has separate elements for each group, each consumer and each pending entry (see `large`), so
//! that a client that works with one neither reads nor writes the others. Their values are
//!
//! | of | bytes |
//! |---|---|
//! | a group | the id of the last entry that was delivered (16), how many were read (8), its name |
//! | a consumer | when it was seen last (8), as above, how many entries are pending for it (8), its name |
//! | an entry that is pending | the number of the consumer (4), when it was delivered last (8) and how often (8) |
//!
//! Numbers are little-endian, times in Unix milliseconds, and ids as [`StreamId::to_bytes`] has them, ascending.
//!
//! A consumer has a *number* within its group, by which pending entries refer to it. In one value the consumers are
//! numbered again at every write; in elements a consumer keeps its number.

use std::collections::BTreeMap;

use super::StreamId;
use super::bytes::Bytes;
use crate::packed::Malformed;

/// All groups of a stream, ascending by name.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    list: Vec<Group>,
}

/// One group.
///
/// For a stream in one value, all its consumers and all pending entries are loaded. For a large one, the requested
/// consumers are loaded and the changes since the group was read; the rest is in the elements of its number.
#[derive(Clone, Debug)]
pub struct Group {
    name: Vec<u8>,
    /// The last entry that was delivered.
    pub last_id: StreamId,
    /// How many entries of all that there ever were come up to that one, if it is known.
    pub entries_read: Option<i64>,
    consumers: BTreeMap<u32, Consumer>,
    /// Consumers that are in elements and were removed.
    removed: BTreeMap<u32, Consumer>,
    known: BTreeMap<StreamId, Change>,
    elements: Option<InElements>,
}

/// Where the group of a large stream is.
#[derive(Clone, Copy, Debug)]
struct InElements {
    number: u32,
    /// The content of its element; `None`: there is none yet.
    saved: Option<(StreamId, Option<i64>)>,
    /// No consumer has this number, nor a greater one.
    next: u32,
}

/// One consumer of a group.
#[derive(Clone, Debug)]
pub struct Consumer {
    name: Vec<u8>,
    /// See [`Consumer::seen_at`]; one that has never got anything has the complement, which is negative.
    seen: i64,
    pending: u64,
    /// The last two as its element has them; `None`: there is none yet.
    saved: Option<(i64, u64)>,
}

/// An entry that was delivered and is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The number of the consumer that has it.
    pub consumer: u32,
    /// When it was delivered last, in Unix milliseconds.
    pub delivered_at: i64,
    /// How often it was delivered.
    pub deliveries: u64,
}

/// How an entry is pending now, and for which consumer it is by the elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) was: Option<u32>,
    pub(crate) now: Option<Pending>,
}

const READ_NOT_KNOWN: i64 = -1;

impl Groups {
    /// These groups, in any order.
    pub(crate) fn of(mut list: Vec<Group>) -> Self {
        list.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Self { list }
    }

    /// The groups themselves.
    pub(crate) fn into_list(self) -> Vec<Group> {
        self.list
    }

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

    /// A new group; `None` if one with that name exists.
    pub fn create(
        &mut self,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> Option<&mut Group> {
        let at = self.find(name).err()?;
        self.list.insert(at, Group::new(name, last_id, entries_read));
        self.list.get_mut(at)
    }

    /// Takes a group out, if it is there.
    pub fn remove(&mut self, name: &[u8]) -> Option<Group> {
        self.find(name).ok().map(|at| self.list.remove(at))
    }

    /// Replaces the group with this name, or adds the group.
    pub(crate) fn put(&mut self, group: Group) {
        match self.find(&group.name) {
            Ok(at) => self.list[at] = group,
            Err(at) => self.list.insert(at, group),
        }
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.list.binary_search_by(|group| group.name.as_slice().cmp(name))
    }

    /// The bytes of the first table above. Nothing without any.
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
            for consumer in group.consumers.values() {
                name(&consumer.name, &mut out);
                out.extend_from_slice(&consumer.seen.to_le_bytes());
            }
            let numbers: Vec<u32> = group.consumers.keys().copied().collect();
            number(group.pending_len(), &mut out);
            for (id, pending) in group.known_from(StreamId::MIN) {
                let Some(pending) = pending else { continue };
                out.extend_from_slice(&id.to_bytes());
                let at = numbers.binary_search(&pending.consumer);
                number(at.unwrap_or(usize::MAX), &mut out);
                out.extend_from_slice(&pending.delivered_at.to_le_bytes());
                out.extend_from_slice(&pending.deliveries.to_le_bytes());
            }
        }
        out
    }

    /// The groups in these bytes, which stand at `at` of the record.
    pub(crate) fn decode(bytes: &[u8], at: usize) -> Result<Self, Malformed> {
        let (mut groups, mut bytes) = (Self::default(), Bytes::new(bytes, at));
        for _ in 0..bytes.u32()? {
            let begin = bytes.at();
            let name = bytes.string()?;
            let (last_id, entries_read) = (bytes.id()?, read_of(bytes.u64()?));
            // They come in order.
            let is_last = groups.list.last().is_none_or(|last| *last.name < *name);
            let group = groups.create(name, last_id, entries_read).filter(|_| is_last);
            let group = group.ok_or(Malformed { at: begin, why: "its groups are not in order" })?;
            for number in 0..bytes.u32()? {
                let (name, seen) = (bytes.string()?.to_vec(), bytes.u64()? as i64);
                group.consumers.insert(number, Consumer { name, seen, pending: 0, saved: None });
            }
            for _ in 0..bytes.u32()? {
                let begin = bytes.at();
                let (id, consumer) = (bytes.id()?, bytes.u32()?);
                let (delivered_at, deliveries) = (bytes.u64()? as i64, bytes.u64()?);
                let pending = Pending { consumer, delivered_at, deliveries };
                if !group.consumers.contains_key(&consumer) || !group.add_pending(id, pending) {
                    let why = "an entry is pending twice, or for a consumer that there is not";
                    return Err(Malformed { at: begin, why });
                }
            }
        }
        bytes.end()?;
        Ok(groups)
    }
}

/// How many entries were read, as it is written.
fn read_of(number: u64) -> Option<i64> {
    Some(number as i64).filter(|&read| read != READ_NOT_KNOWN)
}

impl Group {
    pub(crate) fn new(name: &[u8], last_id: StreamId, entries_read: Option<i64>) -> Self {
        let (consumers, removed, known) = Default::default();
        Self { name: name.to_vec(), last_id, entries_read, consumers, removed, known, elements: None }
    }

    /// The group of this number that its element has; no consumer is known yet.
    pub(crate) fn of_element(number: u32, value: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes::new(value, 0);
        let (last_id, entries_read) = (bytes.id()?, read_of(bytes.u64()?));
        let mut group = Self::new(bytes.rest(), last_id, entries_read);
        group.elements = Some(InElements { number, saved: Some((last_id, entries_read)), next: 0 });
        Ok(group)
    }

    /// The value of its element.
    pub(crate) fn element(&self) -> Vec<u8> {
        let read = self.entries_read.unwrap_or(READ_NOT_KNOWN);
        [&self.last_id.to_bytes()[..], &read.to_le_bytes(), &self.name].concat()
    }

    /// Turns a group of a stream in one value, which is fully loaded, into one of a large stream, of which nothing is
    /// written yet.
    pub(crate) fn into_elements(mut self, number: u32) -> Self {
        self.elements = Some(InElements { number, saved: None, next: 0 });
        self
    }

    /// Makes a group of a large stream, whose consumers are all known, one of a stream in one value; `all` is pending.
    pub(crate) fn into_whole(mut self, all: impl IntoIterator<Item = (StreamId, Pending)>) -> Self {
        let change = |(id, pending)| (id, Change { was: None, now: Some(pending) });
        self.known = all.into_iter().map(change).collect();
        self.elements = None;
        self
    }

    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its number in a large stream; `None` where all is known.
    pub(crate) fn number(&self) -> Option<u32> {
        self.elements.map(|it| it.number)
    }

    /// Whether its element says something else, or is not there.
    pub(crate) fn is_changed(&self) -> bool {
        self.elements.is_some_and(|it| it.saved != Some((self.last_id, self.entries_read)))
    }

    /// Whether there is no element of it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.elements.is_some_and(|it| it.saved.is_none())
    }

    // --- consumers: those that are known

    /// The consumers with their numbers, ascending by name.
    pub fn consumers(&self) -> Vec<(u32, &Consumer)> {
        let mut consumers: Vec<_> = self.consumers.iter().map(|(number, it)| (*number, it)).collect();
        consumers.sort_unstable_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        consumers
    }

    /// How many consumers there are.
    pub fn consumers_len(&self) -> usize {
        self.consumers.len()
    }

    /// The number of the consumer with this name.
    pub fn find_consumer(&self, name: &[u8]) -> Option<u32> {
        self.consumers.iter().find(|(_, consumer)| consumer.name == name).map(|(number, _)| *number)
    }

    /// A new consumer without entries; `None` if one with that name exists.
    pub fn create_consumer(&mut self, name: &[u8], seen_at: i64) -> Option<u32> {
        let is_new = self.find_consumer(name).is_none();
        is_new.then(|| {
            let number = self.see_consumer(name, seen_at).0;
            self.set_active(number, None);
            number
        })
    }

    /// When a consumer got something last; `None`: never.
    pub fn set_active(&mut self, number: u32, at: Option<i64>) {
        if let Some(consumer) = self.consumers.get_mut(&number) {
            consumer.seen = at.unwrap_or(!consumer.seen_at());
        }
    }

    /// The number of the consumer with this name, which was seen now, and whether it was made for that.
    pub fn see_consumer(&mut self, name: &[u8], now: i64) -> (u32, bool) {
        if let Some(number) = self.find_consumer(name) {
            if let Some(consumer) = self.consumers.get_mut(&number) {
                consumer.seen = now;
            }
            return (number, false);
        }
        let behind = |consumers: &BTreeMap<u32, Consumer>| {
            consumers.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
        };
        let number = behind(&self.consumers).max(behind(&self.removed));
        let number = number.max(self.elements.map_or(0, |it| it.next));
        self.consumers.insert(number, Consumer { name: name.to_vec(), seen: now, pending: 0, saved: None });
        (number, true)
    }

    /// Removes a consumer. It has nothing pending, but for one that is in elements: then they go with it, in parts.
    pub(crate) fn remove_consumer(&mut self, number: u32) {
        let Some(consumer) = self.consumers.remove(&number) else { return };
        debug_assert!(consumer.pending == 0 || consumer.saved.is_some() && self.known.is_empty());
        if consumer.saved.is_some() {
            self.removed.insert(number, consumer);
        }
    }

    /// Whether a consumer that has elements was removed.
    pub(crate) fn has_removed(&self, number: u32) -> bool {
        self.removed.contains_key(&number)
    }

    /// A consumer that is known.
    pub fn consumer(&self, number: u32) -> Option<&Consumer> {
        self.consumers.get(&number)
    }

    /// A consumer that its element has becomes known, if it was not, and was not removed.
    pub(crate) fn know_consumer(&mut self, number: u32, consumer: Consumer) {
        if !self.removed.contains_key(&number) {
            self.consumers.entry(number).or_insert(consumer);
        }
    }

    /// No element has a consumer of this number or a greater one.
    pub(crate) fn know_next(&mut self, next: u32) {
        if let Some(elements) = &mut self.elements {
            elements.next = next;
        }
    }

    /// Consumers whose elements say something else, or are not there.
    pub(crate) fn changed_consumers(&self) -> impl Iterator<Item = (u32, &Consumer)> {
        let consumers = self.consumers.iter().map(|(number, consumer)| (*number, consumer));
        consumers.filter(|(_, consumer)| consumer.saved != Some((consumer.seen, consumer.pending)))
    }

    /// Consumers that were removed and have elements.
    pub(crate) fn removed_consumers(&self) -> impl Iterator<Item = (u32, &Consumer)> {
        self.removed.iter().map(|(number, consumer)| (*number, consumer))
    }

    // --- pending entries

    /// How many entries are pending for the consumers that are known.
    pub fn pending_len(&self) -> usize {
        self.consumers.values().map(Consumer::pending_len).sum()
    }

    /// The pending entries from an id on, as far as they are loaded: all, if the stream is one value. `None` for
    /// acknowledged ones.
    pub fn known_from(&self, from: StreamId) -> impl Iterator<Item = (StreamId, Option<Pending>)> + Clone {
        self.known.range(from..).map(|(id, change)| (*id, change.now))
    }

    /// The changes of a group of a large stream.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (StreamId, Change)> {
        self.known.iter().map(|(id, change)| (*id, *change))
    }

    /// The loaded state of an entry: whether it is pending, and how; `None` if only the elements have it.
    pub(crate) fn known(&self, id: StreamId) -> Option<Option<Pending>> {
        match (self.known.get(&id), self.elements) {
            (Some(known), _) => Some(known.now),
            (None, None) => Some(None),
            (None, Some(_)) => None,
        }
    }

    /// An entry that was pending as `old` says is now as `new` says. The consumers of both are known.
    pub(crate) fn change_pending(&mut self, id: StreamId, old: Option<Pending>, new: Option<Pending>) {
        let mut count = |pending: Option<Pending>, add: i64| {
            if let Some(consumer) = pending.and_then(|pending| self.consumers.get_mut(&pending.consumer)) {
                consumer.pending = consumer.pending.saturating_add_signed(add);
            }
        };
        count(old, -1);
        count(new, 1);
        if new.is_none() && self.elements.is_none() {
            self.known.remove(&id);
            return;
        }
        let was = old.filter(|_| self.elements.is_some()).map(|old| old.consumer);
        self.known.entry(id).or_insert(Change { was, now: None }).now = new;
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

    /// When it sent its last request, in Unix milliseconds.
    pub fn seen_at(&self) -> i64 {
        if self.seen < 0 { !self.seen } else { self.seen }
    }

    /// When it got something last; `None`: never.
    pub fn active_at(&self) -> Option<i64> {
        Some(self.seen).filter(|seen| *seen >= 0)
    }

    /// How many entries are pending for it.
    pub fn pending_len(&self) -> usize {
        self.pending as usize
    }

    /// Whether there is no element of it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.saved.is_none()
    }

    /// The consumer that its element has.
    pub(crate) fn of_element(value: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes::new(value, 0);
        let (seen, pending) = (bytes.u64()? as i64, bytes.u64()?);
        Ok(Self { name: bytes.rest().to_vec(), seen, pending, saved: Some((seen, pending)) })
    }

    /// The value of its element.
    pub(crate) fn element(&self) -> Vec<u8> {
        [&self.seen.to_le_bytes()[..], &self.pending.to_le_bytes(), &self.name].concat()
    }
}

impl Pending {
    /// How an entry is pending by the value of its element.
    pub(crate) fn of_element(value: &[u8]) -> Result<Self, Malformed> {
        let mut bytes = Bytes::new(value, 0);
        let (consumer, delivered_at, deliveries) = (bytes.u32()?, bytes.u64()? as i64, bytes.u64()?);
        bytes.end()?;
        Ok(Self { consumer, delivered_at, deliveries })
    }

    /// The value of its element.
    pub(crate) fn element(self) -> Vec<u8> {
        let Self { consumer, delivered_at, deliveries } = self;
        [&consumer.to_le_bytes()[..], &delivered_at.to_le_bytes(), &deliveries.to_le_bytes()].concat()
    }
}
