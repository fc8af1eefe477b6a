//! Records on their way into the index: what a hash index and an ordered one have in common.

use super::by_hash::{self, ByHash};
use super::by_key::ByKey;
use super::given::Scan;
use crate::format::Version;
use crate::index::Slot;
use crate::index::either::Index;
use crate::mutants::{Mutant, planted};
use crate::sync::reclaim::Guard;
use duramen_media::Medium;

/// What one thread has gathered.
pub(super) enum Entries {
    ByHash(ByHash),
    ByKey(ByKey),
}

/// What is left to do when a thread has read all its records.
#[derive(Default)]
pub(super) struct Left {
    /// Keys that the index did not have.
    pub added: i64,
    /// The index got tombstones.
    pub absent: bool,
    /// What has to be put in order yet.
    pub by_key: Option<ByKey>,
}

impl Entries {
    pub(super) fn new<M: Medium>(scan: &Scan<'_, M>) -> Self {
        match scan.index {
            Index::Hash(index) => Self::ByHash(ByHash::new(index)),
            Index::Ordered(_) => Self::ByKey(ByKey::new(scan.parting)),
        }
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Enters a record of `key` in the index, soon.
    #[inline]
    pub(super) fn push(&self, key: &[u8], slot: Slot, version: Version, entries: &mut Entries) {
        match entries {
            Entries::ByHash(gathered) => {
                let hash = self.hasher.hash(key);
                self.push_by_hash(by_hash::Entry { hash, slot, version }, gathered);
            }
            Entries::ByKey(gathered) => gathered.push(self.parting, key, slot, version),
        }
    }

    /// Enters what is left, if that can be done already.
    pub(super) fn finish(&self, entries: Entries) -> Left {
        match entries {
            Entries::ByHash(mut gathered) => {
                self.enter_all(&mut gathered);
                Left { added: gathered.added, absent: gathered.absent, by_key: None }
            }
            Entries::ByKey(gathered) => Left { by_key: Some(gathered), ..Left::default() },
        }
    }

    /// Enters a record in `index`, if it is the newest of its key so far. Says how many keys that adds.
    #[inline]
    pub(super) fn enter(&self, index: &Index, entry: &by_hash::Entry, guard: &Guard) -> i64 {
        let key = || self.record_at(entry.slot.location()).1;
        // A hash index does not ask for it.
        let key_of_order = if index.ordered().is_some() { key() } else { &[] };
        let locked = index.lock(entry.hash, guard);
        if !planted(Mutant::VersionNotRecovered) {
            locked.met_version(entry.version);
        }
        let found = locked
            .find(key_of_order, |slot| self.record_met(slot.location()).is_some_and(|(_, its)| its == key()));
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
            self.blocks.of(other_at.0).live_sub(other_header.record_bytes());
            found.set(entry.slot.met_beside(other));
            i64::from(!absent) - i64::from(!other.is_tombstone())
        } else {
            self.blocks.of(at.0).live_sub(self.record_at(at).0.record_bytes());
            found.set(other.met_beside(entry.slot));
            0
        }
    }
}
