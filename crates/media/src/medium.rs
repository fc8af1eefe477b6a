//! The door between the engine and a medium: offsets, granularity, and the trait.

use crate::Result;
use std::fmt;
use std::ops::Range;

/// Bytes in a cache line: the unit that `flush` works on, on every CPU Duramen supports.
pub const LINE_BYTES: u64 = 64;

/// Bytes in a base page: the unit of write-back on [`Granularity::Page`] media.
pub const PAGE_BYTES: u64 = 4096;

/// A position on a medium, in bytes from its beginning. Never a pointer: the mapping may be
/// elsewhere at each open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Offset(pub u64);

impl Offset {
    /// The offset `bytes` further on.
    #[inline]
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Debug for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What must be done so that a store survives a power failure (libpmem2's word).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Granularity {
    /// Order only: caches are inside the persistence domain (eADR, CXL global persistent flush), or
    /// the medium survives no power failure anyway (`shm`, `volatile`).
    Byte,
    /// Flush each line, then drain.
    CacheLine,
    /// Write back pages, then wait for the device: [`Persistent::sync`].
    Page,
}

impl fmt::Display for Granularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Byte => "byte",
            Self::CacheLine => "cache line",
            Self::Page => "page",
        })
    }
}

/// The cache lines that `bytes` bytes from `at` touch, as line-aligned byte offsets. Empty ranges
/// touch none. This is the one place where a byte range becomes lines.
#[inline]
#[must_use]
pub const fn lines_of(at: u64, bytes: u64) -> Range<u64> {
    if bytes == 0 {
        return at..at;
    }
    let first = at & !(LINE_BYTES - 1);
    // The line after the last byte's line; `at + bytes` alone would miss the last line of an
    // unaligned range.
    let end = (at + bytes + LINE_BYTES - 1) & !(LINE_BYTES - 1);
    first..end
}

/// Reading bytes that outlive the process.
///
/// All methods may be called from any thread. Concurrency is the caller's matter, as for memory:
/// a range that is being stored to must not be read through [`Bytes::bytes`] at the same time.
pub trait Bytes {
    /// Bytes that may be used now. Grows, never shrinks.
    fn len(&self) -> u64;

    /// Whether no byte may be used.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A pointer to `bytes` bytes at `at`, valid for reads for as long as the medium is open.
    ///
    /// # Panics
    /// When the range is not below [`Bytes::len`]: offsets read from the medium must be checked
    /// before they come here.
    fn pointer(&self, at: Offset, bytes: u64) -> *const u8;

    /// The bytes at `at`.
    ///
    /// # Safety
    /// Nothing may store to the range while the slice lives.
    ///
    /// # Panics
    /// As [`Bytes::pointer`].
    #[inline]
    unsafe fn bytes(&self, at: Offset, bytes: u64) -> &[u8] {
        let pointer = self.pointer(at, bytes);
        // SAFETY: `pointer` checked the range (invariant 1), the mapping lives as long as `self`
        // (invariant 2), and the caller promises that nothing stores to it.
        unsafe { std::slice::from_raw_parts(pointer, bytes as usize) }
    }

    /// Parts of the `bytes` bytes at `at` that cannot be read now: pages that the device fails to return, and memory
    /// with an error that the kernel knows of. Reading them through [`Bytes::pointer`] would end the process (SIGBUS),
    /// so call this before reading what another process left. The call maps the readable pages.
    ///
    /// It may miss an error that is not known yet. A machine check while the memory is being read ends the process.
    fn unreadable(&self, _at: Offset, _bytes: u64) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Hints that the `bytes` bytes at `at` are read soon. Where that waits for a device, reading begins now, in large
    /// pieces. Returns at once.
    fn fetch(&self, _at: Offset, _bytes: u64) {}

    /// Whether less than half of the `bytes` bytes at `at` are in memory, so that reading them waits for a device.
    fn is_cold(&self, _at: Offset, _bytes: u64) -> bool {
        false
    }

    /// Copies cold bytes ([`Bytes::is_cold`]) at `at` that are read once, and lets the memory go that the kernel read
    /// them into. Nothing may store to them meanwhile. Returns whether they could be read.
    fn read_once(&self, at: Offset, into: &mut [u8]) -> bool {
        let bytes = into.len() as u64;
        let is_readable = self.unreadable(at, bytes).is_empty();
        if is_readable {
            // SAFETY: nothing stores to the range, as the caller promises.
            into.copy_from_slice(unsafe { self.bytes(at, bytes) });
        }
        is_readable
    }

    /// Reads the aligned word at `at` (acquire).
    fn load_u64(&self, at: Offset) -> u64;

    /// Copies bytes that others may update meanwhile. Every aligned piece of [`Persistent::atomic_bytes_max`] in the
    /// range is one atomic load (acquire), and so is the part in the range of every aligned word. This default is for
    /// media where that is 8.
    ///
    /// # Panics
    /// As [`Bytes::pointer`].
    fn load_pieces(&self, at: Offset, into: &mut [u8]) {
        load_words(self, at, into);
    }

    /// Hints that the line at `at` is read soon.
    fn prefetch(&self, at: Offset);
}

/// Storing bytes, and making them durable.
pub trait Persistent: Bytes {
    /// What makes a store durable here.
    fn granularity(&self) -> Granularity;

    /// Stores the aligned word at `at` (release): the only way to write a word that commits
    /// something or that other threads may read meanwhile.
    fn store_u64(&self, at: Offset, word: u64);

    /// Stores `bytes` at `at` in one atomic store (release), so that a reader and a crash see the old
    /// bytes or the new ones, whole. Returns whether it could; when not, nothing was stored.
    ///
    /// 8 bytes work everywhere. On real memory 1, 2 and 4 work too, 16 where the CPU documents aligned
    /// vector stores as atomic (x86-64 with AVX, AArch64 with LSE2), and 64 where it has `movdir64b`.
    /// 32 never: no CPU documents it. 64 bytes are old or new after a crash, but no CPU documents a
    /// load of 64 as atomic, so a concurrent reader may see a mixture: see
    /// [`Persistent::atomic_bytes_max`].
    ///
    /// # Panics
    /// When `at` is not a multiple of `bytes.len()`, or as [`Bytes::pointer`].
    fn store_atomic(&self, at: Offset, bytes: &[u8]) -> bool {
        let Ok(word) = bytes.try_into() else { return false };
        self.store_u64(at, u64::from_le_bytes(word));
        true
    }

    /// The most bytes that both [`Persistent::store_atomic`] takes and [`Bytes::load_pieces`] loads as one: what may
    /// be updated in place while others read it. 8 or 16.
    fn atomic_bytes_max(&self) -> u64 {
        8
    }

    /// Stores `parts` one after the other from `at`, without starting their write-back. May be torn by a crash, in any
    /// 8-byte piece.
    fn store(&self, at: Offset, parts: &[&[u8]]);

    /// Stores `parts` one after the other from `at` and starts their write-back: `store` and `flush` in one, with
    /// non-temporal stores where they are faster. Other threads may be shown the bytes only after
    /// [`Persistent::drain`].
    fn write(&self, at: Offset, parts: &[&[u8]]);

    /// Starts the write-back of a range.
    fn flush(&self, at: Offset, bytes: u64);

    /// Orders: this thread's earlier flushes and writes are complete when it returns.
    fn drain(&self);

    /// `flush` and `drain`.
    #[inline]
    fn persist(&self, at: Offset, bytes: u64) {
        self.flush(at, bytes);
        self.drain();
    }

    /// Persists one word, after everything that it makes reachable has been persisted.
    #[inline]
    fn publish(&self, at: Offset, word: u64) {
        self.store_u64(at, word);
        self.persist(at, 8);
    }

    /// Makes every store before the call durable, from whichever thread. On `Page` media: writes
    /// back and waits for the device. On the others: a `drain`, since write-back was started before.
    ///
    /// # Errors
    /// After a failed write-back the kernel may have dropped pages: the caller must not trust any
    /// store since the last successful `sync`. Every later call fails too, and one that ran at the same time: see
    /// [`Syncs`](crate::Syncs).
    fn sync(&self) -> Result<()>;
}

/// What a medium is, and how it gets its space.
pub trait Device {
    /// The most bytes this medium can grow to.
    fn len_max(&self) -> u64;

    /// Makes at least `len` bytes usable, backed and zeroed, without moving what is mapped.
    ///
    /// # Errors
    /// `OutOfSpace` when the device or file system has no room, or `len` is above
    /// [`Device::len_max`]; what was usable before stays so.
    fn grow(&self, len: u64) -> Result<()>;

    /// Whether [`Device::give_back`] gives anything back.
    fn gives_back(&self) -> bool {
        false
    }

    /// Gives the space of the whole pages in `bytes` bytes at `at` back to the file system or the machine, where the
    /// medium can; their content is lost. From then on nothing may load from these pages or store to them, until
    /// [`Device::back`] was called for them. After a crash the pages may have space or none.
    fn give_back(&self, _at: Offset, _bytes: u64) {}

    /// Whether any of the whole pages in `bytes` bytes at `at` has space with data, as far as known. Where none has, it
    /// is as if they had been given back.
    fn has_space(&self, _at: Offset, _bytes: u64) -> bool {
        true
    }

    /// Gives space to those of the `bytes` bytes at `at` that have none; they read as zero. The others keep their
    /// content. With [`MediaOptions::back_later`](crate::MediaOptions::back_later) it must be called for all that is
    /// stored to.
    ///
    /// # Errors
    /// `OutOfSpace` when the file system has none.
    fn back(&self, _at: Offset, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Makes `bytes` bytes at `at`, whose content does not matter, cheap to store to a little at a time with a
    /// [`Persistent::sync`] after each. Their content is then as it was, or zero, or a mixture. For media of `Page`
    /// granularity whose space is new; does nothing on the others. Takes as long as writing so much.
    ///
    /// # Errors
    /// As [`Persistent::sync`].
    fn prepare(&self, _at: Offset, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// Makes it cheap to store to `bytes` bytes at `at`, whose content does not matter and to which nobody else stores:
    /// pages that would first be read from a device are zeroed instead. Each page of the range is then as it was, or
    /// zero. Pages that are only partly in the range stay as they are.
    fn reuse(&self, _at: Offset, _bytes: u64) {}

    /// Hints that the `bytes` bytes at `at`, which were given to [`Bytes::unreadable`], will be stored to soon. With
    /// [`MediaOptions::prefault`](crate::MediaOptions::prefault) it maps them for that now instead of at first touch,
    /// unless that call already did. Pages that it fails to bring in come at first touch.
    fn fault_in(&self, _at: Offset, _bytes: u64) {}

    /// Whether bytes that were never stored to read as zero, as [`Device::grow`] says. False on a raw
    /// device, which shows whatever its last user left.
    fn unwritten_is_zero(&self) -> bool {
        true
    }

    /// Bytes in one interleave stripe of the device, and how many stripes it has side by side.
    fn interleave(&self) -> (u64, u32);

    /// Whether what was stored outlives the process.
    fn survives_process(&self) -> bool;

    /// Whether what was made durable outlives a power failure.
    fn survives_power(&self) -> bool;

    /// Releases the lock that keeps others from opening the same store, on media that have one. The medium stays
    /// mapped, but must not be read or written from then on.
    fn release(&self) {}

    /// Whether the path no longer leads to the file, because the file was deleted or moved since it was opened. A
    /// deleted file exists only while it is open, unless it has another name. Some system calls.
    fn is_deleted(&self) -> bool {
        false
    }

    /// One line for people: medium, path, size, flush instruction.
    fn describe(&self) -> String;
}

/// One range of bytes that outlives the process: all that a store needs of it.
pub trait Medium: Bytes + Persistent + Device + Send + Sync + 'static {}

impl<M: Bytes + Persistent + Device + Send + Sync + 'static> Medium for M {}

/// Copies bytes by atomic loads of the words that they lie in.
#[inline]
pub(crate) fn load_words<M: Bytes + ?Sized>(medium: &M, at: Offset, mut into: &mut [u8]) {
    let mut at = at.0;
    while !into.is_empty() {
        let skipped = (at % 8) as usize;
        let word = medium.load_u64(Offset(at - skipped as u64)).to_le_bytes();
        let (piece, rest) = into.split_at_mut((8 - skipped).min(into.len()));
        piece.copy_from_slice(&word[skipped..][..piece.len()]);
        at += piece.len() as u64;
        into = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_of_an_unaligned_range_is_in_its_lines(at in 0u64..128, bytes in 0u64..300) {
            let lines = lines_of(at, bytes);
            prop_assert_eq!(lines.is_empty(), bytes == 0);
            for byte in at..at + bytes {
                prop_assert!(lines.contains(&byte));
            }
            if bytes > 0 {
                prop_assert_eq!(lines.start % LINE_BYTES, 0);
                prop_assert_eq!(lines.end % LINE_BYTES, 0);
                prop_assert!(lines.end - lines.start < bytes + 2 * LINE_BYTES);
            }
        }
    }
}
