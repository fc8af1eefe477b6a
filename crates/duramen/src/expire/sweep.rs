//! Expires keys: makes keys with expired values absent permanently. Elements whose time has come stay, since with the
//! last of them the root must go: the listener's owner deletes them, as one that holds the key's lock.

use crate::compact::blocks::records_of_open;
use crate::compact::compactor::{Compactor, Copier, ROUND_BYTES};
use crate::compact::emptying::BlockRecord;
use crate::expire::listeners::{Due, Expired, TableId};
use crate::expire::write::Expiring;
use crate::maintenance::Maintenance;
use crate::table::tables::Table;
use duramen_index::Slot;
use duramen_log::blocks::Use;
use duramen_log::format::Extent;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::Medium;
use std::time::Duration;

/// The sweeper reads at most this much in one round.
const SWEEP_BYTES: u64 = 8 << 20;
/// ... and looks at no more blocks than this.
const SWEEP_EXTENTS: u32 = 1 << 17;
/// An element that is due and still there is reported again after this time.
const DUE_AGAIN: Duration = Duration::from_secs(1);

impl<M: Medium> Maintenance<M> {
    /// Searches the blocks that will hold expired values in the time `ahead`, and makes the keys of expired values
    /// absent permanently. Returns whether there may be more of them.
    pub(crate) fn sweep(&self, compactor: &mut Compactor, ahead: Duration) -> bool {
        let extents = self.log().space().extents();
        let now = self.log().clock().now() + ahead.as_millis() as u64;
        let mut read = 0;
        let mut scratch = std::mem::take(&mut compactor.copier.scratch);
        for _ in 0..extents.min(SWEEP_EXTENTS) {
            if compactor.sweep_at >= extents {
                compactor.sweep_at = 0;
            }
            let extent = Extent(compactor.sweep_at);
            let block = self.log().blocks.at(extent);
            let state = block.state();
            compactor.sweep_at += if state == Use::Free { 1 } else { block.extents().max(1) };
            let due = block.expiry().is_some_and(|seconds| seconds * 1000 <= now);
            if due && matches!(state, Use::Open | Use::Sealed) {
                // Before the copy: records appended later note their expiry later.
                block.expiry_reset();
                let bytes = block.tail();
                if !self.log().medium.unreadable(self.log().offset_of(extent), bytes).is_empty() {
                    continue;
                }
                self.copy_block(extent, bytes, &mut scratch);
                self.sweep_block(&compactor.copier, extent, &scratch);
                read += bytes;
                if read >= SWEEP_BYTES {
                    break;
                }
            }
        }
        scratch.shrink_to(ROUND_BYTES as usize);
        compactor.copier.scratch = scratch;
        read >= SWEEP_BYTES
    }

    fn sweep_block(&self, copier: &Copier, extent: Extent, bytes: &[u8]) {
        let block = self.log().blocks.at(extent);
        let seeds = self.log().blocks.seeds(block);
        let base = self.log().blocks.offset(extent);
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
            if header.owner.is_collection() {
                let element = BlockRecord::new(base, bytes, found, &self.records.hasher);
                if self.report_due(table, &element, &guard) {
                    block.expiry_add(self.log().clock().now() + DUE_AGAIN.as_millis() as u64);
                }
                continue;
            }
            self.expire_key(
                copier,
                table,
                &BlockRecord::new(base, bytes, found, &self.records.hasher),
                &guard,
            );
        }
    }

    /// Notifies the listener of an element whose time has come, unless it was superseded. Returns whether it is there.
    fn report_due(&self, table: &Table, element: &BlockRecord<'_>, guard: &Guard) -> bool {
        let points_here = |slot: Slot| slot.location() == element.place;
        let slot = table.index.find(element.of.hash, element.of.key, guard, points_here);
        if table.is_dead() || slot.is_none_or(|slot| slot.is_tombstone()) {
            return false;
        }
        if self.expirations.due.is_wanted() {
            for place in table.places_of_names() {
                let Some(root) = self.records.whole_record(place) else { continue };
                self.expirations.due.notify(|| Due {
                    table: TableId(root.owner()),
                    key: root.key().to_vec(),
                    element: element.of.key.to_vec(),
                });
            }
        }
        true
    }

    /// Makes the key of an expired value absent permanently, and notifies the listener.
    pub(crate) fn expire_key(
        &self,
        copier: &Copier,
        table: &Table,
        block_record: &BlockRecord<'_>,
        guard: &Guard,
    ) {
        let BlockRecord { of, place, header, .. } = *block_record;
        let (record_bytes, expires_at) = (header.record_bytes(), header.expires_at);
        let expiring = Expiring { key: of.key, hash: of.hash, place, record_bytes, expires_at };
        self.records.expire_key(table, expiring, &copier.activity, guard, || {
            self.expirations.expired.notify(|| Expired { table: TableId(table.owner), key: of.key.to_vec() })
        });
    }
}
