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
//! ([`Stripes::floor`]). The first orders the records of a key. With the second, and since a unit raises all stripes that it
//! locked, versions order what writers saw of each other in the store; with the third also what a client of two writers saw
//! outside of it. Recovery begins above the greatest version that it met, and time goes on from there ([`Stripes::begin_clock`]).
//! Nothing but that order depends on the clock, so where there is none ([`ticks`]) the first two do.
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
//! *Claims* are locks of single keys, for a batch of so many that their stripes, all held at once, would stop every other writer
//! while its bytes are written ([`Stripes::claim`]). One batch at a time has claims. A mark on each stripe with a claimed key
//! says that there are some, so who locks a stripe without a mark need not look further. Who writes a key:
//!
//! 1. locks its stripe, and with a mark on it looks whether the key is claimed;
//! 2. if so it gives the stripe back, leaves what others may wait for (its epoch), and waits for the end of all claims.
//!
//! Marks are set under the stripe's lock, so when the last is set nobody is left who writes a claimed key and did not see it. Who
//! has claims waits for stripes and epochs, and for no space; and nobody waits for claims in a stripe or in an epoch: no circle.
//! Whoever does not write a value of its own (the compactor, who moves records, and recounts) passes claims by.

use super::prefetch;
use crate::format::Version;
use crate::mutants::{Mutant, planted};
use crate::sync::Backoff;
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicU8, AtomicU64, fence};
use crate::sync::ticks;
use crate::sync::{Arc, Mutex, MutexGuard, lock, this_thread};
use std::cell::Cell;

/// The top bits of a hash that tell its stripe, so that a segment of a hash index lies in one, or has some of its own.
pub(crate) const STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 11 };
/// The same of elements of collections, which are mostly written under the lock of their collection's key: 16 KiB a store.
pub(crate) const ELEMENT_STRIPE_BITS: u32 = if cfg!(loom) { 2 } else { 8 };

/// Somebody holds the stripe.
const LOCKED: u8 = 1;
/// Some of its keys are claimed. Changed by who holds it.
const CLAIMED: u8 = 2;

#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    /// [`LOCKED`] and [`CLAIMED`].
    state: AtomicU8,
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
    /// Held by who has claims.
    turn: Mutex<()>,
    /// The hashes of the keys that are claimed, in order.
    claimed: Mutex<Arc<[u64]>>,
    /// The version that time 0 has: it wraps around.
    time_0: AtomicU64,
}

/// The lock of a stripe. Of several for one stripe, one owns it.
pub(crate) struct Held<'a> {
    stripe: &'a Stripe,
    owned: bool,
    /// Some of the stripe's keys are claimed.
    claimed: Cell<bool>,
}

/// Keys that nobody else writes until it is dropped: see the module.
#[must_use]
pub(crate) struct Claims<'a> {
    stripes: &'a Stripes,
    hashes: Arc<[u64]>,
    _turn: MutexGuard<'a, ()>,
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
        let claimed = Mutex::new(Arc::from([]));
        Self { bits, each, turn: Mutex::default(), claimed, time_0: AtomicU64::new(0) }
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

    /// Whether two hashes belong to one stripe.
    pub(crate) fn is_same(&self, a: u64, b: u64) -> bool {
        self.number(a) == self.number(b)
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
    pub(crate) fn lock(&self, hash: u64) -> Held<'_> {
        Held::new(self.of(hash))
    }

    /// Locks the stripes of all `hashes`; two of one stripe share its lock. The result is in the order of `hashes`.
    pub(crate) fn lock_all(&self, hashes: &[u64]) -> Vec<Held<'_>> {
        let mut held: Vec<_> = hashes
            .iter()
            .map(|&hash| Held { stripe: self.of(hash), owned: false, claimed: Cell::new(false) })
            .collect();
        let mut order: Vec<usize> = (0..hashes.len()).collect();
        order.sort_by_key(|&i| self.number(hashes[i]));
        for (at, &i) in order.iter().enumerate() {
            if at == 0 || self.number(hashes[order[at - 1]]) != self.number(hashes[i]) {
                held[i] = Held::new(held[i].stripe);
            } else {
                let claimed = held[order[at - 1]].claimed.get();
                held[i].claimed.set(claimed);
            }
        }
        held
    }

    /// Holds the stripes of `hashes` for this thread until they are [let go](Self::let_go); `numbers`, which is empty, says which.
    /// The thread must hold none yet.
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
            Held::new(stripe).keep();
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
            let state = stripe.state.load(Relaxed);
            // Acquire: pairs with the Release when it is given back.
            let taken = state & LOCKED == 0
                && stripe.state.compare_exchange(state, state | LOCKED, Acquire, Relaxed).is_ok();
            if !taken {
                self.let_go(&numbers[before..], Version(0));
                numbers.truncate(before);
                return false;
            }
            stripe.holder.store(here, Relaxed);
            numbers.push(number);
        }
        true
    }

    /// Gives back what this thread holds. Whoever locks one of them next gives versions above `version`.
    pub(crate) fn let_go(&self, numbers: &[u32], version: Version) {
        for &number in numbers {
            let stripe = &self.each[number as usize];
            // Relaxed, and not one step: it is held.
            if stripe.version.load(Relaxed) < version.0 && !planted(Mutant::VersionNotRaised) {
                stripe.version.store(version.0, Relaxed);
            }
            stripe.holder.store(0, Relaxed);
            // Release: pairs with the Acquire in `Held::new` and `is_locked`. Nobody marks a stripe that is held.
            stripe.state.store(stripe.state.load(Relaxed) & CLAIMED, Release);
        }
    }

    /// Whether this thread holds the stripe of `hash` for several writes.
    #[inline]
    pub(crate) fn is_held_here(&self, hash: u64) -> bool {
        self.of(hash).holder.load(Relaxed) == this_thread()
    }

    /// Of keys whose stripes are held here, the hash of one that is claimed.
    pub(crate) fn find_claimed(&self, hashes: &[u64]) -> Option<u64> {
        let marked = |hash: &u64| self.of(*hash).state.load(Relaxed) & CLAIMED != 0;
        hashes.iter().copied().find(|hash| marked(hash) && self.is_claimed(*hash))
    }

    /// Claims the keys of `hashes`, when nobody else has claims. No stripe may be held, and no epoch entered.
    pub(crate) fn claim(&self, hashes: &[u64]) -> Claims<'_> {
        let mut hashes = hashes.to_vec();
        hashes.sort_unstable();
        let hashes: Arc<[u64]> = hashes.into();
        let turn = lock(&self.turn);
        *lock(&self.claimed) = Arc::clone(&hashes);
        let claims = Claims { stripes: self, hashes, _turn: turn };
        claims.mark(true);
        claims
    }

    /// Whether a key of `hash` is claimed, for who found its stripe marked.
    #[cold]
    pub(crate) fn is_claimed(&self, hash: u64) -> bool {
        let claimed = Arc::clone(&lock(&self.claimed));
        claimed.binary_search(&hash).is_ok()
    }

    /// Waits until the key of `hash` is not claimed. No stripe may be held, and no epoch entered.
    #[inline]
    pub(crate) fn wait_for_claims(&self, hash: u64) {
        if self.of(hash).state.load(Relaxed) & CLAIMED != 0 {
            self.wait_for_end_of(hash);
        }
    }

    #[cold]
    fn wait_for_end_of(&self, hash: u64) {
        while self.of(hash).state.load(Relaxed) & CLAIMED != 0 && self.is_claimed(hash) {
            drop(lock(&self.turn));
        }
    }

    /// Locks the stripes of all hashes that begin with the top `depth` bits of `hash`.
    pub(crate) fn lock_prefix(&self, hash: u64, depth: u32) -> Vec<Held<'_>> {
        let more = self.bits.saturating_sub(depth);
        let first = self.number(hash) >> more << more;
        self.each[first..][..1 << more].iter().map(Held::new).collect()
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
    pub(crate) fn meet_all(&self, version: Version) {
        self.each.iter().for_each(|stripe| stripe.met_version(version));
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
    #[inline]
    fn met_version(&self, version: Version) {
        if self.version.load(Relaxed) < version.0 {
            self.version.fetch_max(version.0, Relaxed);
        }
    }
}

impl<'a> Held<'a> {
    #[inline]
    fn new(stripe: &'a Stripe) -> Self {
        let mut backoff = Backoff::default();
        loop {
            let state = stripe.state.load(Relaxed);
            // Acquire: pairs with the Release in `drop`.
            if planted(Mutant::StripeNotLocked)
                || state & LOCKED == 0
                    && stripe.state.compare_exchange(state, state | LOCKED, Acquire, Relaxed).is_ok()
            {
                return Self { stripe, owned: true, claimed: Cell::new(state & CLAIMED != 0) };
            }
            // Relaxed: only this thread stores its own number.
            if state & LOCKED != 0 && stripe.holder.load(Relaxed) == this_thread() {
                return Self { stripe, owned: false, claimed: Cell::new(state & CLAIMED != 0) };
            }
            if backoff.is_first() {
                stripe.waits.fetch_add(1, Relaxed);
            }
            backoff.wait();
        }
    }

    /// Whether some of the stripe's keys are claimed.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.claimed.get()
    }

    /// The stripe stays locked, until [`Stripes::let_go`].
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
    pub(crate) fn met_version(&self, version: Version) {
        self.stripe.met_version(version);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.owned {
            // Release: pairs with the Acquire in `Held::new` and `is_locked`.
            self.stripe.state.store(if self.claimed.get() { CLAIMED } else { 0 }, Release);
        }
    }
}

impl Claims<'_> {
    /// Marks each stripe of a claimed key, or takes the mark off.
    fn mark(&self, claimed: bool) {
        let mut last = None;
        for &hash in &*self.hashes {
            if last.replace(self.stripes.number(hash)) != Some(self.stripes.number(hash)) {
                self.stripes.lock(hash).claimed.set(claimed);
            }
        }
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        self.mark(false);
        *lock(&self.stripes.claimed) = Arc::from([]);
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
    fn keys_of_one_stripe_share_its_lock_and_its_versions() {
        let stripes = Stripes::default();
        let of = |stripe: u64, key: u64| stripe << (64 - STRIPE_BITS) | key;
        let held = stripes.lock_all(&[of(3, 1), of(1, 2), of(3, 3), of(1, 4), of(0, 5)]);
        assert_eq!(locked(&stripes), [0, 1, 3]);
        let versions: Vec<u64> = held.iter().map(|held| held.next_version(Version(0)).0).collect();
        assert_eq!(versions, [1, 1, 2, 2, 1]);
        drop(held);
        assert!(locked(&stripes).is_empty());
        stripes.lock(of(1, 6)).met_version(Version(7));
        assert_eq!(stripes.version(), Version(7));
        stripes.meet_all(Version(5));
        let next = |stripe| stripes.lock(of(stripe, 7)).next_version(Version(0)).0;
        assert_eq!([next(1), next(3), next(2)], [8, 6, 6]);
    }
}
