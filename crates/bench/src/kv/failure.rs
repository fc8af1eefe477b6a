//! Why a benchmark stopped, and whether the command line is at fault.

use std::fmt;

/// Why a benchmark stopped.
#[derive(Debug)]
pub struct Failure {
    text: String,
    usage: bool,
}

/// A result whose error is a [`Failure`].
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// An error of the store or the system, or a wrong value.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: false }
    }

    /// An impossible request: the user must ask for something else.
    pub fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: true }
    }

    /// A key that was put is missing.
    #[cold]
    pub(crate) fn missing(number: u64, op: &str) -> Self {
        Self::new(format!(
            "{op} did not find key {number}, which was put; the engine lost data, so no figures are given"
        ))
    }

    /// Whether the command line must change.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl From<duramen::Error> for Failure {
    fn from(error: duramen::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<duramen_media::Error> for Failure {
    fn from(error: duramen_media::Error) -> Self {
        Self::new(error.to_string())
    }
}
