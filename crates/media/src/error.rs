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

    /// The same, with the operating system's error behind it, whose text is appended.
    #[must_use]
    pub fn with_source(
        kind: ErrorKind,
        message: impl Into<String>,
        source: impl Into<std::io::Error>,
    ) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    /// An error of a system call: the kind follows from the operating system's number.
    #[must_use]
    pub(crate) fn os(message: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        Self { kind: kind_of(&source), message: message.into(), source: Some(source) }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The operating system's number (`errno`), where it refused something.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.source.as_ref().and_then(std::io::Error::raw_os_error)
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

// Without a source: the message ends with the operating system's, and reports of causes would show it twice.
impl std::error::Error for Error {}

/// What an error of the operating system means for the caller.
pub(crate) fn kind_of(source: &std::io::Error) -> ErrorKind {
    use rustix::io::Errno;
    match Errno::from_io_error(source) {
        Some(Errno::NOENT | Errno::NOTDIR) => ErrorKind::NotFound,
        Some(Errno::EXIST) => ErrorKind::AlreadyExists,
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => ErrorKind::PermissionDenied,
        // FBIG: the file system's largest file is reached, which for a store is the same as full.
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::NOMEM) => ErrorKind::OutOfSpace,
        Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => ErrorKind::Unsupported,
        Some(Errno::INVAL | Errno::NAMETOOLONG | Errno::LOOP) => ErrorKind::InvalidInput,
        _ => ErrorKind::Io,
    }
}

/// A count of bytes as people write it: the largest unit, with one decimal where it is not whole.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes >> shift == 0 {
            continue;
        }
        return if bytes.trailing_zeros() >= shift {
            format!("{} {unit}", bytes >> shift)
        } else {
            format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64)
        };
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_in_the_largest_unit() {
        assert_eq!(bytes_text(0), "0 bytes");
        assert_eq!(bytes_text(1023), "1023 bytes");
        assert_eq!(bytes_text(4096), "4 KiB");
        assert_eq!(bytes_text(1536), "1.5 KiB");
        assert_eq!(bytes_text(1 << 40), "1 TiB");
    }

    #[test]
    fn a_full_disk_a_quota_and_a_full_memory_are_out_of_space() {
        for errno in [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT, rustix::io::Errno::NOMEM] {
            assert_eq!(kind_of(&errno.into()), ErrorKind::OutOfSpace);
        }
    }
}
