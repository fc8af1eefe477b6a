//! A list made from left to right. Several threads make pieces and one thread joins them; nobody else sees the index
//! yet.

use super::node::{LockedNode, Node};
use super::{HEIGHT_MAX, OrderedIndex};
use duramen_log::sync;
use duramen_log::sync::reclaim;

/// Nodes in sequence.
#[derive(Default)]
pub(super) struct Chain<'g> {
    /// The first and the last node of each level, if it has any.
    ends: [Option<(&'g Node, &'g Node)>; HEIGHT_MAX],
    /// The index's head, while its leaf is still to be filled.
    head: Option<&'g Node>,
}

impl<'g> Chain<'g> {
    fn beginning_with(head: &'g Node) -> Self {
        Self { ends: [Some((head, head)); HEIGHT_MAX], head: Some(head) }
    }

    /// Appends a node.
    fn push(&mut self, node: &'g Node, height: usize) {
        for level in 0..height {
            self.join_level(level, (node, node));
        }
    }

    /// Appends another chain.
    fn join(&mut self, behind: &Self) {
        for (level, &ends) in behind.ends.iter().enumerate() {
            if let Some(ends) = ends {
                self.join_level(level, ends);
            }
        }
    }

    fn join_level(&mut self, level: usize, (first, last): (&'g Node, &'g Node)) {
        self.ends[level] = match self.ends[level] {
            None => Some((first, last)),
            Some((head, before)) => {
                before.set_next_alone(level, Some(first));
                Some((head, last))
            }
        };
    }
}

impl OrderedIndex {
    /// Fills an index that is empty and not shared yet, on `threads` threads. For each item, `make` adds its leaves to
    /// a chain of their own ([`OrderedIndex::add`]). Returns the results of `make`, in the order of the items, which is
    /// that of the leaves.
    pub(super) fn fill_with<I: Send, T: Send>(
        &self,
        threads: usize,
        items: impl ExactSizeIterator<Item = I> + Send,
        make: impl Fn(I, &mut Chain<'_>) -> T + Sync,
    ) -> Vec<T> {
        let guard = reclaim::pin();
        let head = self.head(&guard);
        let made = sync::each_on_threads(threads, items.enumerate(), |(number, item)| {
            let mut chain = match number {
                0 => Chain::beginning_with(head),
                _ => Chain::default(),
            };
            let result = make(item, &mut chain);
            (chain, result)
        });
        let mut whole = Chain::default();
        let join = |(chain, result)| {
            whole.join(&chain);
            result
        };
        let results = made.into_iter().map(join).collect();
        self.fit_cache();
        results
    }

    /// Appends an empty leaf to the chain. The first of all is the head's, which has its lowest key already.
    pub(super) fn add<'g>(&self, chain: &mut Chain<'g>, low: &[u8], label: u64) -> LockedNode<'g> {
        if let Some(head) = chain.head.take() {
            return head.hold(&self.waits);
        }
        // SAFETY: `Memory` gives memory of a node, which it keeps (invariant 6).
        let node: &'g Node = unsafe { self.memory.take().as_ref() };
        let height = self.height_of(low);
        let held = node.init(low, height, label);
        chain.push(node, height);
        node.set_linked();
        self.raise(height);
        held
    }
}
