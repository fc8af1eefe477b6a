//! The standard library's primitives, with points at which a schedule may switch to another thread, and with its time:
//! see [`duramen_media::sim::schedule`]. In a thread outside of a schedule they behave as in the standard library, at
//! the cost of one look at a thread-local.
//!
//! Relaxed loads and stores have no points. They promise nothing about when they happen, so code that relies on them
//! has another point near; and a split makes thousands of them.
//!
//! A scope's threads ([`std::thread::scope`], for recovery) are not scheduled: recovery shares nothing with others.

use duramen_media::sim::schedule::{self, Point, point};
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

/// A mutex. A thread that finds it locked waits in the schedule, not in the kernel.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    /// `None` only while it is dropped or waits on a condition.
    guard: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waiters of the mutex wait for this address.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { guard: Some(guard), mutex: self }
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        point(Point::Lock, 0);
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(self.guard(guard)),
                Err(TryLockError::Poisoned(error)) => {
                    return Err(PoisonError::new(self.guard(error.into_inner())));
                }
                Err(TryLockError::WouldBlock) if schedule::block(self.address()) => {}
                Err(TryLockError::WouldBlock) => {
                    let locked = self.0.lock().map_err(PoisonError::into_inner);
                    return Ok(self.guard(locked.unwrap_or_else(|guard| guard)));
                }
            }
        }
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        point(Point::Lock, 0);
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(error)) => {
                Err(TryLockError::Poisoned(PoisonError::new(self.guard(error.into_inner()))))
            }
        }
    }

    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard without its lock"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.guard {
            Some(guard) => guard,
            None => unreachable!("a guard without its lock"),
        }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_some() {
            schedule::release(self.mutex.address());
        }
    }
}

#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// Waits to be notified, or for `timeout`; may wake spuriously, as any wait.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let mutex = guard.mutex;
        if schedule::is_scheduled() {
            // No other thread runs between the two, so no notification is missed.
            guard.guard = None;
            schedule::release(mutex.address());
            let _ = schedule::wait(std::ptr::from_ref(self).addr(), timeout);
            drop(guard);
            return mutex.lock().map(|guard| (guard, ())).map_err(|e| PoisonError::new((e.into_inner(), ())));
        }
        if let Some(locked) = guard.guard.take() {
            let waited = self.0.wait_timeout(locked, timeout).unwrap_or_else(PoisonError::into_inner);
            guard.guard = Some(waited.0);
        }
        Ok((guard, ()))
    }

    /// Waits to be notified; may wake spuriously, as any wait.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.mutex;
        if schedule::is_scheduled() {
            // As in `wait_timeout`.
            guard.guard = None;
            schedule::release(mutex.address());
            let _ = schedule::block(std::ptr::from_ref(self).addr());
            drop(guard);
            return mutex.lock();
        }
        if let Some(locked) = guard.guard.take() {
            guard.guard = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
        }
        Ok(guard)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
        schedule::notify_one(std::ptr::from_ref(self).addr());
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
        schedule::release(std::ptr::from_ref(self).addr());
    }
}

/// Waits a little for another thread.
#[inline]
pub fn spin_loop() {
    if !schedule::relax() {
        std::hint::spin_loop();
    }
}

/// An instant: simulated in a scheduled thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    Real(std::time::Instant),
    Simulated(Duration),
}

impl Instant {
    pub fn now() -> Self {
        schedule::now().map_or_else(|| Self::Real(std::time::Instant::now()), Self::Simulated)
    }

    pub fn elapsed(&self) -> Duration {
        match self {
            Self::Real(then) => then.elapsed(),
            Self::Simulated(then) => schedule::now().map_or(Duration::ZERO, |now| now.saturating_sub(*then)),
        }
    }
}

pub mod thread {
    use duramen_media::sim::schedule;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    pub fn yield_now() {
        if !schedule::relax() {
            std::thread::yield_now();
        }
    }

    pub fn sleep(time: Duration) {
        if !schedule::sleep(time) {
            std::thread::sleep(time);
        }
    }

    #[derive(Debug, Default)]
    pub struct Builder(String);

    #[derive(Debug)]
    pub enum JoinHandle<T> {
        Real(std::thread::JoinHandle<T>),
        Scheduled(schedule::Spawned, Arc<Mutex<Option<T>>>),
    }

    impl Builder {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn name(self, name: String) -> Self {
            Self(name)
        }

        pub fn spawn<T: Send + 'static>(
            self,
            work: impl FnOnce() -> T + Send + 'static,
        ) -> std::io::Result<JoinHandle<T>> {
            if !schedule::is_scheduled() {
                return std::thread::Builder::new().name(self.0).spawn(work).map(JoinHandle::Real);
            }
            let result = Arc::new(Mutex::new(None));
            let into = Arc::clone(&result);
            let work = move || {
                let value = work();
                *into.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            };
            match schedule::spawn(&self.0, work) {
                Ok(spawned) => Ok(JoinHandle::Scheduled(spawned, result)),
                Err(_) => Err(std::io::Error::other("the schedule ended")),
            }
        }
    }

    impl<T> JoinHandle<T> {
        pub fn join(self) -> std::thread::Result<T> {
            match self {
                Self::Real(handle) => handle.join(),
                Self::Scheduled(spawned, result) => {
                    spawned.join();
                    let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
                    result.ok_or_else(|| Box::new("the thread did not end") as Box<dyn std::any::Any + Send>)
                }
            }
        }
    }
}

#[allow(dead_code, reason = "each type has the methods that any type needs")]
pub mod atomic {
    use super::{Point, point};
    use std::sync::atomic::Ordering;

    #[inline]
    fn before(order: Ordering) {
        if order != Ordering::Relaxed {
            point(Point::Atomic, 0);
        }
    }

    /// The methods common to all of them.
    macro_rules! cell {
        ($name:ident$(<$of:ident>)?, $std:ty, $value:ty) => {
            impl$(<$of>)? $name$(<$of>)? {
                pub const fn new(value: $value) -> Self {
                    Self(<$std>::new(value))
                }

                #[inline]
                pub fn load(&self, order: Ordering) -> $value {
                    before(order);
                    self.0.load(order)
                }

                #[inline]
                pub fn store(&self, value: $value, order: Ordering) {
                    before(order);
                    self.0.store(value, order);
                }

                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }

                #[inline]
                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    point(Point::Atomic, 1);
                    self.0.swap(value, order)
                }

                #[inline]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    point(Point::Atomic, 2);
                    self.0.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    macro_rules! integer {
        ($name:ident, $value:ty, [$($method:ident),*]) => {
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(std::sync::atomic::$name);

            cell!($name, std::sync::atomic::$name, $value);

            impl $name {
                /// Never fails spuriously: a run must repeat on every CPU.
                #[inline]
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }

                $(
                    #[inline]
                    pub fn $method(&self, value: $value, order: Ordering) -> $value {
                        point(Point::Atomic, 3);
                        self.0.$method(value, order)
                    }
                )*
            }
        };
    }

    integer!(AtomicBool, bool, []);
    integer!(AtomicI64, i64, [fetch_add, fetch_sub]);
    integer!(AtomicU8, u8, []);
    integer!(AtomicU32, u32, [fetch_add, fetch_sub, fetch_and, fetch_or, fetch_min]);
    integer!(AtomicU64, u64, [fetch_add, fetch_sub, fetch_and, fetch_or, fetch_max]);
    integer!(AtomicUsize, usize, [fetch_add]);

    #[derive(Debug)]
    #[repr(transparent)]
    pub struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);

    cell!(AtomicPtr<T>, std::sync::atomic::AtomicPtr<T>, *mut T);

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self(std::sync::atomic::AtomicPtr::default())
        }
    }
}
