//! Key locks: a writer that names keys holds them exclusively for as long as it wants, whatever it reads and writes of
//! them. A writer that cannot name its keys closes the barrier.
//!
//! 1. *Room*: the writer's block has some, as for a put. No lock is held.
//! 2. *Lock*: the stripes of the keys, in the order of their numbers
//!    ([`Stripes::hold`](duramen_index::stripes::Stripes::hold)), or the barrier ([`duramen_log::sync::barrier`]). Keys
//!    of any tables; those of one name share a stripe.
//! 3. *Run*: the writer reads and writes these keys as if it were alone. Each write is a put, an update in place or a
//!    batch, as without locks.
//! 4. *Unlock*. The writes are pending until the group is flushed, as all writes in a group, so nobody shows them
//!    before they are durable.
//!
//! A crash between two writes of 3 leaves the first without the second: a caller that needs both or none writes one
//! batch. Locks are only in DRAM, and a crash leaves nothing of them.
//!
//! While a writer holds locks:
//! * It makes no space: compaction waits for stripes, and growing waits for devices. A write that finds no room fails
//!   as if the store were full, and notes how much it wanted. Its caller abandons its work (it must have written
//!   nothing), unlocks, [makes room](WriterState::make_room) and begins again.
//! * It does not wait for the compactor either, which may wait for a stripe. A transaction that would have to wait
//!   before it replaces a record fails in the same way.
//! * It does not wait for a commit, which takes as long as the device does: its read barrier is awaited after the
//!   unlock. So there is always a group, if need be one from lock to unlock.
//! * It does not flush its group, which would lock the stripes of earlier writes.
//! * It splits no segment of an index, which locks many stripes: a crowded segment is split after the unlock.
//! * Its thread writes nothing by other means, and makes, clears or drops no table: that may wait for another stripe,
//!   for space, or for the holder of the barrier. Such calls are refused ([`WriterState::check_unlocked`]). Looking up
//!   a table waits for nobody.
//! * It writes no keys that it did not name. It may write any elements of collections, whose stripes are separate.

pub(crate) mod state;

use crate::locks::state::{Held, Inside, Wanted};
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::writer::{WriteContext, WriterState};
use crate::{Error, ErrorKind, Result};
use duramen_index::Slot;
use duramen_log::format::{Owner, Version};
use duramen_log::open_block::Purpose;
use duramen_log::supply::FreeOnly;
use duramen_log::sync::Arc;
use duramen_log::sync::barrier::ExclusiveBarrier;
use duramen_log::sync::holding::{Held as HeldHere, Place, What};
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::Medium;

/// Room that is reserved before keys are locked, so that most commands open no block under their locks. Small, since
/// the rest of a block that has less is lost to this writer.
const ROOM_AHEAD: u64 = 512;
/// How often room is made for one command. Each time the command got all that it had asked for, so only a command that
/// asks for more each time needs more than a few tries.
const TRIES_MAX: u32 = 16;

impl WriterState {
    /// Whether it holds keys, or the barrier.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.locks.held != Held::Nothing
    }

    /// Whether it skips the barrier: it has passed it already, or never waits there.
    #[inline]
    fn is_inside(&self) -> bool {
        self.locks.passes_barrier || self.is_locked() || self.transaction.is_some()
    }

    /// Pins this thread to write, inside the barrier.
    #[inline]
    pub(crate) fn pin<M: Medium>(&self, records: &Records<M>) -> Guard {
        if self.is_inside() { reclaim::pin_to_write() } else { records.barrier.pin() }
    }

    /// Enters the barrier for several pins, until the result is dropped.
    ///
    /// # Errors
    /// `Conflict`: the thread that has closed the barrier waits for other work of this thread.
    pub(crate) fn enter<M: Medium>(&self, records: &Records<M>) -> Result<Inside> {
        if self.is_inside() {
            return Ok(Inside(None));
        }
        if records.barrier.enter(&self.activity.inside) {
            return Ok(Inside(Some(Arc::clone(&self.activity.inside))));
        }
        Err(awaited())
    }

    /// Locks the keys of these hashes, for the call at `place`.
    ///
    /// # Errors
    /// `InvalidInput`: this thread holds keys already, or has an active transaction.
    pub(crate) fn lock_keys<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        hashes: &[u64],
        place: Place,
    ) -> Result<()> {
        let records = context.records;
        check_free(records, "lock keys", place, |_| true)?;
        if !records.barrier.enter(&self.activity.inside) {
            return Err(awaited());
        }
        self.before_lock(context);
        loop {
            records.stripes().hold(hashes, &mut self.locks.numbers);
            let running = records.stripes().find_active(&self.locks.numbers);
            let Some(running) = running else { break };
            // An active transaction may want the keys held here, and space.
            records.stripes().release(&self.locks.numbers, Version(0));
            self.locks.numbers.clear();
            self.with_group_suspended(records, |_| records.stripes().wait_for_active(running));
        }
        self.locks.held = Held::Keys;
        self.locks.noted = Some(records.barrier.note(What::Keys, place));
        Ok(())
    }

    /// Locks more keys, if they are available at once; returns whether all are locked now.
    pub(crate) fn lock_more<M: Medium>(&mut self, records: &Records<M>, hashes: &[u64]) -> bool {
        match self.locks.held {
            Held::All => true,
            Held::Nothing => false,
            Held::Keys => {
                records.stripes().hold_more(hashes, &mut self.locks.numbers)
                    // If taken already: released with the others.
                    && records.stripes().find_active(&self.locks.numbers).is_none()
            }
        }
    }

    /// Closes the barrier, for the call at `place`: then no other writer is within a write or holds a key.
    ///
    /// # Errors
    /// `InvalidInput`: this thread holds keys already, has an active transaction, or is within a scan.
    pub(crate) fn lock_all<M: Medium>(&mut self, context: WriteContext<'_, M>, place: Place) -> Result<()> {
        let records = context.records;
        check_not_inside(records, "lock all keys", place)?;
        self.before_lock(context);
        records.barrier.close(|| records.log.epochs().commands());
        self.locks.held = Held::All;
        self.locks.noted = Some(records.barrier.note(What::ExclusiveBarrier, place));
        Ok(())
    }

    fn before_lock<M: Medium>(&mut self, context: WriteContext<'_, M>) {
        self.locks.reserved = 0;
        self.locks.wanted = None;
        self.locks.saw_move = false;
        self.locks.ends_group = self.group.is_none();
        if !self.appender.has_room(ROOM_AHEAD, Purpose::Write) && self.locks.tries == 0 {
            // Only space that is already free: it is not known yet whether the command needs room.
            let free = FreeOnly(context.supply);
            let _ = self.appender.reserve(&context.records.log, &free, ROOM_AHEAD, Purpose::Write);
        }
        self.begin_group();
    }

    /// Releases the locks, and aborts a transaction that is still active. Call [`WriterState::end_locked`] next.
    pub(crate) fn unlock<M: Medium>(&mut self, records: &Records<M>) {
        if self.is_locked() {
            // Its read barrier is awaited with the group of the locks.
            let _ = self.abort_transaction(records);
        }
        self.locks.noted = None;
        match std::mem::take(&mut self.locks.held) {
            Held::Nothing => return,
            Held::Keys => {
                records.stripes().release(&self.locks.numbers, self.version);
                self.locks.numbers.clear();
                self.activity.inside.end();
            }
            Held::All => records.barrier.open(),
        }
        let mut last = None;
        for (owner, hash) in self.locks.crowded.drain(..) {
            let guard = reclaim::pin_to_write();
            if let Some(table) = records.tables.find(owner, &mut last) {
                table.index.split(hash, records, &guard);
            }
        }
        if self.locks.wanted.is_none() {
            self.locks.tries = 0;
        }
        if !self.locks.put_back.is_empty() {
            let put_back = std::mem::take(&mut self.locks.put_back);
            self.finalize_put_back(records, put_back);
        }
    }

    /// Defers the finalizing of restored pending targets, after an abort under locks, until the unlock, since it may
    /// wait for an epoch.
    pub(crate) fn defer_put_back(&mut self, again: Vec<(Owner, u64, Slot)>) {
        self.locks.put_back.extend(again);
    }

    /// Ends a locked section after the unlock. When it returns, its writes may be acknowledged; within a group, when
    /// the group is flushed.
    pub(crate) fn end_locked<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        if std::mem::take(&mut self.locks.ends_group) { self.flush_group(records) } else { Ok(()) }
    }

    /// Checks that this thread holds no stripe, before an operation that may wait for a thread that wants one.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(crate) fn check_unlocked<M: Medium>(records: &Records<M>, attempted: &str) -> Result<()> {
        records.barrier.held_here(What::has_stripes).map_or(Ok(()), |held| Err(beside_locks(attempted, held)))
    }

    /// Checks that the key of `hash` may be written now, or read in a transaction: the check at the transaction's end
    /// waits for its stripe.
    ///
    /// # Errors
    /// `InvalidInput`: keys are locked, and this is none of them, or another writer of this thread holds them.
    #[inline]
    pub(crate) fn check_named<M: Medium>(
        &self,
        records: &Records<M>,
        target: Target<'_>,
        hash: u64,
    ) -> Result<()> {
        if self.locks.held != Held::Keys {
            return Self::check_unlocked(records, "write");
        }
        if matches!(target, Target::Collection(_)) || records.stripes().is_held_here(hash) {
            return Ok(());
        }
        Err(Error::invalid(
            "cannot write the key, or read it in a transaction: it is not one of the locked keys; name all keys when they are locked",
        ))
    }

    /// Splits the part of an index that is crowded where a key of `hash` was put. If another thread holds keys of it
    /// now, it is split when no key is held. With the barrier closed, no other thread does.
    #[inline]
    pub(crate) fn split<M: Medium>(&mut self, records: &Records<M>, table: &Table, hash: u64, guard: &Guard) {
        if self.locks.held != Held::Keys {
            table.index.split(hash, records, guard);
        } else if !table.index.try_split(hash, records, guard) {
            self.locks.crowded.push((table.owner, hash));
        }
    }

    /// Ensures that a record of `bytes` fits, using only free space.
    #[inline]
    pub(crate) fn reserve_locked<M: Medium>(
        &mut self,
        context: WriteContext<'_, M>,
        bytes: u64,
        purpose: Purpose,
    ) -> Result<()> {
        let total = self.locks.reserved + bytes;
        self.locks.reserved = total;
        if self.appender.has_room(bytes, purpose) {
            return Ok(());
        }
        let reserved = self.appender.reserve(&context.records.log, &FreeOnly(context.supply), bytes, purpose);
        if let Err(error) = &reserved
            && error.kind() == ErrorKind::OutOfSpace
        {
            self.locks.wanted = Some(Wanted { bytes, total, purpose });
        }
        reserved
    }

    /// Notes that more bytes of the writer's block, which has them, are used under the locks.
    pub(super) fn note_reserved(&mut self, bytes: u64) {
        if self.is_locked() {
            self.locks.reserved += bytes;
        }
    }

    /// A transaction found a record that the compactor is moving, and the compactor waits for the stripes of keys.
    /// Returns whether this writer holds any; then the write fails as if it had found no room.
    pub(crate) fn sees_move(&mut self) -> bool {
        self.locks.saw_move = self.locks.held == Held::Keys;
        self.locks.saw_move
    }

    /// Whether a write under the locks found no room, or a record that is being moved.
    pub(crate) fn wants_room(&self) -> bool {
        self.locks.wanted.is_some() || self.locks.saw_move
    }

    /// Makes the room that a write under locks did not find. No lock may be held. Then the caller must repeat its work
    /// from the beginning.
    ///
    /// # Errors
    /// `OutOfSpace` when none can be made; the medium's errors.
    pub(crate) fn make_room<M: Medium>(&mut self, context: WriteContext<'_, M>) -> Result<()> {
        Self::check_unlocked(context.records, "make space")?;
        if std::mem::take(&mut self.locks.saw_move) {
            // Nobody holds up the compactor now.
            duramen_log::sync::thread::yield_now();
            return Ok(());
        }
        let Some(wanted) = self.locks.wanted.take() else { return Ok(()) };
        let tries = std::mem::take(&mut self.locks.tries);
        if tries >= TRIES_MAX {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "cannot write {} bytes: room was made {tries} times, and other writers took it each time; begin again",
                    wanted.total
                ),
            ));
        }
        if wanted.total > wanted.bytes {
            // In one block, if available: nobody else takes from that.
            if self.reserve(context, wanted.total, wanted.purpose).is_ok() {
                self.locks.tries = tries + 1;
                return Ok(());
            }
            // The following writes are not known. The store grows by more each time, so that a few tries suffice.
            let wished = wanted.total.saturating_mul(1 << tries);
            context.supply.make_free(wanted.total, wished, wanted.purpose);
        }
        self.reserve(context, wanted.bytes, wanted.purpose)?;
        self.locks.tries = tries + 1;
        Ok(())
    }
}

/// Checks that this thread holds nothing of the store for which `is_so`, before it takes more at `place`.
pub(crate) fn check_free<M: Medium>(
    records: &Records<M>,
    attempted: &str,
    place: Place,
    is_so: impl Fn(What) -> bool,
) -> Result<()> {
    let Some(held) = records.barrier.held_here(is_so) else { return Ok(()) };
    Err(Error::invalid(format!(
        "cannot {attempted} at {place}: {held}, and would wait for itself: end that first, or do both within one"
    )))
}

/// Checks that this thread is not one that closing the barrier would wait for.
fn check_not_inside<M: Medium>(records: &Records<M>, attempted: &str, place: Place) -> Result<()> {
    check_free(records, attempted, place, |_| true)?;
    if reclaim::is_pinned() {
        return Err(Error::invalid(format!(
            "cannot {attempted} at {place}: this thread is within a scan, and would wait for it: do this after the scan has returned"
        )));
    }
    Ok(())
}

/// The closed barrier. Opens it when dropped.
#[must_use]
pub(crate) struct Alone<'a>(&'a ExclusiveBarrier);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Closes the barrier for a change of the targets of names, or for the end of the store: each write and each
/// transaction comes before it or after it. `None` if this thread has closed it already. The caller locks the catalog
/// after this, since a transaction that is waited for may want it.
///
/// # Errors
/// `InvalidInput`: this thread holds keys, has an active transaction, or is within a scan.
pub(crate) fn close_barrier<'a, M: Medium>(
    records: &'a Records<M>,
    attempted: &str,
    place: Place,
) -> Result<Option<Alone<'a>>> {
    let is_alone = |what| matches!(what, What::ExclusiveBarrier);
    if records.barrier.held_here(is_alone).is_some() {
        // A transaction within it is before or after the change as a whole, as the caller decides.
        return Ok(None);
    }
    check_not_inside(records, attempted, place)?;
    records.barrier.close(|| records.log.epochs().commands());
    Ok(Some(Alone(&records.barrier)))
}

#[cold]
fn awaited() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "cannot begin: another thread locks all keys, and waits for a transaction or a scan of this thread: end that \
         one, and begin again",
    )
}

#[cold]
fn beside_locks(attempted: &str, held: HeldHere) -> Error {
    Error::invalid(format!(
        "cannot {attempted}: {held}, and may wait for itself: end that first, or use the writer that holds the keys"
    ))
}
