//! Replaces mapped memory under index segments in builds that watch memory. In Miri it is zeroed memory of the
//! allocator. In a model it is segments of loom's atomics, which zeroed memory is not.

use std::ptr::NonNull;

/// All pieces of a model, in one chunk: locks are ordered by address, and each execution must find the same order.
#[cfg(loom)]
const PIECES: usize = 8;

/// As in [`super::memory`]: plain memory, which its owner gives back by [`unmap_chunk`].
pub(super) struct Chunk {
    pub base: NonNull<u8>,
    pub bytes: usize,
}

// SAFETY: a chunk is plain memory that any thread may use; `Memory` owns it.
unsafe impl Send for Chunk {}

#[cfg(loom)]
pub(super) fn map_chunk<T: Default>() -> Chunk {
    let pieces: &mut [T; PIECES] = Box::leak(Box::default());
    Chunk { base: NonNull::from(pieces).cast(), bytes: size_of::<[T; PIECES]>() }
}

#[cfg(loom)]
pub(super) fn unmap_chunk<T>(chunk: &Chunk) {
    // SAFETY: made by `map_chunk`, and the index is gone (invariant 1 of `Memory`).
    drop(unsafe { Box::from_raw(chunk.base.cast::<[T; PIECES]>().as_ptr()) });
}

#[cfg(not(loom))]
fn layout(bytes: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(bytes, 4096).unwrap_or(std::alloc::Layout::new::<u64>())
}

#[cfg(not(loom))]
pub(super) fn map_chunk(bytes: usize) -> Chunk {
    // SAFETY: the layout is not empty.
    let base = unsafe { std::alloc::alloc_zeroed(layout(bytes)) };
    let base = NonNull::new(base).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(bytes)));
    Chunk { base, bytes }
}

#[cfg(not(loom))]
pub(super) fn unmap_chunk(chunk: &Chunk) {
    // SAFETY: allocated above with this layout, and the index is gone (invariant 1 of `Memory`).
    unsafe { std::alloc::dealloc(chunk.base.as_ptr(), layout(chunk.bytes)) };
}
