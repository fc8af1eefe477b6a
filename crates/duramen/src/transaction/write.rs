//! Transactions: any number of writes of one writer that count all or not at all, after a crash and for every reader.
//!
//! In order, with the result of a crash:
//!
//! 1. Each write is appended as a *transaction record*, with the transaction's number and the previous content of its
//!    key's slot; its write-back is started. The slot points to it, pending. (DRAM.) A crash: transaction records
//!    without a commit record, which never count (`format::transaction`).
//! 2. The *commit record* is appended after the last transaction record, with the count and sum of all. A crash: some
//!    lines of transaction records and commit record are missing, so the sum does not match and none counts; or all are
//!    there, and all count.
//! 3. One store to the writer's transaction slot shows the transaction (`log::transaction`). (DRAM.) Readers make it
//!    durable before they return any of it.
//! 4. The group is flushed: one drain, or the commit of the commit record's epoch. From here on the whole transaction
//!    counts after a crash.
//! 5. The slots of its transaction records lose their pending marks, and the replaced records are subtracted from the
//!    live bytes of their blocks. (DRAM.)
//! 6. For a transaction of several blocks, the headers record permanently that it counts (`log::finalizing`).
//!
//! Many writes of one collection's elements take step 1 in [stretches](stretch), and step 5 takes all elements in
//! stretches. Each record is appended and pinned as in a single write. The slots of a stretch change together, after its
//! last record; until then they keep their targets, and the writer holds the stripes of all its elements.
//!
//! A transaction runs within a group: one of its own unless the writer has one open. A writer that continues in another
//! block drains the one before.
//!
//! A transaction that aborts restores the previous target of each slot, in the reverse order. It then appends an end
//! without transaction records, which marks the abort for recovery and for readers of its blocks.
//!
//! Invariants:
//! 1. A slot points to a transaction record of at most one active transaction, and that record is the newest of its
//!    key. A writer of the same key waits for the end of that transaction, without a lock and in no epoch
//!    ([`Wrote::Running`]); or it aborts its own transaction, if others may wait for that.
//! 2. A record that a transaction record replaced stays where it is until 5: its block is pinned
//!    ([`Block::pin`](duramen_log::blocks::Block::pin)), and it is live until then. There is a pin for each such
//!    record. The compactor must see only the first of those in one block; while that lasts it cannot begin. Blocks
//!    with transaction records are pinned too, until 5 or 6.
//! 3. If a transaction leaves a block for another one, its transaction records are the last records of that block. At
//!    most one transaction continues in a block from another block. So each of the two outcomes in a block's header
//!    ([`TransactionOutcomes`](duramen_log::format::block::TransactionOutcomes)) refers to one transaction.
//! 4. There is always room for the commit record: it is reserved with each transaction record. It follows the last
//!    transaction record, or is in a block of its own, when that was opened for a transaction record that was then not
//!    written.

mod stretch;

use crate::get::value::CollectionId;
use crate::get::value::{Meta, Record};
use crate::locks::check_free;
use crate::put::place::{Current, Old};
use crate::records::Records;
use crate::table::tables::{RootRef, Table, Target};
use crate::transaction::apply::Compared;
use crate::transaction::batch::{Expect, root_value};
use crate::transaction::pins::Pins;
use crate::transaction::state::{AbsentRead, Over, Running, TransactionSpan, Transactions};
use crate::writer::{WriteContext, WriterState, purpose_of};
use crate::{Error, ErrorKind, Result};
use duramen_index::Slot;
use duramen_index::either::Locked;
use duramen_log::appender::{Body, Fields};
use duramen_log::format::block::TransactionOutcome;
use duramen_log::format::record::{
    Appended, END_BYTES, Kind, TRAILER_BYTES, Trailer, body_crc, head_bytes, record_bytes,
};
use duramen_log::format::transaction::TransactionSum;
use duramen_log::format::{Epoch, Owner, TransactionId, Version};
use duramen_log::sync::Backoff;
use duramen_log::sync::holding::{Place, What};
use duramen_log::sync::reclaim;
use duramen_log::transaction::{Numbers, TransactionSlot};
use duramen_media::{Medium, Offset};
use stretch::Finalizing;

/// The result of a write in a transaction.
enum Wrote {
    Done {
        appended: Appended,
        replaced: Option<Meta>,
        crowded: bool,
    },
    /// Nothing was there to delete. `by_own`: because this transaction deleted it.
    Absent {
        by_own: bool,
    },
    /// Not written: another active transaction has written the key.
    Running(Trailer),
    /// Not written: the compactor is moving the current record.
    Moved,
}

/// One write of a transaction.
#[derive(Clone, Copy)]
struct Write<'a> {
    key: &'a [u8],
    hash: u64,
    new: Option<(&'a [u8], Meta)>,
    /// The checksum of key and value.
    crc: u32,
    /// Whether the caller asks for the previous value's metadata.
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
    /// The trailer, if the slot points to a transaction record of an active transaction. The caller holds the key's
    /// stripe.
    #[inline]
    pub(crate) fn running_at(&self, slot: Slot, record: &Record<'_>) -> Option<Trailer> {
        if !slot.is_pending() || !record.head.is_transactional() {
            return None;
        }
        let trailer = record.trailer();
        self.transaction_slot_of(trailer).is_active(trailer.transaction).then_some(trailer)
    }

    /// The transaction slot of the writer of a transaction record.
    pub(crate) fn transaction_slot_of(&self, trailer: Trailer) -> &TransactionSlot {
        self.log.transaction_slots.at(Slot::transaction_slot_of(trailer.previous))
    }
}

impl WriterState {
    /// Waits for the end of another transaction, which has written the wanted key. In no epoch; a transaction of this
    /// writer has written nothing, or has a lower number.
    ///
    /// # Errors
    /// `InvalidInput`: it is a transaction of this thread. `Conflict`: this writer holds locks, which that transaction
    /// may wait for.
    #[cold]
    pub(crate) fn wait_for_transaction<M: Medium>(
        &mut self,
        records: &Records<M>,
        trailer: Trailer,
    ) -> Result<()> {
        check_not_own(records, trailer)?;
        if self.is_locked() {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot write under locks: an active transaction without locks has written the key; lock the keys of that transaction, or of the \
                 collection that it writes, before it begins",
            ));
        }
        // That transaction may need space.
        self.with_group_suspended(records, |_| {
            let mut backoff = Backoff::default();
            while records.transaction_slot_of(trailer).is_active(trailer.transaction) {
                backoff.wait();
            }
        });
        Ok(())
    }

    /// The number of the active transaction, or 0.
    pub(crate) fn transaction_id(&self) -> u64 {
        self.transaction.as_ref().map_or(0, |running| running.id.0)
    }

    /// The call that began the active transaction.
    pub(crate) fn transaction_place(&self) -> Option<Place> {
        self.transaction.as_ref().map(|running| running.place)
    }

    /// Begins a transaction, for the call at `place`: until [`WriterState::commit_transaction`] or
    /// [`WriterState::abort_transaction`].
    ///
    /// # Errors
    /// `InvalidInput`: one is active, or another writer of this thread holds keys.
    pub(crate) fn begin_transaction<M: Medium>(&mut self, records: &Records<M>, place: Place) -> Result<()> {
        let own = self.transaction_id();
        let is_locked = self.is_locked();
        check_free(records, "begin a transaction", place, |what| match what {
            What::Transaction(transaction) => transaction == own,
            What::Keys => !is_locked,
            What::Change => true,
            What::ExclusiveBarrier => false,
        })?;
        records.log.epochs().check_writable()?;
        debug_assert!(self.transaction.is_none(), "a writer begins a transaction within one");
        let transaction_slot = match &self.transactions {
            Some(transactions) => transactions.transaction_slot,
            None => {
                let transaction_slot = records.log.transaction_slots.take()?;
                self.transactions =
                    Some(Transactions { transaction_slot, numbers: Numbers::default(), counted: Vec::new() });
                transaction_slot
            }
        };
        let own_group = self.group.is_none();
        let inside = self.enter(records)?;
        self.begin_group();
        let Some(transactions) = &mut self.transactions else { return Ok(()) };
        let id = records.log.transaction_slots.number(&mut transactions.numbers);
        records.log.transaction_slots.at(transaction_slot).begin(id);
        let running = Running {
            id,
            sum: TransactionSum::default(),
            spans: Vec::new(),
            lost: Vec::new(),
            named: Vec::new(),
            root_at: Offset(0),
            absent_reads: Vec::new(),
            pins: Pins::default(),
            own_group,
            _inside: inside,
            _noted: records.barrier.note(What::Transaction(id.0), place),
            place,
            failed: false,
        };
        self.transaction = Some(running);
        if let Some(read_barrier) = self.read_barrier() {
            read_barrier.transaction.set(id.0);
        }
        Ok(())
    }

    fn transaction_slot(&self) -> u16 {
        self.transactions.as_ref().map_or(0, Transactions::transaction_slot)
    }

    /// Sets or deletes a key in the active transaction. Returns the metadata of the live value that was there, if
    /// `asks`.
    pub(crate) fn write_in_transaction<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        asks: bool,
    ) -> Result<Option<Meta>> {
        let Some((value, meta)) = new else {
            return self.write_transaction_record(context, target, key, new, asks);
        };
        let Some(CollectionId(owner)) = meta.collection else {
            return self.write_transaction_record(context, target, key, new, asks);
        };
        let naming = context.records.tables.name(owner)?;
        let wrote = self.write_transaction_record(
            context,
            target,
            key,
            Some((&root_value(value, meta), meta)),
            asks,
        )?;
        // The reference is released if the transaction aborts.
        let before = naming.keep();
        if let Some(running) = &mut self.transaction {
            running.named.push((RootRef { owner, place: running.root_at }, before));
        }
        Ok(wrote)
    }

    fn write_transaction_record<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        target: Target<'_>,
        key: &[u8],
        new: Option<(&[u8], Meta)>,
        asks: bool,
    ) -> Result<Option<Meta>> {
        let records = context.records;
        let (value, meta) = new.unwrap_or_default();
        Self::check(records, key, value.len())?;
        let head = head_bytes(meta.expires_at.is_some(), target.is_owned());
        let bytes = record_bytes(head, key.len(), value.len(), Kind::Value) + TRAILER_BYTES;
        let purpose = purpose_of(new);
        let hash = records.hasher.hash(key);
        loop {
            if let Err(error) = self.reserve(context, bytes + END_BYTES, purpose) {
                if let Some(running) = &mut self.transaction {
                    running.failed = true;
                }
                return Err(error);
            }
            let guard = reclaim::pin_to_write();
            let table = records.tables.at(target, &guard)?;
            self.check_named(records, target, hash)?;
            table.index.prefetch_next(hash, new.is_some(), &guard);
            let crc = body_crc(self.appender.seed(), &[key, value]);
            let write = Write { key, hash, new, crc, asks };
            let unwinding = records.log.epochs().unwinding(&self.activity);
            let locked = table.index.lock(hash, &guard);
            let epoch = records.log.epochs().enter(&self.activity);
            let wrote = self.write_transaction_record_locked(records, table, locked, write, epoch);
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
                    if self.sees_move() {
                        if let Some(running) = &mut self.transaction {
                            running.failed = true;
                        }
                        return Err(Error::new(
                            ErrorKind::Conflict,
                            "cannot write in a transaction under locks: compaction is moving the current record; unlock and run it again",
                        ));
                    }
                    duramen_log::sync::thread::yield_now();
                }
            }
        }
    }

    /// Waits for another transaction, unless that one might wait for this one: a transaction that has written waits
    /// only for those with higher numbers.
    fn wait_or_yield<M: Medium>(&mut self, records: &Records<M>, other: Trailer) -> Result<()> {
        check_not_own(records, other)?;
        if !self.may_wait_for(other) && !self.is_locked() {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot write in a transaction: another active transaction has written the key, and might wait for this one; abort it and \
                 begin again, or lock the keys before",
            ));
        }
        self.wait_for_transaction(records, other)
    }

    /// Whether the active transaction may wait for another one: no two wait for each other.
    pub(crate) fn may_wait_for(&self, other: Trailer) -> bool {
        self.transaction.as_ref().is_none_or(|own| own.sum.count == 0 || own.id < other.transaction)
    }

    fn write_transaction_record_locked<M: Medium>(
        &mut self,
        records: &Records<M>,
        table: &Table,
        locked: Locked<'_>,
        write: Write<'_>,
        epoch: Epoch,
    ) -> Wrote {
        let Write { key, hash, new, asks, .. } = write;
        let id = TransactionId(self.transaction_id());
        // Read the clock under the lock, so that versions of one stripe follow the lock order.
        let floor = self.floor(records);
        let current = Current::look_up(records, table, &locked, key);
        let old = current.old.as_ref();
        let running = match old {
            Some(Old { slot, record: Some(record), .. }) => records.running_at(*slot, record),
            _ => None,
        };
        if let Some(other) = running.filter(|running| running.transaction != id) {
            return Wrote::Running(other);
        }
        if asks || new.is_none() {
            self.require_durable_for(records, old, id);
        }
        if new.is_none() && !current.is_present() && !current.is_unknown() {
            return Wrote::Absent { by_own: running.is_some() };
        }
        if let Some(old) = old
            && !self.pin_previous(records, old.slot.location())
        {
            return Wrote::Moved;
        }
        let version = self.gave(locked.next_version(floor));
        let fields = write.fields(table.owner, version, epoch);
        let (appended, slot) = self.append_in_transaction(records, write, fields, current.slot());
        let value = (appended.at, new.map(|(_, meta)| meta));
        let crowded = current.point_to(records, &locked, key, slot, value);
        if let (Some((_, Meta { collection: Some(_), .. })), Some(running)) = (new, &mut self.transaction) {
            running.root_at = appended.at;
        }
        locked.count_transaction_record(true);
        if self.sees_others(table)
            && let Some(transactions) = &mut self.transactions
        {
            records.stripes().begin_active(hash, &mut transactions.counted);
        }
        drop(locked);
        let old = current.old;
        self.count_key(table, old.as_ref(), new.is_some());
        let lost = old.as_ref().and_then(Old::names);
        if let Some(running) = &mut self.transaction {
            running.lost.extend(lost);
        }
        let replaced = old.filter(|old| old.present).and_then(|old| Some(old.record?.meta()));
        Wrote::Done { appended, replaced, crowded }
    }

    /// Pins the block of a record that the active transaction replaces. False: the compactor is moving it.
    #[inline]
    fn pin_previous<M: Medium>(&mut self, records: &Records<M>, at: Offset) -> bool {
        self.transaction.as_mut().is_some_and(|running| running.pins.pin(records, at))
    }

    /// Appends the record of a write that replaces the target of `before`. Returns it, and a slot that points to it.
    #[inline(always)]
    fn append_in_transaction<M: Medium>(
        &mut self,
        records: &Records<M>,
        write: Write<'_>,
        fields: Fields,
        before: Slot,
    ) -> (Appended, Slot) {
        let transaction = TransactionId(self.transaction_id());
        let trailer = Trailer { transaction, previous: before.as_previous(self.transaction_slot()) };
        let appended = self.appender.append_transaction_record(&records.log, fields, write.body(), trailer);
        self.note_transaction_record(records, appended);
        (appended, Slot::to(self.appender.leave_pending(appended)).with_tombstone(write.new.is_none()))
    }

    /// The writer is shown the current record, so that record must be durable when the group is.
    fn require_durable_for<M: Medium>(&self, records: &Records<M>, old: Option<&Old<'_>>, id: TransactionId) {
        let is_own =
            |record: &Record<'_>| record.head.is_transactional() && record.trailer().transaction == id;
        if old.is_some_and(|old| old.slot.is_pending() && old.record.as_ref().is_some_and(is_own)) {
            return;
        }
        let epoch = self.visible_epoch(records, old);
        if let Some(read_barrier) = self.read_barrier() {
            read_barrier.epoch.set(read_barrier.epoch.get().max(epoch.0));
        }
    }

    /// Whether others may write the keys of this table that the active transaction has named. Not if this writer holds
    /// the keys, and not for elements, which belong to the holder of their collection's key.
    fn sees_others(&self, table: &Table) -> bool {
        !self.is_locked() && !table.owner.is_collection()
    }

    /// Notes a key that the transaction found absent, if another writer may insert it before the transaction is shown.
    fn note_missed(&mut self, table: &Table, key: &[u8]) {
        if self.sees_others(table)
            && let Some(running) = &mut self.transaction
        {
            running.absent_reads.push(AbsentRead { owner: table.owner, key: key.to_vec() });
        }
    }

    pub(crate) fn take_missed(&mut self) -> Vec<AbsentRead> {
        self.transaction.as_mut().map(|running| std::mem::take(&mut running.absent_reads)).unwrap_or_default()
    }

    /// The transaction continues: its absent reads are checked again.
    pub(crate) fn put_missed(&mut self, absent_reads: Vec<AbsentRead>) {
        if let Some(running) = &mut self.transaction {
            running.absent_reads = absent_reads;
        }
    }

    /// Counts a transaction record that was appended.
    fn note_transaction_record<M: Medium>(&mut self, records: &Records<M>, appended: Appended) {
        self.appender.count_live(appended.bytes);
        self.activity.written_add(appended.bytes);
        if let Some(running) = &mut self.transaction {
            running.sum.add(appended.at, appended.crc);
        }
        self.note_place(records, appended);
    }

    /// Notes the place of a record that the transaction just appended.
    fn note_place<M: Medium>(&mut self, records: &Records<M>, appended: Appended) {
        let Some((extent, to)) = self.appender.place() else { return };
        let Some(running) = &mut self.transaction else { return };
        match running.spans.last_mut() {
            Some(last) if last.extent == extent => {
                debug_assert!(last.to <= to, "a block's tail moves back within a transaction");
                last.to = to;
            }
            _ => {
                // Its appender has it open, so the compactor does not choose it.
                debug_assert!(
                    running.spans.iter().all(|span| span.extent != extent),
                    "a transaction comes back to a block that it left (invariant 3)"
                );
                let pinned = records.log.blocks.at(extent).pin();
                debug_assert!(pinned, "an open block must not be retired (invariant 2)");
                running.spans.push(TransactionSpan { extent, from: to - appended.bytes, to });
                self.appender.enter_transaction();
            }
        }
    }

    /// Counts a commit record that was appended.
    fn note_commit<M: Medium>(&mut self, records: &Records<M>, end: Appended) {
        self.activity.written_add(end.bytes);
        // Nobody looks it up.
        self.activity.dead_add(end.bytes as i64);
        self.note_place(records, end);
    }

    /// Commits the active transaction and shows it.
    pub(crate) fn commit_transaction<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        self.check_not_failed(records)?;
        let shown = self.show_if(records, &[], &mut || ());
        if let Ok(Compared::Satisfied) = shown {
            return Ok(());
        }
        self.abort_transaction(records)?;
        shown?;
        Err(Error::new(
            ErrorKind::Conflict,
            "cannot commit the transaction: another writer inserted a key that was absent when the transaction deleted it; the transaction was aborted, \
             begin again, or lock the keys before",
        ))
    }

    /// Commits the active transaction and shows it, if the keys it read are unchanged; returns whether it did.
    /// Otherwise it is aborted, and this call has waited for the end of a transaction that changed such a key.
    pub(crate) fn commit_transaction_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        read: &[Expect],
    ) -> Result<bool> {
        self.check_not_failed(records)?;
        loop {
            match self.show_if(records, read, &mut || ()) {
                Ok(Compared::Satisfied) => return Ok(true),
                // The outcome of the other transaction decides whether the key changed. This one waits with all its
                // writes; such waits go in one direction only.
                Ok(Compared::Blocked(other)) if self.may_wait_for(other) && !self.is_locked() => {
                    self.wait_for_transaction(records, other)
                        .inspect_err(|_| drop(self.abort_transaction(records)))?;
                }
                shown => {
                    self.abort_transaction(records)?;
                    if let Compared::Blocked(other) = shown? {
                        self.wait_for_transaction(records, other)?;
                    }
                    return Ok(false);
                }
            }
        }
    }

    /// Aborts the active transaction. Returns whether its reads were consistent and are still current.
    pub(crate) fn abort_transaction_if<M: Medium>(
        &mut self,
        records: &Records<M>,
        read: &[Expect],
    ) -> Result<bool> {
        let compared = self.compare(records, read, &[], |_| ());
        self.abort_transaction(records)?;
        match compared? {
            Compared::Blocked(other) => self.wait_for_transaction(records, other).map(|()| false),
            compared => Ok(matches!(compared, Compared::Satisfied)),
        }
    }

    /// Checks that all writes of the active transaction succeeded; otherwise aborts it.
    fn check_not_failed<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        if self.transaction.as_ref().is_some_and(|running| running.failed) {
            self.abort_transaction(records)?;
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                "cannot commit the transaction: one of its writes found no room, or its record was being moved; it was aborted",
            ));
        }
        Ok(())
    }

    /// Shows the active transaction, in the epoch of its commit record, which is returned.
    pub(crate) fn show_transaction<M: Medium>(
        &mut self,
        records: &Records<M>,
        epoch: Epoch,
    ) -> Option<Appended> {
        let (id, sum) =
            self.transaction.as_ref().map(|running| (running.id, running.sum)).unwrap_or_default();
        let transaction_slot = self.transaction_slot();
        if sum.count == 0 {
            records.log.transaction_slots.at(transaction_slot).over();
            return None;
        }
        // Room was reserved with each transaction record.
        assert!(
            self.appender.room() >= END_BYTES,
            "no room for the commit record of a transaction (invariant 4)"
        );
        let end = self.appender.append_commit(&records.log, id, sum, epoch);
        records.log.transaction_slots.at(transaction_slot).show(end.at.plus(end.bytes), epoch.0);
        Some(end)
    }

    /// Completes a commit: the active transaction was shown, and the epoch left.
    pub(crate) fn transaction_shown<M: Medium>(
        &mut self,
        records: &Records<M>,
        end: Option<Appended>,
        epoch: Epoch,
    ) -> Result<()> {
        self.committed(records, end, epoch);
        if self.leave_transaction(records) { self.flush_group(records) } else { Ok(()) }
    }

    /// The bookkeeping after a transaction is shown.
    fn committed<M: Medium>(&mut self, records: &Records<M>, appended: Option<Appended>, epoch: Epoch) {
        if let Some(end) = appended {
            self.note_commit(records, end);
        }
        let Some(running) = &mut self.transaction else { return };
        if running.sum.count == 0 {
            return;
        }
        running.pins.apply(records);
        running.named.clear();
        for name in running.lost.drain(..) {
            records.tables.release_root(name);
        }
        let spans = std::mem::take(&mut running.spans);
        if let Some(group) = &mut self.group {
            group.read_barrier.epoch.set(group.read_barrier.epoch.get().max(epoch.0));
            group.over.push(Over { spans, epoch });
        }
    }

    /// Ends the active transaction. Returns whether its group is its own.
    fn leave_transaction<M: Medium>(&mut self, records: &Records<M>) -> bool {
        self.appender.leave_transaction();
        let over = self.transaction.take();
        let own_group = over.as_ref().is_some_and(|running| running.own_group);
        // Its roots that were not written after all.
        for (name, before) in over.into_iter().flat_map(|running| running.named.into_iter().rev()) {
            records.tables.release_unwritten_root(name, before);
        }
        if let Some(transactions) = &mut self.transactions {
            records.stripes().end_active(&mut transactions.counted);
        }
        if let Some(read_barrier) = self.read_barrier() {
            read_barrier.transaction.set(0);
        }
        self.give_back(records);
        own_group
    }

    /// Aborts the active transaction, if there is one: only dead bytes remain. A group that is not its own continues;
    /// otherwise its reads may be returned on success.
    pub(crate) fn abort_transaction<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        let Some(running) = &mut self.transaction else { return Ok(()) };
        running.pins.apply(records);
        let (id, written) = (running.id, std::mem::take(&mut running.spans));
        let mut again = Vec::new();
        for span in written.iter().rev() {
            let mut places = Vec::new();
            each_transaction_record(records, *span, |at| places.push(at));
            for at in places.into_iter().rev() {
                self.put_back(records, at, &mut again);
            }
        }
        let has_transaction_records = !written.is_empty();
        if let Some(running) = &mut self.transaction {
            running.spans = written;
        }
        // Where the last write found no room, there may be none for an end.
        let has_commit = has_transaction_records
            && records.log.epochs().check_writable().is_ok()
            && self.appender.room() >= END_BYTES;
        if has_commit {
            let unwinding = records.log.epochs().unwinding(&self.activity);
            let epoch = records.log.epochs().enter(&self.activity);
            let end = self.appender.append_commit(&records.log, id, TransactionSum::default(), epoch);
            records.log.epochs().leave(&self.activity, epoch, Some(end));
            unwinding.over();
            self.note_commit(records, end);
        }
        let spans =
            self.transaction.as_mut().map(|running| std::mem::take(&mut running.spans)).unwrap_or_default();
        records.log.transaction_slots.at(self.transaction_slot()).over();
        let own_group = self.leave_transaction(records);
        self.release(records, &spans, TransactionOutcome::Void, has_commit, Epoch(0));
        if self.is_locked() {
            self.defer_put_back(again);
        } else {
            self.finalize_put_back(records, again);
        }
        if own_group { self.flush_group(records) } else { Ok(()) }
    }

    /// Points the slot with the transaction record at `at` back to its previous target. `again` collects targets that
    /// were pending.
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
            locked.count_transaction_record(false);
            match locked.find(key, |slot| slot.location() == at) {
                // The table was dropped, and reclaimed up to this slot: the previous record is dead too.
                Some(place) if place.get().covers_no_older_records() && table.is_dead() => {
                    is_live = !before.is_empty()
                }
                Some(place) => {
                    records.log.uncount(at, bytes, &self.activity);
                    self.put_slot_back(records, table, &locked, &place, before);
                    drop(locked);
                    if before.is_pending() {
                        again.push((owner, hash, before));
                    }
                }
                // After a panic it may be incomplete: a second panic would end the process.
                None => {
                    debug_assert!(
                        std::thread::panicking(),
                        "a transaction record of an active transaction was superseded (invariant 1)"
                    )
                }
            }
        } else {
            records.tables.stripes_of(owner).lock(hash).count_transaction_record(false);
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
        place: &duramen_index::either::Place<'_>,
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
            place.repoint(key, slot, records);
            // The count of the key's older records may have changed in the meantime.
            if let Some(record) = record {
                let (at, bytes) = (record.at, record.head.record_bytes());
                match (before.covers_no_older_records(), slot.covers_no_older_records()) {
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

    /// Clears the mark of restored targets that were pending when a transaction superseded them: the writer that would
    /// have cleared it may have passed already.
    pub(crate) fn finalize_put_back<M: Medium>(&self, records: &Records<M>, again: Vec<(Owner, u64, Slot)>) {
        for (owner, hash, slot) in again {
            let guard = reclaim::pin_to_write();
            let mut last = None;
            let Some(table) = records.tables.find(owner, &mut last) else { continue };
            let is_there = |found: Slot| found.location() == slot.location() && found.is_pending();
            let key = records.record(slot.location()).key();
            if table.index.find(hash, key, &guard, is_there).is_none() {
                continue;
            }
            let epoch = records.flush_on_behalf(&records.record(slot.location()), true);
            drop(guard);
            if records.log.wait_for(epoch).is_err() {
                // Poisoned: nothing is written any more.
                return;
            }
            crate::writer::clear_pending(records, std::iter::once((owner, hash, slot.location())));
        }
    }

    fn uncount_previous<M: Medium>(&self, records: &Records<M>, before: Slot) {
        match records.whole_record(before.location()) {
            None => {
                records.log.uncount(before.location(), records.superseded_damaged(before), &self.activity);
            }
            Some(record) if !before.covers_no_older_records() => {
                records.log.uncount(record.at, record.head.record_bytes(), &self.activity);
            }
            Some(_) => {}
        }
    }

    /// Step 5 of a durable transaction, and then 6.
    pub(crate) fn finalize_transaction<M: Medium>(&self, records: &Records<M>, over: &Over) {
        let mut finalizing = Finalizing::of(records, &self.activity);
        for &span in &over.spans {
            each_transaction_record(records, span, |at| finalizing.add(records.record(at)));
        }
        finalizing.end();
        self.release(records, &over.spans, TransactionOutcome::Counts, true, over.epoch);
    }

    /// Releases the blocks of a transaction that is over and drained, once its outcome is recorded permanently. The
    /// last block has its commit record, if there is one.
    fn release<M: Medium>(
        &self,
        records: &Records<M>,
        spans: &[TransactionSpan],
        transaction_outcome: TransactionOutcome,
        has_commit: bool,
        epoch: Epoch,
    ) {
        match spans {
            [] => {}
            [only] if has_commit => records.log.blocks.at(only.extent).unpin(),
            several => {
                let blocks = several.iter().map(|span| span.extent).collect();
                records.log.finalize_transaction(blocks, transaction_outcome, has_commit, epoch);
            }
        }
    }

    /// The writer ends, and its group is flushed: its transaction slot becomes free.
    pub(crate) fn end_transactions<M: Medium>(&mut self, records: &Records<M>) {
        if let Some(transactions) = self.transactions.take() {
            records.log.transaction_slots.give(transactions.transaction_slot);
        }
    }

    /// All transactions committed in the group are drained.
    pub(crate) fn transactions_drained<M: Medium>(&self, records: &Records<M>) {
        if let Some(transactions) = &self.transactions {
            records.log.transaction_slots.at(transactions.transaction_slot).drained();
        }
    }
}

/// Checks that the transaction is not one of this thread, which would wait for itself.
fn check_not_own<M: Medium>(records: &Records<M>, other: Trailer) -> Result<()> {
    let Some(held) = records.barrier.held_here(|what| what == What::Transaction(other.transaction.0)) else {
        return Ok(());
    };
    Err(Error::invalid(format!(
        "cannot write the key: {held}, has written it, and this write would wait for that transaction: write through it, or end it before"
    )))
}

/// Visits the transaction records that a transaction has in a block, which is pinned.
fn each_transaction_record<M: Medium>(
    records: &Records<M>,
    span: TransactionSpan,
    mut visit: impl FnMut(Offset),
) {
    debug_assert!(
        records.log.blocks.at(span.extent).is_pinned(),
        "the block at extent {} of a transaction is not pinned (invariant 2)",
        span.extent.0
    );
    let base = records.log.blocks.offset(span.extent);
    let mut at = span.from;
    while at < span.to {
        let place = Offset(base + at);
        let head = records.record(place).head;
        at += head.record_bytes();
        if !head.is_commit() {
            visit(place);
        }
    }
}
