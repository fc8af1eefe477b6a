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
//! 4. when no reader and no open group can need the old block ([`super::leaving`]), and every epoch that superseded one of its
//!    records is committed: its header says "free". A crash before: the old block is found again, with dead records.
//!
//! A tombstone may go when its key's count of stale records is 0: then all older records of the key that are left on the
//! medium lie in blocks that were retired before the tombstone's own block is. Those are free before that one is, durably
//! (invariant 2), so no crash finds an older record without the tombstone. An expired value is its own tombstone.
//!
//! Invariants:
//! 1. One thread compacts at a time; it takes blocks only when they are sealed.
//! 2. Blocks are freed in the order in which they were retired, each with its own publish, but for those that stay because a value
//!    that lies in them is kept ([`super::leaving`]). A block that tombstones were dropped from is freed only when those retired
//!    before it are free durably, or their records count again as stale ones of their keys and did so when it was retired.
//! 3. A cell is moved under its key's lock, with the next version: the old one could still change. Other copies
//!    keep their version, and are what they were copied from: recovery may take either.
//! 4. Reads do not wait for the epoch of a copy, which is the epoch it was made in (`Records::epoch_of`), since what it says was
//!    committed before: where writes wait for their epochs, only records whose own epoch is committed are copied, and
//!    the compactor waits for that if it must, not the readers. A crash before the copy's epoch is committed: recovery
//!    leaves the copy out, and the original is there, as its block is not freed before a later epoch is committed than the one
//!    in which it was retired, which was after the copy. A copy of a copy is made of a committed one, too.

use super::Keeper;
use super::blocks::Found;
use super::compaction::{Mover, ROUND_BYTES};
use super::evict::{Buried, Giving, Gone};
use super::retired::Retired;
use super::stale::KeyOf;
use crate::Result;
use crate::format::record::{Appended, Header, Kind, body_crc};
use crate::format::{Epoch, Owner, Unit, Version, block};
use crate::index::Slot;
use crate::log::appender::Fields;
use crate::log::blocks::{Use, room_won};
use crate::log::cell;
use crate::mutants::{Mutant, planted};
use crate::read::table::Table;
use crate::sync::atomic::Ordering::{Relaxed, Release};
use crate::sync::reclaim::{self, Guard};
use crate::tuning::Phase;
use duramen_media::{Medium, Offset};
use std::collections::{HashMap, HashSet};

/// Records whose cache misses are under way while one is looked at.
const AHEAD: usize = 8;

/// A live record that was copied; its key's slot leads to the original until the copy is durable.
struct Move<'a> {
    owner: Owner,
    hash: u64,
    key: &'a [u8],
    /// Position in the block, and bytes, of the original.
    from: u64,
    from_bytes: u64,
    copy: Appended,
}

/// How many of these records each key has.
fn count_keys<'a>(dead: &[KeyOf<'a>]) -> HashMap<(Owner, &'a [u8]), u64> {
    let mut counts = HashMap::new();
    for dead in dead {
        *counts.entry((dead.owner, dead.key)).or_default() += 1;
    }
    counts
}

impl<'a> Move<'a> {
    fn key_of(&self) -> KeyOf<'a> {
        KeyOf { owner: self.owner, key: self.key, hash: self.hash }
    }
}

impl<M: Medium> Keeper<M> {
    /// Moves what is live out of a block and retires it. False when there was no room to do so: the block
    /// is then as it was, with less alive.
    /// Keys are evicted too, where something is to be given up; then also false where they were and the block stays (`evict.rs`).
    pub(super) fn move_out(&self, mover: &mut Mover, unit: Unit, gives: Option<Giving>) -> Result<bool> {
        let _inside = self.log().tuning.phase(Phase::Move);
        let block = self.log().blocks.at(unit);
        let mut scratch = std::mem::take(&mut mover.scratch);
        let moved = match self.whole_records(unit, &mut scratch) {
            Some((bytes, records)) => match self.has_room_for(mover, unit, &records) {
                true => self.move_records(mover, unit, bytes, &records, gives),
                // Half a block moved would cost room and free nothing.
                false if gives.is_none() => Ok(false),
                false => self.move_records(mover, unit, bytes, &records, gives.map(Giving::of_all)),
            },
            None => Ok(true),
        };
        scratch.shrink_to(ROUND_BYTES as usize);
        mover.scratch = scratch;
        if !matches!(moved, Ok(true)) && block.state() == Use::Retired {
            block.keep();
        }
        moved
    }

    /// Whether all that is live of a block can be moved.
    fn has_room_for(&self, mover: &Mover, unit: Unit, records: &[Found]) -> bool {
        let live = u64::from(self.log().blocks.at(unit).live_sealed());
        let room = mover.appender.room();
        let (free, run_max) = {
            let space = self.log().space();
            (u64::from(space.free_units()), space.run_max())
        };
        if live <= room || run_max >= self.log().units_for(live) {
            return true;
        }
        // In pieces, behind each of which the next record does not fit.
        let longest = records.iter().map(|(_, header)| header.record_bytes()).max().unwrap_or(0);
        let piece = (self.log().unit_bytes - block::HEADER_BYTES).saturating_sub(longest);
        live + longest <= free * piece + room
    }

    pub(super) fn move_records(
        &self,
        mover: &mut Mover,
        unit: Unit,
        bytes: &[u8],
        records: &[Found],
        gives: Option<Giving>,
    ) -> Result<bool> {
        let base = self.log().blocks.offset(unit);
        // By key: keys that share a hash do not share their dead.
        let mut dead: Vec<KeyOf<'_>> = Vec::with_capacity(records.len());
        // How many of each key, made when a tombstone asks.
        let mut dead_here: Option<HashMap<(Owner, &[u8]), u64>> = None;
        let mut moves: Vec<Move<'_>> = Vec::with_capacity(records.len());
        // Cells were moved already, of so many bytes.
        let mut cells: Vec<(KeyOf<'_>, u64)> = Vec::new();
        let mut last = None;
        let mut drops: Vec<(u64, u64, Header)> = Vec::new();
        let mut gone = 0;
        let mut complete = true;
        let mut rest = u64::from(self.log().blocks.at(unit).live_sealed());
        let hash_of = |(at, header): &Found| self.records.hasher.hash(header.key(&bytes[*at as usize..]));
        let hashes: Vec<u64> = records.iter().map(hash_of).collect();
        let given_up = gives.map(|gives| self.given_up(mover, &gives, (base, bytes), records, &hashes, rest));
        if let Some(chosen) = &given_up {
            self.commit_chosen(records, chosen)?;
        }
        if let Some(chosen) = given_up.as_ref().filter(|chosen| chosen.in_place) {
            self.evict_in_place(mover, unit, bytes, records, chosen);
            return Ok(false);
        }
        let mut evicted: Vec<Gone> = Vec::new();
        for (i, (at, header)) in records.iter().enumerate() {
            let record = &bytes[*at as usize..];
            let key = header.key(record);
            let hash = hashes[i];
            let place = Offset(base + at);
            let Some(table) = self.records.tables.find(header.owner, &mut last) else {
                // Its table is buried: it is dead, and nobody counts it.
                gone += header.record_bytes();
                continue;
            };
            let of = KeyOf { owner: header.owner, key, hash };
            let guard = reclaim::pin();
            if let Some(&ahead) = hashes.get(i + AHEAD) {
                // Both buckets: the search for a record that is dead goes through both. Most records that follow are of this table.
                table.index.prefetch_write(ahead, true, &guard);
            }
            let Some(slot) = table.index.find(hash, key, &guard, |slot| slot.location() == place) else {
                dead.push(of);
                if let Some(dead_here) = &mut dead_here {
                    *dead_here.entry((of.owner, key)).or_default() += 1;
                }
                gone += header.record_bytes();
                continue;
            };
            let hidden = slot.is_tombstone() || self.records.is_expired(header.expires_at);
            if hidden {
                self.hide(mover, table, of, place, header, &guard);
                let dead_here = dead_here.get_or_insert_with(|| count_keys(&dead));
                if self.hides_nothing(slot, header, dead_here.get(&(of.owner, key)).copied()) {
                    drops.push((hash, *at, *header));
                    continue;
                }
                if slot.stale_known().is_none() {
                    mover.unknown_bytes += header.record_bytes();
                }
            }
            drop(guard);
            let mut goes =
                !hidden && given_up.as_ref().is_some_and(|chosen| chosen.goes[i]) && !slot.is_pending();
            goes &= self.is_committed(header);
            if goes {
                let mut alone =
                    || dead_here.get_or_insert_with(|| count_keys(&dead)).get(&(of.owner, key)).copied();
                let here = if slot.stale_known() == Some(0) { 0 } else { alone().unwrap_or(0) };
                if self.goes_alone(slot, here) {
                    evicted.push(Gone { hash, at: *at, header: *header, dead_here: here });
                    continue;
                }
            }
            if !planted(Mutant::UncommittedCopied) {
                self.log().wait_for(header.epoch)?;
            }
            if mover.appender.reserve_to_move(self.log(), self, header.record_bytes(), rest).is_err() {
                complete = false;
                break;
            }
            rest = rest.saturating_sub(header.record_bytes());
            if goes {
                match self.evict_buried(mover, table, of, place, header) {
                    // As a cell that was moved.
                    Buried::Done => cells.push((of, header.record_bytes())),
                    Buried::Superseded => {
                        dead.push(of);
                        gone += header.record_bytes();
                    }
                }
                continue;
            }
            let guard = reclaim::pin();
            if header.kind.is_cell() && !hidden {
                if self.move_cell(mover, table, of, place, &guard) {
                    cells.push((of, header.record_bytes()));
                } else {
                    dead.push(of);
                    gone += header.record_bytes();
                }
            } else {
                let copy = self.copy_record(mover, record, header, hidden)?;
                let from_bytes = header.record_bytes();
                moves.push(Move { owner: of.owner, hash, key, from: *at, from_bytes, copy });
            }
        }
        let mut superseded = HashSet::new();
        for moved in self.swap_slots(mover, base, &moves) {
            dead.push(moved.key_of());
            gone += moved.from_bytes;
            superseded.insert(moved.from);
        }
        if complete && !evicted.is_empty() && !self.may_be_free(mover, &evicted, &drops, &dead) {
            for gone_alone in evicted.drain(..) {
                let header = &gone_alone.header;
                let key = header.key(&bytes[gone_alone.at as usize..]);
                let of = KeyOf { owner: header.owner, key, hash: gone_alone.hash };
                let Some(table) = self.records.tables.find(of.owner, &mut last) else { continue };
                let most = header.record_bytes();
                if mover.appender.reserve_to_move(self.log(), self, most, most).is_err() {
                    complete = false;
                    break;
                }
                match self.evict_buried(mover, table, of, Offset(base + gone_alone.at), header) {
                    Buried::Done => cells.push((of, header.record_bytes())),
                    Buried::Superseded => {
                        dead.push(of);
                        gone += header.record_bytes();
                    }
                }
            }
        }
        if !complete {
            // What was superseded meanwhile is counted, by whoever did it.
            let is_counted = |moved: &Move<'_>| superseded.contains(&moved.from);
            let moved = moves.iter().filter(|moved| !is_counted(moved)).map(|m| (m.key_of(), m.from_bytes));
            self.keep_originals(mover, moved.chain(cells.iter().copied()));
            if let Some(chosen) = &given_up {
                // What was to go without a tombstone, since the block was to be free.
                self.evict_in_place(mover, unit, bytes, records, chosen);
            }
        }
        self.compaction.moved_bytes.fetch_add(moves.iter().map(|m| m.copy.bytes).sum(), Relaxed);
        if complete {
            // Last, since there is no way back: were the block kept, its older records would count for nobody.
            let is_free = !evicted.is_empty();
            if is_free && !planted(Mutant::EvictedBeforeFree) {
                // Before the slots go. What was moved is durable.
                self.publish_free(unit)?;
            }
            let mut unneeded = HashSet::new();
            for of_evicted in &evicted {
                gone += of_evicted.header.record_bytes();
                let key = of_evicted.header.key(&bytes[of_evicted.at as usize..]);
                let of = KeyOf { owner: of_evicted.header.owner, key, hash: of_evicted.hash };
                let Some(table) = self.records.tables.find(of.owner, &mut last) else { continue };
                if !self.evict(mover, table, of, Offset(base + of_evicted.at), of_evicted) {
                    dead.push(of);
                } else if of_evicted.dead_here > 0 {
                    unneeded.insert((of.owner, key));
                }
            }
            if !unneeded.is_empty() {
                // They were counted for the slots that are gone now.
                dead.retain(|other| !unneeded.contains(&(other.owner, other.key)));
            }
            let dropped_hashes: Vec<u64> = drops.iter().map(|&(hash, ..)| hash).collect();
            let hashes = dead.iter().map(|of| of.hash).chain(cells.iter().map(|(of, _)| of.hash));
            // The originals of what was moved, too: they are as new as their copies, which may be evicted before this block is free.
            let originals =
                moves.iter().map(|moved| moved.hash).filter(|_| !planted(Mutant::EvictedCopyAlone));
            let hashes = hashes.chain(dropped_hashes.iter().copied()).chain(originals);
            let dead_hashes = match self.evictor.eviction() {
                _ if is_free => Some(Vec::new()),
                Some(_) => Some(hashes.collect()),
                None => None,
            };
            let dropped = !dropped_hashes.is_empty();
            for (hash, at, header) in drops {
                gone += header.record_bytes();
                let key = header.key(&bytes[at as usize..]);
                let of = KeyOf { owner: header.owner, key, hash };
                let Some(table) = self.records.tables.find(of.owner, &mut last) else { continue };
                if self.drop_tombstone(mover, table, of, Offset(base + at), &header) {
                    table.index.shrink(hash, &reclaim::pin());
                    // They were counted for the slot that is gone now.
                    dead.retain(|other| (other.owner, other.key) != (of.owner, key));
                } else {
                    dead.push(of);
                }
            }
            self.forget_stale(mover, &dead);
            let block = self.log().blocks.at(unit);
            // Ends of units, and what does not count of them, was dead from the beginning.
            let framed = records.iter().map(|(_, header)| header.record_bytes()).sum::<u64>();
            let framing = block.tail() - block::HEADER_BYTES - framed;
            let gone = gone + framing + room_won(self.log().blocks.bytes(block), block.tail());
            self.compaction.retired.fetch_add(1, Relaxed);
            self.compaction.retired_units.fetch_add(self.log().blocks.at(unit).units().into(), Relaxed);
            self.compaction.retired_bytes.fetch_add(gone, Relaxed);
            // Release: pairs with the Acquire in `Range::step`, by way of the fence of `Moment::now`.
            let number = self.log().retirements.fetch_add(1, Release);
            let epoch = self.log().epochs().current().0;
            let dead = dead_hashes;
            mover.leaving.add(Retired {
                unit,
                number,
                dropped,
                is_free,
                bytes: gone,
                dead,
                epoch,
                again: None,
            });
        }
        Ok(complete)
    }

    /// Whether a tombstone hides nothing but what lies in the same block and goes with it.
    fn hides_nothing(&self, slot: Slot, header: &Header, dead_here: Option<u64>) -> bool {
        let is_committed = !slot.is_pending() && self.is_committed(header);
        planted(Mutant::TombstoneDroppedEarly) || is_committed && slot.hides_at_most(dead_here.unwrap_or(0))
    }

    pub(super) fn is_committed(&self, header: &Header) -> bool {
        !self.log().epochs().in_use() || header.epoch <= self.log().epochs().committed()
    }

    /// Removes a tombstone that hides nothing from the index; false when it was superseded meanwhile.
    ///
    /// Its record stays on the medium until the block is freed, and after a crash must not win over a new one: of that the
    /// versions of stripes take care (`index::stripes`).
    fn drop_tombstone(
        &self,
        mover: &Mover,
        table: &Table,
        of: KeyOf<'_>,
        place: Offset,
        header: &Header,
    ) -> bool {
        let guard = reclaim::pin();
        let locked = table.index.lock(of.hash, &guard);
        let Some(found) = locked.find(of.key, |slot| slot.location() == place) else { return false };
        if !found.get().hides_nothing() {
            self.log().uncount(place, header.record_bytes(), &mover.activity);
        }
        self.records.forgotten.add(of.hash);
        locked.remove(&found, &self.records);
        true
    }

    /// Appends a copy of a record; an expired value becomes a tombstone.
    fn copy_record(
        &self,
        mover: &mut Mover,
        record: &[u8],
        header: &Header,
        hidden: bool,
    ) -> Result<Appended> {
        let key = header.key(record);
        let from = header.value_at() as usize;
        let mut value = &record[from..from + header.value_bytes as usize];
        let unwinding = self.log().epochs().unwinding(&mover.activity);
        let epoch = self.log().epochs().enter(&mover.activity);
        let mut fields = Fields {
            kind: header.kind,
            tag: header.tag,
            expires_at: header.expires_at.filter(|_| !planted(Mutant::ExpiryNotCopied)),
            version: header.version,
            epoch,
            owner: if planted(Mutant::OwnerNotCopied) { Owner::STORE } else { header.owner },
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
        let appended = mover.appender.append(self.log(), fields, key, value, body);
        self.log().epochs().leave(&mover.activity, epoch, Some(appended));
        unwinding.over();
        self.note_copy(header.epoch, appended, epoch)?;
        Ok(appended)
    }

    /// Has readers show the copy, once a slot leads to it, without waiting for its epoch (invariant 4).
    fn note_copy(&self, original: Epoch, appended: Appended, epoch: Epoch) -> Result<()> {
        let is_committed = original <= self.log().epochs().committed() || planted(Mutant::UncommittedCopied);
        if self.log().epochs().in_use() && is_committed {
            let unit = self.log().blocks.unit_of(appended.at.0);
            let (block, at) = (self.log().blocks.at(unit), appended.at.0 - self.log().blocks.offset(unit));
            if !block.follows_copies(at) {
                // Others appended since: what the block forgets now must be committed.
                self.log().wait_for(epoch)?;
            }
            block.add_copy(at, appended.bytes);
        }
        Ok(())
    }

    /// Drains the copies and lets the slots lead to them, where they still led to the originals. Returns the
    /// originals that were superseded meanwhile.
    fn swap_slots<'a, 'b>(&self, mover: &mut Mover, base: u64, moves: &'a [Move<'b>]) -> Vec<&'a Move<'b>> {
        let copies = mover.appender.make_all_durable(self.log(), moves.iter().map(|moved| moved.copy));
        let guard = reclaim::pin();
        let (mut superseded, mut last) = (Vec::new(), None);
        for (moved, copy) in moves.iter().zip(copies) {
            let (place, bytes) = (Offset(base + moved.from), moved.copy.bytes);
            let Some(table) = self.records.tables.find(moved.owner, &mut last) else {
                unreachable!("only who has the mover buries a table")
            };
            let locked = table.index.lock(moved.hash, &guard);
            if let Some(found) = locked.find(moved.key, |slot| slot.location() == place) {
                let slot = found.get();
                found.lead(moved.key, slot.moved_to(copy), &self.records);
                if slot.hides_nothing() {
                    // It hides nothing, so it was taken off already; the copy is dead in its place.
                    mover.activity.dead_add(bytes as i64 - moved.from_bytes as i64);
                } else {
                    self.log().blocks.of(place.0).live_sub(moved.from_bytes);
                    self.log().blocks.of(copy.at().0).live_add(bytes);
                }
            } else {
                // The copy is one stale record more.
                if !table.is_dead()
                    && let Some(found) =
                        locked.find(moved.key, |slot| self.records.is_key_at(slot, moved.key))
                {
                    self.account(mover, &found, found.count_stale());
                }
                mover.activity.dead_add(bytes as i64);
                superseded.push(moved);
            }
        }
        superseded
    }

    /// A block could not be emptied and stays: the originals of what was moved out of it are stale records like
    /// any other, and dead bytes. `moved`: each, and its bytes.
    pub(super) fn keep_originals<'a>(&self, mover: &Mover, moved: impl Iterator<Item = (KeyOf<'a>, u64)>) {
        let guard = reclaim::pin();
        for (of, bytes) in moved {
            self.count_stale(mover, of, &guard);
            mover.activity.dead_add(bytes as i64);
        }
    }

    /// Moves a cell, under its key's lock (invariant 3).
    /// False when it was superseded meanwhile.
    fn move_cell(
        &self,
        mover: &mut Mover,
        table: &Table,
        of: KeyOf<'_>,
        place: Offset,
        guard: &Guard,
    ) -> bool {
        let KeyOf { owner, key, hash } = of;
        let (index, epochs) = (&table.index, self.log().epochs());
        let unwinding = epochs.unwinding(&mover.activity);
        let locked = index.lock(hash, guard);
        let Some(found) = locked.find(key, |slot| slot.location() == place) else {
            drop(locked);
            unwinding.over();
            return false;
        };
        let epoch = epochs.enter(&mover.activity);
        let record = self.records.record(place);
        let Some(cell) = record.cell() else { unreachable!("a cell stays one while a slot leads to it") };
        let (value, old) = (self.records.copy_cell_locked(cell), record.head);
        let kind = cell::kind_to_append(self.log(), true);
        // No write of anybody: nothing but the key's own records needs it to be above them.
        let version = locked.next_version(Version(0));
        let fields = Fields { kind, tag: old.tag(), expires_at: record.expires_at(), version, epoch, owner };
        let body = body_crc(mover.appender.seed(), &[key, &value]);
        let appended = mover.appender.append(self.log(), fields, key, &value, body);
        let copy = match kind {
            Kind::CellSealed => mover.appender.open_cell(self.log(), appended, key),
            _ => mover.appender.make_durable(self.log(), appended),
        };
        found.lead(key, found.get().moved_to(copy), &self.records);
        drop(locked);
        epochs.leave(&mover.activity, epoch, Some(appended));
        unwinding.over();
        self.log().blocks.of(place.0).live_sub(old.record_bytes());
        self.log().blocks.of(appended.at.0).live_add(appended.bytes);
        true
    }
}
