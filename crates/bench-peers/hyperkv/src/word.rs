//! The one thing that a medium has no call for: a word that is exchanged if it is as expected. Locks are such words.
//!
//! Invariant: a lock word is only ever accessed by this function and by `load_u64` and `store_u64` of the medium while
//! others may reach it, all of which are atomic.

use duramen_media::{Medium, Offset};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Stores `new` at `at` if `current` is there (acquire and release); whether it was.
#[inline]
pub(crate) fn exchange<M: Medium>(medium: &M, at: u64, current: u64, new: u64) -> bool {
    assert!(at.is_multiple_of(8), "lock word at {at:#x} is not aligned");
    let pointer = medium.pointer(Offset(at), 8).cast_mut().cast::<u64>();
    // SAFETY: `pointer` checked that the word is inside the mapping, which is writable memory that lives as long as the
    // medium; it is aligned, and accessed by atomic operations alone (the module's invariant).
    let word = unsafe { AtomicU64::from_ptr(pointer) };
    word.compare_exchange(current, new, AcqRel, Relaxed).is_ok()
}
