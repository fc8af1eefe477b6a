//! The threads of a simulated machine: real threads, exactly one of which runs at a time. At each *point* (a call of
//! the medium, an atomic operation, a lock) a seed decides which runs next, so the same seed repeats the run.
//!
//! ```text
//!  run(settings, main) ──▶ thread 0 ──spawn──▶ thread 1 ...        each under a keeper that joins it
//!                             │ point: choose who goes on; hand over, and wait for one's turn
//!                             ▼
//!        all gone, or nobody can go on (deadlock), or too many steps (livelock), or a panic ──▶ Report
//! ```
//!
//! Outside of a run every function here does nothing, or reports that it did nothing; the caller continues as if there
//! were no schedule.
//!
//! Time is simulated too. It passes by steps, jumps when only sleepers are left, and now and then by chance, since any
//! time may pass between two steps of a thread.
//!
//! Invariants:
//! 1. Only the thread whose turn it is runs; the others wait in [`Run::hand_over`], or have not begun.
//! 2. A thread keeps its turn until it has ended, with the destructors of its thread-locals, which may also reach
//!    points. Its keeper passes the turn on.
//! 3. Nothing that differs between two processes (addresses, thread ids, time of day) decides anything. (No line can check
//!    it: it is about two runs. `a_schedule_repeats_by_its_seed_and_another_seed_gives_another` does.)
//!
//! Memory is sequentially consistent here: reorderings that the language allows beyond that are for loom to find.

mod choice;
mod run;

pub use choice::Strategy;
pub use run::{Report, Settings, run};

use run::Run;
use std::cell::Cell;
use std::time::Duration;

/// A place where another thread may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Point {
    /// Before an atomic operation.
    Atomic = 1,
    /// Before a lock is taken.
    Lock,
    /// Before memory of the medium is read.
    Load,
    /// Before it is stored to.
    Store,
    /// Before a flush.
    Flush,
    /// Before a drain.
    Drain,
    /// Before a sync.
    Sync,
    /// Before the medium grows.
    Grow,
    /// The caller waits for another thread.
    Relax,
    /// A point of the test's own.
    Other,
}

thread_local! {
    // No destructor: it is there also in the destructors of others (invariant 2).
    static ME: Cell<Option<(&'static Run, usize)>> = const { Cell::new(None) };
}

/// Whether the calling thread belongs to a run.
#[inline]
#[must_use]
pub fn is_scheduled() -> bool {
    ME.get().is_some()
}

/// Lets another thread run here, if the schedule says so. `detail` must be the same in each process.
#[inline]
pub fn point(what: Point, detail: u64) {
    if let Some((run, me)) = ME.get() {
        run.point(me, what, detail);
    }
}

/// Waits for others: another thread runs, if any is ready. False outside of a run.
#[inline]
#[must_use]
pub fn relax() -> bool {
    ME.get().is_some_and(|(run, me)| {
        run.point(me, Point::Relax, 0);
        true
    })
}

/// Waits until somebody releases `on`. False outside of a run, or when it is being stopped: then the caller waits as
/// it would without a schedule.
#[must_use]
pub fn block(on: usize) -> bool {
    ME.get().is_some_and(|(run, me)| run.block(me, on))
}

/// Makes all threads ready that wait for `on`.
#[inline]
pub fn release(on: usize) {
    if let Some((run, _)) = ME.get() {
        run.release(on);
    }
}

/// Waits until somebody notifies `on`, or for `timeout`. False as with [`block`].
#[must_use]
pub fn wait(on: usize, timeout: Duration) -> bool {
    ME.get().is_some_and(|(run, me)| run.wait(me, on, timeout))
}

/// Makes one thread ready that waits to be notified by `on`.
pub fn notify_one(on: usize) {
    if let Some((run, _)) = ME.get() {
        run.notify_one(on);
    }
}

/// Lets simulated time pass. False as with [`block`].
#[must_use]
pub fn sleep(time: Duration) -> bool {
    ME.get().is_some_and(|(run, me)| run.sleep(me, time))
}

/// The simulated time since the run began.
#[must_use]
pub fn now() -> Option<Duration> {
    ME.get().map(|(run, _)| run.now())
}

/// A number that is greater each time anybody asks for it in this run: it orders what happened.
#[must_use]
pub fn stamp() -> u64 {
    ME.get().map_or(0, |(run, _)| run.stamp())
}

/// Says what the calling thread is doing, for reports.
pub fn say(what: &str) {
    if let Some((run, me)) = ME.get() {
        run.say(me, what);
    }
}

/// Another thread of a run.
#[derive(Debug)]
pub struct Spawned(usize);

/// Begins another thread of the caller's run; gives `work` back outside of a run.
///
/// # Errors
/// `work`, when there is no run.
pub fn spawn<F: FnOnce() + Send + 'static>(name: &str, work: F) -> Result<Spawned, F> {
    match ME.get() {
        None => Err(work),
        Some((run, _)) => Ok(Spawned(run.spawn(name, work))),
    }
}

impl Spawned {
    /// Waits until it has left.
    pub fn join(&self) {
        if let Some((run, me)) = ME.get() {
            run.join(me, self.0);
        }
    }
}
