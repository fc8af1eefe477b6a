//! Memory that the kernel may page out: a file without a name, mapped whole. Or that of the process, on huge pages.
//!
//! Invariants:
//!
//! 1. The file has no name and one owner: nobody else reads, writes or truncates it, so its bytes change through the
//!    one [`Scratch`] alone.
//! 2. All of a file is backed before it is mapped: touching it never raises SIGBUS for lack of space.
//! 3. The mapping begins at the region's base and stays there until drop.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mm::{Advice, MapFlags};

use crate::error::bytes_text;
use crate::fault::Named;
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::{Error, PAGE_BYTES, Result, file};

/// Zeroed memory on a file in a directory. It ends with the process, and counts as page cache: under memory pressure
/// the kernel writes it out, and reads it again when it is touched.
#[derive(Debug)]
pub struct Scratch {
    // Before the addresses become somebody else's.
    _named: Option<Named>,
    region: Region,
    bytes: usize,
}

/// Memory of the process may become so many times as long without moving: addresses cost nothing.
const GROWTH: u64 = 16;

impl Scratch {
    /// What [`Scratch::in_memory`] and [`Scratch::grow`] round up to.
    pub const HUGE_PAGE: usize = HUGE_PAGE_BYTES as usize;

    /// At least so many bytes, in whole pages.
    ///
    /// # Errors
    /// * `Unsupported`: the file system has no files without names.
    /// * `OutOfSpace`, `PermissionDenied`, `NotFound`, `Io`: as the operating system says.
    pub fn new(directory: &Path, bytes: usize) -> Result<Self> {
        let bytes = (bytes as u64).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let refused = |errno| {
            let what = format!("cannot make {} of memory in {}", bytes_text(bytes), directory.display());
            Error::os(what, errno)
        };
        let mode = Mode::RUSR | Mode::WUSR;
        let held = File::from(rustix::fs::open(directory, flags, mode).map_err(refused)?);
        // In debug builds only: the file system may say what it likes.
        debug_assert!(held.metadata().map_or(true, |found| found.nlink() == 0), "no name (invariant 1)");
        file::back(&held, directory, 0..bytes)?;
        debug_assert!(
            held.metadata().map_or(true, |found| found.len() >= bytes),
            "{bytes:#x} bytes are backed before they are mapped (invariant 2)"
        );
        let region = Region::reserve(bytes, PAGE_BYTES)?;
        // The mapping keeps the file; the descriptor may go.
        region.map_file(0..bytes, std::os::fd::AsFd::as_fd(&held), MapFlags::SHARED).map_err(refused)?;
        region.hand_out(bytes);
        // Accesses are random, so reading ahead would only evict other pages. A hint.
        let _ = region.advise(0..bytes, Advice::Random);
        let _named = Some(Named::new(region.base() as u64, bytes, directory));
        Ok(Self { _named, region, bytes: bytes as usize })
    }

    /// At least so many bytes of anonymous memory, in whole huge pages where the system gives them. Only touched pages
    /// take memory.
    ///
    /// # Errors
    /// `OutOfSpace`: there are no more addresses, or the kernel commits no more memory.
    pub fn in_memory(bytes: usize) -> Result<Self> {
        let bytes = (bytes as u64).next_multiple_of(HUGE_PAGE_BYTES).max(HUGE_PAGE_BYTES);
        let region = Region::reserve(bytes * GROWTH, HUGE_PAGE_BYTES)?;
        let mut scratch = Self { _named: None, region, bytes: 0 };
        scratch.map(bytes)?;
        Ok(scratch)
    }

    /// Makes it at least so long without moving it; whether it is now. A file never is.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let bytes = (bytes as u64).next_multiple_of(HUGE_PAGE_BYTES);
        bytes <= self.bytes as u64 || (bytes <= self.region.reserved() && self.map(bytes).is_ok())
    }

    fn map(&mut self, bytes: u64) -> Result<()> {
        let added = self.bytes as u64..bytes;
        self.region.map_memory(added.clone()).map_err(|errno| {
            Error::os(
                format!("cannot have {} of memory: the kernel commits no more", bytes_text(bytes)),
                errno,
            )
        })?;
        // Which asserts that nothing below has moved (invariant 3).
        self.region.hand_out(bytes);
        // Refused where huge pages are not configured: small ones work too.
        let _ = self.region.advise(added, Advice::LinuxHugepage);
        self.bytes = bytes as usize;
        Ok(())
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped from `new` to drop and written through `&mut self` alone (invariant 1).
        unsafe { std::slice::from_raw_parts(self.region.base(), self.bytes) }
    }

    /// All of it, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` is the only access there is.
        unsafe { std::slice::from_raw_parts_mut(self.region.base(), self.bytes) }
    }

    /// All of it as words of 8 bytes.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        // SAFETY: as in `bytes`; the region begins at a page, and any bits are a `u64`.
        unsafe { std::slice::from_raw_parts(self.region.base().cast(), self.bytes / 8) }
    }

    /// All of it as words of 8 bytes, to be written.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` is the only access there is.
        unsafe { std::slice::from_raw_parts_mut(self.region.base().cast(), self.bytes / 8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn scratch_memory_is_zeroed_has_no_name_and_keeps_what_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::new(directory.path(), 5000).unwrap();
        assert_eq!(scratch.bytes().len() as u64, 2 * PAGE_BYTES);
        assert!(scratch.bytes().iter().all(|byte| *byte == 0));
        scratch.words_mut()[1] = 0x0102;
        assert_eq!(scratch.bytes()[8..10], [2, 1]);
        scratch.bytes_mut()[9] = 3;
        assert_eq!(scratch.words()[1], 0x0302);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_grows_where_it_lies_and_keeps_what_it_has() {
        let mut scratch = Scratch::in_memory(1).unwrap();
        assert_eq!(scratch.bytes().len() as u64, HUGE_PAGE_BYTES);
        let (begins, last) = (scratch.bytes().as_ptr(), scratch.bytes().len() - 1);
        scratch.bytes_mut()[last] = 7;
        assert!(scratch.grow(last + 2));
        assert_eq!(scratch.bytes()[last..last + 2], [7, 0]);
        assert_eq!((scratch.bytes().as_ptr(), scratch.bytes().len()), (begins, 2 * (last + 1)));
        assert!(!scratch.grow(usize::MAX / 2), "no more than was reserved");
        assert!(!Scratch::new(Path::new("/tmp"), 1).unwrap().grow(1 << 30));
    }

    #[test]
    fn scratch_memory_is_refused_where_there_is_no_directory() {
        let directory = tempfile::tempdir().unwrap();
        let error = Scratch::new(&directory.path().join("none"), 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
