//! Values that contain bytes from the medium of their own store: records, headers, marks and pages, at any place and
//! alignment, as a user could choose them. No such byte may ever be read as format.
//!
//! All checkers that write values use this module: the crash driver, its threads, the soak, and `cargo xtask torture`,
//! which includes this file.

/// Minimum number of bytes at the beginning of a value that are its own and distinguish it from others.
pub const OWN_BYTES: usize = 8;
/// The contents of the head, or of the beginning of the first blocks.
const HEAD_BYTES: u64 = 32 << 10;

/// Overwrites two in three values, from [`OWN_BYTES`] to seven more on, with bytes of a medium of `len` bytes.
///
/// `below(bound)` returns a random number below the bound. `read(at, bytes)` reads bytes of the medium from `at` on.
pub fn copy(
    value: &mut [u8],
    len: u64,
    mut below: impl FnMut(u64) -> u64,
    read: impl FnOnce(u64, &mut [u8]),
) {
    if value.len() <= OWN_BYTES || len < 64 || below(3) == 0 {
        return;
    }
    let from = OWN_BYTES + below(8) as usize;
    // The head and the headers of blocks as often as all other places.
    let at = if below(3) == 0 { below(len.min(HEAD_BYTES) / 64) * 64 } else { below(len / 8) * 8 };
    if let Some(copied) = value.get_mut(from..) {
        let bytes = copied.len().min((len - at) as usize);
        read(at, &mut copied[..bytes]);
    }
}
