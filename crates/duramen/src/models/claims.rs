//! Claims of keys: a put of a claimed key, and one of another key of the same stripe, beside a long batch.

use super::Planted::{Bug, Relaxed};
use super::check;
use crate::format::Version;
use crate::index::either::Index;
use crate::index::hash::HashIndex;
use crate::mutants::{Mutant, planted};
use crate::sync::Arc;
use crate::sync::reclaim::pin_to_write;
use loom::cell::UnsafeCell;
use loom::thread;

/// Of one stripe.
const CLAIMED: u64 = 7 << 40;
const OTHER: u64 = 9 << 40;

struct Store {
    index: Index,
    /// The version that the slot of the claimed key leads to, and that of the other: whoever holds the stripe may look.
    newest: [UnsafeCell<u64>; 2],
}

impl Store {
    /// Lets a slot lead to a version that was given out; the stripe is held.
    fn publish(&self, key: usize, version: u64) {
        // SAFETY: loom tells a race; there is one thread of the system.
        let before = self.newest[key].with_mut(|newest| unsafe { newest.replace(version) });
        assert!(before < version, "version {before} was shown before {version}, and a crash would keep it");
    }

    /// As a writer does: a version, and the slot, in one hold of the stripe.
    fn put(&self, key: usize, hash: u64) {
        let guard = pin_to_write();
        loop {
            let locked = self.index.lock(hash, &guard);
            if !self.index.is_claimed(&locked, hash) || planted(Mutant::ClaimNotLookedAt) {
                return self.publish(key, locked.next_version(Version(0)).0);
            }
            assert_eq!(hash, CLAIMED, "who writes a key that nobody claimed waits");
            drop(locked);
            self.index.stripes().wait_for_claims(hash);
        }
    }

    /// As a long batch does: the stripe is held for the version, and once more when the record is whole.
    fn apply(&self) {
        let _claims = self.index.stripes().claim(&[CLAIMED]);
        let guard = pin_to_write();
        let version = self.index.lock(CLAIMED, &guard).next_version(Version(0));
        let _locked = self.index.lock(CLAIMED, &guard);
        self.publish(0, version.0);
    }
}

#[test]
fn a_key_that_a_long_batch_has_claimed_is_written_before_or_after_it_and_others_of_its_stripe_at_once() {
    let planted = [
        Bug(Mutant::ClaimNotLookedAt),
        Relaxed("index/stripes.rs", "self.stripe.state.store(if self.claimed.get()"),
        Relaxed("index/stripes.rs", "stripe.state.compare_exchange(state, state | LOCKED"),
    ];
    check(3, &planted, || {
        let newest = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let store = Arc::new(Store { index: Index::Hash(HashIndex::new()), newest });
        let batch = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.apply())
        };
        store.put(1, OTHER);
        store.put(0, CLAIMED);
        batch.join().unwrap();
        let guard = pin_to_write();
        let held = store.index.lock(CLAIMED, &guard);
        assert!(!store.index.is_claimed(&held, CLAIMED), "the batch is over, and its claims are not");
        // SAFETY: as in `publish`.
        let newest = [0, 1].map(|key| store.newest[key].with(|newest| unsafe { *newest }));
        assert!(newest.iter().all(|&version| version > 0) && newest.contains(&3), "{newest:?}");
    });
}
