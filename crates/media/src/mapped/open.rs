//! The open of a mapped medium: what each kind does with what it finds.

use super::{Backing, Mapped, WAYS_MAX, choose_persist, granularity_of};
use crate::fault::Named;
use crate::lock::Owned;
use crate::opening::{self, Opened};
use crate::options::{Create, MediaOptions, MediumKind};
use crate::persist::page::Syncs;
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::topology::{self, Sysfs};
use crate::{Device, Error, ErrorKind, Granularity, LINE_BYTES, PAGE_BYTES, Result};
use crate::{block_device, devdax, file, fsdax, process, shm};
use rustix::fd::AsFd;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

impl Mapped {
    /// Opens the medium at `path`, or makes it. A directory stands for the file `duramen.store` in it,
    /// and an empty file for a new medium.
    ///
    /// # Errors
    /// * `NotFound`, `AlreadyExists`: as [`MediaOptions::create`] says, or the directory is missing.
    /// * `InUse`: another open holds the store; the message names its process.
    /// * `InvalidInput`: the options contradict each other or the path; the path is something that
    ///   cannot hold a store.
    /// * `Unsupported`: the CPU, the file system or the kernel lacks what was asked for.
    /// * `PermissionDenied`, `OutOfSpace`, `Io`: as the operating system says.
    pub fn open(path: &Path, options: &MediaOptions) -> Result<Self> {
        check_options(options)?;
        process::watch_forks();
        if options.kind == MediumKind::Volatile {
            let mapped = Self::reserve(path.to_owned(), Backing::Volatile, 0, true, options)?;
            mapped.grow(options.len_initial.min(mapped.len_max()))?;
            return Ok(mapped);
        }
        let sysfs = Sysfs::default();
        let Opened { file, path, kind, is_device, length } = opening::open(path, options, &sysfs)?;
        if options.read_only && kind == MediumKind::Devdax {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("cannot open {} read-only: it is a DAX device; open it for writing", path.display()),
            ));
        }
        let mut mapped = match kind {
            MediumKind::Devdax => Self::open_dax_device(file, path, options, &sysfs)?,
            _ if is_device => Self::open_block_device(file, path, length, options)?,
            _ => Self::open_file(file, path, kind, length, options, &sysfs)?,
        };
        mapped.backing.keep();
        Ok(mapped)
    }

    fn open_dax_device(file: Owned, path: PathBuf, options: &MediaOptions, sysfs: &Sysfs) -> Result<Self> {
        let number = metadata(&file, &path)?.rdev();
        let number = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = devdax::inspect(sysfs, number, &path, options)?;
        let backing = Backing::Devdax { file, device };
        let mut mapped = Self::reserve(path, backing, device.len, false, options)?;
        debug_assert_eq!(mapped.len_max(), device.len, "a device is used whole (devdax, invariant 1)");
        if let Backing::Devdax { file, .. } = &mapped.backing {
            devdax::map(&mapped.region, file, &mapped.path, &device)?;
        }
        mapped.is_new = devdax::is_blank(&mapped.region, &device);
        opening::check_create(options.create, mapped.is_new, true, &mapped.path)?;
        mapped.fault_in_at_open(0..device.len);
        mapped.set_len(device.len, &mapped.growing());
        Ok(mapped)
    }

    fn open_block_device(file: Owned, path: PathBuf, size: u64, options: &MediaOptions) -> Result<Self> {
        let length = block_device::length(size, &path, options)?;
        let is_new = block_device::is_blank(&file, &path, length)?;
        opening::check_create(create_of(options), is_new, true, &path)?;
        let backing = match options.read_only {
            true => Backing::Private { file, kind: MediumKind::File },
            false => Backing::File { is_in_memory: false, is_device: true, file, syncs: Syncs::default() },
        };
        let mapped = Self::reserve(path, backing, length, is_new, options)?;
        mapped.adopt(length)?;
        Ok(mapped)
    }

    fn open_file(
        file: Owned,
        path: PathBuf,
        kind: MediumKind,
        length: u64,
        options: &MediaOptions,
        sysfs: &Sysfs,
    ) -> Result<Self> {
        let is_new = file::is_blank(&file, length);
        opening::check_create(create_of(options), is_new, false, &path)?;
        if length == 0 {
            file::keep_in_place(&file);
        }
        let backing = match kind {
            kind if options.read_only => Backing::Private { file, kind },
            MediumKind::Shm => {
                let huge = options.huge_pages && shm::may_have_huge_pages(sysfs);
                Backing::Shm { file, huge, refused: AtomicBool::new(false) }
            }
            MediumKind::Fsdax => {
                let number = metadata(&file, &path)?.dev();
                let number = (rustix::fs::major(number), rustix::fs::minor(number));
                Backing::Fsdax { file, region: sysfs.region_of_block(number) }
            }
            _ => {
                let is_in_memory = shm::is_in_memory(&file);
                Backing::File { is_in_memory, is_device: false, file, syncs: Syncs::default() }
            }
        };
        let mapped = Self::reserve(path, backing, length, is_new, options)?;
        if length > 0 {
            mapped.adopt(length)?;
        }
        if is_new {
            mapped.grow(options.len_initial.min(mapped.len_max()))?;
            if let Backing::File { file, .. } | Backing::Fsdax { file, .. } = &mapped.backing {
                file::make_durable(file, &mapped.path)?;
            }
        }
        Ok(mapped)
    }

    /// Everything but the mappings; the length is 0.
    fn reserve(
        path: PathBuf,
        backing: Backing,
        length: u64,
        is_new: bool,
        options: &MediaOptions,
    ) -> Result<Self> {
        let (len_max, align, region) = match &backing {
            Backing::Devdax { device, .. } => (device.len, device.align, device.region),
            Backing::Fsdax { region, .. } => (options.len_max, HUGE_PAGE_BYTES, *region),
            Backing::File { is_device: true, .. } => (length, HUGE_PAGE_BYTES, None),
            _ => (options.len_max, HUGE_PAGE_BYTES, None),
        };
        // A store that was made with a larger bound must still open.
        let reserved = (len_max & !(PAGE_BYTES - 1)).max(length.next_multiple_of(PAGE_BYTES));
        let addresses = Region::reserve(reserved, align.max(HUGE_PAGE_BYTES))?;
        let persist = choose_persist(&backing, region, options.flush_instruction)?;
        let granularity = granularity_of(&backing, region, &persist);
        assert!(
            granularity != Granularity::Byte || persist.is_in_order(),
            "no drain waits for stores past the cache here (persist, invariant 4)"
        );
        Ok(Self {
            granularity,
            _named: Named::new(addresses.base() as u64, reserved, &path),
            region: addresses,
            len: AtomicU64::new(0),
            persist,
            growth: Mutex::new(()),
            backing,
            path_absolute: std::path::absolute(&path).unwrap_or_else(|_| path.clone()),
            path,
            is_new,
            huge_pages: options.huge_pages,
            prefault: options.prefault,
            fault_later: options.fault_later,
            back_later: options.back_later,
            stripe_bytes: options.stripe_bytes.unwrap_or(topology::STRIPE_BYTES),
            ways: options.ways.or(region.and_then(|r| r.mappings)).unwrap_or(topology::WAYS),
        })
    }

    /// Maps what the file holds already, after backing its holes. The file's content and length stay as
    /// they are: it may turn out not to be a store.
    fn adopt(&self, length: u64) -> Result<()> {
        let growth = self.growing();
        let backed = 0..length;
        // The last page is mapped whole; its part after the end of the file reads as zero.
        let range = 0..length.next_multiple_of(PAGE_BYTES);
        match &self.backing {
            Backing::Shm { file, .. } => {
                if !self.back_later && !shm::is_backed(file) {
                    file::back(file, &self.path, backed)?;
                }
                file::map(&self.region, file.as_fd(), &self.path, range.clone())?;
            }
            Backing::File { file, is_device, .. } => {
                if !self.back_later && !is_device {
                    file::back(file, &self.path, backed)?;
                }
                file::map(&self.region, file.as_fd(), &self.path, range.clone())?;
            }
            Backing::Fsdax { file, .. } => {
                if !self.back_later {
                    file::back(file, &self.path, backed)?;
                }
                fsdax::map(&self.region, file, &self.path, range.clone())?;
            }
            Backing::Private { file, .. } => {
                // Holes need no space: the first store to one gives this process its own page.
                file::map_private(&self.region, file.as_fd(), &self.path, range.clone())?;
            }
            Backing::Devdax { .. } | Backing::Volatile => {}
        }
        self.advise_random(range.clone());
        self.fault_in_at_open(range.clone());
        self.set_len(length, &growth);
        Ok(())
    }
}

fn check_options(options: &MediaOptions) -> Result<()> {
    let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    if options.read_only && options.kind == MediumKind::Volatile {
        return wrong("a volatile medium is always new: there is nothing to read only".to_owned());
    }
    if options.len_max < PAGE_BYTES {
        return wrong(format!("len_max is {} bytes, wanted at least {PAGE_BYTES}", options.len_max));
    }
    if let Some(stripe) = options.stripe_bytes
        && !(stripe.is_power_of_two() && stripe >= LINE_BYTES)
    {
        return wrong(format!("stripe_bytes is {stripe}, wanted a power of two from {LINE_BYTES} up"));
    }
    match options.ways {
        Some(ways) if !(1..=WAYS_MAX).contains(&ways) => {
            wrong(format!("ways is {ways}, wanted 1 to {WAYS_MAX}"))
        }
        _ => Ok(()),
    }
}

fn create_of(options: &MediaOptions) -> Create {
    if options.read_only { Create::OpenExisting } else { options.create }
}

fn metadata(file: &File, path: &Path) -> Result<std::fs::Metadata> {
    file.metadata().map_err(|e| Error::os(format!("cannot read the metadata of {}", path.display()), e))
}
