//! The mapped medium: one struct for every kind, so that the hot path is the same code for all.
//!
//! Invariants (those of the crate, as this file keeps them):
//!
//! 1. Every access goes through `place`, which checks it against the length.
//! 2. `len` is stored (release) only after the region behind it is backed and mapped, and only grows.
//! 3. `growth` is held by whoever changes the file's length or the region's mappings.
//! 4. Memory is read and written by plain copies and by atomics of aligned words, through pointers;
//!    no reference to it is made outside [`Medium::bytes`].

use crate::error::bytes_text;
use crate::options::{Create, MediaOptions, MediumKind};
use crate::persist::{self, Persist, PersistStep, page};
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::shm::HugePages;
use crate::{Error, ErrorKind, Granularity, Medium, Offset, PAGE_BYTES, Result};
use crate::{file, shm, volatile};
use rustix::fd::AsFd;
use rustix::mm::Advice;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A medium that is mapped into memory.
#[derive(Debug)]
pub struct Mapped {
    // First, so that it is unmapped before the file is closed and its lock released.
    region: Region,
    len: AtomicU64,
    persist: Persist,
    growth: Mutex<()>,
    backing: Backing,
    path: PathBuf,
    is_new: bool,
    prefault: bool,
    stripe_bytes: u64,
    ways: u32,
}

#[derive(Debug)]
enum Backing {
    Shm { file: File, huge: HugePages },
    File { file: File },
    Volatile { huge_pages: bool },
}

impl Mapped {
    /// Opens the medium at `path`, or makes it. A directory stands for the file `duramen.store` in it.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` as [`MediaOptions::create`] says; `OutOfSpace`,
    /// `PermissionDenied`, `Unsupported`, `InUse`, `InvalidInput` with what to do about it.
    pub fn open(path: &Path, options: &MediaOptions) -> Result<Self> {
        let len_max = options.len_max & !(PAGE_BYTES - 1);
        let (backing, length, is_new, path) = if options.kind == MediumKind::Volatile {
            (Backing::Volatile { huge_pages: options.huge_pages }, 0, true, path.to_owned())
        } else {
            let path = if path.is_dir() { path.join("duramen.store") } else { path.to_owned() };
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(options.create != Create::OpenExisting)
                .truncate(false)
                .open(&path)
                .map_err(|e| Error::os(format!("cannot open store {}", path.display()), e))?;
            let length =
                file.metadata().map_err(|e| Error::os(format!("cannot stat {}", path.display()), e))?.len();
            let is_new = file::is_blank(&file, length);
            let on_tmpfs = shm::file_system_magic(&file) == Some(shm::TMPFS_MAGIC);
            let backing = match options.kind {
                MediumKind::Shm => {
                    shm::check(&file, &path)?;
                    Backing::Shm { file, huge: HugePages::No }
                }
                MediumKind::Auto if on_tmpfs => Backing::Shm { file, huge: HugePages::No },
                _ => Backing::File { file },
            };
            (backing, length, is_new, path)
        };
        let length = length.next_multiple_of(PAGE_BYTES);
        let mapped = Self {
            region: Region::reserve(len_max.max(length), HUGE_PAGE_BYTES)?,
            len: AtomicU64::new(0),
            persist: choose_persist(&backing, options)?,
            growth: Mutex::new(()),
            backing,
            path,
            is_new,
            prefault: options.prefault,
            stripe_bytes: options.stripe_bytes.unwrap_or(4096),
            ways: options.ways.unwrap_or(6),
        };
        if length > 0 {
            mapped.adopt(length)?;
        }
        if is_new {
            mapped.grow(options.len_initial)?;
            if let Backing::File { file } = &mapped.backing {
                file::make_durable(file, &mapped.path)?;
            }
        }
        Ok(mapped)
    }

    /// Whether this open made the medium, so that its content is fresh.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What the medium is made of; never `Auto`.
    #[must_use]
    pub fn kind(&self) -> MediumKind {
        match self.backing {
            Backing::Shm { .. } => MediumKind::Shm,
            Backing::File { .. } => MediumKind::File,
            Backing::Volatile { .. } => MediumKind::Volatile,
        }
    }

    /// How stores are made durable.
    #[must_use]
    pub fn persist_step(&self) -> PersistStep {
        self.persist.step()
    }

    /// Whether what was persisted (on `File`: synced) survives a power failure.
    #[must_use]
    pub fn survives_power(&self) -> bool {
        matches!(self.backing, Backing::File { .. })
    }

    /// Maps what the file holds already, after filling its holes.
    fn adopt(&self, length: u64) -> Result<()> {
        match &self.backing {
            Backing::Shm { file, .. } | Backing::File { file } => {
                file::back(file, &self.path, 0..length)?;
                file::map(&self.region, file.as_fd(), &self.path, 0..length)?;
            }
            Backing::Volatile { .. } => {}
        }
        self.fault_in(0..length);
        self.len.store(length, Ordering::Release);
        Ok(())
    }

    fn fault_in(&self, range: Range<u64>) {
        if !self.prefault {
            return;
        }
        let advice = match self.backing {
            Backing::File { .. } => Advice::LinuxPopulateRead,
            _ => Advice::LinuxPopulateWrite,
        };
        let _ = self.region.advise(range, advice);
    }

    /// The address of `bytes` bytes at `at`.
    #[inline]
    fn place(&self, at: Offset, bytes: u64) -> *mut u8 {
        // Relaxed: whoever knows an offset learnt it from a thread that had seen the growth.
        let len = self.len.load(Ordering::Relaxed);
        assert!(
            bytes <= len && at.0 <= len - bytes,
            "access of {bytes} bytes at {at} on a medium of {len:#x} bytes"
        );
        self.region.base().wrapping_add(at.0 as usize)
    }

    /// The address of `bytes` bytes at `at`, which is a multiple of `bytes`.
    #[inline]
    fn place_aligned(&self, at: Offset, bytes: usize) -> *mut u8 {
        let pointer = self.place(at, bytes as u64);
        assert!(
            at.0.is_multiple_of((bytes as u64).max(1)),
            "{bytes} bytes at {at} are not aligned to {bytes}"
        );
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

/// The persist step for `backing`, as asked for or by default.
fn choose_persist(backing: &Backing, options: &MediaOptions) -> Result<Persist> {
    match (backing, options.persist_step) {
        (_, Some(PersistStep::OrderOnly)) => Ok(Persist::order_only()),
        (Backing::File { .. }, Some(step)) => Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "persist step {step} cannot reach an ordinary file, which becomes durable by write-back of pages; \
                 leave the step unset, or choose a medium on memory"
            ),
        )),
        (_, Some(step)) => Persist::forced(step),
        (Backing::Shm { .. } | Backing::File { .. } | Backing::Volatile { .. }, None) => {
            Ok(Persist::order_only())
        }
    }
}

impl Medium for Mapped {
    fn granularity(&self) -> Granularity {
        match self.backing {
            Backing::File { .. } => Granularity::Page,
            _ if self.persist.flushes() => Granularity::CacheLine,
            _ => Granularity::Byte,
        }
    }

    #[inline]
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn len_max(&self) -> u64 {
        self.region.reserved()
    }

    fn grow(&self, len: u64) -> Result<()> {
        let _growth = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.len.load(Ordering::Relaxed);
        if len <= now {
            return Ok(());
        }
        if len > self.len_max() {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "cannot grow {} to {}: at most {} were reserved; open it with a larger len_max",
                    self.path.display(),
                    bytes_text(len),
                    bytes_text(self.len_max())
                ),
            ));
        }
        let range = now..len.next_multiple_of(PAGE_BYTES);
        match &self.backing {
            Backing::Shm { file, huge } => {
                shm::extend(&self.region, file, &self.path, range.clone(), *huge)?;
            }
            Backing::File { file } => file::extend(&self.region, file, &self.path, range.clone())?,
            Backing::Volatile { huge_pages } => volatile::extend(&self.region, range.clone(), *huge_pages)?,
        }
        self.fault_in(range.clone());
        self.len.store(range.end, Ordering::Release);
        Ok(())
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

    #[inline]
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

    #[inline]
    fn load_atomic(&self, at: Offset, bytes: &mut [u8]) -> bool {
        match bytes {
            [a] => *a = self.word_u8(at).load(Ordering::Acquire),
            [_, _] => bytes.copy_from_slice(&self.word_u16(at).load(Ordering::Acquire).to_le_bytes()),
            [_, _, _, _] => bytes.copy_from_slice(&self.word_u32(at).load(Ordering::Acquire).to_le_bytes()),
            [_, _, _, _, _, _, _, _] => {
                bytes.copy_from_slice(&self.word(at).load(Ordering::Acquire).to_le_bytes());
            }
            _ => {
                let from = self.place_aligned(at, bytes.len());
                // SAFETY: inside the mapping and aligned (`place_aligned`).
                return unsafe { self.persist.load_vector(from, bytes) };
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
            Backing::File { file } => page::sync(file.as_fd(), &self.path),
            _ => {
                self.persist.drain();
                Ok(())
            }
        }
    }

    #[inline]
    fn prefetch(&self, at: Offset) {
        // A hint may be wrong: unlike every access it is not checked, and never faults.
        persist::prefetch(self.region.base().wrapping_add(at.0 as usize));
    }

    fn interleave(&self) -> (u64, u32) {
        (self.stripe_bytes, self.ways)
    }

    fn describe(&self) -> String {
        format!("{} {}, {}", self.kind(), self.path.display(), bytes_text(self.len()))
    }
}
