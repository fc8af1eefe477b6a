//! Scans and their cursors, and random slots.

use super::*;

impl HashIndex {
    /// Visits the slots at `cursor` (one bucket), and returns the cursor of the next, 0 at the end.
    ///
    /// A cursor says which hashes the scan is at, bucket by bucket. It has three parts: the prefix of these hashes (32
    /// bits), the number of its valid bits (16), and the bucket (16). At bucket 0 the prefix suffices: the number of
    /// bits is 0 then, and means the segment's, or the rest of it. All keys of lower hashes have been visited, and of
    /// these hashes those of lower buckets and of the stash.
    ///
    /// A slot never moves inside its segment, and splits and merges keep its bucket, so every key that stays is visited
    /// at least once. If a segment was split, the scan continues in the first part, and visits the others from bucket
    /// 0. If it was merged, the scan continues with the hashes that it was at, and then with those of the other part,
    /// from bucket 0.
    pub fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        let bucket = cursor as usize & 0xffff;
        let entry = self.entry(cursor, guard);
        let segment = self.segment(entry, guard);
        let begun = match bucket {
            // If the scan enters a merged segment in its middle: as many hashes as a part that begins there may have.
            0 => 64 - (cursor & PREFIX_MASK).trailing_zeros().min(63),
            _ => (cursor >> 16) as u32 & 0xffff,
        };
        let depth = begun.clamp(entry.depth(), DEPTH_MAX);
        let step = 1u64 << (64 - depth);
        let prefix = cursor & !(step - 1);
        // Of a merged segment only the hashes that the scan is at, as far as the fingerprints are known.
        let theirs = match depth - entry.depth() {
            more if more <= entry.known() => FINGERPRINT_MASK & !(FINGERPRINT_MASK >> more),
            _ => 0,
        };
        let want = fingerprint(prefix, entry.depth());
        let mut all = |slots: &[AtomicU64]| {
            for slot in slots {
                let slot = Slot(slot.load(Acquire) & !BUCKET_BIT);
                if !slot.is_empty() && (slot.0 ^ want) & theirs == 0 {
                    visit(slot);
                }
            }
        };
        if bucket == 0 {
            // First: a split may move a key from the stash to a bucket that the scan has passed.
            segment.stashes().for_each(|stash| all(&stash.slots));
        }
        if bucket < BUCKETS {
            all(&segment.buckets[bucket].0);
            return prefix | u64::from(depth) << 16 | (bucket as u64 + 1);
        }
        prefix.checked_add(step).unwrap_or(0)
    }

    /// A cursor as a number that is as small as the index: clients keep it in a double, or in 63 bits. The valid bits
    /// of a prefix are its top ones; they become the lowest, just above the bucket's.
    pub fn cursor_shown(cursor: u64) -> u64 {
        const { assert!(BUCKETS < 256 && DEPTH_MAX < 64) };
        (cursor & PREFIX_MASK).reverse_bits() << 14 | (cursor >> 16 & 0x3f) << 8 | cursor & 0xff
    }

    /// The cursor that a client's number means. Any number is valid.
    pub fn cursor_meant(shown: u64) -> u64 {
        (shown >> 14).reverse_bits() & PREFIX_MASK | (shown >> 8 & 0x3f) << 16 | shown & 0xff
    }

    /// A cursor at a bucket that `random` picks.
    pub fn cursor_at(random: u64) -> u64 {
        random & PREFIX_MASK | bucket_of(random) as u64
    }

    /// A slot that `random` picks, if it is taken, which it mostly is not. All places are equally likely.
    pub fn draw(&self, random: [u64; 2], guard: &Guard) -> Option<Slot> {
        let directory = self.directory(guard);
        let entry = self.entry(random[0], guard);
        // A segment is hit in proportion to its range of hashes. One with twice the range has no more slots: it is
        // skipped every other time.
        let more = directory.depth.saturating_sub(entry.depth()).min(DEPTH_MAX);
        if more > 0 && random[1] >> (64 - more) != 0 {
            return None;
        }
        let segment = self.segment(entry, guard);
        let slots = (SEGMENT_SLOTS + segment.stashes().count() * STASH_SLOTS) as u64;
        let at = (((random[1] & u64::from(u32::MAX)) * slots) >> 32) as usize;
        let word = match segment.buckets.get(at / BUCKET_SLOTS) {
            Some(bucket) => bucket.0[at % BUCKET_SLOTS].load(Acquire),
            None => segment.stashes().flat_map(|stash| &stash.slots).nth(at - SEGMENT_SLOTS)?.load(Acquire),
        };
        Some(Slot(word & !BUCKET_BIT)).filter(|slot| !slot.is_empty())
    }
}
