//! SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] | ABORT: ends the server cleanly. Nothing acknowledged is lost by any of the
//! forms. The connection ends without a reply.

use crate::observe::log;
use crate::redis::command::scripting::script::busy_error;
use crate::redis::command::{Call, CommandError, errors};
use std::time::{Duration, Instant};

/// SHUTDOWN [NOSAVE|SAVE] [NOW] [FORCE] | ABORT. While a script runs too long only NOSAVE ends it, and the server.
pub fn shutdown(call: &mut Call<'_, '_>) -> Result<(), CommandError> {
    let (mut save, mut no_save, mut others, mut abort) = (false, false, false, false);
    for index in 1..call.args.len() {
        let is = |word| call.args.is(index, word);
        save |= is("save");
        no_save |= is("nosave");
        abort |= is("abort");
        others |= is("now") || is("force");
        if !(is("save") || is("nosave") || is("abort") || is("now") || is("force")) {
            return Err(errors::SYNTAX);
        }
    }
    if (save && no_save) || (abort && (save || no_save || others)) {
        return Err(errors::SYNTAX);
    }
    if !no_save && let Some(busy) = call.server.running_scripts.first() {
        return Err(busy_error(&busy));
    }
    if abort {
        // A shutdown here waits for nothing, so none can be under way.
        return Err(CommandError::new("ERR No shutdown in progress."));
    }
    log::notice(format_args!("SHUTDOWN from {}: ending", call.session.client.address));
    call.server.stop.request();
    // Until the worker closes it, the connection executes nothing more.
    call.session.paused_until = Some(Instant::now() + Duration::from_secs(60));
    Ok(())
}
