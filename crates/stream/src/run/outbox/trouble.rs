//! What somebody waits for, to be shown.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long something may last before it is told.
const TOLD_AFTER: Duration = Duration::from_millis(1500);

/// What is waited for, and since when; shared by all who know something of it.
#[derive(Debug, Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<(Instant, String)>>>);

impl Trouble {
    fn with<R>(&self, what: impl FnOnce(&mut Option<(Instant, String)>) -> R) -> R {
        what(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// There is some, perhaps for a while already.
    pub fn is(&self, what: impl Into<String>) {
        self.with(|trouble| {
            let since = trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            *trouble = Some((since, what.into()));
        });
    }

    /// There is none any more.
    pub fn is_over(&self) {
        self.with(|trouble| *trouble = None);
    }

    /// Whether there is some.
    #[cfg(feature = "kafka")]
    pub fn is_there(&self) -> bool {
        self.with(|trouble| trouble.is_some())
    }

    /// In words, once it has lasted: of a table that waits for somebody.
    pub fn told(&self, table: &str, whom: &str) -> Option<String> {
        self.with(|trouble| {
            let (since, what) = trouble.as_ref().filter(|(since, _)| since.elapsed() >= TOLD_AFTER)?;
            let seconds = since.elapsed().as_secs();
            Some(format!("`{table}` waits for {whom} for {seconds} s: {what}"))
        })
    }
}
