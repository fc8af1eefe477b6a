//! The texts of error replies, letter for letter those of Redis 7.0: clients match on them.

use crate::command_error::CommandError;
pub use crate::command_error::OUT_OF_SPACE;

/// The maximum shown of an unknown name, as in Redis.
pub const SHOWN_BYTES_MAX: usize = 128;

/// The shown part of such a name.
pub fn shown_of(name: &[u8]) -> &[u8] {
    &name[..name.len().min(SHOWN_BYTES_MAX)]
}

/// Options that do not fit together or are not known.
pub const SYNTAX: CommandError = CommandError::new("ERR syntax error");
/// Waiting clients could tell a batch from single commands. No client sees this error: the commands then run one at a
/// time.
pub const NOT_MERGED: CommandError = CommandError::new("ERR commands cannot run as one");
/// Not an integer, or not one of 64 bits.
pub const NOT_INTEGER: CommandError = CommandError::new("ERR value is not an integer or out of range");
/// Not a floating-point number.
pub const NOT_FLOAT: CommandError = CommandError::new("ERR value is not a valid float");
/// Below zero where only a count makes sense.
pub const NOT_POSITIVE: CommandError = CommandError::new("ERR value is out of range, must be positive");
/// An invalid or zero number of keys.
pub const NO_KEYS: CommandError = CommandError::new("ERR numkeys should be greater than 0");
/// More than the command accepts.
pub const OUT_OF_RANGE: CommandError = CommandError::new("ERR value is out of range");
/// The key holds another type.
pub const WRONG_TYPE: CommandError =
    CommandError::new("WRONGTYPE Operation against a key holding the wrong kind of value");
/// The key is not there.
pub const NO_SUCH_KEY: CommandError = CommandError::new("ERR no such key");
/// INCR and DECR beyond 64 bits.
pub const OVERFLOW: CommandError = CommandError::new("ERR increment or decrement would overflow");
/// Source and destination are one.
pub const SAME_OBJECT: CommandError = CommandError::new("ERR source and destination objects are the same");
/// An invalid database number.
pub const DB_OUT_OF_RANGE: CommandError = CommandError::new("ERR DB index is out of range");
/// The first database of SWAPDB is no number.
pub const FIRST_DB_INVALID: CommandError = CommandError::new("ERR invalid first DB index");
/// An invalid second database number.
pub const SECOND_DB_INVALID: CommandError = CommandError::new("ERR invalid second DB index");
/// An invalid scan position.
pub const INVALID_CURSOR: CommandError = CommandError::new("ERR invalid cursor");
/// A command before AUTH.
pub const NO_AUTH: CommandError = CommandError::new("NOAUTH Authentication required.");
/// AUTH with the wrong name or password.
pub const WRONG_PASS: CommandError =
    CommandError::new("WRONGPASS invalid username-password pair or user is disabled.");
/// EXEC after a command that could not be queued.
pub const EXEC_ABORT: CommandError =
    CommandError::new("EXECABORT Transaction discarded because of previous errors.");
/// A command with `NO_MULTI` inside MULTI.
pub const NOT_IN_TRANSACTION: CommandError =
    CommandError::new("ERR Command not allowed inside a transaction");

/// XREADGROUP of a group that there is not, or no longer.
pub fn no_group_to_read(key: &[u8], group: &[u8]) -> CommandError {
    CommandError::showing("NOGROUP No such key '", key, "' or consumer group '").and_showing(
        "",
        group,
        "' in XREADGROUP with GROUP option",
    )
}
