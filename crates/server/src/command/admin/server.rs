//! The running server: SAVE, BGSAVE, LASTSAVE, TIME, LOLWUT.

use super::REDIS_VERSION;
use crate::command::{After, Call, CommandError, errors};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// SAVE. There is no snapshot to write: saving makes everything so far survive what the medium can survive, whatever
/// the durability.
pub fn save(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    *call.after = After::Save;
    call.reply.ok();
    Ok(())
}

/// BGSAVE [SCHEDULE]: SAVE. It answers when that is done, which takes one wait for the device.
pub fn bgsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    match call.args.len() {
        1 => {}
        2 if call.args.is(1, "schedule") => {}
        _ => return Err(errors::SYNTAX),
    }
    *call.after = After::Save;
    call.reply.simple("Background saving started");
    Ok(())
}

/// LASTSAVE: when everything was last saved, in Unix seconds.
pub fn lastsave(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    call.reply.integer(call.server.saved_at.load(Ordering::Relaxed) as i64);
    Ok(())
}

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
