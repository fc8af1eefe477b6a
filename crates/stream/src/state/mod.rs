//! What breakers keep: records of fixed size by key, one table for each window, in memory, or beyond a bound on files
//! that the kernel pages out (`vector.rs`).
//!
//! [`State`] is what a breaker needs of whatever keeps its state. [`Memory`] is the one there is. Compiled code finds a
//! record by itself: it reads the [`Head`] of a [`Table`] and walks its entries. It calls only for what is rare: a
//! window that it did not use last, a table or a page of rows that is full, a text that is new.
//!
//! # Invariants
//!
//! 1. An entry whose first word is zero is empty, and all its words are zero: whoever fills it need not clear it.
//! 2. `count <= limit < entries`: a walk from any entry meets an empty one.
//! 3. A text is a place in `bytes` and a length, a row of a list a place in `rows` plus one: nothing in a table is an
//!    address, so that a table may be moved, written out and read back.
//! 4. A page of a table that is tracked is touched before it is changed (`pages.rs`).
//! 5. Code appends rows within [`Head::rows_end`] only: the vector has these words, and their page has been touched.
//! 6. A table's own address never changes while a window is open, and its `Head` says where its vectors are now.

mod memory;
mod pages;
mod sessions;
mod table;
mod vector;

pub use memory::Memory;
pub use pages::{DIRTY, Get, Numbers, PAGE_WORDS, Put, Reader, write_word};
pub use sessions::{Placed, Session, Sessions};
pub use table::{Head, Layout, MULTIPLIER, Table, hash_bytes, hash_seed};
pub use vector::MemoryLimit;

use crate::error::Result;

/// A window of time [start, end), in microseconds. Groups without windows have [`Window::ALWAYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// The first moment after it. First, so that windows are in the order in which they close.
    pub end: i64,
    /// Its first moment.
    pub start: i64,
}

impl Window {
    /// The window that never closes.
    pub const ALWAYS: Window = Window { end: i64::MAX, start: i64::MIN };
}

/// The state of one breaker.
pub trait State {
    /// The table of a window, made if it is not there. Its address stays until the window is taken.
    fn table(&mut self, window: Window) -> &mut Table;

    /// The windows that are there, the first to close first.
    fn windows(&self) -> Vec<Window>;

    /// The table of a window if it is there.
    fn get(&self, window: Window) -> Option<&Table>;

    /// Takes a whole window out.
    fn take(&mut self, window: Window) -> Option<Box<Table>>;

    /// An empty table of the same layout, for what is put together of several windows.
    fn scratch(&mut self) -> Box<Table>;

    /// Gives a table back whose records nobody needs any more; its memory is used for the next window.
    fn give_back(&mut self, table: Box<Table>);

    /// Bytes that are held, in use or not.
    fn bytes(&self) -> usize;

    /// Bytes of pages that were copied and wait to be written out.
    fn copies(&self) -> usize;

    /// Keeps everything as it is now for a checkpoint, and writes to `out` what finds it again.
    fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>);

    /// Writes pages out that were frozen, until `budget` bytes are used up; whether all are.
    fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool;

    /// Replaces everything by what was frozen. The numbers of its vectors go to `named`.
    fn restore(&mut self, reader: &mut Reader<'_>, get: &mut Get<'_>, named: &mut Vec<u64>) -> Result<()>;
}
