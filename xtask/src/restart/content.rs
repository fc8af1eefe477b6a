//! The records of `cargo xtask restart`: 16 bytes of key and 100 of value, which follow from a number and a version.

use crate::random::step;
use std::collections::BTreeMap;

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;

/// Keys in an order that is not that of their numbers.
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&step(number).to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

pub fn value_of(number: u64, version: u32) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut state = step(number) ^ u64::from(version);
    for part in value.chunks_mut(8) {
        state = step(state);
        part.copy_from_slice(&state.to_le_bytes()[..part.len()]);
    }
    value
}

/// Which version each key has that was written since the load.
#[derive(Default)]
pub struct Versions(BTreeMap<u64, u32>);

impl Versions {
    pub fn of(&self, number: u64) -> u32 {
        self.0.get(&number).copied().unwrap_or(0)
    }

    pub fn next(&mut self, number: u64) {
        *self.0.entry(number).or_default() += 1;
    }

    pub fn numbers(&self) -> impl Iterator<Item = u64> {
        self.0.keys().copied()
    }
}
