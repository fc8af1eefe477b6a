//! Numbered databases over one store, and the workers that run commands on them.
//!
//! A [`Keyspace`] is shared by all threads; a [`Worker`] belongs to one. The worker owns the engine's
//! writer, its share of the key counts, and the memory that its transactions reuse, so that a command
//! in the steady state allocates nothing and writes no cache line that another worker writes.

use std::sync::{Arc, Mutex, PoisonError};

use duramen::{ErrorKind, Store, Writer};

use crate::counting::{Counter, Counting};
use crate::counts::{Change, Counts, Sum};
use crate::error::{Error, Result};
use crate::turns::{Alone, Turn, Turns};
use crate::txn::{Outcome, Scratch, Txn, random};

/// Databases that Redis has by default.
pub const DATABASES_DEFAULT: u8 = 16;
/// Most databases a keyspace can have. Engine keys that begin with a higher byte are not user keys.
pub const DATABASES_MAX: u8 = 128;
/// Longest user key: the engine's limit less the byte of the database.
pub const KEY_BYTES_MAX: usize = duramen::KEY_BYTES_MAX - 1;

/// Keys that [`Worker::prefetch`] takes: more than a core has misses under way, few enough that the first lines
/// fetched are still in the nearest cache when they are used.
pub const AHEAD_MAX: usize = 16;

// Where counts are kept over a close: no user key. 4 bytes of the incarnation that kept them, and the counts.
const COUNTS_KEY: &[u8] = &[u8::MAX, b'c', b'o', b'u', b'n', b't', b's'];
// Entries looked at per call of the engine's scan when all keys are wanted.
const SCAN_ENTRIES: usize = 1024;
// Counted before `Keyspace::open` returns: some 100,000 keys, a hundredth of a second.
const PARTS_AT_OPEN: usize = 64;
// Conflicts after which a transaction runs alone: one that is short meets few in a row.
const CONFLICTS_MAX: u32 = 8;
// 65,536 deletes are about 4 MB of batch: small enough to hold, large enough for every test database.
const FLUSH_KEYS_ATOMIC: u64 = 1 << 16;

/// Databases of keys over one store. Cheap to clone; all clones are the same keyspace.
#[derive(Clone)]
pub struct Keyspace {
    shared: Arc<Shared>,
}

struct Shared {
    // First: its thread has the store too, and is to end before that is closed.
    _counter: Option<Counter>,
    store: Store,
    databases: u8,
    // The keys at open, when they are not known yet.
    counting: Option<Arc<Counting>>,
    // What there was at open, what counting found, and one share per worker. Locked when a worker comes or
    // goes, and when somebody asks for a count.
    counts: Mutex<Vec<Arc<Counts>>>,
    turns: Turns,
}

/// Keys of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyCount {
    /// All keys.
    pub keys: u64,
    /// Those among them that have an expiry time.
    pub expires: u64,
}

impl Keyspace {
    /// Opens the keyspace in `store`, with `databases` (1 to [`DATABASES_MAX`]) databases. Where the counts were not kept
    /// when it was closed ([`Keyspace::keep_counts`]), a thread visits every record once to count the keys.
    pub fn open(store: Store, databases: u8) -> Result<Self> {
        let databases = databases.clamp(1, DATABASES_MAX);
        let kept = Self::kept_counts(&store, databases)?;
        let counting = kept.is_none().then(|| Arc::new(Counting::new(databases)));
        let mut counts = vec![Arc::new(kept.unwrap_or_else(|| Counts::new(databases)))];
        counts.extend(counting.iter().map(|counting| Arc::clone(&counting.found)));
        // In a small store nobody should see that it is being counted.
        if let Some(counting) = &counting {
            for _ in 0..PARTS_AT_OPEN {
                if !counting.go_on(&store)? {
                    break;
                }
            }
        }
        let uncounted = counting.iter().find(|counting| !counting.is_done());
        let counter = uncounted.map(|counting| Counter::start(Arc::clone(counting), store.clone()));
        Ok(Self {
            shared: Arc::new(Shared {
                _counter: counter,
                store,
                databases,
                counting,
                counts: Mutex::new(counts),
                turns: Turns::default(),
            }),
        })
    }

    /// The counts that the last close kept, if nobody has opened the store since. What was kept goes: it is true only now.
    fn kept_counts(store: &Store, databases: u8) -> Result<Option<Counts>> {
        let recovery = store.recovery();
        let Some(kept) = store.get(COUNTS_KEY)?.map(|value| value.to_vec()) else { return Ok(None) };
        store.delete(COUNTS_KEY)?;
        let Some((incarnation, counts)) = kept.split_first_chunk() else { return Ok(None) };
        let is_last =
            recovery.clean && u32::from_le_bytes(*incarnation).checked_add(1) == Some(recovery.incarnation);
        Ok(if is_last { Counts::decode(counts, databases) } else { None })
    }

    /// Keeps the counts in the store, if they are known, so that the next open need not count. The last thing to do before
    /// the store is closed: whatever is written later is not counted then.
    pub fn keep_counts(&self) -> Result<()> {
        if !self.is_counted() {
            return Ok(());
        }
        let all = Counts::new(self.shared.databases);
        for share in self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            all.absorb(share);
        }
        let Some(counts) = all.encode() else { return Ok(()) };
        let mut kept = self.shared.store.recovery().incarnation.to_le_bytes().to_vec();
        kept.extend_from_slice(&counts);
        Ok(self.shared.store.put(COUNTS_KEY, &kept)?)
    }

    /// A worker for the calling thread.
    pub fn worker(&self) -> Result<Worker> {
        let writer = self.shared.store.writer()?;
        let counts = Arc::new(Counts::new(self.shared.databases));
        self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        Ok(Worker {
            keyspace: self.clone(),
            writer,
            counts,
            turn: self.shared.turns.come(),
            alone: false,
            scratch: Scratch::default(),
            grouped: false,
            failed: false,
            uncounted: Vec::new(),
            ahead: Vec::new(),
            changes: random() as u16,
        })
    }

    /// Whether the keys have been counted that were there at open; until then [`Keyspace::count`] waits for that.
    pub fn is_counted(&self) -> bool {
        self.counting().is_none()
    }

    /// The counting that is still under way.
    #[inline]
    pub(crate) fn counting(&self) -> Option<&Arc<Counting>> {
        self.shared.counting.as_ref().filter(|counting| !counting.is_done())
    }

    /// Keys in `db` at `now` (Unix milliseconds). Exact when no write is under way, except that where
    /// many keys expire in the same moment some may be counted for 64 ms longer. After an open that has to count, it
    /// returns when that is done; when the store cannot be read, with what was counted until then.
    pub fn count(&self, db: u8, now: u64) -> KeyCount {
        self.sum(db, now).into()
    }

    pub(crate) fn sum(&self, db: u8, now: u64) -> Sum {
        if let Some(counting) = self.counting() {
            while counting.go_on(&self.shared.store).unwrap_or(false) {}
        }
        let counts = self.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().fold(Sum::default(), |sum, share| {
            let Sum { persistent, volatile } = share.read(db, now);
            Sum { persistent: sum.persistent + persistent, volatile: sum.volatile + volatile }
        })
    }

    /// How many databases there are.
    pub fn databases(&self) -> u8 {
        self.shared.databases
    }

    /// The store below, for its statistics and settings. Keys written past the keyspace are not counted.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }
}

impl From<Sum> for KeyCount {
    fn from(sum: Sum) -> Self {
        // Below zero only while a write that another worker has yet to count is under way.
        let expires = u64::try_from(sum.volatile).unwrap_or(0);
        Self { keys: u64::try_from(sum.persistent).unwrap_or(0) + expires, expires }
    }
}

/// What one thread needs to run commands; made by that thread.
pub struct Worker {
    pub(crate) keyspace: Keyspace,
    pub(crate) writer: Writer,
    pub(crate) counts: Arc<Counts>,
    pub(crate) scratch: Scratch,
    // While it is in a group.
    turn: Arc<Turn>,
    // Nobody else begins a turn: `retry` waits for that.
    alone: bool,
    grouped: bool,
    // The group could not be made durable, nor can it ever be.
    failed: bool,
    // What the group changed. Others may count it only once it is durable: a count tells of writes too.
    pub(crate) uncounted: Vec<(Change, u64)>,
    // Engine keys of `prefetch`, end to end.
    ahead: Vec<u8>,
    // Where the next new number's count of changes begins.
    changes: u16,
}

impl Worker {
    /// Begins a transaction that sees the time as `now` (Unix milliseconds) throughout.
    pub fn begin(&mut self, now: u64) -> Txn<'_> {
        Txn::new(self, now)
    }

    /// Hints that these keys of `db` are used soon, at most [`AHEAD_MAX`] of them: the engine fetches their lines
    /// meanwhile. Changes nothing.
    pub fn prefetch<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>) {
        self.ahead.clear();
        let mut ends = [0; AHEAD_MAX];
        let mut count = 0;
        for (key, end) in keys.zip(&mut ends) {
            self.ahead.push(db);
            self.ahead.extend_from_slice(key);
            *end = self.ahead.len();
            count += 1;
        }
        let mut engine_keys: [&[u8]; AHEAD_MAX] = [&[]; AHEAD_MAX];
        let mut start = 0;
        for (engine_key, end) in engine_keys.iter_mut().zip(ends).take(count) {
            *engine_key = &self.ahead[start..end];
            start = end;
        }
        self.keyspace.store().prefetch(&engine_keys[..count]);
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
            for (change, now) in self.uncounted.drain(..) {
                self.counts.change(change, now);
            }
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

    /// Counts a change that was applied.
    pub(crate) fn count(&mut self, change: Change, now: u64) {
        if change.before == change.after {
            // Most writes: an overwrite.
        } else if self.grouped {
            self.uncounted.push((change, now));
        } else {
            self.counts.change(change, now);
        }
    }

    /// Makes what this worker wrote visible to scans, which read past its group.
    pub(crate) fn settle_for_scan(&mut self) -> Result<()> {
        if self.grouped || self.failed {
            self.settle()?;
            self.group();
        }
        Ok(())
    }

    /// Deletes every key of `db`, for FLUSHDB and FLUSHALL outside of MULTI (inside, see
    /// [`Txn::flush`]). All or nothing up to 65,536 keys; a larger database is emptied in steps, so
    /// that memory stays bounded: others see it shrink, and a crash leaves the rest.
    pub fn flush(&mut self, db: u8, now: u64) -> Result<()> {
        if self.keyspace.count(db, now).keys <= FLUSH_KEYS_ATOMIC {
            let flushed = self.retry(|worker| {
                let mut txn = worker.begin(now);
                txn.flush(db)?;
                txn.commit()
            });
            match flushed {
                // Very long keys, more than one batch takes; or no room for a batch, while there is for one delete at a time.
                Err(Error::Engine(error))
                    if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::OutOfSpace) => {}
                flushed => return flushed,
            }
        }
        self.settle_for_scan()?;
        let store = self.keyspace.store().clone();
        let mut cursor = 0;
        let mut keys = Vec::new();
        loop {
            keys.clear();
            cursor = store.scan(cursor, SCAN_ENTRIES, &mut |value| {
                if let Some((&first, key)) = value.key().split_first()
                    && first == db
                {
                    keys.push(key.to_vec());
                }
            })?;
            self.delete_each(db, keys.iter().map(|key| &key[..]), now)?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Deletes keys one after the other, for who meets a store that has no room to delete all of them at once; how many were
    /// there. Others see them go, and a crash or an error leaves the rest.
    pub fn delete_each<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>, now: u64) -> Result<u64> {
        let mut deleted = 0;
        for key in keys {
            let mut found = false;
            self.retry(|worker| {
                let mut txn = worker.begin(now);
                found = txn.delete(db, key)?;
                txn.commit()
            })?;
            deleted += u64::from(found);
        }
        Ok(deleted)
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
    /// Hands the worker's counts to the share that was found at open, so that shares do not pile up.
    fn drop(&mut self) {
        self.turn.end();
        self.keyspace.shared.turns.go(&self.turn);
        for (change, now) in self.uncounted.drain(..) {
            self.counts.change(change, now);
        }
        let mut counts = self.keyspace.shared.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = counts.iter().position(|share| Arc::ptr_eq(share, &self.counts)) {
            counts.swap_remove(at);
            if let Some(base) = counts.first() {
                base.absorb(&self.counts);
            }
        }
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
