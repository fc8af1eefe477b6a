//! Memory of the simulated medium: cache lines of atomic words, and which pages were stored to.

use crate::{LINE_BYTES, PAGE_BYTES, lines_of};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words in a cache line.
pub(super) const LINE_WORDS: usize = 8;
const PAGE_LINES: u64 = PAGE_BYTES / LINE_BYTES;

#[derive(Default)]
#[repr(C, align(64))]
struct Line([AtomicU64; LINE_WORDS]);

/// The bytes of a simulated medium. They keep their address for as long as the `Memory` lives.
pub struct Memory {
    lines: Box<[Line]>,
    /// One bit for each page that may differ from what it was made from.
    dirty: Box<[AtomicU64]>,
}

impl Memory {
    /// Zeroed memory of `bytes` bytes, rounded up to pages.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let pages = bytes.div_ceil(PAGE_BYTES);
        Self {
            lines: (0..pages * PAGE_LINES).map(|_| Line::default()).collect(),
            dirty: (0..pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Bytes that there are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lines.len() as u64 * LINE_BYTES
    }

    pub(super) fn pointer(&self, at: u64) -> *const u8 {
        self.lines.as_ptr().cast::<u8>().wrapping_add(at as usize)
    }

    pub(super) fn word(&self, at: u64) -> &AtomicU64 {
        &self.lines[(at / LINE_BYTES) as usize].0[(at / 8) as usize % LINE_WORDS]
    }

    /// The words of a line.
    #[must_use]
    pub fn line(&self, line: u32) -> [u64; LINE_WORDS] {
        let words = &self.lines[line as usize].0;
        std::array::from_fn(|i| words[i].load(Relaxed))
    }

    /// Stores those words of a line that `mask` has a bit for.
    pub fn set_line(&self, line: u32, mask: u8, words: &[u64; LINE_WORDS]) {
        self.mark_dirty(line);
        for (i, word) in self.lines[line as usize].0.iter().enumerate() {
            if mask >> i & 1 != 0 {
                word.store(words[i], Relaxed);
            }
        }
    }

    /// Stores one aligned word (release).
    pub(super) fn store_word(&self, at: u64, word: u64) {
        self.mark_dirty((at / LINE_BYTES) as u32);
        self.word(at).store(word, Release);
    }

    /// Stores `parts` one after the other from `at`; returns their length in bytes.
    pub(super) fn store(&self, at: u64, parts: &[&[u8]]) -> u64 {
        let mut to = at;
        for part in parts {
            let mut bytes: &[u8] = part;
            while !bytes.is_empty() {
                let inside = (to % 8) as usize;
                let n = bytes.len().min(8 - inside);
                let word = self.word(to & !7);
                let mut content = if n == 8 { [0; 8] } else { word.load(Relaxed).to_le_bytes() };
                content[inside..inside + n].copy_from_slice(&bytes[..n]);
                word.store(u64::from_le_bytes(content), Relaxed);
                bytes = &bytes[n..];
                to += n as u64;
            }
        }
        for line in lines_of(at, to - at).step_by(PAGE_BYTES as usize) {
            self.mark_dirty((line / LINE_BYTES) as u32);
        }
        if to > at {
            self.mark_dirty(((to - 1) / LINE_BYTES) as u32);
        }
        to - at
    }

    /// Reads one aligned word (acquire).
    pub(super) fn load_word(&self, at: u64) -> u64 {
        self.word(at).load(Acquire)
    }

    pub(super) fn mark_dirty(&self, line: u32) {
        let page = u64::from(line) / PAGE_LINES;
        let bits = &self.dirty[(page / 64) as usize];
        let bit = 1 << (page % 64);
        if bits.load(Relaxed) & bit == 0 {
            bits.fetch_or(bit, Relaxed);
        }
    }

    /// Makes every dirty page what `lines` says, and none dirty.
    pub(super) fn restore(&self, lines: &[[u64; LINE_WORDS]]) {
        for (i, bits) in self.dirty.iter().enumerate() {
            let mut left = bits.swap(0, Relaxed);
            while left != 0 {
                let page = i * 64 + left.trailing_zeros() as usize;
                left &= left - 1;
                let page = page * PAGE_LINES as usize..(page + 1) * PAGE_LINES as usize;
                for (line, now) in self.lines[page.clone()].iter().zip(&lines[page]) {
                    for (word, &now) in line.0.iter().zip(now) {
                        word.store(now, Relaxed);
                    }
                }
            }
        }
    }

    /// A copy of all lines.
    #[must_use]
    pub fn snapshot(&self) -> Vec<[u64; LINE_WORDS]> {
        (0..self.lines.len() as u32).map(|line| self.line(line)).collect()
    }

    /// Memory of `bytes` bytes that begins with `lines`.
    #[must_use]
    pub fn from_lines(lines: &[[u64; LINE_WORDS]], bytes: u64) -> Self {
        let memory = Self::new(bytes.max(lines.len() as u64 * LINE_BYTES));
        for (line, words) in lines.iter().enumerate() {
            for (to, &word) in memory.lines[line].0.iter().zip(words) {
                to.store(word, Relaxed);
            }
        }
        memory
    }

    /// Changes one bit: damage.
    pub fn flip_bit(&self, bit: u64) {
        let at = bit / 64 * 8;
        self.mark_dirty((at / LINE_BYTES) as u32);
        self.word(at).fetch_xor(1 << (bit % 64), Relaxed);
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_written_one_after_the_other_and_neighbours_stay(
            at in 0u64..200,
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..90), 0..4),
        ) {
            let memory = Memory::new(PAGE_BYTES);
            let mut wanted = vec![0u8; PAGE_BYTES as usize];
            let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let whole = parts.concat();
            wanted[at as usize..][..whole.len()].copy_from_slice(&whole);
            prop_assert_eq!(memory.store(at, &slices), whole.len() as u64);
            let found: Vec<u8> =
                memory.snapshot().into_iter().flatten().flat_map(u64::to_le_bytes).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
