//! Where the benchmark's stores are: a path without a file, which is also without a file afterwards.

use crate::kv::{DuramenEngine, Failure, Result};
use duramen::{Create, ErrorKind, Options};
use std::path::{Path, PathBuf};

/// Where and how stores are made.
#[derive(Clone, Debug)]
pub struct Place {
    /// The store's file or device.
    pub path: PathBuf,
    /// How it is opened.
    pub options: Options,
}

/// A new store that is removed when this value is dropped: first the store is closed, then its file removed.
pub struct Fresh {
    engine: DuramenEngine,
    path: PathBuf,
    _remove: Remove,
}

/// Removes a store's file when dropped.
#[derive(Debug)]
pub struct Remove(PathBuf);

impl Remove {
    /// For the store at `path`: a device stays, and a directory stands for the store in it.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(file_of(path))
    }
}

fn file_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("duramen.store") } else { path.to_owned() }
}

impl Drop for Remove {
    fn drop(&mut self) {
        if self.0.is_file() {
            let _ = std::fs::remove_file(&self.0);
        }
    }
}

fn taken(error: &dyn std::fmt::Display) -> String {
    format!("{error}; the benchmark creates and removes its own store: give a --path that does not exist")
}

/// The medium's error, with a hint if something is already there.
pub(crate) fn occupied(error: duramen_media::Error) -> Failure {
    match error.kind() {
        duramen_media::ErrorKind::AlreadyExists | duramen_media::ErrorKind::InUse => {
            Failure::usage(taken(&error))
        }
        _ => error.into(),
    }
}

impl Place {
    /// Makes a store where no file is.
    ///
    /// # Errors
    /// A usage error if something is already there.
    pub fn fresh(&self, updatable: bool) -> Result<Fresh> {
        self.fresh_with(&self.options, updatable)
    }

    /// Like [`Place::fresh`], with other options.
    ///
    /// # Errors
    /// As [`Place::fresh`].
    pub fn fresh_with(&self, options: &Options, updatable: bool) -> Result<Fresh> {
        let path = self.path.clone();
        let file = file_of(&path);
        // Even an empty file: somebody made it.
        if file.is_file() {
            let there = format!("cannot create store {}: the path exists", file.display());
            return Err(Failure::usage(taken(&there)));
        }
        let options = Options { create: Create::CreateNew, ..options.clone() };
        let store = options.open(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::InUse => Failure::usage(taken(&error)),
            _ => error.into(),
        })?;
        let remove = Remove(file);
        Ok(Fresh { engine: DuramenEngine::new(store, updatable), path, _remove: remove })
    }
}

impl Fresh {
    /// The store, open.
    #[must_use]
    pub fn engine(&self) -> &DuramenEngine {
        &self.engine
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Anonymous memory of this process, in bytes: the engine's DRAM without the pages of its medium.
#[must_use]
pub fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The same options without background compaction. Only compaction differs: the store's own thread still grows the
/// store ahead of the writers, which would otherwise pay for fresh pages themselves.
pub(crate) fn never_compacting(options: &Options) -> Options {
    let mut options = options.clone();
    options.tuning.compaction_bytes_min = Some(u64::MAX);
    options
}
