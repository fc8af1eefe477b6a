//! Tracks the pages of a vector that changed since they were last written out, so that a checkpoint costs only these.
//!
//! A checkpoint *freezes* a vector at one moment and writes its changed pages out afterwards, while rows continue to
//! change them. So every writer *touches* a page before changing it; compiled code does so by one load and a branch.
//!
//! | a page is | freeze | touch | save |
//! |---|---|---|---|
//! | `CLEAN`: as it was written out last | | → `DIRTY` | |
//! | `DIRTY`: changed since the last freeze | → `SAVE` | | |
//! | `SAVE`: to be written out as it is | refused | copied, then → `DIRTY` | written, then → `CLEAN` |
//!
//! # Invariants
//!
//! 1. From a freeze until everything is saved, the frozen bytes of each page that was `DIRTY` are in the vector
//!    (`SAVE`), or in `copied`, or already written out.
//! 2. A vector that is replaced gets a new number, under which all of it is written. The pages written under the old
//!    number stay unchanged until a later checkpoint is complete.

use super::vector::Vector;
use crate::error::{Error, Result};
use crate::memory::MemoryLimit;

const CLEAN: u8 = 0;
/// The only state in which code need not call.
pub const DIRTY: u8 = 1;
const SAVE: u8 = 2;

/// Receives the pages written out: the vector's number, the page's place in it, its bytes.
pub type Put<'p> = dyn FnMut(u64, u32, Vec<u8>) + 'p;

/// Reads pages: number, place.
pub type Get<'g> = dyn FnMut(u64, u32) -> Result<Vec<u8>> + 'g;

/// Vectors of at least this many pages get their own table in the store, which one small write drops. A table takes
/// some KiB of memory; a page in a shared table costs a deletion.
const PAGES_OWN_LEAST: usize = 256;

/// Assigns numbers to vectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers {
    next: u64,
    /// The distance from one number to the next: other parts assign the numbers between.
    step: u64,
    /// The numbers that the checkpoint uses.
    pub named: Vec<u64>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers::of_part(0, 1)
    }
}

impl Numbers {
    /// Numbers above those that were assigned before.
    pub fn above(next: u64) -> Numbers {
        Numbers { next, step: 1, named: Vec::new() }
    }

    /// Numbers that only this part, of `count` parts, assigns.
    pub fn of_part(part: u64, count: u64) -> Numbers {
        Numbers { next: part, step: count, named: Vec::new() }
    }

    /// Continues as one of `count` parts, which assigned the earlier numbers.
    #[must_use]
    pub fn in_steps(self, count: u64) -> Numbers {
        Numbers { step: count, ..self }
    }

    /// Numbers assigned from now on are above this one.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Whether the vector with this number has its own table.
    pub fn has_own_table(number: u64) -> bool {
        number & 1 != 0
    }

    fn give(&mut self, pages: usize) -> u64 {
        self.next += self.step;
        self.next << 1 | u64::from(pages >= PAGES_OWN_LEAST)
    }
}

/// The pages of one vector.
#[derive(Debug, Default)]
pub struct Pages {
    /// Its number; zero before it was frozen.
    number: u64,
    states: Vec<u8>,
    /// Pages copied when they were touched.
    copied: Vec<(u32, Vec<u8>)>,
    /// No page before it is `SAVE`.
    next: usize,
    /// Whether checkpoints will ask for changed pages.
    tracked: bool,
}

impl Pages {
    /// Pages of a new vector: `pages` of them, all dirty.
    pub fn new(tracked: bool, pages: usize) -> Pages {
        Pages { states: vec![DIRTY; if tracked { pages } else { 0 }], tracked, ..Pages::default() }
    }

    /// The address of the states, for code.
    pub fn address(&self) -> usize {
        self.states.as_ptr() as usize
    }

    /// Marks a page that is about to change. `copy` gives its bytes.
    pub fn touch(&mut self, page: usize, copy: impl FnOnce() -> Vec<u8>) {
        if !self.tracked {
            return;
        }
        if page >= self.states.len() {
            self.states.resize(page + 1, DIRTY);
        }
        match self.states[page] {
            DIRTY => {}
            SAVE => {
                self.copied.push((page as u32, copy()));
                self.states[page] = DIRTY;
            }
            _ => self.states[page] = DIRTY,
        }
    }

    /// Whether pages of the last freeze are not written out yet.
    fn waits(&self) -> bool {
        !self.copied.is_empty() || self.states[self.next.min(self.states.len())..].contains(&SAVE)
    }

    /// Bytes of copied pages that wait to be written out.
    pub fn copies(&self) -> usize {
        self.copied.len() * PAGE_BYTES
    }

    /// Freezes the vector: its current bytes are the ones to save. Returns the vector's number.
    pub fn freeze(&mut self, numbers: &mut Numbers) -> u64 {
        debug_assert!(!self.waits(), "a page of the checkpoint before is not written out");
        if self.number == 0 {
            self.number = numbers.give(self.states.len());
        }
        for state in &mut self.states {
            // Without a branch: there may be 100,000.
            *state <<= u8::from(*state == DIRTY);
        }
        self.next = 0;
        numbers.named.push(self.number);
        self.number
    }

    /// Writes pages out until `budget` bytes are used up; returns whether all are written.
    pub fn save(
        &mut self,
        mut copy: impl FnMut(usize) -> Vec<u8>,
        put: &mut Put<'_>,
        budget: &mut usize,
    ) -> bool {
        let mut give = |page: u32, bytes: Vec<u8>, budget: &mut usize| {
            // A page of no bytes has a cost too.
            *budget = budget.saturating_sub(bytes.len() + 64);
            put(self.number, page, bytes);
        };
        while *budget > 0
            && let Some((page, bytes)) = self.copied.pop()
        {
            give(page, bytes, budget);
        }
        while *budget > 0 && self.next < self.states.len() {
            let Some(page) = self.states[self.next..].iter().position(|state| *state == SAVE) else {
                self.next = self.states.len();
                break;
            };
            self.next += page;
            give(self.next as u32, copy(self.next), budget);
            self.states[self.next] = CLEAN;
            self.next += 1;
        }
        self.copied.is_empty() && self.next == self.states.len()
    }

    /// Replaces the vector by one of `pages` pages. The parts that are still to be saved go into the returned `Left`,
    /// with their bytes.
    pub fn replace(&mut self, pages: usize, data: impl FnOnce() -> Data) -> Option<Left> {
        let new = Pages::new(self.tracked, pages);
        let old = std::mem::replace(self, new);
        old.waits().then(|| Left { pages: old, data: data() })
    }

    /// The pages of a vector that was just read under this number.
    pub fn restored(number: u64, pages: usize) -> Pages {
        Pages { number, states: vec![CLEAN; pages], copied: Vec::new(), next: pages, tracked: true }
    }
}

/// The elements of a replaced vector.
#[derive(Debug)]
pub enum Data {
    /// Words, and the number of words of a page.
    Words(Vector<u64>, usize),
    /// Bytes.
    Bytes(Vector<u8>),
}

/// A vector that was replaced before its pages were written out.
#[derive(Debug)]
pub struct Left {
    pages: Pages,
    data: Data,
}

impl Left {
    /// As [`Pages::copies`].
    pub fn copies(&self) -> usize {
        self.pages.copies()
    }

    /// As [`Pages::save`].
    pub fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool {
        let data = &self.data;
        let copy = |page: usize| match data {
            Data::Words(words, each) => page_of_words(words, *each, page),
            Data::Bytes(bytes) => page_of_bytes(bytes, page),
        };
        self.pages.save(copy, put, budget)
    }
}

/// Saves the rest of replaced vectors, and forgets those that are done; returns whether all are.
pub fn save_left(left: &mut Vec<Left>, put: &mut Put<'_>, budget: &mut usize) -> bool {
    while let Some(last) = left.last_mut() {
        if !last.save(put, budget) {
            return false;
        }
        left.pop();
    }
    true
}

/// Bytes of a page of bytes; a page of words has at most as many.
pub const PAGE_BYTES: usize = 4096;

/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The bytes of a page of words.
pub fn page_of_words(words: &[u64], each: usize, page: usize) -> Vec<u8> {
    let words = &words[page * each..words.len().min((page + 1) * each)];
    let mut bytes = vec![0; words.len() * 8];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The bytes of a page of bytes.
pub fn page_of_bytes(bytes: &[u8], page: usize) -> Vec<u8> {
    bytes[page * PAGE_BYTES..bytes.len().min((page + 1) * PAGE_BYTES)].to_vec()
}

/// Reads back a vector of this many words, `each` on a page.
pub fn read_words(
    number: u64,
    (count, each): (usize, usize),
    get: &mut Get<'_>,
    memory_limit: &MemoryLimit,
) -> Result<Vector<u64>> {
    // Not reserved by the count read, which may be damaged.
    let mut words = Vector::new(memory_limit);
    for page in 0..count.div_ceil(each) {
        let bytes = get(number, page as u32)?;
        let wanted = each.min(count - page * each);
        if bytes.len() < wanted * 8 {
            return Err(short(number, page));
        }
        let (read, _) = bytes.as_chunks::<8>();
        let read: Vec<u64> = read[..wanted].iter().map(|word| u64::from_le_bytes(*word)).collect();
        words.extend_from_slice(&read);
    }
    Ok(words)
}

/// Reads back a vector of this many bytes.
pub fn read_bytes(
    number: u64,
    count: usize,
    get: &mut Get<'_>,
    memory_limit: &MemoryLimit,
) -> Result<Vector<u8>> {
    let mut read = Vector::new(memory_limit);
    for page in 0..count.div_ceil(PAGE_BYTES) {
        let bytes = get(number, page as u32)?;
        let wanted = PAGE_BYTES.min(count - page * PAGE_BYTES);
        read.extend_from_slice(bytes.get(..wanted).ok_or_else(|| short(number, page))?);
    }
    Ok(read)
}

fn short(number: u64, page: usize) -> Error {
    Error::evaluation(format!(
        "page {page} of vector {number} in the checkpoint ends too early; it is damaged"
    ))
}

/// Reads words of the part of a checkpoint that is not in pages.
pub struct Reader<'b>(pub &'b [u8]);

impl Reader<'_> {
    /// The next word.
    pub fn word(&mut self) -> Result<u64> {
        let (word, rest) = self
            .0
            .split_first_chunk::<8>()
            .ok_or_else(|| Error::evaluation("the checkpoint ends too early; it is damaged"))?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// The next word, as a count of things that are in memory.
    pub fn count(&mut self) -> Result<usize> {
        // 2^40: more than any machine has.
        let word = self.word()?;
        match usize::try_from(word) {
            Ok(count) if word < 1 << 40 => Ok(count),
            _ => Err(Error::evaluation(format!("the checkpoint has a count of {word}; it is damaged"))),
        }
    }
}

/// Appends a word to the part of a checkpoint that is not in pages.
pub fn write_word(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(pages: &mut Pages, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut saved = Vec::new();
        let copy = |page| page_of_bytes(data, page);
        assert!(pages.save(copy, &mut |_, page, bytes| saved.push((page, bytes)), &mut usize::MAX.clone()));
        saved.sort();
        saved
    }

    #[test]
    fn pages_are_saved_as_they_were_when_they_were_frozen() {
        let mut data = vec![1; 3 * PAGE_BYTES];
        let mut pages = Pages::new(true, 3);
        let mut numbers = Numbers::default();
        let number = pages.freeze(&mut numbers);
        for page in [0, 2] {
            pages.touch(page, || page_of_bytes(&data, page));
            data[page * PAGE_BYTES] = 2;
        }
        let saved = save(&mut pages, &data);
        assert_eq!(saved.len(), 3);
        assert!(saved.iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 1)));
        // The next freeze has only the pages touched since.
        assert_eq!(pages.freeze(&mut numbers), number);
        assert_eq!(save(&mut pages, &data).iter().map(|(page, _)| *page).collect::<Vec<_>>(), [0, 2]);
        pages.freeze(&mut numbers);
        assert!(save(&mut pages, &data).is_empty());
    }

    #[test]
    fn a_vector_that_is_replaced_is_saved_as_it_was() {
        let mut data = vec![1; 2 * PAGE_BYTES];
        let mut pages = Pages::new(true, 2);
        let mut numbers = Numbers::default();
        let number = pages.freeze(&mut numbers);
        pages.touch(1, || page_of_bytes(&data, 1));
        data[PAGE_BYTES] = 2;
        let mut kept = Vector::new(&MemoryLimit::default());
        kept.extend_from_slice(&data);
        let mut left: Vec<Left> = pages.replace(1, || Data::Bytes(kept)).into_iter().collect();
        let mut saved = Vec::new();
        assert!(save_left(&mut left, &mut |of, page, bytes| saved.push((of, page, bytes)), &mut (1 << 20)));
        saved.sort();
        assert_eq!(
            saved.iter().map(|(of, page, _)| (*of, *page)).collect::<Vec<_>>(),
            [(number, 0), (number, 1)]
        );
        assert!(saved.iter().all(|(.., bytes)| bytes.iter().all(|byte| *byte == 1)));
        assert_ne!(pages.freeze(&mut numbers), number);
    }
}
