//! Batches: several keys, all or nothing, on conditions. One that is short holds all of its locks while it writes; for others
//! see [`super::long_batch`].

use super::batch::{Batch, BatchKey, Op, kind_of};
use super::old::Old;
use super::{Pen, Site, Swap};
use crate::format::record::{Appended, BATCH_BYTES_MAX, HEADER_BYTES, Kind, head_bytes, record_bytes};
use crate::format::{Epoch, Owner};
use crate::index::Slot;
use crate::index::either::{Index, Locked};
use crate::log::appender::{Fields, member};
use crate::log::open_block::Purpose;
use crate::mutants::{Mutant, planted};
use crate::read::CollectionId;
use crate::read::Records;
use crate::read::table::{Naming, Table};
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
    pub order: &'a [BatchKey<'b>],
    /// What it does to each.
    pub last: &'a HashMap<(usize, &'b [u8]), &'b Op>,
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
        self.apply_then(site, batch, None)
    }

    /// The same; `then` is called in the epoch of what was written, as by [`Pen::write_name`].
    pub(crate) fn apply_then<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        batch: &Batch,
        then: Option<&mut dyn FnMut()>,
    ) -> Result<Swap> {
        let records = site.records;
        // The last write of a key counts.
        let mut last: HashMap<(usize, &[u8]), &Op> = HashMap::with_capacity(batch.writes.len());
        let mut order: Vec<BatchKey<'_>> = Vec::with_capacity(batch.writes.len());
        let mut bytes = HEADER_BYTES;
        for (table, key, op) in &batch.writes {
            let key = BatchKey::new(table, key);
            if last.insert(key.id(), op).is_none() {
                order.push(key);
            }
        }
        for key in &order {
            let (value, expires) = match last[&key.id()] {
                Op::Put { value, meta } => (value.len(), meta.expires_at.is_some()),
                Op::Delete => (0, false),
            };
            Self::check(records, key.key, value)?;
            bytes += record_bytes(head_bytes(expires, key.target().is_owned()), key.key.len(), value);
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
            .map(|key| key.key)
            .chain(batch.expects.iter().map(|(_, key, _)| &key[..]))
            .map(|key| records.hasher.hash(key))
            .collect();
        for (key, &hash) in order.iter().zip(&hashes) {
            self.check_named(records, key.target(), hash)?;
        }
        self.unlock_early(records);
        let _inside = self.enter(records);
        let plan = Plan { batch, order: &order, last: &last, hashes: &hashes, bytes };
        let names = plan.names(records)?;
        // A long one leaves its epoch before its slots are set.
        let applied = if then.is_none() && !self.is_locked() && is_long(records, hashes.len(), bytes) {
            self.apply_long(records, &plan)
        } else {
            self.apply_short(records, &plan, then)
        };
        names.into_iter().for_each(|name| name.settle(&applied, |swap| *swap == Swap::Done));
        applied
    }

    /// Applies a batch for which room was reserved, with all of its locks held.
    fn apply_short<M: Medium>(
        &mut self,
        records: &Records<M>,
        plan: &Plan<'_, '_>,
        mut then: Option<&mut dyn FnMut()>,
    ) -> Result<Swap> {
        let Plan { order, hashes, .. } = *plan;
        let guard = reclaim::pin_to_write();
        let tables = plan.tables(records, &guard)?;
        if !self.is_locked() {
            make_room(records, &tables[..order.len()], hashes, &guard);
        }
        let epochs = records.log.epochs();
        let applied = loop {
            let unwinding = epochs.unwinding(&self.activity);
            let epoch = epochs.enter(&self.activity);
            let applied = self.apply_locked(records, plan, &tables, epoch, &guard);
            if let Some(then) = then.as_mut().filter(|_| applied.appended.is_some()) {
                then();
            }
            epochs.leave(&self.activity, epoch, applied.appended);
            unwinding.over();
            match applied.claimed {
                Some(hash) => tables[0].index.stripes().wait_for_claims(hash),
                None => break applied,
            }
        };
        for i in applied.crowded {
            self.split(records, tables[i], hashes[i], &guard);
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
        tables: &[&Table],
        epoch: Epoch,
        guard: &Guard,
    ) -> Applied {
        let Plan { batch, order, hashes, bytes, .. } = *plan;
        let keys: Vec<_> = tables.iter().zip(hashes).map(|(table, &hash)| (&table.index, hash)).collect();
        let locks = Index::lock_all(&keys, guard);
        let mut applied = Applied {
            swap: Swap::Done,
            appended: None,
            told: Epoch(0),
            crowded: Vec::new(),
            damaged: Offset(0),
            claimed: None,
        };
        let claimed = |(lock, hash): &(&Locked<'_>, &u64)| tables[0].index.is_claimed(lock, **hash);
        if let Some((_, &hash)) = locks.iter().zip(hashes).find(claimed)
            && !planted(Mutant::ClaimNotLookedAt)
        {
            applied.claimed = Some(hash);
            return applied;
        }
        let expected = locks.iter().zip(hashes).zip(tables).skip(order.len());
        for ((_, key, stamp), ((lock, &hash), table)) in batch.expects.iter().zip(expected) {
            let (old, damaged) = Old::find(records, table, lock, key);
            if damaged.0 != 0 {
                applied.damaged = damaged;
                return applied;
            }
            applied.told = applied.told.max(self.told_of(records, old.as_ref()));
            if records.stamp_of(table, old.as_ref().and_then(|old| old.record.as_ref()), hash) != *stamp {
                applied.swap = Swap::Changed;
                return applied;
            }
        }
        // Before a turn, which others wait for: what is there may have to come from the device.
        let olds = order.iter().zip(&locks).zip(tables);
        let olds: Vec<_> =
            olds.map(|((key, lock), table)| Old::find(records, table, lock, key.key)).collect();
        let shares = records.log.shares(bytes) && !self.appender.is_kept();
        let turn = shares.then(|| self.appender.begin_turn(&records.log, bytes));
        self.append_locked(records, plan, tables, &locks, olds, epoch, &mut applied);
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
        plan: &Plan<'_, '_>,
        tables: &[&Table],
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
            let (kind, value, meta): (_, &[u8], _) = match last[&key.id()] {
                Op::Put { value, meta } => (kind_of(*meta), value, *meta),
                Op::Delete if !present => {
                    applied.told = applied.told.max(self.told_of(records, old.as_ref()));
                    continue;
                }
                Op::Delete => (Kind::Tombstone, &[], Meta::default()),
            };
            let version = self.gave(locks[i].next_version(self.floor(records)));
            let owner = tables[i].owner;
            let fields = Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch, owner };
            let at = member(&mut members, fields, key.key, value, seed);
            expiry = expiry.min(meta.expires_at.unwrap_or(u64::MAX));
            writes.push((i, at, kind, old, unknown));
        }
        if writes.is_empty() {
            self.members = members;
            return;
        }
        let of_collection =
            |&(i, _, kind, ..): &(usize, u64, Kind, _, bool)| is_of_collection(kind, tables[i].owner);
        let noted = writes.iter().any(of_collection);
        let appended = self.appender.append_batch(&records.log, &members, epoch, noted);
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
            let key = order[*i].key;
            match locks[*i].find(key, |slot| records.is_slot_of(tables[*i], slot, key)) {
                Some(place) => {
                    Old::supersede(old.as_ref(), key, &place, slot, records);
                }
                None => {
                    let slot = if *unknown { slot.hiding_unknown() } else { slot };
                    if locks[*i].insert(key, slot, records) {
                        applied.crowded.push(*i);
                    }
                }
            }
            self.count_key(tables[*i], old.as_ref(), *kind != Kind::Tombstone);
        }
        for (i, at, _, old, _) in &writes {
            let location = appended.at.plus(HEADER_BYTES + at);
            if let Some(place) = locks[*i].find(order[*i].key, |slot| slot.location() == location) {
                place.set(place.get().with_pending(false));
            }
            self.appender.count_live(records.record(location).head.record_bytes());
            if let Some(old) = old {
                old.uncount(records, &self.activity);
            }
        }
        writes
            .iter()
            .filter_map(|(.., old, _)| old.as_ref()?.names())
            .for_each(|names| records.tables.unname(names));
        // What frames the members is dead from the beginning.
        self.activity.dead_add(HEADER_BYTES as i64);
        self.activity.written_add(appended.bytes);
        self.members = members;
        self.members.shrink_to(1 << 20);
        applied.told = epoch.max(applied.told);
        applied.appended = Some(appended);
    }
}

impl<'b> Plan<'_, 'b> {
    /// The roots that it is to write.
    fn names<'t, M: Medium>(&self, records: &'t Records<M>) -> Result<Vec<Naming<'t>>> {
        let named = self.last.values().filter_map(|op| match op {
            Op::Put { meta, .. } => meta.collection,
            Op::Delete => None,
        });
        named.map(|CollectionId(owner)| records.tables.name(owner)).collect()
    }

    /// The tables of its keys, then of the conditions' keys.
    pub(super) fn tables<'g, M: Medium>(
        &self,
        records: &'g Records<M>,
        guard: &'g Guard,
    ) -> Result<Vec<&'g Table>>
    where
        'b: 'g,
    {
        let expects = self.batch.expects.iter().map(|(table, key, _)| BatchKey::new(table, key));
        let keys = self.order.iter().copied().chain(expects);
        keys.map(|key| records.tables.at(key.target(), guard)).collect()
    }
}

/// Whether a record is a root or an element.
pub(super) fn is_of_collection(kind: Kind, owner: Owner) -> bool {
    !planted(Mutant::BatchedRootNotNoted) && (kind == Kind::Root || owner.is_collection())
}

/// Makes room in the indexes of `tables` for keys of `hashes`, one of each.
pub(super) fn make_room<M: Medium>(records: &Records<M>, tables: &[&Table], hashes: &[u64], guard: &Guard) {
    for (keys, hashes) in runs(tables, hashes) {
        keys.index.make_room(hashes, records, guard);
    }
}

/// Runs of keys of one table.
fn runs<'t, 'h>(tables: &'t [&'t Table], hashes: &'h [u64]) -> impl Iterator<Item = (&'t Table, &'h [u64])> {
    let mut from = 0;
    tables.chunk_by(|a, b| a.owner == b.owner).map(move |run| {
        let hashes = &hashes[from..from + run.len()];
        from += run.len();
        (run[0], hashes)
    })
}

/// Whether a batch of `keys`, conditions included, and `bytes` is applied without all of its locks held.
fn is_long<M: Medium>(records: &Records<M>, keys: usize, bytes: u64) -> bool {
    bytes + keys as u64 * MEMBER_COST > records.log.tuning.short_batch_max
}
