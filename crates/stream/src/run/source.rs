//! Sources: what fills batches.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::clock::duration;
use super::entries::Entries;
use super::fill::{Fill, place};
use super::format::path;
use super::records::{Place, Records};
use super::{generate, socket};
use crate::batch::Batch;
use crate::catalog::Table;
use crate::compile::Source;
use crate::error::{Error, Result};

/// Opens the source that a table is connected to. `source` says which of its columns are wanted.
pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Box<dyn Fill>> {
    match table.connector.name {
        "filesystem" => Ok(Box::new(Files::open(table, source, place)?)),
        "socket" => Ok(Box::new(socket::Lines::open(table, source, place)?)),
        "redis-stream" => Ok(Box::new(Entries::open(table, source)?)),
        "datagen" => Ok(Box::new(generate::Datagen::new(table, source)?)),
        "nexmark" => Ok(Box::new(generate::Nexmark::new(table, source)?)),
        #[cfg(feature = "kafka")]
        "kafka" => Ok(Box::new(super::kafka::Log::open(table, source, place)?)),
        #[cfg(not(feature = "kafka"))]
        "kafka" => Err(without_kafka(table)),
        other => Err(Error::unsupported(format!("reading from the connector '{other}'"))
            .hint("there are filesystem, socket, redis-stream, kafka, datagen, nexmark")),
    }
}

/// The connector is not part of this program.
#[cfg(not(feature = "kafka"))]
pub fn without_kafka(table: &Table) -> Error {
    let name = table.connector.name;
    Error::unsupported(format!("the connector '{name}' of `{}` in this build", table.name))
        .hint("it is there in a build with the feature kafka: cargo build --release --features kafka")
}

/// Lines of a file, or of all files of a directory, in the order of their names. With `'source.monitor-interval'` files
/// are followed as they grow, and new ones are found; a line then counts when its end is there.
struct Files {
    table: String,
    path: PathBuf,
    monitor: Option<Duration>,
    looked: Instant,
    /// How far each file was read, by its name.
    read: BTreeMap<String, u64>,
    /// Files to be read, the next one last.
    left: Vec<PathBuf>,
    open: Option<Open>,
    records: Records,
    line: Vec<u8>,
}

/// A file that is being read.
struct Open {
    path: PathBuf,
    name: String,
    reader: BufReader<File>,
    /// Lines that were read of it since it was opened.
    line: u64,
    /// Whether it was opened at its beginning.
    whole: bool,
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Files {
    fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Files> {
        let path = path(table, place.directory)?;
        let records = Records::open(table, source, place)?;
        let monitor = match table.options.get("source.monitor-interval") {
            Some(text) => Some(duration(text).ok_or_else(|| {
                Error::invalid(
                    format!("'source.monitor-interval' = '{text}' of `{}`", table.name),
                    "a time such as '500 ms' or '10 s'",
                )
            })?),
            None => None,
        };
        let mut files = Files {
            table: table.name.clone(),
            path,
            monitor,
            looked: Instant::now(),
            read: BTreeMap::new(),
            left: Vec::new(),
            open: None,
            records,
            line: Vec::new(),
        };
        files.look()?;
        // A file that is not there is told now, not when its turn comes.
        if let [only] = files.left.as_slice() {
            File::open(only).map_err(|error| files.failed(&error))?;
        }
        Ok(files)
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::connector(format!("cannot read `{}`, {:?}: {error}", self.table, self.path))
    }

    /// Finds files that have more than was read of them.
    fn look(&mut self) -> Result<()> {
        self.looked = Instant::now();
        let mut found = Vec::new();
        if self.path.is_dir() {
            for entry in std::fs::read_dir(&self.path).map_err(|error| self.failed(&error))? {
                let entry = entry.map_err(|error| self.failed(&error))?.path();
                // As Flink: names that begin with a dot or a line are not finished.
                if entry.is_file() && !file_name(&entry).starts_with(['.', '_']) {
                    found.push(entry);
                }
            }
        } else {
            found.push(self.path.clone());
        }
        for path in &found {
            let Some(read) = self.read.get(&file_name(path)) else { continue };
            let length = std::fs::metadata(path).map_err(|error| self.failed(&error))?.len();
            if length < *read {
                return Err(Error::connector(format!(
                    "{path:?} of `{}` has {length} bytes, and {read} were read already: it is another file",
                    self.table
                ))
                .hint("--from-start reads everything again"));
            }
        }
        found.retain(|path| {
            let read = self.read.get(&file_name(path)).copied();
            read.is_none_or(|read| std::fs::metadata(path).is_ok_and(|found| found.len() > read))
        });
        found.sort();
        found.reverse();
        self.left = found;
        Ok(())
    }

    /// Opens the next file where it was read to; whether there is one.
    fn next(&mut self) -> Result<bool> {
        let Some(path) = self.left.pop() else { return Ok(false) };
        let failed = |error| Error::connector(format!("cannot open {path:?}: {error}"));
        let name = file_name(&path);
        let read = self.read.get(&name).copied().unwrap_or(0);
        let mut file = File::open(&path).map_err(failed)?;
        file.seek(SeekFrom::Start(read)).map_err(failed)?;
        let reader = BufReader::with_capacity(1 << 18, file);
        self.open = Some(Open { path, name, reader, line: 0, whole: read == 0 });
        Ok(true)
    }
}

impl Fill for Files {
    fn fill(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        while batch.rows() < rows {
            let Some(open) = &mut self.open else {
                if self.next()? {
                    continue;
                }
                let Some(monitor) = self.monitor else { return Ok(false) };
                if self.looked.elapsed() < monitor {
                    return Ok(true);
                }
                self.look()?;
                if self.left.is_empty() {
                    return Ok(true);
                }
                continue;
            };
            self.line.clear();
            let path = &open.path;
            let failed = |error| Error::connector(format!("cannot read {path:?}: {error}"));
            // A quoted text of CSV may go over several lines.
            let ended = loop {
                let read = open.reader.read_until(b'\n', &mut self.line).map_err(failed)?;
                open.line += 1;
                if read == 0 || !self.line.ends_with(b"\n") {
                    break true;
                }
                if !self.records.is_open(&self.line) {
                    break false;
                }
            };
            // What is followed may be in the middle of a record.
            if self.line.is_empty() || ended && self.monitor.is_some() {
                self.read.entry(open.name.clone()).or_insert(0);
                self.open = None;
                continue;
            }
            match self.read.get_mut(&open.name) {
                Some(read) => *read += self.line.len() as u64,
                None => {
                    self.read.insert(open.name.clone(), self.line.len() as u64);
                }
            }
            while matches!(self.line.last(), Some(b'\n' | b'\r')) {
                self.line.pop();
            }
            if self.line.is_empty() {
                continue;
            }
            let (whole, line, path) = (open.whole, open.line, &open.path);
            let read = self.read.get(&open.name).copied().unwrap_or(0);
            self.records.take(&self.line, batch, || match whole {
                true => format!("{}, line {line}", path.display()),
                false => format!("{}, the record before byte {read}", path.display()),
            })?;
        }
        Ok(true)
    }

    fn skipped(&self) -> u64 {
        self.records.skipped()
    }

    fn ends(&self) -> bool {
        self.monitor.is_none()
    }

    fn position(&self) -> Value {
        json!({ "files": self.read, "skipped": self.records.skipped() })
    }

    fn seek(&mut self, position: &Value) -> Result<()> {
        self.records.set_skipped(place(position, "skipped")?);
        for (name, _) in position["files"].as_object().into_iter().flatten() {
            let read = place(&position["files"], name)?;
            self.read.insert(name.clone(), read);
        }
        self.open = None;
        self.look()
    }

    fn letters(&mut self) -> Option<&mut Records> {
        Some(&mut self.records)
    }
}
