//! A worker: what one thread has of a keyspace to run transactions.
//!
//! It owns the engine's writer and the memory that its transactions reuse, so that a
//! command in the steady state allocates nothing and writes no cache line that another worker writes.

use std::sync::Arc;

use duramen::Writer;

use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, random};
use crate::turns::{Alone, Turn};
use crate::txn::Scratch;

/// Keys that [`Worker::prefetch`] takes: more than a core has misses under way, few enough that the first lines
/// fetched are still in the nearest cache when they are used.
pub const AHEAD_MAX: usize = 16;

// Conflicts after which a transaction runs alone: one that is short meets few in a row.
const CONFLICTS_MAX: u32 = 8;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Everything was applied, and everything read was true at that moment.
    Committed,
    /// Somebody else changed what was read. Nothing was applied: run it again.
    Conflict,
}

impl Keyspace {
    /// A worker for the calling thread.
    pub fn worker(&self) -> Result<Worker> {
        let writer = self.store().writer()?;
        Ok(Worker {
            keyspace: self.clone(),
            writer,
            turn: self.shared.turns.come(),
            alone: false,
            scratch: Scratch::default(),
            grouped: false,
            failed: false,
            changes: random() as u16,
        })
    }
}

/// What one thread needs to run commands; made by that thread.
pub struct Worker {
    pub(crate) keyspace: Keyspace,
    pub(crate) writer: Writer,
    pub(crate) scratch: Scratch,
    // While it is in a group.
    turn: Arc<Turn>,
    // Nobody else begins a turn: `retry` waits for that.
    alone: bool,
    grouped: bool,
    // The group could not be made durable, nor can it ever be.
    failed: bool,
    // Where the next new number's count of changes begins.
    changes: u16,
}

impl Worker {
    /// Hints that these keys of `db` are used soon, at most [`AHEAD_MAX`] of them: the engine fetches their lines
    /// meanwhile. Changes nothing.
    pub fn prefetch<'k>(&self, db: u8, keys: impl Iterator<Item = &'k [u8]>) {
        let Some(table) = self.keyspace.table(db) else { return };
        let mut ahead: [&[u8]; AHEAD_MAX] = [&[]; AHEAD_MAX];
        let mut count = 0;
        for (key, place) in keys.zip(&mut ahead) {
            *place = key;
            count += 1;
        }
        table.prefetch(&ahead[..count]);
    }

    /// Begins a group of transactions that become durable together at [`settle`](Self::settle).
    /// Nothing they read or wrote may be shown to anybody before.
    pub fn group(&mut self) {
        if !self.grouped {
            if !self.alone {
                self.keyspace.shared.turns.begin(&self.turn);
            }
            self.writer.group();
            self.grouped = true;
            self.failed = false;
        }
    }

    /// Makes all that the group wrote or read durable, and ends the group. Without a group, nothing.
    ///
    /// # Errors
    /// When that failed; then again and again, until the next [`group`](Self::group): what the group did must
    /// not be shown, whoever noticed first.
    pub fn settle(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::Unsettled);
        }
        if std::mem::take(&mut self.grouped) {
            // Whatever happens in between, even a panic, has not settled it.
            self.failed = true;
            let ending = EndOfTurn(&self.turn);
            let settled = self.writer.settle();
            drop(ending);
            settled?;
            self.failed = false;
        }
        Ok(())
    }

    /// Runs `attempt` again until it meets no conflict. After a few it runs while no other worker is in a group, so that it
    /// ends however often others write what it reads.
    ///
    /// # Errors
    /// Those of `attempt`, and that the group could not be made durable, which ends before the others are waited for.
    #[inline]
    pub fn retry<E: From<Error>>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> std::result::Result<Outcome, E>,
    ) -> std::result::Result<(), E> {
        for _ in 0..CONFLICTS_MAX {
            if attempt(self)? == Outcome::Committed {
                return Ok(());
            }
        }
        self.retry_alone(attempt)
    }

    #[cold]
    fn retry_alone<E: From<Error>>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> std::result::Result<Outcome, E>,
    ) -> std::result::Result<(), E> {
        let grouped = self.grouped;
        self.settle()?;
        let keyspace = self.keyspace.clone();
        let alone = keyspace.shared.turns.alone();
        self.alone = true;
        let held = HeldAlone { worker: self, alone };
        if grouped {
            held.worker.group();
        }
        // The store itself still forgets what has expired, which is a conflict too, but once for each key.
        loop {
            match attempt(held.worker) {
                Ok(Outcome::Conflict) => {}
                Ok(Outcome::Committed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Where the count of changes of a number that is new begins.
    pub(crate) fn next_changes(&mut self) -> u16 {
        self.changes = self.changes.wrapping_add(1);
        self.changes
    }

    /// Waits until what other workers wrote so far is durable, or failed to be. A group ends, and another one begins, if there is
    /// anything to wait for.
    pub(crate) fn settle_others(&mut self) -> Result<()> {
        let keyspace = self.keyspace.clone();
        let others = keyspace.shared.turns.others(&self.turn);
        if !others.is_empty() {
            let grouped = self.grouped;
            // Who waits is in no turn: two of them would wait for each other.
            self.settle()?;
            others.wait();
            if grouped {
                self.group();
            }
        }
        Ok(())
    }

    /// Does what concerns all keys of a database, while no other worker is in a turn. The group ends before, and another one
    /// begins.
    pub(crate) fn alone<T>(&mut self, work: impl FnOnce(&Keyspace) -> Result<T>) -> Result<T> {
        let grouped = self.grouped;
        self.settle()?;
        let keyspace = self.keyspace.clone();
        let alone = keyspace.shared.turns.alone();
        let done = work(&keyspace);
        drop(alone);
        if grouped {
            self.group();
        }
        done
    }

    /// Makes what this worker wrote visible to scans, which read past its group.
    pub(crate) fn settle_for_scan(&mut self) -> Result<()> {
        if self.grouped || self.failed {
            self.settle()?;
            self.group();
        }
        Ok(())
    }

    /// The keyspace this worker works on.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }
}

/// The end of a worker's turn, also by a panic: whoever wants to be alone waits for it.
struct EndOfTurn<'a>(&'a Turn);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A worker that is alone. Dropped, also by a panic, it is one among others again, in its turn if it is in a group.
struct HeldAlone<'w, 'k> {
    worker: &'w mut Worker,
    alone: Alone<'k>,
}

impl Drop for HeldAlone<'_, '_> {
    fn drop(&mut self) {
        self.worker.alone = false;
        if self.worker.grouped {
            self.worker.turn.go_on(&self.alone);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.turn.end();
        self.keyspace.shared.turns.go(&self.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_a_worker_that_is_alone_lets_the_others_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let keyspace = Keyspace::open(options.open(dir.path().join("store")).unwrap(), 1).unwrap();
        let mut worker = keyspace.worker().unwrap();
        worker.group();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut tries = 0;
            worker.retry::<Error>(|worker| {
                tries += 1;
                assert!(!worker.alone, "on purpose, after {tries} tries");
                Ok(Outcome::Conflict)
            })
        }));
        assert!(panicked.is_err() && !worker.alone);
        // Others begin turns, and who wants to be alone waits for the one that this worker is still in.
        let mut other = keyspace.worker().unwrap();
        other.group();
        other.settle().unwrap();
        let (told, tell) = (std::sync::atomic::AtomicBool::new(false), std::sync::mpsc::channel());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let alone = keyspace.shared.turns.alone();
                told.store(true, std::sync::atomic::Ordering::SeqCst);
                tell.0.send(()).unwrap();
                drop(alone);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!told.load(std::sync::atomic::Ordering::SeqCst), "beside a worker in its turn");
            worker.settle().unwrap();
            tell.1.recv().unwrap();
        });
        worker.group();
        worker.settle().unwrap();
    }

    #[test]
    fn a_group_that_failed_stays_failed_until_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let store = options.open(dir.path().join("store")).unwrap();
        let mut worker = Keyspace::open(store, 1).unwrap().worker().unwrap();
        worker.group();
        // As a settle leaves it that met an error of the medium.
        (worker.grouped, worker.failed) = (false, true);
        for _ in 0..2 {
            assert!(matches!(worker.settle(), Err(Error::Unsettled)));
            assert!(matches!(worker.settle_for_scan(), Err(Error::Unsettled)));
        }
        worker.group();
        worker.settle().unwrap();
        worker.settle().unwrap();
    }
}
