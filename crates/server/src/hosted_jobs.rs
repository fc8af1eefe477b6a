//! Who runs in the server's own process besides it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What is told of them, by their names: INFO shows it.
#[derive(Debug, Default)]
pub struct HostedJobs(Mutex<BTreeMap<String, String>>);

impl HostedJobs {
    /// Names, and what was told last.
    pub fn all(&self) -> Vec<(String, String)> {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.iter().map(|(name, text)| (name.clone(), text.clone())).collect()
    }

    /// Tells how it stands with who has this name; one line.
    pub fn report(&self, name: &str, text: &str) {
        let text = text.replace(['\r', '\n'], " ");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), text);
    }
}
