//! Memory for index segments: large zeroed chunks on huge pages where the kernel gives them, since a
//! probe on 4 KiB pages pays as much for address translation as for the memory.
//!
//! Invariants:
//! 1. A chunk is unmapped only when the whole `Memory` is dropped, so a pointer to a segment stays
//!    readable for as long as the index lives, whatever became of the segment.

use super::hash::Segment;
#[cfg(any(loom, miri))]
use super::heap::{Chunk, map_chunk, unmap_chunk};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
#[cfg(loom)]
const CHUNK_BYTES_MAX: usize = super::heap::SEGMENTS * size_of::<Segment>();
#[cfg(loom)]
const CHUNK_BYTES_MIN: usize = CHUNK_BYTES_MAX;

#[cfg(not(any(loom, miri)))]
struct Chunk {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a chunk is plain memory that any thread may use; `Memory` owns it.
#[cfg(not(any(loom, miri)))]
unsafe impl Send for Chunk {}

#[derive(Default)]
struct State {
    chunks: Vec<Chunk>,
    /// Bytes handed out of the last chunk.
    used: usize,
    free: Vec<NonNull<Segment>>,
}

// SAFETY: the pointers are to segments, which are made of atomics.
unsafe impl Send for State {}

#[derive(Default)]
pub(super) struct Memory {
    state: Mutex<State>,
    mapped: AtomicU64,
}

impl Memory {
    /// Zeroed memory for one segment.
    ///
    /// # Panics
    /// When the system has no memory left, as every allocation in this process does.
    pub(super) fn take(&self) -> NonNull<Segment> {
        let mut state = self.state.lock().unwrap_or_else(crate::sync::PoisonError::into_inner);
        if let Some(segment) = state.free.pop() {
            return segment;
        }
        let bytes = size_of::<Segment>();
        let room = state.chunks.last().map_or(0, |c| c.bytes - state.used);
        if room < bytes {
            let total = self.mapped.load(Relaxed) as usize;
            let want = total.next_power_of_two().clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
            let chunk = map_chunk(want);
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

    /// Takes a segment back; nobody can reach it any more, and it is empty again.
    pub(super) fn give(&self, segment: NonNull<Segment>) {
        self.state.lock().unwrap_or_else(crate::sync::PoisonError::into_inner).free.push(segment);
    }

    /// Bytes handed out and in use, of those mapped.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.state.lock().unwrap_or_else(crate::sync::PoisonError::into_inner);
        let full: usize = state.chunks.iter().rev().skip(1).map(|c| c.bytes).sum();
        (full + state.used - state.free.len() * size_of::<Segment>()) as u64
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

impl Drop for Memory {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(crate::sync::PoisonError::into_inner);
        for chunk in state.chunks.drain(..) {
            unmap_chunk(&chunk);
        }
    }
}
