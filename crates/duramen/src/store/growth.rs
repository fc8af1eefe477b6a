//! Room for blocks: free units, compaction, or growth of the store.
//!
//! In which order units become the store's stands at [`Core::grow`], and how blocks are taken and freed in
//! [`crate::log::space`].

use super::{Core, write_free_headers};
use crate::epoch::lock;
use crate::format::{Unit, block};
use crate::index::MEDIUM_BYTES_MAX;
use crate::log::appender::OpenBlock;
use crate::log::blocks::Use;
use crate::log::read;
use crate::log::space::{AMPLE_BYTES_MAX, Purpose, Space};
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::tuning::Phase;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Granularity, Medium};

/// Growth takes this share of what there is ...
const GROWTH_SHARE: u64 = 8;
/// ... within these bounds, so that neither a small store jumps nor a large one stalls: a writer that has to
/// wait for growth waits for one step of it (tmpfs gives some 400 MB/s of fresh pages here).
pub(crate) const GROWTH_BYTES_MIN: u64 = 1 << 20;
const GROWTH_BYTES_MAX: u64 = 8 << 20;
/// The background thread grows a store while it has less room than this, or a sixteenth of itself.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// How often a writer makes space and looks again.
const ROUNDS_MAX: u32 = 64;
/// How long growth that failed is not tried again.
const GROWTH_RETRY_MILLIS: u64 = 1000;

impl<M: Medium> Core<M> {
    /// Opens a block with room for a record of `bytes`: takes free units, grows the store, or compacts. With `rest`, which
    /// the compactor has still to move, for all of that if it can be.
    ///
    /// Order: the header is published before anything is written behind it. See [`crate::log::space`].
    pub(crate) fn open_block(&self, bytes: u64, rest: u64, purpose: Purpose) -> Result<OpenBlock> {
        let least = self.units_for(bytes);
        let most = self.space().ample_units_max();
        // Room for some eight records of this size, so that the space behind the last that fits is
        // little, but no more than 1 MiB, nor than compaction can move.
        let ample = self.units_for((bytes * 8).min(AMPLE_BYTES_MAX)).min(most).max(least);
        let wants = match purpose {
            Purpose::Compaction => {
                let rest = self.units_for(rest).min(most).max(least);
                [ample.max(rest), rest, least]
            }
            _ => [ample, least, least],
        };
        let (unit, units, as_for) = self.take_units(least, wants, purpose)?;
        let _inside = self.tuning.phase(Phase::OpenBlock);
        let generation = self.space().generation();
        let offset = self.offset_of(unit);
        let before = read::header(&self.medium, unit, offset).unwrap_or(block::Header::fresh(1));
        let generation = match before.generation {
            kept if planted(Mutant::GenerationKept) && kept.0 > 0 => kept,
            _ => generation,
        };
        let header = before.opened(units, generation);
        header.publish_fresh(&self.medium, unit, offset);
        if units > 1 && self.medium.granularity() == Granularity::Page {
            self.sync_or_poison()?;
        }
        let entry = self.blocks.enter(unit, units, generation, Use::Open);
        entry.set_tail(block::HEADER_BYTES);
        entry.set_settled(block::HEADER_BYTES);
        entry.set_cells(false);
        // Compaction cannot always move out of a block that is longer than the spare: so nothing is put beside
        // its first record, which would have to be. See `log::space`.
        let room =
            if units > most { block::HEADER_BYTES + bytes } else { u64::from(units) * self.unit_bytes };
        let mut block = OpenBlock {
            unit,
            offset: offset.0,
            bytes: room,
            tail: block::HEADER_BYTES,
            header,
            seed: generation.seed(),
            settled: block::HEADER_BYTES,
            live: 0,
            records: 0,
            told_epoch: 0,
            purpose: as_for,
        };
        self.space().lend(&mut block, as_for);
        Ok(block)
    }

    pub(crate) fn units_for(&self, bytes: u64) -> u32 {
        (bytes + block::HEADER_BYTES).div_ceil(self.unit_bytes) as u32
    }

    /// Takes the first of `wants` that can be had, of which `least` must be; says also what the units may be used for.
    fn take_units(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Unit, u32, Purpose)> {
        // Each round either finds units, or makes some, or gives up; compaction may have to run
        // several times before what it frees adjoins.
        let mut rounds = 0;
        let mut dead_least = u64::MAX;
        loop {
            let (dead, units, free, reserve, scattered, has_spare) = {
                let mut space = self.space();
                for want in wants {
                    if let Some((unit, as_for)) = space.take(want, purpose) {
                        let low = self.is_low(&space);
                        drop(space);
                        if low && !self.background.in_vain.load(Relaxed) {
                            self.background.hurry();
                        }
                        return Ok((unit, want, as_for));
                    }
                }
                let scattered = space.is_scattered(least, purpose);
                let dead = self.epochs.totals().dead_bytes;
                (dead, space.units(), space.free_units(), space.reserve(), scattered, space.has_spare())
            };
            rounds += 1;
            if purpose == Purpose::Delete && dead < dead_least {
                // A delete goes on for as long as there is less that is dead: see `log::space`.
                dead_least = dead;
                rounds = rounds.min(2);
            }
            // Half the space dead: growing on would only feed the garbage. Compact first, once.
            let mostly_dead = dead > u64::from(units - free) * self.unit_bytes / 2;
            if purpose != Purpose::Compaction && mostly_dead && rounds == 1 {
                self.compact_now();
                continue;
            }
            self.growers.fetch_add(1, Relaxed);
            let grown = self.grow(least);
            self.growers.fetch_sub(1, Relaxed);
            if grown? {
                continue;
            }
            // With less than a unit dead, sealing would only cost the room that is left in open blocks.
            let worth_sealing = dead >= self.unit_bytes || purpose == Purpose::Delete;
            if purpose != Purpose::Compaction && rounds < ROUNDS_MAX {
                if scattered && self.make_adjoin(least, purpose) {
                    continue;
                }
                if self.compact_now() || worth_sealing && self.seal_partial(purpose) {
                    continue;
                }
                let spare = self.space().ample_units_max();
                if !has_spare && self.clear_run(spare) {
                    continue;
                }
            }
            // A hint must not stand in the way of what it is a hint about.
            if self.drop_image(purpose)? {
                continue;
            }
            let again = !planted(Mutant::SpaceNotLookedForAgain);
            let space = self.space();
            if rounds < ROUNDS_MAX && (space.units(), space.free_units()) != (units, free) && again {
                // Somebody else grew the store or freed some of it since we looked: look again.
                continue;
            }
            drop(space);
            let refused = format!(
                "no space for {least} units of {} bytes: the store has {units} units, {free} of them free \
                 ({reserve} are kept for deletes and compaction), and ",
                self.unit_bytes
            );
            return Err(match &*lock(&self.grown_out_why) {
                Some(why) => Error::new(
                    ErrorKind::OutOfSpace,
                    format!("{refused}its medium is full: {why}; deletes go on"),
                )
                .with_os_error(why),
                None => Error::new(
                    ErrorKind::OutOfSpace,
                    format!(
                        "{refused}the medium does not grow beyond {} bytes; delete keys, raise len_max (maxmemory of a server), or \
                         give it a larger medium",
                        self.medium.len()
                    ),
                ),
            });
        }
    }

    /// Makes `least` units adjoin, of as many and more that are free for this but scattered; whether it did.
    fn make_adjoin(&self, least: u32, purpose: Purpose) -> bool {
        let (spare, has_spare) = {
            let space = self.space();
            (space.ample_units_max(), space.has_spare())
        };
        match purpose {
            Purpose::Write if !has_spare => self.clear_run(spare),
            Purpose::Write => self.clear_run(least + spare),
            Purpose::Delete | Purpose::Compaction => self.clear_run(least),
        }
    }

    /// Seals the open blocks that nobody writes to, so that they can be compacted, but for those that are kept for what is more
    /// urgent; whether there were any.
    pub(super) fn seal_partial(&self, purpose: Purpose) -> bool {
        let mut partial = self.space().drain_partial(purpose);
        partial.extend(lock(&self.shared).take());
        let any = !partial.is_empty();
        partial.into_iter().for_each(|block| self.seal(block));
        any
    }

    /// Whether so little is free that the background thread should grow the store.
    pub(crate) fn is_low(&self, space: &Space) -> bool {
        let enough = u64::from(space.units() / 16).min(AHEAD_BYTES_MAX / self.unit_bytes);
        u64::from(space.writable_units()) < enough
    }

    /// Whether a writer waits for what the background thread grows.
    pub(crate) fn is_growth_awaited(&self) -> bool {
        self.growers.load(Relaxed) > 0
    }

    /// Grows the store by at least `least` units; false when the medium has no more.
    ///
    /// Order: the medium is backed and zeroed, and prepared where each write waits for it; the headers of the
    /// new units are durable; then the superblock says how many there are. A crash between leaves units that
    /// nobody counts.
    pub(crate) fn grow(&self, least: u32) -> Result<bool> {
        let (before, reserve) = {
            let space = self.space();
            (space.units(), space.reserve())
        };
        let _growing = (!planted(Mutant::GrownTwice)).then(|| lock(&self.growing));
        let units = self.space().units();
        if units != before {
            return Ok(true);
        }
        // Whoever enlarges the file system is noticed within a second.
        let now = self.begun.elapsed().as_millis() as u64;
        if self.grown_out.load(Relaxed) == u64::from(units) + 1
            && now < self.grown_out_at.load(Relaxed) + GROWTH_RETRY_MILLIS
        {
            return Ok(false);
        }
        self.epochs.check_writable()?;
        let least = u64::from(least + reserve);
        let bytes = (u64::from(units) * self.unit_bytes / GROWTH_SHARE)
            .clamp(self.tuning.growth_bytes_min, GROWTH_BYTES_MAX);
        let ample = bytes.div_ceil(self.unit_bytes).max(least);
        let len_max = self.medium.len_max().min(MEDIUM_BYTES_MAX);
        let units_max = (len_max / self.unit_bytes).min(u64::from(u32::MAX)).saturating_sub(u64::from(units));
        // What the medium already has beyond the store's units costs nothing.
        let backed = (self.medium.len() / self.unit_bytes).saturating_sub(u64::from(units)).min(ample);
        let mut last_error = None;
        for more in [ample, least, backed] {
            let more = more.min(units_max);
            if more == 0 {
                continue;
            }
            match self.medium.grow((u64::from(units) + more) * self.unit_bytes) {
                Ok(()) => {
                    self.adopt_units(units, more as u32)?;
                    return Ok(true);
                }
                Err(error) if error.kind() == duramen_media::ErrorKind::OutOfSpace => {
                    last_error = Some(error)
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Remembered until space is freed: every growth that fails costs a system call.
        if last_error.is_some() || units_max == 0 {
            self.grown_out_ever.store(true, Relaxed);
            self.grown_out.store(u64::from(units) + 1, Relaxed);
            self.grown_out_at.store(now, Relaxed);
        }
        *lock(&self.grown_out_why) = last_error;
        Ok(false)
    }

    /// Whether the medium has had no more since the store was opened: space is dear.
    pub(crate) fn has_ever_grown_out(&self) -> bool {
        self.grown_out_ever.load(Relaxed)
    }

    /// Lets growth be tried again.
    pub(crate) fn forget_grown_out(&self) {
        self.grown_out.store(0, Relaxed);
    }

    fn adopt_units(&self, from: u32, more: u32) -> Result<()> {
        let _inside = self.tuning.phase(Phase::Grow);
        if self.epochs.waits() {
            // Nobody counts these units yet.
            let (at, bytes) = (self.offset_of(Unit(from)), u64::from(more) * self.unit_bytes);
            self.medium.prepare(at, bytes).map_err(|error| self.failed(error))?;
        }
        if !planted(Mutant::GrownBeforeHeaders) {
            write_free_headers(&self.medium, self.unit_bytes, from, more);
            self.sync_or_poison()?;
        }
        self.update_superblock(|superblock| superblock.units = from + more)?;
        if planted(Mutant::GrownBeforeHeaders) {
            write_free_headers(&self.medium, self.unit_bytes, from, more);
        }
        let mut space = self.space();
        space.set_units(from + more);
        space.give(Unit(from), more);
        Ok(())
    }
}
