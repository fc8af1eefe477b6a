//! A worker: one thread's state for running transactions on a keyspace.
//!
//! It owns the engine's writer and the memory that its transactions reuse. So a command in the steady state allocates
//! nothing and writes no cache line that another worker writes.

use std::sync::Arc;

use duramen::Writer;

use crate::ahead::Ahead;
use crate::error::{Error, Result};
use crate::keyspace::{Keyspace, random};
use crate::locks::Keys;
use crate::turns::{Others, Turn};
use crate::txn::scratch::Scratch;

// How often an operation on all keys looks for space: after the first time the turns of all others have ended.
const ALONE_TRIES_MAX: u32 = 3;

impl Keyspace {
    /// A worker for the calling thread.
    pub fn worker(&self) -> Result<Worker> {
        let writer = self.store().writer()?;
        Ok(Worker {
            keyspace: self.clone(),
            writer,
            turn: self.shared.turns.come(),
            others: Others::default(),
            wants_table: None,
            wants_keys: Keys::default(),
            wants_all: false,
            scratch: Scratch::default(),
            grouped: false,
            failed: false,
            changes: random() as u16,
        })
    }
}

/// The state that one thread needs to run commands; made by that thread.
pub struct Worker {
    pub(crate) keyspace: Keyspace,
    pub(crate) writer: Writer,
    pub(crate) scratch: Scratch,
    // While it is in a group.
    turn: Arc<Turn>,
    // Turns of other workers whose writes were read; this one must not return them before they have ended.
    others: Others,
    // A transaction was to write to a database that has no table yet.
    pub(crate) wants_table: Option<u8>,
    // It was to name these keys too, which others had.
    pub(crate) wants_keys: Keys,
    // It needs a key that it did not name, or all keys: it begins again alone.
    pub(crate) wants_all: bool,
    grouped: bool,
    // The group could not be made durable, nor can it ever be.
    failed: bool,
    // Where the next new number's count of changes begins.
    changes: u16,
}

impl Worker {
    /// Hints that these keys of `db` are used soon, at most `AHEAD_MAX` of them: the engine fetches their lines
    /// meanwhile. Changes nothing.
    pub fn prefetch<'k>(&self, db: u8, mut keys: impl Iterator<Item = &'k [u8]>) {
        if let Some(table) = self.keyspace.table(db)
            && let Some(ahead) = Ahead::next_of(&mut keys)
        {
            table.prefetch(&ahead);
        }
    }

    /// Begins a group of transactions that become durable together at [`flush_group`](Self::flush_group). Until then none of
    /// their reads or writes may be shown to clients.
    pub fn group(&mut self) {
        if !self.grouped {
            self.turn.begin();
            self.writer.group();
            self.grouped = true;
            self.failed = false;
        }
    }

    /// Makes all writes and reads of the group durable, and ends the group; waits for the turns of others whose writes
    /// it read. Without a group, nothing.
    ///
    /// # Errors
    /// When that failed; then again at every call, until the next [`group`](Self::group): the group's effects must not
    /// be shown, whichever call noticed first.
    pub fn flush_group(&mut self) -> Result<()> {
        self.flush_own_group()?;
        // A waiting worker is in no turn: otherwise two of them would wait for each other.
        std::mem::take(&mut self.others).wait();
        Ok(())
    }

    fn flush_own_group(&mut self) -> Result<()> {
        if self.failed {
            return Err(Error::GroupNotDurable);
        }
        if std::mem::take(&mut self.grouped) {
            // Whatever happens in between, even a panic, leaves it unflushed.
            self.failed = true;
            let ending = EndOfTurn(&self.turn);
            let flushed = self.writer.flush_group();
            drop(ending);
            flushed?;
            self.failed = false;
        }
        Ok(())
    }

    /// Does the work that a commit failed with `error` needs, so that it succeeds the next time.
    ///
    /// # Errors
    /// `error`, if no space was missing; else the errors of the work done for it.
    #[cold]
    pub fn before_again(&mut self, error: Error) -> Result<()> {
        if let Some(db) = self.wants_table.take() {
            self.keyspace.make(db)?;
        } else if self.writer.wants_room() {
            self.writer.make_room()?;
        } else {
            return Err(error);
        }
        Ok(())
    }

    /// As [`Writer::find_room`](duramen::Writer::find_room).
    ///
    /// # Errors
    /// Errors of that call.
    pub fn find_room(&mut self) -> Result<()> {
        Ok(self.writer.find_room()?)
    }

    /// Where the count of changes of a number that is new begins.
    pub(crate) fn next_changes(&mut self) -> u16 {
        self.changes = self.changes.wrapping_add(1);
        self.changes
    }

    /// The group returns other workers' writes so far: [`flush_group`](Self::flush_group) waits until they are durable, or have
    /// failed.
    pub(crate) fn owe_others(&mut self) -> Result<()> {
        self.others.add(self.keyspace.shared.turns.others(&self.turn));
        if !self.grouped {
            std::mem::take(&mut self.others).wait();
        }
        Ok(())
    }

    /// Runs an operation on all keys of a database, while no other worker writes or runs a transaction that names keys.
    /// The group ends before, and another one begins.
    pub(crate) fn alone<T>(&mut self, mut work: impl FnMut(&Keyspace) -> Result<T>) -> Result<T> {
        let grouped = self.grouped;
        self.flush_group()?;
        let keyspace = self.keyspace.clone();
        let mut tries = 0;
        let done = loop {
            self.writer.lock_all()?;
            let held = HeldAlone(&mut self.writer);
            let done = work(&keyspace);
            drop(held);
            tries += 1;
            match &done {
                // Others wait within their turns, which keep space: it comes back when those have ended.
                Err(Error::Engine(error)) if is_full(error) && tries < ALONE_TRIES_MAX => {
                    keyspace.shared.turns.others(&self.turn).wait();
                }
                _ => break done,
            }
        };
        self.writer.unlock()?;
        if grouped {
            self.group();
        }
        done
    }

    /// Makes this worker's writes visible to scans, which read past its group.
    pub(crate) fn flush_for_scan(&mut self) -> Result<()> {
        if self.grouped || self.failed {
            // Others may wait for a transaction that is under way.
            self.flush_own_group()?;
            self.group();
        }
        Ok(())
    }

    /// The keyspace this worker works on.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }
}

/// The end of a worker's turn, also by a panic: exclusive work waits for it.
struct EndOfTurn<'a>(&'a Turn);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A worker that is alone. Dropped, also by a panic, it is one among others again.
struct HeldAlone<'w>(&'w mut Writer);

impl Drop for HeldAlone<'_> {
    fn drop(&mut self) {
        // It belongs to no group of the caller: the caller flushes it, or it is lost with the panic.
        let _ = self.0.unlock();
    }
}

fn is_full(error: &duramen::Error) -> bool {
    error.kind() == duramen::ErrorKind::OutOfSpace
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
    use crate::locks::Locks;

    #[test]
    fn a_panic_of_an_exclusive_worker_lets_the_others_continue() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let keyspace = Keyspace::open(options.open(dir.path().join("store")).unwrap(), 1).unwrap();
        let mut worker = keyspace.worker().unwrap();
        worker.group();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            worker.alone(|_| -> Result<()> { panic!("on purpose") })
        }));
        assert!(panicked.is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            worker.run(0, Locks::One(b"k"), |txn| -> Result<()> {
                txn.put(0, b"k", b"v")?;
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut other = keyspace.worker().unwrap();
                other.group();
                other.run::<_, Error>(0, Locks::One(b"k"), |txn| txn.put(0, b"k", b"w")).unwrap();
                other.alone(|_| Ok(())).unwrap();
                other.flush_group().unwrap();
            });
        });
        worker.group();
        worker.flush_group().unwrap();
    }

    #[test]
    fn a_transaction_that_could_not_name_more_begins_again_with_these_keys() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let keyspace = Keyspace::open(options.open(dir.path().join("store")).unwrap(), 1).unwrap();
        let mut more = Keys::default();
        more.add(b"other");
        let (has_it, may_go) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        // The first write to a database runs twice.
        keyspace
            .worker()
            .unwrap()
            .run::<_, Error>(0, Locks::One(b"first"), |txn| txn.put(0, b"first", b""))
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut worker = keyspace.worker().unwrap();
                worker.run::<_, Error>(0, Locks::One(b"other"), |txn| {
                    txn.put(0, b"other", b"theirs")?;
                    has_it.wait();
                    may_go.wait();
                    Ok(())
                })
            });
            let mut worker = keyspace.worker().unwrap();
            let mut runs = 0;
            has_it.wait();
            let seen = worker.run::<_, Error>(0, Locks::One(b"mine"), |txn| {
                runs += 1;
                txn.put(0, b"mine", b"1")?;
                if !txn.name_more(&more) {
                    may_go.wait();
                    return Err(Error::NoSuchKey);
                }
                assert_eq!(txn.written().collect::<Vec<_>>(), [(0, &b"mine"[..])]);
                Ok(txn.get(0, b"other")?.map(|found| found.to_vec()))
            });
            assert_eq!((seen.unwrap().as_deref(), runs), (Some(&b"theirs"[..]), 2));
            // An error of the transaction itself is a failure.
            let failed = worker.run::<(), Error>(0, Locks::One(b"mine"), |_| Err(Error::NoSuchKey));
            assert!(matches!(failed, Err(Error::NoSuchKey)));
        });
    }

    #[test]
    fn a_transaction_that_wants_all_keys_begins_again_alone_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let keyspace = Keyspace::open(options.open(dir.path().join("store")).unwrap(), 1).unwrap();
        let mut worker = keyspace.worker().unwrap();
        worker.run::<_, Error>(0, Locks::One(b"first"), |txn| txn.put(0, b"first", b"")).unwrap();
        let mut runs = 0;
        // Whatever the work returns, the run that asked does not count.
        let alone = worker.run::<_, Error>(0, Locks::One(b"mine"), |txn| {
            runs += 1;
            assert!(!txn.exists(0, b"mine")?);
            txn.put(0, b"mine", b"1")?;
            if runs == 1 {
                assert!(!txn.wants_all());
                assert!(!txn.name_all());
            }
            Ok(txn.name_all())
        });
        assert_eq!((alone.unwrap(), runs), (true, 2));
        // It is asked for once, not for ever.
        runs = 0;
        worker
            .run::<_, Error>(0, Locks::One(b"mine"), |txn| {
                runs += 1;
                assert!(!txn.wants_all());
                txn.delete(0, b"mine")
            })
            .unwrap();
        assert_eq!(runs, 1);
        // An error of a run alone is a failure.
        let failed = worker.run::<(), Error>(0, Locks::One(b"mine"), |txn| {
            txn.name_all();
            Err(Error::NoSuchKey)
        });
        assert!(matches!(failed, Err(Error::NoSuchKey)));
    }

    #[test]
    fn a_group_that_failed_stays_failed_until_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let options = duramen::Options { medium: duramen::MediumKind::Volatile, ..Default::default() };
        let store = options.open(dir.path().join("store")).unwrap();
        let mut worker = Keyspace::open(store, 1).unwrap().worker().unwrap();
        worker.group();
        // The state after a flush that got an error of the medium.
        (worker.grouped, worker.failed) = (false, true);
        for _ in 0..2 {
            assert!(matches!(worker.flush_group(), Err(Error::GroupNotDurable)));
            assert!(matches!(worker.flush_for_scan(), Err(Error::GroupNotDurable)));
        }
        worker.group();
        worker.flush_group().unwrap();
        worker.flush_group().unwrap();
    }
}
