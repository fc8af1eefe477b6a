//! The content of a key.

/// A value and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Vec<u8>,
    /// The caller's tag.
    pub tag: u8,
    /// When it expires.
    pub expires_at: Option<u64>,
    /// Whether it was put to be updated in place.
    pub updatable: bool,
}

impl Entry {
    /// Whether a read at `now` shows it.
    pub(crate) fn is_visible(&self, now: u64) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    /// Whether a reader cannot distinguish the two.
    pub(crate) fn reads_as(&self, other: &Self) -> bool {
        (&self.value, self.tag, self.expires_at) == (&other.value, other.tag, other.expires_at)
    }
}
