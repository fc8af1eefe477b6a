//! The hash index: extendible hashing over segments of cache-line buckets.
//!
//! ```text
//! hash: | directory: top `depth` bits | fingerprint: the next 16 |  ...  | secondary: 16 | primary: 16 |
//! ```
//!
//! A directory entry leads to a segment; the segment has `BUCKETS` buckets of 8 slots, one line each.
//! A key lies in its primary bucket, or else in its secondary one, or else in the segment's stash.
//! A slot never moves inside its segment.
//!
//! Growth splits one segment at a time, into two new ones, by the hash bit that follows the segment's
//! depth. That bit is the first of the fingerprint, so a split reads no keys: fingerprints shift by
//! one, and the segment knows one bit of them less. When few are left, that split reads the keys
//! and fills them up again (once in nine).
//!
//! Who may do what:
//!
//! * *Readers* take no lock. They hold an epoch guard from before they read the directory until they
//!   are done with what they found.
//! * *Writers* of a key hold the lock of its primary bucket: bit 63 of the bucket's slot 0. Whoever holds
//!   it may change slots of keys with this primary, wherever they lie, and claim empty slots of other
//!   buckets by compare-and-swap.
//! * *A split* holds the locks of all buckets of its segment, taken in order, and never gives them back:
//!   the old segment is frozen, and who waits for its locks sees `retired` and begins anew.
//! * *A batch* holds several locks, taken in the order of (segment address, bucket). It never waits for
//!   a split while it does: an insertion that finds no room goes to the stash.
//!
//! Invariants:
//! 1. At most one slot holds a key.
//! 2. Bit 63 of slot 1 of a bucket is set when a key with this primary lies elsewhere.
//! 3. A frozen segment never changes again until no guard can see it; a reader that still
//!    reads it sees the state of the moment of the split, which lies within its call.
//! 4. `version` of a segment is at least that of every record on the medium whose key belongs there, live or dead: it
//!    is the last one given out or met by recovery, and a split hands it on. So a record's version is known without
//!    the one it supersedes, and a key that was forgotten begins above what is left of it.

pub(super) mod image;

use super::attached::Attached;
use super::fingerprints;
use super::memory::Memory;
use super::{BUCKET_BIT, FINGERPRINT_BITS, FINGERPRINT_MASK, FINGERPRINT_SHIFT, Keys, LOCATION_MASK, Slot};
use crate::format::Version;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use crate::sync::reclaim::{self, Atomic, Guard, Owned};
use crate::sync::{Arc, Mutex};
use duramen_media::Offset;
use std::ptr::NonNull;

// In a model of `crate::models` a handful of keys must fill a segment.
pub(super) const BUCKET_SLOTS: usize = if cfg!(loom) { 2 } else { 8 };
/// 255 buckets and the segment's own line are 16 KiB.
const BUCKETS: usize = if cfg!(loom) { 2 } else { 255 };
const SEGMENT_SLOTS: usize = BUCKETS * BUCKET_SLOTS;
/// A segment splits when an insertion finds both buckets full and this much is taken. Below, the
/// stash takes the key: then the hash has many equal keys, which a split would not part.
pub(crate) const SPLIT_COUNT_MIN: u32 = (SEGMENT_SLOTS * 7 / 10) as u32;
/// ... or when the stash has this many: with many equal hashes it would have to be searched by all.
const STASH_SLOTS: usize = if cfg!(loom) { 1 } else { 7 };
/// Fingerprint bits that a segment must know at least: 1 probe in 32 of the 8 slots then reads a
/// record in vain.
const KNOWN_BITS_MIN: u32 = 8;
/// Buckets whose keys are fetched ahead while a split reads keys: some 16 misses at a time.
const REFRESH_AHEAD: usize = 3;
const DEPTH_INITIAL: u32 = 1;
/// Directory bits and fingerprint bits must not reach the 16 bits of the primary bucket.
const DEPTH_MAX: u32 = 64 - 16 - FINGERPRINT_BITS;

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct Bucket([AtomicU64; BUCKET_SLOTS]);

#[repr(C, align(64))]
struct Stash {
    slots: [AtomicU64; STASH_SLOTS],
    next: AtomicPtr<Stash>,
}

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Segment {
    count: AtomicU32,
    retired: AtomicBool,
    splitting: AtomicBool,
    stash: AtomicPtr<Stash>,
    /// See invariant 4.
    version: AtomicU64,
    buckets: [Bucket; BUCKETS],
}

const _: () = assert!(cfg!(loom) || size_of::<Segment>() == 16 << 10);
const _: () = assert!(cfg!(loom) || size_of::<Stash>() == 64);

/// A directory entry: bits 0 to 4 known fingerprint bits, 6 to 47 the segment, 56 to 63 its depth. A pointer all
/// the time, not a number, so that Miri can tell what it may reach. With no known bit the segment is still a page of an
/// image, and its number stands in the segment's place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Entry(*mut Segment);

impl Entry {
    fn new(segment: NonNull<Segment>, depth: u32, known: u32) -> Self {
        debug_assert!(segment.addr().get() & !0x0000_ffff_ffff_ffc0 == 0);
        Self(segment.as_ptr().map_addr(|address| address | known as usize | (depth as usize) << 56))
    }

    /// The entry of a segment that is still a page.
    fn unread(page: usize, depth: u32) -> Self {
        Self(std::ptr::without_provenance_mut(page << 6 | (depth as usize) << 56))
    }

    /// The page that holds the segment.
    fn page(self) -> Option<usize> {
        (self.known() == 0).then(|| (self.0.addr() & 0x0000_ffff_ffff_ffc0) >> 6)
    }

    fn segment(self) -> NonNull<Segment> {
        NonNull::new(self.0.map_addr(|address| address & 0x0000_ffff_ffff_ffc0))
            .unwrap_or(NonNull::dangling())
    }

    fn depth(self) -> u32 {
        (self.0.addr() >> 56) as u32
    }

    fn known(self) -> u32 {
        self.0.addr() as u32 & 31
    }
}

struct Directory {
    depth: u32,
    entries: Box<[AtomicPtr<Segment>]>,
}

impl Directory {
    fn entry(&self, hash: u64) -> Entry {
        Entry(self.entries[(hash >> (64 - self.depth)) as usize].load(Acquire))
    }

    /// Makes all entries of the segment of `hash` lead to it.
    fn lead(&self, hash: u64, entry: Entry) {
        let each = self.depth - entry.depth();
        let first = ((hash >> (64 - entry.depth())) as usize) << each;
        for place in &self.entries[first..][..1 << each] {
            // Release: pairs with the Acquire in `entry`; publishes the segment.
            place.store(entry.0, Release);
        }
    }
}

/// What a probe compares: the fingerprint where it lies in a slot, and the bits of it that count.
#[derive(Clone, Copy)]
struct Probe {
    want: u64,
    mask: u64,
    primary: usize,
    hash: u64,
}

impl Probe {
    #[inline]
    fn new(hash: u64, entry: Entry) -> Self {
        let known_mask = FINGERPRINT_MASK & !(FINGERPRINT_MASK >> entry.known());
        Self { want: fingerprint(hash, entry.depth()), mask: known_mask, primary: bucket_of(hash), hash }
    }

    /// Where the key lies if it is not in its primary bucket, which most lookups need not know.
    #[inline]
    fn secondary(self) -> usize {
        let secondary = bucket_of(self.hash >> 16);
        if secondary == self.primary { (secondary + 1) % BUCKETS } else { secondary }
    }

    #[inline]
    fn matches(self, word: u64) -> bool {
        (word ^ self.want) & self.mask == 0 && word & LOCATION_MASK != 0
    }
}

impl Probe {
    /// What `look` says of the slot, if it may be the one.
    #[inline]
    fn look_at<'a, T>(
        self,
        slot: &'a AtomicU64,
        look: &mut impl FnMut(Slot) -> Option<T>,
    ) -> Option<(&'a AtomicU64, T)> {
        // Acquire: pairs with the AcqRel in `claim` and `write`; the record is there.
        let word = slot.load(Acquire);
        if self.matches(word) { Some((slot, look(Slot(word & !BUCKET_BIT))?)) } else { None }
    }
}

/// The 16 hash bits behind the top `depth`, where a slot holds them.
#[inline]
fn fingerprint(hash: u64, depth: u32) -> u64 {
    ((hash << depth) >> (64 - FINGERPRINT_BITS)) << FINGERPRINT_SHIFT
}

#[inline]
fn bucket_of(bits: u64) -> usize {
    (((bits & 0xffff) * BUCKETS as u64) >> 16) as usize
}

impl Bucket {
    /// The slots whose fingerprint is that of `probe`, among them maybe an empty one.
    #[inline]
    fn candidates(&self, probe: Probe) -> impl Iterator<Item = &AtomicU64> {
        let mut matching = fingerprints::matching(&self.0, probe.want, probe.mask);
        std::iter::from_fn(move || {
            let slot = self.0.get(matching.trailing_zeros() as usize)?;
            matching &= matching - 1;
            Some(slot)
        })
    }

    /// The slot of the key of `probe`, if it is here, and no other with its fingerprint before it.
    #[inline]
    fn candidate(&self, probe: Probe) -> Option<Slot> {
        // Acquire: as in `look_at`.
        let mut words = self.candidates(probe).map(|slot| slot.load(Acquire));
        words.find(|&word| probe.matches(word)).map(|word| Slot(word & !BUCKET_BIT))
    }
}

impl Segment {
    fn stashes(&self) -> impl Iterator<Item = &Stash> {
        let mut next = self.stash.load(Acquire);
        std::iter::from_fn(move || {
            // SAFETY: stash lines are freed with their segment only, which the guard keeps.
            let stash = unsafe { next.as_ref() }?;
            next = stash.next.load(Acquire);
            Some(stash)
        })
    }

    /// The place that holds the key of `probe`, and what `look` says of it: it recognises the key.
    #[inline]
    fn find<T>(&self, probe: Probe, mut look: impl FnMut(Slot) -> Option<T>) -> Option<(&AtomicU64, T)> {
        let primary = &self.buckets[probe.primary];
        let found = primary.candidates(probe).find_map(|slot| probe.look_at(slot, &mut look));
        if found.is_some() || primary.0[1].load(Acquire) & BUCKET_BIT == 0 {
            return found;
        }
        self.find_elsewhere(probe, look)
    }

    /// Apart, so that the code of nearly all lookups is short.
    #[inline(never)]
    fn find_elsewhere<T>(
        &self,
        probe: Probe,
        mut look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(&AtomicU64, T)> {
        self.elsewhere(probe).find_map(|slot| probe.look_at(slot, &mut look))
    }

    /// The slots where the key of `probe` may lie when it is not in its primary bucket.
    #[inline]
    fn elsewhere(&self, probe: Probe) -> impl Iterator<Item = &AtomicU64> {
        let secondary = &self.buckets[probe.secondary()];
        secondary.candidates(probe).chain(self.stashes().flat_map(|stash| &stash.slots))
    }

    /// All slots with the fingerprint of `probe` where its key may lie.
    #[inline]
    fn matching(&self, probe: Probe) -> impl Iterator<Item = &AtomicU64> {
        let primary = &self.buckets[probe.primary];
        let overflowed = primary.0[1].load(Acquire) & BUCKET_BIT != 0;
        let elsewhere = overflowed.then(|| self.elsewhere(probe));
        let slots = primary.candidates(probe).chain(elsewhere.into_iter().flatten());
        // Acquire: as in `look_at`.
        slots.filter(move |slot| probe.matches(slot.load(Acquire)))
    }

    /// Puts a slot where there is room; whoever calls holds the primary bucket's lock, or the
    /// segment is not yet shared. Says whether the segment may have to split.
    fn insert(&self, probe: Probe, slot: Slot) -> bool {
        let word = slot.0 & !FINGERPRINT_MASK & !BUCKET_BIT | probe.want;
        self.count.fetch_add(1, Relaxed);
        if claim(&self.buckets[probe.primary].0, word) {
            return false;
        }
        if !planted(Mutant::OverflowNotMarked) {
            self.buckets[probe.primary].0[1].fetch_or(BUCKET_BIT, AcqRel);
        }
        if claim(&self.buckets[probe.secondary()].0, word) {
            return false;
        }
        self.stash(word);
        true
    }

    /// Puts a slot where it does not matter whether there is room.
    fn stash(&self, word: u64) {
        if self.stashes().any(|stash| claim(&stash.slots, word)) {
            return;
        }
        let stash = Box::new(Stash { slots: Default::default(), next: AtomicPtr::default() });
        stash.slots[0].store(word, Relaxed);
        let stash = Box::into_raw(stash);
        let mut head = self.stash.load(Acquire);
        loop {
            // SAFETY: not yet shared; it was just made.
            unsafe { &*stash }.next.store(head, Relaxed);
            // AcqRel: pairs with the Acquire in `stashes`; publishes the line's slot.
            match self.stash.compare_exchange(head, stash, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// Claims an empty slot for `word`.
fn claim(slots: &[AtomicU64], word: u64) -> bool {
    slots.iter().any(|slot| {
        let mut now = slot.load(Relaxed);
        while now & LOCATION_MASK == 0 {
            // AcqRel: pairs with the Acquire in `find`; publishes the record behind the location.
            match slot.compare_exchange(now, word | now & BUCKET_BIT, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        false
    })
}

/// Writes a slot and leaves the bucket's bit as it is.
fn write(slot: &AtomicU64, word: u64) {
    let mut now = slot.load(Relaxed);
    while let Err(other) =
        // AcqRel: pairs with the Acquire in `find`; publishes the record behind the location.
        slot.compare_exchange_weak(now, word & !BUCKET_BIT | now & BUCKET_BIT, AcqRel, Relaxed)
    {
        now = other;
    }
}

/// A place in a locked bucket that holds the key.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    slot: &'a AtomicU64,
}

impl Place<'_> {
    pub(crate) fn get(self) -> Slot {
        Slot(self.slot.load(Acquire) & !BUCKET_BIT)
    }

    /// Changes everything but the fingerprint.
    pub(crate) fn set(self, slot: Slot) {
        let now = self.slot.load(Relaxed);
        write(self.slot, slot.0 & !FINGERPRINT_MASK | now & FINGERPRINT_MASK);
    }
}

/// The lock of a key's primary bucket.
pub(crate) struct Locked<'a> {
    segment: &'a Segment,
    probe: Probe,
    owned: bool,
}

impl<'a> Locked<'a> {
    /// The place of the record that `look` recognises, and what it says of it.
    #[inline]
    pub(crate) fn find_with<T>(&self, look: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'a>, T)> {
        self.segment.find(self.probe, look).map(|(slot, found)| (Place { slot }, found))
    }

    /// The slot whose record `is_key` recognises.
    #[cfg(test)]
    pub(crate) fn find(&self, mut is_key: impl FnMut(Slot) -> bool) -> Option<Place<'a>> {
        self.find_with(|slot| is_key(slot).then_some(())).map(|(place, ())| place)
    }

    /// The slot of a key that is known to have one, if no other has its fingerprint: found without a look at any record.
    #[inline]
    pub(crate) fn find_sole(&self) -> Option<Place<'a>> {
        let mut slots = self.segment.matching(self.probe);
        let slot = slots.next()?;
        slots.next().is_none().then_some(Place { slot })
    }

    /// The version of the key's next record (invariant 4).
    #[inline]
    pub(crate) fn next_version(&self) -> Version {
        // Relaxed: two versions of one key are taken under the same lock.
        Version(self.segment.version.fetch_add(1, Relaxed)).next()
    }

    /// Recovery has met a record of a key with this primary bucket.
    #[inline]
    pub(crate) fn met_version(&self, version: Version) {
        if self.segment.version.load(Relaxed) < version.0 {
            self.segment.version.fetch_max(version.0, Relaxed);
        }
    }

    /// Where the key's record probably lies.
    #[inline]
    pub(crate) fn candidate(&self) -> Option<Offset> {
        self.segment.buckets[self.probe.primary].candidate(self.probe).map(Slot::location)
    }

    /// Adds a key that is not there. Says whether [`HashIndex::split`] should be called, once no lock
    /// is held any more.
    #[must_use]
    pub(crate) fn insert(&self, slot: Slot) -> bool {
        self.segment.insert(self.probe, slot)
    }

    pub(crate) fn remove(&self, place: Place<'_>) {
        write(place.slot, 0);
        self.segment.count.fetch_sub(1, Relaxed);
    }

    /// What orders locks taken together, and tells two keys of one bucket.
    fn order(&self) -> (usize, usize) {
        (std::ptr::from_ref(self.segment) as usize, self.probe.primary)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.owned {
            // Release: pairs with the Acquire in `try_lock` and `is_locked`.
            self.segment.buckets[self.probe.primary].0[0].fetch_and(!BUCKET_BIT, Release);
        }
    }
}

fn try_lock(bucket: &Bucket) -> bool {
    if planted(Mutant::BucketNotLocked) {
        return true;
    }
    let now = bucket.0[0].load(Relaxed);
    now & BUCKET_BIT == 0 && bucket.0[0].compare_exchange(now, now | BUCKET_BIT, Acquire, Relaxed).is_ok()
}

/// Spins, then lets others run: the holder may not be on a CPU.
#[derive(Default)]
pub(crate) struct Backoff(u32);

impl Backoff {
    /// Whether nothing was waited for yet. Never in a model, which need not try what nothing depends on.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        !cfg!(loom) && self.0 == 0
    }

    #[inline]
    pub(crate) fn wait(&mut self) {
        self.0 += 1;
        if self.0 < 64 {
            crate::sync::hint::spin_loop();
        } else {
            crate::sync::thread::yield_now();
        }
    }
}

pub(crate) struct HashIndex {
    directory: Atomic<Directory>,
    /// Held while the directory changes.
    growing: Mutex<()>,
    memory: Arc<Memory<Segment>>,
    split_count_min: u32,
    splits: AtomicU64,
    /// The image that the index was attached to, if it was.
    attached: Option<Attached>,
}

impl HashIndex {
    pub(crate) fn new() -> Self {
        let memory = Arc::new(Memory::default());
        let entries = (0..1 << DEPTH_INITIAL)
            .map(|_| AtomicPtr::new(Entry::new(memory.take(), DEPTH_INITIAL, FINGERPRINT_BITS).0))
            .collect();
        Self {
            directory: Atomic::new(Directory { depth: DEPTH_INITIAL, entries }),
            growing: Mutex::new(()),
            memory,
            split_count_min: SPLIT_COUNT_MIN,
            splits: AtomicU64::new(0),
            attached: None,
        }
    }

    /// The same, but segments with this many keys may split.
    pub(crate) fn splitting_at(mut self, split_count_min: u32) -> Self {
        self.split_count_min = split_count_min;
        self
    }

    /// Makes an index that is empty ready for this many keys: as many segments as it would have grown to, which know all
    /// bits of their fingerprints.
    pub(crate) fn reserve(&mut self, keys: u64) {
        let segments = keys.div_ceil(self.split_count_min.max(1).into()).next_power_of_two();
        let depth = segments.ilog2().min(DEPTH_MAX);
        if depth <= DEPTH_INITIAL {
            return;
        }
        for hash in [0, 1 << 63] {
            let segment = self.entry(hash, &reclaim::pin()).segment();
            self.memory.give(segment);
        }
        let entries = (0..1u64 << depth)
            .map(|_| AtomicPtr::new(Entry::new(self.memory.take(), depth, FINGERPRINT_BITS).0))
            .collect();
        self.begin_with(Directory { depth, entries });
    }

    /// How many segments were split, and how often the directory doubled.
    pub(crate) fn grown(&self, guard: &Guard) -> (u64, u32) {
        (self.splits.load(Relaxed), self.directory(guard).depth - DEPTH_INITIAL)
    }

    /// Bytes of DRAM that the index takes.
    pub(crate) fn bytes(&self, guard: &Guard) -> u64 {
        self.memory.bytes() + self.directory(guard).entries.len() as u64 * 8
    }

    #[inline]
    fn directory<'g>(&self, guard: &'g Guard) -> &'g Directory {
        // SAFETY: the directory is never null, and a replaced one lives while the guard does.
        unsafe { self.directory.load(Acquire, guard).deref() }
    }

    #[inline]
    fn entry(&self, hash: u64, guard: &Guard) -> Entry {
        let entry = self.directory(guard).entry(hash);
        if entry.page().is_none() { entry } else { self.read_page(hash, guard) }
    }

    #[inline]
    fn segment<'g>(&self, entry: Entry, _guard: &'g Guard) -> &'g Segment {
        // SAFETY: entries lead to segments of `memory`, which outlives the guard's borrower; a
        // retired segment is recycled only when no guard can see it (invariant 3).
        unsafe { entry.segment().as_ref() }
    }

    /// Hints that the bucket of `hash` is read soon.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, guard: &Guard) {
        let entry = self.entry(hash, guard);
        super::prefetch(&self.segment(entry, guard).buckets[bucket_of(hash)]);
    }

    /// Hints that a key of `hash` is inserted soon: more often than not into a bucket that is full.
    #[inline]
    pub(crate) fn prefetch_insert(&self, hash: u64, guard: &Guard) {
        let entry = self.entry(hash, guard);
        let (segment, probe) = (self.segment(entry, guard), Probe::new(hash, entry));
        super::prefetch(&segment.version);
        super::prefetch(&segment.buckets[probe.primary]);
        super::prefetch(&segment.buckets[probe.secondary()]);
    }

    /// The slot of the key that `look` recognises and what it says of it, without a lock. What was looked at is what
    /// is returned, even if the slot changes meanwhile.
    #[inline]
    pub(crate) fn find_with<T>(
        &self,
        hash: u64,
        guard: &Guard,
        mut look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        let entry = self.entry(hash, guard);
        let segment = self.segment(entry, guard);
        segment.find(Probe::new(hash, entry), |slot| Some((slot, look(slot)?))).map(|(_, found)| found)
    }

    /// The slot of the key that `is_key` recognises, without a lock.
    #[cfg(test)]
    pub(crate) fn find(
        &self,
        hash: u64,
        guard: &Guard,
        mut is_key: impl FnMut(Slot) -> bool,
    ) -> Option<Slot> {
        self.find_with(hash, guard, |slot| is_key(slot).then_some(())).map(|(slot, ())| slot)
    }

    /// The likeliest slot of a key of `hash`. If the record that it leads to is of that key, it was the key's when it was read.
    #[inline]
    pub(crate) fn candidate(&self, hash: u64, guard: &Guard) -> Option<Slot> {
        let entry = self.entry(hash, guard);
        let probe = Probe::new(hash, entry);
        let bucket = &self.segment(entry, guard).buckets[probe.primary];
        bucket.candidate(probe)
    }

    /// Locks the bucket of `hash`.
    #[inline]
    pub(crate) fn lock<'g>(&self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        let mut backoff = Backoff::default();
        loop {
            let entry = self.entry(hash, guard);
            let segment = self.segment(entry, guard);
            let probe = Probe::new(hash, entry);
            // A frozen segment's locks are never given back, so taking one shows that it lives.
            if try_lock(&segment.buckets[probe.primary]) {
                return Locked { segment, probe, owned: true };
            }
            backoff.wait();
        }
    }

    /// Whether somebody holds the lock of the bucket of `hash`, or splits its segment.
    #[inline]
    pub(crate) fn is_locked(&self, hash: u64, guard: &Guard) -> bool {
        let segment = self.segment(self.entry(hash, guard), guard);
        segment.buckets[bucket_of(hash)].0[0].load(Acquire) & BUCKET_BIT != 0
    }

    /// Locks the buckets of all `hashes`; two keys of one bucket share its lock. The result is in the
    /// order of `hashes`.
    pub(crate) fn lock_all<'g>(&self, hashes: &[u64], guard: &'g Guard) -> Vec<Locked<'g>> {
        let mut backoff = Backoff::default();
        'again: loop {
            let mut locked: Vec<Locked<'g>> = hashes
                .iter()
                .map(|&hash| {
                    let entry = self.entry(hash, guard);
                    Locked {
                        segment: self.segment(entry, guard),
                        probe: Probe::new(hash, entry),
                        owned: false,
                    }
                })
                .collect();
            let mut order: Vec<usize> = (0..locked.len()).collect();
            order.sort_by_key(|&i| locked[i].order());
            for at in 0..order.len() {
                let i = order[at];
                if at > 0 && locked[order[at - 1]].order() == locked[i].order() {
                    continue;
                }
                while !try_lock(&locked[i].segment.buckets[locked[i].probe.primary]) {
                    if locked[i].segment.retired.load(Acquire) && !planted(Mutant::BatchKeepsFrozenLock) {
                        // Split meanwhile: give all back and look again.
                        drop(locked);
                        backoff.wait();
                        continue 'again;
                    }
                    backoff.wait();
                }
                locked[i].owned = true;
            }
            return locked;
        }
    }

    /// Splits the segment of `hash`, if it is still crowded and nobody else does. No lock may be held.
    pub(crate) fn split(&self, hash: u64, keys: &impl Keys, guard: &Guard) {
        let entry = self.entry(hash, guard);
        let segment = self.segment(entry, guard);
        let depth = entry.depth();
        if segment.count.load(Relaxed) < self.split_count_min
            || depth >= DEPTH_MAX
            || segment.splitting.swap(true, AcqRel)
        {
            return;
        }
        for bucket in &segment.buckets {
            let mut backoff = Backoff::default();
            while !planted(Mutant::SplitWithoutLocks) && !try_lock(bucket) {
                backoff.wait();
            }
        }
        // From here on nobody changes the segment.
        let known = if entry.known() <= KNOWN_BITS_MIN { FINGERPRINT_BITS } else { entry.known() - 1 };
        let refresh = known == FINGERPRINT_BITS;
        let halves = [self.memory.take(), self.memory.take()];
        let halves = halves.map(|half| Entry::new(half, depth + 1, known));
        for half in halves.iter().filter(|_| !planted(Mutant::SplitForgetsVersions)) {
            self.segment(*half, guard).version.store(segment.version.load(Relaxed), Relaxed);
        }
        let half_bit = 1 << (FINGERPRINT_SHIFT + FINGERPRINT_BITS - 1);
        if planted(Mutant::SplitPublishedFirst) {
            self.replace(hash, depth, halves, guard);
        }
        for (b, bucket) in segment.buckets.iter().enumerate() {
            if refresh && let Some(ahead) = segment.buckets.get(b + REFRESH_AHEAD) {
                for slot in
                    ahead.0.iter().map(|slot| Slot(slot.load(Relaxed))).filter(|slot| !slot.is_empty())
                {
                    keys.prefetch_at(slot.location());
                }
            }
            for (s, slot) in bucket.0.iter().enumerate() {
                let word = slot.load(Relaxed);
                if s == 1 && word & BUCKET_BIT != 0 {
                    for half in halves {
                        self.segment(half, guard).buckets[b].0[1].fetch_or(BUCKET_BIT, Relaxed);
                    }
                }
                if word & LOCATION_MASK == 0 {
                    continue;
                }
                let half = self.segment(halves[usize::from(word & half_bit != 0)], guard);
                let fingerprint = if refresh {
                    fingerprint(keys.hash_at(Slot(word).location()), depth + 1)
                } else {
                    (word << 1) & FINGERPRINT_MASK
                };
                let target = &half.buckets[b].0[s];
                let bit = target.load(Relaxed) & BUCKET_BIT;
                target.store(word & !FINGERPRINT_MASK & !BUCKET_BIT | fingerprint | bit, Relaxed);
                half.count.fetch_add(1, Relaxed);
            }
        }
        for stash in segment.stashes() {
            for slot in &stash.slots {
                let slot = Slot(slot.load(Relaxed));
                if !slot.is_empty() {
                    let hash = keys.hash_at(slot.location());
                    let half = halves[usize::from(hash << depth >> 63 != 0)];
                    let _ = self.segment(half, guard).insert(Probe::new(hash, half), slot);
                }
            }
        }
        if !planted(Mutant::SplitPublishedFirst) {
            self.replace(hash, depth, halves, guard);
        }
        self.splits.fetch_add(1, Relaxed);
        // Release: pairs with the Acquire in `lock_all`; the directory already leads elsewhere.
        segment.retired.store(true, Release);
        let (memory, old) = (Arc::clone(&self.memory), Frozen(entry.segment()));
        if planted(Mutant::SegmentReusedAtOnce) {
            recycle(&memory, old);
        } else {
            guard.defer(move || recycle(&memory, old));
        }
        reclaim::collect();
    }

    /// Makes the directory lead to `halves` instead of the segment of `hash` at `depth`.
    fn replace(&self, hash: u64, depth: u32, halves: [Entry; 2], guard: &Guard) {
        let _growing = self.growing.lock().unwrap_or_else(crate::sync::PoisonError::into_inner);
        let mut directory = self.directory(guard);
        if directory.depth == depth {
            let entries =
                directory.entries.iter().flat_map(|e| [e.load(Relaxed), e.load(Relaxed)]).map(AtomicPtr::new);
            let doubled = Owned::new(Directory { depth: depth + 1, entries: entries.collect() });
            // AcqRel: pairs with the Acquire in `directory`.
            let old = self.directory.swap(Some(doubled), AcqRel, guard);
            // SAFETY: the old directory is unreachable from now on for new guards.
            unsafe { guard.defer_destroy(old) };
            directory = self.directory(guard);
        }
        let bit = 1 << (63 - depth);
        for (half, hash) in halves.into_iter().zip([hash & !bit, hash | bit]) {
            directory.lead(hash, half);
        }
    }

    /// Visits the slots at `cursor` (one bucket), and returns the cursor of the next, 0 at the end.
    ///
    /// A cursor is a hash prefix (48 bits) and a bucket (16 bits). A slot never moves inside its segment,
    /// and a split keeps its bucket, so every key that stays is visited at least once.
    pub(crate) fn scan(&self, cursor: u64, guard: &Guard, visit: &mut dyn FnMut(Slot)) -> u64 {
        let (prefix, bucket) = (cursor & !0xffff, cursor as usize & 0xffff);
        let entry = self.entry(prefix, guard);
        let segment = self.segment(entry, guard);
        let mut all = |slots: &[AtomicU64]| {
            for slot in slots {
                let slot = Slot(slot.load(Acquire) & !BUCKET_BIT);
                if !slot.is_empty() {
                    visit(slot);
                }
            }
        };
        if bucket == 0 {
            // First: a split may move a key from the stash to a bucket, which must not be behind us.
            segment.stashes().for_each(|stash| all(&stash.slots));
        }
        if bucket < BUCKETS {
            all(&segment.buckets[bucket].0);
            return prefix | (bucket as u64 + 1);
        }
        let step = 1u64 << (64 - entry.depth());
        (prefix & !(step - 1)).checked_add(step).unwrap_or(0)
    }

    /// Whether a scan that has come to `cursor` is between two segments, or at the end.
    pub(crate) fn begins_segment(cursor: u64) -> bool {
        cursor & 0xffff == 0
    }

    /// A cursor at a bucket that `random` picks.
    pub(crate) fn cursor_at(random: u64) -> u64 {
        random & !0xffff | bucket_of(random) as u64
    }
}

/// A segment that was split, on its way to be emptied.
struct Frozen(NonNull<Segment>);

// SAFETY: a segment is made of atomics, and it lies in memory that the index shares.
unsafe impl Send for Frozen {}

/// Empties a segment that nobody can see any more and hands it back.
fn recycle(memory: &Memory<Segment>, Frozen(pointer): Frozen) {
    // SAFETY: the segment lies in `memory` (its invariant 1), and no guard can see it any more.
    let segment = unsafe { pointer.as_ref() };
    free_stashes(segment);
    for slot in segment.buckets.iter().flat_map(|bucket| &bucket.0) {
        slot.store(0, Relaxed);
    }
    segment.count.store(0, Relaxed);
    segment.version.store(0, Relaxed);
    segment.retired.store(false, Relaxed);
    segment.splitting.store(false, Relaxed);
    memory.give(pointer);
}

fn free_stashes(segment: &Segment) {
    let mut next = segment.stash.swap(std::ptr::null_mut(), AcqRel);
    while !next.is_null() {
        // SAFETY: made by `Box::into_raw` in `insert`, and unreachable now.
        let stash = unsafe { Box::from_raw(next) };
        next = stash.next.load(Relaxed);
    }
}

impl Drop for HashIndex {
    fn drop(&mut self) {
        let guard = reclaim::pin();
        let directory = self.directory.swap(None, AcqRel, &guard);
        // SAFETY: `&mut self`: nobody else reads the directory, and it is not null.
        let directory = unsafe { directory.into_owned() };
        let mut last = None;
        for entry in &directory.entries {
            let entry = Entry(entry.load(Relaxed));
            if last != Some(entry) && entry.page().is_none() {
                free_stashes(self.segment(entry, &guard));
            }
            last = Some(entry);
        }
        // What was retired holds our memory.
        drop(guard);
        reclaim::collect();
    }
}
