//! Many writes of a transaction to elements of one collection, and many transaction records that are finalized: in
//! *stretches*, each of which takes each step once.
//!
//! A stretch of writes, in order. What differs from one write, and why it may:
//!
//! 1. *Reserve* room for the first write. The stretch ends where the block does, so all its records are in one block.
//! 2. *Pin*, and look up the collection.
//! 3. *Lock* the stripes of all its elements, in the order of their numbers, then enter the epoch. No element is in a
//!    stretch twice.
//! 4. *Look up* all elements, under one lock of the index. Their stripes stay held, so no slot gets another target
//!    before
//!    6. Damage, and slots that may be of either of two elements, end the stretch: such a write is made alone.
//! 5. *Append* each record, after pinning the block of the one that it replaces. So does a write that must wait for
//!    another transaction, or for the compactor.
//! 6. *Change the index* for all of them, under one lock. Until then readers find the records of before, as before a
//!    single write does so.
//! 7. Unlock, and leave the epoch.
//!
//! A crash between 5 and 6 leaves what a crash between two writes leaves: transaction records without a commit record.
//! A panic there poisons the store ([`Epochs::unwinding`](duramen_log::durability::Epochs::unwinding)).
//!
//! In 3 and 6 others wait for some microseconds, so a stretch has at most [`STRETCH`] writes.

use super::Write;
use crate::Result;
use crate::get::value::{Meta, Record};
use crate::put::place::Old;
use crate::records::Records;
use crate::table::tables::{Last, Table, Target};
use crate::transaction::pins::block_of;
use crate::writer::{WriteContext, WriterState, clear_pending_at, purpose_of};
use duramen_index::Slot;
use duramen_index::collection::{Change, CollectionIndex};
use duramen_index::stripes::LockedStripes;
use duramen_log::appender::STAGE_BYTES_MIN;
use duramen_log::blocks::Block;
use duramen_log::durability::Activity;
use duramen_log::format::record::{END_BYTES, Kind, TRAILER_BYTES, body_crc, head_bytes, record_bytes};
use duramen_log::format::{Owner, TransactionId, Version};
use duramen_log::read::Unknown;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};
use std::ops::Range;

/// See the module. More gain less than a hundredth, and 256 stripes serve all elements of a store.
const STRETCH: usize = 32;

/// A key, and its new value; `None`: it is deleted.
pub(crate) type NewValue<'a> = (&'a [u8], Option<&'a [u8]>);

/// What a stretch did.
#[derive(Default)]
struct Done {
    /// Writes that are made, or needed none.
    writes: usize,
    /// Of them, those of keys that had a live value.
    present: u64,
    /// The next write must be made alone.
    stopped: bool,
}

/// A candidate for the slot of an element.
#[derive(Clone, Copy, Default)]
enum Candidate {
    #[default]
    None,
    Sole(Slot),
    Several,
}

impl WriterState {
    /// Sets or deletes keys in the active transaction, in order. Returns how many had a live value.
    pub(crate) fn write_all_in_transaction<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        writes: &[NewValue<'_>],
        meta: Meta,
    ) -> Result<u64> {
        let (mut left, mut present) = (writes, 0);
        while !left.is_empty() {
            let done = match target {
                Target::Collection(_) => self.write_stretch(context, target, left, meta)?,
                _ => Done { stopped: true, ..Done::default() },
            };
            present += done.present;
            left = &left[done.writes..];
            if let (true, Some((&(key, value), rest))) = (done.stopped, left.split_first()) {
                let new = value.map(|value| (value, meta));
                present += u64::from(self.write_in_transaction(context, target, key, new, true)?.is_some());
                left = rest;
            }
        }
        Ok(present)
    }

    /// Makes the first of these writes, as many as a stretch may have.
    fn write_stretch<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        writes: &[NewValue<'_>],
        meta: Meta,
    ) -> Result<Done> {
        let records = context.records;
        let alone = Done { stopped: true, ..Done::default() };
        let bytes_of = |&(key, value): &NewValue<'_>| {
            let head = head_bytes(meta.expires_at.is_some(), target.is_owned());
            record_bytes(head, key.len(), value.map_or(0, <[u8]>::len), Kind::Value) + TRAILER_BYTES
        };
        let Some(first) = writes.first().filter(|first| bytes_of(first) < STAGE_BYTES_MIN) else {
            return Ok(alone);
        };
        records.log.epochs().check_writable()?;
        let purpose = purpose_of(first.1.map(|value| (value, meta)));
        if let Err(error) = self.reserve(context, bytes_of(first) + END_BYTES, purpose) {
            if let Some(running) = &mut self.transaction {
                running.failed = true;
            }
            return Err(error);
        }
        let (mut room, mut seen) = (self.appender.room() - END_BYTES, [0_u64; 4]);
        let (mut hashes, mut count) = ([0; STRETCH], 0);
        for write in writes.iter().take(STRETCH) {
            let bytes = bytes_of(write);
            let is_same = purpose_of(write.1.map(|value| (value, meta))) == purpose;
            if bytes > room || bytes >= STAGE_BYTES_MIN || !is_same {
                break;
            }
            let hash = records.hasher.hash(write.0);
            // Most are known to be different by a few of their bits.
            let (word, bit) = ((hash >> 62) as usize, 1 << (hash >> 56 & 63));
            if seen[word] & bit != 0 && hashes[..count].contains(&hash) {
                break;
            }
            seen[word] |= bit;
            (hashes[count], room) = (hash, room - bytes);
            count += 1;
        }
        let (writes, hashes) = (&writes[..count], &hashes[..count]);
        self.note_reserved(writes[1..].iter().map(|write| bytes_of(write) + END_BYTES).sum());

        let guard = reclaim::pin_to_write();
        let table = records.tables.at(target, &guard)?;
        let Some(index) = table.index.collection() else { return Ok(alone) };
        self.check_named(records, target, hashes[0])?;
        let unwinding = records.log.epochs().unwinding(&self.activity);
        let held = table.index.stripes().lock_many(hashes);
        let epoch = records.log.epochs().enter(&self.activity);
        let stretch = LockedElements { records, table, index, held: &held, epoch, hashes, writes, meta };
        let done = self.write_stretch_locked(&stretch);
        records.log.epochs().leave(&self.activity, epoch, None);
        unwinding.over();
        Ok(done)
    }

    /// Steps 4 to 6.
    fn write_stretch_locked<M: Medium>(&mut self, stretch: &LockedElements<'_, M>) -> Done {
        let &LockedElements { records, table, index, held, epoch, hashes, writes, meta } = stretch;
        let mut candidates = [Candidate::None; STRETCH];
        index.candidates(hashes, |number, slot| {
            records.log.fetch_key(slot.location());
            candidates[number] = match candidates[number] {
                Candidate::None => Candidate::Sole(slot),
                _ => Candidate::Several,
            };
        });
        let id = TransactionId(self.transaction_id());
        // Read the clock under the locks, so that versions of one stripe follow the lock order.
        let floor = self.floor(records);
        let mut done = Done::default();
        let mut changes = Vec::with_capacity(writes.len());
        for (number, &(key, value)) in writes.iter().enumerate() {
            let new = value.map(|value| (value, meta));
            let mut unknown = Unknown::default();
            let old = match candidates[number] {
                Candidate::None => None,
                Candidate::Sole(slot) => {
                    let existing = records.look_up_for_write(table, slot, key, &mut unknown);
                    existing.map(|existing| Old::new(records, slot, existing.whole()))
                }
                Candidate::Several => {
                    done.stopped = true;
                    break;
                }
            };
            let is_running = |old: &Old<'_>| match &old.record {
                Some(record) => records.running_at(old.slot, record).is_some_and(|it| it.transaction != id),
                // It is damaged.
                None => true,
            };
            if unknown.is_some() || old.as_ref().is_some_and(is_running) {
                done.stopped = true;
                break;
            }
            self.require_durable_for(records, old.as_ref(), id);
            let is_present = old.as_ref().is_some_and(|old| old.present);
            if new.is_some() || is_present {
                if old.as_ref().is_some_and(|old| !self.pin_previous(records, old.slot.location())) {
                    // The compactor is moving it.
                    done.stopped = true;
                    break;
                }
                let (hash, floor) = (hashes[number], Version(floor.0.max(self.version.next().0)));
                let stripe = held.of(hash);
                let version = self.gave(stripe.next_version(floor));
                let crc = body_crc(self.appender.seed(), &[key, value.unwrap_or_default()]);
                let write = Write { key, hash, new, crc, asks: true };
                let before = old.as_ref().map_or(Slot::default(), |old| old.slot);
                let fields = write.fields(table.owner, version, epoch);
                let (appended, slot) = self.append_in_transaction(records, write, fields, before);
                records.log.epochs().count_appended(&self.activity, epoch, appended);
                stripe.count_transaction_record(true);
                self.count_key(table, old.as_ref(), new.is_some());
                let slot = if before.is_empty() { slot } else { slot.superseding(before) };
                changes.push(Change { hash, key, old: before, new: slot });
            }
            done.writes += 1;
            done.present += u64::from(is_present);
        }
        index.change_all(&changes, records);
        done
    }
}

/// A stretch whose stripes are held.
struct LockedElements<'a, M: Medium> {
    records: &'a Records<M>,
    table: &'a Table,
    index: &'a CollectionIndex,
    held: &'a LockedStripes<'a>,
    epoch: duramen_log::format::Epoch,
    hashes: &'a [u64],
    writes: &'a [NewValue<'a>],
    meta: Meta,
}

/// Finalizes transaction records of durable transactions: clears their pending marks, then uncounts and releases what
/// they replaced. Those of one table or collection that follow each other are finalized in stretches.
pub(crate) struct Finalizing<'a, M: Medium> {
    records: &'a Records<M>,
    activity: &'a Activity,
    last: Last,
    /// The records of a stretch: their owner, number, hashes, places, and what they replaced.
    owner: Owner,
    count: usize,
    hashes: [u64; STRETCH],
    places: [Offset; STRETCH],
    previous: [u64; STRETCH],
    /// The block of replaced records, with their number and bytes, that is not uncounted yet.
    replaced: Option<(&'a Block, Range<u64>, u32, u64)>,
}

impl<'a, M: Medium> Finalizing<'a, M> {
    pub(crate) fn of(records: &'a Records<M>, activity: &'a Activity) -> Self {
        Self {
            records,
            activity,
            last: None,
            owner: Owner::STORE,
            count: 0,
            hashes: [0; STRETCH],
            places: [Offset(0); STRETCH],
            previous: [0; STRETCH],
            replaced: None,
        }
    }

    pub(crate) fn add(&mut self, record: Record<'a>) {
        let owner = record.owner();
        if owner != self.owner || self.count == STRETCH {
            self.end_stretch();
            self.owner = owner;
        }
        let at = self.count;
        self.hashes[at] = self.records.hasher.hash(record.key());
        (self.places[at], self.previous[at]) = (record.at, record.trailer().previous);
        self.count += 1;
    }

    fn end_stretch(&mut self) {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return;
        }
        // Until the replaced records are uncounted. An index checkpoint waits for pinned threads before it reads the
        // live bytes of blocks (`Maintenance::wait_for_accounts`): it must not see the one without the other.
        let guard = reclaim::pin_to_write();
        if self.owner.is_collection() {
            self.clear_pending_of_elements(count);
        } else {
            self.clear_pending_of_keys(count, &guard);
        }
        for at in 0..count {
            self.release_previous(self.previous[at]);
        }
        self.end_replaced();
    }

    /// Clears the pending marks of records of elements.
    fn clear_pending_of_elements(&mut self, count: usize) {
        let Self { records, last, owner, hashes, places, .. } = self;
        let hashes = &hashes[..count];
        let stripes = records.tables.stripes_of(*owner);
        // One needs no list of locks.
        let (sole, held);
        if let [hash] = hashes {
            sole = stripes.lock(*hash);
            sole.count_transaction_record(false);
        } else {
            held = stripes.lock_many(hashes);
            hashes.iter().for_each(|&hash| held.of(hash).count_transaction_record(false));
        }
        if let Some(index) = records.tables.find(*owner, last).and_then(|table| table.index.collection()) {
            index.clear_pending(hashes.iter().copied().zip(places.iter().copied()));
        }
    }

    /// Clears the pending marks of records of keys, one after the other: others wait for their stripes.
    fn clear_pending_of_keys(&mut self, count: usize, guard: &Guard) {
        let Self { records, last, owner, hashes, places, .. } = self;
        let table = records.tables.find(*owner, last);
        for (&hash, &place) in hashes[..count].iter().zip(&*places) {
            let Some(table) = table else {
                records.tables.stripes_of(*owner).lock(hash).count_transaction_record(false);
                continue;
            };
            let locked = table.index.lock(hash, guard);
            locked.count_transaction_record(false);
            clear_pending_at(&locked, records.record(place).key(), place);
        }
    }

    /// Uncounts a record that was replaced, given as in a trailer, and releases its block.
    fn release_previous(&mut self, previous: u64) {
        let before = Slot::of_previous(previous);
        if before.is_empty() {
            return;
        }
        let bytes = match self.records.whole_record(before.location()) {
            None => self.records.superseded_damaged(before),
            Some(_) if before.covers_no_older_records() => 0,
            Some(record) => record.head.record_bytes(),
        };
        let at = before.location();
        if let Some((_, range, count, sum)) = &mut self.replaced
            && range.contains(&at.0)
        {
            (*count, *sum) = (*count + 1, *sum + bytes);
            return;
        }
        self.end_replaced();
        let (block, range) = block_of(self.records, at);
        self.replaced = Some((block, range, 1, bytes));
    }

    fn end_replaced(&mut self) {
        if let Some((block, range, count, bytes)) = self.replaced.take() {
            self.records.log.blocks.live_sub(range.start, bytes);
            self.activity.dead_add(bytes as i64);
            block.unpin_all(count);
        }
    }

    pub(crate) fn end(mut self) {
        self.end_stretch();
    }
}
