//! The primitives of [`crate::sync`] in a model: loom's, each with its place of call, so that a model can weaken one
//! call and show that it detects this; and a stand-in for `sync::reclamation`.
//!
//! Differences from the shipped primitives:
//!
//! * Loom takes `SeqCst` on an access for `AcqRel`. A load, store or exchange with `SeqCst` is therefore preceded by a
//!   `SeqCst` fence, as compilers do on weakly ordered machines. That is a little stronger than C++20 requires: a
//!   missing ordering around such an access may go unnoticed.
//! * Loom 0.7.2 remembers one access of an atomic, the last. Where a thread loads and then exchanges, its own load
//!   hides an earlier load of another thread, and the other order of the two is never tried. A reader, and a writer
//!   that locks by load and exchange, would only run one after the other. So each atomic has a companion that every
//!   load exchanges too: loads then depend on each other, and all orders are tried.
//! * [`reclaim`] documents its promise; it frees as early as possible.
//! * `sleep` yields, and `scope` and `available_parallelism` are the standard library's: no model recovers with
//!   more than one thread.

pub use loom::sync::{Condvar, Mutex, MutexGuard};

use loom::sync::atomic::Ordering::{Acquire, Release};

/// Calls of atomics that a model weakens on purpose.
pub mod weaken {
    use std::collections::BTreeSet;
    use std::panic::Location;
    use std::sync::atomic::Ordering::{self, Relaxed};
    use std::sync::{Mutex, PoisonError};

    /// The file and line of a call in the engine's sources.
    pub type CallPlace = (&'static str, u32);

    struct State {
        weakened: Option<(String, u32)>,
        seen: BTreeSet<CallPlace>,
    }

    static STATE: Mutex<State> = Mutex::new(State { weakened: None, seen: BTreeSet::new() });

    /// From now on the calls in this line of `file` (the end of its path) are made with `Relaxed`, and fences left out.
    pub fn weaken(file: &str, line: u32) {
        STATE.lock().unwrap_or_else(PoisonError::into_inner).weakened = Some((file.to_owned(), line));
    }

    /// Whether a fence at `location` is left out, or a store to the medium is a plain one.
    pub fn is_weakened(location: &Location<'_>) -> bool {
        let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |(file, line): &(String, u32)| *line == location.line() && location.file().ends_with(file);
        state.weakened.as_ref().is_some_and(is_it)
    }

    /// All lines that use an ordering stronger than `Relaxed`.
    pub fn seen() -> Vec<CallPlace> {
        STATE.lock().unwrap_or_else(PoisonError::into_inner).seen.iter().copied().collect()
    }

    /// The ordering to use at `location` where the source has `asked`.
    pub(super) fn ordering(asked: Ordering, location: &'static Location<'static>) -> Ordering {
        if asked == Relaxed {
            return asked;
        }
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.insert((location.file(), location.line()));
        match &state.weakened {
            Some((file, line)) if *line == location.line() && location.file().ends_with(file) => Relaxed,
            _ => asked,
        }
    }
}

pub mod atomic {
    use super::weaken::ordering;
    use loom::sync::atomic::Ordering::{self, SeqCst};
    use std::panic::Location;

    /// See the file's head: loom orders fences, not accesses.
    fn fence_if(order: Ordering) {
        if order == SeqCst {
            loom::sync::atomic::fence(SeqCst);
        }
    }

    /// See the file's head: makes two loads of an atomic depend on each other.
    #[derive(Debug, Default)]
    struct Loads(loom::sync::atomic::AtomicU8);

    impl Loads {
        #[track_caller]
        fn one_more(&self) {
            self.0.fetch_or(0, Ordering::Relaxed);
        }
    }

    macro_rules! atomic {
        ($name:ident, $type:ty) => {
            #[derive(Debug, Default)]
            pub struct $name {
                value: loom::sync::atomic::$name,
                loads: Loads,
            }

            #[allow(dead_code)]
            impl $name {
                #[track_caller]
                pub fn new(value: $type) -> Self {
                    Self { value: loom::sync::atomic::$name::new(value), loads: Loads::default() }
                }

                #[track_caller]
                pub fn into_inner(self) -> $type {
                    self.value.into_inner()
                }

                #[track_caller]
                pub fn load(&self, order: Ordering) -> $type {
                    let order = ordering(order, Location::caller());
                    fence_if(order);
                    self.loads.one_more();
                    self.value.load(order)
                }

                #[track_caller]
                pub fn store(&self, value: $type, order: Ordering) {
                    let order = ordering(order, Location::caller());
                    fence_if(order);
                    self.value.store(value, order);
                }

                #[track_caller]
                pub fn swap(&self, value: $type, order: Ordering) -> $type {
                    let order = ordering(order, Location::caller());
                    fence_if(order);
                    self.value.swap(value, order)
                }

                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    now: $type,
                    new: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    let success = ordering(success, Location::caller());
                    fence_if(success);
                    self.value.compare_exchange(now, new, success, ordering(failure, Location::caller()))
                }

                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    now: $type,
                    new: $type,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$type, $type> {
                    self.compare_exchange(now, new, success, failure)
                }
            }
        };
    }

    macro_rules! arithmetic {
        ($name:ident, $type:ty, $($method:ident)*) => {
            #[allow(dead_code)]
            impl $name {
                $(
                    #[track_caller]
                    pub fn $method(&self, value: $type, order: Ordering) -> $type {
                        let order = ordering(order, Location::caller());
                        fence_if(order);
                        self.value.$method(value, order)
                    }
                )*
            }
        };
    }

    atomic!(AtomicBool, bool);
    atomic!(AtomicI64, i64);
    atomic!(AtomicU8, u8);
    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
    atomic!(AtomicUsize, usize);
    arithmetic!(AtomicI64, i64, fetch_add fetch_sub);
    arithmetic!(AtomicU32, u32, fetch_add fetch_sub fetch_and fetch_or fetch_min fetch_max);
    arithmetic!(AtomicU64, u64, fetch_add fetch_sub fetch_and fetch_or fetch_max);
    arithmetic!(AtomicUsize, usize, fetch_add fetch_sub);

    /// As the others.
    #[derive(Debug)]
    pub struct AtomicPtr<T> {
        value: loom::sync::atomic::AtomicPtr<T>,
        loads: Loads,
    }

    impl<T> Default for AtomicPtr<T> {
        #[track_caller]
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }

    #[allow(dead_code)]
    impl<T> AtomicPtr<T> {
        #[track_caller]
        pub fn new(value: *mut T) -> Self {
            Self { value: loom::sync::atomic::AtomicPtr::new(value), loads: Loads::default() }
        }

        #[track_caller]
        pub fn load(&self, order: Ordering) -> *mut T {
            self.loads.one_more();
            self.value.load(ordering(order, Location::caller()))
        }

        #[track_caller]
        pub fn store(&self, value: *mut T, order: Ordering) {
            self.value.store(value, ordering(order, Location::caller()));
        }

        #[track_caller]
        pub fn swap(&self, value: *mut T, order: Ordering) -> *mut T {
            self.value.swap(value, ordering(order, Location::caller()))
        }

        #[track_caller]
        pub fn compare_exchange(
            &self,
            now: *mut T,
            new: *mut T,
            success: Ordering,
            failure: Ordering,
        ) -> Result<*mut T, *mut T> {
            let success = ordering(success, Location::caller());
            self.value.compare_exchange(now, new, success, ordering(failure, Location::caller()))
        }
    }
}

/// A value that is created once.
///
/// Loom must know the order between the creation and each use: one flag, stored with release and loaded with acquire,
/// as in the standard library's.
pub struct OnceLock<T> {
    made: loom::sync::atomic::AtomicBool,
    making: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub fn new() -> Self {
        Self {
            made: loom::sync::atomic::AtomicBool::new(false),
            making: Mutex::new(()),
            value: std::sync::OnceLock::new(),
        }
    }

    pub fn get(&self) -> Option<&T> {
        self.made.load(Acquire).then(|| self.value.get()).flatten()
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if !self.made.load(Acquire) {
            let _making = self.making.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let value = self.value.get_or_init(make);
            self.made.store(true, Release);
            return value;
        }
        self.value.get_or_init(make)
    }
}

pub mod thread {
    pub use loom::thread::{Builder, JoinHandle, yield_now};
    pub use std::thread::{available_parallelism, scope};

    pub fn sleep(_time: std::time::Duration) {
        yield_now();
    }
}

/// A stand-in for `sync::reclamation`, which keeps its promise and nothing else. A deferred call runs when every guard
/// is gone that was pinned before. It happens after all actions under guards that are gone, and guards that are pinned
/// later happen after the deferral.
///
/// It runs a deferred call as early as possible, in the thread that dropped the last such guard. A guard pinned within
/// another is a separate guard, which the real one does not promise (there the inner one is as old as the outer). Code
/// that relies on separate guards would fail there.
pub mod reclaim {
    use super::atomic::AtomicPtr;
    use super::weaken::is_weakened;
    use loom::sync::atomic::AtomicU64;
    use loom::sync::atomic::Ordering::{self, Acquire, Release};
    use loom::thread::ThreadId;
    use std::collections::BTreeMap;
    use std::marker::PhantomData;
    use std::panic::Location;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Loom has five threads at most.
    const THREADS_MAX: usize = 5;

    struct Deferred {
        /// Guards that must go before the call runs.
        waits_for: Vec<u64>,
        run: Box<dyn FnOnce() + Send>,
    }

    #[derive(Default)]
    struct State {
        threads: Vec<ThreadId>,
        guards_made: u64,
        /// Each with its thread, as an index.
        guards: BTreeMap<u64, usize>,
        /// Which threads published something and have not fenced since.
        published: [bool; THREADS_MAX],
        deferred: Vec<Deferred>,
        holds_made: u64,
        /// Addresses that are pinned.
        holds: BTreeMap<u64, usize>,
    }

    /// A thread that pins, unpins or defers informs loom: each thread has a word, which it exchanges when it pins or
    /// unpins, and which every deferral exchanges too. So loom tries both orders of a guard and a deferral, but not of
    /// two guards, which do not matter to each other.
    struct Collector {
        pins: [AtomicU64; THREADS_MAX],
        state: Mutex<State>,
    }

    loom::lazy_static! {
        static ref COLLECTOR: Collector =
            Collector { pins: Default::default(), state: Mutex::default() };
    }

    fn state() -> std::sync::MutexGuard<'static, State> {
        COLLECTOR.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread's index.
    fn here() -> usize {
        let id = loom::thread::current().id();
        let mut state = state();
        let known = state.threads.iter().position(|&thread| thread == id);
        known.unwrap_or_else(|| {
            state.threads.push(id);
            state.threads.len() - 1
        })
    }

    pub struct Guard {
        id: u64,
        thread: usize,
        /// As the real one, it stays in its thread.
        _thread: PhantomData<*mut ()>,
    }

    /// Odd while a group is open.
    #[derive(Debug, Default)]
    pub struct SeqCounter(AtomicU64);

    impl SeqCounter {
        pub fn begin(&self) {
            // Acquire: after all that grace periods noted before had made unreachable.
            self.0.fetch_add(1, Ordering::AcqRel);
        }

        pub fn end(&self) {
            self.0.fetch_add(1, Release);
        }
    }

    /// See `sync::this_thread`.
    pub fn this_thread() -> u64 {
        here() as u64 + 1
    }

    /// All actions before it was noted are seen by guards pinned and groups begun later. It has passed when all guards
    /// are gone and all groups are over that existed then.
    pub struct GracePeriod {
        guards: Vec<u64>,
        groups: Vec<(Arc<SeqCounter>, u64)>,
    }

    impl GracePeriod {
        pub fn now(groups: Vec<Arc<SeqCounter>>) -> Option<Self> {
            for pins in &COLLECTOR.pins {
                pins.fetch_add(0, Ordering::AcqRel);
            }
            let groups = groups.into_iter().map(|group| (group.0.fetch_add(0, Ordering::AcqRel), group));
            let groups =
                groups.filter(|(turn, _)| turn % 2 == 1).map(|(turn, group)| (group, turn)).collect();
            let guards = state().guards.keys().copied().collect();
            Some(Self { guards, groups })
        }

        pub fn has_elapsed(&mut self) -> bool {
            self.groups.retain(|(group, turn)| group.0.fetch_add(0, Ordering::AcqRel) == *turn);
            let left = {
                let state = state();
                let before = self.guards.len();
                self.guards.retain(|guard| state.guards.contains_key(guard));
                before > self.guards.len()
            };
            if left {
                acquire_pins();
            }
            self.guards.is_empty() && self.groups.is_empty()
        }
    }

    /// After all actions under guards and pins that are gone.
    fn acquire_pins() {
        for pins in &COLLECTOR.pins {
            pins.fetch_add(0, Acquire);
        }
    }

    pub fn pinned_addresses() -> Vec<usize> {
        let mut held: Vec<usize> = state().holds.values().copied().collect();
        acquire_pins();
        held.sort_unstable();
        held
    }

    pub struct ValuePin(u64);

    impl Drop for ValuePin {
        fn drop(&mut self) {
            COLLECTOR.pins[here()].fetch_add(1, Release);
            state().holds.remove(&self.0);
        }
    }

    pub fn pin() -> Guard {
        let guard = pin_to_write();
        if std::mem::take(&mut state().published[guard.thread]) {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
        guard
    }

    #[track_caller]
    pub fn published() {
        if is_weakened(Location::caller()) {
            return;
        }
        let here = here();
        state().published[here] = true;
    }

    pub fn pin_to_write() -> Guard {
        let thread = here();
        // Acquire: after all that was deferred before.
        COLLECTOR.pins[thread].fetch_add(1, Acquire);
        let mut state = state();
        state.guards_made += 1;
        let id = state.guards_made;
        state.guards.insert(id, thread);
        Guard { id, thread, _thread: PhantomData }
    }

    /// Nothing waits here to be collected.
    pub fn collect() {}

    pub fn is_pinned() -> bool {
        let here = here();
        state().guards.values().any(|&thread| thread == here)
    }

    impl Guard {
        pub fn pin_value(&self, place: *const u8) -> ValuePin {
            let mut state = state();
            state.holds_made += 1;
            let id = state.holds_made;
            state.holds.insert(id, place.addr());
            ValuePin(id)
        }

        pub fn defer<R>(&self, run: impl FnOnce() -> R + Send + 'static) {
            for pins in &COLLECTOR.pins {
                pins.fetch_add(0, Release);
            }
            let mut state = state();
            let waits_for = state.guards.keys().copied().collect();
            state.deferred.push(Deferred { waits_for, run: Box::new(move || drop(run())) });
        }

        /// # Safety
        /// Only guards pinned before can still reach `shared`.
        pub unsafe fn defer_destroy<T: 'static>(&self, shared: Shared<'_, T>) {
            let address = Address(shared.pointer);
            self.defer(move || {
                let Address(pointer) = { address };
                // SAFETY: made by `Owned::new`, and unreachable by what the caller promised.
                drop(unsafe { Box::from_raw(pointer) });
            });
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            COLLECTOR.pins[self.thread].fetch_add(1, Release);
            let ready: Vec<Deferred> = {
                let mut state = state();
                state.guards.remove(&self.id);
                for deferred in &mut state.deferred {
                    deferred.waits_for.retain(|&id| id != self.id);
                }
                let all = std::mem::take(&mut state.deferred);
                let (ready, waiting) = all.into_iter().partition(|d| d.waits_for.is_empty());
                state.deferred = waiting;
                ready
            };
            for deferred in ready {
                acquire_pins();
                (deferred.run)();
            }
        }
    }

    /// The pointer's target is sent to the thread that frees it.
    struct Address<T>(*mut Node<T>);

    // SAFETY: it is used once, by the thread that runs the deferred call, when nobody else can reach it.
    unsafe impl<T> Send for Address<T> {}

    /// A value whose reads and freeing loom watches.
    struct Node<T> {
        value: T,
        watched: loom::cell::UnsafeCell<()>,
    }

    impl<T> Drop for Node<T> {
        fn drop(&mut self) {
            self.watched.with_mut(|_| ());
        }
    }

    pub struct Atomic<T>(AtomicPtr<Node<T>>);

    pub struct Owned<T>(Box<Node<T>>);

    pub struct Shared<'g, T> {
        pointer: *mut Node<T>,
        _guard: PhantomData<&'g ()>,
    }

    impl<T> Owned<T> {
        pub fn new(value: T) -> Self {
            Self(Box::new(Node { value, watched: loom::cell::UnsafeCell::new(()) }))
        }
    }

    impl<T> std::ops::Deref for Owned<T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.0.value
        }
    }

    impl<T> Atomic<T> {
        pub fn new(value: T) -> Self {
            Self(AtomicPtr::new(Box::into_raw(Owned::new(value).0)))
        }

        #[track_caller]
        pub fn load<'g>(&self, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
            Shared { pointer: self.0.load(order), _guard: PhantomData }
        }

        #[track_caller]
        pub fn swap<'g>(&self, new: Option<Owned<T>>, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
            let new = new.map_or(std::ptr::null_mut(), |owned| Box::into_raw(owned.0));
            Shared { pointer: self.0.swap(new, order), _guard: PhantomData }
        }
    }

    impl<'g, T> Shared<'g, T> {
        /// # Safety
        /// Not null, and not freed while the guard lives.
        pub unsafe fn deref(&self) -> &'g T {
            // SAFETY: the caller's promise.
            let node = unsafe { &*self.pointer };
            node.watched.with(|_| ());
            &node.value
        }

        /// # Safety
        /// Not null, and nobody else can reach it.
        pub unsafe fn into_owned(self) -> Owned<T> {
            // SAFETY: made by `Owned::new`; the caller's promise.
            Owned(unsafe { Box::from_raw(self.pointer) })
        }
    }

    /// The numbers of guards, deferred calls that wait for them, and pins, for the end of a model: all must be 0.
    pub fn left() -> (usize, usize, usize) {
        let state = state();
        (state.guards.len(), state.deferred.len(), state.holds.len())
    }
}
