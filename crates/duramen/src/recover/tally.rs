//! Sums up how much of a medium is free, used, live and damaged, after its records were read.

use crate::damage::claims::{Claim, claims_in};
use crate::options::OnCorruption;
use crate::recover::heads::{Heads, Source};
use crate::recover::scan::Scanned;
use crate::recover::{Summary, verify};
use crate::transaction::outcome::Outcome;
use duramen_index::Loaded;
use duramen_log::blocks::{Blocks, Use, room_won};
use duramen_log::format::block::DataBlock;
use duramen_log::format::checkpoint::Damage;
use duramen_log::format::{Epoch, Extent, Generation, block};
use duramen_log::read;
use duramen_log::space::Space;
use duramen_media::{Medium, Offset, PAGE_BYTES};
use std::ops::Range;

/// The sums, and what [`Recovered`](crate::recover::Recovered) has of each block.
pub(crate) struct Tally<'a, M: Medium> {
    source: &'a Source<'a, M>,
    heads: &'a Heads<'a>,
    blocks: &'a Blocks,
    pub space: Space,
    pub summary: Summary,
    /// Bytes of records.
    pub used: u64,
    /// Those of them that slots point to.
    live: u64,
    /// Space after the records of blocks, which compaction gains.
    room: u64,
    /// The highest epoch recorded anywhere on the medium.
    pub epoch_max: Epoch,
    /// The claims of damaged records, in the order of their places.
    pub claims: Vec<Claim>,
    /// Of each block that was read and holds something.
    pub outcomes: Vec<(DataBlock, Outcome)>,
    /// Blocks that are free and longer than their headers should say, or that hold nothing.
    pub freed: Vec<(Extent, block::Header)>,
    /// Blocks that are known to be damaged.
    pub damaged: u64,
}

impl<'a, M: Medium> Tally<'a, M> {
    /// Sums over all blocks. `loaded` comes from the checkpoint.
    pub(crate) fn of(
        source: &'a Source<'a, M>,
        heads: &'a Heads<'a>,
        blocks: &'a Blocks,
        loaded: Loaded,
        scanned: Scanned,
    ) -> Self {
        let summary = Summary {
            clean: source.superblock.clean,
            incarnation: heads.incarnation,
            records: scanned.records + loaded.slots,
            checkpointed: loaded.slots,
            estimated: heads
                .checkpoint
                .as_ref()
                .is_some_and(|checkpoint| checkpoint.root.estimated || !heads.plan.exact),
            uncommitted: scanned.uncommitted,
            damage: heads.holes.damage().chain(heads.headers.damage.iter().cloned()).collect(),
            threads: source.threads,
            ..Summary::default()
        };
        let of_checkpoint = heads.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.root.epoch.0);
        let mut tally = Self {
            source,
            heads,
            blocks,
            space: Space::new(source.superblock.extents, source.extent_bytes, heads.incarnation),
            summary,
            used: 0,
            live: 0,
            room: 0,
            epoch_max: Epoch(source.superblock.epoch_base.max(heads.newest_epoch()).max(of_checkpoint)),
            claims: Vec::new(),
            outcomes: Vec::new(),
            freed: Vec::new(),
            damaged: 0,
        };
        tally.add_free();
        tally.add_kept();
        tally.add_read(scanned.outcomes);
        tally.add_lost();
        tally.verify_kept();
        let states = blocks.walk(0..source.superblock.extents).map(|(_, _, state)| state);
        tally.damaged = states.filter(|&state| state == Use::Damaged).count() as u64;
        tally
    }

    /// Bytes of dead records, and space that compaction gains.
    pub(crate) fn dead(&self) -> u64 {
        self.used.saturating_sub(self.live) + self.room
    }

    fn add_free(&mut self) {
        let extent_bytes = self.source.extent_bytes;
        for &(extent, header) in &self.heads.headers.free {
            // Free, but not writable.
            let (at, bytes) = (u64::from(extent.0) * extent_bytes, u64::from(header.extents) * extent_bytes);
            if self.source.options.on_corruption == OnCorruption::Serve && self.heads.holes.touch(at, bytes) {
                self.set_damaged(extent, header.extents);
                continue;
            }
            self.space.give(extent, header.extents);
            if header.extents > 1 {
                self.freed.push((extent, header));
            }
        }
        if self.heads.names_all {
            let within = self.source.first_extent()..self.source.superblock.extents;
            self.heads.plan.gaps(within, |extent, extents| self.space.give(extent, extents));
        }
    }

    /// Counts a block of `extents` extents whose records end at `tail`.
    fn add_block(&mut self, extent: Extent, extents: u32, tail: u64) {
        self.summary.blocks += 1;
        self.used += tail - block::HEADER_BYTES;
        self.room += room_won(u64::from(extents) * self.source.extent_bytes, tail);
        self.live += u64::from(self.blocks.at(extent).live_sealed());
    }

    /// Adds the blocks that a checkpoint kept.
    fn add_kept(&mut self) {
        for kept in &self.heads.plan.kept {
            if kept.tail == block::HEADER_BYTES && kept.extents > 1 && kept.damage == Damage::None {
                self.add_given_back(kept.extent, kept.extents);
                continue;
            }
            self.add_block(kept.extent, kept.extents, kept.tail);
        }
    }

    /// Whether a block has space, and was not given back.
    fn has_space_behind_header(&self, extent: Extent, extents: u32) -> bool {
        let (at, bytes) =
            (u64::from(extent.0) * self.source.extent_bytes, u64::from(extents) * self.source.extent_bytes);
        // Behind a short block the medium may end.
        bytes <= PAGE_BYTES || self.source.medium.has_space(Offset(at + PAGE_BYTES), bytes - PAGE_BYTES)
    }

    /// Counts a block that was given back: sealed, without records, and without space.
    fn add_given_back(&mut self, extent: Extent, extents: u32) {
        self.blocks.at(extent).found_given_back();
        self.space.note_given_back(extent, extents);
    }

    fn add_read(&mut self, outcomes: Vec<(DataBlock, Outcome)>) {
        for (data, mut outcome) in outcomes {
            self.claims.append(&mut outcome.claims);
            self.epoch_max = self.epoch_max.max(outcome.epoch_max);
            self.summary.torn += u64::from(outcome.torn);
            self.summary.damage.extend(outcome.damage.iter().cloned());
            if outcome.holds || !outcome.damage.is_empty() {
                self.add_block(data.extent, data.header.extents, outcome.tail);
                self.outcomes.push((data, outcome));
                continue;
            }
            let counts = |(tail, epoch)| tail == block::HEADER_BYTES && self.heads.cut.keeps(epoch);
            let may_be = data.header.extents > 1 && data.header.seal.is_some_and(counts);
            if may_be && !self.has_space_behind_header(data.extent, data.header.extents) {
                self.add_given_back(data.extent, data.header.extents);
                continue;
            }
            self.blocks.at(data.extent).free();
            self.space.give(data.extent, data.header.extents);
            self.freed.push((data.extent, data.header));
        }
    }

    /// Adds extents without a header: their content may belong to any owner.
    fn add_lost(&mut self) {
        let (extent_bytes, lost) = (self.source.extent_bytes, &self.heads.headers.lost);
        for extents in runs_of(lost) {
            let (from, bytes) =
                (u64::from(extents.start) * extent_bytes, extents.len() as u64 * extent_bytes);
            for part in self.heads.holes.between(from, bytes) {
                let first = if part.start == from { block::HEADER_BYTES } else { 0 };
                let found = read::block(self.source.medium, Offset(part.start), part.end - part.start);
                self.claims.extend(claims_in(found, part.start, first, found.len() as u64));
            }
        }
        self.claims.sort_unstable_by_key(|claim| claim.at);
        lost.iter().for_each(|&extent| self.set_damaged(extent, 1));
    }

    /// Notes a block as damaged: only that it must not be used is known.
    fn set_damaged(&self, extent: Extent, extents: u32) {
        let block = self.blocks.found(extent, extents, Generation(0), Use::Damaged);
        block.set_tail(block::HEADER_BYTES);
        block.set_unknown();
    }

    /// Verifies the blocks that a checkpoint kept, where the options ask for that, and reports the damage that it
    /// recorded.
    fn verify_kept(&mut self) {
        let (source, kept) = (self.source, &self.heads.plan.kept);
        if source.options.verify_at_open {
            let holes = &self.heads.holes;
            let wrong = verify::verify_kept(source.medium, self.blocks, kept, holes, source.threads);
            self.summary.damage.extend(wrong);
        }
        for kept in kept.iter().filter(|kept| kept.damage != Damage::None) {
            self.summary.damage.push(format!(
                "block at extent {} (offset {:#x}): its damage was known before and is not repaired",
                kept.extent.0,
                self.blocks.offset(kept.extent)
            ));
        }
    }
}

/// Extents in order, as runs.
fn runs_of(extents: &[Extent]) -> Vec<Range<u32>> {
    let mut runs: Vec<Range<u32>> = Vec::new();
    for extent in extents {
        match runs.last_mut() {
            Some(run) if run.end == extent.0 => run.end += 1,
            _ => runs.push(extent.0..extent.0 + 1),
        }
    }
    runs
}
