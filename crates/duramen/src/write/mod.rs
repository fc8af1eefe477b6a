//! Writing: each writer appends to a block of its own, and writers meet only on the lock of a key. (Where each write
//! waits for a commit of pages they meet also in the block that they share: see [`crate::log::appender`].)
//!
//! One write, in order:
//!
//! 1. room is made sure of, since that may take long and needs the index itself;
//! 2. the key is locked, the newest record looked up, and the condition (if any) checked;
//! 3. the record is appended with the next version, and drained;
//! 4. the slot leads to it (this is the moment the write happens for readers), the lock is given back;
//! 5. where writes wait for their epoch: wait.
//!
//! The version does not depend on the record that is superseded: the lock gives it out (`index::stripes`). So a put that
//! has no condition appends first and looks then: it is written while the index's lines come from memory, and the miss of
//! the old record and the write-back of the new one overlap. A
//! delete does so too when its key seems to be there; if it is not, its tombstone is taken back, and a crash that
//! finds it finds a write that was never acknowledged, of an absent key.
//!
//! A crash before the end of 3 leaves the old value; after it, the new one. In a group, 3 does not
//! drain: the slot is marked pending, and [`Writer::settle`] drains once and clears the marks.
//!
//! Invariants:
//! 1. A slot leads to a record that is durable, or is marked pending, or whose epoch is not committed.
//! 2. Every superseded record is counted in the `stale` of its key's slot until its block is freed.
//! 3. While a group is open its turn lasts ([`Epochs::groups`](crate::epoch::Epochs::groups)), so that a block of its store whose
//!    records the group superseded is not freed before the group is durable.

pub(crate) mod batch;
mod long_batch;
mod update;

pub use batch::Batch;
pub use update::{Modified, Update, padding_before_field};

use crate::durability::{Activity, Epochs};
use crate::format::Epoch;
use crate::format::record::{Appended, BATCH_BYTES_MAX, HEADER_BYTES, Kind, body_crc, record_bytes};
use crate::index::Slot;
use crate::index::either::Locked;
use crate::log::appender::{Appender, Fields, STAGE_BYTES_MIN, member};
use crate::log::open_block::Purpose;
use crate::log::read::Unknown;
use crate::log::supply::Supply;
use crate::mutants::{Mutant, planted};
use crate::read::Records;
use crate::read::lookup::{Meta, Owed, Record, Stamp};
use crate::sync::Arc;
use crate::sync::reclaim::{self, Guard, Turns};
use crate::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use batch::Op;
use duramen_media::{Medium, Offset};
use std::collections::HashMap;

/// What a batch may take, in bytes and [`MEMBER_COST`] for each member, while it holds all of its locks: some 150 µs.
pub(crate) const SHORT_BATCH_MAX: u64 = 512 << 10;
/// A member's lookups and its slot cost as much as the copy and write-back of so many bytes.
const MEMBER_COST: u64 = 1 << 10;

/// Outcome of a conditional write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// Written.
    Done,
    /// A key was no longer what it was expected to be; nothing was written.
    Changed,
}

/// What a write wants of the key it finds.
#[derive(Clone, Copy)]
enum Want {
    Anything,
    Stamp(Stamp),
    /// A delete: without a live value there is nothing to write.
    Present,
}

/// What a write works out before it locks anything.
#[derive(Clone, Copy)]
struct Ready {
    /// Bytes of the record.
    bytes: u64,
    /// It goes to the block that writers share.
    shared: bool,
    /// The checksum of key and value, for a block with this seed.
    body: u32,
    seed: u32,
}

/// What a write found and did.
enum Wrote {
    /// Written; whether there was, or may have been, a value, and what went with the live one that was replaced.
    Done {
        epoch: Epoch,
        was: bool,
        replaced: Option<Meta>,
    },
    /// Not written, and the epoch of what says so: the answer must not be told before that is durable.
    Changed {
        epoch: Epoch,
    },
    Absent {
        epoch: Epoch,
    },
    /// Not written: the record at this place is damaged, and what is to be written depends on it.
    Damaged {
        at: Offset,
    },
    /// Nothing: a long batch has claimed the key.
    Claimed,
}

impl Wrote {
    fn epoch(&self) -> Epoch {
        match self {
            Self::Done { epoch, .. } | Self::Changed { epoch } | Self::Absent { epoch } => *epoch,
            Self::Damaged { .. } | Self::Claimed => Epoch(0),
        }
    }
}

/// A group in progress.
struct Group {
    /// See invariant 3. `None` only while nothing is pending.
    turn: Option<Turn>,
    /// Slots to be cleared of their pending mark: hash and location.
    pending: Vec<(u64, Offset)>,
    owed: Owed,
}

/// Keeps what the group superseded.
struct Turn(Arc<Turns>);

impl Turn {
    fn begin(activity: &Activity) -> Self {
        activity.group.begin();
        Self(Arc::clone(&activity.group))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What writers work on, and who has room for what they append.
pub(crate) struct Site<'a, M: Medium> {
    pub records: &'a Records<M>,
    pub supply: &'a dyn Supply,
}

impl<M: Medium> Clone for Site<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Medium> Copy for Site<'_, M> {}

/// What a thread needs to write: its block, and what others must know of it.
pub(crate) struct Pen {
    appender: Appender,
    activity: Arc<Activity>,
    group: Option<Group>,
    members: Vec<u8>,
}

impl Pen {
    pub(crate) fn new(epochs: &Epochs) -> Self {
        Self { appender: Appender::default(), activity: epochs.register(), group: None, members: Vec::new() }
    }

    /// Settles what is left of a group, and gives the block and the counts up. Not when the store is closed.
    pub(crate) fn end<M: Medium>(&mut self, records: &Records<M>) {
        let _ = self.settle(records);
        self.appender.put_aside(&records.log);
        records.log.epochs().unregister(&self.activity);
    }

    /// What the group owes, if there is one.
    pub(crate) fn owed(&self) -> Option<&Owed> {
        self.group.as_ref().map(|group| &group.owed)
    }

    fn check<M: Medium>(records: &Records<M>, key: &[u8], value_bytes: usize) -> Result<()> {
        if key.len() > KEY_BYTES_MAX {
            return Err(Error::invalid(format!(
                "key has {} bytes; at most {KEY_BYTES_MAX} are allowed",
                key.len()
            )));
        }
        if value_bytes > VALUE_BYTES_MAX {
            return Err(Error::invalid(format!(
                "value has {value_bytes} bytes; at most {VALUE_BYTES_MAX} are allowed"
            )));
        }
        records.log.epochs().check_writable()
    }

    #[inline]
    pub(crate) fn put<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<()> {
        self.write(site, key, Some((value, meta)), Want::Anything).map(|_| ())
    }

    pub(crate) fn delete<M: Medium>(&mut self, site: Site<'_, M>, key: &[u8]) -> Result<bool> {
        Ok(matches!(self.write(site, key, None, Want::Present)?, Wrote::Done { was: true, .. }))
    }

    pub(crate) fn replace<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
    ) -> Result<Option<Meta>> {
        Ok(match self.write(site, key, new, Want::Anything)? {
            Wrote::Done { replaced, .. } => replaced,
            Wrote::Changed { .. } | Wrote::Absent { .. } | Wrote::Damaged { .. } | Wrote::Claimed => None,
        })
    }

    pub(crate) fn compare_and_swap<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        Ok(match self.write(site, key, value, Want::Stamp(seen))? {
            Wrote::Done { .. } | Wrote::Absent { .. } => Swap::Done,
            Wrote::Changed { .. } | Wrote::Damaged { .. } | Wrote::Claimed => Swap::Changed,
        })
    }

    #[inline(always)]
    fn write<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
    ) -> Result<Wrote> {
        let records = site.records;
        let (value, meta) = new.unwrap_or_default();
        Self::check(records, key, value.len())?;
        let bytes = record_bytes(key.len(), value.len(), meta.expires_at.is_some());
        // Before the pin: compaction that makes room must not wait for this very guard.
        self.reserve(site, bytes, if new.is_some() { Purpose::Write } else { Purpose::Delete })?;
        let guard = reclaim::pin_to_write();
        let hash = records.hasher.hash(key);
        records.index.prefetch_write(hash, new.is_some(), &guard);
        // What is kept for deletes stays with them: it is not shared with puts.
        let shared = records.log.shares(bytes) && !self.appender.is_kept();
        let seed = if shared { self.appender.shared_seed } else { self.appender.seed() };
        let ready = Ready { bytes, shared, body: body_crc(seed, &[key, value]), seed };
        if bytes >= STAGE_BYTES_MIN && !shared {
            let head = HEADER_BYTES + if meta.expires_at.is_some() { 8 } else { 0 };
            self.appender.stage(&records.log, head, key, value);
        }
        let want =
            if planted(Mutant::SwapNotRechecked) { compared(records, key, hash, want, &guard) } else { want };
        let epochs = records.log.epochs();
        let (wrote, crowded) = loop {
            let unwinding = epochs.unwinding(&self.activity);
            let epoch = epochs.enter(&self.activity);
            let (wrote, crowded, appended) =
                self.write_locked(records, key, new, want, hash, ready, epoch, &guard);
            epochs.leave(&self.activity, epoch, appended);
            unwinding.over();
            if !matches!(wrote, Wrote::Claimed) {
                break (wrote, crowded);
            }
            records.index.wait_for_claims(hash);
        };
        if crowded {
            records.index.split(hash, records, &guard);
        }
        drop(guard);
        self.give_back(records);
        if let Wrote::Damaged { at } = wrote {
            return Err(records.corrupt(at));
        }
        self.finish(records, wrote.epoch())?;
        Ok(wrote)
    }

    /// Steps 2 to 4. Returns also whether the index is crowded, and the record.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the middle of `write`, cut out where the lock ends")]
    fn write_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
        hash: u64,
        ready: Ready,
        epoch: Epoch,
        guard: &Guard,
    ) -> (Wrote, bool, Option<Appended>) {
        let (value, meta) = new.unwrap_or_default();
        let locked = records.index.lock(hash, guard);
        if records.index.is_claimed(&locked, hash) && !planted(Mutant::ClaimNotLookedAt) {
            return (Wrote::Claimed, false, None);
        }
        let kind = match new {
            None => Kind::Tombstone,
            Some(_) if meta.updatable && !records.log.epochs().in_use() => Kind::CellSealed,
            Some(_) => Kind::Value,
        };
        let fields = |version| Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch };
        // Before it is looked at what is there, if that does not matter: the new record is written while the index's lines
        // come from memory, and its write-back and the miss of the old one overlap. Not in a turn, which others wait for.
        let ahead = match want {
            Want::Anything => new.is_some() && !ready.shared && !planted(Mutant::VersionNotAdvanced),
            Want::Present if records.log.epochs().in_use() => false,
            Want::Present => {
                locked.candidate(key).inspect(|&at| records.log.fetch_old(at, key.len())).is_some()
            }
            Want::Stamp(_) => false,
        };
        let ahead = if ahead {
            Some(self.append(records, fields(locked.next_version()), key, value, ready))
        } else {
            None
        };
        let mut met = Unknown::default();
        let found = locked.find_with(key, |slot| {
            records.log.fetch_old(slot.location(), key.len());
            Some((slot, records.meet(slot, key, &mut met)?))
        });
        let old = found.as_ref().map(|&(_, (slot, met))| Old::new(records, slot, met.whole()));
        // A slot that may be the key's, and is not known to be, stays: see `damage`.
        let unknown = met.is_some() && found.is_none();
        let present = old.as_ref().is_some_and(|old| old.present) || (unknown && met.may_be_live);
        let changed = match want {
            Want::Stamp(_) if unknown || old.as_ref().is_some_and(|old| old.record.is_none()) => {
                self.appender.unstage();
                return (Wrote::Damaged { at: met.at }, false, None);
            }
            Want::Stamp(stamp) => {
                stamp != records.stamp_of(old.as_ref().and_then(|old| old.record.as_ref()), hash)
            }
            Want::Anything | Want::Present => false,
        };
        if changed || (new.is_none() && !present && !unknown) {
            match ahead {
                Some(appended) => self.appender.take_back(appended),
                None => self.appender.unstage(),
            }
            let epoch = self.told_of(records, old.as_ref());
            return (if changed { Wrote::Changed { epoch } } else { Wrote::Absent { epoch } }, false, None);
        }
        let turn = ready.shared.then(|| self.appender.begin_turn(&records.log, ready.bytes));
        let appended = if let Some(appended) = ahead {
            appended
        } else {
            let version = match &old {
                Some(Old { record: Some(record), .. }) if planted(Mutant::VersionNotAdvanced) => {
                    record.head.version()
                }
                _ => locked.next_version(),
            };
            self.append(records, fields(version), key, value, ready)
        };
        let grouped = self.group.is_some() && records.log.shows_before_durable();
        let early = planted(Mutant::CellOpenedBeforeDurable) && kind == Kind::CellSealed;
        if !grouped && !records.log.epochs().in_use() && !planted(Mutant::AcknowledgedWithoutDrain) && !early
        {
            self.appender.drain(&records.log);
        }
        if kind == Kind::CellSealed {
            if !early {
                self.appender.drain(&records.log);
            }
            self.appender.open_cell(&records.log, appended, key);
        }
        self.appender.count_live(appended.bytes);
        self.activity.written_add(appended.bytes);
        let slot = Slot::new(appended.at).with_tombstone(new.is_none()).with_pending(grouped);
        let crowded = match found {
            Some((place, _)) => {
                let more = u64::from(!planted(Mutant::StaleNotCounted));
                place.set(slot.with_stale(place.get().stale() + more));
                false
            }
            // How many records of the key are in what is damaged is not known.
            None if unknown => locked.insert(key, slot.with_stale(Slot::STALE_MANY), records),
            None => locked.insert(key, slot, records),
        };
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        drop(locked);
        if let Some(old) = &old {
            old.uncount(records, &self.activity);
        }
        self.count_key(old.as_ref(), new.is_some());
        if grouped && let Some(group) = &mut self.group {
            group.pending.push((hash, appended.at));
        }
        let replaced = old.filter(|old| old.present).and_then(|old| Some(old.record?.meta()));
        (Wrote::Done { epoch, was: present, replaced }, crowded, Some(appended))
    }

    /// Step 3, but for the drain. Always inlined: what it returns would go through memory, behind all that was just stored there.
    #[inline(always)]
    fn append<M: Medium>(
        &mut self,
        records: &Records<M>,
        fields: Fields,
        key: &[u8],
        value: &[u8],
        ready: Ready,
    ) -> Appended {
        // The block may have become another one meanwhile, where writers share it.
        let seed = self.appender.seed();
        let body = if seed == ready.seed { ready.body } else { body_crc(seed, &[key, value]) };
        self.appender.append(&records.log, fields, key, value, body)
    }

    /// Makes sure that what was found may be told of: flushes what its writer has not drained yet, and
    /// returns the epoch to wait for.
    fn told_of<M: Medium>(&self, records: &Records<M>, old: Option<&Old<'_>>) -> Epoch {
        let Some((slot, record)) = old.and_then(|old| Some((old.slot, old.record?))) else { return Epoch(0) };
        if slot.is_pending() {
            records.help(&record, self.group.is_none());
        }
        records.epoch_of(&record)
    }

    /// Counts a key that came or went. An expired one counts until it is swept.
    fn count_key(&self, old: Option<&Old<'_>>, now: bool) {
        let before = old.is_some_and(|old| !old.slot.is_tombstone());
        if before != now {
            self.activity.keys_add(if before { -1 } else { 1 });
        }
        if now && !old.is_some_and(|old| old.present) {
            self.activity.came_add(1);
        }
    }

    /// Step 5, or its debt.
    #[inline]
    fn finish<M: Medium>(&mut self, records: &Records<M>, epoch: Epoch) -> Result<()> {
        match self.owed() {
            Some(owed) => {
                owed.epoch.set(owed.epoch.get().max(epoch.0));
                Ok(())
            }
            None => records.log.wait_for(epoch),
        }
    }

    /// As `write` to the moment in which it holds the lock.
    #[cold]
    #[expect(clippy::panic, reason = "what it is for")]
    pub(crate) fn panic_within_a_write<M: Medium>(&mut self, records: &Records<M>) {
        let guard = reclaim::pin_to_write();
        let _unwinding = records.log.epochs().unwinding(&self.activity);
        records.log.epochs().enter(&self.activity);
        let _locked = records.index.lock(0, &guard);
        std::panic::panic_any("within a write, on purpose");
    }

    pub(crate) fn apply<M: Medium>(&mut self, site: Site<'_, M>, batch: &Batch) -> Result<Swap> {
        let records = site.records;
        // The last write of a key counts.
        let mut last: HashMap<&[u8], &Op> = HashMap::with_capacity(batch.writes.len());
        let mut order: Vec<&[u8]> = Vec::with_capacity(batch.writes.len());
        let mut bytes = HEADER_BYTES;
        for (key, op) in &batch.writes {
            if last.insert(key, op).is_none() {
                order.push(key);
            }
        }
        for (&key, op) in &last {
            let (value, expires) = match op {
                Op::Put { value, meta } => (value.len(), meta.expires_at.is_some()),
                Op::Delete => (0, false),
            };
            Self::check(records, key, value)?;
            bytes += record_bytes(key.len(), value, expires);
        }
        if bytes > BATCH_BYTES_MAX {
            return Err(Error::invalid(format!(
                "batch takes {bytes} bytes; at most {BATCH_BYTES_MAX} are allowed: split it"
            )));
        }
        if batch.expects.is_empty() && order.is_empty() {
            return Ok(Swap::Done);
        }
        let deletes_only = last.values().all(|op| matches!(op, Op::Delete));
        self.reserve(site, bytes, if deletes_only { Purpose::Delete } else { Purpose::Write })?;
        let hashes: Vec<u64> = order
            .iter()
            .copied()
            .chain(batch.expects.iter().map(|(key, _)| &key[..]))
            .map(|key| records.hasher.hash(key))
            .collect();
        if is_long(records, hashes.len(), bytes) {
            return self.apply_long(records, batch, &order, &last, &hashes, bytes);
        }
        let guard = reclaim::pin_to_write();
        records.index.make_room(&hashes[..order.len()], records, &guard);
        let epochs = records.log.epochs();
        let applied = loop {
            let unwinding = epochs.unwinding(&self.activity);
            let epoch = epochs.enter(&self.activity);
            let applied = self.apply_locked(records, batch, &order, &last, &hashes, bytes, epoch, &guard);
            epochs.leave(&self.activity, epoch, applied.appended);
            unwinding.over();
            match applied.claimed {
                Some(hash) => records.index.wait_for_claims(hash),
                None => break applied,
            }
        };
        for i in applied.crowded {
            records.index.split(hashes[i], records, &guard);
        }
        drop(guard);
        self.give_back(records);
        records.told(applied.damaged)?;
        self.finish(records, applied.told)?;
        Ok(applied.swap)
    }

    #[expect(clippy::too_many_arguments, reason = "the middle of `apply`, cut out where the locks end")]
    fn apply_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        batch: &Batch,
        order: &[&[u8]],
        last: &HashMap<&[u8], &Op>,
        hashes: &[u64],
        bytes: u64,
        epoch: Epoch,
        guard: &Guard,
    ) -> Applied {
        let locks = records.index.lock_all(hashes, guard);
        let mut applied = Applied {
            swap: Swap::Done,
            appended: None,
            told: Epoch(0),
            crowded: Vec::new(),
            damaged: Offset(0),
            claimed: None,
        };
        let claimed = |(lock, hash): &(&Locked<'_>, &u64)| records.index.is_claimed(lock, **hash);
        if let Some((_, &hash)) = locks.iter().zip(hashes).find(claimed)
            && !planted(Mutant::ClaimNotLookedAt)
        {
            applied.claimed = Some(hash);
            return applied;
        }
        let expected = locks[order.len()..].iter().zip(&hashes[order.len()..]);
        for ((key, stamp), (lock, &hash)) in batch.expects.iter().zip(expected) {
            let (old, damaged) = Old::find(records, lock, key);
            if damaged.0 != 0 {
                applied.damaged = damaged;
                return applied;
            }
            applied.told = applied.told.max(self.told_of(records, old.as_ref()));
            if records.stamp_of(old.as_ref().and_then(|old| old.record.as_ref()), hash) != *stamp {
                applied.swap = Swap::Changed;
                return applied;
            }
        }
        // Before a turn, which others wait for: what is there may have to come from the device.
        let olds: Vec<_> =
            order.iter().zip(&locks).map(|(key, lock)| Old::find(records, lock, key)).collect();
        let shares = records.log.shares(bytes) && !self.appender.is_kept();
        let turn = shares.then(|| self.appender.begin_turn(&records.log, bytes));
        self.append_locked(records, order, last, &locks, olds, epoch, &mut applied);
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        applied
    }

    /// Appends the writes of a batch as one record, and lets slots lead to its members.
    #[expect(clippy::too_many_arguments, reason = "the middle of `apply_locked`, cut out where a turn ends")]
    fn append_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        order: &[&[u8]],
        last: &HashMap<&[u8], &Op>,
        locks: &[Locked<'_>],
        olds: Vec<(Option<Old<'_>>, Offset)>,
        epoch: Epoch,
        applied: &mut Applied,
    ) {
        // The members, with versions that follow what is there.
        let seed = self.appender.seed();
        let mut members = std::mem::take(&mut self.members);
        members.clear();
        let mut writes = Vec::with_capacity(order.len());
        let mut expiry = u64::MAX;
        for (i, (&key, (old, damaged))) in order.iter().zip(olds).enumerate() {
            let unknown = old.is_none() && damaged.0 != 0;
            let present = old.as_ref().is_some_and(|old| old.present) || unknown;
            let (kind, value, meta): (_, &[u8], _) = match last[key] {
                Op::Put { value, meta } => (Kind::Value, value, *meta),
                Op::Delete if !present => {
                    applied.told = applied.told.max(self.told_of(records, old.as_ref()));
                    continue;
                }
                Op::Delete => (Kind::Tombstone, &[], Meta::default()),
            };
            let version = locks[i].next_version();
            let fields = Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch };
            let at = member(&mut members, fields, key, value, seed);
            expiry = expiry.min(meta.expires_at.unwrap_or(u64::MAX));
            writes.push((i, at, kind, old, unknown));
        }
        if writes.is_empty() {
            self.members = members;
            return;
        }
        let appended = self.appender.append_batch(&records.log, &members, epoch);
        if expiry < u64::MAX {
            // After the append: the sweeper forgets first and looks then.
            self.appender.note_expiry(&records.log, expiry);
        }
        if !records.log.epochs().in_use() {
            // Also in a group: readers cannot help with part of a batch.
            self.appender.drain(&records.log);
        }
        // Two rounds, so that nobody sees one part without the others: a reader that meets a pending member
        // waits until the second round, and by then all slots are set.
        for (i, at, kind, old, unknown) in &writes {
            let slot = Slot::new(appended.at.plus(HEADER_BYTES + at))
                .with_tombstone(*kind == Kind::Tombstone)
                .with_pending(!planted(Mutant::BatchShownInParts));
            match locks[*i].find(order[*i], |slot| records.is_slot_of(slot, order[*i])) {
                Some(place) => place.set(slot.with_stale(place.get().stale() + 1)),
                None => {
                    let slot = if *unknown { slot.with_stale(Slot::STALE_MANY) } else { slot };
                    if locks[*i].insert(order[*i], slot, records) {
                        applied.crowded.push(*i);
                    }
                }
            }
            self.count_key(old.as_ref(), *kind == Kind::Value);
        }
        for (i, at, _, old, _) in &writes {
            let location = appended.at.plus(HEADER_BYTES + at);
            if let Some(place) = locks[*i].find(order[*i], |slot| slot.location() == location) {
                place.set(place.get().with_pending(false));
            }
            self.appender.count_live(records.record(location).head.record_bytes());
            if let Some(old) = old {
                old.uncount(records, &self.activity);
            }
        }
        // What frames the members is dead from the beginning.
        self.activity.dead_add(HEADER_BYTES as i64);
        self.activity.written_add(appended.bytes);
        self.members = members;
        self.members.shrink_to(1 << 20);
        applied.told = epoch.max(applied.told);
        applied.appended = Some(appended);
    }

    /// Makes sure that a record of `bytes` fits.
    #[inline]
    fn reserve<M: Medium>(&mut self, site: Site<'_, M>, bytes: u64, purpose: Purpose) -> Result<()> {
        if self.group.is_none() || self.appender.has_room(bytes, purpose) {
            return self.appender.reserve(&site.records.log, site.supply, bytes, purpose);
        }
        self.reserve_in_group(site, bytes, purpose)
    }

    /// Settles the writes of the group so far and lets go of what it pinned, so that space can be reclaimed
    /// while a block is opened; then the group goes on.
    #[cold]
    fn reserve_in_group<M: Medium>(&mut self, site: Site<'_, M>, bytes: u64, purpose: Purpose) -> Result<()> {
        let records = site.records;
        self.appender.settle(&records.log);
        if let Some(group) = &mut self.group {
            clear_pending(records, group.pending.drain(..));
            group.turn = None;
        }
        let reserved = self.appender.reserve(&site.records.log, site.supply, bytes, purpose);
        if let Some(group) = &mut self.group {
            group.turn = Some(Turn::begin(&self.activity));
        }
        reserved
    }

    /// Gives the block back if it was taken below the mark of puts.
    #[inline]
    fn give_back<M: Medium>(&mut self, records: &Records<M>) {
        if self.appender.is_kept() {
            self.appender.put_aside(&records.log);
        }
    }

    pub(crate) fn begin_group(&mut self) {
        if self.group.is_none() {
            self.group = Some(Group {
                turn: Some(Turn::begin(&self.activity)),
                pending: Vec::new(),
                owed: Owed::default(),
            });
            self.appender.grouped = true;
        }
    }

    pub(crate) fn settle<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        self.appender.grouped = false;
        self.appender.settle(&records.log);
        clear_pending(records, group.pending.into_iter());
        records.log.wait_for(Epoch(group.owed.epoch.get()))
    }
}

/// Whether a batch of `keys`, conditions included, and `bytes` is applied without all of its locks held.
fn is_long<M: Medium>(records: &Records<M>, keys: usize, bytes: u64) -> bool {
    bytes + keys as u64 * MEMBER_COST > records.log.tuning.short_batch_max
}

/// What is wanted once the stamp was compared, as [`Mutant::SwapNotRechecked`] does it.
#[cold]
fn compared<M: Medium>(records: &Records<M>, key: &[u8], hash: u64, want: Want, guard: &Guard) -> Want {
    match want {
        Want::Stamp(stamp) if stamp == stamp_unlocked(records, key, hash, guard) => Want::Anything,
        want => want,
    }
}

/// The key's stamp, which may be another at once.
fn stamp_unlocked<M: Medium>(records: &Records<M>, key: &[u8], hash: u64, guard: &Guard) -> Stamp {
    let found = records.index.find(hash, key, guard, |slot| records.is_key_at(slot, key));
    records.stamp_of(found.map(|slot| records.record(slot.location())).as_ref(), hash)
}

/// Clears the marks of records that are durable now.
fn clear_pending<M: Medium>(records: &Records<M>, pending: impl Iterator<Item = (u64, Offset)>) {
    let guard = reclaim::pin_to_write();
    for (hash, at) in pending {
        // The group's turn keeps the record. A hash index does without the key, and so without the record's line.
        let key = if records.index.ordered().is_some() { records.record(at).key() } else { &[] };
        let locked = records.index.lock(hash, &guard);
        // Not found: overwritten meanwhile, or moved by the compactor, which drained it.
        if let Some(place) = locked.find(key, |slot| slot.location() == at) {
            place.set(place.get().with_pending(false));
        }
    }
}

/// What a batch did.
struct Applied {
    swap: Swap,
    /// Its record, if anything was written.
    appended: Option<Appended>,
    /// What must be durable before the outcome is told: what it wrote, and what it found.
    told: Epoch,
    /// Which of its keys found the index crowded.
    crowded: Vec<usize>,
    /// Where a damaged record lies that it depends on, if it does; then nothing was written.
    damaged: Offset,
    /// The hash of a key that a long batch has claimed: nothing was done.
    claimed: Option<u64>,
}

/// What a key's slot led to before a write.
#[derive(Clone, Copy)]
struct Old<'a> {
    slot: Slot,
    /// `None`: it is damaged.
    record: Option<Record<'a>>,
    present: bool,
}

impl<'a> Old<'a> {
    #[inline]
    fn new<M: Medium>(records: &Records<M>, slot: Slot, record: Option<Record<'a>>) -> Self {
        let is_expired = record.is_some_and(|record| records.is_expired(record.expires_at()));
        Self { slot, record, present: !slot.is_tombstone() && !is_expired }
    }

    /// What is there of `key`, which is locked, and the place of what is damaged and may be the key's.
    fn find<M: Medium>(records: &'a Records<M>, locked: &Locked<'_>, key: &[u8]) -> (Option<Self>, Offset) {
        let mut unknown = Unknown::default();
        let found = locked.find_with(key, |slot| Some((slot, records.meet(slot, key, &mut unknown)?)));
        let old = found.map(|(_, (slot, met))| Self::new(records, slot, met.whole()));
        let damaged = if old.is_some_and(|old| old.record.is_some()) { Offset(0) } else { unknown.at };
        (old, damaged)
    }

    /// The record is superseded: its block has fewer live bytes. A tombstone that hides nothing any more
    /// was taken off when that became known.
    fn uncount<M: Medium>(&self, records: &Records<M>, activity: &Activity) {
        let Some(record) = &self.record else { return records.mended() };
        if !(self.slot.is_tombstone() && self.slot.stale() == 0) {
            records.log.uncount(record.at, record.head.record_bytes(), activity);
        }
    }
}
