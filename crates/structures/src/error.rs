//! What can go wrong between a command and a value.
//!
//! Redis clients match on error texts, so `Display` gives them letter for letter as Redis 7.0 words them, code word
//! included (`ERR`, `WRONGTYPE`): the server sends the text unchanged.

use std::fmt;

use crate::Type;
use crate::packed::Malformed;

// As Redis shows of what a client sent.
const KEY_SHOWN_BYTES_MAX: usize = 128;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a value could not be read or changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The key holds another type than the command works on.
    WrongType,
    /// The value or argument is no signed 64-bit integer.
    NotInteger,
    /// The value or argument is no number that a long double can hold.
    NotFloat,
    /// INCRBY or DECRBY would leave the signed 64-bit range.
    Overflow,
    /// DECRBY by the one number whose negation does not exist.
    DecrementOverflow,
    /// INCRBYFLOAT would leave the finite numbers.
    NanOrInfinity,
    /// The string would become longer than `proto-max-bulk-len`.
    TooLong,
    /// SETRANGE with a negative offset.
    OffsetRange,
    /// A key longer than [`crate::KEY_BYTES_MAX`]. Redis allows longer ones; the text is our own.
    KeyTooLong,
    /// Expiry times in a hash of which a field is longer than [`crate::KEY_BYTES_MAX`], or such a field in a hash with
    /// expiry times. Redis allows both; the text is our own.
    FieldTooLong,
    /// RESTORE of bytes whose version or checksum is not one this build reads.
    DumpChecksum,
    /// RESTORE of bytes that are intact but not the encoding of a value.
    DumpFormat,
    /// RESTORE of a type that this build does not store yet; holds the RDB type number.
    DumpType(u8),
    /// COPY or MOVE onto the key itself.
    SameObject,
    /// A key that must exist does not.
    NoSuchKey,
    /// There are not so many databases.
    NoSuchDatabase,
    /// The value at a key is not a collection of the type of its tag.
    Malformed {
        /// The type.
        type_: Type,
        /// The key.
        key: Box<[u8]>,
        /// The flaw, and its place.
        malformed: Malformed,
    },
    /// The group of transactions could not be made durable, as an earlier error said.
    GroupNotDurable,
    /// A command of the transaction failed when it had written a part of a large value.
    Incomplete,
    /// One of several commands that run as one cannot be done by one write: see [`Edit::begins_run`](crate::Edit::begins_run).
    SeveralWrites,
    /// A transaction that named no key came to a value that is read under its key's lock. It names the key and begins again.
    NeedsKey,
    /// The engine refused; `kind()` gives the cause.
    Engine(duramen::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::NotInteger => "ERR value is not an integer or out of range",
            Self::NotFloat => "ERR value is not a valid float",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::DecrementOverflow => "ERR decrement would overflow",
            Self::NanOrInfinity => "ERR increment would produce NaN or Infinity",
            Self::TooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::OffsetRange => "ERR offset is out of range",
            Self::KeyTooLong => "ERR key is longer than 65536 bytes",
            Self::FieldTooLong => "ERR a hash whose fields expire has no field of more than 65536 bytes",
            Self::DumpChecksum => "ERR DUMP payload version or checksum are wrong",
            Self::DumpFormat => "ERR Bad data format",
            Self::DumpType(rdb_type) => {
                return write!(f, "ERR Bad data format: values of RDB type {rdb_type} are not supported");
            }
            Self::SameObject => "ERR source and destination objects are the same",
            Self::NoSuchKey => "ERR no such key",
            Self::NoSuchDatabase => "ERR DB index is out of range",
            Self::Malformed { type_, key, malformed } => {
                let (shown, dots) =
                    (&key[..key.len().min(KEY_SHOWN_BYTES_MAX)], key.len() > KEY_SHOWN_BYTES_MAX);
                return write!(
                    f,
                    "CORRUPT the {} at key '{}{}' cannot be read {malformed}; delete the key or set it again",
                    type_.name(),
                    shown.escape_ascii(),
                    if dots { "..." } else { "" },
                );
            }
            Self::GroupNotDurable => "MISCONF earlier writes of this group could not be made durable",
            Self::Incomplete => {
                "ERR a command failed when a part of what it changes was written; nothing of its transaction was kept"
            }
            Self::SeveralWrites => "ERR internal error: one of several commands that run as one takes several writes",
            Self::NeedsKey => "ERR internal error: a large string was to be read without the lock of its key",
            Self::Engine(error) => return write!(f, "ERR {error}"),
        })
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            _ => None,
        }
    }
}

/// Whether a key's record is damaged, or one that may be the key's.
pub(crate) fn is_damaged(error: &duramen::Error) -> bool {
    error.kind() == duramen::ErrorKind::Corrupt
}

impl From<duramen::Error> for Error {
    fn from(error: duramen::Error) -> Self {
        Self::Engine(error)
    }
}
