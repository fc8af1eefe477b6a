//! Compaction: moves live records out of blocks that are mostly dead, and frees those blocks.
//!
//! ```text
//!  sealed ──choose──▶ moved ──retire──▶ no reader can see it ──(epoch after next committed)──▶ freed
//! ```
//!
//! The order in which steps become durable, and the result of a crash after each:
//!
//! 1. live records are appended to the compactor's own block, with their version, and drained. A crash: two equal
//!    records of a key; recovery takes either.
//! 2. the slots point to the copies. (DRAM.)
//! 3. the block is *retired*: none of its records counts as a stale record of its key any more. (DRAM.)
//! 4. when no reader and no open group can need the old block ([`crate::compact::release`]), and every epoch that
//!    superseded one of its records is committed: its header says "free". A crash before: the old block is found again,
//!    with dead records.
//!
//! A tombstone may be dropped when its key's count of stale records is 0. Then all older records of the key that are
//! left on the medium lie in blocks that were retired before the tombstone's own block is. Those are durably free
//! before that one is (invariant 2), so no crash finds an older record without the tombstone. An expired value is its
//! own tombstone.
//!
//! Invariants:
//! 1. One thread has the compactor; it takes only sealed blocks, and it alone retires and frees. Others may move records
//!    for it, while it waits ([`crate::compact::beside`]).
//! 2. Blocks are freed in the order in which they were retired, each with its own publish. The exception is blocks that
//!    stay because a caller keeps a value in them ([`crate::compact::release`]). A block from which tombstones were
//!    dropped is freed only when each block retired before it is durably free, or the records of that block count again
//!    as stale ones of their keys and did so when this block was retired.
//! 3. A cell is moved under its key's lock, with the next version: the old cell could still change. Other copies keep
//!    their version and equal their originals: recovery may take either.
//! 4. Reads do not wait for the epoch in which a copy was made (`Records::epoch_of`), since its content was committed
//!    before. Where writes wait for their epochs, only records whose own epoch is committed are copied. The compactor
//!    waits for that if necessary, not the readers. After a crash before the copy's epoch is committed, recovery leaves
//!    the copy out and finds the original. The original's block was retired after the copy, and is freed only when an
//!    epoch later than its retirement is committed. A copy of a copy is also made of a committed one.

use crate::Result;
use crate::compact::beside::Beside;
use crate::compact::blocks::Found;
use crate::compact::compactor::{Compactor, Copier, ROUND_BYTES};
use crate::compact::emptying::{BlockRecord, Contents, Emptied, EvictedRecord, Move, Successor};
use crate::compact::retired::Retired;
use crate::compact::stale::KeyOf;
use crate::evict::victims::{Chosen, EvictPlan};
use crate::maintenance::Maintenance;
use crate::table::tables::Table;
use crate::tuning::Phase;
use duramen_index::Slot;
use duramen_log::appender::{Body, Fields};
use duramen_log::blocks::{Use, room_won};
use duramen_log::cell;
use duramen_log::format::record::{Appended, Header, Kind, body_crc};
use duramen_log::format::{Epoch, Extent, Version, block};
use duramen_log::supply::Supply;
use duramen_log::sync::atomic::Ordering::{Relaxed, Release};
use duramen_log::sync::reclaim;
use duramen_media::Medium;
use std::collections::HashSet;

/// Cache misses of so many following records are under way while one record is handled.
const AHEAD: usize = 8;

impl<M: Medium> Maintenance<M> {
    /// Moves the live records out of a block and retires it. False when there was no room for that: the block is then
    /// unchanged, except that less of it is live. If the plan evicts, keys are evicted too; then false also means that
    /// they were evicted and the block stays (`evict.rs`).
    pub(crate) fn move_out(
        &self,
        compactor: &mut Compactor,
        extent: Extent,
        gives: Option<EvictPlan>,
    ) -> Result<bool> {
        let _inside = self.log().phases.enter(Phase::Move);
        let block = self.log().blocks.at(extent);
        assert_eq!(block.state(), Use::Retired, "only the compactor moves out of a block (invariant 1)");
        let mut scratch = std::mem::take(&mut compactor.copier.scratch);
        let moved = match self.whole_records_once(extent, &mut scratch) {
            Some((bytes, records)) => {
                let contents = self.contents(extent, bytes, &records);
                match self.has_room_for(&compactor.copier, &contents) {
                    true => self.move_records(compactor, &contents, gives),
                    // Moving half a block would cost room and free nothing.
                    false if gives.is_none() => Ok(false),
                    false => self.move_records(compactor, &contents, gives.map(EvictPlan::of_all)),
                }
            }
            None => Ok(true),
        };
        scratch.shrink_to(ROUND_BYTES as usize);
        compactor.copier.scratch = scratch;
        if !matches!(moved, Ok(true)) && block.state() == Use::Retired {
            self.log().blocks.keep(extent);
        }
        moved
    }

    /// Whether all live records of a block can be moved.
    fn has_room_for(&self, copier: &Copier, contents: &Contents<'_>) -> bool {
        let live = u64::from(self.log().blocks.at(contents.extent).live_sealed());
        let room = copier.appender.room();
        let (free, run_max) = {
            let space = self.log().space();
            (u64::from(space.free_extents()), space.run_max())
        };
        if live <= room || run_max >= self.log().extents_for(live) {
            return true;
        }
        // The room is in pieces; at the end of each the next record may not fit.
        let longest = contents.records.iter().map(BlockRecord::bytes).max().unwrap_or(0);
        let piece = (self.log().extent_bytes - block::HEADER_BYTES).saturating_sub(longest);
        live + longest <= free * piece + room
    }

    /// The records of a block with these bytes.
    pub(crate) fn contents<'b>(&self, extent: Extent, bytes: &'b [u8], records: &'b [Found]) -> Contents<'b> {
        Contents::new(extent, self.log().blocks.offset(extent), bytes, records, &self.records.hasher)
    }

    /// [`Maintenance::move_out`], of a block whose records are known.
    pub(crate) fn move_records(
        &self,
        compactor: &mut Compactor,
        contents: &Contents<'_>,
        gives: Option<EvictPlan>,
    ) -> Result<bool> {
        let chosen = gives.map(|gives| self.select_victims(compactor, &gives, contents));
        if let Some(chosen) = &chosen {
            self.commit_chosen(contents, chosen)?;
            if chosen.in_place {
                self.evict_in_place(compactor, contents, chosen);
                return Ok(false);
            }
        }
        let mut emptied = Emptied::new(contents.records.len());
        let mut complete = self.move_live(&mut compactor.copier, contents, chosen.as_ref(), &mut emptied)?;
        self.swap_slots(&mut compactor.copier, &mut emptied);
        if complete && !emptied.evicted.is_empty() && !self.may_be_free(compactor, &emptied) {
            complete = self.tombstone_evicted(&mut compactor.copier, &mut emptied);
        }
        if complete {
            self.retire(compactor, contents, emptied)?;
            return Ok(true);
        }
        self.keep_originals(&compactor.copier, emptied.originals());
        if let Some(chosen) = &chosen {
            // These were to go without a tombstone because the block was to be free.
            self.evict_in_place(compactor, contents, chosen);
        }
        Ok(false)
    }

    /// Reserves room for a record to move, and `rest` bytes to move after it.
    pub(crate) fn reserve_to_move(&self, copier: &mut Copier, bytes: u64, rest: u64) -> Result<()> {
        let supply: &dyn Supply = if copier.is_beside { &Beside(self) } else { self };
        copier.appender.reserve_to_move(self.log(), supply, bytes, rest)
    }

    /// Copies the live records of a block, and decides about the others. False when there was no room for a copy.
    pub(crate) fn move_live<'b>(
        &self,
        copier: &mut Copier,
        contents: &Contents<'b>,
        chosen: Option<&Chosen>,
        emptied: &mut Emptied<'b>,
    ) -> Result<bool> {
        let mut last = None;
        let mut rest = u64::from(self.log().blocks.at(contents.extent).live_sealed());
        for (i, block_record) in contents.records.iter().enumerate() {
            let Some(table) = self.records.tables.find(block_record.of.owner, &mut last) else {
                // Its table is reclaimed: it is dead, and no slot counts it.
                emptied.gone += block_record.bytes();
                continue;
            };
            let guard = reclaim::pin();
            if let Some(ahead) = contents.records.get(i + AHEAD) {
                // Prefetch both buckets: the search for a dead record reads both. Most following records are of this
                // table.
                table.index.prefetch_write(ahead.of.hash, true, &guard);
            }
            let points_here = |slot: Slot| slot.location() == block_record.place;
            let Some(slot) = table.index.find(block_record.of.hash, block_record.of.key, &guard, points_here)
            else {
                emptied.add_dead(block_record);
                continue;
            };
            let hidden = slot.is_tombstone() || self.records.is_expired(block_record.header.ends_at());
            if hidden {
                self.expire_key(copier, table, block_record, &guard);
                if self.covers_no_older_records(slot, block_record.header, emptied.dead_of(block_record.of)) {
                    emptied.drops.push(*block_record);
                    continue;
                }
                if slot.stale_known().is_none() {
                    copier.unknown_bytes += block_record.bytes();
                }
            }
            drop(guard);
            let is_chosen = !hidden && chosen.is_some_and(|chosen| chosen.goes[i]);
            let goes = is_chosen && !slot.is_pending() && self.is_committed(block_record.header);
            if goes {
                let dead_here =
                    if slot.stale_known() == Some(0) { 0 } else { emptied.dead_of(block_record.of) };
                if self.goes_alone(slot, dead_here) {
                    emptied.evicted.push(EvictedRecord { block_record: *block_record, dead_here });
                    continue;
                }
            }
            self.log().wait_for(block_record.header.epoch)?;
            if self.reserve_to_move(copier, block_record.bytes(), rest).is_err() {
                return Ok(false);
            }
            rest = rest.saturating_sub(block_record.bytes());
            if goes {
                emptied.add_replaced(block_record, self.evict_by_tombstone(copier, table, block_record));
            } else if block_record.header.kind.is_cell() && !hidden {
                emptied.add_replaced(block_record, self.move_cell(copier, table, block_record));
            } else {
                let copy = self.copy_record(copier, block_record, hidden)?;
                emptied.moves.push(Move { block_record: *block_record, copy, is_superseded: false });
            }
        }
        Ok(true)
    }

    /// Writes tombstones for the keys that were to go without one, because the block will not be free at once. False
    /// when there was no room for them.
    fn tombstone_evicted(&self, copier: &mut Copier, emptied: &mut Emptied<'_>) -> bool {
        let mut last = None;
        for EvictedRecord { block_record, .. } in std::mem::take(&mut emptied.evicted) {
            let Some(table) = self.records.tables.find(block_record.of.owner, &mut last) else { continue };
            if self.reserve_to_move(copier, block_record.bytes(), block_record.bytes()).is_err() {
                return false;
            }
            emptied.add_replaced(&block_record, self.evict_by_tombstone(copier, table, &block_record));
        }
        true
    }

    /// Retires a block that is not needed any more. The last step, since it cannot be undone: if the block were kept,
    /// its older records would count for no slot.
    pub(crate) fn retire(
        &self,
        compactor: &mut Compactor,
        contents: &Contents<'_>,
        mut emptied: Emptied<'_>,
    ) -> Result<()> {
        let extent = contents.extent;
        let is_free = !emptied.evicted.is_empty();
        if is_free {
            // Before the slots go. The moved records are durable.
            self.publish_free(extent)?;
        }
        self.remove_evicted(&mut compactor.copier, &mut emptied);
        let dead = match self.evictor.eviction() {
            _ if is_free => Some(Vec::new()),
            Some(_) => Some(hashes_of_dead(&emptied)),
            None => None,
        };
        let dropped = !emptied.drops.is_empty();
        self.drop_tombstones(&mut compactor.copier, &mut emptied);
        self.forget_stale(&compactor.copier, &emptied.dead);
        let block = self.log().blocks.at(extent);
        // Commit records, and transaction records that do not count, were dead from the beginning.
        let framed = contents.records.iter().map(BlockRecord::bytes).sum::<u64>();
        let framing = block.tail() - block::HEADER_BYTES - framed;
        let bytes = emptied.gone + framing + room_won(self.log().blocks.bytes(block), block.tail());
        self.compaction.retired.fetch_add(1, Relaxed);
        self.compaction.retired_extents.fetch_add(block.extents().into(), Relaxed);
        self.compaction.retired_bytes.fetch_add(bytes, Relaxed);
        // Release: pairs with the Acquire in `Range::step`, by way of the fence of `GracePeriod::now`.
        let number = self.log().retirements.fetch_add(1, Release);
        let epoch = self.log().epochs().current().0;
        compactor.retire_queue.add(Retired {
            extent,
            number,
            dropped,
            is_free,
            bytes,
            dead,
            epoch,
            again: None,
        });
        Ok(())
    }

    /// Removes the slots of the records that go with the block.
    fn remove_evicted(&self, copier: &mut Copier, emptied: &mut Emptied<'_>) {
        let mut last = None;
        let mut unneeded = HashSet::new();
        for gone in std::mem::take(&mut emptied.evicted) {
            let of = gone.block_record.of;
            emptied.gone += gone.block_record.bytes();
            let Some(table) = self.records.tables.find(of.owner, &mut last) else { continue };
            if !self.evict(copier, table, &gone) {
                emptied.dead.push(of);
            } else if gone.dead_here > 0 {
                unneeded.insert((of.owner, of.key));
            }
        }
        emptied.uncount(&unneeded);
    }

    /// Removes the slots of tombstones that hide nothing.
    fn drop_tombstones(&self, copier: &mut Copier, emptied: &mut Emptied<'_>) {
        let mut last = None;
        let mut unneeded = HashSet::new();
        for block_record in std::mem::take(&mut emptied.drops) {
            let of = block_record.of;
            emptied.gone += block_record.bytes();
            let Some(table) = self.records.tables.find(of.owner, &mut last) else { continue };
            if self.drop_tombstone(copier, table, &block_record) {
                table.index.shrink(of.hash, &reclaim::pin());
                if emptied.dead_of(of) > 0 {
                    unneeded.insert((of.owner, of.key));
                }
            } else {
                emptied.dead.push(of);
            }
        }
        emptied.uncount(&unneeded);
    }

    /// Whether a tombstone hides only records in the same block, which go with it.
    fn covers_no_older_records(&self, slot: Slot, header: &Header, dead_here: u64) -> bool {
        let is_committed = !slot.is_pending() && self.is_committed(header);
        is_committed && slot.covers_at_most(dead_here)
    }

    pub(crate) fn is_committed(&self, header: &Header) -> bool {
        !self.log().epochs().in_use() || header.epoch <= self.log().epochs().committed()
    }

    /// Removes a tombstone that hides nothing from the index; false when it was superseded meanwhile.
    ///
    /// Its record stays on the medium until the block is freed, and after a crash must not win over a newer one: the
    /// versions of stripes ensure that (`index::stripes`).
    fn drop_tombstone(&self, copier: &Copier, table: &Table, block_record: &BlockRecord<'_>) -> bool {
        let guard = reclaim::pin();
        let locked = table.index.lock(block_record.of.hash, &guard);
        let Some(found) = locked.find(block_record.of.key, |slot| slot.location() == block_record.place)
        else {
            return false;
        };
        if !found.get().covers_no_older_records() {
            self.log().uncount(block_record.place, block_record.bytes(), &copier.activity);
        }
        self.records.forgotten.add(block_record.of.hash);
        locked.remove(&found, &self.records);
        true
    }

    /// Appends a copy of a record; an expired value becomes a tombstone.
    fn copy_record(
        &self,
        copier: &mut Copier,
        block_record: &BlockRecord<'_>,
        hidden: bool,
    ) -> Result<Appended> {
        let BlockRecord { of: KeyOf { key, .. }, header, record, .. } = *block_record;
        let from = header.value_at() as usize;
        let mut value = &record[from..from + header.value_bytes as usize];
        assert!(!header.kind.is_cell() || hidden, "a cell is copied without its key's lock (invariant 3)");
        debug_assert!(
            !self.log().epochs().waits() || self.is_committed(header),
            "a record of epoch {}, which is not committed, is copied (invariant 4)",
            header.epoch.0
        );
        let unwinding = self.log().epochs().unwinding(&copier.activity);
        let epoch = self.log().epochs().enter(&copier.activity);
        let mut fields = Fields {
            kind: header.kind,
            tag: header.tag,
            expires_at: header.expires_at,
            version: header.version,
            epoch,
            owner: header.owner,
        };
        if hidden && header.kind != Kind::Tombstone {
            // The same version: the value has expired, so the key is absent whichever record recovery takes. The next
            // version could collide with a value that is written meanwhile.
            fields = Fields { kind: Kind::Tombstone, expires_at: None, ..fields };
            value = &[];
        }
        // The copies lie next to each other and equal the originals except for an expired value: one sum is faster than
        // two.
        let from = header.head_bytes() as usize;
        let crc = body_crc(copier.appender.seed(), &[&record[from..from + key.len() + value.len()]]);
        let appended = copier.appender.append(self.log(), fields, Body { key, value, crc });
        self.log().epochs().leave(&copier.activity, epoch, Some(appended));
        unwinding.over();
        self.note_copy(header.epoch, appended, epoch)?;
        Ok(appended)
    }

    /// Lets readers return the copy, once a slot points to it, without waiting for its epoch (invariant 4).
    fn note_copy(&self, original: Epoch, appended: Appended, epoch: Epoch) -> Result<()> {
        let is_committed = original <= self.log().epochs().committed();
        if self.log().epochs().in_use() && is_committed {
            let blocks = &self.log().blocks;
            let extent = blocks.extent_of(appended.at.0);
            let at = appended.at.0 - blocks.offset(extent);
            if !blocks.follows_copies(extent, at) {
                // Others appended since: the epoch that the block now forgets must be committed.
                self.log().wait_for(epoch)?;
            }
            blocks.add_copy(extent, at, appended.bytes);
        }
        Ok(())
    }

    /// Drains the copies and makes the slots that still point to the originals point to them.
    pub(crate) fn swap_slots(&self, copier: &mut Copier, emptied: &mut Emptied<'_>) {
        let copies = emptied.moves.iter_mut().map(|moved| {
            let copy = moved.copy;
            (moved, copy)
        });
        let copies = copier.appender.make_all_durable(self.log(), copies);
        let guard = reclaim::pin();
        let mut last = None;
        for (moved, copy) in copies {
            let (block_record, bytes) = (&moved.block_record, moved.copy.bytes);
            let KeyOf { owner, key, hash } = block_record.of;
            let Some(table) = self.records.tables.find(owner, &mut last) else {
                unreachable!("only the thread with the copier reclaims a table")
            };
            let locked = table.index.lock(hash, &guard);
            if let Some(found) = locked.find(key, |slot| slot.location() == block_record.place) {
                let slot = found.get();
                self.records.access.moved(block_record.place, copy.at(), &guard);
                found.repoint(key, slot.moved_to(copy), &self.records);
                if block_record.header.kind == Kind::Root
                    && let Some(name) = self.records.record(block_record.place).root_ref()
                {
                    self.records.tables.root_moved(name, copy.at());
                }
                if slot.covers_no_older_records() {
                    // It hides nothing, so it was subtracted already; the copy is dead in its place.
                    copier.activity.dead_add(bytes as i64 - block_record.bytes() as i64);
                } else {
                    self.log().blocks.live_sub(block_record.place.0, block_record.bytes());
                    self.log().blocks.of(copy.at().0).live_add(bytes);
                }
            } else {
                // The copy is one more stale record.
                if !table.is_dead()
                    && let Some(found) = locked.find(key, |slot| self.records.is_key_at(slot, key))
                {
                    self.account(copier, &found, found.count_stale());
                }
                copier.activity.dead_add(bytes as i64);
                moved.is_superseded = true;
            }
        }
        self.compaction
            .moved_bytes
            .fetch_add(emptied.moves.iter().map(|moved| moved.copy.bytes).sum(), Relaxed);
        emptied.note_superseded();
    }

    /// For a block that could not be emptied and stays: the originals of its moved records become ordinary stale
    /// records and dead bytes. `moved`: each, and its bytes.
    pub(crate) fn keep_originals<'a>(&self, copier: &Copier, moved: impl Iterator<Item = (KeyOf<'a>, u64)>) {
        let guard = reclaim::pin();
        for (of, bytes) in moved {
            self.count_stale(copier, of, &guard);
            copier.activity.dead_add(bytes as i64);
        }
    }

    /// Moves a cell, under its key's lock (invariant 3).
    /// False when it was superseded meanwhile.
    fn move_cell(&self, copier: &mut Copier, table: &Table, block_record: &BlockRecord<'_>) -> bool {
        let cell = |_| {
            let record = self.records.record(block_record.place);
            let Some(cell) = record.cell() else {
                unreachable!("a cell stays one while a slot points to it")
            };
            let (tag, expires_at) = (record.head.tag(), record.expires_at());
            let kind = cell::kind_to_append(self.log(), true);
            Successor { kind, tag, expires_at, value: Some(self.records.copy_cell_locked(cell)) }
        };
        self.supersede(copier, table, block_record, cell, || ())
    }

    /// Appends the record that `next` makes, given the slot of a record here, under its key's lock and with the next
    /// version. Points the slot to it. `then` is called before the lock is released. Room is reserved. False, and
    /// nothing is done, when the record was superseded meanwhile.
    pub(crate) fn supersede(
        &self,
        copier: &mut Copier,
        table: &Table,
        block_record: &BlockRecord<'_>,
        next: impl FnOnce(Slot) -> Successor,
        then: impl FnOnce(),
    ) -> bool {
        let BlockRecord { of: KeyOf { owner, key, hash }, place, header, .. } = *block_record;
        let (guard, epochs) = (reclaim::pin(), self.log().epochs());
        let unwinding = epochs.unwinding(&copier.activity);
        let locked = table.index.lock(hash, &guard);
        let Some(found) = locked.find(key, |slot| slot.location() == place) else {
            drop(locked);
            unwinding.over();
            return false;
        };
        let epoch = epochs.enter(&copier.activity);
        let Successor { kind, tag, expires_at, value } = next(found.get());
        let value = value.as_deref().unwrap_or_default();
        // No write of a caller: the version must exceed only those of the key's own records.
        let version = locked.next_version(Version(0));
        debug_assert!(version > header.version, "a successor has the next version (invariant 3)");
        let fields = Fields { kind, tag, expires_at, version, epoch, owner };
        let body = Body { key, value, crc: body_crc(copier.appender.seed(), &[key, value]) };
        let appended = copier.appender.append(self.log(), fields, body);
        let copy = match kind {
            Kind::CellSealed => copier.appender.open_cell(self.log(), appended),
            _ => copier.appender.make_durable(self.log(), appended),
        };
        let is_tombstone = kind == Kind::Tombstone;
        if !is_tombstone {
            self.records.access.moved(place, copy.at(), &guard);
        }
        // A slot that is not pending becomes pending only with another record: no active transaction can have replaced
        // it (`Block::pin`).
        let slot = found.get().moved_to(copy).with_tombstone(is_tombstone);
        found.repoint(key, slot, &self.records);
        epochs.leave(&copier.activity, epoch, Some(appended));
        unwinding.over();
        then();
        drop(locked);
        self.log().blocks.live_sub(place.0, header.record_bytes());
        if slot.covers_no_older_records() {
            copier.activity.dead_add(appended.bytes as i64);
        } else {
            self.log().blocks.of(appended.at.0).live_add(appended.bytes);
        }
        true
    }
}

/// The hashes of the keys with dead records in a block. That includes the originals of moved records: they are as new
/// as their copies, and the copies may be evicted before the block is free.
fn hashes_of_dead(emptied: &Emptied<'_>) -> Vec<u64> {
    let dead = emptied.dead.iter().map(|of| of.hash);
    let replaced = emptied.replaced.iter().map(|(of, _)| of.hash);
    let dropped = emptied.drops.iter().map(|block_record| block_record.of.hash);
    let originals = emptied.moves.iter().map(|moved| moved.block_record.of.hash);
    dead.chain(replaced).chain(dropped).chain(originals).collect()
}
