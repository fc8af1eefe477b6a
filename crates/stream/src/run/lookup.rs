//! Lookup tables: keys of the job's store (`duramen`) or of a running server (`redis`), as the sinks of the same names
//! write them. All rows are read when the job starts and, with `'lookup.refresh' = '10 s'`, periodically.

use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen::Store;

use super::clock::duration;
use super::row_sink::Content;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::connectors;
use crate::connectors::keyed::{database, prefix, split};
use crate::connectors::registration::KeyReader;
use crate::error::{Error, Result};
use crate::formats::texts::push_or_null;
use crate::memory::headroom::watch;

/// A lookup table.
pub struct Lookup {
    from: Box<dyn KeyReader>,
    table: Arc<Table>,
    source: Source,
    database: u8,
    prefix: String,
    json: bool,
    refresh: Option<Duration>,
    read: Instant,
}

impl Lookup {
    /// For a table of a connector with lookups.
    pub fn open(table: &Arc<Table>, source: &Source, store: Option<&Store>) -> Result<Lookup> {
        let from = connectors::open_lookup(table, store)?;
        let refresh = match table.options.get("lookup.refresh") {
            None => None,
            Some(text) => Some(duration(text).ok_or_else(|| {
                Error::invalid(
                    format!("'lookup.refresh' = '{text}' of `{}`", table.name),
                    "a time such as '10 s'",
                )
            })?),
        };
        Ok(Lookup {
            from,
            database: database(table)?,
            prefix: prefix(table),
            json: table.options.get("value").is_some_and(|value| value == "json"),
            table: table.clone(),
            source: source.clone(),
            refresh,
            read: Instant::now(),
        })
    }

    /// Whether it must be read again.
    pub fn is_due(&self) -> bool {
        self.refresh.is_some_and(|refresh| self.read.elapsed() >= refresh)
    }

    /// All current rows.
    pub fn rows(&mut self) -> Result<Batch> {
        self.read = Instant::now();
        let failed = |error| Error::connector(format!("cannot look up `{}`: {error}", self.table.name));
        let found = self.from.read(self.database, &self.prefix, self.json).map_err(failed)?;
        let mut batch = Batch::new(&self.source.types)?;
        for (key, kept) in found {
            watch()?;
            self.read(&key, &kept, &mut batch)
                .map_err(|error| Error::connector(format!("key {key} of `{}`: {error}", self.table.name)))?;
            batch.end_row();
        }
        Ok(batch)
    }

    /// Appends a row: columns of the primary key may be in the key only.
    fn read(&self, key: &str, kept: &Content, batch: &mut Batch) -> Result<()> {
        let fields = kept.fields()?;
        let rest = key.strip_prefix(&self.prefix).unwrap_or(key);
        let count = self.table.primary_key.len();
        let parts = split(rest, count);
        let wanted = self.source.reads.iter().zip(&self.source.types);
        for ((read, ty), column) in wanted.zip(&mut batch.columns) {
            let name = &self.table.columns[*read].name;
            let field = fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str());
            let place = self.table.primary_key.iter().position(|column| column == read);
            let of_key = match (&parts, place) {
                (Some(parts), Some(place)) => parts.get(place).map(String::as_str),
                (None, Some(_)) if field.is_none() => {
                    return Err(Error::invalid(
                        format!("a key without a value for `{name}`"),
                        format!("{count} values after {}, with a : between them", self.prefix),
                    ));
                }
                _ => None,
            };
            push_or_null(field.or(of_key), name, ty, column)?;
        }
        Ok(())
    }
}
