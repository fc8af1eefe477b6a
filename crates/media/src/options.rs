//! How a medium is opened: its kind, its sizes, and the knobs for measuring.

use crate::FlushInstruction;
use crate::names::{name_of, named};
use std::fmt;
use std::str::FromStr;

/// What a medium is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MediumKind {
    /// Decided by what the path is: a DAX character device is `Devdax`; a file on tmpfs is `Shm`; a
    /// file that can be mapped with `MAP_SYNC` is `Fsdax`; any other file is `File`.
    #[default]
    Auto,
    /// A DAX character device (`/dev/dax0.0`): persistent memory without a file system.
    Devdax,
    /// A file on a DAX file system, mapped with `MAP_SYNC`: persistent memory without a page cache.
    Fsdax,
    /// A file on tmpfs (`/dev/shm`): survives the process, not the power.
    Shm,
    /// A file on any file system, through the page cache: survives the process, and the power after
    /// [`crate::Persistent::sync`].
    File,
    /// Anonymous memory: survives nothing. The path is only a name.
    Volatile,
}

impl MediumKind {
    const NAMES: [(Self, &'static str); 6] = [
        (Self::Auto, "auto"),
        (Self::Devdax, "devdax"),
        (Self::Fsdax, "fsdax"),
        (Self::Shm, "shm"),
        (Self::File, "file"),
        (Self::Volatile, "volatile"),
    ];
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(&Self::NAMES, *self))
    }
}

impl FromStr for MediumKind {
    type Err = crate::Error;

    fn from_str(name: &str) -> crate::Result<Self> {
        named(&Self::NAMES, "medium", name)
    }
}

/// What to do when there is a store already, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Create {
    /// Open what is there; `NotFound` when there is nothing, or only an empty file.
    OpenExisting,
    /// Make a new one; `AlreadyExists` when there is anything. An empty file is nothing.
    CreateNew,
    /// Open what is there, or make a new one.
    #[default]
    OpenOrCreate,
}

/// How to open a medium. Every field has a default that suits production.
#[derive(Clone, Debug)]
pub struct MediaOptions {
    /// What the medium is made of. Default: `Auto`, decided by the path.
    pub kind: MediumKind,

    /// Whether it must or must not exist. Default: `OpenOrCreate`. Ignored for `Volatile`, which is
    /// always new.
    pub create: Create,

    /// Whether to leave the existing medium unchanged. The file is opened for reading, and other read-only opens may
    /// have it at the same time. Stores to the medium stay in this process and end with it. The medium must exist.
    /// `Unsupported` on `Devdax`, whose mappings are all shared; `InvalidInput` on `Volatile`. Default: false.
    pub read_only: bool,

    /// Length of a new medium, in bytes; rounded up to the pages of the medium, and bounded by
    /// `len_max`. Default: 16 MiB. Ignored when the medium exists already. On `Devdax`, which
    /// is always mapped whole, the least that the device must have.
    pub len_initial: u64,

    /// The most bytes the medium may grow to; rounded down to pages. So much *address space* is
    /// reserved at open; it costs no memory. Default: 1 TiB. Raised to the length of what exists where
    /// that is more; lowered to the size of the device on `Devdax`.
    pub len_max: u64,

    /// The flush instruction, instead of the one that suits the medium and the CPU. For measuring, and for speed on
    /// persistent memory whose caches survive a power failure; the granularity stays "byte" there. On `Shm` and
    /// `Volatile` real flushes are then made and the granularity reads "cache line", so that DRAM can stand in for
    /// persistent memory. `Unsupported` when the CPU lacks it; `InvalidInput` on `File`, whose stores reach the device
    /// by write-back of pages only. Default: `None`.
    pub flush_instruction: Option<FlushInstruction>,

    /// Bytes in one interleave stripe, after which the memory controller goes to the next device. A power of two, at
    /// least 64. Default: `None`, which is 4096, the stripe of Optane.
    pub stripe_bytes: Option<u64>,

    /// Devices that the stripes go round: 1 to 1024. Default: `None`: what the kernel says of
    /// the region (`Devdax`, `Fsdax`), else 6, a full socket of Optane.
    pub ways: Option<u32>,

    /// Whether to fault in all pages at open and at growth, so that no first touch is slow later. Costs
    /// time at open in proportion to the length, and on `Shm` and `Volatile` memory. `File` reads
    /// its pages in. Default: false.
    pub prefault: bool,

    /// Whether `prefault` skips the existing part of the medium, so that the time of an open does not grow with it. The
    /// caller then calls [`Device::fault_in`](crate::Device::fault_in). Default: false.
    pub fault_later: bool,

    /// Whether the parts of an existing file that have no space get none at the open, which then leaves what
    /// [`Device::give_back`](crate::Device::give_back) gave back. The caller calls
    /// [`Device::back`](crate::Device::back) before it stores. Default: false.
    pub back_later: bool,

    /// Whether to ask for huge pages where the medium can have them (`Shm`, `Volatile`); the others
    /// have what their device has. Default: true. Refusal by the kernel is not an error: see
    /// [`crate::Mapped::small_pages_advice`].
    pub huge_pages: bool,
}

impl Default for MediaOptions {
    fn default() -> Self {
        Self {
            kind: MediumKind::Auto,
            create: Create::OpenOrCreate,
            read_only: false,
            // 16 MiB: eight huge pages; enough for every part of an empty store, and quick to back.
            len_initial: 16 << 20,
            // 1 TiB: above one socket of persistent memory, and 1/128 of the address space, so
            // that a process can hold many stores.
            len_max: 1 << 40,
            flush_instruction: None,
            stripe_bytes: None,
            ways: None,
            prefault: false,
            fault_later: false,
            back_later: false,
            huge_pages: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_back_from_its_name() {
        for (kind, name) in MediumKind::NAMES {
            assert_eq!(kind.to_string(), name);
            assert_eq!(name.parse::<MediumKind>().unwrap(), kind);
        }
    }

    #[test]
    fn an_unknown_kind_lists_the_known_ones() {
        let error = "floppy".parse::<MediumKind>().unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("devdax, fsdax, shm"), "{error}");
    }
}
