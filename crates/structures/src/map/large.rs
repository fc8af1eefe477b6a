//! Hashes, sets and sorted sets in their large form.
//!
//! Redis lists the fields of a small hash in the order in which they were first set, and the members of an intset
//! ascending. So the fields of a hash without the flag have a position, the time at which they were set: a clock that
//! is set back changes the order, and nothing else. There are few ([`Thresholds`](crate::Thresholds)); they are sorted
//! when all are read.
//!
//! A field may have an expiry time: that of its element's record. The flag [`TIMED`] says that some field has had one.
//! A field whose time has come is over: no read shows it, but it counts until it is deleted, as in Redis. The store
//! reports it ([`duramen::Store::set_on_due`]), and [`LargeMap::remove_over`] deletes it as HDEL would.

use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};
use std::time::SystemTime;

use duramen::{Collection, ElementOrder, Reads as ElementReads, Value};

use super::packed::{CONVERTED, CURSOR_PACKED, Encoding, Kind, PackedMap, Shape, score_of};
use super::score::{image, score_in, value_of};
use crate::large::{Bytes, ElementWriter, Result};
use crate::packed::Malformed;
use crate::random::Random;
use crate::string::integer;

/// The flag of a hash of which some field has had an expiry time.
pub(crate) const TIMED: u8 = 2;
const NO_PLACE: u8 = 0;
const PLACE: u8 = 8;
// Entries drawn one by one rather than out of all: to read one by chance takes as long as to read some in turn.
const DRAWN_OF: usize = 4;
/// Entries that are written in one call.
const TOGETHER: usize = 256;
/// Draws of a name that is not over and not drawn yet, for each one wanted.
const TRIES: usize = 4;
/// Of a short name and a short value, for which there is room from the beginning.
const SOME_BYTES: usize = 24;

/// See the module.
pub(crate) struct LargeMap {
    kind: Kind,
    elements: Collection,
    /// The number of entries, once it was requested: the owner of this value holds the key's lock.
    len: Cell<Option<usize>>,
    is_converted: bool,
    /// Some field has had an expiry time.
    is_timed: bool,
    /// The root does not say so yet.
    is_root_old: bool,
    /// The time that the transaction sees.
    now: u64,
    /// Elements were written.
    is_changed: bool,
    /// All entries, kept for callers that need them together.
    whole: OnceCell<PackedMap<Vec<u8>>>,
    /// The place of the field that came last.
    last: u64,
}

/// Which expiry time a field has after a write of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Its own as before.
    Kept,
    /// This one, or none.
    Set(Option<u64>),
}

impl LargeMap {
    /// The entries in `elements`, whose root has these flags, as seen at the time `now`.
    pub(crate) fn of(kind: Kind, elements: Collection, flags: u8, now: u64) -> Self {
        let is_converted = flags & CONVERTED != 0;
        Self {
            kind,
            elements,
            len: Cell::new(None),
            is_converted,
            is_timed: flags & TIMED != 0,
            is_root_old: false,
            now,
            is_changed: false,
            whole: OnceCell::new(),
            last: 0,
        }
    }

    /// Makes a large form of entries. Nothing names it yet.
    pub(crate) fn make(
        writer: &mut impl ElementWriter,
        entries: &PackedMap<Vec<u8>>,
        now: u64,
    ) -> Result<Self> {
        let kind = entries.kind();
        let order =
            if kind.shape == Shape::SortedSet { ElementOrder::ByValue } else { ElementOrder::Unordered };
        let flags = if entries.is_converted()? { CONVERTED } else { 0 };
        let mut made = Self::of(kind, writer.new_collection(order), flags, now);
        // A set's members and a converted hash's fields need no look at what is there, and names differ.
        let (mut bytes, mut ends, mut put) = (Vec::new(), Vec::new(), Ok(()));
        entries.visit(|name, value| {
            let start = bytes.len();
            bytes.extend_from_slice(name);
            let name_end = bytes.len();
            made.add_value(&mut bytes, value);
            ends.push((start, name_end, bytes.len()));
            if ends.len() == TOGETHER {
                put = made.put_all(writer, &bytes, &ends);
                bytes.clear();
                ends.clear();
            }
            if put.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        put?;
        made.put_all(writer, &bytes, &ends)?;
        Ok(made)
    }

    /// Puts elements of new names, whose bytes begin, and whose values begin and end, at these places.
    fn put_all(
        &mut self,
        writer: &mut impl ElementWriter,
        bytes: &[u8],
        ends: &[(usize, usize, usize)],
    ) -> Result<()> {
        let element = |&(start, name_end, end): &(usize, usize, usize)| {
            (&bytes[start..name_end], Some(&bytes[name_end..end]))
        };
        let writes: Vec<_> = ends.iter().map(element).collect();
        let were_there = writer.write_all(&self.elements, &writes)? as usize;
        self.changed(ends.len() - were_there, 0);
        Ok(())
    }

    /// Adds the value of the element of a new name.
    fn add_value(&mut self, bytes: &mut Vec<u8>, value: &[u8]) {
        match self.kind.shape {
            Shape::Set => {}
            Shape::Hash if self.is_converted => {
                bytes.push(NO_PLACE);
                bytes.extend_from_slice(value);
            }
            Shape::Hash => {
                bytes.push(PLACE);
                bytes.extend_from_slice(&self.next_place().to_be_bytes());
                bytes.extend_from_slice(value);
            }
            Shape::SortedSet => {
                let (image, count) = self.score_of_element(value);
                bytes.extend_from_slice(&image[..count]);
            }
        }
    }

    /// The value of a sorted set's element: as many of these bytes.
    fn score_of_element(&self, value: &[u8]) -> ([u8; 9], usize) {
        let score = score_of(value);
        // A listpack knows no -0.
        value_of(if self.is_converted { score } else { score + 0.0 })
    }

    pub(crate) fn elements(&self) -> &Collection {
        &self.elements
    }

    /// The flags for the root, if it has to be written.
    pub(crate) fn new_flags(&self) -> Option<u8> {
        self.is_root_old.then(|| self.flags())
    }

    pub(crate) fn flags(&self) -> u8 {
        (if self.is_converted { CONVERTED } else { 0 }) | (if self.is_timed { TIMED } else { 0 })
    }

    /// Whether some field has had an expiry time.
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// From now on its fields may have expiry times.
    pub(crate) fn allow_times(&mut self) {
        self.is_root_old |= !self.is_timed;
        self.is_timed = true;
    }

    /// Whether an element is over. Then it stays so, also if the clock is set back.
    fn is_over(&self, element: &Value<'_>) -> bool {
        self.is_timed
            && element.expires_at().is_some_and(|at| {
                let store = self.elements.store();
                let is_over = at <= self.now.max(store.time_floor());
                if is_over {
                    store.time_reached(at);
                }
                is_over
            })
    }

    /// Whether its root stays unchanged by any put.
    pub(crate) fn keeps_root(&self) -> bool {
        self.is_converted && !self.is_root_old
    }

    /// Whether elements were written.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(crate) fn len(&self) -> usize {
        let len = self.len.get().unwrap_or_else(|| self.elements.len() as usize);
        self.len.set(Some(len));
        len
    }

    pub(crate) fn encoding(&self) -> Encoding {
        match Encoding::of(self.kind.shape, self.is_converted) {
            Encoding::Listpack if self.is_timed => Encoding::ListpackEx,
            encoding => encoding,
        }
    }

    // --- reads

    pub(crate) fn get<'a>(&self, reads: ElementReads<'a>, name: &[u8]) -> Result<Option<Bytes<'a>>> {
        let value = reads.get(name)?.filter(|value| !self.is_over(value));
        Ok(value.map(|value| self.shown(value)).transpose()?)
    }

    /// The expiry time of a field, if it is there.
    pub(crate) fn expiry(&self, reads: ElementReads<'_>, name: &[u8]) -> Result<Option<Option<u64>>> {
        let value = reads.get(name)?.filter(|value| !self.is_over(value));
        Ok(value.map(|value| value.expires_at()))
    }

    /// An element's value as the packed form has it.
    fn shown<'a>(&self, value: Value<'a>) -> std::result::Result<Bytes<'a>, Malformed> {
        Ok(match self.kind.shape {
            Shape::Hash => {
                let from = value_from(&value)?;
                let place = from..value.len();
                Bytes::Stored(value, place)
            }
            Shape::Set => Bytes::Lent(&[]),
            Shape::SortedSet => Bytes::Score(score_in(&value)?.to_le_bytes()),
        })
    }

    pub(crate) fn visit(
        &self,
        reads: ElementReads<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole.visit(visit)?);
        }
        self.visit_timed(reads, |name, value, _| visit(name, value))
    }

    /// Visits each entry with its expiry time.
    pub(crate) fn visit_timed(
        &self,
        reads: ElementReads<'_>,
        mut visit: impl FnMut(&[u8], &[u8], Option<u64>) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.kind.shape {
            Shape::SortedSet => self
                .part(reads, 0..self.len(), false, |member, score| visit(member, &score.to_le_bytes(), None)),
            _ if self.is_converted => self.each(reads, |value| {
                let name = value.key();
                Ok(visit(
                    name,
                    if self.kind.shape == Shape::Set { &[] } else { &value[value_from(value)?..] },
                    value.expires_at(),
                ))
            }),
            _ => {
                // Names and values lie end to end.
                let mut few = Vec::with_capacity(self.len());
                let mut bytes = Vec::with_capacity(self.len() * SOME_BYTES);
                self.each(reads, |value| {
                    let from = if self.kind.shape == Shape::Set { 0 } else { value_from(value)? };
                    let order = match self.kind.shape {
                        Shape::Set => integer::parse(value.key()).unwrap_or(i64::MAX),
                        _ => place_in(value) as i64,
                    };
                    let start = bytes.len();
                    bytes.extend_from_slice(value.key());
                    let middle = bytes.len();
                    bytes.extend_from_slice(&value[from..]);
                    // In Redis the fields with times come first, by these.
                    let order = (value.expires_at().unwrap_or(u64::MAX), order);
                    few.push((order, start..middle, middle..bytes.len()));
                    Ok(ControlFlow::Continue(()))
                })?;
                few.sort_unstable_by(|(order, name, _), (other_order, other, _)| {
                    order.cmp(other_order).then_with(|| bytes[name.clone()].cmp(&bytes[other.clone()]))
                });
                for ((expires_at, _), name, value) in few {
                    let expires_at = Some(expires_at).filter(|&at| at != u64::MAX);
                    if visit(&bytes[name], &bytes[value], expires_at).is_break() {
                        break;
                    }
                }
                Ok(())
            }
        }
    }

    /// Visits each element that is not over, in no order.
    fn each(
        &self,
        reads: ElementReads<'_>,
        mut visit: impl FnMut(&Value<'_>) -> std::result::Result<ControlFlow<()>, Malformed>,
    ) -> Result<()> {
        let mut visited = Ok(ControlFlow::Continue(()));
        reads.each(&mut |value| {
            if self.is_over(value) {
                return true;
            }
            visited = visit(value);
            matches!(visited, Ok(ControlFlow::Continue(())))
        })?;
        Ok(visited.map(|_| ())?)
    }

    pub(crate) fn scan(
        &self,
        reads: ElementReads<'_>,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<u64> {
        // It was packed when the scan came to this cursor: all of it comes once more.
        let cursor = if cursor & CURSOR_PACKED == 0 { cursor } else { 0 };
        // All at once come each once; else one that stands far from its place in the map may come twice.
        if !self.is_converted || cursor == 0 && count >= self.len() {
            self.visit(reads, |name, value| {
                visit(name, value);
                ControlFlow::Continue(())
            })?;
            return Ok(0);
        }
        let mut malformed = None;
        let next = reads.scan(cursor, count, &mut |value| match self.bytes_in(value) {
            _ if self.is_over(value) => {}
            Ok(shown) => visit(value.key(), &shown),
            Err(error) => malformed = Some(error),
        })?;
        malformed.map_or(Ok(next), |malformed| Err(malformed.into()))
    }

    fn bytes_in<'v>(&self, value: &'v Value<'_>) -> std::result::Result<Bytes<'v>, Malformed> {
        Ok(match self.kind.shape {
            Shape::Hash => Bytes::Lent(&value[value_from(value)?..]),
            Shape::Set => Bytes::Lent(&[]),
            Shape::SortedSet => Bytes::Score(score_in(value)?.to_le_bytes()),
        })
    }

    /// Calls `visit` for entries drawn one by one until it breaks.
    pub(crate) fn draw(
        &self,
        reads: ElementReads<'_>,
        random: &mut Random,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        while let Some(value) = reads.pick(random.any(), &mut |value| !self.is_over(value))? {
            if visit(value.key(), &self.bytes_in(&value)?).is_break() {
                return Ok(());
            }
        }
        if self.is_timed {
            // Too many are over for a draw.
            return Ok(self.whole(reads)?.draw(random, visit)?);
        }
        Ok(())
    }

    /// Calls `visit` for `count` entries, or all if there are fewer, each once.
    pub(crate) fn sample(
        &self,
        reads: ElementReads<'_>,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let (mut left, mut wanted) = (self.len(), count);
        if self.is_timed {
            return self.sample_timed(reads, count, random, visit);
        }
        if count < left / DRAWN_OF {
            let mut drawn = HashSet::new();
            return self.draw(reads, random, |name, value| {
                if wanted > 0 && drawn.insert(name.to_vec()) {
                    wanted -= 1;
                    visit(name, value);
                }
                if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        }
        self.visit(reads, |name, value| {
            // Knuth's algorithm S.
            if random.below(left as u64) < wanted as u64 {
                wanted -= 1;
                visit(name, value);
            }
            left -= 1;
            if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    }

    /// The same where some may be over, so that fewer are there than their number says.
    fn sample_timed(
        &self,
        reads: ElementReads<'_>,
        count: usize,
        random: &mut Random,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let (mut drawn, mut names) = (Vec::new(), HashSet::new());
        let mut tries = if count < self.len() / DRAWN_OF { count * TRIES } else { 0 };
        while tries > 0 && drawn.len() < count {
            tries -= 1;
            let Some(value) = reads.pick(random.any(), &mut |value| !self.is_over(value))? else { break };
            if names.insert(value.key().to_vec()) {
                drawn.push(value);
            }
        }
        if drawn.len() < count {
            return Ok(self.whole(reads)?.sample(count, random, visit)?);
        }
        for value in &drawn {
            visit(value.key(), &self.bytes_in(value)?);
        }
        Ok(())
    }

    /// All entries in one run.
    pub(crate) fn whole(&self, reads: ElementReads<'_>) -> Result<&PackedMap<Vec<u8>>> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let mut whole = PackedMap::gather(self.kind, self.is_converted);
        self.visit(reads, |name, value| {
            whole.add(name, value);
            ControlFlow::Continue(())
        })?;
        Ok(self.whole.get_or_init(|| whole))
    }

    // --- reads of sorted sets in their order

    /// How many members are before one; `None` when it is not there.
    pub(crate) fn place(&self, reads: ElementReads<'_>, member: &[u8]) -> Result<Option<usize>> {
        Ok(reads.rank(member)?.map(|rank| rank as usize))
    }

    /// How many members have a lower score than this one or, if `inclusive`, the same.
    pub(crate) fn below(&self, score: f64, inclusive: bool) -> Result<usize> {
        Ok(self.elements.rank_of_order(image(score), inclusive)? as usize)
    }

    /// Calls `visit` for the members of a part, from its end on if `reversed`, until it breaks.
    pub(crate) fn part(
        &self,
        reads: ElementReads<'_>,
        part: Range<usize>,
        reversed: bool,
        mut visit: impl FnMut(&[u8], f64) -> ControlFlow<()>,
    ) -> Result<()> {
        let part = part.start..part.end.min(self.len());
        if part.is_empty() {
            return Ok(());
        }
        let (first, mut left) = (if reversed { part.end - 1 } else { part.start }, part.len());
        let mut visited = Ok(());
        reads.ranked(first as u64, reversed, &mut |value| {
            left -= 1;
            match score_in(value) {
                Ok(score) => visit(value.key(), score).is_continue() && left > 0,
                Err(malformed) => {
                    visited = Err(malformed.into());
                    false
                }
            }
        })?;
        visited
    }

    // --- writes

    /// Puts an entry, or another value in its place; whether the name is new.
    pub(crate) fn insert(
        &mut self,
        writer: &mut impl ElementWriter,
        name: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<bool> {
        let is_long = match self.kind.shape {
            Shape::Hash => self.kind.is_long(name, value),
            Shape::Set => integer::parse(name).is_none(),
            Shape::SortedSet => {
                self.kind.is_long(name, value)
                    || !self.is_converted
                        && self.len() >= self.kind.compact.entries
                        && writer.reads(&self.elements).get(name)?.is_none()
            }
        };
        if is_long {
            self.convert();
        }
        // Else it may have to be converted afterwards.
        if self.keeps_root() {
            writer.ends_with_next();
        }
        let is_new = self.put(writer, name, value, expiry)?;
        if self.len() > self.kind.compact.entries {
            self.convert();
        }
        Ok(is_new)
    }

    fn put(
        &mut self,
        writer: &mut impl ElementWriter,
        name: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<bool> {
        let is_there = match self.kind.shape {
            Shape::Set => {
                if writer.reads(&self.elements).get(name)?.is_some() {
                    return Ok(false);
                }
                writer.put(&self.elements, name, &[])?
            }
            Shape::Hash => {
                let mut bytes = Vec::with_capacity(9 + value.len());
                let is_kept = self.is_timed && expiry == Expiry::Kept;
                let reads_old = is_kept || !self.is_converted;
                let old = if reads_old { writer.reads(&self.elements).get(name)? } else { None };
                let expires_at = match expiry {
                    Expiry::Kept => old.as_ref().filter(|old| !self.is_over(old)).and_then(Value::expires_at),
                    Expiry::Set(at) => at,
                };
                match old.filter(|_| !self.is_converted).map(|old| place_in(&old)) {
                    Some(place) => {
                        bytes.push(PLACE);
                        bytes.extend_from_slice(&place.to_be_bytes());
                        bytes.extend_from_slice(value);
                    }
                    None => self.add_value(&mut bytes, value),
                }
                writer.put_until(&self.elements, name, &bytes, expires_at)?
            }
            Shape::SortedSet => {
                let (bytes, count) = self.score_of_element(value);
                writer.put(&self.elements, name, &bytes[..count])?
            }
        };
        self.changed(usize::from(!is_there), 0);
        Ok(!is_there)
    }

    /// Removes an entry; whether it was there.
    pub(crate) fn remove(&mut self, writer: &mut impl ElementWriter, name: &[u8]) -> Result<bool> {
        // With the last one the key goes.
        if self.len() > 1 {
            writer.ends_with_next();
        }
        let is_there = writer.delete(&self.elements, name)?;
        if is_there {
            self.changed(0, 1);
        }
        Ok(is_there)
    }

    /// Removes entries; how many were there.
    pub(crate) fn remove_all(&mut self, writer: &mut impl ElementWriter, names: &[&[u8]]) -> Result<usize> {
        let mut removed = 0;
        for names in names.chunks(TOGETHER) {
            let writes: Vec<_> = names.iter().map(|name| (*name, None)).collect();
            removed += writer.write_all(&self.elements, &writes)? as usize;
        }
        if removed > 0 {
            self.changed(0, removed);
        }
        Ok(removed)
    }

    /// Gives fields another expiry time, which must be there.
    pub(crate) fn set_expiry(
        &mut self,
        writer: &mut impl ElementWriter,
        names: &[&[u8]],
        expires_at: Option<u64>,
    ) -> Result<()> {
        for names in names.chunks(TOGETHER) {
            // Names and values lie end to end.
            let (mut bytes, mut writes) = (Vec::new(), Vec::with_capacity(names.len()));
            writer.reads(&self.elements).prefetch(names);
            for name in names {
                if let Some(value) = writer.reads(&self.elements).get(name)? {
                    let start = bytes.len();
                    bytes.extend_from_slice(&value);
                    writes.push((*name, start..bytes.len()));
                }
            }
            if let ([(name, value)], false) = (&writes[..], self.is_root_old) {
                writer.ends_with_next();
                writer.put_until(&self.elements, name, &bytes[value.clone()], expires_at)?;
            } else {
                let writes: Vec<_> =
                    writes.into_iter().map(|(name, value)| (name, Some(&bytes[value]))).collect();
                writer.write_all_until(&self.elements, &writes, expires_at)?;
            }
        }
        self.changed(0, 0);
        Ok(())
    }

    /// Removes those of these fields that are over; how many.
    pub(crate) fn remove_over(&mut self, writer: &mut impl ElementWriter, names: &[&[u8]]) -> Result<usize> {
        if !self.is_timed {
            return Ok(0);
        }
        let mut over = Vec::new();
        for name in names {
            if writer.reads(&self.elements).get(name)?.is_some_and(|value| self.is_over(&value)) {
                over.push(*name);
            }
        }
        if over.is_empty() { Ok(0) } else { self.remove_all(writer, &over) }
    }

    /// Some entry's name.
    pub(crate) fn some_name(&self, reads: ElementReads<'_>, random: &mut Random) -> Result<Option<Vec<u8>>> {
        Ok(reads.pick(random.any(), &mut |_| true)?.map(|value| value.key().to_vec()))
    }

    fn convert(&mut self) {
        self.is_root_old |= !self.is_converted;
        self.is_converted = true;
    }

    fn changed(&mut self, more: usize, fewer: usize) {
        self.len.set(self.len.get().map(|len| (len + more).saturating_sub(fewer)));
        self.is_changed = true;
        self.whole.take();
    }

    fn next_place(&mut self) -> u64 {
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        self.last = now.max(self.last + 1);
        self.last
    }
}

/// Where the field's value begins in the value of an element.
fn value_from(value: &[u8]) -> std::result::Result<usize, Malformed> {
    match value.first() {
        Some(&NO_PLACE) => Ok(1),
        Some(&PLACE) if value.len() >= 9 => Ok(9),
        _ => Err(Malformed { at: 0, why: "a field has no value" }),
    }
}

/// The place in it; 0 without one.
fn place_in(value: &[u8]) -> u64 {
    match value.split_first() {
        Some((&PLACE, rest)) => rest.first_chunk().map_or(0, |place| u64::from_be_bytes(*place)),
        _ => 0,
    }
}
