//! Merging: emptied segments are merged with their siblings, the reverse of a split.

use super::*;

impl HashIndex {
    /// Keys of this hash were removed: merges its segment with the sibling, repeatedly, as long as both hold few keys.
    /// No lock may be held.
    pub fn merge(&self, hash: u64, guard: &Guard) {
        while self.merge_once(hash, guard) {}
    }

    /// Merges segments that no removal found, among some from the hash `from` on. Returns where to continue, if there
    /// is more to look at.
    pub fn merge_from(&self, from: Option<u64>) -> Option<u64> {
        const SEGMENTS: usize = 4096;
        // Relaxed: counts stored before a removal sets it are seen by the next walk.
        let mut from = match from {
            Some(from) => from,
            None if self.pages_left() == 0 && self.unmerged.swap(false, Relaxed) => 0,
            None => return None,
        };
        for _ in 0..SEGMENTS {
            let guard = reclaim::pin();
            self.merge(from, &guard);
            let step = 1 << (64 - self.entry(from, &guard).depth());
            from = (from & !(step - 1)).checked_add(step)?;
        }
        Some(from)
    }

    /// The two segments, zero and one, that a merge of the segment of `hash` would join.
    pub(super) fn sparse_pair(&self, hash: u64, guard: &Guard) -> Option<[DirEntry; 2]> {
        let directory = self.directory(guard);
        let depth = directory.entry(hash).depth();
        if depth <= DEPTH_INITIAL {
            return None;
        }
        let bit = 1 << (64 - depth);
        let pair = [hash & !bit, hash | bit].map(|hash| directory.entry(hash));
        if pair.iter().any(|entry| entry.depth() != depth || entry.page().is_some()) {
            return None;
        }
        let counts = pair.map(|entry| self.segment(entry, guard).count.load(Relaxed));
        (counts[0].saturating_add(counts[1]) <= self.merge_count_max).then_some(pair)
    }

    /// Merges the segment of `hash` with its sibling, if they hold few keys. Returns whether it did.
    pub(super) fn merge_once(&self, hash: u64, guard: &Guard) -> bool {
        let Some([zero, _]) = self.sparse_pair(hash, guard) else { return false };
        let Some(merging) = self.merging.try_lock() else {
            self.unmerged.store(true, Relaxed);
            return false;
        };
        let depth = zero.depth() - 1;
        let held = self.stripes.lock_prefix(hash, depth);
        // Another thread may have split or filled one of them meanwhile. From here on nobody does, and nobody changes
        // them.
        let Some(pair) = self.sparse_pair(hash, guard).filter(|pair| pair[0].depth() == depth + 1) else {
            return false;
        };
        let known = pair.iter().map(|half| half.known()).min().unwrap_or_default() + 1;
        let merged = DirEntry::new(self.memory.take(), depth, known.min(FINGERPRINT_BITS));
        if !self.fill_merged(self.segment(merged, guard), pair, guard) {
            recycle(&self.memory, Retired(merged.segment()));
            return false;
        }
        self.repoint_merged(hash, merged, guard);
        let finds = |hash| self.directory(guard).entry(hash) == merged;
        debug_assert!(
            cfg!(loom) || finds(hash) && finds(hash ^ 1 << (63 - depth)),
            "a new guard finds a segment that was merged (hash, invariant 3)"
        );
        self.merges.fetch_add(1, Relaxed);
        drop((held, merging));
        pair.into_iter().for_each(|half| self.retire(half, guard));
        reclaim::collect();
        true
    }

    /// Copies the slots of two siblings to `merged`, which nobody sees yet. Each stays in its bucket, or in the stash,
    /// so that a scan in progress has not passed it. False if a bucket has no room for all of its slots.
    pub(super) fn fill_merged(&self, merged: &Segment, pair: [DirEntry; 2], guard: &Guard) -> bool {
        let halves = pair.map(|half| self.segment(half, guard));
        let word_of = |half: usize, word: u64| {
            let bit = (half as u64) << (FINGERPRINT_SHIFT + FINGERPRINT_BITS - 1);
            word & !FINGERPRINT_MASK & !BUCKET_BIT | bit | (word & FINGERPRINT_MASK) >> 1 & FINGERPRINT_MASK
        };
        let mut taken = 0;
        for (b, bucket) in merged.buckets.iter().enumerate() {
            let mut room = bucket.0.iter();
            let mut overflows = 0;
            for (half, segment) in halves.into_iter().enumerate() {
                let from = &segment.buckets[b].0;
                overflows |= from[1].load(Relaxed) & BUCKET_BIT;
                for word in from.iter().map(|slot| slot.load(Relaxed)).filter(|&word| !Slot(word).is_empty())
                {
                    let Some(slot) = room.next() else { return false };
                    slot.store(word_of(half, word), Relaxed);
                    taken += 1;
                }
            }
            bucket.0[1].store(bucket.0[1].load(Relaxed) | overflows, Relaxed);
        }
        for (half, segment) in halves.into_iter().enumerate() {
            for slot in segment.stashes().flat_map(|stash| &stash.slots) {
                let word = slot.load(Relaxed);
                if !Slot(word).is_empty() {
                    merged.stash(word_of(half, word), Change::Alone);
                    taken += 1;
                }
            }
        }
        merged.count.store(taken, Relaxed);
        true
    }

    /// Makes the directory point to the merged segment; halves the directory when no segment needs its last bit any
    /// more.
    pub(super) fn repoint_merged(&self, hash: u64, merged: DirEntry, guard: &Guard) {
        debug_assert!(
            cfg!(loom) || self.merging.try_lock().is_none(),
            "segments are merged while a checkpoint may be dumped (hash, invariant 4)"
        );
        let _growing = lock(&self.growing);
        let directory = self.directory(guard);
        directory.repoint(hash, merged);
        directory.count_at(merged.depth() + 1, -2);
        if directory.deepest.load(Relaxed) > 0 || directory.depth <= DEPTH_INITIAL {
            return;
        }
        let entries = directory
            .entries
            .chunks_exact(2)
            .map(|entries| AtomicPtr::new(entries[0].load(Relaxed)))
            .collect();
        let halved = Owned::new(Directory::new(directory.depth - 1, entries));
        // AcqRel: pairs with the Acquire in `directory`.
        let old = self.directory.swap(Some(halved), AcqRel, guard);
        // SAFETY: the old directory is unreachable from now on for new guards.
        unsafe { guard.defer_destroy(old) };
    }
}
