//! Iterators in the order of the keys, on stores that were opened with [`IndexKind::Ordered`](crate::IndexKind).
//!
//! An iterator takes the slots of some leaves at once, prefetches all their records, and then reads them one by one, so
//! that the misses of a chunk overlap. It is pinned only during its calls. The rest of a chunk stays valid as long as
//! no block was retired since before it was read, which compaction counts; otherwise the iterator finds its place again
//! by its key.

use crate::get::barrier::ReadBarrier;
use crate::get::value::Value;
use crate::records::Records;
use crate::table::tables::{Table, Target};
use crate::{Error, ErrorKind, Result};
use duramen_index::ordered::Chunk;
use duramen_index::{KeyBytes, Keys};
use duramen_log::sync::Arc;
use duramen_log::sync::atomic::Ordering::Acquire;
use duramen_log::sync::reclaim::{self, Guard};
use duramen_media::{Mapped, Medium, Offset};
use std::ops::{Bound, RangeBounds};

/// Slots of the first chunk: a short range should not fetch records that it will not read.
const CHUNK_FIRST: usize = 16;
/// Slots of later chunks. More misses than this are never under way at once.
const CHUNK_MAX: usize = 128;

/// Keys and values between two bounds, in the order of the keys' bytes, from both ends.
///
/// Others may write concurrently. Each key that is present from the first call to the last is returned exactly once. A
/// key that is written or deleted in the meantime may be returned or not, with a value that it had at some moment since
/// the iterator was made. No returned value is torn, could be undone by a crash (as with
/// [`Store::get`](crate::Store::get)), or had expired when it was reached. The keys from one end are strictly
/// ascending, those from the other strictly descending, and the two ends meet.
///
/// Between two calls it blocks nothing: however long it lives, space that is compacted in the meantime is reused.
pub struct Range<'a, M: Medium = Mapped> {
    records: &'a Records<M>,
    table: Held<'a>,
    /// If the reader is a writer in a group.
    read_barrier: Option<&'a ReadBarrier>,
    /// The bounds asked for.
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// The bounds of the keys not returned yet.
    left: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    front: Side,
    back: Side,
}

/// The table of an iterator. It may be cleared or dropped in the meantime: then the iterator ends.
enum Held<'a> {
    Store(&'a Table),
    Named(Arc<Table>),
}

impl std::ops::Deref for Held<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        match self {
            Self::Store(table) => table,
            Self::Named(table) => table,
        }
    }
}

/// One end of an iterator.
struct Side {
    /// The rest of the chunk; the next one last.
    chunk: Chunk,
    /// Blocks ever retired, before the chunk was read.
    retirements: u64,
    /// Number of slots of the next chunk.
    count: usize,
    state: State,
    /// The key from which [`State::Onward`] continues.
    from: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Begins at the bound of the remaining keys.
    Fresh,
    /// Continues from the key in `from`.
    Onward,
    /// The chunk is the last one.
    Last,
}

impl Side {
    fn new() -> Self {
        Self {
            chunk: Chunk::default(),
            retirements: 0,
            count: CHUNK_FIRST,
            state: State::Fresh,
            from: Vec::new(),
        }
    }

    /// Begins again at the bound of the remaining keys.
    fn rewind(&mut self) {
        self.chunk.slots.clear();
        self.state = State::Fresh;
    }

    fn end(&mut self) {
        self.rewind();
        self.state = State::Last;
    }

    fn is_over(&self) -> bool {
        self.state == State::Last && self.chunk.slots.is_empty()
    }
}

/// Prefetches records whole, like [`Log::fetch_ahead`](duramen_log::Log::fetch_ahead).
struct Ahead<'a, M: Medium>(&'a Records<M>);

impl<M: Medium> Keys for Ahead<'_, M> {
    fn hash_at(&self, at: Offset) -> Option<u64> {
        self.0.hash_at(at)
    }

    fn prefetch_at(&self, at: Offset) {
        self.0.log.fetch_ahead(at);
    }

    fn may_be_damaged(&self) -> bool {
        self.0.has_unverified()
    }
}

impl<M: Medium> KeyBytes for Ahead<'_, M> {
    fn key_at(&self, at: Offset) -> Option<&[u8]> {
        self.0.key_at(at)
    }

    fn value_at(&self, at: Offset) -> Option<&[u8]> {
        self.0.value_at(at)
    }
}

fn bytes(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &key[..])
}

fn is_below(key: &[u8], end: &Bound<Vec<u8>>) -> bool {
    match end {
        Bound::Included(end) => key <= &end[..],
        Bound::Excluded(end) => key < &end[..],
        Bound::Unbounded => true,
    }
}

fn is_above(key: &[u8], start: &Bound<Vec<u8>>) -> bool {
    match start {
        Bound::Included(start) => key >= &start[..],
        Bound::Excluded(start) => key > &start[..],
        Bound::Unbounded => true,
    }
}

/// Sets `bound` to `Excluded(key)`, reusing its memory.
fn exclude(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    match bound {
        Bound::Excluded(old) => {
            old.clear();
            old.extend_from_slice(key);
        }
        _ => *bound = Bound::Excluded(key.to_vec()),
    }
}

impl<'a, M: Medium> Range<'a, M> {
    fn new(
        records: &'a Records<M>,
        target: Target<'_>,
        read_barrier: Option<&'a ReadBarrier>,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Self> {
        let guard = reclaim::pin();
        let table = match target {
            Target::Store => Held::Store(&records.tables.store),
            Target::Catalog => Held::Store(&records.tables.catalog),
            Target::Named(named) => Held::Named(Arc::clone(named.table(&guard)?)),
            Target::Collection(_) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "a range over the elements of a collection is not supported: walk them by their ranks",
                ));
            }
        };
        if table.index.ordered().is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a hash index has no order of keys: open the store or table with an ordered index",
            ));
        }
        let bounds = (start.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
        Ok(Self {
            records,
            table,
            read_barrier,
            left: bounds.clone(),
            bounds,
            front: Side::new(),
            back: Side::new(),
        })
    }

    /// Continues, at the front, with the first key that is not below `key`. That may be after or before the keys
    /// already returned, but never outside the bounds that the iterator was made with.
    pub fn seek(&mut self, key: &[u8]) {
        self.left.0 = match &self.bounds.0 {
            start if is_above(key, start) => Bound::Included(key.to_vec()),
            start => start.clone(),
        };
        self.front.rewind();
    }

    /// Like [`Range::seek`] at the back, with the last key that is not above `key`.
    pub fn seek_back(&mut self, key: &[u8]) {
        self.left.1 = match &self.bounds.1 {
            end if is_below(key, end) => Bound::Included(key.to_vec()),
            end => end.clone(),
        };
        self.back.rewind();
    }

    /// Takes the next chunk at one end when the old one is used up.
    #[cold]
    fn refill(&mut self, reverse: bool, retirements: u64, guard: &Guard) {
        let side = if reverse { &mut self.back } else { &mut self.front };
        let (begin, until) =
            if reverse { (&self.left.1, &self.left.0) } else { (&self.left.0, &self.left.1) };
        let from = match side.state {
            State::Onward if reverse => Bound::Excluded(&side.from[..]),
            State::Onward => Bound::Included(&side.from[..]),
            State::Fresh | State::Last => bytes(begin),
        };
        let keys = &Ahead(self.records);
        let Some(index) = self.table.index.ordered() else { return };
        let more = if reverse {
            index.backward((bytes(until), from), side.count, keys, guard, &mut side.chunk)
        } else {
            index.forward((from, bytes(until)), side.count, keys, guard, &mut side.chunk)
        };
        side.chunk.slots.reverse();
        std::mem::swap(&mut side.from, &mut side.chunk.onward);
        side.state = if more { State::Onward } else { State::Last };
        side.count = (side.count * 2).min(CHUNK_MAX);
        side.retirements = retirements;
    }

    fn step(&mut self, reverse: bool) -> Option<Result<Value<'a>>> {
        let guard = reclaim::pin();
        if let Err(closed) = self.table.check_open() {
            let is_over = self.front.is_over() && self.back.is_over();
            self.front.end();
            self.back.end();
            return if is_over { None } else { Some(Err(closed)) };
        }
        if self.table.is_dead() {
            // The records may be gone. Checked under the guard: the thread that reclaims the table waits for that.
            self.front.end();
            self.back.end();
            return None;
        }
        // Acquire: pairs with the Release where a block is retired. Pinned, so the value stays valid for this call.
        let retirements = self.records.log.retirements.load(Acquire);
        let side = if reverse { &mut self.back } else { &mut self.front };
        if side.retirements != retirements && !side.chunk.slots.is_empty() {
            side.rewind();
        }
        loop {
            let side = if reverse { &mut self.back } else { &mut self.front };
            let Some(slot) = side.chunk.slots.pop() else {
                if side.state == State::Last {
                    side.end();
                    return None;
                }
                self.refill(reverse, retirements, &guard);
                continue;
            };
            let Some(record) = self.records.whole_record(slot.location()) else {
                if slot.is_tombstone() {
                    continue;
                }
                // Its key is unknown, but those of its neighbours are known: the iterator continues.
                return Some(Err(self.records.corrupt(slot.location())));
            };
            let key = record.key();
            if !if reverse { is_above(key, &self.left.0) } else { is_below(key, &self.left.1) } {
                side.end();
                return None;
            }
            let shown = self.records.show(&self.table, slot, &guard, self.read_barrier);
            match shown {
                Ok(None) => {}
                Ok(Some(value)) => {
                    exclude(if reverse { &mut self.left.1 } else { &mut self.left.0 }, key);
                    return Some(Ok(value));
                }
                Err(error) => {
                    side.end();
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<'a, M: Medium> Iterator for Range<'a, M> {
    type Item = Result<Value<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl<M: Medium> DoubleEndedIterator for Range<'_, M> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl<M: Medium> std::iter::FusedIterator for Range<'_, M> {}

impl<M: Medium> std::fmt::Debug for Range<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Range").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

/// The first key after all keys with `prefix`.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

pub(crate) fn range_of<'a, 'k, M: Medium>(
    records: &'a Records<M>,
    target: Target<'_>,
    read_barrier: Option<&'a ReadBarrier>,
    keys: &impl RangeBounds<&'k [u8]>,
) -> Result<Range<'a, M>> {
    records.log.epochs().check_process()?;
    Range::new(
        records,
        target,
        read_barrier,
        keys.start_bound().map(|key| *key),
        keys.end_bound().map(|key| *key),
    )
}

pub(crate) fn prefix_of<'a, M: Medium>(
    records: &'a Records<M>,
    target: Target<'_>,
    read_barrier: Option<&'a ReadBarrier>,
    prefix: &[u8],
) -> Result<Range<'a, M>> {
    records.log.epochs().check_process()?;
    let end = behind(prefix);
    let end = end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    Range::new(records, target, read_barrier, Bound::Included(prefix), end)
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn the_end_of_a_prefix_is_the_first_key_after_it() {
        assert_eq!(behind(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(behind(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(behind(b"\xff"), None);
        assert_eq!(behind(b""), None);
    }
}
