//! Where the benchmark's stores are: a path that is nobody's, and that is nobody's again afterwards.

use crate::{DuramenEngine, Failure, Result};
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

/// A new store that is removed when this value goes.
pub struct Fresh {
    engine: Option<DuramenEngine>,
    path: PathBuf,
}

impl Place {
    /// Makes a store where nothing is.
    ///
    /// # Errors
    /// Usage, when something is there already.
    pub fn fresh(&self, updatable: bool) -> Result<Fresh> {
        self.fresh_with(&self.options, updatable)
    }

    /// As [`Place::fresh`], opened otherwise.
    ///
    /// # Errors
    /// As [`Place::fresh`].
    pub fn fresh_with(&self, options: &Options, updatable: bool) -> Result<Fresh> {
        let path = self.path.clone();
        let options = Options { create: Create::CreateNew, ..options.clone() };
        let engine = options.open(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::InUse => Failure::usage(format!(
                "{error}; the benchmark makes and removes a store of its own: say a --path where nothing is"
            )),
            _ => error.into(),
        })?;
        Ok(Fresh { engine: Some(DuramenEngine::new(engine, updatable)), path })
    }
}

impl Fresh {
    /// The store, open.
    pub fn engine(&self) -> Result<&DuramenEngine> {
        self.engine.as_ref().ok_or_else(|| Failure::new("the benchmark's store is closed already"))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        drop(self.engine.take());
        // A device stays; a directory stands for the store in it.
        let file = if self.path.is_dir() { self.path.join("duramen.store") } else { self.path.clone() };
        if file.is_file() {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Anonymous memory of this process, in bytes: what an engine takes of DRAM, without the pages of its medium.
#[must_use]
pub fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or("");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
