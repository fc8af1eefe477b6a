//! The mapped medium: one struct for every kind, so that the hot path is the same code for all.
//!
//! Invariants (those of the crate, as this file keeps them):
//!
//! 1. Every access goes through `place`, which asserts that it lies below the length.
//! 2. `len` is stored (release) only after the region up to it is backed and mapped, and only grows.
//! 3. `growth` is held to change the file's length or the region's mappings. (No line checks it: `set_len`, without which
//!    a change has no effect, takes the guard.)
//! 4. Memory is read and written by plain copies and by atomics of aligned words, through pointers;
//!    no reference to it is made outside [`Bytes::bytes`]. (The alignment is asserted. No line can check which
//!    references exist: the callers of `bytes` say in their `SAFETY` notes why nothing is stored meanwhile.)

use crate::error::bytes_text;
use crate::fault::Named;
use crate::lock::Owned;
use crate::medium::load_words;
use crate::options::MediumKind;
use crate::persist::page::{self, Syncs};
use crate::persist::{self, FlushInstruction, Persist};
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::topology::{NdRegion, PersistenceDomain, Sysfs};
use crate::{Bytes, Device, Error, ErrorKind, Granularity, Offset, PAGE_BYTES, Persistent, Result};
use crate::{devdax, file, fsdax, shm, volatile};
use rustix::fd::AsFd;
use rustix::mm::Advice;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

mod open;

/// The kernel reads ahead at most `read_ahead_kb` of the device for each call, which is 128 KiB by default.
const READ_AHEAD_BYTES: u64 = 128 << 10;

/// In a range of this length parts without space are looked for before it is mapped: tmpfs would give them some.
const HOLES_BYTES_MIN: u64 = 64 << 10;

// 1024: the most devices any platform interleaves is 16; far above it is a slip of the keyboard.
const WAYS_MAX: u32 = 1024;

/// A medium that is mapped into memory. Dropping it unmaps and unlocks it, and makes nothing durable.
#[derive(Debug)]
pub struct Mapped {
    // Before the addresses become somebody else's.
    _named: Named,
    // Next, so that it is unmapped before the file is closed and its lock released.
    region: Region,
    len: AtomicU64,
    /// How stores leave the cache.
    persist: Persist,
    /// Whether they must, to survive.
    granularity: Granularity,
    growth: Mutex<()>,
    backing: Backing,
    path: PathBuf,
    /// The same, wherever the process goes.
    path_absolute: PathBuf,
    is_new: bool,
    huge_pages: bool,
    prefault: bool,
    fault_later: bool,
    back_later: bool,
    stripe_bytes: u64,
    ways: u32,
}

/// What backs the region. The open files also hold the lock.
#[derive(Debug)]
enum Backing {
    Devdax {
        file: Owned,
        device: devdax::Device,
    },
    Fsdax {
        file: Owned,
        region: Option<NdRegion>,
    },
    /// `huge`: whether to ask for huge pages; `refused`: the last growth was not given all of them.
    Shm {
        file: Owned,
        huge: bool,
        refused: AtomicBool,
    },
    /// `is_in_memory`: its file system loses it with the power. `is_device`: a block device, which is used whole.
    File {
        is_in_memory: bool,
        is_device: bool,
        file: Owned,
        syncs: Syncs,
    },
    /// A file of any kind that is opened read-only: stores to it stay in this process.
    Private {
        file: Owned,
        kind: MediumKind,
    },
    Volatile,
}

impl Backing {
    /// The open succeeded: a file that it made is to stay.
    fn keep(&mut self) {
        match self {
            Self::Devdax { file, .. }
            | Self::Fsdax { file, .. }
            | Self::Shm { file, .. }
            | Self::Private { file, .. }
            | Self::File { file, .. } => file.keep(),
            Self::Volatile => {}
        }
    }
}

impl Mapped {
    /// A page that is not in memory is read alone, and not with as many around it as the device's read-ahead says:
    /// these are other keys'.
    fn advise_random(&self, range: Range<u64>) {
        if self.may_be_cold() {
            let _ = self.region.advise(range, Advice::Random);
        }
    }

    fn growing(&self) -> MutexGuard<'_, ()> {
        self.growth.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the bytes below `len`, which are backed and mapped, the medium's (invariants 2 and 3).
    fn set_len(&self, len: u64, _growth: &MutexGuard<'_, ()>) {
        let now = self.len.load(Ordering::Relaxed);
        assert!(now <= len, "a medium of {now:#x} bytes does not shrink to {len:#x} (invariant 2)");
        self.region.hand_out(len.next_multiple_of(PAGE_BYTES));
        self.len.store(len, Ordering::Release);
    }

    fn fault_in_at_open(&self, range: Range<u64>) {
        if !self.fault_later {
            self.fault_in_range(range);
        }
    }

    /// Faults in the pages of a mapped range where that was asked for. A hint: what it fails to bring in
    /// comes at first touch.
    fn fault_in_range(&self, range: Range<u64>) {
        if !self.prefault {
            return;
        }
        let advice = match self.backing {
            // Writing would make every page dirty, or this process's own.
            Backing::File { .. } | Backing::Private { .. } => Advice::LinuxPopulateRead,
            _ => Advice::LinuxPopulateWrite,
        };
        let _ = self.region.advise(range, advice);
    }

    /// The mapped pages that hold any of the `bytes` bytes at `at`.
    fn pages_of(&self, at: Offset, bytes: u64) -> Range<u64> {
        let from = at.0 & !(PAGE_BYTES - 1);
        from..(at.0 + bytes).next_multiple_of(PAGE_BYTES).min(self.len().next_multiple_of(PAGE_BYTES))
    }

    /// Whether pages may have to be read from a device.
    fn may_be_cold(&self) -> bool {
        matches!(self.backing, Backing::File { is_in_memory: false, .. } | Backing::Private { .. })
    }

    /// The file that has the space of the medium, if it is one that can be given back in parts.
    fn sparse_file(&self) -> Option<&File> {
        match &self.backing {
            Backing::File { file, is_device: false, .. }
            | Backing::Shm { file, .. }
            | Backing::Fsdax { file, .. } => Some(file),
            Backing::File { .. } | Backing::Devdax { .. } | Backing::Private { .. } | Backing::Volatile => {
                None
            }
        }
    }

    /// The parts of a range that have space, where some may have none.
    fn parts_to_read(&self, pages: Range<u64>) -> Vec<Range<u64>> {
        match self.sparse_file() {
            Some(file) if self.back_later && pages.end - pages.start >= HOLES_BYTES_MIN => {
                file::with_data(file, pages)
            }
            _ => vec![pages],
        }
    }

    /// The whole pages in a range.
    fn whole_pages(&self, at: Offset, bytes: u64) -> Range<u64> {
        self.place(at, bytes);
        at.0.next_multiple_of(PAGE_BYTES)..(at.0 + bytes) & !(PAGE_BYTES - 1)
    }

    /// The file whose pages are read from a device when they are not in memory.
    fn device_file(&self) -> Option<&File> {
        match &self.backing {
            Backing::File { is_in_memory: false, file, .. } => Some(file),
            _ => None,
        }
    }

    /// Begins to read the pages of `range` that are not in memory. Mapped files are advised as random: without this
    /// each page would be read by itself.
    fn read_ahead(&self, range: &Range<u64>) {
        if self.may_be_cold() {
            let mut from = range.start;
            while from < range.end {
                let end = (from + READ_AHEAD_BYTES).min(range.end);
                let _ = self.region.advise(from..end, Advice::WillNeed);
                from = end;
            }
        }
    }

    /// Adds to `found` which pages of `range` cannot be faulted in. The kernel says so without a signal
    /// (Linux 5.14 and later; before, nothing is known): EFAULT where an access would raise SIGBUS, EHWPOISON for
    /// memory that it has taken out of service.
    fn probe(&self, range: Range<u64>, found: &mut Vec<Range<u64>>) {
        use rustix::io::Errno;
        match self.region.advise(range.clone(), Advice::LinuxPopulateRead) {
            Err(Errno::FAULT | Errno::HWPOISON) => {}
            _ => return,
        }
        let pages = (range.end - range.start) / PAGE_BYTES;
        if pages > 1 {
            let middle = range.start + pages / 2 * PAGE_BYTES;
            self.probe(range.start..middle, found);
            self.probe(middle..range.end, found);
        } else if let Some(last) = found.last_mut().filter(|last| last.end == range.start) {
            last.end = range.end;
        } else {
            found.push(range);
        }
    }

    /// The length that growing to `len` gives: whole pages, and where huge pages are to be had, whole
    /// ones of those.
    fn len_rounded(&self, len: u64) -> u64 {
        let unit = match self.backing {
            Backing::Shm { huge: true, .. } if len >= HUGE_PAGE_BYTES => HUGE_PAGE_BYTES,
            Backing::Volatile if self.huge_pages && len >= HUGE_PAGE_BYTES => HUGE_PAGE_BYTES,
            _ => PAGE_BYTES,
        };
        len.next_multiple_of(unit).min(self.len_max())
    }

    /// Whether the medium held nothing when it was opened: this open made it, the file was empty, the kernel proved
    /// that nothing was ever stored to it, or the head of the device was zero. Also true after a crash between making
    /// the file and the first store.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What the medium is made of; never `Auto`.
    #[must_use]
    pub fn kind(&self) -> MediumKind {
        match self.backing {
            Backing::Devdax { .. } => MediumKind::Devdax,
            Backing::Fsdax { .. } => MediumKind::Fsdax,
            Backing::Shm { .. } => MediumKind::Shm,
            Backing::File { .. } => MediumKind::File,
            Backing::Private { kind, .. } => kind,
            Backing::Volatile => MediumKind::Volatile,
        }
    }

    /// The path of the file or device; of a volatile medium, its name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How stores are made durable. On `File` this is `OrderOnly`, and [`Persistent::sync`] does the rest.
    #[must_use]
    pub fn flush_instruction(&self) -> FlushInstruction {
        self.persist.step()
    }

    /// One line for the operator when the medium is on small pages and could have huge ones. A random read then takes
    /// about twice as long. `None` when there is nothing to advise.
    #[must_use]
    pub fn small_pages_advice(&self) -> Option<String> {
        let sysfs = Sysfs::default();
        let advice = match &self.backing {
            Backing::Fsdax { .. } | Backing::File { .. } | Backing::Private { .. } => return None,
            Backing::Shm { huge: true, refused, .. } if !refused.load(Ordering::Relaxed) => return None,
            Backing::Devdax { device, .. } if device.align >= HUGE_PAGE_BYTES => return None,
            Backing::Devdax { device, .. } => format!(
                "aligned to {}: make the namespace again with \"ndctl create-namespace -m devdax -a 2M\" (erases it)",
                bytes_text(device.align)
            ),
            Backing::Volatile => match sysfs.huge_pages_of_memory().as_deref() {
                Some("always") => return None,
                Some("madvise") if self.huge_pages => return None,
                Some("madvise") => "set huge_pages".to_owned(),
                Some(_) => "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
                None => "the kernel has no transparent huge pages".to_owned(),
            },
            Backing::Shm { file, .. } => match sysfs.huge_pages_of_shm().as_deref() {
                None => "the kernel has no transparent huge pages".to_owned(),
                Some("deny") => "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled".to_owned(),
                Some(_) if !self.huge_pages => "set huge_pages".to_owned(),
                Some(_) => {
                    let mount = shm::mount(file);
                    if mount.as_ref().and_then(|m| m.huge.as_deref()).is_some_and(|huge| huge != "never") {
                        return None;
                    }
                    let point = mount.map_or_else(|| "its mount point".to_owned(), |m| m.point);
                    format!(
                        "use Linux 6.1 or later with memory to spare, or mount -o remount,huge=advise {point}; then make \
                         the store again"
                    )
                }
            },
        };
        Some(format!(
            "{} {} is on small pages, where a random read takes about twice as long: {advice}",
            self.kind(),
            self.path.display()
        ))
    }

    /// The address of `bytes` bytes at `at`.
    #[inline]
    fn place(&self, at: Offset, bytes: u64) -> *mut u8 {
        // Relaxed: a thread that has an offset got it from a thread that had seen the growth.
        let len = self.len.load(Ordering::Relaxed);
        // The assertion of invariant 1, and of the crate's.
        if bytes > len || at.0 > len - bytes {
            outside(at, bytes, len);
        }
        self.region.base().wrapping_add(at.0 as usize)
    }

    /// The address of `bytes` bytes at `at`, which is a multiple of `bytes`.
    #[inline]
    fn place_aligned(&self, at: Offset, bytes: usize) -> *mut u8 {
        let pointer = self.place(at, bytes as u64);
        // The assertion of invariant 4 of this file and of the crate: what commits something is never torn.
        if !at.0.is_multiple_of((bytes as u64).max(1)) {
            unaligned(at, bytes);
        }
        pointer
    }

    #[inline]
    fn word_u8(&self, at: Offset) -> &AtomicU8 {
        let pointer = self.place_aligned(at, 1);
        // SAFETY: inside the mapping and aligned (`place_aligned`); bytes that are accessed atomically
        // are only accessed so while others may write them (invariant 4).
        unsafe { AtomicU8::from_ptr(pointer) }
    }

    #[inline]
    fn word_u16(&self, at: Offset) -> &AtomicU16 {
        let pointer = self.place_aligned(at, 2);
        // SAFETY: inside the mapping and aligned (`place_aligned`); bytes that are accessed atomically
        // are only accessed so while others may write them (invariant 4).
        unsafe { AtomicU16::from_ptr(pointer.cast()) }
    }

    #[inline]
    fn word_u32(&self, at: Offset) -> &AtomicU32 {
        let pointer = self.place_aligned(at, 4);
        // SAFETY: inside the mapping and aligned (`place_aligned`); bytes that are accessed atomically
        // are only accessed so while others may write them (invariant 4).
        unsafe { AtomicU32::from_ptr(pointer.cast()) }
    }

    #[inline]
    fn word(&self, at: Offset) -> &AtomicU64 {
        let pointer = self.place_aligned(at, 8);
        // SAFETY: inside the mapping and aligned (`place_aligned`); bytes that are accessed atomically
        // are only accessed so while others may write them (invariant 4).
        unsafe { AtomicU64::from_ptr(pointer.cast()) }
    }
}

/// Whether a store survives a power failure as soon as it is visible.
fn survives_in_cache(region: Option<NdRegion>) -> bool {
    region.is_some_and(|region| region.domain == PersistenceDomain::CpuCache)
}

/// What must be done so that a store survives. A step that is asked for changes that only where nothing survives anyway.
fn granularity_of(backing: &Backing, region: Option<NdRegion>, persist: &Persist) -> Granularity {
    match backing {
        Backing::File { .. } | Backing::Private { kind: MediumKind::File, .. } => Granularity::Page,
        _ if persist.flushes() && !survives_in_cache(region) => Granularity::CacheLine,
        _ => Granularity::Byte,
    }
}

/// The persist step for `backing`, as asked for or by default.
fn choose_persist(
    backing: &Backing,
    region: Option<NdRegion>,
    asked: Option<FlushInstruction>,
) -> Result<Persist> {
    match (backing, asked) {
        (_, Some(FlushInstruction::OrderOnly)) => Ok(Persist::order_only()),
        (Backing::File { .. }, Some(step)) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "persist step {step} cannot reach an ordinary file, which becomes durable by write-back of pages; \
                 leave the step unset, or choose a medium on memory"
            ),
        )),
        (_, Some(step)) if survives_in_cache(region) => Ok(Persist::forced(step)?.for_speed()),
        (_, Some(step)) => Persist::forced(step),
        (Backing::Private { .. }, _)
        | (Backing::Shm { .. } | Backing::File { .. } | Backing::Volatile, None) => Ok(Persist::order_only()),
        (Backing::Devdax { .. } | Backing::Fsdax { .. }, None) => match region.map(|r| r.domain) {
            // Whether more pays depends on the device, which `duramen bench mem` measures.
            Some(PersistenceDomain::CpuCache) => Ok(Persist::order_only()),
            Some(PersistenceDomain::MemoryController | PersistenceDomain::Unknown) | None => {
                Persist::flushing()
            }
        },
    }
}

// A separate function that takes its figures by value: a panic formatted in place would store them to memory at each
// access.

#[cold]
#[inline(never)]
#[expect(clippy::panic, reason = "as an assertion does")]
fn outside(at: Offset, bytes: u64, len: u64) -> ! {
    panic!("access of {bytes} bytes at {at} on a medium of {len:#x} bytes")
}

#[cold]
#[inline(never)]
#[expect(clippy::panic, reason = "as an assertion does")]
fn unaligned(at: Offset, bytes: usize) -> ! {
    panic!("{bytes} bytes at {at} are not aligned to {bytes}")
}

impl Bytes for Mapped {
    #[inline]
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    #[inline]
    fn pointer(&self, at: Offset, bytes: u64) -> *const u8 {
        self.place(at, bytes)
    }

    #[inline]
    fn load_u64(&self, at: Offset) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn load_pieces(&self, at: Offset, into: &mut [u8]) {
        let before = (at.0.next_multiple_of(16) - at.0).min(into.len() as u64);
        let (head, rest) = into.split_at_mut(before as usize);
        load_words(self, at, head);
        let (middle, tail) = rest.split_at_mut(rest.len() & !15);
        let from = at.plus(before);
        let place = self.place(from, middle.len() as u64);
        // SAFETY: inside the mapping (`place`), and aligned when it is not empty.
        if !unsafe { self.persist.load_vectors(place, middle) } {
            load_words(self, from, middle);
        }
        load_words(self, from.plus(middle.len() as u64), tail);
    }

    fn unreadable(&self, at: Offset, bytes: u64) -> Vec<Range<u64>> {
        let pages = self.pages_of(at, bytes);
        let mut found = Vec::new();
        if !pages.is_empty() {
            for part in self.parts_to_read(pages) {
                if part.end - part.start > PAGE_BYTES {
                    self.read_ahead(&part);
                }
                self.probe(part, &mut found);
            }
        }
        found
    }

    fn fetch(&self, at: Offset, bytes: u64) {
        let pages = self.pages_of(at, bytes);
        if !pages.is_empty() {
            self.read_ahead(&pages);
        }
    }

    fn is_cold(&self, at: Offset, bytes: u64) -> bool {
        let pages = self.pages_of(at, bytes);
        if self.device_file().is_none() || pages.is_empty() {
            return false;
        }
        let mut found = Vec::new();
        let count = |found: &[u8]| found.iter().filter(|page| **page & 1 != 0).count();
        self.region.in_memory(&pages, &mut found).is_ok() && count(&found) * 2 < found.len()
    }

    fn read_once(&self, at: Offset, into: &mut [u8]) -> bool {
        self.place(at, into.len() as u64);
        self.device_file().is_some_and(|file| file::read_once(file, at.0, into))
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        // A hint may be wrong: unlike every access it is not checked, and never faults.
        persist::prefetch(self.region.base().wrapping_add(at.0 as usize));
    }
}

impl Persistent for Mapped {
    fn granularity(&self) -> Granularity {
        self.granularity
    }

    #[inline]
    fn store_u64(&self, at: Offset, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    #[inline]
    fn store(&self, at: Offset, parts: &[&[u8]]) {
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let to = self.place(at, total as u64);
        // SAFETY: `place` checked room for all parts (invariant 1); a part overlaps what is stored to
        // only if the caller broke the promise of `bytes` (invariant 4).
        unsafe { self.persist.store(to, parts) };
    }

    #[inline(always)]
    fn write(&self, at: Offset, parts: &[&[u8]]) {
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let to = self.place(at, total as u64);
        // SAFETY: as in `store`.
        unsafe { self.persist.write(to, parts, total as u64) };
    }

    #[inline]
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        match *bytes {
            [a] => self.word_u8(at).store(a, Ordering::Release),
            [a, b] => self.word_u16(at).store(u16::from_le_bytes([a, b]), Ordering::Release),
            [a, b, c, d] => self.word_u32(at).store(u32::from_le_bytes([a, b, c, d]), Ordering::Release),
            [a, b, c, d, e, f, g, h] => {
                self.word(at).store(u64::from_le_bytes([a, b, c, d, e, f, g, h]), Ordering::Release);
            }
            _ => {
                let to = self.place_aligned(at, bytes.len());
                // SAFETY: inside the mapping and aligned (`place_aligned`).
                return unsafe { self.persist.store_vector(to, bytes) };
            }
        }
        true
    }

    fn atomic_bytes_max(&self) -> u64 {
        self.persist.atomic_bytes_max()
    }

    #[inline]
    fn flush(&self, at: Offset, bytes: u64) {
        let pointer = self.place(at, bytes);
        // SAFETY: `place` checked the range (invariant 1).
        unsafe { self.persist.flush(pointer, bytes) };
    }

    #[inline]
    fn drain(&self) {
        self.persist.drain();
    }

    fn sync(&self) -> Result<()> {
        match &self.backing {
            Backing::File { file, syncs, .. } => syncs.run(|| page::sync(file.as_fd(), &self.path)),
            _ => {
                self.persist.drain();
                Ok(())
            }
        }
    }
}

impl Device for Mapped {
    fn len_max(&self) -> u64 {
        self.region.reserved()
    }

    fn grow(&self, len: u64) -> Result<()> {
        let growth = self.growing();
        let now = self.len.load(Ordering::Relaxed);
        if len <= now {
            return Ok(());
        }
        if len > self.len_max() {
            let instead = match self.backing {
                Backing::Devdax { .. } | Backing::File { is_device: true, .. } => {
                    "that is the device, or len_max if lower"
                }
                _ => "open it with a larger len_max (maxmemory of a server)",
            };
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "cannot grow {} to {}: it can have at most {}; {instead}",
                    self.path.display(),
                    bytes_text(len),
                    bytes_text(self.len_max())
                ),
            ));
        }
        // What was opened may end within a page, which is mapped whole already.
        let range = now.next_multiple_of(PAGE_BYTES)..self.len_rounded(len);
        match &self.backing {
            // The bound above is the device's size, which is the length from the start.
            Backing::Devdax { .. } => return Ok(()),
            Backing::Fsdax { file, .. } => fsdax::extend(&self.region, file, &self.path, range.clone())?,
            Backing::Shm { file, huge, refused } => {
                let given = shm::extend(&self.region, file, &self.path, range.clone(), *huge)?;
                refused.store(!given, Ordering::Relaxed);
            }
            Backing::File { file, .. } => file::extend(&self.region, file, &self.path, range.clone())?,
            Backing::Private { .. } | Backing::Volatile => {
                volatile::extend(&self.region, range.clone(), self.huge_pages)?;
            }
        }
        self.advise_random(range.clone());
        self.fault_in_range(range.clone());
        self.set_len(range.end, &growth);
        Ok(())
    }

    fn gives_back(&self) -> bool {
        self.sparse_file().is_some() || matches!(self.backing, Backing::Volatile)
    }

    fn give_back(&self, at: Offset, bytes: u64) {
        let pages = self.whole_pages(at, bytes);
        if pages.is_empty() {
            return;
        }
        match self.sparse_file() {
            Some(file) => file::punch(file, &pages),
            None if matches!(self.backing, Backing::Volatile) => self.region.clear_memory(&pages),
            None => {}
        }
    }

    fn has_space(&self, at: Offset, bytes: u64) -> bool {
        let pages = self.whole_pages(at, bytes);
        self.sparse_file().is_none_or(|file| pages.is_empty() || !file::with_data(file, pages).is_empty())
    }

    fn back(&self, at: Offset, bytes: u64) -> Result<()> {
        let pages = self.pages_of(at, bytes);
        // tmpfs counts its blocks exactly, and takes long to look at the pages of a large file.
        let is_whole = |file| matches!(self.backing, Backing::Shm { .. }) && shm::is_backed(file);
        match self.sparse_file() {
            Some(file) if !pages.is_empty() && !is_whole(file) => {
                // The file may end within the last page.
                file::back(file, &self.path, pages.start..pages.end.min(self.len()))
            }
            _ => Ok(()),
        }
    }

    fn prepare(&self, at: Offset, bytes: u64) -> Result<()> {
        self.place(at, bytes);
        match &self.backing {
            Backing::File { file, syncs, .. } => file::prepare(file, &self.path, at.0..at.0 + bytes, syncs),
            _ => Ok(()),
        }
    }

    fn reuse(&self, at: Offset, bytes: u64) {
        let pages = self.whole_pages(at, bytes);
        let Some(file) = self.device_file().filter(|_| !pages.is_empty()) else { return };
        let mut found = Vec::new();
        if self.region.in_memory(&pages, &mut found).is_ok() {
            file::zero_missing(file, pages.start, &found);
        }
    }

    fn fault_in(&self, at: Offset, bytes: u64) {
        // A tmpfs page that was mapped by a read may be stored to without another fault, since the kernel does not
        // track its dirty pages. For a file the kernel tracks them page by page, and faulting in all for writing would
        // make all dirty.
        if matches!(self.backing, Backing::Shm { .. } | Backing::File { .. } | Backing::Private { .. }) {
            return;
        }
        let pages = self.pages_of(at, bytes);
        if !pages.is_empty() {
            self.parts_to_read(pages).into_iter().for_each(|part| self.fault_in_range(part));
        }
    }

    fn unwritten_is_zero(&self) -> bool {
        !matches!(self.backing, Backing::Devdax { .. } | Backing::File { is_device: true, .. })
    }

    fn interleave(&self) -> (u64, u32) {
        (self.stripe_bytes, self.ways)
    }

    fn survives_process(&self) -> bool {
        !matches!(self.backing, Backing::Volatile)
    }

    fn survives_power(&self) -> bool {
        match &self.backing {
            Backing::Devdax { device, .. } => device.region.is_some(),
            Backing::Fsdax { .. } => true,
            Backing::File { is_in_memory, .. } => !is_in_memory,
            Backing::Private { kind, .. } => *kind != MediumKind::Shm,
            Backing::Shm { .. } | Backing::Volatile => false,
        }
    }

    fn release(&self) {
        match &self.backing {
            Backing::Volatile => {}
            Backing::Devdax { file, .. }
            | Backing::Fsdax { file, .. }
            | Backing::Shm { file, .. }
            | Backing::Private { file, .. }
            | Backing::File { file, .. } => file.release(),
        }
    }

    fn is_deleted(&self) -> bool {
        match &self.backing {
            Backing::Devdax { .. } | Backing::File { is_device: true, .. } | Backing::Volatile => false,
            Backing::Fsdax { file, .. }
            | Backing::Shm { file, .. }
            | Backing::Private { file, .. }
            | Backing::File { file, .. } => file.metadata().is_ok_and(|found| {
                let at_path = std::fs::metadata(&self.path_absolute);
                // Other links keep the bytes, but no start finds them here.
                let is_gone = at_path.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
                let is_another = at_path.is_ok_and(|at| (at.dev(), at.ino()) != (found.dev(), found.ino()));
                found.nlink() == 0 || is_gone || is_another
            }),
        }
    }

    fn describe(&self) -> String {
        format!(
            "{} {}, {} of at most {}, {}",
            self.kind(),
            self.path.display(),
            bytes_text(self.len()),
            bytes_text(self.len_max()),
            match self.backing {
                Backing::File { .. } => "write-back of pages".to_owned(),
                Backing::Private { .. } => "read only".to_owned(),
                _ => self.persist.describe(),
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_persistent_caches_a_flush_instruction_changes_only_speed() {
        let region = |domain| Some(NdRegion { domain, mappings: None });
        let volatile = Backing::Volatile;
        let of = |domain, step| {
            let persist = choose_persist(&volatile, region(domain), step).unwrap();
            (granularity_of(&volatile, region(domain), &persist), persist.flushes(), persist.step())
        };
        for step in FlushInstruction::available() {
            let flushes = step != FlushInstruction::OrderOnly;
            assert_eq!(of(PersistenceDomain::CpuCache, Some(step)), (Granularity::Byte, flushes, step));
            let wanted = if flushes { Granularity::CacheLine } else { Granularity::Byte };
            assert_eq!(of(PersistenceDomain::MemoryController, Some(step)), (wanted, flushes, step));
        }
    }
}
