//! Ensures that each file and key has one writer in a job, and that a job does not read its own output.
//!
//! # Invariants
//!
//! 1. Sinks of one table share one writer: several INSERTs feed it. So the bytes of one file, and the changes of one
//!    key, are ordered.
//! 2. Two tables of one script never have the same path or the same keys. Their writers would not know of each other,
//!    and the second of two jobs would replace the file of the first.
//! 3. A job never writes to a file that it reads, or into a directory from which it reads all files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::records::Place;
use crate::catalog::Table;
use crate::error::{Error, Result};
use crate::plan::Sink;

/// The number of links that Linux follows, `MAXSYMLINKS`: more must be a cycle.
const LINKS_MAX: usize = 40;

/// For each sink the first sink with the same writer.
pub fn of(sinks: &[Sink]) -> Vec<usize> {
    let same =
        |sink: &Sink, first: &&Sink| first.table.is_written_once() && Arc::ptr_eq(&first.table, &sink.table);
    let first = |(number, sink): (usize, &Sink)| {
        sinks[..number].iter().position(|first| same(sink, &first)).unwrap_or(number)
    };
    sinks.iter().enumerate().map(first).collect()
}

/// The path of a table of files.
pub fn path(table: &Table, directory: &Path) -> Result<PathBuf> {
    let path = table.options.get("path").ok_or_else(|| {
        Error::invalid(format!("no option 'path' for `{}`", table.name), "'path' = '...' in WITH (...)")
    })?;
    Ok(directory.join(path.strip_prefix("file://").unwrap_or(path)))
}

/// A path as the file system resolves it, whether or not a file exists there.
pub fn resolved(path: &Path) -> PathBuf {
    resolved_behind(path, LINKS_MAX)
}

/// The same, following at most this many links to missing files.
fn resolved_behind(path: &Path, links_left: usize) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    if links_left > 0
        && let Ok(target) = path.read_link()
    {
        return resolved_behind(&path.parent().unwrap_or(Path::new("")).join(target), links_left - 1);
    }
    let parent = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return path.to_owned(),
    };
    match (parent.canonicalize(), path.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        _ => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

fn is_file(table: &Table) -> bool {
    table.connector.name == "filesystem"
}

fn path_of(table: &Table, directory: &Path) -> Result<PathBuf> {
    path(table, directory).map(|path| resolved(&path))
}

/// Refuses the jobs of a script, given by all their sinks, when two of their tables write to one place. Paths are
/// compared as the file system resolves them, and are relative to `directory`.
///
/// # Errors
/// When there are two such tables.
pub fn check_script<'s>(sinks: impl Iterator<Item = &'s Sink>, directory: &Path) -> Result<()> {
    written(sinks, directory).map(|_| ())
}

/// The paths that are written, and the tables that write them.
fn written<'s>(sinks: impl Iterator<Item = &'s Sink>, directory: &Path) -> Result<Vec<(PathBuf, &'s Table)>> {
    let mut written: HashMap<String, &Table> = HashMap::new();
    let mut files = Vec::new();
    for sink in sinks {
        let table = &*sink.table;
        let what = match is_file(table) {
            true => {
                let path = path_of(table, directory)?;
                let what = format!("the path {}", path.display());
                files.push((path, table));
                what
            }
            false => match table.written() {
                Some(what) => what,
                None => continue,
            },
        };
        if let Some(other) = written.get(&what)
            && !std::ptr::eq(*other, table)
        {
            return Err(two_tables(&other.name, &table.name, &what));
        }
        written.insert(what, table);
    }
    Ok(files)
}

/// Refuses a job that would write where it reads, or to one place through two tables.
pub fn check(sinks: &[Sink], read: &[Arc<Table>], place: Place<'_>) -> Result<()> {
    let files = written(sinks.iter(), place.directory)?;
    let mut sources: Vec<(PathBuf, &Table)> = Vec::new();
    for table in read.iter().filter(|table| is_file(table)) {
        // A table without a path is the caller's, or is refused when it is opened.
        if let Ok(path) = path_of(table, place.directory) {
            sources.push((path, table));
        }
    }
    let is_within =
        |path: &Path, source: &Path| path == source || source.is_dir() && path.starts_with(source);
    for (path, table) in &files {
        if let Some((source, other)) = sources.iter().find(|(source, _)| is_within(path, source)) {
            return Err(Error::invalid(
                format!(
                    "`{}` at {}, which the job reads as `{}`, {}",
                    table.name,
                    path.display(),
                    other.name,
                    source.display()
                ),
                "an output path that the job does not read",
            ));
        }
    }
    for table in read {
        let Some(letters) = table.options.get("dead-letter") else { continue };
        let path = resolved(&place.directory.join(letters));
        let is_read = sources.iter().find(|(source, _)| is_within(&path, source));
        let is_written = files.iter().find(|(file, _)| *file == path);
        if let Some((_, other)) = is_read.or(is_written) {
            return Err(Error::invalid(
                format!(
                    "'dead-letter' = '{letters}' of `{}`, which is the path of `{}`",
                    table.name, other.name
                ),
                "a separate path",
            ));
        }
    }
    Ok(())
}

/// The error for two tables that write to one place.
pub fn two_tables(one: &str, other: &str, what: &str) -> Error {
    Error::invalid(format!("`{one}` and `{other}`, which both write to {what}"), "one table for it")
        .hint("several INSERTs may write to that table")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_whether_or_not_its_file_exists() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::write(real.join("file"), "").unwrap();
        std::os::unix::fs::symlink(real.join("file"), real.join("link")).unwrap();
        assert_eq!(resolved(&real.join("./link")), real.join("file"));
        assert_eq!(resolved(&real.join("./none")), real.join("none"));
        assert_eq!(resolved(&real.join("no/such")), real.join("no/such"));
        std::fs::create_dir(real.join("sub")).unwrap();
        std::os::unix::fs::symlink("../none", real.join("sub/to none")).unwrap();
        std::os::unix::fs::symlink("sub/to none", real.join("to that")).unwrap();
        assert_eq!(resolved(&real.join("to that")), real.join("none"));
        std::os::unix::fs::symlink("circle", real.join("circle")).unwrap();
        assert_eq!(resolved(&real.join("circle")), real.join("circle"));
    }
}
