//! DAX character devices: persistent memory without a file system.
//!
//! The device is mapped whole, since it has no file to lengthen; there is no `ftruncate`, no `fsync`,
//! no block to allocate. Every mapping must begin and end at a multiple of the device's alignment.
//! Nothing zeroes a device: it shows what its last user left.
//!
//! Invariant:
//!
//! 1. The length is a multiple of the alignment, and at most the size in sysfs.

use crate::error::bytes_text;
use crate::options::MediaOptions;
use crate::region::{HUGE_PAGE_BYTES, Region};
use crate::topology::{NdRegion, Sysfs};
use crate::{Error, ErrorKind, PAGE_BYTES, Result};
use rustix::fd::AsFd;
use rustix::mm::MapFlags;
use std::fs::File;
use std::path::Path;

/// The properties of a device in sysfs, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) len: u64,
    pub(crate) align: u64,
    /// None for memory that is not persistent (soft-reserved DRAM, volatile CXL memory).
    pub(crate) region: Option<NdRegion>,
}

/// Reads size, alignment and region of the device with number `device` at `path`.
///
/// # Errors
/// `Unsupported` when the kernel does not tell the size, `OutOfSpace` when the device is too small.
pub(crate) fn inspect(
    sysfs: &Sysfs,
    device: (u32, u32),
    path: &Path,
    options: &MediaOptions,
) -> Result<Device> {
    let (size, align) = sysfs.dax_size_and_align(device);
    let Some(size) = size else {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "cannot open device {}: /sys/dev/char/{}:{}/size cannot be read; \
                 mount sysfs here, or check the device with \"daxctl list\"",
                path.display(),
                device.0,
                device.1
            ),
        ));
    };
    // Where the kernel does not report it (before 5.8 for some devices), assume 2 MiB, the default of ndctl.
    let align = align.filter(|a| a.is_power_of_two() && *a >= PAGE_BYTES).unwrap_or(HUGE_PAGE_BYTES);
    let len = size.min(options.len_max) & !(align - 1);
    let least = options.len_initial.min(options.len_max).max(align);
    if len < least {
        return Err(Error::new(
            ErrorKind::OutOfSpace,
            format!(
                "cannot open device {}: it has {} in pieces of {}, of which {} can be used, wanted at least {}; \
                 make a larger namespace, or lower len_initial (or raise len_max) to a multiple of {}",
                path.display(),
                bytes_text(size),
                bytes_text(align),
                bytes_text(len),
                bytes_text(least),
                bytes_text(align)
            ),
        ));
    }
    assert!(
        len.is_multiple_of(align) && len <= size,
        "{len:#x} bytes of a device of {size:#x}, aligned to {align:#x} (invariant 1)"
    );
    Ok(Device { len, align, region: sysfs.region_of_char(device) })
}

/// Maps the whole length.
///
/// # Errors
/// What `mmap` refuses, with its kind.
pub(crate) fn map(region: &Region, file: &File, path: &Path, device: &Device) -> Result<()> {
    assert!(device.len.is_multiple_of(device.align), "a mapping ends at the alignment (invariant 1)");
    region.map_file(0..device.len, file.as_fd(), MapFlags::SHARED).map_err(|errno| {
        Error::os(
            format!(
                "cannot map {} of device {} at an alignment of {}; check its mode with \"daxctl list\" \
                 (mode devdax is wanted, system-ram is not)",
                bytes_text(device.len),
                path.display(),
                bytes_text(device.align)
            ),
            errno,
        )
    })
}

/// The word that an engine leaves in a head that it erased, and that nobody else wants: `ERASED01`.
const ERASED: u64 = u64::from_le_bytes(*b"ERASED01");

/// Whether the head of the device is all zero, but for [`ERASED`], as `daxio --zero` and new modules leave it. A device
/// that was in use shows a store there, or something else that must not be overwritten unasked.
pub(crate) fn is_blank(region: &Region, device: &Device) -> bool {
    // 2 MiB: one huge page, which the first touch brings in as a whole; larger than any head.
    let words = (device.len.min(HUGE_PAGE_BYTES) / 8) as usize;
    let head = region.base().cast_const().cast::<u64>();
    (0..words).all(|index| {
        // SAFETY: below the device's length, all of which is mapped, aligned as the region's base is.
        is_unused(unsafe { head.wrapping_add(index).read_volatile() })
    })
}

/// Whether nobody wants a word in the head of a device: it is zero or [`ERASED`].
pub(crate) fn is_unused(word: u64) -> bool {
    word == 0 || word == ERASED
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::PersistenceDomain;
    use std::fs;

    fn sysfs(size: &str, align: Option<&str>) -> (tempfile::TempDir, Sysfs) {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("devices/region0/dax0.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("size"), size).unwrap();
        if let Some(align) = align {
            fs::write(device.join("align"), align).unwrap();
        }
        fs::write(directory.path().join("devices/region0/devtype"), "nd_pmem\n").unwrap();
        fs::write(directory.path().join("devices/region0/persistence_domain"), "memory_controller\n")
            .unwrap();
        let char = directory.path().join("dev/char");
        fs::create_dir_all(&char).unwrap();
        std::os::unix::fs::symlink(&device, char.join("252:0")).unwrap();
        let sysfs = Sysfs::at(directory.path());
        (directory, sysfs)
    }

    fn inspect_it(sysfs: &Sysfs, len_initial: u64, len_max: u64) -> Result<Device> {
        let options = MediaOptions { len_initial, len_max, ..MediaOptions::default() };
        inspect(sysfs, (252, 0), Path::new("/dev/dax0.0"), &options)
    }

    #[test]
    fn a_length_is_a_multiple_of_the_alignment_within_the_bounds() {
        let (_directory, sysfs) = sysfs("1075838976", Some("2097152\n")); // 1 GiB + 2 MiB
        let device = inspect_it(&sysfs, 1 << 20, 1 << 40).unwrap();
        assert_eq!((device.len, device.align), ((1 << 30) + (2 << 20), 2 << 20));
        assert_eq!(device.region.unwrap().domain, PersistenceDomain::MemoryController);
        assert_eq!(inspect_it(&sysfs, 1 << 20, (5 << 20) + 1).unwrap().len, 4 << 20);
    }

    #[test]
    fn an_unknown_alignment_is_taken_for_2_mib() {
        let (_directory, sysfs) = sysfs("5242880", None); // 5 MiB
        assert_eq!(inspect_it(&sysfs, 1, 1 << 40).unwrap().len, 4 << 20);
    }

    #[test]
    fn a_device_that_is_too_small_says_found_and_wanted() {
        let (_directory, sysfs) = sysfs("1073741824", Some("1073741824"));
        let error = inspect_it(&sysfs, 16 << 20, 512 << 20).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert!(error.to_string().contains("in pieces of 1 GiB"), "{error}");
        let error = inspect_it(&sysfs, 2 << 30, 1 << 40).unwrap_err();
        assert!(error.to_string().contains("has 1 GiB") && error.to_string().contains("2 GiB"), "{error}");
    }

    #[test]
    fn a_device_without_size_is_unsupported() {
        let (_directory, sysfs) = sysfs("none", None);
        assert_eq!(inspect_it(&sysfs, 1, 1 << 40).unwrap_err().kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn a_head_is_blank_only_if_every_word_is_zero() {
        let region = Region::reserve(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES).unwrap();
        region.map_memory(0..HUGE_PAGE_BYTES).unwrap();
        let device = Device { len: HUGE_PAGE_BYTES, align: HUGE_PAGE_BYTES, region: None };
        assert!(is_blank(&region, &device));
        // SAFETY: the last byte of what was just mapped.
        unsafe { region.base().wrapping_add(HUGE_PAGE_BYTES as usize - 1).write(1) };
        assert!(!is_blank(&region, &device));
    }
}
