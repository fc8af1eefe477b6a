//! What sources have in common.

use std::time::SystemTime;

use crate::batch::Batch;
use crate::error::Result;

/// What fills batches with rows.
pub trait Fill {
    /// Appends at most `rows` rows; whether there may be more.
    fn fill(&mut self, batch: &mut Batch, rows: usize) -> Result<bool>;

    /// Records that were left out because they could not be read.
    fn skipped(&self) -> u64 {
        0
    }
}

/// The machine's clock, in microseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
