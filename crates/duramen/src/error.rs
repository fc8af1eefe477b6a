//! What can go wrong at the engine's door, whose fault it is, and what to do.

use std::fmt;

/// A `Result` with the engine's [`Error`].
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
    /// No space is left for the write; reads and deletes go on.
    OutOfSpace,
    /// The kernel, device, CPU, or this version of Duramen cannot do what was asked.
    Unsupported,
    /// The device failed.
    Io,
    /// The medium holds something that Duramen did not write there, or no longer what it wrote.
    Corrupt,
    /// An earlier write-back failed, or a writer panicked: reads go on, writes are refused until the store is reopened.
    Poisoned,
    /// The store was opened to be read only.
    ReadOnly,
    /// A transaction met a key that another transaction has written, and neither may wait for the other: give it up,
    /// and begin again.
    Conflict,
    /// A transaction that its caller gave up: [`Error::aborted`].
    Aborted,
}

/// What was attempted, on what, what was found and wanted, and what to do.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    os_error: Option<i32>,
    /// See [`Error::cursor`].
    cursor: Option<u64>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), os_error: None, cursor: None }
    }

    /// For who gives up a transaction ([`Writer::transaction`](crate::Writer::transaction)): what `work` returns, and
    /// why.
    pub fn aborted(why: impl Into<String>) -> Self {
        Self::new(ErrorKind::Aborted, why)
    }

    /// A call on a handle of a store that was closed.
    #[cold]
    pub(crate) fn closed() -> Self {
        Self::invalid(
            "cannot use the store: it was closed, and this handle was idle then; drop it, and open the store again",
        )
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Says before the message what was attempted.
    pub(crate) fn context(mut self, attempted: &str) -> Self {
        self.message = format!("{attempted}: {}", self.message);
        self
    }

    /// As an error of the medium says, of which only the number is kept.
    pub(crate) fn with_os_error(mut self, of: &duramen_media::Error) -> Self {
        self.os_error = of.raw_os_error();
        self
    }

    /// The same, of a scan that can go on there.
    pub(crate) fn with_cursor(self, cursor: u64) -> Self {
        Self { cursor: Some(cursor), ..self }
    }

    /// Of a scan that met a damaged record: the cursor to go on with, 0 at the end. All else up to there was visited.
    #[must_use]
    pub fn cursor(&self) -> Option<u64> {
        self.cursor
    }

    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's number (`errno`), where it refused something. Of [`ErrorKind::OutOfSpace`]: the file system is full, or a
    /// limit of the system reached, and not the store's own.
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

// Without a source: the message has all of it, and reports of causes would show it twice.
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
