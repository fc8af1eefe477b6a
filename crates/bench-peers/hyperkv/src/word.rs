//! Compare-and-exchange of a word, the one operation that the medium does not offer. Locks are such words.
//!
//! Invariant: while others may reach a lock word, only this function and `load_u64` and `store_u64` of the medium
//! access it. All three are atomic.

use duramen_media::{Medium, Offset};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

/// Stores `new` at `at` if `current` is there (acquire and release); returns whether it stored.
#[inline]
pub(crate) fn exchange<M: Medium>(medium: &M, at: u64, current: u64, new: u64) -> bool {
    assert!(at.is_multiple_of(8), "lock word at {at:#x} is not aligned");
    let pointer = medium.pointer(Offset(at), 8).cast_mut().cast::<u64>();
    // SAFETY: `pointer` checked that the word is inside the mapping, which is writable memory that lives as long as the
    // medium. The word is aligned, and accessed by atomic operations alone (the module's invariant).
    let word = unsafe { AtomicU64::from_ptr(pointer) };
    word.compare_exchange(current, new, AcqRel, Relaxed).is_ok()
}
