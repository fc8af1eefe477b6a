//! What a script or function says of itself.

/// Flags of a script; see the constants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptFlags(u8);

impl ScriptFlags {
    /// It has no flags at all: a script without `#!`.
    pub const COMPATIBLE: Self = Self(1 << 0);
    /// It writes nothing.
    pub const NO_WRITES: Self = Self(1 << 1);
    /// It may run where memory is short.
    pub const ALLOW_OOM: Self = Self(1 << 2);
    /// It may run on a replica that has lost its primary.
    pub const ALLOW_STALE: Self = Self(1 << 3);
    /// It may not run in a cluster.
    pub const NO_CLUSTER: Self = Self(1 << 4);
    /// It may use keys of several slots.
    pub const ALLOW_CROSS_SLOT_KEYS: Self = Self(1 << 5);

    /// Their names, in Redis's order.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("no-writes", Self::NO_WRITES),
        ("allow-oom", Self::ALLOW_OOM),
        ("allow-stale", Self::ALLOW_STALE),
        ("no-cluster", Self::NO_CLUSTER),
        ("allow-cross-slot-keys", Self::ALLOW_CROSS_SLOT_KEYS),
    ];

    /// The flag with this name.
    pub fn named(name: &[u8], ignoring_case: bool) -> Option<Self> {
        let is_same = |known: &str| match ignoring_case {
            true => known.as_bytes().eq_ignore_ascii_case(name),
            false => known.as_bytes() == name,
        };
        Self::NAMES.iter().find(|(known, _)| is_same(known)).map(|(_, flag)| *flag)
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of those that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().filter(move |(_, flag)| self.has(*flag)).map(|(name, _)| *name)
    }
}
