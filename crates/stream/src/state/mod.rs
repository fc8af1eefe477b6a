//! What breakers keep: records of fixed size by key, one table for each window, in memory.
//!
//! [`State`] is what a breaker needs of whatever keeps its state. [`Memory`] is the one there is. Compiled code finds a
//! record by itself: it reads the [`Head`] of a [`Table`] and walks its entries. It calls only for what is rare: a
//! window that it did not use last, a table that is full, a text that is new, a row of a list.
//!
//! # Invariants
//!
//! 1. An entry whose first word is zero is empty, and all its words are zero: whoever fills it need not clear it.
//! 2. `count <= limit < entries`: a walk from any entry meets an empty one.
//! 3. A text is a place in `bytes` and a length, a row of a list a place in `rows` plus one: nothing in a table is an
//!    address, so that a table may be moved, written out and read back.
//! 4. A table's own address never changes while a window is open, and its `Head` says where its vectors are now.

mod memory;
mod sessions;
mod table;

pub use memory::Memory;
pub use sessions::{Placed, Session, Sessions};
pub use table::{Head, Layout, MULTIPLIER, Table, hash_bytes, hash_seed};

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

    /// Writes everything to `out`.
    fn snapshot(&self, out: &mut Vec<u8>);

    /// Replaces everything by what [`State::snapshot`] wrote. Returns what stands behind it.
    fn restore<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8]>;
}
