//! Releases memory and blocks that readers may still see once those readers have left.
//!
//! A reader *pins* itself: it makes its own counter odd, reads, and makes it even again when its last guard goes. A
//! thread that unlinked something notes the [`GracePeriod`]: which counters are odd. It has elapsed when each of those
//! counters has changed.
//!
//! [`GracePeriod::now`] must observe a pin before the reader reads anything. That orders a store before later loads,
//! which costs a full fence on every CPU. A fence in each get would keep the CPU from overlapping the cache misses of
//! one get with those of the next, which is most of its speed. So the reader only keeps the compiler from reordering,
//! and `GracePeriod::now`, which is rare, asks the kernel to run a full fence on every CPU that runs a thread of this
//! process (`membarrier`). Where the kernel has no such call, readers fence.
//!
//! Pins belong to threads, not to stores. So they are short: an operation ends its pin before it returns, and none is
//! held while the caller's code runs (except that of `modify_in_place`, which runs under a lock). What outlives an
//! operation belongs to one store:
//!
//! * A value that was read [pins](Guard::pin_value) only its own place. Its thread stores the address in a slot of its
//!   own while the thread is pinned, and then ends its own pin. Before a place is reused, after its grace period has
//!   elapsed, the addresses in it must not be [pinned](pinned_addresses). Addresses are unique in the process: stores
//!   do not affect each other. Any thread may release a value pin.
//! * An open group of a writer keeps everything that is unlinked in its store meanwhile: it has a counter like that of
//!   a thread ([`SeqCounter`]), and the store passes those of its writers when it notes a grace period.
//!
//! Why a value pin is observed: it is stored while its thread is pinned. If the grace period waits for that pin, the
//! pin's end, stored after the value pin, was loaded before the slots are read. If the pin had ended before, the grace
//! period loaded that count or a later one. If it began after the fence, it found nothing that was unlinked by then.
//! And a thread that reuses a slot first loaded its release, so reads of the slot happen after all reads under its
//! earlier value pins.
//!
//! For the same reason a writer does not fence after a plain store that publishes, and its own later loads may pass
//! that store. But two threads that each put a key and then look up the other's must not both miss it. So such a writer
//! [notes](published) it, and the next pin that is [to read](pin) fences. Puts in a row need no fence, since their
//! locks fence.
//!
//! Invariants:
//! 1. Anything released was unlinked before its grace period was noted: a thread that pins itself after the fence
//!    cannot find it. (No line can check it: it is about what can be reached. The model
//!    `block_is_not_used_again_while_a_reader_is_in_it` does.)
//! 2. A counter that is odd and unchanged since then belongs to a reader that may still see it.
//! 3. A `Local` is never freed, and is used by at most one thread at a time. The same holds for its slots; slots whose
//!    value pins outlive the thread stay taken for the next thread that uses the `Local`.
//! 4. Only the thread of a `Local` takes a slot of it, and only one that is 0; the holder of the value pin stores 0.

use rustix::thread::{MembarrierCommand, membarrier};
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Initial slots of a thread: as many as fit in one line.
const SLOTS_FIRST: usize = 8;

/// Odd while its owner may see things that others unlink. Only the owner changes it. On a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct SeqCounter(AtomicU64);

impl SeqCounter {
    /// From now on the owner protects everything it can reach.
    #[inline]
    pub fn begin(&self) {
        self.begin_with(!kernel_fences());
    }

    #[inline]
    fn begin_with(&self, fences: bool) {
        debug_assert!(self.0.load(Relaxed).is_multiple_of(2), "it protects already (invariant 2)");
        // Release: `GracePeriod::now` may read this instead of the count that the last turn left.
        self.0.store(self.0.load(Relaxed) + 1, Release);
        // SeqCst: pairs with the fence in `GracePeriod::now`: either that observes the odd count, or this thread
        // observes the unlink.
        if fences {
            fence(SeqCst);
        } else {
            compiler_fence(SeqCst);
        }
    }

    /// It protects nothing any more.
    #[inline]
    pub fn end(&self) {
        debug_assert!(!self.0.load(Relaxed).is_multiple_of(2), "it protects nothing (invariant 2)");
        // Release: pairs with the Acquire in `now`; all reads happened before.
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }

    fn now(&self) -> u64 {
        // Acquire: pairs with the Release in `begin_with` and `end`.
        self.0.load(Acquire)
    }
}

/// The address of a pinned value, or 0.
type Slot = AtomicUsize;

/// The value pins of a thread.
struct Slots {
    /// The part that value pins are taken from: the longest one. Only the thread uses this and `at`.
    part: UnsafeCell<&'static [Slot]>,
    /// The slot of `part` that was taken last. The next value pin takes it again if it was released, as most are before
    /// the next read; otherwise the slot after it, so that many value pins at once are adjacent.
    at: AtomicUsize,
    /// All slots, each part as long as all before it.
    parts: Mutex<Vec<&'static [Slot]>>,
}

// SAFETY: `part` is used by one thread at a time: invariant 3.
unsafe impl Sync for Slots {}

impl Slots {
    fn new() -> Self {
        let first = new_slots(SLOTS_FIRST);
        Self { part: UnsafeCell::new(first), at: AtomicUsize::new(0), parts: Mutex::new(vec![first]) }
    }

    /// A slot that is free. Only the thread that uses this `Local` may call it.
    #[inline]
    fn take(&self) -> &'static Slot {
        // SAFETY: one thread uses it, and nothing below calls anything of this module.
        let part = unsafe { *self.part.get() };
        let last = self.at.load(Relaxed);
        for at in [last, last + 1] {
            // Acquire: see `Guard::pin_value`. At the end of the part there is no slot, and the search continues at its
            // beginning.
            if let Some(slot) = part.get(at).filter(|slot| slot.load(Acquire) == 0) {
                self.at.store(at, Relaxed);
                return slot;
            }
        }
        self.other()
    }

    /// Any free slot of the longest part; if more than half of it is taken, of a new part.
    #[inline(never)]
    fn other(&self) -> &'static Slot {
        // SAFETY: as in `take`.
        let part = unsafe { &mut *self.part.get() };
        // Acquire: see `Guard::pin_value`.
        let is_free = |slot: &&Slot| slot.load(Acquire) == 0;
        if part.iter().filter(is_free).count() < part.len() / 2 {
            let mut parts = lock(&self.parts);
            let all = parts.iter().map(|part| part.len()).sum::<usize>();
            *part = new_slots(all);
            parts.push(part);
        }
        let at = part.iter().position(|slot| is_free(&slot)).unwrap_or(0);
        self.at.store(at, Relaxed);
        &part[at]
    }
}

fn new_slots(count: usize) -> &'static [Slot] {
    Box::leak((0..count).map(|_| Slot::new(0)).collect())
}

/// One thread's pins. Two lines apart from its neighbours, since the CPU fetches lines in pairs.
#[repr(align(128))]
struct Local {
    turns: SeqCounter,
    slots: Slots,
    /// Number of the thread's guards. Only that thread uses it.
    guards: AtomicU32,
    /// Whether the thread must fence itself.
    fences: bool,
    /// Whether the thread published something that its own loads may still pass. Only that thread uses it.
    published: AtomicBool,
    /// The thread is ending: its last guard releases this.
    ending: AtomicBool,
    taken: AtomicBool,
}

impl Local {
    /// Makes it available to another thread. No guard is left.
    fn give_back(&self) {
        assert!(
            self.taken.load(Relaxed) && self.guards.load(Relaxed) == 0,
            "a thread gives back what it uses (invariant 3)"
        );
        MINE.set(None);
        self.ending.store(false, Relaxed);
        // Release: pairs with the Acquire in `take_local`.
        self.taken.store(false, Release);
    }
}

type Deferred = Box<dyn FnOnce() + Send>;

/// The readers that may see things unlinked before some moment: see the module.
pub struct GracePeriod {
    threads: Vec<(&'static SeqCounter, u64)>,
    groups: Vec<(Arc<SeqCounter>, u64)>,
}

impl GracePeriod {
    /// The threads that are pinned now, and those of `groups` that have begun a turn. `None` when the kernel refused to
    /// fence.
    pub fn now(groups: Vec<Arc<SeqCounter>>) -> Option<Self> {
        if !fence_all() {
            return None;
        }
        let locals = lock(&LOCALS).clone();
        let threads = locals.into_iter().map(|local| (&local.turns, local.turns.now()));
        let threads = threads.filter(|(_, turn)| turn % 2 == 1).collect();
        let groups = groups.into_iter().map(|group| (group.now(), group));
        let groups = groups.filter(|(turn, _)| turn % 2 == 1).map(|(turn, group)| (group, turn)).collect();
        Some(Self { threads, groups })
    }

    /// Whether all of them have left.
    pub fn has_elapsed(&mut self) -> bool {
        self.threads.retain(|(thread, turn)| thread.now() == *turn);
        self.groups.retain(|(group, turn)| group.now() == *turn);
        self.threads.is_empty() && self.groups.is_empty()
    }
}

/// The pinned addresses, in order.
pub fn pinned_addresses() -> Vec<usize> {
    let mut held = Vec::new();
    for local in &*lock(&LOCALS) {
        // Acquire: pairs with the Release in `Guard::pin_value` and when a value pin is dropped.
        let slots = lock(&local.slots.parts);
        held.extend(slots.iter().copied().flatten().map(|slot| slot.load(Acquire)).filter(|&at| at != 0));
    }
    held.sort_unstable();
    held
}

/// Keeps a value's place from being reused.
pub struct ValuePin(&'static Slot);

impl Drop for ValuePin {
    #[inline]
    fn drop(&mut self) {
        debug_assert_ne!(self.0.load(Relaxed), 0, "a value is released twice (invariant 4)");
        // Release: pairs with the Acquire in `pinned_addresses` and `Guard::pin_value`; all reads happened before.
        self.0.store(0, Release);
    }
}

/// Releases that wait for the same readers.
struct Bag {
    grace: GracePeriod,
    releases: Vec<Deferred>,
}

struct Garbage {
    /// Deferred since the last `collect`.
    fresh: Vec<Deferred>,
    /// Oldest first. A later bag waits for every reader that an earlier one still waits for, so they become ready in
    /// this order.
    bags: Vec<Bag>,
}

static LOCALS: Mutex<Vec<&'static Local>> = Mutex::new(Vec::new());
static GARBAGE: Mutex<Garbage> = Mutex::new(Garbage { fresh: Vec::new(), bags: Vec::new() });
/// Held while releases run, so that they run in their order.
static RELEASING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Without a destructor, so that access costs one instruction.
    static MINE: Cell<Option<&'static Local>> = const { Cell::new(None) };
    /// Releases `MINE` when the thread ends.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(local) = MINE.get() else { return };
        if local.guards.load(Relaxed) == 0 {
            local.give_back();
        } else {
            // Another thread-local value, which is dropped later, keeps a guard.
            local.ending.store(true, Relaxed);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the kernel can fence for all threads.
fn kernel_fences() -> bool {
    static KERNEL: OnceLock<bool> = OnceLock::new();
    *KERNEL.get_or_init(|| {
        !cfg!(miri)
            && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    })
}

#[cold]
fn take_local() -> &'static Local {
    let fences = !kernel_fences();
    let ending = ENDING.try_with(|_| ()).is_err();
    let mut locals = lock(&LOCALS);
    // Acquire: pairs with the Release in `give_back`.
    let unused = locals.iter().find(|l| l.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok());
    let local = unused.copied().unwrap_or_else(|| {
        let local: &'static Local = Box::leak(Box::new(Local {
            turns: SeqCounter::default(),
            slots: Slots::new(),
            guards: AtomicU32::new(0),
            fences,
            published: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            taken: AtomicBool::new(true),
        }));
        locals.push(local);
        local
    });
    assert!(
        local.guards.load(Relaxed) == 0 && local.turns.now().is_multiple_of(2),
        "nobody uses what a thread takes (invariant 3)"
    );
    local.ending.store(ending, Relaxed);
    MINE.set(Some(local));
    local
}

/// While it lives, nothing that its thread can reach is released.
pub struct Guard {
    local: &'static Local,
    /// Stays in one thread.
    _not_send: PhantomData<*const ()>,
}

/// Pins this thread to read without a lock: other threads see its earlier publications before it reads.
#[inline]
pub fn pin() -> Guard {
    let guard = pin_to_write();
    if guard.local.published.load(Relaxed) {
        guard.local.published.store(false, Relaxed);
        // SeqCst: pairs with the same fence of another thread that published and reads: one of them observes the
        // other's publication.
        fence(SeqCst);
    }
    guard
}

/// Notes that this thread published something by a store that no locked instruction or fence follows.
#[inline]
pub fn published() {
    if let Some(local) = MINE.get() {
        local.published.store(true, Relaxed);
    }
}

/// Pins this thread to write: it locks a key before it looks it up, and that is a fence.
#[inline]
pub fn pin_to_write() -> Guard {
    let local = MINE.get().unwrap_or_else(take_local);
    let guards = local.guards.load(Relaxed);
    local.guards.store(guards + 1, Relaxed);
    if guards == 0 {
        local.turns.begin_with(local.fences);
    }
    Guard { local, _not_send: PhantomData }
}

/// Whether this thread holds a guard.
pub fn is_pinned() -> bool {
    MINE.get().is_some_and(|local| local.guards.load(Relaxed) > 0)
}

impl Drop for Guard {
    #[inline]
    fn drop(&mut self) {
        let guards = self.local.guards.load(Relaxed) - 1;
        self.local.guards.store(guards, Relaxed);
        if guards == 0 {
            self.local.turns.end();
            if self.local.ending.load(Relaxed) {
                self.local.give_back();
            }
        }
    }
}

impl Guard {
    /// Keeps the value at `place`, which this guard protects, also after the guard is gone.
    #[inline]
    pub fn pin_value(&self, place: *const u8) -> ValuePin {
        // Its load of the slot, Acquire, pairs with the Release when a value pin is dropped, possibly by another
        // thread.
        let slot = self.local.slots.take();
        debug_assert_eq!(
            slot.load(Relaxed),
            0,
            "a slot is taken while another value is pinned by it (invariant 4)"
        );
        // Release: pairs with the Acquire in `pinned_addresses`.
        slot.store(place.addr(), Release);
        ValuePin(slot)
    }

    /// Runs `release` when all threads that are pinned now have left. What it releases is unlinked already.
    pub fn defer(&self, release: impl FnOnce() + Send + 'static) {
        lock(&GARBAGE).fresh.push(Box::new(release));
    }

    /// Drops the target of `shared` when all threads that are pinned now have left.
    ///
    /// # Safety
    /// Only guards pinned before can reach `shared`.
    pub unsafe fn defer_destroy<T: Send + 'static>(&self, shared: Shared<'_, T>) {
        // SAFETY: made by `Owned::new`; unreachable, as the caller promised, when this is run.
        let owned = unsafe { shared.into_owned() };
        self.defer(move || drop(owned));
    }
}

/// Runs the deferred releases whose targets no reader can see any more.
pub fn collect() {
    // Another thread that is collecting does the same work.
    let Ok(_releasing) = RELEASING.try_lock() else { return };
    let mut ready = Vec::new();
    {
        let mut garbage = lock(&GARBAGE);
        if !garbage.fresh.is_empty()
            && let Some(grace) = GracePeriod::now(Vec::new())
        {
            let releases = std::mem::take(&mut garbage.fresh);
            garbage.bags.push(Bag { grace, releases });
        }
        while let Some(bag) = garbage.bags.first_mut() {
            if !bag.grace.has_elapsed() {
                break;
            }
            ready.push(garbage.bags.remove(0).releases);
        }
    }
    for release in ready.into_iter().flatten() {
        release();
    }
}

/// Fences on every CPU that runs a thread of this process. False when the kernel refused: then nothing may be released.
fn fence_all() -> bool {
    fence(SeqCst);
    !kernel_fences()
        || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        // A child process begins unregistered.
        || (membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok())
}

/// A pointer to something that is replaced while others read it.
pub struct Atomic<T>(AtomicPtr<T>);

/// A value that nobody else can reach.
pub struct Owned<T>(NonNull<T>);

// SAFETY: it is a box, without the aliasing promise of a box, which readers still break while it waits to be dropped.
unsafe impl<T: Send> Send for Owned<T> {}

/// A value that a guard protects.
pub struct Shared<'g, T> {
    pointer: *mut T,
    _guard: PhantomData<&'g Guard>,
}

impl<T> Atomic<T> {
    pub fn new(value: T) -> Self {
        Self(AtomicPtr::new(Owned::new(value).leak()))
    }

    #[inline]
    pub fn load<'g>(&self, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
        Shared { pointer: self.0.load(order), _guard: PhantomData }
    }

    /// Stores `new`, and returns the old value; `None` leaves it empty.
    pub fn swap<'g>(&self, new: Option<Owned<T>>, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
        let new = new.map_or(std::ptr::null_mut(), Owned::leak);
        Shared { pointer: self.0.swap(new, order), _guard: PhantomData }
    }
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    fn leak(self) -> *mut T {
        std::mem::ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<T> std::ops::Deref for Owned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: made by `new`, and dropped only with `self`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nobody else can reach it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<'g, T> Shared<'g, T> {
    /// # Safety
    /// Not null, and not dropped while the guard lives.
    #[inline]
    pub unsafe fn deref(&self) -> &'g T {
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer }
    }

    /// # Safety
    /// Not null, and nobody else can reach it once it is used or dropped.
    pub unsafe fn into_owned(self) -> Owned<T> {
        // SAFETY: not null by the caller's promise.
        Owned(unsafe { NonNull::new_unchecked(self.pointer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::channel;

    fn collect_until(done: impl Fn() -> bool) {
        // Another test may be collecting, or be pinned.
        for _ in 0..10_000 {
            if done() {
                return;
            }
            collect();
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        panic!("not released");
    }

    #[test]
    fn a_deferred_release_waits_for_a_guard_of_another_thread() {
        let released = Arc::new(AtomicBool::new(false));
        let ((pinned, is_pinned), (leave, may_leave)) = (channel(), channel());
        let reader = std::thread::spawn(move || {
            let _guard = pin();
            pinned.send(()).unwrap();
            may_leave.recv().unwrap();
        });
        is_pinned.recv().unwrap();
        let sets = Arc::clone(&released);
        pin().defer(move || sets.store(true, SeqCst));
        for _ in 0..100 {
            collect();
            assert!(!released.load(SeqCst), "the reader is still pinned");
        }
        leave.send(()).unwrap();
        reader.join().unwrap();
        collect_until(|| released.load(SeqCst));
    }

    #[test]
    fn nested_guards_protect_until_the_last_one_is_dropped() {
        let released = Arc::new(AtomicBool::new(false));
        let (outer, inner) = (pin(), pin());
        assert!(is_pinned());
        let sets = Arc::clone(&released);
        inner.defer(move || sets.store(true, SeqCst));
        drop(outer);
        collect();
        assert!(!released.load(SeqCst));
        drop(inner);
        collect_until(|| released.load(SeqCst));
    }

    #[test]
    fn ended_threads_release_their_local_even_when_they_pin_late() {
        struct Late(Cell<bool>);
        impl Drop for Late {
            fn drop(&mut self) {
                let guard = pin();
                drop(pin());
                drop(guard);
            }
        }
        thread_local! {
            static LATE: Late = const { Late(Cell::new(false)) };
        }
        for _ in 0..200 {
            std::thread::spawn(|| {
                LATE.with(|late| late.0.set(true));
                drop(pin());
            })
            .join()
            .unwrap();
        }
        // Other tests run concurrently.
        assert!(lock(&LOCALS).len() < 100, "{} locals", lock(&LOCALS).len());
    }

    #[test]
    fn readers_never_see_a_released_value() {
        const ROUNDS: usize = if cfg!(miri) { 50 } else { 5_000 };
        struct Watched(AtomicUsize);
        impl Drop for Watched {
            fn drop(&mut self) {
                self.0.store(usize::MAX, SeqCst);
            }
        }
        let shared = Arc::new(Atomic::new(Watched(AtomicUsize::new(0))));
        let stop = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (shared, stop) = (Arc::clone(&shared), Arc::clone(&stop));
                std::thread::spawn(move || {
                    while !stop.load(Relaxed) {
                        let guard = pin();
                        // SAFETY: never null, and dropped only through `defer_destroy`.
                        let seen = unsafe { shared.load(Acquire, &guard).deref() };
                        assert_ne!(seen.0.load(SeqCst), usize::MAX);
                    }
                })
            })
            .collect();
        for round in 1..ROUNDS {
            let guard = pin();
            let new = Owned::new(Watched(AtomicUsize::new(round)));
            let old = shared.swap(Some(new), Ordering::AcqRel, &guard);
            // SAFETY: out of reach since the swap.
            unsafe { guard.defer_destroy(old) };
            drop(guard);
            collect();
        }
        stop.store(true, Relaxed);
        readers.into_iter().for_each(|r| r.join().unwrap());
        let guard = pin();
        let last = shared.swap(None, Ordering::AcqRel, &guard);
        // SAFETY: the readers are gone.
        drop(unsafe { last.into_owned() });
    }
}
