//! The epochs that count after a crash.

use duramen_log::format::Epoch;

/// Which records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Epochs from `base` on count only up to `committed`.
    pub base: Epoch,
    pub committed: Epoch,
}

impl Cut {
    pub(crate) const ALL: Self = Self { base: Epoch(Epoch::MAX), committed: Epoch(Epoch::MAX) };

    pub(crate) fn keeps(&self, epoch: Epoch) -> bool {
        epoch < self.base || epoch <= self.committed
    }
}
