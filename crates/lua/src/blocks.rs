//! Lua's small blocks of memory. Scripts make and drop many; they are kept for the next one, up to [`KEPT_BYTES_MAX`],
//! which is faster than the C library's allocator.
//!
//! Invariants:
//!
//! 1. A block has at least the bytes of its class, and is C's: from `malloc` or `realloc`.
//! 2. A kept block is in the list of its class alone, and nobody else refers to it.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::NonNull;

const CLASS_BYTES: usize = 16;
/// Beyond are the tables and buffers that grow: for them the time to fill them counts.
const CLASSES: usize = 16;
/// More than a run of a script needs that makes a few hundred values. A sanitizer sees more if none are kept.
const KEPT_BYTES_MAX: usize = if cfg!(fuzzing) { 0 } else { 64 << 10 };

/// What a kept block holds.
#[repr(C)]
struct Kept {
    next: Option<NonNull<Kept>>,
}

/// Blocks that nobody uses, by class.
#[derive(Default)]
pub struct Blocks {
    first: [Cell<Option<NonNull<Kept>>>; CLASSES],
    bytes: Cell<usize>,
}

/// The class of blocks of so many bytes; `None` for those that are not kept.
fn class_of(bytes: usize) -> Option<usize> {
    (1..=CLASSES * CLASS_BYTES).contains(&bytes).then(|| (bytes - 1) / CLASS_BYTES)
}

const fn bytes_of(class: usize) -> usize {
    (class + 1) * CLASS_BYTES
}

impl Blocks {
    /// A block of at least so many bytes; null for lack of memory.
    pub fn allocate(&self, bytes: usize) -> *mut c_void {
        let Some(class) = class_of(bytes) else {
            // SAFETY: any size may be asked for.
            return unsafe { libc::malloc(bytes) };
        };
        let Some(kept) = self.first[class].get() else {
            // SAFETY: as above.
            return unsafe { libc::malloc(bytes_of(class)) };
        };
        // SAFETY: a kept block holds a `Kept` (invariant 2).
        self.first[class].set(unsafe { kept.as_ref() }.next);
        self.bytes.set(self.bytes.get() - bytes_of(class));
        kept.as_ptr().cast()
    }

    /// Takes back a block of so many bytes.
    ///
    /// # Safety
    /// It is from [`allocate`](Self::allocate) or [`resize`](Self::resize) with this size, or null, and nobody uses it
    /// any more.
    pub unsafe fn release(&self, block: *mut c_void, bytes: usize) {
        let (Some(class), Some(kept)) = (class_of(bytes), NonNull::new(block.cast::<Kept>())) else {
            // SAFETY: it is C's (invariant 1), or null.
            return unsafe { libc::free(block) };
        };
        if self.bytes.get() + bytes_of(class) > KEPT_BYTES_MAX {
            // SAFETY: as above.
            return unsafe { libc::free(block) };
        }
        // SAFETY: it has the bytes of its class (invariant 1), which are enough, and C aligns it for any type.
        unsafe { kept.write(Kept { next: self.first[class].get() }) };
        self.first[class].set(Some(kept));
        self.bytes.set(self.bytes.get() + bytes_of(class));
    }

    /// Gives a block another size, and its content with it; null for lack of memory, which leaves it as it was. One that
    /// becomes smaller is never refused: Lua relies on it.
    ///
    /// # Safety
    /// As of [`release`](Self::release); the block is not null, and neither size is 0.
    pub unsafe fn resize(&self, block: *mut c_void, old: usize, new: usize) -> *mut c_void {
        let moved = match (class_of(old), class_of(new)) {
            (Some(before), Some(after)) if before == after => return block,
            // SAFETY: it is C's (invariant 1).
            (None, None) => unsafe { libc::realloc(block, new) },
            _ => {
                let moved = self.allocate(new);
                if !moved.is_null() {
                    // SAFETY: both have so many bytes, and the new one is nobody else's.
                    unsafe {
                        std::ptr::copy_nonoverlapping(block.cast::<u8>(), moved.cast::<u8>(), old.min(new))
                    };
                    // SAFETY: the caller's; the content has left it.
                    unsafe { self.release(block, old) };
                }
                moved
            }
        };
        // It has enough bytes for its new class.
        if moved.is_null() && new <= old { block } else { moved }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for first in &self.first {
            let mut next = first.take();
            while let Some(kept) = next {
                // SAFETY: a kept block holds a `Kept` (invariant 2).
                next = unsafe { kept.as_ref() }.next;
                // SAFETY: it is C's, and nobody refers to it (both invariants).
                unsafe { libc::free(kept.as_ptr().cast()) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A block, its size, and the byte that fills it.
    type Own = (*mut c_void, usize, u8);

    fn fill((block, bytes, byte): Own) -> Own {
        // SAFETY: the block has so many bytes.
        unsafe { std::ptr::write_bytes(block.cast::<u8>(), byte, bytes) };
        (block, bytes, byte)
    }

    fn is_whole((block, bytes, byte): Own) -> bool {
        // SAFETY: as above, and they are written.
        unsafe { std::slice::from_raw_parts(block.cast::<u8>(), bytes) }.iter().all(|own| *own == byte)
    }

    proptest! {
        #[test]
        fn blocks_keep_their_content_and_bounded_memory(
            steps in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), 1usize..400), 1..400),
        ) {
            let (blocks, mut own) = (Blocks::default(), Vec::<Own>::new());
            for (number, (what, which, bytes)) in steps.into_iter().enumerate() {
                let at = if own.is_empty() { None } else { Some(which.index(own.len())) };
                match (what, at) {
                    (1, Some(at)) => {
                        let (block, old, byte) = own[at];
                        // SAFETY: it is one of `own`, each of which was allocated with its size.
                        let moved = unsafe { blocks.resize(block, old, bytes) };
                        prop_assert!(is_whole((moved, old.min(bytes), byte)));
                        own[at] = fill((moved, bytes, byte));
                    }
                    (2, Some(at)) => {
                        let (block, bytes, _) = own.swap_remove(at);
                        // SAFETY: as above, and it is no longer one of them.
                        unsafe { blocks.release(block, bytes) };
                    }
                    _ => own.push(fill((blocks.allocate(bytes), bytes, number as u8))),
                }
                prop_assert!(own.iter().all(|own| is_whole(*own)));
            }
            for (block, bytes, _) in own {
                // SAFETY: as above.
                unsafe { blocks.release(block, bytes) };
            }
            prop_assert!(blocks.bytes.get() <= KEPT_BYTES_MAX);
        }
    }

    #[test]
    fn a_block_that_was_released_is_given_again_up_to_a_limit() {
        let blocks = Blocks::default();
        let first = blocks.allocate(40);
        // SAFETY: it is from `allocate`.
        unsafe { blocks.release(first, 40) };
        assert_eq!((blocks.allocate(33), blocks.bytes.get()), (first, 0));
        let all: Vec<_> = (0..1000).map(|_| blocks.allocate(256)).collect();
        for block in all {
            // SAFETY: as above.
            unsafe { blocks.release(block, 256) };
        }
        assert_eq!(blocks.bytes.get(), KEPT_BYTES_MAX);
        // SAFETY: as above.
        unsafe { blocks.release(first, 33) };
    }
}
