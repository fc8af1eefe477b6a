//! A value that is replaced while others read it.

use super::atomic::Ordering::{AcqRel, Acquire};
use super::reclaim::{Atomic, Guard, Owned, pin_to_write};

/// Never empty. A replaced value is dropped when all readers that may see it have left.
pub struct Current<T: Send + 'static>(Atomic<T>);

impl<T: Send + 'static> Current<T> {
    pub fn new(value: T) -> Self {
        Self(Atomic::new(value))
    }

    /// The value, for as long as the guard lives.
    #[inline]
    pub fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        // SAFETY: never null, and dropped only when all guards have gone that may see it.
        unsafe { self.0.load(Acquire, guard).deref() }
    }

    /// Replaces the value with `new`, and returns the old one.
    pub fn replace<'g>(&self, new: T, guard: &'g Guard) -> &'g T {
        let before = self.0.swap(Some(Owned::new(new)), AcqRel, guard);
        // SAFETY: as in `load`.
        let value = unsafe { before.deref() };
        // SAFETY: only guards pinned before can reach it, and this is one of them.
        unsafe { guard.defer_destroy(before) };
        value
    }
}

impl<T: Send + 'static> Drop for Current<T> {
    fn drop(&mut self) {
        let guard = pin_to_write();
        let last = self.0.swap(None, AcqRel, &guard);
        // SAFETY: nobody else has this any more, and all references to it have ended.
        drop(unsafe { last.into_owned() });
    }
}
