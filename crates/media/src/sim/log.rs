//! What was done to a simulated medium, in order.

use super::Model;
use super::memory::{LINE_WORDS, Memory};
use std::sync::Arc;

/// What one event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words of one line were stored, in one go: a crash may tear them.
    Store,
    /// The same by one atomic store: never torn.
    Atomic,
    /// The same past the cache: certain only after a drain, in any order before it.
    Write,
    /// The write-back of lines `line` up to `words[0]` was started.
    Flush,
    /// The thread's flushes and writes are complete.
    Drain,
    /// The medium was synced.
    Sync,
    /// A sync that failed, or one that lied: it made nothing durable.
    SyncVoid,
    /// The medium has `words[0]` bytes now.
    Grow,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it is.
    pub kind: Kind,
    /// Which words of the line were stored.
    pub mask: u8,
    /// Who did it; each opening of a medium has threads of its own.
    pub thread: u16,
    /// The line, counted from the beginning of the medium.
    pub line: u32,
    /// The line's words after the store.
    pub words: [u64; LINE_WORDS],
}

impl Event {
    /// Whether it changed the memory.
    #[must_use]
    pub fn stores(&self) -> bool {
        matches!(self.kind, Kind::Store | Kind::Atomic | Kind::Write)
    }
}

const _: () = assert!(size_of::<Event>() <= 80);

/// A medium's history: what it held at first, durably, and every event since.
#[derive(Clone, Debug)]
pub struct Log {
    /// How the medium behaves.
    pub model: Model,
    /// The most bytes it can grow to.
    pub len_max: u64,
    /// What it held at first.
    pub base: Arc<Vec<[u64; LINE_WORDS]>>,
    /// How long it was at first.
    pub base_len: u64,
    /// What was done.
    pub events: Vec<Event>,
}

impl Log {
    /// Of a medium that holds nothing.
    #[must_use]
    pub fn empty(model: Model, len_max: u64) -> Self {
        Self { model, len_max, base: Arc::default(), base_len: 0, events: Vec::new() }
    }

    /// Of a medium that holds `lines`, all of it durable, and is `len` bytes long.
    #[must_use]
    pub fn on(model: Model, len_max: u64, lines: Vec<[u64; LINE_WORDS]>, len: u64) -> Self {
        Self { model, len_max, base: Arc::new(lines), base_len: len, events: Vec::new() }
    }

    /// The history up to (not including) event `end`: what a process that died there had done.
    #[must_use]
    pub fn up_to(&self, end: usize) -> Self {
        Self { events: self.events[..end].to_vec(), base: Arc::clone(&self.base), ..*self }
    }

    /// What other processes see at the end: every store. And how long it is.
    #[must_use]
    pub fn replay(&self) -> (Memory, u64) {
        let memory = Memory::from_lines(&self.base, self.len_max);
        let mut len = self.base_len;
        for event in &self.events {
            if event.stores() {
                memory.set_line(event.line, event.mask, &event.words);
            } else if event.kind == Kind::Grow {
                len = event.words[0];
            }
        }
        (memory, len)
    }
}
