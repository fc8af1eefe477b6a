//! The interface for engines under measurement: Duramen, and those of `bench-peers`.

use crate::kv::{Failure, Result};

/// An engine with its store open, shared by all threads.
pub trait Engine: Sync {
    /// The session of one thread.
    type Session<'a>: Session
    where
        Self: 'a;

    /// Makes a session; called in the thread that uses it.
    ///
    /// # Errors
    /// As the engine says.
    fn session(&self) -> Result<Self::Session<'_>>;

    /// Finishes background work after a load, such as merging files, which would slow down later measurements.
    ///
    /// # Errors
    /// As the engine says.
    fn finish_background(&self) -> Result<()> {
        Ok(())
    }
}

/// Receives the value of a key, with the key's number in the call.
pub type Visit<'a> = dyn FnMut(usize, Option<&[u8]>) -> Result<()> + 'a;

/// The outcome of an update of a part of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The bytes were stored over the old ones.
    InPlace,
    /// The whole value was written again.
    Rewritten,
    /// The key is not there.
    Absent,
}

/// One thread's access to an engine. When a write returns it is as durable as the engine was opened to make it.
pub trait Session {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As the engine says; likewise for the other operations.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Copies the value into `into`, replacing its content; returns whether the key exists.
    ///
    /// # Errors
    /// As the engine says.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Result<bool>;

    /// Passes the values of several keys to `visit`, in the order of the keys.
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
        part.ok_or_else(|| Failure::new("cannot update bytes beyond the end of the value"))?
            .copy_from_slice(bytes);
        self.put(key, &value)?;
        Ok(Changed::Rewritten)
    }

    /// Removes `key`; returns whether it existed.
    ///
    /// # Errors
    /// As the engine says.
    fn delete(&mut self, key: &[u8]) -> Result<bool>;

    /// Visits up to `count` entries from about `key` on, in the engine's order; returns their number. From the empty
    /// key on it visits all.
    ///
    /// # Errors
    /// As the engine says.
    fn scan(&mut self, key: &[u8], count: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;

    /// The number of entries before that of `key`; `None` if the key does not exist.
    ///
    /// # Errors
    /// An engine without ranks returns one.
    fn rank(&mut self, key: &[u8]) -> Result<Option<u64>> {
        let _ = key;
        Err(Failure::usage(NO_RANKS))
    }

    /// Copies the value of the entry that has `rank` entries before it; returns whether there is one.
    ///
    /// # Errors
    /// An engine without ranks returns one.
    fn nth(&mut self, rank: u64, into: &mut Vec<u8>) -> Result<bool> {
        let _ = (rank, into);
        Err(Failure::usage(NO_RANKS))
    }
}

/// The error of an engine without an order to count in.
pub(crate) const NO_RANKS: &str =
    "rank and nth need collections with an order: use --variants collection-ordered";

/// Receives the progress of a run. Called from one thread, a few times a second.
pub trait Watch {
    /// `total` operations of `what` begin.
    fn begin(&self, what: &str, total: u64);
    /// `done` operations are done.
    fn at(&self, done: u64);
    /// All operations are done.
    fn end(&self);
    /// A line about a result, to be shown at once.
    fn say(&self, line: &str);
}

/// Reports to nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn begin(&self, _: &str, _: u64) {}
    fn at(&self, _: u64) {}
    fn end(&self) {}
    fn say(&self, _: &str) {}
}
