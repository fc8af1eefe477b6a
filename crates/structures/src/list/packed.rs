//! Lists in their packed form: elements in a [`packed`] run, in the order of the list, without flags.
//!
//! An element is found by walking from the left end, and a change moves the bytes after it. Everything except the
//! length takes time in proportion to the list. An operation on many elements at once takes no longer.

use std::ops::{ControlFlow, Deref, Range};

use crate::packed::{self, HEAD_BYTES, Malformed, Packed};

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first element's: the head.
    Left,
    /// The last element's: the tail.
    Right,
}

/// The position in a list of `len` elements that an index of Redis's means; a negative one counts from the right end.
pub fn position(len: usize, index: i64) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => (index < len).then_some(index),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// The positions among `len` that Redis's inclusive `start` and `end` mean. Unlike that of a string, an end before the begin
/// means none.
pub fn part(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, end) = (from_end(start).max(0), from_end(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// Elements in a packed run.
#[derive(Clone, Debug)]
pub struct PackedList<B> {
    run: B,
}

impl PackedList<Vec<u8>> {
    /// No elements.
    pub fn empty() -> Self {
        Self { run: packed::empty(0) }
    }

    /// No elements, and room for this many bytes.
    pub fn with_room(bytes: usize) -> Self {
        let mut run = Vec::with_capacity(bytes);
        run.extend_from_slice(&packed::empty(0));
        Self { run }
    }

    /// Pushes each element at this end, one after the other: of several at the left the last becomes the first.
    pub fn push<'a>(&mut self, end: End, elements: impl DoubleEndedIterator<Item = &'a [u8]>) {
        let (at, elements): (usize, Vec<&[u8]>) = match end {
            End::Left => (HEAD_BYTES, elements.rev().collect()),
            End::Right => (self.run.len(), elements.collect()),
        };
        packed::splice(&mut self.run, at..at, 0, &elements);
    }

    /// Puts an element at this end.
    pub fn push_one(&mut self, end: End, element: &[u8]) {
        let at = if end == End::Left { HEAD_BYTES } else { self.run.len() };
        packed::splice(&mut self.run, at..at, 0, &[element]);
    }

    /// Removes `count` elements at this end, or all if there are fewer, and calls `visit` for each, from that end on.
    pub fn pop(&mut self, end: End, count: usize, mut visit: impl FnMut(&[u8])) -> Result<(), Malformed> {
        let len = self.len();
        let count = count.min(len);
        if count == 1 {
            let index = if end == End::Left { 0 } else { len - 1 };
            let element = self.open()?.iter().nth(index).unwrap_or(Err(packed::BEYOND))?;
            let place = element.place.clone();
            visit(element.bytes);
            packed::splice(&mut self.run, place, 1, &[]);
            return Ok(());
        }
        let popped = match end {
            End::Left => 0..count,
            End::Right => len - count..len,
        };
        let mut elements = Vec::new();
        self.visit(popped.clone(), |element| {
            elements.push(element);
            ControlFlow::Continue(())
        })?;
        match end {
            End::Left => elements.into_iter().for_each(&mut visit),
            End::Right => elements.into_iter().rev().for_each(&mut visit),
        }
        self.cut(popped)
    }

    /// Puts another element in the place of the one at `index`; whether there was one.
    pub fn set(&mut self, index: usize, element: &[u8]) -> Result<bool, Malformed> {
        if index >= self.len() {
            return Ok(false);
        }
        let old = self.open()?.iter().nth(index).unwrap_or(Err(packed::BEYOND))?.place;
        packed::splice(&mut self.run, old, 1, &[element]);
        Ok(true)
    }

    /// Puts an element on the side of `side` of the first one that equals `pivot`; whether there was one.
    pub fn insert(&mut self, side: End, pivot: &[u8], element: &[u8]) -> Result<bool, Malformed> {
        for found in self.open()?.iter() {
            let found = found?;
            if found.bytes == pivot {
                let at = match side {
                    End::Left => found.place.start,
                    End::Right => found.place.end,
                };
                packed::splice(&mut self.run, at..at, 0, &[element]);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the first `count` elements that equal this one, counted from `from` on; how many there were.
    pub fn remove(&mut self, element: &[u8], from: End, count: usize) -> Result<usize, Malformed> {
        let mut elements = self.list()?;
        let equal = elements.iter().filter(|other| **other == element).count();
        let removed = equal.min(count);
        if removed == 0 {
            return Ok(0);
        }
        let mut at = 0;
        let going = match from {
            End::Left => 0..removed,
            End::Right => equal - removed..equal,
        };
        elements.retain(|other| {
            let is_equal = *other == element;
            let goes = is_equal && going.contains(&at);
            at += usize::from(is_equal);
            !goes
        });
        let mut run = packed::empty(0);
        packed::push(&mut run, &elements);
        self.run = run;
        Ok(removed)
    }

    /// Removes all elements outside this part, which ends within the list.
    pub fn trim(&mut self, kept: Range<usize>) -> Result<(), Malformed> {
        self.cut(kept.end..self.len())?;
        self.cut(0..kept.start)
    }

    /// Puts an element before the one at `index`, or at the end if `index` is the length.
    pub fn put_at(&mut self, index: usize, element: &[u8]) -> Result<(), Malformed> {
        let at = self.start_of(index)?;
        packed::splice(&mut self.run, at..at, 0, &[element]);
        Ok(())
    }

    /// Removes the element at `index`.
    pub fn cut_at(&mut self, index: usize) -> Result<(), Malformed> {
        self.cut(index..index + 1)
    }

    /// The bytes.
    pub fn into_run(self) -> Vec<u8> {
        self.run
    }

    /// How many bytes that are.
    pub fn run_bytes(&self) -> usize {
        self.run.len()
    }

    fn cut(&mut self, removed: Range<usize>) -> Result<(), Malformed> {
        let place = self.start_of(removed.start)?..self.start_of(removed.end)?;
        packed::splice(&mut self.run, place, removed.len(), &[]);
        Ok(())
    }

    /// Where the element at `index` begins, or the run ends if that is how many there are.
    fn start_of(&self, index: usize) -> Result<usize, Malformed> {
        match index {
            0 => Ok(HEAD_BYTES),
            _ if index == self.len() => Ok(self.run.len()),
            _ => self
                .open()?
                .iter()
                .nth(index)
                .unwrap_or(Err(packed::BEYOND))
                .map(|element| element.place.start),
        }
    }
}

impl<B: Deref<Target = [u8]>> PackedList<B> {
    /// The elements that lie in `run`.
    ///
    /// # Errors
    /// When its head is malformed, or cannot be that of a list.
    pub fn of(run: B) -> Result<Self, Malformed> {
        if Packed::open(&run)?.flags() != 0 {
            return Err(packed::UNKNOWN_FLAGS);
        }
        Ok(Self { run })
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.open().map_or(0, Packed::len)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at this position.
    pub fn get(&self, index: usize) -> Result<Option<&[u8]>, Malformed> {
        let mut found = None;
        self.visit(index..index.saturating_add(1), |element| {
            found = Some(element);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Where in the run the bytes of the element at this position lie.
    pub fn place(&self, index: usize) -> Result<Option<Range<usize>>, Malformed> {
        let element = self.open()?.iter().nth(index).filter(|_| index < self.len()).transpose()?;
        Ok(element.map(|element| element.place.end - element.bytes.len()..element.place.end))
    }

    /// A copy to change, with room for this many bytes.
    pub fn to_edit(&self, bytes: usize) -> PackedList<Vec<u8>> {
        let mut run = Vec::with_capacity(bytes.max(self.run.len() + 16));
        run.extend_from_slice(&self.run);
        PackedList { run }
    }

    /// Calls `visit` for the elements of this part, as far as it is there, until it breaks.
    pub fn visit<'a>(
        &'a self,
        part: Range<usize>,
        mut visit: impl FnMut(&'a [u8]) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        let part = part.start..part.end.min(self.len());
        for (index, element) in self.open()?.iter().take(part.end).enumerate() {
            let element = element?;
            if index >= part.start && visit(element.bytes).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the positions of equal elements among the first `within` elements, counted from `from` on,
    /// until it breaks.
    pub fn find(
        &self,
        element: &[u8],
        from: End,
        within: usize,
        mut visit: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), Malformed> {
        let len = self.len();
        let within = within.min(len);
        let first = if from == End::Left { 0 } else { len - within };
        let (mut at, mut found) = (first, Vec::new());
        self.visit(first..first + within, |other| {
            let position = at;
            at += 1;
            match from {
                End::Left if other == element => return visit(position),
                End::Right if other == element => found.push(position),
                _ => {}
            }
            ControlFlow::Continue(())
        })?;
        for position in found.into_iter().rev() {
            if visit(position).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// All elements.
    pub fn list(&self) -> Result<Vec<&[u8]>, Malformed> {
        self.open()?.iter().map(|element| Ok(element?.bytes)).collect()
    }

    fn open(&self) -> Result<Packed<'_>, Malformed> {
        Packed::open(&self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Debug)]
    enum Step {
        Push(End, Vec<Vec<u8>>),
        Pop(End, usize),
        Set(usize, Vec<u8>),
        Insert(End, Vec<u8>, Vec<u8>),
        Remove(Vec<u8>, End, usize),
        Trim(usize, usize),
    }

    fn end() -> impl Strategy<Value = End> {
        prop_oneof![Just(End::Left), Just(End::Right)]
    }

    /// Few, so that they repeat.
    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![8 => "[abc]{0,1}".prop_map(String::into_bytes), 1 => Just(vec![b'x'; 300])]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (end(), prop::collection::vec(element(), 0..6)).prop_map(|(end, new)| Step::Push(end, new)),
            2 => (end(), 0usize..4).prop_map(|(end, count)| Step::Pop(end, count)),
            2 => (0usize..12, element()).prop_map(|(index, new)| Step::Set(index, new)),
            2 => (end(), element(), element()).prop_map(|(end, pivot, new)| Step::Insert(end, pivot, new)),
            2 => (element(), end(), 0usize..5).prop_map(|(element, end, count)| Step::Remove(element, end, count)),
            1 => (0usize..6, 0usize..20).prop_map(|(start, count)| Step::Trim(start, count)),
        ]
    }

    fn all<B: Deref<Target = [u8]>>(list: &PackedList<B>) -> Vec<Vec<u8>> {
        list.list().unwrap().into_iter().map(<[u8]>::to_vec).collect()
    }

    /// The positions in a list from an end on.
    fn positions(end: End, len: usize) -> Vec<usize> {
        if end == End::Left { (0..len).collect() } else { (0..len).rev().collect() }
    }

    proptest! {
        #[test]
        fn a_list_is_changed_as_a_deque_is(steps in prop::collection::vec(step(), 0..50), part in (0usize..9, 0usize..9)) {
            let (mut list, mut model) = (PackedList::empty(), VecDeque::<Vec<u8>>::new());
            for step in steps {
                match step {
                    Step::Push(end, new) => {
                        list.push(end, new.iter().map(Vec::as_slice));
                        for element in new {
                            if end == End::Left { model.push_front(element) } else { model.push_back(element) }
                        }
                    }
                    Step::Pop(end, count) => {
                        let mut popped = Vec::new();
                        list.pop(end, count, |element| popped.push(element.to_vec())).unwrap();
                        let next = |_| if end == End::Left { model.pop_front() } else { model.pop_back() };
                        prop_assert_eq!(popped, (0..count).filter_map(next).collect::<Vec<_>>());
                    }
                    Step::Set(index, new) => {
                        let old = model.get_mut(index);
                        prop_assert_eq!(list.set(index, &new), Ok(old.is_some()));
                        if let Some(old) = old {
                            *old = new;
                        }
                    }
                    Step::Insert(side, pivot, new) => {
                        let found = model.iter().position(|element| *element == pivot);
                        prop_assert_eq!(list.insert(side, &pivot, &new), Ok(found.is_some()));
                        if let Some(at) = found {
                            model.insert(at + usize::from(side == End::Right), new);
                        }
                    }
                    Step::Remove(element, end, count) => {
                        let mut going = positions(end, model.len());
                        going.retain(|at| model[*at] == element);
                        going.truncate(count);
                        prop_assert_eq!(list.remove(&element, end, count), Ok(going.len()));
                        going.sort_unstable();
                        going.into_iter().rev().for_each(|at| drop(model.remove(at)));
                    }
                    Step::Trim(start, count) => {
                        let start = start.min(model.len());
                        let kept = start..(start + count).min(model.len());
                        list.trim(kept.clone()).unwrap();
                        model = model.drain(kept).collect();
                    }
                }
                prop_assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
                prop_assert_eq!(&all(&list), model.make_contiguous());
                for index in 0..model.len() + 2 {
                    prop_assert_eq!(list.get(index).unwrap(), model.get(index).map(Vec::as_slice));
                }
                let mut visited = Vec::new();
                list.visit(part.0..part.1, |element| {
                    visited.push(element.to_vec());
                    ControlFlow::Continue(())
                }).unwrap();
                let wanted: Vec<_> = model.iter().take(part.1).skip(part.0).cloned().collect();
                prop_assert_eq!(visited, wanted);
            }
            // A stored value is opened unchanged, and has one encoding.
            let run = list.into_run();
            let mut again = PackedList::empty();
            again.push(End::Right, model.iter().map(Vec::as_slice));
            prop_assert_eq!(&run, &again.into_run());
            prop_assert_eq!(all(&PackedList::of(run).unwrap()), Vec::from(model));
        }

        #[test]
        fn equal_elements_are_found_from_both_ends(
            elements in prop::collection::vec(element(), 0..20), end in end(), within in 0usize..25, most in 1usize..5,
        ) {
            let mut list = PackedList::empty();
            list.push(End::Right, elements.iter().map(Vec::as_slice));
            let mut found = Vec::new();
            list.find(b"a", end, within, |position| {
                found.push(position);
                if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }).unwrap();
            let mut wanted = positions(end, elements.len());
            wanted.truncate(within);
            wanted.retain(|at| elements[*at] == b"a");
            wanted.truncate(most);
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn any_bytes_are_an_error_or_a_list(mut bytes in prop::collection::vec(any::<u8>(), 0..60), good: bool) {
            if good && let Some(first) = bytes.first_mut() {
                *first = 1;
            }
            if good && let Some(count) = bytes.get_mut(1..5) {
                count[1..].fill(0);
            }
            if let Ok(mut list) = PackedList::of(bytes) {
                let len = list.len();
                let _ = (list.get(3).is_ok(), list.get(usize::MAX).is_ok(), list.list().is_ok());
                let _ = list.find(b"a", End::Right, 3, |_| ControlFlow::Continue(()));
                let _ = list.set(2, b"b");
                let _ = list.insert(End::Right, b"b", b"c");
                let _ = list.remove(b"c", End::Right, 1);
                let _ = list.pop(End::Right, 1, |_| ());
                let _ = list.pop(End::Left, 1, |_| ());
                let _ = list.trim(1.min(list.len())..2.min(list.len()));
                list.push(End::Left, [&b"a"[..]].into_iter());
                prop_assert!(list.len() <= len + 2);
            }
        }
    }

    #[test]
    fn positions_are_those_of_redis() {
        for (index, wanted) in [
            (0, Some(0)),
            (2, Some(2)),
            (3, None),
            (-1, Some(2)),
            (-3, Some(0)),
            (-4, None),
            (i64::MAX, None),
            (i64::MIN, None),
        ] {
            assert_eq!(position(3, index), wanted, "{index}");
        }
        for (start, end, wanted) in [
            (0, -1, 0..3),
            (1, 1, 1..2),
            (-2, 100, 1..3),
            (-100, 0, 0..1),
            (0, -100, 0..0),
            (2, 1, 0..0),
            (3, 9, 0..0),
            (i64::MIN, i64::MAX, 0..3),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(part(3, start, end), wanted, "{start} {end}");
        }
        assert_eq!((position(0, 0), part(0, 0, -1)), (None, 0..0));
    }

    #[test]
    fn a_head_that_no_list_has_is_refused() {
        let why = |bytes: &[u8]| PackedList::of(bytes).unwrap_err().to_string();
        assert_eq!(why(b"\x11\0\0\0\0"), "at byte 0: it has flags that this version does not know");
        assert_eq!(why(b"\x01\0"), "at byte 2: it ends within its head");
    }
}
