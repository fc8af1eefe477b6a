//! In-process jobs next to the server, and their state.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The last report of each job, by name; INFO shows it.
#[derive(Debug, Default)]
pub struct HostedJobs(Mutex<BTreeMap<String, String>>);

impl HostedJobs {
    /// Names and last reports.
    pub fn all(&self) -> Vec<(String, String)> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().map(|(name, text)| (name.clone(), text.clone())).collect()
    }

    /// Reports the state of the named job, in one line.
    pub fn report(&self, name: &str, text: &str) {
        let text = text.replace(['\r', '\n'], " ");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), text);
    }
}
