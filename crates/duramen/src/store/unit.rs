//! Units: any number of writes that count all or not at all, after a crash and to every reader, and that are as if each unit had run alone.
//!
//! What a unit writes goes to the log at once, so it may be of any size; how it is shown and what a crash leaves stands in `write/unit.rs`.

use super::collections::CollectionOn;
use super::tables::TableOn;
use super::writer::WriterOn;
use crate::read::table::Target;
use crate::sync::Arc;
use crate::sync::holding::Place;
use crate::sync::thread::yield_now;
use crate::write::Expect;
use crate::write::batch::In;
use crate::{Error, ErrorKind, Meta, Result, Stamp, Value};
use duramen_media::{Mapped, Medium};
use std::cell::RefCell;
use std::panic::Location;

/// How often a unit runs beside others before it locks all keys. Each time in vain somebody else's write counted, so few units come that
/// far; and one that reads much beside many small writes comes to an end.
const RUNS_MAX: u32 = 16;

/// A unit on the media of this machine.
pub type Unit<'w> = UnitOn<'w, Mapped>;

/// What a unit read, and what it was.
type Read = RefCell<Vec<Expect>>;

/// A unit in progress: see [`WriterOn::unit`].
pub struct UnitOn<'w, M: Medium = Mapped> {
    writer: &'w mut WriterOn<M>,
    /// `None`: it is not checked.
    read: Option<Read>,
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
    /// Units are serialisable: each is as if it had run alone. Of each key that `work` reads through the unit it is remembered what it was,
    /// and when the unit ends, it is checked that nobody else has written it since. If somebody has, nothing is written, and **`work` runs
    /// again from the beginning**, after some runs with all other writers kept out. So it does nothing that cannot be done twice but through
    /// the unit. An error of `work` is returned only when what it had read still holds.
    ///
    /// Within a [group](WriterOn::group) it is shown to others at once and is durable when the group is settled; else it is durable when
    /// this returns.
    ///
    /// A unit sees its own writes. It locks no keys, so reads through it cost little. Who writes a key that it has written waits for its
    /// end, or fails with `Conflict` and begins again; `work` itself, which would wait for itself, is refused to write such a key but through
    /// the unit. What is read by other means, [`reads_unchecked`](UnitOn::reads_unchecked) too, is not checked.
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
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put). `InvalidInput` as [`begin_unit`](Self::begin_unit), and for a key
    /// that is read under [key locks](Self::lock) and is none of them. `Conflict` only
    /// where all keys cannot be locked: under [key locks](Self::lock), or when this thread has another unit that runs.
    #[track_caller]
    pub fn unit<T>(&mut self, mut work: impl FnMut(&mut UnitOn<'_, M>) -> Result<T>) -> Result<T> {
        let place = Location::caller();
        for _ in 0..RUNS_MAX {
            if let Some(worked) = self.run_unit(place, &mut work)? {
                return Ok(worked);
            }
            yield_now();
        }
        if self.pen().is_locked() {
            return Err(ran_in_vain(place));
        }
        self.run_locked(
            |writer| writer.lock_all_at(place).map_err(|_| ran_in_vain(place)),
            |writer| writer.run_unit(place, &mut work)?.ok_or_else(|| ran_in_vain(place)),
        )
    }

    /// Once. `None`: what was read has changed meanwhile, and nothing was written.
    fn run_unit<T>(
        &mut self,
        place: Place,
        work: &mut impl FnMut(&mut UnitOn<'_, M>) -> Result<T>,
    ) -> Result<Option<T>> {
        self.begin_unit_at(place)?;
        let mut unit = UnitOn { writer: self, read: Some(Read::default()) };
        let worked = work(&mut unit);
        let read = unit.read.take().unwrap_or_default().into_inner();
        let (pen, site) = unit.writer.parts();
        match worked {
            Ok(worked) => Ok(pen.commit_unit_if(site.records, &read)?.then_some(worked)),
            Err(error) if error.kind() == ErrorKind::Conflict && !pen.is_locked() => {
                pen.give_up_unit(site.records).map(|()| None)
            }
            Err(error) => {
                if pen.give_up_unit_if(site.records, &read)? {
                    Err(error)
                } else {
                    Ok(None)
                }
            }
        }
    }

    /// As [`unit`](Self::unit), but what `work` reads is not checked: others may write it before the unit ends, and then what `work` made of it
    /// is wrong. It runs once. For what only writes, or reads what nobody else writes; under [key locks](Self::locked) of all keys that it reads
    /// it is as `unit`.
    ///
    /// # Errors
    /// Those of `work`; otherwise as [`StoreOn::put`](crate::StoreOn::put), and as [`begin_unit`](Self::begin_unit). `Conflict` as
    /// [`UnitKeys::put`] and [`commit_unit`](Self::commit_unit).
    #[track_caller]
    pub fn unit_unchecked<T>(&mut self, work: impl FnOnce(&mut UnitOn<'_, M>) -> Result<T>) -> Result<T> {
        self.begin_unit()?;
        let mut unit = UnitOn { writer: self, read: None };
        let worked = work(&mut unit)?;
        unit.writer.commit_unit()?;
        Ok(worked)
    }

    /// Begins what [`unit_unchecked`](Self::unit_unchecked) does, for who cannot write it as a closure: until
    /// [`commit_unit`](Self::commit_unit) or [`give_up_unit`](Self::give_up_unit), and at the latest until the writer is dropped, which gives
    /// it up. What is not written by [`in_unit`](Self::in_unit) meanwhile is no part of it, and must be of other keys.
    ///
    /// Under [key locks](Self::lock) it ends before they are given back. A write that finds no room, or what is being moved, fails
    /// then; the unit is given up, and what runs begins again as [`wants_room`](Self::wants_room) says.
    ///
    /// # Errors
    /// As [`StoreOn::put`](crate::StoreOn::put). `InvalidInput` when a unit of this writer runs, or another writer of this thread holds keys.
    #[track_caller]
    pub fn begin_unit(&mut self) -> Result<()> {
        self.begin_unit_at(Location::caller())
    }

    fn begin_unit_at(&mut self, place: Place) -> Result<()> {
        let (pen, site) = self.parts();
        pen.begin_unit(site.records, place)
    }

    /// Whether a unit runs.
    #[must_use]
    pub fn has_unit(&self) -> bool {
        self.pen().unit_id() != 0
    }

    /// Keys of `table`, which is one of this store, within the unit that runs.
    pub fn in_unit<'u>(&'u mut self, table: &'u TableOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { writer: self, whose: Whose::Table(table), read: None }
    }

    /// Elements of `collection`, which is one of this store, within the unit that runs.
    pub fn in_unit_of<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { writer: self, whose: Whose::Collection(collection), read: None }
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
        UnitKeys { writer: self.writer, whose: Whose::Store, read: self.read.as_ref() }
    }

    /// Keys of `table`, which is one of the writer's store.
    pub fn table<'u>(&'u mut self, table: &'u TableOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { read: self.read.as_ref(), ..self.writer.in_unit(table) }
    }

    /// Elements of `collection`, which is one of the writer's store.
    pub fn collection<'u>(&'u mut self, collection: &'u CollectionOn<M>) -> UnitKeys<'u, M> {
        UnitKeys { read: self.read.as_ref(), ..self.writer.in_unit_of(collection) }
    }

    /// The writer, to read by what a unit has no call for, as ranges: what it reads is as the unit has left it, but is not checked when the
    /// unit ends.
    #[must_use]
    pub fn reads_unchecked(&self) -> &WriterOn<M> {
        self.writer
    }

    /// As [`UnitKeys::get`], of the store's own table.
    ///
    /// # Errors
    /// As [`UnitKeys::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Value<'_>>> {
        Ok(get_noted(self.writer, &Whose::Store, self.read.as_ref(), key)?.1)
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
    whose: Whose<'u, M>,
    read: Option<&'u Read>,
}

/// Whose keys.
enum Whose<'u, M: Medium> {
    Store,
    Table(&'u TableOn<M>),
    Collection(&'u CollectionOn<M>),
}

impl<'u, M: Medium> Whose<'u, M> {
    fn target(&self) -> Target<'u> {
        match self {
            Self::Store => Target::Store,
            Self::Table(table) => table.target(),
            Self::Collection(collection) => collection.target(),
        }
    }

    /// The same, to be kept.
    fn to_keep(&self) -> In {
        match self {
            Self::Store => In::Store,
            Self::Table(table) => In::Named(Arc::clone(&table.named)),
            Self::Collection(collection) => In::Collection(Arc::clone(&collection.table)),
        }
    }
}

/// Looks up a key, and notes what it was, unless the unit wrote it.
fn get_noted<'a, M: Medium>(
    writer: &'a WriterOn<M>,
    whose: &Whose<'_, M>,
    read: Option<&Read>,
    key: &[u8],
) -> Result<(Stamp, Option<Value<'a>>)> {
    let Some(read) = read else { return writer.get_in(whose.target(), key) };
    if writer.pen().is_locked() {
        // Nobody else writes it.
        let records = writer.store().records();
        writer.pen().check_named(records, whose.target(), records.hasher.hash(key))?;
        return writer.get_in(whose.target(), key);
    }
    writer.owed().inspect(|owed| owed.met_own.set(false));
    let looked = writer.get_in(whose.target(), key)?;
    if writer.owed().is_some_and(|owed| !owed.met_own.get()) {
        read.borrow_mut().push((whose.to_keep(), key.to_vec(), looked.0));
    }
    Ok(looked)
}

fn ran_in_vain(place: Place) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!(
            "the unit at {place} was run {RUNS_MAX} times, and what it had read was written by others each time: give up what this thread \
             holds, and begin again"
        ),
    )
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
        get_noted(self.writer, &self.whose, self.read, key)
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
        let target = self.whose.target();
        let (pen, site) = self.writer.parts();
        pen.write_in_unit(site, target, key, value, asks)
    }
}
