//! The barrier of a store: commands that name their keys go through it side by side, and one that does not has it for
//! itself.
//!
//! Who goes through stores to a line of its own, and looks then whether the barrier is closed: a single write is
//! [pinned](reclaim::pin) for as long as it takes, which is such a store; what writes several times has a counter that
//! is odd meanwhile ([`SeqCounter`]). Neither takes a locked instruction. Who closes the barrier says so, has the
//! kernel fence all CPUs (as [`reclaim::GracePeriod::now`] does for the same reason), and waits until all have left who
//! were inside then. So one of the two sees the other.
//!
//! Order of waiting: who waits at the barrier holds no lock of a key and no epoch, is not pinned, and counts as
//! outside. Who waits for the others to leave holds nothing but the barrier. The background thread passes it by: it
//! changes nothing that a command sees, but for keys that it evicts, which it does [while nobody is
//! alone](ExclusiveBarrier::while_open). It waits then for what holds a stripe or is in an epoch, which waits for no
//! barrier.

use super::Backoff;
use super::atomic::AtomicU64;
use super::atomic::Ordering::{Acquire, Relaxed, Release};
use super::holding::{self, Held, Noted, Place, What};
use super::reclaim::{self, GracePeriod, Guard, SeqCounter};
use super::time::Instant;
use super::{Arc, Condvar, Mutex, lock, rank, this_thread};
use crate::mutants::{Mutant, planted};
use std::time::Duration;

#[derive(Default)]
pub(crate) struct ExclusiveBarrier {
    /// The thread that has closed it, else 0.
    by: AtomicU64,
    closed: Mutex<bool>,
    opened: Condvar,
    /// Whether all others have left since it was closed.
    alone: Mutex<bool, { rank::ALONE }>,
}

impl ExclusiveBarrier {
    /// Which store it is the barrier of, in this process.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// This thread holds it of the store now.
    pub(crate) fn note(&self, what: What, place: Place) -> Noted {
        holding::note(self.id(), what, place)
    }

    /// The newest that this thread holds of the store and that is so.
    #[inline]
    pub(crate) fn held_here(&self, is_so: impl Fn(What) -> bool) -> Option<Held> {
        if holding::is_any() { holding::find(self.id(), is_so) } else { None }
    }

    /// Whether who closes it waits for this thread.
    fn is_awaited_here(&self) -> bool {
        reclaim::is_pinned() || holding::is_inside(self.id())
    }

    /// Whether another thread has closed it.
    #[inline]
    fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `open`.
        let by = self.by.load(Acquire);
        by != 0 && by != this_thread()
    }

    /// Pins this thread to write once, inside.
    #[inline]
    pub(crate) fn pin(&self) -> Guard {
        let guard = reclaim::pin_to_write();
        if self.is_closed() { self.pin_later(guard) } else { guard }
    }

    #[cold]
    fn pin_later(&self, mut guard: Guard) -> Guard {
        loop {
            drop(guard);
            // One that is inside already is waited for, and what it writes is over before it leaves.
            let is_inside = self.is_awaited_here();
            if !is_inside {
                self.wait();
            }
            guard = reclaim::pin_to_write();
            if !self.is_closed() || is_inside {
                return guard;
            }
        }
    }

    /// Goes inside, until `turns` ends. Whether it is: not when who has closed it waits for this thread, which is inside by other means
    /// that may end before `turns`.
    #[inline]
    #[must_use]
    pub(crate) fn enter(&self, turns: &SeqCounter) -> bool {
        loop {
            turns.begin();
            if !self.is_closed() {
                return true;
            }
            turns.end();
            if self.is_awaited_here() {
                return false;
            }
            self.wait();
        }
    }

    /// Waits until it is open.
    #[cold]
    fn wait(&self) {
        let mut closed = lock(&self.closed);
        while *closed {
            closed = self.opened.wait(closed);
        }
    }

    /// Closes it, when it is open, and waits until everybody else has left; `insiders` says who may be inside. The caller
    /// is neither inside nor pinned.
    pub(crate) fn close(&self, insiders: impl Fn() -> Vec<Arc<SeqCounter>>) {
        debug_assert!(!reclaim::is_pinned(), "it would wait for itself");
        {
            let mut closed = lock(&self.closed);
            while *closed {
                closed = self.opened.wait(closed);
            }
            *closed = true;
        }
        // Relaxed: the moment that is noted next fences. Before the list is made: who comes to it later sees this.
        self.by.store(this_thread(), Relaxed);
        if planted(Mutant::BarrierNotWaitedFor) {
            return;
        }
        let mut backoff = Backoff::default();
        let mut grace = loop {
            // The kernel may refuse to fence for want of memory, for a while.
            match GracePeriod::now(insiders()) {
                Some(grace) => break grace,
                None => backoff.wait(),
            }
        };
        while !grace.has_elapsed() {
            backoff.wait();
        }
        *lock(&self.alone) = true;
    }

    /// Opens it again.
    pub(crate) fn open(&self) {
        *lock(&self.alone) = false;
        let mut closed = lock(&self.closed);
        // Release: pairs with the Acquire in `is_closed`.
        self.by.store(0, Release);
        *closed = false;
        drop(closed);
        self.opened.notify_all();
    }

    /// For what no command may see happen: none runs alone for as long as what is returned lives, or it is this thread's. `None`: another
    /// thread's does.
    pub(crate) fn while_open(&self) -> Option<impl Sized + '_> {
        let alone = lock(&self.alone);
        (!*alone || self.by.load(Relaxed) == this_thread()).then_some(alone)
    }

    /// Waits until no command of another thread runs alone, but not for long: that one may wait for what the caller holds. Whether it was
    /// worth it.
    pub(crate) fn wait_a_while(&self, most: Duration) -> bool {
        let (begun, mut backoff) = (Instant::now(), Backoff::default());
        while self.while_open().is_none() {
            if begun.elapsed() >= most {
                return false;
            }
            backoff.wait();
        }
        true
    }
}
