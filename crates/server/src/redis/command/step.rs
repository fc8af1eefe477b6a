//! What one command does in a *run*: commands of one client that follow each other, name the same one key, and are
//! executed as one.
//!
//! A step gets the value as the earlier steps left it, and the command's arguments after its key. A failed step has
//! changed nothing, and [`run`](crate::redis::dispatch) takes back its reply.

use super::{Args, CommandError};
use crate::redis::resp::Reply;
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
    /// It has changed the value, with this event.
    Changed(&'static str),
}

/// HDEL, SREM or ZREM of one name, with this event.
pub fn remove(
    edit: &mut Edit<'_, '_>,
    reply: &mut Reply<'_>,
    args: Args<'_>,
    event: &'static str,
) -> Result<Done, CommandError> {
    let was_there = edit.remove(args.at(0))?;
    reply.integer(i64::from(was_there));
    Ok(if was_there { Done::Changed(event) } else { Done::Nothing })
}

/// HEXISTS or SISMEMBER.
pub fn has(edit: &mut Edit<'_, '_>, reply: &mut Reply<'_>, args: Args<'_>) -> Result<Done, CommandError> {
    reply.integer(i64::from(edit.has(args.at(0))?));
    Ok(Done::Read(!edit.is_empty()))
}

/// HLEN, SCARD or ZCARD.
pub fn len(edit: &mut Edit<'_, '_>, reply: &mut Reply<'_>, _: Args<'_>) -> Result<Done, CommandError> {
    reply.count(edit.len());
    Ok(Done::Read(!edit.is_empty()))
}

impl Step {
    /// Whether both are steps on values of one type.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}
