//! Key locks: several reads and writes of named keys, without any write of others in between.

use crate::api::writer::WriterOn;
use crate::{Error, Result};
use duramen_log::sync::holding::Place;
use duramen_media::Medium;
use std::panic::Location;

impl<M: Medium> WriterOn<M> {
    /// Runs `work` while nobody else writes `keys`: its reads and writes of them through the given writer are one step
    /// for all other writers, and for readers that lock too. Keys are named without their tables: the lock covers the
    /// name in every table. Writers that name different keys run concurrently, and none can deadlock.
    ///
    /// `work` must write no other keys, except elements of collections, and only through this writer. It must not
    /// create, clear or drop a table, or lock more keys. Violations are refused with `InvalidInput`, since the call
    /// might wait for itself. Reads without a lock may see one of its writes without the next, and so may a crash: to
    /// write several keys together, use one [`Batch`](crate::Batch). The writes are durable when this returns; in a
    /// [group](WriterOn::group), when it is flushed.
    ///
    /// No space is made while keys are locked. In the rare case that a write finds none free, it fails with
    /// `OutOfSpace`; then the keys are unlocked, space is made, and **`work` runs again from the beginning**. So `work`
    /// must return when a write fails, and must put writes that cannot be repeated into one batch at its end.
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
    /// Those of `work`, of [`WriterOn::flush_group`], and `OutOfSpace` when no space can be made. `InvalidInput` when
    /// the thread holds keys of the store already or has an active [transaction](WriterOn::begin_transaction), or
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

    /// As [`locked`](Self::locked), for callers that cannot name the keys: no other writer of the store writes
    /// anything, or holds a key, while `work` runs. It costs a system call, and waits for all writes under way.
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

    pub(crate) fn run_locked<T, E: From<Error>>(
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

    /// Begins a [`locked`](Self::locked) section, for callers that cannot use a closure. This writer holds the keys
    /// until [`unlock`](Self::unlock), even if the caller returns early or panics in between.
    ///
    /// # Errors
    /// `InvalidInput` when this thread holds keys of the store already, or has an active transaction. `Conflict` within
    /// a scan whose end another thread awaits to lock all keys.
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

    /// Locks more keys, if nobody else holds one of them now; returns whether they are locked. If not, it still holds
    /// its earlier keys: the caller may unlock, and lock all together.
    pub fn lock_more<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> bool {
        let records = self.store().core().context().records;
        let hashes: Vec<u64> = keys.into_iter().map(|key| records.hasher.hash(key)).collect();
        let (writer_state, context) = self.parts();
        writer_state.lock_more(context.records, &hashes)
    }

    /// Begins a [`locked_all`](Self::locked_all) section.
    ///
    /// # Errors
    /// `InvalidInput` as [`lock`](Self::lock), and within a scan.
    #[track_caller]
    pub fn lock_all(&mut self) -> Result<()> {
        self.lock_all_at(Location::caller())
    }

    pub(crate) fn lock_all_at(&mut self, place: Place) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.lock_all(context, place)
    }

    /// Releases the locks. Without any, it does nothing.
    ///
    /// # Errors
    /// Those of [`WriterOn::flush_group`], when it was not in a group. `InvalidInput` when a transaction begun under
    /// the locks is still active: it is aborted.
    pub fn unlock(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        let left = if writer_state.is_locked() { writer_state.transaction_place() } else { None };
        writer_state.unlock(context.records);
        self.end_locked()?;
        left.map_or(Ok(()), |place| Err(left_open(place)))
    }

    /// Whether a write under the locks found no room: the caller must abandon its work, unlock, [make
    /// room](Self::make_room), and begin again.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.writer_state().wants_room()
    }

    /// Makes the room that a write under locks did not find.
    ///
    /// # Errors
    /// `InvalidInput` while keys are locked. `OutOfSpace` when none can be made; otherwise as
    /// [`StoreOn::put`](crate::StoreOn::put).
    pub fn make_room(&mut self) -> Result<()> {
        let (writer_state, context) = self.parts();
        writer_state.make_room(context)
    }

    /// Checks whether a put of a new record would find room beyond the rest of the current block, and makes room as
    /// that put would; puts nothing.
    ///
    /// # Errors
    /// `InvalidInput` while keys are locked. `OutOfSpace` when there is none, although a short record may still fit
    /// into the rest of a block. Otherwise as [`StoreOn::put`](crate::StoreOn::put).
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
        "the transaction begun at {place} was still active at the unlock, and was aborted: commit it before"
    ))
}

/// Releases the locks, also in a panic.
struct Unlocks<'w, M: Medium>(&'w mut WriterOn<M>);

impl<M: Medium> Drop for Unlocks<'_, M> {
    fn drop(&mut self) {
        let (writer_state, context) = self.0.parts();
        writer_state.unlock(context.records);
    }
}
