//! Space for a writer that found none: what is dead is compacted at once, however little it is, and blocks with much room are
//! packed together.

use super::{Mover, ROUND_BYTES};
use crate::Result;
use crate::epoch::lock;
use crate::format::block;
use crate::log::blocks::Use;
use crate::store::Core;
use crate::sync::atomic::Ordering::Relaxed;
use duramen_media::Medium;

/// Blocks of which at least this part is room are packed when there is no space: twice what a full block leaves.
const PACK_SHARE: u64 = 4;

/// What came of packing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    /// More is free.
    Gained,
    /// It moved, and no more is free.
    InVain,
    /// It found nothing to move, or had moved in vain since something was last freed.
    Nothing,
}

impl<M: Medium> Core<M> {
    /// Compacts once, for a writer that found no space; whether that freed any. The caller must not be
    /// pinned, or nothing can be freed.
    pub(crate) fn compact_now(&self) -> bool {
        let mut mover = lock(&self.compaction.mover);
        let before = self.compaction.freed_units.load(Relaxed);
        for _ in 0..4 {
            // What is worth it first, then whatever is dead at all.
            let worked = self.compact_round(&mut mover, 1).unwrap_or(false)
                || self.compact_round(&mut mover, 0).unwrap_or(false);
            self.reclaim(&mut mover, true);
            if self.compaction.freed_units.load(Relaxed) > before {
                return true;
            }
            if worked {
                continue;
            }
            let packed = self.pack(&mut mover).unwrap_or(Packed::Nothing);
            // Copies fill what room open blocks had left and seal them: what is dead in those is a victim now.
            if packed != Packed::InVain {
                return packed == Packed::Gained;
            }
        }
        // Only where four rounds worked in vain: it is not done again if it was in vain itself.
        self.pack(&mut mover).is_ok_and(|packed| packed == Packed::Gained)
    }

    /// Moves out of blocks that were sealed with much room left, which a close and a crash do to every block that
    /// is open: in a small store a few of them hold all the space there is.
    fn pack(&self, mover: &mut Mover) -> Result<Packed> {
        if mover.packed_in_vain {
            return Ok(Packed::Nothing);
        }
        self.epochs.check_writable()?;
        let (units, free) = {
            let space = self.space();
            (space.units(), space.free_units())
        };
        let mut roomy = Vec::new();
        for (unit, block, state) in self.blocks.walk(0..units) {
            let bytes = u64::from(block.units()) * self.unit_bytes;
            let room = bytes.saturating_sub(block::HEADER_BYTES + u64::from(block.live_settled()));
            if state == Use::Sealed && room >= bytes / PACK_SHARE {
                roomy.push((room, bytes, unit));
            }
        }
        roomy.sort_unstable_by_key(|&(room, bytes, _)| std::cmp::Reverse(room * 1024 / bytes));
        let (mut moved, mut gain) = (0, 0);
        for (room, bytes, unit) in roomy {
            if moved >= ROUND_BYTES || gain >= 4 * self.unit_bytes {
                break;
            }
            if self.blocks.at(unit).take(Use::Sealed, Use::Retired) && self.move_out(mover, unit)? {
                (moved, gain) = (moved + bytes - room, gain + room);
            }
        }
        self.reclaim(mover, true);
        let gained = self.space().free_units() > free;
        mover.packed_in_vain = !gained;
        Ok(match (gained, moved) {
            (true, _) => Packed::Gained,
            (false, 0) => Packed::Nothing,
            (false, _) => Packed::InVain,
        })
    }
}
