//! Errors that stop a load; their messages say what to do.

use std::fmt;

/// Why a load stopped before its end.
#[derive(Debug)]
pub struct Failure {
    message: String,
    usage: bool,
}

/// Result of a load.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: false }
    }

    /// The caller asked for something impossible.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), usage: true }
    }

    /// Whether the command line is wrong.
    pub fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<crate::report::Error> for Failure {
    fn from(error: crate::report::Error) -> Self {
        Self::new(error.to_string())
    }
}
