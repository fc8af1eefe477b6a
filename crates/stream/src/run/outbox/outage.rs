//! What somebody waits for, to be shown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long something may last before it is told.
const REPORTED_AFTER: Duration = Duration::from_millis(1500);

/// What is waited for, and since when; shared by all who know something of it.
#[derive(Debug, Clone, Default)]
pub struct Outage(Arc<Mutex<Option<(Instant, String)>>>);

impl Outage {
    fn with<R>(&self, what: impl FnOnce(&mut Option<(Instant, String)>) -> R) -> R {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// There is some, perhaps for a while already.
    pub fn is(&self, what: impl Into<String>) {
        self.with(|outage| {
            let since = outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            *outage = Some((since, what.into()));
        });
    }

    /// There is none any more.
    pub fn is_over(&self) {
        self.with(|outage| *outage = None);
    }

    /// Whether there is some.
    #[cfg(feature = "kafka")]
    pub fn is_there(&self) -> bool {
        self.with(|outage| outage.is_some())
    }

    /// In words, once it has lasted: of a table that waits for somebody.
    pub fn report(&self, table: &str, whom: &str) -> Option<String> {
        self.with(|outage| {
            let (since, what) = outage.as_ref().filter(|(since, _)| since.elapsed() >= REPORTED_AFTER)?;
            let seconds = since.elapsed().as_secs();
            Some(format!("`{table}` waits for {whom} for {seconds} s: {what}"))
        })
    }
}
