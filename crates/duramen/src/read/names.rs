//! How many live roots name a collection, and what follows when there are none.
//!
//! ```text
//!  fresh ──(a root is about to be written)──▶ named, by n roots ──(the last is superseded, swept, or its table buried)──▶ gone
//!    ▲                                             │
//!    └──────────(the first root was not written)───┘
//! ```
//!
//! Order: a root is counted before it is written, and taken off after no slot leads to it. So the count is never less than the roots that
//! slots lead to, and a collection that is gone is named by none. What is gone cannot be named again: a crash would find such a root
//! beside what is left of elements that were dead. A crash forgets the counts; recovery counts the live roots.

use crate::mutants::{Mutant, planted};
use crate::sync::atomic::AtomicU32;
use crate::sync::atomic::Ordering::{AcqRel, Acquire};

/// Some root named it.
const NAMED: u32 = 1 << 30;
const GONE: u32 = 1 << 31;
const COUNT: u32 = NAMED - 1;

/// See the module.
#[derive(Default)]
pub(super) struct Names(AtomicU32);

/// What a collection was when a root was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Fresh,
    Named,
}

impl Names {
    /// Changes the word as `change` says, and returns what it was; `Err` where it says nothing.
    fn change(&self, change: impl Fn(u32) -> Option<u32>) -> Result<u32, u32> {
        let mut now = self.0.load(Acquire);
        while let Some(next) = change(now) {
            match self.0.compare_exchange(now, next, AcqRel, Acquire) {
                Ok(before) => return Ok(before),
                Err(other) => now = other,
            }
        }
        Err(now)
    }

    /// How many roots name it.
    pub(super) fn count(&self) -> u32 {
        self.0.load(Acquire) & COUNT
    }

    /// Another root names it; `None`: it is gone.
    pub(super) fn add(&self) -> Option<Before> {
        let is_open = |now: u32| now & GONE == 0 || planted(Mutant::GoneNamedAgain);
        let before = self.change(|now| is_open(now).then_some((now | NAMED) + 1)).ok()?;
        Some(if before & NAMED == 0 { Before::Fresh } else { Before::Named })
    }

    /// One root fewer; whether it is gone by that.
    pub(super) fn remove(&self) -> bool {
        let is_last = |now: u32| now & COUNT == 1 || planted(Mutant::DiesWithAnyRoot);
        let before = self.change(|now| match now & COUNT {
            0 => None,
            _ if is_last(now) => Some(GONE),
            _ => Some(now - 1),
        });
        before.is_ok_and(is_last)
    }

    /// A root that was counted was not written; whether the collection is gone by that.
    pub(super) fn give_up(&self, before: Before) -> bool {
        let is_only = |now: u32| (now == NAMED + 1).then_some(0);
        if before == Before::Fresh && self.change(is_only).is_ok() {
            return false;
        }
        self.remove()
    }

    /// Gives it up while no root names it; whether it did.
    pub(super) fn abandon(&self) -> bool {
        self.change(|now| (now & COUNT == 0 && now & GONE == 0).then_some(GONE)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_takes_the_collection_with_it() {
        let names = Names::default();
        assert_eq!(names.add(), Some(Before::Fresh));
        assert_eq!(names.add(), Some(Before::Named));
        assert!(!names.abandon());
        assert!(!names.remove());
        assert!(names.remove());
        assert_eq!(names.add(), None);
        assert!(!names.remove() && !names.abandon());
    }

    #[test]
    fn a_fresh_one_whose_root_was_not_written_is_fresh_again() {
        let names = Names::default();
        let first = names.add().unwrap();
        assert!(!names.give_up(first));
        assert_eq!(names.add(), Some(Before::Fresh));
        let second = names.add().unwrap();
        // The one that was there is superseded meanwhile.
        assert!(!names.remove());
        assert!(names.give_up(second));
        assert_eq!(names.add(), None);
        assert!(Names::default().abandon());
    }
}
