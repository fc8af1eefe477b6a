//! A batch of so many keys or bytes that it must not hold the locks of all while it writes: other writers wait for some
//! microseconds at a time, and for the whole only if they write one of its own keys.
//!
//! In order, and what a crash leaves:
//!
//! 1. The members are built, without headers; large ones are written to the block at once, behind the place of the batch's
//!    header ([`Appender::stage`](crate::log::appender::Appender::stage)). No lock is held, no epoch entered. A crash: bytes behind the end of the block, which count for nothing.
//! 2. The keys are claimed ([`crate::index::stripes`]): from here to 7 nobody else writes them, nor those of conditions.
//! 3. Conditions are compared, what is there is looked up, and each member gets its key's next version. Stripes are held one at
//!    a time, for a few keys. Nobody else gets a version for these keys until the claims are given up, so of each key the
//!    order of versions is the order in which writes become visible. (Of a cell that it moves the compactor waits for that too.)
//! 4. The epoch is entered, headers are written, with the batch's the record is whole, and drained; the epoch is left. A crash before: the record is torn, none
//!    of its members counts. After: all of them do, with higher versions than what readers still see, and nothing was told.
//! 5. All slots are made to lead to members, marked pending, a few at a time (in DRAM). A reader that meets one waits for 6.
//! 6. The marks are cleared, a few at a time. The first one that is cleared is the moment of the batch: by then all slots are set.
//! 7. The claims are given up.
//!
//! Between 3 and 5 slots may change all the same: the compactor moves what they lead to, an expired value becomes a tombstone, and
//! a tombstone that hides nothing goes. So what is superseded is looked up anew in 5. A slot of an image never leads to half of a
//! batch: the block with the batch is open, and only records of sealed ones are taken from an image.

use super::apply::{Plan, is_of_collection, make_room};
use super::batch::{Batch, BatchKey, Op, kind_of};
use super::old::Old;
use super::{Pen, Swap};
use crate::Result;
use crate::format::record::{HEADER_BYTES, Kind, body_crc, head_bytes};
use crate::format::{Epoch, Owner, Version};
use crate::index::Slot;
use crate::index::either::Index;
use crate::log::appender::{Fields, member_body, member_head};
use crate::log::reachable::Reachable;
use crate::mutants::{Mutant, planted};
use crate::read::Records;
use crate::read::table::Table;
use crate::read::value::Meta;
use crate::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};
use std::collections::HashMap;

/// Members of this many bytes, on average, are written before their headers are known. Of smaller ones a header is much of the record,
/// and most lines would be written twice.
const STAGED_MEMBER_BYTES_MIN: u64 = if cfg!(feature = "schedule") { 1 << 7 } else { 1 << 10 };
/// Keys whose stripe is held at once: at a cache miss or three for each, some 10 µs. Schedules have few keys.
const RUN: usize = if cfg!(feature = "schedule") { 1 } else { 16 };

/// A write of the batch.
struct Draft<'b> {
    /// Which of the batch's keys.
    number: usize,
    key: &'b [u8],
    is_owned: bool,
    hash: u64,
    kind: Kind,
    value: &'b [u8],
    meta: Meta,
    /// Where it begins among the members.
    at: u64,
    /// The checksum of key and value.
    body: u32,
}

/// The same, when it is known which table its key is in now.
struct Member<'b> {
    draft: Draft<'b>,
    table: &'b Table,
    version: Version,
}

impl<'b> std::ops::Deref for Member<'b> {
    type Target = Draft<'b>;

    fn deref(&self) -> &Draft<'b> {
        &self.draft
    }
}

/// What was decided under the claims.
#[derive(Default)]
struct Applied {
    changed: bool,
    /// What must be durable before the outcome is told.
    told: Epoch,
    /// Where a damaged record lies that it depends on, if it does.
    damaged: Offset,
}

impl Pen {
    /// Applies a batch for which room was reserved.
    pub(super) fn apply_long<M: Medium>(
        &mut self,
        records: &Records<M>,
        plan: &Plan<'_, '_>,
    ) -> Result<Swap> {
        let Plan { batch, order, last, hashes, bytes: room } = *plan;
        let mut bytes = std::mem::take(&mut self.members);
        bytes.clear();
        bytes.reserve(room as usize);
        let drafts = self.build(order, last, hashes, &mut bytes);
        let staged = bytes.len() as u64 >= drafts.len() as u64 * STAGED_MEMBER_BYTES_MIN;
        if staged {
            self.appender.stage(&records.log, HEADER_BYTES, &[], &bytes);
        }
        {
            let guard = reclaim::pin_to_write();
            make_room(records, &plan.tables(records, &guard)?[..order.len()], hashes, &guard);
        }
        let claims = (records.stripes().claim(hashes), records.tables.elements().claim(hashes));
        let guard = reclaim::pin_to_write();
        let tables = plan.tables(records, &guard)?;
        let mut writes: Vec<Member<'_>> = drafts
            .into_iter()
            .map(|draft| Member { table: tables[draft.number], draft, version: Version(0) })
            .collect();
        let unwinding = records.log.epochs().unwinding(&self.activity);
        let mut applied = Applied::default();
        self.compare(records, batch, &tables[order.len()..], &hashes[order.len()..], &guard, &mut applied);
        if !applied.changed && applied.damaged.0 == 0 {
            self.decide(records, &mut writes, &guard, &mut applied);
        }
        if applied.changed || applied.damaged.0 != 0 || writes.is_empty() {
            self.appender.unstage();
        } else {
            let (whole, epoch) = self.append_members(records, &mut writes, &mut bytes, staged);
            applied.told = applied.told.max(epoch);
            let named = self.publish(records, &mut writes, whole, &guard);
            named.into_iter().for_each(|names| records.tables.unname(names));
        }
        unwinding.over();
        drop(claims);
        bytes.shrink_to(1 << 20);
        self.members = bytes;
        drop(guard);
        self.give_back(records);
        records.told(applied.damaged)?;
        self.finish(records, applied.told)?;
        Ok(if applied.changed { Swap::Changed } else { Swap::Done })
    }

    /// Step 1: the batch's writes in the order of their hashes, and the members of those that are values, without headers, in `bytes`.
    fn build<'b>(
        &self,
        order: &[BatchKey<'b>],
        last: &HashMap<(usize, &'b [u8]), &'b Op>,
        hashes: &[u64],
        bytes: &mut Vec<u8>,
    ) -> Vec<Draft<'b>> {
        let write = |(number, (key, &hash)): (usize, (&BatchKey<'b>, &u64))| {
            let (kind, value, meta): (_, &[u8], _) = match last[&key.id()] {
                Op::Put { value, meta } => (kind_of(*meta), value, *meta),
                Op::Delete => (Kind::Tombstone, &[], Meta::default()),
            };
            let is_owned = key.target().is_owned();
            Draft { number, key: key.key, is_owned, hash, kind, value, meta, at: 0, body: 0 }
        };
        let mut writes: Vec<_> = order.iter().zip(hashes).enumerate().map(write).collect();
        writes.sort_unstable_by_key(|member| member.hash);
        for member in writes.iter_mut().filter(|member| member.kind != Kind::Tombstone) {
            self.build_member(member, bytes);
        }
        writes
    }

    fn build_member(&self, member: &mut Draft<'_>, bytes: &mut Vec<u8>) {
        let head_bytes = head_bytes(member.meta.expires_at.is_some(), member.is_owned);
        member.at = member_body(bytes, head_bytes, member.key, member.value);
        member.body = body_crc(self.appender.seed(), &[member.key, member.value]);
    }

    /// Step 3: whether all is as it is expected.
    fn compare<M: Medium>(
        &self,
        records: &Records<M>,
        batch: &Batch,
        tables: &[&Table],
        hashes: &[u64],
        guard: &Guard,
        applied: &mut Applied,
    ) {
        for (((_, key, stamp), &hash), table) in batch.expects.iter().zip(hashes).zip(tables) {
            let lock = table.index.lock(hash, guard);
            let (old, damaged) = Old::find(records, table, &lock, key);
            if damaged.0 != 0 {
                applied.damaged = damaged;
                return;
            }
            applied.told = applied.told.max(self.told_of(records, old.as_ref()));
            if records.stamp_of(table, old.as_ref().and_then(|old| old.record.as_ref()), hash) != *stamp {
                applied.changed = true;
                return;
            }
        }
    }

    /// Step 3: leaves out deletes of what is not there, and gives versions to the others.
    fn decide<M: Medium>(
        &mut self,
        records: &Records<M>,
        writes: &mut Vec<Member<'_>>,
        guard: &Guard,
        applied: &mut Applied,
    ) {
        let told = &mut applied.told;
        let mut last = self.version;
        each_run(records, writes, |run, keys| {
            // What must come from memory, or from the device, comes before the stripe is held.
            for member in &*run {
                let _ = member
                    .table
                    .index
                    .find(member.hash, member.key, guard, |slot| records.is_key_at(slot, member.key));
            }
            let locks = Index::lock_all(keys, guard);
            for (member, lock) in run.iter_mut().zip(&locks) {
                if member.kind == Kind::Tombstone {
                    let (old, damaged) = Old::find(records, member.table, lock, member.key);
                    if !old.as_ref().is_some_and(|old| old.present) && (old.is_some() || damaged.0 == 0) {
                        *told = (*told).max(self.told_of(records, old.as_ref()));
                        continue;
                    }
                }
                member.version = lock.next_version(records.stripes().floor(last));
                last = member.version;
            }
        });
        self.version = last;
        writes.retain(|member| member.version.0 > 0);
    }

    /// Step 4.
    fn append_members<M: Medium>(
        &mut self,
        records: &Records<M>,
        writes: &mut [Member<'_>],
        bytes: &mut Vec<u8>,
        staged: bool,
    ) -> (Reachable, Epoch) {
        let values = bytes.len();
        for member in writes.iter_mut().filter(|member| member.kind == Kind::Tombstone) {
            self.build_member(&mut member.draft, bytes);
        }
        let epoch = records.log.epochs().enter(&self.activity);
        let mut expiry = u64::MAX;
        for member in &*writes {
            let Meta { tag, expires_at, .. } = member.meta;
            let (kind, version, owner) = (member.kind, member.version, member.table.owner);
            let fields = Fields { kind, tag, expires_at, version, epoch, owner };
            let head = member_head(fields, member.key.len(), member.value.len(), member.body);
            bytes[member.at as usize..][..head.bytes().len()].copy_from_slice(head.bytes());
            if staged && member.kind != Kind::Tombstone {
                self.appender.restage(&records.log, member.at, head.bytes());
            }
            expiry = expiry.min(expires_at.unwrap_or(u64::MAX));
        }
        let noted = writes.iter().any(|member| is_of_collection(member.kind, member.table.owner));
        if staged {
            self.appender.restage(&records.log, values as u64, &bytes[values..]);
        }
        let appended = self.appender.append_batch(&records.log, bytes, epoch, noted);
        if expiry < u64::MAX {
            // After the append: the sweeper forgets first and looks then.
            self.appender.note_expiry(&records.log, expiry);
        }
        // Also in a group: readers cannot help with part of a batch.
        let whole = self.appender.make_durable(&records.log, appended);
        records.log.epochs().leave(&self.activity, epoch, Some(appended));
        self.activity.written_add(appended.bytes);
        (whole, epoch)
    }

    /// Steps 5 and 6.
    fn publish<M: Medium>(
        &mut self,
        records: &Records<M>,
        writes: &mut [Member<'_>],
        whole: Reachable,
        guard: &Guard,
    ) -> Vec<Owner> {
        let mut named = Vec::new();
        let shown = if planted(Mutant::LongBatchShownInParts) { whole } else { whole.pending() };
        each_run(records, writes, |run, keys| {
            let mut crowded = Vec::new();
            let locks = Index::lock_all(keys, guard);
            for (member, lock) in run.iter().zip(&locks) {
                let (old, damaged) = Old::find(records, member.table, lock, member.key);
                let slot = Slot::to(shown.member(HEADER_BYTES + member.at))
                    .with_tombstone(member.kind == Kind::Tombstone);
                let slot =
                    match lock.find(member.key, |slot| records.is_slot_of(member.table, slot, member.key)) {
                        Some(place) => Old::supersede(old.as_ref(), member.key, &place, slot, records),
                        None => {
                            let unknown = old.is_none() && damaged.0 != 0;
                            let slot = if unknown { slot.hiding_unknown() } else { slot };
                            if lock.insert(member.key, slot, records) {
                                crowded.push((member.table, member.hash));
                            }
                            slot
                        }
                    };
                let bytes = records.record(slot.location()).head.record_bytes();
                if slot.hides_nothing() {
                    // What it was to hide has expired meanwhile, and is gone: it is dead itself.
                    self.activity.dead_add(bytes as i64);
                } else {
                    self.appender.count_live(bytes);
                }
                if let Some(old) = &old {
                    old.uncount(records, &self.activity);
                    named.extend(old.names());
                }
                self.count_key(member.table, old.as_ref(), member.kind != Kind::Tombstone);
            }
            drop(locks);
            for (table, hash) in crowded {
                table.index.split(hash, records, guard);
            }
        });
        each_run(records, writes, |run, keys| {
            let locks = Index::lock_all(keys, guard);
            for (member, lock) in run.iter().zip(&locks) {
                let location = whole.member(HEADER_BYTES + member.at).at();
                if let Some(place) = lock.find(member.key, |slot| slot.location() == location) {
                    place.set(place.get().with_pending(false));
                }
            }
        });
        // What frames the members is dead from the beginning.
        self.activity.dead_add(HEADER_BYTES as i64);
        named
    }
}

/// Calls `work` for a few members at a time, all of one stripe, with their indexes and hashes.
fn each_run<'b, M: Medium>(
    records: &Records<M>,
    writes: &mut [Member<'b>],
    mut work: impl FnMut(&mut [Member<'b>], &[(&'b Index, u64)]),
) {
    let mut keys = Vec::with_capacity(RUN);
    for of_stripe in writes.chunk_by_mut(|a, b| records.stripes().is_same(a.hash, b.hash)) {
        for run in of_stripe.chunks_mut(RUN) {
            keys.clear();
            keys.extend(run.iter().map(|member| (&member.table.index, member.hash)));
            work(run, &keys);
        }
    }
}
