//! Dead tables, and how far they are taken at once: see [`super::reclaim_tables`].

use crate::read::table::Table;
use crate::sync::Arc;
use crate::sync::reclaim::GracePeriod;

/// A dead table on its way.
pub(super) struct RetiredTable {
    pub table: Arc<Table>,
    /// Of those who may still use it.
    pub grace: Option<GracePeriod>,
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
