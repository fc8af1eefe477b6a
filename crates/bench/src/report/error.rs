//! Errors of a file of results: place, found, wanted, and what to do.

use std::fmt;

/// A file of results, or of prices, that cannot be used.
#[derive(Debug)]
pub struct Error {
    message: String,
}

/// Result of reading or writing results.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
