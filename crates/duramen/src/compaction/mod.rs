//! Compaction: moves what is live out of blocks that are mostly dead, and frees them.
//!
//! ```text
//!  sealed ──choose──▶ moved ──retire──▶ no reader can see it ──(epoch after next committed)──▶ freed
//! ```
//!
//! Order in which things become durable, and what a crash at each point leaves:
//!
//! 1. live records are appended to the compactor's own block, with their version, and drained. A crash: two equal
//!    records of a key; recovery takes either.
//! 2. the slots lead to the copies. (DRAM.)
//! 3. the block is *retired*: none of its records counts as a stale record of its key any more. (DRAM.)
//! 4. when no reader and no open group can need the old block, and every epoch that superseded one of its
//!    records is committed: its header says "free". A crash before: the old block is found again, with dead records.
//!
//! A tombstone may go when its key's count of stale records is 0: then all older records of the key that are left on the
//! medium lie in blocks that were retired before the tombstone's own block is. Those are free before that one is, durably
//! (invariant 2), so no crash finds an older record without the tombstone. An expired value is its own tombstone.
//!
//! Invariants:
//! 1. One thread compacts at a time; it takes blocks only when they are sealed.
//! 2. Blocks are freed in the order in which they were retired, each with its own publish. A block that tombstones were
//!    dropped from is freed only when those retired before it are free durably.
//! 3. A cell is moved under its key's lock, with the next version: the old one could still change. Other copies
//!    keep their version, and are what they were copied from: recovery may take either.
//! 4. Reads do not wait for the epoch of a copy, which is the epoch it was made in (`Core::epoch_of`), since what it says was
//!    committed before: where writes wait for their epochs, only records whose own epoch is committed are copied, and
//!    the compactor waits for that if it must, not the readers. A crash before the copy's epoch is committed: recovery
//!    leaves the copy out, and the original is there, as its block is not freed before a later epoch is committed than the one
//!    in which it was retired, which was after the copy. A copy of a copy is made of a committed one, too.

mod forgotten;
mod mend;
mod pack;
mod recount;
mod run;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::Result;
use crate::epoch::{Activity, Epochs, lock};
use crate::format::record::{self, Header, Kind, Step, Walk, body_crc};
use crate::format::superblock::Regime;
use crate::format::{Epoch, Unit, block};
use crate::index::Slot;
use crate::log::appender::{Appended, Appender, Fields};
use crate::log::blocks::{Use, room_won};
use crate::log::read;
use crate::log::space::free_blocks;
use crate::mutants::{Mutant, planted};
use crate::options::DEAD_PERCENT;
use crate::store::Core;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::sync::reclaim::{self, Guard};
use crate::sync::time::Instant;
use crate::sync::{Arc, Mutex, MutexGuard};
use crate::tuning::Phase;
use duramen_media::{Granularity, Medium, Offset};
use forgotten::Forgotten;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Bytes that one round moves out of at most.
const ROUND_BYTES: u64 = 1 << 20;
/// Of the units of a store, one in this many is chosen at once.
const CHOOSE_SHARE: u32 = 64;
/// A block is worth moving when at least this share of it, in percent, is dead.
const DEAD_PERCENT_MIN: u64 = 5;
/// Background compaction leaves this much dead alone, however small the store is ...
const DEAD_BYTES_MIN: u64 = 256 << 10;
/// ... and nine twentieths of it, up to this, where the medium can give it. Less than the half at which writers that find no
/// space compact before they let the store grow.
const DEAD_BYTES_SPARE: u64 = 64 << 20;
/// ... which is so when the medium can be this many times larger.
const SPARE_SHARE: u64 = 16;
/// The sweeper reads at most this much in one round.
const SWEEP_BYTES: u64 = 8 << 20;
/// ... and looks at no more blocks than this.
const SWEEP_UNITS: u32 = 1 << 17;
/// Verifying reads about this much in one round.
const VERIFY_BYTES: u64 = 8 << 20;
/// A block's first expiry is noted in whole seconds, later by less than this.
const EXPIRY_ROUNDED: Duration = Duration::from_secs(1);
/// Records whose cache misses are under way while one is looked at.
const AHEAD: usize = 8;
/// Records of a block for which there is room from the beginning: as many of this size as it may hold ...
const RECORD_BYTES_USUAL: u64 = 128;
/// ... up to this many.
const FOUND_MAX: u64 = 1 << 10;
/// How long a writer without space waits for readers to let go of what was compacted.
const GRACE_MAX: Duration = Duration::from_millis(if cfg!(loom) { 0 } else { 500 });
/// How long the compactor waits, at first, before it looks again whether readers have let go of what was retired.
const GRACE_MIN: Duration = Duration::from_millis(1);
/// Longest time between two looks at what is to be done.
const TICK: Duration = Duration::from_millis(100);

/// A block that was moved out of, on its way to be freed.
struct Retired {
    unit: Unit,
    /// Tombstones were dropped from it (invariant 2).
    dropped: bool,
    /// Bytes of all its records that are gone, and of room that was counted as dead.
    bytes: u64,
    /// The epoch in which it was retired.
    epoch: u64,
}

/// What the compacting thread owns.
struct Mover {
    appender: Appender,
    activity: Arc<Activity>,
    /// The unit where the sweeper goes on.
    sweep_at: u32,
    /// The last time it stopped before it had seen all.
    sweeping: bool,
    /// The unit where verifying goes on what recovery did not read, until it is done.
    verify_at: Option<u32>,
    /// Blocks to move out of next, the best one last.
    victims: Vec<Unit>,
    /// Blocks that there was no room to move out of, since something was last freed.
    unmovable: Vec<Unit>,
    /// The hash from which on the index is still to be looked through for what it can give back.
    shrink_at: Option<u64>,
    /// Bytes of tombstones that were moved because their count is not known: see [`recount`].
    unknown_bytes: u64,
    /// Packing gained nothing since something was last freed.
    packed_in_vain: bool,
    scratch: Vec<u8>,
}

pub(crate) struct Compaction {
    mover: Mutex<Mover>,
    /// Retired blocks that no reader can see any more.
    unseen: Arc<Mutex<Vec<Retired>>>,
    /// Blocks retired and not freed yet ...
    retired: AtomicU64,
    /// ... their units, and what of them was counted as dead: what is to come back by itself.
    retired_units: AtomicU64,
    retired_bytes: AtomicU64,
    bytes_per_second: u64,
    /// Blocks ever retired. Raised before a block is deferred: who pins itself and finds it as it was may still read whatever
    /// slots led to then.
    pub retirements: AtomicU64,
    pub rounds: AtomicU64,
    pub moved_bytes: AtomicU64,
    pub freed_units: AtomicU64,
    /// Blocks that are known to be damaged.
    pub damaged: AtomicU64,
    /// Keys whose record was damaged were written since the compactor last looked, or a block was found damaged.
    pub mends: AtomicBool,
    /// Units from where verifying goes on to the end.
    pub unverified_units: AtomicU64,
    /// How often stale records were counted anew.
    pub recounts: AtomicU64,
    pub forgotten: Forgotten,
}

impl Compaction {
    pub(crate) fn new(epochs: &Epochs, bytes_per_second: u64) -> Self {
        Self {
            mover: Mutex::new(Mover {
                appender: Appender::default(),
                activity: epochs.register(),
                sweep_at: 0,
                sweeping: false,
                verify_at: None,
                victims: Vec::new(),
                unmovable: Vec::new(),
                shrink_at: None,
                unknown_bytes: 0,
                packed_in_vain: false,
                scratch: Vec::new(),
            }),
            unseen: Arc::default(),
            retired: AtomicU64::new(0),
            retired_units: AtomicU64::new(0),
            retired_bytes: AtomicU64::new(0),
            bytes_per_second,
            retirements: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            freed_units: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            mends: AtomicBool::new(false),
            unverified_units: AtomicU64::new(0),
            recounts: AtomicU64::new(0),
            forgotten: Forgotten::default(),
        }
    }

    /// Nothing is compacted until the result is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, impl Sized> {
        lock(&self.mover)
    }

    /// Begins with what recovery does when it reads all records, and did not: to make absent what has expired, and to verify.
    pub(crate) fn begin<M: Medium>(&self, core: &Core<M>) {
        let mut mover = lock(&self.mover);
        mover.verify_at = Some(0);
        self.unverified_units.store(core.space().units().into(), Relaxed);
        mover.sweeping = core.sweep(&mut mover, EXPIRY_ROUNDED);
    }

    /// Gives up the compactor's own block and frees what can be freed, at close.
    pub(crate) fn end<M: Medium>(&self, core: &Core<M>) {
        let mut mover = lock(&self.mover);
        mover.appender.put_aside(core);
        core.reclaim(&mut mover, false);
    }
}

/// A record of a block, and where it lies in it.
type Found = (u64, Header);

/// A live record that was copied; its key's slot leads to the original until the copy is durable.
struct Move<'a> {
    hash: u64,
    key: &'a [u8],
    /// Position in the block, and bytes, of the original.
    from: u64,
    from_bytes: u64,
    to: Offset,
    to_bytes: u64,
}

/// How many of these records each key has.
fn count_keys<'a>(dead: &[(&'a [u8], u64)]) -> HashMap<&'a [u8], u64> {
    let mut counts = HashMap::new();
    for &(key, ..) in dead {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// All records of a block, members of batches one by one; `None` when it is damaged before `tail`.
fn records_of(bytes: &[u8], tail: u64, seed: u32) -> Option<Vec<Found>> {
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, tail, seed);
    let mut found = Vec::with_capacity((tail / RECORD_BYTES_USUAL).min(FOUND_MAX) as usize);
    loop {
        match walk.step() {
            Step::Record { at, header } if header.kind == Kind::Batch => {
                let members = record::members(&bytes[at as usize..], &header, seed).ok()?;
                found.extend(members.into_iter().map(|(member, header)| (at + member, header)));
            }
            Step::Record { at, header } => found.push((at, header)),
            Step::End { at } if at == tail => return Some(found),
            Step::End { .. } => return None,
        }
    }
}

/// The same of a block that may still be written to, as far as it is whole.
fn records_of_open(bytes: &[u8], seed: u32) -> Vec<Found> {
    let mut walk = Walk::new(bytes, block::HEADER_BYTES, bytes.len() as u64, seed);
    let mut found = Vec::new();
    while let Step::Record { at, header } = walk.step() {
        match header.kind {
            Kind::Batch => {
                let members = record::members(&bytes[at as usize..], &header, seed).unwrap_or_default();
                found.extend(members.into_iter().map(|(member, header)| (at + member, header)));
            }
            _ => found.push((at, header)),
        }
    }
    found
}

impl<M: Medium> Core<M> {
    /// One round: the best victims, [`ROUND_BYTES`] or one block of them. False when nothing is worth it.
    fn compact_round(&self, mover: &mut Mover, dead_percent_min: u64) -> Result<bool> {
        self.epochs.check_writable()?;
        if !self.has_victim(mover, dead_percent_min) {
            mover.victims = self.choose(dead_percent_min, &mover.unmovable);
        }
        if mover.victims.is_empty() {
            mover.unmovable.clear();
            mover.victims = self.choose(dead_percent_min, &[]);
        }
        let mut total = 0;
        while self.has_victim(mover, dead_percent_min) {
            let Some(&unit) = mover.victims.last() else { break };
            let bytes = self.blocks.at(unit).tail();
            if total > 0 && total + bytes > ROUND_BYTES {
                break;
            }
            total += bytes;
            mover.victims.pop();
            let live = u64::from(self.blocks.at(unit).live_settled());
            if live > mover.appender.room() && !self.restore_spare(mover) {
                mover.unmovable.push(unit);
                continue;
            }
            if !self.blocks.at(unit).take(Use::Sealed, Use::Retired) {
                continue;
            }
            if !self.move_out(mover, unit)? {
                // Not again before there is more room; others may be smaller.
                mover.unmovable.push(unit);
            }
        }
        self.restore_spare(mover);
        self.compaction.rounds.fetch_add(u64::from(total > 0), Relaxed);
        Ok(total > 0)
    }

    /// Forgets victims that are none any more; whether one is left. It is the last.
    fn has_victim(&self, mover: &mut Mover, dead_percent_min: u64) -> bool {
        while let Some(&unit) = mover.victims.last() {
            if self.dead_of(unit, dead_percent_min).is_some() {
                return true;
            }
            mover.victims.pop();
        }
        false
    }

    /// The bytes of a block that records take or could, and how many of them are live, if it is sealed and enough of it is dead.
    fn dead_of(&self, unit: Unit, dead_percent_min: u64) -> Option<(u64, u64)> {
        let block = self.blocks.at(unit);
        if block.state() != Use::Sealed {
            return None;
        }
        let tail = block.tail().max(block::HEADER_BYTES);
        let room = room_won(self.blocks.bytes(block), tail);
        let bytes = (tail - block::HEADER_BYTES + room).max(1);
        let live = u64::from(block.live_settled()).min(bytes);
        let is_dead = live < bytes && (bytes - live) * 100 >= bytes * dead_percent_min;
        is_dead.then_some((bytes, live))
    }

    /// The sealed blocks with the highest benefit for their cost, the best one last. As many as one round may move if each is
    /// half full and, in a large store, for many rounds: each choice looks at every block.
    fn choose(&self, dead_percent_min: u64, unmovable: &[Unit]) -> Vec<Unit> {
        let newest = self.space().generation_now();
        let units = self.space().units();
        let mut candidates = Vec::new();
        for (unit, block, _) in self.blocks.walk(0..units) {
            if let Some((bytes, live)) = self.dead_of(unit, dead_percent_min)
                && !unmovable.contains(&unit)
            {
                // Rosenblum and Ousterhout's (1 - u) × age / (1 + u), in integers.
                let age = newest.0.saturating_sub(block.generation().0).min(1 << 32) + 1;
                let score = u128::from(bytes - live) * u128::from(age) * 1024 / u128::from(bytes + live);
                candidates.push((score, unit));
            }
        }
        let best = |&(score, unit): &(u128, Unit)| (std::cmp::Reverse(score), unit);
        let most = (2 * ROUND_BYTES / self.unit_bytes + 1).max(u64::from(units / CHOOSE_SHARE)) as usize;
        if candidates.len() > most {
            candidates.select_nth_unstable_by_key(most, best);
            candidates.truncate(most);
        }
        candidates.sort_unstable_by_key(best);
        candidates.iter().rev().map(|&(_, unit)| unit).collect()
    }

    /// Copies a block, each aligned 8 bytes as one piece: cells in it may change meanwhile, and so may
    /// the end of an open block.
    fn copy_block(&self, unit: Unit, bytes: u64, scratch: &mut Vec<u8>) {
        let from = self.blocks.offset(unit);
        scratch.resize(bytes as usize, 0);
        for (at, word) in (from..).step_by(8).zip(scratch.chunks_exact_mut(8)) {
            word.copy_from_slice(&self.medium.load_u64(Offset(at)).to_le_bytes());
        }
    }

    /// The bytes of a block without an appender, where they are or in `scratch`, and its records; `None` when it is
    /// damaged, and then it is set aside.
    fn whole_records<'a>(&'a self, unit: Unit, scratch: &'a mut Vec<u8>) -> Option<(&'a [u8], Vec<Found>)> {
        let whole = self.read_records(unit, scratch);
        if whole.is_none() {
            self.set_aside(unit);
        } else {
            self.blocks.at(unit).set_doubtful(false);
        }
        whole
    }

    /// Leaves a damaged block alone until it is mended: each of its records is verified whenever it is used.
    fn set_aside(&self, unit: Unit) {
        let block = self.blocks.at(unit);
        // In this order: who finds no doubts uses records of blocks as they are.
        block.set_doubtful(true);
        self.set_doubts(true);
        block.set_state(Use::Damaged);
        self.compaction.damaged.fetch_add(1, Relaxed);
        self.mended();
    }

    /// Whether the header of a sealed block is on the medium what is known of it.
    fn has_seal(&self, unit: Unit) -> bool {
        let (block, at) = (self.blocks.at(unit), self.offset_of(unit));
        self.medium.unreadable(at, block::HEADER_BYTES).is_empty()
            && read::header(&self.medium, unit, at).is_ok_and(|header| {
                let tail = header.seal.map(|(tail, _)| tail);
                (header.units, header.generation, tail)
                    == (block.units(), block.generation(), Some(block.tail()))
            })
    }

    fn read_records<'a>(&'a self, unit: Unit, scratch: &'a mut Vec<u8>) -> Option<(&'a [u8], Vec<Found>)> {
        let block = self.blocks.at(unit);
        let tail = block.tail();
        if !self.medium.unreadable(self.offset_of(unit), tail).is_empty() {
            return None;
        }
        let bytes = if block.may_hold_cells() {
            self.copy_block(unit, tail, scratch);
            &scratch[..]
        } else {
            read::block(&self.medium, self.offset_of(unit), tail)
        };
        Some((bytes, records_of(bytes, tail, block.generation().seed())?))
    }

    /// Verifies blocks that recovery did not read, and flushes them where that may be due; whether there are more.
    fn verify(&self, mover: &mut Mover) -> bool {
        let Some(from) = mover.verify_at.take() else { return false };
        let (units, incarnation) = {
            let space = self.space();
            (space.units(), space.generation_now().incarnation())
        };
        let mut scratch = std::mem::take(&mut mover.scratch);
        let mut read = 0;
        for (unit, block, state) in self.blocks.walk(from..units) {
            if read >= VERIFY_BYTES {
                mover.verify_at = Some(unit.0);
                break;
            }
            if state == Use::Sealed && block.generation().incarnation() < incarnation {
                read += block.tail();
                if self.cells_unflushed.load(Relaxed) {
                    self.medium.flush(self.offset_of(unit), block.tail());
                }
                if self.has_seal(unit) {
                    let _ = self.whole_records(unit, &mut scratch);
                } else {
                    self.set_aside(unit);
                }
            }
        }
        if self.cells_unflushed.load(Relaxed) {
            self.medium.drain();
            // Release: pairs with the Acquire in `settle_cell`. What is retired was copied.
            self.cells_unflushed.store(mover.verify_at.is_some(), Release);
        }
        if mover.verify_at.is_none() && self.compaction.damaged.load(Relaxed) == 0 {
            self.set_doubts(false);
        }
        scratch.shrink_to(ROUND_BYTES as usize);
        mover.scratch = scratch;
        let left = mover.verify_at.map_or(0, |at| units - at);
        self.compaction.unverified_units.store(left.into(), Relaxed);
        mover.verify_at.is_some()
    }

    /// Verifies at once what is left of what recovery did not read; the blocks that are known to be damaged.
    pub(crate) fn verify_all(&self) -> Vec<Unit> {
        let mut mover = lock(&self.compaction.mover);
        while self.verify(&mut mover) {}
        let units = self.space().units();
        let damaged = self.blocks.walk(0..units).filter(|&(_, _, state)| state == Use::Damaged);
        damaged.map(|(unit, _, _)| unit).collect()
    }

    /// Moves what is live out of a block and retires it. False when there was no room to do so: the block
    /// is then as it was, with less alive.
    fn move_out(&self, mover: &mut Mover, unit: Unit) -> Result<bool> {
        let _inside = self.tuning.phase(Phase::Move);
        let block = self.blocks.at(unit);
        let mut scratch = std::mem::take(&mut mover.scratch);
        let moved = match self.whole_records(unit, &mut scratch) {
            // Half a block moved would cost room and free nothing.
            Some((_, records)) if !self.has_room_for(mover, unit, &records) => Ok(false),
            Some((bytes, records)) => self.move_records(mover, unit, bytes, &records),
            None => Ok(true),
        };
        scratch.shrink_to(ROUND_BYTES as usize);
        mover.scratch = scratch;
        if !matches!(moved, Ok(true)) && block.state() == Use::Retired {
            block.set_state(Use::Sealed);
        }
        moved
    }

    /// Whether all that is live of a block can be moved.
    fn has_room_for(&self, mover: &Mover, unit: Unit, records: &[Found]) -> bool {
        let live = u64::from(self.blocks.at(unit).live_settled());
        let room = mover.appender.room();
        let (free, run_max) = {
            let space = self.space();
            (u64::from(space.free_units()), space.run_max())
        };
        if live <= room || run_max >= self.units_for(live) {
            return true;
        }
        // In pieces, behind each of which the next record does not fit.
        let longest = records.iter().map(|(_, header)| header.record_bytes()).max().unwrap_or(0);
        let piece = (self.unit_bytes - block::HEADER_BYTES).saturating_sub(longest);
        live + longest <= free * piece + room
    }

    fn move_records(&self, mover: &mut Mover, unit: Unit, bytes: &[u8], records: &[Found]) -> Result<bool> {
        let base = self.blocks.offset(unit);
        // By key: keys that share a hash do not share their dead.
        let mut dead: Vec<(&[u8], u64)> = Vec::with_capacity(records.len());
        // How many of each key, made when a tombstone asks.
        let mut dead_here: Option<HashMap<&[u8], u64>> = None;
        let mut moves: Vec<Move<'_>> = Vec::with_capacity(records.len());
        // Cells were moved already: hash, key, bytes.
        let mut cells: Vec<(u64, &[u8], u64)> = Vec::new();
        let mut drops: Vec<(u64, u64, Header)> = Vec::new();
        let mut gone = 0;
        let mut complete = true;
        let mut rest = u64::from(self.blocks.at(unit).live_settled());
        let hash_of = |(at, header): &Found| self.hasher.hash(header.key(&bytes[*at as usize..]));
        let hashes: Vec<u64> = records.iter().map(hash_of).collect();
        for (i, (at, header)) in records.iter().enumerate() {
            let record = &bytes[*at as usize..];
            let key = header.key(record);
            let hash = hashes[i];
            let place = Offset(base + at);
            let guard = reclaim::pin();
            if let Some(&ahead) = hashes.get(i + AHEAD) {
                // Both buckets: the search for a record that is dead goes through both.
                self.index.prefetch_write(ahead, true, &guard);
            }
            let Some(slot) = self.index.find(hash, key, &guard, |slot| slot.location() == place) else {
                dead.push((key, hash));
                if let Some(dead_here) = &mut dead_here {
                    *dead_here.entry(key).or_default() += 1;
                }
                gone += header.record_bytes();
                continue;
            };
            let hidden = slot.is_tombstone() || self.is_expired(header.expires_at);
            if hidden {
                self.hide(mover, hash, key, place, header, &guard);
                let dead_here = dead_here.get_or_insert_with(|| count_keys(&dead));
                if self.hides_nothing(slot, header, dead_here.get(key).copied()) {
                    drops.push((hash, *at, *header));
                    continue;
                }
                if slot.stale() == Slot::STALE_MANY {
                    mover.unknown_bytes += header.record_bytes();
                }
            }
            drop(guard);
            if !planted(Mutant::UncommittedCopied) {
                self.wait_for(header.epoch)?;
            }
            if mover.appender.reserve_to_move(self, header.record_bytes(), rest).is_err() {
                complete = false;
                break;
            }
            rest = rest.saturating_sub(header.record_bytes());
            let guard = reclaim::pin();
            if header.kind == Kind::CellOpen && !hidden {
                if self.move_cell(mover, hash, key, place, &guard) {
                    cells.push((hash, key, header.record_bytes()));
                } else {
                    dead.push((key, hash));
                    gone += header.record_bytes();
                }
            } else {
                let (to, to_bytes) = self.copy_record(mover, record, header, hidden)?;
                moves.push(Move { hash, key, from: *at, from_bytes: header.record_bytes(), to, to_bytes });
            }
        }
        let mut superseded = HashSet::new();
        for moved in self.swap_slots(mover, base, &moves) {
            dead.push((moved.key, moved.hash));
            gone += moved.from_bytes;
            superseded.insert(moved.from);
        }
        if !complete {
            // What was superseded meanwhile is counted, by whoever did it.
            let is_counted =
                |moved: &Move<'_>| superseded.contains(&moved.from) && !planted(Mutant::OriginalCountedTwice);
            let moved =
                moves.iter().filter(|moved| !is_counted(moved)).map(|m| (m.hash, m.key, m.from_bytes));
            self.keep_originals(mover, moved.chain(cells));
        }
        self.compaction.moved_bytes.fetch_add(moves.iter().map(|m| m.to_bytes).sum(), Relaxed);
        if complete {
            // Last, since there is no way back: were the block kept, its older records would count for nobody.
            let dropped = !drops.is_empty();
            for (hash, at, header) in drops {
                gone += header.record_bytes();
                let key = header.key(&bytes[at as usize..]);
                if self.drop_tombstone(mover, hash, key, Offset(base + at), &header) {
                    self.index.shrink(hash, &reclaim::pin());
                    // They were counted for the slot that is gone now.
                    dead.retain(|&(other, ..)| other != key);
                } else {
                    dead.push((key, hash));
                }
            }
            self.forget_dead(mover, &dead);
            let block = self.blocks.at(unit);
            // What frames the members of batches was dead from the beginning.
            let framed = records.iter().map(|(_, header)| header.record_bytes()).sum::<u64>();
            let framing = block.tail() - block::HEADER_BYTES - framed;
            let gone = gone + framing + room_won(self.blocks.bytes(block), block.tail());
            let retired = Retired { unit, dropped, bytes: gone, epoch: self.epochs.current().0 };
            let unseen = Arc::clone(&self.compaction.unseen);
            self.compaction.retired.fetch_add(1, Relaxed);
            self.compaction.retired_units.fetch_add(self.blocks.at(unit).units().into(), Relaxed);
            self.compaction.retired_bytes.fetch_add(gone, Relaxed);
            // Release: pairs with the Acquire in `Range::step`, by way of the fence of `reclaim::collect`.
            self.compaction.retirements.fetch_add(1, Release);
            if planted(Mutant::FreedBeforeReadersLeave) {
                lock(&unseen).push(retired);
            } else {
                reclaim::pin().defer(move || lock(&unseen).push(retired));
            }
        }
        Ok(complete)
    }

    /// Makes the key of an expired value absent for good.
    fn hide(&self, mover: &Mover, hash: u64, key: &[u8], place: Offset, header: &Header, guard: &Guard) {
        let locked = self.index.lock(hash, guard);
        if let Some(found) = locked.find(key, |slot| slot.location() == place)
            && !found.get().is_tombstone()
        {
            found.set(found.get().with_tombstone(true));
            mover.activity.keys_add(-1);
            self.expired.fetch_add(1, Relaxed);
            if found.get().stale() == 0 {
                self.uncount(place, header.record_bytes(), &mover.activity);
            }
        }
    }

    /// Whether a tombstone hides nothing but what lies in the same block and goes with it.
    fn hides_nothing(&self, slot: Slot, header: &Header, dead_here: Option<u64>) -> bool {
        let settled =
            !slot.is_pending() && (!self.epochs.in_use() || header.epoch <= self.epochs.committed());
        planted(Mutant::TombstoneDroppedEarly)
            || settled && slot.stale() != Slot::STALE_MANY && slot.stale() <= dead_here.unwrap_or(0)
    }

    /// Removes a tombstone that hides nothing from the index; false when it was superseded meanwhile.
    ///
    /// Its record stays on the medium until the block is freed, and after a crash must not win over a new one: of that the
    /// versions of stripes take care (`index::stripes`).
    fn drop_tombstone(&self, mover: &Mover, hash: u64, key: &[u8], place: Offset, header: &Header) -> bool {
        let guard = reclaim::pin();
        let locked = self.index.lock(hash, &guard);
        let Some(found) = locked.find(key, |slot| slot.location() == place) else { return false };
        if found.get().stale() > 0 {
            self.uncount(place, header.record_bytes(), &mover.activity);
        }
        self.compaction.forgotten.add(hash);
        locked.remove(&found, self);
        true
    }

    /// Appends a copy of a record; an expired value becomes a tombstone. Returns place and size.
    fn copy_record(
        &self,
        mover: &mut Mover,
        record: &[u8],
        header: &Header,
        hidden: bool,
    ) -> Result<(Offset, u64)> {
        let key = header.key(record);
        let from = header.value_at() as usize;
        let mut value = &record[from..from + header.value_bytes as usize];
        let unwinding = self.epochs.unwinding(&mover.activity);
        let epoch = self.epochs.enter(&mover.activity);
        let mut fields = Fields {
            kind: header.kind,
            tag: header.tag,
            expires_at: header.expires_at.filter(|_| !planted(Mutant::ExpiryNotCopied)),
            version: header.version,
            epoch,
        };
        if hidden && header.kind != Kind::Tombstone {
            // The same version: what it replaces has expired, so whichever of the two recovery takes, the key is
            // absent. The next one could meet a value that is written meanwhile.
            fields = Fields { kind: Kind::Tombstone, expires_at: None, ..fields };
            value = &[];
        }
        // Side by side, as they are but for an expired value: one sum is quicker than two.
        let from = header.head_bytes() as usize;
        let body = body_crc(mover.appender.seed(), &[&record[from..from + key.len() + value.len()]]);
        let appended = mover.appender.append(self, fields, key, value, body);
        self.epochs.leave(&mover.activity, epoch, Some(appended));
        unwinding.over();
        self.note_copy(header.epoch, appended, epoch)?;
        Ok((appended.at, appended.bytes))
    }

    /// Has readers show the copy, once a slot leads to it, without waiting for its epoch (invariant 4).
    fn note_copy(&self, original: Epoch, appended: Appended, epoch: Epoch) -> Result<()> {
        let is_committed = original <= self.epochs.committed() || planted(Mutant::UncommittedCopied);
        if self.epochs.in_use() && is_committed {
            let unit = self.blocks.unit_of(appended.at.0);
            let (block, at) = (self.blocks.at(unit), appended.at.0 - self.blocks.offset(unit));
            if !block.follows_copies(at) {
                // Others appended since: what the block forgets now must be committed.
                self.wait_for(epoch)?;
            }
            block.add_copy(at, appended.bytes);
        }
        Ok(())
    }

    /// Drains the copies and lets the slots lead to them, where they still led to the originals. Returns the
    /// originals that were superseded meanwhile.
    fn swap_slots<'a, 'b>(&self, mover: &mut Mover, base: u64, moves: &'a [Move<'b>]) -> Vec<&'a Move<'b>> {
        if !planted(Mutant::CopiesNotDrained) {
            mover.appender.drain(self);
        }
        let guard = reclaim::pin();
        let mut superseded = Vec::new();
        for moved in moves {
            let place = Offset(base + moved.from);
            let locked = self.index.lock(moved.hash, &guard);
            if let Some(found) = locked.find(moved.key, |slot| slot.location() == place) {
                let slot = found.get();
                found.set(slot.at(moved.to).with_pending(false));
                if slot.is_tombstone() && slot.stale() == 0 {
                    // It hides nothing, so it was taken off already; the copy is dead in its place.
                    mover.activity.dead_add(moved.to_bytes as i64 - moved.from_bytes as i64);
                } else {
                    self.blocks.of(place.0).live_sub(moved.from_bytes);
                    self.blocks.of(moved.to.0).live_add(moved.to_bytes);
                }
            } else {
                // The copy is one stale record more.
                if let Some(found) = locked.find(moved.key, |slot| self.is_key_at(slot, moved.key)) {
                    found.set(found.get().with_stale(found.get().stale() + 1));
                }
                mover.activity.dead_add(moved.to_bytes as i64);
                superseded.push(moved);
            }
        }
        superseded
    }

    /// A block could not be emptied and stays: the originals of what was moved out of it are stale records like
    /// any other, and dead bytes. `moved`: hash, key and bytes of each.
    fn keep_originals<'a>(&self, mover: &Mover, moved: impl Iterator<Item = (u64, &'a [u8], u64)>) {
        let guard = reclaim::pin();
        for (hash, key, bytes) in moved {
            let locked = self.index.lock(hash, &guard);
            if let Some(found) = locked.find(key, |slot| self.is_key_at(slot, key)) {
                let slot = found.get();
                found.set(slot.with_stale(slot.stale() + 1));
                if slot.is_tombstone() && slot.stale() == 0 {
                    // It hid nothing, and does again.
                    let bytes = self.record(slot.location()).head.record_bytes();
                    self.blocks.of(slot.location().0).live_add(bytes);
                    mover.activity.dead_add(-(bytes as i64));
                }
            }
            mover.activity.dead_add(bytes as i64);
        }
    }

    /// Moves a cell, under its key's lock (invariant 3).
    /// False when it was superseded meanwhile.
    fn move_cell(&self, mover: &mut Mover, hash: u64, key: &[u8], place: Offset, guard: &Guard) -> bool {
        let (unwinding, epoch, locked) = loop {
            let unwinding = self.epochs.unwinding(&mover.activity);
            let epoch = self.epochs.enter(&mover.activity);
            let locked = self.index.lock(hash, guard);
            if !self.index.is_claimed(&locked, hash) || planted(Mutant::CellMovedBesideClaim) {
                break (unwinding, epoch, locked);
            }
            // The copy would have a version above that of what the batch writes, which has one already.
            drop(locked);
            self.epochs.leave(&mover.activity, epoch, None);
            unwinding.over();
            self.index.wait_for_claims(hash);
        };
        let Some(found) = locked.find(key, |slot| slot.location() == place) else {
            drop(locked);
            self.epochs.leave(&mover.activity, epoch, None);
            unwinding.over();
            return false;
        };
        let record = self.record(place);
        let (value, old) = (self.cell_locked(&record), record.head);
        let kind = if self.epochs.in_use() { Kind::Value } else { Kind::CellSealed };
        let version = locked.next_version();
        let fields = Fields { kind, tag: old.tag(), expires_at: record.expires_at(), version, epoch };
        let body = body_crc(mover.appender.seed(), &[key, &value]);
        let appended = mover.appender.append(self, fields, key, &value, body);
        mover.appender.drain(self);
        if kind == Kind::CellSealed {
            mover.appender.open_cell(self, appended, key);
        }
        found.set(found.get().at(appended.at).with_pending(false));
        drop(locked);
        self.epochs.leave(&mover.activity, epoch, Some(appended));
        unwinding.over();
        self.blocks.of(place.0).live_sub(old.record_bytes());
        self.blocks.of(appended.at.0).live_add(appended.bytes);
        true
    }

    /// Frees the retired blocks that nobody can see any more. `urgent`: a writer waits for it.
    fn reclaim(&self, mover: &mut Mover, urgent: bool) {
        // Readers that came after the blocks were retired do not see them.
        let begun = Instant::now();
        for round in 0.. {
            reclaim::collect();
            let (retired, unseen) =
                (self.compaction.retired.load(Relaxed), lock(&self.compaction.unseen).len() as u64);
            if retired <= unseen {
                // Nothing is waited for: a busy machine would not soon give back the CPU that is yielded.
                break;
            }
            let waiting = unseen == 0;
            // A thread that keeps a value itself would wait for nobody else.
            let patient = urgent && waiting && !reclaim::is_pinned();
            if round >= 3 && !(patient && begun.elapsed() < GRACE_MAX) {
                break;
            }
            if round >= 64 {
                // Whoever is pinned is not on a CPU, or keeps a value.
                crate::sync::thread::sleep(Duration::from_micros(200));
            } else if urgent {
                crate::sync::thread::yield_now();
            }
        }
        let mut ready = std::mem::take(&mut *lock(&self.compaction.unseen));
        if ready.is_empty() {
            return;
        }
        let last = ready.iter().map(|r| r.epoch).max().unwrap_or(0);
        while self.epochs.in_use() && self.epochs.committed().0 <= last && !planted(Mutant::FreedBeforeCommit)
        {
            // With `Manual` only the caller commits.
            if self.epochs.regime() == Regime::Manual || self.commit().is_err() {
                let committed = self.epochs.committed().0;
                let (now, later): (Vec<_>, Vec<_>) =
                    ready.into_iter().partition(|r: &Retired| committed > r.epoch);
                ready = now;
                // In front: blocks are freed in the order in which they were retired.
                lock(&self.compaction.unseen).splice(0..0, later);
                break;
            }
        }
        if let Err(error) = self.free(mover, &ready) {
            // The medium failed: the store is poisoned, and the blocks stay as they are.
            drop(error);
        }
    }

    /// Frees blocks: see invariant 2, and [`crate::log::space`] for the order of each.
    fn free(&self, mover: &mut Mover, retired: &[Retired]) -> Result<()> {
        let together = |_: &Retired, next: &Retired| !next.dropped || planted(Mutant::FreedWithoutOrder);
        for retired in retired.chunk_by(together) {
            let _inside = self.tuning.phase(Phase::Free);
            let units: Vec<Unit> = retired.iter().map(|block| block.unit).collect();
            let blocks = self.headers_to_free(&units);
            free_blocks(&self.medium, self.unit_bytes, &blocks).map_err(|error| self.failed(error))?;
        }
        for block in retired {
            let entry = self.blocks.at(block.unit);
            let units = entry.units();
            entry.set_state(Use::Free);
            mover.activity.dead_add(-(block.bytes as i64));
            self.space().give(block.unit, units);
            self.compaction.retired.fetch_sub(1, Relaxed);
            self.compaction.retired_units.fetch_sub(units.into(), Relaxed);
            self.compaction.retired_bytes.fetch_sub(block.bytes, Relaxed);
            self.compaction.freed_units.fetch_add(u64::from(units), Relaxed);
        }
        mover.unmovable.clear();
        mover.packed_in_vain = false;
        self.forget_grown_out();
        Ok(())
    }

    /// The dead records of a block that is retired no longer count as stale records of their keys (step 3). Each of these keys
    /// has a slot, since its count keeps it, so mostly no record need be looked at to find it: a miss that would take as long
    /// as all the rest.
    fn forget_dead(&self, mover: &Mover, dead: &[(&[u8], u64)]) {
        let guard = reclaim::pin();
        for &(key, hash) in dead {
            let locked = self.index.lock(hash, &guard);
            let found = locked.find_sole().or_else(|| locked.find(key, |slot| self.is_key_at(slot, key)));
            if let Some(found) = found {
                let slot = found.get();
                found.set(slot.stale_less());
                if slot.is_tombstone() && slot.stale() == 1 {
                    // It hides nothing any more: it is dead itself.
                    if let Some(record) = self.whole_record(slot.location()) {
                        self.uncount(slot.location(), record.head.record_bytes(), &mover.activity);
                    }
                }
            }
        }
    }

    /// Looks for expired values in blocks that will hold some in the time `ahead`, and makes their keys absent for good.
    /// Whether there may be more of them.
    fn sweep(&self, mover: &mut Mover, ahead: Duration) -> bool {
        let units = self.space().units();
        let now = self.clock.now() + ahead.as_millis() as u64;
        let mut read = 0;
        let mut scratch = std::mem::take(&mut mover.scratch);
        for _ in 0..units.min(SWEEP_UNITS) {
            if mover.sweep_at >= units {
                mover.sweep_at = 0;
            }
            let unit = Unit(mover.sweep_at);
            let block = self.blocks.at(unit);
            let state = block.state();
            mover.sweep_at += if state == Use::Free { 1 } else { block.units().max(1) };
            let due = block.expiry().is_some_and(|seconds| seconds * 1000 <= now);
            if due && matches!(state, Use::Open | Use::Sealed) {
                let bytes = u64::from(block.units()) * self.unit_bytes;
                // Before the copy: what is appended later is noted later.
                block.expiry_reset();
                if !self.medium.unreadable(self.offset_of(unit), bytes).is_empty() {
                    continue;
                }
                self.copy_block(unit, bytes, &mut scratch);
                self.sweep_block(mover, unit, &scratch);
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

    fn sweep_block(&self, mover: &Mover, unit: Unit, bytes: &[u8]) {
        let block = self.blocks.at(unit);
        let seed = block.generation().seed();
        let base = self.blocks.offset(unit);
        for (at, header) in records_of_open(bytes, seed) {
            let Some(expires_at) = header.expires_at else { continue };
            if !self.is_expired(header.expires_at) {
                block.expiry_add(expires_at);
                continue;
            }
            let guard = reclaim::pin();
            let key = header.key(&bytes[at as usize..]);
            let hash = self.hasher.hash(key);
            self.hide(mover, hash, key, Offset(base + at), &header, &guard);
        }
    }
}
