//! What all connections of a running server share.

use crate::clients::Clients;
use crate::keyspace::Keyspace;
use crate::stats::{Totals, WorkerStats};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What all connections share. No command that only reads or writes keys takes a lock in here.
pub struct Server {
    /// The databases.
    pub keyspace: Keyspace,
    /// All connections.
    pub clients: Clients,
    /// When it started.
    pub started: Instant,
    /// One for each worker.
    pub workers: Vec<Arc<WorkerStats>>,
    reset: Mutex<Totals>,
}

impl Server {
    /// Sums over all workers since the last CONFIG RESETSTAT.
    pub fn totals(&self) -> Totals {
        self.totals_ever().since(&self.reset.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// CONFIG RESETSTAT.
    pub fn totals_reset(&self) {
        let now = self.totals_ever();
        *self.reset.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn totals_ever(&self) -> Totals {
        let mut totals = Totals::default();
        for worker in &self.workers {
            totals.add(worker);
        }
        totals
    }
}
