//! Values of a record of CSV, appended to columns.

use super::{Csv, Splitter, not_utf8};
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::formats::Wanted;
use crate::formats::texts::{push, push_null};

/// Appends the wanted values of a record, which has the bytes `raw` and should have this many columns.
pub fn read(
    csv: &Csv,
    fields: &Splitter,
    raw: &[u8],
    columns: usize,
    wanted: &[Wanted],
    batch: &mut Batch,
) -> Result<()> {
    let text = fields.text()?;
    // The values alone do not show that a byte was escaped.
    if csv.escape.is_some() && std::str::from_utf8(raw).is_err() {
        return Err(not_utf8());
    }
    // All columns of a message may be in its key. Otherwise an empty text is one empty value.
    let is_none = columns == 0 && raw.is_empty();
    let count = if is_none { 0 } else { fields.count() };
    if count != columns {
        return Err(Error::invalid(format!("{count} values"), format!("{columns}, one for each column")));
    }
    for Wanted { field, column, name, ty } in wanted {
        let (text, certain) = fields.get(text, *field)?;
        let column = &mut *batch.columns[*column];
        // An empty value between two delimiters is NULL, but a quoted text never is.
        if !certain && text == csv.null && (!ty.data.is_character() || ty.nullable) {
            push_null(name, ty, column)?;
        } else {
            push(text, name, ty, column)?;
        }
    }
    Ok(())
}
