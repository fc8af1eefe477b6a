//! Room for blocks: free units, growth of the store, or compaction.
//!
//! How blocks are taken and freed stands in [`crate::log::space`], also why a delete always finds room.

use super::Keeper;
use crate::format::Unit;
use crate::log::open_block::Purpose;
use crate::log::supply::Supply;
use crate::mutants::{Mutant, planted};
use crate::sync::atomic::Ordering::Relaxed;
use crate::{Error, ErrorKind, Result};
use duramen_media::Medium;

/// How often a writer makes space and looks again.
const ROUNDS_MAX: u32 = 64;

impl<M: Medium> Supply for Keeper<M> {
    fn take_free(&self, wants: [u32; 3], purpose: Purpose) -> Option<(Unit, u32, Purpose)> {
        let log = &self.records.log;
        let mut space = log.space();
        let taken = wants.into_iter().find_map(|want| {
            let (unit, as_for) = space.take(want, purpose)?;
            Some((unit, want, as_for))
        });
        let low = self.is_short(&space);
        drop(space);
        if low && !self.wake.in_vain.load(Relaxed) {
            self.wake.hurry();
        }
        taken
    }

    fn make_free(&self, bytes: u64, wished: u64, purpose: Purpose) {
        let log = &self.records.log;
        let units_of = |bytes: u64| u32::try_from(bytes.div_ceil(log.unit_bytes)).unwrap_or(u32::MAX);
        let (wanted, wished) = (units_of(bytes), units_of(wished));
        for _ in 0..ROUNDS_MAX {
            let (free, writable) = {
                let space = log.space();
                (space.free_units(), space.writable_units())
            };
            let has = if purpose == Purpose::Write { writable } else { free };
            if has >= wanted {
                return;
            }
            let grown = self.growth.grow_for_writer(log, wished.max(wanted) - has);
            if !grown.unwrap_or(false) && !self.evict_now() && !self.compact_now() {
                return;
            }
        }
    }

    fn take_units(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Unit, u32, Purpose)> {
        let log = &self.records.log;
        // Each round either finds units, or makes some, or gives up; compaction may have to run
        // several times before what it frees adjoins.
        let mut rounds = 0;
        // The least that was dead, and the most that was free, so far.
        let mut best = (u64::MAX, 0);
        loop {
            let (dead, units, free, reserve, scattered, has_spare) = {
                let mut space = log.space();
                for want in wants {
                    if let Some((unit, as_for)) = space.take(want, purpose) {
                        let low = self.is_short(&space);
                        drop(space);
                        if low && !self.wake.in_vain.load(Relaxed) {
                            self.wake.hurry();
                        }
                        return Ok((unit, want, as_for));
                    }
                }
                let scattered = space.is_scattered(least, purpose);
                let dead = log.epochs().totals().dead_bytes;
                (dead, space.units(), space.free_units(), space.reserve(), scattered, space.has_spare())
            };
            rounds += 1;
            let less_dead = dead < best.0;
            let gained = less_dead || free > best.1;
            best = (best.0.min(dead), best.1.max(free));
            if purpose == Purpose::Delete && less_dead {
                // A delete goes on for as long as there is less that is dead: see `log::space`.
                rounds = rounds.min(2);
            }
            // Half the space dead: growing on would only feed the garbage. Compact first, once.
            let mostly_dead = dead > u64::from(units - free) * log.unit_bytes / 2;
            if purpose != Purpose::Compaction && mostly_dead && rounds == 1 {
                self.compact_now();
                continue;
            }
            if self.growth.grow_for_writer(log, least)? {
                continue;
            }
            // With less than a unit dead, sealing would only cost the room that is left in open blocks.
            let worth_sealing = dead >= log.unit_bytes || purpose == Purpose::Delete;
            if purpose != Purpose::Compaction && rounds < ROUNDS_MAX {
                if scattered && self.make_adjoin(least, purpose) {
                    continue;
                }
                if self.evict_now() {
                    continue;
                }
                // What is freed may be no more than what the moves take: then what is dead lies in blocks that are open.
                let sealed = !gained && worth_sealing && log.seal_partial(purpose);
                if sealed || self.compact_now() || worth_sealing && log.seal_partial(purpose) {
                    continue;
                }
                let spare = log.space().ample_units_max();
                if !has_spare && self.clear_run(spare) {
                    continue;
                }
            }
            // A hint must not stand in the way of what it is a hint about.
            if self.drop_image(purpose)? {
                continue;
            }
            let again = !planted(Mutant::SpaceNotLookedForAgain);
            let space = log.space();
            if rounds < ROUNDS_MAX && (space.units(), space.free_units()) != (units, free) && again {
                // Somebody else grew the store or freed some of it since we looked: look again.
                continue;
            }
            drop(space);
            let refused = format!(
                "no space for {least} units of {} bytes: the store has {units} units, {free} of them free \
                 ({reserve} are kept for deletes and compaction), and ",
                log.unit_bytes
            );
            return Err(self.growth.with_failure(|why| match why {
                Some(why) => Error::new(
                    ErrorKind::OutOfSpace,
                    format!("{refused}its medium is full: {why}; deletes go on"),
                )
                .with_os_error(why),
                None if log.space().limit() != 0 => Error::new(
                    ErrorKind::OutOfSpace,
                    format!(
                        "{refused}it stays below its limit of {} bytes; delete keys, or raise the limit (maxmemory of a server)",
                        u64::from(log.space().limit()) * log.unit_bytes
                    ),
                ),
                None => Error::new(
                    ErrorKind::OutOfSpace,
                    format!(
                        "{refused}the medium does not grow beyond {} bytes; delete keys, raise len_max (maxmemory of a server), or \
                         give it a larger medium",
                        log.medium.len()
                    ),
                ),
            }));
        }
    }
}

impl<M: Medium> Keeper<M> {
    /// Makes `least` units adjoin, of as many and more that are free for this but scattered; whether it did.
    fn make_adjoin(&self, least: u32, purpose: Purpose) -> bool {
        let (spare, has_spare) = {
            let space = self.log().space();
            (space.ample_units_max(), space.has_spare())
        };
        match purpose {
            Purpose::Write if !has_spare => self.clear_run(spare),
            Purpose::Write => self.clear_run(least + spare),
            Purpose::Delete | Purpose::Compaction => self.clear_run(least),
        }
    }
}
