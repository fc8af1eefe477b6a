//! Verifies the blocks that an open did not read because of an index checkpoint, before the open returns, where the
//! options ask for that.
//!
//! Reads only, like all of recovery before it adopts: a refused open has changed nothing. Whole blocks are no longer
//! unverified; the others are damaged blocks whose slots the checkpoint knows.

use duramen_log::blocks::Blocks;
use duramen_log::format::block;
use duramen_log::format::checkpoint::{Damage, Kept};
use duramen_log::format::holes::Holes;
use duramen_log::format::record::{Step, Walk};
use duramen_log::read;
use duramen_log::sync::each_on_threads;
use duramen_media::{Medium, Offset};

/// Describes in words the damage of the kept blocks that is not recorded yet.
pub(crate) fn verify_kept<M: Medium>(
    medium: &M,
    blocks: &Blocks,
    kept: &[Kept],
    holes: &Holes<'_>,
    threads: usize,
) -> Vec<String> {
    let look = |at: usize| {
        let kept = kept.get(at).filter(|kept| kept.damage == Damage::None)?;
        let at = blocks.offset(kept.extent);
        let entry = blocks.at(kept.extent);
        match wrong(medium, blocks, Offset(at), kept, holes) {
            None => entry.set_unverified(false),
            Some(why) => {
                entry.set_aside();
                return Some(format!("block at extent {} (offset {at:#x}): {why}", kept.extent.0));
            }
        }
        None
    };
    each_on_threads(threads, 0..kept.len(), look).into_iter().flatten().collect()
}

/// Describes what is wrong with a block whose state is fully known.
fn wrong<M: Medium>(
    medium: &M,
    blocks: &Blocks,
    at: Offset,
    kept: &Kept,
    holes: &Holes<'_>,
) -> Option<String> {
    if holes.touch(at.0, kept.tail) {
        return Some("it cannot be read".into());
    }
    let header = match read::header(medium, blocks.secret(), kept.extent, at) {
        Ok(header) => header,
        Err(why) => return Some(why),
    };
    let found = (header.extents, header.generation, header.seal.map(|(tail, _)| tail));
    if found != (kept.extents, kept.generation, Some(kept.tail)) {
        return Some(format!(
            "its header has {} extents, generation {:#x} and an end at {:?}, wanted {}, {:#x} and {}",
            found.0, found.1.0, found.2, kept.extents, kept.generation.0, kept.tail
        ));
    }
    let (bytes, seeds) = (read::block(medium, at, kept.tail), blocks.secret().seeds(kept.generation));
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, kept.tail, seeds);
    loop {
        match walk.step() {
            Step::Record { .. } => {}
            Step::End { at: end } if end == kept.tail => return None,
            Step::End { at: end } => return Some(format!("no whole record at offset {:#x}", at.0 + end)),
        }
    }
}
