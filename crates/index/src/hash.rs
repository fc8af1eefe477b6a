//! The hash index: extendible hashing over segments of cache-line buckets.
//!
//! ```text
//! hash: | directory: top `depth` bits | fingerprint: the next 16 |  ...  | secondary: 16 | primary: 16 |
//! ```
//!
//! A directory entry points to a segment; the segment has `BUCKETS` buckets of 8 slots, one line each. A key lies in
//! its primary bucket, or else in its secondary one, or else in the segment's stash. A slot never moves inside its
//! segment.
//!
//! Growth splits one segment at a time, into two new ones, by the hash bit that follows the segment's depth. That bit
//! is the first of the fingerprint, so a split reads no keys. Fingerprints shift by one, and the segment knows one bit
//! of them less. When few bits are left, a split reads the keys and computes full fingerprints again (once in nine).
//!
//! Shrinking is the reverse: a removal that leaves few keys in a segment and its sibling merges the two into a new one.
//! The bit that separated them becomes the first of the fingerprints again, so a merge reads no keys either, and each
//! slot keeps its bucket. Few is a quarter of a segment: many keys must come before it splits again, and many must go
//! before its halves are merged. The directory halves when no segment needs its last bit.
//!
//! Rules for threads:
//!
//! * *Readers* take no lock. They hold an epoch guard from before they read the directory until they no longer use the
//!   result.
//! * *Writers* of a key hold its stripe ([`super::stripes`]), from before they look up the segment. The holder may
//!   change slots of the stripe's keys, wherever they lie, and claim empty slots. While there are few segments, the
//!   keys of several stripes share the buckets of a segment; then slots are changed by compare-and-swap. From a certain
//!   depth on a segment belongs to one stripe, and only the stripe's holder changes it ([`Change`]).
//! * *A split* holds all stripes whose keys the segment has, *a merge* those of both. So nobody changes the segments
//!   meanwhile, and a waiting thread finds their replacements. The holder of a stripe may rely on its segments; a
//!   thread that read an entry before must read it again.
//! * *A holder of several stripes* never waits for a split: an insertion that finds no room goes to the stash. The
//!   segment is split at once if no other thread holds a stripe of it ([`HashIndex::try_split`]), or else when the
//!   stripes are released.
//!
//! Invariants:
//! 1. At most one slot holds a key.
//! 2. Bit 63 of slot 1 of a bucket is set when a key with this primary lies elsewhere.
//! 3. A segment that was split or merged never changes again until no guard can see it. A reader that still reads it
//!    sees the state of that moment, which lies within its call.
//! 4. Nothing is merged while a checkpoint is dumped: its pages must follow each other without a gap or an overlap.

pub(super) mod checkpoint;
mod merge;
mod scan;

use super::attached::Attached;
use super::fingerprints::{BUCKET_SLOTS, High};
use super::memory::{Memory, Piece};
use super::stripes::{LockedStripe, Stripes};
use super::{BUCKET_BIT, FINGERPRINT_BITS, FINGERPRINT_MASK, FINGERPRINT_SHIFT, Keys, LOCATION_MASK, Slot};
use crate::numbers::Numbers;
use duramen_log::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};
use duramen_log::sync::reclaim::{self, Atomic, Guard, Owned};
use duramen_log::sync::{Arc, Mutex, lock, rank};
use std::cell::Cell;
use std::ptr::NonNull;

/// 255 buckets and the segment's own line are 16 KiB.
const BUCKETS: usize = if cfg!(loom) { 2 } else { 255 };
const SEGMENT_SLOTS: usize = BUCKETS * BUCKET_SLOTS;
/// A segment splits when an insertion finds both buckets full and this many slots are taken. With fewer, the stash
/// takes the key: then many keys have equal hashes, which a split would not separate.
pub const SPLIT_COUNT_MIN: u32 = (SEGMENT_SLOTS * 7 / 10) as u32;
/// ... or when the stash has this many: with many equal hashes every lookup would have to search it.
const STASH_SLOTS: usize = if cfg!(loom) { 1 } else { 7 };
/// Fingerprint bits that a segment must know at least: 1 probe in 32 of the 8 slots then reads a record needlessly.
const KNOWN_BITS_MIN: u32 = 8;
/// Buckets whose keys are fetched ahead while a split reads keys: some 16 misses at a time.
const REFRESH_AHEAD: usize = 3;
const DEPTH_INITIAL: u32 = 1;
/// Two segments are merged when they have at most this share of the keys with which one may split: a quarter of its
/// slots. By then a bucket of eight overflows in one pair of twenty; such a pair waits for further removals.
const MERGE_SHARE: (u32, u32) = (5, 14);
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

impl Stash {
    #[inline]
    fn behind(link: &AtomicPtr<Self>) -> Option<&Self> {
        // SAFETY: stash lines are freed with their segment only, which the holder of the link keeps.
        unsafe { link.load(Acquire).as_ref() }
    }
}

impl Piece for Segment {}

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub(super) struct Segment {
    count: AtomicU32,
    stash: AtomicPtr<Stash>,
    buckets: [Bucket; BUCKETS],
}

const _: () = assert!(cfg!(loom) || size_of::<Segment>() == 16 << 10);
const _: () = assert!(cfg!(loom) || size_of::<Stash>() == 64);

/// A directory entry: bits 0 to 4 known fingerprint bits, 6 to 47 the segment, 56 to 63 its depth. It always is a
/// pointer, not a number, so that Miri knows what it may reach. With no known bits the segment is still a page of a
/// checkpoint, and the page's number takes the segment's place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DirEntry(*mut Segment);

impl DirEntry {
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
        NonNull::new(self.place()).unwrap_or(NonNull::dangling())
    }

    /// The same, of an entry that is not a page.
    #[inline]
    fn place(self) -> *mut Segment {
        self.0.map_addr(|address| address & 0x0000_ffff_ffff_ffc0)
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
    /// Segments whose depth is the directory's. Changed while `growing` is held.
    deepest: AtomicU64,
}

impl Directory {
    fn new(depth: u32, entries: Box<[AtomicPtr<Segment>]>) -> Self {
        let is_deepest = |entry: &&AtomicPtr<Segment>| DirEntry(entry.load(Relaxed)).depth() == depth;
        let deepest = AtomicU64::new(entries.iter().filter(is_deepest).count() as u64);
        Self { depth, entries, deepest }
    }

    /// Adds to the number of segments of this depth.
    fn count_at(&self, depth: u32, more: i64) {
        if depth == self.depth {
            self.deepest.store(self.deepest.load(Relaxed).wrapping_add_signed(more), Relaxed);
        }
    }

    fn entry(&self, hash: u64) -> DirEntry {
        DirEntry(self.entries[(hash >> (64 - self.depth)) as usize].load(Acquire))
    }

    /// Makes all entries of the segment of `hash` point to it.
    fn repoint(&self, hash: u64, entry: DirEntry) {
        let each = self.depth - entry.depth();
        let first = ((hash >> (64 - entry.depth())) as usize) << each;
        for place in &self.entries[first..][..1 << each] {
            // Release: pairs with the Acquire in `entry`; publishes the segment.
            place.store(entry.0, Release);
        }
    }
}

/// How a thread changes words of a segment that others may read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// No other thread changes any: stores. They cost no fence, which would wait until all earlier stores had left the
    /// CPU.
    Alone,
    /// Holders of other stripes change theirs concurrently.
    Shared,
}

impl Change {
    /// For a holder of one of the stripes, in a segment of this depth.
    #[inline]
    fn at_depth(depth: u32, stripes: &Stripes) -> Self {
        let alone = depth >= stripes.bits();
        if alone { Self::Alone } else { Self::Shared }
    }

    /// Replaces a slot's word by `change` of it, unless that returns `None`. Returns whether it did.
    #[inline]
    fn slot(self, slot: &AtomicU64, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
        let mut now = slot.load(Relaxed);
        while let Some(word) = change(now) {
            if self == Self::Alone {
                // Release: pairs with the Acquire in `look_at`; publishes the record at the location.
                slot.store(word, Release);
                reclaim::published();
                return true;
            }
            // AcqRel: the same.
            match slot.compare_exchange_weak(now, word, AcqRel, Relaxed) {
                Ok(_) => {
                    // Elsewhere than on x86-64 an exchange is no fence: a load with Acquire may pass it.
                    if !cfg!(target_arch = "x86_64") {
                        reclaim::published()
                    }
                    return true;
                }
                Err(other) => now = other,
            }
        }
        false
    }
}

/// A key to look for, and its segment. Two words: a larger value would be passed through memory, and wait there for
/// earlier stores.
#[derive(Clone, Copy)]
struct Probe {
    hash: u64,
    entry: DirEntry,
}

impl Probe {
    /// The fingerprint where it lies in a slot.
    #[inline]
    fn want(self) -> u64 {
        fingerprint(self.hash, self.entry.depth())
    }

    /// The bits of the fingerprint that count.
    #[inline]
    fn mask(self) -> u64 {
        FINGERPRINT_MASK & !(FINGERPRINT_MASK >> self.entry.known())
    }

    #[inline]
    fn primary(self) -> usize {
        bucket_of(self.hash)
    }

    /// The bucket of a key that is not in its primary bucket; most lookups do not need it.
    #[inline]
    fn secondary(self) -> usize {
        let secondary = bucket_of(self.hash >> 16);
        if secondary == self.primary() { (secondary + 1) % BUCKETS } else { secondary }
    }

    #[inline]
    fn matches(self, word: u64) -> bool {
        (word ^ self.want()) & self.mask() == 0 && word & LOCATION_MASK != 0
    }
}

impl Probe {
    /// The result of `look` for the slot, if the slot may be the key's.
    #[inline(always)]
    fn look_at<'a, T>(
        self,
        slot: &'a AtomicU64,
        look: &mut impl FnMut(&'a AtomicU64, Slot) -> Option<T>,
    ) -> Option<T> {
        // Acquire: pairs with the Release in `Change::slot`; the record is there.
        let word = slot.load(Acquire);
        if self.matches(word) { look(slot, Slot(word & !BUCKET_BIT)) } else { None }
    }
}

/// The 16 hash bits after the top `depth`, where a slot holds them.
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
        self.these(High::of(&self.0).matching(probe.want(), probe.mask()))
    }

    /// The slots of these bits.
    #[inline]
    fn these(&self, mut which: u32) -> impl Iterator<Item = &AtomicU64> {
        std::iter::from_fn(move || {
            let slot = self.0.get(which.trailing_zeros() as usize)?;
            which &= which - 1;
            Some(slot)
        })
    }

    /// The slot of the key of `probe`, if it is here and no other slot before it has its fingerprint.
    #[inline]
    fn candidate(&self, probe: Probe) -> Option<Slot> {
        // Acquire: as in `look_at`.
        let mut words = self.candidates(probe).map(|slot| slot.load(Acquire));
        words.find(|&word| probe.matches(word)).map(|word| Slot(word & !BUCKET_BIT))
    }
}

impl Segment {
    fn stashes(&self) -> impl Iterator<Item = &Stash> {
        let mut link = &self.stash;
        std::iter::from_fn(move || {
            let stash = Stash::behind(link)?;
            link = &stash.next;
            Some(stash)
        })
    }

    /// The place of the key of `probe`, which `look` recognises, and the result of `look`.
    #[inline]
    fn find<T>(&self, probe: Probe, look: impl FnMut(Slot) -> Option<T>) -> Option<(&AtomicU64, T)> {
        self.find_or_room(probe, look, |_| ())
    }

    /// The same; also sets `room` to the slots of the primary bucket that are probably empty.
    #[inline(always)]
    fn find_or_room<T>(
        &self,
        probe: Probe,
        mut look: impl FnMut(Slot) -> Option<T>,
        room: impl FnOnce(u32),
    ) -> Option<(&AtomicU64, T)> {
        self.each_candidate(probe, room, |place, slot| Some((place, look(slot)?)))
    }

    /// Calls `look` for each slot that may be the key's, until it returns something.
    #[inline(always)]
    fn each_candidate<'a, T>(
        &'a self,
        probe: Probe,
        room: impl FnOnce(u32),
        mut look: impl FnMut(&'a AtomicU64, Slot) -> Option<T>,
    ) -> Option<T> {
        let primary = &self.buckets[probe.primary()];
        let words = High::of(&primary.0);
        room(empty(words));
        let (mut line, mut which) = (&primary.0[..], words.matching(probe.want(), probe.mask()));
        let mut stash = None;
        // `look` is called at one place, so that it is inlined there and its data stays in registers.
        loop {
            while let Some(slot) = line.get(which.trailing_zeros() as usize) {
                which &= which - 1;
                let found = probe.look_at(slot, &mut look);
                if found.is_some() {
                    return found;
                }
            }
            if primary.0[1].load(Acquire) & BUCKET_BIT == 0 {
                return None;
            }
            (line, which) = self.line_elsewhere(probe, &mut stash)?;
        }
    }

    /// The next line outside the primary bucket where the key of `probe` may lie, and those of its slots that may hold
    /// the key. From the second call on, `stash` points to the line after it. Not inlined, so that the code of nearly
    /// all lookups is short.
    #[inline(never)]
    fn line_elsewhere<'a>(
        &'a self,
        probe: Probe,
        stash: &mut Option<&'a AtomicPtr<Stash>>,
    ) -> Option<(&'a [AtomicU64], u32)> {
        let Some(link) = stash else {
            *stash = Some(&self.stash);
            let slots = &self.buckets[probe.secondary()].0;
            return Some((slots, High::of(slots).matching(probe.want(), probe.mask())));
        };
        let line = Stash::behind(link)?;
        *link = &line.next;
        Some((&line.slots, (1 << STASH_SLOTS) - 1))
    }

    /// Puts a slot where there is room, in the primary bucket into a slot of `room`. The caller holds the key's stripe,
    /// or the segment is not yet shared. Returns whether the segment may have to split.
    #[inline]
    fn insert(&self, probe: Probe, slot: Slot, change: Change, room: u32) -> bool {
        let word = slot.0 & !FINGERPRINT_MASK & !BUCKET_BIT | probe.want();
        self.count_add(1, change);
        let primary = &self.buckets[probe.primary()];
        if claim(primary.these(room), word, change) {
            return false;
        }
        self.insert_elsewhere(probe, word, change)
    }

    #[inline(never)]
    fn insert_elsewhere(&self, probe: Probe, word: u64, change: Change) -> bool {
        let primary = &self.buckets[probe.primary()];
        let unmarked = |now| (now & BUCKET_BIT == 0).then_some(now | BUCKET_BIT);
        change.slot(&primary.0[1], unmarked);
        debug_assert!(
            cfg!(loom) || primary.0[1].load(Relaxed) & BUCKET_BIT != 0,
            "a key lies elsewhere, and its primary bucket is not marked (invariant 2)"
        );
        let secondary = &self.buckets[probe.secondary()];
        if claim(secondary.these(empty(High::of(&secondary.0))), word, change) {
            return false;
        }
        self.stash(word, change);
        true
    }

    fn count_add(&self, more: i32, change: Change) {
        match change {
            Change::Alone => self.count.store(self.count.load(Relaxed).wrapping_add_signed(more), Relaxed),
            Change::Shared => {
                self.count.fetch_add(more as u32, Relaxed);
            }
        }
    }

    /// Puts a slot into the stash, which always has room.
    #[cold]
    fn stash(&self, word: u64, change: Change) {
        if self.stashes().any(|stash| claim(stash.slots.iter(), word, change)) {
            return;
        }
        let stash = Box::new(Stash { slots: Default::default(), next: AtomicPtr::default() });
        stash.slots[0].store(word, Relaxed);
        let stash = Box::into_raw(stash);
        let mut head = self.stash.load(Acquire);
        loop {
            // SAFETY: it was just made, and is not yet shared.
            unsafe { &*stash }.next.store(head, Relaxed);
            // AcqRel: pairs with the Acquire in `stashes`; publishes the line's slot.
            match self.stash.compare_exchange(head, stash, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// The slots, as bits, that are probably empty: nothing but the bucket's bit is set in the high half of the word.
#[inline]
fn empty(words: High) -> u32 {
    words.matching(0, !BUCKET_BIT & u64::from(u32::MAX) << 32)
}

/// Claims the first empty slot for `word`.
#[inline]
fn claim<'a>(mut slots: impl Iterator<Item = &'a AtomicU64>, word: u64, change: Change) -> bool {
    let claimed = |now| (now & LOCATION_MASK == 0).then_some(word | now & BUCKET_BIT);
    slots.any(|slot| change.slot(slot, claimed))
}

/// The slot of a locked key.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    slot: &'a AtomicU64,
    change: Change,
}

impl Place<'_> {
    pub fn get(self) -> Slot {
        Slot(self.slot.load(Acquire) & !BUCKET_BIT)
    }

    /// Changes everything but the fingerprint.
    pub fn set(self, slot: Slot) {
        const KEPT: u64 = FINGERPRINT_MASK | BUCKET_BIT;
        self.change.slot(self.slot, |now| Some(slot.0 & !KEPT | now & KEPT));
    }
}

/// The lock of a key's stripe, and the place where the key belongs.
pub struct Locked<'a> {
    held: LockedStripe<'a>,
    segment: &'a Segment,
    probe: Probe,
    /// How the segment is changed.
    change: Change,
    /// The empty slots of its primary bucket when the key was looked for. Nobody else adds the key meanwhile, so slots
    /// that became free since may be passed over.
    room: Cell<u32>,
}

impl<'a> Locked<'a> {
    /// The place of the record that `look` recognises, and the result of `look`.
    #[inline]
    pub fn find_with<T>(&self, look: impl FnMut(Slot) -> Option<T>) -> Option<(Place<'a>, T)> {
        let found = self.segment.find_or_room(self.probe, look, |room| self.room.set(room));
        found.map(|(slot, found)| (self.place(slot), found))
    }

    /// The slot whose record `is_key` recognises.
    #[cfg(any(test, loom))]
    pub fn find(&self, mut is_key: impl FnMut(Slot) -> bool) -> Option<Place<'a>> {
        self.find_with(|slot| is_key(slot).then_some(())).map(|(place, ())| place)
    }

    #[inline(always)]
    pub fn held(&self) -> &LockedStripe<'a> {
        &self.held
    }

    /// The slot of a key that is known to have one, if no other has its fingerprint: found without reading any record.
    #[inline]
    pub fn find_sole(&self) -> Option<Place<'a>> {
        let mut first = None;
        let second =
            self.segment.each_candidate(self.probe, |_| (), |slot, _| first.replace(slot).map(|_| ()));
        if second.is_some() { None } else { first.map(|slot| self.place(slot)) }
    }

    #[inline]
    fn place(&self, slot: &'a AtomicU64) -> Place<'a> {
        Place { slot, change: self.change }
    }

    /// Adds a key that was looked for and is absent. Returns whether [`HashIndex::split`] should be called, once no
    /// lock is held any more.
    #[inline(always)]
    #[must_use]
    pub fn insert(&self, slot: Slot) -> bool {
        let is_it = |other: Slot| (other.location() == slot.location()).then_some(());
        debug_assert!(
            cfg!(loom) || self.segment.find(self.probe, is_it).is_none(),
            "a second slot for the record at {:?} (invariant 1)",
            slot.location()
        );
        self.segment.insert(self.probe, slot, self.change, self.room.get())
    }

    pub fn remove(&self, place: Place<'_>) {
        place.change.slot(place.slot, |now| Some(now & BUCKET_BIT));
        self.segment.count_add(-1, place.change);
    }
}

pub struct HashIndex {
    directory: Atomic<Directory>,
    /// Held while the directory changes.
    growing: Mutex<(), { rank::DIRECTORY }>,
    memory: Arc<Memory<Segment>>,
    stripes: Arc<Stripes>,
    split_count_min: u32,
    merge_count_max: u32,
    splits: AtomicU64,
    merges: AtomicU64,
    /// Held while segments are merged, and while a checkpoint is dumped (invariant 4).
    merging: Mutex<(), { rank::MERGING }>,
    /// There may be mergeable segments that no removal would find: at first, and when a removal could not merge.
    unmerged: AtomicBool,
    /// The checkpoint that the index was attached to, if it was.
    attached: Option<Attached>,
}

/// An index with its own stripes.
#[cfg(any(test, loom))]
impl Default for HashIndex {
    fn default() -> Self {
        Self::on(Arc::default())
    }
}

impl HashIndex {
    /// One whose keys are locked by `stripes`.
    pub fn on(stripes: Arc<Stripes>) -> Self {
        let memory = Arc::new(Memory::default());
        let entries = (0..1 << DEPTH_INITIAL)
            .map(|_| AtomicPtr::new(DirEntry::new(memory.take(), DEPTH_INITIAL, FINGERPRINT_BITS).0))
            .collect();
        Self {
            directory: Atomic::new(Directory::new(DEPTH_INITIAL, entries)),
            growing: Mutex::new(()),
            memory,
            stripes,
            split_count_min: SPLIT_COUNT_MIN,
            merge_count_max: SPLIT_COUNT_MIN * MERGE_SHARE.0 / MERGE_SHARE.1,
            splits: AtomicU64::new(0),
            merges: AtomicU64::new(0),
            merging: Mutex::new(()),
            unmerged: AtomicBool::new(true),
            attached: None,
        }
    }

    /// The same, but segments with this many keys may split.
    pub fn splitting_at(mut self, split_count_min: u32) -> Self {
        self.split_count_min = split_count_min;
        self.merge_count_max =
            (u64::from(split_count_min) * u64::from(MERGE_SHARE.0) / u64::from(MERGE_SHARE.1)) as u32;
        self
    }

    /// The same, but two segments with this many keys together are merged.
    #[cfg(loom)]
    pub fn merging_at(mut self, merge_count_max: u32) -> Self {
        self.merge_count_max = merge_count_max;
        self
    }

    /// Prepares an empty index for this many keys: as many segments as it would have grown to, which know all bits of
    /// their fingerprints.
    pub fn reserve(&mut self, keys: u64) {
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
            .map(|_| AtomicPtr::new(DirEntry::new(self.memory.take(), depth, FINGERPRINT_BITS).0))
            .collect();
        self.begin_with(Directory::new(depth, entries));
    }

    /// How many segments were split, and how often the directory doubled.
    pub fn grown(&self, guard: &Guard) -> (u64, u32) {
        (self.splits.load(Relaxed), self.directory(guard).depth - DEPTH_INITIAL)
    }

    /// How many pairs of segments were merged.
    pub fn merged(&self) -> u64 {
        self.merges.load(Relaxed)
    }

    /// Bytes of DRAM that the index uses.
    pub fn bytes(&self, guard: &Guard) -> u64 {
        self.memory.bytes() + self.directory(guard).entries.len() as u64 * 8
    }

    #[inline]
    fn directory<'g>(&self, guard: &'g Guard) -> &'g Directory {
        // SAFETY: the directory is never null, and a replaced one lives while the guard does.
        unsafe { self.directory.load(Acquire, guard).deref() }
    }

    #[inline]
    fn entry(&self, hash: u64, guard: &Guard) -> DirEntry {
        let entry = self.directory(guard).entry(hash);
        if entry.page().is_none() { entry } else { self.read_page(hash, guard) }
    }

    #[inline]
    fn segment<'g>(&self, entry: DirEntry, _guard: &'g Guard) -> &'g Segment {
        // SAFETY: entries that are not pages, as `entry` gives them, point to segments of `memory`, which outlives the
        // guard's borrower; a retired segment is recycled only when no guard can see it (invariant 3).
        unsafe { &*entry.place() }
    }

    pub fn numbers(&self, guard: &Guard) -> Numbers {
        let (splits, doublings) = self.grown(guard);
        let (bytes, doublings) = (self.bytes(guard), u64::from(doublings));
        Numbers { bytes, splits, merges: self.merged(), doublings, ..Numbers::default() }
    }

    #[inline]
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// Hints that the bucket of `hash` is read soon.
    #[inline]
    pub fn prefetch(&self, hash: u64, guard: &Guard) {
        let entry = self.entry(hash, guard);
        super::prefetch(&self.segment(entry, guard).buckets[bucket_of(hash)]);
    }

    /// Hints that a key of `hash` is inserted soon, more often than not into a full bucket.
    #[inline]
    pub fn prefetch_insert(&self, hash: u64, guard: &Guard) {
        let entry = self.entry(hash, guard);
        let (segment, probe) = (self.segment(entry, guard), Probe { hash, entry });
        super::prefetch(&segment.buckets[probe.primary()]);
        super::prefetch(&segment.buckets[probe.secondary()]);
        super::prefetch(&segment.count);
    }

    /// Looks up the slot of the key that `look` recognises, without a lock. Returns the slot that `look` saw and its
    /// result, even if the slot changes meanwhile.
    #[inline]
    pub fn find_with<T>(
        &self,
        hash: u64,
        guard: &Guard,
        mut look: impl FnMut(Slot) -> Option<T>,
    ) -> Option<(Slot, T)> {
        let entry = self.entry(hash, guard);
        let segment = self.segment(entry, guard);
        segment.find(Probe { hash, entry }, |slot| Some((slot, look(slot)?))).map(|(_, found)| found)
    }

    /// The slot of the key that `is_key` recognises, without a lock.
    #[cfg(any(test, loom))]
    pub fn find(&self, hash: u64, guard: &Guard, mut is_key: impl FnMut(Slot) -> bool) -> Option<Slot> {
        self.find_with(hash, guard, |slot| is_key(slot).then_some(())).map(|(slot, ())| slot)
    }

    /// The likeliest slot of a key of `hash`. If the record that it points to is of that key, it was the key's slot
    /// when it was read.
    #[inline]
    pub fn candidate(&self, hash: u64, guard: &Guard) -> Option<Slot> {
        let entry = self.entry(hash, guard);
        let probe = Probe { hash, entry };
        let bucket = &self.segment(entry, guard).buckets[probe.primary()];
        bucket.candidate(probe)
    }

    /// Locks the stripe of `hash`.
    #[inline(always)]
    pub fn lock<'g>(&'g self, hash: u64, guard: &'g Guard) -> Locked<'g> {
        self.locked(self.stripes.lock(hash), hash, guard)
    }

    /// The key of `hash`, whose stripe is held.
    #[inline(always)]
    pub(crate) fn locked<'g>(&self, held: LockedStripe<'g>, hash: u64, guard: &'g Guard) -> Locked<'g> {
        let entry = self.entry(hash, guard);
        Locked {
            held,
            segment: self.segment(entry, guard),
            probe: Probe { hash, entry },
            change: Change::at_depth(entry.depth(), &self.stripes),
            room: Cell::new(0),
        }
    }

    /// Locks the stripes of all `hashes`, as [`Index::lock_all`](super::either::Index::lock_all) does.
    #[cfg(loom)]
    pub fn lock_all<'g>(&'g self, hashes: &[u64], guard: &'g Guard) -> Vec<Locked<'g>> {
        let each = self.stripes.lock_all(hashes).into_iter().zip(hashes);
        each.map(|(held, &hash)| self.locked(held, hash, guard)).collect()
    }

    /// Whether the segment has enough keys to be split, and a hash bit to be split by.
    fn is_crowded(&self, entry: DirEntry, guard: &Guard) -> bool {
        let count = self.segment(entry, guard).count.load(Relaxed);
        count >= self.split_count_min && entry.depth() < DEPTH_MAX
    }

    /// Splits the segment of `hash`, if it is crowded. The caller may hold no stripe.
    pub fn split(&self, hash: u64, keys: &impl Keys, guard: &Guard) {
        let entry = self.entry(hash, guard);
        if self.is_crowded(entry, guard) {
            let held = self.stripes.lock_prefix(hash, entry.depth());
            self.split_held(hash, entry, held, keys, guard);
        }
    }

    /// The same for a caller that holds stripes for several writes. It must not wait for others; false if it would have
    /// to.
    pub fn try_split(&self, hash: u64, keys: &impl Keys, guard: &Guard) -> bool {
        let entry = self.entry(hash, guard);
        if self.is_crowded(entry, guard) {
            let Some(held) = self.stripes.try_lock_prefix(hash, entry.depth()) else { return false };
            self.split_held(hash, entry, held, keys, guard);
        }
        true
    }

    /// Splits the segment of `hash`, if it is crowded. All stripes that had the keys of `before` are `held`.
    fn split_held(
        &self,
        hash: u64,
        before: DirEntry,
        held: Vec<LockedStripe<'_>>,
        keys: &impl Keys,
        guard: &Guard,
    ) {
        // Another thread may have split it meanwhile, or merged it: after a merge the held stripes do not cover it.
        // From here on nobody splits, merges or changes it.
        let entry = self.entry(hash, guard);
        if entry.depth() < before.depth() || !self.is_crowded(entry, guard) {
            return;
        }
        let (segment, depth) = (self.segment(entry, guard), entry.depth());
        let mut known = if entry.known() <= KNOWN_BITS_MIN { FINGERPRINT_BITS } else { entry.known() - 1 };
        if known == FINGERPRINT_BITS && entry.known() > 1 && self.has_damaged(segment, keys) {
            // Fingerprints are kept for as long as they have known bits.
            known = entry.known() - 1;
        }
        let halves = [self.memory.take(), self.memory.take()];
        let halves = halves.map(|half| DirEntry::new(half, depth + 1, known));
        let halving =
            Halving { segment, entries: halves, halves: halves.map(|half| self.segment(half, guard)) };
        halving.fill(depth, known == FINGERPRINT_BITS, keys);
        self.replace(hash, depth, halves, guard);
        self.splits.fetch_add(1, Relaxed);
        drop(held);
        self.retire(entry, guard);
        reclaim::collect();
    }

    /// Lets a segment that the directory no longer points to be used again once nobody can see it.
    fn retire(&self, entry: DirEntry, guard: &Guard) {
        let (memory, old) = (Arc::clone(&self.memory), Retired(entry.segment()));
        guard.defer(move || recycle(&memory, old));
    }

    /// Whether the key of a slot of the segment cannot be read.
    fn has_damaged(&self, segment: &Segment, keys: &impl Keys) -> bool {
        let words = segment.buckets.iter().flat_map(|bucket| &bucket.0);
        keys.may_be_damaged()
            && words
                .map(|slot| Slot(slot.load(Relaxed)))
                .any(|slot| !slot.is_empty() && keys.hash_at(slot.location()).is_none())
    }

    /// Makes the directory point to `halves` instead of the segment of `hash` at `depth`.
    fn replace(&self, hash: u64, depth: u32, halves: [DirEntry; 2], guard: &Guard) {
        let _growing = lock(&self.growing);
        let mut directory = self.directory(guard);
        if directory.depth == depth {
            let entries =
                directory.entries.iter().flat_map(|e| [e.load(Relaxed), e.load(Relaxed)]).map(AtomicPtr::new);
            let doubled = Owned::new(Directory::new(depth + 1, entries.collect()));
            // AcqRel: pairs with the Acquire in `directory`.
            let old = self.directory.swap(Some(doubled), AcqRel, guard);
            // SAFETY: the old directory is unreachable from now on for new guards.
            unsafe { guard.defer_destroy(old) };
            directory = self.directory(guard);
        }
        let bit = 1 << (63 - depth);
        for (half, hash) in halves.into_iter().zip([hash & !bit, hash | bit]) {
            directory.repoint(hash, half);
        }
        directory.count_at(depth + 1, 2);
        debug_assert!(
            cfg!(loom)
                || directory.entry(hash & !bit) == halves[0] && directory.entry(hash | bit) == halves[1],
            "a new guard finds a segment that was split (invariant 3)"
        );
    }
}

/// The bits of a cursor that are a prefix of hashes.
const PREFIX_MASK: u64 = !(u64::MAX >> DEPTH_MAX);

/// A segment that was split or merged, on its way to be emptied.
struct Retired(NonNull<Segment>);

// SAFETY: a segment is made of atomics, and it lies in memory that the index shares.
unsafe impl Send for Retired {}

/// Empties a segment that nobody can see any more and hands it back.
fn recycle(memory: &Memory<Segment>, Retired(pointer): Retired) {
    // SAFETY: the segment lies in `memory` (its invariant 1), and no guard can see it any more.
    let segment = unsafe { pointer.as_ref() };
    free_stashes(segment);
    for slot in segment.buckets.iter().flat_map(|bucket| &bucket.0) {
        slot.store(0, Relaxed);
    }
    segment.count.store(0, Relaxed);
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
            let entry = DirEntry(entry.load(Relaxed));
            if last != Some(entry) && entry.page().is_none() {
                free_stashes(self.segment(entry, &guard));
            }
            last = Some(entry);
        }
        // The retired segments hold a reference to our memory.
        drop(guard);
        reclaim::collect();
    }
}

/// A segment whose slots go to two halves, by the next bit of their hashes. Nobody else sees the halves yet: changes of
/// them need not be atomic.
struct Halving<'g> {
    segment: &'g Segment,
    entries: [DirEntry; 2],
    halves: [&'g Segment; 2],
}

/// The highest bit of a fingerprint: the half that a slot goes to.
const HALF_BIT: u64 = 1 << (FINGERPRINT_SHIFT + FINGERPRINT_BITS - 1);

impl Halving<'_> {
    /// Fills the halves of a segment at `depth`; with `refresh` their fingerprints are computed again, from the keys.
    fn fill(&self, depth: u32, refresh: bool, keys: &impl Keys) {
        let (mut taken, mut taken_ones) = (0, 0);
        for (b, bucket) in self.segment.buckets.iter().enumerate() {
            if refresh {
                self.prefetch(b + REFRESH_AHEAD, keys);
            }
            let [zeros, ones] = self.halves.map(|half| &half.buckets[b].0);
            let bit = bucket.0[1].load(Relaxed) & BUCKET_BIT;
            zeros[1].store(bit, Relaxed);
            ones[1].store(bit, Relaxed);
            for (s, slot) in bucket.0.iter().enumerate() {
                let word = slot.load(Relaxed);
                if Slot(word).is_empty() {
                    continue;
                }
                let fingerprint = if refresh {
                    keys.hash_at(Slot(word).location()).map(|hash| fingerprint(hash, depth + 1))
                } else {
                    None
                };
                let fingerprint = fingerprint.unwrap_or((word << 1) & FINGERPRINT_MASK);
                let one = word & HALF_BIT != 0;
                let half = if one { ones } else { zeros };
                half[s].store(word & !FINGERPRINT_MASK | fingerprint, Relaxed);
                taken += 1;
                taken_ones += u32::from(one);
            }
        }
        for (half, count) in self.halves.into_iter().zip([taken - taken_ones, taken_ones]) {
            half.count.store(count, Relaxed);
        }
        self.fill_from_stashes(depth, keys);
    }

    /// Fetches the records of a bucket.
    fn prefetch(&self, bucket: usize, keys: &impl Keys) {
        let Some(ahead) = self.segment.buckets.get(bucket) else { return };
        let slots = ahead.0.iter().map(|slot| Slot(slot.load(Relaxed)));
        slots.filter(|slot| !slot.is_empty()).for_each(|slot| keys.prefetch_at(slot.location()));
    }

    fn fill_from_stashes(&self, depth: u32, keys: &impl Keys) {
        let words =
            self.segment.stashes().flat_map(|stash| &stash.slots).map(|slot| Slot(slot.load(Relaxed)));
        for slot in words.filter(|slot| !slot.is_empty()) {
            let Some(hash) = keys.hash_at(slot.location()) else {
                // Its buckets are unknown. They are marked, in both halves, so it is looked for in the stash.
                let half = self.halves[usize::from(slot.0 & HALF_BIT != 0)];
                half.count_add(1, Change::Alone);
                half.stash(slot.0 & !FINGERPRINT_MASK | (slot.0 << 1) & FINGERPRINT_MASK, Change::Alone);
                continue;
            };
            let one = usize::from(hash << depth >> 63 != 0);
            let (half, probe) = (self.halves[one], Probe { hash, entry: self.entries[one] });
            let room = empty(High::of(&half.buckets[probe.primary()].0));
            let _ = half.insert(probe, slot, Change::Alone, room);
        }
    }
}
