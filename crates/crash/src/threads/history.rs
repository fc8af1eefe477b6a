//! What several threads did: each call with when it began and ended, what it was and what it told.

use super::values::{ABSENT, Id, Values};
use std::fmt::Write as _;

/// What a call did, as far as it told: `None` while it has told nothing.
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
    /// Told whether the key was there.
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
        told: Option<Updated>,
    },
    /// Wrote, if all keys of `expects` held this; told whether it did.
    Swap {
        expects: Vec<(usize, Id)>,
        writes: Vec<(usize, Id)>,
        told: Option<bool>,
    },
    /// Made everything durable that had been acknowledged.
    Commit,
}

/// What an update told.
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
    /// It was refused for want of space, and did nothing.
    pub void: bool,
}

/// All calls of a run, and where the groups were settled.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// Of each group the position at which it was settled.
    pub settled: Vec<Option<usize>>,
    /// How many keys there are.
    pub keys: usize,
    /// Position at which the store had been opened.
    pub opened: usize,
}

impl Act {
    /// Whether it changes nothing, whatever it meets.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Read { .. } => true,
            Self::Delete { was, .. } => *was == Some(false),
            Self::Update { told, .. } => told.is_some_and(|told| told != Updated::Done),
            Self::Swap { told, writes, .. } => *told == Some(false) || writes.is_empty(),
            Self::Put { .. } | Self::Commit => false,
        }
    }

    /// The state after it, if it can have happened in `state` and told what it told.
    #[must_use]
    pub fn apply(&self, state: &[Id], values: &mut Values) -> Option<Vec<Id>> {
        let with = |key: usize, value: Id| {
            let mut state = state.to_vec();
            state[key] = value;
            Some(state)
        };
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
            Self::Update { key, seen, at, bytes, told } => {
                let holds = seen.is_none_or(|seen| seen == state[*key]);
                // A key that was absent may look different though it is absent again, or still.
                if *told == Some(Updated::Nothing) {
                    return same();
                }
                if *told == Some(Updated::Changed) && (!holds || *seen == Some(ABSENT)) {
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
                match (updated, told) {
                    (Ok(value), None | Some(Updated::Done)) => with(*key, value),
                    (Err(found), Some(told)) if found == *told => same(),
                    _ => None,
                }
            }
            Self::Swap { expects, writes, told } => {
                let holds = expects.iter().all(|&(key, seen)| state[key] == seen);
                // A key that was absent may look different though it is absent again, or still.
                let may_fail = !holds || expects.iter().any(|&(_, seen)| seen == ABSENT);
                match told {
                    Some(false) => {
                        if may_fail {
                            same()
                        } else {
                            None
                        }
                    }
                    None | Some(true) if holds => {
                        let mut state = state.to_vec();
                        for &(key, value) in writes {
                            state[key] = value;
                        }
                        Some(state)
                    }
                    None | Some(true) => None,
                }
            }
            Self::Commit => same(),
        }
    }

    /// The keys that it has to do with.
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
            Self::Commit => Vec::new(),
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
            Self::Delete { key, was } => format!("delete k{key}: was there: {was:?}"),
            Self::Update { key, seen, at, bytes, told } => {
                let seen = seen.map_or_else(String::new, |seen| format!("if k{key}={} ", id(seen)));
                format!("{seen}update k{key} at {at}, {} bytes: {told:?}", bytes.len())
            }
            Self::Swap { expects, writes, told } if expects.is_empty() => {
                format!("batch{}: {told:?}", list(writes))
            }
            Self::Swap { expects, writes, told } => {
                format!("if{} then{}: {told:?}", list(expects), list(writes))
            }
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
