//! Elements of collections, gathered by owner before they are entered in the indexes.
//!
//! Each thread gathers the elements that it reads. When all has been read, a thread takes the elements of one
//! collection from all threads. It sorts them by position in the map and keeps the newest record of each key. From
//! these it builds map and tree, each from one end to the other. Where a checkpoint has some of the collection, that is
//! read first. A collection that only a checkpoint has is read on first use, unless it must be corrected.

use crate::checkpoint::plan::Checkpoint;
use crate::recover::given::Scan;
use duramen_index::Slot;
use duramen_index::collection::{CollectionIndex, Counted, position_of};
use duramen_index::ordered::Sorted;
use duramen_log::format::record::Header;
use duramen_log::format::{Owner, Version};
use duramen_log::sync;
use duramen_media::Medium;
use std::collections::HashMap;

/// The elements of a collection that one thread has gathered.
#[derive(Default)]
pub(crate) struct ByCollection {
    /// By position and order.
    entries: Vec<Sorted>,
    /// The highest of all records.
    version: Version,
}

impl<M: Medium> Scan<'_, M> {
    /// Gathers an element, to be entered later.
    pub(crate) fn push_element(
        &self,
        index: &CollectionIndex,
        key: &[u8],
        slot: Slot,
        version: Version,
        gathered: &mut ByCollection,
    ) {
        let order = if slot.is_tombstone() { 0 } else { index.order_at(slot, self) };
        gathered.entries.push(Sorted::new([position_of(self.hasher.hash(key)), order], slot));
        gathered.version = gathered.version.max(version);
    }

    /// The collections whose pages in a checkpoint must be corrected although none of their elements was read.
    pub(crate) fn changed_collections(
        &self,
        checkpoint: &Checkpoint<'_>,
    ) -> impl Iterator<Item = (Owner, ByCollection)> {
        let changed = checkpoint.root.tables.iter().filter(|of| of.changed && of.owner.is_collection());
        changed.map(|of| (of.owner, ByCollection::default()))
    }

    /// Fills the indexes of these collections, all of which are empty, or attached to pages of a checkpoint.
    pub(crate) fn build_collections(&self, gathered: Vec<(Owner, ByCollection)>, threads: usize) {
        let version = gathered.iter().map(|(_, gathered)| gathered.version).max().unwrap_or_default();
        self.tables.elements().raise_versions(version);
        let mut by_owner: HashMap<Owner, Vec<Sorted>> = HashMap::new();
        for (owner, mut gathered) in gathered {
            by_owner.entry(owner).or_default().append(&mut gathered.entries);
        }
        sync::each_on_threads(threads, by_owner.into_iter(), |(owner, mut entries)| {
            let Some(table) = self.tables.of(owner) else { return };
            let Some(index) = table.index.collection() else { return };
            let position = |entry: &Sorted| u128::from(entry.words()[0]);
            entries.sort_unstable_by_key(position);
            self.keep_newest(&mut entries, position);
            self.count_keys(&entries);
            if index.is_attached() {
                index.merge(&entries, self, |slot, checkpointed| self.newer_of(slot, checkpointed));
            } else {
                index.build(entries, self);
            }
        });
    }

    /// Which of two records of an element counts: the one that was read, or the checkpoint's. The other is dead.
    fn newer_of(&self, slot: Slot, checkpointed: Slot) -> Counted {
        let header = |slot: Slot| self.record_at(slot.location()).0;
        let dead = |slot: Slot, header: &Header| {
            self.blocks.live_sub(slot.location().0, header.record_bytes());
        };
        let (read, other) = (header(slot), header(checkpointed));
        if self.is_newer((read.version, slot.location()), (other.version, checkpointed.location())) {
            dead(checkpointed, &other);
            Counted::Read(slot.with_stale_beside(checkpointed))
        } else {
            dead(slot, &read);
            Counted::Checkpointed(checkpointed.with_stale_beside(slot))
        }
    }
}
