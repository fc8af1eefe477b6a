//! Key locks: a writer that names keys has them for itself for as long as it wants, whatever it reads and writes of them; and who
//! cannot name them closes the barrier.
//!
//! 1. *Room*: the writer's block has some, as for a put. No lock is held.
//! 2. *Lock*: the stripes of the keys, in the order of their numbers ([`Stripes::hold`](crate::index::stripes::Stripes::hold)), or
//!    the barrier ([`crate::sync::barrier`]). Keys of any tables; those of one name share a stripe.
//! 3. *Run*: what the writer reads and writes of these keys is as if it were alone. Each write is a put, an update in place or a
//!    batch, as without locks.
//! 4. *Unlock*. What was written is pending until the group is flushed, as all in a group, so nobody shows it before it
//!    is durable.
//!
//! A crash between two writes of 3 leaves the first without the second: who needs both or none writes one batch. Locks are
//! in DRAM alone, and a crash leaves nothing of them.
//!
//! While a writer holds locks:
//! * It makes no space: compaction waits for stripes, and grows and waits for devices. A write that finds no room fails
//!   as if the store were full, and notes how much it wanted. Its caller gives up what it did (it must have written nothing), unlocks,
//!   [makes room](WriterState::make_room) and begins again.
//! * It does not wait for the compactor either, which may wait for a stripe: a transaction that would, for what its
//!   member takes the place of, fails in the same way.
//! * It does not wait for a commit, which takes as long as the device does: what it owes is paid when it has unlocked. So there is
//!   always a group, if need be one from lock to unlock.
//! * It does not settle its group, which locks the stripes of what was written before.
//! * It splits no segment of an index, which locks many stripes: what is crowded is split after the unlock.
//! * Its thread writes nothing by other means, and makes, clears or drops no table: that may wait for another stripe, for space, or for
//!   who closes the barrier. It is refused ([`WriterState::check_unlocked`]). To look a table up waits for nobody.
//! * It writes no keys that it did not name, and elements of collections as it likes, whose stripes are others.

use super::{WriteContext, WriterState};
use crate::format::{Owner, Version};
use crate::index::Slot;
use crate::log::open_block::Purpose;
use crate::log::supply::FreeOnly;
use crate::mutants::{Mutant, planted};
use crate::read::Records;
use crate::read::table::{Table, Target};
use crate::sync::Arc;
use crate::sync::barrier::ExclusiveBarrier;
use crate::sync::holding::{Held as HeldHere, Noted, Place, What};
use crate::sync::reclaim::{self, Guard, SeqCounter};
use crate::{Error, ErrorKind, Result};
use duramen_media::Medium;

/// Room that is reserved before keys are locked, so that most commands open no block under their locks. Small, since the rest
/// of a block that has less is lost to this writer.
const ROOM_AHEAD: u64 = 512;
/// How often room is made for one command. Each time it had all that it had asked for by then, so more than a few are only needed
/// by one that asks for more each time.
const TRIES_MAX: u32 = 16;

/// What a writer holds between [`WriterState::lock_keys`] and [`WriterState::unlock`].
#[derive(Default)]
pub(super) struct Locks {
    held: Held,
    /// Of what is held.
    noted: Option<Noted>,
    /// The stripes, by their numbers.
    numbers: Vec<u32>,
    /// The group was begun with the locks, and ends with them.
    ends_group: bool,
    /// Bytes that were reserved since.
    reserved: u64,
    /// What did not fit.
    wanted: Option<Wanted>,
    /// A transaction met a record that the compactor moves.
    saw_move: bool,
    /// What transactions led back to that were aborted, and what was pending there: it is settled when no lock is held.
    put_back: Vec<(Owner, u64, Slot)>,
    /// How often room was made since the last run that wanted none.
    tries: u32,
    /// Keys in parts of indexes that are to be split.
    crowded: Vec<(Owner, u64)>,
    /// It never waits at the barrier.
    pub(super) passes_barrier: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    Nothing,
    /// The stripes of some keys.
    Keys,
    /// The barrier.
    All,
}

/// A write that found no room under locks.
#[derive(Clone, Copy)]
struct Wanted {
    /// Of the record, or the batch.
    bytes: u64,
    /// With all that was written before it under the same locks.
    total: u64,
    purpose: Purpose,
}

impl WriterState {
    /// Whether it holds keys, or the barrier.
    #[inline]
    pub(crate) fn is_locked(&self) -> bool {
        self.locks.held != Held::Nothing
    }

    /// Whether the barrier is not asked: it has passed it, or never does.
    #[inline]
    fn is_inside(&self) -> bool {
        self.locks.passes_barrier || self.is_locked() || self.transaction.is_some()
    }

    /// Pins this thread to write, inside the barrier.
    #[inline]
    pub(super) fn pin<M: Medium>(&self, records: &Records<M>) -> Guard {
        if self.is_inside() { reclaim::pin_to_write() } else { records.barrier.pin() }
    }

    /// Is inside the barrier for several pins, until what is returned is dropped.
    ///
    /// # Errors
    /// `Conflict`: who has closed it waits for what this thread does by other means.
    pub(super) fn enter<M: Medium>(&self, records: &Records<M>) -> Result<Inside> {
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
    /// `InvalidInput`: this thread holds keys already, or has a transaction that runs.
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
            let Some(running) = running.filter(|_| !planted(Mutant::LockedBesideActive)) else { break };
            // A transaction that runs may want what is held here, and space.
            records.stripes().release(&self.locks.numbers, Version(0));
            self.locks.numbers.clear();
            self.with_group_suspended(records, |_| records.stripes().wait_for_active(running));
        }
        self.locks.held = Held::Keys;
        self.locks.noted = Some(records.barrier.note(What::Keys, place));
        Ok(())
    }

    /// Locks more keys, if they are to be had at once; whether it has them all now.
    pub(crate) fn lock_more<M: Medium>(&mut self, records: &Records<M>, hashes: &[u64]) -> bool {
        match self.locks.held {
            Held::All => true,
            Held::Nothing => false,
            Held::Keys => {
                records.stripes().hold_more(hashes, &mut self.locks.numbers)
                    // Taken already: given back with the others.
                    && records.stripes().find_active(&self.locks.numbers).is_none()
            }
        }
    }

    /// Closes the barrier, for the call at `place`: no other writer is within a write or holds a key then.
    ///
    /// # Errors
    /// `InvalidInput`: this thread holds keys already, has a transaction that runs, or is within a scan.
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
            // What is free and no more: whether the command needs room is not known yet.
            let free = FreeOnly(context.supply);
            let _ = self.appender.reserve(&context.records.log, &free, ROOM_AHEAD, Purpose::Write);
        }
        self.begin_group();
    }

    /// Gives back what is held, and aborts a transaction that was not ended before. Then [`WriterState::end_locked`].
    pub(crate) fn unlock<M: Medium>(&mut self, records: &Records<M>) {
        if self.is_locked() {
            // What it owes is settled with the group of the locks.
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

    /// A transaction was aborted under locks: what was pending where its slots lead again is settled after the unlock,
    /// since that may wait for an epoch.
    pub(super) fn defer_put_back(&mut self, again: Vec<(Owner, u64, Slot)>) {
        self.locks.put_back.extend(again);
    }

    /// What was written under locks that were given back may be told when this has returned; in a group, when that is settled.
    pub(crate) fn end_locked<M: Medium>(&mut self, records: &Records<M>) -> Result<()> {
        if std::mem::take(&mut self.locks.ends_group) { self.flush_group(records) } else { Ok(()) }
    }

    /// The same early, as [`Mutant::KeysUnlockedEarly`] does it.
    #[inline]
    pub(super) fn unlock_early<M: Medium>(&mut self, records: &Records<M>) {
        if planted(Mutant::KeysUnlockedEarly) && self.locks.held == Held::Keys {
            records.stripes().release(&self.locks.numbers, self.version);
            self.locks.numbers.clear();
        }
    }

    /// That no stripe is held by this thread, which is about to do what may wait for whoever wants one.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(crate) fn check_unlocked<M: Medium>(records: &Records<M>, attempted: &str) -> Result<()> {
        records.barrier.held_here(What::has_stripes).map_or(Ok(()), |held| Err(beside_locks(attempted, held)))
    }

    /// Whether the key of `hash` may be written now, or read in a transaction: to check it when the transaction ends
    /// its stripe is waited for.
    ///
    /// # Errors
    /// `InvalidInput`: keys are locked, and this is none of them, or it is not their writer that writes.
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
        if matches!(target, Target::Collection(_))
            || records.stripes().is_held_here(hash)
            || planted(Mutant::KeysUnlockedEarly)
        {
            return Ok(());
        }
        Err(Error::invalid(
            "a key was written, or read in a transaction, that is none of those that were locked: name all keys when they are locked",
        ))
    }

    /// A part of an index is crowded where a key of `hash` was put: it is split, or will be when no key is held, if somebody else has
    /// keys of it now. Behind the closed barrier nobody has.
    #[inline]
    pub(super) fn split<M: Medium>(&mut self, records: &Records<M>, table: &Table, hash: u64, guard: &Guard) {
        if self.locks.held != Held::Keys {
            table.index.split(hash, records, guard);
        } else if !table.index.try_split(hash, records, guard) {
            self.locks.crowded.push((table.owner, hash));
        }
    }

    /// Makes sure that a record of `bytes` fits, of what is free.
    #[inline]
    pub(super) fn reserve_locked<M: Medium>(
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

    /// A transaction met a record that the compactor moves, which waits for the stripes of keys: whether the caller
    /// holds any. Then it fails as if it had found no room.
    pub(super) fn sees_move(&mut self) -> bool {
        self.locks.saw_move = self.locks.held == Held::Keys;
        self.locks.saw_move
    }

    /// Whether a write under the locks found no room, or what is being moved.
    pub(crate) fn wants_room(&self) -> bool {
        self.locks.wanted.is_some() || self.locks.saw_move
    }

    /// Makes the room that a write under locks did not find; no lock may be held. Then what wrote begins again from the beginning.
    ///
    /// # Errors
    /// `OutOfSpace` when there is none to be made; what the medium fails with.
    pub(crate) fn make_room<M: Medium>(&mut self, context: WriteContext<'_, M>) -> Result<()> {
        Self::check_unlocked(context.records, "make space")?;
        if std::mem::take(&mut self.locks.saw_move) {
            // Nobody holds up the compactor now.
            crate::sync::thread::yield_now();
            return Ok(());
        }
        let Some(wanted) = self.locks.wanted.take() else { return Ok(()) };
        let tries = std::mem::take(&mut self.locks.tries);
        if tries >= TRIES_MAX {
            return Err(Error::new(
                ErrorKind::OutOfSpace,
                format!(
                    "room for {} bytes was made {tries} times, and found none when they were written",
                    wanted.total
                ),
            ));
        }
        if wanted.total > wanted.bytes {
            // In one block, if that is to be had: nobody else takes that.
            if self.reserve(context, wanted.total, wanted.purpose).is_ok() {
                self.locks.tries = tries + 1;
                return Ok(());
            }
            // What comes after it is not known. So that it is found by a few tries the store grows by more each time.
            let wished = wanted.total.saturating_mul(1 << tries);
            context.supply.make_free(wanted.total, wished, wanted.purpose);
        }
        self.reserve(context, wanted.bytes, wanted.purpose)?;
        self.locks.tries = tries + 1;
        Ok(())
    }
}

/// That this thread holds nothing of the store that is so, before it takes more at `place`.
pub(super) fn check_free<M: Medium>(
    records: &Records<M>,
    attempted: &str,
    place: Place,
    is_so: impl Fn(What) -> bool,
) -> Result<()> {
    let Some(held) = records.barrier.held_here(is_so) else { return Ok(()) };
    Err(Error::invalid(format!(
        "cannot {attempted} at {place}: {held}, and would wait for itself: end that before, or do both within one"
    )))
}

/// That this thread is not among those that closing the barrier waits for.
fn check_not_inside<M: Medium>(records: &Records<M>, attempted: &str, place: Place) -> Result<()> {
    check_free(records, attempted, place, |_| true)?;
    if reclaim::is_pinned() {
        return Err(Error::invalid(format!(
            "cannot {attempted} at {place}: this thread is within a scan, which is waited for: do it when that has returned"
        )));
    }
    Ok(())
}

/// The closed barrier. Dropped, it is open again.
#[must_use]
pub(crate) struct Alone<'a>(&'a ExclusiveBarrier);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Closes the barrier for a change of what names point to, or for the end of the store: each write and each transaction
/// comes before that, or after it. `None` where this thread has closed it already. The caller locks the catalog after
/// this: a transaction that is waited for may want it.
///
/// # Errors
/// `InvalidInput`: this thread holds keys, has a transaction that runs, or is within a scan.
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
    // With the barrier closed only a read in a window of few instructions notices a name that is written late.
    if planted(Mutant::BarrierOpenForNames) || planted(Mutant::NameWrittenLate) {
        return Ok(None);
    }
    records.barrier.close(|| records.log.epochs().commands());
    Ok(Some(Alone(&records.barrier)))
}

#[cold]
fn awaited() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "cannot begin: another thread locks all keys, and waits for a transaction or a scan of this thread that is under way: end that, and \
         begin again",
    )
}

#[cold]
fn beside_locks(attempted: &str, held: HeldHere) -> Error {
    Error::invalid(format!(
        "cannot {attempted}: {held}, and may wait for itself: end that before, or write by the writer that holds the keys"
    ))
}

/// A writer is inside the barrier.
pub(super) struct Inside(Option<Arc<SeqCounter>>);

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(turns) = &self.0 {
            turns.end();
        }
    }
}
