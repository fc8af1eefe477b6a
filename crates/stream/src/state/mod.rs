//! The state of breakers: records of fixed size by key, one table for each window. State lies in memory and, beyond a
//! limit, in files that the kernel pages out (`vector.rs`).
//!
//! [`State`] is the interface through which a breaker uses its state; [`Memory`] is the only implementation. Compiled
//! code finds a record without calls: it reads the [`Head`] of a [`Table`] and walks its entries. It calls only in rare
//! cases: a window that it did not use last, a full table or page of rows, a new text.
//!
//! # Invariants
//!
//! 1. An entry whose first word is zero is empty, and all its words are zero: code that fills it need not clear it.
//! 2. `count <= limit < entries`: a walk from any entry finds an empty one.
//! 3. A text is a place in `bytes` and a length; a row of a list is a place in `rows` plus one. Nothing in a table is
//!    an address, so a table may be moved, written out and read back.
//! 4. A page of a tracked table is touched before it is changed (`pages.rs`).
//! 5. Code appends rows within [`Head::rows_end`] only: the vector has these words, and their page has been touched.
//! 6. A table's own address never changes while a window is open, and its `Head` says where its vectors are now.

mod memory;
mod pages;
mod sessions;
mod table;
mod vector;

pub use crate::memory::MemoryLimit;
pub use memory::Memory;
pub use pages::{DIRTY, Get, Numbers, PAGE_WORDS, Put, Reader, write_word};
pub use sessions::{Placed, Session, Sessions};
pub use table::{Head, Layout, MULTIPLIER, Table, hash_bytes, hash_seed};

use crate::error::Result;

/// A window of time [start, end), in microseconds. Groups without windows have [`Window::ALWAYS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// End of the window, exclusive. The first field, so that windows are ordered by when they close.
    pub end: i64,
    /// Start of the window.
    pub start: i64,
}

impl Window {
    /// The window that never closes.
    pub const ALWAYS: Window = Window { end: i64::MAX, start: i64::MIN };
}

/// The state of one breaker.
pub trait State {
    /// The table of a window, made if it does not exist. Its address stays until the window is taken.
    fn table(&mut self, window: Window) -> &mut Table;

    /// The existing windows, the first to close first.
    fn windows(&self) -> Vec<Window>;

    /// The table of a window if it exists.
    fn get(&self, window: Window) -> Option<&Table>;

    /// Takes a whole window out.
    fn take(&mut self, window: Window) -> Option<Box<Table>>;

    /// An empty table of the same layout, in which several windows are merged.
    fn scratch(&mut self) -> Box<Table>;

    /// Returns a table whose records are no longer needed; its memory is used for the next window.
    fn give_back(&mut self, table: Box<Table>);

    /// Bytes allocated, in use or not.
    fn bytes(&self) -> usize;

    /// Entries in use, in all open windows.
    fn keys(&self) -> usize;

    /// Bytes of pages that were copied and wait to be written out.
    fn copies(&self) -> usize;

    /// Freezes everything for a checkpoint, and writes to `out` where to find it.
    fn freeze(&mut self, numbers: &mut Numbers, out: &mut Vec<u8>);

    /// Writes frozen pages out until `budget` bytes are used up; returns whether all are written.
    fn save(&mut self, put: &mut Put<'_>, budget: &mut usize) -> bool;

    /// Replaces everything by the frozen state. The numbers of its vectors are appended to `named`.
    fn restore(&mut self, reader: &mut Reader<'_>, get: &mut Get<'_>, named: &mut Vec<u64>) -> Result<()>;
}
