//! Eviction: removes keys from a store that has reached its limit, so that it need not refuse writes.
//! docs/internals/decisions/028 says how a durable eviction is marked, and why no crash brings back an older record.
//! This file selects and removes.
//!
//! ```text
//! sealed ──(next in its queue)──▶ some records moved, others evicted ──retire──▶ as any block that was moved out of
//! ```
//!
//! Blocks are in two queues, each by generation: blocks that writers filled, and blocks that the compactor filled. Both
//! are listed in advance, a part of the store at a time, so that a writer without room need not scan all blocks.
//!
//! Invariants:
//! 1. A record is evicted only when it is its key's newest one and not pending, and its table is evictable.
//! 2. A key goes without a tombstone only when all its older records are in its own block, and when that block is
//!    durably free on the medium. Only then is its slot removed, so no reader or listener sees that the key is gone
//!    while a crash could still bring it back. Other keys get a tombstone: all where writes wait for epochs, and all of
//!    a block from which tombstones are dropped.
//! 3. A block that is free on the medium already is reused only when no reader can reach it any more, as any other.
//! 4. A collection goes only when its root is reclaimed ([`crate::table::reclaim`]); its records are then dead in
//!    place. So a block whose evictable records are mostly roots is not moved for them: they get tombstones, the block
//!    stays where it is and is passed over until its turn comes again, and compaction takes the blocks in which enough
//!    has died. While a collection waits to be reclaimed nothing more is evicted in advance.
//! 5. Nothing is evicted while a command has closed the barrier and runs alone: nothing changes between two of its
//!    steps. A thread that locks keys holds their stripes.
//! 6. At least a quarter of the evictable bytes goes, if not of each block then of a fourth of the store. Where keys
//!    that are read all the time lie together they all stay, on the credit of earlier blocks. That ends while a writer
//!    waits for room and finds only such blocks.

use crate::Result;
use crate::compact::compactor::{Compactor, Copier, GRACE_MAX};
use crate::compact::emptying::{BlockRecord, Contents, Emptied, EvictedRecord, Successor};
use crate::compact::stale::KeyOf;
use crate::evict::access::CounterSizing;
use crate::evict::queues::{ByReads, Evicted, LISTED_MIN, LISTED_SHARE, Listed, Passed};
use crate::maintenance::Maintenance;
use crate::maintenance::grow::Growth;
use crate::options::{EvictBy, Eviction};
use crate::table::retired::{Left, Until};
use crate::table::tables::{Last, Table};
use duramen_index::Slot;
use duramen_log::blocks::Use;
use duramen_log::format::record::Kind;
use duramen_log::format::superblock::Regime;
use duramen_log::format::{Extent, Owner};
use duramen_log::space::Space;
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::lock;
use duramen_log::sync::reclaim;
use duramen_log::sync::time::Instant;
use duramen_media::Medium;
use std::time::Duration;

/// Bytes of blocks that one round evicts from.
const ROUND_BYTES: u64 = 256 << 10;
/// The store's own thread keeps this share of the limit free, but no more than `LOW_BYTES_MAX`. Free space serves no
/// hits: of 32 MiB half a MiB costs about 0.2 % of the requests.
const LOW_SHARE: u64 = 64;
const LOW_BYTES_MAX: u64 = 32 << 20;
/// Blocks that writers filled may take this share before they are next.
const FRESH_SHARE: u64 = 10;
/// No more than this share of the store stays on credit.
const CREDIT_SHARE: u64 = 4;
/// Dead records go first, when they take more than this share of the store (less while a writer waits), out of blocks
/// with at least this percentage of dead bytes.
const DEAD_SHARE: u64 = 10;
const DEAD_PERCENT: u64 = 30;
/// If no block has that much, the next search comes after this share of the store was moved out of.
const LOOKED_SHARE: u64 = 64;
/// If nothing may be evicted, eviction is not tried again for this long.
const NO_GAIN_PAUSE: Duration = Duration::from_secs(1);
/// Rounds of one eviction for a writer, and while other threads delay the gained space.
const ROUNDS_MAX: u32 = 64;
const ROUNDS_HINDERED_MAX: u32 = 8;
/// This many rounds may gain nothing because all their records were read often.
const ROUNDS_ON_CREDIT: u32 = 2;
/// How long a writer waits for a command that runs alone.
const GATE_MAX: Duration = Duration::from_secs(1);
/// A block is not moved for roots alone that take less than this share of its live bytes.
const IN_PLACE_SHARE: u64 = 4;
/// Passing over a block takes this share of the time of moving out of it.
const PASSED_SHARE: u64 = 8;

/// Which of a block's records are to be evicted.
pub(crate) struct Chosen {
    /// For each record whether it may be evicted, and whether it is, if it turns out to be the newest of its key.
    pub may_go: Vec<bool>,
    pub goes: Vec<bool>,
    /// The block is not moved for it.
    pub in_place: bool,
}

/// How the records of one block are selected.
#[derive(Clone, Copy)]
pub(crate) struct EvictPlan {
    eviction: Eviction,
    /// Writers filled the block.
    is_fresh: bool,
    /// No evictable record can be moved.
    all: bool,
}

/// The result of a round of eviction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    Worked,
    /// There is nothing left to evict from.
    Vain,
    /// A command runs alone (invariant 5).
    Shut,
}

impl EvictPlan {
    /// The same plan where there is no room to move evictable records.
    pub(crate) fn of_all(self) -> Self {
        Self { all: true, ..self }
    }
}

impl<M: Medium> Maintenance<M> {
    /// Limits the store to `bytes`, if possible; 0: as much as the medium has.
    pub(crate) fn set_limit(&self, bytes: u64) {
        let log = self.log();
        {
            let mut space = log.space();
            // No less than the smallest store in which deletes and compaction have room.
            let least =
                duramen_log::format::HEAD_BYTES.div_ceil(log.extent_bytes) as u32 + 2 * space.reserve();
            let extents = u32::try_from(bytes / log.extent_bytes).unwrap_or(u32::MAX);
            space.set_limit(if bytes == 0 { 0 } else { extents.max(least) });
        }
        self.growth.forget_failure();
        self.wake.no_progress.store(false, Relaxed);
        self.wake.wake();
    }

    /// Sets the eviction policy of a full store.
    pub(crate) fn set_eviction(&self, eviction: Option<Eviction>) {
        self.evictor.set(eviction);
        let counts = eviction.is_some_and(|eviction| eviction.by.asks_for_reads());
        let keeps_times = eviction.is_some_and(|eviction| eviction.by == EvictBy::Recency);
        self.records.access.switch(counts, keeps_times, self.counter_sizing());
        let mut compactor = self.compactor();
        // Eviction by reads makes them again.
        compactor.queues.ghosts.fit(0);
        compactor.queues.listing = None;
        drop(compactor);
        self.evictor.ghost_bytes.store(0, Relaxed);
        self.wake.no_progress.store(false, Relaxed);
        self.wake.wake();
    }

    /// The keys and bytes whose reads are counted. The store soon grows to its limit.
    fn counter_sizing(&self) -> CounterSizing {
        let (extents, free, limit) = {
            let space = self.log().space();
            (space.backed_extents(), space.free_extents(), space.limit())
        };
        let of = |extents: u32| u64::from(extents) * self.log().extent_bytes;
        let most = if limit == 0 { u64::MAX } else { of(limit.max(extents)) };
        CounterSizing {
            keys: self.records.tables.keys(),
            used_bytes: of(extents - free),
            bytes: of(extents).next_power_of_two().min(most),
        }
    }

    /// Resizes the read counters to the store's keys and bytes.
    pub(crate) fn fit_reads(&self) {
        if self.evictor.eviction().is_some() {
            self.records.access.fit(self.counter_sizing());
        }
    }

    /// Whether the store evicts now: it has a policy, and cannot grow.
    fn is_full(&self, space: &Space) -> bool {
        let at_limit = space.limit() != 0 && space.backed_extents() >= space.limit();
        self.evictor.eviction().is_some() && (at_limit || self.growth.is_at_end(space.extents()))
    }

    /// Whether so little is free that the store's own thread should make room.
    pub(crate) fn is_short(&self, space: &Space) -> bool {
        if !self.is_full(space) {
            return Growth::is_low(self.log(), space);
        }
        let extents = if space.limit() == 0 { space.backed_extents() } else { space.limit() };
        let bytes = u64::from(extents) * self.log().extent_bytes;
        let low = (bytes / LOW_SHARE).min(LOW_BYTES_MAX);
        // Blocks that were moved out of are free soon.
        let coming = self.compaction.retired_extents.load(Relaxed);
        (u64::from(space.writable_extents()) + coming) * self.log().extent_bytes < low
    }

    /// Whether a store that evicts is short.
    fn is_due(&self) -> bool {
        let space = self.log().space();
        self.is_full(&space) && self.is_short(&space)
    }

    /// Makes room before writers need it, one round; returns whether there is more to do.
    pub(crate) fn evict_ahead(&self) -> Result<bool> {
        if self.evictor.eviction().is_none() || !self.is_due() {
            return Ok(false);
        }
        // Otherwise the thread that has the compactor makes room, and checks again.
        let Some(mut compactor) = self.compactor_if_free() else { return Ok(false) };
        // Evicted collections come first, or eviction would take too much. (In parts, so that no one waits long.)
        let worked = match self.reclaim_tables(&mut compactor, Until::Part) {
            Left::Nothing => self.evict_round(&mut compactor, DEAD_SHARE)? == Round::Worked,
            left => left == Left::More,
        };
        self.reclaim(&mut compactor, false);
        self.list_ahead(&mut compactor);
        Ok(worked && self.is_due())
    }

    /// Makes room for a writer that found none; returns whether more is free.
    pub(crate) fn evict_now(&self) -> bool {
        if self.evictor.eviction().is_none() || !self.is_full(&self.log().space()) {
            return false;
        }
        let begun = Instant::now();
        // The compactor is released meanwhile: the command that runs alone may also need room.
        while self.records.barrier.wait_a_while(GATE_MAX.saturating_sub(begun.elapsed())) {
            if let Some(has_freed) = self.evict_for_writer() {
                return has_freed;
            }
        }
        false
    }

    /// The same without the wait; `None` when a command began to run alone before anything was freed.
    fn evict_for_writer(&self) -> Option<bool> {
        let before = self.compaction.freed_extents.load(Relaxed);
        let moved_before = self.compaction.moved_bytes.load(Relaxed);
        let freed = || self.compaction.freed_extents.load(Relaxed) - before;
        // More than the kept records have taken elsewhere.
        let has_won = || {
            let moved = self.compaction.moved_bytes.load(Relaxed) - moved_before;
            freed() * self.log().extent_bytes >= moved + self.log().extent_bytes
        };
        let mut last = Round::Vain;
        let mut reclaimed_at = Instant::now();
        let mut compactor = self.compactor();
        for round in 0..ROUNDS_MAX {
            // Collections give no space before they are reclaimed.
            let is_reclaimed =
                self.reclaim_all_tables(&mut compactor, GRACE_MAX.saturating_sub(reclaimed_at.elapsed()));
            if is_reclaimed {
                // Nothing is in the way; a round alone takes long on a busy machine.
                reclaimed_at = Instant::now();
            }
            let is_hindered = !is_reclaimed || self.compaction.retired.load(Relaxed) > 0;
            if is_hindered && round >= ROUNDS_HINDERED_MAX {
                break;
            }
            // Each round needs fewer dead bytes, and nothing more stays on credit.
            compactor.queues.without_credit = round >= ROUNDS_ON_CREDIT;
            last = self.evict_round(&mut compactor, DEAD_SHARE << round.min(16)).unwrap_or(Round::Vain);
            compactor.queues.without_credit = false;
            self.reclaim(&mut compactor, true);
            // This also counts space that the store's own thread freed while this one waited for it.
            if has_won() || last != Round::Worked {
                break;
            }
        }
        let has_freed = freed() > 0;
        (has_freed || last != Round::Shut).then_some(has_freed)
    }

    /// Evicts from the next blocks. Dead records go first, when they take more than `dead_share` of the store.
    fn evict_round(&self, compactor: &mut Compactor, dead_share: u64) -> Result<Round> {
        self.log().epochs().check_writable()?;
        let Some(eviction) = self.evictor.eviction() else { return Ok(Round::Vain) };
        let dead = self.log().epochs().totals().dead_bytes;
        let dead = dead.saturating_sub(self.compaction.retired_bytes.load(Relaxed));
        let used = self.log().used_bytes();
        if dead > used / dead_share && compactor.queues.dead_without_gain.is_none() {
            let before = self.compaction.retired.load(Relaxed);
            self.compact_round(compactor, DEAD_PERCENT, 1)?;
            if self.compaction.retired.load(Relaxed) > before {
                return Ok(Round::Worked);
            }
            // Each round that moves out of nothing costs a search.
            compactor.queues.dead_without_gain = Some(used / LOOKED_SHARE);
        }
        if compactor.queues.no_gain_at.is_some_and(|at| at.elapsed() < NO_GAIN_PAUSE) {
            return Ok(Round::Vain);
        }
        compactor.queues.no_gain_at = None;
        let (mut total, mut listed, mut shut) = (0, false, false);
        while total < ROUND_BYTES {
            if self.leaves_no_spare() {
                self.reclaim(compactor, true);
                if self.leaves_no_spare() {
                    break;
                }
            }
            let Some((extent, is_fresh)) = self.next_victim(compactor, &eviction, listed) else {
                if listed || !self.list(compactor, &eviction) {
                    break;
                }
                listed = true;
                continue;
            };
            let open = self.records.barrier.while_open();
            if open.is_none() {
                shut = true;
                break;
            }
            let block = self.log().blocks.at(extent);
            let live = u64::from(block.live_sealed());
            // The spare is for records that cannot be evicted.
            let has_room = self.fits_own(compactor, live, block.extents()) || self.restore_spare(compactor);
            if !block.retire() {
                continue;
            }
            let before = self.evictor.keys.load(Relaxed);
            let plan = EvictPlan { eviction, is_fresh, all: !has_room };
            let moved = self.move_out(compactor, extent, Some(plan))?;
            let evicted = compactor.copier.evicted.drain(..).filter(|_| is_fresh);
            evicted.for_each(|hash| compactor.queues.ghosts.add(hash));
            drop(open);
            let has_evicted = self.evictor.keys.load(Relaxed) > before;
            let passed = !moved && !has_evicted;
            total += if passed { block.tail() / PASSED_SHARE } else { block.tail() };
            let left = compactor.queues.dead_without_gain.take();
            compactor.queues.dead_without_gain = left.and_then(|left| left.checked_sub(block.tail()));
            compactor.queues.no_gain_bytes =
                if has_evicted { 0 } else { compactor.queues.no_gain_bytes + block.tail() };
            if compactor.queues.no_gain_bytes > 2 * used {
                // Twice the used bytes were moved out of: all was looked at, and nothing may be evicted.
                compactor.queues.passed.clear();
                (compactor.queues.no_gain_bytes, compactor.queues.no_gain_at) = (0, Some(Instant::now()));
                break;
            }
        }
        self.restore_spare(compactor);
        Ok(match total {
            0 if shut => Round::Shut,
            0 => Round::Vain,
            _ => Round::Worked,
        })
    }

    /// Whether a block that was moved out of is not free yet, and one more block may take the last spare. A crash can
    /// leave part of both blocks alive: tombstones of evicted records in one, kept records in the other, since recovery
    /// takes originals for copies. With several such blocks nothing could be moved without a spare.
    fn leaves_no_spare(&self) -> bool {
        let is_short = {
            let space = self.log().space();
            space.free_extents() < 2 * space.ample_extents_max()
        };
        is_short && self.compaction.retired.load(Relaxed) > 0
    }

    /// The next block that is unchanged since it was listed, and whether writers filled it. `None` when the blocks are
    /// to be listed again, or, if they just were, there is none.
    fn next_victim(
        &self,
        compactor: &mut Compactor,
        eviction: &Eviction,
        is_listed: bool,
    ) -> Option<(Extent, bool)> {
        let queues = &mut compactor.queues;
        loop {
            let few = queues.fresh_bytes * FRESH_SHARE <= queues.all_bytes;
            let (wanted, other) = match !few && eviction.by.asks_for_reads() {
                true => (&mut queues.fresh, &mut queues.moved),
                false => (&mut queues.moved, &mut queues.fresh),
            };
            // The other queue only where there is nothing else.
            let next = wanted.pop().or_else(|| if is_listed { other.pop() } else { None });
            let Listed { generation, extent, bytes, .. } = next?;
            let block = self.log().blocks.at(extent);
            let is_fresh = block.is_fresh() && eviction.by.asks_for_reads();
            queues.left_bytes -= bytes;
            queues.all_bytes = queues.all_bytes.saturating_sub(bytes);
            queues.fresh_bytes = queues.fresh_bytes.saturating_sub(if is_fresh { bytes } else { 0 });
            let is_there = block.state() == Use::Sealed && block.generation().0 == generation;
            if is_there && !block.is_pinned() {
                return Some((extent, is_fresh));
            }
        }
    }

    /// Lists blocks before they are needed, a part of a large store at a time.
    fn list_ahead(&self, compactor: &mut Compactor) {
        let queues = &compactor.queues;
        if queues.left_bytes * 2 < queues.listed_bytes
            && let Some(eviction) = self.evictor.eviction()
        {
            self.list_part(compactor, &eviction);
        }
    }

    /// Lists the next blocks to evict from; returns whether there are any.
    fn list(&self, compactor: &mut Compactor, eviction: &Eviction) -> bool {
        while !self.list_part(compactor, eviction) {}
        let queues = &compactor.queues;
        !queues.fresh.is_empty() || !queues.moved.is_empty()
    }

    /// Looks at the next `choose_extents` extents for blocks to list. Returns whether all were looked at: then the lists are
    /// those of the next blocks.
    fn list_part(&self, compactor: &mut Compactor, eviction: &Eviction) -> bool {
        let extents = self.log().space().extents();
        let queues = &mut compactor.queues;
        let mut listing = queues.listing.take().unwrap_or_default();
        let to = listing.at.saturating_add(self.records.tuning.choose_extents.max(1)).min(extents);
        for (extent, block, state) in self.log().blocks.walk(listing.at..to) {
            listing.at = extent.0 + if state == Use::Free { 1 } else { block.extents().max(1) };
            if state != Use::Sealed {
                continue;
            }
            let (generation, bytes) = (block.generation().0, self.log().blocks.bytes(block));
            let expires = block.expiry_seconds();
            listing.all_bytes += bytes;
            let is_fresh = block.is_fresh() && eviction.by.asks_for_reads();
            listing.fresh_bytes += if is_fresh { bytes } else { 0 };
            if eviction.volatile_only && expires == u32::MAX {
                continue;
            }
            let passed = queues.passed.get(&extent).filter(|passed| passed.generation == generation);
            if passed.is_some_and(|passed| passed.order.is_none()) {
                continue;
            }
            let passed = passed.and_then(|passed| passed.order);
            let order = match eviction.by {
                EvictBy::Recency | EvictBy::Frequency => passed.unwrap_or(generation),
                EvictBy::Expiry => passed.unwrap_or(u64::from(expires)),
                EvictBy::Chance => {
                    queues.chance =
                        queues.chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                    queues.chance >> 20
                }
            };
            listing.add(Listed { order, generation, extent, bytes }, is_fresh);
        }
        let listed_max = (extents as usize / LISTED_SHARE).max(LISTED_MIN);
        listing.cut(listed_max);
        if to < extents {
            queues.listing = Some(listing);
            return false;
        }
        let blocks = &self.log().blocks;
        let is_there = |extent: &Extent, passed: &mut Passed| {
            let block = blocks.at(*extent);
            block.state() == Use::Sealed && block.generation().0 == passed.generation
        };
        queues.passed.retain(is_there);
        queues.replace(listing);
        if queues.fresh.is_empty() && queues.moved.is_empty() {
            // Their records may have become evictable since.
            queues.passed.clear();
        }
        self.fit_reads();
        let ghosts = self.evictor.eviction().is_some_and(|eviction| eviction.by.asks_for_reads());
        compactor.queues.ghosts.fit(if ghosts { self.records.tables.keys() } else { 0 });
        self.evictor.ghost_bytes.store(compactor.queues.ghosts.bytes(), Relaxed);
        true
    }

    /// Which records of a block are to be evicted, of those that turn out to be the newest of their keys.
    pub(crate) fn select_victims(
        &self,
        compactor: &mut Compactor,
        plan: &EvictPlan,
        contents: &Contents<'_>,
    ) -> Chosen {
        let mut may_go = self.may_go(plan, contents);
        let live = u64::from(self.log().blocks.at(contents.extent).live_sealed());
        let mut values = contents.records.iter().zip(&may_go);
        let has_values =
            values.any(|(block_record, may_go)| *may_go && block_record.header.kind != Kind::Root);
        let in_place = !has_values && contents.bytes_of(&may_go) * IN_PLACE_SHARE < live;
        if in_place {
            self.leave_out_gone(contents, &mut may_go);
        }
        let mut chosen = Chosen { goes: may_go.clone(), may_go, in_place };
        match plan.eviction.by {
            _ if plan.all && !in_place => {}
            EvictBy::Chance => {}
            EvictBy::Expiry => keep_by_expiry(contents, &mut chosen),
            EvictBy::Recency | EvictBy::Frequency => {
                self.keep_by_reads(compactor, plan, contents, &mut chosen)
            }
        }
        chosen
    }

    /// For each record of a block whether the policy lets it go.
    fn may_go(&self, plan: &EvictPlan, contents: &Contents<'_>) -> Vec<bool> {
        let (mut last, mut last_owner): (Last, Option<(Owner, bool)>) = (None, None);
        let mut may_evict = |owner: Owner| match last_owner {
            Some((known, may)) if known == owner => may,
            _ => {
                // Elements go with their roots.
                let table =
                    if owner.is_collection() { None } else { self.records.tables.find(owner, &mut last) };
                let may = table.is_some_and(|table| table.label().is_some());
                last_owner = Some((owner, may));
                may
            }
        };
        let may_go = |block_record: &BlockRecord<'_>| {
            let is_value = block_record.header.kind != Kind::Tombstone;
            let is_asked = block_record.header.expires_at.is_some() || !plan.eviction.volatile_only;
            is_value && is_asked && may_evict(block_record.of.owner)
        };
        contents.records.iter().map(may_go).collect()
    }

    /// Excludes evicted records: they still lie where they did, and would be chosen in the place of others.
    fn leave_out_gone(&self, contents: &Contents<'_>, may_go: &mut [bool]) {
        let (guard, mut last) = (reclaim::pin(), None);
        for (block_record, may_go) in contents.records.iter().zip(may_go).filter(|(_, may_go)| **may_go) {
            let is_it = |slot: Slot| slot.location() == block_record.place;
            *may_go = self.records.tables.find(block_record.of.owner, &mut last).is_some_and(|table| {
                table.index.find(block_record.of.hash, block_record.of.key, &guard, is_it).is_some()
            });
        }
    }

    /// Keeps the most frequently read records, within the limit (invariant 6).
    fn keep_by_reads(
        &self,
        compactor: &mut Compactor,
        plan: &EvictPlan,
        contents: &Contents<'_>,
        chosen: &mut Chosen,
    ) {
        let Chosen { may_go, goes, .. } = chosen;
        let (guard, access) = (reclaim::pin(), &self.records.access);
        let (records, all) = (&contents.records, contents.bytes_of(may_go));
        let ghosts = &mut compactor.queues.ghosts;
        let mut reads_of = |block_record: &BlockRecord<'_>| match access.reads_at(block_record.place, &guard)
        {
            0 if plan.is_fresh && ghosts.take(block_record.of.hash) => 1,
            reads => reads,
        };
        let reads = records
            .iter()
            .zip(&*may_go)
            .map(|(block_record, may_go)| if *may_go { reads_of(block_record) } else { 0 });
        let reads: Vec<u8> = reads.collect();
        // For each number of reads, the bytes of records with it.
        let mut by_reads = ByReads::default();
        for at in (0..records.len()).filter(|&at| may_go[at]) {
            by_reads.0[usize::from(reads[at])] += records[at].bytes();
        }
        let may_stay = all / 4 * 3;
        let credit = match compactor.queues.without_credit {
            true => 0,
            false => (self.log().used_bytes() / CREDIT_SHARE).saturating_sub(compactor.queues.debt),
        };
        let most = all.min(may_stay + credit);
        let least = by_reads.least(most);
        // If too many have the highest distinguished number of reads, the first ones stay.
        let mut stayed = 0;
        for (at, block_record) in records.iter().enumerate() {
            if may_go[at] && reads[at] >= least && stayed + block_record.bytes() <= most {
                stayed += block_record.bytes();
                goes[at] = false;
                access.set_at(block_record.place, reads[at] - 1, &guard);
            }
        }
        assert!(
            stayed <= may_stay + credit,
            "{stayed} of {all} bytes stay, on a credit of {credit} (invariant 6)"
        );
        compactor.queues.debt = (compactor.queues.debt + stayed).saturating_sub(may_stay);
    }

    /// Commits the records of a block that are to be evicted, where commits come by intervals. Otherwise nothing could
    /// be evicted from a store that is filled within one interval.
    pub(crate) fn commit_chosen(&self, contents: &Contents<'_>, chosen: &Chosen) -> Result<()> {
        let mut going = contents.records.iter().zip(&chosen.goes).filter(|(_, goes)| **goes);
        if self.log().epochs().regime() != Regime::Manual
            && going.any(|(block_record, _)| !self.is_committed(block_record.header))
        {
            self.log().commit()?;
        }
        Ok(())
    }

    /// Evicts from a block that stays where it is, with tombstones, as far as there is room for those.
    pub(crate) fn evict_in_place(&self, compactor: &mut Compactor, contents: &Contents<'_>, chosen: &Chosen) {
        let extent = contents.extent;
        let mut last = None;
        // The earliest expiry of the evictable records that stay.
        let mut left: Option<u64> = None;
        for (block_record, goes) in contents
            .records
            .iter()
            .zip(&chosen.goes)
            .zip(&chosen.may_go)
            .filter_map(|(it, may_go)| may_go.then_some(it))
        {
            let Some(table) = self.records.tables.find(block_record.of.owner, &mut last) else { continue };
            let is_it = |slot: Slot| slot.location() == block_record.place;
            let Some(slot) =
                table.index.find(block_record.of.hash, block_record.of.key, &reclaim::pin(), is_it)
            else {
                continue;
            };
            if slot.is_tombstone() {
                continue;
            }
            let is_durable = !slot.is_pending() && self.is_committed(block_record.header);
            let most = block_record.bytes();
            // Expired records are removed by the sweeper.
            if *goes
                && is_durable
                && !self.records.is_expired(block_record.header.ends_at())
                && self.reserve_to_move(&mut compactor.copier, most, most).is_ok()
            {
                if self.evict_by_tombstone(&mut compactor.copier, table, block_record) {
                    // Then it is a stale record like any other.
                    self.keep_originals(&compactor.copier, std::iter::once((block_record.of, most)));
                }
            } else {
                let expires = block_record.header.expires_at.unwrap_or(u64::MAX);
                left = Some(left.map_or(expires, |left| left.min(expires)));
            }
        }
        let newest = self.log().space().generation_now().0;
        let block = self.log().blocks.at(extent);
        block.set_fresh(false);
        let order = left.map(|millis| match self.evictor.eviction().map(|eviction| eviction.by) {
            Some(EvictBy::Expiry) => millis.div_ceil(1000),
            _ => newest,
        });
        compactor.queues.passed.insert(extent, Passed { generation: block.generation().0, order });
    }

    /// Whether a key needs no tombstone when its newest record, to which `slot` points, is evicted (invariant 2).
    pub(crate) fn goes_alone(&self, slot: Slot, dead_here: u64) -> bool {
        !self.log().epochs().in_use() && slot.covers_at_most(dead_here)
    }

    /// Whether a block may be free on the medium at once (invariant 2). No older record of an evicted key lies in a
    /// block that is not free yet. The block's dropped tombstones hide nothing in such a block. The records that
    /// superseded its dead ones are durable.
    pub(crate) fn may_be_free(&self, compactor: &Compactor, emptied: &Emptied<'_>) -> bool {
        let mut last = None;
        let guard = reclaim::pin();
        let mut is_pending = |of: &KeyOf<'_>| {
            let Some(table) = self.records.tables.find(of.owner, &mut last) else { return false };
            let is_its = |slot: Slot| slot.is_pending() && self.records.is_key_at(slot, of.key);
            table.index.find(of.hash, of.key, &guard, is_its).is_some()
        };
        emptied.drops.is_empty()
            && !emptied
                .evicted
                .iter()
                .any(|gone| compactor.retire_queue.may_have_dead(gone.block_record.of.hash))
            && !emptied.dead.iter().any(&mut is_pending)
    }

    /// Durably marks a block that readers still use as free on the medium.
    pub(crate) fn publish_free(&self, extent: Extent) -> Result<()> {
        for (extent, header) in self.headers_to_free(&[extent]) {
            header.freed().publish_word(&self.log().medium, extent, self.log().offset_of(extent));
        }
        self.log().sync_or_poison()
    }

    /// Removes the slot of a key whose newest record goes with its block; false when it was written meanwhile.
    pub(crate) fn evict(&self, copier: &mut Copier, table: &Table, gone: &EvictedRecord<'_>) -> bool {
        let BlockRecord { of, place, header, .. } = gone.block_record;
        let guard = reclaim::pin();
        let locked = table.index.lock(of.hash, &guard);
        let Some(found) = locked.find(of.key, |slot| slot.location() == place) else { return false };
        debug_assert!(
            found.get().covers_at_most(gone.dead_here) && !self.log().epochs().in_use(),
            "a key goes without a tombstone that hides what is left (invariant 2)"
        );
        self.check_victim(table, found.get());
        if let Some(names) = self.records.whole_record(place).and_then(|record| record.root_ref()) {
            self.records.tables.release_root(names);
        }
        self.log().uncount(place, header.record_bytes(), &copier.activity);
        table.count_keys(copier.activity.shard, -1);
        self.records.forgotten.add(of.hash);
        locked.remove(&found, &self.records);
        self.notify_evicted(table, &gone.block_record);
        drop(locked);
        table.index.shrink(of.hash, &guard);
        self.note_evicted(copier, &gone.block_record);
        true
    }

    /// Appends a tombstone for a key and makes its slot point there. Room for it is reserved. False when the record was
    /// superseded meanwhile.
    pub(crate) fn evict_by_tombstone(
        &self,
        copier: &mut Copier,
        table: &Table,
        block_record: &BlockRecord<'_>,
    ) -> bool {
        let mut names = None;
        let tombstone = |slot| {
            self.check_victim(table, slot);
            names = self.records.whole_record(block_record.place).and_then(|record| record.root_ref());
            Successor { kind: Kind::Tombstone, tag: 0, expires_at: None, value: None }
        };
        let notify = || self.notify_evicted(table, block_record);
        if !self.supersede(copier, table, block_record, tombstone, notify) {
            return false;
        }
        table.count_keys(copier.activity.shard, -1);
        if let Some(names) = names {
            self.records.tables.release_root(names);
        }
        self.note_evicted(copier, block_record);
        true
    }

    /// Asserts that a key may be evicted, whose lock is held.
    fn check_victim(&self, table: &Table, slot: Slot) {
        debug_assert!(!slot.is_pending() && !slot.is_tombstone(), "{slot:?} is evicted (invariant 1)");
        debug_assert!(!table.owner.is_collection(), "an element is evicted without its root (invariant 4)");
        debug_assert!(
            cfg!(loom) || self.records.barrier.is_kept_open(),
            "a key is evicted while a command may begin to run alone (invariant 5)"
        );
    }

    fn note_evicted(&self, copier: &mut Copier, block_record: &BlockRecord<'_>) {
        self.evictor.keys.fetch_add(1, Relaxed);
        self.evictor.bytes.fetch_add(block_record.bytes(), Relaxed);
        copier.evicted.push(block_record.of.hash);
    }

    /// Notifies the listener that a key was evicted. The caller holds the key's lock.
    fn notify_evicted(&self, table: &Table, block_record: &BlockRecord<'_>) {
        let Some(label) = table.label() else { return };
        // A copy: no lock of the store except the key's is held while the function runs.
        let listener = lock(&self.evictor.listener).clone();
        if let Some(listener) = listener {
            let (key, expires_at) = (block_record.of.key.to_vec(), block_record.header.expires_at);
            listener(&Evicted { label, key, bytes: block_record.bytes(), expires_at });
        }
    }
}

/// Keeps the half that expires last.
fn keep_by_expiry(contents: &Contents<'_>, chosen: &mut Chosen) {
    let Chosen { may_go, goes, .. } = chosen;
    let (records, all) = (&contents.records, contents.bytes_of(may_go));
    let mut order: Vec<usize> = (0..records.len()).filter(|&at| may_go[at]).collect();
    order.sort_unstable_by_key(|&at| records[at].header.expires_at);
    let mut gone = 0;
    for at in order {
        goes[at] = gone * 2 < all;
        gone += records[at].bytes();
    }
}
