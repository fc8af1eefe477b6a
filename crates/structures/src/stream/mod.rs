//! A stream in one value: entries by ascending ids, and groups of consumers.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 1 | the form, 1 for this one |
//! | 1 | 4 | where the last node begins; 0 without nodes |
//! | 5 | 8 | how many entries there are |
//! | 13 | 16 | the id of the last entry that there ever was |
//! | 29 | 16 | the id of the first entry that is there; 0-0 without one |
//! | 45 | 16 | the greatest id that was deleted |
//! | 61 | 8 | how many entries there ever were |
//! | 69 | 4 | bytes of the groups |
//! | 73 | … | the `groups`; nothing without any |
//! | … | … | the `node`s, ascending: the id of each, and its listpack, whose first 4 bytes give its length |
//!
//! Numbers are little-endian; ids are as [`StreamId::to_bytes`] has them. The nodes are the same as in Redis, because
//! clients see them: DUMP returns them unchanged, XINFO counts them, and XTRIM with `~` removes whole ones. They are
//! last, so that adding an entry moves nothing. [`Stream`] offers what commands need: entries by id, in ranges from
//! either end, adding, deleting and trimming them, and the groups.
//!
//! 1. Any bytes may come: a malformed stream is an error with its place ([`Malformed`]), never a panic. The head is
//!    checked when a stream is opened, the rest when it is read.
//! 2. A stream without entries is one still: it knows its last id and its groups.

mod bytes;
mod change;
mod groups;
mod id;
pub(crate) mod large;
mod node;
mod radix;
mod read_count;

use std::ops::{ControlFlow, Deref};

use crate::packed::Malformed;
use bytes::Bytes;
pub use change::Trim;
pub use groups::{Consumer, Group, Groups, Pending};
pub use id::{ParsedId, StreamId};
use node::Node;
pub use node::{Entry, NewEntry, NodeLimits};
pub(crate) use radix::nodes as tree_nodes;

const FORM: u8 = 1;
const LAST_NODE_AT: usize = 1;
const LEN_AT: usize = 5;
const LAST_ID_AT: usize = 13;
const FIRST_ID_AT: usize = 29;
const DELETED_ID_AT: usize = 45;
const ADDED_AT: usize = 61;
const GROUPS_BYTES_AT: usize = 69;
const HEAD_BYTES: usize = 73;
/// More bytes than most entries, so that a node has room for one without another copy.
const ENTRY_ROOM: usize = 256;

const NOT_ALONE: Malformed = Malformed { at: LAST_NODE_AT, why: "it has more than one node" };

/// A stream, in bytes that it owns or borrows.
#[derive(Clone, Debug)]
pub struct Stream<B> {
    run: B,
    head: Head,
}

/// The fields of the head.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    last_node: usize,
    len: u64,
    last_id: StreamId,
    first_id: StreamId,
    deleted_id: StreamId,
    added: u64,
    groups_bytes: usize,
}

impl Stream<Vec<u8>> {
    /// A stream that nothing was ever put in.
    pub fn empty() -> Self {
        let mut run = vec![0; HEAD_BYTES];
        run[0] = FORM;
        Self { run, head: Head::default() }
    }

    /// The bytes.
    pub fn into_run(mut self) -> Vec<u8> {
        self.write_head();
        self.run
    }

    /// The last node with its id, as a separate run.
    pub(crate) fn into_last_node(self) -> Result<Option<(StreamId, Vec<u8>)>, Malformed> {
        if self.head.last_node == 0 {
            return Ok(None);
        }
        let Node { id, pack, at } = Node::open(&self.run, self.head.last_node)?;
        let is_alone = at == HEAD_BYTES;
        Ok(Some((id, if is_alone { self.into_run() } else { self.with_node(id, pack).into_run() })))
    }

    fn write_head(&mut self) {
        let Self { run, head } = self;
        let mut put = |at: usize, bytes: &[u8]| run[at..at + bytes.len()].copy_from_slice(bytes);
        put(LAST_NODE_AT, &(head.last_node as u32).to_le_bytes());
        put(LEN_AT, &head.len.to_le_bytes());
        put(LAST_ID_AT, &head.last_id.to_bytes());
        put(FIRST_ID_AT, &head.first_id.to_bytes());
        put(DELETED_ID_AT, &head.deleted_id.to_bytes());
        put(ADDED_AT, &head.added.to_le_bytes());
        put(GROUPS_BYTES_AT, &(head.groups_bytes as u32).to_le_bytes());
    }
}

impl<B: Deref<Target = [u8]>> Stream<B> {
    /// The stream that lies in `run`.
    ///
    /// # Errors
    /// When its head is none.
    pub fn of(run: B) -> Result<Self, Malformed> {
        let Some((&[form, ref numbers @ ..], rest)) = run.split_first_chunk::<HEAD_BYTES>() else {
            return Err(Malformed { at: run.len(), why: "it ends within its head" });
        };
        if form != FORM {
            return Err(Malformed { at: 0, why: "its form is not one that this version knows" });
        }
        let mut numbers = Bytes::new(numbers, LAST_NODE_AT);
        let head = Head {
            last_node: numbers.u32()? as usize,
            len: numbers.u64()?,
            last_id: numbers.id()?,
            first_id: numbers.id()?,
            deleted_id: numbers.id()?,
            added: numbers.u64()?,
            groups_bytes: numbers.u32()? as usize,
        };
        let has_nodes = match head.last_node {
            0 => false,
            at if at >= HEAD_BYTES + head.groups_bytes && at < run.len() => true,
            _ => return Err(Malformed { at: LAST_NODE_AT, why: "its last node is not in it" }),
        };
        if head.groups_bytes > rest.len() || has_nodes != (head.groups_bytes < rest.len()) {
            return Err(Malformed { at: GROUPS_BYTES_AT, why: "its groups have another length" });
        }
        Ok(Self { run, head })
    }

    /// A copy that owns its bytes.
    pub fn to_owned(&self) -> Stream<Vec<u8>> {
        Stream { run: self.run.to_vec(), head: self.head }
    }

    /// How many entries there are.
    pub fn len(&self) -> u64 {
        self.head.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The id of the last entry that there ever was.
    pub fn last_id(&self) -> StreamId {
        self.head.last_id
    }

    /// The id of the first entry, 0-0 without one.
    pub fn first_id(&self) -> StreamId {
        self.head.first_id
    }

    /// The greatest id that was deleted, 0-0 without one.
    pub fn deleted_id(&self) -> StreamId {
        self.head.deleted_id
    }

    /// How many entries there ever were.
    pub fn added(&self) -> u64 {
        self.head.added
    }

    /// Bytes of all of it.
    pub(crate) fn run_bytes(&self) -> usize {
        self.run.len()
    }

    /// The groups.
    pub fn groups(&self) -> Result<Groups, Malformed> {
        match self.head.groups_bytes {
            0 => Ok(Groups::default()),
            _ => Groups::decode(&self.run[HEAD_BYTES..self.nodes_at()], HEAD_BYTES),
        }
    }

    /// Calls `visit` for the entries from one id to another, ascending or descending, until it breaks.
    pub fn visit<'s>(
        &'s self,
        from: StreamId,
        to: StreamId,
        is_descending: bool,
        mut visit: impl FnMut(Entry<'s>) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        if is_descending {
            return self.visit_back(from, to, visit);
        }
        let mut at = self.nodes_at();
        while at < self.run.len() {
            let node = Node::open(&self.run, at)?;
            at = node.end();
            if node.id > to {
                break;
            }
            // The whole node is before the wanted id if the next one begins there.
            if at < self.run.len() && Node::open(&self.run, at)?.id <= from {
                continue;
            }
            for placed in node.entries()? {
                let placed = placed?;
                if placed.entry.id > to {
                    return Ok(());
                }
                if !placed.is_deleted && placed.entry.id >= from && visit(placed.entry).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The entries from one id to another, ascending or descending; no more than `most` of them.
    pub(crate) fn entries(
        &self,
        (from, to): (StreamId, StreamId),
        is_descending: bool,
        most: usize,
    ) -> Result<Vec<Entry<'_>>, Malformed> {
        let mut entries = Vec::new();
        if most == 0 {
            return Ok(entries);
        }
        self.visit(from, to, is_descending, |entry| {
            entries.push(entry);
            if entries.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(entries)
    }

    fn visit_back<'s>(
        &'s self,
        from: StreamId,
        to: StreamId,
        mut visit: impl FnMut(Entry<'s>) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        // The last node is where most look first; only if it is not enough the others are sought.
        for node in self.last_node().into_iter().map(Ok).chain(self.nodes_back()) {
            let node = node?;
            if node.id > to {
                continue;
            }
            let mut entries = Vec::new();
            for placed in node.entries()? {
                let placed = placed?;
                if !placed.is_deleted && (from..=to).contains(&placed.entry.id) {
                    entries.push(placed.entry);
                }
            }
            if entries.into_iter().rev().any(|entry| visit(entry).is_break()) || node.id <= from {
                break;
            }
        }
        Ok(())
    }

    /// The last node, if it is where the head says.
    fn last_node(&self) -> Option<Node<'_>> {
        let at = Some(self.head.last_node).filter(|&at| at != 0)?;
        Node::open(&self.run, at).ok().filter(|node| node.end() == self.run.len())
    }

    /// All nodes except the last, descending. They are located when the first one is needed.
    fn nodes_back(&self) -> impl Iterator<Item = Result<Node<'_>, Malformed>> {
        let all = || match self.nodes() {
            Ok(mut nodes) => {
                if self.last_node().is_some() {
                    nodes.pop();
                }
                nodes.into_iter().rev().map(Ok).collect()
            }
            Err(malformed) => vec![Err(malformed)],
        };
        std::iter::once_with(all).flatten()
    }

    fn nodes(&self) -> Result<Vec<Node<'_>>, Malformed> {
        let (mut nodes, mut at) = (Vec::new(), self.nodes_at());
        while at < self.run.len() {
            let node = Node::open(&self.run, at)?;
            nodes.push(node);
            at = node.end();
        }
        Ok(nodes)
    }

    /// The id of the last entry that is there.
    pub fn last_entry_id(&self) -> Result<Option<StreamId>, Malformed> {
        self.end_id(true)
    }

    fn end_id(&self, is_last: bool) -> Result<Option<StreamId>, Malformed> {
        let mut found = None;
        self.visit(StreamId::MIN, StreamId::MAX, is_last, |entry| {
            found = Some(entry.id);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// The id of the first entry that is there, by a look at it.
    pub(crate) fn first_entry_id(&self) -> Result<Option<StreamId>, Malformed> {
        self.end_id(false)
    }

    /// How many entries there are from one id to another, up to `most`.
    pub(crate) fn count(&self, from: StreamId, to: StreamId, most: usize) -> Result<usize, Malformed> {
        let mut count = 0;
        self.visit(from, to, false, |_| {
            count += 1;
            if count < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok(count)
    }

    /// The head alone: a stream without entries and groups that reports the same state.
    pub(crate) fn without_nodes(&self) -> Stream<Vec<u8>> {
        let head = Head { last_node: 0, groups_bytes: 0, ..self.head };
        let mut stream = Stream { head, ..Stream::empty() };
        stream.write_head();
        stream
    }

    /// The head and one node, with room for an entry more.
    pub(crate) fn with_node(&self, id: StreamId, pack: &[u8]) -> Stream<Vec<u8>> {
        let mut run = Vec::with_capacity(HEAD_BYTES + StreamId::BYTES + pack.len() + ENTRY_ROOM);
        run.push(FORM);
        run.resize(HEAD_BYTES, 0);
        let head = Head { last_node: 0, groups_bytes: 0, ..self.head };
        let mut stream = Stream { run, head };
        stream.push_pack(id, pack);
        stream
    }

    /// The id of the first node.
    pub(crate) fn first_node_id(&self) -> Result<Option<StreamId>, Malformed> {
        let at = self.nodes_at();
        if at >= self.run.len() {
            return Ok(None);
        }
        Node::open(&self.run, at).map(|node| Some(node.id))
    }

    /// The id of each node.
    pub fn node_ids(&self) -> Result<Vec<StreamId>, Malformed> {
        Ok(self.nodes()?.iter().map(|node| node.id).collect())
    }

    /// Calls `visit` with the id of each node and its listpack.
    pub(crate) fn visit_nodes(&self, mut visit: impl FnMut(StreamId, &[u8])) -> Result<(), Malformed> {
        self.nodes()?.iter().for_each(|node| visit(node.id, node.pack));
        Ok(())
    }

    /// The listpack of its only node.
    pub(crate) fn sole_pack(&self) -> Result<&[u8], Malformed> {
        let node = Node::open(&self.run, self.nodes_at())?;
        if node.end() == self.run.len() { Ok(node.pack) } else { Err(NOT_ALONE) }
    }

    /// How many entries its only node has.
    pub(crate) fn sole_node_live(&self) -> Result<u64, Malformed> {
        Ok(Node::open(&self.run, self.nodes_at())?.head()?.live)
    }

    fn nodes_at(&self) -> usize {
        HEAD_BYTES + self.head.groups_bytes
    }
}

#[cfg(test)]
mod tests;
