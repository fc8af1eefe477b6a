//! Lists in their large form: each element has a label of 64 bits, and they are ordered by these.
//!
//! The first labels are from the middle on, [`STEP`] apart, and so is a label at an end from the one beside it. Between two elements a label is
//! halfway. Where there is none left the elements around are labelled anew, evenly: as few as have room enough between
//! their neighbours, at least as many numbers for each as there are elements, so that it is long before it happens there again.

use std::cell::OnceCell;
use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use duramen::{Collection, CollectionReader, ElementOrder, Value};

use super::{Bytes, Pen, Result};
use crate::packed::Malformed;
use crate::sequence::{End, Sequence};

const MIDDLE: u64 = 1 << 63;
const STEP: u64 = 1 << 20;
// Elements that are labelled anew together, at least.
const WINDOW_MIN: usize = 8;

/// See the module.
pub(crate) struct Labelled {
    elements: Collection,
    is_changed: bool,
    /// All elements, as they were read for who wants them together.
    whole: OnceCell<Sequence<Vec<u8>>>,
}

impl Labelled {
    pub(crate) fn of(elements: Collection) -> Self {
        Self { elements, is_changed: false, whole: OnceCell::new() }
    }

    /// Makes a large form of a list. Nothing names it yet.
    pub(crate) fn make(pen: &mut impl Pen, list: &Sequence<Vec<u8>>) -> Result<Self> {
        let made = Self::of(pen.new_collection(ElementOrder::ByKey));
        let (mut put, mut label) = (Ok(false), MIDDLE);
        list.visit(0..list.len(), |element| {
            put = pen.put(&made.elements, &label.to_be_bytes(), element);
            label += STEP;
            if put.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        put?;
        Ok(made)
    }

    pub(crate) fn elements(&self) -> &Collection {
        &self.elements
    }

    /// Whether elements were written.
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    pub(crate) fn len(&self) -> usize {
        self.elements.len() as usize
    }

    // --- reads

    pub(crate) fn get<'a>(&self, reads: CollectionReader<'a>, index: usize) -> Result<Option<Bytes<'a>>> {
        Ok(reads.nth(index as u64)?.map(|value| Bytes::Stored(value, 0)))
    }

    pub(crate) fn visit(
        &self,
        reads: CollectionReader<'_>,
        part: Range<usize>,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk(reads, part, End::Left, |value| visit(value))
    }

    /// Visits all elements from an end on.
    pub(crate) fn visit_from(
        &self,
        reads: CollectionReader<'_>,
        from: End,
        mut visit: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.walk(reads, 0..self.len(), from, |value| visit(value))
    }

    /// Visits the elements of a part from one of its ends on.
    fn walk(
        &self,
        reads: CollectionReader<'_>,
        part: Range<usize>,
        from: End,
        mut visit: impl FnMut(&Value<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let part = part.start..part.end.min(self.len());
        if part.is_empty() {
            return Ok(());
        }
        let mut left = part.len();
        let first = if from == End::Left { part.start } else { part.end - 1 };
        reads.ranked(first as u64, from == End::Right, &mut |value| {
            left -= 1;
            visit(value).is_continue() && left > 0
        })?;
        Ok(())
    }

    /// As [`Sequence::find`].
    pub(crate) fn find(
        &self,
        reads: CollectionReader<'_>,
        element: &[u8],
        from: End,
        within: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<()> {
        let len = self.len();
        let within = within.min(len);
        let (part, mut at) = match from {
            End::Left => (0..within, 0),
            End::Right => (len - within..len, len.wrapping_sub(1)),
        };
        self.walk(reads, part, from, |value| {
            let position = at;
            at = if from == End::Left { at + 1 } else { at.wrapping_sub(1) };
            if **value == *element { visit(position) } else { ControlFlow::Continue(()) }
        })
    }

    /// All elements in one run.
    pub(crate) fn whole(&self, reads: CollectionReader<'_>) -> Result<&Sequence<Vec<u8>>> {
        if let Some(whole) = self.whole.get() {
            return Ok(whole);
        }
        let whole = self.copied(reads, 0..self.len())?;
        Ok(self.whole.get_or_init(|| whole))
    }

    /// The elements of a part in one run.
    pub(crate) fn copied(
        &self,
        reads: CollectionReader<'_>,
        part: Range<usize>,
    ) -> Result<Sequence<Vec<u8>>> {
        let mut copied = Sequence::empty();
        self.visit(reads, part, |element| {
            copied.push(End::Right, [element].into_iter());
            ControlFlow::Continue(())
        })?;
        Ok(copied)
    }

    // --- writes

    /// As [`Sequence::push`].
    pub(crate) fn push<'e>(
        &mut self,
        pen: &mut impl Pen,
        end: End,
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Result<()> {
        let mut beside = self.end_label(pen, end)?;
        for element in elements {
            let next = |label: u64| match end {
                End::Left => label.checked_sub(STEP),
                End::Right => label.checked_add(STEP),
            };
            let label = match beside {
                None => MIDDLE,
                Some(label) => match next(label) {
                    Some(label) => {
                        pen.ends_with_next();
                        label
                    }
                    None => {
                        self.label_anew(pen, 0..self.len())?;
                        self.end_label(pen, end)?.and_then(next).ok_or(NO_LABEL)?
                    }
                },
            };
            self.put(pen, label, element)?;
            beside = Some(label);
        }
        Ok(())
    }

    fn end_label(&self, pen: &impl Pen, end: End) -> Result<Option<u64>> {
        match (self.len(), end) {
            (0, _) => Ok(None),
            (_, End::Left) => self.label(pen, 0),
            (len, End::Right) => self.label(pen, len - 1),
        }
    }

    /// The label of the element at `index`.
    fn label(&self, pen: &impl Pen, index: usize) -> Result<Option<u64>> {
        let element = pen.reads(&self.elements).nth(index as u64)?;
        Ok(element.map(|element| label_in(&element)).transpose()?)
    }

    /// As [`Sequence::pop`], of fewer than all.
    pub(crate) fn pop(
        &mut self,
        pen: &mut impl Pen,
        end: End,
        count: usize,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<()> {
        let len = self.len();
        let count = count.min(len);
        let part = if end == End::Left { 0..count } else { len - count..len };
        let mut keys = Vec::with_capacity(count);
        self.walk(pen.reads(&self.elements), part, end, |value| {
            visit(value);
            keys.push(value.key().to_vec());
            ControlFlow::Continue(())
        })?;
        if keys.len() == 1 {
            pen.ends_with_next();
        }
        self.delete_all(pen, &keys)
    }

    /// As [`Sequence::set`].
    pub(crate) fn set(&mut self, pen: &mut impl Pen, index: usize, element: &[u8]) -> Result<bool> {
        let Some(label) = self.label(pen, index)? else { return Ok(false) };
        pen.ends_with_next();
        self.put(pen, label, element)?;
        Ok(true)
    }

    /// As [`Sequence::insert`].
    pub(crate) fn insert(
        &mut self,
        pen: &mut impl Pen,
        side: End,
        pivot: &[u8],
        element: &[u8],
    ) -> Result<bool> {
        let mut found = None;
        self.find(pen.reads(&self.elements), pivot, End::Left, usize::MAX, |position| {
            found = Some(position);
            ControlFlow::Break(())
        })?;
        let Some(position) = found else { return Ok(false) };
        // It comes before the one that is there now.
        let index = if side == End::Left { position } else { position + 1 };
        if index == 0 || index == self.len() {
            let end = if index == 0 { End::Left } else { End::Right };
            self.push(pen, end, [element].into_iter())?;
            return Ok(true);
        }
        let mut window = WINDOW_MIN;
        loop {
            let before = self.label(pen, index - 1)?.ok_or(NO_LABEL)?;
            let behind = self.label(pen, index)?.ok_or(NO_LABEL)?;
            if behind - before > 1 {
                self.put(pen, before + (behind - before) / 2, element)?;
                return Ok(true);
            }
            let around = index.saturating_sub(window / 2)..(index + window / 2).min(self.len());
            self.label_anew(pen, around)?;
            window *= 2;
        }
    }

    /// Labels the elements of a part anew, if there is room enough between its neighbours; of all elements there is.
    fn label_anew(&mut self, pen: &mut impl Pen, part: Range<usize>) -> Result<()> {
        let count = part.len() as u64;
        let is_all = part == (0..self.len());
        let (first, step) = if is_all {
            let step = STEP.min(u64::MAX / (count + 1)).max(1);
            (MIDDLE.saturating_sub(step * (count / 2)), step)
        } else {
            let beyond = STEP.saturating_mul(count);
            let before = match part.start.checked_sub(1) {
                Some(index) => self.label(pen, index)?.ok_or(NO_LABEL)?,
                None => self.label(pen, 0)?.ok_or(NO_LABEL)?.saturating_sub(beyond),
            };
            let behind = match self.label(pen, part.end)? {
                Some(label) => label,
                None => self.end_label(pen, End::Right)?.ok_or(NO_LABEL)?.saturating_add(beyond),
            };
            let step = (behind - before) / (count + 1);
            if step <= count {
                return Ok(());
            }
            (before + step, step)
        };
        let mut old = Vec::with_capacity(part.len());
        self.walk(pen.reads(&self.elements), part, End::Left, |value| {
            old.push((value.key().to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        let mut kept = HashSet::with_capacity(old.len());
        for (at, (key, element)) in old.iter().enumerate() {
            let label = first + step * at as u64;
            kept.insert(label.to_be_bytes());
            // Where it stays it is there already.
            if label.to_be_bytes() != key[..] {
                self.put(pen, label, element)?;
            }
        }
        let gone: Vec<Vec<u8>> = old
            .into_iter()
            .map(|(key, _)| key)
            .filter(|key| !key.first_chunk().is_some_and(|label| kept.contains(label)))
            .collect();
        self.delete_all(pen, &gone)
    }

    /// As [`Sequence::remove`].
    pub(crate) fn remove(
        &mut self,
        pen: &mut impl Pen,
        element: &[u8],
        from: End,
        count: usize,
    ) -> Result<usize> {
        let mut keys = Vec::new();
        if count > 0 {
            self.walk(pen.reads(&self.elements), 0..self.len(), from, |value| {
                if **value == *element {
                    keys.push(value.key().to_vec());
                }
                if keys.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        self.delete_all(pen, &keys)?;
        Ok(keys.len())
    }

    /// Removes the elements of a part. It counts as a change where that is none.
    pub(crate) fn cut(&mut self, pen: &mut impl Pen, part: Range<usize>) -> Result<()> {
        self.changed();
        let mut keys = Vec::with_capacity(part.len());
        self.walk(pen.reads(&self.elements), part, End::Left, |value| {
            keys.push(value.key().to_vec());
            ControlFlow::Continue(())
        })?;
        self.delete_all(pen, &keys)
    }

    fn put(&mut self, pen: &mut impl Pen, label: u64, element: &[u8]) -> Result<()> {
        pen.put(&self.elements, &label.to_be_bytes(), element)?;
        self.changed();
        Ok(())
    }

    fn delete_all(&mut self, pen: &mut impl Pen, keys: &[Vec<u8>]) -> Result<()> {
        for key in keys {
            pen.delete(&self.elements, key)?;
            self.changed();
        }
        Ok(())
    }

    fn changed(&mut self) {
        self.is_changed = true;
        self.whole.take();
    }
}

/// The label of an element.
fn label_in(element: &Value<'_>) -> std::result::Result<u64, Malformed> {
    element.key().try_into().map(u64::from_be_bytes).map_err(|_| NO_LABEL)
}

const NO_LABEL: Malformed = Malformed { at: 0, why: "an element has no label of 8 bytes" };
