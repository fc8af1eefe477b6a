//! Entries that one thread gathers in parts ([`super::build`]), before they are sorted.
//!
//! They lie in separate memory on huge pages, which returns to the system as soon as the index is built. An allocator
//! would keep it, and it is nearly as large as the index.
//!
//! *Invariant*: pieces of a part lie in `memory`, which is freed with them; all but its last one are full.

use super::build::{Parting, Sorted};
use crate::Slot;
use crate::memory::{Memory, Piece};
// One thread stores, and others load when it is done: nothing here is for a model or a schedule to decide.
use duramen_log::sync::atomic::Ordering::Relaxed;
use duramen_log::sync::statics::AtomicU64;
use std::ptr::NonNull;

/// Entries of a piece: 3 KiB, so that the unused ends of the last pieces of some thousand parts are small.
const PIECE_ENTRIES: usize = if cfg!(loom) { 2 } else { 128 };

#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
struct Entries([[AtomicU64; 3]; PIECE_ENTRIES]);

impl Piece for Entries {}

#[derive(Default)]
struct Part {
    pieces: Vec<NonNull<Entries>>,
    len: usize,
}

// SAFETY: entries are made of atomics, in memory that any thread may use.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

/// The entries that one thread has gathered.
pub struct Gathered {
    memory: Memory<Entries>,
    parts: Vec<Part>,
}

impl Gathered {
    pub fn new(parting: &Parting<'_>) -> Self {
        Self { memory: Memory::default(), parts: (0..parting.parts()).map(|_| Part::default()).collect() }
    }

    #[inline]
    pub fn push(&mut self, part: usize, entry: Sorted) {
        let part = &mut self.parts[part];
        let at = part.len % PIECE_ENTRIES;
        if at == 0 {
            part.pieces.push(self.memory.take());
        }
        let Some(piece) = part.pieces.last() else { return };
        // SAFETY: by the invariant.
        let place = &unsafe { piece.as_ref() }.0[at];
        let words = [entry.words[0], entry.words[1], entry.slot.0];
        place.iter().zip(words).for_each(|(place, word)| place.store(word, Relaxed));
        part.len += 1;
    }

    /// Number of entries of a part.
    pub fn len(&self, part: usize) -> usize {
        self.parts[part].len
    }

    /// Appends the entries of a part to `into`.
    pub fn copy(&self, part: usize, into: &mut Vec<Sorted>) {
        let Part { pieces, len } = &self.parts[part];
        for (number, piece) in pieces.iter().enumerate() {
            let count = (len - number * PIECE_ENTRIES).min(PIECE_ENTRIES);
            // SAFETY: by the invariant.
            let places = &unsafe { piece.as_ref() }.0[..count];
            into.extend(places.iter().map(|[first, second, slot]| Sorted {
                words: [first.load(Relaxed), second.load(Relaxed)],
                slot: Slot(slot.load(Relaxed)),
            }));
        }
    }
}
