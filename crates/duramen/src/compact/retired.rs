//! Retired blocks, and the state of each: see [`crate::compact::release`].

use duramen_log::format::{Extent, Owner};
use duramen_log::sync::reclaim::GracePeriod;
use duramen_media::Offset;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A block that was moved out of and is not freed yet.
pub(crate) struct Retired {
    pub extent: Extent,
    /// How many blocks were retired before it.
    pub number: u64,
    /// Tombstones were dropped from it.
    pub dropped: bool,
    /// It is free on the medium already, since its newest records were of keys that were evicted: see
    /// [`crate::evict::victims`].
    pub is_free: bool,
    /// Bytes of all its dead records, and of room that was counted as dead.
    pub bytes: u64,
    /// Where keys are evicted: hashes of the keys of its dead records, originals of copies included. `None`: of any
    /// key.
    pub dead: Option<Vec<u64>>,
    /// The epoch in which it was retired.
    pub epoch: u64,
    pub again: Option<Again>,
}

/// Records that count again, of a block that stays.
pub(crate) struct Again {
    /// How many had been retired when its records were counted again.
    pub(crate) since: u64,
    pub(crate) stale: Vec<Stale>,
}

/// A record that counts as a stale one of its key again.
pub(crate) struct Stale {
    pub owner: Owner,
    pub hash: u64,
    pub at: Offset,
}

/// Retired blocks, each part in the order in which they were retired.
#[derive(Default)]
pub(crate) struct RetireQueue {
    /// Their grace period has not begun yet.
    fresh: Vec<Retired>,
    /// Readers may be in them. A later grace period also waits for every reader that an earlier one waits for.
    seen: Vec<(GracePeriod, Vec<Retired>)>,
    /// They stay.
    pub(crate) kept: Vec<Retired>,
    /// No reader is in them, nor will be.
    pub(crate) reclaimable: Vec<Retired>,
    /// For each hash, the number of these blocks that have dead records of a key with it ...
    dead: HashMap<u64, u32, BuildHasherDefault<AsItIs>>,
    /// ... and the number that may have dead records of any key.
    of_any: u32,
}

/// The hasher of keys that are hashes already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl RetireQueue {
    pub(crate) fn add(&mut self, retired: Retired) {
        assert!(
            !retired.is_free || !retired.dropped,
            "the block at extent {} is free, and tombstones were dropped from it (evict::victims, invariant 2)",
            retired.extent.0
        );
        match &retired.dead {
            Some(dead) => dead.iter().for_each(|&hash| *self.dead.entry(hash).or_default() += 1),
            None => self.of_any += 1,
        }
        self.fresh.push(retired);
    }

    /// Whether a block that is not free yet may have a dead record of a key of this hash.
    pub(crate) fn may_have_dead(&self, hash: u64) -> bool {
        self.of_any > 0 || self.dead.contains_key(&hash)
    }

    /// A block is free.
    pub(crate) fn forget(&mut self, retired: &Retired) {
        let Some(dead) = &retired.dead else {
            self.of_any -= 1;
            return;
        };
        for hash in dead {
            if let Some(count) = self.dead.get_mut(hash) {
                *count -= 1;
                if *count == 0 {
                    self.dead.remove(hash);
                }
            }
        }
    }

    /// Whether a block may be freed now, as far as the order goes (`compact::records`, invariant 2).
    pub(crate) fn is_next(&self, retired: &Retired) -> bool {
        let is_before = |other: &Retired| other.number < retired.number;
        let counts_again = |other: &Retired| {
            other.is_free || other.again.as_ref().is_some_and(|again| again.since <= retired.number)
        };
        !self.pending_grace().chain(&self.reclaimable).any(is_before)
            && (!retired.dropped || self.kept.iter().filter(|other| is_before(other)).all(counts_again))
    }

    /// Whether more blocks will be freed without a caller's releasing a value.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waits_for_readers() || !self.reclaimable.is_empty()
    }

    pub(crate) fn waits_for_readers(&self) -> bool {
        !self.fresh.is_empty() || !self.seen.is_empty()
    }

    /// Blocks that may have readers from before they were retired.
    pub(crate) fn pending_grace(&self) -> impl Iterator<Item = &Retired> {
        self.fresh.iter().chain(self.seen.iter().flat_map(|(_, retired)| retired))
    }

    /// The records that count again, in blocks that stay.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Stale> {
        self.kept.iter().filter_map(|retired| retired.again.as_ref()).flat_map(|again| &again.stale)
    }

    /// All blocks whose grace periods may still run, whoever waits for them.
    pub(crate) fn take_all(&mut self) -> Vec<Retired> {
        let seen = std::mem::take(&mut self.seen).into_iter().flat_map(|(_, retired)| retired);
        let kept = std::mem::take(&mut self.kept);
        std::mem::take(&mut self.fresh).into_iter().chain(seen).chain(kept).collect()
    }

    /// The blocks whose grace period is past.
    pub(crate) fn take_past(&mut self, groups: impl FnOnce() -> Option<GracePeriod>) -> Vec<Retired> {
        if !self.fresh.is_empty()
            && let Some(grace) = groups()
        {
            self.seen.push((grace, std::mem::take(&mut self.fresh)));
        }
        let mut past = Vec::new();
        while let Some((grace, _)) = self.seen.first_mut()
            && grace.has_elapsed()
        {
            past.append(&mut self.seen.remove(0).1);
        }
        past
    }
}
