//! Streams in their large form: an element for each node, one for the groups, and one for the head while there is no node.
//!
//! | key | value |
//! |---|---|
//! | 8 zero bytes | a [`stream`](crate::stream) without groups and nodes: its head, if it has no nodes |
//! | 9 zero bytes | the groups, as a stream has them; nothing without any |
//! | 16 zero bytes, the number of a group (4 bytes, big-endian), an id (16) | an entry that is pending, see `stream::groups` |
//! | id of a node (16 bytes, big-endian) | a stream of this node alone, without groups |
//!
//! 1. The head that counts is that of the last node: so an entry that is added is one write, of a node no longer than Redis's limits say.
//!    Other nodes have the head of when they were written. Groups that change write the groups.
//! 2. The first two are always there. All others come before the nodes: no id is 0-0.
//!
//! What is done to a stream is done to a *window* of it: a stream with its head and those nodes that it is about.

use duramen::{Collection, CollectionReader, ElementOrder, Value};

use super::{Pen, Result};
use crate::packed::Malformed;
use crate::stream::{Group, Groups, NewEntry, NodeLimits, Pending, Stream, StreamId, Trim};

const HEAD_KEY: [u8; 8] = [0; 8];
const GROUPS_KEY: [u8; 9] = [0; 9];
/// Elements before the first that is pending.
const FIRST_PENDING: u64 = 2;
const PENDING_KEY_BYTES: usize = 36;

/// Flags of the root: its last node has the head. Builds before it had that in an element of its own.
pub(crate) const HEAD_IN_NODE: u8 = 1;

const NO_HEAD: Malformed = Malformed { at: 0, why: "the head of the stream is not among its elements" };
const OLD_HEAD: Malformed =
    Malformed { at: 0, why: "an earlier build wrote the stream, whose form this version does not know" };
const NO_ID: Malformed = Malformed { at: 0, why: "an element of the stream has no id for its key" };

/// A stream with its head, and no nodes or some.
pub(crate) type Window = Stream<Vec<u8>>;

/// See the module.
pub(crate) struct Noded {
    elements: Collection,
    head: Window,
    /// The head is another than the one that was written last.
    is_head_new: bool,
}

impl Noded {
    /// The stream in these elements; `root` is the value of its root.
    pub(crate) fn open(root: &[u8], elements: Collection, reads: CollectionReader<'_>) -> Result<Self> {
        if super::flags(root, HEAD_IN_NODE)? != HEAD_IN_NODE {
            return Err(OLD_HEAD.into());
        }
        let last = reads.nth(elements.len().saturating_sub(1))?.filter(is_node);
        let head = last.map_or_else(|| reads.get(&HEAD_KEY), |node| Ok(Some(node)))?;
        let head = Stream::of(&*head.ok_or(NO_HEAD)?)?.without_nodes();
        Ok(Self { elements, head, is_head_new: false })
    }

    /// Makes a large form of a stream. Nothing names it yet.
    pub(crate) fn make(pen: &mut impl Pen, stream: &Window) -> Result<Self> {
        let elements = pen.new_collection(ElementOrder::ByKey);
        let made = Self { elements, head: stream.without_nodes(), is_head_new: false };
        pen.put(&made.elements, &HEAD_KEY, &made.head.without_nodes().into_run())?;
        made.set_groups(pen, &stream.groups()?.into_large())?;
        made.put_nodes(pen, stream)?;
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

    pub(crate) fn groups(&self, reads: CollectionReader<'_>) -> Result<Groups> {
        let groups = reads.get(&GROUPS_KEY)?.ok_or(NO_HEAD)?;
        Ok(Groups::decode_large(&groups)?)
    }

    /// How an entry is pending, by the elements of the group.
    pub(crate) fn pending(
        &self,
        reads: CollectionReader<'_>,
        group: &Group,
        id: StreamId,
    ) -> Result<Option<Pending>> {
        let Some(number) = group.number() else { return Ok(None) };
        let Some(found) = reads.get(&pending_key(number, id))? else { return Ok(None) };
        Ok(Some(group.pending_of_element(&found)?))
    }

    /// Calls `visit` for the elements of the group from an id on, with their values, until it says false.
    pub(crate) fn pending_from(
        &self,
        reads: CollectionReader<'_>,
        group: &Group,
        from: StreamId,
        mut visit: impl FnMut(StreamId, &[u8]) -> std::result::Result<bool, Malformed>,
    ) -> Result<()> {
        let Some(number) = group.number() else { return Ok(()) };
        let begin = self.seek(reads, &pending_key(number, from))?;
        let mut bad = None;
        reads.ranked(begin, false, &mut |element| {
            let Some(id) = pending_id(element, number) else { return false };
            visit(id, element).unwrap_or_else(|malformed| {
                bad = Some(malformed);
                false
            })
        })?;
        bad.map_or(Ok(()), |malformed| Err(malformed.into()))
    }

    /// The last entry that is pending, by the elements of the group.
    pub(crate) fn last_pending(
        &self,
        reads: CollectionReader<'_>,
        group: &Group,
    ) -> Result<Option<StreamId>> {
        let Some(number) = group.number() else { return Ok(None) };
        let behind = [&pending_key(number, StreamId::MAX)[..], &[0]].concat();
        let end = self.seek(reads, &behind)?;
        let last = reads.nth(end.saturating_sub(1))?;
        Ok(last.and_then(|element| pending_id(&element, number)))
    }

    /// The rank of the first element from this key on, among those that begin with 8 zero bytes.
    fn seek(&self, reads: CollectionReader<'_>, key: &[u8]) -> Result<u64> {
        let (mut low, mut high) = (FIRST_PENDING, self.elements.rank_of_order([0; 8], true)?);
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
    fn first_node(&self, reads: CollectionReader<'_>) -> Result<u64> {
        let end = self.elements.rank_of_order([0; 8], true)?;
        match reads.nth(end.saturating_sub(1))? {
            // Only nodes of the first millisecond are among what is pending.
            Some(last) if is_node(&last) => self.seek(reads, &StreamId { ms: 0, seq: 1 }.to_bytes()),
            _ => Ok(end),
        }
    }

    /// The nodes that have the first `most` entries, from one end on, of those from one id to another.
    pub(crate) fn window(
        &self,
        reads: CollectionReader<'_>,
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
            // Descending, all else comes behind the nodes.
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
    pub(crate) fn whole(&self, reads: CollectionReader<'_>) -> Result<Window> {
        let mut whole = self.window(reads, (StreamId::MIN, StreamId::MAX), false, usize::MAX)?;
        let groups = self.groups(reads)?.into_whole(|group| {
            let mut all = Vec::with_capacity(group.pending_len());
            self.pending_from(reads, group, StreamId::MIN, |id, value| {
                all.push((id, group.pending_of_element(value)?));
                Ok(true)
            })?;
            Ok(all)
        })?;
        whole.set_groups(&groups);
        Ok(whole)
    }

    /// The id of each node.
    pub(crate) fn node_ids(&self, reads: CollectionReader<'_>) -> Result<Vec<StreamId>> {
        let mut ids = Vec::new();
        reads.ranked(self.first_node(reads)?, false, &mut |node| {
            ids.push(node_id(node));
            true
        })?;
        Ok(ids.into_iter().collect::<std::result::Result<_, _>>()?)
    }

    /// The rank of the last node that does not begin behind this id.
    fn rank(&self, reads: CollectionReader<'_>, id: StreamId) -> Result<Option<u64>> {
        // Of those that begin in the same millisecond, how many do not begin behind it.
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
    fn window_at(&self, reads: CollectionReader<'_>, rank: u64) -> Result<Window> {
        Ok(match reads.nth(rank)?.filter(is_node) {
            Some(node) => self.head.with_node(node_id(&node)?, Stream::of(&*node)?.sole_pack()?),
            None => self.head.without_nodes(),
        })
    }

    /// A window of the last node, or of none.
    fn last_window(&self, reads: CollectionReader<'_>) -> Result<Window> {
        self.window_at(reads, self.elements.len().saturating_sub(1))
    }

    // --- writes

    /// As [`Stream::append`], of some entries.
    pub(crate) fn append(
        &mut self,
        pen: &mut impl Pen,
        entries: &[NewEntry<'_>],
        limits: NodeLimits,
    ) -> Result<()> {
        let mut window = self.last_window(pen.reads(&self.elements))?;
        for &(id, pairs) in entries {
            window.append(id, pairs, limits)?;
        }
        self.head = window.without_nodes();
        if entries.len() > 1 && window.node_ids()?.len() > 1 {
            self.is_head_new = false;
            return self.put_nodes(pen, &window);
        }
        pen.ends_with_next();
        self.put_last_node(pen, window)
    }

    /// As [`Stream::delete`].
    pub(crate) fn delete(&mut self, pen: &mut impl Pen, ids: &[StreamId]) -> Result<u64> {
        let mut deleted = 0;
        for &id in ids {
            let reads = pen.reads(&self.elements);
            let Some(rank) = self.rank(reads, id)? else { continue };
            let mut window = self.window_at(reads, rank)?;
            let node = window.first_node_id()?;
            if window.delete(&[id])? > 0 {
                deleted += 1;
                self.put_window(pen, rank, node, &window)?;
            }
        }
        self.seek_first(pen)?;
        Ok(deleted)
    }

    /// As [`Stream::trim`]. Where no entry goes nothing is written: nodes whose entries are all deleted go with the next entry.
    pub(crate) fn trim(
        &mut self,
        pen: &mut impl Pen,
        trim: Trim,
        whole_nodes: bool,
        most: u64,
    ) -> Result<u64> {
        let (mut removed, first) = (0, self.first_node(pen.reads(&self.elements))?);
        // Nodes before the one at `rank` in which nothing is left.
        let (mut rank, mut empty) = (first, Vec::new());
        while rank < self.elements.len() && (most == 0 || removed < most) {
            let mut window = self.window_at(pen.reads(&self.elements), rank)?;
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
                pen.delete(&self.elements, &node.to_bytes())?;
            }
            rank = first;
            self.put_window(pen, rank, node, &window)?;
            if is_over {
                break;
            }
        }
        self.seek_first(pen)?;
        Ok(removed)
    }

    pub(crate) fn set_ids(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        self.head.set_ids(last, added, deleted);
        self.is_head_new = true;
    }

    /// As [`Stream::set_groups`], with what is pending otherwise than before.
    pub(crate) fn set_groups(&self, pen: &mut impl Pen, groups: &Groups) -> Result<()> {
        for &number in groups.removed() {
            self.delete_pending(pen, number)?;
        }
        for group in groups.iter() {
            let Some(number) = group.number() else { continue };
            for (id, pending) in group.known_from(StreamId::MIN) {
                let key = pending_key(number, id);
                match pending {
                    Some(pending) => pen.put(&self.elements, &key, &group.element_of_pending(pending))?,
                    None => pen.delete(&self.elements, &key)?,
                };
            }
        }
        pen.put(&self.elements, &GROUPS_KEY, &groups.encoded())?;
        Ok(())
    }

    /// Writes the head, if it changed since it was written.
    pub(crate) fn save(&mut self, pen: &mut impl Pen) -> Result<()> {
        if !self.is_head_new {
            return Ok(());
        }
        let window = self.last_window(pen.reads(&self.elements))?;
        if window.first_node_id()?.is_none() {
            self.is_head_new = false;
            pen.put(&self.elements, &HEAD_KEY, &window.into_run())?;
            return Ok(());
        }
        self.put_last_node(pen, window)
    }

    /// Deletes what is pending in the group of this number.
    fn delete_pending(&self, pen: &mut impl Pen, group: u32) -> Result<()> {
        let reads = pen.reads(&self.elements);
        let mut ids = Vec::new();
        reads.ranked(self.seek(reads, &pending_key(group, StreamId::MIN))?, false, &mut |element| {
            let id = pending_id(element, group);
            ids.extend(id);
            id.is_some()
        })?;
        for id in ids {
            pen.delete(&self.elements, &pending_key(group, id))?;
        }
        Ok(())
    }

    /// A window of the node of this rank has changed: writes the node, or removes it, and takes over the head.
    fn put_window(
        &mut self,
        pen: &mut impl Pen,
        rank: u64,
        node: Option<StreamId>,
        window: &Window,
    ) -> Result<()> {
        let is_last = rank + 1 == self.elements.len();
        let is_left = window.first_node_id()?.is_some();
        if is_left {
            self.put_nodes(pen, window)?;
        } else if let Some(node) = node {
            pen.delete(&self.elements, &node.to_bytes())?;
        }
        self.head = window.without_nodes();
        self.is_head_new = !(is_last && is_left);
        Ok(())
    }

    /// What was taken away may have been the first entry, and no window could tell which one is the first now.
    fn seek_first(&mut self, pen: &impl Pen) -> Result<()> {
        if !self.head.is_empty() && self.head.first_id() == StreamId::MIN {
            let all = (StreamId::MIN, StreamId::MAX);
            let first = self.window(pen.reads(&self.elements), all, false, 1)?;
            self.head.set_counts(self.head.len(), first.first_entry_id()?)?;
            self.is_head_new = true;
        }
        Ok(())
    }

    /// Writes the last node of a window, which is the stream's, and with it the head.
    fn put_last_node(&mut self, pen: &mut impl Pen, window: Window) -> Result<()> {
        let (id, node) = window.into_last_node()?.ok_or(NO_HEAD)?;
        pen.put(&self.elements, &id.to_bytes(), &node)?;
        self.is_head_new = false;
        Ok(())
    }

    fn put_nodes(&self, pen: &mut impl Pen, stream: &Window) -> Result<()> {
        let mut put = Ok(false);
        stream.visit_nodes(|id, pack| {
            if put.is_ok() {
                put = pen.put(&self.elements, &id.to_bytes(), &stream.with_node(id, pack).into_run());
            }
        })?;
        put?;
        Ok(())
    }
}

fn is_node(element: &Value<'_>) -> bool {
    element.key().len() == StreamId::BYTES
}

fn pending_key(group: u32, id: StreamId) -> [u8; PENDING_KEY_BYTES] {
    let mut key = [0; PENDING_KEY_BYTES];
    key[16..20].copy_from_slice(&group.to_be_bytes());
    key[20..].copy_from_slice(&id.to_bytes());
    key
}

/// The id of an element for what is pending in this group; `None` for others.
fn pending_id(element: &Value<'_>, group: u32) -> Option<StreamId> {
    let key: [u8; PENDING_KEY_BYTES] = element.key().try_into().ok()?;
    let (begin, id) = key.split_last_chunk()?;
    begin.ends_with(&group.to_be_bytes()).then(|| StreamId::of_bytes(*id))
}

fn node_id(node: &Value<'_>) -> std::result::Result<StreamId, Malformed> {
    node.key().try_into().map(StreamId::of_bytes).map_err(|_| NO_ID)
}
