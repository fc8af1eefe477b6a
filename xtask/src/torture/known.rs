//! The values that the clients of a cache write in its torture, and the clients' records of each key.

use super::own_bytes::OwnBytes;
use crate::random::Random;

/// Keys of one client, and commands that it has in flight.
pub const KEYS: u64 = 30_000;
pub const TOGETHER: usize = 100;
/// Values are shorter than this.
const VALUE_BYTES: u64 = 2_000;
/// One command out of this many is a delete.
pub const DELETES: u64 = 5;

/// The value of a change: its number, and bytes of the store.
pub fn value(change: u64, random: &mut Random, own: &mut OwnBytes) -> Vec<u8> {
    let filler = own.filler(random.below(VALUE_BYTES) as usize);
    [format!("{change}:").as_bytes(), &filler].concat()
}

/// The number of the change that wrote this value.
pub fn change_of(value: &[u8]) -> Option<u64> {
    let number = value.split(|byte| *byte == b':').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The possible content of a key: the number of its value's change; 0 for a key that was never put or was deleted.
#[derive(Clone, Default)]
pub struct Known {
    pub last: u64,
    /// In flight when the server was killed.
    pub flying: Option<u64>,
}
