//! The only module with memory shared between threads: atomics, locks, threads, waiting and reclamation.
//!
//! Nothing else in this crate names `std::sync` or `std::thread`, so that a build for checking may replace the
//! primitives here. In a shipped build every item is the standard library's own, or of `sync::reclamation`. With `--cfg
//! loom` they are loom's, and a small stand-in for reclamation: see `models::primitives`. With the feature `schedule`
//! (the crash driver's) they are the standard library's with points at which a schedule may switch to another thread:
//! see `scheduled`.

pub mod barrier;
pub mod current;
pub mod holding;
#[cfg(loom)]
pub mod modelled;
mod mutex;
pub mod rank;
pub mod ticks;

pub use mutex::{Condvar, Mutex, MutexGuard, lock};
use std::sync::PoisonError;
pub use std::sync::{Arc, Weak};

#[cfg(not(loom))]
mod reclamation;
#[cfg(all(feature = "schedule", not(loom)))]
mod scheduled;

/// The primitives under the mutexes.
mod primitive {
    #[cfg(loom)]
    pub(super) use crate::sync::modelled::{Condvar, Mutex, MutexGuard};
    #[cfg(not(any(loom, feature = "schedule")))]
    pub(super) use std::sync::{Condvar, Mutex, MutexGuard};

    #[cfg(all(feature = "schedule", not(loom)))]
    pub(super) use super::scheduled::{Condvar, Mutex, MutexGuard};
}

#[cfg(not(loom))]
pub use std::sync::OnceLock;

#[cfg(loom)]
pub use crate::sync::modelled::OnceLock;

pub mod atomic {
    #[cfg(not(any(loom, feature = "schedule")))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    };

    #[cfg(all(feature = "schedule", not(loom)))]
    pub use super::scheduled::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    };

    #[cfg(loom)]
    pub use crate::sync::modelled::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize,
    };

    #[cfg(loom)]
    pub use loom::sync::atomic::fence;
    #[cfg(not(loom))]
    pub use std::sync::atomic::fence;

    pub use std::sync::atomic::Ordering;
}

/// Statics of the process, and hints that only affect time, which no model or schedule controls: always the standard
/// library's.
pub mod statics {
    pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
}

/// Memory that readers may still see is freed when they have left.
pub mod reclaim {
    #[cfg(not(loom))]
    pub use super::reclamation::{
        Atomic, GracePeriod, Guard, Owned, SeqCounter, ValuePin, collect, is_pinned, pin, pin_to_write,
        pinned_addresses, published,
    };

    #[cfg(loom)]
    pub use crate::sync::modelled::reclaim::{
        Atomic, GracePeriod, Guard, Owned, SeqCounter, ValuePin, collect, is_pinned, pin, pin_to_write,
        pinned_addresses, published,
    };
}

pub mod thread {
    #[cfg(not(any(loom, feature = "schedule")))]
    pub use std::thread::{Builder, JoinHandle, sleep, yield_now};

    #[cfg(not(loom))]
    pub use std::thread::{available_parallelism, scope};

    #[cfg(all(feature = "schedule", not(loom)))]
    pub use super::scheduled::thread::{Builder, JoinHandle, sleep, yield_now};

    #[cfg(loom)]
    pub use crate::sync::modelled::thread::{
        Builder, JoinHandle, available_parallelism, scope, sleep, yield_now,
    };
}

/// A number of the calling thread, which no other running thread has; never 0.
#[inline]
pub fn this_thread() -> u64 {
    #[cfg(not(loom))]
    {
        thread_local! {
            static HERE: u8 = const { 0 };
        }
        HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
    }
    #[cfg(loom)]
    crate::sync::modelled::reclaim::this_thread()
}

/// Spins, then yields, since the holder may not be on a CPU, then sleeps: a command that writes much holds its keys for
/// long.
#[derive(Default)]
pub struct Backoff(u32);

const SPINS: u32 = 64;
/// Some 0.2 ms on an otherwise idle CPU.
const YIELDS: u32 = 512;
const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

impl Backoff {
    /// Whether this is the first wait. Never in a model, which need not try cases without effect.
    #[inline]
    pub fn is_first(&self) -> bool {
        !cfg!(loom) && self.0 == 0
    }

    #[inline]
    pub fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        match self.0 {
            ..SPINS => hint::spin_loop(),
            // In a schedule others run at once, and an endless wait is found by its number of steps.
            YIELDS.. if !cfg!(feature = "schedule") => thread::sleep(SLEEP),
            _ => thread::yield_now(),
        }
    }
}

/// The results of `work` on so many threads, which run concurrently.
pub fn on_threads<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    if threads <= 1 {
        return vec![work()];
    }
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    })
}

/// The results of `work` for the items, in their order. Each of so many threads takes the next item when it is done
/// with one.
pub fn each_on_threads<I: Send, T: Send>(
    threads: usize,
    items: impl ExactSizeIterator<Item = I> + Send,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let threads = threads.min(items.len());
    let items: Mutex<_> = Mutex::new(items.enumerate());
    let next = || lock(&items).next();
    let take_turns =
        || std::iter::from_fn(next).map(|(number, item)| (number, work(item))).collect::<Vec<_>>();
    let mut done: Vec<_> = on_threads(threads, take_turns).into_iter().flatten().collect();
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

pub mod hint {
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
    #[cfg(not(any(loom, feature = "schedule")))]
    pub use std::hint::spin_loop;

    #[cfg(all(feature = "schedule", not(loom)))]
    pub use super::scheduled::spin_loop;
}

pub mod time {
    #[cfg(any(loom, not(feature = "schedule")))]
    pub use std::time::Instant;

    #[cfg(all(feature = "schedule", not(loom)))]
    pub use super::scheduled::Instant;
}
