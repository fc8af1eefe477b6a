//! Block devices: a disk or partition without a file system, through the page cache.
//!
//! The device is used whole, like a DAX device; there is no file to lengthen, and no space to allocate. It is opened
//! exclusively: the kernel then refuses to mount it, and refuses the open while it is mounted. Nothing zeroes a device:
//! it shows what its last user left.
//!
//! Invariant:
//!
//! 1. The length is a multiple of a page, and at most the size of the device.

use crate::error::bytes_text;
use crate::options::MediaOptions;
use crate::{Error, ErrorKind, PAGE_BYTES, Result, devdax};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Larger than any head.
const HEAD_BYTES: u64 = 2 << 20;

/// The size of the device at `path`.
///
/// # Errors
/// As the operating system says.
pub(crate) fn size(mut file: &File, path: &Path) -> Result<u64> {
    file.seek(SeekFrom::End(0))
        .map_err(|error| Error::os(format!("cannot read the size of device {}", path.display()), error))
}

/// How much is used of a device of `size` bytes.
///
/// # Errors
/// `OutOfSpace` when the device is too small.
pub(crate) fn length(size: u64, path: &Path, options: &MediaOptions) -> Result<u64> {
    let length = size.min(options.len_max) & !(PAGE_BYTES - 1);
    let least = options.len_initial.min(options.len_max).max(PAGE_BYTES);
    if length < least && !options.read_only {
        return Err(Error::new(
            ErrorKind::OutOfSpace,
            format!(
                "cannot open device {}: it has {}, of which {} can be used, wanted at least {}; give a larger device, \
                 or lower len_initial (or raise len_max)",
                path.display(),
                bytes_text(size),
                bytes_text(length),
                bytes_text(least)
            ),
        ));
    }
    assert!(length <= size && length.is_multiple_of(PAGE_BYTES), "{length:#x} of {size:#x} (invariant 1)");
    Ok(length)
}

/// Whether the head of the device is unused (see [`devdax::is_unused`]), as `blkdiscard --zeroout` leaves it.
///
/// # Errors
/// `Io` when it cannot be read: it may hold a store.
pub(crate) fn is_blank(file: &File, path: &Path, length: u64) -> Result<bool> {
    let mut head = vec![0; length.min(HEAD_BYTES) as usize];
    file.read_exact_at(&mut head, 0)
        .map_err(|error| Error::os(format!("cannot read the head of device {}", path.display()), error))?;
    let word = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
    Ok(head.as_chunks().0.iter().map(word).all(devdax::is_unused))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(len_initial: u64, len_max: u64) -> MediaOptions {
        MediaOptions { len_initial, len_max, ..MediaOptions::default() }
    }

    #[test]
    fn a_length_is_in_pages_within_the_bounds() {
        let path = Path::new("/dev/vdb");
        assert_eq!(length((1 << 30) + 512, path, &of(1 << 20, 1 << 40)).unwrap(), 1 << 30);
        assert_eq!(length(1 << 30, path, &of(1 << 20, (5 << 20) + 1)).unwrap(), 5 << 20);
        let error = length(8 << 20, path, &of(16 << 20, 1 << 40)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace);
        assert!(
            error.to_string().contains("it has 8 MiB") && error.to_string().contains("16 MiB"),
            "{error}"
        );
    }

    #[test]
    fn a_device_is_blank_until_a_byte_of_its_head_is_stored() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        let path = Path::new("x");
        assert_eq!(size(&file, path).unwrap(), 4 << 20);
        assert!(is_blank(&file, path, 4 << 20).unwrap());
        file.write_at(b"ERASED01", 120).unwrap();
        assert!(is_blank(&file, path, 4 << 20).unwrap(), "erased on purpose");
        file.write_at(b"x", HEAD_BYTES - 1).unwrap();
        assert!(!is_blank(&file, path, 4 << 20).unwrap());
        assert!(is_blank(&file, path, 8 << 20).is_ok_and(|is_blank| !is_blank));
        file.set_len(1 << 20).unwrap();
        assert_eq!(is_blank(&file, path, 4 << 20).unwrap_err().kind(), ErrorKind::Io);
    }
}
