//! Lists at keys: read as [`List`], changed through an [`EditList`].
//!
//! All are packed in the value of their key, whatever their size, so that a write takes time in proportion to the list.
//! Both invariants of collections (`collection`) hold here too: an empty list is not there, and a list that changes keeps its
//! expiry time.

use std::ops::{ControlFlow, Deref, Range};

use super::collection::{error, meta};
use super::{Found, Txn};
use crate::Type;
use crate::error::Result;
use crate::packed::Malformed;
use crate::sequence::{End, Sequence};

/// A list, in bytes of its own or where it lies.
pub struct List<'k, B> {
    key: &'k [u8],
    sequence: Sequence<B>,
}

/// A list that is about to change. What is not saved did not happen.
pub struct EditList<'t, 'w> {
    txn: &'t mut Txn<'w>,
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    list: List<'t, Vec<u8>>,
}

impl<'w> Txn<'w> {
    /// The list at `key`; an error when it holds another type.
    pub fn list<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<List<'k, Found<'_>>>> {
        let found = self.get_of(Type::List, db, key)?;
        found.map(|found| List::of(key, found)).transpose()
    }

    /// The list at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_list<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<EditList<'t, 'w>> {
        let (expires_at, old) = self.run_to_edit(Type::List, db, key)?;
        let is_new = old.is_none();
        let list = match old {
            Some(run) => List::of(key, run)?,
            None => List { key, sequence: Sequence::empty() },
        };
        Ok(EditList { txn: self, db, expires_at, is_new, list })
    }

    /// Makes a list of these elements, of which there are some, the value of `key`, over what is there.
    pub fn put_list(&mut self, db: u8, key: &[u8], elements: &[&[u8]]) -> Result<()> {
        let mut sequence = Sequence::empty();
        sequence.push(End::Right, elements.iter().copied());
        self.put_vec(db, key, sequence.into_run(), meta(Type::List, None))
    }
}

impl<'k, B: Deref<Target = [u8]>> List<'k, B> {
    pub(super) fn of(key: &'k [u8], bytes: B) -> Result<Self> {
        let sequence = Sequence::of(bytes).map_err(|malformed| error(Type::List, key, malformed))?;
        Ok(Self { key, sequence })
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.sequence.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sequence.is_empty()
    }

    /// The position that an index of Redis's means; a negative one counts from the right end.
    pub fn position(&self, index: i64) -> Option<usize> {
        self.sequence.position(index)
    }

    /// The positions that Redis's inclusive `start` and `end` mean.
    pub fn part(&self, start: i64, end: i64) -> Range<usize> {
        self.sequence.part(start, end)
    }

    /// The element at this position.
    pub fn get(&self, index: usize) -> Result<Option<&[u8]>> {
        self.told(self.sequence.get(index))
    }

    /// Calls `visit` for the elements of this part, as far as it is there, until it breaks.
    pub fn visit(&self, part: Range<usize>, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        self.told(self.sequence.visit(part, visit))
    }

    /// Calls `visit` with the positions of what equals this element among the first `within` elements, counted from `from` on,
    /// until it breaks.
    pub fn find(
        &self,
        element: &[u8],
        from: End,
        within: usize,
        visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        self.told(self.sequence.find(element, from, within, visit))
    }

    fn told<T>(&self, result: std::result::Result<T, Malformed>) -> Result<T> {
        result.map_err(|malformed| error(Type::List, self.key, malformed))
    }
}

impl<B: Deref<Target = [u8]>> List<'_, B> {
    /// All elements.
    pub fn list(&self) -> Result<Vec<&[u8]>> {
        self.told(self.sequence.list())
    }
}

impl EditList<'_, '_> {
    /// Puts each element at this end, one after the other: of several at the left the last comes to be the first.
    pub fn push<'a>(&mut self, end: End, elements: impl DoubleEndedIterator<Item = &'a [u8]>) {
        self.list.sequence.push(end, elements);
    }

    /// Removes `count` elements at this end, or all if there are fewer, and calls `visit` for each, from that end on.
    pub fn pop(&mut self, end: End, count: usize, visit: impl FnMut(&[u8])) -> Result<()> {
        let popped = self.list.sequence.pop(end, count, visit);
        self.told(popped)
    }

    /// Puts another element in the place of the one at `index`; whether there was one.
    pub fn set(&mut self, index: usize, element: &[u8]) -> Result<bool> {
        let set = self.list.sequence.set(index, element);
        self.told(set)
    }

    /// Puts an element on the side of `side` of the first one that equals `pivot`; whether there was one.
    pub fn insert(&mut self, side: End, pivot: &[u8], element: &[u8]) -> Result<bool> {
        let inserted = self.list.sequence.insert(side, pivot, element);
        self.told(inserted)
    }

    /// Removes the first `count` elements that equal this one, counted from `from` on; how many there were.
    pub fn remove(&mut self, element: &[u8], from: End, count: usize) -> Result<usize> {
        let removed = self.list.sequence.remove(element, from, count);
        self.told(removed)
    }

    /// Removes what is not in this part, whose end is not behind that of the list.
    pub fn trim(&mut self, kept: Range<usize>) -> Result<()> {
        let trimmed = self.list.sequence.trim(kept);
        self.told(trimmed)
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { txn, db, expires_at, is_new, list: List { key, sequence } } = self;
        if !sequence.is_empty() {
            txn.put_vec(db, key, sequence.into_run(), meta(Type::List, expires_at))?;
        } else if !is_new {
            txn.delete(db, key)?;
        }
        Ok(())
    }
}

impl<'t> Deref for EditList<'t, '_> {
    type Target = List<'t, Vec<u8>>;

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}
