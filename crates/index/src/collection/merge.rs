//! An index from the pages of a checkpoint, and from additional elements that recovery has read.
//!
//! Both are sorted, so map and tree need not be changed element by element, where that can be avoided. The map gets the
//! checkpoint's pages, and then each element that was read. The tree is made of the checkpoint's entries, without the
//! superseded ones, and of the new ones.

use super::checkpoint::{self, OfTree};
use super::indexes::{Indexes, put_in_order};
use super::map::{Map, skew};
use super::tree::Tree;
use crate::attached::Attached;
use crate::ordered::Sorted;
use crate::{KeyBytes, Slot};
use duramen_media::Offset;

/// Elements whose cache misses are under way while one is looked at.
const AHEAD: usize = 8;

/// Which of two records of a key counts, with its slot: the one that was read, or the checkpoint's.
pub enum Counted {
    Read(Slot),
    Checkpointed(Slot),
}

/// The changes to the checkpoint's tree.
#[derive(Default)]
struct Changes {
    /// Entries that are superseded.
    removed: Vec<(u64, Offset)>,
    added: Vec<Sorted>,
}

/// See [`CollectionIndex::merge`](super::CollectionIndex::merge).
pub(super) fn merge(
    indexes: &mut Indexes,
    attached: &Attached,
    elements: &[Sorted],
    keys: &impl KeyBytes,
    mut combine: impl FnMut(Slot, Slot) -> Counted,
) {
    let of_tree = checkpoint::read_map(&mut indexes.map, attached);
    let mut changes = Changes::default();
    for (at, element) in elements.iter().enumerate() {
        if let Some(ahead) = elements.get(at + AHEAD) {
            indexes.map.prefetch_at(ahead.words()[0]);
            keys.prefetch_at(ahead.slot.location());
        }
        enter(indexes, element, keys, &mut combine, &mut changes);
    }
    let Indexes { map, tree, .. } = indexes;
    if let Some(tree) = tree {
        changes.add_lacking(&of_tree, map, keys);
        fill_tree(tree, &of_tree, changes, keys);
        debug_assert!(
            tree.len() == map.len(),
            "the tree must contain every slot that is no tombstone: found {} and {}",
            tree.len(),
            map.len()
        );
    }
    of_tree.done();
}

/// Enters an element in the map, and notes the resulting changes of the tree.
fn enter(
    indexes: &mut Indexes,
    element: &Sorted,
    keys: &impl KeyBytes,
    combine: &mut impl FnMut(Slot, Slot) -> Counted,
    changes: &mut Changes,
) {
    let (position, slot) = (element.words()[0], element.slot);
    let key = keys.key_at(slot.location());
    let is_same = |other: Slot| key.is_some() && keys.key_at(other.location()) == key;
    let Some(old) = indexes.map.find_at(position, is_same) else {
        indexes.map.insert_at(position, slot, keys);
        return changes.add(element);
    };
    let points_there = |other: Slot| other.location() == old.location();
    match combine(slot, old) {
        Counted::Checkpointed(old) => {
            indexes.map.set_at(position, old, points_there);
        }
        Counted::Read(slot) => {
            indexes.map.set_at(position, slot, points_there);
            if !old.is_tombstone() && indexes.tree.is_some() {
                changes.removed.push((indexes.order_at(old, keys), old.location()));
            }
            changes.add(element);
        }
    }
}

impl Changes {
    fn add(&mut self, element: &Sorted) {
        if !element.slot.is_tombstone() {
            self.added.push(*element);
        }
    }

    /// Adds the elements that the checkpoint's tree may lack and its map has.
    fn add_lacking(&mut self, of_tree: &OfTree<'_>, map: &Map, keys: &impl KeyBytes) {
        for (order, slot) in of_tree.lacking() {
            let Some(position) = keys.hash_at(slot.location()).map(skew) else { continue };
            let found = map.find_at(position, |other| other.location() == slot.location());
            if found.is_some_and(|found| !found.is_tombstone()) {
                self.added.push(Sorted::new([position, order], slot));
            }
        }
    }
}

fn fill_tree(tree: &mut Tree, of_tree: &OfTree<'_>, changes: Changes, keys: &impl KeyBytes) {
    let Changes { mut removed, mut added } = changes;
    if removed.is_empty() && added.is_empty() {
        return tree.fill(of_tree.entries().count() as u64, of_tree.entries());
    }
    removed.sort_unstable();
    put_in_order(&mut added, keys);
    // Elements that were removed from the tree twice.
    added.dedup_by_key(|element| element.slot.location());
    let mut entries = Vec::with_capacity(of_tree.entries().count());
    let mut from = 0;
    for (order, slot) in of_tree.entries() {
        from += removed[from..].iter().take_while(|(other, _)| *other < order).count();
        let same = removed[from..].partition_point(|(other, _)| *other <= order);
        if removed[from..from + same].binary_search_by_key(&slot.location(), |&(_, at)| at).is_err() {
            entries.push((order, slot));
        }
    }
    let all = merged(&entries, &added, keys);
    drop(entries);
    tree.fill(all.len() as u64, all.into_iter());
}

/// Merges `added` into the entries; both are sorted. Entries that are there already are not added.
fn merged(entries: &[(u64, Slot)], added: &[Sorted], keys: &impl KeyBytes) -> Vec<(u64, Slot)> {
    let mut all = Vec::with_capacity(entries.len() + added.len());
    let mut overflow = entries;
    for element in added {
        let order = element.words()[1];
        let below = overflow.partition_point(|&(other, _)| other < order);
        let same = overflow[below..].partition_point(|&(other, _)| other == order);
        let key = if same > 0 { keys.key_at(element.slot.location()) } else { None };
        let before = |&(_, slot): &(u64, Slot)| keys.key_at(slot.location()) < key;
        let at = below + overflow[below..below + same].partition_point(before);
        all.extend_from_slice(&overflow[..at]);
        overflow = &overflow[at..];
        if overflow.first().is_none_or(|(_, slot)| slot.location() != element.slot.location()) {
            all.push((order, element.slot));
        }
    }
    all.extend_from_slice(overflow);
    all
}
