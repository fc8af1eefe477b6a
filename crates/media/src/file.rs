//! Files: space that is really there, and the mapping of ordinary files through the page cache.
//!
//! A store into a mapped file whose block was never allocated can raise SIGBUS when the disk is
//! full, long after growth succeeded. So space is allocated before it is mapped, and holes that are
//! found at open are filled. Where a file system copies on write (btrfs, ZFS, XFS with shared
//! extents) allocation cannot promise that; new files on btrfs are therefore marked `nocow`.
//!
//! The first write-back of allocated space is expensive: the file system must note in its journal that the space now
//! has data, so a sync of one page waits for two more writes. Read-ahead adds a second cost: it brings neighbouring
//! pages into the page cache as one folio, and storing to one of them writes back all of them. [`prepare`] avoids both.
//!
//! Invariants:
//!
//! 1. Every byte of the file below the medium's length has space, which is allocated before that length is stored.
//! 2. A failed growth leaves the file as long as it was.

use crate::error::bytes_text;
use crate::persist::page::{self, Syncs};
use crate::region::Region;
use crate::{Error, ErrorKind, PAGE_BYTES, Result};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FallocateFlags, FileType, IFlags, SeekFrom, Stat};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::MapFlags;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// Zeroes written at a time where the file system cannot allocate without writing. 1 MiB: large enough that the cost of
/// the system call is negligible beside the copy.
const ZEROES_BYTES: u64 = 1 << 20;

/// Space that is prepared between two syncs. 256 KiB: a sync of others that comes meanwhile waits for some 0.3 ms more.
const PREPARED_BYTES: u64 = 256 << 10;

/// Allocates `range` of `file`, which makes it at least `range.end` long and keeps its content. On
/// failure the length is what it was.
///
/// # Errors
/// `OutOfSpace` when the file system, a quota or the largest file is full.
pub(crate) fn back(file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    let length_old = length(file, path, &range)?;
    if range.end > length_old {
        check_limit(path, &range)?;
    }
    let bytes = range.end - range.start;
    let flags = FallocateFlags::empty();
    let outcome = match retry_on_intr(|| rustix::fs::fallocate(file, flags, range.start, bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeroes(file, length_old, range.end),
        outcome => outcome,
    };
    outcome.map_err(|errno| {
        // A file system may have allocated a part and set the length to its end.
        cut_back(file, length_old);
        cannot_back(path, &range, errno)
    })?;
    // In debug builds only: another process may truncate the file meanwhile.
    debug_assert!(reaches(file.as_fd(), range.end), "space to {:#x} is allocated (invariant 1)", range.end);
    Ok(())
}

/// Whether the file is at least `end` long, or does not say how long it is, as a device does not.
fn reaches(file: BorrowedFd<'_>, end: u64) -> bool {
    let is_device = |found: &Stat| FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
    rustix::fs::fstat(file).map_or(true, |found| found.st_size as u64 >= end || is_device(&found))
}

/// Takes the space of `range` of `file` away, where the file system can: it then reads as zero.
pub(crate) fn punch(file: &File, range: &Range<u64>) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = retry_on_intr(|| rustix::fs::fallocate(file, flags, range.start, range.end - range.start));
}

/// The parts of `range` of `file` that have data, or may have. Reading the others would take memory for them.
pub(crate) fn with_data(file: &File, range: Range<u64>) -> Vec<Range<u64>> {
    let (mut parts, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            // Unknown: as if all had data.
            Err(_) => at,
        };
        if from >= range.end {
            break;
        }
        let to = rustix::fs::seek(file, SeekFrom::Hole(from)).unwrap_or(range.end);
        let part = from & !(PAGE_BYTES - 1)..to.next_multiple_of(PAGE_BYTES).min(range.end);
        at = part.end;
        parts.push(part);
    }
    parts
}

/// The length of the file before a growth to `range`, for [`cut_back`] if that fails.
///
/// # Errors
/// As the operating system says.
pub(crate) fn length(file: &File, path: &Path, range: &Range<u64>) -> Result<u64> {
    Ok(file.metadata().map_err(|e| cannot_back(path, range, e))?.len())
}

/// Gives back what a growth that failed has added to the file.
pub(crate) fn cut_back(file: &File, length_old: u64) {
    debug_assert!(reaches(file.as_fd(), length_old), "only what was added is cut off (invariant 2)");
    let _ = retry_on_intr(|| rustix::fs::ftruncate(file, length_old));
}

fn cannot_back(path: &Path, range: &Range<u64>, source: impl Into<std::io::Error>) -> Error {
    Error::os(
        format!(
            "cannot allocate bytes {} to {} of {} ({} more); free space or enlarge its file system",
            range.start,
            range.end,
            path.display(),
            bytes_text(range.end - range.start)
        ),
        source,
    )
}

/// Returns an error where the limit on file sizes would be exceeded. The kernel would also send SIGXFSZ, which by
/// default ends the process without a message.
///
/// # Errors
/// `OutOfSpace`, naming the limit.
pub(crate) fn check_limit(path: &Path, range: &Range<u64>) -> Result<()> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if range.end > limit => Err(Error::os(
            format!(
                "cannot allocate bytes {} to {} of {}: this process may make files of at most {}; raise that limit (ulimit -f; \
                 LimitFSIZE in a unit of systemd) and start it again",
                range.start,
                range.end,
                path.display(),
                bytes_text(limit)
            ),
            Errno::FBIG,
        )),
        _ => Ok(()),
    }
}

/// Makes the file `end` long by appending zeroes. Holes below the old end stay: the file systems that need this
/// (network and very old ones) do not report where they are.
fn write_zeroes(file: &File, length_old: u64, end: u64) -> rustix::io::Result<()> {
    let zeroes = vec![0u8; ZEROES_BYTES.min(end.saturating_sub(length_old)) as usize];
    let mut at = length_old;
    while at < end {
        let piece = zeroes.get(..(end - at).min(ZEROES_BYTES) as usize).unwrap_or(&zeroes);
        let written = retry_on_intr(|| rustix::io::pwrite(file, piece, at))?;
        if written == 0 {
            return Err(Errno::NOSPC);
        }
        at += written as u64;
    }
    Ok(())
}

/// Writes zeroes to `range`, page by page, and waits for the device. Then the kernel keeps each page in its own folio,
/// and the file system knows that the space has data. A page that cannot be written is skipped; that costs only time
/// later.
///
/// # Errors
/// As [`page::sync`].
pub(crate) fn prepare(file: &File, path: &Path, range: Range<u64>, syncs: &Syncs) -> Result<()> {
    const ZEROES: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];
    let mut at = range.start;
    while at < range.end {
        let end = (at + PREPARED_BYTES).min(range.end);
        while at < end {
            let page_end = (at + 1).next_multiple_of(PAGE_BYTES).min(end);
            let piece = &ZEROES[..(page_end - at) as usize];
            if retry_on_intr(|| rustix::io::pwrite(file, piece, at)).is_err() {
                return Ok(());
            }
            at = page_end;
        }
        syncs.run(|| page::sync(file.as_fd(), path))?;
    }
    Ok(())
}

/// Writes zeroes to the pages from `from` on whose byte in `in_memory` says that they are not in memory. The kernel then
/// needs not read them before they are stored to. A page that cannot be written is skipped; that costs only time later.
pub(crate) fn zero_missing(file: &File, from: u64, in_memory: &[u8]) {
    static ZEROES: [u8; 16 * PAGE_BYTES as usize] = [0; 16 * PAGE_BYTES as usize];
    let mut at = from;
    for run in in_memory.chunk_by(|a, b| a & 1 == b & 1) {
        let end = at + run.len() as u64 * PAGE_BYTES;
        while run[0] & 1 == 0 && at < end {
            let piece = &ZEROES[..(end - at).min(ZEROES.len() as u64) as usize];
            match retry_on_intr(|| rustix::io::pwrite(file, piece, at)) {
                Ok(written) if written > 0 => at += written as u64,
                _ => break,
            }
        }
        at = end;
    }
}

/// Reads `into` from `from` on, and lets the pages go that the kernel read for it. Returns whether all could be read.
pub(crate) fn read_once(file: &File, from: u64, into: &mut [u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let is_read = file.read_exact_at(into, from).is_ok();
    let bytes = std::num::NonZeroU64::new(into.len() as u64);
    let _ = rustix::fs::fadvise(file, from, bytes, rustix::fs::Advice::DontNeed);
    is_read
}

/// Whether the kernel proves that nothing was ever stored to the file: it is empty, or has space
/// without data. A false answer proves nothing.
pub(crate) fn is_blank(file: &File, length: u64) -> bool {
    length == 0 || matches!(rustix::fs::seek(file, SeekFrom::Data(0)), Err(Errno::NXIO))
}

/// Asks a file system that copies on write not to do so with this empty file. Only btrfs knows the
/// flag, and it takes it only while the file is empty; refusal changes nothing.
pub(crate) fn keep_in_place(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        let _ = rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Makes a new file's length, and its name in its directory, survive a power failure.
///
/// # Errors
/// `Io` when the device fails.
pub(crate) fn make_durable(file: &File, path: &Path) -> Result<()> {
    let failed = |source: std::io::Error| {
        Error::with_source(
            ErrorKind::Io,
            format!("cannot make the new file {} durable", path.display()),
            source,
        )
    };
    file.sync_all().map_err(failed)?;
    match File::open(directory_of(path)).and_then(|d| d.sync_all()) {
        // Some file systems do not sync directories, others do not let them be read.
        Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::INVAL | Errno::ACCESS)) => Ok(()),
        outcome => outcome.map_err(failed),
    }
}

/// Maps `range`, which is backed, through the page cache.
///
/// # Errors
/// What `mmap` refuses, with its kind.
pub(crate) fn map(region: &Region, file: BorrowedFd<'_>, path: &Path, range: Range<u64>) -> Result<()> {
    map_with(region, file, path, range, MapFlags::SHARED)
}

fn map_with(
    region: &Region,
    file: BorrowedFd<'_>,
    path: &Path,
    range: Range<u64>,
    flags: MapFlags,
) -> Result<()> {
    // The last page of a file is mapped whole.
    debug_assert!(
        reaches(file, range.end - (PAGE_BYTES - 1)),
        "a mapping to {:#x} goes beyond the file (invariant 1)",
        range.end
    );
    region.map_file(range.clone(), file, flags).map_err(|errno| {
        Error::os(format!("cannot map bytes {} to {} of {}", range.start, range.end, path.display()), errno)
    })
}

/// Maps `range` privately: stores to it stay in this process.
///
/// # Errors
/// As [`map`].
pub(crate) fn map_private(
    region: &Region,
    file: BorrowedFd<'_>,
    path: &Path,
    range: Range<u64>,
) -> Result<()> {
    // Without a reservation: of a file larger than memory few pages are stored to.
    map_with(region, file, path, range, MapFlags::PRIVATE | MapFlags::NORESERVE)
}

/// Backs `range` after the end of the file, and maps it.
///
/// # Errors
/// As [`back`] and [`map`]; the file is then as long as before.
pub(crate) fn extend(region: &Region, file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    let length_old = length(file, path, &range)?;
    back(file, path, range.clone())?;
    map(region, file.as_fd(), path, range).inspect_err(|_| cut_back(file, length_old))
}

/// The directory that holds `path`.
pub(crate) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn a_file_is_blank_until_a_byte_is_stored() {
        for directory in ["/dev/shm", "."] {
            let file = tempfile::tempfile_in(directory).unwrap();
            assert!(is_blank(&file, 0));
            back(&file, Path::new("x"), 0..1 << 20).unwrap();
            assert!(is_blank(&file, 1 << 20), "allocated and never written, in {directory}");
            file.write_at(b"x", 500_000).unwrap();
            assert!(!is_blank(&file, 1 << 20), "written, in {directory}");
        }
    }

    #[test]
    fn prepared_space_is_zero_and_known_to_have_data() {
        let file = tempfile::tempfile_in(".").unwrap();
        back(&file, Path::new("x"), 0..1 << 20).unwrap();
        let range = 5000..PREPARED_BYTES * 2 + 77;
        prepare(&file, Path::new("x"), range.clone(), &Syncs::default()).unwrap();
        // The page that the range begins in is written whole.
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap(), 4096);
        let hole = range.end.next_multiple_of(4096);
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(4096)).unwrap(), hole);
        let mut bytes = vec![1; (hole - 4096) as usize];
        file.read_exact_at(&mut bytes, 4096).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0));
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    }

    #[test]
    fn zeroes_are_written_where_allocation_is_unknown() {
        let file = tempfile::tempfile_in(".").unwrap();
        file.write_at(b"kept", 0).unwrap();
        write_zeroes(&file, 4, 3 * ZEROES_BYTES + 5).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 * ZEROES_BYTES + 5);
        let mut head = [1u8; 8];
        file.read_exact_at(&mut head, 0).unwrap();
        assert_eq!(&head, b"kept\0\0\0\0");
    }
}
