//! Memory and blocks that readers may still see are given back when those readers have left.
//!
//! A reader *pins* itself: it makes its own counter odd, reads, and makes it even again when its last guard goes.
//! Whoever took something out of reach notes the [`GracePeriod`]: which counters are odd. It is past when each of those
//! has changed since.
//!
//! A pin must be seen by [`GracePeriod::now`] before the reader reads anything: an order of a store before later loads,
//! which costs a full fence on every CPU. A fence in each get would keep the CPU from overlapping the cache misses of
//! one get with those of the next, which is most of its speed. So the reader only keeps the compiler from
//! reordering, and `GracePeriod::now`, which is rare, asks the kernel to run a full fence on every CPU that runs a
//! thread of this process (`membarrier`). Where the kernel has no such call, readers fence.
//!
//! Pins are of threads, not of stores. So they are short: an operation ends its pin before it returns, and none is held while
//! the caller's code runs (but that of `modify_in_place`, which runs under a lock). What outlives an operation is of one store:
//!
//! * A value that was read [holds](Guard::hold) the place where it lies, and nothing else. Its thread stores the address in
//!   a slot of its own while it is pinned, and gives up the pin. Whoever reuses a place looks, when the moment at which it was taken
//!   out of reach is past, whether an address in it is [held](held). Addresses are unique in the process: stores have nothing to do
//!   with each other. A hold may be given up by any thread.
//! * An open group of a writer keeps all that is taken out of reach in its store meanwhile: it has a counter like that of a thread
//!   ([`SeqCounter`]), and the store names those of its writers when it notes a moment.
//!
//! Why a hold is seen: it is stored while its thread is pinned. If that pin is one of those that the moment waits for, its end, which
//! is stored after the hold, was loaded before the slots are looked at. If it had ended before, the moment loaded
//! that or a later count. If it began after the fence, it found nothing of what was out of reach by then. And whoever reuses a slot
//! loaded first that it was given up, so what is read of a slot happens after all reads under its earlier holds.
//!
//! For the same reason a writer fences nothing behind what it published by a plain store, and its own later loads may pass that store.
//! Two threads that each put a key and then look for the other's must not both miss it. So whoever publishes so [notes](published)
//! it, and the next pin that is [to read](pin) fences; puts in a row need not, whose locks do.
//!
//! Invariants:
//! 1. What is released was taken out of reach before its moment was noted: who pins itself after the fence cannot find it.
//! 2. A counter that is odd and unchanged since then belongs to a reader that may still see it.
//! 3. A `Local` is never freed, and is used by at most one thread at a time. Nor are its slots; those of holds that outlive
//!    the thread stay taken for the thread that uses it next.
//! 4. Only the thread of a `Local` takes a slot of it, and only one that is 0; who holds it stores 0.

use rustix::thread::{MembarrierCommand, membarrier};
use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Slots of a thread to begin with: as many as lie on one line.
const SLOTS_FIRST: usize = 8;

/// Odd while its owner may see what others take out of reach. Only the owner changes it. On a line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct SeqCounter(AtomicU64);

impl SeqCounter {
    /// From now on the owner keeps what it can reach.
    #[inline]
    pub(crate) fn begin(&self) {
        self.begin_with(!kernel_fences());
    }

    #[inline]
    fn begin_with(&self, fences: bool) {
        // Release: `GracePeriod::now` may read this instead of the count that the last turn left.
        self.0.store(self.0.load(Relaxed) + 1, Release);
        // SeqCst: pairs with the fence in `GracePeriod::now`: either that sees the odd count, or we see what was
        // unlinked.
        if fences {
            fence(SeqCst);
        } else {
            compiler_fence(SeqCst);
        }
    }

    /// It keeps nothing any more.
    #[inline]
    pub(crate) fn end(&self) {
        // Release: pairs with the Acquire in `now`; what was read was read before.
        self.0.store(self.0.load(Relaxed) + 1, Release);
    }

    fn now(&self) -> u64 {
        // Acquire: pairs with the Release in `begin_with` and `end`.
        self.0.load(Acquire)
    }
}

/// Where a held place begins, or 0.
type Slot = AtomicUsize;

/// The holds of a thread.
struct Slots {
    /// The part that holds are taken from: the longest one. Only the thread uses this and `at`.
    part: UnsafeCell<&'static [Slot]>,
    /// The slot of it that was taken last: the next hold takes it again if it was given up, as most are before the next read, and
    /// else the one behind it, so that many holds at once lie side by side.
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

    /// A slot that nobody holds. Only the thread whose `Local` this is may ask.
    #[inline]
    fn take(&self) -> &'static Slot {
        // SAFETY: one thread uses it, and nothing below calls anything of this module.
        let part = unsafe { *self.part.get() };
        let last = self.at.load(Relaxed);
        for at in [last, last + 1] {
            // Acquire: see `Guard::hold`. At the end of the part nothing is there, and it is looked for at its beginning.
            if let Some(slot) = part.get(at).filter(|slot| slot.load(Acquire) == 0) {
                self.at.store(at, Relaxed);
                return slot;
            }
        }
        self.other()
    }

    /// Any slot of the longest part that nobody holds; if half of it is held, of a new part.
    #[inline(never)]
    fn other(&self) -> &'static Slot {
        // SAFETY: as in `take`.
        let part = unsafe { &mut *self.part.get() };
        // Acquire: see `Guard::hold`.
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
    /// How many guards the thread holds. Only that thread uses it.
    guards: AtomicU32,
    /// Whether the thread must fence by itself.
    fences: bool,
    /// Whether the thread published something that its own loads may still pass. Only that thread uses it.
    published: AtomicBool,
    /// The thread is ending: its last guard gives this back.
    ending: AtomicBool,
    taken: AtomicBool,
}

impl Local {
    /// For another thread to use. No guard is left.
    fn give_back(&self) {
        MINE.set(None);
        self.ending.store(false, Relaxed);
        // Release: pairs with the Acquire in `take_local`.
        self.taken.store(false, Release);
    }
}

type Deferred = Box<dyn FnOnce() + Send>;

/// Who may see what was out of reach at some moment: see the module.
pub(crate) struct GracePeriod {
    threads: Vec<(&'static SeqCounter, u64)>,
    groups: Vec<(Arc<SeqCounter>, u64)>,
}

impl GracePeriod {
    /// Those that are pinned now, and those of `groups` that have begun a turn. `None` when the kernel refused to fence.
    pub(crate) fn now(groups: Vec<Arc<SeqCounter>>) -> Option<Self> {
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
    pub(crate) fn has_elapsed(&mut self) -> bool {
        self.threads.retain(|(thread, turn)| thread.now() == *turn);
        self.groups.retain(|(group, turn)| group.now() == *turn);
        self.threads.is_empty() && self.groups.is_empty()
    }
}

/// The addresses that are held, in order.
pub(crate) fn pinned_addresses() -> Vec<usize> {
    let mut held = Vec::new();
    for local in &*lock(&LOCALS) {
        // Acquire: pairs with the Release in `Guard::hold` and when a hold is dropped.
        let slots = lock(&local.slots.parts);
        held.extend(slots.iter().copied().flatten().map(|slot| slot.load(Acquire)).filter(|&at| at != 0));
    }
    held.sort_unstable();
    held
}

/// Keeps a place from being used again.
pub(crate) struct ValuePin(&'static Slot);

impl Drop for ValuePin {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `held` and `Guard::hold`; what was read was read before.
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
    /// Oldest first. A later bag waits for every reader that an earlier one still waits for, so they
    /// come ready in this order.
    bags: Vec<Bag>,
}

static LOCALS: Mutex<Vec<&'static Local>> = Mutex::new(Vec::new());
static GARBAGE: Mutex<Garbage> = Mutex::new(Garbage { fresh: Vec::new(), bags: Vec::new() });
/// Held while releases run, so that they run in their order.
static RELEASING: Mutex<()> = Mutex::new(());

thread_local! {
    /// Without a destructor, so that reaching it costs one instruction.
    static MINE: Cell<Option<&'static Local>> = const { Cell::new(None) };
    /// Gives `MINE` back when the thread ends.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(local) = MINE.get() else { return };
        if local.guards.load(Relaxed) == 0 {
            local.give_back();
        } else {
            // Another thread local, which goes later, keeps a guard.
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
    local.ending.store(ending, Relaxed);
    MINE.set(Some(local));
    local
}

/// While it lives, nothing that its thread can reach is released.
pub(crate) struct Guard {
    local: &'static Local,
    /// Of one thread.
    _not_send: PhantomData<*const ()>,
}

/// Pins this thread, which reads without a lock then: what it published before, others see before it reads.
#[inline]
pub(crate) fn pin() -> Guard {
    let guard = pin_to_write();
    if guard.local.published.load(Relaxed) {
        guard.local.published.store(false, Relaxed);
        // SeqCst: pairs with the same of another thread that published and reads: one of them sees what the other published.
        fence(SeqCst);
    }
    guard
}

/// Notes that this thread published something by a store that no locked instruction or fence follows.
#[inline]
pub(crate) fn published() {
    if let Some(local) = MINE.get() {
        local.published.store(true, Relaxed);
    }
}

/// Pins this thread, which locks a key then before it looks for it: that is a fence.
#[inline]
pub(crate) fn pin_to_write() -> Guard {
    let local = MINE.get().unwrap_or_else(take_local);
    let guards = local.guards.load(Relaxed);
    local.guards.store(guards + 1, Relaxed);
    if guards == 0 {
        local.turns.begin_with(local.fences);
    }
    Guard { local, _not_send: PhantomData }
}

/// Whether this thread holds a guard.
pub(crate) fn is_pinned() -> bool {
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
    /// Keeps what begins at `place`, which this guard keeps, also when the guard is gone.
    #[inline]
    pub(crate) fn pin_value(&self, place: *const u8) -> ValuePin {
        // Its load of the slot, Acquire, pairs with the Release when a hold is dropped, maybe by another thread.
        let slot = self.local.slots.take();
        // Release: pairs with the Acquire in `held`.
        slot.store(place.addr(), Release);
        ValuePin(slot)
    }

    /// Runs `release` when everybody who is pinned now has left. What it releases is out of reach already.
    pub(crate) fn defer(&self, release: impl FnOnce() + Send + 'static) {
        lock(&GARBAGE).fresh.push(Box::new(release));
    }

    /// Drops what `shared` points to when everybody who is pinned now has left.
    ///
    /// # Safety
    /// Nobody can come to `shared` any more but guards pinned before.
    pub(crate) unsafe fn defer_destroy<T: Send + 'static>(&self, shared: Shared<'_, T>) {
        // SAFETY: made by `Owned::new`; unreachable, as the caller promised, when this is run.
        let owned = unsafe { shared.into_owned() };
        self.defer(move || drop(owned));
    }
}

/// Runs what was deferred and that nobody can see any more.
pub(crate) fn collect() {
    // Whoever else is at it does the same for us.
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

/// Fences on every CPU that runs a thread of this process; false when the kernel refused, and then nothing may
/// be released.
fn fence_all() -> bool {
    fence(SeqCst);
    !kernel_fences()
        || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
        // A child process begins unregistered.
        || (membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
            && membarrier(MembarrierCommand::PrivateExpedited).is_ok())
}

/// A pointer to something that is replaced while others read it.
pub(crate) struct Atomic<T>(AtomicPtr<T>);

/// What nobody else can reach.
pub(crate) struct Owned<T>(NonNull<T>);

// SAFETY: it is a box, but for the promise that a box makes about aliases, which readers still break when it
// waits to be dropped.
unsafe impl<T: Send> Send for Owned<T> {}

/// What a guard keeps.
pub(crate) struct Shared<'g, T> {
    pointer: *mut T,
    _guard: PhantomData<&'g Guard>,
}

impl<T> Atomic<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Owned::new(value).leak()))
    }

    #[inline]
    pub(crate) fn load<'g>(&self, order: Ordering, _guard: &'g Guard) -> Shared<'g, T> {
        Shared { pointer: self.0.load(order), _guard: PhantomData }
    }

    /// Puts `new` in, and returns what was there; `None` leaves nothing there.
    pub(crate) fn swap<'g>(
        &self,
        new: Option<Owned<T>>,
        order: Ordering,
        _guard: &'g Guard,
    ) -> Shared<'g, T> {
        let new = new.map_or(std::ptr::null_mut(), Owned::leak);
        Shared { pointer: self.0.swap(new, order), _guard: PhantomData }
    }
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
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
    pub(crate) unsafe fn deref(&self) -> &'g T {
        // SAFETY: the caller's promise.
        unsafe { &*self.pointer }
    }

    /// # Safety
    /// Not null, and nobody else can reach it once it is used or dropped.
    pub(crate) unsafe fn into_owned(self) -> Owned<T> {
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
    fn what_is_deferred_waits_for_a_guard_of_another_thread() {
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
    fn nested_guards_keep_until_the_last_goes() {
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
    fn threads_that_end_give_their_place_back_even_when_they_pin_late() {
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
        // Other tests run beside this one.
        assert!(lock(&LOCALS).len() < 100, "{} places", lock(&LOCALS).len());
    }

    #[test]
    fn readers_never_see_what_was_released() {
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
