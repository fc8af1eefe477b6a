//! Making keys absent for good whose values have expired.

use super::Keeper;
use super::blocks::records_of_open;
use super::compaction::{Mover, ROUND_BYTES};
use super::emptying::Met;
use crate::format::Granule;
use crate::log::blocks::Use;
use crate::read::table::Table;
use crate::sync::reclaim::{self, Guard};
use crate::write::expire::Expiring;
use duramen_media::Medium;
use std::time::Duration;

/// The sweeper reads at most this much in one round.
const SWEEP_BYTES: u64 = 8 << 20;
/// ... and looks at no more blocks than this.
const SWEEP_GRANULES: u32 = 1 << 17;

impl<M: Medium> Keeper<M> {
    /// Looks for expired values in blocks that will hold some in the time `ahead`, and makes their keys absent for good.
    /// Whether there may be more of them.
    pub(super) fn sweep(&self, mover: &mut Mover, ahead: Duration) -> bool {
        let granules = self.log().space().granules();
        let now = self.log().clock().now() + ahead.as_millis() as u64;
        let mut read = 0;
        let mut scratch = std::mem::take(&mut mover.scratch);
        for _ in 0..granules.min(SWEEP_GRANULES) {
            if mover.sweep_at >= granules {
                mover.sweep_at = 0;
            }
            let granule = Granule(mover.sweep_at);
            let block = self.log().blocks.at(granule);
            let state = block.state();
            mover.sweep_at += if state == Use::Free { 1 } else { block.granules().max(1) };
            let due = block.expiry().is_some_and(|seconds| seconds * 1000 <= now);
            if due && matches!(state, Use::Open | Use::Sealed) {
                // Before the copy: what is appended later is noted later.
                block.expiry_reset();
                let bytes = block.tail();
                if !self.log().medium.unreadable(self.log().offset_of(granule), bytes).is_empty() {
                    continue;
                }
                self.copy_block(granule, bytes, &mut scratch);
                self.sweep_block(mover, granule, &scratch);
                read += bytes;
                if read >= SWEEP_BYTES {
                    break;
                }
            }
        }
        scratch.shrink_to(ROUND_BYTES as usize);
        mover.scratch = scratch;
        read >= SWEEP_BYTES
    }

    fn sweep_block(&self, mover: &Mover, granule: Granule, bytes: &[u8]) {
        let block = self.log().blocks.at(granule);
        let seeds = self.log().blocks.seeds(block);
        let base = self.log().blocks.offset(granule);
        let mut last = None;
        for found in &records_of_open(bytes, seeds) {
            let header = &found.1;
            let Some(expires_at) = header.expires_at else { continue };
            if !self.records.is_expired(header.expires_at) {
                block.expiry_add(expires_at);
                continue;
            }
            let Some(table) = self.records.tables.find(header.owner, &mut last) else { continue };
            let guard = reclaim::pin();
            self.hide(mover, table, &Met::new(base, bytes, found, &self.records.hasher), &guard);
        }
    }

    /// Makes the key of an expired value absent for good, and tells of it.
    pub(super) fn hide(&self, mover: &Mover, table: &Table, met: &Met<'_>, guard: &Guard) {
        let Met { of, place, header, .. } = *met;
        let (record_bytes, expires_at) = (header.record_bytes(), header.expires_at);
        let expiring = Expiring { key: of.key, hash: of.hash, place, record_bytes, expires_at };
        self.records
            .hide(table, expiring, &mover.activity, guard, || self.expirations.tell(table.owner, of.key));
    }
}
