//! Files on tmpfs: memory that outlives the process, not the power.
//!
//! Huge pages need care. tmpfs gives them as its mount option `huge=` says; with `huge=advise` only
//! to a fault in a mapping that was advised, never to `fallocate`. So the order is: lengthen, map,
//! advise, fault in, and allocate at the end, which fills whatever the fault left and is what
//! promises that no touch raises SIGBUS.

use crate::file;
use crate::region::Region;
use crate::{Error, ErrorKind, Result};
use rustix::fd::AsFd;
use rustix::io::retry_on_intr;
use rustix::mm::Advice;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// `f_type` of tmpfs, as `linux/magic.h` has it.
pub(crate) const TMPFS_MAGIC: u64 = 0x0102_1994;

/// What `huge=` of the mount asks of us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugePages {
    /// No huge pages here, or not wanted: allocate and map.
    No,
    /// The mount gives them to any allocation.
    ByMount,
    /// The mount gives them to advised mappings.
    ByAdvice,
}

/// Refuses a file that is not on tmpfs.
///
/// # Errors
/// `InvalidInput`, naming the magic number found.
pub(crate) fn check(file: &File, path: &Path) -> Result<()> {
    let magic = file_system_magic(file);
    if magic == Some(TMPFS_MAGIC) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!(
            "cannot open {} as shm: it is on a file system with magic {:#x}, wanted tmpfs ({TMPFS_MAGIC:#x}); \
             choose a path below /dev/shm, or medium \"file\"",
            path.display(),
            magic.unwrap_or(0)
        ),
    ))
}

/// The magic number of the file system that `file` is on.
pub(crate) fn file_system_magic(file: &File) -> Option<u64> {
    rustix::fs::fstatfs(file).ok().map(|s| s.f_type as u64 & 0xffff_ffff)
}

/// Whether the file has all its space already: on tmpfs the blocks are counted exactly, which saves
/// walking every page of a large store at open.
pub(crate) fn is_backed(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|m| m.blocks().saturating_mul(512) >= m.len())
}

/// Backs `range` behind the end of the file, and maps it.
///
/// # Errors
/// `OutOfSpace` when the tmpfs is full; the file is then as long as before.
pub(crate) fn extend(
    region: &Region,
    file: &File,
    path: &Path,
    range: Range<u64>,
    huge: HugePages,
) -> Result<()> {
    match huge {
        HugePages::No => file::extend(region, file, path, range),
        HugePages::ByMount => {
            file::extend(region, file, path, range.clone())?;
            let _ = region.advise(range, Advice::LinuxHugepage);
            Ok(())
        }
        HugePages::ByAdvice => {
            let outcome = extend_advised(region, file, path, &range);
            if outcome.is_err() {
                region.unmap(range.clone());
                let _ = retry_on_intr(|| rustix::fs::ftruncate(file, range.start));
            }
            outcome
        }
    }
}

fn extend_advised(region: &Region, file: &File, path: &Path, range: &Range<u64>) -> Result<()> {
    retry_on_intr(|| rustix::fs::ftruncate(file, range.end))
        .map_err(|errno| Error::os(format!("cannot lengthen {}", path.display()), errno))?;
    file::map(region, file.as_fd(), path, range.clone())?;
    // Both may be refused, by an old kernel or a full tmpfs: `back` decides.
    let _ = region.advise(range.clone(), Advice::LinuxHugepage);
    let _ = region.advise(range.clone(), Advice::LinuxPopulateWrite);
    file::back(file, path, range.clone())
}
