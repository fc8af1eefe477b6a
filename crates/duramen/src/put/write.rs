//! Puts and deletes of one key: the steps that the head of [`crate::writer`] numbers.

use crate::Result;
use crate::get::stamp::Stamp;
use crate::get::value::{CollectionId, Meta};
use crate::put::place::{Current, Old};
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::transaction::batch::root_value;
use crate::writer::{Swap, WriteContext, WriterState, purpose_of};
use duramen_index::Slot;
use duramen_index::either::Locked;
use duramen_log::appender::{Body, Fields, STAGE_BYTES_MIN};
use duramen_log::cell;
use duramen_log::format::record::{Appended, Kind, Trailer, body_crc, head_bytes, record_bytes};
use duramen_log::format::{Epoch, Version};
use duramen_log::open_block::Purpose;
use duramen_log::reachable::Reachable;
use duramen_log::sync::reclaim::{self};
use duramen_media::{Medium, Offset};

/// The condition of a write on the key's current state.
#[derive(Clone, Copy)]
pub(crate) enum Condition {
    Anything,
    Stamp(Stamp),
    /// For a delete: without a live value there is nothing to write.
    Present,
}

/// A write to perform.
#[derive(Clone, Copy)]
struct PutRequest<'a> {
    target: Target<'a>,
    key: &'a [u8],
    /// `None`: the key is deleted.
    new: Option<(&'a [u8], Meta)>,
    want: Condition,
    purpose: Purpose,
}

/// The parts of a write that are computed before anything is locked.
#[derive(Clone, Copy)]
struct PreparedPut<'a> {
    ask: PutRequest<'a>,
    /// Kind of the record.
    kind: Kind,
    hash: u64,
    /// Length of the record.
    bytes: u64,
    /// The record goes to the block that writers share.
    shared: bool,
    /// The checksum of key and value, for a block with this seed.
    body: u32,
    seed: u32,
}

/// A write whose key is locked.
struct LockedPut<'a, M: Medium> {
    records: &'a Records<M>,
    table: &'a Table,
    ready: PreparedPut<'a>,
    epoch: Epoch,
    /// An active transaction may have written the key.
    has_transaction_records: bool,
    /// The record is pending until its group is durable.
    is_grouped: bool,
}

/// The result of a write.
pub(crate) enum Wrote {
    /// Written. `was`: there was, or may have been, a value. `replaced`: the metadata of the live value that was
    /// replaced.
    Done {
        epoch: Epoch,
        was: bool,
        replaced: Option<Meta>,
    },
    /// Not written. The answer may be returned only once this epoch, that of the record it depends on, is durable.
    Changed {
        epoch: Epoch,
    },
    Absent {
        epoch: Epoch,
    },
    /// Not written: the result depends on the record at this place, which is damaged.
    Damaged {
        at: Offset,
    },
    /// Not written: an active transaction has written the key.
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

impl WriterState {
    #[inline]
    pub(crate) fn put<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        value: &[u8],
        meta: Meta,
    ) -> Result<()> {
        self.write(context, target, key, Some((value, meta)), Condition::Anything).map(|_| ())
    }

    pub(crate) fn delete<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
    ) -> Result<bool> {
        Ok(matches!(
            self.write(context, target, key, None, Condition::Present)?,
            Wrote::Done { was: true, .. }
        ))
    }

    pub(crate) fn replace<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
    ) -> Result<Option<Meta>> {
        Ok(match self.write(context, target, key, new, Condition::Anything)? {
            Wrote::Done { replaced, .. } => replaced,
            Wrote::Changed { .. } | Wrote::Absent { .. } | Wrote::Damaged { .. } | Wrote::Running(_) => None,
        })
    }

    pub(crate) fn compare_and_swap<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        Ok(match self.write(context, target, key, value, Condition::Stamp(seen))? {
            Wrote::Done { .. } | Wrote::Absent { .. } => Swap::Done,
            Wrote::Changed { .. } | Wrote::Damaged { .. } | Wrote::Running(_) => Swap::Changed,
        })
    }

    /// Writes a root: its stored value begins with the id of the collection that it names.
    #[cold]
    fn write_root<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        ask: PutRequest<'_>,
        (value, meta): (&[u8], Meta),
    ) -> Result<Wrote> {
        let value = root_value(value, meta);
        let names =
            meta.collection.map(|CollectionId(owner)| context.records.tables.name(owner)).transpose()?;
        let wrote = self.write_then(context, PutRequest { new: Some((&value, meta)), ..ask }, || ());
        if let Some(names) = names {
            names.finish(&wrote, |wrote| matches!(wrote, Wrote::Done { .. }));
        }
        wrote
    }

    /// Writes or deletes a name of the catalog. An existing name replaces its earlier record, so it may use the space
    /// kept for deletes. A new name may use half of it, since a move into a table of a full store may create the table.
    /// `then` is called in the epoch of the write, so that writes of other threads in the next epoch come after it.
    pub(crate) fn write_name<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        name: &[u8],
        entry: Option<&[u8]>,
        is_new: bool,
        then: impl FnMut(),
    ) -> Result<()> {
        let new = entry.map(|entry| (entry, Meta::default()));
        let want = if new.is_some() { Condition::Anything } else { Condition::Present };
        let purpose = if is_new { Purpose::Change } else { Purpose::Delete };
        let ask = PutRequest { target: Target::Catalog, key: name, new, want, purpose };
        self.write_then(context, ask, then).map(|_| ())
    }

    #[inline(always)]
    pub(crate) fn write<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        want: Condition,
    ) -> Result<Wrote> {
        let ask = PutRequest { target, key, new, want, purpose: purpose_of(new) };
        match new {
            Some(new) if new.1.collection.is_some() => self.write_root(context, ask, new),
            _ => self.write_then(context, ask, || ()),
        }
    }

    /// Writes, and calls `then` in the epoch of the write.
    #[inline(always)]
    fn write_then<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        ask: PutRequest<'_>,
        mut then: impl FnMut(),
    ) -> Result<Wrote> {
        loop {
            match self.try_write(context, ask, &mut then)? {
                Wrote::Running(transaction) => self.wait_for_transaction(context.records, transaction)?,
                wrote => return Ok(wrote),
            }
        }
    }

    #[inline(always)]
    fn try_write<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        ask: PutRequest<'_>,
        then: &mut impl FnMut(),
    ) -> Result<Wrote> {
        let records = context.records;
        let PutRequest { target, key, new, .. } = ask;
        let (value, meta) = new.unwrap_or_default();
        Self::check(records, key, value.len())?;
        let head_bytes = head_bytes(meta.expires_at.is_some(), target.is_owned());
        let kind = match new {
            None => Kind::Tombstone,
            Some((_, meta)) if meta.collection.is_some() => Kind::Root,
            // The counts of updates are per key.
            Some((_, meta)) => cell::kind_to_append(&records.log, meta.updatable && !target.is_collection()),
        };
        let bytes = record_bytes(head_bytes, key.len(), value.len(), kind);
        // Before the pin: compaction that makes room must not wait for this very guard.
        self.reserve(context, bytes, ask.purpose)?;
        let guard = self.pin(records);
        let table = records.tables.at(target, &guard)?;
        let hash = records.hasher.hash(key);
        self.check_named(records, target, hash)?;
        table.index.prefetch_next(hash, new.is_some(), &guard);
        // A block kept for deletes is not shared with puts.
        let shared = records.log.shares(bytes) && !self.appender.is_kept();
        let seed = if shared { self.appender.shared_seed } else { self.appender.seed() };
        if bytes >= STAGE_BYTES_MIN && !shared && !kind.is_updatable() {
            let (tag, expires_at, owner) = (meta.tag, meta.expires_at, table.owner);
            let (version, epoch) = (Version(0), Epoch(0));
            let fields = Fields { kind, tag, expires_at, version, epoch, owner };
            self.appender.stage(&records.log, fields, key, value);
        }
        let body = body_crc(seed, &[key, value]);
        let ready = PreparedPut { ask, kind, hash, bytes, shared, body, seed };
        let epochs = records.log.epochs();
        let unwinding = epochs.unwinding(&self.activity);
        let locked = table.index.lock(hash, &guard);
        let epoch = epochs.enter(&self.activity);
        let writing = LockedPut::new(records, table, ready, epoch, &locked, self.group.is_some());
        let (wrote, crowded, appended) = self.write_locked(&writing, locked);
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

    /// Steps 3 and 4, with the key locked. Also returns whether the index is crowded, and the record.
    #[inline(always)]
    fn write_locked<M: Medium>(
        &mut self,
        writing: &LockedPut<'_, M>,
        locked: Locked<'_>,
    ) -> (Wrote, bool, Option<Appended>) {
        let LockedPut { records, table, ready, epoch, .. } = *writing;
        let PutRequest { key, new, .. } = ready.ask;
        // Read the clock under the lock, so that versions of one stripe follow the lock order.
        let floor = self.floor(records);
        let ahead = writing.appends_ahead().then(|| {
            let version = self.gave(locked.next_version(floor));
            self.append(writing, version)
        });
        let current = Current::look_up(records, table, &locked, key);
        // A transaction record of an active transaction is checked first.
        if writing.has_transaction_records
            && let Some(Old { slot, record: Some(record), .. }) = &current.old
            && let Some(transaction) = records.running_at(*slot, record)
        {
            self.unstage();
            return (Wrote::Running(transaction), false, None);
        }
        if let Some(wrote) = self.unwritten(writing, &current) {
            debug_assert!(ahead.is_none(), "a record that was appended ahead must be written");
            self.unstage();
            return (wrote, false, None);
        }
        let turn = ready.shared.then(|| self.appender.begin_turn(&records.log, ready.bytes));
        let appended = if let Some(appended) = ahead {
            appended
        } else {
            let version = self.gave(locked.next_version(floor));
            self.append(writing, version)
        };
        let slot = Slot::to(self.make_reachable(writing, appended)).with_tombstone(new.is_none());
        self.appender.count_live(appended.bytes);
        self.activity.written_add(appended.bytes);
        let value = (appended.at, new.map(|(_, meta)| meta));
        let crowded = current.point_to(records, &locked, key, slot, value);
        if let Some(turn) = turn {
            self.appender.end_turn(turn);
        }
        drop(locked);
        let (was, old) = (current.is_present(), current.old);
        self.account(writing, old.as_ref(), appended);
        let replaced = old.filter(|old| old.present).and_then(|old| Some(old.record?.meta()));
        (Wrote::Done { epoch, was, replaced }, crowded, Some(appended))
    }

    /// Abandons the staged record: its space is dead.
    #[inline]
    fn unstage(&mut self) {
        let bytes = self.appender.unstage();
        self.activity.written_add(bytes);
        self.activity.dead_add(bytes as i64);
    }

    /// The result if nothing is to be written. `None`: the write proceeds.
    #[inline(always)]
    fn unwritten<M: Medium>(&self, writing: &LockedPut<'_, M>, current: &Current<'_, '_>) -> Option<Wrote> {
        let LockedPut { records, table, ready, .. } = *writing;
        let (old, unknown) = (current.old.as_ref(), current.unknown);
        let changed = match ready.ask.want {
            Condition::Stamp(_) if unknown.is_some() && old.is_none_or(|old| old.record.is_none()) => {
                return Some(Wrote::Damaged { at: unknown.at });
            }
            Condition::Stamp(stamp) => {
                stamp != records.stamp_of(table, old.and_then(|old| old.record.as_ref()), ready.hash)
            }
            Condition::Anything | Condition::Present => false,
        };
        if changed {
            return Some(Wrote::Changed { epoch: self.visible_epoch(records, old) });
        }
        if ready.ask.new.is_none() && !current.is_present() && !current.is_unknown() {
            return Some(Wrote::Absent { epoch: self.visible_epoch(records, old) });
        }
        None
    }

    /// Makes the record reachable: it is durable, or its group makes it so.
    #[inline(always)]
    fn make_reachable<M: Medium>(&mut self, writing: &LockedPut<'_, M>, appended: Appended) -> Reachable {
        let LockedPut { records, ready, is_grouped: grouped, .. } = *writing;
        match ready.kind {
            Kind::CellSealed => {
                let opened = self.appender.open_cell(&records.log, appended);
                if grouped { opened.pending() } else { opened }
            }
            _ if grouped => self.appender.leave_pending(appended),
            _ => self.appender.make_durable(&records.log, appended),
        }
    }

    /// Counts the new record and the one it superseded.
    #[inline(always)]
    fn account<M: Medium>(&mut self, writing: &LockedPut<'_, M>, old: Option<&Old<'_>>, appended: Appended) {
        let LockedPut { records, table, ready, .. } = *writing;
        if let Some(old) = old {
            old.uncount(records, &self.activity);
            if table.label().is_some() && records.access.is_counting() {
                records.access.moved(old.slot.location(), appended.at, &reclaim::pin());
            }
        }
        self.count_key(table, old, ready.ask.new.is_some());
        if let Some(names) = old.and_then(Old::names) {
            records.tables.release_root(names);
        }
        if writing.is_grouped
            && let Some(group) = &mut self.group
        {
            group.pending.push((table.owner, ready.hash, appended.at));
        }
    }

    /// Step 3 without the drain. Always inlined: otherwise the result would go through memory, after all the bytes just
    /// stored there.
    #[inline(always)]
    fn append<M: Medium>(&mut self, writing: &LockedPut<'_, M>, version: Version) -> Appended {
        let LockedPut { records, ready, .. } = *writing;
        let PutRequest { key, new, .. } = ready.ask;
        let (value, _) = new.unwrap_or_default();
        // Where writers share a block, another block may have become the shared one since.
        let seed = self.appender.seed();
        let crc = if seed == ready.seed { ready.body } else { body_crc(seed, &[key, value]) };
        self.appender.append(&records.log, writing.fields(version), Body { key, value, crc })
    }

    /// As `write`, up to the moment in which it holds the lock.
    #[cold]
    #[expect(clippy::panic, reason = "its purpose is to panic")]
    pub(crate) fn panic_within_a_write<M: Medium>(&mut self, records: &Records<M>) {
        let guard = reclaim::pin_to_write();
        let _unwinding = records.log.epochs().unwinding(&self.activity);
        let _locked = records.tables.store.index.lock(0, &guard);
        records.log.epochs().enter(&self.activity);
        std::panic::panic_any("a deliberate panic within a write");
    }
}

impl<'a, M: Medium> LockedPut<'a, M> {
    #[inline(always)]
    fn new(
        records: &'a Records<M>,
        table: &'a Table,
        ready: PreparedPut<'a>,
        epoch: Epoch,
        locked: &Locked<'_>,
        in_group: bool,
    ) -> Self {
        let has_transaction_records = locked.has_transaction_records();
        let is_grouped = in_group && records.log.shows_before_durable();
        Self { records, table, ready, epoch, has_transaction_records, is_grouped }
    }

    #[inline(always)]
    fn fields(&self, version: Version) -> Fields {
        let (_, meta) = self.ready.ask.new.unwrap_or_default();
        Fields {
            kind: self.ready.kind,
            tag: meta.tag,
            expires_at: meta.expires_at,
            version,
            epoch: self.epoch,
            owner: self.table.owner,
        }
    }

    /// Whether the record is appended before the old one is looked up, where the old one does not matter. The record is
    /// then written while the index's lines come from memory, and its write-back overlaps with the miss of the old one.
    /// Not for the shared block: other writers queue on it.
    #[inline(always)]
    fn appends_ahead(&self) -> bool {
        let ask = &self.ready.ask;
        match ask.want {
            Condition::Anything => ask.new.is_some() && !self.has_transaction_records && !self.ready.shared,
            // Such a write may write nothing, and an appended record cannot be taken back: it would leave user bytes
            // above the tail.
            Condition::Present | Condition::Stamp(_) => false,
        }
    }
}
