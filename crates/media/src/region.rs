//! A range of addresses, reserved once and filled piece by piece.
//!
//! Invariants:
//!
//! 1. The range `[base, base + reserved)` belongs to this `Region` from `reserve` to drop. Everything
//!    mapped into it lies inside it, so `MAP_FIXED` replaces nothing of anybody else.
//! 2. A piece that was handed out (its end is at or below the medium's length) is never mapped over,
//!    protected or unmapped before drop.
//! 3. `base` is a multiple of the alignment asked for, and that is a multiple of the page, so an
//!    offset is aligned in memory as it is on the medium.
//! 4. Addresses that are reserved and not mapped fault when touched: nothing is there by accident. (No line can check
//!    it without the fault; the medium's length is asserted to end where the mappings do.)

use crate::error::bytes_text;
use crate::{Error, ErrorKind, PAGE_BYTES, Result};
use rustix::fd::BorrowedFd;
use rustix::mm::{self, Advice, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The size of a huge page on x86-64 and on AArch64 with 4 KiB pages.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Addresses that belong to one medium.
#[derive(Debug)]
pub(crate) struct Region {
    base: *mut u8,
    // Not beside the base, which every access reads.
    ends: Box<Ends>,
}

/// Where parts of a region end.
#[derive(Debug)]
struct Ends {
    reserved: u64,
    /// Everything below is mapped.
    mapped: AtomicU64,
    /// Everything below was handed out.
    handed_out: AtomicU64,
}

// SAFETY: a `Region` is a range of addresses (invariant 1) without any thread's state; `Mapped` decides how the bytes
// may be accessed.
unsafe impl Send for Region {}
// SAFETY: as for `Send`; the fields that methods change are atomics.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `bytes` addresses (a multiple of the page), aligned to `align` (a power of two, a
    /// multiple of the page).
    ///
    /// # Errors
    /// `OutOfSpace` when the process may not have so much address space.
    pub(crate) fn reserve(bytes: u64, align: u64) -> Result<Self> {
        assert!(align.is_power_of_two() && align >= PAGE_BYTES, "alignment {align:#x} of a region");
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE_BYTES), "length {bytes:#x} of a region");
        let refused = |source| {
            Error::with_source(
                ErrorKind::OutOfSpace,
                format!(
                    "cannot reserve {} of address space (no memory is used by that); \
                     lower len_max or raise the limit on virtual memory (ulimit -v)",
                    bytes_text(bytes)
                ),
                source,
            )
        };
        // A mapping is aligned to a page only: reserve more and give back both ends.
        let wide = bytes.checked_add(align).ok_or_else(|| refused(rustix::io::Errno::NOMEM))?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice changes nothing that exists.
        let start =
            unsafe { mm::mmap_anonymous(std::ptr::null_mut(), wide as usize, ProtFlags::empty(), flags) }
                .map_err(refused)?
                .cast::<u8>();
        let head = (align - start as u64 % align) % align;
        let base = start.wrapping_add(head as usize);
        if head > 0 {
            // SAFETY: the head of the mapping made just now, of which nothing was handed out.
            let _ = unsafe { mm::munmap(start.cast(), head as usize) };
        }
        let tail = align - head;
        // SAFETY: the tail of the same mapping: `head + bytes + tail` is its length.
        let _ = unsafe { mm::munmap(base.wrapping_add(bytes as usize).cast(), tail as usize) };
        assert!((base as u64).is_multiple_of(align), "base {base:?} is aligned to {align:#x} (invariant 3)");
        let ends = Ends { reserved: bytes, mapped: AtomicU64::new(0), handed_out: AtomicU64::new(0) };
        Ok(Self { base, ends: Box::new(ends) })
    }

    /// Where offset 0 is.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Addresses reserved: the most the medium can grow to.
    pub(crate) fn reserved(&self) -> u64 {
        self.ends.reserved
    }

    /// The owner shows others the mapped bytes below `end`: from now on they stay as they are (invariant 2).
    pub(crate) fn hand_out(&self, end: u64) {
        let mapped = self.ends.mapped.load(Relaxed);
        assert!(end <= mapped, "{end:#x} bytes are handed out, of {mapped:#x} that are mapped (invariant 4)");
        let before = self.ends.handed_out.fetch_max(end, Relaxed);
        assert!(before <= end, "{before:#x} bytes were handed out, now {end:#x} (invariant 2)");
    }

    /// Asserts that nothing of `range` was handed out (invariant 2).
    fn check_own(&self, range: &Range<u64>) {
        let handed_out = self.ends.handed_out.load(Relaxed);
        assert!(
            range.start >= handed_out,
            "the mapping of {range:#x?} would change, of which {handed_out:#x} bytes were handed out (invariant 2)"
        );
    }

    fn note_mapped(&self, range: &Range<u64>) {
        // A piece after a gap does not count: what is handed out has none.
        if range.start <= self.ends.mapped.load(Relaxed) {
            self.ends.mapped.fetch_max(range.end, Relaxed);
        }
    }

    /// Maps `range` of `file`, at the same offsets, for reading and writing.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn map_file(
        &self,
        range: Range<u64>,
        file: BorrowedFd<'_>,
        flags: MapFlags,
    ) -> rustix::io::Result<()> {
        let (start, bytes) = self.piece(&range);
        self.check_own(&range);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: `piece` checked that the range is inside the region (invariant 1), and `check_own` that it was not
        // handed out yet (invariant 2).
        unsafe { mm::mmap(start, bytes, protection, flags | MapFlags::FIXED, file, range.start) }?;
        self.note_mapped(&range);
        Ok(())
    }

    /// Maps fresh zeroed memory at `range`.
    ///
    /// # Errors
    /// Those of `mmap`.
    pub(crate) fn map_memory(&self, range: Range<u64>) -> rustix::io::Result<()> {
        let (start, bytes) = self.piece(&range);
        self.check_own(&range);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map_file`: invariants 1 and 2.
        unsafe { mm::mmap_anonymous(start, bytes, protection, MapFlags::PRIVATE | MapFlags::FIXED) }?;
        self.note_mapped(&range);
        Ok(())
    }

    /// Takes back a `range` that was mapped and not handed out, and keeps its addresses reserved.
    pub(crate) fn unmap(&self, range: Range<u64>) {
        let (start, bytes) = self.piece(&range);
        self.check_own(&range);
        self.ends.mapped.fetch_min(range.start, Relaxed);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: inside the region (invariant 1), never handed out (invariant 2). When it fails the
        // old piece stays, which nobody can reach and the next growth replaces.
        let _ = unsafe { mm::mmap_anonymous(start, bytes, ProtFlags::empty(), flags) };
    }

    /// Advises the kernel about a mapped `range`. Only advice that keeps content is to be given.
    ///
    /// # Errors
    /// Those of `madvise`.
    pub(crate) fn advise(&self, range: Range<u64>, advice: Advice) -> rustix::io::Result<()> {
        assert!(
            matches!(
                advice,
                Advice::Random
                    | Advice::WillNeed
                    | Advice::LinuxHugepage
                    | Advice::LinuxPopulateRead
                    | Advice::LinuxPopulateWrite
            ),
            "advice {advice:?} may change content"
        );
        let (start, bytes) = self.piece(&range);
        // SAFETY: inside the region (invariant 1); the advice changes no content (checked above).
        rustix::io::retry_on_intr(|| unsafe { mm::madvise(start, bytes, advice) })
    }

    /// Takes the pages of a `range` of mapped memory away: it then reads as zero.
    pub(crate) fn clear_memory(&self, range: &Range<u64>) {
        let (start, bytes) = self.piece(range);
        // SAFETY: inside the region (invariant 1). The caller says that nobody uses the content; memory stays mapped.
        let _ = unsafe { mm::madvise(start, bytes, Advice::LinuxDontNeed) };
    }

    /// Puts a mapped `range` of whole huge pages on huge pages, now. Its content stays; parts without content are
    /// zeroed.
    ///
    /// # Errors
    /// Those of `madvise`: `INVAL` from kernels that cannot (before Linux 6.1 for files), and for a huge page with no
    /// page in memory yet.
    pub(crate) fn collapse(&self, range: Range<u64>) -> rustix::io::Result<()> {
        let (start, bytes) = self.piece(&range);
        // By `libc`, since `rustix` does not know this advice.
        rustix::io::retry_on_intr(|| {
            // SAFETY: inside the region (invariant 1); the advice keeps content.
            match unsafe { libc::madvise(start, bytes, libc::MADV_COLLAPSE) } {
                0 => Ok(()),
                _ => Err(last_error()),
            }
        })
    }

    /// Which pages of a mapped `range` are in memory: the lowest bit of each byte of `found`.
    ///
    /// # Errors
    /// Those of `mincore`.
    pub(crate) fn in_memory(&self, range: &Range<u64>, found: &mut Vec<u8>) -> rustix::io::Result<()> {
        let (start, bytes) = self.piece(range);
        found.clear();
        found.resize(bytes / PAGE_BYTES as usize, 0);
        // By `libc`, since `rustix` does not have this call.
        // SAFETY: inside the region (invariant 1); `found` has a byte for each page.
        match unsafe { libc::mincore(start, bytes, found.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(last_error()),
        }
    }

    fn piece(&self, range: &Range<u64>) -> (*mut c_void, usize) {
        assert!(
            range.start < range.end
                && range.end <= self.ends.reserved
                && range.start.is_multiple_of(PAGE_BYTES)
                && range.end.is_multiple_of(PAGE_BYTES),
            "piece {range:#x?} of a region of {:#x} bytes (invariant 1)",
            self.ends.reserved
        );
        (self.base.wrapping_add(range.start as usize).cast(), (range.end - range.start) as usize)
    }
}

/// The error of the last call by `libc`.
fn last_error() -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(rustix::io::Errno::INVAL)
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the whole range is ours (invariant 1). No pointer into it is left when the region is dropped, since
        // pointers are valid only while the medium is open.
        let _ = unsafe { mm::munmap(self.base.cast(), self.ends.reserved as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_its_ends_are_given_back() {
        for align in [PAGE_BYTES, HUGE_PAGE_BYTES, 1 << 30] {
            let region = Region::reserve(3 * PAGE_BYTES, align).unwrap();
            assert_eq!(region.base() as u64 % align, 0);
        }
        // Thousands of reservations would run out of address space if the ends were kept.
        for _ in 0..10_000 {
            Region::reserve(1 << 30, 1 << 30).unwrap();
        }
    }

    #[test]
    fn a_reservation_above_the_address_space_says_what_to_lower() {
        let error = Region::reserve(1 << 60, PAGE_BYTES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert!(error.to_string().contains("len_max"), "{error}");
    }

    #[test]
    #[should_panic(expected = "of a region")]
    fn a_range_outside_the_region_panics() {
        let region = Region::reserve(PAGE_BYTES, PAGE_BYTES).unwrap();
        let _ = region.map_memory(0..2 * PAGE_BYTES);
    }
}
