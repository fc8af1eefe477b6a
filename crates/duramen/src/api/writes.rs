//! Writes, the same for the store's own table, a named table and a collection.

use crate::api::StoreOn;
use crate::api::collections::CollectionOn;
use crate::api::reads::{Keys, Reads};
use crate::api::tables::TableOn;
use crate::api::writer::WriterOn;
use crate::cell::update::{Modified, Update};
use crate::table::tables::Target;
use crate::writer::{Swap, WriteContext, WriterState};
use crate::{Meta, Range, Result, Stamp, Value};
use duramen_media::{Mapped, Medium};
use std::ops::RangeBounds;

/// A writer's writes to one table or collection: see [`WriterOn::write`]. Costs nothing: make it for each call. Its
/// reads see the writer's own writes, as those of [`WriterOn::read`].
///
/// Every call returns `NotFound` when the table was dropped or the collection is gone.
pub struct Writes<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    target: Target<'w>,
}

impl<M: Medium> std::fmt::Debug for Writes<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writes").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<'w, M: Medium> Writes<'w, M> {
    #[inline(always)]
    pub(crate) fn new(writer: &'w mut WriterOn<M>, target: Target<'w>) -> Self {
        Self { writer, target }
    }

    #[inline(always)]
    fn parts(&mut self) -> (&mut WriterState, WriteContext<'_, M>, Target<'w>) {
        let (writer_state, context) = self.writer.parts();
        (writer_state, context, self.target)
    }

    fn reads(&self) -> Reads<'_, M> {
        Reads::new(self.writer.store().records(), self.target, self.writer.read_barrier())
    }

    /// See [`Reads::get`](crate::Reads::get).
    ///
    /// # Errors
    /// See there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        self.reads().get(key)
    }

    /// See [`Reads::get_stamped`](crate::Reads::get_stamped).
    ///
    /// # Errors
    /// See there.
    pub fn get_stamped(&self, key: impl AsRef<[u8]>) -> Result<(Stamp, Option<Value<'_>>)> {
        self.reads().get_stamped(key)
    }

    /// See [`Reads::range`](crate::Reads::range).
    ///
    /// # Errors
    /// See there.
    pub fn range<'k>(&self, keys: impl RangeBounds<&'k [u8]>) -> Result<Range<'_, M>> {
        self.reads().range(keys)
    }

    /// Sets `key` to `value`. When it returns, the write survives whatever the durability and the medium promise. Later
    /// reads of this thread come after it for every other thread too. Loads of the caller's own atomics do so only
    /// after a `fence(SeqCst)`.
    ///
    /// # Errors
    /// `InvalidInput` for a key above [`KEY_BYTES_MAX`](crate::KEY_BYTES_MAX) or a value above
    /// [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX); `OutOfSpace`; `Poisoned`; `Io`.
    #[inline(always)]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with this metadata.
    ///
    /// # Errors
    /// As [`Writes::put`].
    #[inline(always)]
    pub fn put_with(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, meta: Meta) -> Result<()> {
        let (writer_state, context, target) = self.parts();
        writer_state.put(context, target, key.as_ref(), value.as_ref(), meta)
    }

    /// Removes `key`; returns whether it was present. It is permanently gone, even where its record is damaged or may
    /// be ([`Reads::get`](crate::Reads::get) answers `Corrupt`). Then it is unknown whether it was present, and the
    /// answer is true. So false always means that it was absent.
    ///
    /// # Errors
    /// As [`Writes::put`]; deletes have space kept back for them.
    #[inline(always)]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let (writer_state, context, target) = self.parts();
        writer_state.delete(context, target, key.as_ref())
    }

    /// Sweeps `key` if its value has expired; returns whether this call did it. The listener for expired keys
    /// ([`StoreOn::set_on_expired`]) is not called for it.
    ///
    /// # Errors
    /// As [`Reads::get`](crate::Reads::get).
    pub fn expire(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        let (writer_state, context, target) = self.parts();
        writer_state.expire(context.records, target, key.as_ref())
    }

    /// Sets `key` to a value, or deletes it for `None`; returns the metadata of the live value that was there.
    ///
    /// # Errors
    /// As [`Writes::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        let (writer_state, context, target) = self.parts();
        writer_state.replace(context, target, key, value)
    }

    /// Writes only if the key's stamp is still `seen`; `None` deletes.
    ///
    /// # Errors
    /// As [`Writes::put`].
    pub fn compare_and_swap(
        &mut self,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        let (writer_state, context, target) = self.parts();
        writer_state.compare_and_swap(context, target, key, seen, value)
    }

    /// Overwrites `bytes` of the value, from byte `at` on, and returns how: [`Update::InPlace`] costs a fraction of
    /// [`Update::NewVersion`], which reads and writes the whole value. It is one atomic store if the value was put as
    /// [`Meta::updatable`], the range is 1, 2, 4 or 8 bytes (16 where the CPU documents such stores as atomic) and
    /// aligned in the record, and each write is durable alone. Otherwise it is a new version of the whole value.
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`Writes::put`].
    #[inline(always)]
    pub fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Update> {
        let (writer_state, context, target) = self.parts();
        Ok(writer_state.update(context, target, key, None, (at, bytes))?.unwrap_or(Update::Absent))
    }

    /// As [`Writes::update`], but only if the key's stamp is still `seen`; `None` (and nothing written) when it is not.
    /// For all others, comparison and store are one step.
    ///
    /// The stamp of a value that is updated in place is computed from its bytes: two updates that restore the same
    /// bytes look like none. A caller that must distinguish them keeps a count of updates next to the updated field.
    ///
    /// # Errors
    /// As [`Writes::update`].
    pub fn compare_and_update(
        &mut self,
        key: &[u8],
        seen: Stamp,
        at: usize,
        bytes: &[u8],
    ) -> Result<Option<Update>> {
        let (writer_state, context, target) = self.parts();
        writer_state.update(context, target, key, Some(seen), (at, bytes))
    }

    /// Reads a value and updates 8 bytes of it in place, both as one step for all others. `change` gets the value with
    /// its metadata, and returns the bytes to store and their offset, or `None` for no change. It runs under a lock: it
    /// must be short and must not use the store.
    ///
    /// Where an update in place is not possible (see [`Writes::update`]) nothing is done; then read the value and write
    /// it with [`Writes::compare_and_swap`] or [`Writes::compare_and_update`].
    ///
    /// # Errors
    /// `InvalidInput` when the range is not within the value; otherwise as [`Writes::put`].
    #[track_caller]
    pub fn modify_in_place(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Meta, &[u8]) -> Option<(usize, [u8; 8])>,
    ) -> Result<Modified> {
        let (writer_state, context, target) = self.parts();
        writer_state.modify_in_place(context.records, target, key, change)
    }
}

impl<M: Medium> WriterOn<M> {
    /// Writes to a table or a collection of this writer's store.
    pub fn write<'w>(&'w mut self, keys: &'w impl Keys<M>) -> Writes<'w, M> {
        debug_assert!(
            std::ptr::eq(self.store().core(), keys.store().core()),
            "the table or collection belongs to another store"
        );
        Writes::new(self, keys.target())
    }

    /// As [`WriterOn::write`], for keys of `table`.
    pub fn table<'w>(&'w mut self, table: &'w TableOn<M>) -> Writes<'w, M> {
        self.write(table)
    }

    /// As [`WriterOn::write`], for elements of `collection`.
    pub fn collection<'w>(&'w mut self, collection: &'w CollectionOn<M>) -> Writes<'w, M> {
        self.write(collection)
    }

    /// Writes to the store's own table.
    #[inline(always)]
    pub fn writes(&mut self) -> Writes<'_, M> {
        Writes::new(self, Target::Store)
    }

    /// See [`Writes::put`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    // Inlined into a large function it takes 115 instructions more, of 1,650.
    #[inline(never)]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.writes().put(key, value)
    }

    /// See [`Writes::put_with`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn put_with(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>, meta: Meta) -> Result<()> {
        self.writes().put_with(key, value, meta)
    }

    /// See [`Writes::delete`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.writes().delete(key)
    }

    /// See [`Writes::replace`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.writes().replace(key, value)
    }

    /// See [`Writes::compare_and_swap`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn compare_and_swap(
        &mut self,
        key: &[u8],
        seen: Stamp,
        value: Option<(&[u8], Meta)>,
    ) -> Result<Swap> {
        self.writes().compare_and_swap(key, seen, value)
    }

    /// See [`Writes::update`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Update> {
        self.writes().update(key, at, bytes)
    }

    /// See [`Writes::compare_and_update`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    pub fn compare_and_update(
        &mut self,
        key: &[u8],
        seen: Stamp,
        at: usize,
        bytes: &[u8],
    ) -> Result<Option<Update>> {
        self.writes().compare_and_update(key, seen, at, bytes)
    }

    /// See [`Writes::modify_in_place`], in the store's own table.
    ///
    /// # Errors
    /// See there.
    #[track_caller]
    pub fn modify_in_place(
        &mut self,
        key: &[u8],
        change: impl FnOnce(Meta, &[u8]) -> Option<(usize, [u8; 8])>,
    ) -> Result<Modified> {
        self.writes().modify_in_place(key, change)
    }
}

/// The writes that a store, a table and a collection have themselves, by the calling thread's own writer.
macro_rules! write_directly {
    ($handle:ident, $self:ident, $target:expr, $store:expr) => {
        impl<M: Medium> $handle<M> {
            /// See [`Writes::put`]; by the calling thread's own writer.
            ///
            /// # Errors
            /// See there.
            pub fn put(&$self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
                $self.put_with(key, value, Meta::default())
            }

            /// See [`Writes::put_with`]; by the calling thread's own writer.
            ///
            /// # Errors
            /// See there.
            pub fn put_with(
                &$self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                meta: Meta,
            ) -> Result<()> {
                let (key, value) = (key.as_ref(), value.as_ref());
                $store.with_writer_state(|writer_state, context| {
                    writer_state.put(context, $target, key, value, meta)
                })
            }

            /// See [`Writes::delete`]; by the calling thread's own writer.
            ///
            /// # Errors
            /// See there.
            pub fn delete(&$self, key: impl AsRef<[u8]>) -> Result<bool> {
                let key = key.as_ref();
                $store.with_writer_state(|writer_state, context| writer_state.delete(context, $target, key))
            }

            /// See [`Writes::update`]; by the calling thread's own writer.
            ///
            /// # Errors
            /// See there.
            pub fn update(&$self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Update> {
                $store.with_writer_state(|writer_state, context| {
                    let updated = writer_state.update(context, $target, key, None, (at, bytes))?;
                    Ok(updated.unwrap_or(Update::Absent))
                })
            }
        }
    };
}

write_directly!(StoreOn, self, Target::Store, self);
write_directly!(TableOn, self, self.target(), self.store());
write_directly!(CollectionOn, self, self.target(), self.store());
