//! Lists in their large form: nodes of some elements each, which know at which positions these are.
//!
//! A *position* counts from a point that is unaffected by pushes and pops at an end, so one of those writes one node
//! and nothing else. The two end nodes give the length of the list.
//!
//! | node | is |
//! |---|---|
//! | key, and order | label (8 bytes, big-endian): greater than those of the nodes before it |
//! | value | the elements, a [`packed`](crate::packed) run; the position of the first one (8 bytes, little-endian) |
//!
//! 1. Positions follow on each other: where one node ends the next begins. What comes or goes between the ends moves the positions of
//!    one side, whichever has fewer nodes; to find the place takes a walk anyway.
//! 2. A node has at least one element. It has at most [`NODE_BYTES`] unless it has only one element, was made by an
//!    edit that pushed more ([`NODE_BYTES_AT_ONCE`]), or was changed within: then it is divided beyond twice that.
//! 3. A label is [`STEP`] for each position from the middle when the node is made, if that is beyond its neighbour's.
//!    Later the positions move and the label stays, so it only gives a start for searching a position.
//! 4. Pushes and pops at the ends are *held* until [`LargeList::flush`]: a node is written once for all pushes and pops
//!    of an edit, and one that was added and removed not at all. Reads do not see held changes: a read, or a change
//!    within the list, first has them written.

use std::cell::OnceCell;
use std::collections::{HashSet, VecDeque};
use std::ops::{ControlFlow, Range};

use duramen::{Collection, ElementOrder, Reads as ElementReads, Value};

use super::packed::{End, PackedList};
use crate::large::{Bytes, ElementWriter, Result};
use crate::packed::Malformed;

/// Bytes of a run to which elements are appended. Enough that the engine's overhead for a record is small even for
/// short elements; few enough to write all of them again at each push.
const NODE_BYTES: usize = 256;
/// The same for a node that the edit makes: it is written once, whatever is pushed to it. So a series of pushes of 200
/// bytes writes a tenth of the records. Popping element by element rewrites the rest each time, half of this on
/// average.
const NODE_BYTES_AT_ONCE: usize = 2048;
/// Between the labels of neighbours is room for this many, so that a node can be divided.
const STEP: u64 = 1 << 8;
const MIDDLE: u64 = 1 << 63;
const POSITION_BYTES: usize = 8;
/// For a node as it is written, and an element that comes before another goes.
const NODE_ROOM: usize = NODE_BYTES + 64;
/// Nodes that are rewritten at a time.
const TOGETHER: usize = 64;

/// See the module.
pub(crate) struct LargeList {
    elements: Collection,
    /// The positions of all elements.
    positions: Range<i64>,
    is_changed: bool,
    held: Held,
    /// All elements, kept for callers that need them together.
    whole: OnceCell<PackedList<Vec<u8>>>,
}

/// What was pushed and popped at the ends since it was written. The list is the nodes held at the left, those of the collection that are
/// not taken, and the nodes held at the right.
#[derive(Default)]
struct Held {
    left: VecDeque<HeldNode>,
    right: VecDeque<HeldNode>,
    /// How many nodes of the collection, from its start and from its end, are held here or are gone.
    taken: (u64, u64),
    /// Labels of nodes of the collection that are gone.
    gone: Vec<u64>,
}

struct HeldNode {
    node: Node,
    /// The collection has one of its label.
    is_stored: bool,
    is_changed: bool,
}

/// A node as it is written.
struct Node {
    label: u64,
    first: i64,
    run: PackedList<Vec<u8>>,
}

/// A node as it lies in its record.
struct Stored<'a> {
    label: u64,
    first: i64,
    run: PackedList<&'a [u8]>,
}

/// The new state of the node of a label.
enum Change {
    Put(Node),
    Delete(u64),
}

impl LargeList {
    /// The list whose nodes these are.
    pub(crate) fn open(elements: Collection, reads: ElementReads<'_>) -> Result<Self> {
        let nodes = elements.len();
        let mut positions = 0..0;
        if let Some(last) = nodes.checked_sub(1) {
            positions.start = stored(&reads.nth(0)?.ok_or(NO_NODE)?)?.first;
            positions.end = stored(&reads.nth(last)?.ok_or(NO_NODE)?)?.end();
        }
        if positions.is_empty() {
            return Err(NO_NODE.into());
        }
        Ok(Self { elements, positions, is_changed: false, held: Held::default(), whole: OnceCell::new() })
    }

    /// The list whose nodes these are, to be changed: it has the end nodes held.
    pub(crate) fn open_to_edit(elements: Collection, reads: ElementReads<'_>) -> Result<Self> {
        let (mut held, nodes) = (Held::default(), elements.len());
        let held_node = |rank| -> Result<HeldNode> {
            let node = Node::of(&reads.nth(rank)?.ok_or(NO_NODE)?)?;
            Ok(HeldNode { node, is_stored: true, is_changed: false })
        };
        let mut positions = 0..0;
        if let Some(last) = nodes.checked_sub(1) {
            let node = held_node(0)?;
            positions = node.node.first..node.node.end();
            held.left.push_back(node);
            held.taken = (1, 0);
            if last > 0 {
                let node = held_node(last)?;
                positions.end = node.node.end();
                held.right.push_back(node);
                held.taken = (1, 1);
            }
        }
        if positions.is_empty() {
            return Err(NO_NODE.into());
        }
        Ok(Self { elements, positions, is_changed: false, held, whole: OnceCell::new() })
    }

    /// Makes a large form of a list. Nothing names it yet.
    pub(crate) fn make(writer: &mut impl ElementWriter, list: &PackedList<Vec<u8>>) -> Result<Self> {
        let elements = writer.new_collection(ElementOrder::ByKey);
        let (held, whole) = (Held::default(), OnceCell::new());
        let mut made = Self { elements, positions: 0..0, is_changed: false, held, whole };
        made.push(writer, End::Right, list.list()?.into_iter())?;
        let changes = made.take_held();
        made.write_more(writer, changes)?;
        made.is_changed = false;
        Ok(made)
    }

    pub(crate) fn elements(&self) -> &Collection {
        &self.elements
    }

    /// Whether something was written.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(crate) fn len(&self) -> usize {
        (self.positions.end - self.positions.start) as usize
    }

    // --- reads

    pub(crate) fn get<'a>(&self, reads: ElementReads<'a>, index: usize) -> Result<Option<Bytes<'a>>> {
        if index >= self.len() {
            return Ok(None);
        }
        let (_, node) = self.node_at(reads, self.positions.start + index as i64)?;
        let within = {
            let node = stored(&node)?;
            let at = (self.positions.start + index as i64 - node.first) as usize;
            node.run.place(at)?.ok_or(NO_NODE)?
        };
        Ok(Some(Bytes::Stored(node, within)))
    }

    pub(crate) fn visit(
        &self,
        reads: ElementReads<'_>,
        part: Range<usize>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk(reads, part, End::Left, |element| visit(element))
    }

    /// Visits the elements of a part from one of its ends on.
    fn walk(
        &self,
        reads: ElementReads<'_>,
        part: Range<usize>,
        from: End,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        let part = part.start..part.end.min(self.len());
        if part.is_empty() {
            return Ok(());
        }
        let start = self.positions.start;
        let wanted = start + part.start as i64..start + part.end as i64;
        let first = if from == End::Left { wanted.start } else { wanted.end - 1 };
        let (rank, _) = self.node_at(reads, first)?;
        let (mut next, mut bad) = (first, None);
        let mut look = |node: &Value<'_>| {
            let node = stored(node)?;
            if !node.has(next) {
                return Err(NO_NODE);
            }
            let here = wanted.start.max(node.first)..wanted.end.min(node.end());
            let within = (here.start - node.first) as usize..(here.end - node.first) as usize;
            let mut go_on = ControlFlow::Continue(());
            if from == End::Left {
                node.run.visit(within, |element| {
                    go_on = visit(element);
                    go_on
                })?;
                next = here.end;
            } else {
                let mut elements = Vec::with_capacity(within.len());
                node.run.visit(within, |element| {
                    elements.push(element);
                    ControlFlow::Continue(())
                })?;
                go_on = elements.into_iter().rev().try_for_each(&mut visit);
                next = here.start - 1;
            }
            Ok(go_on.is_continue() && wanted.contains(&next))
        };
        reads.ranked(rank, from == End::Right, &mut |node| {
            look(node).unwrap_or_else(|malformed| {
                bad = Some(malformed);
                false
            })
        })?;
        bad.map_or(Ok(()), |malformed| Err(malformed.into()))
    }

    /// The node that has this position, which is one of the list's, and its rank.
    fn node_at<'a>(&self, reads: ElementReads<'a>, position: i64) -> Result<(u64, Value<'a>)> {
        debug_assert!(!self.held.has_changes(), "it is read as it is written");
        let (mut low, mut high) = (0, self.elements.len());
        // The label says where it was when the node was made: from there on in steps that double, until it is between two.
        let behind = self.elements.rank_of_order(ideal(position).to_be_bytes(), true)?;
        let (mut rank, mut step) = (behind.saturating_sub(1).min(high.saturating_sub(1)), 1);
        while low < high {
            let value = reads.nth(rank)?.ok_or(NO_NODE)?;
            let node = stored(&value)?;
            if node.has(position) {
                return Ok((rank, value));
            }
            let is_below = node.end() <= position;
            if is_below {
                low = rank + 1;
            } else {
                high = rank;
            }
            rank = match (low, high == self.elements.len(), is_below) {
                (_, true, true) => (low + step - 1).min(high.saturating_sub(1)),
                (0, _, false) => high.saturating_sub(step),
                _ => low.midpoint(high),
            };
            step *= 2;
        }
        Err(NO_NODE.into())
    }

    /// As [`PackedList::find`].
    pub(crate) fn find(
        &self,
        reads: ElementReads<'_>,
        element: &[u8],
        from: End,
        within: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        let len = self.len();
        let within = within.min(len);
        let (part, mut at) = match from {
            End::Left => (0..within, 0),
            End::Right => (len - within..len, len.wrapping_sub(1)),
        };
        self.walk(reads, part, from, |other| {
            let position = at;
            at = if from == End::Left { at + 1 } else { at.wrapping_sub(1) };
            if *other == *element { visit(position) } else { ControlFlow::Continue(()) }
        })
    }

    /// All elements in one run.
    pub(crate) fn whole(&self, reads: ElementReads<'_>) -> Result<&PackedList<Vec<u8>>> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let whole = self.copied(reads, 0..self.len())?;
        Ok(self.whole.get_or_init(|| whole))
    }

    /// The elements of a part in one run.
    pub(crate) fn copied(&self, reads: ElementReads<'_>, part: Range<usize>) -> Result<PackedList<Vec<u8>>> {
        let mut copied = PackedList::empty();
        self.visit(reads, part, |element| {
            copied.push(End::Right, [element].into_iter());
            ControlFlow::Continue(())
        })?;
        Ok(copied)
    }

    // --- writes

    /// As [`PackedList::push`]; it is held.
    pub(crate) fn push<'e>(
        &mut self,
        writer: &mut impl ElementWriter,
        end: End,
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Result<()> {
        self.hold_end(writer, end)?;
        for element in elements {
            let positions = self.positions.start;
            let side = self.held.side(end);
            match if end == End::Left { side.front_mut() } else { side.back_mut() } {
                Some(held) if held.has_room_for(element) => {
                    held.node.push(end, element);
                    held.is_changed = true;
                }
                last => {
                    let node = last.map(|held| Node::beside(&held.node, end)).transpose()?;
                    let mut node = node.unwrap_or_else(|| Node::at(positions));
                    node.push(end, element);
                    self.held.put(end, HeldNode { node, is_stored: false, is_changed: true });
                }
            }
            match end {
                End::Left => self.positions.start -= 1,
                End::Right => self.positions.end += 1,
            }
            self.changed();
        }
        Ok(())
    }

    /// As [`PackedList::pop`]; it is held.
    pub(crate) fn pop(
        &mut self,
        writer: &mut impl ElementWriter,
        end: End,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut left = count.min(self.len());
        while left > 0 {
            self.hold_end(writer, end)?;
            let side = self.held.side(end);
            let held = if end == End::Left { side.front_mut() } else { side.back_mut() };
            let Some(held) = held else { return Err(NO_NODE.into()) };
            let taken = left.min(held.node.run.len());
            held.node.run.pop(end, taken, &mut visit)?;
            held.node.first += if end == End::Left { taken as i64 } else { 0 };
            held.is_changed = true;
            if held.node.run.is_empty() {
                let gone = (held.node.label, held.is_stored);
                drop(if end == End::Left { side.pop_front() } else { side.pop_back() });
                self.held.gone.extend(gone.1.then_some(gone.0));
            }
            match end {
                End::Left => self.positions.start += taken as i64,
                End::Right => self.positions.end -= taken as i64,
            }
            left -= taken;
            self.changed();
        }
        Ok(())
    }

    /// Has the node at an end held, if there is one.
    fn hold_end(&mut self, writer: &impl ElementWriter, end: End) -> Result<()> {
        let Self { held, elements, .. } = self;
        if !held.side(end).is_empty() {
            return Ok(());
        }
        let (from, to) = (held.taken.0, elements.len() - held.taken.1);
        if from == to {
            let other = match end {
                End::Left => held.right.pop_front(),
                End::Right => held.left.pop_back(),
            };
            held.side(end).extend(other);
            return Ok(());
        }
        let (rank, taken) = match end {
            End::Left => (from, &mut held.taken.0),
            End::Right => (to - 1, &mut held.taken.1),
        };
        let node = Node::of(&writer.reads(elements).nth(rank)?.ok_or(NO_NODE)?)?;
        *taken += 1;
        held.put(end, HeldNode { node, is_stored: true, is_changed: false });
        Ok(())
    }

    /// Writes the held changes.
    pub(crate) fn flush(&mut self, writer: &mut impl ElementWriter) -> Result<()> {
        let changes = self.take_held();
        self.write(writer, changes)
    }

    /// Takes the held changes that must be written; nothing is held afterwards.
    fn take_held(&mut self) -> Vec<Change> {
        let Held { left, right, gone, .. } = std::mem::take(&mut self.held);
        let changed = left.into_iter().chain(right).filter(|held| held.is_changed);
        let mut changes: Vec<Change> = changed.map(|held| Change::Put(held.node)).collect();
        // Where a node ended another may have begun since.
        let put: HashSet<u64> =
            if gone.is_empty() { HashSet::new() } else { changes.iter().map(Change::label).collect() };
        changes.extend(gone.into_iter().filter(|label| !put.contains(label)).map(Change::Delete));
        changes
    }

    /// As [`PackedList::set`].
    pub(crate) fn set(
        &mut self,
        writer: &mut impl ElementWriter,
        index: usize,
        element: &[u8],
    ) -> Result<bool> {
        self.flush(writer)?;
        if index >= self.len() {
            return Ok(false);
        }
        let position = self.positions.start + index as i64;
        let (rank, value) = self.node_at(writer.reads(&self.elements), position)?;
        let mut node = Node::of(&value)?;
        drop(value);
        node.run.set((position - node.first) as usize, element)?;
        self.put_within(writer, rank, node)?;
        Ok(true)
    }

    /// As [`PackedList::insert`].
    pub(crate) fn insert(
        &mut self,
        writer: &mut impl ElementWriter,
        side: End,
        pivot: &[u8],
        element: &[u8],
    ) -> Result<bool> {
        self.flush(writer)?;
        let mut found = None;
        self.find(writer.reads(&self.elements), pivot, End::Left, usize::MAX, |position| {
            found = Some(position);
            ControlFlow::Break(())
        })?;
        let Some(index) = found else { return Ok(false) };
        match side {
            End::Left if index == 0 => self.push(writer, End::Left, [element].into_iter())?,
            End::Right if index + 1 == self.len() => self.push(writer, End::Right, [element].into_iter())?,
            _ => self.insert_within(writer, side, self.positions.start + index as i64, element)?,
        }
        Ok(true)
    }

    /// Puts an element on a side of the one at this position.
    fn insert_within(
        &mut self,
        writer: &mut impl ElementWriter,
        side: End,
        position: i64,
        element: &[u8],
    ) -> Result<()> {
        let (rank, value) = self.node_at(writer.reads(&self.elements), position)?;
        let mut node = Node::of(&value)?;
        drop(value);
        let at = (position - node.first) as usize + usize::from(side == End::Right);
        node.run.put_at(at, element)?;
        let behind = self.elements.len() - rank - 1;
        if rank < behind {
            self.move_nodes(writer, 0..rank, -1)?;
            node.first -= 1;
            self.positions.start -= 1;
        } else {
            self.move_nodes(writer, rank + 1..rank + 1 + behind, 1)?;
            self.positions.end += 1;
        }
        self.put_within(writer, rank, node)
    }

    /// Moves the positions of the nodes of these ranks.
    fn move_nodes(&mut self, writer: &mut impl ElementWriter, ranks: Range<u64>, by: i64) -> Result<()> {
        for from in ranks.clone().step_by(TOGETHER) {
            let nodes = self.nodes(writer, from, (ranks.end - from).min(TOGETHER as u64))?;
            let moved = nodes.into_iter().map(|node| Change::Put(Node { first: node.first + by, ..node }));
            self.write_more(writer, moved.collect())?;
        }
        Ok(())
    }

    /// The nodes of `count` ranks from this one on, in their order.
    fn nodes(&self, writer: &impl ElementWriter, from: u64, count: u64) -> Result<Vec<Node>> {
        let (mut nodes, mut bad) = (Vec::with_capacity(count as usize), None);
        if count == 0 {
            return Ok(nodes);
        }
        writer.reads(&self.elements).ranked(from, false, &mut |node| {
            match Node::of(node) {
                Ok(node) => nodes.push(node),
                Err(malformed) => bad = Some(malformed),
            }
            bad.is_none() && (nodes.len() as u64) < count
        })?;
        bad.map_or(Ok(nodes), |malformed| Err(malformed.into()))
    }

    /// Puts a node that was changed within at its rank, in several if it has become too large.
    fn put_within(&mut self, writer: &mut impl ElementWriter, rank: u64, node: Node) -> Result<()> {
        if node.run.len() < 2 || node.run.run_bytes() <= 2 * NODE_BYTES {
            return self.write(writer, vec![Change::Put(node)]);
        }
        let next = writer.reads(&self.elements).nth(rank + 1)?;
        let next = next.map(|next| stored(&next).map(|next| next.label)).transpose()?;
        match node.divided(next)? {
            Some(nodes) => self.write_more(writer, nodes.into_iter().map(Change::Put).collect()),
            None => {
                self.write_more(writer, vec![Change::Put(node)])?;
                self.label_anew(writer)
            }
        }
    }

    /// As [`PackedList::remove`].
    pub(crate) fn remove(
        &mut self,
        writer: &mut impl ElementWriter,
        element: &[u8],
        from: End,
        count: usize,
    ) -> Result<usize> {
        self.flush(writer)?;
        let mut going = Vec::new();
        if count > 0 {
            self.find(writer.reads(&self.elements), element, from, usize::MAX, |index| {
                going.push(self.positions.start + index as i64);
                if going.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        going.sort_unstable();
        self.remove_at(writer, &going)?;
        Ok(going.len())
    }

    /// Removes the elements at these positions, which ascend.
    fn remove_at(&mut self, writer: &mut impl ElementWriter, going: &[i64]) -> Result<()> {
        let (Some(&first), Some(&last)) = (going.first(), going.last()) else { return Ok(()) };
        let reads = writer.reads(&self.elements);
        let (first_rank, last_rank) = (self.node_at(reads, first)?.0, self.node_at(reads, last)?.0);
        let (nodes, removed) = (self.elements.len(), going.len() as i64);
        let keeps_left = nodes - 1 - last_rank <= first_rank;
        // The ranks to examine, and how far those before the first removed one have moved by then.
        let (mut at, mut left) =
            if keeps_left { (first_rank, nodes - first_rank) } else { (0, last_rank + 1) };
        let moved = if keeps_left { 0 } else { removed };
        while left > 0 {
            let together = left.min(TOGETHER as u64);
            let mut changes = Vec::new();
            for mut node in self.nodes(writer, at, together)? {
                left -= 1;
                let before = going.partition_point(|position| *position < node.first);
                let within = going.partition_point(|position| *position < node.end()) - before;
                let old_first = node.first;
                for position in going[before..before + within].iter().rev() {
                    node.run.cut_at((position - old_first) as usize)?;
                }
                node.first += moved - before as i64;
                if node.run.is_empty() {
                    changes.push(Change::Delete(node.label));
                } else {
                    at += 1;
                    if within > 0 || node.first != old_first {
                        changes.push(Change::Put(node));
                    }
                }
            }
            self.write_more(writer, changes)?;
        }
        if keeps_left {
            self.positions.end -= removed;
        } else {
            self.positions.start += removed;
        }
        Ok(())
    }

    /// Removes the elements of a part, which is at an end. It counts as a change where that is none.
    pub(crate) fn cut(&mut self, writer: &mut impl ElementWriter, part: Range<usize>) -> Result<()> {
        self.changed();
        let end = if part.start == 0 { End::Left } else { End::Right };
        self.pop(writer, end, part.len(), |_| ())
    }

    /// Rewrites all nodes when no label is left between two: each division of a node takes half of the free ones, or
    /// more.
    fn label_anew(&mut self, writer: &mut impl ElementWriter) -> Result<()> {
        let old = self.nodes(writer, 0, self.elements.len())?;
        let mut elements = Vec::with_capacity(self.len());
        for node in &old {
            elements.extend(node.run.list()?);
        }
        let gone = old.iter().map(|node| node.label).collect();
        self.held = Held { taken: (self.elements.len(), 0), gone, ..Held::default() };
        self.positions.end = self.positions.start;
        self.push(writer, End::Right, elements.into_iter())?;
        let changes = self.take_held();
        self.write_more(writer, changes)
    }

    /// Writes all that an edit writes.
    fn write(&mut self, writer: &mut impl ElementWriter, changes: Vec<Change>) -> Result<()> {
        if changes.len() == 1 {
            writer.ends_with_next();
        }
        self.write_more(writer, changes)
    }

    fn write_more(&mut self, writer: &mut impl ElementWriter, changes: Vec<Change>) -> Result<()> {
        for change in changes {
            self.changed();
            match change {
                Change::Put(node) => {
                    writer.put(&self.elements, &node.label.to_be_bytes(), &node.into_value())?
                }
                Change::Delete(label) => writer.delete(&self.elements, &label.to_be_bytes())?,
            };
        }
        Ok(())
    }

    fn changed(&mut self) {
        self.is_changed = true;
        self.whole.take();
    }
}

impl Held {
    fn side(&mut self, end: End) -> &mut VecDeque<HeldNode> {
        match end {
            End::Left => &mut self.left,
            End::Right => &mut self.right,
        }
    }

    /// Puts a node at an end.
    fn put(&mut self, end: End, node: HeldNode) {
        match end {
            End::Left => self.left.push_front(node),
            End::Right => self.right.push_back(node),
        }
    }

    fn has_changes(&self) -> bool {
        !self.gone.is_empty() || self.left.iter().chain(&self.right).any(|held| held.is_changed)
    }
}

impl HeldNode {
    fn has_room_for(&self, element: &[u8]) -> bool {
        self.node.has_room_for(element, if self.is_stored { NODE_BYTES } else { NODE_BYTES_AT_ONCE })
    }
}

impl Change {
    fn label(&self) -> u64 {
        match self {
            Self::Put(node) => node.label,
            Self::Delete(label) => *label,
        }
    }
}

impl Node {
    /// An empty one at this position, of a list without nodes.
    fn at(first: i64) -> Self {
        Self { label: ideal(first), first, run: PackedList::with_room(NODE_ROOM) }
    }

    /// An empty one on a side of the last node there.
    fn beside(last: &Self, end: End) -> std::result::Result<Self, Malformed> {
        let (first, label) = match end {
            End::Left => (last.first, last.label.checked_sub(STEP).map(|most| most.min(ideal(last.first)))),
            End::Right => {
                (last.end(), last.label.checked_add(STEP).map(|least| least.max(ideal(last.end()))))
            }
        };
        let label = label.filter(|_| POSITIONS.contains(&first)).ok_or(NO_LABEL)?;
        Ok(Self { label, first, run: PackedList::with_room(NODE_ROOM) })
    }

    fn of(value: &Value<'_>) -> std::result::Result<Self, Malformed> {
        let Stored { label, first, run } = stored(value)?;
        Ok(Self { label, first, run: run.to_edit(NODE_ROOM) })
    }

    fn end(&self) -> i64 {
        self.first + self.run.len() as i64
    }

    /// Whether it has at most this many bytes including this element, or no other element.
    fn has_room_for(&self, element: &[u8], bytes: usize) -> bool {
        self.run.is_empty() || self.run.run_bytes() + element.len() < bytes
    }

    fn push(&mut self, end: End, element: &[u8]) {
        self.run.push_one(end, element);
        self.first -= i64::from(end == End::Left);
    }

    /// The same elements in nodes of good size, before a node with the label `next`; `None` if there are not enough
    /// labels.
    fn divided(&self, next: Option<u64>) -> std::result::Result<Option<Vec<Self>>, Malformed> {
        let mut nodes = vec![Self { run: PackedList::empty(), ..*self }];
        for element in self.run.list()? {
            if let Some(last) = nodes.last()
                && !last.has_room_for(element, NODE_BYTES)
            {
                nodes.push(Self { label: 0, first: last.end(), run: PackedList::empty() });
            }
            if let Some(last) = nodes.last_mut() {
                last.push(End::Right, element);
            }
        }
        let count = nodes.len() as u64;
        let next = next.unwrap_or_else(|| self.label.saturating_add(count * STEP));
        let step = next.saturating_sub(self.label) / count;
        for (node, number) in nodes.iter_mut().zip(0..) {
            node.label = self.label + number * step;
        }
        Ok((step > 0).then_some(nodes))
    }

    fn into_value(self) -> Vec<u8> {
        let mut value = self.run.into_run();
        value.extend_from_slice(&self.first.to_le_bytes());
        value
    }
}

impl Stored<'_> {
    fn end(&self) -> i64 {
        self.first + self.run.len() as i64
    }

    fn has(&self, position: i64) -> bool {
        (self.first..self.end()).contains(&position)
    }
}

/// The content of a node's record.
fn stored<'a>(value: &'a Value<'_>) -> std::result::Result<Stored<'a>, Malformed> {
    let label = value.key().try_into().map(u64::from_be_bytes).map_err(|_| NO_LABEL)?;
    let (run, first) = value.split_last_chunk::<POSITION_BYTES>().ok_or(NO_NODE)?;
    let first = i64::from_le_bytes(*first);
    let run = PackedList::of(run)?;
    if run.is_empty() || !POSITIONS.contains(&first) {
        return Err(NO_NODE);
    }
    Ok(Stored { label, first, run })
}

/// The label of a node that is made with its first element at this position.
fn ideal(first: i64) -> u64 {
    MIDDLE.wrapping_add_signed(first * STEP as i64)
}

// What have labels, but for the last ones, so that sums of them are no others.
const POSITIONS: Range<i64> = -(1 << 54)..1 << 54;
const NO_LABEL: Malformed = Malformed { at: 0, why: "a node of the list has no label of 8 bytes" };
const NO_NODE: Malformed =
    Malformed { at: 0, why: "a node of the list is missing, empty, or elsewhere than its neighbours say" };
