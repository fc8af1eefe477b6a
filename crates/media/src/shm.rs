//! Files on tmpfs: memory that outlives the process, not the power.
//!
//! Huge pages need care. tmpfs allocates them by itself only as its mount option `huge=` says, and by default never. A
//! process may ask for them in spite of the mount option (`MADV_COLLAPSE`, since Linux 6.1), for a huge page that
//! already has a small one. The kernel then takes a huge page, copies the small one into it, and maps it. With one
//! small page present, that takes a tenth of the time of faulting in all 512. So the order is: lengthen, map, touch the
//! first page of each huge page and ask, and at the end allocate. The allocation fills the rest, and guarantees that no
//! touch raises SIGBUS.

use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::topology::{Mount, Sysfs, mount_of};
use crate::{Error, ErrorKind, PAGE_BYTES, Result, file};
use rustix::fd::AsFd;
use rustix::io::retry_on_intr;
use rustix::mm::Advice;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `f_type` of tmpfs, as `linux/magic.h` has it.
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Whether `file` is on tmpfs.
pub(crate) fn is_tmpfs(file: &File) -> bool {
    file_system_magic(file) == Some(TMPFS_MAGIC)
}

/// Whether the file system of `file` keeps it in memory, so that it is lost with the power.
pub(crate) fn is_in_memory(file: &File) -> bool {
    matches!(file_system_magic(file), Some(TMPFS_MAGIC | RAMFS_MAGIC))
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

/// Whether tmpfs may have huge pages: this kernel knows them, and they are not switched off for all of it.
pub(crate) fn may_have_huge_pages(sysfs: &Sysfs) -> bool {
    sysfs.huge_pages_of_shm().is_some_and(|word| word != "deny")
}

/// Backs `range` after the end of the file, and maps it; with `huge`, on huge pages where the kernel gives them.
/// Returns whether it gave all that were asked for.
///
/// # Errors
/// `OutOfSpace` when the tmpfs is full; the file is then as long as before.
pub(crate) fn extend(
    region: &Region,
    file: &File,
    path: &Path,
    range: Range<u64>,
    huge: bool,
) -> Result<bool> {
    if !huge {
        return file::extend(region, file, path, range).map(|()| true);
    }
    let length_old = file::length(file, path, &range)?;
    extend_huge(region, file, path, &range).inspect_err(|_| {
        region.unmap(range.clone());
        file::cut_back(file, length_old);
    })
}

fn extend_huge(region: &Region, file: &File, path: &Path, range: &Range<u64>) -> Result<bool> {
    file::check_limit(path, range)?;
    retry_on_intr(|| rustix::fs::ftruncate(file, range.end))
        .map_err(|errno| Error::os(format!("cannot lengthen {}", path.display()), errno))?;
    file::map(region, file.as_fd(), path, range.clone())?;
    // All of this may be refused: by an old kernel, a full tmpfs, or for want of memory in one piece. `back` decides.
    let _ = region.advise(range.clone(), Advice::LinuxHugepage);
    let whole = range.start.next_multiple_of(HUGE_PAGE_BYTES)..range.end & !(HUGE_PAGE_BYTES - 1);
    // Asked for all at once: each call waits until every CPU has put its new pages on the kernel's lists, milliseconds
    // on a busy machine.
    let touched = whole
        .clone()
        .step_by(HUGE_PAGE_BYTES as usize)
        .all(|at| region.advise(at..at + PAGE_BYTES, Advice::LinuxPopulateWrite).is_ok());
    let given = whole.is_empty() || touched && region.collapse(whole).is_ok();
    if !given {
        // Huge ones where the mount gives them.
        let _ = region.advise(range.clone(), Advice::LinuxPopulateWrite);
    }
    file::back(file, path, range.clone())?;
    Ok(given)
}
