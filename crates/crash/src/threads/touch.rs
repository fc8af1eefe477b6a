//! The plan of the threads' operations on collections.

use crate::collections::ELEMENTS;
use crate::setup::{Change, Setup};
use duramen_media::sim::Rng;

/// The way in which a thread makes the writes of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Under the locks of all keys, as a transaction.
    Transaction,
    /// The same, after an aborted transaction whose values must never be visible.
    AbortedFirst,
    /// Under the locks, as a batch.
    Batch,
    /// Under the locks; a single write is made outside a batch.
    Alone,
    /// Without locks: the writes do not depend on reads, except for the root of a renamed collection.
    Free,
}

/// The way in which elements are read without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// One, whose value is kept while other threads run for this many steps.
    Get(u64),
    /// All, by a cursor.
    Scan,
    /// In order, if they have one, from one end or the other.
    Ranked(bool),
    /// Some element.
    Pick,
}

/// One operation with collections. Places and plain keys are numbered as those of the store's own table.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Touch {
    /// Makes changes, one after the other, and writes plain keys (`None` deletes), all in one step.
    Change { changes: Vec<Change>, keys: Vec<(usize, Option<usize>)>, way: Way },
    /// Reads all of these places in every way, and plain keys, in one step.
    Look { places: Vec<usize>, keys: Vec<usize> },
    /// Reads elements of the collection at a place, without a lock.
    Peek { place: usize, element: usize, how: Peek },
}

impl Touch {
    /// Some operation.
    #[must_use]
    pub fn some(setup: &Setup, rng: &mut Rng) -> Self {
        let keys: Vec<usize> = (0..setup.keys.len()).filter(|_| rng.one_in(4)).collect();
        match rng.below(10) {
            0..=4 => {
                let count = [1, 1, 2, 3][rng.below(4) as usize];
                let changes = (0..count).map(|_| setup.collection_op(rng)).collect();
                let mut bytes = || if rng.one_in(4) { None } else { Some(8 + rng.below(60) as usize) };
                let keys = keys.into_iter().map(|key| (key, bytes())).collect();
                let ways = [
                    Way::Transaction,
                    Way::Transaction,
                    Way::AbortedFirst,
                    Way::Batch,
                    Way::Alone,
                    Way::Free,
                ];
                Self::Change { changes, keys, way: ways[rng.below(6) as usize] }
            }
            5 | 6 => {
                let one = rng.below(setup.places as u64) as usize;
                let places = (0..setup.places).filter(|&place| place == one || rng.one_in(2)).collect();
                Self::Look { places, keys }
            }
            _ => {
                let how = match rng.below(6) {
                    0 | 1 => Peek::Get(rng.below(4) * 3),
                    2 => Peek::Scan,
                    3 | 4 => Peek::Ranked(rng.one_in(2)),
                    _ => Peek::Pick,
                };
                let place = rng.below(setup.places as u64) as usize;
                Self::Peek { place, element: rng.below(ELEMENTS as u64) as usize, how }
            }
        }
    }

    /// Makes a collection at each of some places, with which a run begins.
    #[must_use]
    pub fn first(setup: &Setup, rng: &mut Rng) -> Vec<Self> {
        let mut all = Vec::new();
        for place in 0..setup.places {
            if rng.one_in(4) {
                continue;
            }
            let elements = (0..ELEMENTS).filter(|_| !rng.one_in(3)).map(|element| (element, 24)).collect();
            let make = Change::Make { place, kind: rng.below(3) as usize, elements, ttl: None };
            all.push(Self::Change { changes: vec![make], keys: Vec::new(), way: Way::Batch });
        }
        all
    }
}
