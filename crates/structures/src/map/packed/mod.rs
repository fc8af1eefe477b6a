//! Hashes, sets and sorted sets in their packed form: entries in a [`packed`] run, each with its own name.
//!
//! | type | strings of an entry | order |
//! |---|---|---|
//! | hash | field, value | as the fields were first set |
//! | set | member | ascending while Redis would call it an intset, else as they were added |
//! | sorted set | member, score | by score, and by member where scores are equal |
//!
//! A score is the 8 bytes of a double, little-endian, and not NaN; 0 and -0 are equal, and -0 occurs only with the
//! flag.
//!
//! Flag 1 ([`CONVERTED`]) says that Redis would keep the collection as a hash table or a skiplist, which it never
//! converts back. So OBJECT ENCODING has the same answer as Redis, and replies that have an order in Redis have the
//! same one.
//!
//! 1. No two entries have the same name.
//! 2. A set without the flag has integers only, each in the one spelling that [`integer::parse`] takes, ascending.
//! 3. A collection without the flag was within the [`Thresholds`] at every change.
//! 4. The value of a sorted set's entry is a score ([`score_of`]): other bytes are an error.
//!
//! Every operation takes time in proportion to the collection, except for the number of entries; also one on many
//! entries at once.

mod scan;
mod scored;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::ops::{ControlFlow, Deref};

use crate::packed::{self, Element, Elements, Malformed, Packed};
use crate::random::Random;
use crate::string::integer;
use crate::thresholds::{Compact, Thresholds};
pub(crate) use scan::CURSOR_PACKED;
pub use scored::{Scored, rank, score_of};

/// The flag of collections that are a hash table or a skiplist in Redis.
pub(crate) const CONVERTED: u8 = 1;
// Up to so many names are looked for one by one; more are hashed, so that many take no longer than the collection is.
const FEW: usize = 8;

/// What the entries are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A hash: each name has a value.
    Hash,
    /// A set: there are names only.
    Set,
    /// A sorted set: each name has a score.
    SortedSet,
}

/// How Redis 7.0 would keep the collection, as OBJECT ENCODING spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A small hash or sorted set.
    Listpack,
    /// A small hash of which some field has had an expiry time.
    ListpackEx,
    /// A small set of integers.
    Intset,
    /// Every list.
    Quicklist,
    /// Every stream.
    Stream,
    /// Every other hash or set.
    Hashtable,
    /// Every other sorted set.
    Skiplist,
}

/// An entry: its name, and its value, which is empty in a set.
pub type Entry<'a> = (&'a [u8], &'a [u8]);

/// What the entries are of, and when Redis would convert them. A [`Shape`] alone has Redis's thresholds.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What they are of.
    pub shape: Shape,
    /// The most that is not converted.
    pub compact: Compact,
}

/// Entries in a packed run.
#[derive(Clone, Debug)]
pub struct PackedMap<B> {
    kind: Kind,
    run: B,
}

/// The names of a packed collection, to look for many of them.
pub enum Names<'a> {
    /// Few.
    Walked(Vec<&'a [u8]>),
    /// Many.
    Hashed(HashSet<&'a [u8]>),
}

impl PackedMap<Vec<u8>> {
    /// No entries.
    pub fn empty(kind: impl Into<Kind>) -> Self {
        Self { kind: kind.into(), run: packed::empty(0) }
    }

    /// No entries yet, for [`add`](Self::add).
    pub fn gather(kind: Kind, is_converted: bool) -> Self {
        Self { kind, run: packed::empty(if is_converted { CONVERTED } else { 0 }) }
    }

    /// Appends an entry, which must belong at the end; its name must be new. Ignores Redis's conversion of encodings.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        packed::push(&mut self.run, &[name, value][..self.kind.shape.width()]);
    }

    /// The set of these members, which are all different.
    pub fn set_of(kind: impl Into<Kind>, mut members: Vec<&[u8]>) -> Self {
        let mut set = Self::empty(kind);
        if !order(&mut members, set.kind.compact) {
            set.convert();
        }
        packed::push(&mut set.run, &members);
        set
    }

    /// Puts an entry, or another value in its place; whether the name is new.
    pub fn insert(&mut self, name: &[u8], value: &[u8]) -> Result<bool, Malformed> {
        match self.kind.shape {
            Shape::Hash => self.insert_field(name, value),
            Shape::Set => self.insert_member(name),
            Shape::SortedSet => self.insert_scored(name, value),
        }
    }

    /// [`insert`](Self::insert) of each; how many names are new.
    pub fn insert_all<'a>(
        &mut self,
        new: impl ExactSizeIterator<Item = Entry<'a>>,
    ) -> Result<usize, Malformed> {
        let before = self.len();
        if new.len() <= FEW {
            for (name, value) in new {
                self.insert(name, value)?;
            }
            return Ok(self.len() - before);
        }
        let (mut places, mut all) = (HashMap::new(), Vec::new());
        self.visit(|name, value| {
            places.insert(name, all.len());
            all.push((name, value));
            ControlFlow::Continue(())
        })?;
        let mut is_small = !self.is_converted()?;
        for (name, value) in new {
            is_small &= !self.kind.is_long(name, value);
            match places.entry(name) {
                Slot::Occupied(place) => all[*place.get()].1 = value,
                Slot::Vacant(place) => {
                    place.insert(all.len());
                    all.push((name, value));
                }
            }
        }
        let added = all.len() - before;
        let strings: Vec<&[u8]> = match self.kind.shape {
            Shape::Hash => {
                is_small &= all.len() <= self.kind.compact.entries;
                all.into_iter().flat_map(|(field, value)| [field, value]).collect()
            }
            Shape::Set => {
                let mut members: Vec<&[u8]> = all.into_iter().map(|(member, _)| member).collect();
                is_small = is_small && order(&mut members, self.kind.compact);
                members
            }
            Shape::SortedSet => {
                is_small &= all.len() <= self.kind.compact.entries;
                all.sort_by(|a, b| rank((a.0, score_of(a.1)), (b.0, score_of(b.1))));
                let small = |score| if is_small { scored::small_bytes(score) } else { score };
                all.into_iter().flat_map(|(member, score)| [member, small(score)]).collect()
            }
        };
        let mut run = packed::empty(if is_small { 0 } else { CONVERTED });
        packed::push(&mut run, &strings);
        self.run = run;
        Ok(added)
    }

    fn insert_field(&mut self, field: &[u8], value: &[u8]) -> Result<bool, Malformed> {
        if self.kind.is_long(field, value) {
            self.convert();
        }
        if let Some((_, old)) = self.find(field)? {
            let place = old.place;
            packed::splice(&mut self.run, place, 1, &[value]);
            return Ok(false);
        }
        packed::push(&mut self.run, &[field, value]);
        if self.open()?.len() / 2 > self.kind.compact.entries {
            self.convert();
        }
        Ok(true)
    }

    fn insert_member(&mut self, member: &[u8]) -> Result<bool, Malformed> {
        if self.is_converted()? {
            let is_new = self.find(member)?.is_none();
            if is_new {
                packed::push(&mut self.run, &[member]);
            }
            return Ok(is_new);
        }
        let Some(wanted) = integer::parse(member) else {
            self.convert();
            packed::push(&mut self.run, &[member]);
            return Ok(true);
        };
        let mut place = self.run.len();
        for element in self.open()?.iter() {
            let element = element?;
            match integer::parse(element.bytes) {
                Some(found) if found < wanted => {}
                Some(found) if found == wanted => return Ok(false),
                _ => {
                    place = element.place.start;
                    break;
                }
            }
        }
        packed::splice(&mut self.run, place..place, 0, &[member]);
        if self.open()?.len() > self.kind.compact.entries {
            self.convert();
        }
        Ok(true)
    }

    /// Removes an entry; whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> Result<bool, Malformed> {
        let Some((name, value)) = self.find(name)? else { return Ok(false) };
        let place = name.place.start..value.place.end;
        let width = self.kind.shape.width();
        packed::splice(&mut self.run, place, width, &[]);
        Ok(true)
    }

    /// [`remove`](Self::remove) of each; how many were there.
    pub fn remove_all<'a>(
        &mut self,
        names: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<usize, Malformed> {
        let before = self.len();
        if names.len() <= FEW {
            for name in names {
                self.remove(name)?;
            }
        } else {
            let names: HashSet<&[u8]> = names.collect();
            self.retain(|name, _| !names.contains(name))?;
        }
        Ok(before - self.len())
    }

    /// Removes the entries that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) -> Result<(), Malformed> {
        let mut kept = packed::empty(self.open()?.flags());
        let width = self.kind.shape.width();
        self.visit(|name, value| {
            if keep(name, value) {
                packed::push(&mut kept, &[name, value][..width]);
            }
            ControlFlow::Continue(())
        })?;
        self.run = kept;
        Ok(())
    }

    /// Makes a set what it would be if its members were put into a new one.
    pub fn renew(&mut self) -> Result<(), Malformed> {
        let run = std::mem::take(&mut self.run);
        let mut members = Vec::new();
        for element in Packed::open(&run)?.iter() {
            members.push(element?.bytes);
        }
        *self = Self::set_of(self.kind, members);
        Ok(())
    }

    /// The bytes.
    pub fn into_run(self) -> Vec<u8> {
        self.run
    }

    /// How many bytes that are.
    pub fn run_bytes(&self) -> usize {
        self.run.len()
    }

    fn convert(&mut self) {
        packed::set_flags(&mut self.run, CONVERTED);
    }
}

impl<B: Deref<Target = [u8]>> PackedMap<B> {
    /// The entries that lie in `run`.
    ///
    /// # Errors
    /// When its head is none, or cannot be that of such entries.
    pub fn of(kind: impl Into<Kind>, run: B) -> Result<Self, Malformed> {
        let kind = kind.into();
        let head = Packed::open(&run)?;
        if head.flags() & !CONVERTED != 0 {
            return Err(packed::UNKNOWN_FLAGS);
        }
        if !head.len().is_multiple_of(kind.shape.width()) {
            return Err(Malformed { at: 1, why: "a field has no value" });
        }
        Ok(Self { kind, run })
    }

    /// A copy that owns its bytes.
    pub fn to_owned(&self) -> PackedMap<Vec<u8>> {
        PackedMap { kind: self.kind, run: self.run.to_vec() }
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.open().map_or(0, Packed::len) / self.kind.shape.width()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How Redis would keep them.
    pub fn encoding(&self) -> Encoding {
        Encoding::of(self.kind.shape, self.is_converted() != Ok(false))
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The value of a name; empty in a set.
    pub fn get(&self, name: &[u8]) -> Result<Option<&[u8]>, Malformed> {
        Ok(self.find(name)?.map(|(_, value)| value.bytes))
    }

    /// Calls `visit` with the value of each of these names, or `None`.
    pub fn get_each<'n>(
        &self,
        names: impl ExactSizeIterator<Item = &'n [u8]>,
        mut visit: impl FnMut(Option<&[u8]>),
    ) -> Result<(), Malformed> {
        if names.len().min(self.len()) <= FEW {
            for name in names {
                visit(self.get(name)?);
            }
            return Ok(());
        }
        let mut entries = HashMap::new();
        self.visit(|name, value| {
            entries.insert(name, value);
            ControlFlow::Continue(())
        })?;
        names.for_each(|name| visit(entries.get(name).copied()));
        Ok(())
    }

    /// Calls `visit` for each entry until it breaks.
    pub fn visit<'a>(
        &'a self,
        mut visit: impl FnMut(&'a [u8], &'a [u8]) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        let mut elements = self.open()?.iter();
        while let Some((name, value)) = self.next(&mut elements)? {
            if visit(name.bytes, value.bytes).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// The entry at this position, which must be there.
    pub fn nth(&self, index: usize) -> Result<Entry<'_>, Malformed> {
        let mut elements = self.open()?.iter();
        for _ in 0..index {
            self.next(&mut elements)?;
        }
        let entry = self.next(&mut elements)?;
        entry.map(|(name, value)| (name.bytes, value.bytes)).ok_or(packed::BEYOND)
    }

    /// Calls `visit` for `count` entries, each at most once, in their order.
    pub fn sample<'a>(
        &'a self,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(&'a [u8], &'a [u8]),
    ) -> Result<(), Malformed> {
        let (mut left, mut wanted) = (self.len(), count);
        self.visit(|name, value| {
            // Knuth's algorithm S.
            if random.below(left as u64) < wanted as u64 {
                wanted -= 1;
                visit(name, value);
            }
            left -= 1;
            if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// Calls `visit` for entries drawn one by one, so that one may come again, until it breaks. Of no entries there is none.
    pub fn draw<'a>(
        &'a self,
        random: &mut Random,
        mut visit: impl FnMut(&'a [u8], &'a [u8]) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        let mut entries = Vec::new();
        self.visit(|name, value| {
            entries.push((name, value));
            ControlFlow::Continue(())
        })?;
        while let Some(&(name, value)) = entries.get(random.below(entries.len() as u64) as usize) {
            if visit(name, value).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All names, to look for many.
    pub fn names(&self) -> Result<Names<'_>, Malformed> {
        let mut names = Vec::new();
        self.visit(|name, _| {
            names.push(name);
            ControlFlow::Continue(())
        })?;
        Ok(if names.len() <= FEW { Names::Walked(names) } else { Names::Hashed(names.into_iter().collect()) })
    }

    fn find(&self, name: &[u8]) -> Result<Option<(Element<'_>, Element<'_>)>, Malformed> {
        let mut elements = self.open()?.iter();
        while let Some((found, value)) = self.next(&mut elements)? {
            if found.bytes == name {
                return Ok(Some((found, value)));
            }
        }
        Ok(None)
    }

    /// The next entry; an entry of a set has an empty value.
    fn next<'a>(&self, elements: &mut Elements<'a>) -> Result<Option<(Element<'a>, Element<'a>)>, Malformed> {
        let Some(name) = elements.next().transpose()? else { return Ok(None) };
        let value = match self.kind.shape {
            Shape::Hash => elements.demand()?,
            Shape::SortedSet => scored::verified(elements.demand()?)?,
            Shape::Set => Element { bytes: &[], place: name.place.end..name.place.end },
        };
        Ok(Some((name, value)))
    }

    fn open(&self) -> Result<Packed<'_>, Malformed> {
        Packed::open(&self.run)
    }

    /// Whether they are a hash table or a skiplist to Redis.
    pub fn is_converted(&self) -> Result<bool, Malformed> {
        Ok(self.open()?.flags() & CONVERTED != 0)
    }
}

/// Sorts members into the order of a set of them; returns whether Redis would make an intset of them.
pub fn order(members: &mut [&[u8]], compact: Compact) -> bool {
    let are_integers =
        members.len() <= compact.entries && members.iter().all(|member| integer::parse(member).is_some());
    if are_integers {
        members.sort_by_key(|member| integer::parse(member));
    }
    are_integers
}

impl Names<'_> {
    /// Whether there is this name.
    pub fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Walked(names) => names.contains(&name),
            Self::Hashed(names) => names.contains(name),
        }
    }
}

impl Kind {
    pub(crate) fn of(shape: Shape, thresholds: &Thresholds) -> Self {
        let compact = match shape {
            Shape::Hash => thresholds.hash,
            Shape::Set => thresholds.set,
            Shape::SortedSet => thresholds.sorted_set,
        };
        Self { shape, compact }
    }

    /// Whether one with such an entry is converted.
    pub(crate) fn is_long(self, name: &[u8], value: &[u8]) -> bool {
        let longest = match self.shape {
            Shape::Hash => name.len().max(value.len()),
            Shape::SortedSet => name.len(),
            Shape::Set => 0,
        };
        longest > self.compact.bytes
    }
}

impl From<Shape> for Kind {
    fn from(shape: Shape) -> Self {
        Self::of(shape, &Thresholds::default())
    }
}

impl Shape {
    /// Strings of an entry.
    const fn width(self) -> usize {
        match self {
            Self::Hash | Self::SortedSet => 2,
            Self::Set => 1,
        }
    }
}

impl Encoding {
    pub(crate) const fn of(shape: Shape, is_converted: bool) -> Self {
        match (shape, is_converted) {
            (Shape::SortedSet, true) => Self::Skiplist,
            (Shape::Hash | Shape::Set, true) => Self::Hashtable,
            (Shape::Hash | Shape::SortedSet, false) => Self::Listpack,
            (Shape::Set, false) => Self::Intset,
        }
    }

    /// As OBJECT ENCODING spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::ListpackEx => "listpackex",
            Self::Intset => "intset",
            Self::Quicklist => "quicklist",
            Self::Stream => "stream",
            Self::Hashtable => "hashtable",
            Self::Skiplist => "skiplist",
        }
    }
}
