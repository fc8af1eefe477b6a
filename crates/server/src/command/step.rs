//! What one command does in a *run*: commands of one client that follow each other, name the same one key, and are
//! executed as one.
//!
//! A step is given the value as the steps before it left it, and what the command has behind its key. It writes its
//! reply last, once nothing can fail any more, so that one that failed has changed nothing. Who runs steps stands in
//! [`run`](super::run).

use super::{Args, CommandError};
use crate::resp::Reply;
use duramen_structures::{Edit, EditList};

/// A step on a list.
pub type OnList = fn(&mut EditList<'_, '_>, &mut Reply<'_>, Args<'_>) -> Result<Done, CommandError>;

/// A step on a hash, a set or a sorted set.
pub type OnEntries = fn(&mut Edit<'_, '_>, &mut Reply<'_>, Args<'_>) -> Result<Done, CommandError>;

/// A step, by the type of the values that it is done to.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// On a list.
    List(OnList),
    /// On a hash.
    Hash(OnEntries),
    /// On a set.
    Set(OnEntries),
    /// On a sorted set.
    SortedSet(OnEntries),
}

/// What was done by a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The command reads, which is counted: whether the key was there.
    Read(bool),
    /// It writes, and nothing was to be changed.
    Nothing,
    /// It has changed the value: the event of that.
    Changed(&'static str),
}

impl Step {
    /// Whether both are steps on values of one type.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}
