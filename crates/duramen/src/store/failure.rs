//! What a store does when its medium has failed: it is poisoned, and says so on the medium.
//!
//! The kernel tells of a failed write-back once, and may show the pages that it could not write, or have dropped them. So nothing is
//! written any more, and the next open must not take the page cache of the same boot for whole. Order: the failure; then at once,
//! before the error goes to anybody, the superblock's boot id is unknown, in the mapping. A process that is killed then leaves it
//! in the page cache, as every other store. A power failure needs no mark: the boot is another one.

use super::Core;
use crate::epoch::lock;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium};

/// Nothing says that the machine was not rebooted since.
pub(crate) const BOOT_UNKNOWN: [u8; 16] = [0; 16];

impl<M: Medium> Core<M> {
    /// Syncs the medium; after a failure nothing can be trusted any more.
    pub(crate) fn sync_or_poison(&self) -> Result<()> {
        self.medium.sync().map_err(|error| self.failed(error))
    }

    /// The medium failed: refuses writes, and notes it on the medium at once, so that it is noted though the process should be killed
    /// next. Not to be called with the superblock locked.
    pub(crate) fn failed(&self, error: impl Into<Error>) -> Error {
        self.epochs.poison();
        self.doubt();
        error.into()
    }

    /// [`Core::failed`], for what a commit ended in: also one that was refused since another thread's failed just now, which that
    /// thread may not have noted yet.
    #[cold]
    pub(super) fn commit_failed(&self, error: Error) -> Error {
        if matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned) && !self.epochs.is_forked() {
            self.doubt();
        }
        error
    }

    /// After a failed write-back: has the next open judge the store as after a power failure, also under the same boot. The kernel may
    /// show pages that it could not write, or have dropped them, until the file system is unmounted and beyond. It reaches the medium
    /// when the kernel writes that page, if at all: without it an open may find a hole below a record that counts, and refuse it as damage.
    pub(crate) fn doubt(&self) {
        // Poisoned by a panic, with a device that works: all is written now.
        if self.medium.granularity() != Granularity::Page || self.medium.sync().is_ok() {
            return;
        }
        let mut superblock = lock(&self.superblock);
        if superblock.boot_id != BOOT_UNKNOWN || superblock.clean {
            superblock.boot_id = BOOT_UNKNOWN;
            // Of a close that failed at its very end.
            (superblock.clean, superblock.sealed, superblock.image) = (false, false, None);
            superblock.sequence += 1;
            // It has failed before; the stores are what counts here.
            let _ = superblock.persist(&self.medium);
        }
    }
}
