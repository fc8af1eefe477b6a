//! A transaction that must be alone, because it uses keys that nobody named before it began.

use super::Txn;
use crate::locks::Locks;

impl Txn<'_> {
    /// Names all keys: true if they are named already. If not, [`Worker::run`] starts again alone, whatever the caller
    /// returns.
    pub fn name_all(&mut self) -> bool {
        let is_alone = self.is_alone();
        self.worker.wants_all |= !is_alone;
        is_alone
    }

    /// Whether it names all keys.
    #[inline]
    pub fn is_alone(&self) -> bool {
        matches!(self.locks, Locks::All)
    }

    /// Whether it is going to start again, so that nothing that it does now counts.
    #[inline]
    pub fn wants_all(&self) -> bool {
        self.worker.wants_all
    }
}
