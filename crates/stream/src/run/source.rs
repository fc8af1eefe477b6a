//! Sources: what fills batches.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::fill::Fill;
use super::format::{Format, Reading, path};
use super::generate;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};

/// Opens the source that a table is connected to. `source` says which of its columns are wanted.
pub fn open(table: &Table, source: &Source, directory: &Path) -> Result<Box<dyn Fill>> {
    match table.connector.name {
        "filesystem" => Ok(Box::new(Files::open(table, source, directory)?)),
        "datagen" => Ok(Box::new(generate::Datagen::new(table, source)?)),
        "nexmark" => Ok(Box::new(generate::Nexmark::new(table, source)?)),
        other => Err(Error::unsupported(format!("reading from the connector '{other}'"))
            .hint("there are filesystem, datagen, nexmark")),
    }
}

/// Lines of a file, or of all files of a directory, in the order of their names.
struct Files {
    left: Vec<PathBuf>,
    open: Option<(PathBuf, BufReader<File>, u64)>,
    format: Reading,
    line: Vec<u8>,
    skip: bool,
    skipped: u64,
}

impl Files {
    fn open(table: &Table, source: &Source, directory: &Path) -> Result<Files> {
        let path = path(table, directory)?;
        let failed = |error| Error::connector(format!("cannot read `{}`, {path:?}: {error}", table.name));
        let mut left = if path.is_dir() {
            let mut files = Vec::new();
            for entry in std::fs::read_dir(&path).map_err(failed)? {
                let entry = entry.map_err(failed)?.path();
                // As Flink: names that begin with a dot or a line are not finished.
                let name = entry.file_name().map(|name| name.to_string_lossy().into_owned());
                if entry.is_file() && !name.is_some_and(|name| name.starts_with(['.', '_'])) {
                    files.push(entry);
                }
            }
            files
        } else {
            vec![path.clone()]
        };
        left.sort();
        left.reverse();
        let format = Reading::new(Format::of(table)?, table, source)?;
        let skip = ["csv.ignore-parse-errors", "json.ignore-parse-errors"]
            .iter()
            .any(|option| table.options.get(*option).is_some_and(|value| value == "true"));
        // A file that is not there is told now, not when its turn comes.
        if let [only] = left.as_slice() {
            File::open(only).map_err(failed)?;
        }
        Ok(Files { left, open: None, format, line: Vec::new(), skip, skipped: 0 })
    }
}

impl Fill for Files {
    fn fill(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        while batch.rows() < rows {
            let Some((path, reader, number)) = &mut self.open else {
                let Some(path) = self.left.pop() else { return Ok(false) };
                let file = File::open(&path)
                    .map_err(|error| Error::connector(format!("cannot open {path:?}: {error}")))?;
                self.open = Some((path, BufReader::with_capacity(1 << 18, file), 0));
                continue;
            };
            self.line.clear();
            let failed = |error| Error::connector(format!("cannot read {path:?}: {error}"));
            // A quoted text of CSV may go over several lines.
            loop {
                let read = reader.read_until(b'\n', &mut self.line).map_err(failed)?;
                *number += 1;
                if read == 0 || !self.format.is_open(&self.line) {
                    break;
                }
            }
            if self.line.is_empty() {
                self.open = None;
                continue;
            }
            while matches!(self.line.last(), Some(b'\n' | b'\r')) {
                self.line.pop();
            }
            if self.line.is_empty() {
                continue;
            }
            match self.format.read(&self.line) {
                Ok(row) => batch.push(&row)?,
                Err(_) if self.skip => self.skipped += 1,
                Err(error) => {
                    return Err(Error::connector(format!("{}, line {number}: {error}", path.display()))
                        .hint("'csv.ignore-parse-errors' or 'json.ignore-parse-errors' = 'true' leaves such records out"));
                }
            }
        }
        Ok(true)
    }

    fn skipped(&self) -> u64 {
        self.skipped
    }
}
