//! Stores whose head is lost: finding them by their blocks.
//!
//! A medium whose head is zeros either never had a finished store, or its head was lost. The rule: *a block that was
//! ever opened proves that a store existed.* Creation makes the headers of the first extents durable, all free and of
//! generation 0, before it writes a magic word ([`StoreOn::create`](crate::StoreOn)). Blocks are opened only after
//! that, with a generation above 0, which a header keeps even when its block is freed. So an unfinished creation leaves
//! no such header. Nor does a device that never held a store have one: a header's check covers its extent's number, the
//! check yields that number, and the number and the offset together must give a valid extent size. (A store in which no
//! block was ever opened holds nothing that could be lost.)
//!
//! The search covers the beginning, where the first block that is ever opened lies. A mistaken wipe of the head may
//! erase far more than the head. So the search also covers windows spread over the whole medium, each longer than most
//! extents, and places where blocks of larger extents begin. [`erase`](crate::erase) leaves a note in the head that the
//! data after it is no longer needed.

use duramen_log::format::holes::Holes;
use duramen_log::format::superblock::{BOOT_UNKNOWN, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, Regime, Superblock};
use duramen_log::format::{Extent, HEAD_BYTES, block};
use duramen_log::read;
use duramen_media::{Medium, Offset};
use std::collections::BTreeMap;
use std::ops::Range;

/// All blocks up to here are searched before a store is created: beyond the first extent of any size. The first extent
/// is opened first, and begins a block forever after.
const LOOKED_BYTES: u64 = 2 * EXTENT_BYTES_MAX as u64;
/// Windows of [`PART_BYTES`] after that: reading 256 MiB takes a tenth of a second, and some seconds on a disk that has
/// to seek.
const WINDOWS: u64 = 256;
/// Single lines at multiples of the largest extent.
const PLACES_MAX: u64 = 4096;
/// Blocks begin at multiples of this.
const LINE: u64 = 64;
/// Read together: a part that cannot be read is skipped.
const PART_BYTES: u64 = 1 << 20;

/// Derives extents from checks.
struct Headers {
    /// For each highest bit of a difference between two checks, one that has it, and the extent numbers that differ by
    /// it.
    basis: [(u32, u32); 32],
}

impl Headers {
    fn new() -> Self {
        let mut basis = [(0, 0); 32];
        for bit in 0..32 {
            let (mut difference, mut extents) = (block::check_difference(Extent(1 << bit)), 1 << bit);
            while difference != 0 {
                let top = &mut basis[difference.ilog2() as usize];
                if top.0 == 0 {
                    *top = (difference, extents);
                    break;
                }
                (difference, extents) = (difference ^ top.0, extents ^ top.1);
            }
        }
        Self { basis }
    }

    /// Decodes the block header at `at` from these bytes, with the extent size under which it is valid.
    fn header_at(&self, at: u64, bytes: &[u8]) -> Option<(u32, Extent, block::Header)> {
        let (secret, mut difference) = block::check_from_extent_0(bytes)?;
        let mut extent = 0;
        while difference != 0 {
            let (top, extents) = self.basis[difference.ilog2() as usize];
            (difference, extent) = (if top == 0 { return None } else { difference ^ top }, extent ^ extents);
        }
        let extent_bytes = u32::try_from(at.checked_div(extent.into())?).ok()?;
        let fits = at.is_multiple_of(extent.into())
            && extent_bytes.is_multiple_of(LINE as u32)
            && (EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX).contains(&extent_bytes);
        let header = block::Header::decode(secret, Extent(extent), bytes).ok()?;
        fits.then_some((extent_bytes, Extent(extent), header))
    }

    /// Calls `visit` for each header in `within`, which begins with a line, until it returns false.
    fn walk<M: Medium>(
        &self,
        medium: &M,
        within: Range<u64>,
        mut visit: impl FnMut(u64, u32, block::Header) -> bool,
    ) {
        for from in within.clone().step_by(PART_BYTES as usize) {
            let bytes = PART_BYTES.min(within.end - from) / LINE * LINE;
            for part in Holes::of_what_is_read(medium).between(from, bytes) {
                let lines = read::block(medium, Offset(part.start), part.end - part.start)
                    .chunks_exact(LINE as usize);
                for (at, line) in (part.start..).step_by(LINE as usize).zip(lines) {
                    if let Some((extent_bytes, _, header)) = self.header_at(at, line)
                        && !visit(at, extent_bytes, header)
                    {
                        return;
                    }
                }
            }
        }
    }
}

/// The place of a block that was opened, if the searched parts have one.
pub(crate) fn opened_block<M: Medium>(medium: &M) -> Option<Offset> {
    let headers = Headers::new();
    let looked = looked_at(medium.len());
    let mut opened = None;
    for part in looked {
        headers.walk(medium, part, |at, _, header| {
            opened = (header.generation.0 > 0).then_some(Offset(at));
            opened.is_none()
        });
        if opened.is_some() {
            break;
        }
    }
    opened
}

/// The parts of a medium of `len` bytes that are searched: see the head of this file.
fn looked_at(len: u64) -> impl Iterator<Item = Range<u64>> {
    let begin = HEAD_BYTES..len.min(LOOKED_BYTES);
    let stride = (len.saturating_sub(LOOKED_BYTES) / WINDOWS).max(PART_BYTES) / LINE * LINE;
    let windows = (LOOKED_BYTES..len).step_by(stride as usize).map(move |at| at..len.min(at + PART_BYTES));
    let step = (len / PLACES_MAX).max(1).next_multiple_of(EXTENT_BYTES_MAX.into());
    let places = (LOOKED_BYTES..len).step_by(step as usize).map(move |at| at..len.min(at + LINE));
    std::iter::once(begin).chain(windows).chain(places)
}

/// The superblock as far as the blocks determine it, and a description in words of how much they do.
pub(crate) fn superblock_of<M: Medium>(
    medium: &M,
    extent_bytes: Option<u32>,
) -> Option<(Superblock, String)> {
    let mut counts = BTreeMap::new();
    let mut incarnation = 0;
    // From the first header: only the head lies before it, so it is not inside a block, whose bytes a user may have
    // chosen.
    let mut secret = None;
    let len = medium.len();
    Headers::new().walk(medium, HEAD_BYTES..len, |at, extent_bytes, header| {
        let is_ours = *secret.get_or_insert(header.secret()) == header.secret();
        if is_ours
            && header.generation.0 > 0
            && at + u64::from(header.extents) * u64::from(extent_bytes) <= len
        {
            *counts.entry(extent_bytes).or_insert(0u64) += 1;
            incarnation = incarnation.max(header.generation.incarnation());
        }
        true
    });
    let secret = secret?;
    let (found, count) = counts.into_iter().max_by_key(|&(_, count)| count)?;
    let extent_bytes = extent_bytes.unwrap_or(found);
    let extents = u32::try_from(len / u64::from(extent_bytes)).ok()?;
    let superblock = Superblock {
        store_id: 0,
        secret,
        sequence: 0,
        extent_bytes,
        clean: false,
        sealed: false,
        regime: Regime::Immediate,
        incarnation,
        boot_id: BOOT_UNKNOWN,
        epoch_base: 1,
        time_floor: 0,
        created: 0,
        extents,
        checkpoint: None,
    };
    let note = format!(
        "both superblocks are lost; derived from {count} block headers: extents of {extent_bytes} bytes, {extents} of \
         them, last opened as number \
         {incarnation}; it is not known which epochs were committed, so every whole record counts, even of writes that were not acknowledged"
    );
    Some((superblock, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_span_the_whole_medium_and_are_few_on_a_large_one() {
        const MIB: u64 = 1 << 20;
        for len in [16 << 10, MIB, 128 * MIB, 128 * MIB + 64, 300 * MIB, 5000 * MIB, 8 << 40] {
            let parts: Vec<_> = looked_at(len).collect();
            assert!(parts.iter().all(|part| part.end <= len && part.start.is_multiple_of(LINE)));
            let bytes: u64 = parts.iter().map(|part| part.end.saturating_sub(part.start)).sum();
            assert!(bytes <= 400 * MIB, "{len}: {bytes}");
            let last = parts.iter().map(|part| part.end).max().unwrap();
            assert!(len - last <= len / 200 + MIB, "{len}: up to {last}");
        }
        let parts: Vec<_> = looked_at(384 * MIB).filter(|part| part.end - part.start > LINE).collect();
        assert!(parts.windows(2).all(|two| two[0].end == two[1].start), "{parts:?}");
    }
}
