//! Hashes, sets and sorted sets at keys: read as [`Collection`], changed through an [`Edit`].
//!
//! Only [`Form`] knows how a collection is kept: packed in the value of its key up to a limit
//! ([`Keyspace::set_small_collection_bytes_max`](crate::Keyspace::set_small_collection_bytes_max)), else large, with a record for each
//! entry. A collection that grows beyond the limit becomes large when it is saved, and stays large when it shrinks.
//!
//! 1. An empty collection is not there: [`Edit::save`] deletes its key.
//! 2. A changed collection keeps its expiry time; a new one has none.
//! 3. An edit of a large form is written at once, as part of the transaction; one of a packed form by [`Edit::save`].
//!    If an edit of a large form was begun and not saved, the transaction cannot be committed.
//! 4. If a name is longer than the key of an element can be, the whole collection is packed, whatever its size.
//! 5. A hash of which some field has had an expiry time is large, whatever its size, and has no such name
//!    ([`Error::FieldTooLong`]).

use std::borrow::Borrow;
use std::ops::{ControlFlow, Deref, Range};

use super::source::{Detached, Reads, Source, error};
use super::{Found, Txn};
use crate::Type;
use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::keyspace;
use crate::large::{self, Bytes, Fault};
use crate::map::{
    CONVERTED, Encoding, Expiry, Kind, LargeMap, Names, PackedMap, Scored, Shape, TIMED, score_of,
};
use crate::random::Random;
use crate::thresholds::Thresholds;

/// A field, its value, and when it expires, in milliseconds since 1970.
pub type TimedField = (Vec<u8>, Vec<u8>, Option<u64>);

/// A hash, a set or a sorted set. `B` holds the bytes if it is packed, owned or borrowed; `S` is the source of the
/// entries if it is large.
pub struct Collection<'k, B, S = Detached> {
    key: &'k [u8],
    type_: Type,
    source: S,
    form: Form<B>,
}

/// How a collection is kept.
enum Form<B> {
    /// All of it in the value of its key.
    Packed(PackedMap<B>),
    /// A record for each entry.
    Large(LargeMap),
}

/// A collection as a transaction reads it.
pub type Stored<'k, 'a> = Collection<'k, Found<'a>, Reads<'a>>;

/// A hash, a set or a sorted set that is being changed. For a packed one, changes without a save have no effect.
pub struct Edit<'t, 'w> {
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    /// There were entries at some time since it was begun, of one that is new.
    was_there: bool,
    /// See [`Edit::begins_run`].
    is_run: bool,
    collection: Collection<'t, Vec<u8>, &'t mut Txn<'w>>,
}

/// The names of a collection, to look for many of them.
pub enum AllNames<'a> {
    /// Read already.
    Packed(Names<'a>),
    /// Each entry is looked up separately.
    Large(duramen::Reads<'a>),
}

impl<'w> Txn<'w> {
    /// The value at `key`; an error when it is of another type.
    pub(super) fn read_of(
        &mut self,
        type_: Type,
        db: u8,
        key: &[u8],
    ) -> Result<Option<(Found<'_>, Reads<'_>)>> {
        match self.root(db, key)? {
            Some((found, _)) if found.tag() != type_.tag() => Err(Error::WrongType),
            found => Ok(found),
        }
    }

    /// The hash at `key`; an error when it holds another type.
    pub fn hash<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Stored<'k, '_>>> {
        self.collection(Type::Hash, db, key)
    }

    /// The set at `key`; an error when it holds another type.
    pub fn set<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Stored<'k, '_>>> {
        self.collection(Type::Set, db, key)
    }

    /// The sorted set at `key`; an error when it holds another type.
    pub fn sorted_set<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Stored<'k, '_>>> {
        self.collection(Type::SortedSet, db, key)
    }

    /// The set or sorted set at `key`; an error when it holds another type.
    pub fn set_or_sorted_set<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<Stored<'k, '_>>> {
        let now = self.now;
        let Some((found, reads)) = self.root(db, key)? else { return Ok(None) };
        match Type::of_tag(found.tag()) {
            Some(type_ @ (Type::Set | Type::SortedSet)) => {
                Stored::of(type_, key, found, reads, now).map(Some)
            }
            _ => Err(Error::WrongType),
        }
    }

    fn collection<'k>(&mut self, type_: Type, db: u8, key: &'k [u8]) -> Result<Option<Stored<'k, '_>>> {
        let now = self.now;
        let found = self.read_of(type_, db, key)?;
        found.map(|(found, reads)| Stored::of(type_, key, found, reads, now)).transpose()
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
        self.begin_edit();
        let (mut expires_at, mut is_new) = (None, true);
        let (thresholds, now) = (self.thresholds(), self.now);
        let mut form = Form::Packed(PackedMap::empty(kind(type_, &thresholds)));
        if let Some((found, reads)) = self.read_of(type_, db, key)? {
            (expires_at, is_new) = (found.expires_at(), false);
            form = Form::of(type_, (&thresholds, now), key, &found, reads, Found::copied_to_edit)?;
        }
        let collection = Collection { key, type_, source: self, form };
        Ok(Edit { db, expires_at, is_new, was_there: false, is_run: false, collection })
    }

    /// Stores a set of these members, which are all different, at `key`, replacing an existing value. Without members
    /// the key is deleted. Returns whether anything changed.
    pub fn put_set(&mut self, db: u8, key: &[u8], members: Vec<&[u8]>) -> Result<bool> {
        if members.is_empty() {
            return self.delete(db, key);
        }
        let set = PackedMap::set_of(kind(Type::Set, &self.thresholds()), members);
        self.put_entries(Type::Set, db, key, set, None)?;
        Ok(true)
    }

    /// Stores a sorted set of these members, which are all different and whose scores are not NaN, at `key`, replacing
    /// an existing value. Without members the key is deleted. Returns whether anything changed.
    pub fn put_sorted_set(&mut self, db: u8, key: &[u8], members: Vec<Scored<'_>>) -> Result<bool> {
        if members.is_empty() {
            return self.delete(db, key);
        }
        let set = PackedMap::sorted_set_of(kind(Type::SortedSet, &self.thresholds()), members);
        self.put_entries(Type::SortedSet, db, key, set, None)?;
        Ok(true)
    }

    /// Stores a hash of these fields and values at `key`, replacing an existing value. Without fields the key is
    /// deleted.
    pub fn put_hash(&mut self, db: u8, key: &[u8], pairs: &[(&[u8], &[u8])]) -> Result<()> {
        let mut entries = PackedMap::empty(kind(Type::Hash, &self.thresholds()));
        let inserted = entries.insert_all(pairs.iter().copied());
        if inserted.map_err(|malformed| error(Type::Hash, key, malformed))? == 0 {
            self.delete(db, key)?;
            return Ok(());
        }
        self.put_entries(Type::Hash, db, key, entries, None)
    }

    /// Stores these entries, at least one, at `key`, in the form for their size.
    fn put_entries(
        &mut self,
        type_: Type,
        db: u8,
        key: &[u8],
        entries: PackedMap<Vec<u8>>,
        expires_at: Option<u64>,
    ) -> Result<()> {
        self.begin_edit();
        if !self.is_large(entries.run_bytes()) || has_long_name(&entries) {
            return self.put_vec(db, key, entries.into_run(), meta(type_, expires_at));
        }
        let now = self.now;
        let made = LargeMap::make(self, &entries, now).map_err(|fault| error(type_, key, fault))?;
        self.put_root(type_, db, key, made.elements(), made.flags(), expires_at)
    }
}

impl<B: Deref<Target = [u8]>> Form<B> {
    /// The form of a found value; `packed` returns the bytes if it is packed.
    fn of<'a, F: Borrow<Found<'a>>>(
        type_: Type,
        (thresholds, now): (&Thresholds, u64),
        key: &[u8],
        found: F,
        reads: Reads<'_>,
        packed: impl FnOnce(F) -> B,
    ) -> Result<Self> {
        if let Some(id) = found.borrow().collection() {
            let known = if type_ == Type::Hash { CONVERTED | TIMED } else { CONVERTED };
            let flags = large::flags(found.borrow(), known).map_err(|it| error(type_, key, it))?;
            return Ok(Self::Large(LargeMap::of(kind(type_, thresholds), reads.open(id)?, flags, now)));
        }
        let entries = PackedMap::of(kind(type_, thresholds), packed(found));
        entries.map(Self::Packed).map_err(|malformed| error(type_, key, malformed))
    }
}

impl<'k, 'a> Stored<'k, 'a> {
    pub(super) fn of(
        type_: Type,
        key: &'k [u8],
        found: Found<'a>,
        reads: Reads<'a>,
        now: u64,
    ) -> Result<Self> {
        // It does not change.
        let form = Form::of(type_, (&Thresholds::default(), now), key, found, reads, |found| found)?;
        Ok(Self { key, type_, source: reads, form })
    }
}

impl<'k, B: Deref<Target = [u8]>, S: Source> Collection<'k, B, S> {
    /// A copy that does not hold the transaction.
    pub fn detached(&self) -> Result<Collection<'k, Vec<u8>>> {
        let entries = match &self.form {
            Form::Packed(entries) => entries.to_owned(),
            Form::Large(large_map) => self.report(large_map.whole(self.reads(large_map)))?.clone(),
        };
        Ok(Collection { key: self.key, type_: self.type_, source: Detached, form: Form::Packed(entries) })
    }

    /// How many entries there are, with the fields that are over and not deleted yet.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(entries) => entries.len(),
            Form::Large(large_map) => large_map.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some field has had an expiry time, so that a visit may show fewer entries than there are.
    pub fn is_timed(&self) -> bool {
        matches!(&self.form, Form::Large(large_map) if large_map.is_timed())
    }

    /// How many entries a visit shows.
    pub fn shown(&self) -> Result<usize> {
        match &self.form {
            Form::Large(large_map) if large_map.is_timed() => {
                Ok(self.report(large_map.whole(self.reads(large_map)))?.len())
            }
            _ => Ok(self.len()),
        }
    }

    /// The expiry time of a field, if the field is there.
    pub fn expiry(&self, field: &[u8]) -> Result<Option<Option<u64>>> {
        match &self.form {
            Form::Large(large_map) if large_map.is_timed() => {
                self.report(large_map.expiry(self.reads(large_map), field))
            }
            _ => Ok(self.has(field)?.then_some(None)),
        }
    }

    /// All fields with their values and expiry times, in the order of a visit.
    pub fn timed(&self) -> Result<Vec<TimedField>> {
        let mut all = Vec::new();
        let mut push = |field: &[u8], value: &[u8], expires_at| {
            all.push((field.to_vec(), value.to_vec(), expires_at));
            ControlFlow::Continue(())
        };
        match &self.form {
            Form::Large(large_map) => {
                self.report(large_map.visit_timed(self.reads(large_map), push))?;
            }
            Form::Packed(entries) => self.report(entries.visit(|field, value| push(field, value, None)))?,
        }
        Ok(all)
    }

    /// How Redis would keep it.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Packed(entries) => entries.encoding(),
            Form::Large(large_map) => large_map.encoding(),
        }
    }

    /// The value of a field; of a set's member an empty one.
    pub fn get(&self, name: &[u8]) -> Result<Option<impl Deref<Target = [u8]> + use<'_, 'k, B, S>>> {
        match &self.form {
            Form::Packed(entries) => self.report(entries.get(name)).map(|found| found.map(Bytes::Lent)),
            Form::Large(large_map) => self.report(large_map.get(self.reads(large_map), name)),
        }
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
        mut names: impl ExactSizeIterator<Item = &'n [u8]>,
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<()> {
        match &self.form {
            Form::Packed(entries) => self.report(entries.get_each(names, visit)),
            Form::Large(large_map) => {
                while let Some(some) = Ahead::next_of(&mut names) {
                    self.prefetch(&some);
                    for name in some.iter() {
                        visit(self.report(large_map.get(self.reads(large_map), name))?.as_deref());
                    }
                }
                Ok(())
            }
        }
    }

    /// Hints that these names are looked for, put or removed soon, all of them.
    pub fn prefetch(&self, names: &[&[u8]]) {
        if let Form::Large(large_map) = &self.form
            && names.len() > 1
        {
            self.reads(large_map).prefetch(names);
        }
    }

    /// Calls `visit` for each entry, with name and value, until it breaks.
    pub fn visit(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        match &self.form {
            Form::Packed(entries) => self.report(entries.visit(visit)),
            Form::Large(large_map) => self.report(large_map.visit(self.reads(large_map), visit)),
        }
    }

    /// Calls `visit` for about `count` entries from `cursor` on, 0 at the start; returns the next cursor, 0 at the end.
    /// An entry that exists from the first call to the last is visited.
    pub fn scan(&self, cursor: u64, count: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<u64> {
        match &self.form {
            Form::Packed(entries) => self.report(entries.scan(cursor, count, visit)),
            Form::Large(large_map) => {
                self.report(large_map.scan(self.reads(large_map), cursor, count, visit))
            }
        }
    }

    /// Calls `visit` for some entry, if there is one.
    pub fn draw_one(&self, visit: impl FnOnce(&[u8], &[u8])) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let mut random = Random::new(keyspace::random());
        match &self.form {
            Form::Packed(entries) => {
                let index = random.below(self.len() as u64);
                let (name, value) = self.report(entries.nth(index as usize))?;
                visit(name, value);
            }
            Form::Large(large_map) => {
                let mut visit = Some(visit);
                self.report(large_map.draw(self.reads(large_map), &mut random, |name, value| {
                    if let Some(visit) = visit.take() {
                        visit(name, value);
                    }
                    ControlFlow::Break(())
                }))?;
            }
        }
        Ok(())
    }

    /// Calls `visit` for entries drawn one by one, so that one may come again, until it breaks.
    pub fn draw(&self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> Result<()> {
        let random = &mut Random::new(keyspace::random());
        match &self.form {
            Form::Packed(entries) => self.report(entries.draw(random, visit)),
            Form::Large(large_map) => self.report(large_map.draw(self.reads(large_map), random, visit)),
        }
    }

    /// Calls `visit` for `count` entries, or all if there are fewer, each once.
    pub fn sample(&self, count: usize, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let random = &mut Random::new(keyspace::random());
        match &self.form {
            Form::Packed(entries) => self.report(entries.sample(count, random, visit)),
            Form::Large(large_map) => {
                self.report(large_map.sample(self.reads(large_map), count, random, visit))
            }
        }
    }

    /// All names, to look for many of them.
    pub fn names(&self) -> Result<AllNames<'_>> {
        match &self.form {
            Form::Packed(entries) => self.report(entries.names()).map(AllNames::Packed),
            Form::Large(large_map) => Ok(AllNames::Large(self.reads(large_map))),
        }
    }

    /// All entries, in the order of a visit.
    pub fn pairs(&self) -> Result<Vec<(&[u8], &[u8])>> {
        let mut pairs = Vec::new();
        let mut push = |name, value| {
            pairs.push((name, value));
            ControlFlow::Continue(())
        };
        match &self.form {
            Form::Packed(entries) => self.report(entries.visit(&mut push))?,
            Form::Large(large_map) => {
                let whole = self.report(large_map.whole(self.reads(large_map)))?;
                self.report(whole.visit(&mut push))?;
            }
        }
        Ok(pairs)
    }

    /// The members of a sorted set with their scores, in their order; those of a set have the score 1.
    pub fn scored(&self) -> Result<Vec<Scored<'_>>> {
        match &self.form {
            _ if self.type_ == Type::Set => {
                Ok(self.list()?.into_iter().map(|member| (member, 1.0)).collect())
            }
            Form::Packed(entries) => self.report(entries.scored()),
            Form::Large(large_map) => {
                let whole = self.report(large_map.whole(self.reads(large_map)))?;
                self.report(whole.scored())
            }
        }
    }

    /// All names, in the order of a visit.
    pub fn list(&self) -> Result<Vec<&[u8]>> {
        Ok(self.pairs()?.into_iter().map(|(name, _)| name).collect())
    }

    // --- sorted sets in their order

    /// How many members are before one; `None` when it is not there.
    pub fn place(&self, member: &[u8]) -> Result<Option<usize>> {
        if let Form::Large(large_map) = &self.form {
            return self.report(large_map.place(self.reads(large_map), member));
        }
        let (mut at, mut found) = (0, None);
        self.visit(|other, _| {
            if other == member {
                found = Some(at);
                return ControlFlow::Break(());
            }
            at += 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// How many members have a lower score than this one or, if `inclusive`, the same.
    pub fn below(&self, score: f64, inclusive: bool) -> Result<usize> {
        if let Form::Large(large_map) = &self.form {
            return self.report(large_map.below(score, inclusive));
        }
        let mut count = 0;
        self.visit(|_, value| {
            let other = score_of(value);
            if other < score || inclusive && other == score {
                count += 1;
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(())
        })?;
        Ok(count)
    }

    /// Calls `visit` for the members at these positions, from the last to the first if `reversed`, until it breaks.
    pub fn visit_part(
        &self,
        part: Range<usize>,
        reversed: bool,
        mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<()> {
        match &self.form {
            Form::Large(large_map) => {
                self.report(large_map.part(self.reads(large_map), part, reversed, visit))
            }
            Form::Packed(_) => {
                let members = self.scored()?;
                let part = part.start..part.end.min(members.len());
                let mut part = members.get(part).unwrap_or_default().iter();
                while let Some((member, score)) = if reversed { part.next_back() } else { part.next() } {
                    if visit(member, *score).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// The first position from `from` on whose member is not in the range of `is_in`; the members in it are adjacent.
    /// Where Redis walks the members one by one, so does this: so the result is the same even if they are not adjacent.
    pub fn run_end(&self, from: usize, mut is_in: impl FnMut(&[u8]) -> bool) -> Result<usize> {
        if self.is_halved() {
            return self.halve(from, self.len(), is_in);
        }
        let mut at = from;
        self.visit_part(from..self.len(), false, |member, _| {
            if !is_in(member) {
                return ControlFlow::Break(());
            }
            at += 1;
            ControlFlow::Continue(())
        })?;
        Ok(at)
    }

    /// The same backwards: the first position of those before `to` whose members are all in it.
    pub fn run_start(&self, to: usize, mut is_in: impl FnMut(&[u8]) -> bool) -> Result<usize> {
        if self.is_halved() {
            return self.halve(0, to, |member| !is_in(member));
        }
        let mut at = to;
        self.visit_part(0..to, true, |member, _| {
            if !is_in(member) {
                return ControlFlow::Break(());
            }
            at -= 1;
            ControlFlow::Continue(())
        })?;
        Ok(at)
    }

    fn is_halved(&self) -> bool {
        matches!(self.form, Form::Large(_)) && self.encoding() == Encoding::Skiplist
    }

    /// The first position of these whose member `is_before` does not accept.
    fn halve(&self, low: usize, high: usize, mut is_before: impl FnMut(&[u8]) -> bool) -> Result<usize> {
        let (mut low, mut high) = (low, high);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut is_behind = true;
            self.visit_part(middle..middle + 1, false, |member, _| {
                is_behind = !is_before(member);
                ControlFlow::Break(())
            })?;
            if is_behind {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        Ok(low)
    }

    fn reads<'s>(&'s self, large_map: &'s LargeMap) -> duramen::Reads<'s> {
        self.source.reads(large_map.elements())
    }

    fn report<T, F: Into<Fault>>(&self, result: std::result::Result<T, F>) -> Result<T> {
        result.map_err(|fault| error(self.type_, self.key, fault))
    }
}

impl AllNames<'_> {
    /// Whether there is this name.
    pub fn has(&self, name: &[u8]) -> Result<bool> {
        match self {
            Self::Packed(names) => Ok(names.has(name)),
            Self::Large(reads) => Ok(reads.get(name)?.is_some()),
        }
    }
}

impl Edit<'_, '_> {
    /// Puts an entry, or another value in its place; whether the name is new. A field has no expiry time then.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<bool> {
        self.insert_with(name, value, Expiry::Set(None))
    }

    /// [`insert`](Self::insert) of a field that keeps its expiry time, if it has one.
    pub fn insert_kept(&mut self, field: &[u8], value: &[u8]) -> Result<bool> {
        self.insert_with(field, value, Expiry::Kept)
    }

    /// [`insert`](Self::insert) of a field with this expiry time.
    pub fn insert_until(&mut self, field: &[u8], value: &[u8], expires_at: Option<u64>) -> Result<bool> {
        if expires_at.is_some() {
            self.allow_times()?;
        }
        self.insert_with(field, value, Expiry::Set(expires_at))
    }

    fn insert_with(&mut self, name: &[u8], value: &[u8], expiry: Expiry) -> Result<bool> {
        if name.len() > ELEMENT_KEY_BYTES_MAX {
            self.may_be_several()?;
            self.pack()?;
        }
        let Collection { source, form, .. } = &mut self.collection;
        let inserted = match form {
            Form::Packed(entries) => entries.insert(name, value).map_err(Fault::from),
            Form::Large(large_map) => large_map.insert(&mut **source, name, value, expiry),
        };
        self.was_there = true;
        self.report(inserted)
    }

    /// Puts many entries; how many names are new. A set's members have empty values.
    pub fn insert_all<'a>(
        &mut self,
        mut new: impl ExactSizeIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<usize> {
        self.was_there = true;
        match &mut self.collection.form {
            Form::Packed(entries) => {
                let inserted = entries.insert_all(new);
                self.report(inserted)
            }
            Form::Large(_) => {
                let mut count = 0;
                while let Some(some) = Ahead::next_of(&mut new) {
                    if let Some(names) = Ahead::next_of(&mut some.iter().map(|(name, _)| *name)) {
                        self.prefetch(&names);
                    }
                    for (name, value) in some.iter() {
                        count += usize::from(self.insert(name, value)?);
                    }
                }
                Ok(count)
            }
        }
    }

    /// Gives fields another expiry time, or none; they must be there.
    pub fn set_expiry(&mut self, fields: &[&[u8]], expires_at: Option<u64>) -> Result<()> {
        if expires_at.is_some() {
            self.allow_times()?;
        }
        let Collection { source, form, .. } = &mut self.collection;
        let set = match form {
            // None has one.
            Form::Packed(_) => Ok(()),
            Form::Large(large_map) => large_map.set_expiry(&mut **source, fields, expires_at),
        };
        self.report(set)
    }

    /// Deletes those of these fields that are over; how many.
    pub fn remove_over<'a>(&mut self, fields: impl Iterator<Item = &'a [u8]>) -> Result<usize> {
        if !self.is_timed() {
            return Ok(0);
        }
        let fields: Vec<&[u8]> = fields.filter(|field| field.len() <= ELEMENT_KEY_BYTES_MAX).collect();
        let Collection { source, form, .. } = &mut self.collection;
        let removed = match form {
            Form::Packed(_) => Ok(0),
            Form::Large(large_map) => large_map.remove_over(&mut **source, &fields),
        };
        let removed = self.report(removed)?;
        self.may_be_empty();
        Ok(removed)
    }

    /// Makes it large, so that its fields may have expiry times.
    fn allow_times(&mut self) -> Result<()> {
        if let Form::Packed(entries) = &self.collection.form {
            if has_long_name(entries) {
                return Err(Error::FieldTooLong);
            }
            let source = &mut self.collection.source;
            let now = source.now;
            let made = LargeMap::make(&mut **source, entries, now);
            self.collection.form = Form::Large(self.report(made)?);
        }
        if let Form::Large(large_map) = &mut self.collection.form {
            large_map.allow_times();
        }
        Ok(())
    }

    /// Begins a run of commands, each of which puts or removes one entry. Returns whether each takes effect at once,
    /// independently of the later ones: as one element write that is visible immediately, as [`Txn::edits_one`] says.
    /// Then a command that needs more fails with [`Error::SeveralWrites`] and has no effect. Otherwise they are written
    /// together, by [`save`](Self::save).
    pub fn begins_run(&mut self) -> bool {
        self.is_run = matches!(&self.collection.form, Form::Large(large_map) if large_map.keeps_root());
        if self.is_run {
            self.collection.source.edits_each();
        }
        self.is_run
    }

    /// The next change may take several writes.
    fn may_be_several(&self) -> Result<()> {
        if self.is_run { Err(Error::SeveralWrites) } else { Ok(()) }
    }

    /// Removes many entries; how many were there.
    pub fn remove_all<'a>(&mut self, mut names: impl ExactSizeIterator<Item = &'a [u8]>) -> Result<usize> {
        match &mut self.collection.form {
            Form::Packed(entries) => {
                let removed = entries.remove_all(names);
                let removed = self.report(removed)?;
                self.may_be_empty();
                Ok(removed)
            }
            // It may need no transaction.
            Form::Large(_) if names.len() == 1 || self.is_run => {
                names.try_fold(0, |removed, name| Ok(removed + usize::from(self.remove(name)?)))
            }
            Form::Large(large_map) => {
                let source = &mut self.collection.source;
                // Others are no names of elements.
                let names: Vec<&[u8]> = names.filter(|name| name.len() <= ELEMENT_KEY_BYTES_MAX).collect();
                let removed = large_map.remove_all(&mut **source, &names);
                let removed = self.report(removed)?;
                self.may_be_empty();
                Ok(removed)
            }
        }
    }

    /// Removes an entry; returns whether it existed. An empty collection then starts again: later entries make a
    /// collection without an expiry time.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool> {
        if self.len() == 1 {
            self.may_be_several()?;
        }
        let Collection { source, form, .. } = &mut self.collection;
        let removed = match form {
            Form::Large(_) if name.len() > ELEMENT_KEY_BYTES_MAX => Ok(false),
            Form::Packed(entries) => entries.remove(name).map_err(Fault::from),
            Form::Large(large_map) => large_map.remove(&mut **source, name),
        };
        let removed = self.report(removed)?;
        self.may_be_empty();
        Ok(removed)
    }

    /// After entries were removed.
    fn may_be_empty(&mut self) {
        if self.is_empty() {
            self.clear();
        }
    }

    /// Removes the entries at these positions of a sorted set; how many.
    pub fn remove_part(&mut self, part: Range<usize>) -> Result<usize> {
        let part = part.start..part.end.min(self.len());
        if part.is_empty() {
            return Ok(0);
        }
        if part == (0..self.len()) {
            let count = self.len();
            self.clear();
            return Ok(count);
        }
        if let Form::Packed(entries) = &mut self.collection.form {
            let mut at = 0;
            let retained = entries.retain(|_, _| {
                at += 1;
                !part.contains(&(at - 1))
            });
            self.report(retained)?;
            self.may_be_empty();
            return Ok(part.len());
        }
        let mut members: Vec<Vec<u8>> = Vec::with_capacity(part.len());
        self.visit_part(part, false, |member, _| {
            members.push(member.to_vec());
            ControlFlow::Continue(())
        })?;
        self.remove_all(members.iter().map(Vec::as_slice))
    }

    /// Removes `count` entries of a set by chance, or all if there are fewer, and calls `visit` for each.
    pub fn pop(&mut self, count: usize, mut visit: impl FnMut(&[u8])) -> Result<()> {
        let (mut left, mut random) = (self.len(), Random::new(keyspace::random()));
        let mut wanted = count.min(left);
        // Where few remain Redis moves those to a new set.
        let is_made_anew = (left - wanted).saturating_mul(POPPED_PER_MOVED) <= count;
        if is_made_anew {
            self.may_be_several()?;
        }
        if !is_made_anew && let Form::Large(_) = self.collection.form {
            for _ in 0..wanted {
                let Form::Large(large_map) = &self.collection.form else { break };
                let name = self.report(large_map.some_name(self.collection.reads(large_map), &mut random))?;
                let Some(name) = name else { break };
                visit(&name);
                self.remove(&name)?;
            }
            return Ok(());
        }
        let mut is_popped = |name: &[u8]| {
            let is_popped = random.below(left as u64) < wanted as u64;
            left -= 1;
            if is_popped {
                wanted -= 1;
                visit(name);
            }
            is_popped
        };
        let popped = match &mut self.collection.form {
            Form::Packed(entries) => {
                let popped = entries.retain(|name, _| !is_popped(name));
                if popped.is_ok() && is_made_anew { entries.renew() } else { popped }
            }
            Form::Large(_) => {
                let mut kept: Vec<Vec<u8>> = Vec::new();
                self.visit(|name, _| {
                    if !is_popped(name) {
                        kept.push(name.to_vec());
                    }
                    ControlFlow::Continue(())
                })?;
                let kind = kind(Type::Set, &self.collection.source.thresholds());
                let kept = PackedMap::set_of(kind, kept.iter().map(Vec::as_slice).collect());
                self.collection.form = Form::Packed(kept);
                Ok(())
            }
        };
        self.report(popped)?;
        self.may_be_empty();
        Ok(())
    }

    /// Makes a large form packed.
    fn pack(&mut self) -> Result<()> {
        if self.is_timed() {
            return Err(Error::FieldTooLong);
        }
        if let Form::Large(large_map) = &self.collection.form {
            let entries = self.report(large_map.whole(self.collection.reads(large_map)))?.clone();
            self.collection.form = Form::Packed(entries);
        }
        Ok(())
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.expires_at = None;
        let Collection { type_, source, form, .. } = &mut self.collection;
        *form = Form::Packed(PackedMap::empty(kind(*type_, &source.thresholds())));
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { db, expires_at, is_new, was_there, collection, .. } = self;
        let Collection { key, type_, source: txn, form } = collection;
        txn.end_edit();
        match form {
            Form::Packed(entries) if !entries.is_empty() => {
                txn.put_entries(type_, db, key, entries, expires_at)
            }
            Form::Large(large_map) if large_map.len() > 0 => match large_map.new_flags() {
                Some(flags) => txn.put_root(type_, db, key, large_map.elements(), flags, expires_at),
                None => {
                    if large_map.is_changed() {
                        txn.element_changed(db, key);
                    }
                    Ok(())
                }
            },
            _ if !is_new => txn.delete(db, key).map(|_| ()),
            _ => {
                // It has come and gone.
                if was_there {
                    txn.element_changed(db, key);
                }
                Ok(())
            }
        }
    }
}

impl<'t, 'w> Deref for Edit<'t, 'w> {
    type Target = Collection<'t, Vec<u8>, &'t mut Txn<'w>>;

    fn deref(&self) -> &Self::Target {
        &self.collection
    }
}

const ELEMENT_KEY_BYTES_MAX: usize = duramen::KEY_BYTES_MAX;

// As Redis (`SPOP_MOVE_STRATEGY_MUL`).
const POPPED_PER_MOVED: usize = 5;

/// Whether a name is too long to be the key of an element: then all stay together.
fn has_long_name(entries: &PackedMap<Vec<u8>>) -> bool {
    let mut has_one = false;
    if entries.run_bytes() > ELEMENT_KEY_BYTES_MAX {
        // The next reader reports malformed bytes.
        let _ = entries.visit(|name, _| {
            has_one = name.len() > ELEMENT_KEY_BYTES_MAX;
            if has_one { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
    }
    has_one
}

pub(super) fn meta(type_: Type, expires_at: Option<u64>) -> duramen::Meta {
    duramen::Meta { tag: type_.tag(), expires_at, ..duramen::Meta::default() }
}

fn kind(type_: Type, thresholds: &Thresholds) -> Kind {
    let shape = match type_ {
        Type::Hash => Shape::Hash,
        Type::SortedSet => Shape::SortedSet,
        _ => Shape::Set,
    };
    Kind::of(shape, thresholds)
}
