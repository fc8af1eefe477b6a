//! The live roots that name a collection, and what happens when there are none.
//!
//! ```text
//!  fresh ──(a root is about to be written)──▶ named, by n roots ──(the last is superseded, swept, or its table
//!  reclaimed)──▶ gone
//!    ▲                                             │
//!    └──────────(the first root was not written)───┘
//! ```
//!
//! Order: a root is counted before it is written, and subtracted after no slot points to it. So the count is never less
//! than the number of roots that slots point to, and no root names a collection that is gone. A gone collection cannot
//! be named again: after a crash, such a root would find the remains of elements that were dead. A crash loses the
//! counts; recovery counts the live roots.
//!
//! A root's *place* is noted when a slot points to it, before its block can be sealed, and changed when it is moved;
//! both under its key's lock. An index checkpoint has the places, since recovery does not read the blocks that the
//! checkpoint covers.

use duramen_log::sync::{Mutex, lock};
use duramen_media::Offset;

/// See the module.
#[derive(Default)]
pub(crate) struct Names(Mutex<State>);

#[derive(Default)]
struct State {
    /// Some root has named it.
    named: bool,
    gone: bool,
    count: u32,
    /// Place of the first root whose place is known ...
    place: Option<Offset>,
    /// ... and places of the others.
    more: Vec<Offset>,
}

/// The state of a collection when a root was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Fresh,
    Named,
}

impl State {
    fn note(&mut self, place: Offset) {
        match self.place {
            None => self.place = Some(place),
            Some(_) => self.more.push(place),
        }
    }

    fn forget(&mut self, place: Offset) {
        if self.place == Some(place) {
            self.place = self.more.pop();
        } else if let Some(at) = self.more.iter().position(|&other| other == place) {
            self.more.swap_remove(at);
        }
    }

    /// Removes one root; returns whether the collection is gone by that.
    fn remove(&mut self) -> bool {
        if self.count == 0 {
            return false;
        }
        if self.count == 1 {
            *self = Self { gone: true, ..Self::default() };
            return true;
        }
        self.count -= 1;
        false
    }
}

impl Names {
    /// Number of roots that name it.
    pub(crate) fn count(&self) -> u32 {
        lock(&self.0).count
    }

    /// Places of the roots that slots point to.
    pub(crate) fn places(&self) -> Vec<Offset> {
        let state = lock(&self.0);
        state.place.iter().chain(&state.more).copied().collect()
    }

    /// Adds a root; `None`: the collection is gone.
    pub(crate) fn add(&self) -> Option<Before> {
        let mut state = lock(&self.0);
        if state.gone {
            return None;
        }
        state.count += 1;
        Some(if std::mem::replace(&mut state.named, true) { Before::Named } else { Before::Fresh })
    }

    /// Notes the place of a root that was counted.
    pub(crate) fn note(&self, place: Offset) {
        lock(&self.0).note(place);
    }

    /// Moves a root from one place to another.
    pub(crate) fn moved(&self, from: Offset, to: Offset) {
        let mut state = lock(&self.0);
        if let Some(place) = state.place.iter_mut().find(|place| **place == from) {
            *place = to;
        } else if let Some(place) = state.more.iter_mut().find(|place| **place == from) {
            *place = to;
        }
    }

    /// Removes the root at this place; returns whether the collection is gone by that.
    pub(crate) fn remove(&self, place: Offset) -> bool {
        let mut state = lock(&self.0);
        state.forget(place);
        state.remove()
    }

    /// Removes a root that was counted but not written, or that was reverted; returns whether the collection is gone by
    /// that.
    pub(crate) fn release_unwritten(&self, before: Before, place: Option<Offset>) -> bool {
        let mut state = lock(&self.0);
        if let Some(place) = place {
            state.forget(place);
        }
        if before == Before::Fresh && state.count == 1 && !state.gone {
            *state = State::default();
            return false;
        }
        state.remove()
    }

    /// Marks it gone if no root names it; returns whether this call did.
    pub(crate) fn abandon(&self) -> bool {
        let mut state = lock(&self.0);
        state.count == 0 && !std::mem::replace(&mut state.gone, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Offset = Offset(64);
    const ELSEWHERE: Offset = Offset(128);

    #[test]
    fn removing_the_last_name_removes_the_collection() {
        let names = Names::default();
        assert_eq!(names.add(), Some(Before::Fresh));
        names.note(AT);
        assert_eq!(names.add(), Some(Before::Named));
        names.note(ELSEWHERE);
        assert!(!names.abandon());
        assert!(!names.remove(AT));
        assert!(names.remove(ELSEWHERE));
        assert_eq!(names.add(), None);
        assert!(!names.remove(AT) && !names.abandon());
    }

    #[test]
    fn a_fresh_collection_whose_root_was_not_written_is_fresh_again() {
        let names = Names::default();
        let first = names.add().unwrap();
        assert!(!names.release_unwritten(first, None));
        assert_eq!(names.add(), Some(Before::Fresh));
        names.note(AT);
        let second = names.add().unwrap();
        // The root that was there is superseded in the meantime.
        assert!(!names.remove(AT));
        assert!(names.release_unwritten(second, None));
        assert_eq!(names.add(), None);
        assert!(Names::default().abandon());
    }

    #[test]
    fn places_are_those_of_the_written_roots() {
        let names = Names::default();
        let first = names.add().unwrap();
        assert_eq!(names.places(), [], "the root is not written yet");
        names.note(AT);
        assert_eq!(names.places(), [AT]);
        let second = names.add().unwrap();
        names.note(ELSEWHERE);
        names.moved(AT, Offset(192));
        assert_eq!(names.places(), [Offset(192), ELSEWHERE]);
        assert!(!names.release_unwritten(second, Some(ELSEWHERE)));
        assert_eq!(names.places(), [Offset(192)]);
        assert!(!names.release_unwritten(first, Some(Offset(192))));
        assert_eq!(names.places(), []);
        assert_eq!(names.add(), Some(Before::Fresh));
    }
}
