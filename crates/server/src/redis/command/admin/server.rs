//! The running server: TIME, LOLWUT.

use super::REDIS_VERSION;
use crate::redis::command::{Call, CommandError};
use std::time::{SystemTime, UNIX_EPOCH};

/// LOLWUT [VERSION version …]: the version, which Redis shows below a picture.
pub fn lolwut(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() >= 3 && call.args.is(1, "version") {
        call.args.integer(2)?;
    }
    call.reply.verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}

/// TIME: seconds since 1970, and microseconds.
pub fn time(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    call.reply.array(2);
    call.reply.bulk_integer(since.as_secs() as i64);
    call.reply.bulk_integer(i64::from(since.subsec_micros()));
    Ok(())
}
