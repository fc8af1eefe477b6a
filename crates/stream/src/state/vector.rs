//! Vectors of state: in memory, long ones on huge pages. Beyond a job's memory limit they lie in files that the kernel
//! pages out.
//!
//! # Invariants
//!
//! 1. The bytes that vectors of a [`MemoryLimit`] have in memory are counted from before their allocation until they
//!    are freed.
//! 2. A vector moves only when it grows beyond its capacity, as a `Vec` does.

use std::ops::{Deref, DerefMut};

use duramen::Scratch;

use crate::memory::MemoryLimit;
use crate::memory::headroom::{LARGE, give_up, refused, require};

/// Smaller vectors stay on the heap: a file for each would cost more than it frees.
const MAPPED_LEAST: usize = 64 << 10;

/// Whether the process has this much memory for state.
fn has_room(bytes: usize) -> bool {
    bytes < LARGE || require(bytes).is_ok()
}

/// A vector on the heap with capacity for exactly `count` elements, so that the bytes counted are the bytes allocated.
fn allocate<T>(count: usize) -> Option<Vec<T>> {
    let mut vector = Vec::new();
    (has_room(count * size_of::<T>()) && vector.try_reserve_exact(count).is_ok()).then_some(vector)
}

fn zeros<T: Piece>(mut vector: Vec<T>, count: usize) -> Vec<T> {
    vector.resize(count, T::default());
    vector
}

/// An element type: any bits are a value, and zeros are the default.
pub trait Piece: Copy + Default + 'static {
    /// Scratch memory as a slice of it.
    fn of(scratch: &Scratch) -> &[Self];
    /// The same, mutable.
    fn of_mut(scratch: &mut Scratch) -> &mut [Self];
}

impl Piece for u64 {
    fn of(scratch: &Scratch) -> &[u64] {
        scratch.words()
    }

    fn of_mut(scratch: &mut Scratch) -> &mut [u64] {
        scratch.words_mut()
    }
}

impl Piece for u8 {
    fn of(scratch: &Scratch) -> &[u8] {
        scratch.bytes()
    }

    fn of_mut(scratch: &mut Scratch) -> &mut [u8] {
        scratch.bytes_mut()
    }
}

#[derive(Debug)]
enum Held<T> {
    Heap(Vec<T>),
    /// On huge pages, and the number of elements in use.
    Huge(Scratch, usize),
    /// In a file, and the number of elements in use.
    Mapped(Scratch, usize),
}

/// A vector that grows at its end.
pub struct Vector<T: Piece> {
    memory_limit: MemoryLimit,
    held: Held<T>,
}

impl<T: Piece> Default for Vector<T> {
    fn default() -> Self {
        Vector::new(&MemoryLimit::default())
    }
}

impl<T: Piece> std::fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vector({} of {})", self.len(), self.capacity())
    }
}

impl<T: Piece> Drop for Vector<T> {
    fn drop(&mut self) {
        match &self.held {
            Held::Heap(vector) => self.memory_limit.give_back(vector.capacity() * size_of::<T>()),
            Held::Huge(scratch, _) => self.memory_limit.give_back(scratch.bytes().len()),
            Held::Mapped(scratch, _) => self.memory_limit.unmap(scratch),
        }
    }
}

impl<T: Piece> Deref for Vector<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.held {
            Held::Heap(vector) => vector,
            Held::Huge(scratch, len) | Held::Mapped(scratch, len) => &T::of(scratch)[..*len],
        }
    }
}

impl<T: Piece> DerefMut for Vector<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.held {
            Held::Heap(vector) => vector,
            Held::Huge(scratch, len) | Held::Mapped(scratch, len) => &mut T::of_mut(scratch)[..*len],
        }
    }
}

impl<T: Piece> Vector<T> {
    /// An empty vector.
    pub fn new(memory_limit: &MemoryLimit) -> Vector<T> {
        Vector { memory_limit: memory_limit.clone(), held: Held::Heap(Vec::new()) }
    }

    /// An empty vector with capacity for `count` elements.
    pub fn with_capacity(memory_limit: &MemoryLimit, count: usize) -> Vector<T> {
        let mut vector = Vector::new(memory_limit);
        vector.reserve(count);
        vector
    }

    /// A vector of `count` zeros.
    pub fn zeroed(memory_limit: &MemoryLimit, count: usize) -> Vector<T> {
        let bytes = count * size_of::<T>();
        if let Some(scratch) = memory_limit.huge(bytes) {
            return Vector { memory_limit: memory_limit.clone(), held: Held::Huge(scratch, count) };
        }
        if memory_limit.grant(bytes, bytes < MAPPED_LEAST) {
            if let Some(vector) = allocate(count) {
                return Vector { memory_limit: memory_limit.clone(), held: Held::Heap(zeros(vector, count)) };
            }
            memory_limit.give_back(bytes);
        }
        let held = match memory_limit.map(bytes) {
            Some(scratch) => Held::Mapped(scratch, count),
            None => {
                let vector = allocate(count).unwrap_or_else(|| give_up(refused(bytes)));
                memory_limit.grant(bytes, true);
                Held::Heap(zeros(vector, count))
            }
        };
        Vector { memory_limit: memory_limit.clone(), held }
    }

    /// Number of elements that fit before it moves.
    pub fn capacity(&self) -> usize {
        match &self.held {
            Held::Heap(vector) => vector.capacity(),
            Held::Huge(scratch, _) | Held::Mapped(scratch, _) => T::of(scratch).len(),
        }
    }

    /// Makes space for this many more elements.
    fn reserve(&mut self, more: usize) {
        if self.reserve_here(more) {
            return;
        }
        let (len, had) = (self.len(), self.capacity());
        let wanted = (len + more).max(had * 2).max(8);
        let bytes = wanted * size_of::<T>();
        let mut longer = self.memory_limit.huge(bytes).map(|scratch| Held::Huge(scratch, 0));
        if longer.is_none()
            && let Held::Heap(vector) = &mut self.held
            && self.memory_limit.grant((wanted - had) * size_of::<T>(), bytes < MAPPED_LEAST)
        {
            if has_room(bytes) && vector.try_reserve_exact(wanted - len).is_ok() {
                return;
            }
            self.memory_limit.give_back((wanted - had) * size_of::<T>());
        }
        if longer.is_none() {
            longer = self.memory_limit.map(bytes).map(|scratch| Held::Mapped(scratch, 0));
        }
        let mut longer = longer.unwrap_or_else(|| {
            let vector = allocate(wanted).unwrap_or_else(|| give_up(refused(bytes)));
            self.memory_limit.grant(bytes, true);
            Held::Heap(vector)
        });
        match &mut longer {
            Held::Heap(vector) => vector.extend_from_slice(self),
            Held::Huge(scratch, length) | Held::Mapped(scratch, length) => {
                T::of_mut(scratch)[..len].copy_from_slice(self);
                *length = len;
            }
        }
        *self = Vector { memory_limit: self.memory_limit.clone(), held: longer };
    }

    /// Makes space for this many more elements if it need not move for that; returns whether it has the space.
    pub fn reserve_here(&mut self, more: usize) -> bool {
        let (len, had) = (self.len(), self.capacity());
        if had - len >= more {
            return true;
        }
        let Held::Huge(scratch, _) = &mut self.held else { return false };
        let wanted = ((len + more).max(had * 2) * size_of::<T>()).next_multiple_of(Scratch::HUGE_PAGE);
        let added = wanted - scratch.bytes().len();
        if require(added).is_err() || !self.memory_limit.grant(added, false) {
            return false;
        }
        let grown = scratch.grow(wanted);
        if !grown {
            self.memory_limit.give_back(added);
        }
        grown
    }

    /// Extends it to at least this length, and further as far as that costs little. The values of new elements are
    /// unspecified.
    pub fn lengthen(&mut self, least: usize) {
        // 4 KiB of words: stays in the nearest cache until it is used.
        const MORE: usize = 512;
        let len = self.len();
        if least <= len {
            return;
        }
        self.reserve(least - len);
        let longer = (least + MORE).min(self.capacity());
        match &mut self.held {
            Held::Heap(vector) => vector.resize(longer, T::default()),
            Held::Huge(_, len) | Held::Mapped(_, len) => *len = longer,
        }
    }

    /// Shortens it to at most this length.
    pub fn truncate(&mut self, most: usize) {
        match &mut self.held {
            Held::Heap(vector) => vector.truncate(most),
            Held::Huge(_, len) | Held::Mapped(_, len) => *len = most.min(*len),
        }
    }

    /// Appends an element.
    pub fn push(&mut self, value: T) {
        self.extend_from_slice(&[value]);
    }

    /// Appends several elements.
    pub fn extend_from_slice(&mut self, values: &[T]) {
        self.reserve(values.len());
        match &mut self.held {
            Held::Heap(vector) => vector.extend_from_slice(values),
            Held::Huge(scratch, len) | Held::Mapped(scratch, len) => {
                T::of_mut(scratch)[*len..*len + values.len()].copy_from_slice(values);
                *len += values.len();
            }
        }
    }

    /// Appends two slices if it has space for both without moving; returns where the first begins.
    pub fn extend_within_capacity(&mut self, first: &[T], second: &[T]) -> Option<usize> {
        match &mut self.held {
            Held::Heap(vector) if vector.capacity() - vector.len() >= first.len() + second.len() => {
                let place = vector.len();
                vector.extend_from_slice(first);
                vector.extend_from_slice(second);
                Some(place)
            }
            Held::Huge(scratch, len) | Held::Mapped(scratch, len) => {
                let (place, behind) = (*len, *len + first.len());
                let space = T::of_mut(scratch).get_mut(place..behind + second.len())?;
                space[..first.len()].copy_from_slice(first);
                space[first.len()..].copy_from_slice(second);
                *len = behind + second.len();
                Some(place)
            }
            Held::Heap(_) => None,
        }
    }

    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        match &mut self.held {
            Held::Heap(vector) => vector.clear(),
            Held::Huge(_, len) | Held::Mapped(_, len) => *len = 0,
        }
    }

    /// Sets all elements to zero.
    pub fn zero(&mut self) {
        match &mut self.held {
            Held::Heap(vector) => vector.fill(T::default()),
            Held::Huge(scratch, len) => T::of_mut(scratch)[..*len].fill(T::default()),
            // A new file is all zeros, without reading or writing a page.
            Held::Mapped(_, len) => *self = Vector::zeroed(&self.memory_limit, *len),
        }
    }

    /// Takes everything out and leaves an empty vector with the same limit.
    #[must_use]
    pub fn take(&mut self) -> Vector<T> {
        let empty = Vector::new(&self.memory_limit);
        std::mem::replace(self, empty)
    }

    /// A copy of the vector.
    #[must_use]
    pub fn copied(&self) -> Vector<T> {
        let mut copy = Vector::with_capacity(&self.memory_limit, self.len());
        copy.extend_from_slice(self);
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::limit::HUGE_LEAST;

    #[test]
    fn a_vector_beyond_the_memory_limit_is_in_a_file_and_releases_it() {
        let directory = tempfile::tempdir().unwrap();
        let memory_limit = MemoryLimit::of(directory.path(), 1 << 20);
        let heap = || memory_limit.heap();
        let first = Vector::<u64>::zeroed(&memory_limit, 100_000);
        assert_eq!((heap(), memory_limit.mapped()), (800_000, 0));
        let mut second = Vector::<u64>::zeroed(&memory_limit, 100_000);
        assert_eq!(heap(), 800_000);
        assert!((800_000..804_097).contains(&memory_limit.mapped()), "{}", memory_limit.mapped());
        second[99_999] = 7;
        let taken = second.take();
        assert_eq!((taken.len(), taken[99_999], second.len()), (100_000, 7, 0));
        drop((first, taken));
        assert_eq!((heap(), memory_limit.mapped()), (0, 0));
    }

    #[test]
    fn a_long_vector_grows_in_place_up_to_the_memory_limit() {
        let directory = tempfile::tempdir().unwrap();
        let memory_limit = MemoryLimit::of(directory.path(), 40 << 20);
        let heap = || memory_limit.heap();
        let mut vector = Vector::<u64>::with_capacity(&memory_limit, HUGE_LEAST / 8);
        assert_eq!(heap(), HUGE_LEAST);
        (0..HUGE_LEAST as u64 / 8).for_each(|number| vector.push(number));
        let begins = vector.as_ptr();
        vector.push(7);
        assert_eq!((vector.as_ptr(), heap(), memory_limit.mapped()), (begins, 2 * HUGE_LEAST, 0));
        // Beyond its reservation the vector moves, and beyond the memory limit it moves to a file.
        assert!(!vector.reserve_here(16 * HUGE_LEAST));
        vector.extend_from_slice(&vec![8; 2 * HUGE_LEAST]);
        assert_eq!(
            vector[HUGE_LEAST / 8 - 2..][..4],
            [HUGE_LEAST as u64 / 8 - 2, HUGE_LEAST as u64 / 8 - 1, 7, 8]
        );
        assert!(memory_limit.mapped() > 0);
        drop(vector);
        assert_eq!((heap(), memory_limit.mapped()), (0, 0));
    }

    #[test]
    fn a_growing_vector_keeps_its_content_when_it_moves_to_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let memory_limit = MemoryLimit::of(directory.path(), 200_000);
        let mut vector = Vector::<u8>::new(&memory_limit);
        let mut expected = Vec::new();
        for round in 0..1000_u32 {
            let piece = vec![(round % 251) as u8; 700];
            vector.extend_from_slice(&piece);
            expected.extend_from_slice(&piece);
        }
        assert!(memory_limit.mapped() >= 700_000);
        assert_eq!(vector[..], expected[..]);
        assert_eq!(vector.copied()[..], expected[..]);
        let (place, left) = (vector.len(), vector.capacity() - vector.len());
        assert_eq!(vector.extend_within_capacity(&[1], &vec![2; left]), None);
        assert_eq!(vector.extend_within_capacity(&[1], &vec![2; left - 1]), Some(place));
        assert_eq!((vector.len(), &vector[place..place + 2]), (vector.capacity(), &[1, 2][..]));
        let capacity = vector.capacity();
        vector.clear();
        vector.push(1);
        assert_eq!((&vector[..], vector.capacity()), (&[1][..], capacity));
        vector.zero();
        assert_eq!(vector[..], [0]);
    }

    #[test]
    fn a_vector_stays_on_the_heap_where_no_file_can_be_created() {
        let directory = tempfile::tempdir().unwrap();
        let memory_limit = MemoryLimit::of(&directory.path().join("none"), 1000);
        let mut vector = Vector::<u64>::zeroed(&memory_limit, 100_000);
        vector.push(3);
        assert_eq!((vector.len(), vector[100_000], memory_limit.mapped()), (100_001, 3, 0));
    }
}
