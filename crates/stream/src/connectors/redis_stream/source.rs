//! Reads entries with XREAD.

use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::client;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::connectors::client::{Client, Reply, words};
use crate::error::{Error, ErrorKind, Result};
use crate::formats::split::RECORD_BYTES_MAX;
use crate::formats::texts::push_or_null;
use crate::run::row_source::RowSource;
use crate::types::{DataType, Type};

/// The bytes that one read should bring. The number of entries requested follows from the size of the last ones.
const READ_BYTES: usize = 4 << 20;

/// The entries requested by the first read, whose size is unknown.
const FIRST: usize = 64;

/// The pause before a stream without new entries is read again.
const PAUSE: Duration = Duration::from_millis(10);

/// A source.
pub struct Entries {
    client: Client,
    table: String,
    stream: String,
    last: String,
    columns: Vec<(String, Type)>,
    skip: bool,
    skipped: u64,
    looked: Option<Instant>,
    /// Entries to request.
    count: usize,
}

impl Entries {
    /// The source of a table of connector 'redis-stream'.
    pub fn open(table: &Table, source: &Source) -> Result<Entries> {
        let (client, stream) = client(table)?;
        let name = |read: &usize| table.columns[table.physical[*read]].name.clone();
        let skip = |format: &str| {
            table.options.get(&format!("{format}.ignore-parse-errors")).is_some_and(|value| value == "true")
        };
        Ok(Entries {
            client,
            table: table.name.clone(),
            stream,
            last: table.options.get("from").cloned().unwrap_or_else(|| "0".to_owned()),
            columns: source.reads.iter().map(name).zip(source.types.iter().cloned()).collect(),
            skip: skip("json") || skip("csv"),
            skipped: 0,
            looked: None,
            count: FIRST,
        })
    }

    /// Appends the row of an entry. After an error it is not complete.
    fn read(&self, fields: &[Reply], batch: &mut Batch) -> Result<()> {
        let bytes: usize = fields.iter().filter_map(Reply::text).map(<[u8]>::len).sum();
        if bytes > RECORD_BYTES_MAX {
            return Err(Error::connector(format!(
                "{bytes} bytes in one entry, more than {RECORD_BYTES_MAX}"
            )));
        }
        for ((name, ty), column) in self.columns.iter().zip(&mut batch.columns) {
            let field = fields.chunks_exact(2).find(|pair| pair[0].text() == Some(name.as_bytes()));
            let bytes = field.and_then(|pair| pair[1].text());
            if let (Some(bytes), DataType::Bytes) = (bytes, &ty.data) {
                column.push_text(bytes)?;
                continue;
            }
            let text = bytes
                .map(std::str::from_utf8)
                .transpose()
                .map_err(|_| Error::connector(format!("found bytes that are not UTF-8 for `{name}`")))?;
            push_or_null(text, name, ty, column)?;
        }
        Ok(())
    }
}

impl RowSource for Entries {
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        if self.looked.is_some_and(|looked| looked.elapsed() < PAUSE) {
            return Ok(true);
        }
        if self.last == "$" {
            // By its id from here on: `$` means another entry at each call.
            let newest = self.client.run(&[words(&["XREVRANGE", &self.stream, "+", "-", "COUNT", "1"])])?;
            let newest =
                newest.first().and_then(|entries| entries.items()?.first()?.items()?.first()?.text());
            self.last = newest.map_or("0".to_owned(), |id| String::from_utf8_lossy(id).into_owned());
        }
        let count = self.count.min(rows).to_string();
        let read = words(&["XREAD", "COUNT", &count, "STREAMS", &self.stream, &self.last]);
        let replies = self
            .client
            .run(&[read])
            .map_err(|error| Error::connector(format!("cannot read `{}`: {error}", self.table)))?;
        let entries = replies.first().and_then(|streams| streams.items()?.first()?.items()?.get(1));
        let entries = entries.and_then(Reply::items).unwrap_or_default();
        self.looked = entries.is_empty().then(Instant::now);
        let bytes: usize = entries.iter().map(Reply::text_bytes).sum();
        // More than an entry has: its id.
        self.count = (READ_BYTES * entries.len()).checked_div(bytes).unwrap_or(FIRST).max(1);
        for entry in entries {
            let Some([id, fields]) = entry.items() else {
                return Err(Error::connector(format!(
                    "`{}` replied with something other than an entry",
                    self.table
                )));
            };
            let id = String::from_utf8_lossy(id.text().unwrap_or_default()).into_owned();
            match self.read(fields.items().unwrap_or_default(), batch) {
                Ok(()) => batch.end_row(),
                Err(error) if error.kind() == ErrorKind::Memory => return Err(error),
                Err(_) if self.skip => {
                    batch.undo_row();
                    self.skipped += 1;
                }
                Err(error) => {
                    return Err(Error::connector(format!("entry {id} of stream {}: {error}", self.stream)));
                }
            }
            self.last = id;
        }
        Ok(true)
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }

    fn position(&self) -> Json {
        json!({ "last": self.last, "skipped": self.skipped })
    }

    fn seek(&mut self, position: &Json) -> Result<()> {
        self.skipped = crate::run::row_source::place(position, "skipped")?;
        match position["last"].as_str() {
            Some(last) => self.last = last.to_owned(),
            None => {
                return Err(Error::connector(format!("the checkpoint has no id in the position {position}")));
            }
        }
        Ok(())
    }
}
