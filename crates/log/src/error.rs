//! The engine's errors: whose fault they are, and what to do.

use std::fmt;

/// A `Result` with the engine's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The cause of an error, and so the possible remedies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's request is invalid.
    InvalidInput,
    /// The path does not exist.
    NotFound,
    /// The path exists, and a new store was requested.
    AlreadyExists,
    /// Another process, or another opener in this one, owns the store.
    InUse,
    /// The operating system refuses access.
    PermissionDenied,
    /// No space is left for the write; reads and deletes still work.
    OutOfSpace,
    /// The kernel, device, CPU, or this version of Duramen does not support the request.
    Unsupported,
    /// The device failed.
    Io,
    /// The medium holds bytes that Duramen did not write there, or that have changed since.
    Corrupt,
    /// An earlier write-back failed, or a writer panicked: reads still work, writes are refused until the store is
    /// reopened.
    Poisoned,
    /// The store was opened read-only.
    ReadOnly,
    /// A transaction found a key that another transaction has written, and neither may wait for the other: abort it,
    /// and begin again.
    Conflict,
    /// A transaction that its caller aborted: [`Error::aborted`].
    Aborted,
}

/// An error: what was attempted, on what, what was found and wanted, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    os_error: Option<i32>,
    /// See [`Error::cursor`].
    cursor: Option<u64>,
}

// Hidden from the documentation: constructors for the engine's crates.
impl Error {
    #[doc(hidden)]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), os_error: None, cursor: None }
    }

    /// The error that `work` returns to abort a transaction (`Writer::transaction`), with
    /// the reason.
    pub fn aborted(why: impl Into<String>) -> Self {
        Self::new(ErrorKind::Aborted, why)
    }

    /// The error of a call on a handle of a closed store.
    #[doc(hidden)]
    #[cold]
    pub fn closed() -> Self {
        Self::invalid(
            "cannot use the store: it was closed, and this handle was idle then; drop it, and open the store again",
        )
    }

    #[doc(hidden)]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    #[doc(hidden)]
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Puts the attempted operation before the message.
    #[doc(hidden)]
    pub fn context(mut self, attempted: &str) -> Self {
        self.message = format!("{attempted}: {}", self.message);
        self
    }

    /// Adds the number of the operating system's error, if the medium's error has one.
    #[doc(hidden)]
    pub fn with_os_error(mut self, of: &duramen_media::Error) -> Self {
        self.os_error = of.raw_os_error();
        self
    }

    /// Adds the cursor where a scan can continue.
    #[doc(hidden)]
    pub fn with_cursor(self, cursor: u64) -> Self {
        Self { cursor: Some(cursor), ..self }
    }

    /// For a scan that found a damaged record: the cursor to continue from, 0 at the end. Everything else up to there
    /// was visited.
    #[must_use]
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// The cause of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's number (`errno`), where the system refused something. With [`ErrorKind::OutOfSpace`]: the
    /// file system is full, or a limit of the system, not of the store, is reached.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.os_error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// Without a source: the message contains everything, and reports of causes would show it twice.
impl std::error::Error for Error {}

impl From<duramen_media::Error> for Error {
    fn from(error: duramen_media::Error) -> Self {
        use duramen_media::ErrorKind as Media;
        let kind = match error.kind() {
            Media::InvalidInput => ErrorKind::InvalidInput,
            Media::NotFound => ErrorKind::NotFound,
            Media::AlreadyExists => ErrorKind::AlreadyExists,
            Media::InUse => ErrorKind::InUse,
            Media::PermissionDenied => ErrorKind::PermissionDenied,
            Media::OutOfSpace => ErrorKind::OutOfSpace,
            Media::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Io,
        };
        Self::new(kind, error.to_string()).with_os_error(&error)
    }
}
