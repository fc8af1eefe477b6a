//! The turn of a worker: the engine's writer that all protocols share, and one wait for durability for all requests.
//!
//! A failure of the store in a turn belongs to all protocols: the outcome of all requests of the turn is unknown.

use crate::clients::unix_millis;
use crate::command_error::{CommandError, StoreFailure};
use crate::observe::times::Tick;
use crate::server::Server;
use duramen_structures::Worker;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

const NOT_DURABLE: CommandError = CommandError::failed(
    "MISCONF internal error: crash while committing; the effect of the writes is unknown, see the server's log",
);

/// The other connections of a worker, while a request of one takes long. Whoever executes it calls this from time to
/// time, so that the others are not left without any answer.
pub trait Bystanders {
    /// Reads what has arrived, and lets the protocol answer what it can.
    fn serve(&mut self);

    /// The concrete type again.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// See the module.
pub struct Turn {
    /// Reads and writes keys.
    pub keys: Worker,
    /// The turn's time in Unix milliseconds.
    pub now: u64,
    /// All time before this is charged to requests.
    pub clock: Instant,
    /// The coarse clock when `clock` was read.
    pub tick: Tick,
    /// The worker's other connections, while one executes.
    pub bystanders: Option<Box<dyn Bystanders>>,
    server: Arc<Server>,
    // The store failed during this turn, whichever request noticed.
    failed: Option<CommandError>,
    // A failure was seen, so the store has taken no writes since.
    failed_before: bool,
}

impl Turn {
    /// The turns of a worker that reads and writes keys through `keys`.
    pub fn new(server: Arc<Server>, keys: Worker) -> Self {
        let (clock, tick) = (Instant::now(), Tick::now());
        Self { keys, now: 0, clock, tick, bystanders: None, server, failed: None, failed_before: false }
    }

    /// Begins a turn: all that is executed until [`Self::flush`] becomes durable together.
    pub fn begin(&mut self) {
        self.keys.group();
        self.clock = Instant::now();
        self.tick = Tick::now();
        self.now = unix_millis();
    }

    /// Makes the turn's writes, and those of others that it read, durable. Replies may leave after it.
    ///
    /// # Errors
    /// When that failed: the turn's effects must not be shown.
    pub fn flush(&mut self) -> Result<(), CommandError> {
        let flushed = catch_unwind(AssertUnwindSafe(|| self.keys.flush_group()));
        if self.server.times.each() || self.tick != Tick::now() {
            self.server.times.spike("aof-fsync-always", self.clock.elapsed().as_micros() as u64);
        }
        let flushed = flushed.map_or(Err(NOT_DURABLE), |flushed| flushed.map_err(CommandError::from));
        if let Err(error) = &flushed {
            self.note(error.clone());
        }
        // A scan or a save flushes in the middle of a turn. If that failed, the earlier writes are in doubt although
        // nothing is left to flush now.
        self.failed.take().map_or(flushed, Err)
    }

    /// Records a failure of the store. A failure found earlier is an error of the request that finds it, and of no
    /// other; [`Self::flush`] decides whether the turn's earlier writes are in doubt. So clients that only read continue.
    pub fn note(&mut self, error: CommandError) {
        let Some(failure) = error.store_failure() else { return };
        if failure == StoreFailure::Now || !self.failed_before {
            self.server.log_failure(&error);
            self.failed_before = true;
        }
        if failure == StoreFailure::Now {
            self.failed = Some(error);
        }
    }

    /// Records a panic that has left its transaction; returns whether it was within a write.
    pub fn note_panic(&mut self) -> bool {
        let is_poisoned = self.server.keyspace.store().check_writable().is_err();
        // Whether the rest of the turn is in doubt is for `flush` to say.
        self.failed_before |= is_poisoned;
        is_poisoned
    }
}
