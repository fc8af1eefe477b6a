//! Units: any number of writes that count all or not at all, after a crash and to every reader.
//!
//! What a unit writes goes to the log at once, so it may be of any size; how it is shown and what a crash leaves stands in `write/unit.rs`.

use super::collections::CollectionOn;
use super::tables::TableOn;
use super::writer::WriterOn;
use crate::read::table::Target;
use crate::{Error, Meta, Result, Stamp, Value};
use duramen_media::{Mapped, Medium};

/// A unit on the media of this machine.
pub type Unit<'w> = UnitOn<'w, Mapped>;

/// A unit in progress: see [`WriterOn::unit`].
pub struct UnitOn<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
}

impl<M: Medium> Drop for UnitOn<'_, M> {
    fn drop(&mut self) {
        // Of one that was committed there is nothing to give up. Why one could not be settled that is given up concerns who asks next.
        let _ = self.writer.give_up_unit();
    }
}

impl<M: Medium> std::fmt::Debug for UnitOn<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unit").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl<M: Medium> WriterOn<M> {
    /// Writes what `work` writes through the unit that it is given, all or nothing: after a crash, and to every reader. It is shown
    /// when `work` has returned `Ok`, by one step; on `Err`, or a panic, nothing of it is left. Any number of keys and bytes, of any tables and
    /// collections; of what is written nothing is copied or kept in DRAM, but for what the index takes.
    ///
    /// Within a [group](WriterOn::group) it is shown to others at once and is durable when the group is settled; else it is durable when
    /// this returns.
    ///
    /// A unit sees its own writes. It locks no keys: others may write what it has read. Who writes a key that it has written waits for its
    /// end, or fails with `Conflict` and begins again; so `work` must not write any key of the store but through the unit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let store = duramen::Options::default().open(dir.path().join("store"))?;
    /// store.put(b"ada", b"100")?;
    /// let mut writer = store.writer()?;
    /// let left = writer.unit(|unit| {
    ///     let ada: u64 = std::str::from_utf8(&unit.get(b"ada")?.unwrap()).unwrap().parse().unwrap();
    ///     unit.put(b"ada", (ada - 30).to_string().as_bytes())?;
    ///     unit.put(b"bob", b"30")?;
    ///     Ok(ada - 30)
    /// })?;
    /// assert_eq!(left, 70);
    /// assert_eq!(&*store.get(b"bob")?.unwrap(), b"30");
    /// # Ok::<(), duramen::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put).
    pub fn unit<T>(&mut self, work: impl FnOnce(&mut UnitOn<'_, M>) -> Result<T>) -> Result<T> {
        self.begin_unit()?;
        let mut unit = UnitOn { writer: self };
        let worked = work(&mut unit)?;
        unit.writer.commit_unit()?;
        Ok(worked)
    }

    /// Begins what [`unit`](Self::unit) does, for who cannot write it as a closure: until [`commit_unit`](Self::commit_unit) or
    /// [`give_up_unit`](Self::give_up_unit), and at the latest until the writer is dropped, which gives it up. No unit may run. What is
    /// not written by [`in_unit`](Self::in_unit) meanwhile is no part of it, and must be of other keys.
    ///
    /// Under [key locks](Self::lock) it ends before they are given back. A write that finds no room, or what is being moved, fails
    /// then; the unit is given up, and what runs begins again as [`wants_room`](Self::wants_room) says.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put).
    pub fn begin_unit(&mut self) -> Result<()> {
        let (pen, site) = self.parts();
        pen.begin_unit(site.records)
    }

    /// Whether a unit runs.
    #[must_use]
    pub fn has_unit(&self) -> bool {
        self.pen().unit_id() != 0
    }

    /// Keys of `table`, which is one of this store, within the unit that runs.
    pub fn in_unit<'u>(&'u mut self, table: &'u TableOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { writer: self, target: table.target() }
    }

    /// Elements of `collection`, which is one of this store, within the unit that runs.
    pub fn in_unit_of<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { writer: self, target: collection.target() }
    }

    /// Ends the unit that runs, and shows it.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put); `OutOfSpace` when one of its writes found no room, and `Conflict` when a key that it
    /// deleted, and that was not there, was written meanwhile: then it was given up.
    pub fn commit_unit(&mut self) -> Result<()> {
        let (pen, site) = self.parts();
        pen.commit_unit(site.records)
    }

    /// Gives the unit up that runs: nothing of it is left. Without one it does nothing.
    ///
    /// # Errors
    /// As [`WriterOn::settle`], when it is in no group: of what was read, not of the unit.
    pub fn give_up_unit(&mut self) -> Result<()> {
        let (pen, site) = self.parts();
        pen.give_up_unit(site.records)
    }
}

impl<M: Medium> UnitOn<'_, M> {
    /// The store's own keys.
    pub fn store(&mut self) -> UnitKeys<'_, M> {
        UnitKeys { writer: self.writer, target: Target::Store }
    }

    /// Keys of `table`, which is one of the writer's store.
    pub fn table<'u>(&'u mut self, table: &'u TableOn<M>) -> UnitKeys<'u, M> {
        self.writer.in_unit(table)
    }

    /// Elements of `collection`, which is one of the writer's store.
    pub fn collection<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> UnitKeys<'u, M> {
        self.writer.in_unit_of(collection)
    }

    /// The writer, to read by: what it reads is as the unit has left it.
    #[must_use]
    pub fn reads(&self) -> &WriterOn<M> {
        self.writer
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
pub struct UnitKeys<'u, M: Medium = Mapped> {
    writer: &'u mut WriterOn<M>,
    target: Target<'u>,
}

impl<M: Medium> std::fmt::Debug for UnitKeys<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnitKeys").finish_non_exhaustive()
    }
}

impl<M: Medium> UnitKeys<'_, M> {
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
        self.writer.get_in(self.target, key)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// `Conflict` when another unit that runs has written the key, and neither may wait for the other; otherwise as
    /// [`StoreOn::put`](crate::StoreOn::put). Then `work` should return the error, so that the unit is given up.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, Meta::default())
    }

    /// Sets `key` to `value`, with what goes with it; with [`Meta::collection`] it is a root. `meta.updatable` is ignored.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], meta: Meta) -> Result<()> {
        self.write(key, Some((value, meta)), false).map(|_| ())
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As [`UnitKeys::put`]; deletes have space kept back for them.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.replace(key, None)?.is_some())
    }

    /// Sets `key` to a value, or deletes it for `None`; returns what went with the live value that was there.
    ///
    /// # Errors
    /// As [`UnitKeys::put`].
    pub fn replace(&mut self, key: &[u8], value: Option<(&[u8], Meta)>) -> Result<Option<Meta>> {
        self.write(key, value, true)
    }

    fn write(&mut self, key: &[u8], value: Option<(&[u8], Meta)>, asks: bool) -> Result<Option<Meta>> {
        if !self.writer.has_unit() {
            return Err(Error::invalid("a write within a unit, and none runs: begin one before"));
        }
        let (pen, site) = self.writer.parts();
        pen.write_in_unit(site, self.target, key, value, asks)
    }
}
