//! Whether and until when a key lives.

use crate::keyspace::KeyCount;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Not there, or expired.
    Absent,
    /// There, without expiry time.
    Persistent,
    /// There until this time in Unix milliseconds.
    Until(u64),
}

impl Life {
    /// The life of a key that is there.
    pub(crate) fn of(expires_at: Option<u64>) -> Self {
        expires_at.map_or(Self::Persistent, Self::Until)
    }

    /// What it counts for: in all, and among those that expire.
    pub(crate) fn counts(self) -> KeyCount {
        KeyCount { keys: u64::from(self != Self::Absent), expires: u64::from(matches!(self, Self::Until(_))) }
    }
}
