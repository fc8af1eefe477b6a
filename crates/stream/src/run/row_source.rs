//! The interface of sources.

use serde_json::Value;

use super::records::Records;
use crate::batch::Batch;
use crate::error::{Error, Result};

/// Fills batches with rows. Only one thread uses it at a time.
pub trait RowSource: Send {
    /// Appends at most `rows` rows; returns whether there may be more.
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool>;

    /// Records that were skipped because they could not be read.
    fn skipped(&self) -> u64 {
        0
    }

    /// The position up to which it was read; [`Value::Null`] if it cannot be read again.
    fn position(&self) -> Value;

    /// Resumes from a position.
    fn seek(&mut self, position: &Value) -> Result<()>;

    /// Whether it is finite.
    fn ends(&self) -> bool {
        false
    }

    /// What it waits for, if it has waited for a while.
    fn waits(&self) -> Option<String> {
        None
    }

    /// Its reader of records, if it writes dead letters.
    fn letters(&mut self) -> Option<&mut Records> {
        None
    }
}

/// A number in a position.
pub fn place(position: &Value, field: &str) -> Result<u64> {
    let found = position[field].as_u64();
    found.ok_or_else(|| {
        Error::connector(format!("the checkpoint has no '{field}' in the position {position}"))
    })
}
