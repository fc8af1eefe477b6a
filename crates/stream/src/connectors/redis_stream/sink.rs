//! Adds entries with XADD.

use super::client;
use crate::catalog::Table;
use crate::compile::{Output, Rows};
use crate::connectors::client::{Client, words};
use crate::error::{Error, Result};
use crate::run::row_sink::RowSink;
use crate::types::Scalar;

/// A sink.
pub struct Adding {
    client: Client,
    table: String,
    stream: String,
    columns: Vec<String>,
}

impl Adding {
    /// The sink of a table of connector 'redis-stream'.
    pub fn open(table: &Table) -> Result<Adding> {
        let (client, stream) = client(table)?;
        let columns = table.physical.iter().map(|column| table.columns[*column].name.clone()).collect();
        Ok(Adding { client, table: table.name.clone(), stream, columns })
    }
}

impl Output for Adding {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut commands = Vec::new();
        for row in rows.borrowed() {
            let mut add = words(&["XADD", &self.stream, "*"]);
            for (name, (value, ty)) in self.columns.iter().zip(row.fields()) {
                if !value.is_null() {
                    add.push(name.as_bytes().to_vec());
                    add.push(match value {
                        Scalar::Text(text) => text.to_vec(),
                        value => {
                            let mut text = String::new();
                            value.write_text(ty, &mut text);
                            text.into_bytes()
                        }
                    });
                }
            }
            // An entry must have at least one field.
            if add.len() == 3 {
                add.extend(words(&["", ""]));
            }
            commands.push(add);
        }
        let added = self.client.run(&commands);
        added.map(|_| ()).map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.table)))
    }
}

impl RowSink for Adding {}
