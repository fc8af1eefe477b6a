//! Files on tmpfs: memory that outlives the process, not the power.
//!
//! Huge pages need care. tmpfs gives them as its mount option `huge=` says; with `advise` only to a
//! fault in a mapping that was advised, with `within_size` only below the file's length, and in neither
//! case to an `fallocate` that lengthens the file. So where huge pages can be had the order is: lengthen,
//! map, advise, fault in, and allocate at the end, which fills whatever the fault left and is what
//! promises that no touch raises SIGBUS.

use crate::region::Region;
use crate::topology::{Mount, Sysfs, mount_of};
use crate::{Error, ErrorKind, Result, file};
use rustix::fd::AsFd;
use rustix::io::retry_on_intr;
use rustix::mm::Advice;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `f_type` of tmpfs, as `linux/magic.h` has it.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Whether `file` is on tmpfs.
pub(crate) fn is_tmpfs(file: &File) -> bool {
    file_system_magic(file) == Some(TMPFS_MAGIC)
}

/// Refuses a file that is not on tmpfs.
///
/// # Errors
/// `InvalidInput`, naming the magic number found.
pub(crate) fn check(file: &File, path: &Path) -> Result<()> {
    if is_tmpfs(file) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!(
            "cannot open {} as shm: its file system has magic {:#x}, wanted tmpfs ({TMPFS_MAGIC:#x}); \
             choose a path below /dev/shm, or medium \"file\"",
            path.display(),
            file_system_magic(file).unwrap_or(0)
        ),
    ))
}

fn file_system_magic(file: &File) -> Option<u64> {
    rustix::fs::fstatfs(file).ok().map(|s| s.f_type as u64 & 0xffff_ffff)
}

/// Whether the file has all its space already: on tmpfs the blocks are counted exactly, which saves
/// walking every page of a large store at open.
pub(crate) fn is_backed(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.blocks().saturating_mul(512) >= m.len())
}

/// The mount that `file` is on.
pub(crate) fn mount(file: &File) -> Option<Mount> {
    let device = file.metadata().ok()?.dev();
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    mount_of(&mountinfo, (rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Whether an advised mapping of a file on `mount` gets huge pages.
pub(crate) fn has_huge_pages(sysfs: &Sysfs, mount: Option<&Mount>) -> bool {
    match sysfs.huge_pages_of_shm().as_deref() {
        // No transparent huge pages in this kernel, or switched off for every tmpfs.
        None | Some("deny") => false,
        Some("force") => true,
        Some(_) => {
            matches!(mount.and_then(|m| m.huge.as_deref()), Some("always" | "within_size" | "advise"))
        }
    }
}

/// Backs `range` behind the end of the file, and maps it; on huge pages if `huge`.
///
/// # Errors
/// `OutOfSpace` when the tmpfs is full; the file is then as long as before.
pub(crate) fn extend(region: &Region, file: &File, path: &Path, range: Range<u64>, huge: bool) -> Result<()> {
    if !huge {
        return file::extend(region, file, path, range);
    }
    extend_huge(region, file, path, &range).inspect_err(|_| {
        region.unmap(range.clone());
        let _ = retry_on_intr(|| rustix::fs::ftruncate(file, range.start));
    })
}

fn extend_huge(region: &Region, file: &File, path: &Path, range: &Range<u64>) -> Result<()> {
    retry_on_intr(|| rustix::fs::ftruncate(file, range.end))
        .map_err(|errno| Error::os(format!("cannot lengthen {}", path.display()), errno))?;
    file::map(region, file.as_fd(), path, range.clone())?;
    // Both may be refused, by an old kernel or a full tmpfs: `back` decides.
    let _ = region.advise(range.clone(), Advice::LinuxHugepage);
    let _ = region.advise(range.clone(), Advice::LinuxPopulateWrite);
    file::back(file, path, range.clone())
}
