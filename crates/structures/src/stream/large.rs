//! Streams in their large form: an element for each node, for each group, consumer and pending entry, and one for the
//! head while there is no node.
//!
//! | key | value |
//! |---|---|
//! | 8 zero bytes | a [`stream`](crate::stream) without groups and nodes: its head, if it has no nodes |
//! | 16 zero bytes, 1, number of a group | the group, see `stream::groups` |
//! | 16 zero bytes, 2, the first 512 bytes of a group's name | the numbers of all groups whose names begin with them |
//! | 16 zero bytes, 3, number of a group, number of a consumer | the consumer |
//! | 16 zero bytes, 4, number of a group, the first 512 bytes of a consumer's name | the numbers of all consumers whose names begin with them |
//! | 16 zero bytes, 5, number of a group, an id (16) | how the entry is pending |
//! | 16 zero bytes, 6, number of a group, number of a consumer, an id (16) | nothing: the entry is pending for this consumer |
//! | 16 zero bytes, 7, number of a group | nothing: the group was removed, and its elements of the kinds 3 to 6 and 8 are not all deleted yet |
//! | 16 zero bytes, 8, number of a group, number of a consumer | nothing: the consumer was removed, and its elements of the kinds 5 and 6 are not all deleted yet |
//! | id of a node (16 bytes, big-endian) | a stream of this node alone, without groups |
//!
//! Numbers have 4 bytes, big-endian in keys and little-endian in values.
//!
//! 1. The valid head is that of the last node: so an added entry is one write, of a node within Redis's limits. Other
//!    nodes have the head of the time when they were written.
//! 2. The first is always there. All others come before the nodes: no id is 0-0.
//! 3. What one consumer does to one entry reads and writes a fixed number of elements, however many groups, consumers and entries there are.
//!    All that one command changes of them is one transaction of the engine.
//! 4. Elements of the kinds 3 to 6 and 8 count only while the element of their group is there. A group that has many is removed by a fixed number of
//!    writes, and they are deleted in parts, each a transaction ([`LargeStream::clear_part`]). Its number is not used
//!    again before the last part: that is what the element of kind 7 is for, which is written with the removal and
//!    deleted with the last part. So a crash between two parts leaves what the next one deletes.
//! 5. The same holds for a consumer, of whose entries the element of kind 8 says that they are pending no more. One of them that becomes
//!    pending for another consumer has its element of kind 5 written over: a part deletes only those that name the consumer that was removed.
//!
//! An edit of a stream works on a *window* of it: a stream with its head and the nodes that the edit needs.

use duramen::{Collection, ElementOrder, Reads as ElementReads, Value};

use super::{Consumer, Group, Groups, NewEntry, NodeLimits, Pending, Stream, StreamId, Trim};
use crate::large::{self, ElementWriter, Fault, Result};
use crate::packed::Malformed;
use std::collections::BTreeMap;

const HEAD_KEY: [u8; 8] = [0; 8];
/// Elements before the first of those that are no nodes.
const FIRST: u64 = 1;

// Kinds of elements that are no nodes.
const GROUP: u8 = 1;
const GROUP_NAME: u8 = 2;
const CONSUMER: u8 = 3;
const CONSUMER_NAME: u8 = 4;
const PENDING: u8 = 5;
const PENDING_FOR: u8 = 6;
const REMOVED: u8 = 7;
const REMOVED_CONSUMER: u8 = 8;

/// Bytes of a name that are in the key of an element. Longer ones that begin alike share one.
const NAME_BYTES: usize = 512;
/// Elements whose keys are read together, to be deleted.
const TOGETHER: usize = 1000;
/// A group with more elements than this, and a consumer with more pending entries, is removed in parts.
pub(crate) const AT_ONCE: usize = 64;

// Flags of the root. Builds before them had the head, and all groups, in an element each.
const HEAD_IN_NODE: u8 = 1;
const GROUPS_APART: u8 = 2;
/// Those of a stream.
pub(crate) const STREAM_FLAGS: u8 = HEAD_IN_NODE | GROUPS_APART;

const NO_GROUP: Malformed = Malformed { at: 0, why: "a group of the stream has a name and no element" };
const NO_CONSUMER: Malformed =
    Malformed { at: 0, why: "an entry is pending for a consumer that there is not, or a name has none" };
const NO_PENDING: Malformed = Malformed { at: 0, why: "a consumer has an entry that is not pending" };
const NO_NUMBER: Malformed = Malformed { at: 0, why: "an element of a group has no number in its key" };
const NO_HEAD: Malformed = Malformed { at: 0, why: "the head of the stream is not among its elements" };
const OLD_FORM: Malformed = Malformed {
    at: 0,
    why: "an earlier build wrote the stream in a form that this build cannot read: export it to a file with \
          \"duramen export\" of that build, and load the file with \"duramen import\" of this one",
};
const NO_ID: Malformed = Malformed { at: 0, why: "an element of the stream has no id for its key" };

/// A stream with its head, and no nodes or some.
pub(crate) type Window = Stream<Vec<u8>>;

/// See the module.
pub(crate) struct LargeStream {
    elements: Collection,
    head: Window,
    /// The head is another than the one that was written last.
    is_head_new: bool,
    /// The window of the last node, or of none, if it was read for an entry that comes next.
    last: Option<Window>,
}

impl LargeStream {
    /// The stream in these elements; `root` is the value of its root.
    pub(crate) fn open(root: &[u8], elements: Collection, reads: ElementReads<'_>) -> Result<Self> {
        if large::flags(root, STREAM_FLAGS)? != STREAM_FLAGS {
            return Err(OLD_FORM.into());
        }
        let last = reads.nth(elements.len().saturating_sub(1))?.filter(is_node);
        let head = last.map_or_else(|| reads.get(HEAD_KEY), |node| Ok(Some(node)))?;
        let head = Stream::of(&*head.ok_or(NO_HEAD)?)?.without_nodes();
        Ok(Self { elements, head, is_head_new: false, last: None })
    }

    /// The same for a stream to which entries are added at once: its last node is read only once.
    pub(crate) fn open_at_end(root: &[u8], elements: Collection, reads: ElementReads<'_>) -> Result<Self> {
        if large::flags(root, STREAM_FLAGS)? != STREAM_FLAGS {
            return Err(OLD_FORM.into());
        }
        let Some(node) = reads.nth(elements.len().saturating_sub(1))?.filter(is_node) else {
            return Self::open(root, elements, reads);
        };
        let stream = Stream::of(&*node)?;
        let (head, last) = (stream.without_nodes(), stream.with_node(node_id(&node)?, stream.sole_pack()?));
        Ok(Self { elements, head, is_head_new: false, last: Some(last) })
    }

    /// Makes a large form of a stream. Nothing names it yet.
    pub(crate) fn make(writer: &mut impl ElementWriter, stream: &Window) -> Result<Self> {
        let elements = writer.new_collection(ElementOrder::ByKey);
        let made = Self { elements, head: stream.without_nodes(), is_head_new: false, last: None };
        writer.put(&made.elements, &HEAD_KEY, &made.head.without_nodes().into_run())?;
        for (number, group) in (0..).zip(stream.groups()?.into_list()) {
            made.put_group(writer, &group.into_elements(number))?;
        }
        made.put_nodes(writer, stream)?;
        Ok(made)
    }

    pub(crate) fn elements(&self) -> &Collection {
        &self.elements
    }

    /// The head, as a stream without entries that knows how many there are.
    pub(crate) fn head(&self) -> &Window {
        &self.head
    }

    // --- reads

    /// All groups, with their consumers.
    pub(crate) fn groups(&self, reads: ElementReads<'_>) -> Result<Groups> {
        let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
        self.visit(reads, &key(GROUP, &[]), &[], |rest, value| {
            let number = number_in(rest)?;
            groups.insert(number, Group::of_element(number, value)?);
            Ok(true)
        })?;
        let removed = self.removed(reads)?;
        self.visit(reads, &key(CONSUMER, &[]), &[], |rest, value| {
            let (group, rest) = rest.split_at_checked(4).ok_or(NO_NUMBER)?;
            let number = number_in(group)?;
            match groups.get_mut(&number) {
                Some(group) => group.know_consumer(number_in(rest)?, Consumer::of_element(value)?),
                None if removed.contains(&number) => {}
                None => return Err(NO_GROUP.into()),
            }
            Ok(true)
        })?;
        Ok(Groups::of(groups.into_values().collect()))
    }

    /// The numbers of groups that were removed and have elements still.
    fn removed(&self, reads: ElementReads<'_>) -> Result<Vec<u32>> {
        let mut removed = Vec::new();
        self.visit(reads, &key(REMOVED, &[]), &[], |rest, _| {
            removed.push(number_in(rest)?);
            Ok(true)
        })?;
        Ok(removed)
    }

    /// The numbers of a group and of one of its consumers that was removed and has elements still.
    fn removed_consumer(&self, reads: ElementReads<'_>) -> Result<Option<(u32, u32)>> {
        let mut removed = None;
        self.visit(reads, &key(REMOVED_CONSUMER, &[]), &[], |rest, _| {
            let (group, consumer) = rest.split_at_checked(4).ok_or(NO_NUMBER)?;
            removed = Some((number_in(group)?, number_in(consumer)?));
            Ok(false)
        })?;
        Ok(removed)
    }

    /// Whether there are elements of groups or consumers that were removed.
    pub(crate) fn has_removed(&self, reads: ElementReads<'_>) -> Result<bool> {
        Ok(!self.removed(reads)?.is_empty() || self.removed_consumer(reads)?.is_some())
    }

    /// Whether there is a consumer for which an element of the group says that an entry is pending.
    fn has_consumer(&self, reads: ElementReads<'_>, group: &Group, consumer: u32) -> Result<bool> {
        let Some(its) = group.number().filter(|_| group.consumer(consumer).is_none()) else {
            return Ok(true);
        };
        if group.has_removed(consumer) {
            return Ok(false);
        }
        let (its, consumer) = (its.to_be_bytes(), consumer.to_be_bytes());
        if reads.get(key(CONSUMER, &[&its, &consumer]))?.is_some() {
            return Ok(true);
        }
        match reads.get(key(REMOVED_CONSUMER, &[&its, &consumer]))? {
            Some(_) => Ok(false),
            None => Err(NO_CONSUMER.into()),
        }
    }

    /// How many groups there are.
    pub(crate) fn groups_len(&self, reads: ElementReads<'_>) -> Result<u64> {
        let prefix = key(GROUP, &[]);
        Ok(self.seek(reads, &behind(&prefix))? - self.seek(reads, &prefix)?)
    }

    /// The group of this name. None of its consumers is known yet.
    pub(crate) fn group(&self, reads: ElementReads<'_>, name: &[u8]) -> Result<Option<Group>> {
        for number in numbers_of(reads, &name_key(GROUP_NAME, &[], name))? {
            let value = reads.get(key(GROUP, &[&number.to_be_bytes()]))?.ok_or(NO_GROUP)?;
            let group = Group::of_element(number, &value)?;
            if group.name() == name {
                return Ok(Some(group));
            }
        }
        Ok(None)
    }

    /// The consumer of this number becomes known.
    pub(crate) fn know_consumer(
        &self,
        reads: ElementReads<'_>,
        group: &mut Group,
        number: u32,
    ) -> Result<()> {
        let Some(its) = group.number().filter(|_| group.consumer(number).is_none()) else { return Ok(()) };
        group.know_consumer(number, consumer(reads, its, number)?);
        Ok(())
    }

    /// The consumer of this name becomes known, if there is one, and else what number a new one has.
    pub(crate) fn know_name(&self, reads: ElementReads<'_>, group: &mut Group, name: &[u8]) -> Result<()> {
        let Some(its) = group.number().filter(|_| group.find_consumer(name).is_none()) else { return Ok(()) };
        for number in numbers_of(reads, &name_key(CONSUMER_NAME, &its.to_be_bytes(), name))? {
            let consumer = consumer(reads, its, number)?;
            if consumer.name() == name {
                group.know_consumer(number, consumer);
                return Ok(());
            }
        }
        let next = |kind| self.next_number(reads, &key(kind, &[&its.to_be_bytes()]));
        group.know_next(next(CONSUMER)?.max(next(REMOVED_CONSUMER)?));
        Ok(())
    }

    /// All consumers of a group become known.
    pub(crate) fn know_consumers(&self, reads: ElementReads<'_>, group: &mut Group) -> Result<()> {
        let Some(its) = group.number() else { return Ok(()) };
        self.visit(reads, &key(CONSUMER, &[&its.to_be_bytes()]), &[], |rest, value| {
            group.know_consumer(number_in(rest)?, Consumer::of_element(value)?);
            Ok(true)
        })
    }

    /// How an entry is pending, by the elements of the group.
    pub(crate) fn pending(
        &self,
        reads: ElementReads<'_>,
        group: &Group,
        id: StreamId,
    ) -> Result<Option<Pending>> {
        let Some(number) = group.number() else { return Ok(None) };
        let found = reads.get(key(PENDING, &[&number.to_be_bytes(), &id.to_bytes()]))?;
        let Some(pending) = found.map(|found| Pending::of_element(&found)).transpose()? else {
            return Ok(None);
        };
        Ok(self.has_consumer(reads, group, pending.consumer)?.then_some(pending))
    }

    /// Calls `visit` for the pending entries from an id on, of a consumer or of all, by the elements of the group,
    /// until it returns false.
    pub(crate) fn pending_from(
        &self,
        reads: ElementReads<'_>,
        group: &Group,
        from: StreamId,
        consumer: Option<u32>,
        mut visit: impl FnMut(StreamId, Pending) -> bool,
    ) -> Result<()> {
        let Some(number) = group.number().map(u32::to_be_bytes) else { return Ok(()) };
        let Some(consumer) = consumer else {
            let mut consumers = BTreeMap::new();
            return self.visit(reads, &key(PENDING, &[&number]), &from.to_bytes(), |rest, value| {
                let pending = Pending::of_element(value)?;
                let counts = match consumers.get(&pending.consumer) {
                    Some(counts) => *counts,
                    None => {
                        let counts = self.has_consumer(reads, group, pending.consumer)?;
                        consumers.insert(pending.consumer, counts);
                        counts
                    }
                };
                Ok(!counts || visit(id_in(rest)?, pending))
            });
        };
        self.visit(
            reads,
            &key(PENDING_FOR, &[&number, &consumer.to_be_bytes()]),
            &from.to_bytes(),
            |rest, _| {
                let id = id_in(rest)?;
                Ok(visit(id, self.pending(reads, group, id)?.ok_or(NO_PENDING)?))
            },
        )
    }

    /// The last entry that is pending, by the elements of the group.
    pub(crate) fn last_pending(&self, reads: ElementReads<'_>, group: &Group) -> Result<Option<StreamId>> {
        let Some(number) = group.number() else { return Ok(None) };
        let prefix = key(PENDING, &[&number.to_be_bytes()]);
        let mut last = Ok(None);
        let end = self.seek(reads, &behind(&prefix))?;
        reads.ranked(end.saturating_sub(1), true, &mut |element| {
            let Some(rest) = element.key().strip_prefix(&prefix[..]) else { return false };
            let counts = |consumer| self.has_consumer(reads, group, consumer);
            last = id_in(rest).map_err(Fault::from).and_then(|id| {
                let pending = Pending::of_element(element)?;
                Ok(counts(pending.consumer)?.then_some(id))
            });
            matches!(last, Ok(None))
        })?;
        last
    }

    /// The number after that of the last element whose key is this prefix and a number.
    fn next_number(&self, reads: ElementReads<'_>, prefix: &[u8]) -> Result<u32> {
        let last = self.last(reads, prefix)?;
        Ok(last.map(|last| number_in(&last)).transpose()?.map_or(0, |last| last.saturating_add(1)))
    }

    /// The rest after this prefix in the last key that begins with it.
    fn last(&self, reads: ElementReads<'_>, prefix: &[u8]) -> Result<Option<Vec<u8>>> {
        let end = self.seek(reads, &behind(prefix))?;
        let last = reads.nth(end.saturating_sub(1))?;
        Ok(last.and_then(|element| Some(element.key().strip_prefix(prefix)?.to_vec())))
    }

    /// Calls `visit` for the elements whose keys begin with `prefix`, starting at the prefix followed by `from`. It
    /// gets the rest of the key and the value, until it returns false.
    fn visit(
        &self,
        reads: ElementReads<'_>,
        prefix: &[u8],
        from: &[u8],
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut visited = Ok(true);
        reads.ranked(self.seek(reads, &[prefix, from].concat())?, false, &mut |element| {
            let Some(rest) = element.key().strip_prefix(prefix) else { return false };
            visited = visit(rest, element);
            matches!(visited, Ok(true))
        })?;
        visited.map(|_| ())
    }

    /// The rank of the first element from this key on, among those that begin with 8 zero bytes.
    fn seek(&self, reads: ElementReads<'_>, key: &[u8]) -> Result<u64> {
        let (mut low, mut high) = (FIRST, self.elements.rank_of_order([0; 8], true)?);
        while low < high {
            let middle = low.midpoint(high);
            let Some(element) = reads.nth(middle)? else { break };
            if element.key() < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The rank of the first node, or that it would have.
    fn first_node(&self, reads: ElementReads<'_>) -> Result<u64> {
        let end = self.elements.rank_of_order([0; 8], true)?;
        match reads.nth(end.saturating_sub(1))? {
            // Only nodes of the first millisecond are among the pending entries.
            Some(last) if is_node(&last) => self.seek(reads, &StreamId { ms: 0, seq: 1 }.to_bytes()),
            _ => Ok(end),
        }
    }

    /// The nodes that have the first `most` entries, from one end on, of those from one id to another.
    pub(crate) fn window(
        &self,
        reads: ElementReads<'_>,
        (from, to): (StreamId, StreamId),
        is_descending: bool,
        most: usize,
    ) -> Result<Window> {
        let begin = match self.rank(reads, if is_descending { to } else { from })? {
            Some(rank) => rank,
            None if is_descending => return Ok(self.head.without_nodes()),
            None => self.first_node(reads)?,
        };
        let (mut nodes, mut found, mut bad) = (Vec::new(), 0, None);
        let mut look = |node: &Value<'_>| {
            // In descending order, all other elements come after the nodes.
            if !is_node(node) {
                return Ok(false);
            }
            let id = node_id(node)?;
            if !is_descending && id > to {
                return Ok(false);
            }
            let node = Stream::of(&**node)?;
            if most != usize::MAX {
                found += node.count(from, to, most - found)?;
            }
            nodes.push((id, node.sole_pack()?.to_vec()));
            Ok(found < most && !(is_descending && id <= from))
        };
        reads.ranked(begin, is_descending, &mut |node| {
            look(node).unwrap_or_else(|malformed: Malformed| {
                bad = Some(malformed);
                false
            })
        })?;
        if let Some(bad) = bad {
            return Err(bad.into());
        }
        if is_descending {
            nodes.reverse();
        }
        let mut window = self.head.without_nodes();
        nodes.iter().for_each(|(id, pack)| window.push_pack(*id, pack));
        Ok(window)
    }

    /// All of it.
    pub(crate) fn whole(&self, reads: ElementReads<'_>) -> Result<Window> {
        let mut whole = self.window(reads, (StreamId::MIN, StreamId::MAX), false, usize::MAX)?;
        let mut groups = Vec::new();
        for group in self.groups(reads)?.into_list() {
            let mut all = Vec::with_capacity(group.pending_len());
            self.pending_from(reads, &group, StreamId::MIN, None, |id, pending| {
                all.push((id, pending));
                true
            })?;
            groups.push(group.into_whole(all));
        }
        let groups = Groups::of(groups);
        whole.set_groups(&groups);
        Ok(whole)
    }

    /// The id of each node.
    pub(crate) fn node_ids(&self, reads: ElementReads<'_>) -> Result<Vec<StreamId>> {
        let mut ids = Vec::new();
        reads.ranked(self.first_node(reads)?, false, &mut |node| {
            ids.push(node_id(node));
            true
        })?;
        Ok(ids.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// The rank of the last node that begins at or before this id.
    fn rank(&self, reads: ElementReads<'_>, id: StreamId) -> Result<Option<u64>> {
        // How many of the nodes that begin in the same millisecond begin at or before it.
        let (order, first) = (id.ms.to_be_bytes(), self.first_node(reads)?);
        let mut low = self.elements.rank_of_order(order, false)?.max(first);
        let mut high = self.elements.rank_of_order(order, true)?.max(first);
        while low < high {
            let middle = low.midpoint(high);
            let Some(node) = reads.nth(middle)? else { break };
            if node_id(&node)? <= id {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1).filter(|rank| *rank >= first))
    }

    /// A window of the node of this rank, or of none.
    fn window_at(&self, reads: ElementReads<'_>, rank: u64) -> Result<Window> {
        Ok(match reads.nth(rank)?.filter(is_node) {
            Some(node) => self.head.with_node(node_id(&node)?, Stream::of(&*node)?.sole_pack()?),
            None => self.head.without_nodes(),
        })
    }

    /// A window of the last node, or of none.
    fn last_window(&self, reads: ElementReads<'_>) -> Result<Window> {
        self.window_at(reads, self.elements.len().saturating_sub(1))
    }

    // --- writes

    /// As [`Stream::append`], of some entries.
    pub(crate) fn append(
        &mut self,
        writer: &mut impl ElementWriter,
        entries: &[NewEntry<'_>],
        limits: NodeLimits,
    ) -> Result<()> {
        let mut window = match self.last.take() {
            Some(last) => {
                debug_assert!(
                    self.last_window(writer.reads(&self.elements)).is_ok_and(|now| now.run == last.run),
                    "the last node has changed since it was read"
                );
                last
            }
            None => self.last_window(writer.reads(&self.elements))?,
        };
        for &(id, pairs) in entries {
            window.append(id, pairs, limits)?;
        }
        self.head = window.without_nodes();
        if entries.len() > 1 && window.node_ids()?.len() > 1 {
            self.is_head_new = false;
            return self.put_nodes(writer, &window);
        }
        writer.ends_with_next();
        self.put_last_node(writer, window)
    }

    /// As [`Stream::delete`].
    pub(crate) fn delete(&mut self, writer: &mut impl ElementWriter, ids: &[StreamId]) -> Result<u64> {
        let (mut deleted, mut left) = (0, ids);
        while let Some(&id) = left.first() {
            let reads = writer.reads(&self.elements);
            let Some(rank) = self.rank(reads, id)? else {
                left = &left[1..];
                continue;
            };
            let mut window = self.window_at(reads, rank)?;
            let node = window.first_node_id()?;
            // A node is written once for all ids in a row that are its own.
            let next = reads.nth(rank + 1)?.map(|next| node_id(&next)).transpose()?;
            let is_own =
                |id: &&StreamId| node.is_some_and(|node| node <= **id) && next.is_none_or(|next| **id < next);
            let (own, others) = left.split_at(left.iter().take_while(is_own).count().max(1));
            left = others;
            let gone = window.delete(own)?;
            if gone > 0 {
                deleted += gone;
                self.put_window(writer, rank, node, &window)?;
            }
        }
        self.seek_first(writer)?;
        Ok(deleted)
    }

    /// As [`Stream::trim`]. Where no entry goes nothing is written: nodes whose entries are all deleted go with the next entry.
    pub(crate) fn trim(
        &mut self,
        writer: &mut impl ElementWriter,
        trim: Trim,
        whole_nodes: bool,
        most: u64,
    ) -> Result<u64> {
        let reads = writer.reads(&self.elements);
        let (mut removed, first) = (0, self.first_node(reads)?);
        // What most XADD find: the first node stays. It is not copied to see that.
        let stays = match (trim, reads.nth(first)?.filter(is_node)) {
            (Trim::Len(left), Some(node)) if whole_nodes => self
                .head
                .len()
                .checked_sub(Stream::of(&*node)?.sole_node_live()?)
                .is_some_and(|rest| rest < left),
            _ => false,
        };
        if stays {
            self.seek_first(writer)?;
            return Ok(0);
        }
        // Nodes before the one at `rank` in which nothing is left.
        let (mut rank, mut empty) = (first, Vec::new());
        while rank < self.elements.len() && (most == 0 || removed < most) {
            let mut window = self.window_at(writer.reads(&self.elements), rank)?;
            let node = window.first_node_id()?;
            let left = if most == 0 { 0 } else { most - removed };
            let gone = window.trim(trim, whole_nodes, left)?;
            let is_over = window.first_node_id()?.is_some();
            if gone == 0 && is_over {
                break;
            }
            if gone == 0 {
                empty.extend(node);
                rank += 1;
                continue;
            }
            removed += gone;
            for node in empty.drain(..) {
                writer.delete(&self.elements, &node.to_bytes())?;
            }
            rank = first;
            self.put_window(writer, rank, node, &window)?;
            if is_over {
                break;
            }
        }
        self.seek_first(writer)?;
        Ok(removed)
    }

    pub(crate) fn set_ids(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        self.last = None;
        self.head.set_ids(last, added, deleted);
        self.is_head_new = true;
    }

    /// Makes a group; false if one with that name exists.
    pub(crate) fn create_group(
        &self,
        writer: &mut impl ElementWriter,
        name: &[u8],
        last_id: StreamId,
        entries_read: Option<i64>,
    ) -> Result<bool> {
        let reads = writer.reads(&self.elements);
        if self.group(reads, name)?.is_some() {
            return Ok(false);
        }
        let number =
            self.next_number(reads, &key(GROUP, &[]))?.max(self.next_number(reads, &key(REMOVED, &[]))?);
        self.put_group(writer, &Group::new(name, last_id, entries_read).into_elements(number))?;
        Ok(true)
    }

    /// Writes the changes of a group.
    pub(crate) fn put_group(&self, writer: &mut impl ElementWriter, group: &Group) -> Result<()> {
        let Some(number) = group.number() else { return Ok(()) };
        let its = number.to_be_bytes();
        if group.is_new() {
            self.add_number(writer, &name_key(GROUP_NAME, &[], group.name()), number)?;
        }
        if group.is_changed() {
            writer.put(&self.elements, &key(GROUP, &[&its]), &group.element())?;
        }
        for (number, consumer) in group.removed_consumers() {
            self.drop_number(writer, &name_key(CONSUMER_NAME, &its, consumer.name()), number)?;
            writer.delete(&self.elements, &key(CONSUMER, &[&its, &number.to_be_bytes()]))?;
            if consumer.pending_len() > 0 {
                writer.put(&self.elements, &key(REMOVED_CONSUMER, &[&its, &number.to_be_bytes()]), &[])?;
            }
        }
        for (number, consumer) in group.changed_consumers() {
            if consumer.is_new() {
                self.add_number(writer, &name_key(CONSUMER_NAME, &its, consumer.name()), number)?;
            }
            writer.put(
                &self.elements,
                &key(CONSUMER, &[&its, &number.to_be_bytes()]),
                &consumer.element(),
            )?;
        }
        // Those of one kind follow each other in the order, so they are changed together.
        let (mut pending, mut pending_for) = (Together::new(self), Together::new(self));
        for (id, change) in group.changes() {
            let id = id.to_bytes();
            let now = change.now.map(|now| now.consumer);
            match change.now {
                Some(now) => pending.add(writer, PENDING, &[&its, &id], Some(&now.element()))?,
                None if change.was.is_some() => pending.add(writer, PENDING, &[&its, &id], None)?,
                None => {}
            }
            if let Some(was) = change.was.filter(|was| Some(*was) != now) {
                pending_for.add(writer, PENDING_FOR, &[&its, &was.to_be_bytes(), &id], None)?;
            }
            if let Some(now) = now.filter(|now| Some(*now) != change.was) {
                pending_for.add(writer, PENDING_FOR, &[&its, &now.to_be_bytes(), &id], Some(&[]))?;
            }
        }
        pending.end(writer)?;
        pending_for.end(writer)
    }

    /// Removes the group of this name with all its elements; returns whether it existed. The rest of a large group is
    /// removed by [`Self::clear_part`].
    pub(crate) fn remove_group(&self, writer: &mut impl ElementWriter, name: &[u8]) -> Result<bool> {
        let group = self.group(writer.reads(&self.elements), name)?;
        let Some(number) = group.and_then(|group| group.number()) else { return Ok(false) };
        self.drop_number(writer, &name_key(GROUP_NAME, &[], name), number)?;
        writer.delete(&self.elements, &key(GROUP, &[&number.to_be_bytes()]))?;
        if self.clear_group(writer, number, AT_ONCE)? {
            writer.put(&self.elements, &key(REMOVED, &[&number.to_be_bytes()]), &[])?;
        }
        Ok(true)
    }

    /// Deletes so many elements of groups and consumers that were removed, at most; whether there may be more.
    pub(crate) fn clear_part(&self, writer: &mut impl ElementWriter, most: usize) -> Result<bool> {
        let removed = self.removed(writer.reads(&self.elements))?;
        if let Some(&number) = removed.first() {
            if self.clear_group(writer, number, most)? {
                return Ok(true);
            }
            writer.delete(&self.elements, &key(REMOVED, &[&number.to_be_bytes()]))?;
        } else if let Some((group, consumer)) = self.removed_consumer(writer.reads(&self.elements))? {
            let numbers = (group.to_be_bytes(), consumer.to_be_bytes());
            if self.clear_consumer(writer, numbers, most)? {
                return Ok(true);
            }
            writer.delete(&self.elements, &key(REMOVED_CONSUMER, &[&numbers.0, &numbers.1]))?;
        }
        self.has_removed(writer.reads(&self.elements))
    }

    /// Deletes so many elements of a removed consumer, at most; whether there may be more.
    fn clear_consumer(
        &self,
        writer: &mut impl ElementWriter,
        (its, consumer): ([u8; 4], [u8; 4]),
        most: usize,
    ) -> Result<bool> {
        let (prefix, mut ids) = (key(PENDING_FOR, &[&its, &consumer]), Vec::new());
        // Two elements an entry.
        let most = most.div_ceil(2);
        self.visit(writer.reads(&self.elements), &prefix, &[], |rest, _| {
            ids.push(id_in(rest)?);
            Ok(ids.len() < most)
        })?;
        let (mut writes, mut writes_for) = (Together::new(self), Together::new(self));
        for id in &ids {
            let pending = key(PENDING, &[&its, &id.to_bytes()]);
            let found = writer.reads(&self.elements).get(&pending)?;
            let of = found
                .map(|found| Pending::of_element(&found))
                .transpose()?
                .map(|it| it.consumer.to_be_bytes());
            if of == Some(consumer) {
                writes.add(writer, PENDING, &[&its, &id.to_bytes()], None)?;
            }
            writes_for.add(writer, PENDING_FOR, &[&its, &consumer, &id.to_bytes()], None)?;
        }
        writes.end(writer)?;
        writes_for.end(writer)?;
        Ok(ids.len() >= most)
    }

    /// Deletes at most this many elements of a removed group; returns whether there may be more.
    fn clear_group(&self, writer: &mut impl ElementWriter, number: u32, most: usize) -> Result<bool> {
        let mut left = most;
        for kind in [CONSUMER, CONSUMER_NAME, PENDING, PENDING_FOR, REMOVED_CONSUMER] {
            let prefix = key(kind, &[&number.to_be_bytes()]);
            while left > 0 {
                let (mut keys, together) = (Vec::new(), left.min(TOGETHER));
                self.visit(writer.reads(&self.elements), &prefix, &[], |rest, _| {
                    keys.push([&prefix, rest].concat());
                    Ok(keys.len() < together)
                })?;
                let writes: Vec<_> = keys.iter().map(|key| (&key[..], None)).collect();
                writer.write_all(&self.elements, &writes)?;
                left -= keys.len();
                if keys.len() < together {
                    break;
                }
            }
        }
        Ok(left == 0)
    }

    /// Adds a number to those of a name, unless it is among them.
    fn add_number(&self, writer: &mut impl ElementWriter, key: &[u8], number: u32) -> Result<()> {
        let mut numbers = numbers_of(writer.reads(&self.elements), key)?;
        if !numbers.contains(&number) {
            numbers.push(number);
            self.put_numbers(writer, key, &numbers)?;
        }
        Ok(())
    }

    /// Takes a number away from those of a name.
    fn drop_number(&self, writer: &mut impl ElementWriter, key: &[u8], number: u32) -> Result<()> {
        let mut numbers = numbers_of(writer.reads(&self.elements), key)?;
        numbers.retain(|other| *other != number);
        self.put_numbers(writer, key, &numbers)
    }

    fn put_numbers(&self, writer: &mut impl ElementWriter, key: &[u8], numbers: &[u32]) -> Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if bytes.is_empty() {
            writer.delete(&self.elements, key)?;
        } else {
            writer.put(&self.elements, key, &bytes)?;
        }
        Ok(())
    }

    /// Writes the head, if it changed since it was written.
    pub(crate) fn save(&mut self, writer: &mut impl ElementWriter) -> Result<()> {
        if !self.is_head_new {
            return Ok(());
        }
        let window = self.last_window(writer.reads(&self.elements))?;
        if window.first_node_id()?.is_none() {
            self.is_head_new = false;
            writer.put(&self.elements, &HEAD_KEY, &window.into_run())?;
            return Ok(());
        }
        self.put_last_node(writer, window)
    }

    /// A window of the node of this rank has changed: writes the node, or removes it, and takes over the head.
    fn put_window(
        &mut self,
        writer: &mut impl ElementWriter,
        rank: u64,
        node: Option<StreamId>,
        window: &Window,
    ) -> Result<()> {
        self.last = None;
        let is_last = rank + 1 == self.elements.len();
        let is_left = window.first_node_id()?.is_some();
        if is_left {
            self.put_nodes(writer, window)?;
        } else if let Some(node) = node {
            writer.delete(&self.elements, &node.to_bytes())?;
        }
        self.head = window.without_nodes();
        self.is_head_new = !(is_last && is_left);
        Ok(())
    }

    /// The removed entries may include the first one, and no window shows which one is the first now.
    fn seek_first(&mut self, writer: &impl ElementWriter) -> Result<()> {
        if !self.head.is_empty() && self.head.first_id() == StreamId::MIN {
            let all = (StreamId::MIN, StreamId::MAX);
            let first = self.window(writer.reads(&self.elements), all, false, 1)?;
            self.head.set_counts(self.head.len(), first.first_entry_id()?)?;
            self.is_head_new = true;
        }
        Ok(())
    }

    /// Writes the last node of a window, which is the stream's, and with it the head.
    fn put_last_node(&mut self, writer: &mut impl ElementWriter, window: Window) -> Result<()> {
        let (id, node) = window.into_last_node()?.ok_or(NO_HEAD)?;
        writer.put(&self.elements, &id.to_bytes(), &node)?;
        self.is_head_new = false;
        Ok(())
    }

    fn put_nodes(&self, writer: &mut impl ElementWriter, stream: &Window) -> Result<()> {
        let mut put = Ok(false);
        stream.visit_nodes(|id, pack| {
            if put.is_ok() {
                put = writer.put(&self.elements, &id.to_bytes(), &stream.with_node(id, pack).into_run());
            }
        })?;
        put?;
        Ok(())
    }
}

/// Writes of elements of different keys that are no nodes, in one run of bytes until there are enough.
struct Together<'s> {
    stream: &'s LargeStream,
    bytes: Vec<u8>,
    /// Where each key ends, and the value, if it has one.
    ends: Vec<(usize, Option<usize>)>,
}

impl<'s> Together<'s> {
    fn new(stream: &'s LargeStream) -> Self {
        Self { stream, bytes: Vec::new(), ends: Vec::new() }
    }

    fn add(
        &mut self,
        writer: &mut impl ElementWriter,
        kind: u8,
        parts: &[&[u8]],
        value: Option<&[u8]>,
    ) -> Result<()> {
        add_key(&mut self.bytes, kind, parts);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.ends.push((key_end, value.map(|_| self.bytes.len())));
        if self.ends.len() == TOGETHER { self.write(writer) } else { Ok(()) }
    }

    fn write(&mut self, writer: &mut impl ElementWriter) -> Result<()> {
        let (mut at, mut writes) = (0, Vec::with_capacity(self.ends.len()));
        for &(key_end, end) in &self.ends {
            writes.push((&self.bytes[at..key_end], end.map(|end| &self.bytes[key_end..end])));
            at = end.unwrap_or(key_end);
        }
        writer.write_all(&self.stream.elements, &writes)?;
        self.bytes.clear();
        self.ends.clear();
        Ok(())
    }

    fn end(mut self, writer: &mut impl ElementWriter) -> Result<()> {
        self.write(writer)
    }
}

fn is_node(element: &Value<'_>) -> bool {
    element.key().len() == StreamId::BYTES
}

/// The key of an element that is no node.
fn key(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    // 64: all keys fit, except some with long names, of which there are few.
    let mut key = Vec::with_capacity(64);
    add_key(&mut key, kind, parts);
    key
}

fn add_key(bytes: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    bytes.extend_from_slice(&[0; StreamId::BYTES]);
    bytes.push(kind);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
}

/// The key of the element with the numbers of this name.
fn name_key(kind: u8, group: &[u8], name: &[u8]) -> Vec<u8> {
    key(kind, &[group, &name[..name.len().min(NAME_BYTES)]])
}

/// The first key after all with this prefix, of an element that is no node: one of its bytes is a kind, which is never
/// 255.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut key = prefix.to_vec();
    while key.pop_if(|last| *last == u8::MAX).is_some() {}
    if let Some(last) = key.last_mut() {
        *last += 1;
    }
    key
}

/// The numbers that an element of a name has.
fn numbers_of(reads: ElementReads<'_>, key: &[u8]) -> Result<Vec<u32>> {
    let found = reads.get(key)?;
    let (numbers, _) = found.as_deref().unwrap_or_default().as_chunks::<4>();
    Ok(numbers.iter().map(|number| u32::from_le_bytes(*number)).collect())
}

fn consumer(reads: ElementReads<'_>, group: u32, number: u32) -> Result<Consumer> {
    let value = reads.get(key(CONSUMER, &[&group.to_be_bytes(), &number.to_be_bytes()]))?;
    Ok(Consumer::of_element(&value.ok_or(NO_CONSUMER)?)?)
}

fn number_in(rest: &[u8]) -> std::result::Result<u32, Malformed> {
    rest.try_into().map(u32::from_be_bytes).map_err(|_| NO_NUMBER)
}

fn id_in(rest: &[u8]) -> std::result::Result<StreamId, Malformed> {
    rest.try_into().map(StreamId::of_bytes).map_err(|_| NO_ID)
}

fn node_id(node: &Value<'_>) -> std::result::Result<StreamId, Malformed> {
    node.key().try_into().map(StreamId::of_bytes).map_err(|_| NO_ID)
}
