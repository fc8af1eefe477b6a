//! An outage of another system, for reports.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an outage must last before it is reported.
const REPORTED_AFTER: Duration = Duration::from_millis(1500);

/// What is waited for, and since when; shared by all parts that notice it.
#[derive(Debug, Clone, Default)]
pub struct Outage(Arc<Mutex<Option<(Instant, String)>>>);

impl Outage {
    fn with<R>(&self, what: impl FnOnce(&mut Option<(Instant, String)>) -> R) -> R {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// There is an outage, which may have begun earlier.
    pub fn is(&self, what: impl Into<String>) {
        self.with(|outage| {
            let since = outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            *outage = Some((since, what.into()));
        });
    }

    /// The outage is over.
    pub fn is_over(&self) {
        self.with(|outage| *outage = None);
    }

    /// Whether there is an outage.
    #[cfg(feature = "kafka")]
    pub fn is_there(&self) -> bool {
        self.with(|outage| outage.is_some())
    }

    /// A description of an outage that has lasted: the table, and the system that it waits for.
    pub fn report(&self, table: &str, peer: &str) -> Option<String> {
        self.with(|outage| {
            let (since, what) = outage.as_ref().filter(|(since, _)| since.elapsed() >= REPORTED_AFTER)?;
            let seconds = since.elapsed().as_secs();
            Some(format!("`{table}` has waited {seconds} s for {peer}: {what}"))
        })
    }
}
