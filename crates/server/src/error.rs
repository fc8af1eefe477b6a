//! Why the server could not start, or had to stop.

use std::fmt;

/// Where the cause lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A directive, an argument or a configuration file.
    Configuration,
    /// An address or a Unix socket that cannot be listened on.
    Address,
    /// The store could not be opened or closed.
    Store,
    /// The operating system refused another request.
    System,
}

impl ErrorKind {
    /// The exit code of `duramen serve`: 2 configuration, 3 store, 4 address, 1 anything else. 0 is a
    /// clean shutdown.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::System => 1,
            Self::Configuration => 2,
            Self::Store => 3,
            Self::Address => 4,
        }
    }
}

/// An error: what was attempted, on what, what prevented it, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Where the cause lies.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
