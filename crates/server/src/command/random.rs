//! What HRANDFIELD and SRANDMEMBER have in common.

use super::{Args, CommandError};

const OUT_OF_RANGE: CommandError = CommandError::new(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);

/// How many are to be drawn: negative when one may come again.
///
/// # Errors
/// Redis's, for what is no number, and for the one that has no opposite.
pub fn draws(args: Args<'_>, index: usize) -> Result<i64, CommandError> {
    match args.integer(index)? {
        i64::MIN => Err(OUT_OF_RANGE),
        count => Ok(count),
    }
}
