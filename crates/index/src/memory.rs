//! Memory for index segments and nodes: large zeroed chunks, on huge pages if the kernel gives them. On 4 KiB pages a
//! probe pays as much for address translation as for the memory.
//!
//! Invariants:
//! 1. A chunk is unmapped only when the whole `Memory` is dropped, so a pointer to a piece stays readable for as long
//!    as the index lives, whatever became of the piece. (The system may get the pages of free pieces back earlier.)
//!    (No line can check that memory is mapped without touching it. Only `drop` unmaps; what is given back is asserted
//!    to lie in a chunk.)
//! 2. All pieces of one `Memory` are of one type. (No line checks it: `T` is that type.)

#[cfg(any(loom, miri))]
use super::heap::{Chunk, map_chunk, unmap_chunk};
use duramen_log::sync::atomic::{AtomicU64, Ordering::Relaxed};
use duramen_log::sync::{Mutex, lock};
#[cfg(not(any(loom, miri)))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ptr::NonNull;

#[cfg(not(any(loom, miri)))]
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The largest chunk; the first ones are smaller, so that a small store stays small.
#[cfg(not(loom))]
const CHUNK_BYTES_MAX: usize = 32 << 20;
#[cfg(not(loom))]
const CHUNK_BYTES_MIN: usize = 256 << 10;

#[cfg(not(any(loom, miri)))]
struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a chunk is plain memory that any thread may use; `Memory` owns it.
#[cfg(not(any(loom, miri)))]
unsafe impl Send for Chunk {}

/// The contents of a `Memory`: made of atomics, and valid when all zeros.
#[cfg(not(loom))]
pub(super) trait Piece: Sync {}
/// The same of loom's atomics, which zeroed memory is not.
#[cfg(loom)]
pub(super) trait Piece: Sync + Default {}

struct State<T> {
    chunks: Vec<Chunk>,
    /// Bytes handed out of the last chunk.
    used: usize,
    free: Vec<NonNull<T>>,
}

// SAFETY: the pointers are to pieces, which are made of atomics.
unsafe impl<T: Piece> Send for State<T> {}

pub(super) struct Memory<T: Piece> {
    state: Mutex<State<T>>,
    mapped: AtomicU64,
}

impl<T: Piece> Default for Memory<T> {
    fn default() -> Self {
        let state = State { chunks: Vec::new(), used: 0, free: Vec::new() };
        Self { state: Mutex::new(state), mapped: AtomicU64::new(0) }
    }
}

impl<T: Piece> Memory<T> {
    /// Zeroed memory for one piece.
    ///
    /// # Panics
    /// If the system has no memory left, as every allocation in this process does.
    pub(super) fn take(&self) -> NonNull<T> {
        let mut state = lock(&self.state);
        if let Some(piece) = state.free.pop() {
            return piece;
        }
        let bytes = size_of::<T>();
        let room = state.chunks.last().map_or(0, |c| c.bytes - state.used);
        if room < bytes {
            #[cfg(not(loom))]
            let chunk = {
                let total = self.mapped.load(Relaxed) as usize;
                map_chunk(total.next_power_of_two().clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX))
            };
            #[cfg(loom)]
            let chunk = map_chunk::<T>();
            self.mapped.fetch_add(chunk.bytes as u64, Relaxed);
            state.chunks.push(chunk);
            state.used = 0;
        }
        let used = state.used;
        state.used += bytes;
        let base = state.chunks.last().map_or(NonNull::dangling(), |c| c.base);
        // SAFETY: `used + bytes` is within the chunk, as checked above.
        unsafe { base.add(used) }.cast()
    }

    /// Takes a piece back. It must be all zeros and unused. If more is free than in use, the system gets its pages
    /// back.
    pub(super) fn give(&self, piece: NonNull<T>) {
        #[cfg(not(any(loom, miri)))]
        if size_of::<T>().is_multiple_of(4096) && self.is_mostly_free() {
            // SAFETY: the piece lies in a chunk, on pages of its own since chunks begin on one, and nobody uses it. It
            // reads as zeros again.
            let _ = unsafe { madvise(piece.as_ptr().cast(), size_of::<T>(), Advice::LinuxDontNeed) };
        }
        let mut state = lock(&self.state);
        debug_assert!(
            state.chunks.iter().any(|chunk| {
                let at = piece.addr().get().wrapping_sub(chunk.base.addr().get());
                at < chunk.bytes && at.is_multiple_of(size_of::<T>())
            }),
            "{piece:?} is given back, and is no piece of this memory (invariant 1)"
        );
        state.free.push(piece);
    }

    #[cfg(not(any(loom, miri)))]
    fn is_mostly_free(&self) -> bool {
        let state = lock(&self.state);
        (state.free.len() * size_of::<T>()) as u64 * 2 > self.mapped.load(Relaxed)
    }

    /// A random piece that was handed out once, all equally likely, in use or not; `None` if there is none.
    pub(super) fn any(&self, random: u64) -> Option<NonNull<T>> {
        let state = lock(&self.state);
        let last = state.chunks.len().checked_sub(1)?;
        let pieces =
            |at: usize| if at == last { state.used } else { state.chunks[at].bytes } / size_of::<T>();
        let mut left = (random % (0..=last).map(pieces).sum::<usize>().max(1) as u64) as usize;
        let at = (0..=last).find(|&at| {
            left < pieces(at) || {
                left -= pieces(at);
                false
            }
        })?;
        // SAFETY: below the pieces of this chunk.
        Some(unsafe { state.chunks[at].base.add(left * size_of::<T>()) }.cast())
    }

    /// Bytes of the pieces in use.
    pub(super) fn bytes(&self) -> u64 {
        let state = lock(&self.state);
        let full: usize = state.chunks.iter().rev().skip(1).map(|c| c.bytes).sum();
        (full + state.used - state.free.len() * size_of::<T>()) as u64
    }
}

#[cfg(not(any(loom, miri)))]
fn map_chunk(bytes: usize) -> Chunk {
    // A chunk of huge pages must begin on one: map one more and give the ends back.
    let slack = if bytes >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            bytes + slack,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let mapped = match mapped {
        Ok(pointer) => pointer.cast::<u8>(),
        Err(_) => std::alloc::handle_alloc_error(
            std::alloc::Layout::from_size_align(bytes, 4096).unwrap_or(std::alloc::Layout::new::<u64>()),
        ),
    };
    let before = if slack == 0 { 0 } else { mapped.align_offset(HUGE_PAGE_BYTES) };
    let base = mapped.wrapping_add(before);
    if slack > 0 {
        if before > 0 {
            // SAFETY: the first `before` bytes of the mapping just made, which nothing uses.
            let _ = unsafe { munmap(mapped.cast(), before) };
        }
        // SAFETY: the bytes behind the chunk in the mapping just made, which nothing uses.
        let _ = unsafe { munmap(base.wrapping_add(bytes).cast(), slack - before) };
        // SAFETY: advice about the chunk just mapped. Refusal is fine: small pages work too.
        let _ = unsafe { madvise(base.cast(), bytes, Advice::LinuxHugepage) };
    }
    Chunk { base: NonNull::new(base).unwrap_or(NonNull::dangling()), bytes }
}

#[cfg(not(any(loom, miri)))]
fn unmap_chunk(chunk: &Chunk) {
    // SAFETY: this chunk was mapped with these bounds, and the index is gone (invariant 1).
    let _ = unsafe { munmap(chunk.base.as_ptr().cast(), chunk.bytes) };
}

impl<T: Piece> Drop for Memory<T> {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for chunk in state.chunks.drain(..) {
            #[cfg(not(loom))]
            unmap_chunk(&chunk);
            #[cfg(loom)]
            unmap_chunk::<T>(&chunk);
        }
    }
}

/// A table of `T`, all zeros at first. The system backs only the parts that are touched.
#[cfg(not(loom))]
pub(super) struct Table<T> {
    chunk: Option<Chunk>,
    slots: usize,
    _of: std::marker::PhantomData<T>,
}

// SAFETY: a table is a slice of what any thread may use.
#[cfg(not(loom))]
unsafe impl<T: Sync> Sync for Table<T> {}

#[cfg(not(loom))]
impl<T> Table<duramen_log::sync::atomic::AtomicPtr<T>> {
    pub(super) fn new(slots: usize) -> Self {
        let bytes = slots * size_of::<duramen_log::sync::atomic::AtomicPtr<T>>();
        let chunk = (slots > 0).then(|| map_chunk(bytes.next_multiple_of(4096)));
        let table = Self { chunk, slots, _of: std::marker::PhantomData };
        table.advise_huge(false);
        table
    }

    /// Announces that about the first `slots` slots are in use from now on. This decides whether they are worth huge
    /// pages, each of which the system backs as a whole.
    pub(super) fn used(&self, slots: usize) {
        #[cfg(not(miri))]
        if slots * size_of::<duramen_log::sync::atomic::AtomicPtr<T>>() >= HUGE_PAGE_BYTES {
            self.advise_huge(true);
        }
        #[cfg(miri)]
        let _ = slots;
    }

    #[cfg(not(miri))]
    fn advise_huge(&self, are_huge: bool) {
        let Some(chunk) = self.chunk.as_ref().filter(|chunk| chunk.bytes >= HUGE_PAGE_BYTES) else { return };
        let advice = if are_huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: advice about a mapping of ours. Refusal is fine: other pages work too.
        let _ = unsafe { madvise(chunk.base.as_ptr().cast(), chunk.bytes, advice) };
    }

    #[cfg(miri)]
    fn advise_huge(&self, _: bool) {}

    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<&duramen_log::sync::atomic::AtomicPtr<T>> {
        let base = self.chunk.as_ref().filter(|_| slot < self.slots)?.base;
        // SAFETY: below the slots that the chunk has room for.
        let at = unsafe { base.cast::<duramen_log::sync::atomic::AtomicPtr<T>>().add(slot) };
        // SAFETY: zeroed memory is null pointers; it is unmapped only with the table.
        Some(unsafe { at.as_ref() })
    }

    pub(super) fn len(&self) -> usize {
        self.slots
    }
}

#[cfg(not(loom))]
impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        if let Some(chunk) = &self.chunk {
            unmap_chunk(chunk);
        }
    }
}

/// The same of loom's atomics, which zeroed memory is not.
#[cfg(loom)]
pub(super) struct Table<T>(Vec<T>);

#[cfg(loom)]
impl<T> Table<duramen_log::sync::atomic::AtomicPtr<T>> {
    pub(super) fn new(slots: usize) -> Self {
        let null = || duramen_log::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        Self((0..slots).map(|_| null()).collect())
    }

    pub(super) fn used(&self, _: usize) {}

    pub(super) fn get(&self, slot: usize) -> Option<&duramen_log::sync::atomic::AtomicPtr<T>> {
        self.0.get(slot)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
