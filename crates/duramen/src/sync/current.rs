//! A value that is replaced while others read it.

use super::atomic::Ordering::{AcqRel, Acquire};
use super::reclaim::{Atomic, Guard, Owned, pin_to_write};

/// Always there. What was replaced is dropped when all have left who may read it.
pub(crate) struct Current<T: Send + 'static>(Atomic<T>);

impl<T: Send + 'static> Current<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Atomic::new(value))
    }

    /// The value, for as long as the guard lives.
    #[inline]
    pub(crate) fn load<'g>(&self, guard: &'g Guard) -> &'g T {
        // SAFETY: never null, and dropped only when all guards have gone that may see it.
        unsafe { self.0.load(Acquire, guard).deref() }
    }

    /// Puts `new` in its place, and returns what was there.
    pub(crate) fn replace<'g>(&self, new: T, guard: &'g Guard) -> &'g T {
        let before = self.0.swap(Some(Owned::new(new)), AcqRel, guard);
        // SAFETY: as in `load`.
        let value = unsafe { before.deref() };
        // SAFETY: nobody comes to it any more but guards pinned before, of which this is one.
        unsafe { guard.defer_destroy(before) };
        value
    }
}

impl<T: Send + 'static> Drop for Current<T> {
    fn drop(&mut self) {
        let guard = pin_to_write();
        let last = self.0.swap(None, AcqRel, &guard);
        // SAFETY: nobody else has this any more, and who had it by reference has let go of that.
        drop(unsafe { last.into_owned() });
    }
}
