//! The one file of a sink in a job without checkpoints.
//!
//! # Order
//!
//! 1. A non-empty file at the sink's path does not belong to the job, which has no checkpoint that names it: the job
//!    does not start ([`Existing::Refuse`]), or does what [`Existing`] says.
//! 2. Rows go to a temporary file next to it, whose name begins with a dot and contains the process number. With
//!    [`Existing::Adopt`] it begins as a copy of the file at the path.
//! 3. The temporary file is written back and renamed to the sink's path: when all input has been read, if the input
//!    ends; else when the first rows have arrived. The rename replaces the file at the path in one step. It is refused
//!    if that file has another length than when the job began, unless with [`Existing::Overwrite`].
//! 4. Later rows are appended to it.
//!
//! A job that fails before the rename deletes the temporary file; a killed job leaves it, and the path is unchanged. A
//! path that is not a regular file, such as a pipe, is written to at once.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::compile::{Output, Rows};
use crate::error::{Error, Result};
use crate::formats::Writing;
use crate::run::claim::Existing;
use crate::run::row_sink::RowSink;
use crate::run::writers::resolved;

/// The sink.
pub struct OneFile {
    file: File,
    path: PathBuf,
    /// The file's temporary name until it is renamed.
    beside: Option<PathBuf>,
    /// Length of the file at the path when the job began; none if any file may be replaced.
    before: Option<u64>,
    /// Whether it is renamed when all input has been read.
    at_end: bool,
    writing: Writing,
    table: String,
}

impl OneFile {
    /// For the table of this name.
    pub fn open(path: &Path, writing: Writing, table: &str, existing: Existing) -> Result<OneFile> {
        // The target of a link to a pipe, as /dev/stdout may be one, has no path.
        let is_other = path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir());
        let path = if is_other { path.to_owned() } else { resolved(path) };
        let length = length(&path);
        if existing == Existing::Refuse && length > 0 {
            return Err(refused(table, &path, length));
        }
        let before = (existing != Existing::Overwrite).then_some(length);
        let opened = if is_other || path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            OpenOptions::new().write(true).open(&path).map(|file| (file, None))
        } else {
            beside(&path).map(|(file, beside)| (file, Some(beside)))
        };
        let (file, beside) = opened
            .map_err(|error| Error::connector(format!("cannot create {path:?} for `{table}`: {error}")))?;
        let mut sink =
            OneFile { file, path, beside, before, at_end: false, writing, table: table.to_owned() };
        if existing == Existing::Adopt && length > 0 {
            sink.copy_before().map_err(|error| {
                Error::connector(format!("cannot copy {:?} for `{table}`: {error}", sink.path))
            })?;
        }
        Ok(sink)
    }

    /// Copies the file at the path to the beginning; ends its last line.
    fn copy_before(&mut self) -> std::io::Result<()> {
        let mut before = File::open(&self.path)?;
        self.before = Some(std::io::copy(&mut before, &mut self.file)?);
        let mut last = [0];
        before.seek(SeekFrom::End(-1))?;
        before.read_exact(&mut last)?;
        if last == *b"\n" { Ok(()) } else { self.file.write_all(b"\n") }
    }

    fn appear(&mut self) -> Result<()> {
        let Some(beside) = &self.beside else { return Ok(()) };
        let found = length(&self.path);
        if self.before.is_some_and(|before| before != found) {
            return Err(refused(&self.table, &self.path, found));
        }
        let renamed = (|| {
            if let Ok(before) = self.path.metadata() {
                self.file.set_permissions(before.permissions())?;
            }
            self.file.sync_all()?;
            std::fs::rename(beside, &self.path)
        })();
        renamed.map_err(|error| {
            Error::connector(format!(
                "cannot rename {beside:?} of `{}` to {:?}: {error}",
                self.table, self.path
            ))
        })?;
        self.beside = None;
        Ok(())
    }
}

/// Length of the file at a path; 0 if there is none.
fn length(path: &Path) -> u64 {
    path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).map_or(0, |found| found.len())
}

/// The error for a file that may not be replaced.
fn refused(table: &str, path: &Path, length: u64) -> Error {
    Error::connector(format!(
        "cannot write `{table}`: found {} with {length} bytes, which no checkpoint of the job names; wanted no file \
        there",
        path.display()
    ))
    .hint(
        "--overwrite replaces it when the job succeeds, --adopt appends to it; or choose another path, or a job with \
         a store, which records what it has written",
    )
}

/// Creates a file next to a path.
fn beside(path: &Path) -> std::io::Result<(File, PathBuf)> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut number = 0;
    loop {
        let beside = path.with_file_name(format!(".{name}.{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            // Left by a killed process of the same number.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return opened.map(|file| (file, beside)),
        }
    }
}

impl Output for OneFile {
    fn take(&mut self, rows: &Rows<'_>) -> Result<()> {
        self.file
            .write_all(self.writing.text(rows)?.as_bytes())
            .map_err(|error| Error::connector(format!("cannot write `{}`: {error}", self.table)))?;
        if self.at_end || rows.is_empty() { Ok(()) } else { self.appear() }
    }
}

impl RowSink for OneFile {
    fn input_ends(&mut self) {
        self.at_end = true;
    }

    fn end(&mut self) -> Result<()> {
        self.appear()
    }
}

impl Drop for OneFile {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = std::fs::remove_file(beside);
        }
    }
}
