//! Batches: several keys, all or nothing, on conditions. One that is short holds all of its locks while it writes; for others
//! see [`super::long_batch`].

use super::batch::{Batch, Op};
use super::old::Old;
use super::{Pen, Site, Swap};
use crate::format::Epoch;
use crate::format::record::{Appended, BATCH_BYTES_MAX, HEADER_BYTES, Kind, record_bytes};
use crate::index::Slot;
use crate::index::either::Locked;
use crate::log::appender::{Fields, member};
use crate::log::open_block::Purpose;
use crate::mutants::{Mutant, planted};
use crate::read::Records;
use crate::read::value::Meta;
use crate::sync::reclaim::{self, Guard};
use crate::{Error, Result};
use duramen_media::{Medium, Offset};
use std::collections::HashMap;

/// A member's lookups and its slot cost as much as the copy and write-back of so many bytes.
const MEMBER_COST: u64 = 1 << 10;

/// A batch, and what was worked out of it before anything is locked.
#[derive(Clone, Copy)]
pub(super) struct Plan<'a, 'b> {
    pub batch: &'b Batch,
    /// Its keys.
    pub order: &'a [&'b [u8]],
    /// What it does to each.
    pub last: &'a HashMap<&'b [u8], &'b Op>,
    /// The hashes of its keys, then of the conditions' keys.
    pub hashes: &'a [u64],
    /// Bytes of its record.
    pub bytes: u64,
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

impl Pen {
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
        let plan = Plan { batch, order: &order, last: &last, hashes: &hashes, bytes };
        if is_long(records, hashes.len(), bytes) {
            return self.apply_long(records, &plan);
        }
        let guard = reclaim::pin_to_write();
        records.index.make_room(&hashes[..order.len()], records, &guard);
        let epochs = records.log.epochs();
        let applied = loop {
            let unwinding = epochs.unwinding(&self.activity);
            let epoch = epochs.enter(&self.activity);
            let applied = self.apply_locked(records, &plan, epoch, &guard);
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

    fn apply_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        plan: &Plan<'_, '_>,
        epoch: Epoch,
        guard: &Guard,
    ) -> Applied {
        let Plan { batch, order, hashes, bytes, .. } = *plan;
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
        self.append_locked(records, plan, &locks, olds, epoch, &mut applied);
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        applied
    }

    /// Appends the writes of a batch as one record, and lets slots lead to its members.
    fn append_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        plan: &Plan<'_, '_>,
        locks: &[Locked<'_>],
        olds: Vec<(Option<Old<'_>>, Offset)>,
        epoch: Epoch,
        applied: &mut Applied,
    ) {
        let Plan { order, last, .. } = *plan;
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
        // Also in a group: readers cannot help with part of a batch.
        let whole = self.appender.make_durable(&records.log, appended);
        let shown = if planted(Mutant::BatchShownInParts) { whole } else { whole.pending() };
        // Two rounds, so that nobody sees one part without the others: a reader that meets a pending member
        // waits until the second round, and by then all slots are set.
        for (i, at, kind, old, unknown) in &writes {
            let slot = Slot::to(shown.member(HEADER_BYTES + at)).with_tombstone(*kind == Kind::Tombstone);
            match locks[*i].find(order[*i], |slot| records.is_slot_of(slot, order[*i])) {
                Some(place) => {
                    Old::supersede(old.as_ref(), &place, slot, records);
                }
                None => {
                    let slot = if *unknown { slot.hiding_unknown() } else { slot };
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
}

/// Whether a batch of `keys`, conditions included, and `bytes` is applied without all of its locks held.
fn is_long<M: Medium>(records: &Records<M>, keys: usize, bytes: u64) -> bool {
    bytes + keys as u64 * MEMBER_COST > records.log.tuning.short_batch_max
}
