//! Rows as keys and values of messages.

use crate::catalog::Table;
use crate::compile::{RowRef, Rows};
use crate::error::{Error, Result};
use crate::formats::{Format, Writing};
use crate::plan::changelog::RowKind;

/// The columns of keys and of values.
#[derive(Debug, Clone)]
pub struct Fields {
    /// Indexes among the physical columns.
    pub key: Vec<usize>,
    /// The format of keys; `None` if messages have no keys.
    pub key_format: Option<Format>,
    /// Indexes among the physical columns.
    pub value: Vec<usize>,
    /// Whether the columns of keys are left out of the value.
    pub except_key: bool,
}

impl Fields {
    /// From a table's options.
    pub fn of(table: &Table) -> Result<Fields> {
        let columns = || 0..table.physical.len();
        let name = |place: usize| table.columns[table.physical[place]].name.as_str();
        let upsert = table.connector.name == "upsert-kafka";
        let key_format = table.options.get("key.format");
        let key: Vec<usize> = if upsert {
            let of_key = |place: &usize| table.primary_key.contains(&table.physical[*place]);
            columns().filter(of_key).collect()
        } else {
            let fields = table.options.get("key.fields").map_or("", String::as_str);
            let place = |field: &str| {
                columns().find(|place| name(*place) == field).ok_or_else(|| {
                    Error::invalid(
                        format!("'{field}' in 'key.fields' of `{}`", table.name),
                        "columns that it has, as a;b",
                    )
                })
            };
            fields
                .split(';')
                .map(str::trim)
                .filter(|field| !field.is_empty())
                .map(place)
                .collect::<Result<_>>()?
        };
        if upsert && key.is_empty() {
            return Err(Error::invalid(
                format!("no PRIMARY KEY for `{}`", table.name),
                "PRIMARY KEY (...) NOT ENFORCED: it becomes the key of messages",
            ));
        }
        if key.is_empty() != key_format.is_none() {
            return Err(Error::invalid(
                format!("one of 'key.format' and 'key.fields' for `{}`", table.name),
                if upsert { "'key.format'" } else { "both, or none" },
            ));
        }
        let key_format = match key_format {
            Some(_) => Some(Format::named(table, "key.")?),
            None => None,
        };
        let except_key = match table.options.get("value.fields-include").map(String::as_str) {
            None | Some("ALL") => false,
            Some("EXCEPT_KEY") => true,
            Some(other) => {
                return Err(Error::invalid(
                    format!("'value.fields-include' = '{other}' of `{}`", table.name),
                    "'ALL' or 'EXCEPT_KEY'",
                ));
            }
        };
        let value = columns().filter(|place| !except_key || !key.contains(place)).collect();
        Ok(Fields { key, key_format, value, except_key })
    }
}

/// Some columns in a format.
#[derive(Debug, Clone)]
struct Part {
    places: Vec<usize>,
    writing: Writing,
}

impl Part {
    fn of(table: &Table, format: Format, places: Vec<usize>) -> Part {
        let names = places.iter().map(|place| table.columns[table.physical[*place]].name.clone()).collect();
        Part { places, writing: Writing::of(format, names) }
    }

    fn bytes(&self, row: RowRef<'_>) -> Result<Vec<u8>> {
        let mut text = String::new();
        self.writing.record(self.places.iter().map(|place| row.field(*place)), &mut text)?;
        Ok(text.into_bytes())
    }
}

/// Encodes the rows of a table as messages.
#[derive(Debug, Clone)]
pub struct Encoding {
    key: Option<Part>,
    value: Part,
}

impl Encoding {
    /// From a table's options.
    pub fn of(table: &Table) -> Result<Encoding> {
        let fields = Fields::of(table)?;
        let key = fields.key_format.map(|format| Part::of(table, format, fields.key));
        Ok(Encoding { key, value: Part::of(table, Format::of(table)?, fields.value) })
    }

    /// The messages of rows. A deleted row has no value. A row that replaces another is preceded by the old row. The
    /// old row becomes a deletion if no new row follows under its key, because a filter dropped it.
    pub fn each(
        &self,
        rows: &Rows<'_>,
        mut give: impl FnMut(Option<&[u8]>, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut before: Option<Option<Vec<u8>>> = None;
        for row in rows.borrowed() {
            let kind = row.kind();
            let key = self.key.as_ref().map(|key| key.bytes(row)).transpose()?;
            if let Some(gone) = before.take().filter(|gone| *gone != key || !kind.adds()) {
                give(gone.as_deref(), None)?;
            }
            if kind == RowKind::UpdateBefore {
                before = Some(key);
                continue;
            }
            let value = kind.adds().then(|| self.value.bytes(row)).transpose()?;
            give(key.as_deref(), value.as_deref())?;
        }
        match before {
            Some(gone) => give(gone.as_deref(), None),
            None => Ok(()),
        }
    }
}
