//! The running server: TIME, LOLWUT.

use super::REDIS_VERSION;
use crate::redis::command::{Call, CommandError};
use crate::redis::worker_state::unix_micros;

/// LOLWUT [VERSION version …]: the version, which Redis shows below a picture.
pub fn lolwut(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    if call.args.len() >= 3 && call.args.is(1, "version") {
        call.args.integer(2)?;
    }
    call.reply.verbatim(&format!("Redis ver. {REDIS_VERSION}\n"));
    Ok(())
}

/// TIME: seconds since 1970, and microseconds; in a script those when it first asked.
pub fn time(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let state = &mut call.worker_state;
    let micros = match state.is_in_script {
        true => *state.chances.micros.get_or_insert_with(unix_micros),
        false => unix_micros(),
    } as i64;
    call.reply.array(2);
    call.reply.bulk_integer(micros / 1_000_000);
    call.reply.bulk_integer(micros % 1_000_000);
    Ok(())
}
