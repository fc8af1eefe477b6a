//! Key locks: several reads and writes of named keys, with nobody else in between.

use super::writer::WriterOn;
use crate::sync::holding::Place;
use crate::{Error, Result};
use duramen_media::Medium;
use std::panic::Location;

impl<M: Medium> WriterOn<M> {
    /// Runs `work` while nobody else writes `keys`: what it reads and writes of them through the writer that it is given is one step to all other
    /// writers, and to readers that lock too. Keys are named without their tables: what has this name in any table is locked. Many
    /// writers run at once as long as they name different keys, and none waits in a circle.
    ///
    /// `work` writes no other keys, except elements of collections, and nothing but by this writer; it makes, clears and drops no table, and
    /// locks no more keys. What it may not do is refused with `InvalidInput`, since it might wait for itself. Reads that take no lock may see one of its
    /// writes without the next, and so may a crash: who writes several keys writes one [`Batch`](crate::Batch). What was written is
    /// durable when this returns; in a [group](WriterOn::group), when it is settled.
    ///
    /// No space is made while keys are locked. In the rare case that a write finds none free it fails with `OutOfSpace`; then
    /// keys are unlocked, space is made, and **`work` runs again from the beginning**. So it ends when a write fails, and what cannot bear to be
    /// done twice (its first write before one that may fail) is one batch at its end.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = duramen::Options::default().open(dir.path().join("store"))?;
    /// store.put(b"stock", b"3")?;
    /// let mut writer = store.writer()?;
    /// let left = writer.locked([&b"stock"[..], b"sold"], |writer| {
    ///     let stock = writer.get(b"stock")?.map_or(0, |value| value[0] - b'0');
    ///     let mut batch = duramen::Batch::new();
    ///     batch.put(b"stock", &[b'0' + stock - 1]).put(b"sold", b"1");
    ///     let _ = writer.apply(&batch)?;
    ///     Ok::<_, duramen::Error>(stock - 1)
    /// })?;
    /// assert_eq!(left, 2);
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`, of [`WriterOn::flush_group`], and `OutOfSpace` when no space is to be had. `InvalidInput` when
    /// the thread holds keys of the store already or has a [transaction](WriterOn::begin_transaction) that runs, or
    /// `work` has begun a transaction and not ended it.
    #[track_caller]
    pub fn locked<'k, T, E: From<Error>>(
        &mut self,
        keys: impl IntoIterator<Item = &'k [u8], IntoIter: Clone>,
        work: impl FnMut(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (keys, place) = (keys.into_iter(), Location::caller());
        self.run_locked(|writer| writer.lock_at(keys.clone(), place), work)
    }

    /// As [`locked`](Self::locked), for who cannot name the keys: no other writer of the store writes anything, or holds a key, while `work`
    /// runs. It costs a call of the kernel, and waits for all that is under way.
    ///
    /// # Errors
    /// As [`locked`](Self::locked).
    #[track_caller]
    pub fn locked_all<T, E: From<Error>>(
        &mut self,
        work: impl FnMut(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let place = Location::caller();
        self.run_locked(|writer| writer.lock_all_at(place), work)
    }

    pub(super) fn run_locked<T, E: From<Error>>(
        &mut self,
        mut lock: impl FnMut(&mut Self) -> Result<()>,
        mut work: impl FnMut(&mut Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        loop {
            lock(self)?;
            let held = Unlocks(self);
            let done = work(held.0);
            let wants_room = held.0.wants_room();
            let left = held.0.writer_state().transaction_place();
            drop(held);
            self.end_locked()?;
            if !wants_room {
                return done.and_then(|done| left.map_or(Ok(done), |place| Err(left_open(place).into())));
            }
            self.make_room()?;
        }
    }

    /// Begins what [`locked`](Self::locked) does, for who cannot write it as a closure: the keys are this writer's until
    /// [`unlock`](Self::unlock), also when the caller returns early or panics in between.
    ///
    /// # Errors
    /// `InvalidInput` when this thread holds keys of the store already, or has a transaction that runs. `Conflict`
    /// within a scan, for whose end another thread waits that locks all keys.
    #[track_caller]
    pub fn lock<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<()> {
        self.lock_at(keys, Location::caller())
    }

    fn lock_at<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>, place: Place) -> Result<()> {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes.extend(keys.into_iter().map(|key| self.store().records().hasher.hash(key)));
        let (writer_state, context) = self.parts();
        let locked = writer_state.lock_keys(context, &hashes, place);
        self.hashes = hashes;
        locked
    }

    /// Locks more keys, if nobody else has one of them now; whether they are locked. If not, it holds what it held: then it
    /// may unlock, and lock all together.
    pub fn lock_more<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> bool {
        let records = self.store().core().context().records;
        let hashes: Vec<u64> = keys.into_iter().map(|key| records.hasher.hash(key)).collect();
        let (writer_state, context) = self.parts();
        writer_state.lock_more(context.records, &hashes)
    }

    /// Begins what [`locked_all`](Self::locked_all) does.
    ///
    /// # Errors
    /// `InvalidInput` as [`lock`](Self::lock), and within a scan.
    #[track_caller]
    pub fn lock_all(&mut self) -> Result<()> {
        self.lock_all_at(Location::caller())
    }

    pub(super) fn lock_all_at(&mut self, place: Place) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.lock_all(context, place)
    }

    /// Gives back what is locked. Without, it does nothing.
    ///
    /// # Errors
    /// Those of [`WriterOn::flush_group`], when it was not in a group. `InvalidInput` when a transaction runs that was
    /// begun under the locks: it is given up.
    pub fn unlock(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        let left = if writer_state.is_locked() { writer_state.transaction_place() } else { None };
        writer_state.unlock(context.records);
        self.end_locked()?;
        left.map_or(Ok(()), |place| Err(left_open(place)))
    }

    /// Whether a write under the locks found no room: what runs gives up, unlocks, [makes room](Self::make_room), and begins again.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.writer_state().wants_room()
    }

    /// Makes the room that a write under locks did not find.
    ///
    /// # Errors
    /// `InvalidInput` while keys are locked. `OutOfSpace` when there is none to be made; otherwise as [`StoreOn::put`](crate::StoreOn::put).
    pub fn make_room(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.make_room(context)
    }

    /// Looks whether a put of a new record would find room beyond what is left of the block that is written to, and makes
    /// some as that put would; puts nothing.
    ///
    /// # Errors
    /// `InvalidInput` while keys are locked. `OutOfSpace` when there is none, though a short record may still fit into what is left of a block. Otherwise as
    /// [`StoreOn::put`](crate::StoreOn::put).
    pub fn find_room(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.find_room(context)
    }

    fn end_locked(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.end_locked(context.records)
    }
}

fn left_open(place: Place) -> Error {
    Error::invalid(format!(
        "a transaction begun at {place} ran when the keys were given back, and was given up: commit it before"
    ))
}

/// Gives back what is locked, also in a panic.
struct Unlocks<'w, M: Medium>(&'w mut WriterOn<M>);

impl<M: Medium> Drop for Unlocks<'_, M> {
    fn drop(&mut self) {
        let (writer_state, context) = self.0.parts();
        writer_state.unlock(context.records);
    }
}
