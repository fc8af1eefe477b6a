//! Turns of workers. A worker that shows writes of others, without knowing whose, first waits for the end of all turns
//! that may have written them.
//!
//! A worker enters its turn in its own cache line before it writes. A reader checks afterwards which workers are in a
//! turn. With a fence between, every read write is durable or its turn is seen. A waiting worker is in no turn, so that
//! two do not wait for each other.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The turns of a keyspace's workers.
#[derive(Default)]
pub(crate) struct Turns {
    workers: Mutex<Vec<Arc<Turn>>>,
}

/// How many turns a worker has begun and ended: odd while it is in one.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Turn(AtomicU64);

impl Turns {
    /// The turn of a worker that comes.
    pub(crate) fn come(&self) -> Arc<Turn> {
        let turn = Arc::<Turn>::default();
        self.workers().push(Arc::clone(&turn));
        turn
    }

    /// Its worker goes.
    pub(crate) fn go(&self, turn: &Arc<Turn>) {
        self.workers().retain(|other| !Arc::ptr_eq(other, turn));
    }

    /// The turns of the workers other than `mine`. Every write that was read before the call, and made in one of them,
    /// is durable when they have ended.
    pub(crate) fn others(&self, mine: &Turn) -> Others {
        // SeqCst: pairs with the same in `Turn::begin`; a turn that is not seen here has written nothing that was read
        // before.
        fence(SeqCst);
        let workers = self.workers();
        let others = workers.iter().filter(|turn| !std::ptr::eq(&***turn, mine));
        let in_turn =
            others.map(|turn| (Arc::clone(turn), turn.count())).filter(|(turn, at)| turn.is_in(*at));
        Others(in_turn.collect())
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Arc<Turn>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Begins a turn.
    #[inline]
    pub(crate) fn begin(&self) {
        // Only its worker writes it.
        self.0.store(self.0.load(Relaxed) | 1, Relaxed);
        // SeqCst: pairs with the same in `Turns::others`.
        fence(SeqCst);
    }

    // Acquire: pairs with the Release in `end`.
    fn count(&self) -> u64 {
        self.0.load(Acquire)
    }

    fn is_in(&self, count: u64) -> bool {
        count % 2 == 1
    }

    /// Ends the turn: a worker that waits for it can see its writes.
    #[inline]
    pub(crate) fn end(&self) {
        // Release: pairs with the Acquire in `count`. Even, and another number than before it began.
        self.0.store(self.0.load(Relaxed).next_multiple_of(2), Release);
    }
}

fn back_off(tries: &mut u32) {
    *tries += 1;
    if *tries < 1000 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_micros(50));
    }
}

/// Turns that some workers were in.
#[derive(Default)]
pub(crate) struct Others(Vec<(Arc<Turn>, u64)>);

impl Others {
    /// These too.
    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Waits until all of them have ended. The caller must be in none.
    pub(crate) fn wait(&self) {
        let mut tries = 0;
        while self.0.iter().any(|(turn, at)| turn.count() == *at) {
            back_off(&mut tries);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_for_other_turns_returns_when_they_have_ended() {
        const ROUNDS: u64 = 2000;
        let turns = Turns::default();
        // Odd while it is written in a turn that has not ended.
        let written: [AtomicU64; 2] = Default::default();
        std::thread::scope(|scope| {
            for mine in 0..2 {
                let (turns, written) = (&turns, &written);
                scope.spawn(move || {
                    let turn = turns.come();
                    for _ in 0..ROUNDS {
                        turn.begin();
                        written[mine].fetch_add(1, Relaxed);
                        let seen = written[1 - mine].load(Relaxed);
                        let others = turns.others(&turn);
                        written[mine].fetch_add(1, Relaxed);
                        turn.end();
                        others.wait();
                        let now = written[1 - mine].load(Relaxed);
                        assert!(seen % 2 == 0 || now > seen, "a read from a turn that has not ended");
                    }
                    turns.go(&turn);
                });
            }
        });
    }
}
