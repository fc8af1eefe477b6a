//! What can go wrong with a medium, and whose fault it is.

use std::fmt;

/// A `Result` with a medium's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Whose fault an error is, and so what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that cannot be.
    InvalidInput,
    /// The path does not exist.
    NotFound,
    /// The path exists and a new store was asked for.
    AlreadyExists,
    /// Another process, or another opener in this one, owns the store.
    InUse,
    /// The operating system refuses access.
    PermissionDenied,
    /// The device, file system or reserved range is full.
    OutOfSpace,
    /// The kernel, file system, device or CPU cannot do what was asked.
    Unsupported,
    /// A write-back or another operation of the device failed.
    Io,
}

/// What was attempted, on what, what was found, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<std::io::Error>,
}

impl Error {
    /// An error with a message that says what was attempted, on what, found and wanted, and what
    /// to do.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same, with the operating system's error as its source; its text is appended.
    #[must_use]
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
