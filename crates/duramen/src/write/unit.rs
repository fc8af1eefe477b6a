//! Units: any number of writes of one writer that count all or not at all, after a crash and to every reader.
//!
//! In order, and what a crash leaves:
//!
//! 1. Each write is appended as a *member*, with the unit's number and what its key's slot was before; its write-back
//!    is started. The slot leads to it, pending. (DRAM.) A crash: members without an end, which never count
//!    (`format::unit`).
//! 2. The *end* is appended behind the last member, with the count and sum of all. A crash: some lines of members and end are
//!    there and others are not, so the sum is not met, and none counts; or all are there, and all count.
//! 3. One store to the writer's lane shows the unit (`log::unit`). (DRAM.) Readers make it durable before they tell of
//!    it.
//! 4. The group is settled: one drain, or the commit of the end's epoch. From here on all of it counts after a crash.
//! 5. The members' slots lose their pending marks, and what they took the place of is taken off the live bytes of its blocks. (DRAM.)
//! 6. Of a unit of several blocks the headers say for good that it counts (`log::settling`).
//!
//! A unit runs within a group: one of its own unless the writer has one open. Whoever goes on to another block drains
//! the one before.
//!
//! A unit that is *given up* puts back what each slot led to, in the reverse order, and appends an end without members,
//! which says so to recovery, and to who reads its blocks.
//!
//! Invariants:
//! 1. A slot leads to a member of at most one unit that runs, and its record is the newest of its key: who would write
//!    the key of a unit that runs waits for its end, without a lock, in no epoch ([`Met::Running`]); or gives its own
//!    unit up, if others may wait for that.
//! 2. What a member took the place of stays where it is until 5: its block is pinned ([`Block::pin`](crate::log::blocks::Block::pin)), and it is
//!    live until then. So are blocks with members, until 5 or 6.
//! 3. Of a block that a unit has members in, and that it goes on from, its members are the last records. One unit at
//!    most comes to a block from another. So a block's header, which has one fate of each kind
//!    ([`Fates`](crate::format::block::Fates)), speaks of one unit each.
//! 4. There is always room for the end: it is reserved with each member. It lies behind the last member, or in a block of its own, when one
//!    was opened for a member that was not written after all.

use super::apply::{Compared, Expect, Missed};
use super::batch::root_value;
use super::locks::{Inside, check_free};
use super::old::Old;
use super::{Pen, Site, purpose_of};
use crate::format::block::Fate;
use crate::format::record::{
    Appended, END_BYTES, Kind, TRAILER_BYTES, Trailer, body_crc, head_bytes, record_bytes,
};
use crate::format::unit::UnitSum;
use crate::format::{Epoch, Granule, Owner, UnitId, Version};
use crate::index::Slot;
use crate::index::either::Locked;
use crate::log::appender::{Body, Fields};
use crate::log::read::Unknown;
use crate::log::unit::{Lane, Numbers};
use crate::mutants::{Mutant, planted};
use crate::read::names::Before;
use crate::read::table::{MetName, Table, Target};
use crate::read::value::{Meta, Record};
use crate::read::{CollectionId, Records};
use crate::sync::Backoff;
use crate::sync::holding::{Noted, Place, What};
use crate::sync::reclaim;
use crate::{Error, ErrorKind, Result};
use duramen_media::{Medium, Offset};

/// What a unit has in one block.
#[derive(Clone, Copy)]
struct Stretch {
    granule: Granule,
    from: u64,
    to: u64,
}

/// A unit that runs.
pub(super) struct Running {
    id: UnitId,
    sum: UnitSum,
    stretches: Vec<Stretch>,
    /// Collections whose roots it superseded.
    lost: Vec<MetName>,
    /// Those that its roots name, each with what it was before.
    named: Vec<(MetName, Before)>,
    /// Where the root lies that it wrote last.
    root_at: Offset,
    /// Keys of tables that were absent when it deleted them, unless they were locked.
    missed: Vec<Missed>,
    /// The group was begun for it.
    own_group: bool,
    /// Until it is over nobody else closes the gate.
    _inside: Inside,
    _noted: Noted,
    /// The call that began it.
    place: Place,
    /// One of its writes found no room, so there may be none for its end, or found what is being moved.
    failed: bool,
}

/// A unit that has committed, or was given up, and is not settled.
pub(super) struct Over {
    stretches: Vec<Stretch>,
    epoch: Epoch,
}

impl Over {
    /// The epoch of its end.
    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }
}

/// What a writer has for its units, once it has begun one.
pub(super) struct Units {
    lane: u16,
    numbers: Numbers,
    /// The stripes in which the one that runs is counted: see [`Stripes::begin_running`](crate::index::stripes::Stripes::begin_running).
    counted: Vec<u64>,
}

impl Units {
    pub(super) fn lane(&self) -> u16 {
        self.lane
    }
}

/// What a write in a unit did.
enum Wrote {
    Done {
        appended: Appended,
        replaced: Option<Meta>,
        crowded: bool,
    },
    /// Nothing was there to be deleted; whether since the unit deleted it.
    Absent {
        by_own: bool,
    },
    /// Nothing: another unit that runs has the key.
    Running(Trailer),
    /// Nothing: the compactor moves what is there.
    Moved,
}

/// One write of a unit.
#[derive(Clone, Copy)]
struct Write<'a> {
    key: &'a [u8],
    hash: u64,
    new: Option<(&'a [u8], Meta)>,
    /// The checksum of key and value.
    crc: u32,
    /// Whether it is asked what was there before.
    asks: bool,
}

impl<'a> Write<'a> {
    fn fields(&self, owner: Owner, version: Version, epoch: Epoch) -> Fields {
        let (_, meta) = self.new.unwrap_or_default();
        let kind = match self.new {
            None => Kind::Tombstone,
            Some(_) if meta.collection.is_some() => Kind::Root,
            Some(_) => Kind::Value,
        };
        Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch, owner }
    }

    fn body(&self) -> Body<'a> {
        Body { key: self.key, value: self.new.unwrap_or_default().0, crc: self.crc }
    }
}

impl<M: Medium> Records<M> {
    /// Whether the slot leads to a member of a unit that runs, and of which. For who holds the key's stripe.
    #[inline]
    pub(crate) fn running_at(&self, slot: Slot, record: &Record<'_>) -> Option<Trailer> {
        if !slot.is_pending() || !record.head.is_member() {
            return None;
        }
        let trailer = record.trailer();
        self.lane_of(trailer).runs(trailer.unit).then_some(trailer)
    }

    /// The lane of the writer of a member.
    pub(crate) fn lane_of(&self, trailer: Trailer) -> &Lane {
        self.log.lanes.at(Slot::lane_of(trailer.previous))
    }
}

impl Pen {
    /// Waits until another's unit is over, which has a key that is to be written. In no epoch; a unit of this writer has written nothing, or
    /// has a lower number.
    ///
    /// # Errors
    /// `InvalidInput`: it is a unit of this thread. `Conflict`: this writer holds locks, which that unit may wait for.
    #[cold]
    pub(super) fn wait_for_unit<M: Medium>(&mut self, records: &Records<M>, trailer: Trailer) -> Result<()> {
        check_not_own(records, trailer)?;
        if self.is_locked() {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot write under locks: a unit without locks that runs has written the key; lock the keys of its unit, or of the \
                 collection that it writes, before it begins",
            ));
        }
        // That unit may need space.
        self.while_resting(records, |_| {
            let mut backoff = Backoff::default();
            while records.lane_of(trailer).runs(trailer.unit) {
                backoff.wait();
            }
        });
        Ok(())
    }

    /// The number of the unit that runs, or 0.
    pub(crate) fn unit_id(&self) -> u64 {
        self.unit.as_ref().map_or(0, |running| running.id.0)
    }

    /// Where the unit was begun that runs.
    pub(crate) fn unit_place(&self) -> Option<Place> {
        self.unit.as_ref().map(|running| running.place)
    }

    /// Begins a unit, for the call at `place`: until [`Pen::commit_unit`] or [`Pen::give_up_unit`].
    ///
    /// # Errors
    /// `InvalidInput`: one runs, or another writer of this thread holds keys.
    pub(crate) fn begin_unit<M: Medium>(&mut self, records: &Records<M>, place: Place) -> Result<()> {
        let own = self.unit_id();
        let is_locked = self.is_locked();
        check_free(records, "begin a unit", place, |what| match what {
            What::Unit(unit) => unit == own,
            What::Keys => !is_locked,
            What::Change => true,
            What::Gate => false,
        })?;
        records.log.epochs().check_writable()?;
        let lane = match &self.units {
            Some(units) => units.lane,
            None => {
                let lane = records.log.lanes.take()?;
                self.units = Some(Units { lane, numbers: Numbers::default(), counted: Vec::new() });
                lane
            }
        };
        let own_group = self.group.is_none();
        let inside = self.enter(records)?;
        self.begin_group();
        let Some(units) = &mut self.units else { return Ok(()) };
        let id = records.log.lanes.number(&mut units.numbers);
        records.log.lanes.at(lane).begin(id);
        let running = Running {
            id,
            sum: UnitSum::default(),
            stretches: Vec::new(),
            lost: Vec::new(),
            named: Vec::new(),
            root_at: Offset(0),
            missed: Vec::new(),
            own_group,
            _inside: inside,
            _noted: records.gate.note(What::Unit(id.0), place),
            place,
            failed: false,
        };
        self.unit = Some(running);
        if let Some(owed) = self.owed() {
            owed.unit.set(id.0);
        }
        Ok(())
    }

    fn lane(&self) -> u16 {
        self.units.as_ref().map_or(0, Units::lane)
    }

    /// Sets or deletes a key in the unit that runs; what went with the live value that was there, if that is asked.
    pub(crate) fn write_in_unit<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        asks: bool,
    ) -> Result<Option<Meta>> {
        let Some((value, meta)) = new else { return self.write_member(site, target, key, new, asks) };
        let Some(CollectionId(owner)) = meta.collection else {
            return self.write_member(site, target, key, new, asks);
        };
        let naming = site.records.tables.name(owner)?;
        let wrote = self.write_member(site, target, key, Some((&root_value(value, meta), meta)), asks)?;
        // It is taken off when the unit is given up.
        let before = naming.keep();
        if let Some(running) = &mut self.unit {
            running.named.push((MetName { owner, place: running.root_at }, before));
        }
        Ok(wrote)
    }

    fn write_member<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        asks: bool,
    ) -> Result<Option<Meta>> {
        let records = site.records;
        let (value, meta) = new.unwrap_or_default();
        Self::check(records, key, value.len())?;
        let head = head_bytes(meta.expires_at.is_some(), target.is_owned());
        let bytes = record_bytes(head, key.len(), value.len(), Kind::Value) + TRAILER_BYTES;
        let purpose = purpose_of(new);
        let hash = records.hasher.hash(key);
        loop {
            if let Err(error) = self.reserve(site, bytes + END_BYTES, purpose) {
                if let Some(running) = &mut self.unit {
                    running.failed = true;
                }
                return Err(error);
            }
            self.unlock_early(records);
            let guard = reclaim::pin_to_write();
            let table = records.tables.at(target, &guard)?;
            self.check_named(records, target, hash)?;
            table.index.prefetch_next(hash, new.is_some(), &guard);
            let crc = body_crc(self.appender.seed(), &[key, value]);
            let write = Write { key, hash, new, crc, asks };
            let unwinding = records.log.epochs().unwinding(&self.activity);
            let locked = table.index.lock(hash, &guard);
            let epoch = records.log.epochs().enter(&self.activity);
            let wrote = self.write_member_locked(records, table, locked, write, epoch);
            let appended = if let Wrote::Done { appended, .. } = wrote { Some(appended) } else { None };
            records.log.epochs().leave(&self.activity, epoch, appended);
            unwinding.over();
            match wrote {
                Wrote::Done { replaced, crowded, .. } => {
                    if crowded {
                        self.split(records, table, hash, &guard);
                    }
                    return Ok(replaced);
                }
                Wrote::Absent { by_own } => {
                    if !by_own {
                        self.note_missed(table, key);
                    }
                    return Ok(None);
                }
                Wrote::Running(trailer) => {
                    drop(guard);
                    self.wait_or_yield(records, trailer)?;
                }
                Wrote::Moved => {
                    drop(guard);
                    if self.meets_move() {
                        if let Some(running) = &mut self.unit {
                            running.failed = true;
                        }
                        return Err(Error::new(
                            ErrorKind::Conflict,
                            "cannot write in a unit under locks: compaction is moving what is there; it runs again",
                        ));
                    }
                    crate::sync::thread::yield_now();
                }
            }
        }
    }

    /// Waits for another's unit, unless that might wait for this one: a unit that has written waits only for those with
    /// higher numbers.
    fn wait_or_yield<M: Medium>(&mut self, records: &Records<M>, other: Trailer) -> Result<()> {
        check_not_own(records, other)?;
        if !self.may_wait_for(other) && !self.is_locked() {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot write in a unit: another unit that runs has written the key, and might wait for this one; give this one up and \
                 begin again, or lock the keys before",
            ));
        }
        self.wait_for_unit(records, other)
    }

    /// Whether the unit that runs may wait for another that does: no two wait for each other.
    pub(super) fn may_wait_for(&self, other: Trailer) -> bool {
        self.unit.as_ref().is_none_or(|own| own.sum.count == 0 || own.id < other.unit)
    }

    fn write_member_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        table: &Table,
        locked: Locked<'_>,
        write: Write<'_>,
        epoch: Epoch,
    ) -> Wrote {
        let Write { key, hash, new, asks, .. } = write;
        let id = UnitId(self.unit_id());
        // Under the lock: who had it before has read the time before.
        let floor = self.floor(records);
        let mut met = Unknown::default();
        let found = locked.find_with(key, |slot| Some((slot, records.meet(table, slot, key, &mut met)?)));
        let old = found.as_ref().map(|&(_, (slot, met))| Old::new(records, slot, met.whole()));
        let running = match &old {
            Some(Old { slot, record: Some(record), .. }) => records.running_at(*slot, record),
            _ => None,
        };
        if let Some(other) = running.filter(|running| running.unit != id) {
            return Wrote::Running(other);
        }
        let unknown = met.is_some() && found.is_none();
        let present = old.as_ref().is_some_and(|old| old.present) || (unknown && met.may_be_live);
        if asks || new.is_none() {
            self.owe_for(records, old.as_ref(), id);
        }
        if new.is_none() && !present && !unknown {
            return Wrote::Absent { by_own: running.is_some() };
        }
        if let Some(old) = &old
            && !records.log.blocks.of(old.slot.location().0).pin()
        {
            return Wrote::Moved;
        }
        let version = self.gave(locked.next_version(floor));
        let fields = write.fields(table.owner, version, epoch);
        let before = old.as_ref().map_or(Slot::default(), |old| old.slot);
        let trailer = Trailer { unit: id, previous: before.as_previous(self.lane()) };
        let appended = self.appender.append_member(&records.log, fields, write.body(), trailer);
        self.note_member(records, appended);
        let slot = Slot::to(self.appender.leave_pending(appended)).with_tombstone(new.is_none());
        let crowded = match found {
            Some((place, _)) => {
                Old::supersede(old.as_ref(), key, &place, slot, records);
                false
            }
            None if unknown => locked.insert(key, slot.hiding_unknown(), records),
            None => locked.insert(key, slot, records),
        };
        if let Some((_, Meta { collection: Some(CollectionId(owner)), .. })) = new {
            records.tables.root_written(MetName { owner, place: appended.at });
            if let Some(running) = &mut self.unit {
                running.root_at = appended.at;
            }
        }
        locked.count_member(true);
        if self.meets_others(table)
            && let Some(units) = &mut self.units
        {
            records.stripes().begin_running(hash, &mut units.counted);
        }
        drop(locked);
        self.count_key(table, old.as_ref(), new.is_some());
        let lost = old.as_ref().and_then(Old::names);
        if planted(Mutant::LostBeforeShown) {
            lost.into_iter().for_each(|name| records.tables.unname(name));
        } else if let Some(running) = &mut self.unit {
            running.lost.extend(lost);
        }
        let replaced = old.filter(|old| old.present).and_then(|old| Some(old.record?.meta()));
        Wrote::Done { appended, replaced, crowded }
    }

    /// What is there is told to who writes: it must be durable when the group is.
    fn owe_for<M: Medium>(&self, records: &Records<M>, old: Option<&Old<'_>>, id: UnitId) {
        let is_own = |record: &Record<'_>| record.head.is_member() && record.trailer().unit == id;
        if old.is_some_and(|old| old.slot.is_pending() && old.record.as_ref().is_some_and(is_own)) {
            return;
        }
        let epoch = self.told_of(records, old);
        if let Some(owed) = self.owed() {
            owed.epoch.set(owed.epoch.get().max(epoch.0));
        }
    }

    /// Whether others may write the keys of this table that the unit that runs has named: who holds the keys meets no
    /// other writer of theirs, and elements belong to who has their collection's key.
    fn meets_others(&self, table: &Table) -> bool {
        !self.is_locked() && !table.owner.is_collection()
    }

    /// Somebody else may write the key before the unit is shown, in which it is absent.
    fn note_missed(&mut self, table: &Table, key: &[u8]) {
        if self.meets_others(table)
            && !planted(Mutant::MissedNotLookedAt)
            && let Some(running) = &mut self.unit
        {
            running.missed.push(Missed { owner: table.owner, key: key.to_vec() });
        }
    }

    pub(super) fn take_missed(&mut self) -> Vec<Missed> {
        self.unit.as_mut().map(|running| std::mem::take(&mut running.missed)).unwrap_or_default()
    }

    /// The unit runs on: what it missed is looked at once more.
    pub(super) fn put_missed(&mut self, missed: Vec<Missed>) {
        if let Some(running) = &mut self.unit {
            running.missed = missed;
        }
    }

    /// Counts a member that was appended.
    fn note_member<M: Medium>(&mut self, records: &Records<M>, appended: Appended) {
        self.appender.count_live(appended.bytes);
        self.activity.written_add(appended.bytes);
        if let Some(running) = &mut self.unit {
            running.sum.add(appended.at, appended.crc);
        }
        self.note_place(records, appended);
    }

    /// Notes where the unit has a record that was just appended.
    fn note_place<M: Medium>(&mut self, records: &Records<M>, appended: Appended) {
        let Some((granule, to)) = self.appender.place() else { return };
        let Some(running) = &mut self.unit else { return };
        match running.stretches.last_mut() {
            Some(last) if last.granule == granule => last.to = to,
            _ => {
                // Its appender has it open, so nobody moves out of it.
                let pinned = records.log.blocks.at(granule).pin();
                debug_assert!(pinned, "an open block is retired");
                running.stretches.push(Stretch { granule, from: to - appended.bytes, to });
                self.appender.enter_unit();
            }
        }
    }

    /// Counts an end that was appended.
    fn note_end<M: Medium>(&mut self, records: &Records<M>, end: Appended) {
        self.activity.written_add(end.bytes);
        // Nobody looks for it.
        self.activity.dead_add(end.bytes as i64);
        self.note_place(records, end);
    }

    /// Ends the unit that runs and shows it.
    pub(crate) fn commit_unit<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        self.check_not_failed(records)?;
        let shown = self.show_if(records, &[], &mut || ());
        if let Ok(Compared::Met) = shown {
            return Ok(());
        }
        self.give_up_unit(records)?;
        shown?;
        Err(Error::new(
            ErrorKind::Conflict,
            "cannot commit the unit: somebody wrote a key meanwhile that was not there when the unit deleted it; nothing of it was kept, \
             begin again, or lock the keys before",
        ))
    }

    /// Ends the unit that runs and shows it, if what it read is as it was; whether it did. Else it is given up, and what changed a key
    /// that it read is over.
    pub(crate) fn commit_unit_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        read: &[Expect],
    ) -> Result<bool> {
        self.check_not_failed(records)?;
        loop {
            match self.show_if(records, read, &mut || ()) {
                Ok(Compared::Met) => return Ok(true),
                // The other's end tells whether the key changed: the unit waits with all that it wrote, which goes one way only.
                Ok(Compared::Running(other)) if self.may_wait_for(other) && !self.is_locked() => {
                    self.wait_for_unit(records, other).inspect_err(|_| drop(self.give_up_unit(records)))?;
                }
                shown => {
                    self.give_up_unit(records)?;
                    if let Compared::Running(other) = shown? {
                        self.wait_for_unit(records, other)?;
                    }
                    return Ok(false);
                }
            }
        }
    }

    /// Gives the unit up that runs; whether what it read was of one moment, which has not passed.
    pub(crate) fn give_up_unit_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        read: &[Expect],
    ) -> Result<bool> {
        let compared = self.compare(records, read, &[], |_| ());
        self.give_up_unit(records)?;
        match compared? {
            Compared::Running(other) => self.wait_for_unit(records, other).map(|()| false),
            compared => Ok(matches!(compared, Compared::Met)),
        }
    }

    /// That all writes of the unit that runs were done; else it is given up.
    fn check_not_failed<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        if self.unit.as_ref().is_some_and(|running| running.failed) {
            self.give_up_unit(records)?;
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                "cannot commit the unit: one of its writes found no room, or what was being moved; nothing of it was kept",
            ));
        }
        Ok(())
    }

    /// The moment of the unit that runs, in the epoch of its end, which is returned.
    pub(super) fn show_unit<M: Medium>(&mut self, records: &Records<M>, epoch: Epoch) -> Option<Appended> {
        let (id, sum) = self.unit.as_ref().map(|running| (running.id, running.sum)).unwrap_or_default();
        let lane = self.lane();
        if sum.count == 0 {
            records.log.lanes.at(lane).over();
            return None;
        }
        let end = (!planted(Mutant::UnitWithoutEnd))
            .then(|| self.appender.append_end(&records.log, id, sum, epoch));
        records.log.lanes.at(lane).show(end.map_or(Offset(0), |end| end.at.plus(end.bytes)), epoch.0);
        end
    }

    /// The unit that runs was shown, and the epoch left.
    pub(super) fn unit_shown<M: Medium>(
        &mut self,
        records: &Records<M>,
        end: Option<Appended>,
        epoch: Epoch,
    ) -> Result<()> {
        self.committed(records, end, epoch);
        if self.leave_unit(records) { self.settle(records) } else { Ok(()) }
    }

    /// What follows from a unit that is shown.
    fn committed<M: Medium>(&mut self, records: &Records<M>, appended: Option<Appended>, epoch: Epoch) {
        if let Some(end) = appended {
            self.note_end(records, end);
        }
        let Some(running) = &mut self.unit else { return };
        if running.sum.count == 0 {
            return;
        }
        running.named.clear();
        for name in running.lost.drain(..) {
            records.tables.unname(name);
        }
        let stretches = std::mem::take(&mut running.stretches);
        if let Some(group) = &mut self.group {
            group.owed.epoch.set(group.owed.epoch.get().max(epoch.0));
            group.over.push(Over { stretches, epoch });
        }
    }

    /// The unit runs no more. Whether its group is its own.
    fn leave_unit<M: Medium>(&mut self, records: &Records<M>) -> bool {
        self.appender.leave_unit();
        let over = self.unit.take();
        let own_group = over.as_ref().is_some_and(|running| running.own_group);
        // Those of its roots that were not written after all.
        for (name, before) in over.into_iter().flat_map(|running| running.named.into_iter().rev()) {
            records.tables.unname_unwritten(name, before);
        }
        if let Some(units) = &mut self.units {
            records.stripes().end_running(&mut units.counted);
        }
        if let Some(owed) = self.owed() {
            owed.unit.set(0);
        }
        self.give_back(records);
        own_group
    }

    /// Gives the unit up that runs, if one does: nothing of it is left but bytes that count for nothing. A group that
    /// is not its own goes on; else what it read may be told.
    pub(crate) fn give_up_unit<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        let Some(running) = &mut self.unit else { return Ok(()) };
        let (id, written) = (running.id, std::mem::take(&mut running.stretches));
        let mut again = Vec::new();
        for stretch in written.iter().rev().filter(|_| !planted(Mutant::PreviousNotPutBack)) {
            let mut places = Vec::new();
            each_member(records, *stretch, |at| places.push(at));
            for at in places.into_iter().rev() {
                self.put_back(records, at, &mut again);
            }
        }
        let has_members = !written.is_empty();
        if let Some(running) = &mut self.unit {
            running.stretches = written;
        }
        // Where the last write found no room there may be none for an end.
        let has_end =
            has_members && records.log.epochs().check_writable().is_ok() && self.appender.room() >= END_BYTES;
        if has_end {
            let unwinding = records.log.epochs().unwinding(&self.activity);
            let epoch = records.log.epochs().enter(&self.activity);
            let end = self.appender.append_end(&records.log, id, UnitSum::default(), epoch);
            records.log.epochs().leave(&self.activity, epoch, Some(end));
            unwinding.over();
            self.note_end(records, end);
        }
        let stretches =
            self.unit.as_mut().map(|running| std::mem::take(&mut running.stretches)).unwrap_or_default();
        records.log.lanes.at(self.lane()).over();
        let own_group = self.leave_unit(records);
        self.release(records, &stretches, Fate::Void, has_end, Epoch(0));
        if self.is_locked() {
            self.defer_put_back(again);
        } else {
            self.settle_put_back(records, again);
        }
        if own_group { self.settle(records) } else { Ok(()) }
    }

    /// The slot that led to the member at `at` leads where it did before. In `again`: what was pending there.
    fn put_back<M: Medium>(&self, records: &Records<M>, at: Offset, again: &mut Vec<(Owner, u64, Slot)>) {
        let guard = reclaim::pin_to_write();
        let record = records.record(at);
        let (key, bytes) = (record.key(), record.head.record_bytes());
        let hash = records.hasher.hash(key);
        let before = Slot::of_previous(record.trailer().previous);
        let (owner, mut last) = (record.owner(), None);
        let table = records.tables.find(owner, &mut last);
        let mut is_live = !before.is_empty() && table.is_none();
        if let Some(table) = table {
            let locked = table.index.lock(hash, &guard);
            locked.count_member(false);
            match locked.find(key, |slot| slot.location() == at) {
                // Its table died, and was buried that far: what was there before is dead too.
                Some(place) if place.get().hides_nothing() && table.is_dead() => is_live = !before.is_empty(),
                Some(place) => {
                    records.log.uncount(at, bytes, &self.activity);
                    self.put_slot_back(records, table, &locked, &place, before);
                    drop(locked);
                    if before.is_pending() {
                        again.push((owner, hash, before));
                    }
                }
                // Beside a panic it may have been left half done: a second one would end the process.
                None => {
                    debug_assert!(std::thread::panicking(), "a member of a unit that runs was superseded")
                }
            }
        } else {
            records.tables.stripes_of(owner).lock(hash).count_member(false);
        }
        if is_live {
            self.uncount_previous(records, before);
        }
        if !before.is_empty() {
            records.log.blocks.of(before.location().0).unpin();
        }
    }

    fn put_slot_back<M: Medium>(
        &self,
        records: &Records<M>,
        table: &Table,
        locked: &Locked<'_>,
        place: &crate::index::either::Place<'_>,
        before: Slot,
    ) {
        let now = place.get();
        let was_there = !before.is_empty() && !before.is_tombstone();
        if before.is_empty() {
            locked.remove(place, records);
        } else {
            let slot = now.put_back(before);
            let record = records.whole_record(before.location());
            let key = record.as_ref().map_or(&[][..], |record| record.key());
            place.lead(key, slot, records);
            // What its key's other records came to meanwhile.
            if let Some(record) = record {
                let (at, bytes) = (record.at, record.head.record_bytes());
                match (before.hides_nothing(), slot.hides_nothing()) {
                    (false, true) => records.log.uncount(at, bytes, &self.activity),
                    (true, false) => {
                        records.log.blocks.of(at.0).live_add(bytes);
                        self.activity.dead_add(-(bytes as i64));
                    }
                    _ => {}
                }
            }
        }
        if was_there == now.is_tombstone() {
            table.count_keys(self.activity.shard, if was_there { 1 } else { -1 });
        }
    }

    /// What was pending when a unit superseded it, and is there again: who would have cleared the mark may have passed
    /// by.
    pub(super) fn settle_put_back<M: Medium>(&self, records: &Records<M>, again: Vec<(Owner, u64, Slot)>) {
        for (owner, hash, slot) in again {
            let guard = reclaim::pin_to_write();
            let mut last = None;
            let Some(table) = records.tables.find(owner, &mut last) else { continue };
            let is_there = |found: Slot| found.location() == slot.location() && found.is_pending();
            let key = records.record(slot.location()).key();
            if table.index.find(hash, key, &guard, is_there).is_none() {
                continue;
            }
            let epoch = records.help(&records.record(slot.location()), true);
            drop(guard);
            if records.log.wait_for(epoch).is_err() {
                // Poisoned: nothing is written any more.
                return;
            }
            super::clear_pending(records, std::iter::once((owner, hash, slot.location())));
        }
    }

    fn uncount_previous<M: Medium>(&self, records: &Records<M>, before: Slot) {
        match records.whole_record(before.location()) {
            None => records.mended(),
            Some(record) if !before.hides_nothing() => {
                records.log.uncount(record.at, record.head.record_bytes(), &self.activity);
            }
            Some(_) => {}
        }
    }

    /// Step 5 of a unit that is durable, and then 6.
    pub(super) fn settle_unit<M: Medium>(&self, records: &Records<M>, over: &Over) {
        let mut last = None;
        for &stretch in &over.stretches {
            each_member(records, stretch, |at| {
                let guard = reclaim::pin_to_write();
                let record = records.record(at);
                let key = record.key();
                let hash = records.hasher.hash(key);
                let owner = record.owner();
                if let Some(table) = records.tables.find(owner, &mut last) {
                    let locked = table.index.lock(hash, &guard);
                    locked.count_member(false);
                    if let Some(place) = locked.find(key, |slot| slot.location() == at) {
                        place.set(place.get().with_pending(false));
                    }
                } else {
                    records.tables.stripes_of(owner).lock(hash).count_member(false);
                }
                let before = Slot::of_previous(record.trailer().previous);
                if !before.is_empty() {
                    self.uncount_previous(records, before);
                    records.log.blocks.of(before.location().0).unpin();
                }
            });
        }
        self.release(records, &over.stretches, Fate::Counts, true, over.epoch);
    }

    /// The blocks of a unit that is over and drained may go, once it is known for good what becomes of it. The last one
    /// has its end, if it has one.
    fn release<M: Medium>(
        &self,
        records: &Records<M>,
        stretches: &[Stretch],
        fate: Fate,
        has_end: bool,
        epoch: Epoch,
    ) {
        match stretches {
            [] => {}
            [only] if has_end => records.log.blocks.at(only.granule).unpin(),
            several => {
                let blocks = several.iter().map(|stretch| stretch.granule).collect();
                records.log.settle_unit(blocks, fate, has_end, epoch);
            }
        }
    }

    /// The writer ends, and its group is settled: its lane is another's.
    pub(super) fn end_units<M: Medium>(&mut self, records: &Records<M>) {
        if let Some(units) = self.units.take() {
            records.log.lanes.give(units.lane);
        }
    }

    /// All that was committed in the group is drained.
    pub(super) fn units_drained<M: Medium>(&self, records: &Records<M>) {
        if let Some(units) = &self.units {
            records.log.lanes.at(units.lane).drained();
        }
    }
}

/// That the unit is none of this thread, which would wait for itself.
fn check_not_own<M: Medium>(records: &Records<M>, other: Trailer) -> Result<()> {
    let Some(held) = records.gate.held_here(|what| what == What::Unit(other.unit.0)) else { return Ok(()) };
    Err(Error::invalid(format!(
        "cannot write the key: {held}, has written it, and the write would wait for that: write it through that unit, or end the unit before"
    )))
}

/// Visits the members that a unit has in a block, which is pinned.
fn each_member<M: Medium>(records: &Records<M>, stretch: Stretch, mut visit: impl FnMut(Offset)) {
    let base = records.log.blocks.offset(stretch.granule);
    let mut at = stretch.from;
    while at < stretch.to {
        let place = Offset(base + at);
        let head = records.record(place).head;
        at += head.record_bytes();
        if !head.is_end() {
            visit(place);
        }
    }
}
