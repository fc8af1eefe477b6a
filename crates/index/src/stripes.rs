//! Locks of keys, by their hashes: a writer of a key holds its stripe.
//!
//! A stripe also gives out versions. It is one line, so writers of different keys seldom collide. Of 16 concurrent
//! writers, one waits in 1 write of some 130. All stripes together stay in a core's second-level cache. So a lock is
//! taken, and a version known, while the index's own lines are on their way from memory.
//!
//! Invariant: the version of a stripe is at least that of every record on the medium whose key belongs there, live or
//! dead. It is the last one that was given out or that recovery found. So a record's version is known without the
//! record it supersedes, and a forgotten key starts above its remaining records.
//!
//! A version is the greatest of three: one above the stripe's last, one above the writer's last, and the time
//! ([`Stripes::floor`]). The first orders the records of a key. A transaction raises all stripes that it locked; with
//! this and the second, versions order what writers saw of each other in the store. With the third, they also order
//! what a client of two writers saw outside of it. Recovery starts above the greatest version that it found, and time
//! continues from there ([`Stripes::begin_clock`]). Only that order depends on the clock, so without one ([`ticks`])
//! the first two suffice.
//!
//! A stripe that is held for several writes ([`Stripes::hold`]: the keys of a command) stores its holding thread. That
//! thread already has the locks it takes meanwhile. Stripes are held in the order of their numbers, so no cycle of
//! waiters arises. A holder of some locks takes no others, except those of collections' elements, which are other
//! stripes (`table::tables` of the engine). It takes one of these at a time, or some together in the order of their
//! numbers.
//!
//! It also counts the in-place updates of its keys' cells, so that a reader can check that its copy is of one moment
//! ([`Stripes::read_cell`]). An update is *one* atomic store, made by the holder of the stripe, and counted before it.
//! A reader that finds the same count before and after its copy has seen at most one concurrent store, that of the last
//! update counted. A copy concurrent with one store is the cell as it was before or after that store. So nobody waits
//! for an update in progress.
//!
//! It also counts the *transaction records* of transactions that slots of its keys point to and that are not finalized
//! ([`LockedStripe::count_transaction_record`]). So a thread that locks a stripe without any need not check whether a
//! transaction writes the key. The holder does the counting. Of *active* transactions, which run without key locks, it
//! counts each one that has transaction records of its keys. A holder of stripes for several writes must find none, and
//! does not wait while it holds them.

use super::prefetch;
use duramen_log::format::Version;
use duramen_log::sync::Backoff;
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
use duramen_log::sync::{rank, this_thread, ticks};

/// The top bits of a hash that select its stripe, so that a segment of a hash index lies in one, or has some of its
/// own.
pub const STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 11 };
/// The same for elements of collections, which are mostly written under the lock of their collection's key: 16 KiB a
/// store.
pub const ELEMENT_STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 8 };

/// A thread holds the stripe.
const LOCKED: u8 = 1;

#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    /// [`LOCKED`] or 0.
    state: AtomicU8,
    /// Slots of its keys that point to transaction records of transactions that are not finalized.
    transaction_records: AtomicU32,
    /// Active transactions without locks that have transaction records of its keys.
    running: AtomicU32,
    version: AtomicU64,
    /// In-place updates of cells of its keys, each counted before it is stored.
    updates: AtomicU64,
    /// How often a thread had to wait for it.
    waits: AtomicU64,
    /// The thread that holds it for several writes, else 0. Only the holder changes it.
    holder: AtomicU64,
}

/// Maximum number of copies of a cell under concurrent updates, before its reader takes the lock.
const COPIES_MAX: u32 = if cfg!(loom) { 2 } else { 16 };

pub struct Stripes {
    bits: u32,
    each: Box<[Stripe]>,
    /// The version at time 0: it wraps around.
    time_0: AtomicU64,
}

/// The lock of a stripe. If there are several for one stripe, one owns it.
pub struct LockedStripe<'a> {
    stripe: &'a Stripe,
    owned: bool,
    _rank: rank::Held,
}

/// The locks of some stripes.
pub struct LockedStripes<'a> {
    stripes: &'a Stripes,
    _held: Vec<LockedStripe<'a>>,
}

impl LockedStripes<'_> {
    /// The stripe of `hash`, which must be one of these.
    #[inline]
    pub fn of(&self, hash: u64) -> LockedStripe<'_> {
        LockedStripe::shared(self.stripes.of(hash))
    }
}

impl Default for Stripes {
    fn default() -> Self {
        Self::new(STRIPE_BITS)
    }
}

impl Stripes {
    /// Stripes for this many bits of a hash, 1 to 16.
    pub fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 16);
        let each = (0..1 << bits).map(|_| Stripe::default()).collect();
        Self { bits, each, time_0: AtomicU64::new(0) }
    }

    /// Recovery is over: time continues from the greatest version that it found.
    pub fn begin_clock(&self, from: Version) {
        self.time_0.store(from.0.wrapping_sub(ticks::now()), Relaxed);
    }

    /// The least version that a writer whose last one is `last` may give next.
    #[inline]
    pub fn floor(&self, last: Version) -> Version {
        let now = ticks::now();
        // Without a clock the time is always 0.
        let time = if now == 0 { 0 } else { self.time_0.load(Relaxed).wrapping_add(now) };
        Version(time.max(last.next().0).min(Version::MAX))
    }

    /// How many bits of a hash select its stripe.
    #[inline]
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The stripe that a hash belongs to; stripes are locked in this order.
    #[inline]
    fn number(&self, hash: u64) -> usize {
        (hash >> (64 - self.bits)) as usize
    }

    /// The rank of the locks, and the place of this one among them.
    #[inline]
    fn rank(&self, stripe: &Stripe) -> (u8, usize) {
        let rank = if self.bits == ELEMENT_STRIPE_BITS { rank::ELEMENTS } else { rank::STRIPE };
        (rank, std::ptr::from_ref(stripe).addr())
    }

    #[inline]
    fn held<'a>(&'a self, stripe: &'a Stripe) -> LockedStripe<'a> {
        LockedStripe::new(stripe, self.rank(stripe))
    }

    /// Locks it if no other thread has it.
    fn held_if_free<'a>(&'a self, stripe: &'a Stripe) -> Option<LockedStripe<'a>> {
        LockedStripe::new_if_free(stripe, self.rank(stripe))
    }

    #[inline]
    fn of(&self, hash: u64) -> &Stripe {
        &self.each[self.number(hash)]
    }

    #[inline]
    pub fn fetch(&self, hash: u64) {
        prefetch(self.of(hash));
    }

    #[inline]
    pub fn lock(&self, hash: u64) -> LockedStripe<'_> {
        self.held(self.of(hash))
    }

    /// Locks the stripes of all `hashes`; two of one stripe share its lock. The result is in the order of `hashes`.
    pub fn lock_all(&self, hashes: &[u64]) -> Vec<LockedStripe<'_>> {
        let mut held: Vec<_> = hashes.iter().map(|&hash| LockedStripe::shared(self.of(hash))).collect();
        let mut order: Vec<usize> = (0..hashes.len()).collect();
        order.sort_by_key(|&i| self.number(hashes[i]));
        for (at, &i) in order.iter().enumerate() {
            if at == 0 || self.number(hashes[order[at - 1]]) != self.number(hashes[i]) {
                held[i] = self.held(held[i].stripe);
            }
        }
        held
    }

    /// As [`Stripes::lock_all`], for many elements: there are few stripes, so nothing is sorted.
    pub fn lock_many(&self, hashes: &[u64]) -> LockedStripes<'_> {
        debug_assert!(self.bits <= ELEMENT_STRIPE_BITS, "the stripes are those of elements");
        let mut wanted = [0_u64; (1_usize << ELEMENT_STRIPE_BITS).div_ceil(64)];
        for &hash in hashes {
            let number = self.number(hash);
            wanted[number / 64] |= 1 << (number % 64);
        }
        let mut held = Vec::with_capacity(hashes.len());
        for (at, mut left) in wanted.into_iter().enumerate() {
            while left != 0 {
                held.push(self.held(&self.each[at * 64 + left.trailing_zeros() as usize]));
                left &= left - 1;
            }
        }
        LockedStripes { stripes: self, _held: held }
    }

    /// Holds the stripes of `hashes` for this thread until they are [released](Self::release), and adds their numbers
    /// to `numbers`, which must be empty. The thread must hold none yet.
    pub fn hold(&self, hashes: &[u64], numbers: &mut Vec<u32>) {
        numbers.extend(hashes.iter().map(|&hash| self.number(hash) as u32));
        if numbers.len() > 1 {
            numbers.sort_unstable();
        }
        numbers.dedup();
        let here = this_thread();
        for &number in &*numbers {
            let stripe = &self.each[number as usize];
            self.held(stripe).keep();
            stripe.holder.store(here, Relaxed);
        }
    }

    /// The same for more of them, if no other thread has one; returns whether it holds them now. It does not wait, so
    /// they need not come in any order.
    pub fn hold_more(&self, hashes: &[u64], numbers: &mut Vec<u32>) -> bool {
        let here = this_thread();
        let before = numbers.len();
        for &hash in hashes {
            let number = self.number(hash) as u32;
            if numbers.contains(&number) {
                continue;
            }
            let stripe = &self.each[number as usize];
            if !stripe.take() {
                self.release(&numbers[before..], Version(0));
                numbers.truncate(before);
                return false;
            }
            stripe.holder.store(here, Relaxed);
            numbers.push(number);
        }
        true
    }

    /// Releases the stripes that this thread holds. The next thread that locks one of them gives versions above
    /// `version`.
    pub fn release(&self, numbers: &[u32], version: Version) {
        for &number in numbers {
            let stripe = &self.each[number as usize];
            // Relaxed, and not atomic as a whole: it is held.
            if stripe.version.load(Relaxed) < version.0 {
                stripe.version.store(version.0, Relaxed);
            }
            stripe.holder.store(0, Relaxed);
            // Release: pairs with the Acquire in `LockedStripe::new` and `is_locked`.
            stripe.state.store(0, Release);
        }
    }

    /// Whether this thread holds the stripe of `hash` for several writes.
    #[inline]
    pub fn is_held_here(&self, hash: u64) -> bool {
        self.of(hash).is_here()
    }

    /// One of these stripes, which are held here, whose keys an active transaction without locks writes.
    pub fn find_active(&self, numbers: &[u32]) -> Option<u32> {
        // Acquire: pairs with the Release in `end_active`: the records of transactions no longer counted are published,
        // or put back.
        numbers.iter().copied().find(|&number| self.each[number as usize].running.load(Acquire) != 0)
    }

    /// Waits until no active transaction writes keys of a stripe. The caller may hold no stripe, be in no epoch, and
    /// have no active transaction.
    #[cold]
    pub fn wait_for_active(&self, number: u32) {
        let mut backoff = Backoff::default();
        while self.each[number as usize].running.load(Relaxed) != 0 {
            backoff.wait();
        }
    }

    /// An active transaction without locks writes a first key of the stripe of `hash`, which is held. `counted` has a
    /// bit for each stripe in which the transaction is counted.
    pub fn begin_active(&self, hash: u64, counted: &mut Vec<u64>) {
        let number = self.number(hash);
        if counted.is_empty() {
            counted.resize(self.each.len().div_ceil(64), 0);
        }
        let (word, bit) = (number / 64, 1 << (number % 64));
        if counted[word] & bit == 0 {
            counted[word] |= bit;
            // Relaxed: a thread that asks holds the stripe, as the caller does.
            self.each[number].running.fetch_add(1, Relaxed);
        }
    }

    /// The transaction is published, or aborted.
    pub fn end_active(&self, counted: &mut [u64]) {
        for (at, word) in counted.iter_mut().enumerate() {
            let mut left = std::mem::take(word);
            while left != 0 {
                // Release: pairs with the Acquire in `find_active`.
                self.each[at * 64 + left.trailing_zeros() as usize].running.fetch_sub(1, Release);
                left &= left - 1;
            }
        }
    }

    /// Locks the stripes of all hashes that begin with the top `depth` bits of `hash`.
    pub fn lock_prefix(&self, hash: u64, depth: u32) -> Vec<LockedStripe<'_>> {
        self.prefix(hash, depth).iter().map(|stripe| self.held(stripe)).collect()
    }

    /// The same without waiting: `None` if another thread has one of them. Those that this thread holds stay held.
    pub fn try_lock_prefix(&self, hash: u64, depth: u32) -> Option<Vec<LockedStripe<'_>>> {
        self.prefix(hash, depth).iter().map(|stripe| self.held_if_free(stripe)).collect()
    }

    /// The stripes of all hashes that begin with the top `depth` bits of `hash`.
    fn prefix(&self, hash: u64, depth: u32) -> &[Stripe] {
        let more = self.bits.saturating_sub(depth);
        let first = self.number(hash) >> more << more;
        &self.each[first..][..1 << more]
    }

    /// Whether any thread holds the stripe of `hash`.
    #[inline]
    pub fn is_locked(&self, hash: u64) -> bool {
        // Acquire: pairs with the Release in `drop`.
        self.of(hash).state.load(Acquire) & LOCKED != 0
    }

    /// Announces an in-place update of a cell of `hash`, by one store; the caller holds its stripe.
    #[inline]
    pub fn count_update(&self, hash: u64) {
        let updates = &self.of(hash).updates;
        // Not atomic as a whole: the stripe is held. Release: pairs with the Acquire in `read_cell`; the updates before
        // are stored.
        updates.store(updates.load(Relaxed).wrapping_add(1), Release);
        // Pairs with the fence in `read_cell`: a reader that copies any later store finds it counted.
        fence(Release);
    }

    /// Repeats `copy` of a cell of a key of `hash` until the copy is of one moment. Under many updates of the stripe's
    /// keys it takes the stripe's lock. The caller may already hold it; then there are no updates to count.
    #[inline]
    pub fn read_cell(&self, hash: u64, mut copy: impl FnMut()) {
        let updates = &self.of(hash).updates;
        for _ in 0..COPIES_MAX {
            // Acquire: pairs with the Release in `count_update`: all updates but the last one counted are seen.
            let before = updates.load(Acquire);
            copy();
            // Pairs with the fence in `count_update`: all other stores in the copy were counted before.
            fence(Acquire);
            if updates.load(Relaxed) == before {
                return;
            }
        }
        self.read_cell_locked(hash, &mut copy);
    }

    #[cold]
    fn read_cell_locked(&self, hash: u64, copy: &mut dyn FnMut()) {
        let _held = self.lock(hash);
        copy();
    }

    /// The greatest version of all stripes.
    pub fn version(&self) -> Version {
        Version(self.each.iter().map(|stripe| stripe.version.load(Relaxed)).max().unwrap_or(0))
    }

    /// Raises all stripes to `version`: no record has a higher one.
    pub fn raise_versions(&self, version: Version) {
        self.each.iter().for_each(|stripe| stripe.observe_version(version));
    }

    /// How often a thread waited for a stripe.
    pub fn waits(&self) -> u64 {
        self.each.iter().map(|stripe| stripe.waits.load(Relaxed)).sum()
    }

    pub fn bytes(&self) -> u64 {
        size_of_val(&*self.each) as u64
    }
}

impl Stripe {
    /// Takes the lock if it is free; returns whether it was.
    #[inline]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release when the lock is released.
        self.state.load(Relaxed) == 0 && self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Whether this thread holds it for several writes.
    #[inline]
    fn is_here(&self) -> bool {
        // Relaxed: only this thread stores its own number.
        self.holder.load(Relaxed) == this_thread()
    }

    #[inline]
    fn observe_version(&self, version: Version) {
        if self.version.load(Relaxed) < version.0 {
            self.version.fetch_max(version.0, Relaxed);
        }
    }
}

impl<'a> LockedStripe<'a> {
    #[inline]
    fn new(stripe: &'a Stripe, (rank, order): (u8, usize)) -> Self {
        let mut backoff = Backoff::default();
        let _rank = rank::Held::wait(rank, order);
        loop {
            if stripe.take() {
                return Self { stripe, owned: true, _rank };
            }
            if stripe.is_here() {
                return Self::shared(stripe);
            }
            if backoff.is_first() {
                stripe.waits.fetch_add(1, Relaxed);
            }
            backoff.wait();
        }
    }

    /// Locks it if no other thread has it.
    fn new_if_free(stripe: &'a Stripe, (rank, order): (u8, usize)) -> Option<Self> {
        if stripe.take() {
            return Some(Self { stripe, owned: true, _rank: rank::Held::have(rank, order) });
        }
        stripe.is_here().then(|| Self::shared(stripe))
    }

    /// A lock of a stripe that is held already.
    #[inline]
    fn shared(stripe: &'a Stripe) -> Self {
        Self { stripe, owned: false, _rank: rank::Held::UNCOUNTED }
    }

    /// Whether slots of the stripe's keys point to transaction records of transactions that are not finalized.
    #[inline]
    pub fn has_transaction_records(&self) -> bool {
        self.stripe.transaction_records.load(Relaxed) != 0
    }

    /// A slot of one of its keys points to such a transaction record, or pointed to one that is finalized now.
    #[inline]
    pub fn count_transaction_record(&self, more: bool) {
        // Relaxed, and not atomic as a whole: a thread that counts or asks holds the stripe.
        let transaction_records = self.stripe.transaction_records.load(Relaxed);
        let transaction_records =
            if more { transaction_records + 1 } else { transaction_records.saturating_sub(1) };
        self.stripe.transaction_records.store(transaction_records, Relaxed);
    }

    /// The stripe stays locked, until [`Stripes::release`].
    fn keep(mut self) {
        self.owned = false;
    }

    /// The version of the next record of a writer that must not give any below `floor`.
    #[inline]
    pub fn next_version(&self, floor: Version) -> Version {
        // Relaxed, and not atomic as a whole: two versions of one stripe are given out under the same lock.
        let version = Version(self.stripe.version.load(Relaxed)).next().max(floor);
        self.stripe.version.store(version.0, Relaxed);
        version
    }

    /// Recovery has found a record of a key of this stripe.
    #[inline]
    pub fn observe_version(&self, version: Version) {
        self.stripe.observe_version(version);
    }
}

impl Drop for LockedStripe<'_> {
    fn drop(&mut self) {
        if self.owned {
            // Release: pairs with the Acquire in `LockedStripe::new` and `is_locked`.
            self.stripe.state.store(0, Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn locked(stripes: &Stripes) -> Vec<usize> {
        let is_locked = |&number: &usize| stripes.is_locked((number as u64) << (64 - STRIPE_BITS));
        (0..1 << STRIPE_BITS).filter(is_locked).collect()
    }

    #[test]
    fn a_prefix_locks_the_stripes_of_its_hashes_and_no_others() {
        let stripes = Stripes::default();
        let hash = 0xB7D3_5A91_0000_FFFF;
        for depth in if cfg!(miri) { 6..=6 } else { 1..=STRIPE_BITS + 3 } {
            let held = stripes.lock_prefix(hash, depth);
            let bits = depth.min(STRIPE_BITS);
            let wanted = |number: &usize| (number ^ stripes.number(hash)) >> (STRIPE_BITS - bits) == 0;
            assert_eq!(locked(&stripes), (0..1 << STRIPE_BITS).filter(wanted).collect::<Vec<_>>(), "{depth}");
            drop(held);
            assert!(locked(&stripes).is_empty());
        }
    }

    #[test]
    fn a_prefix_is_locked_without_waiting_unless_another_thread_holds_a_part() {
        let stripes = Stripes::default();
        let (hash, mut numbers) = (0xB7D3_5A91_0000_FFFF, Vec::new());
        stripes.hold(&[hash], &mut numbers);
        let held = stripes.try_lock_prefix(hash, 3).unwrap();
        assert_eq!((held.len(), locked(&stripes).len()), (1 << (STRIPE_BITS - 3), 1 << (STRIPE_BITS - 3)));
        drop(held);
        assert_eq!(locked(&stripes), [stripes.number(hash)], "locks held before stay held");
        std::thread::scope(|threads| {
            let tried = threads.spawn(|| stripes.try_lock_prefix(hash, 3).is_none());
            assert!(tried.join().unwrap(), "another thread holds one");
        });
        assert_eq!(locked(&stripes), [stripes.number(hash)], "the others were released");
        stripes.release(&numbers, Version(0));
        assert!(locked(&stripes).is_empty());
    }

    #[test]
    fn keys_of_one_stripe_share_its_lock_and_its_versions() {
        let stripes = Stripes::default();
        let of = |stripe: u64, key: u64| stripe << (64 - STRIPE_BITS) | key;
        let held = stripes.lock_all(&[of(3, 1), of(1, 2), of(3, 3), of(1, 4), of(0, 5)]);
        assert_eq!(locked(&stripes), [0, 1, 3]);
        let versions: Vec<u64> = held.iter().map(|held| held.next_version(Version(0)).0).collect();
        assert_eq!(versions, [1, 1, 2, 2, 1]);
        drop(held);
        assert!(locked(&stripes).is_empty());
        stripes.lock(of(1, 6)).observe_version(Version(7));
        assert_eq!(stripes.version(), Version(7));
        stripes.raise_versions(Version(5));
        let next = |stripe| stripes.lock(of(stripe, 7)).next_version(Version(0)).0;
        assert_eq!([next(1), next(3), next(2)], [8, 6, 6]);
    }
}
