//! The calls of several threads: begin, end, operation and result of each.

use super::section::{Places, Section};
use super::values::{ABSENT, Id, Values};
use std::fmt::Write as _;

/// The effect of a call as far as its result shows: `None` while there is no result.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub enum Act {
    /// The key held this at some moment.
    Read {
        key: usize,
        found: Id,
    },
    Put {
        key: usize,
        value: Id,
    },
    /// Returned whether the key was there.
    Delete {
        key: usize,
        was: Option<bool>,
    },
    /// Overwrote `bytes` from byte `at` on, if the key held `seen`.
    Update {
        key: usize,
        seen: Option<Id>,
        at: usize,
        bytes: Vec<u8>,
        reported: Option<Updated>,
    },
    /// Wrote, if all keys of `expects` held this; returned whether it did.
    Swap {
        expects: Vec<(usize, Id)>,
        writes: Vec<(usize, Id)>,
        reported: Option<bool>,
    },
    /// Whether a table was there, by its cell.
    Look {
        cell: usize,
        there: bool,
    },
    /// One of these tables, by their cells, was not there.
    Gone {
        cells: Vec<usize>,
    },
    /// A table was made of this kind, or was there with it.
    Make {
        table: usize,
        kind: Id,
    },
    Clear {
        table: usize,
    },
    /// Returned whether the table was there.
    Drop {
        table: usize,
        was: Option<bool>,
    },
    /// The first of two names points to what the second points to ...
    Lead {
        tables: [usize; 2],
    },
    /// ... and then the second to what the first pointed to.
    LeadBack {
        tables: [usize; 2],
    },
    /// Saw and wrote several things in one step.
    Section(Section),
    /// An element of a collection held this at some moment; `None`: no root named the collection.
    Element {
        collection: u64,
        element: usize,
        found: Option<Id>,
    },
    /// Made everything durable that had been acknowledged.
    Commit,
}

/// The layout of a state: as in [`Setup`](crate::Setup). Where there are tables, two more cells follow: the two names
/// that currently point to one table (0: none), and the pending target of the second name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shape {
    /// Keys of each table.
    pub keys: usize,
    /// Named tables.
    pub tables: usize,
    /// Places for collections, after keys and tables.
    pub places: Places,
}

impl Shape {
    /// Cells of what a store shows.
    #[must_use]
    pub fn shown(self) -> usize {
        (self.tables + 1) * self.keys + self.tables + self.places.cells()
    }

    /// All cells.
    #[must_use]
    pub fn cells(self) -> usize {
        self.shown() + if self.tables > 0 { self.keys + 2 } else { 0 }
    }

    /// The cell of a table.
    #[must_use]
    pub fn of_table(self, table: usize) -> usize {
        (self.tables + 1) * self.keys + table - 1
    }

    /// The table of the cell of a key.
    #[must_use]
    pub fn table_of(self, cell: usize) -> usize {
        cell / self.keys
    }

    /// A state that a store shows, as a whole one.
    #[must_use]
    pub fn whole(self, shown: &[Id]) -> Vec<Id> {
        let mut whole = shown.to_vec();
        whole.resize(self.cells(), ABSENT);
        whole
    }

    /// Whether a name is being swapped.
    fn is_between(self, state: &[Id]) -> bool {
        self.tables > 0 && state[self.shown()] != 0
    }

    /// The cells of a table: its own, and those of its keys.
    fn all_of(self, table: usize) -> impl Iterator<Item = usize> {
        std::iter::once(self.of_table(table)).chain(table * self.keys..(table + 1) * self.keys)
    }

    fn stash(self) -> impl Iterator<Item = usize> {
        self.shown() + 1..self.cells()
    }

    /// Writes a cell of a key; false when its table is not there.
    fn write(self, state: &mut [Id], cell: usize, value: Id) -> bool {
        state[cell] = value;
        let table = self.table_of(cell);
        if table == 0 || cell >= self.of_table(1) {
            return true;
        }
        let pair = state[self.shown()] as usize;
        let (first, second) = (pair / 16, pair % 16);
        if table == first || table == second {
            let other = first + second - table;
            state[cell % self.keys + other * self.keys] = value;
        }
        state[self.of_table(table)] != ABSENT
    }

    fn empty(self, state: &mut [Id], table: usize) {
        state[table * self.keys..(table + 1) * self.keys].fill(ABSENT);
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updated {
    /// It was done.
    Done,
    /// There was no value.
    Absent,
    /// The value ended before the range did.
    Short,
    /// The key was no longer what it was expected to be.
    Changed,
    /// It could not be done in place, so nothing was done.
    Nothing,
}

/// A call. `begun` and `ended` are stamps, which order all calls; `from` and `to` positions of the medium's log.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are named after what they are")]
pub struct Call {
    pub thread: usize,
    pub act: Act,
    pub begun: u64,
    pub ended: Option<u64>,
    pub from: usize,
    pub to: Option<usize>,
    /// The group that it belongs to.
    pub group: Option<usize>,
    /// It was refused because the store was full, and did nothing.
    pub void: bool,
}

/// All calls of a run, and where the groups were flushed.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// For each group, the position at which it was flushed.
    pub flushed: Vec<Option<usize>>,
    /// The layout of cells.
    pub shape: Shape,
    /// Position at which the store had been opened.
    pub opened: usize,
}

impl Act {
    /// Whether it changes nothing in any state.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Read { .. } | Self::Look { .. } | Self::Gone { .. } | Self::Element { .. } => true,
            Self::Section(section) => section.writes.is_empty(),
            Self::Drop { was, .. } => *was == Some(false),
            Self::Delete { was, .. } => *was == Some(false),
            Self::Update { reported, .. } => reported.is_some_and(|reported| reported != Updated::Done),
            Self::Swap { reported, writes, .. } => *reported == Some(false) || writes.is_empty(),
            Self::Put { .. }
            | Self::Commit
            | Self::Make { .. }
            | Self::Clear { .. }
            | Self::Lead { .. }
            | Self::LeadBack { .. } => false,
        }
    }

    /// Whether what happened before it is durable, where writes wait for their epochs or intervals.
    #[must_use]
    pub fn commits(&self) -> bool {
        matches!(
            self,
            Self::Commit | Self::Make { .. } | Self::Clear { .. } | Self::Drop { .. } | Self::Lead { .. }
        )
    }

    /// The state after it, if it can have happened in `state` with its result.
    #[must_use]
    pub fn apply(&self, state: &[Id], shape: Shape, values: &mut Values) -> Option<Vec<Id>> {
        let with = |key: usize, value: Id| {
            let mut state = state.to_vec();
            shape.write(&mut state, key, value).then_some(state)
        };
        let is_there = |table: usize| state[shape.of_table(table)] != ABSENT;
        let same = || Some(state.to_vec());
        match self {
            Self::Read { key, found } => {
                if state[*key] == *found {
                    same()
                } else {
                    None
                }
            }
            Self::Put { key, value } => with(*key, *value),
            Self::Delete { key, was } => {
                if *was != Some(state[*key] != ABSENT) && was.is_some() {
                    return None;
                }
                with(*key, ABSENT)
            }
            Self::Update { key, seen, at, bytes, reported } => {
                let holds = seen.is_none_or(|seen| seen == state[*key]);
                // A key that was absent may look different though it is absent again, or still.
                if *reported == Some(Updated::Nothing) {
                    return same();
                }
                if *reported == Some(Updated::Changed) && (!holds || *seen == Some(ABSENT)) {
                    return same();
                }
                if !holds {
                    return None;
                }
                let updated = match values.updated(state[*key], *at, bytes) {
                    _ if state[*key] == ABSENT => Err(Updated::Absent),
                    None => Err(Updated::Short),
                    Some(value) => Ok(value),
                };
                match (updated, reported) {
                    (Ok(value), None | Some(Updated::Done)) => with(*key, value),
                    (Err(found), Some(reported)) if found == *reported => same(),
                    _ => None,
                }
            }
            Self::Swap { expects, writes, reported } => {
                let holds = expects.iter().all(|&(key, seen)| state[key] == seen);
                // A key that was absent may look different though it is absent again, or still.
                let may_fail = !holds || expects.iter().any(|&(_, seen)| seen == ABSENT);
                match reported {
                    Some(false) => {
                        if may_fail {
                            same()
                        } else {
                            None
                        }
                    }
                    None | Some(true) if holds => {
                        let mut state = state.to_vec();
                        let all = writes.iter().all(|&(key, value)| shape.write(&mut state, key, value));
                        all.then_some(state)
                    }
                    None | Some(true) => None,
                }
            }
            Self::Look { cell, there } => {
                if (state[*cell] != ABSENT) == *there {
                    same()
                } else {
                    None
                }
            }
            Self::Gone { cells } => {
                if cells.iter().any(|&cell| state[cell] == ABSENT) {
                    same()
                } else {
                    None
                }
            }
            Self::Section(section) => section.apply(state, shape.places, values),
            Self::Element { collection, element, found } => {
                let cell = shape.places.element(*collection, *element, state, values);
                if cell.map(|cell| state[cell]) == *found { same() } else { None }
            }
            Self::Commit => same(),
            // One change of tables at a time.
            Self::Make { .. } | Self::Clear { .. } | Self::Drop { .. } | Self::Lead { .. }
                if shape.is_between(state) =>
            {
                None
            }
            Self::Make { table, kind } => match state[shape.of_table(*table)] {
                ABSENT => {
                    let mut state = state.to_vec();
                    state[shape.of_table(*table)] = *kind;
                    Some(state)
                }
                found if found == *kind => same(),
                _ => None,
            },
            Self::Clear { table } => is_there(*table).then(|| {
                let mut state = state.to_vec();
                shape.empty(&mut state, *table);
                state
            }),
            Self::Drop { table, was } => {
                if was.is_some_and(|was| was != is_there(*table)) {
                    return None;
                }
                let mut state = state.to_vec();
                shape.empty(&mut state, *table);
                state[shape.of_table(*table)] = ABSENT;
                Some(state)
            }
            Self::Lead { tables: [a, b] } => {
                if !is_there(*a) || !is_there(*b) {
                    return None;
                }
                if a == b {
                    return same();
                }
                let mut next = state.to_vec();
                next[shape.shown()] = (a * 16 + b) as Id;
                for ((to, from), stash) in shape.all_of(*a).zip(shape.all_of(*b)).zip(shape.stash()) {
                    (next[stash], next[to]) = (state[to], state[from]);
                }
                Some(next)
            }
            Self::LeadBack { tables: [a, b] } if a == b => same(),
            Self::LeadBack { tables: [a, b] } => {
                if state[shape.shown()] as usize != a * 16 + b {
                    return None;
                }
                let mut next = state.to_vec();
                next[shape.shown()] = ABSENT;
                for (to, stash) in shape.all_of(*b).zip(shape.stash()) {
                    (next[to], next[stash]) = (state[stash], ABSENT);
                }
                Some(next)
            }
        }
    }

    /// The cells that it involves.
    #[must_use]
    pub fn cells(&self, shape: Shape) -> Vec<usize> {
        match self {
            Self::Section(section) => section.cells(shape.places),
            Self::Element { element, .. } => {
                (0..shape.places.count).map(|place| shape.places.root(place) + 1 + element).collect()
            }
            act => act.keys(),
        }
    }

    /// The keys that it involves.
    #[must_use]
    pub fn keys(&self) -> Vec<usize> {
        match self {
            Self::Read { key, .. }
            | Self::Put { key, .. }
            | Self::Delete { key, .. }
            | Self::Update { key, .. } => {
                vec![*key]
            }
            Self::Swap { expects, writes, .. } => expects.iter().chain(writes).map(|&(key, _)| key).collect(),
            Self::Look { cell, .. } => vec![*cell],
            Self::Gone { cells } => cells.clone(),
            Self::Section(_)
            | Self::Element { .. }
            | Self::Commit
            | Self::Make { .. }
            | Self::Clear { .. }
            | Self::Drop { .. }
            | Self::Lead { .. }
            | Self::LeadBack { .. } => Vec::new(),
        }
    }

    /// For people.
    #[must_use]
    pub fn show(&self) -> String {
        let id = |id: Id| if id == ABSENT { "nothing".to_owned() } else { format!("#{id}") };
        let list = |list: &[(usize, Id)]| {
            list.iter().fold(String::new(), |mut text, &(key, value)| {
                let _ = write!(text, " k{key}={}", id(value));
                text
            })
        };
        match self {
            Self::Read { key, found } => format!("read k{key}: {}", id(*found)),
            Self::Put { key, value } => format!("put k{key}={}", id(*value)),
            Self::Delete { key, was } => format!("delete k{key}: was present: {was:?}"),
            Self::Update { key, seen, at, bytes, reported } => {
                let seen = seen.map_or_else(String::new, |seen| format!("if k{key}={} ", id(seen)));
                format!("{seen}update k{key} at {at}, {} bytes: {reported:?}", bytes.len())
            }
            Self::Swap { expects, writes, reported } if expects.is_empty() => {
                format!("batch{}: {reported:?}", list(writes))
            }
            Self::Swap { expects, writes, reported } => {
                format!("if{} then{}: {reported:?}", list(expects), list(writes))
            }
            Self::Look { cell, there } => format!("look up the table of k{cell}: found: {there}"),
            Self::Gone { cells } => format!("one of these tables is missing: {cells:?}"),
            Self::Make { table, kind } => format!("make t{table} of kind {}", id(*kind)),
            Self::Clear { table } => format!("clear t{table}"),
            Self::Drop { table, was } => format!("drop t{table}: was present: {was:?}"),
            Self::Lead { tables: [a, b] } => format!("swap t{a} and t{b}: t{a} becomes t{b}"),
            Self::LeadBack { tables: [a, b] } => format!("swap t{a} and t{b}: t{b} becomes the old t{a}"),
            Self::Section(Section { saw, writes }) => {
                format!("in one step: saw{}, wrote {writes:?}", list(saw))
            }
            Self::Element { collection, element, found: Some(found) } => {
                format!("element {element} of collection {collection:#x}: {}", id(*found))
            }
            Self::Element { collection, .. } => format!("collection {collection:#x} is gone"),
            Self::Commit => "commit".into(),
        }
    }
}

impl Call {
    /// For people.
    #[must_use]
    pub fn show(&self) -> String {
        let end = |end: Option<u64>| end.map_or_else(|| "...".to_owned(), |end| end.to_string());
        format!(
            "thread {} [{} to {}, events {} to {}]{} {}",
            self.thread,
            self.begun,
            end(self.ended),
            self.from,
            end(self.to.map(|to| to as u64)),
            if self.group.is_some() { " grouped" } else { "" },
            self.act.show()
        )
    }
}
