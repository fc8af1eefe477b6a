//! What the clients of a cache write in its torture, and what they know of a key.

/// Keys of one client, and commands that it has under way.
pub const KEYS: u64 = 30_000;
pub const TOGETHER: usize = 100;
/// Values are shorter than this.
pub const VALUE_BYTES: u64 = 2_000;
/// One command of so many is a delete.
pub const DELETES: u64 = 5;

/// What a key may hold: the number of what was written, 0 for nothing that was ever put or was deleted.
#[derive(Clone, Default)]
pub struct Known {
    pub last: u64,
    /// Under way when the server was killed.
    pub flying: Option<u64>,
}
