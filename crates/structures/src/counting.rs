//! Counting the keys of a store while it is used: after a crash nobody has kept the counts, and to visit every key before the
//! first command would make a start take as long as the store is large.
//!
//! The keys are visited part by part ([`duramen::Visited`]), each part under the lock for writing. A commit holds it for
//! reading from before it writes until it has decided which of its changes it counts: those of keys that were visited. The
//! visit of the others is still to come, and finds them as the commit left them. So each key is counted once, and
//! once all have been visited the sum is as if they had been counted before the first command.
//!
//! Who asks for a count before that helps, and waits until all are visited.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use duramen::{Store, Visited};

use crate::counts::{Change, Counts, Life};
use crate::error::Result;

/// Keys that are being counted.
pub(crate) struct Counting {
    visited: RwLock<Visited>,
    /// Commits that wait for a part to end: the next one lets them in first.
    waiting: AtomicUsize,
    done: AtomicBool,
    /// What was found. Written to under the lock for writing alone.
    pub(crate) found: Arc<Counts>,
    databases: u8,
}

impl Counting {
    pub(crate) fn new(databases: u8) -> Self {
        Self {
            visited: RwLock::default(),
            waiting: AtomicUsize::new(0),
            done: AtomicBool::new(false),
            found: Arc::new(Counts::new(databases)),
            databases,
        }
    }

    /// Whether all keys have been counted.
    #[inline]
    pub(crate) fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `go_on`; what is written from now on was not visited.
        self.done.load(Acquire)
    }

    /// How far it has come; it goes no further until the result is dropped.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, Visited> {
        if let Ok(visited) = self.visited.try_read() {
            return visited;
        }
        self.waiting.fetch_add(1, Relaxed);
        let visited = self.visited.read().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_sub(1, Relaxed);
        visited
    }

    /// Visits a part; whether there are more.
    pub(crate) fn go_on(&self, store: &Store) -> Result<bool> {
        while self.waiting.load(Relaxed) > 0 {
            std::thread::yield_now();
        }
        let mut visited = self.visited.write().unwrap_or_else(PoisonError::into_inner);
        // Counted when the part was visited without an error: else it is visited again.
        let mut changes = Vec::new();
        store.visit_part(&mut visited, &mut |value| {
            if let Some(&db) = value.key().first()
                && db < self.databases
            {
                changes.push(Change { db, before: Life::Absent, after: Life::of(value.expires_at()) });
            }
        })?;
        changes.into_iter().for_each(|change| self.found.change(change, 0));
        self.done.store(visited.is_all(), Release);
        Ok(!visited.is_all())
    }
}

/// The thread that counts; it ends when this is dropped.
pub(crate) struct Counter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Counter {
    /// Where no thread can be had, whoever asks for a count does all of it.
    pub(crate) fn start(counting: Arc<Counting>, store: Store) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            // An error of the store is told to who asks for a count, and tries again.
            while !stopped.load(Relaxed) && counting.go_on(&store).unwrap_or(false) {}
        };
        let thread = std::thread::Builder::new().name("duramen-count".into()).spawn(work).ok();
        Self { stop, thread }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
