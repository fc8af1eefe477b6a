//! `print`: every change on standard output.

use std::io::Write;

use super::registration::Registration;
use crate::catalog::options::Kind::Text;
use crate::catalog::options::option;
use crate::catalog::{Connector, SinkKind};
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::plan::Sink;
use crate::run::records::Place;
use crate::run::row_sink::RowSink;

/// What it declares.
const CONNECTOR: Connector = Connector {
    name: "print",
    purpose: "Prints every change on standard output.",
    example: "CREATE TABLE shown (product STRING, pieces INT) WITH (
  'connector' = 'print',
  'print-identifier' = 'orders')",
    options: &[option("print-identifier", Text, "(none)", "the text before each row")],
    source: false,
    sink: Some(SinkKind::Retract),
    lookup: false,
    format: false,
    written: None,
};

/// Its place in the registry.
pub const REGISTRATION: Registration = Registration::new(&CONNECTOR, None, Some(open), None);

fn open(sink: &Sink, _: usize, _: Place<'_>) -> Result<Box<dyn RowSink>> {
    let prefix = sink.table.options.get("print-identifier");
    Ok(Box::new(Print { prefix: prefix.map_or(String::new(), |prefix| format!("{prefix}> ")) }))
}

/// Rows as Flink's `print` shows them: `+I[a, b]`.
struct Print {
    prefix: String,
}

impl Output for Print {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let mut line = String::new();
        for row in rows.borrowed() {
            line.clear();
            for (place, (value, ty)) in row.fields().enumerate() {
                if place > 0 {
                    line.push_str(", ");
                }
                value.write_text(ty, &mut line);
            }
            writeln!(out, "{}{}[{line}]", self.prefix, row.kind())
                .map_err(|error| Error::connector(format!("cannot print: {error}")))?;
        }
        Ok(())
    }
}

impl RowSink for Print {}
