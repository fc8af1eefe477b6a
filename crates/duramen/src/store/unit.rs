//! Units: any number of writes that count all or not at all, after a crash and to every reader.

use super::collections::CollectionOn;
use super::tables::TableOn;
use super::writer::WriterOn;
use crate::read::table::Target;
use crate::{Batch, Error, ErrorKind, Meta, Result, Stamp, Swap, Value};
use duramen_media::{Mapped, Medium};

/// A unit on the media of this machine.
pub type Unit<'w> = UnitOn<'w, Mapped>;

/// A unit in progress: see [`WriterOn::unit`].
pub struct UnitOn<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    batch: Batch,
}

impl<M: Medium> std::fmt::Debug for UnitOn<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<M: Medium> WriterOn<M> {
    /// Writes what `work` writes through the unit that it is given, all or nothing: after a crash, and to every reader. It is shown
    /// when `work` has returned `Ok`; on `Err`, or a panic, nothing of it is left.
    ///
    /// Within a [group](WriterOn::group) it is shown to others at once and is durable when the group is settled; else it is durable when
    /// this returns.
    ///
    /// What it writes waits in DRAM, as one [`Batch`], until `work` has returned: reads through the unit tell what was
    /// there before it. Units lock no keys. Who reads and writes keys that others write too keeps them away meanwhile.
    ///
    /// # Errors
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put).
    pub fn unit<T>(&mut self, work: impl FnOnce(&mut UnitOn<'_, M>) -> Result<T>) -> Result<T> {
        let mut unit = UnitOn { writer: self, batch: Batch::new() };
        let worked = work(&mut unit)?;
        let UnitOn { writer, batch } = unit;
        match writer.apply(&batch)? {
            Swap::Done => Ok(worked),
            Swap::Changed => Err(Error::new(ErrorKind::InvalidInput, "a unit without conditions failed one")),
        }
    }
}

impl<'w, M: Medium> UnitOn<'w, M> {
    /// The store's own keys.
    pub fn store(&mut self) -> UnitKeys<'_, 'w, M> {
        self.batch.now = crate::write::batch::In::Store;
        UnitKeys { unit: self, target: Target::Store }
    }

    /// Keys of `table`, which is one of the writer's store.
    pub fn table<'u>(&'u mut self, table: &'u TableOn<M>) -> UnitKeys<'u, 'w, M> {
        self.batch.table(Some(table));
        UnitKeys { unit: self, target: table.target() }
    }

    /// Elements of `collection`, which is one of the writer's store.
    pub fn collection<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> UnitKeys<'u, 'w, M> {
        self.batch.collection(collection);
        UnitKeys { unit: self, target: collection.target() }
    }

    /// As [`UnitKeys::get`], of the store's own table.
    ///
    /// # Errors
    /// As [`UnitKeys::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        self.writer.get(key)
    }

    /// As [`UnitKeys::put`], in the store's own table.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store().put(key, value)
    }

    /// As [`UnitKeys::delete`], in the store's own table.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.store().delete(key)
    }
}

/// The keys of one table, or the elements of one collection, within a unit. Costs nothing: make it for each call.
pub struct UnitKeys<'u, 'w, M: Medium = Mapped> {
    unit: &'u mut UnitOn<'w, M>,
    target: Target<'u>,
}

impl<M: Medium> std::fmt::Debug for UnitKeys<'_, '_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnitKeys").finish_non_exhaustive()
    }
}

impl<M: Medium> UnitKeys<'_, '_, M> {
    /// The value of `key`, as it was before the unit.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(self.get_stamped(key)?.1)
    }

    /// As `get`, and the key's stamp, also when it is absent or expired.
    ///
    /// # Errors
    /// As [`StoreOn::get`](crate::StoreOn::get).
    pub fn get_stamped(&self, key: &[u8]) -> Result<(Stamp, Option<Value<'_>>)> {
        self.unit.writer.get_in(self.target, key)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put). The unit is to be given up then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with what goes with it; with [`Meta::collection`] it is a root. `meta.updatable` is ignored.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.replace(key, Some((value, meta))).map(|_| ())
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`UnitKeys::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let was = self.get(key)?.is_some();
        self.unit.batch.delete(key);
        Ok(was)
    }

    /// Sets `key` to a value, or deletes it for `None`; returns what went with the live value that was there.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        let before = self.get(key)?.map(|value| value.meta());
        match value {
            Some((value, meta)) => self.unit.batch.put_with(key, value, meta),
            None => self.unit.batch.delete(key),
        };
        Ok(before)
    }
}
