//! Index memory as pages addressed by number, from one arena of the store.
//!
//! ```text
//! page number = its first line of 64 bytes:  | span: 22 bits | frame: 4 | line: 6 |
//! arena:  spans of 64 KiB  →  16 frames of 4 KiB each  →  pages of one class in a frame
//! ```
//!
//! A page has 64 bytes to 4 KiB, a power of two: its *class*. A frame is one page of 4 KiB, or holds smaller ones of
//! one class. A frame without pages is free for any class. A span without pages goes back to the system, as long as
//! some free frames are left. Numbers reach 256 GiB.
//!
//! Costs: a page's address is two loads from tables of some KiB. Taking or giving a page takes the arena's lock for
//! some tens of nanoseconds, or microseconds when a span is added or given back. That happens once in hundreds of
//! elements: threads with different collections rarely contend there, and nowhere else. The arena's data on a frame
//! takes 24 bytes (0.6 %).
//!
//! Words of a page are atomics with relaxed loads and stores, which are plain instructions. A page belongs to one
//! collection. Its user has the lock of the collection's key, and that lock orders all accesses. They are atomics so
//! that pages of all collections may share one piece of memory on huge pages, without promising the compiler that their
//! users do not alias.
//!
//! Invariants:
//! 1. A frame has pages of one class. It is in the list of that class if some but not all of its pages are taken. It is
//!    in the list of free frames if none is, and in no list if all are.
//! 2. A span that was handed out by the memory stays readable for as long as the arena lives, also after it was given
//!    back. (No line can check it without touching the span. `memory` keeps it; that the arena has it is asserted.)
//! 3. The page that [`Pages::take`] returns reads as zeros.

use crate::memory::{Memory, Piece};
use crate::prefetch;
use duramen_log::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use duramen_log::sync::atomic::{AtomicPtr, AtomicU64};
use duramen_log::sync::{Arc, Mutex, OnceLock, lock, rank};

pub(super) const LINE_WORDS: usize = 8;
const LINE_BYTES: u64 = 64;
const FRAME_LINES: u32 = 64;
// Miri looks at all words of a span whenever a page is asked for.
const SPAN_LINES: u32 = if cfg!(miri) { FRAME_LINES } else { 1024 };
const SPAN_FRAMES: u32 = SPAN_LINES / FRAME_LINES;
const SPAN_WORDS: usize = SPAN_LINES as usize * LINE_WORDS;
const SPANS_MAX: u32 = u32::MAX / SPAN_LINES;
/// Spans in the first table; each further one is twice as long.
const TABLE_SPANS: u32 = 16;
const TABLES: usize = 19;
/// Free frames that the arena keeps, plus a share of those in use, before it gives spans back.
const FREE_FRAMES_KEPT: u32 = 2 * SPAN_FRAMES;

const _: () = assert!(cfg!(miri) || (TABLE_SPANS as u64) * ((1 << TABLES) - 1) >= SPANS_MAX as u64);

/// The size of a page: 64 bytes, doubled this many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class(u8);

impl Class {
    pub(super) const SMALLEST: Self = Self(0);
    /// 4 KiB.
    pub(super) const LARGEST: Self = Self(6);

    /// A page of `2^doublings` lines, at most the largest.
    #[inline]
    pub(super) const fn doubled(doublings: u32) -> Self {
        debug_assert!(doublings <= Self::LARGEST.0 as u32);
        Self(doublings as u8)
    }

    #[inline]
    pub(super) const fn lines(self) -> u32 {
        1 << self.0
    }

    #[inline]
    pub(super) const fn words(self) -> usize {
        LINE_WORDS << self.0
    }

    pub(super) const fn bytes(self) -> u64 {
        LINE_BYTES << self.0
    }

    pub(super) const fn doublings(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn larger(self) -> Self {
        Self::doubled(self.doublings() + 1)
    }

    pub(super) fn smaller(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// All pages of a frame, as bits.
    const fn all(self) -> u64 {
        u64::MAX >> (64 - FRAME_LINES / self.lines())
    }
}

#[repr(C, align(4096))]
struct Span([AtomicU64; SPAN_WORDS]);

impl Piece for Span {}

/// The end of a list of frames.
const NONE: u32 = u32::MAX;

const _: () = assert!(size_of::<Frame>() == 24);

/// The arena's data on a frame.
#[derive(Clone, Copy)]
struct Frame {
    /// Its pages that are not taken, as bits.
    free: u64,
    class: Class,
    /// Its neighbours in its list (invariant 1).
    before: u32,
    after: u32,
}

impl Frame {
    const FREE: Self = Self { free: Class::LARGEST.all(), class: Class::LARGEST, before: NONE, after: NONE };

    fn is_free(self) -> bool {
        self.free == self.class.all()
    }
}

struct State {
    frames: Vec<Frame>,
    /// The first frame of each list: frames of a class with room, and, for the largest class, the free frames.
    lists: [u32; Class::LARGEST.0 as usize + 1],
    frames_free: u32,
    /// Spans that were given back.
    spans_given: Vec<u32>,
}

impl State {
    fn link(&mut self, frame: u32) {
        let Frame { class, .. } = self.frames[frame as usize];
        let after = std::mem::replace(&mut self.lists[usize::from(class.0)], frame);
        self.frames[frame as usize].before = NONE;
        self.frames[frame as usize].after = after;
        if after != NONE {
            self.frames[after as usize].before = frame;
        }
    }

    fn unlink(&mut self, frame: u32) {
        let Frame { class, before, after, .. } = self.frames[frame as usize];
        match before {
            NONE => self.lists[usize::from(class.0)] = after,
            before => self.frames[before as usize].after = after,
        }
        if after != NONE {
            self.frames[after as usize].before = before;
        }
    }

    fn in_use(&self) -> u32 {
        let given = self.spans_given.len() as u32 * SPAN_FRAMES;
        self.frames.len() as u32 - given - self.frames_free
    }
}

/// The memory of all pages of a store's collections.
pub struct Arena {
    memory: Memory<Span>,
    /// The spans by number. A span that was given back is null.
    tables: [OnceLock<Box<[AtomicPtr<Span>]>>; TABLES],
    state: Mutex<State, { rank::PAGES }>,
}

impl Default for Arena {
    fn default() -> Self {
        let state = State {
            frames: Vec::new(),
            lists: [NONE; Class::LARGEST.0 as usize + 1],
            frames_free: 0,
            spans_given: Vec::new(),
        };
        Self {
            memory: Memory::default(),
            tables: std::array::from_fn(|_| OnceLock::new()),
            state: Mutex::new(state),
        }
    }
}

impl Arena {
    /// The table that has a span, and its place there.
    #[inline]
    fn table_of(span: u32) -> (usize, usize) {
        let place = span + TABLE_SPANS;
        let table = place.ilog2() - TABLE_SPANS.ilog2();
        (table as usize, (place - (TABLE_SPANS << table)) as usize)
    }

    #[inline]
    fn span(&self, span: u32) -> &Span {
        let (table, place) = Self::table_of(span);
        let pointer = match self.tables[table].get() {
            // Acquire: pairs with the Release in `add_span`.
            Some(table) => table[place].load(Acquire),
            None => std::ptr::null_mut(),
        };
        // SAFETY: null, or a span that the memory keeps readable (invariant 2); it is made of atomics.
        match unsafe { pointer.as_ref() } {
            Some(span) => span,
            None => unreachable!("a page in span {span}, which has none (invariant 2)"),
        }
    }

    /// The first `lines` lines of the page, as words.
    #[inline]
    fn words(&self, page: u32, words: usize) -> &[AtomicU64] {
        let first = (page % SPAN_LINES) as usize * LINE_WORDS;
        &self.span(page / SPAN_LINES).0[first..][..words]
    }

    fn take(&self, class: Class) -> u32 {
        let state = &mut *lock(&self.state);
        let mut frame = state.lists[usize::from(class.0)];
        if frame == NONE {
            frame = state.lists[usize::from(Class::LARGEST.0)];
            if frame == NONE {
                self.add_span(state);
                frame = state.lists[usize::from(Class::LARGEST.0)];
            }
        }
        if state.frames[frame as usize].is_free() {
            state.unlink(frame);
            state.frames_free -= 1;
            state.frames[frame as usize] = Frame { free: class.all(), class, ..Frame::FREE };
            state.link(frame);
        }
        let found = &mut state.frames[frame as usize];
        debug_assert!(
            found.class == class && found.free != 0,
            "frame {frame} in the list of {class:?} has pages {:#x} of {:?} (invariant 1)",
            found.free,
            found.class
        );
        let place = found.free.trailing_zeros();
        found.free &= found.free - 1;
        if found.free == 0 {
            state.unlink(frame);
        }
        frame * FRAME_LINES + place * class.lines()
    }

    fn give(&self, page: u32, class: Class) {
        let state = &mut *lock(&self.state);
        let (frame, place) = (page / FRAME_LINES, page % FRAME_LINES / class.lines());
        let found = &mut state.frames[frame as usize];
        assert!(
            found.class == class && found.free & 1 << place == 0,
            "page {page} is returned with class {class:?}, with which it was not taken (invariant 1)"
        );
        let was_full = found.free == 0;
        found.free |= 1 << place;
        let is_free = found.is_free();
        if was_full {
            state.link(frame);
        }
        if is_free {
            state.unlink(frame);
            state.frames[frame as usize] = Frame::FREE;
            state.link(frame);
            state.frames_free += 1;
            self.give_span(state, frame / SPAN_FRAMES);
        }
    }

    /// Adds a span of free frames.
    fn add_span(&self, state: &mut State) {
        let span = state.spans_given.pop().unwrap_or(state.frames.len() as u32 / SPAN_FRAMES);
        // Panics as every allocation in this process does when there is no memory left.
        assert!(
            span < SPANS_MAX,
            "the collections' index has {SPANS_MAX} spans of 64 KiB, which is the maximum"
        );
        let first = span * SPAN_FRAMES;
        if first as usize == state.frames.len() {
            state.frames.resize(first as usize + SPAN_FRAMES as usize, Frame::FREE);
        }
        let (table, place) = Self::table_of(span);
        let spans = || (0..TABLE_SPANS << table).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        let table = self.tables[table].get_or_init(spans);
        assert!(table[place].load(Relaxed).is_null(), "span {span} is handed out twice (invariant 2)");
        // Release: pairs with the Acquire in `span`; a thread that has a number from here reads zeros there.
        table[place].store(self.memory.take().as_ptr(), Release);
        (first..first + SPAN_FRAMES).rev().for_each(|frame| state.link(frame));
        state.frames_free += SPAN_FRAMES;
    }

    /// Gives a span back if all its frames are free and enough others are.
    fn give_span(&self, state: &mut State, span: u32) {
        let frames = span * SPAN_FRAMES..(span + 1) * SPAN_FRAMES;
        let enough = state.frames_free > FREE_FRAMES_KEPT + state.in_use() / 8;
        if !enough || !frames.clone().all(|frame| state.frames[frame as usize].is_free()) {
            return;
        }
        frames.for_each(|frame| state.unlink(frame));
        state.frames_free -= SPAN_FRAMES;
        state.spans_given.push(span);
        let words = &self.span(span).0;
        words.iter().for_each(|word| word.store(0, Relaxed));
        let (table, place) = Self::table_of(span);
        let Some(table) = self.tables[table].get() else { return };
        // Relaxed: no page of it is taken, so nobody looks.
        if let Some(span) = std::ptr::NonNull::new(table[place].swap(std::ptr::null_mut(), Relaxed)) {
            self.memory.give(span);
        }
    }

    /// Bytes of DRAM that the arena holds: spans, and its data on their frames.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes() + (lock(&self.state).frames.len() * size_of::<Frame>()) as u64
    }

    /// Bytes of the frames that have pages.
    #[cfg(test)]
    pub(super) fn bytes_in_use(&self) -> u64 {
        u64::from(lock(&self.state).in_use()) * u64::from(FRAME_LINES) * LINE_BYTES
    }

    /// Walks all frames and panics unless lists and frames agree.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let state = lock(&self.state);
        let mut listed = vec![None; state.frames.len()];
        for (class, &first) in state.lists.iter().enumerate() {
            let (mut before, mut frame) = (NONE, first);
            while frame != NONE {
                assert_eq!(listed[frame as usize].replace(class), None, "frame {frame} is in two lists");
                assert_eq!(state.frames[frame as usize].before, before);
                (before, frame) = (frame, state.frames[frame as usize].after);
            }
        }
        let is_given = |frame: usize| state.spans_given.contains(&(frame as u32 / SPAN_FRAMES));
        let mut frames_free = 0;
        for (number, frame) in state.frames.iter().enumerate() {
            let want =
                if is_given(number) || frame.free == 0 { None } else { Some(usize::from(frame.class.0)) };
            assert_eq!(listed[number], want, "the list of frame {number}");
            assert!(!frame.is_free() || frame.class == Class::LARGEST);
            frames_free += u32::from(frame.is_free() && !is_given(number));
        }
        assert_eq!(state.frames_free, frames_free);
    }
}

/// The bytes of pages that the collections of one table hold.
#[derive(Default)]
pub struct Account(AtomicU64);

impl Account {
    pub fn bytes(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The pages of one index of one collection.
pub struct Pages {
    arena: Arc<Arena>,
    account: Arc<Account>,
    bytes: u64,
}

impl Pages {
    pub fn new(arena: Arc<Arena>, account: Arc<Account>) -> Self {
        Self { arena, account, bytes: 0 }
    }

    #[cfg(test)]
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Pages of another index of the same table.
    pub fn another(&self) -> Self {
        Self::new(Arc::clone(&self.arena), Arc::clone(&self.account))
    }

    /// Bytes of the pages that were taken and not given back.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A page of zeros.
    pub(super) fn take(&mut self, class: Class) -> u32 {
        let page = self.arena.take(class);
        self.clear(page, class);
        self.bytes += class.bytes();
        self.account.0.fetch_add(class.bytes(), Relaxed);
        page
    }

    pub(super) fn give(&mut self, page: u32, class: Class) {
        self.arena.give(page, class);
        self.bytes -= class.bytes();
        self.account.0.fetch_sub(class.bytes(), Relaxed);
    }

    pub(super) fn clear(&self, page: u32, class: Class) {
        self.words(page, class.words()).iter().for_each(|word| word.store(0, Relaxed));
    }

    /// The first words of a page.
    #[inline]
    pub(super) fn words(&self, page: u32, words: usize) -> &[AtomicU64] {
        self.arena.words(page, words)
    }

    #[inline]
    pub(super) fn word(&self, page: u32, at: usize) -> u64 {
        let line = page + (at / LINE_WORDS) as u32;
        self.words(line, LINE_WORDS)[at % LINE_WORDS].load(Relaxed)
    }

    #[inline]
    pub(super) fn set_word(&mut self, page: u32, at: usize, word: u64) {
        let line = page + (at / LINE_WORDS) as u32;
        self.words(line, LINE_WORDS)[at % LINE_WORDS].store(word, Relaxed);
    }

    /// Hints that this many lines of a page are read soon.
    #[inline]
    pub(super) fn prefetch(&self, page: u32, lines: u32) {
        self.words(page, lines as usize * LINE_WORDS).iter().step_by(LINE_WORDS).for_each(prefetch);
    }
}
