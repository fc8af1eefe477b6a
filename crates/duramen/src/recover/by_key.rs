//! Records gathered by key before they are entered in an ordered index.
//!
//! Each thread gathers the records that it reads in parts ([`Parting`]). When all has been read, a thread takes one
//! part from all threads, sorts it, and keeps the newest record of each key. The index is built from these. If a
//! checkpoint already had most of the index, the records that were read are entered in key order instead.

use crate::recover::by_hash;
use crate::recover::given::Scan;
use crate::table::tables::Table;
use duramen_index::ordered::{Gathered, Parting, Sorted};
use duramen_index::{Keys as _, Slot};
use duramen_log::format::{Owner, Version};
use duramen_log::sync;
use duramen_log::sync::atomic::AtomicI64;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::reclaim;
use duramen_media::Medium;
use std::collections::HashMap;

/// Headers that are prefetched ahead of the one being read, of records whose keys occur more than once.
const AHEAD: usize = 32;
/// Maximum number of records, possibly of one key, compared at a time: a key may have been written millions of times.
const RIVALS_MAX: usize = if cfg!(test) { 10 } else { 1 << 12 };

/// What one thread has gathered.
pub(crate) struct ByKey {
    entries: Gathered,
    /// The highest of all records.
    version: Version,
}

/// One of several records whose keys may be the same.
struct Rival<'m> {
    key: &'m [u8],
    version: Version,
    bytes: u64,
    entry: Sorted,
    /// Older records of this key that this one replaced.
    beaten: u64,
}

impl ByKey {
    pub(crate) fn new(parting: &Parting<'_>) -> Self {
        Self { entries: Gathered::new(parting), version: Version::default() }
    }

    #[inline]
    pub(crate) fn push(&mut self, parting: &Parting<'_>, key: &[u8], slot: Slot, version: Version) {
        let (part, entry) = parting.place(key, slot);
        self.entries.push(part, entry);
        self.version = self.version.max(version);
    }
}

impl<M: Medium> Scan<'_, M> {
    /// Enters what the threads have gathered for ordered indexes.
    pub(crate) fn enter_gathered(&self, gathered: Vec<(Owner, ByKey)>, threads: usize) {
        let mut by_owner: HashMap<Owner, Vec<ByKey>> = HashMap::new();
        for (owner, gathered) in gathered {
            by_owner.entry(owner).or_default().push(gathered);
        }
        for (owner, gathered) in by_owner {
            let Some(table) = self.tables.of(owner) else { continue };
            if self.counts_all {
                self.build(&table, &gathered, threads);
            } else {
                // An index that the checkpoint does not know is empty; its records are entered the same way.
                self.enter_in_order(&table, &gathered, threads);
            }
        }
    }

    /// The gathered records of a part, sorted, and the number of their keys.
    fn in_order(&self, gathered: &[ByKey], part: usize) -> (Vec<Sorted>, i64) {
        let mut entries = Vec::with_capacity(len(gathered, part));
        gathered.iter().for_each(|gathered| gathered.entries.copy(part, &mut entries));
        entries.sort_unstable_by_key(Sorted::rank);
        self.keep_newest(&mut entries, Sorted::rank);
        let keys = self.count_keys(&entries);
        (entries, keys)
    }

    /// The number of kept entries that are not tombstones. A tombstone that hides nothing is dead itself.
    pub(crate) fn count_keys(&self, entries: &[Sorted]) -> i64 {
        let mut keys = 0;
        for slot in entries.iter().map(|entry| entry.slot) {
            if !slot.is_tombstone() {
                keys += 1;
            } else if slot.covers_no_older_records() && self.counts_all {
                self.uncount_tombstone(slot);
            }
        }
        keys
    }

    /// Keeps the newest record of each key, and sorts entries that compare equal by their ranks alone. Entries are in
    /// the order of `rank`, which is the same for all records of a key.
    pub(crate) fn keep_newest(&self, entries: &mut Vec<Sorted>, rank_of: impl Fn(&Sorted) -> u128) {
        let (mut kept, mut from, mut ahead) = (0, 0, 0);
        let mut rivals = Vec::new();
        while from < entries.len() {
            while ahead < entries.len().min(from + AHEAD) {
                let rank = rank_of(&entries[ahead]);
                let beside = |other: usize| entries.get(other).is_some_and(|other| rank_of(other) == rank);
                if beside(ahead + 1) || beside(ahead.wrapping_sub(1)) {
                    self.prefetch_at(entries[ahead].slot.location());
                }
                ahead += 1;
            }
            let rank = rank_of(&entries[from]);
            let same = entries[from..].iter().take_while(|entry| rank_of(entry) == rank).count();
            let won = if same == 1 { 1 } else { self.newest(&mut entries[from..from + same], &mut rivals) };
            entries.copy_within(from..from + won, kept);
            kept += won;
            from += same;
        }
        entries.truncate(kept);
    }

    /// Moves the newest record of each key to the front, in key order, and returns their number.
    fn newest<'s>(&'s self, entries: &mut [Sorted], rivals: &mut Vec<Rival<'s>>) -> usize {
        rivals.clear();
        let mut enough = RIVALS_MAX;
        for &entry in &*entries {
            if rivals.len() == enough {
                self.decide(rivals);
                enough = RIVALS_MAX.max(rivals.len() * 2);
            }
            let (header, key) = self.record_at(entry.slot.location());
            let (version, bytes) = (header.version, header.record_bytes());
            rivals.push(Rival { key, version, bytes, entry, beaten: 0 });
        }
        self.decide(rivals);
        for (entry, winner) in entries.iter_mut().zip(&*rivals) {
            *entry = winner.entry;
            entry.slot = winner.entry.slot.with_more_stale(winner.beaten);
        }
        rivals.len()
    }

    /// Keeps the newest record of each key, in the order of the keys; the others are dead.
    fn decide(&self, rivals: &mut Vec<Rival<'_>>) {
        rivals.sort_unstable_by_key(|rival| rival.key);
        let of = |rival: &Rival<'_>| (rival.version, rival.entry.slot.location());
        rivals.dedup_by(|other, newest| {
            if other.key != newest.key {
                return false;
            }
            if self.is_newer(of(other), of(newest)) {
                std::mem::swap(other, newest);
            }
            self.blocks.live_sub(other.entry.slot.location().0, other.bytes);
            newest.beaten += other.beaten + 1;
            true
        });
    }

    /// Fills the index of an ordered table, which is empty, and counts its keys.
    fn build(&self, table: &Table, gathered: &[ByKey], threads: usize) {
        let Some(index) = table.index.ordered() else { return };
        let version = gathered.iter().map(|gathered| gathered.version).max().unwrap_or_default();
        let parting = self.parting_of(table);
        let entries: Vec<usize> = (0..parting.parts()).map(|part| len(gathered, part)).collect();
        let keys = AtomicI64::new(0);
        index.observe_version(version);
        index.build(parting, &entries, self, threads, |part| {
            let (entries, more) = self.in_order(gathered, part);
            keys.fetch_add(more, Relaxed);
            entries
        });
        table.count_keys(0, keys.into_inner());
    }

    /// Enters the gathered records in the index of an ordered table, and counts the keys that this adds.
    ///
    /// A descent of a large list is a cache miss for each level. In key order, each descent ends next to the one
    /// before.
    fn enter_in_order(&self, table: &Table, gathered: &[ByKey], threads: usize) {
        let enter = |part| {
            let guard = reclaim::pin();
            let (entries, _) = self.in_order(gathered, part);
            let mut added = 0;
            for (i, &Sorted { slot, .. }) in entries.iter().enumerate() {
                if let Some(ahead) = entries.get(i + AHEAD) {
                    self.prefetch_at(ahead.slot.location());
                }
                let (header, key) = self.record_at(slot.location());
                let entry = by_hash::ToEnter { hash: self.hasher.hash(key), slot, version: header.version };
                added += self.enter(&table.index, &entry, &guard);
            }
            added
        };
        let parts = 0..self.parting_of(table).parts();
        table.count_keys(0, sync::each_on_threads(threads, parts, enter).into_iter().sum());
    }
}

/// The number of entries that all threads have gathered of a part.
fn len(gathered: &[ByKey], part: usize) -> usize {
    gathered.iter().map(|gathered| gathered.entries.len(part)).sum()
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use crate::{IndexKind, MediumKind, Options};
    use std::collections::BTreeMap;

    /// Keys of which some share more than the stored prefix, some are prefixes of others, and some are below or above
    /// all keys with the common prefix.
    fn key(random: &mut impl FnMut(u64) -> u64) -> Vec<u8> {
        let tail: Vec<u8> = (0..random(30)).map(|_| random(2) as u8).collect();
        match random(100) {
            0 => vec![0; random(3) as usize],
            1 => [&[255], &tail[..]].concat(),
            2..20 => format!("user:{:020}", random(500)).into_bytes(),
            20..60 => [b"user:", &random(u64::MAX).to_be_bytes()[..]].concat(),
            _ => [b"user:", &tail[..]].concat(),
        }
    }

    #[test]
    fn all_records_read_give_the_same_keys_and_counts_by_key_as_by_hash() {
        let mut state = 1u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        for round in 0..8 {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = dir.path().join("store");
            let options = Options {
                medium: MediumKind::Shm,
                extent_bytes: Some(4096),
                background: false,
                index_checkpoint: false,
                ..Options::default()
            };
            let store = options.open(&path).unwrap();
            let mut model = BTreeMap::new();
            // Few keys written often, or many.
            let keys: Vec<Vec<u8>> = (0..10 << round).map(|_| key(&mut random)).collect();
            for _ in 0..4000 {
                let key = &keys[random(keys.len() as u64) as usize];
                if random(4) == 0 {
                    assert_eq!(store.delete(key).unwrap(), model.remove(key).is_some());
                } else {
                    let value = random(1000).to_le_bytes();
                    store.put(key, value).unwrap();
                    model.insert(key.clone(), value);
                }
            }
            store.close().unwrap();
            let mut counts = Vec::new();
            for (index, recovery_threads) in
                [(IndexKind::Hash, 1), (IndexKind::Ordered, 1), (IndexKind::Ordered, 3)]
            {
                let store = Options { index, recovery_threads, ..options.clone() }.open(&path).unwrap();
                assert_eq!(store.recovery().checkpointed, 0);
                assert_eq!(store.len() as usize, model.len());
                for key in &keys {
                    let value = store.get(key).unwrap();
                    assert_eq!(value.as_deref(), model.get(key).map(|value| &value[..]), "{key:?}");
                }
                if index == IndexKind::Ordered {
                    let all = store.range(..).unwrap().map(|value| value.unwrap().key().to_vec());
                    assert!(all.eq(model.keys().cloned()));
                }
                let stats = store.stats();
                counts.push((stats.used_bytes, stats.live_bytes, stats.dead_bytes));
                store.close().unwrap();
            }
            assert!(counts.iter().all(|each| *each == counts[0]), "{counts:?}");
        }
    }
}
