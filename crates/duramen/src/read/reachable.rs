//! Slots of appended records: see [`crate::log::reachable`].

use crate::index::Slot;
use crate::log::reachable::Reachable;

impl Slot {
    /// A slot for an appended record.
    #[inline]
    pub(crate) fn to(record: Reachable) -> Self {
        Self::new(record.at()).with_pending(record.is_pending())
    }

    /// The same slot for a copy of its record.
    #[inline]
    pub(crate) fn moved_to(self, copy: Reachable) -> Self {
        self.at(copy.at()).with_pending(copy.is_pending())
    }
}
