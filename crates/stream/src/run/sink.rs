//! Sinks: what takes rows.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::format::{self, Format, path};
use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::plan::Sink;

/// Opens what a sink's table is connected to.
pub fn open(sink: &Sink, directory: &Path) -> Result<Box<dyn Output>> {
    let table = &sink.table;
    let name = table.name.clone();
    match table.connector.name {
        "blackhole" => Ok(Box::new(Blackhole)),
        "print" => {
            let prefix = table.options.get("print-identifier");
            Ok(Box::new(Print { prefix: prefix.map_or(String::new(), |prefix| format!("{prefix}> ")) }))
        }
        "filesystem" => {
            let format = Format::of(table)?;
            let mut path = path(table, directory)?;
            // A directory gets one file.
            if path.is_dir() || table.options.get("path").is_some_and(|path| path.ends_with('/')) {
                std::fs::create_dir_all(&path).map_err(|error| {
                    Error::connector(format!("cannot make {path:?} for `{name}`: {error}"))
                })?;
                path = path.join("part-0");
            }
            let file = File::create(&path)
                .map_err(|error| Error::connector(format!("cannot create {path:?} for `{name}`: {error}")))?;
            let columns = table.physical.iter().map(|column| table.columns[*column].name.clone()).collect();
            Ok(Box::new(Lines { file: BufWriter::new(file), format, columns, text: String::new(), name }))
        }
        other => Err(Error::unsupported(format!("writing to the connector '{other}'"))
            .hint("there are print, blackhole, filesystem")),
    }
}

struct Blackhole;

impl Output for Blackhole {
    fn take(&mut self, _: &Rows<'_>) -> Result<()> {
        Ok(())
    }
}

/// Rows as Flink's `print` shows them: `+I[a, b]`.
struct Print {
    prefix: String,
}

impl Output for Print {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (kind, row) in rows.iter() {
            let texts: Vec<String> = row.iter().zip(rows.types()).map(|(value, ty)| value.text(ty)).collect();
            writeln!(out, "{}{kind}[{}]", self.prefix, texts.join(", "))
                .map_err(|error| Error::connector(format!("cannot print: {error}")))?;
        }
        Ok(())
    }
}

struct Lines {
    file: BufWriter<File>,
    format: Format,
    columns: Vec<String>,
    text: String,
    name: String,
}

impl Output for Lines {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.text.clear();
        for (_, row) in rows.iter() {
            format::write(self.format, &self.columns, rows.types(), &row, &mut self.text);
        }
        self.file
            .write_all(self.text.as_bytes())
            .and_then(|()| self.file.flush())
            .map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.name)))
    }
}
