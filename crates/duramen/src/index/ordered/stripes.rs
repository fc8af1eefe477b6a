//! Locks of keys, by their hashes: who writes a key holds its stripe.
//!
//! A stripe also counts versions (invariant 7 of the index). It is one line, so that writers of different keys seldom
//! meet: 16 of them at once hold the same one in 1 write of some 130.

use crate::format::Version;
use crate::index::hash::Backoff;
use crate::index::prefetch;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicU64};

const STRIPES: usize = if cfg!(loom) { 2 } else { 2048 };

#[repr(align(64))]
#[derive(Default)]
pub(super) struct Stripe {
    locked: AtomicBool,
    version: AtomicU64,
    /// How often who came had to wait.
    waits: AtomicU64,
}

pub(super) struct Stripes(Box<[Stripe]>);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Stripe::default()).collect())
    }
}

impl Stripes {
    /// Which stripe a hash belongs to; stripes are locked in this order.
    #[inline]
    pub(super) fn number(hash: u64) -> usize {
        (hash as usize >> 22) % STRIPES
    }

    #[inline]
    pub(super) fn at(&self, number: usize) -> &Stripe {
        &self.0[number]
    }

    #[inline]
    pub(super) fn fetch(&self, hash: u64) {
        prefetch(self.at(Self::number(hash)));
    }

    pub(super) fn versions(&self) -> Vec<u64> {
        self.0.iter().map(|stripe| stripe.version.load(Relaxed)).collect()
    }

    /// No record has a higher version.
    pub(super) fn meet_all(&self, version: Version) {
        self.0.iter().for_each(|stripe| stripe.met_version(version));
    }

    /// Notes what [`Stripes::versions`] gave; false when those are not of as many stripes.
    pub(super) fn meet(&self, versions: &[u64]) -> bool {
        for (stripe, &version) in self.0.iter().zip(versions) {
            stripe.met_version(Version(version));
        }
        versions.len() == self.0.len()
    }

    /// How often a stripe was waited for.
    pub(super) fn waits(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.waits.load(Relaxed)).sum()
    }

    pub(super) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

impl Stripe {
    #[inline]
    pub(super) fn lock(&self) {
        let mut backoff = Backoff::default();
        // Acquire: pairs with the Release in `unlock`.
        while !planted(Mutant::StripeNotLocked)
            && (self.locked.load(Relaxed)
                || self.locked.compare_exchange(false, true, Acquire, Relaxed).is_err())
        {
            if backoff.is_first() {
                self.waits.fetch_add(1, Relaxed);
            }
            backoff.wait();
        }
    }

    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.locked.load(Acquire)
    }

    #[inline]
    pub(super) fn unlock(&self) {
        // Release: pairs with the Acquire in `lock` and `is_locked`.
        self.locked.store(false, Release);
    }

    #[inline]
    pub(super) fn next_version(&self) -> Version {
        // Relaxed: two versions of one key are taken under the same lock.
        Version(self.version.fetch_add(1, Relaxed)).next()
    }

    #[inline]
    pub(super) fn met_version(&self, version: Version) {
        if self.version.load(Relaxed) < version.0 {
            self.version.fetch_max(version.0, Relaxed);
        }
    }
}
