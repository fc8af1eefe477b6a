//! Counters for INFO, without shared cache lines on the hot path.
//!
//! Each worker counts into its own [`WorkerStats`]. Only that worker writes it, so adding is a load and a store. INFO
//! sums over the workers. CONFIG RESETSTAT cannot zero another worker's counters: it remembers the current sums
//! ([`Totals`]), and INFO subtracts them.

use crate::counter::Counter;
use crate::observe::times::Histogram;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The counters of one command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Calls.
    pub calls: Counter,
    /// Total nanoseconds.
    pub nanos: Counter,
    /// Latencies.
    pub times: Histogram,
    /// Calls refused before they ran.
    pub rejected: Counter,
    /// Calls that answered with an error.
    pub failed: Counter,
}

/// The counters of one worker. Aligned so that two workers' counters never share a pair of lines.
#[derive(Debug)]
#[repr(align(128))]
pub struct WorkerStats {
    /// By position in the [`crate::redis::command::Table`].
    pub commands: Box<[CommandCounters]>,
    /// Commands that ran.
    pub commands_processed: Counter,
    /// Bytes received.
    pub input_bytes: Counter,
    /// Bytes sent.
    pub output_bytes: Counter,
    /// Reads from sockets.
    pub reads: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Turns of the event loop that ran commands: each is one wait for durability.
    pub turns: Counter,
    /// Error replies.
    pub error_replies: Counter,
    /// Keys that a command read and found, and those that it did not find. As in Redis only reads count, and not the
    /// look-ups of a write. A transaction that runs again counts again.
    pub keyspace_hits: Counter,
    /// See `keyspace_hits`.
    pub keyspace_misses: Counter,
    /// Transactions that ran again because something that they had read changed.
    pub repeated: Counter,
    /// Keys that were written, once for each transaction.
    pub changes: Counter,
    /// Keys that UNLINK, FLUSHDB ASYNC and FLUSHALL ASYNC removed; their space is freed in the background.
    pub lazyfreed: Counter,
    /// Fields of hashes that were deleted because their time was over.
    pub expired_fields: Counter,
    /// Clients disconnected because they did not read their replies.
    pub output_limit_disconnections: Counter,
    /// Clients disconnected because all clients' buffers together were too large.
    pub evicted_clients: Counter,
    /// Clients disconnected because their request was too large.
    pub query_limit_disconnections: Counter,
    /// Largest request buffer seen.
    pub input_bytes_max: Counter,
    /// Largest reply buffer seen.
    pub output_bytes_max: Counter,
    // Errors and INFO are rare: nobody waits for this lock.
    errors: Mutex<BTreeMap<String, u64>>,
}

// Redis stops at 128 kinds of errors, so that a client cannot grow the table without limit.
const ERROR_CODES_MAX: usize = 128;

impl WorkerStats {
    /// Counters for a table of `commands` commands.
    pub fn new(commands: usize) -> Self {
        Self {
            commands: (0..commands).map(|_| CommandCounters::default()).collect(),
            commands_processed: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            turns: Counter::default(),
            error_replies: Counter::default(),
            keyspace_hits: Counter::default(),
            keyspace_misses: Counter::default(),
            repeated: Counter::default(),
            changes: Counter::default(),
            lazyfreed: Counter::default(),
            expired_fields: Counter::default(),
            output_limit_disconnections: Counter::default(),
            evicted_clients: Counter::default(),
            query_limit_disconnections: Counter::default(),
            input_bytes_max: Counter::default(),
            output_bytes_max: Counter::default(),
            errors: Mutex::default(),
        }
    }

    /// Counts a key that a command read, and returns the result of the read.
    #[inline]
    pub fn read<T>(&self, found: Option<T>) -> Option<T> {
        self.read_key(found.is_some());
        found
    }

    /// Counts a key that a command read, by whether it was found.
    #[inline]
    pub fn read_key(&self, there: bool) -> bool {
        if there { &self.keyspace_hits } else { &self.keyspace_misses }.add(1);
        there
    }

    /// Counts an error reply with this code.
    pub fn error(&self, code: &str) {
        self.error_replies.add(1);
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = errors.get_mut(code) {
            *count += 1;
        } else if errors.len() < ERROR_CODES_MAX {
            errors.insert(code.to_owned(), 1);
        }
    }
}

/// Sums over all workers.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)] // As in `WorkerStats`.
pub struct Totals {
    pub commands: Vec<CommandTotals>,
    pub commands_processed: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub reads: u64,
    pub writes: u64,
    pub turns: u64,
    pub error_replies: u64,
    pub keyspace_hits: u64,
    pub keyspace_misses: u64,
    pub repeated: u64,
    pub lazyfreed: u64,
    /// See [`WorkerStats::expired_fields`].
    pub expired_fields: u64,
    pub output_limit_disconnections: u64,
    pub evicted_clients: u64,
    pub query_limit_disconnections: u64,
    pub input_bytes_max: u64,
    pub output_bytes_max: u64,
    pub errors: BTreeMap<String, u64>,
}

/// Sums over all workers for one command.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct CommandTotals {
    pub calls: u64,
    pub nanos: u64,
    pub rejected: u64,
    pub failed: u64,
}

impl Totals {
    /// Adds one worker's counters.
    pub fn add(&mut self, worker: &WorkerStats) {
        self.commands.resize(worker.commands.len(), CommandTotals::default());
        for (sum, part) in self.commands.iter_mut().zip(&worker.commands) {
            sum.calls += part.calls.get();
            sum.nanos += part.nanos.get();
            sum.rejected += part.rejected.get();
            sum.failed += part.failed.get();
        }
        self.commands_processed += worker.commands_processed.get();
        self.input_bytes += worker.input_bytes.get();
        self.output_bytes += worker.output_bytes.get();
        self.reads += worker.reads.get();
        self.writes += worker.writes.get();
        self.turns += worker.turns.get();
        self.error_replies += worker.error_replies.get();
        self.keyspace_hits += worker.keyspace_hits.get();
        self.keyspace_misses += worker.keyspace_misses.get();
        self.repeated += worker.repeated.get();
        self.lazyfreed += worker.lazyfreed.get();
        self.expired_fields += worker.expired_fields.get();
        self.output_limit_disconnections += worker.output_limit_disconnections.get();
        self.evicted_clients += worker.evicted_clients.get();
        self.query_limit_disconnections += worker.query_limit_disconnections.get();
        self.input_bytes_max = self.input_bytes_max.max(worker.input_bytes_max.get());
        self.output_bytes_max = self.output_bytes_max.max(worker.output_bytes_max.get());
        for (code, count) in worker.errors.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *self.errors.entry(code.clone()).or_default() += count;
        }
    }

    /// The counts since `base`.
    pub fn since(mut self, base: &Self) -> Self {
        for (now, then) in self.commands.iter_mut().zip(&base.commands) {
            now.calls -= then.calls.min(now.calls);
            now.nanos -= then.nanos.min(now.nanos);
            now.rejected -= then.rejected.min(now.rejected);
            now.failed -= then.failed.min(now.failed);
        }
        self.commands_processed -= base.commands_processed;
        self.input_bytes -= base.input_bytes;
        self.output_bytes -= base.output_bytes;
        self.reads -= base.reads;
        self.writes -= base.writes;
        self.turns -= base.turns;
        self.error_replies -= base.error_replies;
        self.keyspace_hits -= base.keyspace_hits;
        self.keyspace_misses -= base.keyspace_misses;
        self.repeated -= base.repeated;
        self.lazyfreed -= base.lazyfreed;
        self.expired_fields -= base.expired_fields;
        self.output_limit_disconnections -= base.output_limit_disconnections;
        self.evicted_clients -= base.evicted_clients;
        self.query_limit_disconnections -= base.query_limit_disconnections;
        for (code, then) in &base.errors {
            if let Some(now) = self.errors.get_mut(code) {
                *now -= (*then).min(*now);
            }
        }
        self.errors.retain(|_, count| *count > 0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_sum_workers_and_exclude_counts_before_a_reset() {
        let (one, two) = (WorkerStats::new(2), WorkerStats::new(2));
        one.commands[1].calls.add(3);
        two.commands[1].calls.add(4);
        one.error("ERR");
        two.error("ERR");
        two.error("NOAUTH");
        assert_eq!((one.read(Some(5)), two.read(None::<u8>)), (Some(5), None));
        let mut base = Totals::default();
        base.add(&one);
        base.add(&two);
        assert_eq!((base.commands[1].calls, base.errors["ERR"], base.error_replies), (7, 2, 3));
        assert_eq!((base.keyspace_hits, base.keyspace_misses), (1, 1));
        one.commands[1].calls.add(1);
        two.read_key(true);
        let mut now = Totals::default();
        now.add(&one);
        now.add(&two);
        let since = now.since(&base);
        assert_eq!((since.commands[1].calls, since.errors.len()), (1, 0));
        assert_eq!((since.keyspace_hits, since.keyspace_misses), (1, 0));
    }
}
