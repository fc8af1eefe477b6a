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
//! 3. While a group is open its guard stays pinned, so that a block whose records the group
//!    superseded is not freed before the group is durable.

mod long_batch;
mod update;

pub use update::{Modified, Update, padding_before_field};

use crate::batch::{Batch, Op};
use crate::epoch::Activity;
use crate::format::Epoch;
use crate::format::record::{BATCH_BYTES_MAX, HEADER_BYTES, Kind, body_crc, record_bytes};
use crate::index::Slot;
use crate::index::either::Locked;
use crate::log::appender::{Appended, Appender, Fields, STAGE_BYTES_MIN, member};
use crate::log::space::Purpose;
use crate::mutants::{Mutant, planted};
use crate::reader::{Looked, Meta, Owed, Record, Stamp, Value};
use crate::store::{Core, StoreOn};
use crate::sync::reclaim::{self, Guard};
use crate::sync::{Arc, Weak};
use crate::{Error, KEY_BYTES_MAX, Result, VALUE_BYTES_MAX};
use duramen_media::{Mapped, Medium, Offset};
use std::collections::HashMap;

/// A writer on the media of this machine.
pub type Writer = WriterOn<Mapped>;

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
    /// Written; what went with the live value that was replaced.
    Done {
        epoch: Epoch,
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
    guard: Option<Guard>,
    /// Slots to be cleared of their pending mark: hash and location.
    pending: Vec<(u64, Offset)>,
    owed: Owed,
}

/// What a thread needs to write: its block, and what others must know of it.
pub(crate) struct Pen<M: Medium> {
    core: Weak<Core<M>>,
    appender: Appender,
    activity: Arc<Activity>,
    group: Option<Group>,
    members: Vec<u8>,
}

impl<M: Medium> Pen<M> {
    pub(crate) fn new(core: &Arc<Core<M>>) -> Self {
        Self {
            core: Arc::downgrade(core),
            appender: Appender::default(),
            activity: core.epochs.register(),
            group: None,
            members: Vec::new(),
        }
    }

    /// What the group owes, if there is one.
    fn owed(&self) -> Option<&Owed> {
        self.group.as_ref().map(|group| &group.owed)
    }

    fn check(core: &Core<M>, key: &[u8], value_bytes: usize) -> Result<()> {
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
        core.epochs.check_writable()
    }

    #[inline]
    pub(crate) fn put(&mut self, core: &Core<M>, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.write(core, key, Some((value, meta)), Want::Anything).map(|_| ())
    }

    pub(crate) fn delete(&mut self, core: &Core<M>, key: &[u8]) -> Result<bool> {
        Ok(matches!(self.write(core, key, None, Want::Present)?, Wrote::Done { .. }))
    }

    fn replace(&mut self, core: &Core<M>, key: &[u8], new: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        Ok(match self.write(core, key, new, Want::Anything)? {
            Wrote::Done { replaced, .. } => replaced,
            Wrote::Changed { .. } | Wrote::Absent { .. } | Wrote::Damaged { .. } | Wrote::Claimed => None,
        })
    }

    fn compare_and_swap(
        &mut self,
        core: &Core<M>,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        Ok(match self.write(core, key, value, Want::Stamp(seen))? {
            Wrote::Done { .. } | Wrote::Absent { .. } => Swap::Done,
            Wrote::Changed { .. } | Wrote::Damaged { .. } | Wrote::Claimed => Swap::Changed,
        })
    }

    #[inline(always)]
    fn write(&mut self, core: &Core<M>, key: &[u8], new: Option<(&[u8], Meta)>, want: Want) -> Result<Wrote> {
        let (value, meta) = new.unwrap_or_default();
        Self::check(core, key, value.len())?;
        let bytes = record_bytes(key.len(), value.len(), meta.expires_at.is_some());
        // Before the pin: compaction that makes room must not wait for this very guard.
        self.reserve(core, bytes, if new.is_some() { Purpose::Write } else { Purpose::Delete })?;
        let guard = reclaim::pin_to_write();
        let hash = core.hasher.hash(key);
        core.index.prefetch_write(hash, new.is_some(), &guard);
        // What is kept for deletes stays with them: it is not shared with puts.
        let shared = core.shares(bytes) && !self.appender.is_kept();
        let seed = if shared { self.appender.shared_seed } else { self.appender.seed() };
        let ready = Ready { bytes, shared, body: body_crc(seed, &[key, value]), seed };
        if bytes >= STAGE_BYTES_MIN && !shared {
            let head = HEADER_BYTES + if meta.expires_at.is_some() { 8 } else { 0 };
            self.appender.stage(core, head, key, value);
        }
        let want =
            if planted(Mutant::SwapNotRechecked) { compared(core, key, hash, want, &guard) } else { want };
        let (wrote, crowded) = loop {
            let unwinding = core.epochs.unwinding(&self.activity);
            let epoch = core.epochs.enter(&self.activity);
            let (wrote, crowded, appended) =
                self.write_locked(core, key, new, want, hash, ready, epoch, &guard);
            core.epochs.leave(&self.activity, epoch, appended);
            unwinding.over();
            if !matches!(wrote, Wrote::Claimed) {
                break (wrote, crowded);
            }
            core.index.wait_for_claims(hash);
        };
        if crowded {
            core.index.split(hash, core, &guard);
        }
        if let Wrote::Damaged { at } = wrote {
            return Err(core.corrupt(at));
        }
        drop(guard);
        self.give_back(core);
        self.finish(core, wrote.epoch())?;
        Ok(wrote)
    }

    /// Steps 2 to 4. Returns also whether the index is crowded, and the record.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "the middle of `write`, cut out where the lock ends")]
    fn write_locked(
        &mut self,
        core: &Core<M>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
        hash: u64,
        ready: Ready,
        epoch: Epoch,
        guard: &Guard,
    ) -> (Wrote, bool, Option<Appended>) {
        let (value, meta) = new.unwrap_or_default();
        let locked = core.index.lock(hash, guard);
        if core.index.is_claimed(&locked, hash) && !planted(Mutant::ClaimNotLookedAt) {
            return (Wrote::Claimed, false, None);
        }
        let kind = match new {
            None => Kind::Tombstone,
            Some(_) if meta.updatable && !core.epochs.in_use() => Kind::CellSealed,
            Some(_) => Kind::Value,
        };
        let fields = |version| Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch };
        // Before it is looked at what is there, if that does not matter: the new record is written while the index's lines
        // come from memory, and its write-back and the miss of the old one overlap. Not in a turn, which others wait for.
        let ahead = match want {
            Want::Anything => new.is_some() && !ready.shared && !planted(Mutant::VersionNotAdvanced),
            Want::Present if core.epochs.in_use() => false,
            Want::Present => locked.candidate(key).inspect(|&at| core.fetch_old(at, key.len())).is_some(),
            Want::Stamp(_) => false,
        };
        let ahead = if ahead {
            Some(self.append(core, fields(locked.next_version()), key, value, ready))
        } else {
            None
        };
        let mut damaged = Offset(0);
        let found = locked.find_with(key, |slot| {
            core.fetch_old(slot.location(), key.len());
            Some((slot, core.meet(slot, key, &mut damaged)?))
        });
        let old = found.as_ref().map(|&(_, (slot, met))| Old::new(core, slot, met.whole()));
        // A slot that may be the key's, and is not known to be, stays: see `damage`.
        let unknown = damaged.0 != 0 && found.is_none();
        let present = old.as_ref().is_some_and(|old| old.present) || unknown;
        let changed = match want {
            Want::Stamp(_) if unknown || old.as_ref().is_some_and(|old| old.record.is_none()) => {
                self.appender.unstage();
                return (Wrote::Damaged { at: damaged }, false, None);
            }
            Want::Stamp(stamp) => {
                stamp != core.stamp_of(old.as_ref().and_then(|old| old.record.as_ref()), hash)
            }
            Want::Anything | Want::Present => false,
        };
        if changed || (new.is_none() && !present) {
            match ahead {
                Some(appended) => self.appender.take_back(appended),
                None => self.appender.unstage(),
            }
            let epoch = self.told_of(core, old.as_ref());
            return (if changed { Wrote::Changed { epoch } } else { Wrote::Absent { epoch } }, false, None);
        }
        let turn = ready.shared.then(|| self.appender.begin_turn(core, ready.bytes));
        let appended = if let Some(appended) = ahead {
            appended
        } else {
            let version = match &old {
                Some(Old { record: Some(record), .. }) if planted(Mutant::VersionNotAdvanced) => {
                    record.head.version()
                }
                _ => locked.next_version(),
            };
            self.append(core, fields(version), key, value, ready)
        };
        let grouped = self.group.is_some() && core.shows_before_durable();
        let early = planted(Mutant::CellOpenedBeforeDurable) && kind == Kind::CellSealed;
        if !grouped && !core.epochs.in_use() && !planted(Mutant::AcknowledgedWithoutDrain) && !early {
            self.appender.drain(core);
        }
        if kind == Kind::CellSealed {
            if !early {
                self.appender.drain(core);
            }
            self.appender.open_cell(core, appended, key);
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
            None if unknown => locked.insert(key, slot.with_stale(Slot::STALE_MANY), core),
            None => locked.insert(key, slot, core),
        };
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        drop(locked);
        if let Some(old) = &old {
            old.uncount(core, &self.activity);
        }
        self.count_key(old.as_ref(), new.is_some());
        if grouped && let Some(group) = &mut self.group {
            group.pending.push((hash, appended.at));
        }
        let replaced = old.filter(|old| old.present).and_then(|old| Some(old.record?.meta()));
        (Wrote::Done { epoch, replaced }, crowded, Some(appended))
    }

    /// Step 3, but for the drain. Always inlined: what it returns would go through memory, behind all that was just stored there.
    #[inline(always)]
    fn append(&mut self, core: &Core<M>, fields: Fields, key: &[u8], value: &[u8], ready: Ready) -> Appended {
        // The block may have become another one meanwhile, where writers share it.
        let seed = self.appender.seed();
        let body = if seed == ready.seed { ready.body } else { body_crc(seed, &[key, value]) };
        self.appender.append(core, fields, key, value, body)
    }

    /// Makes sure that what was found may be told of: flushes what its writer has not drained yet, and
    /// returns the epoch to wait for.
    fn told_of(&self, core: &Core<M>, old: Option<&Old<'_>>) -> Epoch {
        let Some((slot, record)) = old.and_then(|old| Some((old.slot, old.record?))) else { return Epoch(0) };
        if slot.is_pending() {
            core.help(&record, self.group.is_none());
        }
        core.epoch_of(&record)
    }

    /// Counts a key that came or went. An expired one counts until it is swept.
    fn count_key(&self, old: Option<&Old<'_>>, now: bool) {
        let before = old.is_some_and(|old| !old.slot.is_tombstone());
        if before != now {
            self.activity.keys_add(if before { -1 } else { 1 });
        }
    }

    /// Step 5, or its debt.
    #[inline]
    fn finish(&mut self, core: &Core<M>, epoch: Epoch) -> Result<()> {
        match self.owed() {
            Some(owed) => {
                owed.epoch.set(owed.epoch.get().max(epoch.0));
                Ok(())
            }
            None => core.wait_for(epoch),
        }
    }

    /// As `write` to the moment in which it holds the lock.
    #[cold]
    #[expect(clippy::panic, reason = "what it is for")]
    fn panic_within_a_write(&mut self, core: &Core<M>) {
        let guard = reclaim::pin_to_write();
        let _unwinding = core.epochs.unwinding(&self.activity);
        core.epochs.enter(&self.activity);
        let _locked = core.index.lock(0, &guard);
        std::panic::panic_any("within a write, on purpose");
    }

    pub(crate) fn apply(&mut self, core: &Core<M>, batch: &Batch) -> Result<Swap> {
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
            Self::check(core, key, value)?;
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
        self.reserve(core, bytes, if deletes_only { Purpose::Delete } else { Purpose::Write })?;
        let hashes: Vec<u64> = order
            .iter()
            .copied()
            .chain(batch.expects.iter().map(|(key, _)| &key[..]))
            .map(|key| core.hasher.hash(key))
            .collect();
        if is_long(core, hashes.len(), bytes) {
            return self.apply_long(core, batch, &order, &last, &hashes, bytes);
        }
        let guard = reclaim::pin_to_write();
        core.index.make_room(&hashes[..order.len()], core, &guard);
        let applied = loop {
            let unwinding = core.epochs.unwinding(&self.activity);
            let epoch = core.epochs.enter(&self.activity);
            let applied = self.apply_locked(core, batch, &order, &last, &hashes, bytes, epoch, &guard);
            core.epochs.leave(&self.activity, epoch, applied.appended);
            unwinding.over();
            match applied.claimed {
                Some(hash) => core.index.wait_for_claims(hash),
                None => break applied,
            }
        };
        for i in applied.crowded {
            core.index.split(hashes[i], core, &guard);
        }
        core.told(applied.damaged)?;
        drop(guard);
        self.give_back(core);
        self.finish(core, applied.told)?;
        Ok(applied.swap)
    }

    #[expect(clippy::too_many_arguments, reason = "the middle of `apply`, cut out where the locks end")]
    fn apply_locked(
        &mut self,
        core: &Core<M>,
        batch: &Batch,
        order: &[&[u8]],
        last: &HashMap<&[u8], &Op>,
        hashes: &[u64],
        bytes: u64,
        epoch: Epoch,
        guard: &Guard,
    ) -> Applied {
        let locks = core.index.lock_all(hashes, guard);
        let mut applied = Applied {
            swap: Swap::Done,
            appended: None,
            told: Epoch(0),
            crowded: Vec::new(),
            damaged: Offset(0),
            claimed: None,
        };
        let claimed = |(lock, hash): &(&Locked<'_>, &u64)| core.index.is_claimed(lock, **hash);
        if let Some((_, &hash)) = locks.iter().zip(hashes).find(claimed)
            && !planted(Mutant::ClaimNotLookedAt)
        {
            applied.claimed = Some(hash);
            return applied;
        }
        let expected = locks[order.len()..].iter().zip(&hashes[order.len()..]);
        for ((key, stamp), (lock, &hash)) in batch.expects.iter().zip(expected) {
            let (old, damaged) = Old::find(core, lock, key);
            if damaged.0 != 0 {
                applied.damaged = damaged;
                return applied;
            }
            applied.told = applied.told.max(self.told_of(core, old.as_ref()));
            if core.stamp_of(old.as_ref().and_then(|old| old.record.as_ref()), hash) != *stamp {
                applied.swap = Swap::Changed;
                return applied;
            }
        }
        // Before a turn, which others wait for: what is there may have to come from the device.
        let olds: Vec<_> = order.iter().zip(&locks).map(|(key, lock)| Old::find(core, lock, key)).collect();
        let shares = core.shares(bytes) && !self.appender.is_kept();
        let turn = shares.then(|| self.appender.begin_turn(core, bytes));
        self.append_locked(core, order, last, &locks, olds, epoch, &mut applied);
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        applied
    }

    /// Appends the writes of a batch as one record, and lets slots lead to its members.
    #[expect(clippy::too_many_arguments, reason = "the middle of `apply_locked`, cut out where a turn ends")]
    fn append_locked(
        &mut self,
        core: &Core<M>,
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
                    applied.told = applied.told.max(self.told_of(core, old.as_ref()));
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
        let appended = self.appender.append_batch(core, &members, epoch);
        if expiry < u64::MAX {
            // After the append: the sweeper forgets first and looks then.
            self.appender.note_expiry(core, expiry);
        }
        if !core.epochs.in_use() {
            // Also in a group: readers cannot help with part of a batch.
            self.appender.drain(core);
        }
        // Two rounds, so that nobody sees one part without the others: a reader that meets a pending member
        // waits until the second round, and by then all slots are set.
        for (i, at, kind, old, unknown) in &writes {
            let slot = Slot::new(appended.at.plus(HEADER_BYTES + at))
                .with_tombstone(*kind == Kind::Tombstone)
                .with_pending(!planted(Mutant::BatchShownInParts));
            match locks[*i].find(order[*i], |slot| core.is_slot_of(slot, order[*i])) {
                Some(place) => place.set(slot.with_stale(place.get().stale() + 1)),
                None => {
                    let slot = if *unknown { slot.with_stale(Slot::STALE_MANY) } else { slot };
                    if locks[*i].insert(order[*i], slot, core) {
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
            self.appender.count_live(core.record(location).head.record_bytes());
            if let Some(old) = old {
                old.uncount(core, &self.activity);
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
    fn reserve(&mut self, core: &Core<M>, bytes: u64, purpose: Purpose) -> Result<()> {
        if self.group.is_none() || self.appender.has_room(bytes, purpose) {
            return self.appender.reserve(core, bytes, purpose);
        }
        self.reserve_in_group(core, bytes, purpose)
    }

    /// Settles the writes of the group so far and lets go of what it pinned, so that space can be reclaimed
    /// while a block is opened; then the group goes on.
    #[cold]
    fn reserve_in_group(&mut self, core: &Core<M>, bytes: u64, purpose: Purpose) -> Result<()> {
        self.appender.settle(core);
        if let Some(group) = &mut self.group {
            clear_pending(core, group.pending.drain(..));
            group.guard = None;
        }
        let reserved = self.appender.reserve(core, bytes, purpose);
        if let Some(group) = &mut self.group {
            group.guard = Some(reclaim::pin_to_write());
        }
        reserved
    }

    /// Gives the block back if it was taken below the mark of puts.
    #[inline]
    fn give_back(&mut self, core: &Core<M>) {
        if self.appender.is_kept() {
            self.appender.put_aside(core);
        }
    }

    fn begin_group(&mut self) {
        if self.group.is_none() {
            self.group = Some(Group {
                guard: Some(reclaim::pin_to_write()),
                pending: Vec::new(),
                owed: Owed::default(),
            });
            self.appender.grouped = true;
        }
    }

    fn settle(&mut self, core: &Core<M>) -> Result<()> {
        let Some(group) = self.group.take() else { return Ok(()) };
        self.appender.grouped = false;
        self.appender.settle(core);
        clear_pending(core, group.pending.into_iter());
        core.wait_for(Epoch(group.owed.epoch.get()))
    }
}

impl<M: Medium> Drop for Pen<M> {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade()
            && !core.is_closed()
            && !core.epochs.is_forked()
        {
            let _ = self.settle(&core);
            self.appender.put_aside(&core);
            core.epochs.unregister(&self.activity);
        }
    }
}

/// Whether a batch of `keys`, conditions included, and `bytes` is applied without all of its locks held.
fn is_long<M: Medium>(core: &Core<M>, keys: usize, bytes: u64) -> bool {
    bytes + keys as u64 * MEMBER_COST > core.tuning.short_batch_max
}

/// What is wanted once the stamp was compared, as [`Mutant::SwapNotRechecked`] does it.
#[cold]
fn compared<M: Medium>(core: &Core<M>, key: &[u8], hash: u64, want: Want, guard: &Guard) -> Want {
    match want {
        Want::Stamp(stamp) if stamp == stamp_unlocked(core, key, hash, guard) => Want::Anything,
        want => want,
    }
}

/// The key's stamp, which may be another at once.
fn stamp_unlocked<M: Medium>(core: &Core<M>, key: &[u8], hash: u64, guard: &Guard) -> Stamp {
    let found = core.index.find(hash, key, guard, |slot| core.is_key_at(slot, key));
    core.stamp_of(found.map(|slot| core.record(slot.location())).as_ref(), hash)
}

/// Clears the marks of records that are durable now.
fn clear_pending<M: Medium>(core: &Core<M>, pending: impl Iterator<Item = (u64, Offset)>) {
    let guard = reclaim::pin_to_write();
    for (hash, at) in pending {
        // The group's guard keeps the record. A hash index does without the key, and so without the record's line.
        let key = if core.index.ordered().is_some() { core.record(at).key() } else { &[] };
        let locked = core.index.lock(hash, &guard);
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
    fn new<M: Medium>(core: &Core<M>, slot: Slot, record: Option<Record<'a>>) -> Self {
        let is_expired = record.is_some_and(|record| core.is_expired(record.expires_at()));
        Self { slot, record, present: !slot.is_tombstone() && !is_expired }
    }

    /// What is there of `key`, which is locked, and the place of what is damaged and may be the key's.
    fn find<M: Medium>(core: &'a Core<M>, locked: &Locked<'_>, key: &[u8]) -> (Option<Self>, Offset) {
        let mut damaged = Offset(0);
        let found = locked.find_with(key, |slot| Some((slot, core.meet(slot, key, &mut damaged)?)));
        let old = found.map(|(_, (slot, met))| Self::new(core, slot, met.whole()));
        let damaged = if old.is_some_and(|old| old.record.is_some()) { Offset(0) } else { damaged };
        (old, damaged)
    }

    /// The record is superseded: its block has fewer live bytes. A tombstone that hides nothing any more
    /// was taken off when that became known.
    fn uncount<M: Medium>(&self, core: &Core<M>, activity: &Activity) {
        let Some(record) = &self.record else { return core.mended() };
        if !(self.slot.is_tombstone() && self.slot.stale() == 0) {
            core.uncount(record.at, record.head.record_bytes(), activity);
        }
    }
}

/// Appends to blocks of its own; one for each thread (Viper's client). `&mut self` to write, `&self` to
/// read. Other writers of the same store meet it only on the bucket of a key.
///
/// Make it in the thread that uses it: a group pins what its thread may read, so a writer stays there.
pub struct WriterOn<M: Medium = Mapped> {
    pen: Pen<M>,
    store: StoreOn<M>,
}

impl<M: Medium> WriterOn<M> {
    pub(crate) fn new(store: StoreOn<M>) -> Self {
        Self { pen: Pen::new(store.core_arc()), store }
    }

    /// The store that it writes to.
    #[must_use]
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// What the group owes, if there is one.
    pub(crate) fn owed(&self) -> Option<&Owed> {
        self.pen.owed()
    }

    /// The value of `key`, without copying it.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.get_stamped(key)?.1)
    }

    /// As `get`, and the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_stamped(&self, key: &[u8]) -> Result<(Stamp, Option<Value<'_>>)> {
        let core = self.store.core();
        core.epochs.check_process()?;
        let guard = reclaim::pin();
        Ok(match core.look_up(key, core.hasher.hash(key), guard, self.owed())? {
            Looked::Absent(stamp) => (stamp, None),
            Looked::Present(value) => (value.stamp(), Some(value)),
        })
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.pen.put(self.store.core(), key, value, Meta::default())
    }

    /// Sets `key` to `value`, with what goes with it.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.pen.put(self.store.core(), key, value, meta)
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`StoreOn::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.pen.delete(self.store.core(), key)
    }

    /// Sets `key` to a value, or deletes it for `None`; returns what went with the live value that was there.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.pen.replace(self.store.core(), key, value)
    }

    /// Writes only if the key's stamp still is `seen`; `None` deletes.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn compare_and_swap(
        &mut self,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        self.pen.compare_and_swap(self.store.core(), key, seen, value)
    }

    /// Overwrites `bytes` of the value, from byte `at` on, and says how: [`Update::InPlace`] costs a fraction of
    /// [`Update::NewVersion`], which reads and writes the whole value. One atomic store where the value was put as
    /// [`Meta::updatable`], the range is 1, 2, 4 or 8 bytes (16 where the CPU documents such
    /// stores as atomic), lies aligned in the record, and each write is durable by itself; else a new version of the
    /// whole value.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`StoreOn::put`].
    pub fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Update> {
        Ok(self.pen.update(self.store.core(), key, None, at, bytes)?.unwrap_or(Update::Absent))
    }

    /// As [`WriterOn::update`], but only if the key's stamp still is `seen`; `None` (and nothing written) when it is not.
    /// Comparing and storing are one step to everybody else.
    ///
    /// The stamp of a value that is updated in place follows from its bytes: two updates that lead back to the same
    /// bytes cannot be told from none. Who must tell them apart keeps a count of updates beside what they update.
    ///
    /// # Errors
    /// As [`WriterOn::update`].
    pub fn compare_and_update(
        &mut self,
        key: &[u8],
        seen: Stamp,
        at: usize,
        bytes: &[u8],
    ) -> Result<Option<Update>> {
        self.pen.update(self.store.core(), key, Some(seen), at, bytes)
    }

    /// Reads a value and updates 8 bytes of it in place, both as one step to everybody else. `change` is given the value
    /// with what goes with it, and says what is to be stored and where, or `None` for nothing. It runs under a lock: it must
    /// be short and must not use the store.
    ///
    /// Where an update in place is not possible (see [`WriterOn::update`]) nothing is done; then the value is to be read
    /// and written by [`WriterOn::compare_and_swap`] or [`WriterOn::compare_and_update`].
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`StoreOn::put`].
    pub fn modify_in_place(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Meta, &[u8]) -> Option<(usize, [u8; 8])>,
    ) -> Result<Modified> {
        self.pen.modify_in_place(self.store.core(), key, change)
    }

    /// All or nothing, after a crash and to readers; [`Swap::Changed`] (nothing written) when an
    /// expectation failed.
    ///
    /// # Errors
    /// `InvalidInput` when it is larger than 1 GiB; otherwise as [`StoreOn::put`].
    pub fn apply(&mut self, batch: &Batch) -> Result<Swap> {
        self.pen.apply(self.store.core(), batch)
    }

    /// Begins a group: until [`WriterOn::settle`], writes return before they are durable, and reads through
    /// *this* writer may show what is not durable yet. Nothing that was read or written in a group may be
    /// shown to anybody before `settle` returned `Ok`. Other readers never see undurable state. One drain,
    /// or one wait for the device shared with other writers, serves the whole group.
    ///
    /// Keep it short: space that is compacted meanwhile is not reused before the group ends.
    pub fn group(&mut self) {
        self.pen.begin_group();
    }

    /// Makes all that the group wrote or read durable, and ends it. Without a group it does nothing.
    ///
    /// # Errors
    /// As [`StoreOn::commit`]: then nothing of the group may be acknowledged.
    pub fn settle(&mut self) -> Result<()> {
        self.store.core().epochs.check_process()?;
        self.pen.settle(self.store.core())
    }

    /// Panics within a write, as a bug of the engine would, for tests of what that leaves: the store is poisoned.
    #[doc(hidden)]
    pub fn panic_within_a_write(&mut self) {
        self.pen.panic_within_a_write(self.store.core());
    }
}

impl<M: Medium> std::fmt::Debug for WriterOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("store", &self.store).finish_non_exhaustive()
    }
}
