//! What the calling thread holds of a store between calls: key locks, the barrier, active transactions. A call that
//! would wait for one of these would wait for its own thread forever. So it checks here first, and fails with the place
//! where the thread took it.
//!
//! Each thread has its own list; in a model all threads share one, whose entries name their thread. An entry lives as
//! long as its writer holds the lock or transaction ([`Noted`]); writers stay in their thread.

use super::this_thread;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;

/// The place of a call in the caller's program.
pub type Place = &'static Location<'static>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Stripes of some keys.
    Keys,
    /// The barrier.
    ExclusiveBarrier,
    /// An active transaction, by its number.
    Transaction(u64),
    /// The stripe of one key, while the caller's function changes its value in place.
    Change,
}

impl What {
    /// Whether stripes are held: then writes by other means are refused, since they may wait for another stripe, for
    /// space, or at the barrier.
    pub fn has_stripes(self) -> bool {
        matches!(self, Self::Keys | Self::Change)
    }

    /// Whether a thread that has closed the barrier waits for it.
    fn is_inside(self) -> bool {
        matches!(self, Self::Keys | Self::Transaction(_))
    }
}

/// Something that this thread holds.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    thread: u64,
    /// The barrier of the store.
    store: usize,
    what: What,
    place: Place,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, place, .. } = self;
        match what {
            What::Keys => write!(f, "this thread holds keys of the store, locked at {place}"),
            What::ExclusiveBarrier => write!(f, "this thread holds all keys of the store, locked at {place}"),
            What::Transaction(_) => {
                write!(f, "this thread has an active transaction of the store, begun at {place}")
            }
            What::Change => write!(f, "this thread is within a change in place, called at {place}"),
        }
    }
}

thread_local! {
    static HELD: RefCell<Vec<Held>> = const { RefCell::new(Vec::new()) };
    /// Length of the list: most threads hold nothing, and find that out by one load.
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Changes the list, unless the thread is ending.
fn change(work: impl FnOnce(&mut Vec<Held>)) {
    let _ = HELD.try_with(|held| {
        let held = &mut *held.borrow_mut();
        work(held);
        COUNT.try_with(|count| count.set(held.len()))
    });
}

/// An entry of the list. Dropped in the thread that made it.
#[derive(Debug)]
pub struct Noted {
    store: usize,
    what: What,
}

impl Drop for Noted {
    fn drop(&mut self) {
        let thread = this_thread();
        let is_it = |held: &Held| (held.thread, held.store, held.what) == (thread, self.store, self.what);
        change(|held| {
            held.iter().rposition(is_it).map(|at| held.remove(at));
        });
    }
}

/// Notes that this thread now holds `what` of the store with this barrier.
pub(super) fn note(store: usize, what: What, place: Place) -> Noted {
    let thread = this_thread();
    change(|held| held.push(Held { thread, store, what, place }));
    Noted { store, what }
}

/// Whether this thread may hold anything, of any store.
#[inline]
pub(super) fn is_any() -> bool {
    COUNT.try_with(|count| count.get() != 0).unwrap_or(false)
}

/// The newest entry that this thread holds of the store with this barrier and for which `is_so`.
#[cold]
pub(super) fn find(store: usize, is_so: impl Fn(What) -> bool) -> Option<Held> {
    let thread = this_thread();
    let is_it = |held: &&Held| (held.thread, held.store) == (thread, store) && is_so(held.what);
    HELD.try_with(|held| held.borrow().iter().rev().find(is_it).copied()).ok().flatten()
}

/// Whether a thread that closes this barrier waits for something that this thread holds.
pub(super) fn is_inside(store: usize) -> bool {
    find(store, What::is_inside).is_some()
}
