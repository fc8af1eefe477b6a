//! Room for blocks: free extents, growth of the store, or compaction.
//!
//! [`duramen_log::space`] describes how blocks are taken and freed, and why a delete always finds room.

use crate::maintenance::Maintenance;
use crate::{Error, ErrorKind, Result};
use duramen_log::format::Extent;
use duramen_log::open_block::Purpose;
use duramen_log::space::Space;
use duramen_log::supply::Supply;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::{MutexGuard, rank};
use duramen_media::Medium;

/// How often a writer makes space and searches again.
const ROUNDS_MAX: u32 = 64;

impl<M: Medium> Supply for Maintenance<M> {
    fn take_free(&self, wants: [u32; 3], purpose: Purpose) -> Option<(Extent, u32, Purpose)> {
        match self.take_first(wants, purpose) {
            Ok(taken) => Some(taken),
            Err(space) => {
                self.wake_if_short(space);
                None
            }
        }
    }

    fn make_free(&self, bytes: u64, wished: u64, purpose: Purpose) {
        let log = &self.records.log;
        let extents_of = |bytes: u64| u32::try_from(bytes.div_ceil(log.extent_bytes)).unwrap_or(u32::MAX);
        let (wanted, wished) = (extents_of(bytes), extents_of(wished));
        for _ in 0..ROUNDS_MAX {
            let has = log.space().extents_for(purpose);
            if has >= wanted {
                return;
            }
            let grown = self.growth.grow_for_writer(log, wished.max(wanted) - has);
            if !grown.unwrap_or(false) && !self.evict_now() && !self.compact_now() {
                return;
            }
        }
    }

    fn find_extent(&self) -> Result<()> {
        let (extent, extents, _) = self.take_extents(1, [1; 3], Purpose::Write)?;
        self.log().space().give(extent, extents);
        Ok(())
    }

    fn take_extents(&self, least: u32, wants: [u32; 3], purpose: Purpose) -> Result<(Extent, u32, Purpose)> {
        let mut search =
            Search { least, purpose, rounds: 0, least_dead: u64::MAX, most_free: 0, gained: true };
        // Each round finds extents, makes some, or gives up. Compaction may have to run several times before the
        // extents that it frees adjoin.
        loop {
            let seen = match self.take_first(wants, purpose) {
                Ok(taken) => return Ok(taken),
                Err(space) => Seen::of(&space, self.log().epochs().totals().dead_bytes, &search),
            };
            search.begin_round(&seen);
            if !self.make_room(&search, &seen)? && !self.has_changed(&search, &seen) {
                return Err(self.refusal(&search, &seen));
            }
        }
    }
}

/// A search for adjoining extents, in rounds.
struct Search {
    least: u32,
    purpose: Purpose,
    rounds: u32,
    /// The fewest dead bytes and the most free extents so far.
    least_dead: u64,
    most_free: u32,
    /// Whether the last round gained space.
    gained: bool,
}

impl Search {
    fn begin_round(&mut self, seen: &Seen) {
        let less_dead = seen.dead < self.least_dead;
        self.gained = less_dead || seen.free > self.most_free;
        self.least_dead = self.least_dead.min(seen.dead);
        self.most_free = self.most_free.max(seen.free);
        self.rounds += 1;
        if self.purpose.is_kept_for() && less_dead {
            // A delete continues for as long as the dead bytes decrease: see `log::space`.
            self.rounds = self.rounds.min(2);
        }
    }
}

/// The state of the space when no extents were found.
struct Seen {
    dead: u64,
    extents: u32,
    limits_set: u32,
    free: u32,
    /// Free extents that are reserved for deletes and compaction.
    reserve: u32,
    /// Enough extents are free, but they do not adjoin.
    scattered: bool,
    has_spare: bool,
}

impl Seen {
    fn of(space: &Space, dead: u64, search: &Search) -> Self {
        Self {
            dead,
            extents: space.extents(),
            limits_set: space.limits_set(),
            free: space.free_extents(),
            reserve: space.reserve(),
            scattered: space.is_scattered(search.least, search.purpose),
            has_spare: space.has_spare(),
        }
    }
}

impl<M: Medium> Maintenance<M> {
    /// Takes the first of `wants` that is available; otherwise returns the space, which has none.
    fn take_first(
        &self,
        wants: [u32; 3],
        purpose: Purpose,
    ) -> std::result::Result<(Extent, u32, Purpose), MutexGuard<'_, Space, { rank::SPACE }>> {
        let mut space = self.log().space();
        let taken = wants.into_iter().find_map(|want| {
            let (extent, as_for) = space.take(want, purpose)?;
            Some((extent, want, as_for))
        });
        let Some(taken) = taken else { return Err(space) };
        self.wake_if_short(space);
        Ok(taken)
    }

    /// Wakes the background thread where there is little space left, and the thread may find some.
    fn wake_if_short(&self, space: MutexGuard<'_, Space, { rank::SPACE }>) {
        let low = self.is_short(&space);
        drop(space);
        if low && !self.wake.no_progress.load(Relaxed) {
            self.wake.wake();
        }
    }

    /// Makes room, by the cheapest means that is left. False when there is none.
    fn make_room(&self, search: &Search, seen: &Seen) -> Result<bool> {
        let log = self.log();
        // Half the space is dead: more growth would only feed the garbage. Compact first, once.
        let mostly_dead = seen.dead > u64::from(seen.extents - seen.free) * log.extent_bytes / 2;
        if search.purpose != Purpose::Compaction && mostly_dead && search.rounds == 1 {
            self.compact_now();
            return Ok(true);
        }
        Ok(self.growth.grow_for_writer(log, search.least)?
            || self.make_room_within(search, seen)
            // An index checkpoint only speeds up the next open: it must not block writes.
            || self.drop_checkpoint(search.purpose)?)
    }

    /// Gains room from the space that the store has.
    fn make_room_within(&self, search: &Search, seen: &Seen) -> bool {
        let &Search { least, purpose, rounds, gained, .. } = search;
        let log = self.log();
        if purpose == Purpose::Compaction || rounds >= ROUNDS_MAX {
            return false;
        }
        if seen.scattered && self.make_adjoin(least) || self.evict_now() {
            return true;
        }
        // Once sealed, they are free. A transaction leaves one for each delete that follows large puts, with a
        // tombstone that soon hides nothing.
        if log.seal_dead_partial(purpose) {
            self.compact_now();
            return true;
        }
        // With less than an extent dead, sealing would only waste the room that is left in open blocks.
        let worth_sealing = seen.dead >= log.extent_bytes || purpose.is_kept_for();
        // The moves may take as much as they free: then the dead bytes lie in blocks that are open.
        let sealed = !gained && worth_sealing && log.seal_partial(purpose);
        if sealed || self.compact_now() || worth_sealing && log.seal_partial(purpose) {
            return true;
        }
        let spare = log.space().ample_extents_max();
        !seen.has_spare && self.clear_run(spare)
    }

    /// Whether another thread grew the store, freed some of it, or set its limit, since we looked.
    fn has_changed(&self, search: &Search, seen: &Seen) -> bool {
        let space = self.log().space();
        let is_same = (space.extents(), space.free_extents()) == (seen.extents, seen.free)
            && space.limits_set() == seen.limits_set;
        search.rounds < ROUNDS_MAX && !is_same
    }

    /// Why there is no room.
    fn refusal(&self, search: &Search, seen: &Seen) -> Error {
        let log = self.log();
        let refused = format!(
            "no space for {} extents of {} bytes: the store has {} extents, {} of them free \
             ({} are kept for deletes and compaction), and ",
            search.least, log.extent_bytes, seen.extents, seen.free, seen.reserve
        );
        self.growth.with_failure(|why| match why {
            Some(why) => Error::new(
                ErrorKind::OutOfSpace,
                format!("{refused}its medium is full: {why}; deletes still work"),
            )
            .with_os_error(why),
            None if log.space().limit() != 0 => Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "{refused}it stays below its limit of {} bytes; delete keys, or raise the limit (maxmemory of a server)",
                    u64::from(log.space().limit()) * log.extent_bytes
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
        })
    }

    /// Makes at least `least` extents adjoin, of those that are free for this purpose but scattered; returns whether it
    /// did.
    fn make_adjoin(&self, least: u32) -> bool {
        let (spare, has_spare) = {
            let space = self.log().space();
            (space.ample_extents_max(), space.has_spare())
        };
        // The spare is not for them.
        self.clear_run(if has_spare { least + spare } else { spare })
    }
}
