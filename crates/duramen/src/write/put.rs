//! Puts and deletes of one key: the steps that the head of [`super`] numbers.

use super::batch::root_value;
use super::old::{Old, stamp_unlocked};
use super::{Pen, Site, Swap, purpose_of};
use crate::Result;
use crate::format::Epoch;
use crate::format::record::{Appended, Kind, Trailer, body_crc, head_bytes, record_bytes};
use crate::index::Slot;
use crate::index::either::Locked;
use crate::log::appender::{Fields, STAGE_BYTES_MIN};
use crate::log::cell;
use crate::log::open_block::Purpose;
use crate::log::read::Unknown;
use crate::mutants::{Mutant, planted};
use crate::read::CollectionId;
use crate::read::Records;
use crate::read::table::{Table, Target};
use crate::read::value::{Meta, Stamp};
use crate::sync::reclaim::{self, Guard};
use duramen_media::{Medium, Offset};

/// What a write wants of the key it finds.
#[derive(Clone, Copy)]
pub(super) enum Want {
    Anything,
    Stamp(Stamp),
    /// A delete: without a live value there is nothing to write.
    Present,
}

/// What a write works out before it locks anything.
#[derive(Clone, Copy)]
struct Ready<'a> {
    key: &'a [u8],
    hash: u64,
    /// Nothing: the key is deleted.
    new: Option<(&'a [u8], Meta)>,
    want: Want,
    /// Bytes of the record.
    bytes: u64,
    /// It goes to the block that writers share.
    shared: bool,
    /// The checksum of key and value, for a block with this seed.
    body: u32,
    seed: u32,
}

/// What a write found and did.
pub(super) enum Wrote {
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
    /// Nothing: a unit that runs has written the key.
    Running(Trailer),
}

impl Wrote {
    fn epoch(&self) -> Epoch {
        match self {
            Self::Done { epoch, .. } | Self::Changed { epoch } | Self::Absent { epoch } => *epoch,
            Self::Damaged { .. } | Self::Running(_) => Epoch(0),
        }
    }
}

impl Pen {
    #[inline]
    pub(crate) fn put<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<()> {
        self.write(site, target, key, Some((value, meta)), Want::Anything).map(|_| ())
    }

    pub(crate) fn delete<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
    ) -> Result<bool> {
        Ok(matches!(self.write(site, target, key, None, Want::Present)?, Wrote::Done { was: true, .. }))
    }

    pub(crate) fn replace<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
    ) -> Result<Option<Meta>> {
        Ok(match self.write(site, target, key, new, Want::Anything)? {
            Wrote::Done { replaced, .. } => replaced,
            Wrote::Changed { .. } | Wrote::Absent { .. } | Wrote::Damaged { .. } | Wrote::Running(_) => None,
        })
    }

    pub(crate) fn compare_and_swap<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        Ok(match self.write(site, target, key, value, Want::Stamp(seen))? {
            Wrote::Done { .. } | Wrote::Absent { .. } => Swap::Done,
            Wrote::Changed { .. } | Wrote::Damaged { .. } | Wrote::Running(_) => Swap::Changed,
        })
    }

    /// Writes a root: its value begins with what it names.
    #[cold]
    fn write_root<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: (&[u8], Meta),
        want: Want,
        purpose: Purpose,
    ) -> Result<Wrote> {
        let value = root_value(new.0, new.1);
        let names =
            new.1.collection.map(|CollectionId(owner)| site.records.tables.name(owner)).transpose()?;
        let new = Some((&value[..], new.1));
        let wrote = self.write_then(site, target, key, new, want, purpose, || ());
        if let Some(names) = names {
            names.settle(&wrote, |wrote| matches!(wrote, Wrote::Done { .. }));
        }
        wrote
    }

    /// Writes a name of the catalog, or deletes it. One that is not new takes the place of what it supersedes, so it has the space that
    /// is kept for deletes. `then` is called in the epoch of what was written: so what others write in the
    /// next one comes after it.
    pub(crate) fn write_name<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        name: &[u8],
        entry: Option<&[u8]>,
        is_new: bool,
        then: impl FnMut(),
    ) -> Result<()> {
        let new = entry.map(|entry| (entry, Meta::default()));
        let want = if new.is_some() { Want::Anything } else { Want::Present };
        let purpose = if is_new { Purpose::Write } else { Purpose::Delete };
        self.write_then(site, Target::Catalog, name, new, want, purpose, then).map(|_| ())
    }

    #[inline(always)]
    pub(super) fn write<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
    ) -> Result<Wrote> {
        let purpose = purpose_of(new);
        match new {
            Some(new) if new.1.collection.is_some() => self.write_root(site, target, key, new, want, purpose),
            _ => self.write_then(site, target, key, new, want, purpose, || ()),
        }
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "`write`, and what only the catalog asks for")]
    fn write_then<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
        purpose: Purpose,
        mut then: impl FnMut(),
    ) -> Result<Wrote> {
        loop {
            match self.try_write(site, target, key, new, want, purpose, &mut then)? {
                Wrote::Running(unit) => self.wait_for_unit(site.records, unit)?,
                wrote => return Ok(wrote),
            }
        }
    }

    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "`write`, and what only the catalog asks for")]
    fn try_write<M: Medium>(
        &mut self,
        site: Site<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Want,
        purpose: Purpose,
        then: &mut impl FnMut(),
    ) -> Result<Wrote> {
        let records = site.records;
        let (value, meta) = new.unwrap_or_default();
        Self::check(records, key, value.len())?;
        let head_bytes = head_bytes(meta.expires_at.is_some(), target.is_owned());
        let bytes = record_bytes(head_bytes, key.len(), value.len());
        // Before the pin: compaction that makes room must not wait for this very guard.
        self.reserve(site, bytes, purpose)?;
        self.unlock_early(records);
        let guard = self.pin(records);
        let table = records.tables.at(target, &guard)?;
        let hash = records.hasher.hash(key);
        self.check_named(records, target, hash)?;
        table.index.prefetch_write(hash, new.is_some(), &guard);
        // What is kept for deletes stays with them: it is not shared with puts.
        let shared = records.log.shares(bytes) && !self.appender.is_kept();
        let seed = if shared { self.appender.shared_seed } else { self.appender.seed() };
        if bytes >= STAGE_BYTES_MIN && !shared {
            self.appender.stage(&records.log, head_bytes, key, value);
        }
        let want = if planted(Mutant::SwapNotRechecked) {
            compared(records, table, key, hash, want, &guard)
        } else {
            want
        };
        let body = body_crc(seed, &[key, value]);
        let ready = Ready { key, hash, new, want, bytes, shared, body, seed };
        let epochs = records.log.epochs();
        let unwinding = epochs.unwinding(&self.activity);
        if planted(Mutant::LockedInEpoch) {
            let _ = epochs.enter(&self.activity);
        }
        let locked = table.index.lock(hash, &guard);
        let epoch = epochs.enter(&self.activity);
        let (wrote, crowded, appended) = self.write_locked(records, table, locked, ready, epoch);
        if matches!(wrote, Wrote::Done { .. }) {
            then();
        }
        epochs.leave(&self.activity, epoch, appended);
        unwinding.over();
        if crowded {
            self.split(records, table, hash, &guard);
        }
        drop(guard);
        self.give_back(records);
        match wrote {
            Wrote::Damaged { at } => return Err(records.corrupt(at)),
            Wrote::Running(_) => return Ok(wrote),
            _ => {}
        }
        self.finish(records, wrote.epoch())?;
        Ok(wrote)
    }

    /// Steps 3 and 4, of who holds the lock. Returns also whether the index is crowded, and the record.
    #[inline(always)]
    fn write_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        table: &Table,
        locked: Locked<'_>,
        ready: Ready<'_>,
        epoch: Epoch,
    ) -> (Wrote, bool, Option<Appended>) {
        let Ready { key, hash, new, want, .. } = ready;
        let (value, meta) = new.unwrap_or_default();
        // Under the lock: who had it before has read the time before.
        let floor = self.floor(records);
        // The key may be one that a unit writes which runs: that is looked at first.
        let has_members = locked.has_members() && !planted(Mutant::RunningOverwritten);
        let kind = match new {
            None => Kind::Tombstone,
            Some(_) if meta.collection.is_some() => Kind::Root,
            // What is counted of updates is counted of keys.
            Some(_) => cell::kind_to_append(&records.log, meta.updatable && !table.owner.is_collection()),
        };
        let owner = table.owner;
        let fields =
            |version| Fields { kind, tag: meta.tag, expires_at: meta.expires_at, version, epoch, owner };
        // Before it is looked at what is there, if that does not matter: the new record is written while the index's lines
        // come from memory, and its write-back and the miss of the old one overlap. Not in a turn, which others wait for.
        let ahead = match want {
            _ if has_members => false,
            Want::Anything => new.is_some() && !ready.shared && !planted(Mutant::VersionNotAdvanced),
            Want::Present if records.log.epochs().in_use() => false,
            Want::Present => {
                locked.candidate(key).inspect(|&at| records.log.fetch_old(at, key.len())).is_some()
            }
            Want::Stamp(_) => false,
        };
        let ahead = if ahead {
            let version = self.gave(locked.next_version(floor));
            Some(self.append(records, fields(version), key, value, ready))
        } else {
            None
        };
        let mut met = Unknown::default();
        let found = locked.find_with(key, |slot| {
            records.log.fetch_old(slot.location(), key.len());
            Some((slot, records.meet(table, slot, key, &mut met)?))
        });
        let old = found.as_ref().map(|&(_, (slot, met))| Old::new(records, slot, met.whole()));
        if has_members
            && let Some(Old { slot, record: Some(record), .. }) = &old
            && let Some(unit) = records.running_at(*slot, record)
        {
            self.appender.unstage();
            return (Wrote::Running(unit), false, None);
        }
        // A slot that may be the key's, and is not known to be, stays: see `damage`.
        let unknown = met.is_some() && found.is_none();
        let present = old.as_ref().is_some_and(|old| old.present) || (unknown && met.may_be_live);
        let changed = match want {
            Want::Stamp(_) if unknown || old.as_ref().is_some_and(|old| old.record.is_none()) => {
                self.appender.unstage();
                return (Wrote::Damaged { at: met.at }, false, None);
            }
            Want::Stamp(stamp) => {
                stamp != records.stamp_of(table, old.as_ref().and_then(|old| old.record.as_ref()), hash)
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
                _ => self.gave(locked.next_version(floor)),
            };
            self.append(records, fields(version), key, value, ready)
        };
        let grouped = self.group.is_some() && records.log.shows_before_durable();
        let reachable = match kind {
            Kind::CellSealed => {
                let opened = self.appender.open_cell(&records.log, appended, key);
                if grouped { opened.pending() } else { opened }
            }
            _ if grouped => self.appender.leave_pending(appended),
            _ => self.appender.make_durable(&records.log, appended),
        };
        self.appender.count_live(appended.bytes);
        self.activity.written_add(appended.bytes);
        let slot = Slot::to(reachable).with_tombstone(new.is_none());
        let crowded = match found {
            Some((place, _)) => {
                Old::supersede(old.as_ref(), key, &place, slot, records);
                false
            }
            // How many records of the key are in what is damaged is not known.
            None if unknown => locked.insert(key, slot.hiding_unknown(), records),
            None => locked.insert(key, slot, records),
        };
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        drop(locked);
        if let Some(old) = &old {
            old.uncount(records, &self.activity);
        }
        self.count_key(table, old.as_ref(), new.is_some());
        if let Some(names) = old.as_ref().and_then(Old::names) {
            records.tables.unname(names);
        }
        if grouped && let Some(group) = &mut self.group {
            group.pending.push((table.owner, hash, appended.at));
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
        ready: Ready<'_>,
    ) -> Appended {
        // The block may have become another one meanwhile, where writers share it.
        let seed = self.appender.seed();
        let body = if seed == ready.seed { ready.body } else { body_crc(seed, &[key, value]) };
        self.appender.append(&records.log, fields, key, value, body)
    }

    /// As `write` to the moment in which it holds the lock.
    #[cold]
    #[expect(clippy::panic, reason = "what it is for")]
    pub(crate) fn panic_within_a_write<M: Medium>(&mut self, records: &Records<M>) {
        let guard = reclaim::pin_to_write();
        let _unwinding = records.log.epochs().unwinding(&self.activity);
        let _locked = records.tables.store.index.lock(0, &guard);
        records.log.epochs().enter(&self.activity);
        std::panic::panic_any("within a write, on purpose");
    }
}

/// What is wanted once the stamp was compared, as [`Mutant::SwapNotRechecked`] does it.
#[cold]
fn compared<M: Medium>(
    records: &Records<M>,
    table: &Table,
    key: &[u8],
    hash: u64,
    want: Want,
    guard: &Guard,
) -> Want {
    match want {
        Want::Stamp(stamp) if stamp == stamp_unlocked(records, table, key, hash, guard) => Want::Anything,
        want => want,
    }
}
