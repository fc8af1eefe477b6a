//! Files on DAX file systems: persistent memory without a page cache.
//!
//! `MAP_SYNC` is the kernel's promise that a block's metadata is durable before the first store to it
//! completes, so that flushing lines from user space is all that a store needs. Where the kernel does not
//! promise it, the file would be an ordinary one with another durability: that is an error, never a
//! silent change.

use crate::file;
use crate::region::Region;
use crate::topology;
use crate::{Error, ErrorKind, PAGE_BYTES, Result};
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether the kernel maps this file with `MAP_SYNC`. The file may be empty.
pub(crate) fn accepts_sync(file: &File) -> rustix::io::Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    // SAFETY: a new mapping at an address of the kernel's choice changes nothing that exists.
    let page = unsafe { mm::mmap(std::ptr::null_mut(), PAGE_BYTES as usize, protection, flags, file, 0) }?;
    // SAFETY: the mapping made just now, which nobody touched.
    let _ = unsafe { mm::munmap(page, PAGE_BYTES as usize) };
    Ok(())
}

/// Refuses a file that cannot be mapped with `MAP_SYNC`.
///
/// # Errors
/// `Unsupported`, naming the mount and its option.
pub(crate) fn check(file: &File, path: &Path) -> Result<()> {
    accepts_sync(file).map_err(|errno| refused(file, path, errno))
}

fn refused(file: &File, path: &Path, errno: Errno) -> Error {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = file.metadata().ok().and_then(|m| {
        topology::mount_of(&mountinfo, (rustix::fs::major(m.dev()), rustix::fs::minor(m.dev())))
    });
    let point = mount.map_or_else(|| "its mount point".to_owned(), |mount| mount.point);
    Error::with_source(
        ErrorKind::Unsupported,
        format!(
            "cannot open {} as fsdax: the kernel refuses to map it with MAP_SYNC, so its file system is not a DAX one; \
             mount it by \"mount -o dax DEVICE {point}\" (ext4 or xfs, on /dev/pmem in mode fsdax), or choose medium \"file\"",
            path.display()
        ),
        errno,
    )
}

/// Maps `range`, which is backed, with `MAP_SYNC`.
///
/// # Errors
/// What `mmap` refuses; `Unsupported` where that is `MAP_SYNC`.
pub(crate) fn map(region: &Region, file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
    region.map_file(range.clone(), file.as_fd(), flags).map_err(|errno| match errno {
        Errno::OPNOTSUPP | Errno::INVAL => refused(file, path, errno),
        _ => Error::os(
            format!("cannot map bytes {} to {} of {}", range.start, range.end, path.display()),
            errno,
        ),
    })
}

/// Backs `range` after the end of the file, and maps it.
///
/// # Errors
/// As [`file::back`] and [`map`]; the file is then as long as before.
pub(crate) fn extend(region: &Region, file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    let length_old = file::length(file, path, &range)?;
    file::back(file, path, range.clone())?;
    map(region, file, path, range).inspect_err(|_| file::cut_back(file, length_old))
}
