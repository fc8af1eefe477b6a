//! Changes of a stream: adding, deleting and trimming entries, setting groups and ids.

use super::node::{self, NodeLimits};
use super::{Groups, HEAD_BYTES, Node, Stream, StreamId};
use crate::packed::Malformed;

/// The entries that XTRIM keeps.
#[derive(Clone, Copy, Debug)]
pub enum Trim {
    /// This many entries.
    Len(u64),
    /// The entries from this id on.
    From(StreamId),
}

const BAD_LEN: Malformed = Malformed { at: super::LEN_AT, why: "it has fewer entries than its nodes" };

impl Stream<Vec<u8>> {
    /// Appends an entry; `pairs` are fields and values alternately. The id must be above the last.
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]], limits: NodeLimits) -> Result<(), Malformed> {
        let last = self.head.last_node;
        let has_room = match last {
            0 => false,
            at => {
                let node = Node::open(&self.run, at)?;
                if node.end() != self.run.len() {
                    return Err(Malformed { at, why: "it has bytes after its last node" });
                }
                node.has_room(&node.head()?, pairs, limits)
            }
        };
        if has_room {
            node::push(&mut self.run, last, id, pairs)?;
        } else {
            self.head.last_node = self.run.len();
            node::push_node(&mut self.run, id, pairs);
        }
        let head = &mut self.head;
        head.len = head.len.saturating_add(1);
        head.added = head.added.saturating_add(1);
        head.last_id = id;
        if head.len == 1 {
            head.first_id = id;
        }
        Ok(())
    }

    /// Deletes entries; how many were there.
    pub fn delete(&mut self, ids: &[StreamId]) -> Result<u64, Malformed> {
        let (mut deleted, mut first_is_gone) = (0, false);
        for &id in ids {
            if self.delete_one(id)? {
                deleted += 1;
                first_is_gone |= id == self.head.first_id;
                self.head.deleted_id = self.head.deleted_id.max(id);
            }
        }
        if self.is_empty() {
            if deleted > 0 {
                self.head.first_id = StreamId::MIN;
            }
        } else if first_is_gone {
            self.head.first_id = self.end_id(false)?.unwrap_or_default();
        }
        Ok(deleted)
    }

    fn delete_one(&mut self, id: StreamId) -> Result<bool, Malformed> {
        let candidates = self.nodes()?;
        let Some(node) = candidates.iter().rev().find(|node| node.id <= id) else { return Ok(false) };
        let mut found = None;
        for placed in node.entries()? {
            let placed = placed?;
            if placed.entry.id == id && !placed.is_deleted {
                found = Some(placed.deleting());
            }
            if placed.entry.id >= id {
                break;
            }
        }
        let Some(found) = found else { return Ok(false) };
        let (at, end, live) = (node.at, node.end(), node.head()?.live);
        if live == 1 {
            self.run.drain(at..end);
        } else {
            node::delete(&mut self.run, at, |_| Ok(vec![found]))?;
        }
        self.head.len = self.head.len.checked_sub(1).ok_or(BAD_LEN)?;
        self.seek_last_node()?;
        Ok(true)
    }

    /// Removes entries from the start on; returns their number. With `whole_nodes` only whole nodes go, and nothing if
    /// that is more than `most` entries (unless `most` is 0).
    pub fn trim(&mut self, trim: Trim, whole_nodes: bool, most: u64) -> Result<u64, Malformed> {
        let begin = self.nodes_at();
        let (mut at, mut len, mut removed, mut within) = (begin, self.head.len, 0u64, false);
        while at < self.run.len() {
            if matches!(trim, Trim::Len(left) if len <= left) {
                break;
            }
            let node = Node::open(&self.run, at)?;
            let live = node.head()?.live;
            if most != 0 && removed.saturating_add(live) > most {
                break;
            }
            let rest = len.checked_sub(live).ok_or(BAD_LEN)?;
            let goes = match trim {
                Trim::Len(left) => rest >= left,
                Trim::From(id) => node.last_id()? < id,
            };
            if !goes {
                within = !whole_nodes;
                break;
            }
            (len, removed, at) = (rest, removed + live, node.end());
        }
        self.run.drain(begin..at);
        if within {
            let mut count = 0;
            node::delete(&mut self.run, begin, |entries| {
                let mut going = Vec::new();
                for placed in entries {
                    let placed = placed?;
                    let stays = match trim {
                        Trim::Len(left) => len - going.len() as u64 <= left,
                        Trim::From(id) => placed.entry.id >= id,
                    };
                    if stays {
                        break;
                    }
                    if !placed.is_deleted {
                        going.push(placed.deleting());
                    }
                }
                count = going.len() as u64;
                Ok(going)
            })?;
            (len, removed) = (len.checked_sub(count).ok_or(BAD_LEN)?, removed + count);
        }
        self.head.len = len;
        self.seek_last_node()?;
        if len == 0 {
            self.head.first_id = StreamId::MIN;
        } else if removed > 0 {
            self.head.first_id = self.end_id(false)?.unwrap_or_default();
        }
        Ok(removed)
    }

    /// XSETID: the last id that there ever was, and maybe how many there were and which one was the last that was deleted.
    pub fn set_ids(&mut self, last: StreamId, added: Option<u64>, deleted: Option<StreamId>) {
        let head = &mut self.head;
        head.last_id = last;
        head.added = added.unwrap_or(head.added);
        head.deleted_id = deleted.unwrap_or(head.deleted_id);
    }

    /// Gives it other groups.
    pub fn set_groups(&mut self, groups: &Groups) {
        let encoded = groups.encoded();
        let (old, new) = (self.head.groups_bytes, encoded.len());
        self.run.splice(HEAD_BYTES..HEAD_BYTES + old, encoded);
        self.head.groups_bytes = new;
        if self.head.last_node != 0 {
            self.head.last_node = self.head.last_node - old + new;
        }
    }

    /// Appends a node from DUMP; its content is not checked yet.
    pub(crate) fn push_pack(&mut self, id: StreamId, pack: &[u8]) {
        self.head.last_node = self.run.len();
        self.run.extend_from_slice(&id.to_bytes());
        self.run.extend_from_slice(pack);
    }

    /// Sets the other fields of the head from DUMP.
    pub(crate) fn set_counts(&mut self, len: u64, first: Option<StreamId>) -> Result<(), Malformed> {
        self.head.len = len;
        self.head.first_id = match first {
            Some(first) => first,
            None => self.end_id(false)?.unwrap_or_default(),
        };
        Ok(())
    }

    /// The number of entries in the nodes, whatever the head says.
    pub(crate) fn counted(&self) -> Result<u64, Malformed> {
        let mut count = 0;
        for node in self.nodes()? {
            for placed in node.entries()? {
                count += u64::from(!placed?.is_deleted);
            }
        }
        Ok(count)
    }

    /// Reads all of it: checks every node, that they and their entries ascend, and that the count is right.
    pub(crate) fn check(&self) -> Result<(), Malformed> {
        let (mut before, mut len) = (None, 0u64);
        for node in self.nodes()? {
            let (head, mut live, mut deleted) = (node.head()?, 0, 0);
            let bad = Malformed { at: node.at, why: "a node of the stream is not in order" };
            for placed in node.entries()? {
                let placed = placed?;
                let id = placed.entry.id;
                if before.is_some_and(|before| before >= id) || id < node.id || id > self.last_id() {
                    return Err(bad);
                }
                before = Some(id);
                *(if placed.is_deleted { &mut deleted } else { &mut live }) += 1;
            }
            if (live, deleted) != (head.live, head.deleted) || live == 0 {
                return Err(bad);
            }
            len += live;
        }
        if len == self.len() { Ok(()) } else { Err(BAD_LEN) }
    }

    fn seek_last_node(&mut self) -> Result<(), Malformed> {
        self.head.last_node = self.nodes()?.last().map_or(0, |node| node.at);
        Ok(())
    }
}
