//! The one door to shared memory between threads: atomics, locks, threads and waiting.
//!
//! Nothing else in this crate names `std::sync` or `std::thread`, so that a build for checking may put
//! other primitives here. In a shipped build every item is the standard library's own.

pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

pub(crate) mod thread {
    pub(crate) use std::thread::{Builder, JoinHandle, available_parallelism, scope, sleep, yield_now};
}

pub(crate) mod hint {
    pub(crate) use std::hint::spin_loop;
}
