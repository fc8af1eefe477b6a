//! Lists at keys: read as [`List`], changed through an [`EditList`].
//!
//! They are kept packed or large, like collections (`collection`), with the same invariants; but pushes and pops at the
//! ends of a large one are written by [`EditList::save`].

use std::ops::{ControlFlow, Deref, Range};

use duramen::CollectionId;

use super::collection::meta;
use super::source::{Detached, Reads, Source, error};
use super::{Found, Txn};
use crate::Type;
use crate::error::Result;
use crate::large::{self, Bytes, Fault};
use crate::list::{self, End, LargeList, PackedList};

/// A list: see [`Collection`](super::Collection) for its parameters.
pub struct List<'k, B, S = Detached> {
    key: &'k [u8],
    source: S,
    form: Form<B>,
}

/// How a list is kept.
enum Form<B> {
    /// All of it in the value of its key.
    Packed(PackedList<B>),
    /// Elements in records of their own.
    Large(LargeList),
}

/// A list as a transaction reads it.
pub type StoredList<'k, 'a> = List<'k, Found<'a>, Reads<'a>>;

/// A list that is being changed. For a packed one, changes without a save have no effect.
pub struct EditList<'t, 'w> {
    db: u8,
    expires_at: Option<u64>,
    is_new: bool,
    /// There were elements at some time since it was begun, of one that is new.
    was_there: bool,
    list: List<'t, Vec<u8>, &'t mut Txn<'w>>,
}

impl<'w> Txn<'w> {
    /// The list at `key`; an error when it holds another type.
    pub fn list<'k>(&mut self, db: u8, key: &'k [u8]) -> Result<Option<StoredList<'k, '_>>> {
        let found = self.read_of(Type::List, db, key)?;
        found.map(|(found, reads)| StoredList::of(key, found, reads)).transpose()
    }

    /// The list at `key` to be changed, empty without one; an error when it holds another type.
    pub fn edit_list<'t>(&'t mut self, db: u8, key: &'t [u8]) -> Result<EditList<'t, 'w>> {
        self.begin_edit();
        let (mut expires_at, mut is_new) = (None, true);
        let mut form = Form::Packed(PackedList::empty());
        if let Some((found, reads)) = self.read_of(Type::List, db, key)? {
            (expires_at, is_new) = (found.expires_at(), false);
            form = match found.collection() {
                Some(id) => {
                    large::flags(&found, 0).map_err(|it| error(Type::List, key, it))?;
                    Form::Large(opened(key, reads, id, LargeList::open_to_edit)?)
                }
                None => {
                    let run = found.copied_to_edit();
                    Form::Packed(PackedList::of(run).map_err(|it| error(Type::List, key, it))?)
                }
            };
        }
        Ok(EditList { db, expires_at, is_new, was_there: false, list: List { key, source: self, form } })
    }

    /// Stores a list of these elements, at least one, at `key`, replacing an existing value.
    pub fn put_list(&mut self, db: u8, key: &[u8], elements: &[&[u8]]) -> Result<()> {
        let mut packed_list = PackedList::empty();
        packed_list.push(End::Right, elements.iter().copied());
        self.put_sequence(db, key, packed_list, None)
    }

    /// Stores these elements, at least one, at `key`, in the form for their size.
    fn put_sequence(
        &mut self,
        db: u8,
        key: &[u8],
        packed_list: PackedList<Vec<u8>>,
        expires_at: Option<u64>,
    ) -> Result<()> {
        self.begin_edit();
        if !self.is_large(packed_list.run_bytes()) {
            return self.put_vec(db, key, packed_list.into_run(), meta(Type::List, expires_at));
        }
        let made = LargeList::make(self, &packed_list).map_err(|it| error(Type::List, key, it))?;
        self.put_root(Type::List, db, key, made.elements(), 0, expires_at)
    }
}

impl<'k, 'a> StoredList<'k, 'a> {
    pub(super) fn of(key: &'k [u8], found: Found<'a>, reads: Reads<'a>) -> Result<Self> {
        let form = match found.collection() {
            Some(id) => {
                large::flags(&found, 0).map_err(|it| error(Type::List, key, it))?;
                Form::Large(opened(key, reads, id, LargeList::open)?)
            }
            None => Form::Packed(PackedList::of(found).map_err(|it| error(Type::List, key, it))?),
        };
        Ok(Self { key, source: reads, form })
    }
}

impl<'k, B: Deref<Target = [u8]>, S: Source> List<'k, B, S> {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed_list) => packed_list.len(),
            Form::Large(large_list) => large_list.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position that an index of Redis's means; a negative one counts from the right end.
    pub fn position(&self, index: i64) -> Option<usize> {
        list::position(self.len(), index)
    }

    /// The positions that Redis's inclusive `start` and `end` mean.
    pub fn part(&self, start: i64, end: i64) -> Range<usize> {
        list::part(self.len(), start, end)
    }

    /// The element at this position.
    pub fn get(&self, index: usize) -> Result<Option<impl Deref<Target = [u8]> + use<'_, 'k, B, S>>> {
        match &self.form {
            Form::Packed(packed_list) => {
                self.report(packed_list.get(index)).map(|found| found.map(Bytes::Lent))
            }
            Form::Large(large_list) => self.report(large_list.get(self.reads(large_list), index)),
        }
    }

    /// Calls `visit` for the elements of this part, as far as it is there, until it breaks.
    pub fn visit(&self, part: Range<usize>, visit: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        match &self.form {
            Form::Packed(packed_list) => self.report(packed_list.visit(part, visit)),
            Form::Large(large_list) => self.report(large_list.visit(self.reads(large_list), part, visit)),
        }
    }

    /// Calls `visit` with the positions of equal elements among the first `within` elements, counted from `from` on,
    /// until it breaks.
    pub fn find(
        &self,
        element: &[u8],
        from: End,
        within: usize,
        visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        match &self.form {
            Form::Packed(packed_list) => self.report(packed_list.find(element, from, within, visit)),
            Form::Large(large_list) => {
                self.report(large_list.find(self.reads(large_list), element, from, within, visit))
            }
        }
    }

    /// All elements.
    pub fn list(&self) -> Result<Vec<&[u8]>> {
        match &self.form {
            Form::Packed(packed_list) => self.report(packed_list.list()),
            Form::Large(large_list) => {
                let whole = self.report(large_list.whole(self.reads(large_list)))?;
                self.report(whole.list())
            }
        }
    }

    fn reads<'s>(&'s self, large_list: &'s LargeList) -> duramen::Reads<'s> {
        self.source.reads(large_list.elements())
    }

    fn report<T, F: Into<Fault>>(&self, result: std::result::Result<T, F>) -> Result<T> {
        result.map_err(|fault| error(Type::List, self.key, fault))
    }
}

impl EditList<'_, '_> {
    /// Pushes each element at this end, one after the other: of several at the left the last becomes the first. In a
    /// large list it is written when another edit than a push or a pop follows, or by `save`; earlier reads of elements
    /// do not see it.
    pub fn push<'a>(&mut self, end: End, elements: impl DoubleEndedIterator<Item = &'a [u8]>) -> Result<()> {
        let List { source, form, .. } = &mut self.list;
        let pushed = match form {
            Form::Packed(packed_list) => {
                packed_list.push(end, elements);
                Ok(())
            }
            Form::Large(large_list) => large_list.push(&mut **source, end, elements),
        };
        self.report(pushed)?;
        self.was_there |= !self.is_empty();
        Ok(())
    }

    /// Removes `count` elements at this end, or all if there are fewer, and calls `visit` for each, from that end on.
    /// It is written like a push. LMOVE of the only element of a list to itself keeps the expiry time.
    pub fn pop(&mut self, end: End, count: usize, visit: impl FnMut(&[u8])) -> Result<()> {
        let List { source, form, .. } = &mut self.list;
        let popped = match form {
            Form::Packed(packed_list) => packed_list.pop(end, count, visit).map_err(Fault::from),
            Form::Large(large_list) => large_list.pop(&mut **source, end, count, visit),
        };
        self.report(popped)?;
        if self.is_empty() {
            self.list.form = Form::Packed(PackedList::empty());
        }
        Ok(())
    }

    /// The list is empty, and stays so for the next command of a run: later pushes make a list without an expiry time.
    pub fn begins_anew(&mut self) {
        self.expires_at = None;
    }

    /// Puts another element in the place of the one at `index`; whether there was one.
    pub fn set(&mut self, index: usize, element: &[u8]) -> Result<bool> {
        let List { source, form, .. } = &mut self.list;
        let set = match form {
            Form::Packed(packed_list) => packed_list.set(index, element).map_err(Fault::from),
            Form::Large(large_list) => large_list.set(&mut **source, index, element),
        };
        self.report(set)
    }

    /// Puts an element on the side of `side` of the first one that equals `pivot`; whether there was one.
    pub fn insert(&mut self, side: End, pivot: &[u8], element: &[u8]) -> Result<bool> {
        let List { source, form, .. } = &mut self.list;
        let inserted = match form {
            Form::Packed(packed_list) => packed_list.insert(side, pivot, element).map_err(Fault::from),
            Form::Large(large_list) => large_list.insert(&mut **source, side, pivot, element),
        };
        self.report(inserted)
    }

    /// Removes the first `count` elements that equal this one, counted from `from` on; how many there were.
    pub fn remove(&mut self, element: &[u8], from: End, count: usize) -> Result<usize> {
        let List { source, form, .. } = &mut self.list;
        let removed = match form {
            Form::Packed(packed_list) => packed_list.remove(element, from, count).map_err(Fault::from),
            Form::Large(large_list) => large_list.remove(&mut **source, element, from, count),
        };
        self.report(removed)
    }

    /// Removes all elements outside this part, which ends within the list.
    pub fn trim(&mut self, kept: Range<usize>) -> Result<()> {
        let len = self.len();
        let List { source, form, .. } = &mut self.list;
        let trimmed = match form {
            Form::Packed(packed_list) => packed_list.trim(kept).map_err(Fault::from),
            // Writing the rest is less than removing the others.
            Form::Large(large_list) if kept.len() < len / 2 => {
                let reads = large::ElementWriter::reads(&**source, large_list.elements());
                large_list.copied(reads, kept).map(|kept| *form = Form::Packed(kept))
            }
            Form::Large(large_list) => large_list
                .cut(&mut **source, kept.end..len)
                .and_then(|()| large_list.cut(&mut **source, 0..kept.start)),
        };
        self.report(trimmed)
    }

    /// Makes it the value of its key, once the transaction commits.
    pub fn save(self) -> Result<()> {
        let Self { db, expires_at, is_new, was_there, list: List { key, source: txn, mut form } } = self;
        if let Form::Large(large_list) = &mut form {
            large_list.flush(txn).map_err(|it| error(Type::List, key, it))?;
        }
        txn.end_edit();
        match form {
            Form::Packed(packed_list) if !packed_list.is_empty() => {
                txn.put_sequence(db, key, packed_list, expires_at)
            }
            Form::Large(large_list) if large_list.len() > 0 => {
                if large_list.is_changed() {
                    txn.element_changed(db, key);
                }
                Ok(())
            }
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

impl<'t, 'w> Deref for EditList<'t, 'w> {
    type Target = List<'t, Vec<u8>, &'t mut Txn<'w>>;

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

/// The list of a root that names these elements.
fn opened(
    key: &[u8],
    reads: Reads<'_>,
    id: CollectionId,
    open: impl FnOnce(duramen::Collection, duramen::Reads<'_>) -> large::Result<LargeList>,
) -> Result<LargeList> {
    let elements = reads.open(id)?;
    let nodes = reads.reads(&elements);
    open(elements.clone(), nodes).map_err(|it| error(Type::List, key, it))
}
