//! Write-back of pages: how a file on an ordinary file system becomes durable.
//!
//! `fdatasync` alone is enough, and `msync` would add nothing. Linux tracks stores through shared
//! mappings: the first store to a clean page faults (`page_mkwrite`) and marks the page dirty in the
//! file's page cache; write-back write-protects it again before reading it. `fdatasync` writes back
//! and waits for every dirty page of the file, whether `write` or a mapping dirtied it, writes the
//! metadata that is needed to find them (length, extents that were unwritten), and flushes the
//! device's cache. `msync(MS_SYNC)` only calls the same function (`vfs_fsync_range`) once for each
//! mapping in the range. The test `sync_leaves_no_page_of_the_mapping_dirty` holds this true.

use crate::{Error, ErrorKind, Result};
use rustix::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Write-backs of one file, one at a time, and none after one that failed.
///
/// The kernel reports a failure to one call for each open file, and then takes the pages for clean. Of two calls at the
/// same time, one could succeed although its pages were lost, and so could every later one.
#[derive(Debug, Default)]
pub struct Syncs {
    failed: Mutex<bool>,
}

impl Syncs {
    /// Runs `sync` when no other one runs.
    ///
    /// # Errors
    /// `sync`'s; `Io` when an earlier one failed.
    pub fn run(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(Error::new(
                ErrorKind::Io,
                "an earlier write-back failed, and what it was to write may be lost",
            ));
        }
        let outcome = sync();
        *failed = outcome.is_err();
        outcome
    }
}

/// Writes back every page of `file` and waits for the device.
///
/// # Errors
/// `Io`, whatever the cause. See [`Syncs`]: a second call that succeeds proves nothing.
pub(crate) fn sync(file: BorrowedFd<'_>, path: &Path) -> Result<()> {
    rustix::io::retry_on_intr(|| rustix::fs::fdatasync(file)).map_err(|errno| {
        Error::with_source(
            ErrorKind::Io,
            format!(
                "write-back of {} failed: stores since the last sync may be lost; \
                 close the store, see the kernel's log, and open it again to recover",
                path.display()
            ),
            errno,
        )
    })
}
