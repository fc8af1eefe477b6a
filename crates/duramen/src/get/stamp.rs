//! Stamps: whether a key has changed since it was read.

use duramen_log::format::Owner;

/// The state of a key when it was read. It changes whenever the key is written or deleted. An absent key has one too,
/// so a condition can demand that the key is still absent. Rarely it changes although nothing happened to the key, when
/// the remains of a deleted key are removed or its table is cleared; then a condition fails without need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// As a number: two stamps of one key have the same number only if they are equal.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// The stamp of a key without a slot in the table of `owner`; `forgotten` counts the dropped tombstones of its
    /// stripe.
    pub(crate) fn absent(owner: Owner, forgotten: u64) -> Self {
        // Clearing a table forgets all of its keys at once, and their owner changes. An odd factor, so that the counts
        // of two owners coincide only when they are very far apart.
        let state = owner.0.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(forgotten);
        // No version has this bit, and every cell's stamp has the highest bit.
        Self(state & !(3 << 62) | 1 << 62)
    }
}
