//! What of a medium cannot be read at all: recovery, `check` and salvage must not touch it, or the process dies.

use duramen_media::{Medium, Offset};
use std::ops::Range;

/// Ranges of a medium that cannot be read, in order.
pub(crate) struct Holes(Vec<Range<u64>>);

impl Holes {
    /// Those in the first `bytes` bytes of `medium`.
    pub(crate) fn of<M: Medium>(medium: &M, bytes: u64) -> Self {
        let mut holes = medium.unreadable(Offset(0), bytes);
        holes.sort_unstable_by_key(|hole| hole.start);
        Self(holes)
    }

    /// Each of them, in words.
    pub(crate) fn damage(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|hole| {
            format!(
                "{} bytes at offset {:#x} cannot be read: the device or the kernel reports an error there",
                hole.end - hole.start,
                hole.start
            )
        })
    }

    /// Whether any of the `bytes` bytes from `at` cannot be read.
    pub(crate) fn touch(&self, at: u64, bytes: u64) -> bool {
        self.0.iter().any(|hole| hole.start < at + bytes && at < hole.end)
    }

    /// The parts of `bytes` bytes from `at` that can be read, in order.
    pub(crate) fn between(&self, at: u64, bytes: u64) -> Vec<Range<u64>> {
        let (mut from, end) = (at, at + bytes);
        let mut parts = Vec::new();
        for hole in &self.0 {
            if hole.start >= end || hole.end <= from {
                continue;
            }
            if hole.start > from {
                parts.push(from..hole.start);
            }
            from = hole.end;
        }
        if from < end {
            parts.push(from..end);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_holes_and_what_they_touch() {
        let holes = Holes(vec![64..128, 192..256]);
        assert_eq!(holes.between(0, 320), [0..64, 128..192, 256..320]);
        assert_eq!(holes.between(64, 64), []);
        assert_eq!(holes.between(100, 300), [128..192, 256..400]);
        assert_eq!(holes.between(256, 64).first(), Some(&(256..320)));
        assert!(holes.touch(127, 1) && holes.touch(0, 65) && holes.touch(0, 400));
        assert!(!holes.touch(0, 64) && !holes.touch(128, 64) && !holes.touch(256, 8));
    }
}
