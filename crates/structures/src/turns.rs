//! Turns of workers, and how one of them gets the keyspace for itself.
//!
//! A transaction that lost against another worker's write runs again. A long one could lose for ever against a short one that
//! runs all the time; so after a few losses its worker runs it alone: the others begin no turn meanwhile.
//!
//! Who is in a turn says so in a line of its own, and looks then whether somebody is alone; who wants to be alone says so,
//! and looks then who is in a turn. With a fence between, one of the two sees the other. Whoever waits for the others is
//! in no turn, so that two who want to be alone do not wait for each other.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The turns of a keyspace's workers.
#[derive(Default)]
pub(crate) struct Turns {
    /// Held by who is alone.
    alone: Mutex<()>,
    is_alone: AtomicBool,
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

    /// Begins a turn, when nobody else is alone any more.
    #[inline]
    pub(crate) fn begin(&self, turn: &Turn) {
        loop {
            turn.enter();
            // SeqCst: pairs with the same in `alone`; one of the two sees what the other stored before.
            fence(SeqCst);
            // Acquire: pairs with the Release in `Alone::drop`, though what transactions meet is ordered by the engine.
            if !self.is_alone.load(Acquire) {
                return;
            }
            turn.end();
            drop(self.lock());
        }
    }

    /// Waits until no other worker is in a turn. From then on none is until what is returned is dropped. The caller must not
    /// be in one.
    pub(crate) fn alone(&self) -> Alone<'_> {
        let held = self.lock();
        self.is_alone.store(true, Relaxed);
        // SeqCst: see `begin`.
        fence(SeqCst);
        let mut tries = 0;
        // Looked at anew each time: workers come and go.
        while self.workers().iter().any(|turn| turn.is_in(turn.count())) {
            back_off(&mut tries);
        }
        Alone { turns: self, _held: held }
    }

    /// The turns that workers other than `mine` are in. What was read before the call, and written in one of them, is settled when they
    /// have ended.
    pub(crate) fn others(&self, mine: &Turn) -> Others {
        // SeqCst: see `begin`; what a turn wrote that is not seen here was not read before either.
        fence(SeqCst);
        let workers = self.workers();
        let others = workers.iter().filter(|turn| !std::ptr::eq(&***turn, mine));
        let in_turn =
            others.map(|turn| (Arc::clone(turn), turn.count())).filter(|(turn, at)| turn.is_in(*at));
        Others(in_turn.collect())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.alone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Arc<Turn>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Is in a turn, of who was alone until now.
    pub(crate) fn go_on(&self, _alone: &Alone<'_>) {
        // Relaxed: the lock that is given back afterwards orders it for the next who is alone.
        self.enter();
    }

    fn enter(&self) {
        // Only its worker writes it.
        self.0.store(self.0.load(Relaxed) | 1, Relaxed);
    }

    // Acquire: pairs with the Release in `end`.
    fn count(&self) -> u64 {
        self.0.load(Acquire)
    }

    fn is_in(&self, count: u64) -> bool {
        count % 2 == 1
    }

    /// Ends the turn: what it did can be seen by who waits for that.
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
pub(crate) struct Others(Vec<(Arc<Turn>, u64)>);

impl Others {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits until all of them have ended. The caller must be in none.
    pub(crate) fn wait(&self) {
        let mut tries = 0;
        while self.0.iter().any(|(turn, at)| turn.count() == *at) {
            back_off(&mut tries);
        }
    }
}

/// Nobody else is in a turn.
pub(crate) struct Alone<'a> {
    turns: &'a Turns,
    _held: MutexGuard<'a, ()>,
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `begin`.
        self.turns.is_alone.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_alone_is_alone_and_nobody_waits_for_ever() {
        const ROUNDS: u64 = 2000;
        let turns = Turns::default();
        // Changed by two steps each: whoever was not alone would lose counts.
        let count = std::sync::atomic::AtomicU64::new(0);
        let add = || {
            let before = count.load(Relaxed);
            std::hint::black_box(before);
            count.store(before + 1, Relaxed);
        };
        let inside = std::sync::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let alone = turns.alone();
                        assert_eq!(inside.load(Relaxed), 0);
                        add();
                        drop(alone);
                    }
                });
                scope.spawn(|| {
                    let turn = turns.come();
                    for _ in 0..ROUNDS {
                        turns.begin(&turn);
                        inside.fetch_add(1, Relaxed);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Relaxed);
                        turn.end();
                    }
                    turns.go(&turn);
                });
            }
        });
        assert_eq!(count.load(Relaxed), 2 * ROUNDS);
    }
}
