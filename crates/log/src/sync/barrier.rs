//! The exclusive barrier of a store: commands that name their keys pass it concurrently, and a command that does not
//! name them closes it and runs alone.
//!
//! A thread that passes stores to a line of its own, and then checks whether the barrier is closed. A single write is
//! [pinned](reclaim::pin) for its duration, which is such a store; a sequence of writes has a counter that is odd
//! meanwhile ([`SeqCounter`]). Neither takes a locked instruction. A thread that closes the barrier sets the flag, has
//! the kernel fence all CPUs (as [`reclaim::GracePeriod::now`] does for the same reason), and waits until all threads
//! have left that were inside. So one of the two observes the other.
//!
//! Order of waiting: a thread that waits at the barrier holds no lock of a key and no epoch, is not pinned, and counts
//! as outside. A thread that waits for the others to leave holds nothing but the barrier. The background thread
//! bypasses it: it changes nothing that a command observes, except for keys that it evicts, which it does [while no
//! command runs alone](ExclusiveBarrier::while_open). Then it waits for holders of a stripe and for writers in an
//! epoch, which wait for no barrier.

use super::Backoff;
use super::atomic::AtomicU64;
use super::atomic::Ordering::{Acquire, Relaxed, Release};
use super::holding::{self, Held, Noted, Place, What};
use super::reclaim::{self, GracePeriod, Guard, SeqCounter};
use super::time::Instant;
use super::{Arc, Condvar, Mutex, lock, rank, this_thread};
use std::time::Duration;

#[derive(Default)]
pub struct ExclusiveBarrier {
    /// The thread that has closed it, else 0.
    by: AtomicU64,
    closed: Mutex<bool>,
    opened: Condvar,
    /// Whether all others have left since it was closed.
    alone: Mutex<bool, { rank::ALONE }>,
}

impl ExclusiveBarrier {
    /// Identifies the store of the barrier, in this process.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Notes that this thread now holds `what` of the store.
    pub fn note(&self, what: What, place: Place) -> Noted {
        holding::note(self.id(), what, place)
    }

    /// The newest entry that this thread holds of the store and for which `is_so`.
    #[inline]
    pub fn held_here(&self, is_so: impl Fn(What) -> bool) -> Option<Held> {
        if holding::is_any() { holding::find(self.id(), is_so) } else { None }
    }

    /// Whether a thread that closes it would wait for this thread.
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
    pub fn pin(&self) -> Guard {
        let guard = reclaim::pin_to_write();
        if self.is_closed() { self.pin_later(guard) } else { guard }
    }

    #[cold]
    fn pin_later(&self, mut guard: Guard) -> Guard {
        loop {
            drop(guard);
            // A thread that is inside already is waited for, and its write is over before it leaves.
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

    /// Goes inside, until `turns` ends. Returns false if the thread that has closed it waits for this thread: this one
    /// is then inside by other means, which may end before `turns`.
    #[inline]
    #[must_use]
    pub fn enter(&self, turns: &SeqCounter) -> bool {
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

    /// Closes it once it is open, and waits until all others have left; `insiders` returns the counters of those that
    /// may be inside. The caller is neither inside nor pinned.
    pub fn close(&self, insiders: impl Fn() -> Vec<Arc<SeqCounter>>) {
        debug_assert!(!reclaim::is_pinned(), "a pinned thread that closes the barrier would wait for itself");
        {
            let mut closed = lock(&self.closed);
            while *closed {
                closed = self.opened.wait(closed);
            }
            *closed = true;
        }
        // Relaxed: the grace period noted next fences. Stored before the list is made, so that a writer added to it
        // later observes this.
        self.by.store(this_thread(), Relaxed);
        let mut backoff = Backoff::default();
        let mut grace = loop {
            // The kernel may temporarily refuse to fence for lack of memory.
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
    pub fn open(&self) {
        *lock(&self.alone) = false;
        let mut closed = lock(&self.closed);
        // Release: pairs with the Acquire in `is_closed`.
        self.by.store(0, Release);
        *closed = false;
        drop(closed);
        self.opened.notify_all();
    }

    /// For changes that no command running alone may observe: none of another thread runs alone while the result lives.
    /// `None`: a command of another thread runs alone now.
    pub fn while_open(&self) -> Option<impl Sized + '_> {
        let alone = lock(&self.alone);
        (!*alone || self.by.load(Relaxed) == this_thread()).then_some(alone)
    }

    /// Whether some thread keeps it [open](Self::while_open).
    pub fn is_kept_open(&self) -> bool {
        self.alone.try_lock().is_none()
    }

    /// Waits until no command of another thread runs alone, for at most `most`: that command may wait for something the
    /// caller holds. Returns whether none does.
    pub fn wait_a_while(&self, most: Duration) -> bool {
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
