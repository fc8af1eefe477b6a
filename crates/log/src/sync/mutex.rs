//! Ranked mutexes, and the condition variables that wait under them, over the primitives of the build: see
//! [`super::rank`].

use super::PoisonError;
use super::primitive;
use super::rank::{self, Held};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// A mutex of this rank.
#[derive(Debug, Default)]
pub struct Mutex<T, const RANK: u8 = { rank::LEAF }>(primitive::Mutex<T>);

/// Fields are dropped in this order.
pub struct MutexGuard<'a, T, const RANK: u8 = { rank::LEAF }> {
    guard: primitive::MutexGuard<'a, T>,
    held: Held,
}

impl<T, const RANK: u8> Mutex<T, RANK> {
    pub fn new(value: T) -> Self {
        Self(primitive::Mutex::new(value))
    }

    /// Succeeds if nobody holds it, and no holder has panicked.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T, RANK>> {
        let guard = self.0.try_lock().ok()?;
        Some(MutexGuard { guard, held: Held::have(RANK, 0) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Locks a mutex whose holder never leaves it half changed.
#[cfg_attr(debug_assertions, track_caller)]
pub fn lock<T, const RANK: u8>(mutex: &Mutex<T, RANK>) -> MutexGuard<'_, T, RANK> {
    let held = Held::wait(RANK, 0);
    MutexGuard { guard: mutex.0.lock().unwrap_or_else(PoisonError::into_inner), held }
}

impl<T, const RANK: u8> Deref for MutexGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for MutexGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition variable. A waiter keeps the mutex's rank.
#[derive(Debug, Default)]
pub struct Condvar(primitive::Condvar);

impl Condvar {
    /// Waits to be notified; may wake spuriously.
    pub fn wait<'a, T, const RANK: u8>(
        &self,
        MutexGuard { guard, held }: MutexGuard<'a, T, RANK>,
    ) -> MutexGuard<'a, T, RANK> {
        MutexGuard { guard: self.0.wait(guard).unwrap_or_else(PoisonError::into_inner), held }
    }

    /// Like `wait`, for at most `timeout`.
    pub fn wait_timeout<'a, T, const RANK: u8>(
        &self,
        MutexGuard { guard, held }: MutexGuard<'a, T, RANK>,
        timeout: Duration,
    ) -> MutexGuard<'a, T, RANK> {
        let waited = self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        MutexGuard { guard: waited.0, held }
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(all(test, debug_assertions, not(any(loom, feature = "schedule"))))]
mod tests {
    use super::*;
    use crate::sync::rank::{COMPACTOR, STRIPE};

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (low, high) = (Mutex::<_, { COMPACTOR }>::new(()), Mutex::<_, { STRIPE }>::new(()));
        let in_order = (lock(&low), lock(&high));
        drop(in_order);
        let tried = (lock(&high), low.try_lock().unwrap());
        drop(tried);
        drop(lock(&low));
    }

    #[test]
    #[should_panic(expected = "waiting for a lock of rank 30 while holding one of rank 70")]
    fn waiting_for_a_lower_rank_panics() {
        let (low, high) = (Mutex::<_, { COMPACTOR }>::new(()), Mutex::<_, { STRIPE }>::new(()));
        let _wrong = (lock(&high), lock(&low));
    }

    #[test]
    #[should_panic(expected = "waiting for a lock of rank 255")]
    fn waiting_under_a_leaf_lock_panics() {
        let (leaf, other) = (Mutex::<_>::new(()), Mutex::<_>::new(()));
        let _wrong = (lock(&leaf), lock(&other));
    }

    #[test]
    #[should_panic(expected = "waiting for a lock of rank 70")]
    fn waiting_for_an_earlier_lock_of_the_same_rank_panics() {
        let second = Held::wait(STRIPE, 2);
        let _wrong = (Held::wait(STRIPE, 1), second);
    }
}
