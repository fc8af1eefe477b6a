//! Anonymous memory: survives nothing, and needs nothing. For caches, tests and measuring.

use crate::error::bytes_text;
use crate::region::Region;
use crate::{Error, Result};
use rustix::mm::Advice;
use std::ops::Range;

/// Backs `range` with zeroed memory.
///
/// # Errors
/// `OutOfSpace` when the kernel commits no more memory to this process.
pub(crate) fn extend(region: &Region, range: Range<u64>, huge_pages: bool) -> Result<()> {
    region.map_memory(range.clone()).map_err(|errno| {
        Error::os(
            format!(
                "cannot grow volatile medium from {} to {}: the kernel commits no more memory",
                bytes_text(range.start),
                bytes_text(range.end)
            ),
            errno,
        )
    })?;
    if huge_pages {
        // Refused where huge pages are not configured: `small_pages_advice` tells.
        let _ = region.advise(range, Advice::LinuxHugepage);
    }
    Ok(())
}
