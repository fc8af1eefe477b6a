//! Stores whose head is lost: what their blocks tell.
//!
//! A medium whose head is zeros is either one where no store was ever finished, or one whose head was lost. The rule: *a block
//! that was ever opened says that a store was there.* For creation makes the headers of the first extents durable, all
//! free and of generation 0, before it writes a magic word ([`StoreOn::create`](crate::StoreOn)); blocks are opened only behind that,
//! with a generation above 0, which a header keeps also when its block is freed. So what a creation that did not
//! finish leaves holds no such header, nor does a device that never held a store: a header's check covers its extent's
//! number, the check tells that number, and the number and the offset together must give a size that extents can have.
//! (A store in which no block was ever opened holds nothing that could be lost.)
//!
//! Where it is looked: at the beginning, where the first block is that is ever opened, and, since whoever wipes a head by mistake may wipe
//! far more than the head, at windows spread over all of the medium, each longer than most extents, and at places
//! where blocks of larger extents begin. [`erase`](crate::erase) leaves a note in the head that what lies behind is
//! wanted by nobody.

use crate::format::holes::Holes;
use crate::format::superblock::{BOOT_UNKNOWN, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, Regime, Superblock};
use crate::format::{Extent, HEAD_BYTES, block};
use crate::log::read;
use duramen_media::{Medium, Offset};
use std::collections::BTreeMap;
use std::ops::Range;

/// As far as all blocks are looked for before a store is made: beyond the first extent of any size. The first extent
/// is the first that is opened, and begins a block for ever after.
const LOOKED_BYTES: u64 = 2 * EXTENT_BYTES_MAX as u64;
/// Windows of [`PART_BYTES`] behind that: to look at 256 MiB takes a tenth of a second, and some seconds on a disk that has to seek.
const WINDOWS: u64 = 256;
/// Single lines at multiples of the largest extent.
const PLACES_MAX: u64 = 4096;
/// Blocks begin at multiples of this.
const LINE: u64 = 64;
/// Looked at together: a part that cannot be read is left out.
const PART_BYTES: u64 = 1 << 20;

/// Tells extents from checks.
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

    /// The block header that these bytes at `at` are, and the size of extents with which it is one.
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

    /// Calls `visit` for each header in `within`, which begins with a line, until that says false.
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

/// Where a block lies that was opened, if there is one where it is looked.
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

/// What of a medium of `len` bytes is looked at: see the head.
fn looked_at(len: u64) -> impl Iterator<Item = Range<u64>> {
    let begin = HEAD_BYTES..len.min(LOOKED_BYTES);
    let stride = (len.saturating_sub(LOOKED_BYTES) / WINDOWS).max(PART_BYTES) / LINE * LINE;
    let windows = (LOOKED_BYTES..len).step_by(stride as usize).map(move |at| at..len.min(at + PART_BYTES));
    let step = (len / PLACES_MAX).max(1).next_multiple_of(EXTENT_BYTES_MAX.into());
    let places = (LOOKED_BYTES..len).step_by(step as usize).map(move |at| at..len.min(at + LINE));
    std::iter::once(begin).chain(windows).chain(places)
}

/// What a superblock would have said, as far as the blocks tell, and how much of that is so in words.
pub(crate) fn superblock_of<M: Medium>(
    medium: &M,
    extent_bytes: Option<u32>,
) -> Option<(Superblock, String)> {
    let mut counts = BTreeMap::new();
    let mut incarnation = 0;
    // Of the first header: nothing lies before it but the head, so it is within no block, whose bytes a user may have chosen.
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
         {incarnation}; not known is which epochs were committed, so every whole record counts, also of writes that nobody was told of"
    );
    Some((superblock, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_medium_is_sampled_and_little_of_a_large_one() {
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
