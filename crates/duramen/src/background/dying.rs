//! Dead tables, and how far they are taken at once: see [`super::bury`].

use crate::read::table::Table;
use crate::sync::Arc;
use crate::sync::reclaim::Moment;

/// A dead table on its way.
pub(super) struct Dying {
    pub table: Arc<Table>,
    /// Of those who may still use it.
    pub moment: Option<Moment>,
    /// They have left.
    pub has_left: bool,
    pub cursor: u64,
}

/// How far dead tables are taken at once.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// For a part.
    Part,
    /// As far as it can be done now.
    Now,
    /// To the end: the store is closed.
    Closed,
}

/// What is left of dead tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    /// Tables that somebody may still use, whose leaving nobody tells: there is nothing to do for now.
    Waiting,
    /// More to do at once.
    More,
}
