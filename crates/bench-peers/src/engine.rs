//! Shared by the adapters: a directory that is removed with the engine, and errors in words.

use duramen_bench::kv::{Failure, Result};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A directory of one engine, removed with it.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes the directory; fails if something is already there.
    pub fn new(path: &Path) -> Result<Self> {
        std::fs::create_dir(path).map_err(|error| {
            Failure::usage(format!("cannot create {}: {error}; give a --path that does not exist", path.display()))
        })?;
        Ok(Self(path.to_owned()))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes that its files take on the device; files may have holes.
    pub fn bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        fn sum(directory: &Path) -> u64 {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.metadata() {
                    Ok(metadata) if metadata.is_dir() => sum(&entry.path()),
                    Ok(metadata) => metadata.blocks() * 512,
                    Err(_) => 0,
                })
                .sum()
        }
        sum(&self.0)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An engine's error as the benchmark's.
pub fn failed<T, E: Display>(engine: &str, result: std::result::Result<T, E>) -> Result<T> {
    result.map_err(|error| Failure::new(format!("{engine}: {error}")))
}

/// Copies a value out for the benchmark; returns whether there is one.
pub fn copy(into: &mut Vec<u8>, value: Option<&[u8]>) -> bool {
    into.clear();
    value.is_some_and(|value| {
        into.extend_from_slice(value);
        true
    })
}
