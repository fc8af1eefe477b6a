//! Stores whose head is lost: what their blocks tell.
//!
//! A medium whose head is zeros is either one where no store was ever finished, or one whose head was lost. The rule: *a block
//! that was ever opened says that a store was there.* For creation makes the headers of the first units durable, all free and
//! of generation 0, before it writes a magic word ([`StoreOn::create`](crate::StoreOn)); blocks are opened only behind that,
//! with a generation above 0, which a header keeps also when its block is freed. So what a creation that did not
//! finish leaves holds no such header, nor does a device that never held a store: a header's check covers its unit's number, the check
//! tells that number, and the number and the offset together must give a size that units can have. (A store in which no block was ever
//! opened holds nothing that could be lost.) [`erase`](crate::erase) leaves a note in the head that what lies behind is wanted by nobody.

use crate::format::holes::Holes;
use crate::format::superblock::{BOOT_UNKNOWN, Regime, Superblock, UNIT_BYTES_MAX, UNIT_BYTES_MIN};
use crate::format::{HEAD_BYTES, Unit, block};
use crate::log::read;
use duramen_media::{Medium, Offset};
use std::collections::BTreeMap;

/// As far as blocks are looked for before a store is made: beyond the first unit of any size. The first unit is the first that is
/// opened, and begins a block for ever after.
const LOOKED_BYTES: u64 = 2 * UNIT_BYTES_MAX as u64;
/// Blocks begin at multiples of this.
const LINE: u64 = 64;
/// Looked at together: a part that cannot be read is left out.
const PART_BYTES: u64 = 1 << 20;

/// Tells units from checks.
struct Headers {
    /// For each highest bit of a difference between two checks, one that has it, and the unit numbers that differ by it.
    basis: [(u32, u32); 32],
}

impl Headers {
    fn new() -> Self {
        let mut basis = [(0, 0); 32];
        for bit in 0..32 {
            let (mut difference, mut units) = (block::check_difference(Unit(1 << bit)), 1 << bit);
            while difference != 0 {
                let top = &mut basis[difference.ilog2() as usize];
                if top.0 == 0 {
                    *top = (difference, units);
                    break;
                }
                (difference, units) = (difference ^ top.0, units ^ top.1);
            }
        }
        Self { basis }
    }

    /// The block header that these bytes at `at` are, and the size of units with which it is one.
    fn header_at(&self, at: u64, bytes: &[u8]) -> Option<(u32, Unit, block::Header)> {
        let mut difference = block::check_from_unit_0(bytes)?;
        let mut unit = 0;
        while difference != 0 {
            let (top, units) = self.basis[difference.ilog2() as usize];
            (difference, unit) = (if top == 0 { return None } else { difference ^ top }, unit ^ units);
        }
        let unit_bytes = u32::try_from(at.checked_div(unit.into())?).ok()?;
        let fits = at.is_multiple_of(unit.into())
            && unit_bytes.is_multiple_of(LINE as u32)
            && (UNIT_BYTES_MIN..=UNIT_BYTES_MAX).contains(&unit_bytes);
        let header = block::Header::decode(Unit(unit), bytes).ok()?;
        fits.then_some((unit_bytes, Unit(unit), header))
    }

    /// Calls `visit` for each header between the head and `end`, until that says false.
    fn walk<M: Medium>(&self, medium: &M, end: u64, mut visit: impl FnMut(u64, u32, block::Header) -> bool) {
        for from in (HEAD_BYTES..end).step_by(PART_BYTES as usize) {
            let bytes = PART_BYTES.min(end - from) / LINE * LINE;
            for part in Holes::of_what_is_read(medium).between(from, bytes) {
                let lines = read::block(medium, Offset(part.start), part.end - part.start)
                    .chunks_exact(LINE as usize);
                for (at, line) in (part.start..).step_by(LINE as usize).zip(lines) {
                    if let Some((unit_bytes, _, header)) = self.header_at(at, line)
                        && !visit(at, unit_bytes, header)
                    {
                        return;
                    }
                }
            }
        }
    }
}

/// Where a block lies that was opened, if there is one where the first of a store would be.
pub(crate) fn opened_block<M: Medium>(medium: &M) -> Option<Offset> {
    let mut opened = None;
    Headers::new().walk(medium, medium.len().min(LOOKED_BYTES), |at, _, header| {
        opened = (header.generation.0 > 0).then_some(Offset(at));
        opened.is_none()
    });
    opened
}

/// What a superblock would have said, as far as the blocks tell, and how much of that is so in words.
pub(crate) fn superblock_of<M: Medium>(medium: &M, unit_bytes: Option<u32>) -> Option<(Superblock, String)> {
    let mut counts = BTreeMap::new();
    let mut incarnation = 0;
    let len = medium.len();
    Headers::new().walk(medium, len, |at, unit_bytes, header| {
        if header.generation.0 > 0 && at + u64::from(header.units) * u64::from(unit_bytes) <= len {
            *counts.entry(unit_bytes).or_insert(0u64) += 1;
            incarnation = incarnation.max(header.generation.incarnation());
        }
        true
    });
    // Bytes of a value may look like a header; most headers are some.
    let (found, count) = counts.into_iter().max_by_key(|&(_, count)| count)?;
    let unit_bytes = unit_bytes.unwrap_or(found);
    let units = u32::try_from(len / u64::from(unit_bytes)).ok()?;
    let superblock = Superblock {
        store_id: 0,
        sequence: 0,
        unit_bytes,
        clean: false,
        sealed: false,
        regime: Regime::Immediate,
        incarnation,
        boot_id: BOOT_UNKNOWN,
        epoch_base: 1,
        time_floor: 0,
        created: 0,
        units,
        image: None,
    };
    let told = format!(
        "both superblocks are lost; derived from {count} block headers: units of {unit_bytes} bytes, {units} of them, last opened as number \
         {incarnation}; not known is which epochs were committed, so every whole record counts, also of writes that nobody was told of"
    );
    Some((superblock, told))
}
