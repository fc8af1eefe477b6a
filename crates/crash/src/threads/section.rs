//! The effect of one step on locked keys, or of one transaction, including collections.
//!
//! A collection has a number, which its root holds and keeps through renames. Writes to its elements, and reads by a
//! handle, are matched by that number and not by the root's place.

use super::values::{ABSENT, Id, Values};
use crate::collections::ELEMENTS;

/// The layout of the cells of places for collections in a state: for each place the root's and those of its elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places {
    /// The first root's.
    pub first: usize,
    /// How many places there are.
    pub count: usize,
}

impl Places {
    /// All of their cells.
    #[must_use]
    pub fn cells(self) -> usize {
        self.count * (ELEMENTS + 1)
    }

    /// The cell of a place's root; those of its elements follow.
    #[must_use]
    pub fn root(self, place: usize) -> usize {
        self.first + place * (ELEMENTS + 1)
    }

    fn elements(self, place: usize) -> std::ops::Range<usize> {
        self.root(place) + 1..self.root(place + 1)
    }

    /// The place whose root names this collection.
    #[must_use]
    pub fn naming(self, collection: u64, state: &[Id], values: &Values) -> Option<usize> {
        (0..self.count).find(|&place| values.collection(state[self.root(place)]) == Some(collection))
    }

    /// The cell of an element of a collection that some root names.
    #[must_use]
    pub fn element(self, collection: u64, element: usize, state: &[Id], values: &Values) -> Option<usize> {
        self.naming(collection, state, values).map(|place| self.root(place) + 1 + element)
    }
}

/// A write of a section.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Write {
    /// Of a plain key, by its cell.
    Key { cell: usize, value: Id },
    /// To a place. Elements stay only if the new root points to the same collection.
    Root { place: usize, value: Id },
    /// The collection of a place moves to another with this root, replacing the content there.
    Move { from: usize, to: usize, value: Id },
    /// Of an element.
    Element { collection: u64, element: usize, value: Id },
}

impl Write {
    fn apply(&self, state: &mut [Id], places: Places, values: &Values) {
        match *self {
            Self::Key { cell, value } => state[cell] = value,
            Self::Root { place, value } => {
                let now = values.collection(state[places.root(place)]);
                if now.is_none() || now != values.collection(value) {
                    state[places.elements(place)].fill(ABSENT);
                }
                state[places.root(place)] = value;
            }
            Self::Move { from, to, value } => {
                state.copy_within(places.elements(from), places.elements(to).start);
                state[places.elements(from)].fill(ABSENT);
                (state[places.root(from)], state[places.root(to)]) = (ABSENT, value);
            }
            // An element of a collection without a root.
            Self::Element { collection, element, value } => {
                if let Some(cell) = places.element(collection, element, state, values) {
                    state[cell] = value;
                }
            }
        }
    }
}

/// The reads, and then the writes, of one step.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The content of cells at its beginning.
    pub saw: Vec<(usize, Id)>,
    /// Its writes, in order.
    pub writes: Vec<Write>,
}

impl Section {
    /// The state after it, if it can have happened in `state`.
    #[must_use]
    pub fn apply(&self, state: &[Id], places: Places, values: &Values) -> Option<Vec<Id>> {
        if self.saw.iter().any(|&(cell, seen)| state[cell] != seen) {
            return None;
        }
        let mut state = state.to_vec();
        self.writes.iter().for_each(|write| write.apply(&mut state, places, values));
        Some(state)
    }

    /// The cells that it involves, as far as its writes name them.
    #[must_use]
    pub fn cells(&self, places: Places) -> Vec<usize> {
        let mut cells: Vec<usize> = self.saw.iter().map(|&(cell, _)| cell).collect();
        for write in &self.writes {
            match *write {
                Write::Key { cell, .. } => cells.push(cell),
                Write::Root { place, .. } => cells.extend(places.root(place)..places.root(place + 1)),
                Write::Move { from, to, .. } => cells.extend(
                    (places.root(from)..places.root(from + 1)).chain(places.root(to)..places.root(to + 1)),
                ),
                Write::Element { element, .. } => {
                    cells.extend((0..places.count).map(|place| places.root(place) + 1 + element));
                }
            }
        }
        cells
    }
}
