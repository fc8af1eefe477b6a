//! The memory of a script's run, and the keys that it names while it runs.

use crate::net::Output;
use duramen_structures::Keys;
use std::collections::HashSet;

/// So many keys are compared one by one.
pub const COMPARED_MAX: usize = 16;

/// A reply's buffer keeps this much memory for the next command.
const OUT_BYTES_KEPT: usize = 64 << 10;

/// The memory of a run, which the worker keeps for the next one.
#[derive(Default)]
pub struct Room {
    /// Where commands answer.
    pub out: Output,
    /// The keys of a command that the run has not named.
    pub wanted: Keys,
    /// Those that it named while it ran.
    pub more: More,
}

impl Room {
    /// Another command begins.
    pub fn clear_out(&mut self) {
        self.out.truncate(0);
        self.out.bytes.shrink_to(OUT_BYTES_KEPT);
    }

    /// The run is over.
    pub fn clear(&mut self) {
        self.clear_out();
        self.wanted.clear();
        self.wanted.shrink();
        self.more.clear();
    }
}

/// Keys that a run named while it ran.
#[derive(Default)]
pub struct More {
    // The first of them.
    first: Keys,
    first_count: usize,
    rest: HashSet<Box<[u8]>>,
}

impl More {
    /// Adds a key, which is not among them.
    pub fn add(&mut self, key: &[u8]) {
        if self.first_count < COMPARED_MAX {
            self.first_count += 1;
            self.first.add(key);
        } else {
            self.rest.insert(key.into());
        }
    }

    /// Whether a key is among them.
    pub fn has(&self, key: &[u8]) -> bool {
        self.first.iter().any(|own| own == key) || !self.rest.is_empty() && self.rest.contains(key)
    }

    fn clear(&mut self) {
        self.first.clear();
        self.first_count = 0;
        if !self.rest.is_empty() {
            self.rest = HashSet::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_until_the_run_is_over_however_many_there_are() {
        let mut room = Room::default();
        for count in [0, 1, COMPARED_MAX, COMPARED_MAX + 1, 1000] {
            let key = |number: usize| number.to_string().into_bytes();
            (0..count).for_each(|number| room.more.add(&key(number)));
            assert!((0..count).all(|number| room.more.has(&key(number))), "of {count}");
            assert!(!room.more.has(&key(count)) && !room.more.has(b""));
            room.clear();
            assert!(!room.more.has(&key(0)));
        }
    }
}
