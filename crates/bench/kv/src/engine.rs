//! The door that engines are measured through: Duramen's own, and those of `bench-peers`.

use crate::{Failure, Result};

/// An engine with its store open, shared by all threads.
pub trait Engine: Sync {
    /// What one thread works with.
    type Session<'a>: Session
    where
        Self: 'a;

    /// What a thread works with; made in that thread.
    ///
    /// # Errors
    /// As the engine says.
    fn session(&self) -> Result<Self::Session<'_>>;

    /// Ends what goes on in the background after a load, as merging files: it would take its time from others.
    ///
    /// # Errors
    /// As the engine says.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// Who is shown a value, by the number of its key in a call.
pub type Visit<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// What became of a change of part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The bytes were stored over the old ones.
    InPlace,
    /// The whole value was written anew.
    Rewritten,
    /// The key is not there.
    Absent,
}

/// One thread's way into an engine. When a write returns it is as durable as its engine was opened to make it.
pub trait Session {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As the engine says; so for all others.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Copies the value into `into`, whatever was there; whether the key is there.
    ///
    /// # Errors
    /// As the engine says.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool>;

    /// Shows the values of several keys, in the order of the keys.
    ///
    /// # Errors
    /// As the engine says, or what `visit` returned.
    fn get_many(&mut self, keys: &[&[u8]], visit: &mut Visit<'_>) -> Result<()> {
        let mut copy = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let found = self.get(key, &mut copy)?;
            visit(i, found.then_some(&*copy))?;
        }
        Ok(())
    }

    /// Writes `bytes` into the value, from `at` on.
    ///
    /// # Errors
    /// As the engine says.
    fn update(&mut self, key: &[u8], at: usize, bytes: &[u8]) -> Result<Changed> {
        let mut value = Vec::new();
        if !self.get(key, &mut value)? {
            return Ok(Changed::Absent);
        }
        let part = value.get_mut(at..at + bytes.len());
        part.ok_or_else(|| Failure::new("an update is not within its value"))?.copy_from_slice(bytes);
        self.put(key, &value)?;
        Ok(Changed::Rewritten)
    }

    /// Removes `key`; whether it was there.
    ///
    /// # Errors
    /// As the engine says.
    fn delete(&mut self, key: &[u8]) -> Result<bool>;

    /// Visits up to `count` entries from about `key` on, in whatever order the engine has; returns how many. From the empty
    /// key on it visits all.
    ///
    /// # Errors
    /// As the engine says.
    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;

    /// How many entries come before that of `key`; `None` without one.
    ///
    /// # Errors
    /// Of an engine that does not know.
    fn rank(&mut self, key: &[u8]) -> Result<Option<u64>> {
        let _ = key;
        Err(Failure::usage(NO_RANKS))
    }

    /// Copies the value of the entry that so many come before; whether there is one.
    ///
    /// # Errors
    /// Of an engine that does not know.
    fn nth(&mut self, rank: u64, into: &mut Vec<u8>) -> Result<bool> {
        let _ = (rank, into);
        Err(Failure::usage(NO_RANKS))
    }
}

/// What an engine says that has no order to count in.
pub(crate) const NO_RANKS: &str =
    "rank and nth are for collections with an order: --variants collection-ordered";

/// Who is told how far a run is. Called from one thread, a few times a second.
pub trait Watch {
    /// `total` operations of `what` begin.
    fn begin(&self, what: &str, total: u64);
    /// So many of them are done.
    fn at(&self, done: u64);
    /// They are done.
    fn end(&self);
    /// A line of what was found, to be shown at once.
    fn say(&self, line: &str);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: &str, _: u64) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn say(&self, _: &str) {}
}
