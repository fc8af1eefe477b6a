//! Group commit: who commits for all, who waits, and how many a commit is worth waiting for.
//!
//! ```text
//!          nobody leads, and all who are expected came             its commit ended
//!  comes ──────────────────────────────────────────────▶ leads ───────────────────▶ wakes all of its epoch,
//!    │                                                     ▲                         and one of the next
//!    │ else                          it was patient enough │                                  │
//!    └──────▶ sleeps ──────────────────────────────────────┘     ◀────────────────────────────┘
//! ```
//!
//! A commit that begins the moment the one before has ended is alone with those who came meanwhile: whoever was just
//! released writes again a few microseconds later, waits for the rest of that commit, and then for one of its own. So
//! who comes first sleeps until as many have come as the last commit released and found waiting; the last of them
//! commits for all. Where the same threads write all the time they share every commit then, and each waits for one
//! sync; a thread that stops costs the others their patience once, a part of what a sync takes.
//!
//! Invariants:
//! 1. Who sleeps is woken after its epoch was committed, by whoever committed it.
//! 2. While somebody sleeps whose epoch is not committed, somebody leads, or one of them sleeps for a time only, or was
//!    woken and has not looked yet.

use crate::mutants::{Mutant, planted};
use crate::sync::lock;
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

/// Others are waited for at most this share of the time that the last sync took: more would cost more than it gains.
const PATIENCE_SHARE: u32 = 2;
/// After a sync that was stuck it says nothing.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

#[derive(Default)]
struct State {
    /// Somebody commits.
    leading: bool,
    /// Of this epoch somebody sleeps for a time only; 0 for none. By epoch, since who sleeps until the one before is
    /// committed does not look after this one.
    timed: u64,
    /// Who sleeps, by the lowest bit of the epoch that is waited for.
    asleep: [u32; 2],
    /// How many came to wait for an epoch, by its lowest bit. Only a measure: see `expected`.
    came: [u32; 2],
    /// How many will wait for the next epoch, if all that waited of late go on writing.
    expected: u32,
    /// The most that is waited for them.
    patience: Duration,
}

#[derive(Default)]
pub(super) struct GroupCommit {
    state: Mutex<State>,
    done: [Condvar; 2],
}

fn bit(epoch: u64) -> usize {
    (epoch & 1) as usize
}

impl GroupCommit {
    /// Waits until `is_done`, which says that `epoch` is committed. True when the caller is to commit it: it leads, and
    /// must [`GroupCommit::end`].
    pub(super) fn wait(&self, epoch: u64, is_done: impl Fn() -> bool) -> bool {
        let bit = bit(epoch);
        let mut state = lock(&self.state);
        if is_done() {
            return false;
        }
        state.came[bit] += 1;
        let mut patient = true;
        while state.leading || (patient && state.came[bit] < state.expected) {
            state.asleep[bit] += 1;
            if state.leading || state.timed == epoch {
                state = self.done[bit].wait(state);
            } else {
                state.timed = epoch;
                let patience = state.patience;
                state = self.done[bit].wait_timeout(state, patience);
                if state.timed == epoch {
                    state.timed = 0;
                }
                patient = false;
            }
            state.asleep[bit] -= 1;
            if is_done() {
                return false;
            }
        }
        state.leading = true;
        true
    }

    /// Wakes those who may go on: `committed` is the epoch that the caller committed, in `took`. `None`: it did not,
    /// and all look for themselves. `led`: the caller leads no longer.
    pub(super) fn end(&self, committed: Option<(u64, Duration)>, led: bool) {
        let (all, one) = {
            let mut state = lock(&self.state);
            if led {
                state.leading = false;
            }
            match committed {
                Some((epoch, took)) => {
                    let now = bit(epoch);
                    // A model has no time: nobody is waited for there.
                    state.expected = if cfg!(loom) { 0 } else { state.came[now] + state.came[1 - now] };
                    state.came[now] = 0;
                    state.patience = (took / PATIENCE_SHARE).min(PATIENCE_MAX);
                    // Somebody who sleeps already sees to it that there is a commit.
                    let one = !state.leading && state.asleep[1 - now] > 0 && !planted(Mutant::NextNotWoken);
                    (
                        [now == 0 && state.asleep[0] > 0, now == 1 && state.asleep[1] > 0],
                        one.then_some(1 - now),
                    )
                }
                None => ([state.asleep[0] > 0, state.asleep[1] > 0], None),
            }
        };
        if let Some(next) = one {
            self.done[next].notify_one();
        }
        for (done, all) in self.done.iter().zip(all) {
            if all {
                done.notify_all();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::SeqCst;

    /// Commits of a device that takes a millisecond.
    #[derive(Default)]
    struct Device {
        group_commit: GroupCommit,
        committed: AtomicU64,
        current: AtomicU64,
    }

    impl Device {
        /// Writes, and waits until that is committed.
        fn write(&self) {
            let epoch = self.current.load(SeqCst) + 1;
            if self.group_commit.wait(epoch, || self.committed.load(SeqCst) >= epoch) {
                let epoch = self.current.fetch_add(1, SeqCst) + 1;
                let took = Duration::from_millis(1);
                std::thread::sleep(took);
                self.committed.store(epoch, SeqCst);
                self.group_commit.end(Some((epoch, took)), true);
            }
        }
    }

    #[test]
    fn who_comes_first_waits_for_those_expected_but_not_for_ever() {
        let device = Device::default();
        lock(&device.group_commit.state).expected = 2;
        lock(&device.group_commit.state).patience = Duration::from_millis(1);
        // Alone: after its patience it leads, and is expected alone then.
        device.write();
        assert_eq!(device.committed.load(SeqCst), 1);
        assert_eq!(lock(&device.group_commit.state).expected, 1);
        // Two, of which the first has all the patience that it needs: one commit for both.
        lock(&device.group_commit.state).expected = 2;
        lock(&device.group_commit.state).patience = Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| device.write());
            scope.spawn(|| device.write());
        });
        assert_eq!(device.committed.load(SeqCst), 2);
        assert_eq!(lock(&device.group_commit.state).expected, 2);
    }

    #[test]
    fn writers_that_come_and_go_are_all_released() {
        let device = Device::default();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let device = &device;
                // Each stops at another time, so that it is expected in vain.
                scope.spawn(move || (0..20 * (writer + 1)).for_each(|_| device.write()));
            }
        });
        let state = lock(&device.group_commit.state);
        assert_eq!((state.leading, state.asleep), (false, [0, 0]));
        // The longest writes 160 times and is alone with the next for 20 of them; nobody shares were all alone: 720.
        assert!(
            (160..720).contains(&device.committed.load(SeqCst)),
            "{} commits",
            device.committed.load(SeqCst)
        );
    }
}
