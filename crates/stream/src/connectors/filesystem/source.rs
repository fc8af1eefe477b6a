//! Reads files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io::{BufRead, BufReader, ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::identity::Known;
use crate::batch::Batch;
use crate::catalog::Table;
use crate::catalog::options::duration;
use crate::compile::Source;
use crate::error::{Error, Result};
use crate::formats::split::Splitter;
use crate::run::records::{Place, Records};
use crate::run::row_source::{RowSource, place};
use crate::run::writers::path;

pub fn open(table: &Table, source: &Source, place: Place<'_>) -> Result<Box<dyn RowSource>> {
    Ok(Box::new(Files::open(table, source, place)?))
}

/// Lines of a file, or of all files of a directory, in the order of their names. With `'source.monitor-interval'` files
/// are followed as they grow, and new files are found; a line then counts only when its end has been written.
///
/// Reading of a file continues if it is the same file as before (`identity.rs`). A renamed file is finished first, then
/// the file that now has its name is read. In a directory the renamed file is read under its new name. A single renamed
/// file is followed as long as the new one is empty, because its writer may still have it open. A single file that was
/// read to its end stays open, so that its rest is read even if it has been deleted.
struct Files {
    table: String,
    path: PathBuf,
    monitor: Option<Duration>,
    looked: Instant,
    /// The position in each file, by name. That of the open file is in [`Open`].
    read: BTreeMap<String, Known>,
    /// Files to be read, the next one last.
    left: Vec<PathBuf>,
    open: Option<Open>,
    /// A single followed file that was read to its end.
    held: Option<Open>,
    records: Records,
}

/// Most bytes read before checking whether the job must stop, however few rows they give.
const READ_BYTES: usize = 4 << 20;

/// A file that is being read.
struct Open {
    path: PathBuf,
    name: String,
    reader: BufReader<File>,
    splitter: Splitter,
    /// The position, which may be within a record.
    reached: u64,
    /// The position after the last whole record.
    read: u64,
    /// Whether it was opened at its beginning.
    whole: bool,
    /// Whether another file has its name now: then nothing more is written to it.
    rotated: bool,
}

/// The position of a record: its line, or its byte if the file was not read from its beginning.
fn stood(path: &Path, whole: bool, splitter: &Splitter, read: u64) -> String {
    match whole {
        true => format!("{}, line {}", path.display(), splitter.line()),
        false => format!("{}, the record at byte {read}", path.display()),
    }
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
            held: None,
            records,
        };
        // A job that resumes has the positions of more files.
        if !place.goes_on {
            files.look()?;
            // A missing file is reported now, not when its turn comes.
            if let [only] = files.left.as_slice() {
                File::open(only).map_err(|error| files.failed(&error))?;
            }
        }
        Ok(files)
    }

    fn failed(&self, error: &std::io::Error) -> Error {
        Error::connector(format!("cannot read `{}`, {:?}: {error}", self.table, self.path))
    }

    /// Finds files with bytes that were not read yet.
    fn look(&mut self) -> Result<()> {
        self.looked = Instant::now();
        // Before it is opened, which waits for a writer of a pipe.
        if let Ok(found) = self.path.metadata()
            && !found.is_file()
            && !found.is_dir()
        {
            return Err(Error::invalid(
                format!("{:?} of `{}`, a pipe, socket or device", self.path, self.table),
                "a file or a directory, which can be read from any position",
            )
            .hint("the connector 'socket' reads rows that come once"));
        }
        if self.path.is_dir() { self.look_in_directory() } else { self.look_at_file() }
    }

    fn look_in_directory(&mut self) -> Result<()> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(|error| self.failed(&error))? {
            let entry = entry.map_err(|error| self.failed(&error))?.path();
            // As in Flink: files whose names begin with a dot or an underscore are not finished.
            if file_name(&entry).starts_with(['.', '_']) {
                continue;
            }
            // A file that was deleted meanwhile is skipped.
            if let Ok(metadata) = entry.metadata()
                && metadata.is_file()
            {
                found.push((entry, metadata));
            }
        }
        found.sort_by(|(a, _), (b, _)| b.cmp(a));
        // Files that have another name by now.
        let here: HashMap<String, (u64, u64)> =
            found.iter().map(|(path, found)| (file_name(path), (found.dev(), found.ino()))).collect();
        let mut moved: HashMap<(u64, u64), String> = HashMap::new();
        for (name, known) in &self.read {
            if here.get(name) != Some(&known.identity()) {
                moved.insert(known.identity(), name.clone());
            }
        }
        for (path, metadata) in &found {
            let name = file_name(path);
            if let Some(before) = moved.get(&(metadata.dev(), metadata.ino()))
                && self.read[before]
                    .is_read_of(&File::open(path).map_err(|error| self.failed(&error))?)
                    .unwrap_or(false)
                && let Some(known) = self.read.remove(before)
            {
                self.read.insert(name, known);
            }
        }
        for (path, metadata) in found {
            match self.read.get(&file_name(&path)) {
                Some(known) if metadata.len() < known.read => return Err(self.replaced(&path, known)),
                Some(known) if metadata.len() == known.read => {}
                _ => self.left.push(path),
            }
        }
        Ok(())
    }

    fn look_at_file(&mut self) -> Result<()> {
        let name = file_name(&self.path);
        let here = match File::open(&self.path) {
            Ok(file) => Some((file.metadata().map_err(|error| self.failed(&error))?, file)),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(self.failed(&error)),
        };
        let Some(known) = self.read.get(&name) else {
            self.left = vec![self.path.clone()];
            return Ok(());
        };
        if let Some((metadata, file)) = &here
            && (known.is_at(metadata) || known.is_read_of(file).map_err(|error| self.failed(&error))?)
        {
            if metadata.len() < known.read {
                return Err(self.replaced(&self.path, known));
            }
            self.held = None;
            if metadata.len() > known.read {
                self.left = vec![self.path.clone()];
            } else {
                self.held = here.map(|(_, file)| self.known(self.path.clone(), file, known.read));
            }
            return Ok(());
        }
        // Another file has the name, or none has.
        let is_replaced = here.as_ref().is_some_and(|(metadata, _)| metadata.len() > 0);
        let mut open = match self.held.take() {
            Some(held) => held,
            None => self.renamed(known)?.ok_or_else(|| match here {
                Some(_) => self.replaced(&self.path, known),
                None => self.missing(known),
            })?,
        };
        let length = open.reader.get_ref().metadata().map_err(|error| self.failed(&error))?.len();
        if length > known.read || is_replaced {
            open.reader.seek(SeekFrom::Start(known.read)).map_err(|error| self.failed(&error))?;
            // Reading may have stopped within a record.
            (open.splitter, open.reached) = (self.records.splitter(known.read == 0), known.read);
            open.read = known.read;
            open.rotated = is_replaced;
            self.open = Some(open);
        } else {
            self.held = Some(open);
        }
        Ok(())
    }

    /// The file that was read, under its new name in the same directory.
    fn renamed(&self, known: &Known) -> Result<Option<Open>> {
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let (name, mut found, mut others) = (file_name(&self.path), None, Vec::new());
        for entry in std::fs::read_dir(directory).map_err(|error| self.failed(&error))?.flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else { continue };
            if path == self.path || !metadata.is_file() {
                continue;
            }
            if known.is_at(&metadata) {
                let file = File::open(&path).map_err(|error| self.failed(&error))?;
                if known.read == 0 || known.is_read_of(&file).map_err(|error| self.failed(&error))? {
                    found = Some((path, metadata, file));
                }
            } else if file_name(&path).starts_with(&name) && metadata.len() > 0 {
                others.push((path, metadata));
            }
        }
        let Some((path, metadata, file)) = found else { return Ok(None) };
        let is_later = |other: &Metadata| other.modified().ok() > metadata.modified().ok();
        if let Some((later, _)) = others.iter().find(|(_, other)| is_later(other)) {
            return Err(Error::connector(format!(
                "{:?} of `{}` was rotated more than once: found the file read so far as {path:?}, and a newer file \
                 {later:?}; wanted one rotation",
                self.path, self.table
            ))
            .hint("move the newer file away if the job need not read it, or begin with --from-start; a job can follow a \
                   directory with all files"));
        }
        Ok(Some(Open { name, ..self.known(path, file, known.read) }))
    }

    /// A file that was read up to this position.
    fn known(&self, path: PathBuf, file: File, read: u64) -> Open {
        let name = file_name(&path);
        let reader = BufReader::with_capacity(1 << 18, file);
        let splitter = self.records.splitter(read == 0);
        Open { path, name, reader, splitter, reached: read, read, whole: read == 0, rotated: false }
    }

    /// The error if no file has the name of the one that was read, and that file is not found under another name.
    fn missing(&self, known: &Known) -> Error {
        Error::connector(format!(
            "{:?} of `{}` is gone after {} of its bytes were read: wanted the file there, or renamed within its directory, \
             since it may have more",
            self.path, self.table, known.read
        ))
        .hint("put it back, or begin with --from-start; a running job reads a deleted file to its end")
    }

    /// The error if another file has the name of the one that was read.
    fn replaced(&self, path: &Path, known: &Known) -> Error {
        let read = known.read;
        let why = match path.metadata() {
            Ok(found) if found.len() < read => format!("a file of {} bytes", found.len()),
            Ok(found) if known.is_at(&found) => "other bytes before that position".to_owned(),
            _ => "another inode and other bytes, and no file with the read bytes in its directory".to_owned(),
        };
        Error::connector(format!(
            "{path:?} of `{}` is not the file that was read: wanted the one of which {read} bytes were read, found {why}",
            self.table
        ))
        .hint("--from-start reads everything again; to rotate a followed file, rename it and create a new one")
    }

    /// Opens the next file at its position; returns whether there is one.
    fn next(&mut self) -> Result<bool> {
        let failed = |path: &Path, error| Error::connector(format!("cannot open {path:?}: {error}"));
        let (path, mut file) = loop {
            let Some(path) = self.left.pop() else { return Ok(false) };
            match File::open(&path) {
                Ok(file) => break (path, file),
                // It was deleted or renamed after it was found: the next search finds out which.
                Err(error) if error.kind() == ErrorKind::NotFound && self.monitor.is_some() => {}
                Err(error) => return Err(failed(&path, error)),
            }
        };
        let failed = |error| failed(&path, error);
        let name = file_name(&path);
        let metadata = file.metadata().map_err(failed)?;
        let known = self.read.entry(name.clone()).or_insert_with(|| Known::new(&metadata)).clone();
        if known.read > 0 && !known.is_read_of(&file).map_err(failed)? {
            return Err(self.replaced(&path, &known));
        }
        // It may be a copy.
        let read = known.read;
        let mut opened = Known::new(&metadata);
        opened.read = read;
        self.read.insert(name.clone(), opened);
        file.seek(SeekFrom::Start(read)).map_err(failed)?;
        self.open = Some(self.known(path, file, read));
        Ok(true)
    }

    /// The open file has been read to its end.
    fn end_of_file(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.rotated {
            self.read.remove(&open.name);
            self.left.push(self.path.clone());
            return;
        }
        if let Some(known) = self.read.get_mut(&open.name) {
            *known = known.summed_at(open.read, open.reader.get_ref());
        }
        if self.monitor.is_some() && open.path == self.path {
            self.held = Some(open);
        }
    }
}

impl RowSource for Files {
    fn read_rows(&mut self, batch: &mut Batch, rows: usize) -> Result<bool> {
        let mut left = READ_BYTES;
        while batch.rows() < rows && left > 0 {
            let Some(open) = &mut self.open else {
                if self.next()? {
                    continue;
                }
                let Some(monitor) = self.monitor else { return Ok(false) };
                if self.looked.elapsed() < monitor {
                    return Ok(true);
                }
                self.look()?;
                if self.left.is_empty() && self.open.is_none() {
                    return Ok(true);
                }
                continue;
            };
            let Open { path, reader, splitter, reached, read: whole_until, whole, rotated, .. } = open;
            let found = reader
                .fill_buf()
                .map_err(|error| Error::connector(format!("cannot read {path:?}: {error}")))?;
            let read = *whole_until;
            let ended = if found.is_empty() {
                // A followed file may end in the middle of a record.
                if self.monitor.is_some() && !*rotated || !splitter.finish() {
                    self.end_of_file();
                    continue;
                }
                true
            } else {
                let (taken, ended) = splitter.push(found).map_err(|error| {
                    Error::connector(format!("{}: {error}", stood(path, *whole, splitter, read)))
                })?;
                reader.consume(taken);
                *reached += taken as u64;
                left = left.saturating_sub(taken);
                ended
            };
            if splitter.is_between() {
                *whole_until = *reached;
            }
            if ended {
                self.records.add(splitter, batch, || stood(path, *whole, splitter, read))?;
            }
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
        let entry = |(name, known): (&String, &Known)| {
            let open = self.open.as_ref().filter(|open| open.name == *name);
            let known = match open {
                Some(open) => known.summed_at(open.read, open.reader.get_ref()),
                None => known.clone(),
            };
            (name.clone(), known.to_json())
        };
        let files: serde_json::Map<String, Value> = self.read.iter().map(entry).collect();
        json!({ "files": files, "skipped": self.records.skipped() })
    }

    fn seek(&mut self, position: &Value) -> Result<()> {
        self.records.set_skipped(place(position, "skipped")?);
        for (name, known) in position["files"].as_object().into_iter().flatten() {
            self.read.insert(name.clone(), Known::of(known)?);
        }
        self.look()
    }

    fn letters(&mut self) -> Option<&mut Records> {
        Some(&mut self.records)
    }
}
