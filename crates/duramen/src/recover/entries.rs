//! Records gathered before they are entered in the index: the common part of hash and ordered indexes.

use crate::recover::by_collection::ByCollection;
use crate::recover::by_hash::{self, ByHash};
use crate::recover::by_key::ByKey;
use crate::recover::given::{FoundRoot, Scan};
use crate::table::tables::Table;
use duramen_index::Slot;
use duramen_index::either::Index;
use duramen_index::ordered::Parting;
use duramen_log::format::{Owner, Version};
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim::Guard;
use duramen_media::Medium;
use std::collections::HashMap;

/// The records of a table that one thread has gathered.
enum Gathered {
    Hash(ByHash),
    Ordered(ByKey),
    Collection(ByCollection),
}

/// All that one thread has gathered.
pub(crate) struct Entries {
    store: Gathered,
    others: HashMap<Owner, (Arc<Table>, Gathered)>,
    pub(crate) roots: Vec<FoundRoot>,
}

/// The remaining work when a thread has read all its records.
#[derive(Default)]
pub(crate) struct Left {
    /// Tables whose indexes got tombstones.
    pub absent: Vec<Owner>,
    /// Records that must still be sorted.
    pub by_key: Vec<(Owner, ByKey)>,
    pub by_collection: Vec<(Owner, ByCollection)>,
    pub roots: Vec<FoundRoot>,
}

impl Gathered {
    fn new(index: &Index, parting: &Parting<'_>) -> Self {
        match index {
            Index::Hash(index) => Self::Hash(ByHash::new(index)),
            Index::Ordered(_) => Self::Ordered(ByKey::new(parting)),
            Index::Collection(_) => Self::Collection(ByCollection::default()),
        }
    }
}

impl Entries {
    pub(crate) fn new<M: Medium>(scan: &Scan<'_, M>) -> Self {
        let store = Gathered::new(&scan.tables.store.index, scan.parting);
        Self { store, others: HashMap::new(), roots: Vec::new() }
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Gathers a record of `key`, to be entered in the index of its owner's table soon.
    #[inline]
    pub(crate) fn push(&self, owner: Owner, key: &[u8], slot: Slot, version: Version, entries: &mut Entries) {
        if owner == Owner::STORE {
            return self.push_to(&self.tables.store, &mut entries.store, key, slot, version);
        }
        let (table, gathered) = entries.others.entry(owner).or_insert_with(|| {
            let table = self.table_of(owner);
            let gathered = Gathered::new(&table.index, self.parting_of(&table));
            (table, gathered)
        });
        self.push_to(table, gathered, key, slot, version);
    }

    #[inline]
    fn push_to(&self, table: &Table, gathered: &mut Gathered, key: &[u8], slot: Slot, version: Version) {
        match gathered {
            Gathered::Hash(gathered) => {
                let hash = self.hasher.hash(key);
                self.push_by_hash(table, by_hash::ToEnter { hash, slot, version }, gathered);
            }
            Gathered::Ordered(gathered) => gathered.push(self.parting_of(table), key, slot, version),
            Gathered::Collection(gathered) => {
                if let Some(index) = table.index.collection() {
                    self.push_element(index, key, slot, version, gathered);
                }
            }
        }
    }

    /// Enters the remaining records that can be entered already.
    pub(crate) fn finish(&self, entries: Entries) -> Left {
        let mut left = Left { roots: entries.roots, ..Left::default() };
        let store = (Arc::clone(&self.tables.store), entries.store);
        for (table, gathered) in std::iter::once(store).chain(entries.others.into_values()) {
            match gathered {
                Gathered::Hash(mut gathered) => {
                    self.enter_all(&table, &mut gathered);
                    table.count_keys(0, gathered.added);
                    left.absent.extend(gathered.absent.then_some(table.owner));
                }
                Gathered::Ordered(gathered) => left.by_key.push((table.owner, gathered)),
                Gathered::Collection(gathered) => left.by_collection.push((table.owner, gathered)),
            }
        }
        left
    }

    /// Enters a record in `index`, if it is the newest of its key so far. Returns the number of keys that this adds.
    #[inline]
    pub(crate) fn enter(&self, index: &Index, entry: &by_hash::ToEnter, guard: &Guard) -> i64 {
        let key = || self.record_at(entry.slot.location()).1;
        // A hash index does not use it.
        let key_of_order = if matches!(index, Index::Hash(_)) { &[] } else { key() };
        let locked = index.lock(entry.hash, guard);
        locked.observe_version(entry.version);
        let found = locked.find(key_of_order, |slot| {
            self.found_record(slot.location()).is_some_and(|(_, its)| its == key())
        });
        let absent = entry.slot.is_tombstone();
        let Some(found) = found else {
            let crowded = locked.insert(key_of_order, entry.slot, self);
            drop(locked);
            if crowded {
                index.split(entry.hash, self, guard);
            }
            return i64::from(!absent);
        };
        let other = found.get();
        let (at, other_at) = (entry.slot.location(), other.location());
        let other_header = self.record_at(other_at).0;
        if self.is_newer((entry.version, at), (other_header.version, other_at)) {
            self.blocks.live_sub(other_at.0, other_header.record_bytes());
            found.repoint(key(), entry.slot.with_stale_beside(other), self);
            i64::from(!absent) - i64::from(!other.is_tombstone())
        } else {
            self.blocks.live_sub(at.0, self.record_at(at).0.record_bytes());
            found.set(other.with_stale_beside(entry.slot));
            0
        }
    }
}
