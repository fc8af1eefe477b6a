//! Dead tables, and how far one call reclaims them: see [`crate::table::reclaim`].

use crate::table::tables::Table;
use duramen_log::sync::Arc;
use duramen_log::sync::reclaim::GracePeriod;

/// A dead table that is being reclaimed.
pub(crate) struct RetiredTable {
    pub table: Arc<Table>,
    /// The grace period of the threads that may still use it.
    pub grace: Option<GracePeriod>,
    /// Those threads have left.
    pub has_left: bool,
    pub cursor: u64,
}

/// How far one call reclaims dead tables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// One part.
    Part,
    /// As far as possible now.
    Now,
    /// To the end: the store is closed.
    Closed,
}

/// The dead tables that are left.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// Tables that a thread may still use. No one reports when it leaves: there is nothing to do for now.
    Waiting,
    /// There is more to do at once.
    More,
}
