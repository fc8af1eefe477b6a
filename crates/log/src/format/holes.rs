//! The unreadable ranges of a medium: recovery, `check` and salvage must not touch them, or the process dies.

use crate::sync::lock;
use crate::sync::{Mutex, each_on_threads};
use duramen_media::{Medium, Offset};
use std::borrow::Cow;
use std::ops::Range;

/// How much a thread asks about at a time: asking maps it, 0.1 ms for each MiB on small pages.
const ASKED_BYTES: u64 = 64 << 20;

/// Ranges of a medium that cannot be read, in order.
pub struct Holes<'m> {
    known: Vec<Range<u64>>,
    asked: Option<Asked<'m>>,
}

/// The medium is asked only about the ranges that are read.
struct Asked<'m> {
    medium: &'m dyn Medium,
    found: Mutex<Vec<Range<u64>>>,
}

impl<'m> Holes<'m> {
    /// The holes in the first `bytes` bytes of `medium`.
    pub fn of<M: Medium>(medium: &M, bytes: u64) -> Self {
        Self::of_on_threads(medium, bytes, 1)
    }

    /// As [`Holes::of`], asked by several threads.
    pub fn of_on_threads<M: Medium>(medium: &M, bytes: u64, threads: usize) -> Self {
        let ask = |part: usize| {
            let from = part as u64 * ASKED_BYTES;
            medium.unreadable(Offset(from), ASKED_BYTES.min(bytes - from))
        };
        let parts = bytes.div_ceil(ASKED_BYTES) as usize;
        let mut holes: Vec<Range<u64>> =
            each_on_threads(threads, 0..parts, ask).into_iter().flatten().collect();
        holes.sort_unstable_by_key(|hole| hole.start);
        // A hole that reaches from one part of the queries into the next.
        holes.dedup_by(|next, hole| {
            let joined = next.start <= hole.end;
            hole.end = if joined { hole.end.max(next.end) } else { hole.end };
            joined
        });
        Self { known: holes, asked: None }
    }

    /// The holes in the ranges that will be read: they are found on demand, since asking takes as long as mapping.
    pub fn of_what_is_read<M: Medium>(medium: &'m M) -> Self {
        Self { known: Vec::new(), asked: Some(Asked { medium, found: Mutex::default() }) }
    }

    /// The holes that may touch the `bytes` bytes from `at`.
    fn near(&self, at: u64, bytes: u64) -> Cow<'_, [Range<u64>]> {
        let Some(Asked { medium, found }) = &self.asked else { return Cow::Borrowed(&self.known) };
        let mut holes = medium.unreadable(Offset(at), bytes);
        holes.sort_unstable_by_key(|hole| hole.start);
        for hole in &holes {
            let mut found = lock(found);
            if !found.contains(hole) {
                found.push(hole.clone());
            }
        }
        Cow::Owned(holes)
    }

    /// A description of each hole.
    pub fn damage(&self) -> impl Iterator<Item = String> {
        let mut holes = self.known.clone();
        holes.extend(self.asked.iter().flat_map(|asked| lock(&asked.found).clone()));
        holes.sort_unstable_by_key(|hole| hole.start);
        holes.into_iter().map(|hole| {
            format!(
                "{} bytes at offset {:#x} cannot be read: the device or the kernel reports an error there",
                hole.end - hole.start,
                hole.start
            )
        })
    }

    /// Whether any of the `bytes` bytes from `at` cannot be read.
    pub fn touch(&self, at: u64, bytes: u64) -> bool {
        self.near(at, bytes).iter().any(|hole| hole.start < at + bytes && at < hole.end)
    }

    /// The parts of `bytes` bytes from `at` that can be read, in order.
    pub fn between(&self, at: u64, bytes: u64) -> Vec<Range<u64>> {
        let (mut from, end) = (at, at + bytes);
        let mut parts = Vec::new();
        for hole in self.near(at, bytes).iter() {
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
    fn ranges_that_touch_a_hole_are_found() {
        let holes = Holes { known: vec![64..128, 192..256], asked: None };
        assert_eq!(holes.between(0, 320), [0..64, 128..192, 256..320]);
        assert_eq!(holes.between(64, 64), []);
        assert_eq!(holes.between(100, 300), [128..192, 256..400]);
        assert_eq!(holes.between(256, 64).first(), Some(&(256..320)));
        assert!(holes.touch(127, 1) && holes.touch(0, 65) && holes.touch(0, 400));
        assert!(!holes.touch(0, 64) && !holes.touch(128, 64) && !holes.touch(256, 8));
    }
}
