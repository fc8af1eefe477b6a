//! What sources have in common.

use serde_json::Value;

use super::records::Records;
use crate::batch::Batch;
use crate::error::{Error, Result};

/// What fills batches with rows. One thread at a time does.
pub trait RowSource: Send {
    /// Appends at most `rows` rows; whether there may be more.
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool>;

    /// Records that were left out because they could not be read.
    fn skipped(&self) -> u64 {
        0
    }

    /// How far it was read. What cannot be read again has no place: [`Value::Null`].
    fn position(&self) -> Value;

    /// Goes on behind a position.
    fn seek(&mut self, position: &Value) -> Result<()>;

    /// Whether it ends by itself.
    fn ends(&self) -> bool {
        false
    }

    /// What it waits for, if it has waited a while.
    fn waits(&self) -> Option<String> {
        None
    }

    /// Its reader of records, if it has dead letters to give.
    fn letters(&mut self) -> Option<&mut Records> {
        None
    }
}

/// A number of a position.
pub fn place(position: &Value, field: &str) -> Result<u64> {
    let found = position[field].as_u64();
    found.ok_or_else(|| {
        Error::connector(format!("the checkpoint has no '{field}' in the position {position}"))
    })
}
