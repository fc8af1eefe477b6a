//! Group commit: which writer commits for all, which ones wait, and how long a commit waits for more of them.
//!
//! ```text
//!          nobody leads, and all who are expected came             its commit ended
//!  comes ──────────────────────────────────────────────▶ leads ───────────────────▶ wakes all of its epoch,
//!    │                                                     ▲                         and one of the next
//!    │ else                          it was patient enough │                                  │
//!    └──────▶ sleeps ──────────────────────────────────────┘     ◀────────────────────────────┘
//! ```
//!
//! A commit that begins as soon as the one before has ended covers only the writers that came in between. The writers
//! just released write again a few microseconds later, wait for the rest of that commit, and then for one of their own.
//! So the first to come sleeps until as many have come as the last commit released and found waiting; the last of them
//! commits for all. Threads that write all the time then share every commit, and each waits for one sync. A thread that
//! stops costs the others their patience once, a part of the time of a sync.
//!
//! Invariants:
//! 1. A sleeping writer is woken after its epoch was committed, by the thread that committed it. (No line can
//!    check it: it is about later steps of another thread. `writers_that_wait_share_commits_and_all_return` checks both
//!    under loom, and `writers_that_start_and_stop_are_all_released` with threads.)
//! 2. While a writer sleeps whose epoch is not committed, some thread leads, or one of the sleepers has a timeout, or
//!    was woken and has not checked yet. (See 1.)

use crate::sync::lock;
use crate::sync::{Condvar, Mutex};
use std::time::Duration;

/// A commit waits for others at most this share of the time that the last sync took: more would cost more than it
/// gains.
const PATIENCE_SHARE: u32 = 2;
/// The time of a sync that was stuck is no measure.
const PATIENCE_MAX: Duration = Duration::from_millis(5);

#[derive(Default)]
struct State {
    /// A thread commits.
    leading: bool,
    /// The epoch for which one writer sleeps with a timeout; 0 for none. By epoch, since a writer that sleeps until the
    /// epoch before is committed does not check this one.
    timed: u64,
    /// Number of sleepers, by the lowest bit of the epoch that they wait for.
    asleep: [u32; 2],
    /// How many came to wait for an epoch, by its lowest bit. Only a measure: see `expected`.
    came: [u32; 2],
    /// How many will wait for the next epoch, if all recent waiters continue to write.
    expected: u32,
    /// The longest wait for them.
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
    /// Waits until `is_done`, which states that `epoch` is committed. Returns true if the caller must commit it: it
    /// leads, and must call [`GroupCommit::end`].
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

    /// Wakes the waiters that may continue. `committed`: the epoch that the caller committed, and how long it took.
    /// `None`: no commit, and all waiters check for themselves. `led`: the caller stops leading.
    pub(super) fn end(&self, committed: Option<(u64, Duration)>, led: bool) {
        let (all, one) = {
            let mut state = lock(&self.state);
            if led {
                state.leading = false;
            }
            match committed {
                Some((epoch, took)) => {
                    let now = bit(epoch);
                    // A model has no time: it waits for nobody.
                    state.expected = if cfg!(loom) { 0 } else { state.came[now] + state.came[1 - now] };
                    state.came[now] = 0;
                    state.patience = (took / PATIENCE_SHARE).min(PATIENCE_MAX);
                    // A thread that already sleeps ensures that there is a commit.
                    let one = !state.leading && state.asleep[1 - now] > 0;
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

    /// A device that takes a millisecond for a commit.
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
    fn the_first_writer_waits_for_the_expected_ones_until_its_patience_ends() {
        let device = Device::default();
        lock(&device.group_commit.state).expected = 2;
        lock(&device.group_commit.state).patience = Duration::from_millis(1);
        // Alone: after its patience it leads, and expects only itself then.
        device.write();
        assert_eq!(device.committed.load(SeqCst), 1);
        assert_eq!(lock(&device.group_commit.state).expected, 1);
        // Two writers, the first with all the patience it needs: one commit for both.
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
    fn writers_that_start_and_stop_are_all_released() {
        let device = Device::default();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let device = &device;
                // Each stops at another time, so that the others expect it without effect.
                scope.spawn(move || (0..20 * (writer + 1)).for_each(|_| device.write()));
            }
        });
        let state = lock(&device.group_commit.state);
        assert_eq!((state.leading, state.asleep), (false, [0, 0]));
        // The longest writes 160 times and is alone with the next for 20 of them. If nobody shared a commit there would
        // be 720.
        assert!(
            (160..720).contains(&device.committed.load(SeqCst)),
            "{} commits",
            device.committed.load(SeqCst)
        );
    }
}
