//! Writes index checkpoints. See [`crate::checkpoint::plan`] for the order.

use crate::Result;
use crate::checkpoint::state::Checkpoints;
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use crate::options::Residence;
use crate::table::reclaim::BETWEEN_LOOKS;
use crate::table::tables::{LeftPlaces, RootRef, Table};
use crate::tuning::Phase;
use duramen_index::{Loaded, Slot};
use duramen_log::Log;
use duramen_log::blocks::Use;
use duramen_log::format::checkpoint::{Damage, ExtentRun, Kept, Page, Root, TablePages};
use duramen_log::format::superblock::{CheckpointPlace, Regime};
use duramen_log::format::{Extent, Owner, block};
use duramen_log::open_block::Purpose;
use duramen_log::space::free_blocks;
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::lock;
use duramen_log::sync::reclaim::{self, GracePeriod};
use duramen_log::sync::time::Instant;
use duramen_media::{Granularity, LINE_BYTES, Medium, Offset};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Runs are this long where there is room: on page media each is synced once before it is filled.
const RUN_BYTES_MAX: u64 = 8 << 20;
/// About what a key takes in an index checkpoint of either kind, for the size of the first run.
const BYTES_PER_KEY: u64 = 18;
/// A checkpoint is due when this share of the used space was written, or the least of `Tuning`.
const CHECKPOINT_SHARE: u64 = 8;

/// The extents into which pages are written.
struct ExtentRuns<'k, M: Medium> {
    log: &'k Log<M>,
    growth: &'k Growth,
    checkpoints: &'k Checkpoints,
    taken: Vec<ExtentRun>,
    pages: Vec<Page>,
    /// The unfilled part of the last run.
    next: u64,
    end: u64,
    /// Bytes that are probably still to come.
    expected: u64,
}

impl<M: Medium> ExtentRuns<'_, M> {
    /// Stores a page and returns its place; `None` when there is no room.
    fn put(&mut self, bytes: &[u8]) -> Result<Option<u64>> {
        let len = bytes.len() as u64;
        if self.next + len > self.end && !self.extend(len)? {
            return Ok(None);
        }
        let at = self.next;
        self.log.medium.write(Offset(at), &[bytes]);
        self.checkpoints.bytes.fetch_add(len, Relaxed);
        self.next = (at + len).next_multiple_of(LINE_BYTES);
        self.expected = self.expected.saturating_sub(len);
        Ok(Some(at))
    }

    /// The checksum of a page, or the root.
    fn crc(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.log.blocks.secret().of_checkpoints(), bytes)
    }

    fn page(&mut self, first: u64, bytes: &[u8]) -> Result<bool> {
        let Some(at) = self.put(bytes)? else { return Ok(false) };
        self.pages.push(Page { first, at, bytes: bytes.len() as u32, crc: self.crc(bytes) });
        Ok(true)
    }

    /// Opens a run with room for `bytes`; false when there is none.
    fn extend(&mut self, bytes: u64) -> Result<bool> {
        let log = self.log;
        let least = log.extents_for(bytes);
        let ample = log.extents_for(self.expected.min(RUN_BYTES_MAX)).max(least);
        let take = || {
            let mut space = log.space();
            [ample, ample / 4, ample / 16, least]
                .into_iter()
                .filter(|&extents| extents >= least)
                .find_map(|extents| Some((space.take(extents, Purpose::Write)?.0, extents)))
        };
        let found = match take() {
            Some(found) => Some(found),
            None if self.growth.grow(log, least)? => take(),
            None => None,
        };
        let Some((extent, extents)) = found else { return Ok(false) };
        let generation = log.space().generation();
        let at = log.offset_of(extent);
        let fresh = block::Header::fresh(log.blocks.secret(), 1);
        let before = log.header_of(extent).unwrap_or(fresh);
        let header = before.opened(extents, generation);
        header.publish_fresh(&log.medium, extent, at);
        // Of a committed epoch: no record of the block can be missing.
        header.publish_seal(&log.medium, at, block::HEADER_BYTES, log.epochs().committed());
        if extents > 1 && log.medium.granularity() == Granularity::Page {
            // Writes from here on rely on the headers of extents.
            log.sync_or_poison()?;
        }
        log.blocks.open_checkpoint(extent, extents, generation);
        self.taken.push((extent, extents));
        self.next = at.0 + block::HEADER_BYTES;
        self.end = at.0 + u64::from(extents) * log.extent_bytes;
        Ok(true)
    }
}

/// An index checkpoint that is durable, and that no superblock points to yet.
struct Written {
    place: CheckpointPlace,
    runs: Vec<ExtentRun>,
}

/// How long a checkpoint waits for threads that may still use dead tables, and then for threads that are about to
/// subtract superseded records from live bytes. Another checkpoint follows soon.
const OTHERS_MAX: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 10 });

impl<M: Medium> Maintenance<M> {
    /// Writes a checkpoint when so much was written since the last that recovery after a crash would read much.
    pub(crate) fn checkpoint_if_due(&self) -> Result<()> {
        // With `Manual` only the caller commits.
        if self.checkpoints.residence != Residence::Persistent
            || self.log().epochs().regime() == Regime::Manual
        {
            return Ok(());
        }
        let written = self.log().epochs().totals().written_bytes;
        let least = match self.checkpoints.checkpoint_bytes {
            0 => self.records.tuning.checkpoint_bytes_min.max(self.log().used_bytes() / CHECKPOINT_SHARE),
            bytes => bytes,
        };
        let Some(mut current) = self.checkpoints.current.try_lock() else { return Ok(()) };
        if written - current.written < least {
            return Ok(());
        }
        self.log().epochs().check_writable()?;
        if !self.reclaim_all_tables(&mut self.compactor(), OTHERS_MAX) {
            // Soon: the users of a dead table leave.
            return Ok(());
        }
        // Also where there is no room: it is not tried again at once.
        current.written = written;
        let Some(Written { place, runs }) = self.write_checkpoint(None)? else { return Ok(()) };
        self.log().update_superblock(|superblock| superblock.checkpoint = Some(place))?;
        current.counts = true;
        self.checkpoints.written.fetch_add(1, Relaxed);
        let before = std::mem::replace(&mut current.runs, runs);
        self.free_checkpoint(&before)
    }

    /// Reads the parts of the index that are still in the checkpoint, until `stops`. Then drops it if no crash could
    /// begin with it.
    pub(crate) fn leave_checkpoint(&self, stops: &dyn Fn() -> bool) -> Result<()> {
        self.records.tables.read_pages(stops);
        let mut current = lock(&self.checkpoints.current);
        if current.counts || self.records.tables.pages_left() > 0 {
            return Ok(());
        }
        self.free_checkpoint(&std::mem::take(&mut current.runs))
    }

    /// Drops the index checkpoint, to reuse its space; returns whether there was one. The compactor does not wait for a
    /// checkpoint that is being written, because that waits for the compactor.
    pub(crate) fn drop_checkpoint(&self, purpose: Purpose) -> Result<bool> {
        let mut current = match self.checkpoints.current.try_lock() {
            Some(current) => current,
            None if purpose == Purpose::Compaction => return Ok(false),
            None => lock(&self.checkpoints.current),
        };
        if current.runs.is_empty() {
            return Ok(false);
        }
        self.records.tables.read_pages(&|| false);
        if current.counts {
            self.log().update_superblock(|superblock| superblock.checkpoint = None)?;
        }
        self.free_checkpoint(&std::mem::take(&mut current.runs))?;
        Ok(true)
    }

    /// Writes the checkpoint that the next open begins with, if it is worth it and there is room.
    pub(crate) fn checkpoint_at_close(&self) -> Result<Option<CheckpointPlace>> {
        let log = &self.records.log;
        // Without one the next open does not know which keys own the damaged records.
        let is_damaged = self.compaction.damaged.load(Relaxed) > 0;
        if !self.checkpoints.at_close
            || (log.used_bytes() < self.records.tuning.close_checkpoint_bytes_min && !is_damaged)
        {
            return Ok(None);
        }
        self.write_checkpoint_at_close()
    }

    /// As [`Maintenance::write_checkpoint`], when no thread writes any more. The runs of the previous checkpoint are
    /// freed with the new one's, so that the next open knows all blocks.
    fn write_checkpoint_at_close(&self) -> Result<Option<CheckpointPlace>> {
        let old = std::mem::take(&mut lock(&self.checkpoints.current).runs);
        Ok(self.write_checkpoint(Some(&old))?.map(|written| written.place))
    }

    /// Writes a checkpoint except for the superblock: everything else of it is durable then. `None` when there is no
    /// room for it. `old`, at a close: runs of the previous checkpoint.
    fn write_checkpoint(&self, old: Option<&[ExtentRun]>) -> Result<Option<Written>> {
        self.records.tables.read_pages(&|| false);
        let left = self.records.tables.note_left();
        let Some(before) = self.blocks_to_keep(old.is_some()) else { return Ok(None) };
        // All owners of records in these blocks, including tables that have died since, until they are reclaimed:
        // recovery reclaims them. At a close no thread uses dead tables any more, and they have been reclaimed.
        let mut tables = self.records.tables.all_owners();
        tables.retain(|table| old.is_none() || !table.is_dead());
        let expected = self.records.tables.keys() * BYTES_PER_KEY + self.records.tables.collections_bytes();
        let _inside = self.log().phases.enter(Phase::Checkpoint);
        let mut runs = ExtentRuns {
            log: &self.records.log,
            growth: &self.growth,
            checkpoints: &self.checkpoints,
            taken: Vec::new(),
            pages: Vec::new(),
            next: 0,
            end: 0,
            expected,
        };
        *lock(&self.checkpoints.revived) = Some(HashSet::new());
        let place = match self.write_pages(&mut runs, &tables, left)? {
            Some((written, roots)) => self.write_root(&mut runs, (written, roots), before, old)?,
            None => None,
        };
        let taken = runs.taken;
        match place {
            Some(place) => Ok(Some(Written { place, runs: taken })),
            None => {
                self.free_checkpoint(&taken)?;
                Ok(None)
            }
        }
    }

    /// The blocks that a checkpoint begun now may keep; `None` while dead tables wait to be reclaimed: live bytes would
    /// include dead records, and no table would show it. At a close all are reclaimed.
    fn blocks_to_keep(&self, is_close: bool) -> Option<Vec<Kept>> {
        let mut compactor = self.compactor();
        // One may have died meanwhile.
        if !is_close && !self.reclaim_all_tables(&mut compactor, Duration::ZERO) {
            return None;
        }
        // For transactions that are active or not finalized the checkpoint has the previous records: their blocks are
        // read.
        let mut before =
            self.blocks_where(|state| matches!(state, Use::Sealed | Use::Damaged | Use::GivenBack));
        before.retain(|kept| !self.log().blocks.at(kept.extent).is_pinned());
        Some(before)
    }

    /// Writes the pages of the indexes of `tables`. Returns what each index has, and where the roots of collections
    /// lie; `None` when there is no room for them.
    fn write_pages(
        &self,
        runs: &mut ExtentRuns<'_, M>,
        tables: &[Arc<Table>],
        left: LeftPlaces<'_>,
    ) -> Result<Option<(Vec<TablePages>, Vec<Offset>)>> {
        let mut committed = Instant::now();
        let interval = self.log().durable.interval();
        let mut written = Vec::new();
        for table in tables {
            let from = runs.pages.len();
            let counted =
                table.index.dump(&self.records, &|slot| self.slot_to_write(slot), &mut |first, bytes| {
                    // The thread that writes checkpoints is also the one that commits intervals.
                    let is_due = interval.is_some_and(|interval| committed.elapsed() * 2 >= interval);
                    if is_due && self.log().epochs().wrote() {
                        self.log().commit()?;
                        committed = Instant::now();
                    }
                    runs.page(first, bytes)
                })?;
            let Some(Loaded { slots, keys, changed }) = counted else { return Ok(None) };
            let pages = (runs.pages.len() - from) as u32;
            let owner = table.owner;
            written.push(TablePages { owner, slots, keys, pages, roots: 0, changed });
        }
        let mut places: Vec<Vec<Offset>> = tables.iter().map(|table| table.places_of_names()).collect();
        let at: HashMap<Owner, usize> = tables.iter().enumerate().map(|(at, it)| (it.owner, at)).collect();
        for RootRef { owner, place } in left.take() {
            if let Some(&at) = at.get(&owner) {
                places[at].push(place);
            }
        }
        for (table, places) in written.iter_mut().zip(&places) {
            table.roots = places.len() as u32;
        }
        let roots = places.concat();
        Ok(Some((written, roots)))
    }

    /// The slot as a checkpoint contains it: it points to a record that is not pending.
    fn slot_to_write(&self, mut slot: Slot) -> Slot {
        while slot.is_pending() && !slot.is_empty() {
            let record = self.records.record(slot.location());
            if record.head.is_transactional() {
                // Its transaction may never count. If it does, recovery reads the transaction record: its block is
                // pinned.
                slot = slot.put_back(Slot::of_previous(record.trailer().previous));
                continue;
            }
            if !self.log().epochs().in_use() {
                self.records.flush_on_behalf(&record, false);
            }
            slot = slot.with_pending(false);
        }
        slot
    }

    fn write_root(
        &self,
        runs: &mut ExtentRuns<'_, M>,
        (tables, roots): (Vec<TablePages>, Vec<Offset>),
        before: Vec<Kept>,
        old: Option<&[ExtentRun]>,
    ) -> Result<Option<CheckpointPlace>> {
        let _inside = self.log().phases.enter(Phase::CheckpointRoot);
        if old.is_none() {
            self.wait_for_accounts();
        }
        // Before the root is made, which lists its own run: it gets one for itself.
        (runs.next, runs.end) = (0, 0);
        let mut root = Root {
            kind: self.records.tables.store.index.kind(),
            at_close: old.is_some(),
            estimated: self.checkpoints.estimated,
            store_id: self.log().durable.superblock().store_id,
            epoch: self.log().epochs().current(),
            version: self.records.tables.version(),
            runs: Vec::new(),
            blocks: self.kept_blocks(before, old.is_some()),
            pages: std::mem::take(&mut runs.pages),
            tables,
            roots,
        };
        let old = old.unwrap_or_default();
        root.runs = vec![(Extent(0), 0); old.len() + runs.taken.len() + 1];
        let bytes = root.bytes() as u64;
        runs.expected = bytes;
        if !runs.extend(bytes)? {
            return Ok(None);
        }
        root.runs = old.iter().chain(&runs.taken).copied().collect();
        // Its run may have come from a block that was given back.
        let is_there = |kept: &Kept| {
            kept.tail != block::HEADER_BYTES
                || !matches!(self.log().blocks.at(kept.extent).state(), Use::Free | Use::Checkpoint)
        };
        root.blocks.retain(is_there);
        let root = root.encode();
        let bytes = root.len() as u64;
        let Some(at) = runs.put(&root)? else { return Ok(None) };
        self.log().medium.drain();
        // Also commits the records that slots pointed to when they were read: with epochs by this commit, and otherwise
        // by the drain, which `pending` left to it.
        self.log().commit()?;
        Ok(Some(CheckpointPlace { at, bytes, crc: runs.crc(&root) }))
    }

    /// Waits a while for threads that have superseded a record that the checkpoint no longer has, until they have
    /// subtracted it from the live bytes of its block. A thread that is pinned for longer is most likely a reader.
    fn wait_for_accounts(&self) {
        let begun = Instant::now();
        let Some(mut grace) = GracePeriod::now(Vec::new()) else { return };
        // A thread that is pinned itself would wait for itself.
        while !grace.has_elapsed() && begun.elapsed() < OTHERS_MAX && !reclaim::is_pinned() {
            duramen_log::sync::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Frees the runs of a checkpoint that nothing durable points to and whose pages the index no longer needs.
    fn free_checkpoint(&self, runs: &[ExtentRun]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let extents: Vec<Extent> = runs.iter().map(|&(extent, _)| extent).collect();
        let blocks = self.log().headers_of(&extents);
        free_blocks(&self.log().medium, self.log().extent_bytes, &blocks)
            .map_err(|error| self.log().failed(error))?;
        let mut space = self.log().space();
        for (extent, header) in blocks {
            self.log().blocks.at(extent).free();
            space.give(extent, header.extents);
        }
        Ok(())
    }

    /// The blocks in a state that `is_wanted`, in order.
    fn blocks_where(&self, is_wanted: impl Fn(Use) -> bool) -> Vec<Kept> {
        let extents = self.log().space().extents();
        let blocks = self.log().blocks.walk(0..extents).filter(|&(_, _, state)| is_wanted(state));
        let known = blocks.map(|(extent, block, _)| Kept {
            extent,
            extents: block.extents(),
            generation: block.generation(),
            tail: block.tail(),
            live: block.live_sealed(),
            expiry: block.expiry_seconds(),
            damage: match block.state() {
                Use::Damaged if block.is_known() => Damage::Known,
                Use::Damaged => Damage::Unknown,
                _ => Damage::None,
            },
        });
        known.collect()
    }

    /// The blocks of `before` that are still sealed or damaged. At a close also all other blocks that hold records, as
    /// blocks to be read.
    fn kept_blocks(&self, before: Vec<Kept>, at_close: bool) -> Vec<Kept> {
        let mut now = self.blocks_where(|state| match state {
            Use::Sealed | Use::Damaged | Use::GivenBack => true,
            Use::Free | Use::Checkpoint => false,
            Use::Open | Use::Retired => at_close,
        });
        let before: HashMap<_, _> = before.into_iter().map(|kept| (kept.extent, kept.generation)).collect();
        let revived = lock(&self.checkpoints.revived).take().unwrap_or_default();
        for kept in &mut now {
            let state = self.log().blocks.at(kept.extent).state();
            let is_sealed = matches!(state, Use::Sealed | Use::Damaged | Use::GivenBack);
            // The checkpoint's slots say that such a tombstone is dead, and its live bytes include it.
            let is_revived = revived.contains(&kept.extent);
            if !is_sealed || is_revived || before.get(&kept.extent) != Some(&kept.generation) {
                kept.tail = 0;
            }
        }
        if !at_close {
            now.retain(|kept| !kept.is_unknown());
        }
        now
    }
}
