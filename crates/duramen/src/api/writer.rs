//! The handle of a writer.

use crate::api::StoreOn;
use crate::api::core::Held;
use crate::cell::update::{Modified, Update};
use crate::get::barrier::ReadBarrier;
use crate::get::lookup::Looked;
use crate::table::tables::Target;
use crate::transaction::batch::Batch;
use crate::writer::{Swap, WriteContext, WriterState};
use crate::{Meta, Result, Stamp, Value};
use duramen_log::sync::reclaim;
use duramen_media::{Mapped, Medium};
use std::marker::PhantomData;

/// A writer, made by [`StoreOn::writer`]: a [`WriterOn`] on the media of this machine.
pub type Writer = WriterOn<Mapped>;

/// Makes a type neither `Send` nor `Sync`; the compiler's error shows this name. A thread's reads must see the writes
/// of its own writer, so a writer never changes threads: make one in each thread.
struct StaysInTheThreadThatMadeIt(PhantomData<*const ()>);

/// Appends to its own blocks; one for each thread (Viper's client). `&mut self` to write, `&self` to read. Other
/// writers of the same store contend with it only on the bucket of a key.
///
/// Make it in the thread that uses it: it stays there, since that thread's own reads must see its writes.
pub struct WriterOn<M: Medium = Mapped> {
    writer_state: Held<M>,
    store: StoreOn<M>,
    /// Of the keys that it locks.
    pub(crate) hashes: Vec<u64>,
    _not_send: StaysInTheThreadThatMadeIt,
}

impl<M: Medium> WriterOn<M> {
    pub(crate) fn new(store: StoreOn<M>) -> Self {
        Self {
            writer_state: Held::new(&store.shared.core),
            store,
            hashes: Vec::new(),
            _not_send: StaysInTheThreadThatMadeIt(PhantomData),
        }
    }

    /// The store that it writes to.
    #[must_use]
    pub fn store(&self) -> &StoreOn<M> {
        &self.store
    }

    /// The read barrier of the group, if there is one.
    pub(crate) fn read_barrier(&self) -> Option<&ReadBarrier> {
        self.writer_state.writer_state.read_barrier()
    }

    /// The value of `key`, without copying it.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        Ok(self.get_stamped(key)?.1)
    }

    /// As `get`, with the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`StoreOn::get`].
    pub fn get_stamped(&self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'_>>)> {
        let key = key.as_ref();
        self.get_in(Target::Store, key)
    }

    pub(crate) fn get_in<'a>(&'a self, target: Target<'_>, key: &[u8]) -> Result<(Stamp, Option<Value<'a>>)> {
        let records = self.store.records();
        records.log.epochs().check_process()?;
        let guard = reclaim::pin();
        let table = records.tables.at(target, &guard)?;
        Ok(match records.look_up(table, key, records.hasher.hash(key), &guard, self.read_barrier())? {
            Looked::Absent(stamp) => (stamp, None),
            Looked::Present(value) => (value.stamp(), Some(value)),
        })
    }

    pub(crate) fn writer_state(&self) -> &WriterState {
        &self.writer_state.writer_state
    }

    /// Its writer state, and the context that it writes in.
    pub(crate) fn parts(&mut self) -> (&mut WriterState, WriteContext<'_, M>) {
        (&mut self.writer_state.writer_state, self.store.core().context())
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.writer_state.writer_state.put(
            self.store.core().context(),
            Target::Store,
            key,
            value,
            Meta::default(),
        )
    }

    /// Sets `key` to `value`, with this metadata.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn put_with(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, meta: Meta) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.writer_state.writer_state.put(self.store.core().context(), Target::Store, key, value, meta)
    }

    /// Removes `key`; returns whether it was present, as [`StoreOn::delete`].
    ///
    /// # Errors
    /// As [`StoreOn::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        self.writer_state.writer_state.delete(self.store.core().context(), Target::Store, key)
    }

    /// Sets `key` to a value, or deletes it for `None`; returns the metadata of the live value that was there.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.writer_state.writer_state.replace(self.store.core().context(), Target::Store, key, value)
    }

    /// Writes only if the key's stamp is still `seen`; `None` deletes.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn compare_and_swap(
        &mut self,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        self.writer_state.writer_state.compare_and_swap(
            self.store.core().context(),
            Target::Store,
            key,
            seen,
            value,
        )
    }

    /// Overwrites `bytes` of the value, from byte `at` on, and returns how: [`Update::InPlace`] costs a fraction of
    /// [`Update::NewVersion`], which reads and writes the whole value. It is one atomic store if the value was put as
    /// [`Meta::updatable`], the range is 1, 2, 4 or 8 bytes (16 where the CPU documents such stores as atomic) and
    /// aligned in the record, and each write is durable alone. Otherwise it is a new version of the whole value.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`StoreOn::put`].
    pub fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Update> {
        let updated = self.writer_state.writer_state.update(
            self.store.core().context(),
            Target::Store,
            key,
            None,
            (at, bytes),
        )?;
        Ok(updated.unwrap_or(Update::Absent))
    }

    /// As [`WriterOn::update`], but only if the key's stamp is still `seen`; `None` (and nothing written) when it is
    /// not. For all others, comparison and store are one step.
    ///
    /// The stamp of a value that is updated in place is computed from its bytes: two updates that restore the same
    /// bytes look like none. A caller that must distinguish them keeps a count of updates next to the updated field.
    ///
    /// # Errors
    /// As [`WriterOn::update`].
    pub fn compare_and_update(
        &mut self,
        key: &[u8],
        seen: Stamp,
        at: usize,
        bytes: &[u8],
    ) -> Result<Option<Update>> {
        self.writer_state.writer_state.update(
            self.store.core().context(),
            Target::Store,
            key,
            Some(seen),
            (at, bytes),
        )
    }

    /// Reads a value and updates 8 bytes of it in place, both as one step for all others. `change` gets the value with
    /// its metadata, and returns the bytes to store and their offset, or `None` for no change. It runs under a lock: it
    /// must be short and must not use the store.
    ///
    /// Where an update in place is not possible (see [`WriterOn::update`]) nothing is done; then read the value and
    /// write it with [`WriterOn::compare_and_swap`] or [`WriterOn::compare_and_update`].
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`StoreOn::put`].
    #[track_caller]
    pub fn modify_in_place(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Meta, &[u8]) -> Option<(usize, [u8; 8])>,
    ) -> Result<Modified> {
        self.writer_state.writer_state.modify_in_place(self.store.records(), Target::Store, key, change)
    }

    /// Applies a batch, all or nothing, after a crash and for readers; [`Swap::Changed`] (nothing written) when an
    /// expectation failed.
    ///
    /// # Errors
    /// As [`StoreOn::put`].
    pub fn apply(&mut self, batch: &Batch) -> Result<Swap> {
        self.writer_state.writer_state.apply(self.store.core().context(), batch)
    }

    /// Begins a group: until [`WriterOn::flush_group`], writes return before they are durable, and reads through *this*
    /// writer may show values that are not durable yet. Show no result of a read or write of the group to anybody
    /// before `flush_group` has returned `Ok`. Other readers never see undurable state. One drain, or one wait for the
    /// device shared with other writers, serves the whole group.
    ///
    /// Keep it short: space that is compacted meanwhile is not reused before the group ends.
    pub fn group(&mut self) {
        self.writer_state.writer_state.begin_group();
    }

    /// Makes all writes and reads of the group durable, and ends it. Without a group it does nothing.
    ///
    /// # Errors
    /// As [`StoreOn::commit`]: then nothing of the group may be acknowledged. `InvalidInput` while keys are
    /// [locked](WriterOn::lock): the flush would wait for others that may wait for those keys.
    pub fn flush_group(&mut self) -> Result<()> {
        self.store.records().log.epochs().check_process()?;
        WriterState::check_unlocked(self.store.records(), "flush the group")?;
        self.writer_state.writer_state.flush_group(self.store.records())
    }

    /// Panics within a write, as a bug of the engine would, to test the result: the store is poisoned.
    #[doc(hidden)]
    pub fn panic_within_a_write(&mut self) {
        self.writer_state.writer_state.panic_within_a_write(self.store.records());
    }
}

impl<M: Medium> std::fmt::Debug for WriterOn<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("store", &self.store).finish_non_exhaustive()
    }
}
