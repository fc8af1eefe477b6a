//! Hashes, sets and sorted sets at keys: read as [`Collection`], changed through an [`Edit`].
//!
//! In which form a collection is kept is for [`Form`] to know: today all are packed in the value of their key, whatever
//! their size, so that a write takes time in proportion to the collection. A form for large ones is added here: a variant,
//! and what each method of this file does for it.
//!
//! 1. An empty collection is not there: [`Edit::save`] deletes its key.
//! 2. A collection that changes keeps its expiry time; one that comes to be has none.

use std::ops::{ControlFlow, Deref};

use super::{Found, Txn};
use crate::Type;
use crate::entries::{Encoding, Entries, Names, Scored, Shape, score_of};
use crate::error::{Error, Result};
use crate::keyspace;
use crate::packed::Malformed;
use crate::random::Random;

/// A hash, a set or a sorted set, in bytes of its own or where it lies.
pub struct Collection<'k, B> {
    key: &'k [u8],
    type_: Type,
    form: Form<B>,
}

/// How a collection is kept.
enum Form<B> {
    /// All of it in the value of its key.
    Packed(Entries<B>),
}

/// A hash, a set or a sorted set that is about to change. What is not saved did not happen.
pub struct Edit<'t, 'w> {
    txn: &'t mut Txn<'w>,
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    collection: Collection<'t, Vec<u8>>,
}

impl<'w> Txn<'w> {
    /// The value at `key`; an error when it is of another type.
    pub fn get_of(&mut self, type_: Type, db: u8, key: &[u8]) -> Result<Option<Found<'_>>> {
        match self.get(db, key)? {
            Some(found) if found.tag() != type_.tag() => Err(Error::WrongType),
            found => Ok(found),
        }
    }

    /// The hash at `key`; an error when it holds another type.
    pub fn hash<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Collection<'k, Found<'_>>>> {
        self.collection(Type::Hash, db, key)
    }

    /// The set at `key`; an error when it holds another type.
    pub fn set<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Collection<'k, Found<'_>>>> {
        self.collection(Type::Set, db, key)
    }

    /// The sorted set at `key`; an error when it holds another type.
    pub fn sorted_set<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Collection<'k, Found<'_>>>> {
        self.collection(Type::SortedSet, db, key)
    }

    /// The set or sorted set at `key`; an error when it holds another type.
    pub fn set_or_sorted_set<'k>(
        &mut self,
        db: u8,
        key: &'k [u8],
    ) -> Result<Option<Collection<'k, Found<'_>>>> {
        let Some(found) = self.get(db, key)? else { return Ok(None) };
        match Type::of_tag(found.tag()) {
            Some(type_ @ (Type::Set | Type::SortedSet)) => Collection::of(type_, key, found).map(Some),
            _ => Err(Error::WrongType),
        }
    }

    fn collection<'k>(
        &mut self,
        type_: Type,
        db: u8,
        key: &'k [u8],
    ) -> Result<Option<Collection<'k, Found<'_>>>> {
        let found = self.get_of(type_, db, key)?;
        found.map(|found| Collection::of(type_, key, found)).transpose()
    }

    /// The hash at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_hash<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<Edit<'t, 'w>> {
        self.edit(Type::Hash, db, key)
    }

    /// The set at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_set<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<Edit<'t, 'w>> {
        self.edit(Type::Set, db, key)
    }

    /// The sorted set at `key` to be changed, empty without one; an error when it holds another type. The values of its
    /// entries are the 8 bytes of a double, little-endian, and not NaN.
    pub fn edit_sorted_set<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<Edit<'t, 'w>> {
        self.edit(Type::SortedSet, db, key)
    }

    fn edit<'t>(&'t mut self, type_: Type, db: u8, key: &'t [u8]) -> Result<Edit<'t, 'w>> {
        let (expires_at, old) = self.run_to_edit(type_, db, key)?;
        let is_new = old.is_none();
        let new = || Collection { key, type_, form: Form::Packed(Entries::empty(shape(type_))) };
        let old = old.map(|run| Collection::of(type_, key, run)).transpose()?;
        Ok(Edit { txn: self, db, expires_at, is_new, collection: old.unwrap_or_else(new) })
    }

    /// The expiry time of the value at `key`, and a copy of its bytes to be changed; an error when it is of another type.
    pub(super) fn run_to_edit(
        &mut self,
        type_: Type,
        db: u8,
        key: &[u8],
    ) -> Result<(Option<u64>, Option<Vec<u8>>)> {
        let Some(found) = self.get_of(type_, db, key)? else { return Ok((None, None)) };
        let mut run = Vec::with_capacity(found.len() + EDIT_ROOM_BYTES);
        run.extend_from_slice(&found);
        Ok((found.expires_at(), Some(run)))
    }

    /// Makes a set of these members, no two of which are equal, the value of `key`, over what is there. Without members
    /// the key is deleted. Whether anything was changed.
    pub fn put_set(&mut self, db: u8, key: &[u8], members: Vec<&[u8]>) -> Result<bool> {
        if members.is_empty() {
            return self.delete(db, key);
        }
        self.put_vec(db, key, Entries::set_of(members).into_run(), meta(Type::Set, None))?;
        Ok(true)
    }

    /// Makes a sorted set of these members, no two of which are equal and whose scores are not NaN, the value of `key`,
    /// over what is there. Without members the key is deleted. Whether anything was changed.
    pub fn put_sorted_set(&mut self, db: u8, key: &[u8], members: Vec<Scored<'_>>) -> Result<bool> {
        if members.is_empty() {
            return self.delete(db, key);
        }
        let entries = Entries::sorted_set_of(members);
        self.put_vec(db, key, entries.into_run(), meta(Type::SortedSet, None))?;
        Ok(true)
    }

    /// Makes a hash of these fields and values the value of `key`, over what is there. Without fields the key is deleted.
    pub fn put_hash(&mut self, db: u8, key: &[u8], pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut entries = Entries::empty(Shape::Hash);
        let inserted = entries.insert_all(pairs.iter().copied());
        if inserted.map_err(|malformed| error(Type::Hash, key, malformed))? == 0 {
            self.delete(db, key)?;
            return Ok(());
        }
        self.put_vec(db, key, entries.into_run(), meta(Type::Hash, None))
    }
}

impl<'k, B: Deref<Target = [u8]>> Collection<'k, B> {
    pub(super) fn of(type_: Type, key: &'k [u8], bytes: B) -> Result<Self> {
        let entries = Entries::of(shape(type_), bytes);
        let entries = entries.map_err(|malformed| error(type_, key, malformed))?;
        Ok(Self { key, type_, form: Form::Packed(entries) })
    }

    /// A copy that does not hold the transaction.
    pub fn detached(&self) -> Collection<'k, Vec<u8>> {
        let Form::Packed(entries) = &self.form;
        Collection { key: self.key, type_: self.type_, form: Form::Packed(entries.to_owned()) }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        let Form::Packed(entries) = &self.form;
        entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How Redis would keep it.
    pub fn encoding(&self) -> Encoding {
        let Form::Packed(entries) = &self.form;
        entries.encoding()
    }

    /// The value of a field; of a set's member an empty one.
    pub fn get(&self, name: &[u8]) -> Result<Option<impl Deref<Target = [u8]> + use<'_, 'k, B>>> {
        let Form::Packed(entries) = &self.form;
        self.told(entries.get(name))
    }

    /// The score of a sorted set's member.
    pub fn score(&self, member: &[u8]) -> Result<Option<f64>> {
        Ok(self.get(member)?.map(|value| score_of(&value)))
    }

    /// Whether there is such a field or member.
    pub fn has(&self, name: &[u8]) -> Result<bool> {
        Ok(self.get(name)?.is_some())
    }

    /// Calls `visit` with the value of each of these names in turn, or `None`.
    pub fn get_each<'n>(
        &self,
        names: impl ExactSizeIterator<Item = &'n [u8]>,
        visit: impl FnMut(Option<&[u8]>),
    ) -> Result<()> {
        let Form::Packed(entries) = &self.form;
        self.told(entries.get_each(names, visit))
    }

    /// Calls `visit` for each entry, with name and value, until it breaks.
    pub fn visit(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        let Form::Packed(entries) = &self.form;
        self.told(entries.visit(visit))
    }

    /// Calls `visit` for about `count` entries from `cursor` on, 0 at the begin; the cursor to go on from, 0 at the end. An
    /// entry that is there from the first call to the last is visited.
    pub fn scan(&self, cursor: u64, count: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        let Form::Packed(entries) = &self.form;
        self.told(entries.scan(cursor, count, visit))
    }

    /// Calls `visit` for some entry, if there is one.
    pub fn draw_one(&self, visit: impl FnOnce(&[u8], &[u8])) -> Result<()> {
        let Form::Packed(entries) = &self.form;
        if !self.is_empty() {
            let index = Random::new(keyspace::random()).below(self.len() as u64);
            let (name, value) = self.told(entries.nth(index as usize))?;
            visit(name, value);
        }
        Ok(())
    }

    /// Calls `visit` for entries drawn one by one, so that one may come again, until it breaks.
    pub fn draw(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        let Form::Packed(entries) = &self.form;
        let random = &mut Random::new(keyspace::random());
        self.told(entries.draw(random, visit))
    }

    /// Calls `visit` for `count` entries, or all if there are fewer, each once.
    pub fn sample(&self, count: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let Form::Packed(entries) = &self.form;
        let random = &mut Random::new(keyspace::random());
        self.told(entries.sample(count, random, visit))
    }

    fn told<T>(&self, result: std::result::Result<T, Malformed>) -> Result<T> {
        result.map_err(|malformed| error(self.type_, self.key, malformed))
    }
}

impl<B: Deref<Target = [u8]>> Collection<'_, B> {
    /// All names, to look for many of them.
    pub fn names(&self) -> Result<Names<'_>> {
        let Form::Packed(entries) = &self.form;
        self.told(entries.names())
    }

    /// All entries, in the order of a visit.
    pub fn pairs(&self) -> Result<Vec<(&[u8], &[u8])>> {
        let Form::Packed(entries) = &self.form;
        let mut pairs = Vec::new();
        self.told(entries.visit(|name, value| {
            pairs.push((name, value));
            ControlFlow::Continue(())
        }))?;
        Ok(pairs)
    }

    /// The members of a sorted set with their scores, in their order; those of a set have the score 1.
    pub fn scored(&self) -> Result<Vec<Scored<'_>>> {
        if self.type_ == Type::Set {
            return Ok(self.list()?.into_iter().map(|member| (member, 1.0)).collect());
        }
        let Form::Packed(entries) = &self.form;
        self.told(entries.scored())
    }

    /// All names, in the order of a visit.
    pub fn list(&self) -> Result<Vec<&[u8]>> {
        Ok(self.pairs()?.into_iter().map(|(name, _)| name).collect())
    }
}

impl Edit<'_, '_> {
    /// Puts an entry, or another value in its place; whether the name is new.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<bool> {
        let Form::Packed(entries) = &mut self.collection.form;
        let inserted = entries.insert(name, value);
        self.told(inserted)
    }

    /// Puts many entries; how many names are new. A set's members have empty values.
    pub fn insert_all<'a>(
        &mut self,
        new: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<usize> {
        let Form::Packed(entries) = &mut self.collection.form;
        let inserted = entries.insert_all(new);
        self.told(inserted)
    }

    /// Removes many entries; how many were there.
    pub fn remove_all<'a>(&mut self, names: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<usize> {
        let Form::Packed(entries) = &mut self.collection.form;
        let removed = entries.remove_all(names);
        self.told(removed)
    }

    /// Removes an entry; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        let Form::Packed(entries) = &mut self.collection.form;
        let removed = entries.remove(name);
        self.told(removed)
    }

    /// Removes the entries that `keep` does not want; how many.
    pub fn retain(&mut self, keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<usize> {
        let Form::Packed(entries) = &mut self.collection.form;
        let before = entries.len();
        let retained = entries.retain(keep);
        self.told(retained)?;
        Ok(before - self.len())
    }

    /// Removes `count` entries by chance, or all if there are fewer, and calls `visit` for each.
    pub fn pop(&mut self, count: usize, mut visit: impl FnMut(&[u8])) -> Result<()> {
        let Form::Packed(entries) = &mut self.collection.form;
        let (mut left, mut wanted) = (entries.len(), count.min(entries.len()));
        let remains = left - wanted;
        let mut random = Random::new(keyspace::random());
        let mut popped = entries.retain(|name, _| {
            let is_popped = random.below(left as u64) < wanted as u64;
            left -= 1;
            if is_popped {
                wanted -= 1;
                visit(name);
            }
            !is_popped
        });
        // Where few remain Redis moves those to a new set.
        if popped.is_ok() && remains.saturating_mul(POPPED_PER_MOVED) <= count {
            popped = entries.renew();
        }
        self.told(popped)
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { txn, db, expires_at, is_new, collection } = self;
        let Collection { key, type_, form: Form::Packed(entries) } = collection;
        if !entries.is_empty() {
            txn.put_vec(db, key, entries.into_run(), meta(type_, expires_at))?;
        } else if !is_new {
            txn.delete(db, key)?;
        }
        Ok(())
    }
}

impl<'t> Deref for Edit<'t, '_> {
    type Target = Collection<'t, Vec<u8>>;

    fn deref(&self) -> &Self::Target {
        &self.collection
    }
}

// So that what most commands add needs no further allocation.
const EDIT_ROOM_BYTES: usize = 128;
// As Redis (`SPOP_MOVE_STRATEGY_MUL`).
const POPPED_PER_MOVED: usize = 5;

pub(super) fn meta(type_: Type, expires_at: Option<u64>) -> duramen::Meta {
    duramen::Meta { tag: type_.tag(), expires_at, ..duramen::Meta::default() }
}

fn shape(type_: Type) -> Shape {
    match type_ {
        Type::Hash => Shape::Hash,
        Type::SortedSet => Shape::SortedSet,
        _ => Shape::Set,
    }
}

pub(super) fn error(type_: Type, key: &[u8], malformed: Malformed) -> Error {
    Error::Malformed { type_, key: key.into(), malformed }
}
