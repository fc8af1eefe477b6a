//! Locks of keys, by their hashes: who writes a key holds its stripe.
//!
//! A stripe also gives out versions. It is one line, so that writers of different keys seldom meet: 16 of them at once
//! hold the same one in 1 write of some 130. All stripes together stay in a core's second cache, so a lock is taken,
//! and a version known, while the index's own lines are on their way from memory.
//!
//! Invariant: the version of a stripe is at least that of every record on the medium whose key belongs there, live or
//! dead: it is the last one given out or met by recovery. So a record's version is known without the one it supersedes,
//! and a key that was forgotten begins above what is left of it.
//!
//! A version is the greatest of three: one above the stripe's last, one above the last of the writer, and the time
//! ([`Stripes::floor`]). The first orders the records of a key. With the second, and since a transaction raises all
//! stripes that it locked, versions order what writers saw of each other in the store; with the third also what a
//! client of two writers saw outside of it. Recovery begins above the greatest version that it met, and time goes on
//! from there ([`Stripes::begin_clock`]). Nothing but that order depends on the clock, so where there is none
//! ([`ticks`]) the first two do.
//!
//! A stripe that is held for several writes ([`Stripes::hold`]: the keys of a command) says by which thread: what that thread
//! locks meanwhile it has already. Stripes are held in the order of their numbers, so nobody waits in a circle; who holds some
//! locks no others, except those of collections' elements, which are other stripes ([`crate::read::table`]), one at a time.
//!
//! And it counts the updates in place of its keys' cells, so that a reader can tell that what it copied is of one moment
//! ([`Stripes::read_cell`]): an update is *one* atomic store, made by who holds the stripe, and counted before it. A reader that finds
//! the same count before and after its copy has met at most one store, that of the last update counted, and a copy beside
//! one store is the cell as it was before or after that store. So nobody waits for an update that is under way.
//!
//! And it counts the *transaction records* of transactions that lead slots of its keys and are not settled
//! ([`LockedStripe::count_transaction_record`]), so that who locks a stripe without any need not look whether the key
//! is one that a transaction writes. Counted by who holds it. Of transactions that *run* without key locks it counts
//! each that has transaction records of its keys: who holds stripes for several writes must meet none, and does not
//! wait under them.

use super::prefetch;
use crate::format::Version;
use crate::mutants::{Mutant, planted};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, fence};
use crate::sync::{rank, this_thread, ticks};

/// The top bits of a hash that tell its stripe, so that a segment of a hash index lies in one, or has some of its own.
pub(crate) const STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 11 };
/// The same of elements of collections, which are mostly written under the lock of their collection's key: 16 KiB a store.
pub(crate) const ELEMENT_STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 8 };

/// Somebody holds the stripe.
const LOCKED: u8 = 1;

#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    /// [`LOCKED`] or 0.
    state: AtomicU8,
    /// Slots of its keys that point to transaction records of transactions which are not finalized.
    transaction_records: AtomicU32,
    /// Transactions that run without locks, and have transaction records of its keys.
    running: AtomicU32,
    version: AtomicU64,
    /// Updates in place of cells of its keys, each counted before it is stored.
    updates: AtomicU64,
    /// How often who came had to wait.
    waits: AtomicU64,
    /// The thread that holds it for several writes, else 0. Changed by who holds it.
    holder: AtomicU64,
}

/// How often a cell is copied while others update it, before its reader takes the lock.
const COPIES_MAX: u32 = if cfg!(loom) { 2 } else { 16 };

pub(crate) struct Stripes {
    bits: u32,
    each: Box<[Stripe]>,
    /// The version that time 0 has: it wraps around.
    time_0: AtomicU64,
}

/// The lock of a stripe. Of several for one stripe, one owns it.
pub(crate) struct LockedStripe<'a> {
    stripe: &'a Stripe,
    owned: bool,
    _rank: rank::Held,
}

impl Default for Stripes {
    fn default() -> Self {
        Self::new(STRIPE_BITS)
    }
}

impl Stripes {
    /// With so many bits of a hash, 1 to 16.
    pub(crate) fn new(bits: u32) -> Self {
        let bits = bits.clamp(1, 16);
        let each = (0..1 << bits).map(|_| Stripe::default()).collect();
        Self { bits, each, time_0: AtomicU64::new(0) }
    }

    /// Recovery is over: time goes on from the greatest version that it met.
    pub(crate) fn begin_clock(&self, from: Version) {
        self.time_0.store(from.0.wrapping_sub(ticks::now()), Relaxed);
    }

    /// The least version that a writer whose last one is `last` may give next.
    #[inline]
    pub(crate) fn floor(&self, last: Version) -> Version {
        let now = ticks::now();
        // Without a clock the time is 0 always.
        let time = if now == 0 { 0 } else { self.time_0.load(Relaxed).wrapping_add(now) };
        Version(time.max(last.next().0).min(Version::MAX))
    }

    /// How many bits of a hash tell its stripe.
    #[inline]
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// Which stripe a hash belongs to; stripes are locked in this order.
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

    /// If nobody else has it.
    fn held_if_free<'a>(&'a self, stripe: &'a Stripe) -> Option<LockedStripe<'a>> {
        LockedStripe::new_if_free(stripe, self.rank(stripe))
    }

    #[inline]
    fn of(&self, hash: u64) -> &Stripe {
        &self.each[self.number(hash)]
    }

    #[inline]
    pub(crate) fn fetch(&self, hash: u64) {
        prefetch(self.of(hash));
    }

    #[inline]
    pub(crate) fn lock(&self, hash: u64) -> LockedStripe<'_> {
        self.held(self.of(hash))
    }

    /// Locks the stripes of all `hashes`; two of one stripe share its lock. The result is in the order of `hashes`.
    pub(crate) fn lock_all(&self, hashes: &[u64]) -> Vec<LockedStripe<'_>> {
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

    /// Holds the stripes of `hashes` for this thread until they are [let go](Self::release); `numbers`, which is empty,
    /// says which. The thread must hold none yet.
    pub(crate) fn hold(&self, hashes: &[u64], numbers: &mut Vec<u32>) {
        numbers.extend(hashes.iter().map(|&hash| self.number(hash) as u32));
        if numbers.len() > 1 && !planted(Mutant::LocksNotSorted) {
            numbers.sort_unstable();
        }
        if planted(Mutant::LocksNotSorted) {
            let mut seen = std::collections::HashSet::new();
            numbers.retain(|number| seen.insert(*number));
        }
        numbers.dedup();
        let here = this_thread();
        for &number in &*numbers {
            let stripe = &self.each[number as usize];
            self.held(stripe).keep();
            stripe.holder.store(here, Relaxed);
        }
    }

    /// The same for more of them, if nobody else has one; whether it holds them now. It does not wait, so they need not come
    /// in any order.
    pub(crate) fn hold_more(&self, hashes: &[u64], numbers: &mut Vec<u32>) -> bool {
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

    /// Gives back what this thread holds. Whoever locks one of them next gives versions above `version`.
    pub(crate) fn release(&self, numbers: &[u32], version: Version) {
        for &number in numbers {
            let stripe = &self.each[number as usize];
            // Relaxed, and not one step: it is held.
            if stripe.version.load(Relaxed) < version.0 && !planted(Mutant::VersionNotRaised) {
                stripe.version.store(version.0, Relaxed);
            }
            stripe.holder.store(0, Relaxed);
            // Release: pairs with the Acquire in `LockedStripe::new` and `is_locked`.
            stripe.state.store(0, Release);
        }
    }

    /// Whether this thread holds the stripe of `hash` for several writes.
    #[inline]
    pub(crate) fn is_held_here(&self, hash: u64) -> bool {
        self.of(hash).is_here()
    }

    /// Of stripes that are held here, one whose keys a transaction writes that runs without locks.
    pub(crate) fn find_active(&self, numbers: &[u32]) -> Option<u32> {
        // Acquire: pairs with the Release in `end_active`: what is not counted any more is shown, or put back.
        numbers.iter().copied().find(|&number| self.each[number as usize].running.load(Acquire) != 0)
    }

    /// Waits until no transaction runs that writes keys of a stripe. No stripe may be held, no epoch entered, and no
    /// transaction of the caller's run.
    #[cold]
    pub(crate) fn wait_for_active(&self, number: u32) {
        let mut backoff = Backoff::default();
        while self.each[number as usize].running.load(Relaxed) != 0 {
            backoff.wait();
        }
    }

    /// A transaction that runs without locks writes a first key of the stripe of `hash`, which is held. `counted` has a
    /// bit for each stripe in which the transaction is counted.
    pub(crate) fn begin_active(&self, hash: u64, counted: &mut Vec<u64>) {
        let number = self.number(hash);
        if counted.is_empty() {
            counted.resize(self.each.len().div_ceil(64), 0);
        }
        let (word, bit) = (number / 64, 1 << (number % 64));
        if counted[word] & bit == 0 {
            counted[word] |= bit;
            // Relaxed: who asks holds the stripe, as the caller does.
            self.each[number].running.fetch_add(1, Relaxed);
        }
    }

    /// The transaction is shown, or was given up.
    pub(crate) fn end_active(&self, counted: &mut [u64]) {
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
    pub(crate) fn lock_prefix(&self, hash: u64, depth: u32) -> Vec<LockedStripe<'_>> {
        self.prefix(hash, depth).iter().map(|stripe| self.held(stripe)).collect()
    }

    /// The same without waiting: `None` if somebody else has one of them. Those that this thread holds stay held.
    pub(crate) fn try_lock_prefix(&self, hash: u64, depth: u32) -> Option<Vec<LockedStripe<'_>>> {
        self.prefix(hash, depth).iter().map(|stripe| self.held_if_free(stripe)).collect()
    }

    /// The stripes of all hashes that begin with the top `depth` bits of `hash`.
    fn prefix(&self, hash: u64, depth: u32) -> &[Stripe] {
        let more = self.bits.saturating_sub(depth);
        let first = self.number(hash) >> more << more;
        &self.each[first..][..1 << more]
    }

    /// Whether somebody holds the stripe of `hash`.
    #[inline]
    pub(crate) fn is_locked(&self, hash: u64) -> bool {
        // Acquire: pairs with the Release in `drop`.
        self.of(hash).state.load(Acquire) & LOCKED != 0
    }

    /// An update in place of a cell of `hash` follows, by one store; the caller holds its stripe.
    #[inline]
    pub(crate) fn count_update(&self, hash: u64) {
        if planted(Mutant::UpdateNotCounted) {
            return;
        }
        let updates = &self.of(hash).updates;
        // Not one step: the stripe is held. Release: pairs with the Acquire in `read_cell`; the updates before are stored.
        updates.store(updates.load(Relaxed).wrapping_add(1), Release);
        // Pairs with the fence in `read_cell`: who copies what is stored from here on finds it counted.
        fence(Release);
    }

    /// Has `copy` copy a cell of a key of `hash` until the copy is of one moment. Under many updates of the stripe's keys, by
    /// taking its lock; the caller may hold it already, and then nobody counts.
    #[inline]
    pub(crate) fn read_cell(&self, hash: u64, mut copy: impl FnMut()) {
        let updates = &self.of(hash).updates;
        for _ in 0..COPIES_MAX {
            // Acquire: pairs with the Release in `count_update`: all updates but the last one counted are seen.
            let before = updates.load(Acquire);
            copy();
            // Pairs with the fence in `count_update`: whatever else was copied was counted before.
            fence(Acquire);
            if updates.load(Relaxed) == before || planted(Mutant::CellCopyNotChecked) {
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

    /// The greatest version of all.
    pub(crate) fn version(&self) -> Version {
        Version(self.each.iter().map(|stripe| stripe.version.load(Relaxed)).max().unwrap_or(0))
    }

    /// No record has a higher version.
    pub(crate) fn raise_versions(&self, version: Version) {
        self.each.iter().for_each(|stripe| stripe.observe_version(version));
    }

    /// How often a stripe was waited for.
    pub(crate) fn waits(&self) -> u64 {
        self.each.iter().map(|stripe| stripe.waits.load(Relaxed)).sum()
    }

    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.each) as u64
    }
}

impl Stripe {
    /// Takes the lock, if it is free; whether it was.
    #[inline]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release when it is given back.
        self.state.load(Relaxed) == 0 && self.state.compare_exchange(0, LOCKED, Acquire, Relaxed).is_ok()
    }

    /// Whether this thread has it for several writes.
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
            if planted(Mutant::StripeNotLocked) || stripe.take() {
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

    /// If nobody else has it.
    fn new_if_free(stripe: &'a Stripe, (rank, order): (u8, usize)) -> Option<Self> {
        if stripe.take() {
            return Some(Self { stripe, owned: true, _rank: rank::Held::have(rank, order) });
        }
        stripe.is_here().then(|| Self::shared(stripe))
    }

    /// One that is held already.
    #[inline]
    fn shared(stripe: &'a Stripe) -> Self {
        Self { stripe, owned: false, _rank: rank::Held::UNCOUNTED }
    }

    /// Whether slots of the stripe's keys point to transaction records of transactions that are not finalized.
    #[inline]
    pub(crate) fn has_transaction_records(&self) -> bool {
        self.stripe.transaction_records.load(Relaxed) != 0
    }

    /// A slot of one of its keys points to such a transaction record, or pointed to one that is settled now.
    #[inline]
    pub(crate) fn count_transaction_record(&self, more: bool) {
        // Relaxed, and not one step: whoever counts or asks holds the stripe.
        let transaction_records = self.stripe.transaction_records.load(Relaxed);
        let transaction_records =
            if more { transaction_records + 1 } else { transaction_records.saturating_sub(1) };
        self.stripe.transaction_records.store(transaction_records, Relaxed);
    }

    /// The stripe stays locked, until [`Stripes::release`].
    fn keep(mut self) {
        self.owned = false;
    }

    /// The version of the next record, of a writer that may give none below `floor`.
    #[inline]
    pub(crate) fn next_version(&self, floor: Version) -> Version {
        // Relaxed, and not one step: two versions of one stripe are given out under the same lock.
        let version = Version(self.stripe.version.load(Relaxed)).next().max(floor);
        self.stripe.version.store(version.0, Relaxed);
        version
    }

    /// Recovery has met a record of a key of this stripe.
    #[inline]
    pub(crate) fn observe_version(&self, version: Version) {
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
        for depth in (1..=STRIPE_BITS + 3).step_by(if cfg!(miri) { 6 } else { 1 }) {
            let held = stripes.lock_prefix(hash, depth);
            let bits = depth.min(STRIPE_BITS);
            let wanted = |number: &usize| (number ^ stripes.number(hash)) >> (STRIPE_BITS - bits) == 0;
            assert_eq!(locked(&stripes), (0..1 << STRIPE_BITS).filter(wanted).collect::<Vec<_>>(), "{depth}");
            drop(held);
            assert!(locked(&stripes).is_empty());
        }
    }

    #[test]
    fn a_prefix_is_locked_at_once_unless_somebody_else_has_a_part_of_it() {
        let stripes = Stripes::default();
        let (hash, mut numbers) = (0xB7D3_5A91_0000_FFFF, Vec::new());
        stripes.hold(&[hash], &mut numbers);
        let held = stripes.try_lock_prefix(hash, 3).unwrap();
        assert_eq!((held.len(), locked(&stripes).len()), (1 << (STRIPE_BITS - 3), 1 << (STRIPE_BITS - 3)));
        drop(held);
        assert_eq!(locked(&stripes), [stripes.number(hash)], "what was held before stays held");
        std::thread::scope(|threads| {
            let tried = threads.spawn(|| stripes.try_lock_prefix(hash, 3).is_none());
            assert!(tried.join().unwrap(), "somebody else has one");
        });
        assert_eq!(locked(&stripes), [stripes.number(hash)], "the others were given back");
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
